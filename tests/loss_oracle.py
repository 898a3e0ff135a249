"""An independent oracle for losses given as text: exact expected gradients on finite models.

It imports nothing of klsym.  A loss is walked in Python's own `ast`; every name has its definition
here; the derivative along each softmax logit is a complex step, f'(t) = Im f(t + ih)/h, which has no
rounding error to speak of.  sg(.) is evaluated at the unmoved q, and is therefore held constant.

>>> stack = random_models(seed=1, copies=2)[0]
>>> gradient = expected_gradient("rho*k3", stack, "off-policy", "loss")
>>> bool(np.allclose(gradient, grad_reverse_kl(stack), rtol=1e-12))
True
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

Names = Mapping[str, Any]
SIZES = (2, 3, 4, 5)
STEP = 1e-40  # of the complex step; its square is far below the smallest relative rounding error
SPREAD = 0.6  # of the logits: ratios stay within about [0.1, 10], so that powers stay moderate
CELLS = ((-1.25, 2.0), (0.75, -1.5))  # the two values of R, the two values of A
# The same in every model, so that a multiple holding a parameter is one number; otherwise arbitrary.
PARAMETERS = {"lam": 0.371, "beta": 1.427, "eps": 0.193, "alpha": 0.613, "n": 7.0, "T": 11.0}


@dataclass(frozen=True)
class Models:
    """A stack of finite models with n outcomes each: arrays of shape (models, n)."""

    q: np.ndarray
    p: np.ndarray
    mu: np.ndarray
    R: np.ndarray
    A: np.ndarray
    parameters: Names = field(default_factory=lambda: PARAMETERS)

    def under(self, sampling: str) -> Models:
        """On-policy the sampler mu is a frozen copy of q."""
        return replace(self, mu=self.q) if sampling == "on-policy" else self


def random_models(seed: int, copies: int = 4, rewards: str = "generic") -> list[Models]:
    """One stack for each size; rewards are "generic" reals or, for "cells", one of two values each.

    With two values of R and two of A any function h(R, A) is a vector of four numbers, so that "some
    policy gradient of the rewards" is a linear question.
    """
    stream = np.random.default_rng(seed)
    stacks = []
    for size in SIZES:
        logits = stream.normal(scale=SPREAD, size=(3, copies, size))
        q, p, mu = np.exp(log_softmax(logits))
        if rewards == "cells":
            R, A = (np.choose(stream.integers(2, size=(copies, size)), values) for values in CELLS)
        else:
            R, A = stream.normal(size=(2, copies, size))
        stacks.append(Models(q, p, mu, R, A))
    return stacks


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """No shift by the maximum: logits are small, and complex numbers have none."""
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


# ---------------------------------------------------------------------------- the loss grammar
def names(
    log_q: Any, log_p: Any, log_mu: Any, R: Any, A: Any, parameters: Names = PARAMETERS
) -> dict[str, Any]:
    """The atoms of the loss grammar, from the three log densities and the rewards."""
    k1, r = log_q - log_p, np.exp(log_p - log_q)
    return {
        "log_q": log_q, "log_p": log_p, "log_mu": log_mu, "R": R, "A": A, **parameters,
        "k1": k1, "k2": k1 * k1 / 2, "r": r, "k3": r - 1 - (log_p - log_q), "rho": np.exp(log_q - log_mu),
    }  # fmt: skip


def evaluate(text: str, live: Names, frozen: Names | None = None) -> Any:
    """The value of a loss; inside sg(.) names have their `frozen` values."""
    return _walk(_tree(text), live, live if frozen is None else frozen)


@lru_cache(maxsize=256)
def _tree(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _walk(node: ast.expr, live: Names, frozen: Names) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return live[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -_walk(operand, live, frozen)
        case ast.UnaryOp(ast.UAdd(), operand):
            return _walk(operand, live, frozen)
        case ast.BinOp(left, operator, right):
            return BINARY[type(operator)](_walk(left, live, frozen), _walk(right, live, frozen))
        case ast.Call(ast.Name("sg"), [argument]):
            return _walk(argument, frozen, frozen)
        case ast.Call(ast.Name("k"), [weight]):
            return live["k1"] + _walk(weight, live, frozen) * (live["r"] - 1)
        case ast.Call(ast.Name(function), arguments):
            return FUNCTIONS[function](*(_walk(item, live, frozen) for item in arguments))
    raise ValueError(f"not in the loss grammar: {ast.dump(node)}")


def _power(base: Any, exponent: Any) -> Any:
    """Whole powers by multiplication, as a complex logarithm would break negative bases."""
    if isinstance(exponent, int):
        return base**exponent if exponent >= 0 else 1 / base**-exponent
    return np.exp(exponent * np.log(base))


def _choose(better: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """min or max of complex numbers by their real parts; a tie shares the slope, as in PyTorch."""

    def choose(first: Any, *others: Any) -> Any:
        for other in others:
            a, b = np.real(first), np.real(other)
            first = np.where(a == b, (first + other) / 2, np.where(better(a, b), first, other))
        return first

    return choose


def _clip(x: Any, lo: Any, hi: Any) -> Any:
    """min(max(x, lo), hi) with slope 1 on [lo, hi], the ends included; hi where the bounds cross."""
    raised = np.where(np.real(x) < np.real(lo), lo, x)
    return np.where(np.real(raised) > np.real(hi), hi, raised)


BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: _power,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": lambda x: np.exp(x),
    "log": lambda x: np.log(x),
    "sqrt": lambda x: np.sqrt(x),
    "abs": lambda x: np.sign(np.real(x)) * x,  # slope 0 at 0
    "min": _choose(np.less),
    "max": _choose(np.greater),
    "clip": _clip,
}


# ---------------------------------------------------------------------------- exact vectors
def fixed_names(models: Models) -> dict[str, Any]:
    """The atoms at each outcome, nothing moving: shape (models, n)."""
    logs = (np.log(models.q), np.log(models.p), np.log(models.mu))
    return names(*logs, models.R, models.A, models.parameters)


def _moved(models: Models, step: complex) -> tuple[np.ndarray, dict[str, Any], dict[str, Any]]:
    """log q with each logit in turn moved by `step`, and the atoms live and frozen.

    Shapes are (models, logit moved, outcome) for what moves, (models, 1, outcome) for what does not.
    A complex step leaves the real part alone, and the frozen atoms are complex too: so that what is equal,
    as rho and 1 on-policy or r and sg(r), is equal to the last digit, and ties are ties.
    """
    held = [array[:, None, :] for array in (np.log(models.q), np.log(models.p), np.log(models.mu))]
    rest = (models.R[:, None, :], models.A[:, None, :], models.parameters)
    log_q = log_softmax(held[0] + step * np.eye(models.q.shape[1]))
    if isinstance(step, complex):
        log_q, held = held[0] + 1j * np.imag(log_q), [array + 0j for array in held]
    return log_q, names(log_q, *held[1:], *rest), names(*held, *rest)


def contributions(text: str, models: Models, sampling: str, use: str) -> np.ndarray:
    """What each outcome adds to each component of the expected gradient: (models, logit, outcome)."""
    models = models.under(sampling)
    weight = models.mu[:, None, :]
    log_q, live, frozen = _moved(models, 1j * STEP)
    if use == "loss":
        parts = np.imag(evaluate(text, live, frozen)) / STEP
    else:
        parts = np.real(evaluate(text, frozen, frozen)) * np.imag(log_q) / STEP  # L(x) s(x)
    return weight * np.broadcast_to(parts, log_q.shape)


def expected_gradient(text: str, models: Models, sampling: str, use: str) -> np.ndarray:
    """The gradient over all logits that training averages: shape (models, logits).

    use=loss: sum_x m(x) dL(x)/dtheta; use=reward: sum_x m(x) L(x) s(x); m is mu, on-policy a frozen q.
    """
    return contributions(text, models, sampling, use).sum(axis=-1)


def score_form(coefficient: str, models: Models, sampling: str) -> np.ndarray:
    """What each outcome adds to E_q[c s]: (models, logit, outcome)."""
    models = models.under(sampling)
    log_q, _, frozen = _moved(models, 1j * STEP)
    value = np.real(evaluate(coefficient, frozen, frozen))
    return models.q[:, None, :] * value * np.imag(log_q) / STEP


def expected_value(text: str, models: Models, sampling: str) -> np.ndarray:
    """sum_x m(x) L(x): shape (models,)."""
    models = models.under(sampling)
    return (models.mu * evaluate(text, fixed_names(models))).sum(axis=-1)


def reverse_kl(models: Models) -> np.ndarray:
    return (models.q * np.log(models.q / models.p)).sum(axis=-1)


def forward_kl(models: Models) -> np.ndarray:
    return (models.p * np.log(models.p / models.q)).sum(axis=-1)


def grad_reverse_kl(models: Models) -> np.ndarray:
    """grad sum_x q(x) (log q(x) - log p(x)): the functional itself is moved, no score function used."""
    log_q, live, _ = _moved(models, 1j * STEP)
    return np.imag((np.exp(log_q) * live["k1"]).sum(axis=-1)) / STEP


def grad_forward_kl(models: Models) -> np.ndarray:
    """grad sum_x p(x) (log p(x) - log q(x))."""
    _, live, _ = _moved(models, 1j * STEP)
    return np.imag((models.p[:, None, :] * -live["k1"]).sum(axis=-1)) / STEP


def grad_mean(h: np.ndarray, models: Models) -> np.ndarray:
    """grad sum_x q(x) h(x) for a fixed h: the policy gradient."""
    log_q, _, _ = _moved(models, 1j * STEP)
    return np.imag((np.exp(log_q) * h[:, None, :]).sum(axis=-1)) / STEP


def central_difference(text: str, models: Models, sampling: str, use: str, step: float = 1e-5) -> np.ndarray:
    """The same gradient by plain differences: what the complex step is checked against."""
    models = models.under(sampling)
    both = []
    for sign in (1, -1):
        log_q, live, frozen = _moved(models, sign * step)
        value = evaluate(text, live, frozen) if use == "loss" else evaluate(text, frozen, frozen) * log_q
        both.append((models.mu[:, None, :] * np.broadcast_to(value, log_q.shape)).sum(axis=-1))
    return (both[0] - both[1]) / (2 * step)
