"""What traced code computes with: the language of losses, and beside it masks, steps and sums over axes.

    Total(e, "t")   the sum over tokens of e; "b" over the sequences of a batch, "v" over the vocabulary
    Step(x)         1 where x > 0, else 0, with derivative zero
    Top(x, k)       1 at the k words of the vocabulary where x is largest, else 0, with derivative zero
    mask            1 at the tokens that count, 0 at padding

They live in traces alone: `aggregation` takes the totals off, `grammar` writes the rest in the loss grammar.

>>> from klsym.language.expressions import k2
>>> grammar(Step(k1) * k2)
k2*sg(Heaviside(k1, 0))
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import sympy
from sympy import Function, Rational, Symbol

from klsym.errors import UsageError
from klsym.language.expressions import OF_TABLE, above, k1, log_mu, log_p, log_q, r, rho, sg, without_sg

AXES = "btv"  # sequences of a batch, tokens of a sequence, words of the vocabulary
SMALL = 10**6  # denominators below are taken for what was meant: 0.30000000000000004 is 3/10
mask = Symbol("mask", real=True, nonnegative=True)
token = Symbol("token", real=True)  # which word was sampled
every_log_q, every_log_p, every_log_mu = (
    Symbol(f"{x.name}[v]", real=True) for x in (log_q, log_p, log_mu)
)  # of all words
VOCABULARY = {every_log_q: log_q, every_log_p: log_p, every_log_mu: log_mu}


class Refused(UsageError):
    """Code that is not read; the message names the operation, `line` where it stands in the user's file."""

    of_shape = False  # do shapes not fit?  Then another layout of arguments may
    raised = False  # does the code itself raise an error?  It may be one of shapes

    def __init__(self, reason: str, line: int | None = None) -> None:
        self.reason, self.line = reason, line
        super().__init__(f"line {line}: {reason}" if line else reason)

    def at(self, line: int | None) -> Refused:
        """The same refusal, at this line if it has none yet."""
        if self.line is None and line is not None:
            self.line, self.args = line, (f"line {line}: {self.reason}",)
        return self


class Misfit(Refused):
    """Code that uses an argument in a way in which its role is not used; `role` is mask or token."""

    def __init__(self, reason: str, role: Any, line: int | None = None) -> None:
        self.role = role
        super().__init__(reason, line)

    def about(self, names: list[str]) -> Refused:
        """The same, with what to say of these arguments."""
        more = f": is {' or '.join(names)} a number? --set gives it" if names else ""
        return Refused(self.reason + more, self.line)


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


def total(e: Any, axes: str) -> Any:
    """The sum of e over axes.

    >>> total(mask * k1, "t")
    Total(mask*k1, t)
    """
    return Total(e, Symbol(axes)) if axes else e


def outside_totals(e: Any) -> Any:
    """The formula with a symbol in place of each sum over axes.

    >>> outside_totals(mask * total(mask * k1, "t")).has(mask, k1), outside_totals(total(mask, "t")).has(mask)
    (True, False)
    """
    if isinstance(e, Total):
        return sympy.Dummy(real=True)
    return e.func(*map(outside_totals, e.args)) if e.has(Total) else e


