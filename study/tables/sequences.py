"""Estimators on sequences of random length: what their expected gradient keeps of that of the KL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from klsym.api import Verdict, ask
from klsym.engine.proof.derivation import Proof
from klsym.language.abbreviations import (
    Curl,
    E,
    ExpectedGradient,
    Indexed,
    IndexedGradient,
    Point,
    PointGradient,
    Side,
)
from klsym.notation import formulas
from klsym.notation.printers import LATEX
from klsym.render.sentences import KEPT, write_sentence
from klsym.study.tables.losses import OFF, ON
from klsym.study.tables.writing.ledger_lookup import Quote, find_by_left_side, find_by_side, quote
from klsym.study.tables.writing.pieces import annotate_text
from klsym.study.tables.writing.table import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    build_text,
    cite_claims,
    collect_claims,
    math,
    words,
)

CAPTION = build_text(
    "Estimators on sequences. The gradient at one sequence of random length $T$, the sum over tokens"
    r" $t$, and its mean: under $q$ on-policy, under $\mu$ off-policy. $q_t$ is the distribution of the"
    r" next token after the prefix drawn, $k_{1,t}$ its log ratio, $\rho_{\le t}$ the product of the"
    r" ratios up to $t$ and $\rho$ that of all of them; $m = n - 1$. No function: the field has a curl on"
    " a tree of tokens."
)
COLUMNS = (
    Column("estimator", words("at one sequence"), 0.223),
    Column("gradient", words("expected gradient"), 0.27),
    Column("keeps", words("keeps and drops"), 0.178),
    Column("of", words("gradient of"), 0.093),
    Column("claim", words("claim"), 0.143),
)
TOKEN, SCORE = "A loss at each token, on-policy", "What multiplies the score of each token, on-policy"
WHOLE = "The whole sequence as one sample, on-policy"
WEIGHTED, WHOLE_WEIGHTED = "Tokens, off-policy", "The whole sequence as one sample, off-policy"
# group, loss, options of `explain`
CASES: tuple[tuple[str, str, dict[str, str]], ...] = (
    (TOKEN, "k1", {"level": "token"}),
    (TOKEN, "k1", {"level": "token", "aggregate": "mean"}),
    (TOKEN, "k2", {"level": "token"}),
    (TOKEN, "k3", {"level": "token"}),
    (SCORE, "k1", {"level": "token", "use": "reward", "credit": "same-token"}),
    (SCORE, "k1", {"level": "token", "use": "reward", "credit": "to-go"}),
    (WHOLE, "k2", {"level": "sequence"}),
    (WHOLE, "k3", {"level": "sequence"}),
    (WEIGHTED, "rho*k1", {"level": "token", "use": "reward", "credit": "same-token", "weights": "token"}),
    (WEIGHTED, "rho*k3", {"level": "token", "weights": "token"}),
    (WEIGHTED, "sg(rho)*k2", {"level": "token", "weights": "token"}),
    (WEIGHTED, "rho*k1", {"level": "token", "weights": "prefix"}),
    (WEIGHTED, "rho*k3", {"level": "token", "weights": "prefix"}),
    (WEIGHTED, "rho*k3", {"level": "token", "weights": "sequence"}),
    (WHOLE_WEIGHTED, "rho*k3", {"level": "sequence"}),
    (WHOLE_WEIGHTED, "sg(rho)*k2", {"level": "sequence"}),
)
# What `explain` has no option for: group, claim, part, tags
MORE: tuple[tuple[str, str, int, str], ...] = (
    (SCORE, "sequence.vanilla", 1, "k1 token reward total"),
    (SCORE, "sequence.leave-one-out", 2, "k1 token reward leave-one-out"),
    (WHOLE, "sequence.vanilla", 0, "k1 sequence reward"),
    (WHOLE, "sequence.leave-one-out", 0, "k1 sequence reward leave-one-out"),
    (WEIGHTED, "sequence.prefix-weights", 0, "rho*k1 token reward prefix"),
)
TARGETS = {
    "reverse-kl": "reverse KL",
    "forward-kl": "forward KL",
    "no-objective": "no function",
    "zero": "a constant",
    "own-mean": "another function",
    "objective": "another function",
}


def table() -> Table:
    """The estimators: what `explain` proves of each, and the claims that speak of it.

    >>> [row.claims for row in table().select_rows(("k3",)).select_rows(("forward KL",)).rows]
    [('sequence.whole-k3',)]
    """
    rows = [_build_explained_row(*case) for case in CASES] + [_build_quoted_row(*case) for case in MORE]
    rows.append(_build_normalised_ratio_row())
    order = [TOKEN, SCORE, WHOLE, WEIGHTED, WHOLE_WEIGHTED]
    return Table("sequences", CAPTION, COLUMNS, tuple(sorted(rows, key=lambda row: order.index(row.group))))


def _build_row(group: str, tags: tuple[str, ...], *cells: Cell) -> Row:
    return Row(
        (*cells, cite_claims(collect_claims(cells))), (*tags, OFF if "off-policy" in group else ON), group
    )


def _build_explained_row(group: str, loss: str, options: dict[str, str]) -> Row:
    answer = ask(loss, sampling=OFF if "off-policy" in group else ON, **options)
    target, main = TARGETS[str(answer.target)], answer.proof.theorems[0]
    left_cell = show_side_at_sequence(main) + Cell((), list_claims(answer))
    tags = (loss, *loss.split("*")[1:], *options.values(), target)
    right = Quote(main, ()).right
    if (group, loss) == (TOKEN, "k2"):
        right = build_text(
            "<right>, that is <same>", right=right, same=quote("sequence.token-loss-partial").right
        )
    return _build_row(group, tags, left_cell, right, _show_notes(answer, options), words(target))


def _build_quoted_row(group: str, claim: str, number: int, tags: str) -> Row:
    """An equation of the ledger whose right side is grad KL(q||p)."""
    quoted = quote(claim, number)
    left_cell, kept_cell = show_side_at_sequence(quoted.proof) + Cell((), (claim,)), words("keeps all")
    return _build_row(
        group, tuple(tags.split()), left_cell, quoted.right, kept_cell, words(TARGETS["reverse-kl"])
    )


def _build_normalised_ratio_row() -> Row:
    """rho^(1/T) as a weight: values, which are no longer those under q."""
    mean, value = quote("neighbour.gspo-ratio"), quote("neighbour.gspo-ratio", 1)
    remark = build_text("as a weight it has not even mean one: <mean>", mean=mean.statement)
    cells = (
        show_side_at_sequence(value.proof),
        build_text("its value: <value>", value=value.statement),
        remark,
        NONE,
    )
    return _build_row(WHOLE_WEIGHTED, ("rho**(1/T)", "sequence"), *cells)


# ---------------------------------------------------------------------------- pieces
def list_claims(found: Verdict) -> tuple[str, ...]:
    """The claims on this field, also at one sequence, and on its curl; those on sequences, if any."""
    main, *others = (proof.theorem.statement.left for proof in found.proof.theorems)
    theorems = [
        *find_by_left_side(main),
        *(find_by_side(take_one_sequence(main)) if found.setting.is_per_token else ()),
    ]
    theorems += [theorem for side in others if _is_curl(side) for theorem in find_by_left_side(side)]
    names = tuple(dict.fromkeys(claim for theorem in theorems for claim in theorem.claims))
    return tuple(name for name in names if name.startswith(("sequence.", "neighbour."))) or names[:1]


def _is_curl(side: Side) -> bool:
    return any(isinstance(atom, Curl) for _, atoms in side.terms for atom in atoms)


def _show_notes(found: Verdict, options: dict[str, str]) -> Cell:
    """The notes of `explain`; what has mean zero may be dropped."""
    if options.get("credit") == "to-go":
        dropped, count = quote("sequence.causality", 1), quote("sequence.cumulative", 1)
        lead = build_text("drops <count> terms of mean zero, ", count=count.right)
        return (
            lead + show_side_at_sequence(dropped.proof) + Cell((), (*dropped.claims, "sequence.reward-to-go"))
        )
    if found.gradient.remarks:
        [remark, *_] = found.gradient.remarks
        return annotate_text(KEPT.get(remark.values.get("term", ""), write_sentence(remark)))
    return {"reverse-kl": words("keeps all"), "zero": words("drops all")}.get(str(found.target), NONE)


def show_side_at_sequence(proof: Proof) -> Cell:
    """The left side at one sequence."""
    return math(formulas.show_side(take_one_sequence(proof.theorem.statement.left), proof.labels, LATEX))


def take_one_sequence(side: Side) -> Side:
    """A side without its mean: E_q[sum_t grad L_t] at one sequence is sum_t grad L_t."""
    return Side.combine(*((c, tuple(map(_take_atom_at_sequence, atoms))) for c, atoms in side.terms))


def _take_atom_at_sequence(atom: Any) -> Any:
    match atom:
        case Indexed() | IndexedGradient():
            return replace(atom, measure="sample")
        case E(_, a, score):
            return Point(a, score)
        case ExpectedGradient(_, loss):
            return PointGradient(loss)
    raise ValueError(f"a mean expected, not {type(atom).__name__}")
