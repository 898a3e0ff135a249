"""What the verdicts on two losses say about both, when one lies outside the ring.  Untrusted.

Nothing is derived here: named targets are compared, and whatever has no name is left open.
"""

from __future__ import annotations

from typing import Any

from sympy import Rational, S

from klsym.convert import to_sympy
from klsym.engine.questions.equality_answer import Answer
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.language import COUNTS, parameter
from klsym.messages import Message
from klsym.ring import ExpPoly

SMALL = Rational(1, 10**9)
TRUSTS = ("kernel", "sympy", "numeric")  # from the strongest on
NO_COMBINATION = ("f-divergence", "separable")


def compare_outside(a: Verdict, b: Verdict) -> tuple[Answer, Answer]:
    """Are the expected values the same, and the expected gradients?

    trust: the weakest of the verdicts and SymPy, which says whether what they name is the same.
    """
    trust = max((a.trust, b.trust, "sympy"), key=TRUSTS.index)
    losses, constants = (a.loss, b.loss), (a.constant, b.constant)
    return (
        _compared(losses, (a.value, b.value), constants, trust, "value"),
        _compared(losses, (a.gradient, b.gradient), (S.Zero, S.Zero), trust, "gradient"),
    )


def _compared(
    losses: tuple[str, str],
    of: tuple[TargetReading, TargetReading],
    constants: tuple[Any, Any],
    trust: str,
    kind: str,
) -> Answer:
    same = _same(*of, constants)
    told = Message("each-has", losses=losses, kind=kind, meanings=of, constants=constants)
    return Answer(same, "open" if same is None else trust, told=told)


def _same(first: TargetReading, second: TargetReading, constants: tuple[Any, Any]) -> bool | None:
    unnamed = [m.target in NO_COMBINATION for m in (first, second)]
    if all(unnamed) or None in (first.target, second.target):
        return None
    if any(unnamed):
        return False
    names = {*first.parts, *second.parts}
    pairs = [(first.parts.get(name, S.Zero), second.parts.get(name, S.Zero)) for name in sorted(names)]
    equal = [_equal(*pair) for pair in (*pairs, constants)]
    return False if False in equal else None if None in equal else True


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
