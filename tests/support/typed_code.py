"""Losses as engineers type them, run on numbers: an oracle that shares no code with the reader.

`run` executes lines of the tests, which are trusted, with stand-ins for torch, jax and numpy that carry the
derivative with respect to log q.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import sympy

from klsym.language.expressions import log_q, remove_sg, unfold

RNG = np.random.default_rng(7)
NAMES = ("log_q", "log_p", "log_mu", "log_old", "A", "R")
POINT = dict(zip(NAMES, RNG.normal(scale=0.6, size=(6, 40)), strict=True))
PARAMETERS = {name: value for value, names in (
    (0.3, "beta kl_coef kl_ctl"), (0.2, "eps clip_eps cliprange epsilon_low epsilon_high"), (1.1, "clip_max"),
) for name in names.split()}  # fmt: skip
MASK = RNG.random(40) < 0.7


class Dual:
    """An array with its derivative with respect to log q: the methods of a tensor."""

    __array_ufunc__ = None

    def __init__(self, value: Any, slope: Any = 0.0) -> None:
        self.value = np.asarray(value, float)
        self.slope = np.broadcast_to(np.asarray(slope, float), self.value.shape)

    def then(self, value: Any, rate: Any) -> Dual:
        return Dual(value, rate * self.slope)

    def __add__(self, other: Any) -> Dual:
        y = dual(other)
        return Dual(self.value + y.value, self.slope + y.slope)

    def __mul__(self, other: Any) -> Dual:
        y = dual(other)
        return Dual(self.value * y.value, self.slope * y.value + self.value * y.slope)

    def __pow__(self, n: Any) -> Dual:
        return self.then(self.value**n, n * self.value ** (n - 1))

    __radd__, __rmul__ = __add__, __mul__

    def clamp(self, min: Any = -np.inf, max: Any = np.inf) -> Dual:
        return dual(min).maximum(self).minimum(max)

    def sum(self, axis: Any = None, dim: Any = None) -> Dual:
        return Dual(self.value.sum(axis), np.sum(self.slope, axis))

    def mean(self, axis: Any = None) -> Dual:
        return Dual(self.value.mean(axis), np.mean(self.slope, axis))


OPERATIONS: dict[str, Any] = {
    "__neg__": lambda x: x * -1,
    "__sub__": lambda x, y: x + -dual(y),
    "__rsub__": lambda x, y: dual(y) - x,
    "__truediv__": lambda x, y: x * dual(y) ** -1,
    "__rtruediv__": lambda x, y: dual(y) * x**-1,
    "__gt__": lambda x, y: x.value > dual(y).value,
    "exp": lambda x: x.then(np.exp(x.value), np.exp(x.value)),
    "expm1": lambda x: x.then(np.expm1(x.value), np.exp(x.value)),
    "log1p": lambda x: x.then(np.log1p(x.value), 1 / (1 + x.value)),
    "logsigmoid": lambda x: -(-x).exp().log1p(),
    "abs": lambda x: x.then(np.abs(x.value), np.sign(x.value)),
    "square": lambda x: x**2,
    "detach": lambda x: Dual(x.value),
    "unsqueeze": lambda x, axis: x,
    "contiguous": lambda x: x,
    "minimum": lambda x, y: where(x.value < dual(y).value, x, y),
    "maximum": lambda x, y: where(x.value > dual(y).value, x, y),
    "pow": Dual.__pow__, "mul": Dual.__mul__, "clamp_max": lambda x, y: x.minimum(y),
}  # fmt: skip
for _name, _operation in OPERATIONS.items():
    setattr(Dual, _name, _operation)


def dual(x: Any) -> Dual:
    return x if isinstance(x, Dual) else Dual(x)


def where(condition: Any, x: Any, y: Any) -> Dual:
    a, b = dual(x), dual(y)
    return Dual(np.where(condition, a.value, b.value), np.where(condition, a.slope, b.slope))


def kl_div(a: Dual, b: Dual, log_target: bool, reduction: str) -> Dual:
    """Of one prefix: the sum over the vocabulary is the mean over a batch of one."""
    assert log_target
    each = b.exp() * (b - a)
    return each if reduction == "none" else each.sum()


def method(name: str) -> Any:
    return lambda x, *rest, **named: getattr(dual(x), name)(*rest, **named)


LIBRARY = SimpleNamespace(
    **{name: method(name) for name in (*OPERATIONS, "mean", "sum", "clamp") if name[0] != "_"},
    min=method("minimum"), max=method("maximum"), clip=method("clamp"), where=where, kl_div=kl_div,
    lax=SimpleNamespace(stop_gradient=method("detach")),
)  # fmt: skip


def world() -> dict[str, Any]:
    """All that the lines name, with numbers."""
    values = {name: Dual(value, name == "log_q") for name, value in POINT.items()}
    names = {
        "log_q": "logp logprobs logprob new_logp log_probs log_prob per_token_logps",
        "log_p": "ref_logp ref_logprobs ref_logprob log_probs_base ref_per_token_logps",
        "log_mu": "old_logp old_log_probs old_log_prob old_per_token_logps",
        "A": "adv advantages", "R": "rewards",
    }  # fmt: skip
    values |= {other: values[name] for name, others in names.items() for other in others.split()}
    rho = (values["log_q"] - values["log_mu"]).exp()
    values |= {"k1": values["log_q"] - values["log_p"], "rho": rho, "ratio": rho}
    mask, options = Dual(MASK), SimpleNamespace(**PARAMETERS)
    options.args = options.cfg = options
    values |= dict.fromkeys(("mask", "response_mask", "completion_mask"), mask)
    values |= dict.fromkeys(("torch", "np", "jnp", "jax", "F"), LIBRARY)
    return values | PARAMETERS | {
        "self": options, "cfg": options, "batch": values,
        "masked_mean": lambda x, m: (x * m).sum() / m.sum(),
        "full_kl": lambda a, b: (a.exp() * (a - b)).sum(), "q": values["log_q"], "p": values["log_p"],
    }  # fmt: skip


def run(code: str) -> Dual:
    """The value of the last statement."""
    names, (*most, last) = world(), re.split(r"[;\n]\s*", code.strip())
    for line in most:
        exec(re.sub(r"\s*#.*", "", line), names)
    found = re.fullmatch(r"(?:return )?(?:(\w+) (\+?)= )?(.*)", last)
    assert found
    value = eval(found[3], names)
    return dual(names[found[1]] + value if found[2] else value)


def evaluated(e: Any) -> Dual:
    """The value and slope of a reading at each sample."""
    unfolded = unfold(e)
    symbols = sorted(unfolded.free_symbols, key=str)
    given = [{**POINT, **PARAMETERS}[symbol.name] for symbol in symbols]
    clip = {"clip": lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi)}
    both = (remove_sg(unfolded), remove_sg(sympy.diff(unfolded, log_q)))
    value, slope = (sympy.lambdify(symbols, x, [clip, "numpy"])(*given) for x in both)
    return Dual(*np.broadcast_arrays(value, slope, np.zeros(40))[:2])
