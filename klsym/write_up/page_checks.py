"""The numeric cross-check of one claim on the report page: what was compared, and what would have shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

# How the sampled side must stand to the exact value of the other one.
WANTED = {
    "=": "|z| \N{LESS-THAN OR EQUAL TO} {}",
    "<=": "z \N{LESS-THAN OR EQUAL TO} {}",
    ">=": "z \N{GREATER-THAN OR EQUAL TO} \N{MINUS SIGN}{}",
    "!=": "|z| > {}",
}
HEAD = ("sampled", "samples", "z", "required", "smallest visible bias", "control")


def cross_check(checks: Sequence[Any]) -> Iterator[str]:
    """A table for a claim: each part exactly, then every sampled side with its negative control.

    checks: those of klsym.sampling.verify.Report.checked that belong to the claim.
    """
    if not checks:
        return
    yield '<h4>Cross-check with numbers</h4><div class="scroll"><table>'
    if any(one.outcomes for one in checks):
        columns = "".join(f'<th scope="col"{_numeric(i)}>{name}</th>' for i, name in enumerate(HEAD))
        yield f"<thead><tr>{columns}</tr></thead>"
    yield "<tbody>"
    for one in checks:
        yield from _rows(one)
    yield "</tbody></table></div>"


def _numeric(column: int) -> str:
    return ' class="n"' if 1 <= column <= 4 else ""


def _rows(one: Any) -> Iterator[str]:
    agrees, text = one.exact
    lead = f"statement {one.identity.number}, exactly: " if one.identity.of > 1 else "exactly: "
    mark = "" if agrees else ' class="failure"'
    yield f'<tr><th scope="rowgroup" colspan="{len(HEAD)}"><span{mark}>{lead}{escape(text)}</span></th></tr>'
    groups = (
        ("finite model", one.identity.finite, one.finite),
        ("Gaussians", one.identity.gaussian, one.gaussian),
    )
    for where, trials, outcomes in groups:
        if not isinstance(outcomes, str):
            for name, outcome in zip(_names(trials, outcomes), outcomes, strict=True):
                yield _outcome(f"{where}{name}", outcome)
    for reason in _silences(one):
        yield f'<tr><td colspan="{len(HEAD)}" class="quiet">{escape(reason)}</td></tr>'
    if one.autograd is not None:
        shown = f"automatic differentiation: relative difference {one.autograd:.0e}"
        yield f'<tr><td colspan="{len(HEAD)}">{shown}</td></tr>'


def _names(trials: Any, outcomes: Sequence[Any]) -> list[str]:
    """The side that each outcome is of, where every trial has one."""
    complete = not isinstance(trials, str) and len(trials) == len(outcomes)
    return [f", {trial.name}" for trial in trials] if complete else [""] * len(outcomes)


def _outcome(where: str, outcome: Any) -> str:
    z = f"{outcome.z:+.2g}".replace("-", "\N{MINUS SIGN}")
    wanted = WANTED[outcome.relation].format(f"{outcome.threshold:.2f}")
    control = "rejected" if outcome.rejected else "not rejected"
    cells = [
        f'<td class="n">{_power(outcome.samples)}</td>',
        f'<td class="n"><span{_failure(outcome.holds)}>{z}</span></td>',
        f'<td class="n">{escape(wanted)}</td>',
        f'<td class="n">{_power(outcome.sees)}</td>',
        f"<td><span{_failure(outcome.rejected)}>{control}, |z| = {outcome.control:.2g}</span></td>",
    ]
    return f"<tr><td>{escape(where)}</td>{''.join(cells)}</tr>"


def _failure(passed: bool) -> str:
    return "" if passed else ' class="failure"'


def _power(value: float) -> str:
    """2e-05 -> 2 x 10^-5, 1e+12 -> 10^12."""
    digits, _, exponent = f"{value:.0e}".partition("e")
    raised = str(int(exponent)).replace("-", "\N{MINUS SIGN}")
    power = f"10<sup>{raised}</sup>"
    return power if digits == "1" else f"{digits}\N{MULTIPLICATION SIGN}{power}"


def _silences(one: Any) -> Iterator[str]:
    """What was not sampled, and why."""
    if isinstance(one.finite, str) and one.finite == one.gaussian:
        yield f"not sampled: {one.finite}"
    else:
        for where, group in (("on finite models", one.finite), ("on Gaussians", one.gaussian)):
            if isinstance(group, str):
                yield f"not sampled {where}: {group}"
    yield from (f"not sampled: {note}" for note in one.identity.notes)
    yield from (f"not sampled: {side}: {error}" for side, error in one.few)
