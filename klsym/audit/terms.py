"""What traced code computes with: the language of losses, and beside it masks, steps and sums over axes.

    Total(e, "t")   the sum over tokens of e; "b" over the sequences of a batch, "v" over the vocabulary
    Step(x)         1 where x > 0, else 0, with derivative zero
    Top(x, k)       1 at the k words of the vocabulary where x is largest, else 0, with derivative zero
    mask            1 at the tokens that count, 0 at padding

Only traces contain them: `aggregation` removes the totals, `to_grammar` writes the rest in the loss grammar.

>>> from klsym.language.expressions import k2
>>> to_grammar(Step(k1) * k2)
k2*sg(Heaviside(k1, 0))
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import sympy
from sympy import Function, Rational, Symbol

from klsym.errors import KlsymError, UsageError, spell_option
from klsym.language.expressions import OF_TABLE, above, k1, log_mu, log_p, log_q, r, remove_sg, rho, sg
from klsym.language.reductions import WORD_LOGS

AXES = "btv"  # sequences of a batch, tokens of a sequence, words of the vocabulary
SMALL = 10**6  # denominators below are taken for what was meant: 0.30000000000000004 is 3/10
mask = Symbol("mask", real=True, nonnegative=True)
token = Symbol("token", real=True)  # which word was sampled
sequence_mask = Symbol("sequence_mask", real=True)  # one number a sequence, 1 at those that count: at all
offsets = Symbol("offsets", real=True)  # where packed sequences begin and end, as cu_seqlens
every_log_q, every_log_p, every_log_mu = (WORD_LOGS[x] for x in (log_q, log_p, log_mu))
VOCABULARY = {every_log_q: log_q, every_log_p: log_p, every_log_mu: log_mu}


class Disagreement(KlsymError):
    """A trace that the real function contradicts; nothing is said about such code."""


class Refused(UsageError):
    """Code that is not read; the message names the operation, `line` where it stands in the user's file."""

    is_of_shape = False  # do shapes not fit?  Then another layout of arguments may
    raised = False  # does the code itself raise an error?  It may be one of shapes

    def __init__(self, reason: str, line: int | None = None) -> None:
        self.reason, self.line = reason, line
        super().__init__(f"line {line}: {reason}" if line else reason)

    def add_line(self, line: int | None) -> Refused:
        """Set the line of the refusal if it has none yet, and return it."""
        if self.line is None and line is not None:
            self.line, self.args = line, (f"line {line}: {self.reason}",)
        return self


class AskedRole(Refused):
    """A question about what arguments are, which names do not answer: nor does running the code."""


class Misfit(Refused):
    """Code that uses an argument in a way in which its role is not used; `role` is mask or token."""

    def __init__(self, reason: str, role: Any, line: int | None = None) -> None:
        self.role = role
        super().__init__(reason, line)

    def ask_about(self, names: list[str]) -> Refused:
        """Return the refusal with a question about these arguments."""
        question = f": is {' or '.join(names)} a number? {spell_option('set')} gives it" if names else ""
        return Refused(self.reason + question, self.line)


class Step(Function):
    """1 where its argument is positive, 0 elsewhere; its derivative is zero wherever it has one."""

    nargs = 1
    is_real = True
    is_nonnegative = True

    @classmethod
    def eval(cls, x: Any) -> Any:
        if x.is_positive:
            return sympy.S.One
        if x.is_nonpositive:
            return sympy.S.Zero

    def fdiff(self, argindex: int = 1) -> Any:
        return sympy.S.Zero


class Top(Function):
    """1 at the k words where x is largest: which words may move with theta, and no gradient passes there."""

    nargs = 2
    is_real = True
    is_nonnegative = True

    def fdiff(self, argindex: int = 1) -> Any:
        return sympy.S.Zero


class Words(Function):
    """The k words themselves, as indices of the vocabulary: gather and scatter alone read them."""

    nargs = 2


class Stack(Function):
    """Values along an axis that torch.stack has made: they are added up there, or nothing else."""

    is_real = True


class Total(Function):
    """The sum over axes: Total(e, t), the axes as a symbol made of their letters."""

    nargs = 2
    is_real = True

    @property
    def axes(self) -> str:
        return str(self.args[1])


