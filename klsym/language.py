"""The language of losses: SymPy atoms, the stop-gradient, and the estimators defined from them.

Every symbol of klsym is made here.  Losses are SymPy expressions in `log_q`, `log_p`, `log_mu`; the
estimators are functions that keep their names and know their derivatives:

>>> from sympy import diff
>>> diff(k2, log_q), diff(k3, log_q), diff(sg(rho) * k2, log_q)
(k1, 1 - r, k1*sg(rho))
"""

from __future__ import annotations

import re
from typing import Any

import sympy
from sympy import Function, Heaviside, Rational, Symbol, exp, log
from sympy.core.sympify import SympifyError, _sympify

from klsym.errors import UsageError

log_q = Symbol("log_q", real=True)
log_p = Symbol("log_p", real=True)
log_mu = Symbol("log_mu", real=True)
log_old = Symbol("log_old", real=True)  # a third policy free of theta, such as that whose ratio is clipped
R = Symbol("R", real=True)
A = Symbol("A", real=True)
M = Symbol("M", real=True)  # a mask: a random variable free of theta
REWARDS = (R, A, M)  # what differs from sample to sample, and does not depend on theta

LATEX_NAMES = {
    "log_q": r"\log q", "log_p": r"\log p", "log_mu": r"\log\mu", "lam": r"\lambda",
    "log_old": r"\log\pi_{\mathrm{old}}",
    "beta": r"\beta", "eps": r"\varepsilon", "alpha": r"\alpha", "nu": r"\nu", "sigma": r"\sigma",
}  # fmt: skip
PARAMETERS = ("lam", "beta", "eps", "alpha", "n", "T")
GRAMMAR_NODES = (
    sympy.Add
    | sympy.Mul
    | sympy.Pow
    | sympy.Rational
    | sympy.exp
    | sympy.log
    | sympy.Abs
    | sympy.Min
    | sympy.Max
)
COUNTS = ("n", "T")  # batch size and length are positive
s = Symbol("s", commutative=True)  # the score function grad log q
length = Symbol("length", positive=True)  # T, the number of steps of a sequence
H = Symbol("H", real=True)  # a detached quantity whose value a statement gives
SLOTTED = (log_q, log_p, log_mu, log_old, R, A, M, H, length, s)  # what a slot has its own copy of


# words in names of training code -> what they are here; a name is split at _ and before capitals
LOGS = {"log", "logp", "logps", "logpi", "logq", "logprob", "logprobs", "logpis"}
DENSITY = {
    "p",
    "q",
    "pi",
    "mu",
    "prob",
    "probs",
    "policy",
    "theta",
    "token",
    "per",
    "seq",
    "sum",
    "mean",
    "all",
}
BEHAVIOUR = {"old", "mu", "behavior", "behaviour", "sampler", "sampling", "rollout", "infer", "inference"}
OLD = {"proximal", "prox"}
REFERENCE = {"ref", "reference", "base", "sft", "init", "teacher", "prior"}
TRAINED = {"new", "cur", "curr", "current", "policy", "pi", "theta", "student", "actor"}
WHOLE = {
    "ratio": "rho", "ratios": "rho", "is_weight": "rho", "is_weights": "rho", "iw": "rho", "is_ratio": "rho",
    "importance_weight": "rho", "importance_weights": "rho", "importance_ratio": "rho",
    "prob_ratio": "rho", "policy_ratio": "rho", "adv": "A", "advs": "A", "advantage": "A", "advantages": "A",
    **dict.fromkeys(("log_ratio", "logratio", "logr"), "k1 for log q - log p, or log_q - log_mu"),
    **dict.fromkeys(("kl", "approx_kl", "kl_div", "kld", "kl_loss"), "the estimator it is: k1, k2 or k3"),
    **dict.fromkeys(("pi", "pi_theta"), "exp(log_q)"), "pi_ref": "exp(log_p)", "pi_old": "exp(log_mu)",
    "reward": "R", "rewards": "R", "ret": "R", "returns": "R", "mask": "M", "loss_mask": "M",
}  # fmt: skip


