"""`klsym.measure_samples`: what a loss minimises for a real model, with intervals and an error rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from klsym.engine.answers.objectives import read_objective
from klsym.errors import UsageError
from klsym.measure.binding import bind_loss, load_made
from klsym.measure.expectation import read_multiples, write_objective
from klsym.measure.measurement import WIDTH, describe_multiples
from klsym.measure.moments import SIMULATED, Moments, SampledFit

SCHEMA = 1
HEADLINES = {
    "zero": "No effect: its gradient is 0 for every sample",
    "undecided": "Not decided: see the notes",
}
LEAST_RATE = 0.001  # of errors: the distribution is simulated, so that less is not known
FEWEST = 100  # groups: of fewer the test says little


@dataclass(frozen=True)
class SampledMeasurement:
    """The answer of `klsym.measure_samples`.

    kind: "zero", "named" or "undecided".  multiples: of the first fit.  fits: all sets of as few names that
    are not rejected.  expected: the test of the objective that was asked for.
    error_rate: the probability that a true combination is rejected, or that an interval misses its multiple.
    """

    kind: str
    fits: tuple[SampledFit, ...]
    groups: int
    group: int
    sampling: str
    error_rate: float
    notes: tuple[str, ...]
    moments: Moments = field(repr=False, compare=False)
    wanted: str | None = None
    expected: SampledFit | None = None

    @property
    def multiples(self) -> dict[str, float]:
        return self.fits[0].multiples if self.fits else {}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        return self.fits[0].list_intervals(self.error_rate) if self.fits else {}

    @property
    def ok(self) -> bool:
        """Is the objective that was asked for not rejected?"""
        return self.expected is None or self.expected.p_value >= self.error_rate

    def compare(self, objective: str) -> SampledFit:
        """Return the test of an objective, "-E[R] + 0.04*reverse-kl", say.

        Raises UsageError: no sum of multiples of named objectives.
        """
        asked = read_objective(objective)
        if asked.is_kind and asked.word != "zero":
            raise UsageError(f"{objective[:60]!r}: samples test a sum of named objectives, no kind of answer")
        multiples = read_multiples(asked, self.moments.names)
        if unknown := [name for name in multiples if name not in self.moments.names]:
            raise UsageError(f"{objective[:60]!r}: {unknown[0]} is not among what is sampled")
        return self.moments.test_multiples(multiples)

    def meets(self, objective: str) -> bool:
        """Is this objective not rejected?"""
        return self.compare(objective).p_value >= self.error_rate

    @property
    def headline(self) -> str:
        """The kind of objective in words, then the objective."""
        if self.kind in HEADLINES:
            return HEADLINES[self.kind]
        objective = write_objective(self.multiples, 3)
        kind = describe_multiples(
            self.multiples, reward_cosine=self.moments.find_reward_cosine(self.multiples)
        )
        return f"{kind}: its gradient may be that of {objective}, not rejected"

    def _list_rows(self) -> list[tuple[str, str]]:
        """Return what is to be known beside the headline, the most important first."""
        rows = []
        if self.expected is not None:
            outcome = "not rejected" if self.ok else "rejected"
            rows.append(("expected", f"{self.wanted}: {outcome}, {_describe_fit(self.expected)}"))
        for name, (low, high) in self.intervals.items():
            rows.append(("multiple", f"of {name}: {(low + high) / 2:.4g} +- {(high - low) / 2:.1g}"))
        rows += [("fit", _describe_fit(fit)) for fit in self.fits[:1]]
        rows += [("also", write_objective(fit.multiples, 3)) for fit in self.fits[1:4]]
        return [*rows, *(("note", note) for note in self.notes)]

    def text(self, name: str = "", width: int = WIDTH) -> str:
        """Format the answer for a terminal; name: of the code."""
        from klsym.render.questions.layout import format_rows

        size = "one sample" if self.group == 1 else f"{self.group} samples"
        title = f"{name or 'the loss'}, run {self.sampling}, {self.groups} groups of {size} of a model"
        details = f"what is true is rejected with probability {self.error_rate:g}; no theorem"
        return format_rows(title, self.headline, "sampled", self._list_rows(), details=details, width=width)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON data."""
        expect = None
        if self.expected is not None:
            expect = {"wanted": self.wanted, "ok": self.ok, "p_value": self.expected.p_value}
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "multiples": self.multiples,
            "intervals": {name: [*interval] for name, interval in self.intervals.items()},
            "p_value": self.fits[0].p_value if self.fits else None,
            "unseen": self.fits[0].unseen if self.fits else None,
            "alternatives": [fit.multiples for fit in self.fits[1:]],
            "setting": {"sampling": self.sampling, "group": self.group, "groups": self.groups},
            "expect": expect,
            "notes": [*self.notes],
            "error_rate": self.error_rate,
            "trust": "sampled",
        }


