"""Rules on sums over the steps of a sequence, and the curl of a field.  Trusted; standard library only.

The first three are identities at each sequence: none exchanges a sum over t with the expectation.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from klsym.kernel.assumptions import Assumptions, Data, read_choice, refuse_unless
from klsym.kernel.derivatives import attach, differentiate_loss, list_slots
from klsym.kernel.names import HELD, LOG_RATIOS, PROBABILITIES, parse_name
from klsym.kernel.regions import assume_crossings
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SCORES, SECOND, SEQUENCE, find_slot, is_second, name_in_slot
from klsym.kernel.statements import Context, Curl, Mean, Side

SUMS = (*LOG_RATIOS, "R", *HELD, "length")  # what a whole sequence has is the sum over its steps
SCORE = "s"  # stands for the score function among the names of variables


def apply_sum_over_t(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """V = sum_t V_t, s = sum_t s_t: one factor of a whole-sequence quantity becomes a sum over its steps."""
    quantity = read_choice(data, "of", (SCORE, *SUMS))
    refuse_unless(mean.index == "" and mean.measure != "count", "a mean over whole sequences expected")
    mean_over_t = _add_factor(_remove_factor(mean, quantity, "x", assumed.context), quantity, "now")
    assumed.draw("t", mean.measure)
    return Side.from_atom(replace(mean_over_t, index="t"))


def apply_parts_of_a_sum(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """V = V_past + V_now + V_future for the variables named, and s for the score function; length_now = 1."""
    names = data["of"]
    refuse_unless("t" in mean.index, "a sum over t expected")
    are_known = set(names) <= {SCORE, *SUMS}
    refuse_unless(are_known, f"of: a list of names among {sorted((SCORE, *SUMS))} expected")
    values = {n: sum((_build_variable(n, slot) for slot in SEQUENCE), ZERO) for n in names}
    a = mean.coefficient.substitute(values | {"length[now]": ONE})
    scores = [_split_score(entry) if SCORE in names else (entry,) for entry in mean.score]
    choices = (tuple(sorted(choice)) for choice in product(*scores))
    refuse_unless(len(scores) <= 4, "four score functions at most")
    return assumed.combine_means([Mean(mean.index, mean.measure, a, score) for score in choices])


def _split_score(entry: str) -> tuple[str, ...]:
    second = SECOND if is_second(entry) else ""
    return tuple(z + second for z in SEQUENCE) if find_slot(entry) == "x" else (entry,)


def apply_exchange_of_sums(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """sum_t X_t sum_{u>t} Y_u = sum_u Y_u sum_{t<u} X_t, times what does not depend on t and u."""
    x, y, context = str(data["now"]), str(data["other"]), assumed.context
    slot = read_choice(data, "slot", ("past", "future"))
    refuse_unless("t" in mean.index, "a sum over t expected")
    remainder = _remove_factor(_remove_factor(mean, x, "now", context), y, slot, context)
    slots_mentioned = list_slots(remainder.coefficient, context) | {find_slot(z) for z in remainder.score}
    refuse_unless(
        slots_mentioned <= {"x", "others"},
        f"more than {x} and {y} depends on t: {sorted(slots_mentioned - {'x', 'others'})}",
    )
    opposite = "future" if slot == "past" else "past"
    return Side.from_atom(_add_factor(_add_factor(remainder, y, "now"), x, opposite))


def _build_variable(name: str, slot: str) -> ExpPoly:
    """Return the variable of a slot; the length of the step itself is 1."""
    return ONE if (name, slot) == ("length", "now") else ExpPoly.from_variable(name_in_slot(name, slot))


def _add_factor(mean: Mean, name: str, slot: str) -> Mean:
    """Return the mean with one factor `name` of the slot more."""
    if name == SCORE:
        return replace(mean, score=tuple(sorted((*mean.score, slot))))
    return replace(mean, coefficient=mean.coefficient * _build_variable(name, slot))


def _remove_factor(mean: Mean, name: str, slot: str, context: Context) -> Mean:
    """Return the mean with one factor `name` of the slot less."""
    summed = name in (SCORE, *SUMS) or parse_name(name).base in context.function_arguments
    refuse_unless(summed, f"{name[:20]!r} is no sum over positions")
    if name == SCORE:
        refuse_unless(slot in mean.score, f"no score function in the slot {slot}")
        first = mean.score.index(slot)
        return replace(mean, score=mean.score[:first] + mean.score[first + 1 :])
    variable = _build_variable(name, slot)
    at = name_in_slot(name, slot)
    factor = variable == ONE or all(dict(monomial).get(at, 0) > 0 for monomial, _ in mean.coefficient.terms)
    refuse_unless(factor, f"{at} is no factor of the coefficient")
    return replace(mean, coefficient=mean.coefficient * variable.invert())


def apply_curl(atom: Curl, data: Data, assumed: Assumptions) -> Side:
    """d_v F.u - d_u F.v for F = E_m[sum_z c_z s_z]: the Hessians of log q are symmetric and cancel.

    d_v moves m = q along s.v of all that is drawn, and each c_z along its own slots.
    """
    index, m, context = atom.index, atom.measure, assumed.context
    refuse_unless(m in PROBABILITIES, "a field is a mean under q, p or mu")
    refuse_unless(not context.list_names_of_means(atom.loss), "an expectation in the loss moves with theta")
    field = {z: attach(detached) for z, detached in differentiate_loss(atom.loss, index, context).items()}
    terms: list[tuple[str, str, ExpPoly]] = []
    for z, c in field.items():
        assume_crossings(Mean(index, m, c, (z,)), {}, assumed)
        terms += [(y, z, c) for y in SCORES[index] if m == "q"]
        terms += [(y, z, d) for y, d in differentiate_loss(c, index, context).items()]
    total: list[tuple[int, tuple[Mean]]] = []
    for y, z, c in terms:  # c (s_y.v s_z.u - s_y.u s_z.v)
        total.append((1, (Mean(index, m, c, tuple(sorted((y + SECOND, z)))),)))
        total.append((-1, (Mean(index, m, c, tuple(sorted((y, z + SECOND)))),)))
    side = Side.combine(*total)
    assumed.assume_existence(
        *(atoms[0] for _, atoms in side.terms)
    )  # none or several: each has its counterpart
    return side
