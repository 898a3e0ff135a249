"""What is measured by drawing samples: error rates, intervals, and answers against exact ones."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from klsym import measure, measure_samples
from klsym.cli import main
from klsym.errors import UsageError
from klsym.measure.moments import Moments, compute_p_value

torch = pytest.importorskip("torch")
TRIALS, GROUPS, NAMES = 400, 400, ("a", "b", "c", "d")
MULTIPLES = {"a": -1.0, "c": 0.2}


def draw_moments(seed: int, bend: float = 0.0) -> Moments:
    """Return noisy sketches of a combination of two of four gradients; bend: the size of another part."""
    stream = np.random.default_rng(seed)
    means, apart = stream.normal(size=(12, 4)), stream.normal(size=12)
    named = means + 2 * stream.normal(size=(GROUPS, 12, 4))
    truth = named @ np.array([MULTIPLES.get(name, 0.0) for name in NAMES])
    return Moments(truth + bend * apart + stream.normal(size=(GROUPS, 12)), named, NAMES)


def is_binomial(count: int, trials: int, rate: float) -> bool:
    """Is a count within four standard deviations of the mean?"""
    return abs(count - trials * rate) < 4 * math.sqrt(trials * rate * (1 - rate))


def test_what_is_true_is_rejected_as_often_as_is_said() -> None:
    given = fitted = missed = 0
    for seed in range(TRIALS):
        moments = draw_moments(seed)
        given += moments.test_multiples(MULTIPLES).p_value < 0.05
        fit = moments.fit_names(["a", "c"])
        assert fit is not None
        fitted += fit.p_value < 0.05
        low, high = fit.list_intervals(0.05)["a"]
        missed += not low <= -1 <= high
    assert all(is_binomial(count, TRIALS, 0.05) for count in (given, fitted, missed)), (given, fitted, missed)


def test_what_is_false_is_rejected() -> None:
    for seed in range(20):
        moments = draw_moments(seed, bend=2)
        assert moments.test_multiples(MULTIPLES).p_value == 0 and not moments.find_fits(0.01)
        assert draw_moments(seed).test_multiples({"a": -1.0}).p_value < 0.01
        (fit, *_) = draw_moments(seed).find_fits(0.001)
        assert [*fit.multiples] == ["a", "c"]


@pytest.mark.parametrize("statistic", [1.0, 4.0, 9.0, 16.0])
@pytest.mark.parametrize("eigenvalues", [(1.0,), (1.0, 1.0, 1.0), (3.0, 1.0, 0.5), (2.0, 0.0)])
def test_the_distribution_is_that_of_weighted_squares_of_normal_numbers(
    statistic: float, eigenvalues: tuple[float, ...]
) -> None:
    stream = random.Random(1)
    sums = [sum(x * stream.gauss(0, 1) ** 2 for x in eigenvalues) for _ in range(4000)]
    share = sum(x > statistic for x in sums) / len(sums)
    assert compute_p_value(statistic, np.array(eigenvalues)) == pytest.approx(share, abs=0.03)


# ---------------------------------------------------------------------------- of a network
class Tiny(torch.nn.Module):
    """Logits of the next of six words, from a mean of the words before."""

    def __init__(self, seed: int, near: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0 if near else seed)
        self.embedding, self.head = torch.nn.Embedding(6, 4), torch.nn.Linear(4, 6)
        if near:
            torch.manual_seed(seed)
            for leaf in self.parameters():
                leaf.data += 0.3 * torch.randn_like(leaf)

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        words = self.embedding(input_ids)
        counts = torch.arange(1, words.shape[1] + 1)[None, :, None]
        return 2 * self.head(words.cumsum(1) / counts)


POLICY, REFERENCE, SAMPLER = Tiny(0), Tiny(1, near=True), Tiny(2, near=True)


def sum_words(batch: Any, x: Any) -> Any:
    return (x * batch.mask).sum(-1).mean()


def reinforce(batch: Any) -> Any:
    return -sum_words(batch, batch.rewards[:, None] * batch.logp)


def with_baseline(batch: Any) -> Any:
    return -sum_words(batch, (batch.rewards - batch.rewards.mean())[:, None] * batch.logp)


def k2(batch: Any) -> Any:
    return sum_words(batch, (batch.logp - batch.ref_logp) ** 2 / 2)


def k3(batch: Any) -> Any:
    log_ratio = batch.ref_logp - batch.logp
    return sum_words(batch, log_ratio.exp() - 1 - log_ratio)


def with_penalty(batch: Any) -> Any:
    return reinforce(batch) + 2 * k3(batch)


def whole(batch: Any) -> Any:
    return (((batch.logp - batch.ref_logp) * batch.mask).sum(-1) ** 2 / 2).mean()


def detached(batch: Any) -> Any:
    return k3(batch).detach()


def fourth_power(batch: Any) -> Any:
    return sum_words(batch, (batch.logp - batch.ref_logp) ** 4)


ON, OFF = {}, {"old_model": SAMPLER}


@pytest.mark.parametrize(
    "loss, options, objective, wrong",
    [
        (reinforce, ON, "-E[R]", "E[R]"),
        (reinforce, OFF, "-log-likelihood", "-E[R]"),
        (with_baseline, {"group": 2}, "-0.5*E[R]", "-E[R]"),
        (k2, ON, "next-token-reverse-kl", "next-token-forward-kl"),
        (k3, ON, "next-token-forward-kl", "next-token-reverse-kl"),
        (with_penalty, OFF, "-log-likelihood + 2*E_mu[k3]", "-log-likelihood + 1.9*E_mu[k3]"),
        (whole, ON, "reverse-kl", "next-token-reverse-kl"),
    ],
)
def test_objectives_are_told_from_wrong_ones(
    loss: Callable[[Any], Any], options: Any, objective: str, wrong: str
) -> None:
    answer = measure_samples(loss, POLICY, REFERENCE, samples=400, length=3, expect=objective, **options)
    assert answer.ok and answer.kind == "named" and answer.meets(objective)
    assert not answer.meets(wrong)


def test_intervals_hold_what_is_measured_exactly() -> None:
    """On a small world the same loss is enumerated, in the parameters of the same kind of network."""
    exact = measure(with_penalty, model=POLICY, words=6, length=2, worlds=2)
    assert exact.multiples == {"policy-gradient": -1.0, "next-token-forward-kl": 2.0}
    answer = measure_samples(with_penalty, POLICY, REFERENCE, samples=800, length=3)
    fit = next(fit for fit in answer.fits if {*fit.multiples} == {*exact.multiples})
    for name, (low, high) in fit.list_intervals(answer.error_rate).items():
        assert low <= exact.multiples[name] <= high


def test_what_is_not_told() -> None:
    assert measure_samples(detached, POLICY, REFERENCE, samples=100, length=2).kind == "zero"
    few = measure_samples(
        lambda b: reinforce(b) - reinforce(b) * 0.999, POLICY, REFERENCE, samples=100, length=2
    )
    assert few.kind in ("named", "undecided")
    power = measure_samples(fourth_power, POLICY, REFERENCE, SAMPLER, samples=400, length=3)
    assert all(abs(value) > 1e-9 for value in power.multiples.values())
    assert "sampled" in str(power) and power.to_json()["trust"] == "sampled"


def test_samples_are_drawn_again_from_the_same_seed() -> None:
    first, again, elsewhere = (
        measure_samples(k2, POLICY, REFERENCE, samples=100, length=2, seed=seed).to_json()
        for seed in (1, 1, 2)
    )
    assert first == again != elsewhere


@pytest.mark.parametrize(
    "options, message",
    [
        ({"samples": 10}, "at least 100 groups"),
        ({"samples": 2.5}, "at least 100 groups"),
        ({"group": 0}, "at least one sample"),
        ({"error_rate": 0.0005}, "a number from 0.001 to 0.5"),
        ({"error_rate": 0.5}, "a number from 0.001 to 0.5"),
        ({"length": 0}, "length=0: a positive whole number"),
        ({"prompts": [1, 2]}, r"prompts: integers of the shape \[P, L\]"),
        ({"prompts": [[0.5]]}, r"prompts: integers of the shape \[P, L\]"),
        ({"expect": "-E[X]"}, "is no objective: unknown name"),
        ({"old_model": 3}, r"old_model: a torch\.nn\.Module expected"),
        (
            {"reward": lambda tokens, mask: mask[:, 0] * math.nan},
            "is not finite where the samples are the words",
        ),
    ],
)
def test_what_cannot_be_sampled_is_refused_in_a_line(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refusal:
        measure_samples(reinforce, POLICY, REFERENCE, **{"samples": 100, "length": 2, **options})
    assert "\n" not in str(refusal.value)


def test_the_command_draws_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sampled_trainer.py"
    file.write_text(
        "import torch\n"
        "def make():\n    torch.manual_seed(0)\n    return torch.nn.Embedding(5, 5)\n"
        "def make_reference():\n    torch.manual_seed(1)\n    return torch.nn.Embedding(5, 5)\n"
        "def loss(batch):\n    return -(batch.rewards[:, None] * batch.logp * batch.mask).sum(-1).mean()\n"
    )
    models = ["--model", f"{file}:make", "--ref-model", f"{file}:make_reference", "--length", "3"]
    command = ["measure", f"{file}:loss", "--samples", "150", *models]
    assert main([*command, "--expect", "-E[R]", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["kind"] == "named" and answer["expect"]["ok"] and answer["setting"]["groups"] == 150
    assert main([*command, "--expect", "E[R]"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("sampled_trainer.py:loss, run on-policy, 150 groups of one sample of a model")
    assert "  A policy gradient: its gradient may be that of" in out and "sampled" in out
    for wrong in (
        ["measure", f"{file}:loss", "--ref-model", f"{file}:make"],
        ["measure", f"{file}:loss", "--samples", "300"],
        [*command, "--words", "4"],
        [*command, "--sampling", "off-policy"],
    ):
        assert main(wrong) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
