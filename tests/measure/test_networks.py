"""A network of the user as the policy: gradients in its parameters, against differences in plain Python."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from klsym import measure
from klsym.cli import main
from klsym.errors import UsageError

torch = pytest.importorskip("torch")
STEP = 1e-5


class Tiny(torch.nn.Module):
    """A recurrent network; frozen: its embedding is not trained; wrapped: it returns an object."""

    def __init__(self, words: int = 3, frozen: bool = False, wrapped: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = torch.nn.Embedding(words, 2)
        self.recurrent = torch.nn.GRU(2, 2, batch_first=True)
        self.head = torch.nn.Linear(2, words)
        self.wrapped = wrapped
        self.embedding.weight.requires_grad_(not frozen)

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        logits = self.head(self.recurrent(self.embedding(input_ids))[0])
        return type("Output", (), {"logits": logits})() if self.wrapped else logits


class Dropping(Tiny):
    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        return torch.nn.functional.dropout(super().forward(input_ids), 0.5)


class Bigram(torch.nn.Module):
    """One row of logits for each word before, which the next word alone depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(3, 3))

    def forward(self, input_ids: Any) -> Any:
        return self.logits[input_ids]


def read_model(batch: Any) -> Any:
    """Return log q of the drawn words, from the model of a batch."""
    output = batch.model(batch.input_ids)
    logits = getattr(output, "logits", output)[:, :-1]
    return torch.log_softmax(logits, -1).gather(-1, batch.tokens[..., None])[..., 0]


def reinforce(batch: Any) -> Any:
    return -(batch.rewards[:, None] * batch.logp * batch.mask).sum(-1).mean()


def reinforce_of_model(batch: Any) -> Any:
    return -(batch.rewards[:, None] * read_model(batch) * batch.mask).sum(-1).mean()


def penalty(batch: Any) -> Any:
    log_ratio = ((batch.logp - batch.ref_logp) * batch.mask).sum(-1)
    return (log_ratio**2 / 2).mean()


def weight_decay(batch: Any) -> Any:
    return reinforce(batch) + 0.1 * sum((x**2).sum() for x in batch.model.parameters())


def decayed_when_sampled(batch: Any) -> Any:
    """A sum that depends on a number of the batch: `vmap` cannot run it."""
    return reinforce(batch) * (2.0 if batch.rewards.sum().item() > 0 else 1.0)


@pytest.mark.parametrize(
    "loss, options, multiples, has_objective, network",
    [
        (reinforce, {}, {"policy-gradient": -1}, True, Tiny(frozen=True)),
        (reinforce, {"group": 2}, {"policy-gradient": -1}, True, Tiny()),
        (reinforce_of_model, {}, {"policy-gradient": -1}, True, Tiny(wrapped=True)),
        (reinforce_of_model, {"sampling": "off-policy"}, {"log-likelihood": -1}, True, Tiny()),
        (penalty, {}, {"reverse-kl": 1}, True, Tiny),
        (penalty, {"sampling": "off-policy"}, {"E_mu[whole(k1)**2/2]": 1}, True, Tiny()),
    ],
)
def test_objectives_in_the_parameters_of_a_network(
    loss: Callable[[Any], Any], options: Any, multiples: Any, has_objective: bool, network: Any
) -> None:
    answer = measure(loss, model=network, **options)
    network = network() if network is Tiny else network
    assert answer.multiples == pytest.approx(multiples, abs=1e-6) and answer.has_objective is has_objective
    assert answer.setting.parameters == sum(x.numel() for x in network.parameters() if x.requires_grad)
    assert "parameters of a network" in answer.setting.describe()


def test_what_the_network_holds_is_put_back() -> None:
    network = Tiny()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    measure(reinforce_of_model, model=network)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    with pytest.raises(UsageError):
        measure(lambda batch: batch.logp, model=network)
    assert all(x.dtype == torch.float32 for x in network.parameters())


def compute_exactly(network: Any, world: Any, parameters: Any, objective: str) -> float:
    """Return E_q[R] or KL(q||p), each sequence by itself, from the definition."""
    place = 0
    for leaf in (leaf for leaf in network.parameters() if leaf.requires_grad):
        leaf.data = torch.tensor(parameters[place : place + leaf.numel()]).reshape(leaf.shape)
        place += leaf.numel()
    total = 0.0
    for i, words in enumerate(world.tree.sequences):
        logs = torch.log_softmax(network(torch.tensor([[1, *words]]))[0], -1)
        log_q = sum(float(logs[t, word].detach()) for t, word in enumerate(words))
        log_p = sum(float(world.log_p[world.rows[i, t], word]) for t, word in enumerate(words))
        total += math.exp(log_q) * (world.rewards[i] if objective == "policy-gradient" else log_q - log_p)
    return total


