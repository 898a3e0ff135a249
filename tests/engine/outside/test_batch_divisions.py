"""Rewards over the mean or the deviation of their batch, against sums over all batches in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import pytest

from klsym import explain
from klsym.errors import UsageError
from klsym.language.spellings import read_loss

Coefficient = Callable[[Sequence[Fraction], int], Fraction | float]
CHANCES = Fraction(1, 5), Fraction(1, 2), Fraction(3, 10)
ONES = 1, 0, 1  # the reward of each outcome, 0 or 1
SIZES = range(2, 6)


def relative(rewards: Sequence[Fraction], i: int) -> Fraction:
    mean = sum(rewards) / Fraction(len(rewards))
    return (rewards[i] - mean) / mean if mean else Fraction(0)


def scaled(rewards: Sequence[Fraction], i: int) -> Fraction:
    mean = sum(rewards) / Fraction(len(rewards))
    return rewards[i] / mean if mean else Fraction(0)


def normalised(rewards: Sequence[Fraction], i: int) -> float:
    mean = sum(rewards) / Fraction(len(rewards))
    std = math.sqrt(sum((x - mean) ** 2 for x in rewards) / len(rewards))
    return float(rewards[i] - mean) / std if std else 0.0


def sum_over_batches(chances: Sequence, rewards: Sequence, n: int, of: Coefficient) -> list[Fraction | float]:
    """Return E[mean_i a_i s_i] along the logit of each outcome."""
    total: list[Fraction | float] = [Fraction(0)] * len(chances)
    for batch in product(range(len(chances)), repeat=n):
        chance = math.prod((chances[y] for y in batch), start=Fraction(1))
        for i, y in enumerate(batch):
            push = chance * of([Fraction(rewards[x]) for x in batch], i) / n
            for j, x in enumerate(chances):
                total[j] += push * ((y == j) - x)
    return total


def write_gradient(slope: Fraction | float) -> list[Fraction | float]:
    """Return slope times grad E_q[R], along the logit of each outcome."""
    share = sum(x * one for x, one in zip(CHANCES, ONES, strict=True))
    return [slope * x * (one - share) for x, one in zip(CHANCES, ONES, strict=True)]


FAILURE = 1 - sum(x * one for x, one in zip(CHANCES, ONES, strict=True))


def differentiate_series(last: int) -> Fraction:
    """Return minus the slope of sum_(k=1..last) (1 - P)**k/k in P."""
    return sum((FAILURE ** (k - 1) for k in range(1, last + 1)), Fraction(0))


# ---------------------------------------------------------------------------- rewards 0 or 1
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("of", "last"), [(relative, -1), (scaled, 0)])
def test_the_series_has_the_gradient_of_all_batches(n: int, of: Coefficient, last: int) -> None:
    expected = write_gradient(differentiate_series(n + last))
    assert sum_over_batches(CHANCES, ONES, n, of) == expected
    assert sum_over_batches(CHANCES, ONES, n, of) != write_gradient(differentiate_series(n + last + 1))


@pytest.mark.parametrize("n", SIZES)
def test_the_slope_that_is_printed_for_a_deviation(n: int) -> None:
    """Phi'(F) = E[sqrt(K (n - K))]/(n P (1 - P)), K binomial."""
    P = float(1 - FAILURE)
    mean = sum(math.comb(n, K) * P**K * (1 - P) ** (n - K) * math.sqrt(K * (n - K)) for K in range(n + 1))
    found = sum_over_batches(CHANCES, ONES, n, normalised)
    assert found == pytest.approx(write_gradient(mean / (n * P * (1 - P))), abs=1e-12)


TWO_VALUED = {
    "-relative(M)*log_q": "sum_(k=1..n - 1) (1 - E_q[M])**k/k",
    "-scaled(M)*log_q": "sum_(k=1..n) (1 - E_q[M])**k/k",
    "relative(M)*log_q": "-sum_(k=1..n - 1) (1 - E_q[M])**k/k",
    "-2*scaled(M)*log_q": "2*sum_(k=1..n) (1 - E_q[M])**k/k",
    "-sg(relative(M))*log_q": "sum_(k=1..n - 1) (1 - E_q[M])**k/k",
    "-(M - mean(M))/mean(M)*log_q": "sum_(k=1..n - 1) (1 - E_q[M])**k/k",
    "-(M - mean(M))/(mean(M) + eps)*log_q": "sum_(k=1..n - 1) (1 - E_q[M])**k/k",
    "-M/mean(M)*log_q": "sum_(k=1..n) (1 - E_q[M])**k/k",
    "x = (R > 0.5).float(); -(x - x.mean())/x.mean()*logp":
        "sum_(k=1..n - 1) (1 - E_q[where(R > 1/2, 1, 0)])**k/k",
    "-(scaled(M) - 1)*log_q": "sum_(k=1..n) (1 - E_q[M])**k/k",
    "-normalised(M)*log_q": "Phi(1 - E_q[M])",
    "normalised(-M)*log_q": "Phi(1 - E_q[M])",
    "-normalised(R > 0)*log_q": "Phi(1 - E_q[where(R > 0, 1, 0)])",
}  # fmt: skip


