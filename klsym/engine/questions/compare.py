"""compare: two losses beside one another.  Untrusted; the kernel replays every theorem in the answer.

>>> answer = compare("rho*k1", "rho*k3", sampling="off-policy")
>>> answer.value.same, answer.per_sample.same, answer.gradient.same, answer.variance.lower
(True, False, True, 'depends')
>>> answer.variance.region
'2*k1 + 1 >= 0, that is r <= exp(1/2)'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from klsym.abbreviations import Point, Side
from klsym.convert import to_ring
from klsym.engine.answers.dispatch import as_written, explained, refuse_taken_names, refuse_zero_below
from klsym.engine.fields.field import parts_of, quantity_of
from klsym.engine.fields.slot_loss import (
    SlotLoss,
    names_batches,
    names_slots,
    names_vocabulary,
    of_sequence,
    slot_loss,
    uses_sampler,
)
from klsym.engine.options.settings import (
    Aggregate,
    Credit,
    Level,
    Sampling,
    Setting,
    Use,
    Weights,
    checked_setting,
)
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import Quantity, expectation
from klsym.engine.proof.sequence_quantities import sum_over_t
from klsym.engine.questions.compare_outside import compare_outside
from klsym.engine.questions.equality_answer import Answer, decided
from klsym.engine.questions.variances import Estimate, Spread, spread
from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import NotInRing, UsageError
from klsym.language import length
from klsym.names import SAMPLE
from klsym.notation.losses import Written
from klsym.render.compare import ComparisonView
from klsym.ring import ZERO

Pair = tuple[Written, Written]
AT_TOKENS = "compare: at level token only exponential polynomials are compared"
NOT_COMPARED = (
    "compare: rewards of other tokens that are no sums of k1, log q, R and constants are not compared; choose"
    " credit same-token"
)


class Asked(NamedTuple):
    """The expected value of a loss, its gradient at a sample or sequence, and its expected gradient."""

    value: Quantity
    per_sample: Quantity
    gradient: Quantity


@dataclass(frozen=True, repr=False)
class Comparison(ComparisonView):
    """The answer of `compare`; it prints as text and shows itself in Jupyter.

    value, per_sample and gradient say whether both losses have the same value E[L], gradient at each
    sample and expected gradient; `variance` is None where nothing is decided about it.  trust: the weakest
    of the answers, "open" where a question that was asked has none (`undecided` says which).
    """

    losses: tuple[str, str]
    setting: Setting
    value: Answer
    per_sample: Answer
    gradient: Answer
    variance: Spread | None
    trust: str
    undecided: tuple[str, ...] = ()
    readings: tuple[str, ...] = ()

    @property
    def proofs(self) -> tuple[Proof, ...]:
        """The kernel's theorems."""
        answers = (self.value, self.per_sample, self.gradient)
        own = tuple(answer.proof for answer in answers if answer.proof)
        return own + (self.variance.proofs if self.variance else ())

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """What the theorems rest on; a region is named with the theorem that speaks of it."""
        region, moments = (self.variance.where, self.variance.finite) if self.variance else ("", ())
        lines = (line for proof in self.proofs for line in proof.hypotheses if line != region)
        return tuple(dict.fromkeys((*self.readings, *lines, *moments)))

    def to_json(self) -> dict[str, Any]:
        """The object that `klsym compare --json` prints."""
        return {
            "losses": list(self.losses), **self.setting.to_json(),
            "value": self.value.to_json(), "per_sample": self.per_sample.to_json(),
            "expected_gradient": self.gradient.to_json(),
            "variance": self.variance.to_json() if self.variance else None,
            "trust": self.trust, "hypotheses": list(self.hypotheses), "undecided": list(self.undecided),
        }  # fmt: skip