@pytest.mark.parametrize("objective", ["policy-gradient", "reverse-kl"])
def test_named_gradients_are_differences_in_the_parameters(objective: str) -> None:
    network = Tiny()
    answer = measure(reinforce, model=network)
    double = Tiny().double()
    for world, named in zip(answer.worlds[:2], answer.named, strict=False):
        for seed in range(3):
            towards = np.random.default_rng(seed).normal(size=world.parameters.size)
            up, down = (
                compute_exactly(double, world, world.parameters + sign * STEP * towards, objective)
                for sign in (1, -1)
            )
            slope = (up - down) / (2 * STEP)
            assert named[objective] @ towards == pytest.approx(slope, abs=1e-8)


def test_a_part_of_the_loss_that_no_sample_has_is_no_multiple_of_a_name() -> None:
    answer = measure(weight_decay, model=Tiny())
    assert answer.kind == "objective" and answer.has_objective and not answer.multiples


def test_words_that_share_parameters_still_tell_a_curl() -> None:
    def loss(batch: Any) -> Any:
        log_ratio = batch.ref_logp - batch.logp
        return ((log_ratio.exp() - 1 - log_ratio) * batch.mask).sum(-1).mean()

    answer = measure(loss, model=Tiny())
    assert answer.multiples == {"next-token-forward-kl": 1.0} and answer.has_objective is False
    assert measure(loss, model=Bigram()).has_objective is False


@pytest.mark.parametrize(
    "model, options, message",
    [
        ("nothing", {}, "FILE.py:FUNC or MODULE:FUNC expected"),
        (3, {}, r"model: a torch\.nn\.Module expected, or a function that returns one, got int"),
        (lambda: None, {}, "got NoneType"),
        (torch.nn.ReLU(), {}, "it trains 0 parameters"),
        (Tiny().requires_grad_(False), {}, "it trains 0 parameters"),
        (torch.nn.Embedding(3, 100_000), {}, "300000 parameters, from 1 to 100000 expected"),
        (Tiny(words=4), {}, r"it gives the shape \(1, 1, 4\): logits of the shape \(1, 1, 3\) expected"),
        (torch.nn.Embedding(3, 2), {}, r"it gives the shape \(1, 1, 2\)"),
        (Dropping(), {}, "two runs of the loss differ"),
        (Tiny(), {"framework": "jax"}, "model: a network of PyTorch, for losses in PyTorch"),
    ],
)
def test_networks_that_are_refused(model: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refusal:
        measure(reinforce_of_model, model=model, **options)
    assert "\n" not in str(refusal.value)


def test_the_command_takes_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trainer_with_network.py"
    file.write_text(
        "import torch\n"
        "def make():\n    return torch.nn.Embedding(3, 3)\n"
        "def loss(batch):\n    return -(batch.rewards[:, None] * batch.logp * batch.mask).sum()\n"
    )
    assert main(["measure", f"{file}:loss", "--model", f"{file}:make", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["multiples"] == {"policy-gradient": -1.0} and answer["setting"]["parameters"] == 9
    assert main(["measure", f"{file}:loss", "--model", f"{file}:loss"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# ---------------------------------------------------------------------------- all groups at once
@pytest.mark.parametrize("loss", [reinforce, penalty, decayed_when_sampled])
@pytest.mark.parametrize("group", [1, 2])
def test_groups_at_once_are_groups_one_by_one(
    loss: Callable[[Any], Any], group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from klsym.measure import torch_library

    together = measure(loss, group=group)

    def refuse(*_: Any) -> Any:
        raise RuntimeError("no vmap")

    monkeypatch.setattr(torch_library, "_run_together", refuse)
    single = measure(loss, group=group)
    assert together.multiples == single.multiples and together.kind == single.kind
    assert together.variance == pytest.approx(single.variance, rel=1e-9)
    for one, other in zip(together.gradients, single.gradients, strict=True):
        assert np.abs(one - other).max() < 1e-12


def test_code_that_is_another_one_under_vmap_is_run_one_by_one() -> None:
    calls = itertools.count()

    def loss(batch: Any) -> Any:
        is_batched = torch._C._functorch.is_batchedtensor(batch.logp)
        next(calls)
        return reinforce(batch) * (3 if is_batched else 1)

    assert measure(loss).multiples == {"policy-gradient": -1.0}
    assert next(calls) > 200


def test_code_that_reads_the_numbers_of_the_model_has_a_variance() -> None:
    """All groups share the logits where losses are summed; where each has its own, they have no numbers."""

    def loss(batch: Any) -> Any:
        return reinforce(batch) + 0 * float(batch.model.table.table.detach().sum())

    assert measure(loss).variance == pytest.approx(measure(reinforce).variance, rel=1e-9)
