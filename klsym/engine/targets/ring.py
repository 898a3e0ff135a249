"""explain inside the ring: loss -> slot loss -> expected gradient -> decision -> verdict.  Untrusted.

h and the value are those of the loss and the options as they were given, whatever they were expanded to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from klsym.engine.divergences.f_divergence import (
    Generated,
    find_convexity,
    find_divergence,
)
from klsym.engine.fields.field import (
    ReducedGradient,
    reduce_loss,
    reduce_typed_loss,
    split_own_share,
)
from klsym.engine.fields.named_terms import KLS, decompose, recognise_coefficient, split_terms
from klsym.engine.fields.primitives import WEIGHT, depends_on_theta
from klsym.engine.fields.slot_loss import (
    LENGTHS,
    build_centred_loss,
    build_slot_loss,
    collect_random_names,
    has_batch_sum,
    refuse_unless_moderate,
    rewrite_for_sequence,
)
from klsym.engine.options.expand_options import expand_options
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import grad, sample, sample_gradient
from klsym.engine.regions.in_steps import to_steps
from klsym.engine.regions.piecewise import is_piecewise
from klsym.engine.targets.clamp_messages import add_clip_results
from klsym.engine.targets.decide import Decision, decide
from klsym.engine.targets.expected_value import find_expected_value
from klsym.engine.targets.in_print import ValuePrinter, build_side, write_regions_as_steps
from klsym.engine.targets.ring_notes import (
    collect_assumptions,
    collect_messages,
    collect_remarks,
    compare_with_full_gradient,
    find_canonical_coefficient,
    generate_reading_notes,
    infer_batch_option,
    select_assuming_proofs,
)
from klsym.engine.verdicts.lazy import Chain, Search
from klsym.engine.verdicts.verdict import (
    AnalysedLoss,
    Counterexample,
    ExpectedGradient,
    TargetReading,
    Verdict,
    is_ascended,
)
from klsym.errors import NotInRing, UsageError
from klsym.kernel.definitions import REGION
from klsym.kernel.derivatives import attach
from klsym.kernel.names import SAMPLE_BASES
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.convert import is_in_core, substitute_on_policy, to_ring, to_sympy
from klsym.language.expressions import H, others, own, s
from klsym.language.messages import Message
from klsym.language.sums import Centred, LeftOut
from klsym.notation.losses import Written
from klsym.notation.tree import Formula, multiply
from klsym.notation.values import (
    LazyFormula,
    build_tree,
    multiply_by_score,
    subtract_mean,
    subtract_mean_of_others,
)

SUBTRACTIONS = {Centred: subtract_mean, LeftOut: subtract_mean_of_others}


def explain_ring(written: Written, setting: Setting) -> Verdict:
    """Return the verdict on a loss; raises NotInRing outside the ring."""
    single = reduce_typed_loss(written, setting)
    if setting.is_centred:
        return explain_centred(written, setting, single)
    verdict = build_verdict(written, setting, single, single)
    on_ties_alone = verdict.target not in (None, "zero") and not verdict.gradient.is_nonzero
    if verdict.target and not on_ties_alone:
        return verdict
    return _drop_empty_regions(verdict, written, setting, single)


def _drop_empty_regions(
    verdict: Verdict, written: Written, setting: Setting, single: ReducedGradient
) -> Verdict:
    """Return the verdict without regions that zeros of functions show to be empty; trust is SymPy."""
    field = reduce_loss(build_slot_loss(written, setting, roots=True))
    if field.loss.element == single.loss.element:
        return verdict
    reduced = build_verdict(written, setting, field, field)
    if reduced.target is None:
        return verdict
    kinks = (Message("no-outcome-at-kinks"),)
    reduced = reduced.revise(value=find_expected_value(written, setting, roots=True))
    messages = (Message("outside-the-core", trust="sympy"), *reduced.messages)
    return reduced.revise(trust="sympy", messages=messages, assumptions=(*reduced.assumptions, *kinks))


def is_single_part(written: Written, setting: Setting, part: str) -> bool:
    """Is the expected gradient one named term with multiple 1?  True if unknown; proves nothing."""
    try:
        return find_named_parts(written, setting) == {part: ONE}
    except (NotInRing, UsageError):
        return True


def find_named_parts(written: Written, setting: Setting) -> Mapping[str, ExpPoly] | None:
    """Return the named terms of the expected gradient; None if there is a remainder; proves nothing."""
    typed_loss = rewrite_for_sequence(written) if setting.is_of_sequence else written
    c = _find_sample_coefficient(typed_loss, setting)
    if c is not None:
        parts = recognise_coefficient(c)
        return None if parts.remainder else parts.multiples
    field = reduce_typed_loss(typed_loss, setting)
    if setting.is_centred:
        field = reduce_loss(build_centred_loss(find_sample_h(field, setting), setting, field.loss.defined))
    decomposition = decompose(field.index, field.coefficients, field.reduced_parameters, field.loss.defined)
    return None if decomposition.remainder or field.products else decomposition.combination


def _find_sample_coefficient(written: Written, setting: Setting) -> ExpPoly | None:
    """Return c of E_m[grad L] = E_q[c s] without a derivation; None where L has bounds or other positions."""
    e = written.expression
    is_of_others = setting.is_per_token or setting.averaged or setting.is_centred or setting.truncated
    if is_of_others or has_batch_sum(e) or not is_in_core(e):
        return None
    element = to_ring(e)
    refuse_unless_moderate(element, written, {*LENGTHS})
    h = element if setting.is_reward else element.derive(lambda x: ONE if depends_on_theta(x) else ZERO)
    return substitute_on_policy(attach(h)) if setting.on_policy else attach(h) * WEIGHT.invert()


def find_sample_h(single: ReducedGradient, setting: Setting) -> ExpPoly:
    """Return the coefficient h of one sample, which an option batch centres."""
    h = single.score_coefficients.get("x", ZERO)
    return substitute_on_policy(h) if setting.on_policy else h


def explain_centred(written: Written, setting: Setting, single: ReducedGradient) -> Verdict:
    """Return the verdict where h less its mean over the batch multiplies the score."""
    field = reduce_loss(build_centred_loss(find_sample_h(single, setting), setting, single.loss.defined))
    return build_verdict(written, setting, field, single)


def build_verdict(
    written: Written,
    setting: Setting,
    field: ReducedGradient,
    single: ReducedGradient,
    decision: Decision | None = None,
    explain: Callable[[Written, Setting], Verdict] | None = None,
) -> Verdict:
    """Build the verdict on an expected gradient; single: that of one sample, before centring.

    decision: of the expected gradient, if the rungs have none; explain: for the loss inside the clip range.
    """
    decision = decision or decide(field)
    notes = tuple(compare_with_full_gradient(decision)) if field.index == "t" else ()
    link = _prove_sample_gradient(single, setting) if setting.is_centred else ()
    proofs = (*decision.proofs, *link, *(note.values["proof"] for note in notes))
    assuming = select_assuming_proofs(field, decision, proofs)
    reading_notes = generate_reading_notes(field, setting)
    verdict = build_partial_verdict(written, setting, single).revise(
        canonical_coefficient=_split_factor(find_canonical_coefficient(field)),
        gradient=_read_target(field, decision),
        trust=decision.trust,
        assumptions=tuple(dict.fromkeys((*reading_notes, *collect_assumptions(assuming)))),
        steps=Chain(proofs[0], decision.proof_of_objective),
        counterexample=Counterexample(Search(_find_counterexample, field, decision)),
        theorems=proofs,
        quantity=decision.objective and write_regions_as_steps(decision.objective, field.loss.defined),
        in_quantities=_name_gradient(field, decision),
        remarks=(*notes, *collect_remarks(field, decision)),
    )
    if not field.index:
        verdict = _add_shape(verdict, written, field)
    verdict = verdict.revise(messages=collect_messages(verdict, field, single, decision, setting=setting))
    verdict = add_clip_results(
        verdict, written, setting, field, single=single, explain=explain or explain_ring
    )
    if setting.is_centred:
        return verdict
    return ValuePrinter.build_for_loss(field.loss).rewrite_sums(verdict)


def _find_counterexample(field: ReducedGradient, decision: Decision) -> dict[str, Any] | None:
    from klsym.engine.targets.counterexample import find_counterexample

    return find_counterexample(field, decision)


def build_partial_verdict(written: Written, setting: Setting, single: ReducedGradient) -> Verdict:
    """Build a verdict without theorems."""
    h, is_centred = find_sample_h(single, setting), setting.is_centred
    defined = single.loss.defined
    centred = (to_steps(h, defined) if defined.definitions else h) if is_centred else None
    expanded = (
        expand_options(written, setting, build_tree(centred))
        if is_centred and setting.is_differentiated
        else None
    )
    parts = TargetReading.read_parts(recognise_coefficient(single.c, single.random_names))
    gradient = ExpectedGradient(
        parts.target,
        parts.parts,
        parts.rest,
        score_coefficient=_subtract_mean(h, setting, defined)
        if is_centred
        else _show_score_coefficients(single, setting),
        canonical_coefficient=single.c,
        scores_named=_has_named_scores(single, setting),
        centred=centred,
    )
    loss = AnalysedLoss(written.text, expanded, written)
    return Verdict(loss, setting, gradient, find_expected_value(written, setting))


# ---------------------------------------------------------------------------- h and c, in print
def _show_score_coefficients(field: ReducedGradient, setting: Setting) -> Any:
    """Return h, with the scores of its slots if there are several."""
    match field.loss.index:
        case "":
            return field.score_coefficients.get("x", ZERO)
        case "i" if field.loss.detached and isinstance(
            field.loss.label and field.loss.label.expression, LeftOut | Centred
        ):
            centred = _subtract_mean(
                field.sample_coefficient, infer_batch_option(field, setting), field.loss.defined
            )
            return multiply_by_score(centred, own(s))
        case "i" if {*field.score_coefficients} <= {"self"}:
            return field.score_coefficients.get("self", ZERO) * ExpPoly.from_variable("s[self]")
    return field.score_coefficients


def _has_named_scores(field: ReducedGradient, setting: Setting) -> tuple[bool, bool]:
    if field.index == "t":
        return not {*field.score_coefficients} <= {"now"}, not {*field.coefficients} <= {"now"}
    return field.loss.index == "i" and not setting.is_centred, False


def _subtract_mean(h: ExpPoly, setting: Setting, defined: Context) -> Any:
    """Return h minus the mean of the batch."""
    random = collect_random_names(h, defined)
    if not random:
        return ZERO  # equal numbers less their mean
    is_linear = random <= {*SAMPLE_BASES} and all(_is_linear(term) for term in split_terms(h))
    value = to_sympy(h) if is_linear else H
    assert setting.centring is not None
    return SUBTRACTIONS[setting.centring.subtracts](to_ring(own(value)), to_ring(others(value)))


def _is_linear(term: ExpPoly) -> bool:
    """Is it a constant times k1, log q or R, so that a sum over samples can be written?"""
    [(monomial, exponent)] = term.terms
    random = [(x, power) for x, power in monomial if x in SAMPLE_BASES]
    inside = {x for inner, _ in exponent for x, _ in inner} & {*SAMPLE_BASES}
    return random in ([("k1", 1)], [("R", 1)], [("log_q", 1)]) and not inside


def _split_factor(c: Any) -> Any:
    """Return c with a factor 1 - 1/n in front."""
    scale, coefficient = split_own_share(c) if isinstance(c, ExpPoly) else (ONE, c)
    return LazyFormula(multiply, (scale, coefficient)) if scale != ONE else c


def _read_target(field: ReducedGradient, decision: Decision) -> TargetReading:
    """Return the target with its multiples; with other terms, only those of rewards are named."""
    decomposition = decision.decomposition
    if decision.target in ("zero", *KLS, "combination"):
        return TargetReading(decision.target, decomposition.combination)
    if field.canonical_form is None or not (decomposition.named or decomposition.remainder or field.products):
        return TargetReading(decision.target)
    if field.products:
        return TargetReading(decision.target, {}, find_canonical_coefficient(field))
    reward = {name: value for name, value in decomposition.combination.items() if name == "reward"}
    remainder = decomposition.subtract_rewards(field.coefficients)
    return TargetReading(decision.target, reward, remainder.get("x", ZERO) if not field.index else remainder)


def _name_gradient(field: ReducedGradient, decision: Decision) -> Formula | None:
    """Return the expected gradient in named quantities, where it says more than the target."""
    gradient = grad(decision.objective) if decision.objective else decision.gradient
    quantity = decision.objective_gradient or gradient
    remainder = decision.decomposition.remainder
    over_T = decision.objective is not None and any("length" in c.names() for c in remainder.values())
    by_regions = decision.objective is not None and bool(field.loss.defined.definitions)
    is_shown = field.index or field.products or over_T or by_regions
    labels = quantity.labels if by_regions else None
    return build_side(quantity.side, labels, field.loss.defined, field.index == "t") if is_shown else None


# ---------------------------------------------------------------------------- batches
def _prove_sample_gradient(single: ReducedGradient, setting: Setting) -> tuple[Proof, ...]:
    """Prove grad L = h s at each sample, for the coefficient that is centred."""
    if setting.is_reward:
        return ()
    gradient = sample_gradient(single.loss.expression)
    start = derive(gradient, on_policy=single.loss.detached_q, defined=single.loss.defined)
    return (start.equals(sample(to_sympy(single.score_coefficients.get("x", ZERO)) * s)),)


# ---------------------------------------------------------------------------- shape and warnings
def _add_shape(verdict: Verdict, written: Written, field: ReducedGradient) -> Verdict:
    """Add the generator f of the objective, or its convexity in q; a mean reward is split off."""
    if field.products:
        return verdict
    share, c = split_own_share(field.c)
    parts = recognise_coefficient(c, field.random_names)
    is_ascending = is_ascended(written, verdict.setting)
    penalty = (c - parts.reward) * (-1 if is_ascending else 1)
    generator = _find_generator(penalty, parts.target, field) if share == ONE else None
    if generator is not None:
        generator = replace(generator, reward=parts.reward if is_ascending else -parts.reward)
        verdict = verdict.revise(generator=generator, penalty=penalty)
        in_ring = generator.f is None or isinstance(generator.f, ExpPoly)
        return verdict if in_ring else _add_piece_assumptions(verdict)
    if (
        parts.target != "objective"
        or verdict.objective.quantity is None
        or c.names() & field.random_names.random
    ):
        return verdict
    return verdict.revise(convexity=find_convexity(penalty))


def _add_piece_assumptions(verdict: Verdict) -> Verdict:
    """Add the assumptions of an f outside the ring."""
    from klsym.engine.divergences.f_divergence_smooth import list_nonzero_conditions

    f = verdict.objective.generator.f if verdict.objective.generator else None
    kinks = (Message("no-outcome-at-kinks"),) if is_piecewise(f) else ()
    assumptions = (*verdict.assumptions, *list_nonzero_conditions(f), *kinks)
    return verdict.revise(penalty=None, assumptions=assumptions)


def _find_generator(c: ExpPoly, target: str, field: ReducedGradient) -> Generated | None:
    defined = field.loss.defined
    kinds = {definition.kind for definition in defined.definitions if definition.name in c.names()}
    if not kinds or target in (*KLS, "combination"):
        return find_divergence(c) or _find_power_generator(c)
    if target != "f-divergence":
        return None
    from klsym.engine.divergences.f_divergence_piecewise import find_piecewise_divergence
    from klsym.engine.divergences.f_divergence_smooth import find_smooth_divergence

    return (
        find_piecewise_divergence(c, defined)
        if REGION in kinds
        else find_smooth_divergence(to_steps(c, defined))
    )


def _find_power_generator(c: ExpPoly) -> Generated | None:
    """Return the generator of r**alpha and its like, which is not in the ring."""
    if c.names() <= {*SAMPLE_BASES}:
        return None
    from klsym.engine.divergences.f_divergence_smooth import find_power_divergence

    return find_power_divergence(c)
