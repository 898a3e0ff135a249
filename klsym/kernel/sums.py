"""Rules on sums over the steps of a sequence, and the curl of a field.  Trusted; standard library only.

The first three are identities at each sequence: none exchanges a sum over t with the expectation.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from klsym.kernel.assumptions import Assumptions, Data, one_of, refuse_unless
from klsym.kernel.derivatives import attach, mentioned, slopes
from klsym.kernel.names import HELD, LOG_RATIOS, PROBABILITIES, parse_name
from klsym.kernel.regions import assume_crossings
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SCORES, SECOND, SEQUENCE, at_slot, is_second, slot_of_score
from klsym.kernel.statements import Context, Curl, Mean, Side

SUMS = (*LOG_RATIOS, "R", *HELD, "length")  # what a whole sequence has is the sum over its steps
SCORE = "s"  # stands for the score function among the names of variables


def sum_over_t(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """V = sum_t V_t, s = sum_t s_t: one factor of a whole-sequence quantity becomes a sum over its steps."""
    of = one_of(data, "of", (SCORE, *SUMS))
    refuse_unless(mean.index == "" and mean.measure != "count", "a mean over whole sequences expected")
    moved = _with(_without(mean, of, "x", assumed.context), of, "now")
    assumed.draw("t", mean.measure)
    return Side.atom(replace(moved, index="t"))


def parts_of_a_sum(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """V = V_past + V_now + V_future for the variables named, and s for the score function; length_now = 1."""
    names = data["of"]
    refuse_unless("t" in mean.index, "a sum over t expected")
    known = set(names) <= {SCORE, *SUMS}
    refuse_unless(known, f"of: a list of names among {sorted((SCORE, *SUMS))} expected")
    values = {n: sum((_one(n, slot) for slot in SEQUENCE), ZERO) for n in names}
    a = mean.coefficient.substitute(values | {"length[now]": ONE})
    scores = [_score_parts(entry) if SCORE in names else (entry,) for entry in mean.score]
    found = (tuple(sorted(choice)) for choice in product(*scores))
    refuse_unless(len(scores) <= 4, "four score functions at most")
    return assumed.several([Mean(mean.index, mean.measure, a, score) for score in found])


def _score_parts(entry: str) -> tuple[str, ...]:
    second = SECOND if is_second(entry) else ""
    return tuple(z + second for z in SEQUENCE) if slot_of_score(entry) == "x" else (entry,)


def exchange_of_sums(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """sum_t X_t sum_{u>t} Y_u = sum_u Y_u sum_{t<u} X_t, times what does not depend on t and u."""
    x, y, context = str(data["now"]), str(data["other"]), assumed.context
    slot = one_of(data, "slot", ("past", "future"))
    refuse_unless("t" in mean.index, "a sum over t expected")
    rest = _without(_without(mean, x, "now", context), y, slot, context)
    left = mentioned(rest.coefficient, context) | {slot_of_score(z) for z in rest.score}
    refuse_unless(
        left <= {"x", "others"}, f"more than {x} and {y} depends on t: {sorted(left - {'x', 'others'})}"
    )
    opposite = "future" if slot == "past" else "past"
    return Side.atom(_with(_with(rest, y, "now"), x, opposite))


def _one(name: str, slot: str) -> ExpPoly:
    """The variable of a slot; the length of the step itself is 1."""
    return ONE if (name, slot) == ("length", "now") else ExpPoly.variable(at_slot(name, slot))


def _with(mean: Mean, name: str, slot: str) -> Mean:
    """The mean with one factor `name` of the slot more."""
    if name == SCORE:
        return replace(mean, score=tuple(sorted((*mean.score, slot))))
    return replace(mean, coefficient=mean.coefficient * _one(name, slot))


def _without(mean: Mean, name: str, slot: str, context: Context) -> Mean:
    """The mean with one factor `name` of the slot less."""
    summed = name in (SCORE, *SUMS) or parse_name(name).base in context.function_arguments
    refuse_unless(summed, f"{name[:20]!r} is no sum over positions")
    if name == SCORE:
        refuse_unless(slot in mean.score, f"no score function in the slot {slot}")
        first = mean.score.index(slot)
        return replace(mean, score=mean.score[:first] + mean.score[first + 1 :])
    one = _one(name, slot)
    at = at_slot(name, slot)
    factor = one == ONE or all(dict(monomial).get(at, 0) > 0 for monomial, _ in mean.coefficient.terms)
    refuse_unless(factor, f"{at} is no factor of the coefficient")
    return replace(mean, coefficient=mean.coefficient * one.inverse())


def curl(atom: Curl, data: Data, assumed: Assumptions) -> Side:
    """d_v F.u - d_u F.v for F = E_m[sum_z c_z s_z]: the Hessians of log q are symmetric and cancel.

    d_v moves m = q along s.v of all that is drawn, and each c_z along its own slots.
    """
    index, m, context = atom.index, atom.measure, assumed.context
    refuse_unless(m in PROBABILITIES, "a field is a mean under q, p or mu")
    field = {z: attach(detached) for z, detached in slopes(atom.loss, index, context).items()}
    terms: list[tuple[str, str, ExpPoly]] = []
    for z, c in field.items():
        assume_crossings(Mean(index, m, c, (z,)), {}, assumed)
        terms += [(y, z, c) for y in SCORES[index] if m == "q"]
        terms += [(y, z, d) for y, d in slopes(c, index, context).items()]
    total: list[tuple[int, tuple[Mean]]] = []
    for y, z, c in terms:  # c (s_y.v s_z.u - s_y.u s_z.v)
        total.append((1, (Mean(index, m, c, tuple(sorted((y + SECOND, z)))),)))
        total.append((-1, (Mean(index, m, c, tuple(sorted((y, z + SECOND)))),)))
    side = Side.of(*total)
    assumed.exist(*(atoms[0] for _, atoms in side.terms))  # none or several: each has its counterpart
    return side
