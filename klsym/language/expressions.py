"""The language of losses: SymPy atoms, the stop-gradient, and the estimators defined from them.

Losses are SymPy expressions in `log_q`, `log_p`, `log_mu`; estimators are functions with derivatives:

>>> from sympy import diff
>>> diff(k2, log_q), diff(k3, log_q), diff(sg(rho) * k2, log_q)
(k1, 1 - r, k1*sg(rho))
"""

from __future__ import annotations

import re
from functools import cache, cached_property, lru_cache
from typing import Any

import sympy
from sympy import Function, Heaviside, Rational, Symbol, exp, log
from sympy.core.sympify import SympifyError, _sympify

from klsym.errors import UsageError
from klsym.kernel.names import HELD
from klsym.language.decimals import refuse_floats, with_exact_decimals
from klsym.language.estimators import TABLE, Row
from klsym.language.training_names import find_meaning

log_q = Symbol("log_q", real=True)
log_p = Symbol("log_p", real=True)
log_mu = Symbol("log_mu", real=True)
log_old = Symbol("log_old", real=True)  # a third policy free of theta, such as that whose ratio is clipped
R, A = Symbol("R", real=True), Symbol("A", real=True)
M = Symbol("M", real=True)  # a mask: a random variable free of theta
V, V_next = Symbol("V", real=True), Symbol("V_next", real=True)  # a critic before and after a token
DENSITIES = (log_q, log_p, log_mu, log_old)
REWARDS = (R, A, M)  # what differs from sample to sample, and does not depend on theta

LATEX_NAMES = {
    "log_q": r"\log q", "log_p": r"\log p", "log_mu": r"\log\mu", "lam": r"\lambda",
    "log_old": r"\log\pi_{\mathrm{old}}",
    "beta": r"\beta", "eps": r"\varepsilon", "alpha": r"\alpha", "nu": r"\nu", "sigma": r"\sigma",
}  # fmt: skip
PARAMETERS = ("lam", "beta", "eps", "alpha", "n", "T")
SMOOTH = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Rational, exp, log)
GRAMMAR_NODES = (*SMOOTH, sympy.Abs, sympy.Min, sympy.Max)
COUNTS = ("n", "T")  # batch size and length are positive
s = Symbol("s", commutative=True)  # the score function grad log q
length = Symbol("length", positive=True)  # T, the number of steps of a sequence
H, *_ = GIVEN = tuple(Symbol(name, real=True) for name in HELD)  # detached, of values that a statement gives
SLOTTED = (*DENSITIES, *REWARDS, V, V_next, *GIVEN, length, s)  # what a slot has its own copy of


def as_expression(value: Any) -> Any:
    """Return a SymPy expression from an expression or a number; text is refused, never evaluated.

    >>> as_expression(2) / 3, as_expression(0.5 * k1)
    (2/3, k1/2)
    """
    try:
        expression = _sympify(value)
    except SympifyError:
        kind = type(value).__name__
        raise UsageError(f"a SymPy expression expected, got {kind} {str(value)[:40]!r}") from None
    if isinstance(value, complex) or not isinstance(expression, sympy.Expr):
        raise UsageError(f"a SymPy expression expected, got {type(value).__name__}")
    return with_exact_decimals(expression)


def as_loss(value: Any) -> Any:
    """Return an expression in the loss grammar; anything else is named in the error.

    >>> as_loss(sympy.cos(k1))
    Traceback (most recent call last):
        ...
    klsym.errors.UsageError: cos is not part of the loss grammar, in cos(k1)
    """
    expression = as_expression(value)
    waiting = [(expression, False)]
    while waiting:
        node, detached = waiting.pop()
        compared = isinstance(node, Heaviside) and (detached or sg(node) == node)
        if not compared and (name := _name_foreign(node)):
            raise UsageError(f"{name} is not part of the loss grammar, in {str(expression)[:60]}")
        waiting += [(part, detached or isinstance(node, sg)) for part in reversed(node.args)]
    return expression


def _name_foreign(node: Any) -> str:
    if isinstance(node, (Estimator, sg, clip, OverPositions, *GRAMMAR_NODES)) or node is sympy.E:
        return ""
    if isinstance(node, Symbol):
        meant = None if node in ATOMS.values() else find_meaning(node.name)
        return "s (the score function)" if node == s else f"{node} (write {meant})" if meant else ""
    return str(node) if node.is_Atom else type(node).__name__


def parameter(name: str) -> Symbol:
    """Return a parameter: a real number that depends on neither the sample nor theta.

    >>> parameter("beta")
    beta
    """
    return Symbol(name, real=True, positive=True if name in COUNTS else None)


lam, beta, eps, alpha = (parameter(name) for name in ("lam", "beta", "eps", "alpha"))


