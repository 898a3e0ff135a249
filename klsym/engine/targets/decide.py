"""Decide which function, if any, has a given expected gradient, by the first rung that applies.  Untrusted.

named         named terms add up to it, and all of them are gradients
primitive     at one sample: E_q[c s] = grad E_q[F]
covariances   a batch that is centred under mu: grad Cov_mu(h, log q)
attached      tokens from mu: grad E_mu[L], since mu does not depend on theta
sequence      tokens whose scores sum to E_m[h s] of the whole sequence
curl          0: objective; not 0 on some model: no objective
open          none of these
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from klsym.engine.fields.field import ReducedGradient, split_sequence_part
from klsym.engine.fields.in_trees import choose_tree_values, substitute_in_context, substitute_tree_values
from klsym.engine.fields.named_terms import Decomposition, decompose, name_target, recognise_coefficient
from klsym.engine.fields.primitives import WEIGHT, find_objective_under, find_primitive, has_slope
from klsym.engine.fields.slot_loss import SlotLoss, collect_random_names
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import KL, Quantity, expectation, expected_gradient, grad
from klsym.engine.proof.sequence_quantities import curl, mean_over_i, sum_over_t, token_gradient
from klsym.engine.regions.in_span import is_combination
from klsym.engine.targets.named_gradient import build_named_gradient, find_centred_form, prove_gradient
from klsym.engine.targets.objectives import build_covariances, build_objective, differentiate_terms
from klsym.errors import ProofError
from klsym.kernel.derivatives import attach, is_live
from klsym.kernel.names import HELD, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.abbreviations import E, Side
from klsym.language.convert import substitute_on_policy, to_ring, to_sympy
from klsym.language.expressions import remove_sg, s


@dataclass(frozen=True)
class Decision:
    """The target of an expected gradient, with its proofs.

    target: None where it is open.  proofs: the first says that the expected gradient is `gradient`.
    objective: what it is the gradient of, unless the target names that.
    curl_proof: the theorem that its curl is not 0.
    objective_gradient: the gradient of the objective, in fewer terms than `gradient`.
    counterexample: a model whose curl is not 0 by numerical evidence alone.
    trust: kernel, or numeric where the target rests on such a model or on more than the proofs.
    """

    target: str | None
    gradient: Quantity
    proofs: tuple[Proof, ...]
    decomposition: Decomposition
    objective: Quantity | None = None
    curl_proof: Proof | None = None
    objective_gradient: Quantity | None = None
    counterexample: dict[str, Any] | None = None
    trust: str = "kernel"

    @property
    def proof_of_objective(self) -> Proof | None:
        """The second proof, which ends in the gradient of the objective; None if the first one does."""
        if self.objective is None:
            return None
        ends = (grad(self.objective).side, differentiate_terms(self.objective).side)
        first, *others = (proof.theorem.statement for proof in self.proofs)
        starts = (first.left, first.right)
        pairs = zip(others, self.proofs[1:], strict=True)
        candidates = (
            proof for statement, proof in pairs if statement.right in ends and statement.left in starts
        )
        return None if first.right in ends else next(candidates, None)


Rung = Callable[[ReducedGradient, Decomposition], Decision | None]


def decide(field: ReducedGradient) -> Decision:
    """Return the decision of the first rung that applies."""
    if field.canonical_form is None:
        return _decide_uncanonical(field)
    try:
        return _apply_first_rung(field)
    except ProofError:  # a canonical form that one side of an equation does not come to
        return _decide_uncanonical(field)


def _apply_first_rung(field: ReducedGradient) -> Decision:
    """Return the decision of the first rung that applies; raises ProofError if an equation is not derived."""
    decomposition = decompose(field.index, field.coefficients, field.reduced_parameters, field.loss.defined)
    for rung in RUNGS:
        decision = rung(field, decomposition)
        if decision is not None:
            return decision
    gradient = build_named_gradient(field, decomposition)
    proofs = (prove_gradient(field, gradient),)
    if field.index and field.attached_loss is None:
        return decide_numerically(field, gradient, proofs, decomposition)
    return Decision(None, gradient, proofs, decomposition)


def _decide_uncanonical(field: ReducedGradient) -> Decision:
    """Decide means without a canonical form: an attached loss under mu has an objective, else by numbers."""
    gradient, proofs = expand_scores(field)
    decomposition = Decomposition((), {})
    if field.loss.index == "i" and not has_detached_part(field.loss):
        objective = build_loss_mean(field.loss)
        with suppress(ProofError):
            proofs = (*proofs, field.start.equals(grad(objective)))
            return Decision("objective", gradient, proofs, decomposition, objective=objective)
    return decide_numerically(field, gradient, proofs, decomposition)


def has_detached_part(loss: SlotLoss) -> bool:
    """Is something in it detached, or does its sampler depend on theta?  H counts if its value does."""
    detached = loss.detached or any(parse_name(x).detached for x in loss.element.names())
    return detached or _has_sums_depending_on_theta(loss) or loss.measure != "mu" or loss.detached_q


def _has_sums_depending_on_theta(loss: SlotLoss) -> bool:
    """Does a sum H, H2, .. over other tokens depend on theta?  Then E_m[L] is no objective."""
    values = [to_ring(remove_sg(value)) for value in loss.sums.values()]
    return any(has_slope(value) or _has_moving_regions(value, loss.defined) for value in values)


def _has_moving_regions(value: ExpPoly, defined: Context) -> bool:
    """Is a name in it, such as that of a region, defined by what depends on theta?"""
    names = (name for name in value.names() if defined.find_definition(name) is not None)
    return any(is_live(ExpPoly.from_variable(name), defined) for name in names)


def expand_scores(field: ReducedGradient) -> tuple[Quantity, tuple[Proof, ...]]:
    """Return the expected gradient after differentiation, with the proof."""
    gradient = Quantity(field.differentiated.left)
    return gradient, (field.start.equals(gradient),)


def build_loss_mean(loss: SlotLoss, label: Any = None) -> Quantity:
    """Return E_mu[L], or E_mu[mean_i L_i] of a batch."""
    objective = (mean_over_i if loss.index == "i" else expectation)(loss.expression, "mu")
    label = label or (loss.expression if loss.typed is None else loss.typed_label)
    return replace(objective, labels={loss.element: label})


def decide_numerically(
    field: ReducedGradient,
    gradient: Quantity,
    proofs: tuple[Proof, ...],
    decomposition: Decomposition,
    divided: Mapping[str, tuple[str, SlotLoss]] | None = None,
) -> Decision:
    """Decide no-objective if a model has a curl, else open.

    divided: names -> the word, and h, of normalised(h) and its like.
    """
    from klsym.engine.proof.numeric_curl import ScoreCoefficients, find_curl

    loss, on_policy = field.loss, field.loss.measure == "q" or field.loss.detached_q
    critic = {name: value for name, value in choose_tree_values(loss).items() if name != "A"}
    coefficients = {slot: attach(h.substitute(critic)) for slot, h in field.score_coefficients.items()}
    sums = {name: attach(to_ring(value).substitute(critic)) for name, value in loss.sums.items()}
    inner = {
        name: ScoreCoefficients({"self": attach(h.element)}, False, on_policy, defined=h.defined, word=word)
        for name, (word, h) in (divided or {}).items()
    }
    pushes = ScoreCoefficients(
        coefficients, tokens=loss.index == "t", on_policy=on_policy, sums=sums, divided=inner,
        defined=substitute_in_context(loss.defined, critic),
    )  # fmt: skip
    counterexample = find_curl(pushes, field.start.left_text)
    if counterexample is None:
        return Decision(None, gradient, proofs, decomposition)
    return Decision(
        "no-objective", gradient, proofs, decomposition, counterexample=counterexample, trust="numeric"
    )


# ---------------------------------------------------------------------------- rungs
def _decide_named(field: ReducedGradient, decomposition: Decomposition) -> Decision | None:
    if (
        decomposition.remainder
        or field.products
        or any(term.objective is None for term, _ in decomposition.named)
    ):
        return None
    contract = all(term.part for term, _ in decomposition.named)
    target = name_target([*decomposition.combination]) if contract else "objective"
    gradient = decomposition.whole_quantity
    objective = None if contract else decomposition.objective
    return Decision(target, gradient, (prove_gradient(field, gradient),), decomposition, objective=objective)


def _decide_by_primitive(field: ReducedGradient, decomposition: Decomposition) -> Decision | None:
    """Find F with F + dF/dlog q = c at one sample, and prove that the terms without a name have none."""
    if field.index or field.products:
        return None
    parts = recognise_coefficient(field.c, field.random_names)
    if collect_random_names(field.c, field.loss.defined) - {*SAMPLE_BASES}:
        return _decide_with_regions(field, decomposition, parts.target)
    objective = build_objective(parts)
    if objective is not None and "length" in parts.remainder.names():
        gradient = differentiate_terms(objective)
        return Decision(
            parts.target, gradient, (prove_gradient(field, gradient),), decomposition, objective=objective
        )
    gradient_under_q = Quantity(Side.from_atom(E("q", field.c, ("x",))))
    derivation = derive(gradient_under_q, defined=field.loss.defined)
    completeness = () if field.loss.defined.definitions else (derivation.is_no_combination(),)
    proofs = (prove_gradient(field, gradient_under_q), *completeness)
    if objective is None:
        return Decision(parts.target, gradient_under_q, proofs, decomposition)
    proofs = (*proofs, derivation.equals(differentiate_terms(objective)))
    return Decision(
        parts.target, gradient_under_q, proofs=proofs, decomposition=decomposition, objective=objective
    )


def _decide_with_regions(
    field: ReducedGradient, decomposition: Decomposition, target: str
) -> Decision | None:
    """Decide a coefficient with regions: an attached loss under mu has its mean as objective."""
    if is_combination(field.c, field.exchanged.context):  # a combination of names, perhaps: open
        return None
    gradient_under_q = Quantity(Side.from_atom(E("q", field.c, ("x",))))
    proofs, loss = [prove_gradient(field, gradient_under_q)], field.loss
    if has_detached_part(loss):
        return Decision(target, gradient_under_q, tuple(proofs), decomposition)
    objective = build_loss_mean(loss, loss.label)
    proofs.append(field.start.equals(grad(objective)))
    return Decision(
        target, gradient_under_q, proofs=tuple(proofs), decomposition=decomposition, objective=objective
    )


def _decide_by_covariances(field: ReducedGradient, decomposition: Decomposition) -> Decision | None:
    """Use E_mu[h s] - E_mu[h] E_mu[s] = grad Cov_mu(h, log q); the remainder is that of one sample."""
    for centred_form in (find_centred_form(field), find_centred_form(field, reduced=True)):
        if centred_form and centred_form.h.names() & field.random_names.random:
            continue
        covariance = centred_form and build_covariances(centred_form.h, field.loss.defined)
        if not centred_form or not covariance:
            continue
        remainder = recognise_coefficient(
            centred_form.c - centred_form.h * centred_form.share * WEIGHT.invert(), field.random_names
        )
        remainder = replace(remainder, constant=ZERO)
        other_objective = (
            build_objective(remainder) if remainder.remainder or remainder.multiples else Quantity(Side())
        )
        if other_objective is None:
            continue
        (objective, gradient), share = covariance, to_sympy(centred_form.share)
        other_gradient = differentiate_terms(other_objective)
        gradient = gradient * share + other_gradient
        objective_gradient = grad(objective) * share + other_gradient
        objective, proofs = objective * share + other_objective, (prove_gradient(field, gradient),)
        return Decision(
            "objective",
            gradient,
            proofs,
            decomposition,
            objective=objective,
            curl_proof=None,
            objective_gradient=objective_gradient,
        )
    return None


def _decide_attached(field: ReducedGradient, decomposition: Decomposition) -> Decision | None:
    """Use E_mu[grad L] = grad E_mu[L], since mu does not depend on theta."""
    if field.products and not has_detached_part(field.loss):
        objective, gradient = build_loss_mean(field.loss), build_named_gradient(field, decomposition)
        proofs = (prove_gradient(field, gradient), field.start.equals(grad(objective)))
        return Decision("objective", gradient, proofs, decomposition, objective=objective)
    if (
        field.index != "t"
        or field.loss.measure != "mu"
        or field.loss.detached_q
        or field.sequence_coefficient is not None
    ):
        return None
    if (to_sampler := _decide_to_sampler(field, decomposition)) is not None:
        return to_sampler
    attached = _find_attached_with_fixed_sums(field) if field.attached_loss is None else field.attached_loss
    if attached is None:
        return None
    if any(parse_name(x).detached for of in (attached, field.sequence_part) for x in to_ring(of).names()):
        return None
    objective = sum_over_t(attached, "mu")
    if (
        field.loss.typed is not None
        and to_ring(attached) == field.loss.element
        and not has_detached_part(field.loss)
    ):
        objective = replace(objective, labels={field.loss.element: field.loss.typed_label})  # as typed
    objective = objective + expectation(field.sequence_part, "mu") if field.sequence_part else objective
    return _build_token_decision(
        "objective", field, decomposition, (field.exchanged.equals(grad(objective)),), objective=objective
    )


def _decide_to_sampler(field: ReducedGradient, decomposition: Decomposition) -> Decision | None:
    """Use E_mu[sum_t c s_now] = -c grad KL(mu||q), the KL of whole sequences, for a constant c."""
    c = field.score_coefficients.get("now", ZERO)
    if set(field.score_coefficients) != {"now"} or not c or not field.exchanged.context.is_constant(c):
        return None
    objective = KL("mu", "q") * -to_sympy(c)
    with suppress(ProofError):
        proof = field.exchanged.equals(grad(objective))
        return _build_token_decision("objective", field, decomposition, (proof,), objective=objective)
    return None


def _find_attached_with_fixed_sums(field: ReducedGradient) -> Any | None:
    """Return a token loss with this gradient under mu, if no sum H depends on theta; else None."""
    if _has_sums_depending_on_theta(field.loss):
        return None
    if not has_detached_part(field.loss):
        return split_sequence_part(field.loss)[1]
    is_own_score_only = set(field.score_coefficients) == {"now"} and not field.sequence_part
    integral = find_primitive(attach(field.score_coefficients["now"]), "now") if is_own_score_only else None
    return None if integral is None else to_sympy(integral)


def _decide_sequence(field: ReducedGradient, decomposition: Decomposition) -> Decision | None:
    """Treat the sequence as one sample: then every E_m[h s] is a gradient."""
    if field.sequence_coefficient is None:
        return None
    measure, on_policy = field.loss.measure, field.start.context.on_policy
    try:
        proof = field.start.equals(expectation(field.sequence_coefficient * s, measure))
    except ProofError:
        return None
    h = to_ring(field.sequence_coefficient)
    h, measure = (substitute_on_policy(h), "q") if on_policy else (h, measure)
    integrand = find_objective_under(h, measure)
    objective = None if integrand is None else expectation(to_sympy(integrand), measure)
    proofs = (proof, *((field.start.equals(grad(objective)),) if objective else ()))
    return _build_token_decision("objective", field, decomposition, proofs, objective=objective)


def _decide_by_scores_to_date(field: ReducedGradient, decomposition: Decomposition) -> Decision | None:
    """Use E_q[sum_t c sum_{u <= t} s_u] = grad E_q[sum_t c], if E_q[grad c] = 0.

    The same holds with the scores of all u.  Objectives of named terms are added.
    """
    for coefficients, other_objective in (
        (field.coefficients, Quantity(Side())),
        (decomposition.remainder, decomposition.named_objective),
    ):
        is_to_date = set(coefficients) in ({"past", "now"}, {"past", "now", "future"})
        if (
            field.index != "t"
            or not is_to_date
            or other_objective is None
            or any(c != coefficients["now"] for c in coefficients.values())
        ):
            continue
        if any(parse_name(name).base in HELD for name in coefficients["now"].names()):
            continue  # detached sums, whose values may depend on theta
        objective = sum_over_t(to_sympy(coefficients["now"]), "q") + other_objective
        with suppress(ProofError):
            return _build_token_decision(
                "objective",
                field,
                decomposition,
                proofs=(field.exchanged.equals(grad(objective)),),
                objective=objective,
            )
    return None


def _decide_products_by_curl(field: ReducedGradient, decomposition: Decomposition) -> Decision | None:
    """Decide products of means: objective if the curl is 0, no-objective if it is not 0 on some model."""
    if not field.products:
        return None
    from klsym.engine.targets.product_curl import decide_products

    centred_form = find_centred_form(field)
    target, curl_proofs = decide_products(
        [(centred_form.h, ONE)] if centred_form else field.products,
        "mu" if centred_form else "q",
        field.loss.defined,
    )
    gradient = build_named_gradient(field, decomposition)
    if target is None:
        return None
    proofs = (prove_gradient(field, gradient), *curl_proofs)
    curl_proof = curl_proofs[0] if target == "no-objective" else None
    return Decision(target, gradient, proofs, decomposition, objective=None, curl_proof=curl_proof)


def _decide_by_curl(field: ReducedGradient, decomposition: Decomposition) -> Decision | None:
    """Decide single means: objective if the curl is 0, no-objective if it is not 0 on some model."""
    if field.products or not field.index or field.attached_loss is None:
        return None
    measure, on_policy = field.loss.measure, field.start.context.on_policy
    setting = {"on_policy": on_policy, "defined": field.loss.defined}
    try:
        flat_proof = derive(curl(field.attached_loss, measure), **setting).equals(0)  # the constant's is 0
        return _build_token_decision("objective", field, decomposition, (flat_proof,))
    except ProofError:
        pass
    values = choose_tree_values(field.loss)
    attached = substitute_tree_values(field.attached_loss, values)
    setting["defined"] = substitute_in_context(field.loss.defined, values)
    try:
        curl_proof = derive(curl(attached, measure), **setting).differs_from(0)
    except ProofError:
        return None
    gradient = token_gradient(field.attached_loss, measure)
    if field.sequence_part:
        gradient = gradient + expected_gradient(field.sequence_part, measure)
    proof = field.exchanged.equals(gradient)
    added = (proof,) if field.start.start != proof.theorem.statement.right else ()
    return _build_token_decision(
        "no-objective",
        field,
        decomposition,
        proofs=(curl_proof, *added),
        objective=None,
        curl_proof=curl_proof,
    )


RUNGS: tuple[Rung, ...] = (
    _decide_named, _decide_by_primitive, _decide_by_covariances, _decide_attached, _decide_sequence,
    _decide_by_scores_to_date, _decide_products_by_curl, _decide_by_curl,
)  # fmt: skip


def _build_token_decision(
    target: str,
    field: ReducedGradient,
    decomposition: Decomposition,
    proofs: tuple[Proof, ...],
    objective: Any = None,
    curl_proof: Any = None,
) -> Decision:
    gradient = decomposition.whole_quantity
    proofs = (prove_gradient(field, gradient), *proofs)
    return Decision(target, gradient, proofs, decomposition, objective=objective, curl_proof=curl_proof)