def meant_by(name: str) -> str | None:
    """What the grammar calls a density, ratio or reward that training code calls so; None for other names.

    Such a name is no parameter: a parameter depends on neither the sample nor theta.

    >>> [meant_by(name) for name in ("log_ref", "old_logprobs", "logp", "ratio", "log_alpha", "har")]
    ['log_p', 'log_mu', 'log_q', 'rho', None, None]
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    if spaced in WHOLE:
        return WHOLE[spaced]
    words = set(filter(None, re.sub(r"(logprobs?|logps?)", r"_\1_", spaced).split("_")))
    others = words - LOGS
    if not words & LOGS or others - (DENSITY | BEHAVIOUR | OLD | REFERENCE | TRAINED) or words == {"log"}:
        return None
    named = {"log_p": REFERENCE, "log_old": OLD, "log_mu": BEHAVIOUR}
    return next((name for name, words in named.items() if others & words), "log_q")


def as_expression(value: Any) -> Any:
    """A SymPy expression from an expression or an exact number; text is refused, never evaluated.

    >>> as_expression(2) / 3
    2/3
    """
    try:
        expression = _sympify(value)
    except SympifyError:
        kind = type(value).__name__
        raise UsageError(f"a SymPy expression expected, got {kind} {str(value)[:40]!r}") from None
    if not isinstance(expression, sympy.Expr):
        raise UsageError(f"a SymPy expression expected, got {type(value).__name__}")
    if expression.has(sympy.Float):
        raise UsageError(f"{str(expression)[:60]} holds a float: write an exact Rational instead")
    return expression


def as_loss(value: Any) -> Any:
    """An expression in the loss grammar; anything else is named in the error.

    >>> as_loss(sympy.cos(k1))
    Traceback (most recent call last):
        ...
    klsym.errors.UsageError: cos is not part of the loss grammar, in cos(k1)
    """
    expression = as_expression(value)
    for node in sympy.preorder_traversal(expression):
        name = _foreign_name(node)
        if name:
            raise UsageError(f"{name} is not part of the loss grammar, in {str(expression)[:60]}")
    return expression


def _foreign_name(node: Any) -> str:
    if isinstance(node, Estimator | sg | clip | OverPositions | GRAMMAR_NODES) or node is sympy.E:
        return ""
    if isinstance(node, Symbol):
        meant = None if node in ATOMS.values() else meant_by(node.name)
        return "s (the score function)" if node == s else f"{node} (write {meant})" if meant else ""
    return str(node) if node.is_Atom else type(node).__name__


def parameter(name: str) -> Symbol:
    """A parameter: a real number that depends on neither the sample nor theta.

    >>> parameter("beta")
    beta
    """
    return Symbol(name, real=True, positive=True if name in COUNTS else None)


lam, beta, eps, alpha = (parameter(name) for name in ("lam", "beta", "eps", "alpha"))


def _powered(latex: str, exponent: str | None) -> str:
    """SymPy hands the exponent of a power to `_latex`; a method that ignores it loses the power."""
    return latex if exponent is None else f"{latex}^{{{exponent}}}"


class sg(Function):
    """The stop-gradient: the value of its argument, with derivative zero.

    >>> from sympy import diff, latex
    >>> diff(sg(log_q) * log_q, log_q)
    sg(log_q)
    >>> latex(sg(r) ** 2)
    '\\\\mathrm{sg}(r)^{2}'
    """

    nargs = 1
    is_real = True

    @classmethod
    def eval(cls, argument: Any) -> Any:
        moving = any(symbol.name.partition("[")[0] == log_q.name for symbol in argument.free_symbols)
        if isinstance(argument, sg) or not moving:
            return argument  # sg(sg(x)) = sg(x); what is free of theta is already constant

    def fdiff(self, argindex: int = 1) -> Any:
        return sympy.S.Zero

    def _eval_is_positive(self) -> Any:
        return self.args[0].is_positive

    def _eval_is_nonnegative(self) -> Any:
        return self.args[0].is_nonnegative

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return _powered(rf"\mathrm{{sg}}({printer._print(self.args[0])})", exp)


def without_sg(expression: Any) -> Any:
    """The value of an expression: what it is where nothing is differentiated.

    >>> without_sg(sg(log_q * sg(r)) - log_q)
    log_q*r - log_q
    """
    return expression.replace(lambda e: isinstance(e, sg), lambda e: e.args[0])


class Estimator(Function):
    """A named function of log densities; `definition()` unfolds it."""

    name = latex_name = ""
    is_real = True

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        if a.is_number and b.is_number:
            return cls.formula(a, b)

    @staticmethod
    def formula(a: Any, b: Any) -> Any:
        """The expression in log q (a) and log p or log mu (b) that the name stands for."""
        raise TypeError("an estimator defines itself in a subclass")

    def definition(self) -> Any:
        """The formula, with this estimator's arguments."""
        return self.formula(*self.args)

    def doit(self, **hints: Any) -> Any:
        return self.definition().doit(**hints)

    def slope(self) -> Any:
        """The derivative with respect to log q."""
        raise TypeError("an estimator states its slope in a subclass")

    def fdiff(self, argindex: int = 1) -> Any:
        """Each estimator depends on the difference of its two log densities."""
        return self.slope() if argindex == 1 else -self.slope()

    def _sympystr(self, printer: Any) -> str:
        return f"{self.name}_{self.slot}" if self.slot else self.name

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return _powered(self.latex_name, exp)

    @property
    def slot(self) -> str:
        """The slot that the log densities are of; empty for a single sample."""
        of = self.args[0]
        return (of.name if of.is_Symbol else str(of)).partition("[")[2].removesuffix("]")

    def _eval_is_extended_real(self) -> bool:
        return True