def _add_exponent(latex: str, exponent: str | None) -> str:
    """Return LaTeX with its exponent, which SymPy hands to `_latex` and which would else be lost."""
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
        names = {x.name.partition("[")[0] for x in argument.free_symbols}
        means = any(getattr(x, "is_mean_under_policy", False) for x in argument.atoms(Function))
        if isinstance(argument, sg) or not (log_q.name in names or means or argument.atoms(Log)):
            return argument  # sg(sg(x)) = sg(x); what is free of theta is already constant

    def fdiff(self, argindex: int = 1) -> Any:
        return sympy.S.Zero

    def _eval_is_positive(self) -> Any:
        return self.args[0].is_positive

    def _eval_is_nonnegative(self) -> Any:
        return self.args[0].is_nonnegative

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return _add_exponent(rf"\mathrm{{sg}}({printer._print(self.args[0])})", exp)


def remove_sg(expression: Any) -> Any:
    """Return the value of an expression: what it is where nothing is differentiated.

    >>> remove_sg(sg(log_q * sg(r)) - log_q)
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
        """Return the expression in log q (a) and log p or log mu (b) that the name stands for."""
        raise TypeError("an estimator defines itself in a subclass")

    def definition(self) -> Any:
        """Return the formula, with this estimator's arguments."""
        return self.formula(*self.args)

    def doit(self, **hints: Any) -> Any:
        return self.definition().doit(**hints)

    def slope(self) -> Any:
        """Return the derivative with respect to log q."""
        raise TypeError("an estimator states its slope in a subclass")

    def fdiff(self, argindex: int = 1) -> Any:
        """Return a partial derivative: each estimator depends on the difference of its two log densities."""
        return self.slope() if argindex == 1 else -self.slope()

    def _sympystr(self, printer: Any) -> str:
        return f"{self.name}_{self.slot}" if self.slot else self.name

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return _add_exponent(self.latex_name, exp)

    @property
    def slot(self) -> str:
        """The slot that the log densities are of; empty for a single sample."""
        density = self.args[0]
        return (density.name if density.is_Symbol else str(density)).partition("[")[2].removesuffix("]")

    def _eval_is_extended_real(self) -> bool:
        return True


class Ratio(Estimator):
    """r = p/q = exp(-k1)."""

    nargs, name, latex_name = 2, "r", "r"
    is_positive = True

    @staticmethod
    def formula(a: Any, b: Any) -> Any:
        return exp(b - a)

    def slope(self) -> Any:
        return -self


class OfRow(Estimator):
    """An estimator of the table language/estimators.py; each row makes a subclass, such as K2 for k2."""

    nargs = 2
    row: Row

    @classmethod
    def formula(cls, a: Any, b: Any) -> Any:
        return cls.row.formula(a - b, exp(b - a))

    def express_in_k1(self) -> Any:
        """Return the formula in k1 and r of the same densities."""
        return self.row.formula(K1(*self.args), Ratio(*self.args))

    def slope(self) -> Any:
        slope = differentiate_in_k1(self.row.formula(IN_K1, IN_R))
        return slope.xreplace({IN_K1: K1(*self.args), IN_R: Ratio(*self.args)})

    def _eval_is_nonnegative(self) -> bool | None:
        return _is_nonnegative(self.row.formula(IN_K1, IN_R)) or None


ROWS = "klsym/language/estimators.py"
IN_K1, IN_R = Symbol("k1", real=True), Symbol("r", positive=True)


def differentiate_in_k1(formula: Any) -> Any:
    """Return df/dk1 of a formula in k1 and r, where dr/dk1 = -r."""
    return sympy.diff(formula, IN_K1) - IN_R * sympy.diff(formula, IN_R)


def _build_estimator_class(row: Row) -> type[OfRow]:
    """Return the SymPy class of a row; raises UsageError: a row that is no estimator."""
    if not re.fullmatch(r"k[1-9]\d{0,2}", row.name) or row.name in ESTIMATORS:
        reason = "this name is taken" if row.name in ESTIMATORS else "a name of k and a number expected"
        raise UsageError(f"{ROWS}: {str(row.name)[:40]!r}: {reason}, such as k{len(TABLE)}")
    try:
        formula = as_expression(refuse_floats(row.formula(IN_K1, IN_R)))
    except (UsageError, TypeError, ArithmeticError) as error:
        raise UsageError(f"{ROWS}: {row.name}: no formula of k1 and r: {error}") from None
    foreign = [node for node in sympy.preorder_traversal(formula) if not isinstance(node, (Symbol, *SMOOTH))]
    if foreign or not formula.free_symbols or not formula.is_real or formula.free_symbols - {IN_K1, IN_R}:
        complaint = f"{formula} is no smooth function of k1 and r with a real value at every sample"
        raise UsageError(f"{ROWS}: {row.name}: {complaint}")
    members = {"row": row, "name": row.name, "latex_name": row.latex, "__module__": __name__}
    metaclass: Any = type(OfRow)
    return metaclass(row.name.upper(), (OfRow,), {**members, "__doc__": f"{row.name} = {formula}."})


