"""The value of a formula at fixed points: equal formulas have equal values, however they are written.

Each point gives a number to every log density, reward, parameter and score; k1, r, rho and so on follow from
them, m is n - 1, and on-policy log mu is log q.  A function that is not known, such as past(..), is a fixed
function of the values of its arguments.  Values are taken with 40 digits and compared with 12.

>>> from klsym.notation.tree import Call, Name, Number, multiply, add_terms
>>> square = multiply(Name("k1"), Name("k1"))
>>> digest(multiply(Number(2), Name("k2"))) == digest(square), digest(Name("k2")) == digest(square)
(True, False)
>>> one, other = (Call("max", (Name("r"), Number(bound))) for bound in (1000, 1001))
>>> digest(one, soft=True) == digest(other, soft=True)
False
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import mpmath

from klsym.notation import tree

POINTS = 8
DIGITS, SHOWN = 40, 12
LOGS = ("log_q", "log_p", "log_mu", "log_old")
RATIOS: dict[str, Callable[[Callable[[str], Any]], Any]] = {
    "k1": lambda at: at("log_q") - at("log_p"),
    "w": lambda at: at("log_q") - at("log_mu"),
    "o": lambda at: at("log_q") - at("log_old"),
    "k2": lambda at: at("k1") ** 2 / 2,
    "r": lambda at: mpmath.exp(-at("k1")),
    "k3": lambda at: at("r") - 1 + at("k1"),
    "rho": lambda at: mpmath.exp(at("w")),
    "rho_old": lambda at: mpmath.exp(at("o")),
    "T": lambda at: at("length"),
    "m": lambda at: at("n") - 1,
}
OF_SAMPLES = ("R", "A", "M", "s", "H")
RANGES = {**dict.fromkeys(LOGS, (-2, 0)), **dict.fromkeys(OF_SAMPLES, (-2, 2)), "length": (2, 5), "n": (3, 6)}
CALLS: dict[str, Callable[..., Any]] = {
    "": lambda x: x,
    "sg": lambda x: x,
    "exp": mpmath.exp,
    "log": mpmath.log,
    "sqrt": mpmath.sqrt,
    "abs": abs,
    "min": min,
    "max": max,
    "clip": lambda x, low, high: min(max(x, low), high),
}
SOFT: dict[str, Callable[..., Any]] = {
    "abs": lambda x: mpmath.sqrt(1 + x * x),
    "min": lambda *xs: -soft_max(*(-x for x in xs)),
    "max": lambda *xs: soft_max(*xs),
    "clip": lambda x, low, high: -soft_max(-soft_max(x, low), -high),
}
STEP = "1e-300"
RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


class Point:
    """A number for every name."""

    def __init__(self, number: int, on_policy: bool = False, soft: bool = False) -> None:
        self.number, self.on_policy, self.calls = number, on_policy, CALLS | SOFT if soft else CALLS
        self.step = mpmath.mpf(1 if soft else STEP)

    def name(self, name: str, slot: str = "") -> Any:
        """The value of a name in a slot."""
        if name in RATIOS:
            return RATIOS[name](lambda other: self.name(other, slot))
        if name == "log_mu" and self.on_policy:
            name = "log_q"
        low, high = RANGES.get(name, (0, 1))  # a parameter is a weight, or the width of a clip
        return low + (high - low) * drawn(f"{self.number} {name} {slot}")

    def of(self, formula: Any) -> Any:
        """The value of a tree."""
        match formula:
            case tree.Number(value):
                return mpmath.mpf(Fraction(value).numerator) / Fraction(value).denominator
            case tree.Name(name, below, 0):
                return self.name(name, below)
            case tree.Minus(of):
                return -self.of(of)
            case tree.Typed(_, of):
                return self.of(of)
            case tree.Sum(terms):
                return sum(map(self.of, terms), mpmath.mpf(0))
            case tree.Product(factors):
                return reduce(lambda a, b: a * b, map(self.of, factors), mpmath.mpf(1))
            case tree.Quotient(over, under):
                return self.of(over) / self.of(under)
            case tree.Power(base, exponent):
                return self.of(base) ** self.of(exponent)
            case tree.Call("", (tree.Relation() as relation,)):
                return self.stepped(relation)
            case tree.Call("where", (tree.Relation() as relation, one, other)):
                share = self.stepped(relation)
                return share * self.of(one) + (1 - share) * self.of(other)
            case tree.Call(name, arguments, 0):
                values = [self.of(argument) for argument in arguments]
                known = self.calls.get(name)
                return known(*values) if known else drawn(f"{name} {[*map(rounded, values)]}")
            case tree.Cases(rows):
                return next(self.of(value) for value, when in rows if when is None or self.holds(when))
        return drawn(f"{self.number} {formula!r}")

    def stepped(self, relation: Any) -> Any:
        """1 where x > 0 or x >= 0; softly max(0, x/max(|x|, 1)), which x of every sign moves."""
        x = self.of(relation.left) - self.of(relation.right)
        x = -x if "<" in relation.sign else x
        sign = x / self.calls["max"](self.calls["abs"](x), self.step)
        return self.calls["min"](1, 1 + sign) if "=" in relation.sign else self.calls["max"](0, sign)

    def holds(self, when: Any) -> bool:
        """Is a condition true here?"""
        match when:
            case tree.Relation(left, sign, right) if sign in RELATIONS:
                return RELATIONS[sign](self.of(left), self.of(right))
        return drawn(f"{self.number} {when!r}") < 0.5


@lru_cache(maxsize=65536)
def drawn(seed: str) -> Any:
    """A number between 0 and 1 that depends on the text alone."""
    with mpmath.workdps(DIGITS):
        return mpmath.mpf(int(hashlib.sha256(seed.encode()).hexdigest()[:24], 16)) / 16**24


def rounded(value: Any) -> str:
    """A value with the digits that are compared; what is 0 but for rounding is 0."""
    return mpmath.nstr(value, SHOWN) if abs(value) > mpmath.mpf(10) ** (SHOWN - DIGITS) else "0"


def soft_max(*values: Any) -> Any:
    """(a + b + sqrt((a - b)^2 + 1))/2, from the smallest value upwards."""
    return reduce(lambda a, b: (a + b + mpmath.sqrt((a - b) ** 2 + 1)) / 2, sorted(values))


def values_at(formula: Any, on_policy: bool = False, soft: bool = False) -> list[Any]:
    """The values of a tree at all points; None where there is none."""
    found = []
    with mpmath.workdps(DIGITS):
        for number in range(POINTS):
            try:
                found.append(Point(number, on_policy, soft).of(formula))
            except (ArithmeticError, TypeError, ValueError):  # 0/0; complex numbers that are compared
                found.append(None)
    return found


def digest(formula: Any, on_policy: bool = False, soft: bool = False) -> str:
    """The values at all points, in 12 hexadecimal digits; "undefined" counts as a value."""
    return hashed(values_at(formula, on_policy, soft))


def hashed(values: list[Any]) -> str:
    """
    >>> hashed([mpmath.mpf(1), None]) == hashed([mpmath.mpf(1) + mpmath.mpf(10)**-14, None])
    True
    """
    with mpmath.workdps(DIGITS):
        text = " ".join("undefined" if value is None else rounded(value) for value in values)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def condition(formula: Any, signs: Any) -> str:
    """Where the sign of a formula is one of these: the same for each multiple of the formula.

    >>> from klsym.notation.tree import Name, Number, multiply
    >>> condition(Name("R"), (1, 0)) == condition(multiply(Number(2), Name("R")), (0, 1))
    True
    >>> condition(Name("R"), (1,)) == condition(Name("R"), (-1,))
    False
    """
    values = values_at(formula)
    scale = values[0] or 1
    with mpmath.workdps(DIGITS):
        scaled = [value and value / scale for value in values]
    return f"{hashed(scaled)} {sorted(int(sign) * (1 if scale > 0 else -1) for sign in signs)}"