def exact(number: Any, infinite: bool = False) -> Any:
    """A number of the code as the rational that was meant.

    >>> exact(0.1), exact(3), exact(0.1 * 3)
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
    found = simple if close else near
    return Rational(found.numerator, found.denominator)


def of_mask(e: Any) -> Any:
    """A function of one mask alone as a + b mask, which it is at 0 and 1."""
    choices = e.atoms(Top)
    of = choices.pop() if len(choices) == 1 else mask
    if e.has(Total) or e.xreplace({of: sympy.S.Zero}).free_symbols or not e.has(of):
        return e
    nothing, whole = (e.xreplace({of: sympy.Integer(value)}).doit() for value in (0, 1))
    return nothing + (whole - nothing) * of


def step(x: Any) -> Any:
    """1 where x > 0."""
    return of_mask(Step(x))


def grammar(e: Any) -> Any:
    """A formula at one token that counts, in the loss grammar: Step(x) is where(x > 0, 1, 0)."""
    found = detached_once(by_steps(e.xreplace({mask: sympy.S.One})))
    found = folded(found.replace(lambda part: isinstance(part, Step), _indicator))
    if found.has(Total):
        raise Refused(f"a sum over axes within a formula: {found}")
    return found


def by_steps(e: Any) -> Any:
    """Products with a step in an exponent or a denominator: f(s) = s f(1) + (1 - s) f(0) where s is 0 or 1.

    >>> by_steps(r / (2 + Step(k1)))
    (1 - Step(k1))*r/2 + r*Step(k1)/3
    """
    found = []
    for term in sympy.Add.make_args(e):
        bent = [p for p in term.atoms(sympy.exp, sympy.Pow) if p.has(Step)]
        inside = sorted({s for p in bent for s in p.atoms(Step)}, key=str)
        for s in inside[:1]:
            one, none = (by_steps(term.xreplace({s: sympy.Integer(n)})) for n in (1, 0))
            term = s * one + (1 - s) * none
        found.append(term)
    return sympy.Add(*found)


def depends(e: Any) -> bool:
    """Does it move with theta, that is with log q outside sg?

    >>> from klsym.language.expressions import k2
    >>> depends(sg(rho) * k2), depends(sg(rho) * log_p)
    (True, False)
    """
    plain = e.replace(lambda part: isinstance(part, sg | Top), lambda part: sympy.Dummy(positive=True))
    return any(x.name.partition("[")[0] == log_q.name for x in plain.free_symbols)


def detached_once(e: Any) -> Any:
    """One sg around what is detached, in place of one around each of its parts.

    >>> detached_once(sympy.exp(sg(log_q) - log_p))
    sg(exp(-log_p + log_q))
    """
    if isinstance(e, sympy.Atom) or not e.has(sg):
        return e
    if not isinstance(e, sympy.Add | sympy.Mul) and not depends(e):
        return sg(without_sg(e))
    return e.func(*(detached_once(a) for a in e.args))


def _indicator(e: Any) -> Any:
    [x] = e.args
    return above(folded(without_sg(x)), 0) if x.free_symbols else e


def folded(e: Any) -> Any:
    """With the names of the estimators where they stand: log q - log p is k1, exp(-k1) is r.

    >>> folded(sympy.exp(log_p - log_q) - 1 - (log_p - log_q))
    k3
    """
    if isinstance(e, sympy.Atom):
        return e
    inside = e.func(*(folded(a) for a in e.args)) if _opaque(e) else _open(e)
    return _named(_merged(inside) if isinstance(inside, sympy.Mul) else inside)


def _merged(product: Any) -> Any:
    """exp(a) exp(b) is exp(a + b)."""
    parts = [a for a in product.args if isinstance(a.as_base_exp()[0], sympy.exp) or isinstance(a, sympy.exp)]
    if len(parts) < 2:
        return product
    exponents = (a.args[0] if isinstance(a, sympy.exp) else a.base.args[0] * a.exp for a in parts)
    rest = sympy.Mul(*(a for a in product.args if a not in parts))
    return rest * _power(sympy.expand(folded(sum(exponents, start=sympy.S.Zero))))


def _opaque(e: Any) -> bool:
    return not isinstance(e, sympy.Add | sympy.exp)


def _open(e: Any) -> Any:
    """Sums and exponents, where differences of log densities are seen."""
    if isinstance(e, sympy.exp):
        return _power(sympy.expand(folded(e.args[0])))
    return _sum(sum((folded(a) for a in e.args), start=sympy.S.Zero))


def _sum(e: Any) -> Any:
    """a log q + b log p + c log mu with a + b + c = 0 as multiples of k1 and log rho."""
    p, mu = e.coeff(log_p), e.coeff(log_mu)
    if not (p.is_number and mu.is_number and e.coeff(log_q) == -(p + mu) and (p or mu)):
        return e
    rest = e - e.coeff(log_q) * log_q - p * log_p - mu * log_mu
    ratio = mu * (log_mu - log_q)
    return rest - p * k1 + ratio


def _power(e: Any) -> Any:
    """exp(-k1) is r, exp(log q - log mu) is rho."""
    one, weight = e.coeff(k1), -e.coeff(log_mu)
    whole = one.is_Integer and weight.is_Integer and e.coeff(log_q) == weight
    if not whole or not (one or weight):
        return sympy.exp(e)
    rest = sympy.expand(e - one * k1 - weight * (log_q - log_mu))
    return r**-one * rho**weight * sympy.exp(rest)


def _named(e: Any) -> Any:
    """c k1^2/2 is c k2 (times anything), c (r - 1 + k1) is c k3 (beside anything), and so on."""
    for name, estimator in OF_TABLE.items():
        formula = estimator.in_k1()
        if name == "k1" or not isinstance(e, sympy.Add | sympy.Mul | sympy.Pow):
            continue
        if isinstance(formula, sympy.Add) and isinstance(e, sympy.Add):
            parts, found = formula.as_coefficients_dict(), e.as_coefficients_dict()
            [c, *others] = {found[part] / multiple for part, multiple in parts.items()}
            if c and not others:
                return e - c * formula + c * estimator
        elif not isinstance(formula, sympy.Add) and not isinstance(e, sympy.Add):
            multiple, power = formula.as_coeff_Mul()
            base, exponent = power.as_base_exp()
            if e.as_powers_dict().get(base) == exponent:
                return e / power * estimator / multiple
    return e
