"""The rules on means, the same at one sample, in a batch and along a sequence.  Trusted.

Standard library only.  Below m is a measure, a a coefficient, z a slot (slots.py), s_z its score function.
A rule returns what replaces an atom, and records what that assumes.
"""

from __future__ import annotations

from klsym.errors import Refused
from klsym.kernel.assumptions import Assumptions, Data, read_choice, refuse_unless
from klsym.kernel.densities import build_density_ratio, build_ratio_at, is_zero_where
from klsym.kernel.derivatives import (
    attach,
    differentiate_by_means,
    differentiate_loss,
    is_live,
    list_slots,
    move_to_slot,
)
from klsym.kernel.names import MEASURES, PROBABILITIES, SAMPLE
from klsym.kernel.regions import assume_crossings, assume_slopes
from klsym.kernel.ring import ONE, ExpPoly
from klsym.kernel.slots import SCORES, UPSTREAM, find_slot
from klsym.kernel.statements import Atom, Context, Gradient, Mean, MeanGradient, Score, Side


def apply_chain_rule(atom: MeanGradient, data: Data, assumed: Assumptions) -> Side:
    """E_m[grad L] = sum_z E_m[(dL/dlog q_z) s_z] + sum_a E_m[dL/da] grad a, a over names of expectations.

    Differentiated, a detached quantity has its value.  Each grad a must exist.
    """
    assume_slopes(atom, assumed)
    context, index, m = assumed.context, atom.index, atom.measure
    coefficients = differentiate_loss(atom.loss, index, context).items()
    terms: list[tuple[Atom, ...]] = [(Mean(index, m, attach(c), (z,)),) for z, c in coefficients]
    for mean, c in differentiate_by_means(atom.loss, context).items():
        gradient = Gradient(Side.from_atom(mean))
        assumed.assume_existence(gradient)
        terms.append((Mean(index, m, attach(c)), gradient))
    is_lone = [len(term) for term in terms] in ([], [1])  # one mean exists together with what it replaces
    assumed.assume_existence(*(() if is_lone else (term[0] for term in terms)))
    return Side.combine(*((1, term) for term in terms))


