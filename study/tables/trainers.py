"""Losses as released trainers write them: what each does, term by term, and what its KL term targets.

`trainers.toml` has the facts: where a loss stands in public code, and its line in the grammar.  The answers
take a minute; `trainers.json` stores them, and `make trainers` settles all again and compares:

    python -m klsym.study.tables.trainers            # writes the answers
    python -m klsym.study.tables.trainers --check    # fails if one differs

>>> trainer("trl-grpo").loss
'-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A) + beta*k3'
>>> stored()["verl-gpg"]["target"]
'own-mean'
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from klsym.api import Verdict, explain
from klsym.engine.answers.term_analysis import describe_effect, list_limits
from klsym.engine.options.settings import checked_setting
from klsym.engine.verdicts.verdict import WITHOUT_NAME
from klsym.files import write_whole
from klsym.language.parser import parse
from klsym.notation import formulas
from klsym.render.sentences import describe_replacement, write_sentence, write_sentences
from klsym.render.words import describe_reason, describe_setting
from klsym.study.tables.writing.table import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    build_text,
    cite_claims,
    code,
    join_cells,
    words,
)

FACTS, ANSWERS = Path(__file__).with_suffix(".toml"), Path(__file__).with_suffix(".json")
CAPTION = build_text(
    "Losses of released trainers, in the grammar of losses. What each term does, what the KL term alone"
    " targets, what to mind and what to write for it. 'Its own mean' is $\\mathbb{E}_{\\mu}[L]$, the mean of"
    " the loss as it stands under the sampler, which does not move. Where each line stands in public code:"
    " table trainer-sources."
)
COLUMNS = (
    Column("trainer", words("trainer"), 0.14),
    Column("loss", words("loss"), 0.17),
    Column("does", words("what it does"), 0.17),
    Column("kl", words("the KL term alone"), 0.14),
    Column("advice", words("mind, and write"), 0.11),
    Column("claim", words("claim"), 0.15),
)
OWN, UNNAMED = "grad of its own mean", "no objective that has a name"
LONGEST = 70  # letters of a field that has a short name
MIND = {  # codes of messages -> in few words
    ("prefixes-of-mu",): "prefixes stay those of mu",
    ("length-in-front", "length-rewarded"): "1/T moves the length",
    ("later-dropped",): "later tokens are dropped",
    ("heavy-tail",): "heavy tails",
    ("pushes-from-mu",): "pushes q away from mu",
    ("size-lost",): "the size of the reward is lost",
    ("literal-weight",): "build rho with its gradient",
    ("tie",): "ties at rho = 1",
}


@dataclass(frozen=True)
class Trainer:
    """One code path.  kl: its KL term alone, if it has one, with options of its own where they differ.

    beside: what the line leaves out.
    """

    id: str
    group: str
    name: str
    package: str
    source: str
    loss: str
    options: Mapping[str, str] = field(default_factory=dict)
    calls: str = ""
    kl: str = ""
    kl_options: Mapping[str, str] = field(default_factory=dict)
    beside: str = ""
    claims: tuple[str, ...] = ()


@cache
def trainers() -> tuple[Trainer, ...]:
    """All of them, in the order of the table."""
    rows = tomllib.loads(FACTS.read_text(encoding="utf-8"))["trainer"]
    return tuple(Trainer(**{**row, "claims": tuple(row.get("claims", ()))}) for row in rows)


def trainer(id: str) -> Trainer:
    """The one of this id; raises KeyError where there is none."""
    return {listed_trainer.id: listed_trainer for listed_trainer in trainers()}[id]


# ---------------------------------------------------------------------------- answers
@cache
def stored() -> dict[str, Any]:
    """The answers by id, as they were settled last."""
    answers: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return answers


def settled(one: Trainer) -> dict[str, Any]:
    """The answer to one loss that the grammar says, as JSON."""
    verdict = _explain_loss(one.loss, one.options)
    terms = [
        [term.loss, _describe_term(term.loss, _explain_loss(term.loss, one.options))]
        for term in verdict.gradient.terms
    ]
    kl = _explain_loss(one.kl, one.kl_options or one.options) if one.kl else None
    messages = (*verdict.messages, *(kl.messages if kl else ()))
    return {
        "target": verdict.to_json()["gradient"]["target"],
        "trust": verdict.trust,
        "terms": terms or [["", _describe_term(one.loss, verdict)]],
        "inside": verdict.gradient.inside_clamps and verdict.gradient.inside_clamps.to_json(),
        "kl": _describe_term(one.kl, kl) if kl else None,
        "mind": [
            short_advice for codes, short_advice in MIND.items() if any(x.code in codes for x in messages)
        ],
        "lines": str(verdict).count("\n") + 1,
        "write": kl and kl.fix and describe_replacement(kl.fix),
    }


def _explain_loss(loss: str, options: Mapping[str, str]) -> Verdict:
    return explain(loss, **options)  # type: ignore[arg-type]


def _describe_term(loss: str, verdict: Verdict) -> str:
    """What a term does, where a bound drops it, which weight it lacks."""
    return "; ".join((_describe_objective(parse(loss), verdict), *write_sentences(list_limits(verdict))))


def _describe_objective(e: Any, verdict: Verdict) -> str:
    """In few words: what has a name keeps it."""
    short = bool(verdict.gradient.quantities_text) and len(verdict.gradient.quantities_text) <= LONGEST
    if verdict.target == "no-objective":
        return f"no objective: {verdict.gradient.quantities_text}" if short else "no objective"
    if verdict.target == "f-divergence":
        return describe_reason(verdict)
    if verdict.target not in WITHOUT_NAME or (short and "KL(" in verdict.gradient.quantities_text):
        return write_sentence(describe_effect(e, verdict))
    implied = (
        formulas.show_side(verdict.objective.quantity.side) if verdict.objective.quantity is not None else ""
    )
    if "E_q" in implied or "KL(" in implied:
        return f"grad of {implied}"
    if verdict.target == "own-mean":
        return OWN
    return (
        write_sentence(describe_effect(e, verdict))
        if short and "log_q" not in verdict.gradient.quantities_text
        else UNNAMED
    )


def settle_all() -> Iterator[tuple[str, dict[str, Any]]]:
    """The answers to all that the grammar says, as they come."""
    return ((loss_trainer.id, settled(loss_trainer)) for loss_trainer in trainers())


# ---------------------------------------------------------------------------- the table
def table() -> Table:
    """The table.

    >>> [row.tags[0] for row in table().select_rows(("RLOO",)).rows]
    ['trl-rloo', 'trl-rloo-later', 'trl-rloo-clip']
    """
    return Table("trainers", CAPTION, COLUMNS, tuple(map(_build_row, trainers())), size="scriptsize")


def list_tags(one: Trainer) -> tuple[str, ...]:
    """What chooses a row: its id, its packages, the first word of its name."""
    return (one.id, *one.package.split(", "), one.name.split()[0].rstrip(","))


def build_title_cell(one: Trainer) -> Cell:
    """The first cell of its row."""
    return words(f"{one.name}; ") + code(one.package)


def _build_row(one: Trainer) -> Row:
    answer = stored()[one.id]
    cells = (
        build_title_cell(one),
        _show_loss(one),
        _show_effects(one, answer),
        _show_kl(one, answer),
        _show_advice(answer),
        cite_claims(one.claims),
    )
    return Row(cells, list_tags(one), one.group)


def _show_loss(one: Trainer) -> Cell:
    return code(one.loss) + words(f"  ({', '.join(describe_setting(checked_setting(**one.options)))})")


def _show_effects(one: Trainer, answer: Mapping[str, Any]) -> Cell:
    """What descending each term of the loss does, without the KL term, which has its own column."""
    terms = [
        (term, says) for term, says in answer["terms"] if not (one.kl and term) or _is_other_loss(term, one)
    ]
    return join_cells(
        [(code(term) + words(": ") if term else Cell()) + words(says) for term, says in terms], ". "
    )


def _is_other_loss(term: str, one: Trainer) -> bool:
    return bool(parse(term) != parse(one.kl))


def _show_kl(one: Trainer, answer: Mapping[str, Any]) -> Cell:
    return code(one.kl) + words(f": {answer['kl']}") if one.kl else NONE


def _show_advice(answer: Mapping[str, Any]) -> Cell:
    sentences = [*answer["mind"], *([f"write {answer['write']}"] if answer["write"] else [])]
    return words("; ".join(sentences)) if sentences else NONE


def main(argv: list[str]) -> int:
    """Settles all; writes the answers, or with --check tells which differ from the stored ones."""
    settled_answers = {}
    for id, answer in settle_all():
        print(id, flush=True)
        settled_answers[id] = answer
    if "--check" not in argv:
        write_whole(ANSWERS, json.dumps(settled_answers, indent=1) + "\n")
        return 0
    differing = [id for id in {**settled_answers, **stored()} if settled_answers.get(id) != stored().get(id)]
    print(f"{len(settled_answers)} losses settled, {len(differing)} differ from what is stored", *differing)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
