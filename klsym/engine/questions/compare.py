"""Compare two losses.  Untrusted; the kernel replays every theorem in the answer.

>>> answer = compare("rho*k1", "rho*k3", sampling="off-policy")
>>> answer.value.same, answer.per_sample.same, answer.gradient.same, answer.variance.lower
(True, False, True, 'depends')

Of each part the answer has a proof that it is the same, or a model where it is not, or is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import sympy

from klsym.engine.answers.dispatch import refuse_taken_names
from klsym.engine.answers.named_losses import (
    Question,
    choose_place,
    complete_options,
    find_assigned_reward,
    read_question,
)
from klsym.engine.explain import explain_in_setting
from klsym.engine.fields.field import build_quantity, split_sequence_part
from klsym.engine.fields.in_trees import list_tree_values, substitute_in_loss
from klsym.engine.fields.slot_loss import (
    SlotLoss,
    build_slot_losses,
    has_batch_sum,
    has_token_sum,
    has_vocabulary_sum,
    needs_sampler,
    rewrite_for_sequence,
)
from klsym.engine.options.choices import POSITIONS, is_reward
from klsym.engine.options.settings import Setting, checked_setting
from klsym.engine.options.synonyms import read_choice
from klsym.engine.proof.derivation import derive
from klsym.engine.proof.quantities import Quantity, expectation
from klsym.engine.proof.sequence_quantities import sum_over_t
from klsym.engine.proof.shown_counterexample import describe_counterexample
from klsym.engine.questions.common_reading import refuse_other_readings
from klsym.engine.questions.compare_batches import compare_batches
from klsym.engine.questions.comparison import (
    OPEN_ANSWER,
    Answer,
    Comparison,
    Instance,
    Multiple,
    WrittenPair,
    list_open_questions,
    put_under_measure,
)
from klsym.engine.questions.reward_as_loss import write_update_as_loss
from klsym.engine.questions.usual_uses import Uses, read_uses
from klsym.engine.questions.variances import Estimate, compare_variances, describe_outcome_model
from klsym.engine.targets.clamp_messages import collect_region_assumptions
from klsym.errors import NotInRing, ProofError, Refused, UsageError
from klsym.kernel.names import SAMPLE
from klsym.kernel.ring import ZERO
from klsym.kernel.statements import Context
from klsym.language.abbreviations import Point, Side
from klsym.language.convert import to_ring
from klsym.language.expressions import alpha, beta, eps, lam, length, unfold
from klsym.language.messages import Message
from klsym.language.named_losses import split_place
from klsym.notation.losses import Written

CONSTANTS = {alpha, beta, eps, lam}  # T, the length, differs from sample to sample


def decide_equality(left: Quantity, right: Quantity, copied: bool, defined: Context) -> Answer:
    """Return a proof that both are equal for all q, p, mu, or a model in which they are not."""
    chain = derive(left, on_policy=copied, defined=defined)
    with suppress(ProofError):
        return Answer(True, "kernel", chain.equals(right))
    for apart in (False, True) if defined.definitions else ():  # regions of both may meet in the difference
        with suppress(ProofError):
            difference = derive(left - right, on_policy=copied, defined=defined, apart=apart)
            return Answer(True, "kernel", difference.equals(0), instance=Instance((left, right), {}))
    return refute_equality(left, right, copied=copied, defined=defined)


def refute_equality(left: Quantity, right: Quantity, copied: bool, defined: Context) -> Answer:
    """Return a model in which both are not equal."""
    try:
        proof = derive(left, on_policy=copied, defined=defined).differs_from(right)
    except (ProofError, Refused):
        return OPEN_ANSWER
    shown = describe_counterexample if "tree" in proof.theorem.close["model"] else describe_outcome_model
    return Answer(False, "kernel", proof, shown(proof))


NOT_COMPARED = (
    "compare: rewards of other tokens that are no sums of k1, log q, R and constants are not compared; choose"
    " credit same-token"
)


class ComparedQuantities(NamedTuple):
    """The expected value of a loss, its gradient at a sample or sequence, and its expected gradient."""

    value: Quantity
    per_sample: Quantity
    gradient: Quantity


def compare(a: object, b: object, parameters: Iterable[str] = (), **options: Any) -> Comparison:
    """Say in what two losses agree, and which has the less noisy gradient where; see `klsym.api.compare`."""
    names = parameters if isinstance(parameters, str) else tuple(parameters)
    split = [split_place(x) if isinstance(x, str) else (x, "") for x in (a, b)]
    typed_use = read_choice("use", options["use"]) if options.get("use") else ""
    rewards = ["" if typed_use or place else find_assigned_reward(str(text)) for text, place in split]
    places = [
        choose_place("reward" if name else place, typed_use)
        for (_, place), name in zip(split, rewards, strict=True)
    ]
    options["use"] = places[0] if places[0] == places[1] else "loss"
    questions = _share_sampling([read_question(text, names, options) for text, _ in split])
    questions = [
        _note_reward(question, name) if name else question
        for question, name in zip(questions, rewards, strict=True)
    ]
    pair: WrittenPair = (questions[0].written, questions[1].written)
    refuse_other_readings(pair)
    uses = read_uses(questions, options, places)
    if uses is not None:
        return _describe_uses(pair, uses)
    used = _choose_options(questions, options)
    setting = _remove_or_refuse_credit(checked_setting(**used), pair, options)
    if places[0] != places[1]:
        pair = _write_rewards(pair, places, used, typed=(a, b))
    comparison = compare_losses(pair, setting)
    multiple = None if comparison.gradient.same is not False else find_multiple(pair, setting)
    return _add_readings(replace(comparison, written=pair, multiple=multiple))


def _note_reward(question: Question, name: str) -> Question:
    """Return the question with the note that what it assigns is a reward."""
    note = Message("settings-assumed", conditions=(f"{name} is a reward, as its name says",))
    return replace(question, written=replace(question.written, notes=(*question.written.notes, note)))


def _share_sampling(questions: Sequence[Question]) -> list[Question]:
    """Return the questions with the sampler that one implies, where the other, no name, implies none."""
    implied = next(filter(None, (one.options.get("sampling") for one in questions)), None)
    return [
        one
        if one.rows or one.options.get("sampling")
        else replace(one, options={**one.options, "sampling": implied})
        for one in questions
    ]


def _choose_options(questions: Sequence[Question], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of both: those that a name brings, else the typed ones and what was assumed."""
    _refuse_another_level(questions, options)
    brought = next((x for x in map(complete_options, questions) if x is not None), None)
    if brought is not None:
        return {**options, **brought}
    assumed = {
        name: next((value for one in questions if (value := one.options.get(name))), None)
        for name in ("sampling", "level")
    }
    return {**options, **{name: options.get(name) or assumed[name] for name in assumed}}


