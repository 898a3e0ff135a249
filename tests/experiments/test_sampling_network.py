"""A transformer's gradients, by autograd, against what `explain` prints; and where its training ends."""

from __future__ import annotations

import numpy as np
import pytest

from klsym.errors import UsageError
from klsym.experiments.network.network import (
    Everything,
    World,
    batch_loss,
    draw_sequences,
    mask_of,
    network,
    next_logs,
)
from klsym.experiments.network.training import train
from klsym.language.expressions import k1, k3

torch = pytest.importorskip("torch")

OFF = {"sampling": "off-policy"}
TOKEN, SEQUENCE = {"level": "token"}, {"level": "sequence"}
PARAMETERS = {"beta": 0.3, "lam": 0.7}
WORLD = World(seed=1, parameters=PARAMETERS)
CASES = [
    ("k1", SEQUENCE, "zero"),
    ("k2", SEQUENCE, "reverse-kl"),
    ("k3", SEQUENCE, "forward-kl"),
    ("k(lam)", SEQUENCE, "forward-kl"),
    ("rho*k3", SEQUENCE | OFF, "reverse-kl"),
    ("sg(rho)*k2", SEQUENCE | OFF, "reverse-kl"),
    ("k3", SEQUENCE | OFF, "own-mean"),
    ("k1", SEQUENCE | {"use": "reward"}, "reverse-kl"),
    ("k3", SEQUENCE | {"use": "reward"}, "combination"),
    ("R - beta*k1", SEQUENCE | {"use": "reward"}, "combination"),
    ("k2", TOKEN, "no-objective"),
    ("k3", TOKEN, "no-objective"),
    ("rho*k3", TOKEN | OFF, "own-mean"),
    ("rho*k3", TOKEN | OFF | {"weights": "prefix"}, "reverse-kl"),
    ("rho*k3", TOKEN | OFF | {"weights": "sequence"}, "reverse-kl"),
    ("k1", TOKEN | {"aggregate": "mean"}, "objective"),
    ("-rho*A + beta*k3", TOKEN | OFF, None),
    ("R - beta*k1", TOKEN | {"use": "reward"}, "combination"),
    ("k1", TOKEN | {"use": "reward", "credit": "same-token"}, "no-objective"),
    ("k3", TOKEN | {"use": "reward", "credit": "total"}, None),
]


@pytest.mark.parametrize(("loss", "options", "target"), CASES, ids=str)
@pytest.mark.share(3)
def test_autograd_over_all_sequences_agrees_to_the_last_digits(loss, options, target):
    found = WORLD.compare(loss, samples=None, **options)
    assert found.difference < 1e-12
    assert target is None or found.target == target


@pytest.mark.parametrize(
    ("loss", "options"), [("rho*k3", SEQUENCE | OFF), ("R - beta*k1", TOKEN | {"use": "reward"})]
)
def test_sampled_gradients_agree_and_a_wrong_coefficient_is_noticed(loss, options):
    found = WORLD.compare(loss, samples=40_000, **options)
    assert found.agrees and found.noticed


def test_too_few_samples_are_refused():
    with pytest.raises(UsageError, match="too few"):
        WORLD.compare("k3", samples=100, **SEQUENCE)


@pytest.mark.parametrize(
    ("loss", "options"), [("clip(k3,0,1)", SEQUENCE), ("k1", SEQUENCE | {"batch": "mean"})]
)
def test_what_cannot_be_compared_is_refused(loss, options):
    with pytest.raises(UsageError, match="no proved coefficient"):
        WORLD.compare(loss, samples=None, **options)


def test_next_tokens_do_not_look_ahead():
    net = network(3, 3, 4)
    one, other = torch.tensor([[1, 2, 0, 0]]), torch.tensor([[1, 2, 1, 2]])
    assert torch.equal(next_logs(net, one)[:, :3], next_logs(net, other)[:, :3])
    assert not torch.equal(next_logs(net, one)[:, 3], next_logs(net, other)[:, 3])


def test_all_sequences_are_listed_once_and_their_probabilities_sum_to_one():
    everything = Everything(3, 3)
    rows = {tuple(row) for row in everything.tokens.tolist()}
    assert len(rows) == len(everything.tokens) == 15
    assert abs(WORLD.probabilities("mu").sum() - 1) < 1e-12


def test_sequences_are_drawn_with_their_probabilities():
    tokens = draw_sequences(WORLD.nets["q"], 20_000, torch.Generator().manual_seed(0))
    number = {tuple(row): i for i, row in enumerate(WORLD.all.tokens.tolist())}
    counts = np.bincount([number[tuple(row)] for row in tokens.tolist()], minlength=15)
    expected = 20_000 * WORLD.probabilities("q")
    assert (abs(counts - expected) < 6 * np.sqrt(expected)).all()


def test_the_mask_ends_behind_the_first_end():
    assert mask_of(torch.tensor([[0, 0, 0], [1, 0, 0], [1, 2, 1]])).tolist() == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 1],
    ]


def test_a_loss_of_tokens_is_summed_by_hand():
    setting = WORLD.compare("k3", samples=None, **TOKEN).setting
    of = WORLD.batch(torch.tensor([9]), WORLD.nets["q"], True)
    steps = int(of.mask.sum())
    log_ratio = (of.log_q - of.log_p)[0, :steps].tolist()
    by_hand = sum(np.exp(-x) - 1 + x for x in log_ratio)
    assert abs(float(batch_loss(k3, setting, of, {})) - by_hand) < 1e-12
    assert float(batch_loss(k1, setting, of, {})) != by_hand


SMALL = World(seed=4, vocabulary=2, longest=2)
REWARDS = ["0", "0.4", "1"]


@pytest.mark.parametrize(("loss", "use"), [("k3", "loss"), ("k1", "reward")])
def test_training_ends_where_it_is_predicted(loss, use):
    found = train(SMALL, loss, "0.5", REWARDS, use=use, steps=200, batch=400)
    assert found.predicted.optimum.unique and found.distance < 0.02
    start = abs(found.ends - found.policies[0]).sum(1).min() / 2
    assert start > 0.1


def test_a_penalty_that_does_not_know_the_reference_holds_nothing():
    found = train(SMALL, "k1", "0.5", REWARDS, steps=150, batch=200)
    assert found.end[2] > 0.99
