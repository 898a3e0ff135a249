"""Random losses over sequences: what klsym's rules make of them, judged by enumeration of whole trees."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from support.judges import token_loss_judge as judge
from support.judges.token_loss_judge import AGREE, DIFFER, Outcome, compare, examine
from support.losses import token_loss_oracle as oracle
from support.losses.productions import RULES
from support.losses.random_losses import QUANTITIES, UNDER, Quantity, quantity
from support.oracle.losses import Setting
from support.scale import scaled

SEED = 1
COUNT = 1200  # of the mixture
EXAMINED = scaled(400, 120)  # a share of the 10,000 of `make random-losses`; every pair of them is compared


@cache
def tree_stacks() -> tuple[oracle.Trees, ...]:
    return tuple(oracle.random_trees(3, on_policy=on_policy) for on_policy in (True, False))


# ---------------------------------------------------------------------------- the oracle itself
def test_trees_have_differing_shapes_and_lengths() -> None:
    for trees in (*tree_stacks(), judge.trees("off-policy")):
        shapes = set()
        for k in range(len(trees.worlds)):
            lengths = sorted(
                len(path) for path, of in zip(trees.paths, trees.world_of, strict=True) if of == k
            )
            assert len(set(lengths)) >= 3 and max(lengths) <= oracle.LONGEST
            shapes.add(tuple(lengths))
        assert len(shapes) >= 3
        for measure in ("q", "p", "mu"):
            total = trees.mean(trees.whole, trees.chance(trees.whole, measure)).value
            np.testing.assert_allclose(total, 1, rtol=1e-14)


WRITTEN = (  # a loss of a token in which slots are named, and its weights where they are not
    ("now(k2)", "k2", "token"), ("now(rho*k3)", "rho*k3", "token"), ("rho*now(k3)", "rho*k3", "sequence"),
    ("past(rho)*now(rho)*now(k2)", "rho*k2", "prefix"),
    ("now(sg(r)*k1 - beta*R)", "sg(r)*k1 - beta*R", "token"),
)  # fmt: skip


@pytest.mark.parametrize(("named", "text", "weights"), WRITTEN)
def test_slots_that_are_named_are_those_of_a_setting(named: str, text: str, weights: str) -> None:
    for trees, sampling, under in zip(tree_stacks(), ("on-policy", "off-policy"), ("q", "mu"), strict=True):
        setting = Setting(sampling, "loss", "token", weights=weights)
        found = oracle.expected_gradient("token", named, trees, under)
        np.testing.assert_allclose(found.value.T, trees.field(text, setting).a[:, 0], atol=1e-13)
        assert np.all(np.abs(found.value) <= found.size)
        later = oracle.expected_gradient("reward", "now(k1) + future(k1)", trees, under)
        if sampling == "on-policy":
            np.testing.assert_allclose(later.value.T, trees.slope("k1").a[:, 0], atol=1e-13)


BAD_LOSSES = ("now(past(k1))", "future(A)", "now(k4)", "now(k1, r)", "'r'")


@pytest.mark.parametrize("text", BAD_LOSSES)
def test_oracle_refuses_what_is_no_loss(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        oracle.expected_gradient("token", text, tree_stacks()[0], "q")


BAD_SIDES = (
    [[[["2", {}]], [["E", "q", [["1", {}]], ["x"]]]]],
    [[[["1", {"beta": 1}]], [["E", "q", [["1", {}]], ["x"]]]]],
    [[[["1", {}]], [["E", "q", [["1", {}]], ["x"]]] * 2]],
    [[[["1", {}]], [["indexed", "i", "q", [["1", {}]], ["self"]]]]],
    [[[["1", {}]], [["point", [["1", {}]], ["x"]]]]],
    [[[["1", {}]], [["E", "q", [["1", {"k1 now": 1}]], ["x"]]]]],
    [[[["1", {}]], [["E", "q", [["1", {}]], ["x", "x"]]]]],
)  # fmt: skip


@pytest.mark.parametrize("side", BAD_SIDES, ids=range(len(BAD_SIDES)))
def test_oracle_refuses_what_is_no_gradient(side: Any) -> None:
    with pytest.raises(ValueError, match=r"no (gradient|variable)"):
        oracle.score_form(side, tree_stacks()[0])


# ---------------------------------------------------------------------------- klsym
@cache
def cases() -> tuple[Quantity, ...]:
    return tuple(quantity(SEED, number) for number in range(COUNT))


@cache
def outcomes() -> list[Outcome]:
    return [examine(cases()[number], certified=number % judge.CERTIFIED == 0) for number in range(EXAMINED)]


def test_random_losses_agree_with_enumeration() -> None:
    """Each canonical form, a form with a wrong coefficient, and every fourth certificate."""
    assert not [(outcome.case, outcome.complaints) for outcome in outcomes() if outcome.complaints]


def test_the_mixture_holds_every_kind() -> None:
    found = Counter((c.kind, c.sampling, c.under) for c in cases())
    assert min(found[kind, *setting] for kind in set(QUANTITIES) for setting in UNDER) >= 30
    pieces = {
        *RULES["t weight"],
        *RULES["t length"],
        "sg(",
        "**2",
        "now(R)",
        "past(A)",
        "future(k1)",
        "beta",
        "log_q",
    } - {""}
    assert min(sum(piece in c.text for c in cases()) for piece in pieces) >= 12


def test_equal_forms_are_equal_gradients_and_nearly_the_other_way_round() -> None:
    """The forms are sound; they miss a few equalities, such as those of IDENTITIES."""
    found = compare(outcomes())
    assert found.worst < AGREE and not found.undecided
    assert found.forms < 0.95 * EXAMINED  # many forms belong to several losses
    assert len(found.missed) <= 1 + found.forms / 100


# ---------------------------------------------------------------------------- identities
ON_POLICY, Q, MU = UNDER[0], UNDER[3], UNDER[1]
SQUARES = "past(log_q)*sg(now(k1)**2 + 2*now(k1)*future(k1))"
IDENTITIES: dict[str, tuple[tuple[str, str], tuple[str, str], tuple[str, str], bool]] = {
    # name: a loss and another one, each (kind, text); the setting; do their canonical forms agree?
    "causality": (("reward", "past(A)"), ("reward", "0"), ON_POLICY, True),
    "reward-to-go": (("reward", "now(k1) + future(k1)"), ("reward", "k1"), ON_POLICY, True),
    "whole k2": (("reward", "now(k1) + future(k1)"), ("sequence", "k2"), ON_POLICY, True),
    "token k3": (("token", "now(k3)"), ("reward", "-now(r)"), Q, True),
    "prefix weights": (("token", "past(rho)*now(rho*k3)"), ("sequence", "rho*k1"), MU, True),
    "whole weights": (("token", "rho*now(k3)"), ("sequence", "sg(rho)*k2"), MU, True),
    "exchange": (("reward", "future(length)"), ("token", "past(log_q)"), ON_POLICY, True),
    "length": (("reward", "length"), ("reward", "future(length)"), ON_POLICY, True),
    "the length of a step": (("reward", "now(length)"), ("reward", "1"), ON_POLICY, True),
    "length beside 1/T": (
        ("reward", "length + 1/length"), ("reward", "future(length) + 1/length"), ON_POLICY, True
    ),
    "T/T": (("reward", "(past(length) + 1 + future(length))/length"), ("reward", "1"), ON_POLICY, False),
    "T times 1/T": (("token", "k2/length"), ("sequence", "k2"), ON_POLICY, False),
    "T times": (("token", "sg(rho)*k1"), ("token", "sg(rho)*now(k1)*length"), Q, False),
    "whole weights under q": (("token", "rho*now(k1)"), ("sequence", "rho*k1"), Q, False),
    "telescoping": (("token", "past(rho)*now(rho) - past(rho)"), ("sequence", "rho"), Q, False),
    "squares of sums": (("reward", "future(k1)**2"), ("token", SQUARES), ON_POLICY, False),
}  # fmt: skip


def pair(name: str) -> tuple[Outcome, Outcome]:
    one, other, setting, _ = IDENTITIES[name]
    first, second = (examine(Quantity(text, kind, *setting)) for kind, text in (one, other))
    complaints = (*first.complaints, *second.complaints)
    # the one coefficient of a form that is 0, though not seen to be, may as well be another one
    assert all(line.startswith("changed") for line in complaints), complaints
    return first, second


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity(name: str) -> None:
    """True on every tree; the canonical form does not see all of them."""
    one, other = pair(name)
    assert judge.distance(one.gradient, other.gradient) < AGREE
    assert (one.form == other.form) is IDENTITIES[name][3]
    assert len(compare([one, other]).missed) == (not IDENTITIES[name][3])


NEIGHBOURS = (
    (("token", "now(k2)"), ("sequence", "k2"), ON_POLICY),
    (("token", "now(k3)"), ("sequence", "k3"), ON_POLICY),
    (("reward", "future(k1)"), ("reward", "k1"), ON_POLICY),
    (("reward", "past(k1) + now(k1)"), ("reward", "k1"), ON_POLICY),
    (("token", "now(k1)/length"), ("token", "now(k1)"), ON_POLICY),
    (("reward", "length"), ("reward", "past(length)"), ON_POLICY),
    (("token", "now(rho*k3)"), ("token", "past(rho)*now(rho*k3)"), MU),
    (("token", "sg(past(rho)*now(rho))*now(k3)"), ("token", "past(rho)*now(rho)*now(k3)"), MU),
    (("token", "rho*now(k2)"), ("sequence", "rho*k2"), MU),
    (("sequence", "rho*k3"), ("sequence", "sg(rho)*k3"), MU),
    (("reward", "now(A)"), ("reward", "past(A)"), ON_POLICY),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other", "setting"), NEIGHBOURS)
def test_neighbours_differ(one: Any, other: Any, setting: Any) -> None:
    first, second = (examine(Quantity(text, kind, *setting)) for kind, text in (one, other))
    assert judge.distance(first.gradient, second.gradient) > 1000 * DIFFER
    assert first.form != second.form
    assert not compare([first, second]).missed


# ---------------------------------------------------------------------------- wrong answers
def _swapped(case: Quantity) -> Quantity:
    sampling = {"on-policy": "off-policy", "off-policy": "on-policy"}[case.sampling]
    return Quantity(case.text, case.kind, sampling, case.under)


WRONG: dict[str, Any] = {
    "sampling": (_swapped, Quantity("now(rho)*now(k3)", "token", *MU)),
    "measure": (
        lambda c: Quantity(c.text, c.kind, c.sampling, "q"), Quantity("now(k3)*past(w)", "token", *MU),
    ),
    "detached": (lambda c: Quantity("rho*now(k3)", c.kind, *MU), Quantity("sg(rho)*now(k3)", "token", *MU)),
    "attached": (lambda c: Quantity(f"sg({c.text})", c.kind, *MU), Quantity("rho*k3", "sequence", *MU)),
    "slot": (
        lambda c: Quantity(c.text.replace("past", "future"), c.kind, *MU),
        Quantity("past(rho)*now(rho*k1)", "reward", *MU),
    ),
    "kind": (lambda c: Quantity(c.text, "token", *MU), Quantity("rho*k3", "sequence", *MU)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_judge_rejects_wrong_forms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss passes as it is; what klsym says of another one does not."""
    other, case = WRONG[name]
    assert not examine(case, certified=True).complaints
    honest = judge.derivation
    monkeypatch.setattr(judge, "derivation", lambda given: honest(other(given)))
    assert any("form: off by" in line for line in examine(case).complaints)


def test_the_judge_reports_refusals_and_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Quantity("now(k2)", "token", *ON_POLICY)
    for error, line in ((judge.KlsymError("no rule"), "refused"), (TypeError("none"), "crashed")):

        def fails(_: Quantity, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(judge, "derivation", fails)
        outcome = examine(case)
        assert outcome.form is None
        assert outcome.complaints[0].startswith(line)


def test_the_judge_is_never_close_to_undecided() -> None:
    """Errors are rounding, those of wrong coefficients far above it: the bounds lie in a wide gap."""
    errors = [outcome.errors for outcome in outcomes()]
    assert max(e[name] for e in errors for name in ("form", "in steps")) < AGREE / 100
    assert min(e["changed"] for e in errors) > 10 * DIFFER
