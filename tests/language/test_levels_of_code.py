"""Sums over tokens in code say the level of a loss, and how tokens are added up, unless one was typed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from klsym import compare, explain
from klsym.errors import UsageError
from klsym.language.library_calls import AGGREGATES
from klsym.language.spellings import read_loss
from support.judges.refusals import check_refusal

LEVEL_OF_CODE = pytest.mark.parametrize(
    ("typed", "aggregate"),
    [
        ("(k3*mask).sum()/mask.sum()", "batch"),
        ("masked_mean(k3, mask)", "batch"),
        ("((k3*mask).sum(1)/mask.sum(1)).mean()", "mean"),
        ("masked_mean(k3, mask, axis=1).mean()", "mean"),
        ("(k3*mask).sum(1).mean()", "sum"),
        ("(k3*mask).sum()", "sum"),
        ("(k3*mask).sum()/mask.sum(-1).sum()", "batch"),
        ("(k3*mask).sum(-1)/mask.sum(-1).mean()", "batch"),
        ("(k3*mask).sum()/mask.sum(0).sum()", "batch"),
        ("(k3*mask).mean()/mask.mean()", "batch"),
        ("(k3*mask).mean(-1)/mask.mean(-1)", "mean"),
        ("masked_sum(k3, mask, dim=-1).mean()", "sum"),
        ("masked_mean(mask, k3)", "batch"),
        ("verl_F.masked_mean(k3, response_masks_bool, axis=-1).mean()", "mean"),
        ("weighted_mean(k3, loss_masks)", "batch"),
        ("masked_mean(values=k3, mask=resp_mask, dim=1, keepdim=True).mean()", "mean"),
        ("agg_loss(loss_mat=k3, loss_mask=action_masks, loss_agg_mode='token-mean', dp_size=4)", "batch"),
        ("agg_loss(k3, completion_masks, 'seq-mean-token-sum')", "sum"),
        ("agg_loss(k3, mask, 'seq-mean-token-sum-norm')", "sum"),
        ("agg_loss(k3, mask, 'seq-mean-token-mean')", "mean"),
        ("agg_loss(k3, mask, cfg.loss_agg_mode)", "batch"),
        ("((k3*mask).sum()/mask.sum(-1)).mean()", ""),  # neither
        ("((k3*mask).sum(0)/mask.sum(0)).mean()", ""),  # over the samples at each position
        ("k3.mean()", ""),
        ("k3.sum(1).mean()", ""),
    ],
)


@LEVEL_OF_CODE
def test_a_masked_sum_says_the_level_and_how_tokens_are_added_up(typed: str, aggregate: str) -> None:
    notes = [note for note in read_loss(typed).notes if note.code == "tokens-added-up"]
    assert [note.values["aggregate"] for note in notes] == ([aggregate] if aggregate else [])
    answer, level = explain(typed), "token" if aggregate else "sample"
    assert (answer.setting.level, answer.setting.aggregate or "") == (level, aggregate)
    assumed = f"assumed: level='token' aggregate='{aggregate}'"
    assert (assumed in answer.text(full=True)) == bool(aggregate)
    for choice in ("sum", "mean", "batch") * bool(aggregate):
        other = explain(typed, level="token", aggregate=choice)
        assert (other.setting.level, other.setting.aggregate) == ("token", choice)
        assert ("explains what that changes" in other.text(full=True)) == (choice != aggregate)
        assert explain(typed, aggregate=choice).setting == other.setting  # the level is that of the code


def aggregate_as_verl(x: np.ndarray, mask: np.ndarray, mode: str) -> float:
    """Return agg_loss of verl/trainer/ppo/core_algos.py, written for NumPy."""
    if mode == "token-mean":
        return float((x * mask).sum() / mask.sum())
    of_sequences = (x * mask).sum(axis=-1)
    if mode == "seq-mean-token-sum-norm":
        return float(of_sequences.sum() / mask.shape[-1])
    return float((of_sequences / (mask.sum(axis=-1) if mode.endswith("mean") else 1)).mean())


@pytest.mark.parametrize("mode", [*AGGREGATES])
def test_the_modes_of_verl_add_up_tokens_as_the_aggregate_says(mode: str) -> None:
    generator = np.random.default_rng(7)
    x, lengths = generator.normal(size=(3, 5)), np.array([2, 5, 3])
    mask = (np.arange(5) < lengths[:, None]).astype(float)
    sums = (x * mask).sum(axis=-1)
    expected = {"sum": sums.mean(), "mean": (sums / lengths).mean(), "batch": sums.sum() / lengths.sum()}
    [note] = [n for n in read_loss(f"agg_loss(k3, mask, '{mode}')").notes if n.code == "tokens-added-up"]
    factor = 3 / 5 if mode.endswith("norm") else 1  # 3 samples, over the 5 places of a row
    assert aggregate_as_verl(x, mask, mode) == pytest.approx(factor * expected[note.values["aggregate"]])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("agg_loss(k3, mask, 'sum')", "its modes are token-mean, seq-mean-token-sum, "),
        ("agg_loss(k3, mask, 'token-mean', 3, x=4)", "the argument x= of agg_loss"),
        ("agg_loss(k3, k2)", "no mask of padding"),
        ("masked_mean(k3, rho)", "no mask of padding .*for other weights type k3\\*rho/rho.mean"),
        ("weighted_mean(k3, high_entropy_mask)", "high_entropy_mask"),
        ("masked_sum(k3, mask, dim=d)", "over an axis that is no number"),
    ],
)
def test_other_masked_means_are_refused(code: str, words: str) -> None:
    check_refusal(code, words)


@pytest.mark.parametrize("options", [{"level": "sequence"}, {"level": "sample"}, {"use": "reward"}])
@LEVEL_OF_CODE
def test_another_level_that_was_typed_stays(typed: str, aggregate: str, options: dict[str, str]) -> None:
    answer = explain(typed, **options)
    assert answer.setting.level == options.get("level", "sample")
    explained = f"level='token' aggregate='{aggregate}' explains what that changes"
    assert (explained in answer.text(full=True)) == bool(aggregate)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("masked_mean(ratio*k3, mask)", "(rho*k3*mask).sum()/mask.sum()", True),
        ("masked_mean(ratio*k3, mask)", "(rho*k3*mask).sum(-1).mean()", False),
        ("masked_mean(k3, mask)", "masked_mean(ratio*k3, mask)", True),
        ("masked_mean(k3, mask)", "k2", True),
    ],
)
def test_losses_of_code_are_compared_at_their_own_levels(one: str, other: str, together: bool) -> None:
    compared = compare(one, other)
    assert bool(compared.settings) != together
    if together:
        assert (compared.setting.level, compared.setting.aggregate) == ("token", "batch")
    assert compared.setting.sampling == ("off-policy" if "ratio" in one + other else "on-policy")


# ---------------------------------------------------------------------------- two levels in one loss
KEPT_TOKENS = "mean() without the mask is over the tokens that the mask keeps"


@pytest.mark.parametrize(
    ("code", "aggregate"),
    [
        ("(k3*mask).sum()/mask.sum() + k2.mean()", "batch"),
        ("masked_mean(k3, mask) + k2.mean()", "batch"),
        ("per = (k3*mask).sum(-1)/mask.sum(-1); (per + k2.mean(-1)).mean()", "mean"),
    ],
)
def test_a_mean_without_the_mask_is_said_to_be_over_the_kept_tokens(code: str, aggregate: str) -> None:
    notes = {note.code: note.values for note in read_loss(code).notes}
    assert notes["settings-assumed"]["conditions"] == (KEPT_TOKENS,)
    assert notes["tokens-added-up"]["aggregate"] == aggregate
    assert f"assumed: {KEPT_TOKENS}" in " ".join(str(explain(code)).split())


@pytest.mark.parametrize(
    "code",
    [
        "k3.mean() + k2.mean()",
        "((k3*mask).sum(-1)/mask.sum(-1)).mean()",
        "(k3*mask).sum()/mask.sum() - R.mean()",
        "lengths = mask.sum(-1); (k3*mask).sum()/lengths.sum()",
    ],
)
def test_means_of_one_level_assume_nothing(code: str) -> None:
    assert "settings-assumed" not in [note.code for note in read_loss(code).notes]


@pytest.mark.parametrize(
    "code",
    [
        "((k3*mask).sum(-1)/mask.sum(-1)).mean() + k2.mean()",
        "(k3*mask).sum()/mask.sum() + ((k2*mask).sum(-1)/mask.sum(-1)).mean()",
        "masked_mean(k3, mask) + masked_mean(k2, mask, -1).mean()",
    ],
)
def test_means_over_a_sequence_and_over_all_tokens_are_refused(code: str) -> None:
    with pytest.raises(UsageError, match="each sequence beside one over all tokens"):
        read_loss(code)


# ---------------------------------------------------------------------------- rewards of tokens, of responses
OF_RESPONSES = (
    "-(logp*reward.unsqueeze(-1)*mask).sum(-1).mean()",
    "-(logp*rewards[:, None]*mask).sum(-1).mean()",
    "-(logp*batch['rewards'][..., None]*mask).sum(-1).mean()",
    "-(logp*rewards.view(-1, 1)*mask).sum(-1).mean()",
    "x = rewards.expand_as(logp); -(logp*x*mask).sum(-1).mean()",
    "adv = rewards; -(logp*adv.unsqueeze(1)*mask).sum(-1).mean()",
)
OF_TOKENS = (
    "-(logp*reward*mask).sum(-1).mean()",
    "-(logp*token_rewards.unsqueeze(-1)*mask).sum(-1).mean()",
    "-(logp*rewards.view(-1)*mask).sum(-1).mean()",
    "-(logp*rewards*mask[:, None]).sum(-1).mean()",
    "-(logp*rewards.unsqueeze(0)*mask).sum(-1).mean()",
)


def list_conditions(code: str) -> str:
    notes = [note for note in read_loss(code).notes if note.code == "settings-assumed"]
    return " ".join(condition for note in notes for condition in note.values["conditions"])


@pytest.mark.parametrize("code", OF_RESPONSES)
def test_a_reward_that_is_spread_over_the_tokens_is_one_of_the_response(code: str) -> None:
    assert str(read_loss(code).expression) == "-log_q*whole(R)"
    assert "one number for the whole response, as its shape says" in list_conditions(code)
    assert "A policy gradient: maximises E_q[R] " in str(explain(code))


@pytest.mark.parametrize("code", OF_TOKENS)
def test_another_reward_is_one_of_each_token(code: str) -> None:
    assert str(read_loss(code).expression) == "-R*log_q"
    is_said = "is of each token; for one of the whole response type" in list_conditions(code)
    assert is_said == ("token_" not in code)
    assert "  No objective: its expected gradient" in str(explain(code))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("-(logp*advantages*mask).sum()", True),
        ("-(logp*advantages.unsqueeze(1)*mask).sum()", False),
        ("-(logp*A*mask).sum()", False),
        ("-(logp*advantages).mean()", False),
        ("-(logp*reward).mean()", False),
        ("-(logp*reward.unsqueeze(-1)).mean()", False),
    ],
)
def test_an_advantage_of_a_response_is_assumed_where_tokens_are_added_up(code: str, said: bool) -> None:
    assert ("for one of each token type R" in list_conditions(code)) == said
    assert "whole" not in str(read_loss(code).expression)


def test_the_gradients_of_the_two_rewards_on_all_sequences_of_two_bits() -> None:
    """-sum_t R s_t is minus the gradient of E_q[R]; -sum_t R_t s_t is the gradient of no function."""
    generator = np.random.default_rng(4)
    start, rewards = generator.normal(size=3), generator.normal(size=(2, 2, 2))  # of token 1, 2 at (y1, y2)
    rewards[1] = rewards[1] * 2
    words = [*product((0, 1), repeat=2)]

    def take_logs(theta: np.ndarray, y: tuple[int, int]) -> np.ndarray:
        logits = theta[0], theta[1 + y[0]]
        return np.array([-np.log1p(np.exp(-x if bit else x)) for x, bit in zip(logits, y, strict=True)])

    def take_slope(of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        step = 1e-5 * np.eye(3)
        return np.array([(of(start + e) - of(start - e)) / 2e-5 for e in step])

    def average_loss(theta: np.ndarray, whole: bool, held: np.ndarray) -> float:
        total = 0.0
        for y in words:
            of_tokens = rewards[(slice(None), *y)]
            weights = np.full(2, of_tokens.sum()) if whole else of_tokens
            total -= np.exp(take_logs(held, y).sum()) * (weights * take_logs(theta, y)).sum()
        return total

    def take_gradient(held: np.ndarray, whole: bool) -> np.ndarray:
        return take_slope(lambda theta: average_loss(theta + held - start, whole, held))

    def average_reward(theta: np.ndarray) -> float:
        return sum(np.exp(take_logs(theta, y).sum()) * rewards[(slice(None), *y)].sum() for y in words)

    assert take_gradient(start, whole=True) == pytest.approx(-take_slope(average_reward), abs=1e-8)
    assert np.abs(take_gradient(start, whole=False) + take_slope(average_reward)).max() > 0.01

    def measure_curl(whole: bool) -> float:
        jacobian = take_slope(lambda held: take_gradient(held, whole))
        return float(np.abs(jacobian - jacobian.T).max())

    assert measure_curl(whole=True) < 1e-4 < 0.01 < measure_curl(whole=False)