def _refuse_another_level(questions: Sequence[Question], options: Mapping[str, Any]) -> None:
    """Refuse code that averages values of no known level, beside code of whole sequences."""
    levels = [one.options.get("level") for one in questions if one.says_level]
    if options.get("level") or not any(level and POSITIONS[level].is_whole_sequence for level in levels):
        return
    for question in questions:
        notes = {note.code for note in question.written.notes}
        if not question.says_level and not question.rows and "averages-left-out" in notes:
            code = question.written.typed[:60]
            raise UsageError(
                f"compare: the other loss is of whole sequences, and {code!r} does not say its level:"
                " multiply by the mask, as in (x*mask).sum(-1)/mask.sum(-1) for a mean over the tokens of a"
                " response, or choose the level"
            )


def _describe_uses(pair: WrittenPair, uses: Uses) -> Comparison:
    """Compare two losses that their names use differently; by theorems where one setting has both."""
    compared = None
    if uses.together is not None:
        with suppress(UsageError):  # the quotient by T may not be read
            compared = compare_losses(uses.pair, uses.together)
    if compared is None:
        for written, setting in zip(pair, uses.settings, strict=True):
            explain_in_setting(written, setting)  # refuses a loss that cannot be used so
        compared = Comparison(
            (pair[0].text, pair[1].text), uses.settings[0], value=OPEN_ANSWER, per_sample=OPEN_ANSWER,
            gradient=OPEN_ANSWER, variance=None, trust="open", open_questions=(Message("used-differently"),),
        )  # fmt: skip
    return _add_readings(replace(compared, written=pair, settings=uses.settings))


def _add_readings(comparison: Comparison) -> Comparison:
    notes = (note for written in comparison.written for note in _describe_reading(written))
    return replace(comparison, readings=(*notes, *comparison.readings))


def _remove_or_refuse_credit(setting: Setting, pair: WrittenPair, options: Mapping[str, Any]) -> Setting:
    """Return the setting of losses that say themselves which tokens are summed without its credit."""
    slots = [has_token_sum(written.expression) for written in pair]
    if not any(slots) or not setting.credit:
        return setting
    if options.get("credit") or not all(slots):
        raise UsageError(
            "compare: one of the losses says itself which tokens are summed; let both say it,"
            " and leave credit out"
        )
    return replace(setting, credit="")