def _describe_fit(fit: SampledFit) -> str:
    percent = 100 * fit.unseen
    size = "of less than 0.01" if percent < 0.01 else f"of {float(f'{percent:.2g}'):g}"
    p_value = f"{fit.p_value:.2g}" if fit.p_value else f"below {1 / SIMULATED:g}"
    return f"p-value {p_value}; an error {size} % of the gradient could go unseen"


def measure_samples(
    loss: Any,
    model: Any,
    ref_model: Any,
    old_model: Any = None,
    *,
    prompts: Any = ((1,),),
    reward: Any = None,
    end: int | None = 0,
    length: int = 8,
    samples: int = 2000,
    group: int = 1,
    map: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | None = None,
    expect: str | None = None,
    error_rate: float = 0.01,
    seed: int = 0,
) -> SampledMeasurement:
    """Draw groups of samples from a real model, and test which objective the loss's gradient can belong to.

    If there are too many sequences to enumerate, E_mu[grad L] = sum_i c_i grad(objective i) is tested on a
    count sketch of the gradients in the model's parameters, both sides estimated from the same groups.

    Parameters
    ----------
    loss : callable or str
        What `measure` takes; it is run on each group.
    model, ref_model : module, callable or str
        Called with input_ids [B, L] they return logits [B, L, V] or an object with .logits; or functions that
        return one, or "FILE.py:FUNC".  The gradient is taken in the parameters that `model` trains.
    old_model : module, callable or str, optional
        The sampler, off-policy; without it samples come from `model`.
    prompts : [P, L] words
        The prompts, which are equally likely.
    reward : callable, optional
        tokens [B, T], mask [B, T] -> [B]; by default random numbers that depend on the words.
    end : int or None
        The word that ends a sequence.
    length, samples, group : int
        The maximal number of words of a sequence; the number of groups; the number of samples in one call of
        the loss, which follow one prompt.
    map, set : mapping, optional
        As of `measure`.
    expect : str, optional
        An objective to test.
    error_rate, seed : float, int
        The error rate of each test and interval; the seed of the random numbers.

    Returns
    -------
    SampledMeasurement
        With `kind`, `multiples` and their intervals.

    Raises
    ------
    UsageError
        Options that do not fit, a gradient that is not finite.

    Examples
    --------
    >>> import pytest; torch = pytest.importorskip("torch")
    >>> def loss(batch):
    ...     return -(batch.rewards[:, None] * batch.logp * batch.mask).sum(-1).mean()
    >>> policy, reference = torch.nn.Embedding(9, 9), torch.nn.Embedding(9, 9)
    >>> measure_samples(loss, policy, reference, samples=400, length=3).kind
    'named'
    """
    if not isinstance(samples, int) or samples < FEWEST or not isinstance(group, int) or group < 1:
        raise UsageError(
            f"samples={samples!r}, group={group!r}: at least {FEWEST} groups of at least one sample"
        )
    if not LEAST_RATE <= error_rate < 0.5:
        raise UsageError(f"error_rate={error_rate!r}: a number from {LEAST_RATE} to 0.5 expected")
    bound = bind_loss(loss, map or {}, set or {})
    policy, reference = load_made(model), load_made(ref_model)
    sampler = policy if old_model is None else load_made(old_model)
    from klsym.measure.sampled import make_models, sample_moments

    models = make_models(policy, reference, sampler, prompts=prompts, length=length, end=end, reward=reward)
    moments = sample_moments(bound.function, models, samples, group, seed=seed)
    sampling = "on-policy" if models.is_on_policy else "off-policy"
    answer = SampledMeasurement(
        "undecided", (), samples, group, sampling=sampling, error_rate=error_rate,
        notes=tuple(bound.describe(sampling)), moments=moments,
    )  # fmt: skip
    answer = _decide(answer)
    return answer if expect is None else replace(answer, wanted=expect, expected=answer.compare(expect))


def _decide(answer: SampledMeasurement) -> SampledMeasurement:
    """Return the answer with the sets of names that are not rejected."""
    moments = answer.moments
    if not moments.loss.any():
        return replace(answer, kind="zero")
    if moments.test_multiples({}).p_value >= answer.error_rate:
        note = "no gradient is seen beyond the noise: more --samples, or a loss that is 0 in expectation"
        return replace(answer, notes=(*answer.notes, note))
    fits = tuple(moments.find_fits(answer.error_rate))
    if not fits:
        note = f"no combination of at most three of these names: {', '.join(moments.names)}"
        return replace(answer, notes=(*answer.notes, note))
    return replace(answer, kind="named", fits=fits)
