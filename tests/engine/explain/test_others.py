"""Losses that sum over the other samples of a batch: verdicts against enumeration of all batches."""

from __future__ import annotations

import pytest

from klsym import explain
from klsym.errors import UsageError
from support.losses.loss_judge import examine
from support.losses.random_losses import Case

OFF, REWARD = {"sampling": "off-policy"}, {"use": "reward"}
BOTH, SEQUENCE = {**OFF, **REWARD}, {"level": "sequence"}


def case_of(loss: str, options: dict[str, str]) -> Case:
    given = {"sampling": "on-policy", "use": "loss", **options}
    return Case(loss, **given, **({"aggregate": "sum"} if "level" in given else {}))


# loss, options, target
ROWS: list[tuple[str, dict[str, str], str]] = [
    # centred, then weighted: RLOO
    ("rho*loo(R - beta*k1)", BOTH, "combination"),
    ("rho*sg(loo(R - beta*k1))", OFF, "combination"),
    ("rho*loo(R - beta*k1)", OFF, "separable"),
    ("rho*loo(R - beta*k1)", {}, "combination"),
    ("rho*centred(R - beta*k1)", BOTH, "combination"),
    ("rho*loo(R) - beta*rho*k1", BOTH, "combination"),
    ("rho*loo(R - beta*k3)", BOTH, "combination"),
    # weighted, then centred
    ("loo(rho*(R - beta*k1))", BOTH, "none"),
    ("loo(R)", BOTH, "separable"),
    ("loo(R*k1)", BOTH, "none"),
    ("loo(R - beta*k1)", REWARD, "combination"),
    ("centred(R - beta*k1)", REWARD, "combination"),
    ("loo(R) - beta*k1", REWARD, "combination"),
    ("centred(R) - beta*k1", REWARD, "combination"),
    ("loo(R - beta*k3)", REWARD, "combination"),
    ("loo(A - beta*k1)", REWARD, "combination"),
    ("loo(R - beta*seqmean(k1))", {**SEQUENCE, **REWARD}, "separable"),
    ("-sg(loo(R - beta*k1))*log_q", {}, "combination"),
    ("-sg(centred(R))*log_q + beta*k2", {}, "combination"),
    # the sums themselves
    ("R - others(R)/n", REWARD, "combination"),
    ("(R - others(R)/(n - 1))*rho", BOTH, "combination"),
    ("n*k1 + others(k1)", REWARD, "reverse-kl"),
    ("others(R)", REWARD, "zero"),
    ("others(1)", REWARD, "zero"),
    ("k1*others(k1)", {}, "zero"),
    ("others(k1)**2", {}, "reverse-kl"),
    ("loo(k1)*k1", {}, "reverse-kl"),
    ("loo(k1)*k1", OFF, "separable"),
    ("rho*others(k1)", OFF, "separable"),
    ("others(k1)*R", REWARD, "none"),
    ("loo(R)*loo(k1)", REWARD, "separable"),
    ("centred(1)*log_q", REWARD, "zero"),
    ("normalised(R)", REWARD, "none"),
    ("rho*normalised(R - beta*k1)", REWARD, "none"),
    ("normalised(R) - beta*k1", REWARD, "none"),
    ("normalised(R) - beta*rho*loo(k1)", BOTH, "separable"),
    ("normalised(R) - beta*loo(rho*k1)", BOTH, "open"),
]  # fmt: skip
IDS = [" ".join([loss, *options.values()]) for loss, options, _ in ROWS]


@pytest.mark.parametrize(("loss", "options", "target"), ROWS, ids=IDS)
def test_the_verdict_is_right(loss: str, options: dict[str, str], target: str) -> None:
    found = examine(case_of(loss, options))
    assert (found.target, found.complaints) == (target, ())


