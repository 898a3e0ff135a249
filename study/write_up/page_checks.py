"""The numeric cross-check of one claim, as data for the report page, and how its numbers are set."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup, escape

MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?\d+)")


def summarise_checks(checks: Sequence[Any]) -> dict[str, Any]:
    """Each statement exactly, and every sampled side with its wrong control; empty where there was no check.

    checks: those of klsym.study.sampling.verify.Report.checked that belong to the claim.
    """
    if not checks:
        return {}
    outcomes = [outcome for checked_identity in checks for outcome in checked_identity.outcomes]
    return {
        "passed": all(checked_identity.passed for checked_identity in checks),
        "exactly": sum(bool(checked_identity.exact[0]) for checked_identity in checks),
        "outcomes": outcomes,
        "held": sum(outcome.holds for outcome in outcomes),
        "rejected": sum(outcome.rejected for outcome in outcomes),
        "blurred": max((outcome.sees for outcome in outcomes), default=0),
        "statements": [_describe_statement(checked_identity) for checked_identity in checks],
    }


def _describe_statement(one: Any) -> dict[str, Any]:
    agrees, text = one.exact
    groups = (("finite model", "finite"), ("Gaussians", "gaussian"))
    sampled = [
        (f"{where}{name}", outcome)
        for where, group in groups
        for name, outcome in _name_outcomes(getattr(one.identity, group), getattr(one, group))
    ]
    return {
        "number": one.identity.number, "of": one.identity.of, "agrees": agrees, "exact": text,
        "outcomes": sampled, "silences": list(_list_silences(one)), "autograd": one.autograd,
    }  # fmt: skip


def _name_outcomes(trials: Any, outcomes: Any) -> list[tuple[str, Any]]:
    """Each outcome with the side that it is of, where every trial has one."""
    if isinstance(outcomes, str):
        return []
    complete = not isinstance(trials, str) and len(trials) == len(outcomes)
    names = [f", {trial.name}" for trial in trials] if complete else [""] * len(outcomes)
    return list(zip(names, outcomes, strict=True))


def _list_silences(one: Any) -> Iterator[str]:
    """What was not sampled, and why."""
    if isinstance(one.finite, str) and one.finite == one.gaussian:
        yield f"not sampled: {one.finite}"
    else:
        for where, group in (("on finite models", one.finite), ("on Gaussians", one.gaussian)):
            if isinstance(group, str):
                yield f"not sampled {where}: {group}"
    yield from (f"not sampled: {note}" for note in one.identity.notes)
    yield from (f"not sampled: {side}: {error}" for side, error in one.few)


def format_number(value: float, digits: int = 1) -> str:
    """2e-05 -> 2 x 10^-5, 1e+12 -> 10^12, and numbers near 1 as they are.

    >>> format_number(141.2, 2), format_number(-0.914, 2), format_number(float("-inf"))
    ('140', '−0.91', '−∞')
    """
    if math.isinf(value):
        return (MINUS if value < 0 else "") + "\N{INFINITY}"
    if value == 0:
        return "0"
    if 0.01 <= abs(value) < 1000:
        return f"{float(f'{value:.{digits}g}'):g}".replace("-", MINUS)
    return format_scientific(f"{value:.{digits - 1}e}").replace("-", MINUS)


def format_scientific(text: str) -> Markup:
    """Powers of ten as such; the rest of the text is escaped.

    >>> print(format_scientific("apart by 3.9e-17 < 1, at most 0.0e+00"))
    apart by 3.9×10<sup>−17</sup> &lt; 1, at most 0
    """
    return Markup(SCIENTIFIC.sub(_format_power, escape(text)))


def _format_power(found: re.Match[str]) -> str:
    digits, exponent = found[1], int(found[2])
    if float(digits) == 0:
        return "0"
    power = f"10<sup>{str(exponent).replace('-', MINUS)}</sup>"
    return power if float(digits) == 1 else f"{digits}{TIMES}{power}"
