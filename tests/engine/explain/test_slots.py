"""Losses that say themselves over which tokens they sum: verdicts against enumeration of all sequences."""

from __future__ import annotations

from functools import cache

import pytest

from klsym import compare, explain
from klsym.errors import UsageError
from support.losses.loss_judge import Outcome, examine
from support.losses.random_losses import Case
from support.losses.random_slot_losses import generate

OFF, REWARD, OVER_T = {"sampling": "off-policy"}, {"use": "reward"}, {"aggregate": "mean"}
SEQUENCE = {"level": "sequence"}
SEED, COUNT = 0, 40


def case_of(loss: str, options: dict[str, str]) -> Case:
    given = {"sampling": "on-policy", "use": "loss", "level": "token", "aggregate": "sum", **options}
    given |= {"weights": "token"} if given["level"] == "token" and "weights" not in given else {}
    return Case(loss, **given)


@cache
def judged(loss: str, options: tuple[tuple[str, str], ...]) -> Outcome:
    return examine(case_of(loss, dict(options)))


# loss, options, target
ROWS: list[tuple[str, dict[str, str], str]] = [
    # GSPO's ratio, whole and for each token
    ("exp(whole(log_q - sg(log_q))/T)*A", SEQUENCE, "separable"),
    ("exp(whole(log_q - sg(log_q))/T)*A", OVER_T, "combination"),
    ("exp(seqmean(log_q - log_mu)/5)", {}, "zero"),
    ("sg(rho)*exp(seqmean(log_q - log_mu)/5)", {}, "zero"),  # on-policy sg(rho) is 1
    ("sg(rho)*exp(whole(log_q - log_mu))/T + sg(rho)*R", {}, "zero"),
    ("exp(seqmean(log_q - log_mu))*A", {**SEQUENCE, **OFF}, "separable"),
    ("sg(exp(seqmean(log_q - log_mu)))*k1*A/T", OFF, "separable"),
    # the forward KL of sequences: each token weighed by the ratio of those before it
    ("sg(exp(-past(k1)))*k3", {}, "forward-kl"),
    ("2*sg(exp(-past(k1)))*r", {}, "forward-kl"),
    ("exp(-past(k1))*k3", {}, "none"),
    ("sg(rho*exp(-past(k1)))*r", {**OFF, "weights": "prefix"}, "forward-kl"),
    ("exp(-past(k1))*(1 - r)", REWARD, "forward-kl"),
    ("exp(-past(k1))*(1 - r) + k1", REWARD, "none"),
    # credit, said in the loss
    ("togo(R - beta*k1)", REWARD, "combination"),
    ("whole(R - beta*k1)", REWARD, "combination"),
    ("now(R - beta*k1)", REWARD, "none"),
    ("togo(k1)", REWARD, "reverse-kl"),
    ("future(k1)", REWARD, "none"),
    ("past(R)", REWARD, "zero"),
    ("past(k3)", REWARD, "zero"),
    ("togo(R - beta*k3)", REWARD, "none"),
    ("togo(r - 1)", REWARD, "none"),
    ("A - beta*togo(k1)", REWARD, "combination"),
    ("A*whole(R)", REWARD, "combination"),
    ("togo(A) - beta*togo(k1)", REWARD, "none"),
    ("togo(k1)/T", REWARD, "none"),
    ("seqmean(k1)", REWARD, "separable"),
    ("A - beta*seqmean(k1)", REWARD, "separable"),
    ("exp(whole(log_q - log_mu))*whole(R - beta*k1)", {**OFF, **REWARD}, "combination"),
    ("exp(past(log_q - log_mu))*rho*(R - beta*k1)", {**OFF, **REWARD}, "none"),
    ("togo(exp(past(log_q - log_mu))*rho*(R - beta*k1))", {**OFF, **REWARD}, "combination"),
    ("togo(1)", REWARD, "separable"),
    ("future(1)", REWARD, "separable"),
    ("past(1)", REWARD, "zero"),
    ("whole(1)", REWARD, "separable"),
    ("T", REWARD, "none"),
    ("whole(1) - T", REWARD, "zero"),
    # a score function written as a loss
    ("-sg(togo(R - beta*k1))*log_q", {}, "combination"),
    ("-sg(togo(R - beta*k3))*log_q", {}, "none"),
    ("sg(whole(k1))*k1", {}, "reverse-kl"),
    ("sg(whole(k1))*k1/T", {}, "separable"),
    ("sg(future(k1))*k1 + k2", {}, "reverse-kl"),
    ("past(k1)*k1", {}, "none"),
    ("sg(past(k1))*k1 + k2", {}, "none"),
    ("past(log_q)*sg(k1) + k2", {}, "reverse-kl"),
    ("whole(k1)*log_q", {}, "separable"),
    ("future(R)*log_q", {}, "none"),
    # weights
    ("exp(past(log_q - log_mu))*rho*k3", OFF, "reverse-kl"),
    ("sg(exp(past(log_q - log_mu)))*rho*k3", OFF, "none"),
    ("exp(whole(log_q - log_mu))*k3", OFF, "reverse-kl"),
    ("exp(future(log_q - log_mu))*rho*k3", OFF, "separable"),
    ("exp(past(log_q - log_mu) + future(log_q - log_mu))*rho*k1", OFF, "reverse-kl"),
    ("k1/T", {}, "separable"),
    ("rho*k3/T", OFF, "separable"),
    ("k1/T", {**SEQUENCE, **REWARD}, "separable"),
    ("whole(k1)**2/2", SEQUENCE, "reverse-kl"),
]  # fmt: skip
IDS = [" ".join([loss, *options.values()]) for loss, options, _ in ROWS]


