"""The numeric cross-check of one claim on the report page: what was compared, and what would have shown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from klsym.write_up.page_prose import prose_html
from klsym.write_up.page_style import mark

MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
# How the sampled side must stand to the exact value of the other one.
WANTED = {
    "=": "|z| \N{LESS-THAN OR EQUAL TO} {}",
    "<=": "z \N{LESS-THAN OR EQUAL TO} {}",
    ">=": "z \N{GREATER-THAN OR EQUAL TO} \N{MINUS SIGN}{}",
    "!=": "|z| > {}",
}
HEAD = ("sampled", "samples", "z", "required", "smallest visible bias", "wrong control")
SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?\d+)")
HOW = (
    "Each statement is evaluated exactly on finite models, or by quadrature, by code that the proofs do not"
    " use. Where it speaks of means, one side is then sampled with its gradient at each sample and compared"
    " with the exact value of the other side: z is their distance in standard errors. All comparisons of"
    " this report share one false-alarm rate, which makes the bound that z must respect. The smallest"
    " visible bias is what would have been seen, as a share of the size of the gradient or value; where a"
    " side does not vary between samples it is 0, and z is infinite if the sides differ at all. The wrong"
    " control is the same side with a tenth of k1 added to its coefficient: it has to be told apart by the"
    " same samples, or the comparison counts as failed."
)


def cross_check(checks: Sequence[Any]) -> Iterator[str]:
    """What was found in a sentence, then each part exactly and every sampled side with its wrong control.

    checks: those of klsym.sampling.verify.Report.checked that belong to the claim.
    """
    if not checks:
        return
    yield '<h4>Cross-check with numbers (<a href="#checks">how to read this</a>)</h4>'
    yield from _in_words(checks)
    yield '<div class="scroll"><table class="checks">'
    if any(one.outcomes for one in checks):
        columns = "".join(f'<th scope="col"{_numeric(i)}>{name}</th>' for i, name in enumerate(HEAD))
        yield f"<thead><tr>{columns}</tr></thead>"
    yield "<tbody>"
    for one in checks:
        yield from _rows(one)
    yield "</tbody></table></div>"


def _in_words(checks: Sequence[Any]) -> Iterator[str]:
    """The cross-check of the claim in a line: does it agree, and what would have been seen?"""
    outcomes = [outcome for one in checks for outcome in one.outcomes]
    passed = all(one.passed for one in checks)
    verdict = "agrees" if passed else "does not agree"
    exactly = sum(bool(one.exact[0]) for one in checks)  # some are SymPy's
    words = f"the exact oracle bears out {exactly} of {_counted(len(checks), 'statement')}"
    if outcomes:
        held, rejected = sum(o.holds for o in outcomes), sum(o.rejected for o in outcomes)
        blurred = max(o.sees for o in outcomes)
        words += f"; {held} of {_counted(len(outcomes), 'sampled side')} as required"
        words += f", where a bias of {_number(blurred)} of its size would have shown" if blurred else ""
        words += f"; {rejected} of {_counted(len(outcomes), 'wrong control')} told apart"
    kind = "agrees" if passed else "agrees failure"
    yield f'<p class="{kind}">{mark("proved" if passed else "failed", verdict)}: {words}.</p>'


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _numeric(column: int) -> str:
    return ' class="n"' if 1 <= column <= 4 else ""


def _rows(one: Any) -> Iterator[str]:
    agrees, text = one.exact
    lead = f"Statement {one.identity.number}, exactly: " if one.identity.of > 1 else "Exactly: "
    failed = "" if agrees else ' class="failure"'
    shown = f"<span{failed}>{lead}{scientific(text)}</span>"
    yield f'<tr><th scope="rowgroup" colspan="{len(HEAD)}">{shown}</th></tr>'
    groups = (
        ("finite model", one.identity.finite, one.finite),
        ("Gaussians", one.identity.gaussian, one.gaussian),
    )
    for where, trials, outcomes in groups:
        if not isinstance(outcomes, str):
            for name, outcome in zip(_names(trials, outcomes), outcomes, strict=True):
                yield _outcome(f"{where}{name}", outcome)
    for reason in _silences(one):
        yield f'<tr><td colspan="{len(HEAD)}" class="quiet">{prose_html(reason)}</td></tr>'
    if one.autograd is not None:
        shown = f"automatic differentiation: relative difference {_number(one.autograd)}"
        yield f'<tr><td colspan="{len(HEAD)}">{shown}</td></tr>'


def _names(trials: Any, outcomes: Sequence[Any]) -> list[str]:
    """The side that each outcome is of, where every trial has one."""
    complete = not isinstance(trials, str) and len(trials) == len(outcomes)
    return [f", {trial.name}" for trial in trials] if complete else [""] * len(outcomes)


def _outcome(where: str, outcome: Any) -> str:
    wanted = WANTED[outcome.relation].format(f"{outcome.threshold:.2f}")
    control = "told apart" if outcome.rejected else "not told apart"
    sign = "+" if outcome.z > 0 else ""
    cells = [
        f'<td class="n">{_number(outcome.samples)}</td>',
        f'<td class="n"><span{_failure(outcome.holds)}>{sign}{_number(outcome.z, 2)}</span></td>',
        f'<td class="n">{escape(wanted)}</td>',
        f'<td class="n">{_number(outcome.sees)}</td>',
        f"<td><span{_failure(outcome.rejected)}>{control}, |z| = {_number(outcome.control, 2)}</span></td>",
    ]
    return f"<tr><td>{prose_html(where)}</td>{''.join(cells)}</tr>"


def _failure(passed: bool) -> str:
    return "" if passed else ' class="failure"'


def _number(value: float, digits: int = 1) -> str:
    """2e-05 -> 2 x 10^-5, 1e+12 -> 10^12, and numbers near 1 as they are.

    >>> _number(141.2, 2), _number(-0.914, 2), _number(float("-inf"))
    ('140', '−0.91', '−∞')
    """
    if math.isinf(value):
        return (MINUS if value < 0 else "") + "\N{INFINITY}"
    if value == 0:
        return "0"
    if 0.01 <= abs(value) < 1000:
        return f"{float(f'{value:.{digits}g}'):g}".replace("-", MINUS)
    return scientific(f"{value:.{digits - 1}e}").replace("-", MINUS)


def scientific(text: str) -> str:
    """Powers of ten as such; the rest of the text is escaped.

    >>> scientific("apart by 3.9e-17 < 1, at most 0.0e+00")
    'apart by 3.9×10<sup>−17</sup> &lt; 1, at most 0'
    """
    return SCIENTIFIC.sub(_power, escape(text))


def _power(found: re.Match[str]) -> str:
    digits, exponent = found[1], int(found[2])
    if float(digits) == 0:
        return "0"
    power = f"10<sup>{str(exponent).replace('-', MINUS)}</sup>"
    return power if float(digits) == 1 else f"{digits}{TIMES}{power}"


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