def test_a_baseline_that_is_differentiated_pushes_q_to_mu() -> None:
    """E_mu[rho_i] E_mu[s_j] is left of the others' penalties, and a warning says so."""
    attached, detached = (explain(loss, **OFF) for loss in ("rho*loo(R - k1)", "rho*sg(loo(R - k1))"))
    assert (attached.coefficient, detached.coefficient) == ("R - k1 + 1/rho", "R - k1")
    assert any("put sg(..) around a baseline" in line for line in attached.warnings)
    assert not any("put sg(..)" in line for line in detached.warnings)


def test_the_recurrence_of_success_stands_where_it_holds() -> None:
    """A KL to the reference beside normalised rewards, ascended and not descended."""
    said = {
        loss: [note for note in explain(loss, **REWARD).notes if "success-recurrence" in note]
        for loss in ("normalised(R) - 0.04*k1", "normalised(R) + 0.04*k1", "normalised(R) - beta*k3")
    }
    assert [len(notes) for notes in said.values()] == [1, 0, 0]
    assert "logit P' = logit P_p + 25/sqrt(P*(1 - P))" in said["normalised(R) - 0.04*k1"][0]


# one word off, another objective
NEIGHBOURS = (
    ("rho*loo(R - beta*k1)", "loo(rho*(R - beta*k1))", BOTH), ("loo(R)", "centred(R)", REWARD),
    ("rho*loo(R - beta*k1)", "rho*others(R - beta*k1)", BOTH), ("loo(k1)*k1", "others(k1)*k1", {}),
    ("R - others(R)/(n - 1)", "R - (R + others(R))/n", REWARD),
    ("n*k1 + others(k1)", "k1 + others(k1)", REWARD),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other", "options"), NEIGHBOURS)
def test_a_neighbour_has_another_answer(one: str, other: str, options: dict[str, str]) -> None:
    first, second = (explain(loss, **options) for loss in (one, other))
    assert (first.target, first.coefficient) != (second.target, second.coefficient)


# ---------------------------------------------------------------------------- the option is a shorthand
SHORTHANDS = (
    ("R - beta*k1", {**REWARD, "batch": "leave-one-out"}, "loo(R - beta*k1)"),
    ("rho*k1", {**BOTH, "batch": "mean"}, "centred(rho*k1)"),
    ("R", {**REWARD, "batch": "std"}, "normalised(R)"),
    ("k3", {"batch": "mean"}, "sg(centred(1 - r))*log_q"),
    ("k2", {"batch": "leave-one-out"}, "sg(loo(k1))*log_q"),
    ("rho*k3", {**OFF, "batch": "leave-one-out"}, "sg(loo(rho*k1))*log_q"),
    ("k1", {**REWARD, **SEQUENCE, "aggregate": "mean", "batch": "mean"}, "centred(k1/T)"),
)


@pytest.mark.parametrize(("loss", "options", "written"), SHORTHANDS)
def test_the_option_reads_as_what_it_expands_to(loss: str, options: dict[str, str], written: str) -> None:
    kept = {name: value for name, value in options.items() if name in ("sampling", "use", "level")}
    short, long = explain(loss, **options), explain(written, **kept)
    assert short.expansion == written and short.target == long.target
    found = examine(case_of(written, kept))
    assert (found.target, found.complaints) == (short.target, ())


def test_what_the_names_of_a_batch_stand_for_is_declared() -> None:
    names = explain("rho*loo(R)", **BOTH).to_json()["names"]
    assert names["m"] == "n - 1" and names["R_others"] == "the sum of R over the other n - 1 samples"


# ---------------------------------------------------------------------------- refusals
REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("loo(k3)", {}, "is differentiated here, and is no sum of k1, log q, R and constants: not handled; sg"),
    ("loo(k1)", {"level": "token"}, "choose level sequence or sample"),
    ("loo(k1)", {"batch": "mean"}, "says itself what is centred; leave batch out"),
    ("loo(loo(k1))", {}, "loo(..) inside loo(..)"),
]


@pytest.mark.parametrize(("loss", "options", "words"), REFUSED)
def test_refused_in_a_line(loss: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(loss, **options)
    assert words in str(caught.value) and str(caught.value).isprintable()