@pytest.mark.parametrize(("loss", "options", "target"), ROWS, ids=IDS)
def test_the_verdict_is_right(loss: str, options: dict[str, str], target: str) -> None:
    found = judged(loss, tuple(sorted(options.items())))
    assert (found.target, found.complaints) == (target, ())


# one word off, another objective
NEIGHBOURS = (
    ("togo(k1)", "past(k1)", REWARD), ("togo(k1)", "future(k1)", REWARD), ("whole(k1)", "now(k1)", REWARD),
    ("sg(whole(k1))*k1", "sg(past(k1))*k1", {}), ("past(log_q)*sg(k1) + k2", "future(log_q)*sg(k1) + k2", {}),
    ("exp(past(log_q - log_mu))*rho*k3", "exp(future(log_q - log_mu))*rho*k3", OFF),
    ("seqmean(k1)", "whole(k1)", REWARD), ("togo(1)", "past(1)", REWARD),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other", "options"), NEIGHBOURS)
def test_a_neighbour_has_another_answer(one: str, other: str, options: dict[str, str]) -> None:
    first, second = (explain(loss, level="token", **options) for loss in (one, other))
    assert (first.target, first.coefficient) != (second.target, second.coefficient)


# ---------------------------------------------------------------------------- options are shorthands
SHORTHANDS: list[tuple[str, dict[str, str], str]] = [
    ("R - beta*k1", {**REWARD, "credit": "to-go"}, "togo(R - beta*k1)"),
    ("R - beta*k3", {**REWARD, "credit": "to-go"}, "togo(R - beta*k3)"),
    ("R - beta*k1", {**REWARD, "credit": "total"}, "whole(R - beta*k1)"),
    ("k3", {**REWARD, "credit": "total", **OVER_T}, "whole(k3)/T"),
    ("A - beta*k1", REWARD, "A + togo(-beta*k1)"),
    ("rho*k3", {**OFF, "weights": "prefix"}, "rho*exp(past(log_q - log_mu))*k3"),
    ("rho*k3", {**OFF, "weights": "sequence"}, "exp(whole(log_q - log_mu))*k3"),
    ("rho*k1", {**OFF, **REWARD, "weights": "prefix"}, "togo(rho*exp(past(log_q - log_mu))*k1)"),
    ("k2", OVER_T, "k2/T"),
    ("R - beta*k1", {**REWARD, **OVER_T, **SEQUENCE}, "(R - beta*k1)/T"),
]


@pytest.mark.parametrize(("loss", "options", "written"), SHORTHANDS)
def test_an_option_reads_as_what_it_expands_to(loss: str, options: dict[str, str], written: str) -> None:
    """The expansion is shown, and typed without the options it has the same answer."""
    level = options.get("level", "token")
    short = explain(loss, **{"level": level, **options})
    kept = {name: value for name, value in options.items() if name in ("sampling", "use")}
    long = explain(written, level=level, **kept)
    assert short.expansion == short.to_json()["expansion"] == written
    assert (short.target, short.coefficient) == (long.target, long.coefficient)
    assert short.gradient.complete == long.gradient.complete


@pytest.mark.parametrize(
    ("weighted", "plain", "level"),
    [
        ("sg(future(rho*k1))*log_q", "sg(future(k1))*log_q", "token"),
        ("sg(past(rho*k3))*log_q", "sg(past(k3))*log_q", "token"),
        ("sg(others(rho*k3))*log_q", "sg(others(k3))*log_q", "sample"),
        ("sg(loo(rho*k1))*log_q", "sg(loo(k1))*log_q", "sample"),
    ],
)
def test_on_policy_a_detached_ratio_in_a_sum_is_one(weighted: str, plain: str, level: str) -> None:
    one, other = (explain(loss, level=level) for loss in (weighted, plain))
    assert (one.coefficient, one.target, one.shown) == (other.coefficient, other.target, other.shown)
    if one.witness is not None and other.witness is not None:
        assert one.witness["left"] == other.witness["left"]
    assert explain(weighted, level=level, sampling="off-policy").coefficient != one.coefficient


def test_where_options_say_nothing_nothing_is_expanded() -> None:
    assert explain("k3", level="token").expansion is None
    assert explain("k3").to_json()["expansion"] is None
    assert explain("togo(k1)", level="token", use="reward").to_json()["credit"] is None


# ---------------------------------------------------------------------------- refusals
REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("past(k1)", {"level": "sample"}, "sums over the tokens of a sequence, and a single sample has none"),
    ("past(k1)", SEQUENCE, "choose level token"),
    ("whole(k3)", SEQUENCE, "no function of the sequence as one sample: choose level token"),
    ("past(rho)", REWARD, "a sum of ratios, one for each token"),
    ("whole(k3)", {}, "it is differentiated here: write the loss of each token"),
    ("togo(k1)", {**REWARD, "credit": "to-go"}, "says itself which tokens are summed; leave credit out"),
    ("past(k1, r)", {}, "past takes 1 argument"),
    ("past", {}, "past is a function"),
]


@pytest.mark.parametrize(("loss", "options", "words"), REFUSED)
def test_refused_in_a_line(loss: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(loss, **{"level": "token", **options})
    assert words in str(caught.value) and str(caught.value).isprintable()


def test_compared_where_both_say_their_sums() -> None:
    answer = compare("togo(R - beta*k1)", "whole(R - beta*k1)", level="token", use="reward")
    assert (answer.per_sample.same, answer.gradient.same) == (False, True)
    with pytest.raises(UsageError, match="let both say it"):
        compare("togo(R)", "R", level="token", use="reward")


# ---------------------------------------------------------------------------- random ones
@pytest.mark.parametrize("first", range(0, COUNT, 20))
def test_random_losses_agree_with_enumeration(first: int) -> None:
    found = [examine(generate(SEED, number)) for number in range(first, first + 20)]
    assert not [(one.case, one.complaints) for one in found if one.complaints]
