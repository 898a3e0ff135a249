"""An objective in words, such as "-E[R] + 0.04*reverse-kl", as multiples of gradients that have a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import sympy

from klsym.engine.answers.objectives import N, T, WantedObjective, read_objective
from klsym.errors import UsageError
from klsym.language.expressions import A, R, log_q
from klsym.measure.objectives import STEP, Moved
from klsym.measure.world import Array, MeasuredWorld
from klsym.notation.decimals import write_objective as write_objective
from klsym.numeric.array_losses import evaluate

NOT_MEASURED = {
    "f-divergence": "is a class of objectives, which runs cannot prove: name the objective, such as E_mu[k3]",
    "inside": "is said of bounds, which runs do not know: it is decided where the code is read, not here",
}


def read_multiples(wanted: WantedObjective, names: Iterable[str]) -> dict[str, float]:
    """Return the multiples of the names that are measured; an E_mu[..] that has none there stays.

    >>> read_multiples(read_objective("-E[R] + 0.04*reverse-kl"), ["reverse-kl", "policy-gradient"])
    {'policy-gradient': -1.0, 'reverse-kl': 0.04}

    Raises UsageError: multiples that are no numbers, and rewards that are no multiple of R.
    """
    measured_names = tuple(names)
    if wanted.inside:
        raise UsageError(f"{wanted.text[:60]!r} {NOT_MEASURED['inside']}")
    multiples: dict[str, float] = {}
    for name, multiple in wanted.multiples.items():
        measured, factor = _find_name(name, multiple, wanted, measured_names)
        if not factor.is_number:
            raise UsageError(
                f"{wanted.text[:60]!r}: a number expected for {factor}, for code is run with numbers"
            )
        multiples[measured] = multiples.get(measured, 0.0) + float(factor)
    return multiples


def _find_name(
    name: str, multiple: Any, wanted: WantedObjective, measured_names: tuple[str, ...]
) -> tuple[str, Any]:
    """Return the name under which an objective is measured, and its multiple there."""
    if name == "reward":
        times = sympy.cancel(multiple / (A if multiple.has(A) else R))
        if not times.is_number:
            raise UsageError(f"E[{multiple}] is not measured, only multiples of E[R]")
        return "policy-gradient", times
    has_batches = any("/N" in x for x in measured_names)
    if name in wanted.losses:
        loss = wanted.losses[name] if has_batches else wanted.losses[name].xreplace({N: T})
        measured, factor = _list_measured_means(measured_names).get(
            _split_number(loss)[1], (name, sympy.S.One)
        )
        return measured, multiple * _split_number(loss)[0] / factor
    if name.endswith("/N") and not has_batches:  # of one sample, the tokens of the batch are its own
        name = name.removesuffix("N") + "T"
    return name, multiple


def _split_number(loss: Any) -> tuple[Any, Any]:
    """Return a number and the rest of a loss, in which A is R: code has one or the other."""
    factor, rest = loss.xreplace({A: R}).as_coeff_Mul()
    return factor, rest


@lru_cache(maxsize=8)
def _list_measured_means(names: tuple[str, ...]) -> Mapping[Any, tuple[str, Any]]:
    """Return loss -> the name of its E_mu[..] among these, and the multiple that it is."""
    means: dict[Any, tuple[str, Any]] = {}
    for name in names:
        if name.startswith("E_mu["):
            parts = read_objective(name)
            if len(parts.losses) == 1 == len(parts.multiples):
                [(part, loss)] = parts.losses.items()
                means.setdefault(_split_number(loss)[1], (name, parts.multiples[part]))
    return means


def build_gradient(
    multiples: Mapping[str, float], wanted: WantedObjective, world: MeasuredWorld, named: Mapping[str, Array]
) -> Array:
    """Return the gradient of an objective on a world; named: the gradients of the names that it has."""
    total = np.zeros_like(next(iter(named.values())))
    for name, multiple in multiples.items():
        if name not in named and name not in wanted.losses:
            raise UsageError(f"{wanted.text[:60]!r}: {name} is not measured here")
        gradient = named[name] if name in named else _differentiate_mean(wanted.losses[name], name, world)
        total = total + multiple * gradient
    return np.asarray(total)


def _differentiate_mean(loss: Any, name: str, world: MeasuredWorld) -> Array:
    """Return E_mu[sum_t h_t s_t] of grad L = sum_t h_t s_t, by the loss grammar."""
    theta = world.theta
    moved = Moved.build_at(world, theta)
    of_sequence = np.broadcast_to(world.rewards[:, None], moved.p.shape)
    lengths = np.broadcast_to(world.lengths[:, None], moved.p.shape).astype(float)
    values = {
        "log_q": moved.q[0].real, "log_p": moved.p, "log_mu": moved.mu, "R": of_sequence, "A": of_sequence,
        "log_old": moved.pick(world.compute_old(theta)), "T": lengths, "N": lengths,
    }  # fmt: skip
    try:
        h = evaluate(sympy.diff(loss, log_q), values, np)
    except UsageError as error:
        raise UsageError(f"{name[:60]} is not measured: {error}") from None
    slopes = np.where(world.is_drawn, moved.q.imag / STEP * h, 0).sum(-1)
    gradient = (slopes * moved.masses).sum(-1).reshape(theta.shape)
    return world.carry_over({name: gradient})[name]
