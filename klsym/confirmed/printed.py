"""The gradient that a verdict prints, with numbers, on the worlds of a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from klsym.api import Verdict
from klsym.errors import KlsymError
from klsym.language.expressions import M
from klsym.language.sums import Divided
from klsym.measure.world import Array, MeasuredWorld, normalise_logits
from klsym.numeric.checks.field_check import Literal, Printed
from klsym.worlds.losses import LossWorld
from klsym.worlds.numbers import FLOATS

SMALLEST = 1e-6  # of the entries of a gradient; below, it is 0 up to rounding


@dataclass(frozen=True)
class Agreement:
    """How near a printed gradient is to a measured one: measured = factor * printed, up to the gap.

    gap: the largest difference that is left, relative to the largest entry.
    """

    gap: float
    factor: float


def compare_with_printed(
    verdict: Verdict, loss: Any, world: MeasuredWorld, gradient: Array, parameters: Mapping[str, float]
) -> Agreement | None:
    """Compare the gradient that a verdict prints with the real one, both in the logits of a world.

    E_m[sum_t a s_t] of the coefficient a at each sample, the mean over the samples of a group.  None where a
    standard deviation, which verdicts hold fixed, or a cut sampler takes part, or words that topk selects,
    since M does not say which.

    loss: in the loss grammar.  gradient: the real one, [rows, V].  parameters: name -> number.
    """
    is_unknown = loss.has(Divided, M) or verdict.setting.batch == "std"
    if verdict.setting.truncated or is_unknown:
        return None
    printed = Printed(verdict, Literal(loss, verdict.setting), frozenset(parameters) - {"n", "T"})
    try:
        promised = compute_printed_gradient(printed, world, parameters)
    except (KlsymError, ArithmeticError, ValueError):
        return None
    square = float((promised**2).sum())
    factor = float((gradient * promised).sum()) / square if square > SMALLEST**2 else 1.0
    size = max(float(np.abs(gradient).max()), float(np.abs(factor * promised).max()), SMALLEST)
    return Agreement(float(np.abs(factor * promised - gradient).max()) / size, factor)


def compute_printed_gradient(
    printed: Printed, world: MeasuredWorld, parameters: Mapping[str, float]
) -> Array:
    """Return the expected gradient that a verdict prints, in the logits of a world."""
    losses = build_loss_world(world, printed.verdict.setting.level == "token", parameters)
    printed.set_definitions(losses)
    per_sample = printed.read(printed.verdict.gradient.score_text)
    units = np.eye(world.theta.size).tolist()
    along = [replace(losses, directions={"u": unit}) for unit in units]  # a world for each logit
    entries = np.zeros(world.theta.size)
    for batch, mass in along[0].enumerate_batches(world.group, "mu", multisets=True):
        entries += float(mass) * np.array(printed.sum_gradient_terms(per_sample, along, batch))
    return entries.reshape(world.theta.shape)


def build_loss_world(world: MeasuredWorld, of_tokens: bool, parameters: Mapping[str, float]) -> LossWorld:
    """Return the sequences of a measured world, for losses of the grammar.

    R of a token is its own reward; R of a sequence, which its last word has here, that of the sequence.
    """
    log_q = normalise_logits(world.theta)
    tables = {"log_q": log_q, "log_p": world.log_p, "log_old": world.compute_old(world.theta)}
    if world.sampling != "on-policy":
        tables["log_mu"] = world.compute_sampler(world.theta)
    rows = {name: table.ravel().tolist() for name, table in tables.items()}
    rewards = np.array(world.tables.token_rewards).ravel()
    if not of_tokens:
        rewards = np.zeros(rewards.size)
        for path, reward in zip(world.tree.layout.paths, world.rewards, strict=True):
            rewards[path[-1]] = reward
    rows |= {"R": rewards.tolist(), "M": [1.0] * len(rewards)}
    return LossWorld(
        world.tree.layout, rows, system=FLOATS, on_policy=world.sampling == "on-policy", size=world.group,
        parameters=dict(parameters), advantages=world.rewards.tolist(),
    )  # fmt: skip