class K1(Estimator):
    """k1 = log q - log p."""

    nargs, name, latex_name = 2, "k1", "k_1"

    @staticmethod
    def formula(a: Any, b: Any) -> Any:
        return a - b

    def slope(self) -> Any:
        return sympy.S.One


class K2(Estimator):
    """k2 = k1^2 / 2."""

    nargs, name, latex_name = 2, "k2", "k_2"
    is_nonnegative = True

    @staticmethod
    def formula(a: Any, b: Any) -> Any:
        return (a - b) ** 2 / 2

    def slope(self) -> Any:
        return K1(*self.args)


class Ratio(Estimator):
    """r = p/q = exp(-k1)."""

    nargs, name, latex_name = 2, "r", "r"
    is_positive = True

    @staticmethod
    def formula(a: Any, b: Any) -> Any:
        return exp(b - a)

    def slope(self) -> Any:
        return -Ratio(*self.args)


class K3(Estimator):
    """k3 = r - 1 - log r = r - 1 + k1."""

    nargs, name, latex_name = 2, "k3", "k_3"
    is_nonnegative = True

    @staticmethod
    def formula(a: Any, b: Any) -> Any:
        return exp(b - a) - 1 + a - b

    def slope(self) -> Any:
        return 1 - Ratio(*self.args)


class Weight(Estimator):
    """rho = q/sg(mu), the importance weight; on-policy q/sg(q): value 1, gradient s."""

    nargs, name, latex_name = 2, "rho", r"\rho"
    is_positive = True

    @staticmethod
    def formula(a: Any, b: Any) -> Any:
        return exp(a - b)

    def slope(self) -> Any:
        return Weight(*self.args)


class clip(Function):
    """clip(x, lo, hi) = min(max(x, lo), hi), with derivative 1 on [lo, hi] and 0 outside.

    Where lo > hi it is hi, and the slope is that of hi, as in `torch.clamp`.  At x = lo or x = hi the slope
    of x is 1: so `torch.clamp` has it up to PyTorch 2.13 (for number bounds it is 0 from 2.14 on).

    >>> clip(Rational(5), 0, 2), clip(Rational(5), 2, 0)
    (2, 0)
    """

    nargs = 3
    is_real = True

    @classmethod
    def eval(cls, x: Any, lo: Any, hi: Any) -> Any:
        if all(item.is_number for item in (x, lo, hi)):
            return sympy.Min(sympy.Max(x, lo), hi)
        if (x - lo).is_nonnegative and (hi - x).is_nonnegative:
            return x  # it never binds, as clip(1, 1 - eps, 1 + eps) for a positive eps

    def fdiff(self, argindex: int = 1) -> Any:
        x, lo, hi = self.args
        above_lo, above_hi = Heaviside(x - lo, 1), Heaviside(x - hi, 0)
        if (hi - lo).is_nonnegative:  # then x > hi implies x >= lo
            return (above_lo - above_hi, 1 - above_lo, above_hi)[argindex - 1]
        crossed = Heaviside(lo - hi, 0)
        return (
            above_lo * (1 - above_hi),
            (1 - above_lo) * (1 - crossed),
            above_lo * above_hi + (1 - above_lo) * crossed,
        )[argindex - 1]

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        inner = ", ".join(printer._print(item) for item in self.args)
        return _powered(rf"\mathrm{{clip}}({inner})", exp)