def sum_over(e: Any, axes: str) -> Any:
    """Return the sum of e over axes.

    >>> sum_over(mask * k1, "t")
    Total(mask*k1, t)
    """
    return Total(e, Symbol(axes)) if axes else e


def replace_totals(e: Any) -> Any:
    """Return the formula with a symbol in place of each sum over axes.

    >>> length = sum_over(mask, "t")
    >>> replace_totals(mask * length).has(mask), replace_totals(length).has(mask)
    (True, False)
    """
    if isinstance(e, Total):
        return sympy.Dummy(real=True)
    return e.func(*map(replace_totals, e.args)) if e.has(Total) else e


def as_rational(number: Any, infinite: bool = False) -> Any:
    """Return a number of the code as the rational that was meant.

    >>> as_rational(0.1), as_rational(3), as_rational(0.1 * 3)
    (1/10, 3, 3/10)

    infinite: let infinity pass, with which code may compare.  Raises Refused: nan, or else infinity.
    """
    if isinstance(number, bool | int):
        return Rational(int(number))
    value = float(number)
    if infinite and value in (float("inf"), float("-inf")):
        return sympy.oo if value > 0 else -sympy.oo
    if value != value or value in (float("inf"), float("-inf")):
        raise Refused(f"the number {value} in a formula")
    near = Fraction(repr(value))
    simple = near.limit_denominator(SMALL)
    close = simple and abs(simple - near) < Fraction(1, 10**14) * abs(near)
    if not close and 1e-3 < abs(value) < 7:  # a logarithm of a simple number, which the code has taken
        power = Fraction(math.exp(value)).limit_denominator(1000)
        if power and abs(math.log(power) - value) < 1e-14 * max(1, abs(value)):
            return sympy.log(Rational(power.numerator, power.denominator))
    fraction = simple if close else near
    return Rational(fraction.numerator, fraction.denominator)


def as_linear_in_mask(e: Any) -> Any:
    """Return a function of one mask alone as a + b mask, which it is at 0 and 1."""
    choices = e.atoms(Top)
    symbol = choices.pop() if len(choices) == 1 else mask
    if e.has(Total) or e.xreplace({symbol: sympy.S.Zero}).free_symbols or not e.has(symbol):
        return e
    nothing, whole = (e.xreplace({symbol: sympy.Integer(value)}).doit() for value in (0, 1))
    return nothing + (whole - nothing) * symbol


def make_step(x: Any) -> Any:
    """Return 1 where x > 0, else 0."""
    return as_linear_in_mask(Step(x))


def to_grammar(e: Any) -> Any:
    """Return a formula at one token that counts, in the loss grammar: Step(x) is where(x > 0, 1, 0)."""
    formula = merge_detached(split_steps(e.xreplace({mask: sympy.S.One})))
    formula = name_estimators(formula.replace(lambda part: isinstance(part, Step), _convert_step))
    if formula.has(Total):
        raise Refused(f"a sum over axes within a formula: {formula}")
    return formula


def split_steps(e: Any) -> Any:
    """Split products with a step in an exponent or a denominator: f(s) = s f(1) + (1 - s) f(0), s is 0 or 1.

    >>> split_steps(r / (2 + Step(k1)))
    (1 - Step(k1))*r/2 + r*Step(k1)/3
    """
    terms = []
    for term in sympy.Add.make_args(e):
        bent = [p for p in term.atoms(sympy.exp, sympy.Pow) if p.has(Step)]
        inside = sorted({s for p in bent for s in p.atoms(Step)}, key=str)
        for s in inside[:1]:
            value_at_one, value_at_zero = (split_steps(term.xreplace({s: sympy.Integer(n)})) for n in (1, 0))
            term = s * value_at_one + (1 - s) * value_at_zero
        terms.append(term)
    return sympy.Add(*terms)


def is_theta_dependent(e: Any) -> bool:
    """Does it depend on theta, that is on log q outside sg?

    >>> from klsym.language.expressions import k2
    >>> is_theta_dependent(sg(rho) * k2), is_theta_dependent(sg(rho) * log_p)
    (True, False)
    """
    plain = e.replace(lambda part: isinstance(part, sg | Top), lambda part: sympy.Dummy(positive=True))
    return any(x.name.partition("[")[0] == log_q.name for x in plain.free_symbols)