def _write_rewards(
    pair: WrittenPair, places: list[str], used: Mapping[str, Any], typed: tuple[object, object]
) -> WrittenPair:
    """Return a loss and a reward as losses, each as it was typed."""
    if used.get("weights"):
        raise UsageError(
            "compare: beside a reward write the weights of a loss into it, and leave weights out"
        )
    of_rewards = checked_setting(**{**used, "use": "reward"})
    first, second = (
        replace(
            write_update_as_loss(written, of_rewards) if is_reward(place) else written,
            typed=" ".join(str(text).split()),
            notes=written.notes,
        )
        for written, place, text in zip(pair, places, typed, strict=True)
    )
    return first, second


def _describe_reading(written: Written) -> tuple[Message, ...]:
    """How a loss was read that is typed in another spelling."""
    if any(note.code == "read-as" for note in written.notes):
        return written.notes
    if not written.typed:
        return ()
    return (Message("read-as", typed=written.typed, loss=written.text), *written.notes)


def compare_losses(pair: WrittenPair, setting: Setting) -> Comparison:
    """The comparison of two losses that are used so."""
    if setting.truncated:
        raise UsageError("compare: for samples from M*q/S compare M*LOSS with M*OTHER, on-policy")
    for written in pair:
        refuse_taken_names(written, setting)
    if setting.is_centred or any(has_batch_sum(written.expression) for written in pair):
        return compare_batches(pair, setting)
    if any(has_vocabulary_sum(written.expression) for written in pair):
        return _compare_exact_means(pair, setting)
    if setting.is_of_sequence:
        pair = (rewrite_for_sequence(pair[0]), rewrite_for_sequence(pair[1]))
    if setting.averaged and setting.is_of_sequence:
        pair = tuple(replace(written, expression=written.expression / length) for written in pair)  # type: ignore[assignment]
    place = replace(setting, aggregate="") if setting.is_of_sequence else setting
    try:
        losses = build_slot_losses(pair, place)
    except NotInRing as error:
        raise UsageError(f"compare: {error}") from None
    copied = any(needs_sampler(loss.element, setting) for loss in losses)
    messages = tuple(
        dict.fromkeys(
            x for written in pair for x in collect_region_assumptions(written, place, losses[0].defined)
        )
    )
    return replace(_decide_by_theorems(pair, setting, copied, losses=losses), readings=messages)


def find_multiple(pair: WrittenPair, setting: Setting) -> Multiple | None:
    """Return the constant by which alone two losses differ, with the theorem of their gradients.

    >>> typed = [read_question(text, (), {}).written for text in ("-A*log_q", "-2*A*log_q")]
    >>> find_multiple(tuple(typed), checked_setting()).factor
    2
    """
    (first, loss), (second, compared) = (split_constant(written.expression) for written in pair)
    sign = 1 if loss == compared else -1 if sympy.expand(loss + compared) == 0 else 0
    factor = sign * second / first
    if factor in (0, 1):
        return None
    scaled = replace(pair[0], expression=factor * pair[0].expression, text=f"({factor})*({pair[0].text})")
    answer = compare_losses((scaled, pair[1]), setting).gradient
    return Multiple(factor, answer) if answer.same else None


def split_constant(loss: Any) -> tuple[Any, Any]:
    """Return the constant factors of a loss, and the rest.

    >>> from klsym.language.expressions import M, k1, k2
    >>> split_constant(beta * k2 * 3)[0], split_constant(2 * k1 + 4 * M)[0]
    (3*beta/2, 2)
    """
    factors = sympy.Mul.make_args(sympy.factor_terms(unfold(loss)))
    constants = [factor for factor in factors if factor.free_symbols <= CONSTANTS]
    random = sympy.Mul(*(factor for factor in factors if factor not in constants))
    number, primitive = random.as_content_primitive()
    return number * sympy.Mul(*constants), primitive


