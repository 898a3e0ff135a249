"""Bounds of code that no value of the worlds crosses, names that almost fit, and KL(q || mu)."""

from __future__ import annotations

import re

import pytest

import klsym
from klsym.measure.measurement import Measurement

torch = pytest.importorskip("torch")
OFF = {"sampling": "off-policy"}


def weigh(b, low: float, high: float):
    ratio = torch.exp(b.logp - b.sampler_logp)
    kept = b.mask * ~((ratio < low) | (ratio > high))
    return -(ratio * b.rewards[:, None] * kept).sum()


def clamp_logs(b, bound: float):
    ratio = torch.exp((b.logp - b.sampler_logp).clamp(-bound, bound))
    return -(ratio * b.rewards[:, None] * b.mask).sum()


def measured(loss, *values: float) -> Measurement:
    return klsym.measure(lambda b: loss(b, *values), **OFF)


@pytest.mark.parametrize(
    ("loss", "values", "said"),
    [
        (weigh, (0.01, 100.0), "no value was below 0.01 or above 100 in the worlds that were run"),
        (clamp_logs, (20.0,), "no value was below -20 or above 20 in the worlds that were run"),
    ],
)
def test_a_name_that_holds_inside_the_bounds_alone(loss, values, said) -> None:
    answer = measured(loss, *values)
    assert answer.multiples and answer.is_inside
    assert answer.headline.endswith("inside the clip range") and answer.summary.endswith("the clip range")
    assert any(said in note for note in answer.notes)


@pytest.mark.parametrize(
    ("loss", "values"), [(weigh, (0.95, 1.05)), (clamp_logs, (0.05,)), (clamp_logs, (0.01,))]
)
def test_bounds_that_are_crossed_have_no_name(loss, values) -> None:
    answer = measured(loss, *values)
    assert not answer.multiples and not answer.is_inside and "clip range" not in answer.headline


def test_without_bounds_nothing_is_said_of_them() -> None:
    answer = klsym.measure(lambda b: -((b.logp * (b.mask > 0)).sum(-1) * b.rewards).sum())
    assert answer.multiples == {"policy-gradient": -1.0} and not answer.is_inside


def divide_by_count(b, floor: float):
    return -((b.logp * b.mask).sum(-1) * b.rewards / b.mask.sum(-1).clamp(min=floor)).mean()


def divide_by_spread(b, floor: float):
    spread = (b.rewards**2).mean().sqrt().clamp(min=floor)
    return -((b.logp * b.mask).sum(-1) * b.rewards * spread / spread).mean()


@pytest.mark.parametrize(
    ("loss", "floor", "inside"),
    [(divide_by_count, 1.0, False), (divide_by_spread, 1e-8, False), (divide_by_spread, 1e-3, True)],
)
def test_what_keeps_a_divisor_from_0_is_no_clip_range(loss, floor: float, inside: bool) -> None:
    answer = klsym.measure(lambda b: loss(b, floor))
    assert answer.multiples and answer.is_inside == inside


def test_what_a_name_leaves_is_described() -> None:
    def loss(b):
        ratio = torch.exp(b.logp - b.sampler_logp)
        return (b.mask * (-ratio * b.rewards[:, None] + 0.001 * (b.logp - b.ref_logp) ** 4)).sum()

    answer = klsym.measure(loss, **OFF)
    [note] = [note for note in answer.notes if "leaves" in note]
    assert not answer.multiples and "*token-policy-gradient leaves 0.00" in note and "cosines are" in note


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_far_from_all_names_no_remainder_is_described(scale: float) -> None:
    answer = klsym.measure(lambda b: (scale * b.mask * (b.logp - b.ref_logp) ** 4).sum(), **OFF)
    assert not answer.multiples and all("leaves" not in note for note in answer.notes)


def test_the_kl_to_the_sampler_has_a_name() -> None:
    """On sequences of one word, where no prefix is drawn from mu."""

    def loss(b):
        log_ratio = ((b.logp - b.sampler_logp) * b.mask).sum(-1)
        return (log_ratio.detach() * log_ratio.exp()).sum()

    assert klsym.measure(loss, **OFF).multiples == {"sampler-reverse-kl": 1.0}
    assert klsym.measure(loss, expect="KL(q||mu)", **OFF).ok
    assert not klsym.measure(loss, expect="KL(mu||q)", **OFF).ok


# ---------------------------------------------------------------------------- tokens without a gradient
def clip(b, form) -> torch.Tensor:
    ratio, rewards = torch.exp(b.logp - b.sampler_logp), b.rewards[:, None]
    return -(form(ratio, rewards) * b.mask).sum()


def ppo(ratio, rewards):
    return torch.min(ratio * rewards, ratio.clamp(0.8, 1.2) * rewards)


def geometric(b) -> torch.Tensor:
    """GMPO: the clip is at each token, and the ratio of the sequence is their geometric mean."""
    sign = torch.sign(b.rewards)[:, None]
    logs = sign * (b.logp - b.sampler_logp)
    kept = sign * torch.min(logs, logs.clamp(-0.4, 0.4))
    return -(b.rewards * torch.exp((kept * b.mask).sum(-1) / b.mask.sum(-1))).sum()


@pytest.mark.parametrize(
    ("loss", "upper", "lower"), [(lambda b: clip(b, ppo), 1.2, 0.8), (geometric, 1.4918, 0.6703)]
)
def test_the_tokens_without_a_gradient_lie_beyond_the_bound(loss, upper: float, lower: float) -> None:
    """The bound lies between the last ratio with a gradient and the first one without."""
    [note] = [note for note in klsym.measure(loss, **OFF).notes if note.startswith("no gradient")]
    found = re.search(r"A > 0 and rho >= ([\d.]+) \(there is one up to ([\d.]+)\)", note)
    beyond = re.search(r"A < 0 and rho <= ([\d.]+) \(there is one from ([\d.]+)\)", note)
    assert found and float(found[2]) <= upper <= float(found[1])
    assert beyond and float(beyond[1]) <= lower <= float(beyond[2])


@pytest.mark.parametrize(
    "form", [lambda ratio, rewards: ratio**2 * rewards, lambda ratio, rewards: torch.sigmoid(ratio) * rewards]
)
def test_a_loss_without_a_clip_drops_no_tokens(form) -> None:
    answer = klsym.measure(lambda b: clip(b, form), **OFF)
    assert all("no gradient at" not in note for note in answer.notes)


def test_a_clip_of_whole_sequences_is_no_bound_of_tokens() -> None:
    def loss(b):
        ratio = torch.exp(((b.logp - b.sampler_logp) * b.mask).sum(-1))
        return -torch.min(ratio * b.rewards, ratio.clamp(0.8, 1.2) * b.rewards).sum()

    [note] = [note for note in klsym.measure(loss, **OFF).notes if note.startswith("no gradient")]
    assert note.endswith("% of the tokens of these worlds")
