"""explain inside the ring: loss -> slot loss -> expected gradient -> decision -> verdict.  Untrusted.

h and the value are those of the loss and the options as they were given, whatever they were expanded to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sympy import S

from klsym.engine.divergences.f_divergence import (
    Generated,
    find_convexity,
    find_divergence,
    list_convexity_messages,
    list_divergence_messages,
)
from klsym.engine.fields.field import ReducedGradient, reduce_loss, reduce_typed_loss, split_own_share
from klsym.engine.fields.named_terms import KLS, decompose, recognise_coefficient, split_terms
from klsym.engine.fields.position_sums import remove_slots
from klsym.engine.fields.primitives import substitute_on_policy
from klsym.engine.fields.slot_loss import (
    build_centred_loss,
    build_slot_loss,
    collect_random_names,
    rewrite_for_sequence,
)
from klsym.engine.fields.tails import find_unbounded_ratio, is_zero
from klsym.engine.options.choices import CENTRINGS
from klsym.engine.options.expand_options import expand_options
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import grad, sample, sample_gradient
from klsym.engine.regions.in_steps import multiply_by_ratios, select_unbounded_terms, to_steps
from klsym.engine.regions.piecewise import is_piecewise
from klsym.engine.targets.clamp_messages import add_clip_results
from klsym.engine.targets.counterexample import find_counterexample
from klsym.engine.targets.decide import Decision, decide
from klsym.engine.targets.expected_value import find_expected_value
from klsym.engine.targets.in_print import ValuePrinter, format_side, write_regions_as_steps
from klsym.engine.targets.ring_notes import (
    collect_assumptions,
    collect_remarks,
    compare_with_full_gradient,
    find_canonical_coefficient,
    generate_reading_notes,
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
from klsym.engine.verdicts.warnings import (
    Facts,
    collect_facts,
    is_attached,
    is_proximal,
    list_batch_warnings,
    list_token_warnings,
    list_warnings,
    name_terms_with_slopes,
    name_unweighted_terms,
    needs_weight_gradient,
    select_unweighted,
)
from klsym.errors import NotInRing, UsageError
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import REGION, Context
from klsym.language.convert import is_in_ring, to_ring, to_sympy
from klsym.language.expressions import H, now, others, own, remove_sg, rho, s, sg
from klsym.language.messages import Message
from klsym.language.sums import Centred, LeftOut
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX
from klsym.notation.tree import multiply
from klsym.notation.values import (
    LazyFormula,
    build_tree,
    multiply_by_score,
    subtract_mean,
    subtract_mean_of_others,
)

SUBTRACTIONS = {Centred: subtract_mean, LeftOut: subtract_mean_of_others}
CENTRING_OPTION = {row.subtracts: name for name, row in CENTRINGS.items() if not row.divides}


def explain_ring(written: Written, setting: Setting) -> Verdict:
    """Return the verdict on a loss; raises NotInRing outside the ring."""
    single = reduce_typed_loss(written, setting)
    if setting.batch != "none":
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
    typed_loss = rewrite_for_sequence(written) if setting.level == "sequence" else written
    field = reduce_typed_loss(typed_loss, setting)
    if setting.batch != "none":
        field = reduce_loss(build_centred_loss(find_sample_h(field, setting), setting, field.loss.defined))
    decomposition = decompose(field.index, field.coefficients, field.reduced_parameters, field.loss.defined)
    return None if decomposition.remainder or field.products else decomposition.combination


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
    link = _prove_sample_gradient(single, setting) if setting.batch != "none" else ()
    proofs = (*decision.proofs, *link, *(note.values["proof"] for note in notes))
    assuming = select_assuming_proofs(field, decision, proofs)
    reading_notes = generate_reading_notes(field, setting)
    verdict = build_partial_verdict(written, setting, single).revise(
        canonical_coefficient=_split_factor(find_canonical_coefficient(field)),
        gradient=_read_target(field, decision),
        trust=decision.trust,
        assumptions=tuple(dict.fromkeys((*reading_notes, *collect_assumptions(assuming)))),
        steps=Chain(proofs[0], decision.proof_of_objective),
        counterexample=Counterexample(Search(find_counterexample, field, decision)),
        theorems=proofs,
        quantity=decision.objective and write_regions_as_steps(decision.objective, field.loss.defined),
        in_quantities=_format_gradient(field, decision),
        remarks=(*notes, *collect_remarks(field, decision)),
    )
    if not field.index:
        verdict = _add_shape(verdict, written, field)
    verdict = verdict.revise(messages=_collect_messages(verdict, field, single, decision, setting))
    verdict = add_clip_results(verdict, written, setting, field, single, explain or explain_ring)
    if setting.batch != "none":
        return verdict
    return ValuePrinter.build_for_loss(field.loss).rewrite_sums(verdict)


def build_partial_verdict(written: Written, setting: Setting, single: ReducedGradient) -> Verdict:
    """Build a verdict without theorems."""
    h, is_centred = find_sample_h(single, setting), setting.batch != "none"
    defined = single.loss.defined
    centred = (to_steps(h, defined) if defined.definitions else h) if is_centred else None
    expanded = (
        expand_options(written, setting, build_tree(centred))
        if is_centred and setting.use == "loss"
        else None
    )
    parts = TargetReading.read_parts(recognise_coefficient(single.c, single.random_names))
    gradient = ExpectedGradient(
        parts.target,
        parts.parts,
        parts.rest,
        _subtract_mean(h, setting, defined) if is_centred else _show_score_coefficients(single, setting),
        single.c,
        _has_named_scores(single, setting),
        centred=centred,
    )
    loss = AnalysedLoss(written.text, losses.show(written, LATEX), expanded, written)
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
                field.sample_coefficient, _infer_batch_option(field, setting), field.loss.defined
            )
            return multiply_by_score(centred, own(s))
        case "i" if {*field.score_coefficients} <= {"self"}:
            return field.score_coefficients.get("self", ZERO) * ExpPoly.from_variable("s[self]")
    return field.score_coefficients


def _has_named_scores(field: ReducedGradient, setting: Setting) -> tuple[bool, bool]:
    if field.index == "t":
        return not {*field.score_coefficients} <= {"now"}, not {*field.coefficients} <= {"now"}
    return field.loss.index == "i" and setting.batch == "none", False


def _subtract_mean(h: ExpPoly, setting: Setting, defined: Context) -> Any:
    """Return h minus the mean of the batch."""
    random = collect_random_names(h, defined)
    if not random:
        return ZERO  # equal numbers less their mean
    is_linear = random <= {*SAMPLE_BASES} and all(_is_linear(term) for term in split_terms(h))
    value = to_sympy(h) if is_linear else H
    assert setting.centring is not None
    return SUBTRACTIONS[setting.centring.subtracts](to_ring(own(value)), to_ring(others(value)))


def _infer_batch_option(field: ReducedGradient, setting: Setting) -> Setting:
    """Return the setting whose option batch equals a detached loo(h) or centred(h)."""
    typed = field.loss.label.expression if field.loss.label else None
    if setting.use == "reward" and isinstance(typed, LeftOut | Centred):
        return replace(setting, batch=CENTRING_OPTION[type(typed)])
    return setting


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


def _format_gradient(field: ReducedGradient, decision: Decision) -> str:
    gradient = grad(decision.objective) if decision.objective else decision.gradient
    quantity = decision.objective_gradient or gradient
    remainder = decision.decomposition.remainder
    over_T = decision.objective is not None and any("length" in c.names() for c in remainder.values())
    by_regions = decision.objective is not None and bool(field.loss.defined.definitions)
    is_shown = field.index or field.products or over_T or by_regions
    labels = quantity.labels if by_regions else None
    return format_side(quantity.side, labels, field.loss.defined, field.index == "t") if is_shown else ""


# ---------------------------------------------------------------------------- batches
def _prove_sample_gradient(single: ReducedGradient, setting: Setting) -> tuple[Proof, ...]:
    """Prove grad L = h s at each sample, for the coefficient that is centred."""
    if setting.use == "reward":
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
        parts.target != "separable"
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


def _collect_messages(
    verdict: Verdict, field: ReducedGradient, single: ReducedGradient, decision: Decision, setting: Setting
) -> tuple[Message, ...]:
    if field.index == "t":
        return list_token_warnings(verdict, _collect_token_facts(field, decision, setting.on_policy))
    coefficients, defined = single.score_coefficients, field.loss.defined
    as_option = _infer_batch_option(field, setting)
    typed = single.loss.label if single.loss.index != "i" else None
    h = coefficients.get("x", coefficients.get("self", ZERO))
    if not field.random_names.all.isdisjoint(parse_name(name).base for name in h.names()):
        h = substitute_on_policy(h) if setting.on_policy else h
        facts = _collect_region_facts(single, h, setting.on_policy)
    else:
        in_ring = typed is not None and is_in_ring(typed.expression)
        loss = to_ring(typed.expression) if typed and in_ring else single.loss.element
        facts = collect_facts(loss, h, field.c, setting.on_policy, defined)
    if as_option.batch != "none":
        vanishes = not collect_random_names(field.sample_coefficient, defined)
        if setting.batch == "none":
            facts = collect_facts(
                field.sample_coefficient, field.sample_coefficient, field.c, setting.on_policy, defined
            )
        facts = replace(facts, vanishes=vanishes or facts.vanishes)
        messages = list_batch_warnings(verdict.revise(setting=as_option), facts)
        if setting.batch != "none":
            return messages
        return tuple(x for x in messages if x.code != "value-is-not-gradient")
    if field.loss.index == "i":
        vanishes = is_zero(field.score_coefficients.values(), setting.on_policy)
        facts = replace(facts, vanishes=vanishes, noisy=False)
        return (
            *list_warnings(verdict, facts),
            *((Message("baseline-attached"),) if "others" in coefficients else ()),
        )
    messages = list_warnings(verdict, facts)
    if verdict.objective.generator is not None:
        return (*messages, *list_divergence_messages(verdict.objective.generator))
    return (
        (*messages, *list_convexity_messages(verdict.objective.convexity))
        if verdict.objective.convexity
        else messages
    )


def _collect_region_facts(single: ReducedGradient, coefficient: ExpPoly, on_policy: bool) -> Facts:
    """Return the facts of a loss with bounds or logs; a region of rho counts as a weight."""
    loss, context = single.loss, single.loss.defined
    weighted = multiply_by_ratios(coefficient, context)
    facts = collect_facts(loss.element, weighted, ZERO, on_policy, context)
    unweighted = select_unweighted(weighted)
    has_rho = remove_slots(loss.typed).replace(lambda e: isinstance(e, sg), lambda e: S.Zero).has(rho)
    literal = has_rho and needs_weight_gradient(loss.element, single.random_names.all)
    facts = replace(facts, noisy=False, literal=literal)
    if any(context.find_definition(name, REGION) is not None for name in unweighted.names()):
        return replace(facts, unweighted_terms=name_terms_with_slopes(remove_slots(loss.typed)))
    return facts


def _describe_bare_terms(bare: tuple[ExpPoly, ...], field: ReducedGradient) -> Message | None:
    """Return the message on unweighted terms; those with regions are named by the terms of the loss."""
    typed = field.loss.label
    if typed is None or not any(collect_random_names(c, field.loss.defined) - {*SAMPLE_BASES} for c in bare):
        return name_unweighted_terms(*bare)
    return Message("some-terms") if field.loss.detached else name_terms_with_slopes(typed.expression, now)


def _collect_token_facts(field: ReducedGradient, decision: Decision, on_policy: bool) -> Facts:
    """Return facts for warnings; a detached loss multiplies the scores of other tokens too."""
    loss = to_ring(remove_sg(field.loss.uncredited) if field.loss.detached else field.loss.uncredited)
    slots = field.coefficients
    sum_values = [to_ring(remove_sg(value)) for value in field.loss.sums.values()]
    factors = [loss] if field.loss.detached else list(field.score_coefficients.values())
    all_factors = [*factors, *sum_values]
    factors = [multiply_by_ratios(c, field.loss.defined) for c in factors]
    bare = dict.fromkeys(part for part in map(select_unweighted, factors) if part)
    ratios = {parse_name(n) for c in factors for _, exponent in c.terms for m, _ in exponent for n, _ in m}
    weights = {name.slot for name in ratios if name.base == "w"}
    return Facts(
        vanishes=is_zero(field.score_coefficients.values(), on_policy),
        weighted=any(select_unweighted(c) != c for c in factors),
        unweighted_terms=_describe_bare_terms(tuple(bare), field),
        proximal=bool(bare) and all(map(is_proximal, bare)),
        attached=is_attached(loss),
        literal=needs_weight_gradient(loss),
        unbounded_ratio=find_unbounded_ratio(
            [select_unbounded_terms(c, field.loss.defined) for c in all_factors], slots.values(), on_policy
        ),
        named_multiples=decision.decomposition.multiples,
        is_token_weight_only="now" in weights and "past" not in weights,
        rho_typed=field.loss.label is not None and field.loss.label.expression.has(rho),
        defined=field.loss.defined,
    )
