"""Decide what an expected gradient is the gradient of: one ladder for every index.  Untrusted.

named         named terms add up to it, and all of them are gradients
primitive     at one sample: E_q[c s] = grad E_q[F]
covariances   a batch that is centred under mu: grad Cov_mu(h, log q)
attached      tokens from mu: grad E_mu[L], since mu does not depend on theta
whole         tokens whose scores add up to E_m[h s] of the whole sequence
curl          0: separable; not 0 on some model: no objective
open          none of these
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from klsym.engine.fields.field import ReducedGradient, split_own_share, split_sequence_part
from klsym.engine.fields.in_trees import choose_tree_values, substitute_in_context, substitute_tree_values
from klsym.engine.fields.named_terms import Decomposition, decompose, name_target, recognise_coefficient
from klsym.engine.fields.primitives import (
    WEIGHT,
    find_objective_under,
    find_primitive,
    select_constant_terms,
    substitute_on_policy,
)
from klsym.engine.fields.slot_loss import SlotLoss, collect_random_names
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.numeric_curl import Pushes, twisted
from klsym.engine.proof.quantities import KL, Quantity, expectation, expected_gradient, grad
from klsym.engine.proof.sequence_quantities import curl, mean_over_i, sum_over_t, token_gradient
from klsym.engine.regions.in_span import is_combination
from klsym.engine.targets.objectives import covariances, gradient_of, objective
from klsym.engine.targets.product_curl import decide_products
from klsym.errors import ProofError
from klsym.kernel.derivatives import attach, is_live
from klsym.kernel.names import HELD, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.language.abbreviations import E, Side
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import s, without_sg


@dataclass(frozen=True)
class Decision:
    """What a field is.

    target: None where it is open.  proofs: the first says that the field is `right`.
    objective: what it is the gradient of, where the target itself does not say so.
    turned: the theorem that its curl is not 0.
    stated: the gradient of the objective, in fewer words than `right`.
    witness: a model on which numbers alone say that the curl is not 0.
    trust: kernel, or numeric where the target rests on such a model or on more than the proofs.
    """

    target: str | None
    right: Quantity
    proofs: tuple[Proof, ...]
    found: Decomposition
    objective: Quantity | None = None
    turned: Proof | None = None
    stated: Quantity | None = None
    witness: dict[str, Any] | None = None
    trust: str = "kernel"

    @property
    def of_objective(self) -> Proof | None:
        """The proof that ends in the gradient of the objective, beside the first one."""
        if self.objective is None:
            return None
        ends = (grad(self.objective).side, gradient_of(self.objective).side)
        first, *others = (proof.theorem.statement for proof in self.proofs)
        starts = (first.left, first.right)
        pairs = zip(others, self.proofs[1:], strict=True)
        found = (proof for told, proof in pairs if told.right in ends and told.left in starts)
        return None if first.right in ends else next(found, None)


Rung = Callable[[ReducedGradient, Decomposition], Decision | None]


def decide(field: ReducedGradient) -> Decision:
    """The first rung that holds."""
    if field.canonical_form is None:
        return _beyond(field)
    try:
        return _first_rung(field)
    except ProofError:  # a canonical form that one side of an equation does not come to
        return _beyond(field)


def _first_rung(field: ReducedGradient) -> Decision:
    """The first rung of the ladder that holds; raises ProofError where an equation is not derived."""
    found = decompose(field.index, field.coefficients, field.reduced_parameters, field.loss.defined)
    for rung in RUNGS:
        decision = rung(field, found)
        if decision is not None:
            return decision
    right = right_of(field, found)
    proofs = (equation(field, right),)
    if field.index and field.attached_loss is None:
        return by_numbers(field, right, proofs, found)
    return Decision(None, right, proofs, found)


def _beyond(field: ReducedGradient) -> Decision:
    """Of means that are not brought to a canonical form: what is attached under mu, or numbers."""
    right, proofs = with_scores(field)
    found = Decomposition((), {})
    if field.loss.index == "i" and not is_held(field.loss):
        aim = own_mean(field.loss)
        with suppress(ProofError):
            return Decision("separable", right, (*proofs, field.start.equals(grad(aim))), found, aim)
    return by_numbers(field, right, proofs, found)


def is_held(loss: SlotLoss) -> bool:
    """Is something in it detached, or does its sampler move?  H is detached, too, where its value moves."""
    detached = loss.detached or any(parse_name(x).detached for x in loss.element.names())
    return detached or _sums_move(loss) or loss.measure != "mu" or loss.detached_q


def _sums_move(loss: SlotLoss) -> bool:
    """Does a value of H, H2, .. depend on theta?"""
    return any(is_live(to_ring(without_sg(value)), loss.defined) for value in loss.sums.values())


def with_scores(field: ReducedGradient) -> tuple[Quantity, tuple[Proof, ...]]:
    """The field with its scores written out, and the proof that it is this."""
    right = Quantity(field.differentiated.left)
    return right, (field.start.equals(right),)


def own_mean(loss: SlotLoss, label: Any = None) -> Quantity:
    """E_mu[L], or E_mu[mean_i L_i] of a batch."""
    aim = (mean_over_i if loss.index == "i" else expectation)(loss.expression, "mu")
    label = label or (loss.expression if loss.typed is None else loss.typed_label)
    return replace(aim, labels={loss.element: label})


def by_numbers(
    field: ReducedGradient,
    right: Quantity,
    proofs: tuple[Proof, ...],
    found: Decomposition,
    spread: Mapping[str, SlotLoss] | None = None,
) -> Decision:
    """none where the field has a curl on a model, else open; spread: names -> h, of normalised(h)."""
    loss, on_policy = field.loss, field.loss.measure == "q" or field.loss.detached_q
    critic = {name: value for name, value in choose_tree_values(loss).items() if name != "A"}
    of = {slot: attach(h.substitute(critic)) for slot, h in field.score_coefficients.items()}
    sums = {name: attach(to_ring(value).substitute(critic)) for name, value in loss.sums.items()}
    inner = {
        name: Pushes({"self": attach(h.element)}, False, on_policy, defined=h.defined)
        for name, h in (spread or {}).items()
    }
    pushes = Pushes(
        of, loss.index == "t", on_policy, sums, inner, substitute_in_context(loss.defined, critic)
    )
    witness = twisted(pushes, field.start.left_text)
    if witness is None:
        return Decision(None, right, proofs, found)
    return Decision("none", right, proofs, found, witness=witness, trust="numeric")


# ---------------------------------------------------------------------------- rungs
def _named(field: ReducedGradient, found: Decomposition) -> Decision | None:
    if found.remainder or field.products or any(term.objective is None for term, _ in found.named):
        return None
    contract = all(term.part for term, _ in found.named)
    target = name_target([*found.combination]) if contract else "separable"
    right = found.whole_quantity
    return Decision(target, right, (equation(field, right),), found, None if contract else found.objective)


def _primitive(field: ReducedGradient, found: Decomposition) -> Decision | None:
    """At one sample: F with F + dF/dlog q = c, beside the independence of the named terms."""
    if field.index or field.products:
        return None
    of = recognise_coefficient(field.c, field.random_names)
    if collect_random_names(field.c, field.loss.defined) - {*SAMPLE_BASES}:
        return _with_regions(field, found, of.target)
    aim = objective(of)
    if aim is not None and "length" in of.remainder.names():
        right = gradient_of(aim)
        return Decision(of.target, right, (equation(field, right),), found, aim)
    plain = Quantity(Side.atom(E("q", field.c, ("x",))))
    form = derive(plain, defined=field.loss.defined)
    apart = () if field.loss.defined.definitions else (form.is_no_combination(),)
    proofs = (equation(field, plain), *apart)
    if aim is None:
        return Decision(of.target, plain, proofs, found)
    return Decision(of.target, plain, (*proofs, form.equals(gradient_of(aim))), found, aim)


def _with_regions(field: ReducedGradient, found: Decomposition, target: str) -> Decision | None:
    """Of a coefficient by cases: what is attached under mu is the gradient of its own mean."""
    if is_combination(field.c, field.exchanged.context):  # a combination of names, perhaps: open
        return None
    plain = Quantity(Side.atom(E("q", field.c, ("x",))))
    proofs, loss = [equation(field, plain)], field.loss
    if is_held(loss):
        return Decision(target, plain, tuple(proofs), found)
    aim = own_mean(loss, loss.label)
    proofs.append(field.start.equals(grad(aim)))
    return Decision(target, plain, tuple(proofs), found, aim)


def _covariances(field: ReducedGradient, found: Decomposition) -> Decision | None:
    """E_mu[h s] - E_mu[h] E_mu[s] = grad Cov_mu(h, log q), and what is left at one sample."""
    for off in (taken_off(field), taken_off(field, reduced=True)):
        if off and off.h.names() & field.random_names.random:
            continue
        moved = off and covariances(off.h, field.loss.defined)
        if not off or not moved:
            continue
        left = recognise_coefficient(off.c - off.h * off.share * WEIGHT.inverse(), field.random_names)
        left = replace(left, constant=ZERO)
        beside = objective(left) if left.remainder or left.multiples else Quantity(Side())
        if beside is None:
            continue
        (aim, right), share, more = moved, to_sympy(off.share), gradient_of(beside)
        right, stated = right * share + more, grad(aim) * share + more
        proofs = (equation(field, right),)
        return Decision("separable", right, proofs, found, aim * share + beside, None, stated)
    return None


def _attached(field: ReducedGradient, found: Decomposition) -> Decision | None:
    """E_mu[L]: mu does not move, so that E_mu[grad L] = grad E_mu[L]."""
    if field.products and not is_held(field.loss):
        aim, right = own_mean(field.loss), right_of(field, found)
        proofs = (equation(field, right), field.start.equals(grad(aim)))
        return Decision("separable", right, proofs, found, aim)
    if (
        field.index != "t"
        or field.loss.measure != "mu"
        or field.loss.detached_q
        or field.sequence_coefficient is not None
    ):
        return None
    attached = _with_fixed_sums(field) if field.attached_loss is None else field.attached_loss
    if attached is None:
        return None
    if any(parse_name(x).detached for of in (attached, field.sequence_part) for x in to_ring(of).names()):
        return None
    aim = sum_over_t(attached, "mu")
    if field.loss.typed is not None and to_ring(attached) == field.loss.element and not is_held(field.loss):
        aim = replace(aim, labels={field.loss.element: field.loss.typed_label})  # it is what was typed
    aim = aim + expectation(field.sequence_part, "mu") if field.sequence_part else aim
    return _of_tokens("separable", field, found, (field.exchanged.equals(grad(aim)),), aim)


def _with_fixed_sums(field: ReducedGradient) -> Any | None:
    """A loss of each token with this gradient under mu, where no sum H moves with theta."""
    if _sums_move(field.loss):
        return None
    if not is_held(field.loss):
        return split_sequence_part(field.loss)[1]
    alone = set(field.score_coefficients) == {"now"} and not field.sequence_part
    found = find_primitive(attach(field.score_coefficients["now"]), "now") if alone else None
    return None if found is None else to_sympy(found)


def _of_the_whole(field: ReducedGradient, found: Decomposition) -> Decision | None:
    """A whole sequence is one sample, of which every E_m[h s] is a gradient."""
    if field.sequence_coefficient is None:
        return None
    under, on_policy = field.loss.measure, field.start.context.on_policy
    try:
        same = field.start.equals(expectation(field.sequence_coefficient * s, under))
    except ProofError:
        return None
    h = (
        substitute_on_policy(to_ring(field.sequence_coefficient))
        if on_policy
        else to_ring(field.sequence_coefficient)
    )
    under = "q" if on_policy else under
    of = find_objective_under(h, under)
    aim = None if of is None else expectation(to_sympy(of), under)
    return _of_tokens(
        "separable", field, found, (same, *((field.start.equals(grad(aim)),) if aim else ())), aim
    )


def _to_date(field: ReducedGradient, found: Decomposition) -> Decision | None:
    """E_q[sum_t c sum_{u <= t} s_u] = grad E_q[sum_t c], where c itself does not move in the mean.

    The same with the scores of all u, and beside named terms, whose objectives are added.
    """
    for of, beside in ((field.coefficients, Quantity(Side())), (found.remainder, found.named_objective)):
        credited = set(of) in ({"past", "now"}, {"past", "now", "future"})
        if field.index != "t" or not credited or beside is None or any(c != of["now"] for c in of.values()):
            continue
        if any(parse_name(name).base in HELD for name in of["now"].names()):
            continue  # sums that are held fixed, whose values may move
        aim = sum_over_t(to_sympy(of["now"]), "q") + beside
        with suppress(ProofError):
            return _of_tokens("separable", field, found, (field.exchanged.equals(grad(aim)),), aim)
    return None


def _curl(field: ReducedGradient, found: Decomposition) -> Decision | None:
    """separable where the curl is 0, none where it is not on some model."""
    if field.products:
        off = taken_off(field)
        target, turned = decide_products(
            [(off.h, ONE)] if off else field.products, "mu" if off else "q", field.loss.defined
        )
        right = right_of(field, found)
        if target is None:
            return None
        proofs = (equation(field, right), *turned)
        return Decision(target, right, proofs, found, None, turned[0] if target == "none" else None)
    if not field.index or field.attached_loss is None:
        return None
    under, on_policy = field.loss.measure, field.start.context.on_policy
    setting = {"on_policy": on_policy, "defined": field.loss.defined}
    try:
        flat = derive(curl(field.attached_loss, under), **setting).equals(0)  # the constant's is 0
        return _of_tokens("separable", field, found, (flat,))
    except ProofError:
        pass
    values = choose_tree_values(field.loss)
    attached = substitute_tree_values(field.attached_loss, values)
    setting["defined"] = substitute_in_context(field.loss.defined, values)
    try:
        twisted = derive(curl(attached, under), **setting).differs_from(0)
    except ProofError:
        return None
    same = token_gradient(field.attached_loss, under)
    same = same + expected_gradient(field.sequence_part, under) if field.sequence_part else same
    proof = field.exchanged.equals(same)
    told = (proof,) if field.start.start != proof.theorem.statement.right else ()
    return _of_tokens("none", field, found, (twisted, *told), None, twisted)


RUNGS: tuple[Rung, ...] = (
    _named, _primitive, _covariances, _attached, _of_the_whole, _to_date, _curl,
)  # fmt: skip


def _of_tokens(
    target: str,
    field: ReducedGradient,
    found: Decomposition,
    proofs: tuple[Proof, ...],
    aim: Any = None,
    turned: Any = None,
) -> Decision:
    return Decision(
        target, found.whole_quantity, (equation(field, found.whole_quantity), *proofs), found, aim, turned
    )


# ---------------------------------------------------------------------------- the main equation
def equation(field: ReducedGradient, right: Quantity) -> Proof:
    """The field is this; (n - 1)/m is 1 by the premise, and means off-policy are multiplied out."""
    left = field.exchanged if field.loss.index or field.canonical_form is None else field.canonical_form
    if left.context.premises:
        return left.equals(right, using=[(0, None)])
    try:
        return left.equals(right)
    except ProofError:
        if field.loss.index != "i":
            raise
        return left.equals(right, evaluate=True)


def right_of(field: ReducedGradient, found: Decomposition) -> Quantity:
    """The field in words of named quantities; E_q[a] E_q[s/rho] is -E_mu[a rho] grad KL(mu||q)."""
    if field.index == "t" or (not found.remainder and not field.products):
        return found.whole_quantity
    off = taken_off(field)
    if off is None:
        total = Quantity(Side.atom(E("q", field.c, ("x",))))
        pairs = (Side.of((1, (E("q", a), E("q", b, ("x",))))) for a, b in field.products)
        return sum(map(Quantity, pairs), total)
    named = decompose("", {"x": off.c}, field.reduced_parameters, field.loss.defined)
    total = named.whole_quantity if not named.remainder else Quantity(Side.atom(E("q", off.c, ("x",))))
    return total + off.mean * grad(KL("mu", "q")) * to_sympy(off.share)


@dataclass(frozen=True)
class TakenOff:
    """The expected gradient E_q[c s] - share E_mu[h] E_mu[s]; share is 1, or 1 - 1/n."""

    share: ExpPoly
    h: ExpPoly
    c: ExpPoly

    @property
    def mean(self) -> Quantity:
        """E_mu[h]."""
        return expectation(to_sympy(self.h), "mu")


def taken_off(field: ReducedGradient, reduced: bool = False) -> TakenOff | None:
    """Return h and c of an expected gradient of that form; None for any other.

    reduced: h in canonical form, which lacks the part whose mean is a number; not as the option centres it.
    """
    total = ZERO
    for a, b in field.products:
        scale = b * WEIGHT
        if collect_random_names(scale, field.loss.defined):
            return None
        total = total - a * WEIGHT * scale
    share, h = split_own_share(total)
    if field.loss.centred_coefficient is None or reduced or not total:
        return TakenOff(share, h, field.c) if total else None
    c = field.loss.centred_coefficient * share * WEIGHT.inverse()
    return TakenOff(
        share, field.loss.centred_coefficient, c - select_constant_terms(c, field.random_names.all)
    )