class OldWeight(Weight):
    """rho_old = q/sg(old), the ratio to a third policy, such as the one that PPO starts a step from."""

    name, latex_name = "rho_old", r"\rho_{\mathrm{old}}"

    def slope(self) -> Any:
        return OldWeight(*self.args)


class OverPositions(Function):
    """Something that is summed over the tokens of a sequence, or over samples (sums.py)."""

    nargs = 1
    is_real = True
    is_number = False  # past(1) counts tokens
    name = ""

    def _sympystr(self, printer: Any) -> str:
        return f"{self.name}({printer._print(self.args[0])})"


k1 = K1(log_q, log_p)
k2 = K2(log_q, log_p)
k3 = K3(log_q, log_p)
r = Ratio(log_q, log_p)
rho = Weight(log_q, log_mu)
rho_old = OldWeight(log_q, log_old)


def k(weight: Any) -> Any:
    """k(lam) = k1 + lam (r - 1), Schulman's family of control variates.

    >>> k(lam)
    lam*(r - 1) + k1
    """
    return k1 + as_expression(weight) * (r - 1)


class Slot:
    """A slot of a batch or sequence: applied to an expression, it speaks of that slot.

    A variable of a slot is its sum over the positions in the slot, as past(k1) = sum_{u<t} k1_u.

    >>> now(k1), past(rho)
    (k1_now, rho_past)
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, expression: Any) -> Any:
        copies = {v: Symbol(f"{v.name}[{self.name}]", **v.assumptions0) for v in SLOTTED}
        return as_expression(expression).xreplace(copies)

    def __repr__(self) -> str:
        return self.name


past, now, future = (Slot(name) for name in ("past", "now", "future"))
own, others = Slot("self"), Slot("others")


ATOMS = {
    "log_q": log_q, "log_p": log_p, "log_mu": log_mu, "log_old": log_old, "R": R, "A": A, "M": M,
    "k1": k1, "k2": k2, "k3": k3, "r": r, "rho": rho, "rho_old": rho_old,
}  # fmt: skip


def unfold(expression: Any) -> Any:
    """Replace every estimator by its definition in log_q, log_p, log_mu.

    >>> unfold(k2)
    (-log_p + log_q)**2/2
    """
    return expression.replace(lambda e: isinstance(e, Estimator), lambda e: e.definition())


def latex(expression: Any) -> str:
    """LaTeX of a loss, with the field's names for its symbols.

    >>> latex(sg(rho) * k2)
    'k_2 \\\\mathrm{sg}(\\\\rho)'
    """
    names = {s: LATEX_NAMES[s.name] for s in expression.free_symbols if s.name in LATEX_NAMES}
    text = str(sympy.latex(expression, symbol_names=names))
    return re.sub(r"(\\log (?:q|p|\\pi_\{\\mathrm\{old\}\})|\\log\\mu)\^\{", r"\\left(\1\\right)^{", text)


__all__ = [
    "ATOMS", "PARAMETERS", "A", "M", "R", "Rational", "alpha", "beta", "clip", "eps", "exp", "k", "k1", "k2",
    "k3", "lam", "latex", "log", "log_mu", "log_old", "log_p", "log_q", "parameter", "r", "rho", "rho_old",
    "s", "sg", "unfold",
]  # fmt: skip
