"""The rules on means, the same at one sample, in a batch and along a sequence.  Trusted.

Standard library only.  Below m is a measure, a a coefficient, z a slot (slots.py), s_z its score function.
What the theorem must then assume is returned beside the result.
"""

from __future__ import annotations

from typing import Any

from klsym.errors import Refused
from klsym.kernel.derivatives import (
    Data,
    Outcome,
    attach,
    density_ratio,
    derivative_of_name,
    drawn,
    exist,
    fades,
    in_slot,
    measure_in,
    mentioned,
    ratio_at,
    refuse_unless,
    several,
    slopes,
)
from klsym.names import PROBABILITIES, SAMPLE
from klsym.ring import ONE, ExpPoly
from klsym.slots import SCORES, UPSTREAM, slot_of_score
from klsym.statements import Context, Gradient, Mean, MeanGradient, Score, Side


def chain_rule(atom: MeanGradient, data: Data, context: Context) -> Outcome:
    """E_m[grad L] = sum_z E_m[(dL/dlog q_z) s_z]; differentiated, a detached quantity has its value."""
    found = slopes(atom.loss, atom.index, context).items()
    return several([Mean(atom.index, atom.measure, attach(c), (z,)) for z, c in found], context)


def stop_gradient(mean: Mean, data: Data, context: Context) -> Outcome:
    """Outside a gradient sg(x) is x."""
    return Side.atom(Mean(mean.index, mean.measure, attach(mean.coefficient), mean.score)), set()


def log_derivative(atom: Gradient, data: Data, context: Context) -> Outcome:
    """grad sum c E_m[a] = sum c (E_m[grad a] + [m = q] sum_z E_q[a s_z]), z over all that is drawn."""
    total, assumed = Side(), set()
    for coefficient, atoms in atom.of.terms:
        if not atoms:
            continue  # a constant
        mean = atoms[0]
        if len(atoms) > 1 or not isinstance(mean, Mean) or mean.score:
            raise Refused("the gradient of a sum of means without score function expected, and of no product")
        moved = SCORES[mean.index] if mean.measure == "q" else ()
        scored = [Mean(mean.index, "q", mean.coefficient, (z,)) for z in moved]
        pathwise = Side.atom(MeanGradient(mean.index, mean.measure, mean.coefficient))
        total = total + (several(scored, context)[0] + pathwise) * coefficient
        if mean.measure != SAMPLE:
            assumed |= {("exchange", mean)} | drawn(mean.index, mean.measure)
            live = any(derivative_of_name(n) for n in mean.coefficient.names() if context.is_sample(n))
            assumed |= exist(scored if len(scored) > 1 or live else [], context)
    return total, assumed


def linearity(mean: Mean, data: Data, context: Context) -> Outcome:
    """E_m[c a] = c E_m[a], as a factor of a product."""
    c = ExpPoly.from_json(data["constant"])
    context.check(c)
    refuse_unless(context.is_constant(c), "constant: it depends on the sample")
    inner = Mean(mean.index, mean.measure, mean.coefficient * c.inverse(), mean.score)
    return Side(((c, (inner,)),)), exist([inner] if c.names() else [], context)  # a lone mean takes c back in


def change_of_measure(mean: Mean, data: Data, context: Context) -> Outcome:
    """E_m[a] = E_m'[a m/m'], slot by slot.

    Both sides sum m a, one where m > 0, the other where m' > 0: what the other leaves out must vanish.
    """
    m, to = mean.measure, measure_in(data, "to")
    refuse_unless(m != SAMPLE, "a mean expected, not the value at one sample")
    refuse_unless(not mean.index or to != "count", "the counting measure speaks of single samples alone")
    ratio = ratio_at(mean.index, m, to, context)
    assumed = {("support", a, b) for a, b in ((m, to), (to, m)) if m != to and not fades(mean, b, context)}
    moved = Mean(mean.index, to, mean.coefficient * ratio, mean.score)
    return Side.atom(moved), assumed | drawn(mean.index, m, to)


def refuse_downstream(index: str, factor: ExpPoly, score: Score, slot: Any, context: Context) -> None:
    """Refuse unless the factor and the scores speak only of what does not depend on the slot."""
    known = slot in UPSTREAM[index]
    refuse_unless(known, f"slot: one of {sorted(UPSTREAM[index])} expected, got {str(slot)[:20]!r}")
    allowed = UPSTREAM[index][slot]
    foreign = sorted((mentioned(factor, context) | {slot_of_score(z) for z in score}) - set(allowed))
    refuse_unless(not foreign, f"{foreign} may depend on the slot {slot}: only {sorted(allowed)} do not")


def score_mean_zero(mean: Mean, data: Data, context: Context) -> Outcome:
    """E_q[c s_z] = 0 where c and other scores do not depend on z: the mass of q is 1 for every theta."""
    slot, a = data["slot"], mean.coefficient
    refuse_unless(mean.measure == "q", f"E_m[c s] = 0 needs m = q, got m = {mean.measure}")
    score = tuple(z for z in mean.score if slot_of_score(z) != slot)
    one = len(mean.score) - len(score) == 1
    refuse_unless(one, f"one score function of the slot {str(slot)[:20]} expected, got {list(mean.score)}")
    refuse_downstream(mean.index, a, score, slot, context)
    a = ONE if context.is_constant(a) else a
    return Side(), {("exchange", Mean(mean.index, "q", a, score)), *drawn(mean.index, "q")}


def ratio_mean_one(mean: Mean, data: Data, context: Context) -> Outcome:
    """E_m[c (m'/m)_z] = E_m[c] where c and the scores do not depend on z."""
    m, of, slot = mean.measure, measure_in(data, "of"), data["slot"]
    refuse_unless({m, of} <= set(PROBABILITIES), "two probability measures expected")
    rest = mean.coefficient * in_slot(density_ratio(m, of), slot, context)
    refuse_downstream(mean.index, rest, mean.score, slot, context)
    return Side.atom(Mean(mean.index, m, rest, mean.score)), {("support", of, m), *drawn(mean.index, m, of)}


def normalisation(mean: Mean, data: Data, context: Context) -> Outcome:
    """E_m[c] = c for a constant c: a probability measure has total mass one."""
    refuse_unless(mean.measure in (*PROBABILITIES, SAMPLE), "the counting measure has no total mass one")
    refuse_unless("t" not in mean.index, "a sum over t of a constant is a multiple of the length")
    refuse_unless(not mean.score, "no score function expected")
    refuse_unless(context.is_constant(mean.coefficient), "the coefficient depends on the sample")
    return Side.constant(mean.coefficient), set()
