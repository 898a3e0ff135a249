"""Formulas as trees, from which statements are printed.  Standard library only.

A tree holds the structure; a printer (`printers`, `mathml`) chooses the notation and the brackets.

>>> from klsym.notation.printers import LATEX, TEXT
>>> half = divide(multiply(Name("k1"), add_terms(Name("r"), Minus(Number(1)))), Number(2))
>>> TEXT(half), LATEX(half)
('k1*(r - 1)/2', '\\\\frac{k_1\\\\,\\\\left(r - 1\\\\right)}{2}')
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Never, dataclass_transform


@dataclass_transform(frozen_default=True)
class Formula:
    """Any node: frozen, made and matched as a dataclass is; two dozen of those take 10 ms to define."""

    __match_args__: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        cls.__match_args__ = tuple(cls.__annotations__)  # type: ignore[misc]

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = type(self).__match_args__
        if len(values) == len(fields) and not named:
            vars(self).update(zip(fields, values, strict=True))
            return
        given = dict(zip(fields[: len(values)], values, strict=True)) | named
        for name in fields:
            vars(self)[name] = given.pop(name) if name in given else getattr(type(self), name)
        if given:
            raise TypeError(f"{type(self).__name__} has no {', '.join(given)}")

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"


class Number(Formula):
    """A rational that is not negative; -1/2 is Minus(Number(1/2))."""

    value: int | Fraction


class Name(Formula):
    """A letter of the loss grammar, a parameter or a function; below: its slot in text, else its index."""

    name: str
    below: str = ""
    primes: int = 0


class Minus(Formula):
    of: Formula


class Sum(Formula):
    """Terms, of which each Minus is subtracted."""

    terms: tuple[Formula, ...]


class Product(Formula):
    """Factors; loose: a coefficient beside means, as in lam KL(q||p)."""

    factors: tuple[Formula, ...]
    loose: bool = False


class Quotient(Formula):
    """small: a number or a parameter before a sum."""

    over: Formula
    under: Formula
    small: bool = False


class Power(Formula):
    base: Formula
    exponent: Formula


class Call(Formula):
    """A function by its name in the loss grammar, such as exp, sg, min or clip."""

    function: str
    arguments: tuple[Formula, ...]
    primes: int = 0


class Big(Formula):
    """A sum or product over positions, which reaches to the end of its term: sum_{u<t} k_u."""

    sign: str
    below: str
    of: Formula


class Over(Formula):
    """The integrand of a mean at an index: sum_t of, mean_i of."""

    index: str
    of: Formula


class Mean(Formula):
    measure: str
    of: Formula


class Covariance(Formula):
    """Cov_m(a, b); the variance when a = b."""

    measure: str
    first: Formula
    second: Formula


class Divergence(Formula):
    kind: str
    first: Formula
    second: Formula


class Bregman(Formula):
    phi: Formula


class Gradient(Formula):
    of: Formula


class Curl(Formula):
    of: Formula


class Along(Formula):
    """A score function along one of two directions: u.s."""

    direction: str
    of: Formula


class Relation(Formula):
    """left sign right, and so on; the sign is =, !=, <=, >=, <, >, "not <=" or iff."""

    left: Formula
    sign: str
    right: Formula


class Cases(Formula):
    """Values with the condition of each; that of the last may be None, otherwise."""

    rows: tuple[tuple[Formula, Formula | None], ...]


class Indicator(Formula):
    """1 where a condition holds, else 0."""

    when: Formula


class Words(Formula):
    """Plain words between formulas; latex: how they are set where that says more."""

    text: str
    latex: str = ""


class Phrase(Formula):
    """Words and formulas, one after the other."""

    parts: tuple[Formula, ...]


class Typed(Formula):
    """A loss with the text that the user typed for it, which stays as it is in text."""

    text: str
    formula: Formula


# ---------------------------------------------------------------------------- putting trees together
def is_open(formula: Formula) -> bool:
    """Does it end in a sum or product over positions, which what follows would join?"""
    match formula:
        case Big():
            return True
        case Minus(last) | Product((*_, last)):
            return not isinstance(last, Sum) and is_open(last)
        case Sum((*_, last)):
            return is_open(last)
    return False


def build_number(value: int | Fraction) -> Formula:
    return Minus(Number(-value)) if value < 0 else Number(value)


LONG = 100_000  # a denominator from which on a decimal is shorter to read


def is_long_decimal(value: int | Fraction) -> bool:
    """Is it a finite decimal whose fraction would be long, such as 1e-8?"""
    cofactor = value.denominator
    for prime in (2, 5):
        while cofactor % prime == 0:
            cofactor //= prime
    return cofactor == 1 and value.denominator >= LONG


def format_decimal(value: int | Fraction) -> str:
    """Return a finite decimal, exactly.

    >>> format_decimal(Fraction(1, 10**8)), format_decimal(1 + Fraction(1, 10**8))
    ('1e-8', '1.00000001')
    """
    with localcontext(prec=2000):
        shown = str((Decimal(value.numerator) / Decimal(value.denominator)).normalize())
    return shown.replace("E", "e")


def negate(formula: Formula) -> Formula:
    return formula.of if isinstance(formula, Minus) else Minus(formula)


def multiply(*factors: Formula) -> Formula:
    """Multiply factors; (-a) b = -(a b), and a sum over positions goes last."""
    negative = False
    flat: list[Formula] = []
    for factor in factors:
        if isinstance(factor, Minus):
            negative, factor = not negative, factor.of
        flat += factor.factors if isinstance(factor, Product) and not factor.loose else [factor]
    flat.sort(key=lambda factor: not isinstance(factor, Sum) and is_open(factor))
    whole = Product(tuple(flat)) if len(flat) > 1 else flat[0] if flat else Number(1)
    return Minus(whole) if negative else whole


def add_terms(*terms: Formula) -> Formula:
    """Add terms; a + (b + c) = a + b + c, and a sum over positions goes last."""
    flat = [part for term in terms for part in (term.terms if isinstance(term, Sum) else (term,))]
    flat.sort(key=is_open)
    return Sum(tuple(flat)) if len(flat) > 1 else flat[0] if flat else Number(0)


def divide(over: Formula, under: Formula) -> Formula:
    """Divide; (-a)/b = -(a/b), and a sum over positions stays outside: (1/b) sum_j k_j."""
    if isinstance(over, Minus):
        return negate(divide(over.of, under))
    if is_open(over):
        return multiply(Quotient(Number(1), under, small=True), over)
    return Quotient(over, under)


def list_parts(formula: Formula) -> list[Formula]:
    """List the formulas that a node is made of."""
    rows = [value if isinstance(value, tuple) else (value,) for value in vars(formula).values()]
    return [item for row in rows for item in row if isinstance(item, Formula)]


def replace_parts(formula: Formula, part: Callable[[Formula], Formula]) -> Formula:
    """Return the node with part(x) in place of each formula x that it is made of.

    >>> replace_parts(Power(Name("r"), Number(2)), lambda x: Name("rho") if x == Name("r") else x)
    Power(base=Name(name='rho', below='', primes=0), exponent=Number(value=2))
    """

    def replace_value(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(replace_value, value))
        return part(value) if isinstance(value, Formula) else value

    return type(formula)(*map(replace_value, vars(formula).values()))


def is_tall(formula: Formula) -> bool:
    """Is there a sum over positions in it, for which brackets must grow?"""
    return isinstance(formula, Big | Over | Cases) or any(map(is_tall, list_parts(formula)))
