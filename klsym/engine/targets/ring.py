"""explain inside the ring: loss -> slot loss -> field -> decision -> verdict, at every index.  Untrusted.

h and the value are those of the loss and the options as they were given, whatever they were expanded to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sympy import S

from klsym.engine.divergences.f_divergence import Generated, find_convexity, find_divergence
from klsym.engine.divergences.shape_messages import list_convexity_messages, list_divergence_messages
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
from klsym.engine.options.expand_options import expand_options
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import grad, sample, sample_gradient
from klsym.engine.regions.in_steps import multiply_by_ratios, select_unbounded_terms, to_steps
from klsym.engine.regions.piecewise import is_piecewise
from klsym.engine.targets.clamp_messages import with_clamps
from klsym.engine.targets.counterexample import counterexample
from klsym.engine.targets.decide import Decision, decide
from klsym.engine.targets.expected_value import value_of
from klsym.engine.targets.in_print import InPrint, implied_in_steps, shown_side
from klsym.engine.targets.ring_notes import (
    assumed_by,
    assuming,
    coefficient_under_q,
    kept,
    readings,
    undecided,
)
from klsym.engine.verdicts.verdict import Chain, Search, TargetReading, Verdict, is_ascended
from klsym.engine.verdicts.warnings import (
    Facts,
    all_proximal,
    batch_warnings,
    facts_of,
    in_gradient,
    is_attached,
    needs_its_gradient,
    terms_with_slopes,
    token_warnings,
    warnings_for,
    without_weight,
)
from klsym.errors import NotInRing, UsageError
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import REGION, Context
from klsym.language.convert import is_in_ring, to_ring, to_sympy
from klsym.language.expressions import H, now, others, own, rho, s, sg, without_sg
from klsym.language.messages import Message
from klsym.language.sums import Centred, LeftOut
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX
from klsym.notation.tree import product
from klsym.notation.values import LazyFormula, less_mean, less_others, scored, tree_of

CENTRING_OPTION = {LeftOut: "leave-one-out", Centred: "mean"}


def explain_ring(written: Written, setting: Setting) -> Verdict:
    """Return the verdict on a loss; raises NotInRing outside the ring."""
    single = reduce_typed_loss(written, setting)
    if setting.batch != "none":
        return explain_centred(written, setting, single)
    verdict = verdict_of(written, setting, single, single)
    on_ties_alone = verdict.target not in (None, "zero") and not verdict.pushes
    if verdict.target and not on_ties_alone:
        return verdict
    return _without_empty_regions(verdict, written, setting, single)


def _without_empty_regions(
    verdict: Verdict, written: Written, setting: Setting, single: ReducedGradient
) -> Verdict:
    """The verdict on the same loss without regions that zeros show to be empty, which rests on SymPy."""
    other = reduce_loss(build_slot_loss(written, setting, roots=True))
    if other.loss.element == single.loss.element:
        return verdict
    found = verdict_of(written, setting, other, other)
    if found.target is None:
        return verdict
    kinks = (Message("no-outcome-at-kinks"),)
    value, constant = value_of(written, setting, roots=True)
    found = replace(found, value=value, constant=constant)
    said = (Message("outside-the-core", trust="sympy"), *found.messages)
    return replace(found, trust="sympy", messages=said, assumptions=(*found.assumptions, *kinks))


def names_only(written: Written, setting: Setting, part: str) -> bool:
    """Return False where the named terms of the expected gradient are not once this part; proves nothing."""
    try:
        return named_parts(written, setting) == {part: ONE}
    except (NotInRing, UsageError):
        return True


def named_parts(written: Written, setting: Setting) -> Mapping[str, ExpPoly] | None:
    """The named terms of the expected gradient, where there are no others; proves nothing."""
    whole = rewrite_for_sequence(written) if setting.level == "sequence" else written
    field = reduce_loss(build_slot_loss(whole, setting))
    if setting.batch != "none":
        field = reduce_loss(build_centred_loss(coefficient_of(field, setting), setting, field.loss.defined))
    found = decompose(field.index, field.coefficients, field.reduced_parameters, field.loss.defined)
    return None if found.remainder or field.products else found.combination


def coefficient_of(single: ReducedGradient, setting: Setting) -> ExpPoly:
    """The coefficient h of one sample, which an option batch centres."""
    h = single.score_coefficients.get("x", ZERO)
    return substitute_on_policy(h) if setting.on_policy else h


def explain_centred(written: Written, setting: Setting, single: ReducedGradient) -> Verdict:
    """Return the verdict where h less its mean over the batch multiplies the score."""
    field = reduce_loss(build_centred_loss(coefficient_of(single, setting), setting, single.loss.defined))
    return verdict_of(written, setting, field, single)


def verdict_of(
    written: Written,
    setting: Setting,
    field: ReducedGradient,
    single: ReducedGradient,
    decision: Decision | None = None,
    explained: Callable[[Written, Setting], Verdict] | None = None,
) -> Verdict:
    """The verdict on a field; single: that of one sample, where its coefficient is centred.

    decision, explained: of the field, and of the loss where no bound binds, where the ladder has none.
    """
    decision = decision or decide(field)
    notes = tuple(kept(decision)) if field.index == "t" else ()
    link = _at_one_sample(single, setting) if setting.batch != "none" else ()
    proofs = (*decision.proofs, *link, *(note.values["proof"] for note in notes))
    verdict = replace(
        partial(written, setting, single),
        c=_factored(coefficient_under_q(field)),
        gradient=_meaning(field, decision),
        trust=decision.trust,
        assumptions=tuple(
            dict.fromkeys((*readings(field, setting), *assumed_by(assuming(field, decision, proofs))))
        ),
        steps=Chain(proofs[0], decision.of_objective),
        model=Search(counterexample, field, decision),
        proofs=proofs,
        implied=decision.objective and implied_in_steps(decision.objective, field.loss.defined),
        shown=_shown(field, decision),
        remarks=(*notes, *undecided(field, decision)),
    )
    if not field.index:
        verdict = _with_shape(verdict, written, field)
    verdict = replace(verdict, messages=_messages(verdict, field, single, decision, setting))
    verdict = with_clamps(verdict, written, setting, field, single, explained or explain_ring)
    return InPrint.of_sums(field.loss).with_sums(verdict) if setting.batch == "none" else verdict


def partial(written: Written, setting: Setting, single: ReducedGradient) -> Verdict:
    """What a verdict says, before the theorems that it rests on."""
    value, constant = value_of(written, setting)
    h, centres = coefficient_of(single, setting), setting.batch != "none"
    defined = single.loss.defined
    centred = (to_steps(h, defined) if defined.definitions else h) if centres else None
    expanded = (
        expand_options(written, setting, tree_of(centred)) if centres and setting.use == "loss" else None
    )
    return Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=_less_mean(h, setting, defined) if centres else _pushes(single, setting),
        c=single.c,
        gradient=TargetReading.of(recognise_coefficient(single.c, single.random_names)),
        value=value,
        constant=constant,
        trust="open",
        assumptions=(),
        steps=(),
        model=None,
        inside_clamps=None,
        scores_named=_scores_named(single, setting),
        expansion=expanded,
        centred=centred,
        written=written,
    )


# ---------------------------------------------------------------------------- h and c, in print
def _pushes(field: ReducedGradient, setting: Setting) -> Any:
    """h: with the scores of its slots where there are several."""
    match field.loss.index:
        case "":
            return field.score_coefficients.get("x", ZERO)
        case "i" if field.loss.detached and isinstance(
            field.loss.label and field.loss.label.expression, LeftOut | Centred
        ):
            less = _less_mean(field.sample_coefficient, _batch_of(field, setting), field.loss.defined)
            return scored(less, own(s))
        case "i" if {*field.score_coefficients} <= {"self"}:
            return field.score_coefficients.get("self", ZERO) * ExpPoly.variable("s[self]")
    return field.score_coefficients


def _scores_named(field: ReducedGradient, setting: Setting) -> tuple[bool, bool]:
    if field.index == "t":
        return not {*field.score_coefficients} <= {"now"}, not {*field.coefficients} <= {"now"}
    return field.loss.index == "i" and setting.batch == "none", False


def _less_mean(h: ExpPoly, setting: Setting, defined: Context) -> Any:
    """h less the mean of the batch."""
    random = collect_random_names(h, defined)
    if not random:
        return ZERO  # equal numbers less their mean
    linear = random <= {*SAMPLE_BASES} and all(_is_linear(term) for term in split_terms(h))
    value = to_sympy(h) if linear else H
    less = less_others if setting.batch == "leave-one-out" else less_mean
    return less(to_ring(own(value)), to_ring(others(value)))


def _batch_of(field: ReducedGradient, setting: Setting) -> Setting:
    """The option batch that a detached loo(h) or centred(h) amounts to."""
    of = field.loss.label.expression if field.loss.label else None
    if setting.use == "reward" and isinstance(of, LeftOut | Centred):
        return replace(setting, batch=CENTRING_OPTION[type(of)])
    return setting


def _is_linear(term: ExpPoly) -> bool:
    """Constants times k1, log q or R, of which a sum over samples can be written."""
    [(monomial, exponent)] = term.terms
    random = [(x, power) for x, power in monomial if x in SAMPLE_BASES]
    inside = {x for inner, _ in exponent for x, _ in inner} & {*SAMPLE_BASES}
    return random in ([("k1", 1)], [("R", 1)], [("log_q", 1)]) and not inside


def _factored(c: Any) -> Any:
    """(1 - 1/n) apart."""
    scale, bare = split_own_share(c) if isinstance(c, ExpPoly) else (ONE, c)
    return LazyFormula(product, (scale, bare)) if scale != ONE else c


def _meaning(field: ReducedGradient, decision: Decision) -> TargetReading:
    """The multiples of the contract; beside other terms only those of rewards are worth naming."""
    found = decision.found
    if decision.target in ("zero", *KLS, "combination"):
        return TargetReading(decision.target, found.combination)
    if field.canonical_form is None or not (found.named or found.remainder or field.products):
        return TargetReading(decision.target)
    if field.products:
        return TargetReading(decision.target, {}, coefficient_under_q(field))
    reward = {name: value for name, value in found.combination.items() if name == "reward"}
    rest = found.subtract_rewards(field.coefficients)
    return TargetReading(decision.target, reward, rest.get("x", ZERO) if not field.index else rest)


def _shown(field: ReducedGradient, decision: Decision) -> str:
    of = decision.stated or (grad(decision.objective) if decision.objective else decision.right)
    rest = decision.found.remainder
    over_T = decision.objective is not None and any("length" in c.names() for c in rest.values())
    by_regions = decision.objective is not None and bool(field.loss.defined.definitions)
    shown = field.index or field.products or over_T or by_regions
    labels = of.labels if by_regions else None
    return shown_side(of.side, labels, field.loss.defined, field.index == "t") if shown else ""


# ---------------------------------------------------------------------------- batches
def _at_one_sample(single: ReducedGradient, setting: Setting) -> tuple[Proof, ...]:
    """grad L = h s at each sample: the coefficient that is centred."""
    if setting.use == "reward":
        return ()
    gradient = sample_gradient(single.loss.expression)
    start = derive(gradient, on_policy=single.loss.detached_q, defined=single.loss.defined)
    return (start.equals(sample(to_sympy(single.score_coefficients.get("x", ZERO)) * s)),)


# ---------------------------------------------------------------------------- shape and warnings
def _with_shape(verdict: Verdict, written: Written, field: ReducedGradient) -> Verdict:
    """The verdict, with f or the convexity in q of what c(k1, w, log q) descends, beside a mean reward."""
    if field.products:
        return verdict
    share, c = split_own_share(field.c)
    found = recognise_coefficient(c, field.random_names)
    ascended = is_ascended(written, verdict.setting)
    penalty = (c - found.reward) * (-1 if ascended else 1)
    of_r = _generated(penalty, found.target, field) if share == ONE else None
    if of_r is not None:
        of_r = replace(of_r, reward=found.reward if ascended else -found.reward)
        verdict = replace(verdict, generated=of_r, penalty=penalty)
        return verdict if of_r.f is None or isinstance(of_r.f, ExpPoly) else _with_pieces(verdict)
    if found.target != "separable" or verdict.implied is None or c.names() & field.random_names.random:
        return verdict
    return replace(verdict, functional=find_convexity(penalty))


def _with_pieces(verdict: Verdict) -> Verdict:
    """The shape of an f outside the ring is not looked at again."""
    from klsym.engine.divergences.f_divergence_smooth import list_nonzero_conditions

    f = verdict.generated.f if verdict.generated else None
    kinks = (Message("no-outcome-at-kinks"),) if is_piecewise(f) else ()
    assumed = (*verdict.assumptions, *list_nonzero_conditions(f), *kinks)
    return replace(verdict, penalty=None, assumptions=assumed)


def _generated(c: ExpPoly, target: str, field: ReducedGradient) -> Generated | None:
    defined = field.loss.defined
    kinds = {definition.kind for definition in defined.definitions if definition.name in c.names()}
    if not kinds or target in (*KLS, "combination"):
        return find_divergence(c) or _at_powers(c)
    if target != "f-divergence":
        return None
    from klsym.engine.divergences.f_divergence_piecewise import find_piecewise_divergence
    from klsym.engine.divergences.f_divergence_smooth import find_smooth_divergence

    return (
        find_piecewise_divergence(c, defined)
        if REGION in kinds
        else find_smooth_divergence(to_steps(c, defined))
    )


def _at_powers(c: ExpPoly) -> Generated | None:
    """f of r**alpha and its like, for which the ring has none."""
    if c.names() <= {*SAMPLE_BASES}:
        return None
    from klsym.engine.divergences.f_divergence_smooth import find_power_divergence

    return find_power_divergence(c)


def _messages(
    verdict: Verdict, field: ReducedGradient, single: ReducedGradient, decision: Decision, setting: Setting
) -> tuple[Message, ...]:
    if field.index == "t":
        return token_warnings(verdict, _facts_of_tokens(field, decision, setting.on_policy))
    pushes, as_option, defined = single.score_coefficients, _batch_of(field, setting), field.loss.defined
    typed = single.loss.label if single.loss.index != "i" else None
    mine = pushes.get("x", pushes.get("self", ZERO))
    if not field.random_names.all.isdisjoint(parse_name(name).base for name in mine.names()):
        facts = _facts_of_regions(
            single, substitute_on_policy(mine) if setting.on_policy else mine, setting.on_policy
        )
    else:
        in_ring = typed is not None and is_in_ring(typed.expression)
        loss = to_ring(typed.expression) if typed and in_ring else single.loss.element
        facts = facts_of(loss, mine, field.c, setting.on_policy, defined)
    if as_option.batch != "none":
        still = not collect_random_names(field.sample_coefficient, defined)
        if setting.batch == "none":
            facts = facts_of(
                field.sample_coefficient, field.sample_coefficient, field.c, setting.on_policy, defined
            )
        facts = replace(facts, vanishes=still or facts.vanishes)
        said = batch_warnings(replace(verdict, setting=as_option), facts)
        bare = setting.batch == "none"
        return tuple(x for x in said if x.code != "value-is-not-gradient") if bare else said
    if field.loss.index == "i":
        still = is_zero(field.score_coefficients.values(), setting.on_policy)
        facts = replace(facts, vanishes=still, noisy=False)
        return (
            *warnings_for(verdict, facts),
            *((Message("baseline-attached"),) if "others" in pushes else ()),
        )
    said = warnings_for(verdict, facts)
    if verdict.generated is not None:
        return (*said, *list_divergence_messages(verdict.generated))
    return (*said, *list_convexity_messages(verdict.functional)) if verdict.functional else said


def _facts_of_regions(single: ReducedGradient, mine: ExpPoly, on_policy: bool) -> Facts:
    """Those of a loss with bounds or logs; a bound on rho weighs, too."""
    loss, context = single.loss, single.loss.defined
    weighed = multiply_by_ratios(mine, context)
    found, bare = facts_of(loss.element, weighed, ZERO, on_policy, context), without_weight(weighed)
    moves = remove_slots(loss.typed).replace(lambda e: isinstance(e, sg), lambda e: S.Zero).has(rho)
    literal = moves and needs_its_gradient(loss.element, single.random_names.all)
    found = replace(found, noisy=False, literal=literal)
    if any(context.defined(name, REGION) is not None for name in bare.names()):
        return replace(found, bare=terms_with_slopes(remove_slots(loss.typed)))
    return found


def _bare_terms(bare: tuple[ExpPoly, ...], field: ReducedGradient) -> Message | None:
    """The terms themselves, or those of the loss of which they are the slope: a region says less."""
    typed = field.loss.label
    if typed is None or not any(collect_random_names(c, field.loss.defined) - {*SAMPLE_BASES} for c in bare):
        return in_gradient(*bare)
    return Message("some-terms") if field.loss.detached else terms_with_slopes(typed.expression, now)


def _facts_of_tokens(field: ReducedGradient, decision: Decision, on_policy: bool) -> Facts:
    """Return facts for warnings; a detached loss multiplies the scores of other tokens too."""
    loss = to_ring(without_sg(field.loss.uncredited) if field.loss.detached else field.loss.uncredited)
    slots = field.coefficients
    held = [to_ring(without_sg(value)) for value in field.loss.sums.values()]
    factors = [loss] if field.loss.detached else list(field.score_coefficients.values())
    tailed = [*factors, *held]
    factors = [multiply_by_ratios(c, field.loss.defined) for c in factors]
    bare = dict.fromkeys(part for part in map(without_weight, factors) if part)
    ratios = {parse_name(n) for c in factors for _, exponent in c.terms for m, _ in exponent for n, _ in m}
    weights = {name.slot for name in ratios if name.base == "w"}
    return Facts(
        vanishes=is_zero(field.score_coefficients.values(), on_policy),
        weighted=any(without_weight(c) != c for c in factors),
        bare=_bare_terms(tuple(bare), field),
        proximal=bool(bare) and all(map(all_proximal, bare)),
        attached=is_attached(loss),
        literal=needs_its_gradient(loss),
        heavy=find_unbounded_ratio(
            [select_unbounded_terms(c, field.loss.defined) for c in tailed], slots.values(), on_policy
        ),
        pieces=decision.found.multiples,
        alone="now" in weights and "past" not in weights,
        typed=field.loss.label is not None and field.loss.label.expression.has(rho),
        defined=field.loss.defined,
    )