def compare(
    a: object,
    b: object,
    sampling: Sampling = "on-policy",
    use: Use = "loss",
    parameters: Iterable[str] = (),
    level: Level = "sample",
    credit: Credit | None = None,
    weights: Weights | None = None,
    aggregate: Aggregate | None = None,
) -> Comparison:
    """Say in what two losses of one sample agree, and which has the less noisy gradient where.

    grad L = a s at a sample from m (q on-policy, mu off-policy), s standing for u.s along any direction u:

        Var_m a s - Var_m b s = E_m[(a^2 - b^2) s^2] - (E_m[a s]^2 - E_m[b s]^2)

    a, b: text in the loss grammar, or SymPy expressions in the atoms of `klsym.language`.
    parameters: names declared beside lam, beta, eps, alpha, n, T (for text).
    sampling, use, credit, weights, aggregate: as in `explain`.
    level: "sample", "sequence" (a sample is a whole sequence), or "token" (the losses of all tokens, summed;
    of these the variances are not compared).
    Raises UsageError for text that cannot be read and for unknown options.
    """
    setting = checked_setting(
        sampling=sampling, use=use, level=level, credit=credit, weights=weights, aggregate=aggregate
    )
    names = parameters if isinstance(parameters, str) else tuple(parameters)
    pair = (as_written(a, names), as_written(b, names))
    slots = [names_slots(written.expression) for written in pair]
    if any(slots) and setting.credit:
        if credit or not all(slots):
            raise UsageError(
                "compare: one of the losses says itself which tokens are summed; let both say it,"
                " and leave credit out"
            )
        setting = replace(setting, credit="")
    return compared(pair, setting)


def compared(pair: Pair, setting: Setting) -> Comparison:
    """The comparison of two losses that are used so."""
    for written in pair:
        if names_batches(written.expression):
            raise UsageError("compare: losses that sum over the samples of a batch are not compared")
        refuse_taken_names(written, setting)
    if any(names_vocabulary(written.expression) for written in pair):
        return _exact_means(pair, setting)
    if setting.level == "sequence":
        pair = (of_sequence(pair[0]), of_sequence(pair[1]))
    typed = pair
    if setting.averaged and setting.level == "sequence":
        pair = tuple(replace(one, expression=one.expression / length) for one in pair)  # type: ignore[assignment]
    place = replace(setting, aggregate="") if setting.level == "sequence" else setting
    try:
        losses = [slot_loss(one, place) for one in pair]
    except NotInRing as error:
        if setting.level == "token":
            raise UsageError(f"{AT_TOKENS}: {error}") from None
        for written in pair:
            refuse_zero_below(written)
        single = Setting(setting.sampling, setting.use)
        return _outside(pair, setting, (explained(typed[0], single), explained(typed[1], single)))
    copied = any(uses_sampler(loss.element, setting) for loss in losses)
    asked = [_asked(written, loss, setting, copied) for written, loss in zip(pair, losses, strict=True)]
    return _in_ring(pair, setting, copied, asked)


def _exact_means(pair: Pair, setting: Setting) -> Comparison:
    """By the sampled losses, which have the same mean and expected gradient."""
    from klsym.engine.outside.vocabulary_means import NotALinearMean, sampled_loss

    try:
        drawn, places, valued = zip(*(sampled_loss(written, setting) for written in pair), strict=True)
    except NotALinearMean as error:
        raise UsageError(f"compare: {str(error).partition(';')[0]}; explain says what each does") from None
    found = compared((drawn[0], drawn[1]), places[0])
    value = found.value if all(valued) else Answer(None, "", "open")
    open_ = _open(value, None, found.gradient)
    return replace(
        found,
        losses=(pair[0].text, pair[1].text),
        setting=setting,
        value=value,
        per_sample=Answer(None, "", "open"),
        variance=None,
        trust="open" if open_ else found.gradient.trust,
        undecided=(*open_, *AT_SAMPLES),
        readings=(DRAWN.format(" and ".join(dict.fromkeys(one.text for one in drawn))),),
    )


