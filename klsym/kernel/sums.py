"""Rules on sums over the steps of a sequence, and the curl of a field.  Trusted; standard library only."""

from __future__ import annotations

from itertools import product

from klsym.kernel.derivatives import (
    Data,
    Outcome,
    attach,
    drawn,
    exist,
    mentioned,
    refuse_unless,
    several,
    slopes,
)
from klsym.names import LOG_RATIOS, PROBABILITIES, parse_name
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.slots import SCORES, SECOND, SEQUENCE, at_slot, is_second, slot_of_score
from klsym.statements import Context, Curl, Mean, Side

SUMS = (*LOG_RATIOS, "R", "H", "length")  # what a whole sequence has is the sum over its steps
SCORE = "s"  # stands for the score function among the names of variables


def sum_over_t(mean: Mean, data: Data, context: Context) -> Outcome:
    """V = sum_t V_t, s = sum_t s_t: one factor of a whole-sequence quantity becomes a sum over its steps."""
    of, a, score = data["of"], mean.coefficient, mean.score
    refuse_unless(mean.index == "" and mean.measure != "count", "a mean over whole sequences expected")
    if of == SCORE:
        refuse_unless("x" in score, "there is no score function")
        score = ("now", *score[1:])  # sorted: x before x'
    else:
        refuse_unless(of in SUMS, f"of: one of {sorted((SCORE, *SUMS))} expected, got {str(of)[:20]!r}")
        factor = all(dict(monomial).get(of, 0) > 0 for monomial, _ in a.terms)
        refuse_unless(factor, f"{of} is no factor of the coefficient")
        a = a * ExpPoly.variable(of).inverse() * _one(of, "now")
    return Side.atom(Mean("t", mean.measure, a, score)), drawn("t", mean.measure)


def _one(name: str, slot: str) -> ExpPoly:
    """The variable of a slot; the length of the step itself is 1."""
    return ONE if (name, slot) == ("length", "now") else ExpPoly.variable(at_slot(name, slot))


def parts_of_a_sum(mean: Mean, data: Data, context: Context) -> Outcome:
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
    return several([Mean(mean.index, mean.measure, a, score) for score in found], context)


def _score_parts(entry: str) -> tuple[str, ...]:
    second = SECOND if is_second(entry) else ""
    return tuple(z + second for z in SEQUENCE) if slot_of_score(entry) == "x" else (entry,)


def exchange_of_sums(mean: Mean, data: Data, context: Context) -> Outcome:
    """sum_t X_t sum_{u>t} Y_u = sum_u Y_u sum_{t<u} X_t, times what does not depend on t and u."""
    x, y, slot = str(data["now"]), str(data["other"]), data["slot"]
    refuse_unless("t" in mean.index, "a sum over t expected")
    refuse_unless(slot in ("past", "future"), "slot: 'past' or 'future' expected")
    rest = _times(_times(mean, x, "now", -1, context), y, slot, -1, context)
    left = mentioned(rest.coefficient, context) | {slot_of_score(z) for z in rest.score}
    refuse_unless(
        left <= {"x", "others"}, f"more than {x} and {y} depends on t: {sorted(left - {'x', 'others'})}"
    )
    opposite = "future" if slot == "past" else "past"
    return Side.atom(_times(_times(rest, y, "now", 1, context), x, opposite, 1, context)), set()


def _times(mean: Mean, name: str, slot: str, power: int, context: Context) -> Mean:
    """The mean with one factor `name` of the slot more (1) or less (-1)."""
    summed = name in (SCORE, *SUMS) or parse_name(name).base in context.function_arguments
    refuse_unless(summed, f"{name[:20]!r} is no sum over positions")
    score, a = list(mean.score), mean.coefficient
    if name != SCORE:
        a = a * _one(name, slot) ** power
    elif power == 1:
        score.append(slot)
    else:
        refuse_unless(slot in score, f"no score function in the slot {slot}")
        score.remove(slot)
    return Mean(mean.index, mean.measure, a, tuple(sorted(score)))


def curl(atom: Curl, data: Data, context: Context) -> Outcome:
    """d_v F.u - d_u F.v for F = E_m[sum_z c_z s_z]: the Hessians of log q are symmetric and cancel.

    d_v moves m = q along s.v of all that is drawn, and each c_z along its own slots.
    """
    index, m = atom.index, atom.measure
    refuse_unless(m in PROBABILITIES, "a field is a mean under q, p or mu")
    field = {z: attach(detached) for z, detached in slopes(atom.loss, index, context).items()}
    terms: list[tuple[str, str, ExpPoly]] = []
    for z, c in field.items():
        terms += [(y, z, c) for y in SCORES[index] if m == "q"]
        terms += [(y, z, d) for y, d in slopes(c, index, context).items()]
    total: list[tuple[int, tuple[Mean]]] = []
    for y, z, c in terms:  # c (s_y.v s_z.u - s_y.u s_z.v)
        total.append((1, (Mean(index, m, c, tuple(sorted((y + SECOND, z)))),)))
        total.append((-1, (Mean(index, m, c, tuple(sorted((y, z + SECOND)))),)))
    side = Side.of(*total)
    means = (atoms[0] for _, atoms in side.terms)  # none or several: each has its counterpart
    exchanged = {("exchange", Mean(index, m, c, (z,))) for z, c in field.items()}
    return side, exchanged | exist(means, context) | drawn(index, m)
