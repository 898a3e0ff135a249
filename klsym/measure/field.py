"""The expected gradient of a loss: the sum over all groups of samples, each with its mass.

    g = E_mu[grad L] = sum_batches mu(batch) grad L(batch)

and checks that need a run of the code: whether it is random, depends on the order of the samples, is
finite, and how its gradient changes with theta.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations
from typing import Any

import numpy as np

from klsym.errors import spell_option
from klsym.measure.batch import Batch
from klsym.measure.libraries import Groups, Library, Loss, Unmeasured
from klsym.measure.world import Array, MeasuredWorld, normalise_logits

STEP = 1e-5
ROUGH = 1e-10  # a third difference above this is that of code that computes in float32
ORDERS = 6  # groups whose orders are compared
DIRECTIONS = 12  # in which the gradient in a network's parameters is looked at


@dataclass
class Run:
    """Runs a loss, counts how often, and ends when the time is over.

    seconds: the CPU time that all runs together may take, whatever else the machine does.
    """

    loss: Loss
    library: Library
    seconds: float = 60.0
    count: int = 0
    start: float = field(default_factory=time.process_time)

    def _run(self, batch: Batch) -> Any:
        self._refuse_late()
        return self.loss(batch)

    def compute_gradient(
        self, world: MeasuredWorld, parameters: Array, in_order: bool = False, factors: Array | None = None
    ) -> tuple[float, Array]:
        """Return the mean of the loss, and of its gradient, over all groups.

        factors: by which the masses of the samples are multiplied.
        Raises Unmeasured: no scalar, not finite, out of time.
        """
        groups = [*world.list_groups(world.compute_logits(parameters), in_order)]
        if factors is not None:
            groups = [(chosen, mass * float(factors[list(chosen)].prod())) for chosen, mass in groups]
        self._refuse_late()
        self.count += len(groups)
        tensors = self.library.build_tensors(world, parameters)
        batches, masses = [batch for batch, _ in groups], [mass for _, mass in groups]
        total, gradient = self.library.sum_losses(self._run, tensors, batches, masses)
        if not (np.isfinite(total) and np.isfinite(gradient).all()):
            for chosen, _ in groups:
                self.run_group(world, parameters, chosen)
            raise Unmeasured("the mean of the loss over all samples is not finite")
        return total, np.asarray(gradient, dtype=float)

    def _refuse_late(self) -> None:
        if time.process_time() - self.start > self.seconds:
            raise Unmeasured(
                f"{self.count} runs took more than {self.seconds:g} s of CPU time: a smaller group, fewer"
                f" words or a shorter length takes fewer; {spell_option('time_limit')} gives it longer"
            )

    def run_group(
        self, world: MeasuredWorld, parameters: Array, chosen: Sequence[int]
    ) -> tuple[float, Array]:
        """Return the loss of one group of samples and its gradient in the parameters."""
        self._refuse_late()
        self.count += 1

        tensors = self.library.build_tensors(world, parameters)
        value, slope = self.library.sum_losses(self._run, tensors, [chosen], [1.0])
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            samples = ", ".join(world.describe(i) for i in chosen)
            what = "the loss" if not np.isfinite(value) else "its gradient"
            raise Unmeasured(f"{what} is not finite where the samples are the words {samples} (0 ends)")
        return value, np.asarray(slope, dtype=float)

    def list_gradients(self, world: MeasuredWorld, groups: Groups) -> Array:
        """Return the gradient of each group, with a first axis."""
        self._refuse_late()
        self.count += len(groups)
        tensors = self.library.build_tensors(world, world.parameters)
        return self.library.list_gradients(self._run, tensors, groups).gradient

    def describe_tokens_without_gradient(self, worlds: Sequence[MeasuredWorld]) -> str:
        """Run all groups, and name the tokens whose gradient is 0; "" if there are none."""
        parts = []
        for world in worlds:
            groups = [chosen for chosen, _ in world.list_groups(world.theta)]
            tensors = self.library.build_tensors(world, world.parameters)
            slopes = self.library.find_token_slopes(self._run, tensors, groups)
            if slopes is None:
                return ""
            places = world.rows, world.tokens
            log_ratio = normalise_logits(world.theta)[places] - world.compute_old(world.theta)[places]
            signs = np.broadcast_to(np.sign(world.rewards)[:, None], world.tokens.shape)
            for chosen, slope in zip(map(list, groups), slopes, strict=True):
                drawn = world.is_drawn[chosen]
                parts.append((log_ratio[chosen][drawn], signs[chosen][drawn], np.abs(slope)[drawn]))
        ratios, signs, sizes = (np.concatenate(column) for column in zip(*parts, strict=True))
        return describe_dropped(np.exp(ratios), signs, sizes < 1e-14 * sizes.max())

    def depends_on_order(self, world: MeasuredWorld) -> bool:
        """Does the loss of a group depend on the order of its samples?"""
        if world.group == 1:
            return False
        groups = [chosen for chosen, _ in world.list_groups(world.theta) if len(set(chosen)) > 1]
        for chosen in groups[:: max(1, len(groups) // ORDERS)]:
            value, slope = self.run_group(world, world.parameters, chosen)
            for other in islice(permutations(chosen), 1, ORDERS):
                other_value, other_slope = self.run_group(world, world.parameters, other)
                gap = max(abs(value - other_value), float(np.abs(slope - other_slope).max()))
                if gap > 1e-6 * (1 + abs(value) + float(np.abs(slope).max())):
                    return True
        return False

    def is_sum_over_samples(self, world: MeasuredWorld) -> bool:
        """Is the loss of a group a sum of losses of its samples: L(a, b) + L(c, d) = L(a, d) + L(c, b)?"""
        size, rest = len(world.tree.sequences), [0] * (world.group - 2)
        a, b, c, d = (k % size for k in (0, 2, size - 1, 1))
        pairs = [(a, b), (c, d), (a, d), (c, b)]
        values = [self.run_group(world, world.parameters, [*pair, *rest]) for pair in pairs]
        (v1, g1), (v2, g2), (v3, g3), (v4, g4) = values
        gap = max(abs(v1 + v2 - v3 - v4), float(np.abs(g1 + g2 - g3 - g4).max()))
        size_of = max(1e-300, *(abs(v) for v, _ in values), *(float(np.abs(g).max()) for _, g in values))
        return gap < 1e-6 * size_of


# ---------------------------------------------------------------------------- tokens without a gradient
def describe_dropped(ratios: Array, signs: Array, is_dropped: Array) -> str:
    """Name the tokens whose gradient is 0, by the sign of the reward and by the ratio; "" if there are none.

    >>> ratios, signs = np.array([0.7, 1.1, 1.4, 0.7, 1.4]), np.array([1, 1, 1, -1, -1])
    >>> describe_dropped(ratios, signs, np.array([False, False, True, False, False]))
    'no gradient at 20% of the tokens of these worlds: A > 0 and rho >= 1.4 (there is one up to 1.1)'
    >>> describe_dropped(ratios, signs, np.array([False, True, False, False, False]))
    'no gradient at 20% of the tokens of these worlds'
    """
    if not is_dropped.any() or is_dropped.all():
        return ""
    start = f"no gradient at {is_dropped.mean():.0%} of the tokens of these worlds"
    regions = []
    for sign in (1, -1):
        lost, left = ratios[(signs == sign) & is_dropped], ratios[(signs == sign) & ~is_dropped]
        if not lost.size:
            continue
        where = f"A {'>' if sign > 0 else '<'} 0"
        if not left.size:
            regions.append(where)
        elif lost.min() > left.max():
            regions.append(f"{where} and rho >= {lost.min():.3g} (there is one up to {left.max():.3g})")
        elif lost.max() < left.min():
            regions.append(f"{where} and rho <= {lost.max():.3g} (there is one from {left.min():.3g})")
        else:
            return start
    return f"{start}: {'; or '.join(regions)}"


# ---------------------------------------------------------------------------- how the gradient turns
@dataclass(frozen=True)
class Turning:
    """How an expected gradient g changes with theta, by central differences.

    curl: max |J - J^T| / max |J| of its Jacobian J.  roughness: a third difference, relative to g: 1e-15 of
    smooth code in float64, 1e-7 in float32.  bend: |g+ + g- - 2 g|/|g+ - g-|, near 0 unless a cut lies
    within the step.  own_mean: the largest difference of g to the gradient of the mean loss, relative to g.
    step: of the differences.
    """

    curl: float
    roughness: float
    bend: float
    own_mean: float
    step: float

    @property
    def is_float32(self) -> bool:
        return self.roughness > ROUGH

    @property
    def noise(self) -> float:
        """Below this a difference says nothing."""
        if not self.is_float32:
            return 1e-6
        return max(1e-6, 10 * (self.roughness / self.step + self.step**2))

    @property
    def verdict(self) -> str:
        """Has the expected gradient an objective: "objective", "no-objective" or "undecided"?"""
        low, high = (1e-8, 1e-6) if not self.is_float32 else (self.noise, 3 * self.noise)
        if self.curl < low:
            return "objective"
        return "no-objective" if self.curl > high and self.bend < 0.1 else "undecided"


def measure_turning(run: Run, world: MeasuredWorld, gradient: Array, in_order: bool) -> Turning:
    """Return how the expected gradient turns at the parameters of a world.

    Of many parameters a plane of random directions U is looked at: U J U^T is symmetric for all U where J is.
    """
    start, size = world.parameters, max(float(np.abs(gradient).max()), 1e-300)
    generator = np.random.default_rng(5)
    direction = generator.normal(size=start.shape)
    along = [run.compute_gradient(world, start + k * STEP * direction, in_order)[1] for k in range(4)]
    third = along[0] - 3 * along[1] + 3 * along[2] - along[3]
    roughness = float(np.abs(third).max()) / size
    step = max(STEP, min(0.02, roughness ** (1 / 3))) if roughness > ROUGH else STEP
    directions = _choose_directions(start.size, world.network is not None, generator)
    jacobian, bends, slopes = [], [], []
    for towards in directions:
        move = step * towards.reshape(start.shape)
        up, g_up = run.compute_gradient(world, start + move, in_order)
        down, g_down = run.compute_gradient(world, start - move, in_order)
        jacobian.append(directions @ (g_up - g_down).ravel() / (2 * step))
        bends.append(directions @ (g_up + g_down - 2 * gradient).ravel())
        slopes.append((up - down) / (2 * step))
    J = np.array(jacobian)
    largest = max(float(np.abs(J).max()), 1e-300)
    return Turning(
        curl=float(np.abs(J - J.T).max()) / largest,
        roughness=roughness,
        bend=float(np.abs(bends).max()) / (2 * step * largest),
        own_mean=float(np.abs(np.array(slopes) - directions @ gradient.ravel()).max()) / size,
        step=step,
    )


def _choose_directions(size: int, is_network: bool, generator: np.random.Generator) -> Array:
    """Return orthogonal directions, [k, D]: all coordinates of logits, some of a network's parameters."""
    if not is_network or size <= DIRECTIONS:
        return np.eye(size)
    return np.asarray(np.linalg.qr(generator.normal(size=(size, DIRECTIONS)))[0].T)
