"""Compare two losses over a batch: their objectives, and their noise where training ends.  Untrusted.

The expected gradient of a loss over a batch of n is E_q[(c_R R + c_k k1) s] + ..; where nothing else is left,
a policy is stationary if R = -(c_k/c_R) k1 + nu on its support.  The gradient a_i s_i at sample i, with this
R in place of the reward, says how noisy the loss is there: not at all if a_i is 0 at every batch.

>>> from klsym.engine.questions.compare import compare
>>> answer = compare("-log_q*sg(loo(R - beta*k1))", "-log_q*sg(loo(R)) + beta*k2")
>>> answer.gradient.same, [end.is_noiseless for end in answer.at_optimum]
(True, [True, False])
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from shlex import quote
from typing import Any

import sympy

from klsym.engine.fields.field import BATCH_SIZE, ReducedGradient, build_quantity, reduce_loss
from klsym.engine.fields.slot_loss import (
    SlotLoss,
    build_slot_losses,
    needs_sampler,
    rewrite_for_sequence,
)
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import derive
from klsym.engine.proof.quantities import Quantity, sample
from klsym.engine.proof.sequence_quantities import mean_over_i
from klsym.engine.questions.comparison import (
    OPEN_ANSWER,
    Answer,
    Comparison,
    NoiseAtOptimum,
    WrittenPair,
    list_open_questions,
    put_under_measure,
)
from klsym.engine.questions.variances import describe_outcome_model
from klsym.errors import NotInRing, ProofError, UsageError
from klsym.kernel.names import SAMPLE, SAMPLE_BASES
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.abbreviations import Indexed, MeanVariance, as_side
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import k1, others, own, parameter, remove_sg
from klsym.language.messages import Message
from klsym.language.sums import Divided
from klsym.notation.losses import Written

OWN, OTHERS, SIZE = "R[self]", "R[others]", parameter("n")
OF_SIZE = ((0, None),)  # n = m + 1, times what it takes
NU, M = parameter("nu"), parameter("m")  # m = n - 1
ONLY_WHOLE = "compare: losses over a batch are compared for samples and for sums over a whole sequence"
ONLY_REWARDS = "compare: batch centres a reward: choose use reward, or write centred(..), loo(..) in the loss"
NOT_COMPARED = "compare: over a batch only sums of k1, log_q, R and constants are compared, without bounds"
NO_STD = "compare: losses that are divided by a standard deviation or a mean are not compared"


def _suggest_commands(pair: WrittenPair) -> str:
    """Return the commands that explain each loss alone."""
    return "type " + " and ".join(f"klsym explain {quote(one.typed or one.text)}" for one in pair)


def compare_batches(pair: WrittenPair, setting: Setting) -> Comparison:
    """The comparison of two losses that sum over the samples of a batch, or whose rewards are centred."""
    if setting.is_per_token or setting.divisor.divides:
        raise UsageError(f"{ONLY_WHOLE}; {_suggest_commands(pair)}")
    if setting.divides_by_std or any(written.expression.has(Divided) for written in pair):
        raise UsageError(f"{NO_STD}; {_suggest_commands(pair)}")
    if setting.centring is not None and not setting.is_reward:
        raise UsageError(ONLY_REWARDS)
    centred = tuple(_centre(written, setting) for written in pair)
    place = replace(setting, batch="none", aggregate="")
    if setting.is_of_sequence:
        centred = tuple(map(rewrite_for_sequence, centred))
    try:
        losses = [_move_to_batch(loss) for loss in build_slot_losses(centred, place)]
        reduced = [reduce_loss(loss) for loss in losses]
    except NotInRing as error:
        raise UsageError(f"compare: {error}") from None
    if any(loss.sums or loss.defined.definitions for loss in losses):
        raise UsageError(NOT_COMPARED)
    copied = any(needs_sampler(loss.element, setting) for loss in losses)
    values, gradients = (
        [build(loss, "mu" if copied else loss.measure) for loss in losses]
        for build in (_build_value, _build_gradient)
    )
    noises = [_build_variance(x, loss.measure) for x, loss in zip(reduced, losses, strict=True)]
    value = decide_over_batches(values[0], values[1], copied)
    gradient = decide_over_batches(gradients[0], gradients[1], copied)
    per_sample = _decide_at_samples(gradients, noises, gradient, copied)
    open_ = list_open_questions(value, per_sample, gradient)
    return Comparison(
        (pair[0].text, pair[1].text), setting, value, per_sample, gradient=gradient, variance=None,
        trust="open" if open_ else "kernel",
        open_questions=(*open_, *([] if per_sample.same else [Message("variances-of-batches")])),
        at_optimum=tuple(find_noise(loss, x) for loss, x in zip(losses, reduced, strict=True)),
    )  # fmt: skip


def _centre(written: Written, setting: Setting) -> Written:
    """The reward less its baseline of the batch."""
    if setting.centring is None:
        return written
    return replace(written, expression=setting.centring.subtracts(written.expression))


def _move_to_batch(loss: SlotLoss) -> SlotLoss:
    """A loss of one sample is that of each sample of a batch."""
    if loss.index:
        return loss
    alone = remove_sg(loss.expression) if loss.detached else loss.expression
    return replace(loss, index="i", expression=own(alone))


def _build_value(loss: SlotLoss, measure: str) -> Quantity:
    return mean_over_i(remove_sg(loss.expression), measure)


def _build_gradient(loss: SlotLoss, measure: str) -> Quantity:
    return put_under_measure(build_quantity(loss), measure)


def _build_variance(reduced: ReducedGradient, measure: str) -> Quantity:
    """The variance of mean_i a_i s_i over batches."""
    return Quantity(as_side(MeanVariance(measure, reduced.score_coefficients.get("self", ZERO), ("self",))))


def decide_over_batches(left: Quantity, right: Quantity, copied: bool) -> Answer:
    """A proof that both are equal for every batch size n > 1, or a model in which they are not."""
    start = derive(left, on_policy=copied, premises=BATCH_SIZE)
    for using in ((), OF_SIZE):
        with suppress(ProofError):
            return Answer(True, "kernel", start.equals(right, using=using))
    with suppress(ProofError):
        proof = start.differs_from(right)
        return Answer(False, "kernel", proof, describe_outcome_model(proof))
    return OPEN_ANSWER


def _decide_at_samples(
    gradients: Sequence[Quantity], noises: Sequence[Quantity], expected: Answer, copied: bool
) -> Answer:
    """Equal at each sample of each batch; different if the means are, or the variances."""
    if expected.same is False:
        return expected
    first, second = (put_under_measure(gradient, SAMPLE) for gradient in gradients)
    start = derive(first, on_policy=copied, premises=BATCH_SIZE)
    for using in ((), OF_SIZE):
        with suppress(ProofError):
            return Answer(True, "kernel", start.equals(second, using=using))
    with suppress(ProofError):
        proof = derive(noises[0], on_policy=copied, premises=BATCH_SIZE).differs_from(noises[1])
        return Answer(False, "kernel", proof, describe_outcome_model(proof))
    return OPEN_ANSWER


# ---------------------------------------------------------------------------- where training ends
def find_noise(loss: SlotLoss, reduced: ReducedGradient) -> NoiseAtOptimum | None:
    """The noise of a loss at the optimum of its objective; None if that is not one of R and k1 alone."""
    reward = _find_optimal_reward(reduced.c)
    if reward is None or reduced.products or reduced.canonical_form is None:
        return None
    values = {OWN: to_ring(own(to_sympy(reward))), OTHERS: to_ring(_sum_over_others(reward))}
    a = reduced.score_coefficients.get("self", ZERO).substitute(values)
    end = NoiseAtOptimum(reward)
    gradient = Quantity(as_side(Indexed("i", SAMPLE, a, ("self",))))
    with suppress(ProofError):
        start = derive(gradient, premises=BATCH_SIZE)
        return replace(end, quiet=start.equals(sample(0), using=OF_SIZE))
    with suppress(ProofError):
        noise = Quantity(as_side(MeanVariance(loss.measure, a, ("self",))))
        return replace(end, noisy=derive(noise, premises=BATCH_SIZE).differs_from(sample(0)))
    return end


def _find_optimal_reward(c: ExpPoly) -> ExpPoly | None:
    """R = -(c_k/c_R) k1 + nu for c = c_R R + c_k k1, with numbers and parameters as coefficients."""
    parts: dict[Any, ExpPoly] = {"R": ZERO, "k1": ZERO}
    for (monomial, exponent), value in c.terms.items():
        powers = dict(monomial)
        random = [name for name in powers if name in SAMPLE_BASES]
        if exponent or len(random) != 1 or random[0] not in parts or powers.pop(random[0]) != 1:
            return None
        key = (tuple(sorted(powers.items())), exponent)
        parts[random[0]] = parts[random[0]] + ExpPoly({key: value})
    if not parts["R"] or not parts["k1"]:
        return None
    of_k1, of_reward = (_write_with_m(parts[name]) for name in ("k1", "R"))
    try:
        return to_ring(sympy.expand(sympy.cancel(-of_k1 / of_reward) * k1 + NU))
    except (NotInRing, UsageError):
        return None


def _write_with_m(element: ExpPoly) -> Any:
    """A number in parameters, with m + 1 in place of n."""
    plain = to_sympy(element)
    return plain.xreplace({x: M + 1 if x.name == SIZE.name else x for x in plain.free_symbols})


def _sum_over_others(reward: ExpPoly) -> Any:
    """The sum of R over the m other samples, nu counted m times."""
    varying = to_sympy(reward) - NU
    return others(varying) + M * NU