def merge_detached(e: Any) -> Any:
    """Return the formula with one sg around what is detached, in place of one around each of its parts.

    >>> merge_detached(sympy.exp(sg(log_q) - log_p))
    sg(exp(-log_p + log_q))
    """
    if isinstance(e, sympy.Atom) or not e.has(sg):
        return e
    if not isinstance(e, sympy.Add | sympy.Mul) and not is_theta_dependent(e):
        return sg(remove_sg(e))
    return e.func(*(merge_detached(a) for a in e.args))


def _convert_step(e: Any) -> Any:
    [x] = e.args
    return above(name_estimators(remove_sg(x)), 0) if x.free_symbols else e


def name_estimators(e: Any) -> Any:
    """Return the formula with the names of the estimators: log q - log p is k1, exp(-k1) is r.

    >>> name_estimators(sympy.exp(log_p - log_q) - 1 - (log_p - log_q))
    k3
    """
    if isinstance(e, sympy.Atom):
        return e
    inside = e.func(*(name_estimators(a) for a in e.args)) if _is_opaque(e) else _name_inside(e)
    return _name_estimator(_merge_exponentials(inside) if isinstance(inside, sympy.Mul) else inside)


def _merge_exponentials(product: Any) -> Any:
    """Replace exp(a) exp(b) by exp(a + b)."""
    parts = [a for a in product.args if isinstance(a.as_base_exp()[0], sympy.exp) or isinstance(a, sympy.exp)]
    if len(parts) < 2:
        return product
    exponents = (a.args[0] if isinstance(a, sympy.exp) else a.base.args[0] * a.exp for a in parts)
    remainder = sympy.Mul(*(a for a in product.args if a not in parts))
    return remainder * _name_ratios(sympy.expand(name_estimators(sum(exponents, start=sympy.S.Zero))))


def _is_opaque(e: Any) -> bool:
    return not isinstance(e, sympy.Add | sympy.exp)


def _name_inside(e: Any) -> Any:
    """Name estimators in sums and exponents, where differences of log densities are seen."""
    if isinstance(e, sympy.exp):
        return _name_ratios(sympy.expand(name_estimators(e.args[0])))
    return _name_log_ratios(sum((name_estimators(a) for a in e.args), start=sympy.S.Zero))


def _name_log_ratios(e: Any) -> Any:
    """Write a log q + b log p + c log mu with a + b + c = 0 as multiples of k1 and log rho."""
    p, mu = e.coeff(log_p), e.coeff(log_mu)
    if not (p.is_number and mu.is_number and e.coeff(log_q) == -(p + mu) and (p or mu)):
        return e
    remainder = e - e.coeff(log_q) * log_q - p * log_p - mu * log_mu
    ratio = mu * (log_mu - log_q)
    return remainder - p * k1 + ratio


def _name_ratios(e: Any) -> Any:
    """Return exp(e) with r for exp(-k1) and rho for exp(log q - log mu)."""
    multiple, weight = e.coeff(k1), -e.coeff(log_mu)
    whole = multiple.is_Integer and weight.is_Integer and e.coeff(log_q) == weight
    if not whole or not (multiple or weight):
        return sympy.exp(e)
    remainder = sympy.expand(e - multiple * k1 - weight * (log_q - log_mu))
    return r**-multiple * rho**weight * sympy.exp(remainder)


def _name_estimator(e: Any) -> Any:
    """Replace c k1^2/2 by c k2 (times anything), c (r - 1 + k1) by c k3 (plus anything), and so on."""
    for name, estimator in OF_TABLE.items():
        formula = estimator.express_in_k1()
        if name == "k1" or not isinstance(e, sympy.Add | sympy.Mul | sympy.Pow):
            continue
        if isinstance(formula, sympy.Add) and isinstance(e, sympy.Add):
            parts, coefficients = formula.as_coefficients_dict(), e.as_coefficients_dict()
            [c, *others] = {coefficients[part] / multiple for part, multiple in parts.items()}
            if c and not others:
                return e - c * formula + c * estimator
        elif not isinstance(formula, sympy.Add) and not isinstance(e, sympy.Add):
            multiple, power = formula.as_coeff_Mul()
            base, exponent = power.as_base_exp()
            if e.as_powers_dict().get(base) == exponent:
                return e / power * estimator / multiple
    return e