@pytest.mark.parametrize(("loss", "objective"), TWO_VALUED.items())
def test_what_is_0_or_1_has_an_objective(loss: str, objective: str) -> None:
    answer = explain(loss).to_json()
    assert (answer["target"], answer["trust"], answer["objective"]["text"]) == (
        "objective",
        "sympy",
        objective,
    )
    assert explain(loss, level="sequence").to_json()["objective"]["text"] == objective
    is_series = "sum_" in objective
    assert ("note the sum is the series of -log E_q[" in " ".join(str(explain(loss)).split())) == is_series


@pytest.mark.parametrize("reward", ["relative(M)", "scaled(R > 0)", "normalised(M)"])
def test_as_a_reward_it_is_maximised(reward: str) -> None:
    answer = explain(reward, use="reward")
    assert answer.to_json()["objective"]["sense"] == "maximised"
    assert "A policy gradient" in str(answer) or "normalised" in reward


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        ("-relative(M)*log_q + beta*k2", "objective"),
        ("-relative(M)*log_q + beta*sg(r)*log_q", "objective"),
        ("-relative(M)*log_q + beta*rho*k1*sg(R)", None),
        ("-relative(M)*k1*log_q", None),  # which multiplies H by what differs from sample to sample
        ("-relative(2*M)*log_q", None),
        ("-scaled(1)*log_q", None),
        ("-relative(rho > 1)*log_q", None),
    ],
)
def test_what_is_added_decides_too(loss: str, target: str | None) -> None:
    answer = explain(loss).to_json()
    assert answer["target"] != "zero" and (answer["target"] == target or target is None)
    if target is None:
        assert "E_q[M]" not in (answer["objective"] or {"text": ""})["text"]


# ---------------------------------------------------------------------------- other rewards
@pytest.mark.parametrize("of", [relative, scaled])
def test_three_rewards_have_a_curl(of: Coefficient) -> None:
    """The Jacobian of the expected gradient in the logits is not symmetric, by differences."""

    def compute_field(logits: Sequence[float]) -> list[float]:
        weights = [math.exp(x) for x in logits]
        chances = [x / sum(weights) for x in weights]
        return [float(x) for x in sum_over_batches(chances, (0, 3, 2), 3, of)]

    def differentiate(of: int, along: int) -> float:
        step, start = 1e-5, [0.7, 0.0, 0.1]
        up, down = ([x + sign * step * (k == along) for k, x in enumerate(start)] for sign in (1, -1))
        return (compute_field(up)[of] - compute_field(down)[of]) / (2 * step)

    assert abs(differentiate(0, 1) - differentiate(1, 0)) > 1e-3


@pytest.mark.parametrize("loss", ["-relative(R)*log_q", "-R/mean(R)*log_q", "-relative(A)*log_q"])
def test_other_rewards_have_no_objective_and_a_limit(loss: str) -> None:
    answer = explain(loss)
    assert (answer.target, answer.trust) == ("no-objective", "numeric")
    x = "A" if "A" in loss else "R"
    said = " ".join(str(answer).split())
    assert "note for rewards 0 and 1, and batches of any size n, it minimises sum_(k=1..n" in said
    whole = " ".join(answer.text(full=True).split())
    assert "large n (a limit, not proved here)" in whole and f"-grad log E_q[{x}] where E_q[{x}]" in whole
    assert f"in a batch where the mean of {x} is 0, the quotient is 0" in whole


def test_the_limit_of_large_batches() -> None:
    """2*R over its mean, R = (1, 3, 2): the gradient nears that of log E_q[R]."""
    rewards, gaps = (1, 3, 2), []
    mean = sum(x * reward for x, reward in zip(CHANCES, rewards, strict=True))
    limit = [x * (reward - mean) / mean for x, reward in zip(CHANCES, rewards, strict=True)]
    for n in (2, 4, 6):
        found = sum_over_batches(CHANCES, rewards, n, relative)
        gaps.append(max(abs(float(a - b)) for a, b in zip(found, limit, strict=True)))
    assert gaps[0] > 1.5 * gaps[1] > 1.5 * 1.2 * gaps[2] > 0