def apply_stop_gradient(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """Outside a gradient sg(x) is x."""
    return Side.from_atom(Mean(mean.index, mean.measure, attach(mean.coefficient), mean.score))


def apply_log_derivative(atom: Gradient, data: Data, assumed: Assumptions) -> Side:
    """grad sum c E_m[a] = sum c (E_m[grad a] + [m = q] sum_z E_q[a s_z]), z over all that is drawn.

    The dominated derivative of q a is (grad a + a s) q.  Where a does not move, E_q[a s] exists with it; else
    one of the two must be assumed to exist, and the other one follows.
    jumps: region -> g, where a is continuous at e = 0, since it changes there by g e.
    """
    total, jumps = Side(), data.get("jumps", {})
    refuse_unless(not jumps or len(atom.of.terms) == 1, "jumps: the gradient of a single mean expected")
    for coefficient, atoms in atom.of.terms:
        refuse_unless(
            not assumed.context.list_names_of_means(coefficient), "an expectation multiplies a mean"
        )
        if not atoms:
            continue  # a constant
        mean = atoms[0]
        if len(atoms) > 1 or not isinstance(mean, Mean) or mean.score:
            raise Refused("the gradient of a sum of means without score function expected, and of no product")
        slots = SCORES[mean.index] if mean.measure == "q" else ()
        scored = [Mean(mean.index, "q", mean.coefficient, (z,)) for z in slots]
        pathwise = Side.from_atom(MeanGradient(mean.index, mean.measure, mean.coefficient))
        total = total + (assumed.combine_means(scored) + pathwise) * coefficient
        assume_crossings(mean, jumps, assumed)
        if mean.measure != SAMPLE:
            assumed.assume_existence(*(scored if is_live(mean.coefficient, assumed.context) else ()))
    return total


def apply_product_rule(atom: Gradient, data: Data, assumed: Assumptions) -> Side:
    """grad sum c E_1 E_2 .. = sum c (grad E_1 E_2 .. + E_1 grad E_2 .. + ..), where each grad E_i exists.

    A product may have a gradient where its factors have none, so that each is a hypothesis.
    """
    terms = []
    for coefficient, atoms in atom.of.terms:
        refuse_unless(
            not assumed.context.list_names_of_means(coefficient), "an expectation multiplies a mean"
        )
        plain = all(isinstance(a, Mean) and not a.score and a.measure != SAMPLE for a in atoms)
        refuse_unless(plain, "products of expectations without score function expected")
        for i, a in enumerate(atoms):
            gradient = Gradient(Side.from_atom(a))
            assumed.assume_existence(gradient)
            terms.append((coefficient, (*atoms[:i], gradient, *atoms[i + 1 :])))
    return Side.combine(*terms)


def apply_linearity(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """E_m[c a] = c E_m[a], as a factor of a product; a lone mean takes c back in."""
    c = assumed.read(data["constant"])
    factors = {name for monomial, _ in c.terms for name, _ in monomial}
    fixed = factors <= set(assumed.context.parameters) and assumed.context.is_constant(c)
    refuse_unless(fixed, "constant: it depends on the sample, or may be 0")
    inner = Mean(mean.index, mean.measure, mean.coefficient * c.invert(), mean.score)
    assumed.assume_existence(*([inner] if c.names() else ()))  # a number that is not 0 changes nothing
    return Side(((c, (inner,)),))


def apply_change_of_measure(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """E_m[a] = E_m'[a m/m'], slot by slot.

    Both sides sum m a, one where m > 0, the other where m' > 0: what the other leaves out must vanish.
    """
    m, to = mean.measure, read_choice(data, "to", MEASURES)
    refuse_unless(m != SAMPLE, "a mean expected, not the value at one sample")
    refuse_unless(not mean.index or to != "count", "the counting measure speaks of single samples alone")
    for a, b in ((m, to), (to, m)):
        if not is_zero_where(mean, b, assumed.context):
            assumed.assume_support(a, b)
    assumed.draw(mean.index, m, to)
    ratio = build_ratio_at(mean.index, m, to, assumed.context)
    return Side.from_atom(Mean(mean.index, to, mean.coefficient * ratio, mean.score))


def refuse_downstream(index: str, factor: ExpPoly, score: Score, data: Data, context: Context) -> None:
    """Refuse unless the factor and the scores speak only of what does not depend on the slot."""
    allowed = UPSTREAM[index][read_choice(data, "slot", UPSTREAM[index])]
    foreign = sorted((list_slots(factor, context) | {find_slot(z) for z in score}) - set(allowed))
    refuse_unless(not foreign, f"{foreign} may depend on the slot {data['slot']}: {sorted(allowed)} do not")


def _assume_existence_of_terms(mean: Mean, assumed: Assumptions) -> None:
    """Assume, over t, that each term of the sum has an expectation, given what comes before it."""
    if "t" in mean.index:
        assumed.assume_existence(mean)


def apply_score_mean_zero(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """E_q[c s_z] = 0 where c and other scores do not depend on z: the mass of q is 1 for every theta."""
    slot, a = data["slot"], mean.coefficient
    refuse_unless(mean.measure == "q", f"E_m[c s] = 0 needs m = q, got m = {mean.measure}")
    score = tuple(z for z in mean.score if find_slot(z) != slot)
    has_one_score = len(mean.score) - len(score) == 1
    refuse_unless(
        has_one_score, f"one score function of the slot {str(slot)[:20]} expected, got {list(mean.score)}"
    )
    refuse_downstream(mean.index, factor=a, score=score, data=data, context=assumed.context)
    _assume_existence_of_terms(mean, assumed)
    assumed.assume_exchange(Mean(mean.index, "q", ONE if assumed.context.is_constant(a) else a, score))
    return Side()


def apply_ratio_mean_one(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """E_m[c (m'/m)_z] = E_m[c] where c and the scores do not depend on z: the mass of m' is 1."""
    m, measure, slot = mean.measure, read_choice(data, "of", PROBABILITIES), data["slot"]
    refuse_unless(m in PROBABILITIES, "a mean under a probability measure expected")
    remainder = mean.coefficient * move_to_slot(build_density_ratio(m, measure), slot, assumed.context)
    refuse_downstream(mean.index, factor=remainder, score=mean.score, data=data, context=assumed.context)
    _assume_existence_of_terms(mean, assumed)
    assumed.assume_support(measure, m)
    assumed.draw(mean.index, m, measure)
    return Side.from_atom(Mean(mean.index, m, remainder, mean.score))


def apply_normalisation(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """E_m[c] = c for a constant c: a probability measure has total mass one."""
    refuse_unless(mean.measure in (*PROBABILITIES, SAMPLE), "the counting measure has no total mass one")
    refuse_unless("t" not in mean.index, "a sum over t of a constant is a multiple of the length")
    refuse_unless(not mean.score, "no score function expected")
    refuse_unless(assumed.context.is_constant(mean.coefficient), "the coefficient depends on the sample")
    assumed.draw("", mean.measure)
    return Side.from_constant(mean.coefficient)
