"""`klsym.measure`: a loss is run on every group of samples of some small worlds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.measure.binding import choose_library, load_network
from klsym.measure.field import Run, Turning, measure_turning
from klsym.measure.fit import Basis, Fit
from klsym.measure.libraries import Unmeasured, load_library
from klsym.measure.measurement import Measurement, Setting
from klsym.measure.objectives import NamedGradients
from klsym.measure.pasted import adapt_worlds, bind_code
from klsym.measure.world import Array, MeasuredWorld
from klsym.worlds.words import WordTree, draw_tables

SAMPLINGS = ("on-policy", "off-policy", "truncated")
OTHER_SHAPE = 2, 3  # words and steps of the worlds on which a fit is confirmed: three lengths
OTHER_WORLDS = 2
MOST_GROUPS = 200_000
SINGLE_RUNS = 3  # groups that are run one by one, to see whether a loss is random
FIRST_NAMES = (
    "policy-gradient", "reverse-kl", "forward-kl", "entropy", "next-token-reverse-kl",
    "next-token-forward-kl", "next-token-entropy", "token-policy-gradient", "log-likelihood", "sampler-kl",
    "sampler-reverse-kl", "length", "inverse-length",
)  # fmt: skip


def measure(
    loss: Any,
    *,
    sampling: str | None = None,
    group: int = 1,
    words: int = 3,
    length: int = 2,
    prompts: int = 1,
    third: bool = False,
    fixed_length: bool = False,
    tool: bool = False,
    map: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | None = None,
    expect: str | None = None,
    vs: Any = None,
    model: Any = None,
    binary: bool = False,
    near: float | None = 0.5,
    worlds: int = 4,
    framework: str | None = None,
    seconds: float = 60.0,
) -> Measurement:
    """Run a loss on every group of samples of small worlds, and name the objective of its expected gradient.

    g = E_mu[grad L], the sum over all groups of samples of their probability times the code's own gradient,
    is compared with the gradients of named objectives in the logits of q.  No code is read, nothing sampled.

    Parameters
    ----------
    loss : callable or str
        A function of one `Batch`, or of arguments that are bound by name; "FILE.py:FUNC", or statements as
        text, whose free names are bound: without a mask no word ends a sequence; without sums over tokens,
        either, it is of one token; if rewards are averaged a group has 3 samples at least.  It is run.
    sampling : str, optional
        "on-policy", samples from q, the default; "off-policy", from mu, the default of statements with an
        older policy; "truncated", from q without its least likely word after each prefix.
    group : int
        Samples of one call of the loss, drawn independently after one prompt.
    words, length : int
        The size V of the vocabulary, in which word 0 ends a sequence, and the maximal length T of a sequence.
        All sequences are run.
    prompts : int
        The number of prompts, which have unequal weights.
    third, fixed_length, tool : bool
        The ratio of the loss is taken to a third policy; no word ends a sequence, for code without a mask;
        the last word calls a tool, and the environment draws the next word, whose mask is 0.
    map : mapping of str to str, optional
        Name of an argument -> field of the batch, or word of the loss grammar.
    set : mapping of str to object, optional
        Values of arguments.
    expect : str, optional
        An objective such as "-E[R] + 0.04*reverse-kl"; the answer then has `expected`.
    vs : callable or str, optional
        Another loss; `versus` is the variance of the gradient relative to that of this loss.
    model : module, callable or str, optional
        A network of PyTorch, or a function that returns one: it is the policy, all gradients are taken in the
        parameters that it trains, and a batch has it as `model`.
    binary : bool
        Rewards are 0 and 1.
    near : float or None
        log p and log mu are log q plus near times noise; None: independent of q.
    worlds : int
        Random worlds of this shape; a fit is confirmed on two of another shape.
    framework : str, optional
        "torch" or "jax"; by default what the code uses.
    seconds : float
        The CPU time for all runs.

    Returns
    -------
    Measurement
        With `multiples` of named objectives, `has_objective` and `kind`.

    Raises
    ------
    UsageError
        Options that do not fit; code that is random, not finite, or no number.

    Examples
    --------
    >>> import pytest; torch = pytest.importorskip("torch")
    >>> def penalty(batch):
    ...     log_ratio = batch.ref_logp - batch.logp
    ...     return ((log_ratio.exp() - 1 - log_ratio) * batch.mask).sum()
    >>> answer = measure(penalty)
    >>> answer.multiples, answer.has_objective
    ({'next-token-forward-kl': 1.0}, False)
    """
    network = None if model is None else load_network(model)
    bound = bind_code(loss, map or {}, set or {})
    setting = Setting(
        sampling or "on-policy", group, words=words, length=length, prompts=prompts, third=third,
        fixed_length=fixed_length, tool=tool, parameters=0 if network is None else network.size,
    )  # fmt: skip
    setting, binary, assumed = adapt_worlds(bound.shape, setting, binary, is_typed=sampling is not None)
    _check_setting(setting, worlds, near, seconds)
    function, notes = bound.function, [*bound.describe(setting.sampling), *assumed]
    library = load_library(framework or choose_library(function), network)
    plan = _Plan(setting, binary, near, count=worlds, network=network)
    with library.in_float64():
        answer = _Measuring(Run(function, library, seconds), plan, notes).measure()
        if expect is not None:
            answer = replace(answer, expected=answer.compare(expect))
        if vs is not None:
            second = bind_code(vs, map or {}, set or {}).function
            answer = replace(answer, versus=_compare_variances(answer, Run(second, library, seconds), plan))
    return answer


def _compare_variances(answer: Measurement, other: Run, plan: _Plan) -> float | None:
    """Return the ratio of the variances on the first world; None where it is not known, or infinite."""
    world = plan.build_worlds()[0]
    in_order = other.depends_on_order(world)
    references = []
    for seed in (0, 1):
        other.library.seed(seed)
        references.append(measure_variance(other, world, in_order))
    if references[0] != references[1]:
        raise Unmeasured("two runs of the loss to compare with differ: is it random, or does it keep state?")
    reference = references[0]
    is_known = answer.variance is not None and answer.gradients[0].shape == world.parameters.shape
    return answer.variance / reference if is_known and answer.variance is not None and reference > 0 else None


def _check_setting(setting: Setting, worlds: int, near: float | None, seconds: float) -> None:
    if setting.sampling not in SAMPLINGS:
        raise UsageError(f"sampling={setting.sampling!r}: one of {', '.join(SAMPLINGS)} expected")
    limits = {"group": (1, 8), "words": (2, 12), "length": (1, 8), "prompts": (1, setting.words)}
    for name, (low, high) in limits.items():
        value = getattr(setting, name)
        if not isinstance(value, int) or not low <= value <= high:
            raise UsageError(f"{name}={value!r}: a whole number from {low} to {high} expected")
    if setting.tool and (setting.words < 3 or setting.length < 2):
        raise UsageError(
            "tool: 3 words and a length of 2 expected: one ends, one calls the tool, one is left"
        )
    if not isinstance(worlds, int) or not 2 <= worlds <= 50:
        raise UsageError(f"worlds={worlds!r}: a whole number from 2 to 50 expected")
    if not seconds > 0:
        raise UsageError(f"seconds={seconds!r}: a positive number expected")
    if near is not None and not (isinstance(near, int | float) and math.isfinite(near)):
        raise UsageError(f"near={near!r}: a number, or None, expected")


@dataclass(frozen=True)
class _Plan:
    """The worlds on which a loss is run."""

    setting: Setting
    binary: bool = False
    near: float | None = 0.5
    count: int = 4
    network: Any = None

    def build_worlds(self) -> list[MeasuredWorld]:
        """Return the worlds of the shape that was asked for."""
        return self._build(self.setting.words, self.setting.length, self.count)

    @property
    def other_shape(self) -> tuple[int, int]:
        """Words and steps of the worlds on which a fit is confirmed; where all lengths are 1, they stay."""
        if self.setting.tool:  # of 2 words one ends and one calls the tool: nothing would be left
            return 3, 2 if self.setting.length == 3 else 3
        if self.network is not None:  # it has its words
            return self.setting.words, 3 if self.setting.length < 3 else 2
        return OTHER_SHAPE if self.setting.length > 1 else (self.setting.words + 1, 1)

    def build_other_worlds(self) -> list[MeasuredWorld]:
        """Return those on which a fit is confirmed."""
        return self._build(*self.other_shape, OTHER_WORLDS)

    def _build(self, words: int, length: int, count: int) -> list[MeasuredWorld]:
        prompts = min(self.setting.prompts, words)
        end = None if self.setting.fixed_length else 0
        tool = words - 1 if self.setting.tool else None
        tree = WordTree(words, length, end, prompts=tuple(1.0 + k for k in range(prompts)), tool=tool)
        groups = prompts * math.comb(len(tree.sequences) + self.setting.group - 1, self.setting.group)
        if groups > MOST_GROUPS:
            raise UsageError(f"{groups} groups of samples: a smaller group, fewer words or a shorter length")
        tables = [draw_tables(tree, seed, near=self.near, binary=self.binary) for seed in range(count)]
        setting = self.setting
        worlds = [
            MeasuredWorld(tree, t, setting.sampling, setting.group, third=setting.third) for t in tables
        ]
        return (
            worlds if self.network is None else [w.use_network(self.network, k) for k, w in enumerate(worlds)]
        )


@dataclass(frozen=True)
class _Family:
    """Worlds of one shape, with the expected gradient of the loss on each."""

    worlds: Sequence[MeasuredWorld]
    gradients: Sequence[Array]

    @cached_property
    def named(self) -> list[dict[str, Array]]:
        """The gradients of the named objectives on each world."""
        return [world.carry_over(NamedGradients(world, world.theta).gradients) for world in self.worlds]

    @cached_property
    def basis(self) -> Basis:
        columns = [np.concatenate([named[name].ravel() for named in self.named]) for name in self.named[0]]
        return Basis.build_from([*self.named[0]], np.array(columns).T)

    @cached_property
    def whole(self) -> Array:
        """The gradients of all worlds, one after the other."""
        return np.concatenate([g.ravel() for g in self.gradients])

    def fit_again(self, fit: Fit, basis: Basis) -> Fit | None:
        """Return the fit of the same names on these worlds; an alias may stand for a name."""
        names = []
        for name in fit.multiples:
            aliases = [n for n in (name, *basis.aliases.get(name, ())) if n in self.basis.names]
            if not aliases:
                return None
            names.append(aliases[0])
        return self.basis.fit_names(self.whole, names)


class _Measuring:
    """One measurement: on worlds of the shape that was asked for, and of another one with three lengths.

    With lengths 1 and 2 alone any weight by length is a mix of E_q[1] and E_q[T], so that fits, curls and
    zeros there may be accidents.
    """

    def __init__(self, run: Run, plan: _Plan, notes: Sequence[str]) -> None:
        self.run, self.plan, self.notes = run, plan, [*notes]
        self.in_order = False

    def measure(self) -> Measurement:
        worlds = self.plan.build_worlds()
        self._describe_group(worlds[0])
        family = _Family(worlds, self._compute_twice(worlds))
        elsewhere = self._run_elsewhere()
        zero = self._is_zero(family)
        if zero and elsewhere is not None and not self._is_zero(elsewhere):
            words, steps = self.plan.other_shape
            self.notes.append(
                f"0 on worlds of this shape: what follows is of {words} words and {steps} steps"
            )
            zero, family, elsewhere = False, elsewhere, None
        turning = None if zero else self._measure_turning(family, elsewhere)
        is_float32 = turning is not None and turning.is_float32
        if is_float32:
            self.notes.append("the code computes in float32: fits are good to 1e-5 only")
        tolerance = 1e-5 if is_float32 else 1e-7
        fits = [] if zero else self._find_fits(family, elsewhere, tolerance)
        runs, inside = self.run.count, self._describe_bounds(family) if fits else ""
        self.notes += filter(None, [inside, *(() if fits else self._describe_unnamed(family, zero))])
        return Measurement(
            setting=self.plan.setting,
            kind="zero" if turning is None else _choose_kind(fits, turning),
            multiples=_round(fits[0].multiples) if fits else {},
            residual=fits[0].residual if fits else None,
            turning=turning,
            notes=tuple(self.notes),
            runs=runs,
            is_inside=bool(inside),
            tolerance=tolerance,
            gradients=tuple(family.gradients),
            named=tuple(family.named),
            worlds=tuple(family.worlds),
            alternatives=tuple(fits[1:6]),
            cosines={} if fits or zero else family.basis.list_cosines(family.whole),
            variance=None if zero else measure_variance(self.run, family.worlds[0], self.in_order),
        )

    def _describe_unnamed(self, family: _Family, is_zero: bool) -> tuple[str, ...]:
        """Say what is known of a loss without a named objective."""
        if is_zero:
            return ("no path leads from the policy to the loss, or all that does cancels",)
        return self._describe_dropped(family), family.basis.describe_remainder(family.whole)

    def _describe_group(self, world: MeasuredWorld) -> None:
        """Note how the samples of a group meet in the loss."""
        self.in_order = self.run.depends_on_order(world)
        if self.in_order:
            self.notes.append("the loss depends on the order of the samples of a group: all orders were run")
        if self.plan.setting.group > 1 and not self.run.is_sum_over_samples(world):
            self.notes.append("the loss of a group compares its samples: it is not a sum of their losses")

    def _describe_bounds(self, family: _Family) -> str:
        """Say which bounds of the code no value crossed: the names are those inside them."""
        with suppress(Unmeasured), self.run.library.watch_bounds() as watch:
            for world in family.worlds:
                for chosen, _ in world.list_groups(world.theta):
                    self.run.run_group(world, world.parameters, chosen)
            return str(watch.describe())
        return ""  # out of time

    def _describe_dropped(self, family: _Family) -> str:
        """Say at which tokens the gradient is 0."""
        if self.plan.network is not None:
            return ""
        with suppress(Unmeasured):
            return self.run.describe_tokens_without_gradient(family.worlds)
        return ""

    def _compute_all(self, worlds: Sequence[MeasuredWorld]) -> list[Array]:
        return [self.run.compute_gradient(w, w.parameters, self.in_order)[1] for w in worlds]

    def _compute_twice(self, worlds: Sequence[MeasuredWorld]) -> list[Array]:
        """Return the expected gradients; refuse a loss that is random or keeps state."""
        results = []
        some = [chosen for chosen, _ in worlds[0].list_groups(worlds[0].theta)][::3][:SINGLE_RUNS]
        for seed in (0, 1):
            self.run.library.seed(seed)
            gradients = self._compute_all(worlds)
            # group by group, as what JAX compiles draws its numbers once
            single = [self.run.run_group(worlds[0], worlds[0].parameters, chosen)[1] for chosen in some]
            results.append([*gradients, *single])
        gaps = [float(np.abs(a - b).max()) for a, b in zip(*results, strict=True)]
        if any(gaps):
            raise Unmeasured(
                f"two runs of the loss differ (gradients by {max(gaps):.1g}): is it random (dropout, a"
                " permutation), or does it keep state, such as a step or a running mean?"
            )
        return results[0][: len(worlds)]

    def _run_elsewhere(self) -> _Family | None:
        """Return what the loss does on worlds of another shape; None if it does not run there."""
        worlds = self.plan.build_other_worlds()
        try:
            return _Family(worlds, self._compute_all(worlds))
        except Unmeasured:
            raise
        except Exception as error:
            self.notes.append(f"nothing is confirmed on worlds of another shape: {describe(error)}")
            return None

    def _is_zero(self, family: _Family) -> bool:
        """Is the expected gradient 0 beside what it is under other weights of the samples?"""
        world = family.worlds[0]
        factors = np.linspace(0.2, 1.8, len(world.tokens))
        _, reweighted = self.run.compute_gradient(world, world.parameters, self.in_order, factors)
        return bool(np.abs(family.whole).max() < max(1e-12, 1e-7 * float(np.abs(reweighted).max())))

    def _measure_turning(self, family: _Family, other: _Family | None) -> Turning:
        """Return how the gradient turns; on the other shape, if it turns there alone."""
        turning = measure_turning(self.run, family.worlds[0], family.gradients[0], self.in_order)
        if turning.verdict != "objective" or other is None:
            return turning
        longer = measure_turning(self.run, other.worlds[0], other.gradients[0], self.in_order)
        return longer if longer.verdict == "no-objective" else turning

    def _find_fits(self, family: _Family, other: _Family | None, tolerance: float) -> list[Fit]:
        """Return the fits that hold on worlds of both shapes; their multiples may depend on the shape."""

        def is_fit(fit: Fit) -> bool:
            if fit.residual >= tolerance:
                return False
            again = None if other is None else other.fit_again(fit, family.basis)
            return other is None or (again is not None and again.residual < tolerance)

        fits = family.basis.find_fits(family.whole, is_fit, FIRST_NAMES)
        again = other.fit_again(fits[0], family.basis) if fits and other is not None else None
        if again is not None and not _has_same_multiples(fits[0], again):
            shown = ", ".join(f"{x:.7g}" for x in again.multiples.values())
            words, steps = self.plan.other_shape
            self.notes.append(
                f"the multiples depend on the shape: {shown} for {words} words and {steps} steps"
            )
        return fits


def _has_same_multiples(fit: Fit, other: Fit) -> bool:
    pairs = zip(fit.multiples.values(), other.multiples.values(), strict=True)
    return all(abs(a - b) < 1e-5 * max(abs(a), abs(b)) for a, b in pairs)


def _choose_kind(fits: Sequence[Fit], turning: Turning) -> str:
    if fits:
        return "named"
    if turning.verdict == "objective" and turning.own_mean < turning.noise:
        return "own-mean"
    return turning.verdict


def _round(multiples: Mapping[str, float]) -> dict[str, float]:
    """Return multiples with the digits that a fit has."""
    return {name: float(f"{value:.7g}") for name, value in multiples.items()}


def measure_variance(run: Run, world: MeasuredWorld, in_order: bool) -> float:
    """Return the variance of the gradient of one group, E|g|^2 - |E g|^2, summed over the parameters."""
    groups = [*world.list_groups(world.theta, in_order)]
    masses = np.array([mass for _, mass in groups])
    slopes = run.list_gradients(world, [chosen for chosen, _ in groups]).reshape(len(groups), -1)
    return float(masses @ (slopes**2).sum(-1) - ((masses @ slopes) ** 2).sum())


def describe(error: Exception) -> str:
    """Return an error of the user's code in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}"