@pytest.mark.parametrize(("loss", "use"), [("relative(R)*log_q", "loss"), ("relative(R)", "reward")])
def test_under_mu_the_quotient_does_not_move(loss: str, use: str) -> None:
    answer = explain(loss, sampling="off-policy", use=use)
    assert answer.to_json()["objective"]["text"] in ("E_mu[relative(R)*log_q]", "E_mu[log_q*relative(R)]")


def test_a_quotient_that_moves_has_no_objective() -> None:
    answer = explain("sg(relative(k1))*log_q")
    assert answer.target == "no-objective" and "policy gradient" not in str(answer)
    assert "E_q[h] moves with theta" in answer.text(full=True)


# ---------------------------------------------------------------------------- signs
@pytest.mark.parametrize(
    ("loss", "wrong"),
    [
        ("relative(R)*log_q", True),
        ("-relative(R)*log_q", False),
        ("2*normalised(R)*log_q", True),
        ("2*normalised(-R)*log_q", False),
        ("relative(M)*log_q", True),
        ("-normalised(R > 0)*log_q", False),
        ("sg(relative(k1))*log_q", False),
    ],
)
def test_the_sign_of_the_reward(loss: str, wrong: bool) -> None:
    assert ("wrong sign" in str(explain(loss)).lower().replace("-", " ")) == wrong


@pytest.mark.parametrize(
    ("loss", "H"), [("normalised(R)*log_q", "H = R"), ("-normalised(R)*log_q", "H = -R")]
)
def test_the_short_answer_says_what_h_is(loss: str, H: str) -> None:
    assert f"*s_self], {H};" in " ".join(str(explain(loss)).split())


# ---------------------------------------------------------------------------- what is read
READ = {
    "(-R/R.sum()*logp).sum()": "-log_q*scaled(R)",
    "(R - mean(R))/mean(R)*log_q": "log_q*relative(R)",
    "-(R - R.mean())/(R.mean() + 1e-6)*logp": "-log_q*relative(R)",
    "m = rewards.mean(); a = (rewards - m)/(m + eps); -(a*logp).mean()": "-log_q*relative(R)",
    "R/mean(R)*log_q": "log_q*scaled(R)",
    "x = R/R.mean() - 1; -(x*logp).mean()": "-log_q*(scaled(R) - 1)",
    "adv = (R - R.mean(-1, keepdim=True))/R.mean(-1, keepdim=True); -(ratio*adv).mean()": "-relative(R)*rho",
}


@pytest.mark.parametrize(("code", "expression"), READ.items())
def test_divisions_that_are_read(code: str, expression: str) -> None:
    assert str(read_loss(code).expression) == expression


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("-(R - R.mean(1))/R.mean()*logp", "a mean over all samples and over dim 1"),
        ("-(R - R.mean())/(R.mean() + 1)*logp", "a division by the mean of a batch"),
        ("-(R - R.mean())/k1.mean()*logp", "a mean or a sum inside a product"),
        ("-A/R.mean()*logp", "a division by the mean of a batch .*relative"),
        ("-(R - A.mean())/R.mean()*logp", "a division by the mean of a batch|a mean or a sum inside"),
        ("-logp/R.mean()", "a division by the mean of a batch"),
        ("-R/A.sum()*logp", "a division by the mean of a batch|a mean or a sum inside"),
        ("-(R - R.mean())/R.mean()**2*logp", "a division by the mean of a batch"),
    ],
)
def test_divisions_that_are_refused(code: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_loss(code)


@pytest.mark.parametrize(
    ("loss", "options", "says"),
    [
        ("relative(R)*log_q", {"level": "token"}, "choose level sequence or sample"),
        ("relative(k1)*log_q", {}, r"relative\(h\) of what is differentiated is not read"),
        ("relative(relative(R))*log_q", {}, "a sum of sums over samples is not read"),
        ("relative(R)*scaled(A)*normalised(M)*log_q", {}, "for 2 different h at most"),
        ("relative(R)*log_q", {"batch": "mean"}, "says itself what is centred"),
        ("relative(R, A)*log_q", {}, "relative takes 1 argument"),
    ],
)
def test_losses_that_are_refused(loss: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        explain(loss, **options)


def test_the_note_on_means_names_those_that_are_left_out() -> None:
    notes = [x.code for x in read_loss("-(R - R.mean())/R.mean()*logp").notes]
    assert "averages-left-out" not in notes
    notes = [x.code for x in read_loss("-((R - R.mean())/R.mean()*logp).mean()").notes]
    assert "averages-left-out" in notes


def test_a_division_by_a_batch_over_all_of_its_tokens_is_open() -> None:
    options = {"sampling": "off-policy", "use": "reward", "level": "sequence", "aggregate": "batch"}
    assert explain("abs(2/k3)*normalised(r)", **options).to_json()["trust"] == "open"