@cache
def _is_nonnegative(formula: Any) -> bool:
    """Is it 0 or above for SymPy, or convex in k1 with its minimum 0 at k1 = 0?"""
    slope, at_zero = differentiate_in_k1(formula), {IN_K1: sympy.S.Zero, IN_R: sympy.S.One}
    has_minimum_0 = all(value.xreplace(at_zero).is_zero for value in (formula, slope))
    return bool(formula.is_nonnegative or (has_minimum_0 and differentiate_in_k1(slope).is_nonnegative))


ESTIMATORS: dict[str, type[OfRow]] = {}
for _row in TABLE:
    ESTIMATORS[_row.name] = _build_estimator_class(_row)
globals().update({of.__name__: of for of in ESTIMATORS.values()})  # where pickle looks for them
K1 = ESTIMATORS["k1"]


class Weight(Estimator):
    """rho = q/sg(mu), the importance weight; on-policy q/sg(q): value 1, gradient s."""

    nargs, name, latex_name = 2, "rho", r"\rho"
    is_positive = True

    @staticmethod
    def formula(a: Any, b: Any) -> Any:
        return exp(a - b)

    def slope(self) -> Any:
        return self


OF_REGIONS = "is_"  # how the names of regions begin, such as is_high, and no others


class Region(Symbol):
    """The name of what is 1 where something is positive and 0 elsewhere; it may hold a slot."""


def region(name: str) -> Region:
    """Return the symbol of a region: region("high") is 1 where a loss is above its upper bound.

    >>> region("high")
    is_high
    """
    return Region(f"{OF_REGIONS}{name}")


class Log(Region):
    """The name of a log that moves with theta."""


def above(x: Any, y: Any, or_equal: bool = False) -> Any:
    """Return 1 where x > y, or x >= y, and 0 elsewhere; of slope 0, as in autograd.

    >>> above(Rational(3), 2), above(Rational(2), 2), above(2, 2, or_equal=True)
    (1, 0, 1)
    """
    return sg(Heaviside(as_expression(x) - as_expression(y), 1 if or_equal else 0))


def where(condition: Any, x: Any, y: Any) -> Any:
    """Return x where a condition holds, that is 1, and y where it is 0, as `torch.where`.

    >>> where(above(3, 2), k1, 2), where(above(1, 2), k1, 2)
    (k1, 2)
    """
    return condition * (as_expression(x) - as_expression(y)) + as_expression(y)


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
        return _add_exponent(rf"\mathrm{{clip}}({inner})", exp)


class OldWeight(Weight):
    """rho_old = q/sg(old), the ratio to a third policy, such as the one that PPO starts a step from."""

    name, latex_name = "rho_old", r"\rho_{\mathrm{old}}"


class OverPositions(Function):
    """Something that is summed over the tokens of a sequence, or over samples (sums.py)."""

    nargs = 1
    is_real = True
    is_number = False  # past(1) counts tokens
    name = ""

    def _sympystr(self, printer: Any) -> str:
        return f"{self.name}({printer._print(self.args[0])})"


OF_TABLE = {name: of(log_q, log_p) for name, of in ESTIMATORS.items()}
k1, k2, k3 = (OF_TABLE[name] for name in ("k1", "k2", "k3"))
globals().update(OF_TABLE)
r = Ratio(log_q, log_p)
rho = Weight(log_q, log_mu)
rho_old = OldWeight(log_q, log_old)


def k(weight: Any) -> Any:
    """Return k(lam) = k1 + lam (r - 1), Schulman's family of control variates.

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

    @cached_property
    def copies(self) -> dict[Any, Any]:
        """The variable of the slot for each one-sample variable."""
        return {v: Symbol(f"{v.name}[{self.name}]", **v.assumptions0) for v in SLOTTED}

    def __call__(self, expression: Any) -> Any:
        return as_expression(expression).xreplace(self.copies)

    def __repr__(self) -> str:
        return self.name


past, now, future = (Slot(name) for name in ("past", "now", "future"))
own, others = Slot("self"), Slot("others")

ATOMS = {
    "log_q": log_q, "log_p": log_p, "log_mu": log_mu, "log_old": log_old, "R": R, "A": A, "M": M,
    "V": V, "V_next": V_next, **OF_TABLE, "r": r, "rho": rho, "rho_old": rho_old,
}  # fmt: skip


@lru_cache(maxsize=1024)
def unfold(expression: Any) -> Any:
    """Replace every estimator by its definition in log_q, log_p, log_mu.

    >>> unfold(k2)
    (-log_p + log_q)**2/2
    """
    return expression.replace(lambda e: isinstance(e, Estimator), lambda e: e.definition())


__all__ = [
    "ATOMS", "PARAMETERS", "A", "M", "R", "Rational", "alpha", "beta", "clip", "eps", "exp", "k", "k1", "k2",
    "k3", "lam", "log", "log_mu", "log_old", "log_p", "log_q", "parameter", "r", "rho", "rho_old",
    "s", "sg", "unfold",
]  # fmt: skip