def _outside(
    pair: tuple[Written, Written], setting: Setting, verdicts: tuple[Verdict, Verdict]
) -> Comparison:
    value, gradient, trust = compare_outside(*verdicts)
    answers = [Answer(*found, trust if found[0] is not None else "open") for found in (value, gradient)]
    return Comparison(
        (pair[0].text, pair[1].text), setting, answers[0], Answer(None, "", "open"), answers[1], None,
        trust if any(answer.same is not None for answer in answers) else "open",
        (*_open(answers[0], None, answers[1]), *UNDECIDED),
    )  # fmt: skip


def _open(value: Answer, per_sample: Answer | None, gradient: Answer) -> tuple[str, ...]:
    """The questions that were asked and left open."""
    named = (("value", value), ("gradient", per_sample), ("expected gradient", gradient))
    return tuple(
        f"{name}: neither a proof nor a model was found"
        for name, answer in named
        if answer is not None and answer.same is None
    )


DRAWN = (
    "full(x) is the sum of q(y)*x(y) over every outcome or next token y: the mean of rho*x over the one"
    " drawn, where mu > 0 wherever q is, as its gradient is that of grad(rho*x); the theorems speak of {}"
)
AT_SAMPLES = (
    "the gradient at each sample: full(..) pushes with the scores of all outcomes, whatever is drawn",
    "the variances: full(..) adds no noise of the outcome drawn, and the rest is not compared beside it",
)
UNDECIDED = (
    "the gradient at each sample: a loss lies outside the decidable core",
    "the variances: a loss lies outside the decidable core",
)


# ---------------------------------------------------------------------------- in the ring
def _in_ring(pair: Pair, setting: Setting, copied: bool, asked: list[Asked]) -> Comparison:
    """copied: a loss mentions the sampler, which on-policy is a detached copy of q."""
    value, per_sample, gradient = (decided(one, other, copied) for one, other in zip(*asked, strict=True))
    variance, open_ = None, _open(value, per_sample, gradient)
    if setting.level != "token":
        a, b = (_estimate(one.per_sample, copied) for one in asked)
        variance = spread(a, b, "q" if setting.on_policy else "mu", gradient.same is True)
        if variance.lower == "open":
            open_ = (*open_, "the order of the variances: neither a proof nor models both ways were found")
    trust = "open" if open_ else "kernel"
    if setting.level == "token" and per_sample.same is not True:
        open_ = (*open_, "the variances: those of sums over tokens are not compared")
    texts = (pair[0].text, pair[1].text)
    return Comparison(texts, setting, value, per_sample, gradient, variance, trust, open_)


def _asked(written: Written, loss: SlotLoss, setting: Setting, copied: bool) -> Asked:
    """At a sequence, what is the same at each token is left at each."""
    if loss.sums:
        raise UsageError(NOT_COMPARED)
    under = "mu" if copied or not setting.on_policy else "q"
    constant, rest = parts_of(loss)
    gradient = measured(quantity_of(replace(loss, expression=rest), constant), under)
    whole = measured(quantity_of(loss), SAMPLE)
    if loss.index == "t":
        return Asked(sum_over_t(loss.expression, under), whole, gradient)
    value = replace(expectation(written.expression, under), labels={to_ring(written.expression): written})
    return Asked(value, whole, gradient)


def measured(quantity: Quantity, measure: str) -> Quantity:
    """The same means under another measure, or at one sample."""

    def moved(atom: Any) -> Any:
        return replace(atom, measure=measure)

    terms = ((c, tuple(map(moved, atoms))) for c, atoms in quantity.side.terms)
    return replace(quantity, side=Side.of(*terms))


def _estimate(gradient: Quantity, copied: bool) -> Estimate:
    """grad L = a s, with the kernel's theorem that says so."""
    start = derive(gradient, on_policy=copied)
    a = ZERO
    for _, atoms in start.reduce().left.terms:
        if isinstance(atoms[0], Point):
            a = a + atoms[0].coefficient
    return Estimate(a, start.equals(Quantity(Side.atom(Point(a, ("x",))))))
