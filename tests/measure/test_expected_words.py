"""The words of objectives in klsym.measure: each name is read back, means of formulas, kinds of answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from klsym.cli import main  # noqa: E402
from klsym.engine.answers.objectives import NAMES as WRITTEN  # noqa: E402
from klsym.engine.answers.objectives import WORDS, read_objective  # noqa: E402
from klsym.errors import UsageError  # noqa: E402
from klsym.measure.expectation import build_gradient, read_multiples  # noqa: E402
from klsym.measure.measuring import measure  # noqa: E402
from klsym.measure.objectives import NamedGradients  # noqa: E402
from klsym.measure.world import MeasuredWorld  # noqa: E402
from klsym.testing import assert_minimises, assert_targets  # noqa: E402
from klsym.worlds.words import WordTree, draw_tables  # noqa: E402

TREE = WordTree(3, 2)
OFF = "off-policy"
WORLDS = {
    (sampling, group): MeasuredWorld(TREE, draw_tables(TREE, 3, near=0.5), sampling, group)
    for sampling in ("on-policy", OFF, "truncated")
    for group in (1, 2)
}
GRADIENTS = {key: NamedGradients(world, world.theta).gradients for key, world in WORLDS.items()}
NAMES = GRADIENTS[OFF, 2]
PLAIN = [  # that array losses can evaluate: no sum over tokens, no group
    name for name in GRADIENTS[OFF, 1] if name.startswith("E_mu[") and "whole" not in name
    and "seqmean" not in name and "full" not in name and "js" not in name
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_each_measured_name_is_read_back(name: str) -> None:
    wanted = read_objective(name)
    if len(wanted.multiples) > 1:  # a sum in E_mu[..] is read term by term
        assert all(part.startswith("E_mu[") for part in wanted.multiples)
        return
    [(found, multiple)] = read_multiples(wanted, NAMES).items()
    assert multiple == 1.0 and np.abs(NAMES[found] - NAMES[name]).max() < 1e-12
    assert found == name or ("T*exp(" in name and "/T]" in name)  # T cancels


def test_the_words_are_those_that_are_measured() -> None:
    measured = {name for name in NAMES if "[" not in name}
    assert measured == {*WRITTEN} and {name.partition("/")[0] for name in measured} == {*WORDS}


@pytest.mark.parametrize("sampling", ["on-policy", OFF, "truncated"])
@pytest.mark.parametrize("name", PLAIN)
def test_the_mean_of_a_formula_is_differentiated(name: str, sampling: str) -> None:
    """By the derivative of the grammar, against the complex step of the table."""
    world, named = WORLDS[sampling, 1], GRADIENTS[sampling, 1]
    wanted = read_objective(f"3*E_mu[2*({name[5:-1]})]")
    gradient = build_gradient({x: float(c) for x, c in wanted.multiples.items()}, wanted, world, named)
    assert np.abs(gradient - 6 * named[name]).max() < 1e-10
    assert np.abs(named[name]).max() > 1e-6 or name in ("E_mu[k3]", "E_mu[rho]") or sampling != OFF


def k3(b: Any) -> Any:
    gap = b.ref_logp - b.logp
    return ((gap.exp() - 1 - gap) * b.mask).sum(-1).mean()


def clipped(b: Any) -> Any:
    ratio = (b.logp - b.old_logp).exp()
    gain = torch.minimum(ratio * b.rewards[:, None], ratio.clamp(0.8, 1.2) * b.rewards[:, None])
    return -(gain * b.mask).sum(-1).mean()


def k2_of_sequences(b: Any) -> Any:
    return (((b.logp - b.ref_logp) * b.mask).sum(-1) ** 2 / 2).mean()


def k1(b: Any) -> Any:
    return ((b.logp - b.ref_logp) * b.mask).sum(-1).mean()


CLIP = "min(rho*R, clip(rho, 0.8, 1.2)*R)"
EXPECTED: list[tuple[Callable[[Any], Any], str, tuple[str, ...], tuple[str, ...]]] = [
    # a loss, its samples, what is met, what is not
    (k3, OFF, ("E_mu[k3]", "E_mu[exp(log_p - log_q) + log_q]", "own-mean"),
     ("E_mu[k3/T]", "E_mu[k2]", "objective", "no-objective", "reverse-kl", "zero", "open")),
    (k3, "on-policy", ("no-objective", "next-token-forward-kl", "E_mu[k3]"),
     ("own-mean", "2*next-token-forward-kl", "forward-kl", "objective")),
    (clipped, OFF, ("own-mean", f"E_mu[-{CLIP}]", f"-E_mu[{CLIP}]"),
     ("-token-policy-gradient", f"E_mu[{CLIP}]", "objective", "combination", "undecided")),
    (k2_of_sequences, "on-policy", ("reverse-kl", "0.5*reverse-kl + reverse-kl/2"),
     ("2*reverse-kl", "combination", "own-mean", "zero")),
    (k1, "on-policy", ("zero", "0"), ("entropy", "no-objective", "own-mean", "E[R]")),
    (k1, OFF, ("-sampler-kl", "E_mu[log_q]", "own-mean"), ("sampler-kl", "objective", "zero", "E_mu[k1/T]")),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "sampling", "met", "missed"), EXPECTED)
def test_an_objective_is_met_or_not(
    loss: Callable[[Any], Any], sampling: str, met: tuple[str, ...], missed: tuple[str, ...]
) -> None:
    answer = measure(loss, sampling=sampling)
    assert [text for text in met if not answer.meets(text)] == []
    assert [text for text in missed if answer.meets(text)] == []


REFUSED = [  # what is no objective, or none that is measured
    ("separable", "own-mean"), ("reverse-lk", "did you mean"), ("k3", "klsym explain"),
    ("f-divergence", "name the objective"), ("reverse-kl inside clamps", "decided where the code is read"),
    ("beta*reverse-kl", "a number expected"), ("E[R**2]", "only multiples of"),
    ("E_mu[past(k1)*k3]", "is not measured"), ("E_mu[std(R)*log_q]", "is not measured"),
    ("E_mu[beta*k3]", "is not measured"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_is_not_measured_is_refused_in_a_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        measure(k3, expect=text)
    assert "\n" not in str(refused.value)


def test_a_kind_has_no_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    answer = measure(k3, sampling=OFF, expect="own-mean")
    assert answer.to_json()["expect"] == {"wanted": "own-mean", "ok": True, "error": None, "cosine": None}
    assert "expected own-mean: yes\n" in str(answer)
    file = "tests/support/measured/losses.py:whole_batch"
    assert main(["measure", file, "--group", "2", "--expect", "no-objective"]) == 1
    assert "no-objective" in capsys.readouterr().err


def test_a_test_of_training_code_takes_the_same_words() -> None:
    def penalty(logp: Any, ref_logp: Any, mask: Any) -> Any:
        return (0.5 * (logp - ref_logp) ** 2 * mask).sum()

    for text in ("own-mean", "E_mu[k2]"):
        assert_targets(penalty, text, sampling=OFF)
        assert_minimises(penalty, text, sampling=OFF)
    assert_minimises(k3, "no-objective")
    for check in (assert_targets, assert_minimises):
        with pytest.raises(AssertionError, match="expected E_mu"):
            check(penalty, "E_mu[k3]", sampling=OFF)
        with pytest.raises(UsageError, match="own-mean"):
            check(penalty, "separable", sampling=OFF)
