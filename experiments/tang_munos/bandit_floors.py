"""Where constant steps stall: the linear-noise value of KL(q||target) at n samples an update.

Near its target an estimate moves the logits by step (-H d + noise), d the displacement.  The covariance
of d then satisfies C = (1 - step H) C (1 - step H)^T + step^2 S, and KL(q||target) is tr(F C)/2 on
average, F = diag q - q q^T.  With R_i - mean of the others for the reward, xi = R - E_q R, g = E_q[xi s]:

    vanilla        at pi*      each sample has the weight -beta KL(pi*||p) - mean of the other xi
                   H = beta F,   S = beta^2 KL^2 F/n + V
    k3 loss        at pi*_rev  each sample has the weight -(mean of the other xi)
                   H = beta (diag p + q q^T - p q^T - q p^T),   S = V
    leave-one-out  at pi*      every weight is zero: S = 0

    V = (Var(R) F + g g^T)/(n (n-1)).

So leave-one-out has no floor at any n: its noise dies out at pi*, where R - beta k1 is constant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klsym.errors import UsageError
from klsym.experiments.softmax import Array, kl, sample_sizes
from klsym.experiments.tang_munos.bandit_runs import Problem

STILL = 1e-12  # rates below it are rounding


def floors(name: str, problem: Problem, ns: Sequence[int]) -> Array:
    """The linear-noise value of KL(q||target) for each n and bandit, in nats, shape (N, repeats).

    >>> problem = Problem(repeats=2, arms=3)
    >>> floors("leave-one-out", problem, ns=[4]).tolist()
    [[0.0, 0.0]]
    >>> few, many = floors("vanilla", problem, ns=[4, 16])
    >>> bool((few > 4 * many).all())
    True

    The k1 loss has no target to stall at.
    Raises UsageError: the k1 loss or an unknown estimate, n < 2, a problem without rewards.
    """
    sizes = np.array(sample_sizes(ns, 2), float)[:, None]
    if name not in ("vanilla", "leave-one-out", "k3 loss") or not problem.rewarded:
        raise UsageError(f"no floor for {name!r}: vanilla, leave-one-out or k3 loss, with rewards")
    if name == "leave-one-out":
        return np.zeros((len(sizes), problem.repeats))
    bandits = problem.bandits()
    target = problem.targets(bandits)["optimum" if name == "vanilla" else "reversed"]
    q, p = np.exp(target), np.exp(bandits.log_p)
    xi = bandits.rewards - (q * bandits.rewards).sum(-1, keepdims=True)
    fisher, g = _diagonal(q) - _outer(q, q), q * xi
    v = _column((q * xi**2).sum(-1)) * fisher + _outer(g, g)
    if name == "vanilla":
        constant = _column(problem.beta * kl(target, bandits.log_p)) ** 2 * fisher
        first, second = _stationary(fisher, problem.beta * fisher, [constant, v], problem.step)
        return first / sizes + second / (sizes * (sizes - 1))
    hessian = problem.beta * (_diagonal(p) + _outer(q, q) - _outer(p, q) - _outer(q, p))
    (only,) = _stationary(fisher, hessian, [v], problem.step)
    return only / (sizes * (sizes - 1))


def _stationary(fisher: Array, hessian: Array, noises: list[Array], step: float) -> list[Array]:
    """tr(F C)/2 with C = (1 - step H) C (1 - step H)^T + step^2 S for each S, in the eigenvectors of H."""
    rates, vectors = np.linalg.eigh(step * hessian)
    transposed = np.swapaxes(vectors, -1, -2)
    pairs = rates[..., :, None] + rates[..., None, :] - rates[..., :, None] * rates[..., None, :]
    # All logits together never move: their rate is zero, and so is their noise.
    moving = (rates > STILL)[..., :, None] & (rates > STILL)[..., None, :]
    weights = np.divide(transposed @ fisher @ vectors, pairs, out=np.zeros_like(pairs), where=moving)
    found = []
    for noise in noises:
        rotated = step**2 * transposed @ noise @ vectors
        found.append(np.asarray((weights * rotated).sum((-1, -2)) / 2))
    return found


def _outer(a: Array, b: Array) -> Array:
    return a[..., :, None] * b[..., None, :]


def _diagonal(a: Array) -> Array:
    return a[..., :, None] * np.eye(a.shape[-1])


def _column(a: Array) -> Array:
    return a[..., None, None]
