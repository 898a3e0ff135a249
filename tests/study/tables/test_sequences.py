"""The table of sequences, judged by enumeration of a tree of tokens (token_judge.py)."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from klsym.study.ledger.settle_claim import recall
from klsym.study.ledger.view import format_statement_latex
from klsym.study.tables import sequences
from klsym.study.tables.catalogue import build
from klsym.study.tables.writing.ledger_lookup import quote
from support.judges import token_judge as judge
from support.table_judge import formulas, plain

table = partial(build, "sequences")
CLOSE = 1e-12
LEFT, GRADIENT, KEEPS, OF = range(4)


def next_tokens(under: str, forward: bool = False) -> Any:
    """The gradients of the divergences of the next token, at each prefix with its chance under q or mu."""
    reached: dict[int, tuple[float, Any]] = {}

    def visit(node: judge.Node, chance: float) -> None:
        logits = judge.THETA[node.start : node.start + len(node.p)]
        at = np.exp(logits) / np.exp(logits).sum()
        slopes = np.zeros((len(at), judge.LOGITS))
        slopes[:, node.start : node.start + len(at)] = np.eye(len(at)) - at  # of log q
        ratio = np.log(at / np.array(node.p))
        reached[node.start] = chance, -(np.array(node.p) @ slopes) if forward else (at * ratio) @ slopes
        for branch, after in enumerate(node.following):
            if after is not None:
                visit(after, chance * (at if under == "q" else node.mu)[branch])

    visit(judge.TREE, 1.0)
    return sum(chance * slope for chance, slope in reached.values())


def forward(path: judge.Path) -> judge.Live:
    """log p - log q under p, as a mean under mu."""
    ratio = math.exp(judge.total(path, "log_p").value - judge.total(path, "log_mu").value)
    return ratio * (judge.total(path, "log_p") - judge.total(path, "log_q"))


REVERSE, FORWARD = r"\nabla \mathrm{KL}(q\,\Vert\,p)", r"\nabla \mathrm{KL}(p\,\Vert\,q)"
ONWARDS = r"\mathbb{E}_{q}\!\left[\sum_t \nabla \mathrm{KL}(%s_t\,\Vert\,%s_t)\right]"
PRINTED = {
    "0": lambda: np.zeros(judge.LOGITS),
    REVERSE: lambda: judge.gradient(judge.reverse),
    FORWARD: lambda: judge.gradient(forward, "mu"),
    r"\nabla \mathbb{E}_{q}\!\left[\frac{1}{T}\right]": lambda: judge.gradient(lambda path: 1 / len(path)),
    ONWARDS % ("q", "p"): lambda: next_tokens("q"),
    ONWARDS % ("p", "q"): lambda: next_tokens("q", True),
    r"\nabla \mathbb{E}_{\mu}\!\left[\sum_t \mathrm{KL}(q_t\,\Vert\,p_t)\right]": lambda: next_tokens("mu"),
}


def whole(loss: str, off_policy: bool) -> Any:
    """The expected gradient of a loss of whole sequences."""
    sampling = "off-policy" if off_policy else "on-policy"
    return judge.field(loss, judge.THETA, {"level": "sequence", "sampling": sampling})


@cache
def rows_of_cases() -> list[Any]:
    """The row of each case, found by its place within its group."""
    places: dict[str, int] = {}
    found = []
    for group, *_ in sequences.CASES:
        rows = [row for row in table().rows if row.group == group]
        found.append(rows[places.get(group, 0)])
        places[group] = places.get(group, 0) + 1
    return found


@pytest.mark.parametrize("number", range(len(sequences.CASES)))
def test_the_printed_gradient_is_that_of_the_estimator(number: int) -> None:
    (group, loss, options), row = sequences.CASES[number], rows_of_cases()[number]
    off_policy = "off-policy" in group
    assert row.tags[0] == loss and ("off-policy" if off_policy else "on-policy") in row.tags
    setting = {**options, "sampling": "off-policy" if off_policy else "on-policy"}
    token = setting.pop("level") == "token"
    found = judge.field(loss, judge.THETA, setting) if token else whole(loss, off_policy)
    printed = PRINTED[formulas(row.cells[GRADIENT])[0]]()
    assert np.abs(found - printed).max() < CLOSE
    assert not np.any(printed) or np.abs(found - 1.001 * printed).max() > 1e-6  # it can fail
    if token:
        twist = judge.twist(loss, setting)
        assert twist > 1e-3 if plain(row.cells[OF]) == "no function" else twist < 1e-6
    names = {
        "reverse KL": r"\nabla \mathrm{KL}(q\,\Vert\,p)",
        "forward KL": r"\nabla \mathrm{KL}(p\,\Vert\,q)",
    }
    shown = formulas(row.cells[GRADIENT])[0]
    assert {name for name, latex in names.items() if latex == shown} <= {plain(row.cells[OF])}


def test_what_the_token_loss_drops_is_printed() -> None:
    [row] = [
        row for row in table().rows if row.tags[0] == "k2" and "sequence.token-loss-partial" in row.claims
    ]
    reverse, dropped = formulas(row.cells[GRADIENT])[1].split(" - ")
    assert reverse in PRINTED and dropped == r"\mathbb{E}_{q}\!\left[\sum_t s_t \sum_{u>t} k_{1,u}\right]"
    later = judge.of_slots("k1_future*s_now", "q", True)
    assert np.abs(PRINTED[reverse]() - later - next_tokens("q")).max() < CLOSE < np.abs(later).max()


def test_reward_to_go_drops_terms_of_mean_zero() -> None:
    [row] = [row for row in table().rows if "to-go" in row.tags]
    assert plain(row.cells[KEEPS]) == (
        r"drops \frac{T\,\left(T - 1\right)}{2} terms of mean zero, \sum_t s_t \sum_{u<t} k_{1,u}"
    )
    assert np.abs(judge.of_slots("k1_past*s_now", "q", True)).max() < CLOSE
    assert row.claims == ("sequence.cumulative", "sequence.causality", "sequence.reward-to-go")


@pytest.mark.parametrize(
    ("formula", "slots", "under"),
    [
        (r"\sum_t s_t \sum_u k_{1,u}", "(k1_past + k1_now + k1_future)*s_now", "q"),
        (r"\sum_t \rho_{\le t}\,k_{1,t} \sum_{u\le t} s_u", "rho_past*rho_now*k1_now*(s_past + s_now)", "mu"),
    ],
)
def test_quoted_estimators_have_the_reverse_gradient(formula: str, slots: str, under: str) -> None:
    [row] = [row for row in table().rows if formulas(row.cells[LEFT]) == [formula]]
    assert plain(row.cells[OF]) == "reverse KL"
    found = judge.of_slots(slots, under, under == "q")
    assert np.abs(found - PRINTED[formulas(row.cells[GRADIENT])[0]]()).max() < CLOSE


def test_the_left_sides_stand_in_the_claims() -> None:
    for row in table().rows:
        if row.claims:
            stated = [format_statement_latex(part) for claim in row.claims for part in recall(claim).parts]
            assert any(formulas(row.cells[LEFT])[0] in text for text in stated), row.tags
        assert plain(row.cells[-1]) == (", ".join(row.claims) or "–")


NEEDED = {
    "sequence.token-loss-partial", "sequence.token-k3", "sequence.token-k3-not-forward", "sequence.whole-k3",
    "sequence.token-field-not-conservative", "sequence.length-normalised-k1", "sequence.vanilla",
    "sequence.cumulative", "sequence.causality", "sequence.reward-to-go", "sequence.leave-one-out",
    "sequence.prefix-weights", "sequence.token-weight-only", "neighbour.offpolicy-sequence-k3",
    "neighbour.offpolicy-sequence-whole", "neighbour.token-rho-k3-partial", "neighbour.gspo-ratio",
    "distill.own-token-baseline",
}  # fmt: skip


def test_every_claim_on_estimators_is_cited() -> None:
    assert {claim for row in table().rows for claim in row.claims} - NEEDED == {"gradient.k2-loss"}
    assert {claim for row in table().rows for claim in row.claims} >= NEEDED
    assert all(row.claims for row in table().rows)


def test_the_normalised_ratio_is_no_weight() -> None:
    [row] = [row for row in table().rows if row.claims == ("neighbour.gspo-ratio",)]
    mean = value = true = 0.0
    for path in judge.paths(judge.THETA, False):
        chance, k1 = math.exp(judge.total(path, "log_mu").value), judge.reverse(path).value
        ratio = math.exp(judge.total(path, "log_q").value) / chance
        mean += chance * ratio ** (1 / len(path))
        value, true = value + chance * ratio ** (1 / len(path)) * k1, true + chance * ratio * k1
    assert abs(mean - 1) > 1e-3 and abs(value - true) > 1e-3
    assert r"\ne" in formulas(row.cells[GRADIENT])[0] and r"\ne" in formulas(row.cells[KEEPS])[0]


def test_a_side_that_is_no_mean_is_refused() -> None:
    with pytest.raises(ValueError, match="a mean expected"):
        sequences.take_one_sequence(quote("sequence.chain-rule").proof.theorem.statement.left)
