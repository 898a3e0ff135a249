"""Optima and divergences as HTML, with formulas as MathML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from klsym.render.markup.parts import (
    TRUST,
    Link,
    format_badge,
    format_formula,
    format_items,
    format_table,
    typeset_latex,
    typeset_loss,
    write_formula_alone,
)

if TYPE_CHECKING:
    from klsym.study.render.descents import PrintedDescents
    from klsym.study.render.optima import PrintedOptimum
    from klsym.study.render.token_optima import PrintedTokenOptimum

UNBIASED = " its value is unbiased, too"
STABLE = {True: "yes", False: "no", None: "not decided"}
USES = {"loss": "as a loss", "reward": "as a detached reward", "value": "as a value"}


def format_divergence_html(descents: PrintedDescents, link: Link = write_formula_alone) -> str:
    """f, the losses that estimate and descend the divergence, and those that do not."""
    rows = descents.to_json()
    title, formula = descents.text().splitlines()[0], typeset_latex("f = " + rows["latex"])
    right = format_table(
        ("sampling", "used", "to descend it, write", ""),
        (
            (
                *_list_place(row),
                _format_loss(row, link),
                _format_trust(row) + UNBIASED * row["unbiased_value"],
            )
            for row in rows["gradients"]
        ),
    )
    values = format_table(
        ("sampling", "to estimate its value, log", ""),
        (
            (escape(row["sampling"]), typeset_loss(row["loss"], ("a",)), _format_trust(row))
            for row in rows["values"]
        ),
    )
    wrong = format_table(
        ("sampling", "used", "loss", "what it descends"),
        ((*_list_place(row), _format_loss(row, link), escape(row["descends"])) for row in rows["wrong"]),
    )
    tempting = f"<p><b>Losses that look right and are not</b></p>{wrong}" if wrong else ""
    head = f'<header><p class="does"><b>{escape(title)}</b></p>{format_formula(formula)}</header>'
    return f"{head}{right}{values}{tempting}{format_items(rows['warnings'], 'notes')}"


def _format_trust(row: Mapping[str, Any]) -> str:
    return format_badge(TRUST.get(row["trust"], "open"))


def _list_place(row: Mapping[str, Any]) -> tuple[str, str]:
    return escape(row["sampling"]), USES[row["use"]]


def _format_loss(row: Mapping[str, Any], link: Link) -> str:
    options = {name: row[name] for name in ("sampling", "use")}
    return link(row["loss"], options, typeset_loss(row["loss"]))


def format_optimum_html(optimum: PrintedOptimum | PrintedTokenOptimum) -> str:
    """The closed form, the table of stationary policies, and what is to be known of them."""
    from klsym.study.render.token_optima import PrintedTokenOptimum

    if isinstance(optimum, PrintedTokenOptimum):
        return _format_tokens(optimum)
    rows = optimum.to_json()
    closed = format_formula(typeset_latex(rows["closed_form"])) if rows["closed_form"] else ""
    title, count = str(optimum).splitlines()[:2]
    outcomes = tuple(f"q_{number + 1}" for number in range(len(rows["rewards"])))
    policies = (
        _list_cells(place, row)
        for place, name in (("inside", "stationary"), ("boundary", "boundary"))
        for row in rows[name]
    )
    table = format_table(("where", *outcomes, "nu", "stable"), policies)
    head = (
        f'<header><p class="does"><b>{escape(title)}</b></p>{closed}</header><p>{escape(count.strip())}</p>'
    )
    return f"{head}{table}{format_items(rows['warnings'], 'notes')}"


def _format_tokens(optimum: PrintedTokenOptimum) -> str:
    """The closed form of a token, and one row for each policy of sequences."""
    rows = optimum.to_json()
    closed = format_formula(typeset_latex(rows["closed_form"])) if rows["closed_form"] else ""
    policies = (
        (
            place,
            *(f"{value:.6f}" for value in row["policy"]),
            *(f"{value:.6f}" for value in (row["reward"], row["kl"])),
            STABLE[row["stable"]],
        )
        for place, name in (("inside", "stationary"), ("boundary", "boundary"))
        for row in rows[name]
    )
    head = ("where", *(f"q({name})" for name in rows["sequences"]), "E_q[R]", "KL(q||p)", "stable")
    table = format_table(head, policies)
    title = f'<header><p class="does"><b>{escape(optimum.title)}</b></p>{closed}</header>'
    return f"{title}<p>{escape(optimum.count)}</p>{table}{format_items(rows['warnings'], 'notes')}"


def _list_cells(place: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (f"{value:.6f}" for value in row["policy"])
    nu = "" if row["multiplier"] is None else f"{row['multiplier']:z.6f}"
    return (place, *numbers, nu, STABLE[row["stable"]])
