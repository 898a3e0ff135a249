"""The other answers as HTML: two losses compared, recommendations, divergences, optima, diagnostic codes."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from verdict_page import ask_button, badge, formula, items, latex, rows

from klsym.render.answer import describe_verdict
from klsym.render.headline import name_trust
from klsym.render.questions.comparison_text import TRAINING, list_noise

TRUST = {"kernel": "proved", "sympy": "rests on SymPy", "numeric": "supported by numbers only"}
USES = {"loss": "as a loss", "reward": "as a detached reward", "value": "as a value"}
SAME = {True: "the same", False: "different", None: "not decided"}


def comparison_html(found: Any) -> str:
    """Both losses as formulas, and in what they agree."""
    first, second = (formula(loss) for loss in found.losses)
    summary, letters = TRAINING[found.gradient.same], {"A": "A", "B": "B"}
    pairs = [
        (name, f"{escape(describe_verdict(verdict))} {badge(name_trust(verdict))}")
        for name, verdict in zip(letters, found.verdicts, strict=bool(found.verdicts))
    ]
    pairs += [(name, _same(answer)) for name, answer in found.named_answers]
    pairs += [(name, escape(text)) for name, text in list_noise(found, letters)]
    undecided = f"<p>Not decided:</p>{items(found.undecided)}" if found.undecided else ""
    said = f"{escape(summary)} {badge(TRUST.get(found.trust, 'open'))}"
    head = f'<p class="loss">A = {first}, &ensp;B = {second}</p><p class="does">{said}</p>'
    return f"<header>{head}</header>{rows(pairs)}{undecided}"


def _same(answer: Any) -> str:
    statement = f": <code>{escape(answer.statement)}</code>" if answer.statement else ""
    return f"{SAME[answer.same]}{statement}"


def recommendation_html(found: Any, framework: str) -> str:
    """The code of the first choice, the other choices, and losses that look right and are not."""
    known, options = found.to_json(), _setting(found)
    lead = found.text(framework).splitlines()[0]
    code = f"<pre>{escape(found.snippet(framework))}</pre>" if found.choices else ""
    choices = (
        (
            _asked(row, options),
            badge(TRUST[row["trust"]]),
            escape(row["value"]),
            escape("; ".join(row["needs"])),
        )
        for row in known["choices"]
    )
    wrong = ((_asked(row, options), f"<code>{escape(row['reason'])}</code>") for row in known["not"])
    right = _table(("write", "", "its value is", "it needs"), choices)
    return (
        f'<header><p class="does">{escape(lead)}</p></header>{code}{right}'
        f"<h3>Losses that look right and are not</h3>{_table(('loss', 'its target'), wrong)}"
    )


def _setting(found: Any) -> dict[str, str]:
    use = {} if found.use == "value" else {"use": found.use}
    return {"sampling": found.setting.sampling, "level": found.setting.level, **use}


def _asked(row: dict[str, Any], options: dict[str, str]) -> str:
    more = {name: row[name] for name in ("credit", "weights") if row.get(name)}
    said = "".join(f" <small>{escape(f'--{name} {value}')}</small>" for name, value in more.items())
    return ask_button(row["loss"], {**options, **more}, formula(row["loss"])) + said


def divergence_html(found: Any) -> str:
    """f, the losses that estimate and descend the divergence, and those that do not."""
    known = found.to_json()
    lead, shown = found.text().splitlines()[0], latex("f = " + known["latex"])
    head = f'<header><p class="does">{escape(lead)}</p><p class="formula">{shown}</p></header>'
    right = _table(("sampling", "used", "to descend it, write", ""), map(_descends, known["gradients"]))
    values = _table(("sampling", "to estimate its value, log", ""), map(_estimates, known["values"]))
    wrong = _table(
        ("sampling", "used", "loss", "what it descends"),
        ((*_place(row), _in_place(row), f"<code>{escape(row['descends'])}</code>") for row in known["wrong"]),
    )
    looks = f"<h3>Losses that look right and are not</h3>{wrong}" if wrong else ""
    return f"{head}{right}{values}{looks}{items(known['warnings'], 'notes')}"


def _descends(row: dict[str, Any]) -> tuple[str, ...]:
    unbiased = " its value is unbiased, too" if row["unbiased_value"] else ""
    return (*_place(row), _in_place(row), badge(TRUST.get(row["trust"], "open")) + unbiased)


def _estimates(row: dict[str, Any]) -> tuple[str, ...]:
    return (escape(row["sampling"]), formula(row["loss"], ("a",)), badge(TRUST.get(row["trust"], "open")))


def _place(row: dict[str, Any]) -> tuple[str, str]:
    return escape(row["sampling"]), USES[row["use"]]


def _in_place(row: dict[str, Any]) -> str:
    options = {name: row[name] for name in ("sampling", "use")}
    return ask_button(row["loss"], options, formula(row["loss"]))


def optimum_html(found: Any) -> str:
    """The closed form, the table of stationary policies, and what is to be known of them."""
    known = found.to_json()
    closed = f'<p class="formula">{latex(known["closed_form"])}</p>' if known["closed_form"] else ""
    lead, count = str(found).splitlines()[:2]
    outcomes = tuple(f"q_{number + 1}" for number in range(len(known["rewards"])))
    policies = (
        _policy(place, row)
        for place, name in (("inside", "stationary"), ("boundary", "boundary"))
        for row in known[name]
    )
    table = _table(("where", *outcomes, "nu", "stable"), policies)
    head = f'<header><p class="does">{escape(lead)}</p>{closed}</header><p>{escape(count.strip())}</p>'
    return f"{head}{table}{items(known['warnings'], 'notes')}"


def _policy(place: str, row: dict[str, Any]) -> tuple[str, ...]:
    numbers = (f"{value:.6f}" for value in (*row["policy"], row["multiplier"]))
    return (place, *numbers, "yes" if row["stable"] else "no")


def rule_html(found: Any) -> str:
    """The page of a diagnostic code, with its examples as buttons."""
    example, instead = (
        ask_button(one.loss, one.options, f"<code>{escape(one.words)}</code>")
        for one in (found.example, found.write)
    )
    return rows(
        [
            ("means", escape(found.means)),
            ("matters", escape(found.matters)),
            ("example", example),
            ("write", instead),
        ]
    )


def _table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    """A table of cells in HTML; nothing without lines."""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for cells in lines)
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    whole = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0">{whole}</div>' if body else ""
