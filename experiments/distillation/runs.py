"""Set-ups of the distillation experiment, and descents on the sequence KL within one.

Runs of one set-up share their starts, and their uniforms too: estimators and step sizes are compared under
common random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.experiments.distillation.models import (
    ESTIMATORS,
    Space,
    estimate,
    exact,
    sequence_kl,
    token_field,
)
from klsym.experiments.softmax import (
    check_runs,
    is_count,
    is_number,
    log_softmax,
    positive_numbers,
    refuse_unless,
    snap,
    walk,
)

EXACT: dict[str, Callable[[Space, Any, Any], Any]] = {  # expected updates, n = infinity
    "exact gradient": lambda space, log_q, log_p: exact(space, log_q, log_p)[1],
    "expected token vanilla": lambda space, log_q, log_p: token_field(space, log_q, log_p, "k2"),
    "expected token k3": lambda space, log_q, log_p: token_field(space, log_q, log_p, "k3"),
}
FIELDS = (*ESTIMATORS, *EXACT)
DECAY, SQUARE_DECAY, TINY = 0.9, 0.999, 1e-8  # Kingma & Ba 2015, Adam, algorithm 1


@dataclass(frozen=True)
class Setup:
    """One set-up: the sequences, the start, and the budget of an estimate.

    Logits are spread * N(0, 1), plus `stop` for stop; the policy's are its own, or with `near` those of the
    reference plus spread * N(0, 1), as in Tang & Munos 2025, appendix C.

    >>> Setup("short", max_length=5).within_reach, Setup("all", student_memory=2).within_reach
    (False, True)

    reference, policy: the two spreads, nats.  n: sequences an estimate.  iterations: updates.
    adam: whether updates are Adam's.  The other numbers: as in Space.
    Raises UsageError: numbers out of range; near without a policy that sees as much as the reference.
    """

    name: str
    vocabulary: int = 4
    memory: int = 2
    student_memory: int = 1
    max_length: int = 12
    stop: float = -2.0
    reference: float = 3.0
    policy: float = 1.0
    near: bool = False
    n: int = 4
    iterations: int = 60
    adam: bool = False

    def __post_init__(self) -> None:
        numbers = (self.stop, self.reference, self.policy)
        refuse_unless(all(is_number(x) for x in numbers), f"{self.name}: finite numbers expected")
        counts = is_count(self.n, 1) and is_count(self.iterations, 1)
        refuse_unless(counts, f"{self.name}: n {self.n}, iterations {self.iterations}: 1 or more expected")
        same = self.space.student_memory == self.space.memory or not self.near
        refuse_unless(same, f"{self.name}: near needs student_memory equal to memory")

    @property
    def space(self) -> Space:
        """The sequences of this set-up."""
        return Space(self.vocabulary, self.memory, self.student_memory, self.max_length)

    @property
    def within_reach(self) -> bool:
        """Can the policy equal the reference?"""
        return self.student_memory == self.memory


def start(setup: Setup, repeats: int, seed: int) -> tuple[Any, Any]:
    """Random starts: the policy's logits, shape (rows, symbols, repeats), and log p, with states for rows.

    >>> [x.shape for x in start(Setup("base"), repeats=3, seed=0)]
    [(5, 5, 3), (21, 5, 3)]

    Raises UsageError: seed or repeats out of range.
    """
    check_runs(seed, repeats)
    space, stream = setup.space, np.random.default_rng([seed, 0])
    rows = int(space.rows.max()) + 1
    reference = setup.reference * stream.normal(size=(space.states, space.symbols, repeats))
    policy = setup.policy * stream.normal(size=(rows, space.symbols, repeats))
    policy += reference if setup.near else 0.0
    for logits in (reference, policy):
        logits[:, -1] += setup.stop
    return policy, log_softmax(reference, 1)


def uniforms(setup: Setup, repeats: int, stream: np.random.Generator) -> Any:
    """The uniforms of one estimate for each repeat, shape (max_length - 1, n, repeats)."""
    return stream.random((setup.max_length - 1, setup.n, repeats))


def field(space: Space, log_q: Any, log_p: Any, name: str, u: Any) -> Any:
    """The estimate or the expected update of this name; u is unused by the latter."""
    if name in EXACT:
        return EXACT[name](space, log_q, log_p)
    return estimate(space, log_q, log_p, name, u)


def descend(setup: Setup, name: str, steps: Any, repeats: int, seed: int, record: Sequence[int] = ()) -> Any:
    """KL(q||p) over sequences along logits <- logits - step * field, all steps and repeats at once.

    >>> setup = Setup("tiny", vocabulary=2, memory=1, max_length=4, iterations=10)
    >>> found = descend(setup, "exact gradient", [0.1, 0.3], repeats=3, seed=0, record=[0])
    >>> found.shape, bool((found[1] < found[0]).all())
    ((2, 2, 3), True)

    name: one of FIELDS.  steps: step sizes, positive.  record: increasing iterations before whose update the
    KL is taken; it is always taken at the end.  Returns shape (len(record) + 1, len(steps), repeats), nats.
    Raises UsageError: another name, numbers out of range, leave-one-out with n below 2.
    """
    known = ", ".join(FIELDS)
    refuse_unless(name in FIELDS, f"field {name!r}: one of {known} expected")
    check_runs(seed, repeats)
    sizes = positive_numbers("steps", steps)
    space, stream = setup.space, np.random.default_rng([seed, 1])
    policy, reference = start(setup, repeats, seed)
    z, log_p = (np.tile(x, len(steps)) for x in (policy, reference))
    size = np.repeat(sizes, repeats)
    optimiser = Adam() if setup.adam else None

    def update(z: Any) -> Any:
        found = field(space, log_softmax(z, 1), log_p, name, uniforms(setup, repeats, stream))
        return snap(z - size * (optimiser.scaled(found) if optimiser else found))

    path = walk(z, update, (*record, setup.iterations))
    return np.array([sequence_kl(space, log_softmax(x, 1), log_p) for x in path]).reshape(
        -1, len(steps), repeats
    )


class Adam:
    """The running moments of Adam.  Source: Kingma & Ba 2015, algorithm 1."""

    def __init__(self) -> None:
        self.first: Any = 0.0
        self.second: Any = 0.0
        self.count = 0

    def scaled(self, gradient: Any) -> Any:
        """The update for a step of size one."""
        self.count += 1
        self.first = DECAY * self.first + (1 - DECAY) * gradient
        self.second = SQUARE_DECAY * self.second + (1 - SQUARE_DECAY) * gradient**2
        mean = self.first / (1 - DECAY**self.count)
        return mean / (np.sqrt(self.second / (1 - SQUARE_DECAY**self.count)) + TINY)


def noise(setup: Setup, repeats: int, seed: int, draws: int = 50) -> dict[str, tuple[float, float]]:
    """At the start: sqrt(E|g - Eg|^2)/|Eg| of each estimator, and the cosine of Eg and the gradient.

    The means over repeats; the noise from `draws` estimates, its mean Eg exact.
    """
    space = setup.space
    policy, log_p = start(setup, repeats, seed)
    log_q = log_softmax(policy, 1)
    true = exact(space, log_q, log_p)[1]
    token = {f"token {n}": token_field(space, log_q, log_p, k) for n, k in (("k3", "k3"), ("vanilla", "k2"))}
    u = np.random.default_rng([seed, 2]).random((setup.max_length - 1, setup.n, repeats * draws))
    found = {}
    for name in ESTIMATORS:
        mean = token.get(name, true)
        drawn = estimate(space, np.tile(log_q, draws), np.tile(log_p, draws), name, u)
        square = ((drawn - np.tile(mean, draws)) ** 2).sum(axis=(0, 1)).reshape(draws, repeats).mean(axis=0)
        size = np.sqrt((mean**2).sum(axis=(0, 1)))
        cosine = (mean * true).sum(axis=(0, 1)) / size / np.sqrt((true**2).sum(axis=(0, 1)))
        found[name] = float((np.sqrt(square) / size).mean()), float(cosine.mean())
    return found