def _compare_exact_means(pair: WrittenPair, setting: Setting) -> Comparison:
    """By the sampled losses, which have the same mean and expected gradient."""
    from klsym.engine.outside.vocabulary_means import NotALinearMean, read_sampled

    try:
        first, second = (read_sampled(written, setting) for written in pair)
    except NotALinearMean as error:
        raise UsageError(f"compare: {str(error).partition(';')[0]}; explain says what each does") from None
    comparison = compare_losses((first.written, second.written), first.setting)
    is_value_kept = first.has_value_of(setting) and second.has_value_of(setting)
    value = comparison.value if is_value_kept else OPEN_ANSWER
    open_ = list_open_questions(value, None, comparison.gradient)
    return replace(
        comparison,
        losses=(pair[0].text, pair[1].text),
        setting=setting,
        value=value,
        per_sample=OPEN_ANSWER,
        variance=None,
        trust="open" if open_ else comparison.gradient.trust,
        open_questions=(*open_, Message("samples-of-all-outcomes"), Message("variances-of-all-outcomes")),
        readings=(
            *comparison.readings,
            Message("drawn", losses=tuple(dict.fromkeys((first.written.text, second.written.text)))),
        ),
    )


# ---------------------------------------------------------------------------- by theorems
def _decide_by_theorems(
    pair: WrittenPair, setting: Setting, copied: bool, losses: Sequence[SlotLoss]
) -> Comparison:
    """Decide what is the same; copied: a loss mentions the sampler, on-policy a detached copy of q."""
    defined = losses[0].defined
    asked = [
        _build_quantities(written, loss, setting, copied) for written, loss in zip(pair, losses, strict=True)
    ]
    answers = [
        decide_equality(first, second, copied, defined=defined) for first, second in zip(*asked, strict=True)
    ]
    value, per_sample, gradient = _refute_in_trees(answers, asked, losses, setting, copied=copied)
    open_ = list_open_questions(value, per_sample, gradient)
    of_bounds, variance = bool(defined.definitions), None
    unasked = Message("variances-of-bounds") if of_bounds else Message("variances-of-tokens")
    if not of_bounds and not setting.is_per_token:
        a, b = (_build_estimate(first.per_sample, copied) for first in asked)
        variance = compare_variances(a, b, "q" if setting.on_policy else "mu", gradient.same is True)
        unknown = variance.lower == "open"
        open_ = (*open_, *((Message("order-of-variances"),) if unknown else ()))
    return Comparison(
        (pair[0].text, pair[1].text), setting, value, per_sample, gradient=gradient, variance=variance,
        trust="open" if open_ else "kernel",
        open_questions=(*open_, *([] if variance or per_sample.same else [unasked])),
    )  # fmt: skip


def _refute_in_trees(
    answers: Sequence[Answer],
    asked: Sequence[ComparedQuantities],
    losses: Sequence[SlotLoss],
    setting: Setting,
    copied: bool,
) -> list[Answer]:
    """Return the answers, the open ones by a model with one advantage: trees have no values for it."""
    found = list(answers)
    for values in list_tree_values(losses):
        if all(answer.same is not None for answer in found):
            break
        in_trees = [substitute_in_loss(loss, values) for loss in losses]
        built = [_build_quantities(x.build_label(x.uncredited), x, setting, copied) for x in in_trees]
        for place, (first, second) in enumerate(zip(*built, strict=True)):
            if found[place].same is None:
                refuted = refute_equality(first, second, copied=copied, defined=in_trees[0].defined)
                equation = (asked[0][place], asked[1][place])
                instance = Instance(equation, values) if refuted.proof else None
                found[place] = replace(refuted, instance=instance)
    return found


def _build_quantities(written: Written, loss: SlotLoss, setting: Setting, copied: bool) -> ComparedQuantities:
    """At a sequence, what is the same at each token is left at each."""
    if loss.sums:
        raise UsageError(NOT_COMPARED)
    under = "mu" if copied or not setting.on_policy else "q"
    constant, remainder = split_sequence_part(loss)
    gradient = put_under_measure(build_quantity(replace(loss, expression=remainder), constant), under)
    whole = put_under_measure(build_quantity(loss), SAMPLE)
    if loss.index == "t":
        value = sum_over_t(loss.expression, under)
        label = loss.label if loss.typed is None else loss.typed_label
        return ComparedQuantities(replace(value, labels={loss.element: label}), whole, gradient)
    value = replace(expectation(loss.uncredited, under), labels={to_ring(loss.uncredited): written})
    return ComparedQuantities(value, whole, gradient)


def _build_estimate(gradient: Quantity, copied: bool) -> Estimate:
    """grad L = a s, with the kernel's theorem that says so."""
    start = derive(gradient, on_policy=copied)
    a = ZERO
    for _, atoms in start.reduce().left.terms:
        if isinstance(atoms[0], Point):
            a = a + atoms[0].coefficient
    return Estimate(a, start.equals(Quantity(Side.from_atom(Point(a, ("x",))))))
