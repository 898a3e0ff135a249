"""A small transformer, trained by sampling, ends where `klsym optimum` says.

Each step draws sequences from the policy itself, token by token, and descends

    mean over the batch of  -rho A + beta LOSS          (use "loss")
                            sg(beta LOSS - A) log q     (use "reward")

with Adam at a rate that falls to 0.  The outcomes of `optimum` are whole sequences: a transformer can give
them any probabilities, so its stationary policies are those of the simplex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.engine.options.settings import Setting, checked_setting
from klsym.experiments.network.network import (
    Batch,
    World,
    batch_loss,
    draw_sequences,
    mask_of,
    one_thread,
    token_logs,
)
from klsym.language.expressions import A, rho
from klsym.language.parser import parse
from klsym.study.questions.optimum_of_loss import OptimumAnswer, compute_optimum


@dataclass(frozen=True)
class Trained:
    """What became of a policy, and what was predicted.

    policies: probabilities of all sequences after each step, shape (steps + 1, sequences).
    """

    policies: np.ndarray
    predicted: OptimumAnswer

    @property
    def end(self) -> np.ndarray:
        return np.asarray(self.policies[-1])

    @property
    def ends(self) -> np.ndarray:
        """Where training may end: stable policies, inside and on the boundary."""
        found = self.predicted.optimum
        rows = [one.policy for one in (*found.stationary, *found.boundary) if one.stable]
        return np.array(rows)

    @property
    def distance(self) -> float:
        """Total variation from the nearest of these."""
        return float(np.abs(self.ends - self.end).sum(1).min() / 2)


def train(
    world: World,
    loss: str,
    beta: str,
    rewards: Sequence[str],
    *,
    use: str = "loss",
    steps: int = 400,
    batch: int = 1000,
    rate: float = 0.05,
) -> Trained:
    """Train the policy of a world on a penalty and rewards of whole sequences.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> found = train(World(seed=1, vocabulary=2, longest=2), "k2", "0.5", ["0", "0.4", "1"], steps=2)
    >>> found.policies.shape, found.predicted.optimum.unique
    ((3, 3), True)

    beta, rewards: exact numbers as texts, one reward a sequence in the order of `Everything.tokens`.
    use: how the penalty is used; the reward is always a policy gradient.  rate: of Adam at the first step.
    Raises UsageError: what `compute_optimum` refuses.
    """
    setting = checked_setting(use=use, level="sequence")
    penalty = parse(f"({beta}) * ({loss})")
    objective = penalty - rho * A if use == "loss" else penalty - A
    reference = world.probabilities("p")
    predicted = compute_optimum(loss, beta, rewards, [float(x) for x in reference], use=use)
    earned = [float(x) for x in predicted.rewards]
    policies = _descent(world, objective, setting, earned, (steps, batch, rate))
    return Trained(np.array(policies), predicted)


@one_thread()
def _descent(
    world: World, objective: Any, setting: Setting, earned: list[float], by: tuple[int, int, float]
) -> list[np.ndarray]:
    """The policy after each step; by: steps, batch, rate."""
    import torch

    steps, batch, rate = by
    reward_of = {tuple(row): reward for row, reward in zip(world.all.tokens.tolist(), earned, strict=True)}
    live = {name: x.clone().requires_grad_() for name, x in world.nets["q"].items()}
    optimiser = torch.optim.Adam(live.values(), lr=rate)
    stream = torch.Generator().manual_seed(world.seed)
    policies = [world.probabilities_of(live)]
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * (1 - step / steps)
        with torch.no_grad():
            tokens = draw_sequences(live, batch, stream)
            log_p = token_logs(world.nets["p"], tokens)
        logs = token_logs(live, tokens)
        A_of = torch.tensor([reward_of[tuple(row)] for row in tokens.tolist()], dtype=torch.float64)
        of = Batch(logs, log_p, logs.detach(), 0 * log_p, A_of, mask_of(tokens))
        optimiser.zero_grad()
        batch_loss(objective, setting, of, {}).mean().backward()
        optimiser.step()
        policies.append(world.probabilities_of(live))
    return policies
