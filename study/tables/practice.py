"""What to write: the choices that `recommend` finds right, and what the tempting ones descend instead."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from klsym.engine.questions.recommend import Choice, Recommendation, recommend
from klsym.notation import formulas, losses
from klsym.notation.combination import format_objective_latex
from klsym.notation.printers import LATEX
from klsym.render.objective import write_objective_latex
from klsym.study.tables.losses import OFF, ON, find_gradient_quote, mean
from klsym.study.tables.writing.ledger_lookup import Quote
from klsym.study.tables.writing.table import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    build_text,
    cite_claims,
    join_cells,
    math,
    words,
)

CAPTION = build_text(
    "What to write for a KL. The first loss of each row is the one to write; those joined by 'or' have the"
    " same gradient at each sample; those that vary more near $q = p$ follow. On-policy"
    r" $\rho = q/\mathrm{sg}(q)$, else $\rho = q/\mu$; $r = p/q$. A loss is differentiated; what is in the"
    " reward is detached, and multiplies the score function; a value is logged. What the tempting ones"
    " descend, or have for a mean, stands beside."
)
COLUMNS = (
    Column("use", words("use")),
    Column("write", words("write"), 0.22),
    Column("variance", words("less noisy"), 0.17),
    Column("instead-of", words("not"), 0.32),
    Column("claim", words("claim"), 0.12),
)
TARGETS = {"reverse-kl": r"\mathrm{KL}(q\,\Vert\,p)", "forward-kl": r"\mathrm{KL}(p\,\Vert\,q)"}
USES = {"loss": "loss", "reward": "reward", "value": "value"}
SAMPLERS = {ON: "samples from q", OFF: "samples from mu"}
NAMES = {"reverse-kl": "The reverse KL", "forward-kl": "The forward KL"}


def table() -> Table:
    """One row for a target, a sampler and a use.

    >>> [row.cells[0].pieces[0][1] for row in table().select_rows(("reverse-kl",)).rows[:3]]
    ['loss', 'reward', 'value']
    """
    return Table("practice", CAPTION, COLUMNS, tuple(_list_rows()))


def _list_rows() -> Iterator[Row]:
    for target, sampling, use in product(TARGETS, SAMPLERS, USES):
        recommendation = recommend(target, sampling, use)  # type: ignore[arg-type]
        quoted = _find_quote(recommendation)
        cells = (
            words(use),
            _write_choices(recommendation),
            _show_quieter(recommendation),
            _show_wrong(recommendation),
            cite_claims(quoted.claims[:1]) if quoted else NONE,
        )
        tags = (*(choice.loss for choice in recommendation.choices), target, sampling, use)
        yield Row(cells, tags, f"{NAMES[target]}, {SAMPLERS[sampling]}")


def _find_quote(found: Recommendation) -> Quote | None:
    """What the ledger says of the first choice."""
    loss, sampling = found.choices[0].written.expression, found.setting.sampling
    return mean(loss, sampling) if found.use == "value" else find_gradient_quote(loss, sampling, found.use)


def _write_choices(found: Recommendation) -> Cell:
    """Kinds by their noise, the choices of a kind beside one another."""
    kinds: dict[int, list[Cell]] = {}
    for choice in found.choices:
        kinds.setdefault(choice.kind, []).append(_show_loss(choice))
    return join_cells([join_cells(kind, " or ") for kind in kinds.values()], ", then ")


def _show_loss(choice: Choice) -> Cell:
    return math(losses.show(choice.written.expression, LATEX))


def _show_quieter(found: Recommendation) -> Cell:
    """Where the first kind varies less than the next."""
    spread = next((choice.against for choice in found.choices if choice.kind == 0), None)
    if spread is None:
        return NONE
    if spread.assumed is not None:
        return build_text("where ") + math(rf"{formulas.show_element(spread.assumed[2], LATEX)} \ge 0")
    return words("depends on the model" if spread.lower == "depends" else "not known")


def _show_wrong(found: Recommendation) -> Cell:
    """Those made of k1, k2 and k3, each with what it descends or estimates."""
    kept_losses = [
        wrong_choice
        for wrong_choice in found.wrong
        if wrong_choice.verdict.trust == "kernel" and "r*" not in wrong_choice.loss
    ]
    loss_cells = (math(losses.show(wrong_choice.verdict.loss.written, LATEX)) for wrong_choice in kept_losses)
    return join_cells(
        [
            loss + words(": ") + _show_target(wrong_choice, found.use)
            for loss, wrong_choice in zip(loss_cells, kept_losses, strict=True)
        ]
    )


def _show_target(one: Any, use: str) -> Cell:
    verdict = one.verdict
    if use == "value":
        named = verdict.value.target in TARGETS
        return math(format_objective_latex(verdict.value.multiples)) if named else words("no KL")
    return math(write_objective_latex(verdict) or "0")
