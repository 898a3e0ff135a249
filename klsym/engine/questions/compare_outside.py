"""What the verdicts on two losses say about both, when one lies outside the ring.  Untrusted.

Nothing is derived here: named targets are compared, and whatever has no name is left open.
"""

from __future__ import annotations

from typing import Any

from sympy import Rational, S

from klsym.convert import to_sympy
from klsym.engine.verdicts.verdict import Meaning, Verdict
from klsym.language import COUNTS, parameter
from klsym.notation.combination import combination_text
from klsym.notation.values import shown as printed
from klsym.ring import ExpPoly

Found = tuple[bool | None, str]  # the same?  and in words
SMALL = Rational(1, 10**9)
TRUSTS = ("kernel", "sympy", "numeric")  # from the strongest on
UNNAMED = ("f-divergence", "separable")


def compare_outside(a: Verdict, b: Verdict) -> tuple[Found, Found, str]:
    """The expected values, the expected gradients, and the weaker trust of the two verdicts."""
    gradient = _compared(a, b, (a.gradient, b.gradient), (S.Zero, S.Zero))
    value = _compared(a, b, (a.value, b.value), (a.constant, b.constant))
    value = value[0], value[1].replace("grad ", "")
    return value, gradient, max((a.trust, b.trust), key=TRUSTS.index)


def _compared(a: Verdict, b: Verdict, meanings: tuple[Meaning, Meaning], constants: tuple[Any, Any]) -> Found:
    first, second = meanings
    shown = f"{a.loss}: {_named(first, constants[0])}; {b.loss}: {_named(second, constants[1])}"
    unnamed = [m.target in UNNAMED for m in (first, second)]
    if all(unnamed) or None in (first.target, second.target):
        return None, shown
    if any(unnamed):
        return False, shown
    names = {*first.parts, *second.parts}
    pairs = [(first.parts.get(name, S.Zero), second.parts.get(name, S.Zero)) for name in sorted(names)]
    equal = [_equal(*pair) for pair in (*pairs, constants)]
    if False in equal:
        return False, shown
    return (None if None in equal else True), shown


def _equal(*pair: Any) -> bool | None:
    x, y = (to_sympy(value) if isinstance(value, ExpPoly) else value for value in pair)
    difference = x - y
    difference = difference.xreplace(
        {x: parameter(x.name) for x in difference.free_symbols if x.name in COUNTS}
    )
    answer = difference.equals(0)
    return bool(answer) if answer is not None else _nonzero_somewhere(difference)


def _nonzero_somewhere(difference: Any) -> bool | None:
    """False (not equal) once a value shows it; None if none does.  Batch sizes and lengths are positive."""
    names = sorted(difference.free_symbols, key=str)
    for sign in (1, -1):
        values = {x: Rational(2 * i + 3, 2) * (1 if x.is_positive else sign) for i, x in enumerate(names)}
        value = difference.subs(values).evalf(30)
        if value.is_number and abs(value) > SMALL:
            return False
    return None


def _named(meaning: Meaning, constant: Any) -> str:
    if meaning.target is None:
        return "open"
    if meaning.target in UNNAMED:
        return "no combination of the KLs"
    text = combination_text(meaning.multiples) if meaning.multiples else "0"
    return f"{text} + {printed(constant)}" if constant else text
