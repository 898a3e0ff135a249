"""Independence of the samples of a batch.  Trusted; standard library only.

A batch holds n independent samples (n is a declared parameter, a whole number).  With N positions in a slot,

    E[V_slot] = N E[V]        E[V_slot W_slot] = N E[V W] + N (N - 1) E[V] E[W]

where N = n - 1 for the others of one sample, n - 2 for the rest of two.
"""

from __future__ import annotations

from klsym.errors import Refused
from klsym.kernel.assumptions import Assumptions, Data, refuse_unless
from klsym.kernel.derivatives import select_sample_part
from klsym.kernel.names import PROBABILITIES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Key
from klsym.kernel.slots import PARTS, SEQUENCE, is_second
from klsym.kernel.statements import Atom, Context, Mean, Side

Row = tuple[ExpPoly, tuple[Atom, ...]]
SIZES = {"others": 1, "rest": 2}  # N = n less this
OWN = {"i": ("self",), "ij": ("self",), "it": (*SEQUENCE, "x")}  # the slots of the sample itself


def apply_independence(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """E_m[a(self) b(others)] = E_m[a] E_m[b], term by term."""
    context = assumed.context
    refuse_unless(mean.index in OWN, "a mean over batches expected")
    refuse_unless(mean.measure in PROBABILITIES, "a mean over batches expected, not the value at one")
    refuse_unless(not any(is_second(z) for z in mean.score), "one direction expected")
    own_slots = OWN[mean.index]
    foreign = (context.find_slots(n) - {parse_name(n).slot} for n in mean.coefficient.names())
    inside = all(not slots or (mean.index == "it" and slots <= set(own_slots)) for slots in foreign)
    refuse_unless(inside, "a definition that names slots of a batch belongs to no sample")
    groups = (own_slots, *((slot,) for slot in PARTS[mean.index] if slot not in own_slots))
    products: dict[tuple[ExpPoly, ...], ExpPoly] = {}  # factors of the other groups -> that of self
    for key, value in mean.coefficient.terms.items():
        first, *further_factors = _split_factors(key, groups, context)
        products[tuple(further_factors)] = products.get(tuple(further_factors), ZERO) + first * value
    rows: list[Row] = []
    for others, factor in products.items():
        constant, varying = _split_constant(factor, context)
        partial_rows: list[Row] = [(constant, (_build_own_mean(mean, varying, own_slots),))]
        for (slot,), factor_of_slot in zip(groups[1:], others, strict=True):
            moments = _list_moments(mean, factor_of_slot, slot, context)
            partial_rows = [(c * d, a + b) for c, a in partial_rows for d, b in moments]
        rows += partial_rows
    assumed.assume_existence(*(atom for _, atoms in rows for atom in atoms if len(rows) + len(atoms) > 2))
    assumed.draw(mean.index, mean.measure)
    return Side.combine(*rows)


def _split_constant(a: ExpPoly, context: Context) -> tuple[ExpPoly, ExpPoly]:
    """Return a constant times what is random, for terms that differ in constants alone; other sums stay
    whole.
    """
    random = {select_sample_part(*key, context) for key in a.terms}
    if len(random) != 1:
        return ONE, a
    [varying] = random
    return a * varying.invert(), varying


def _split_factors(key: Key, groups: tuple[tuple[str, ...], ...], context: Context) -> list[ExpPoly]:
    """Return one term as a product of factors, one for each group; constants go with the first."""
    monomial, exponent = key
    factors = [ONE] * len(groups)
    for name, power in monomial:
        i = _find_group({name}, groups, context)
        factors[i] = factors[i] * ExpPoly({(((name, power),), ()): 1})
    for inner, value in exponent:
        i = _find_group({name for name, _ in inner}, groups, context)
        factors[i] = factors[i] * ExpPoly({((), ((inner, value),)): 1})
    return factors


def _find_group(names: set[str], groups: tuple[tuple[str, ...], ...], context: Context) -> int:
    slots = {slot for name in names for slot in context.find_slots(name)}
    inside = [i for i, group in enumerate(groups) if slots <= set(group)]
    refuse_unless(bool(inside), f"an exponent joins the slots {sorted(slots)}, which are independent")
    return inside[0]


def _as_one_sample(factor: ExpPoly, slot: str) -> ExpPoly:
    return factor.rename(lambda name: name.replace(f"[{slot}]", ""))


def _build_own_mean(mean: Mean, factor: ExpPoly, own: tuple[str, ...]) -> Mean:
    score = tuple(z for z in mean.score if z in own)
    if mean.index == "it":
        return Mean("t", mean.measure, factor, score)
    return Mean("", mean.measure, _as_one_sample(factor, "self"), ("x",) * len(score))


def _list_moments(mean: Mean, factor: ExpPoly, slot: str, context: Context) -> list[Row]:
    """Return the moments of one slot beside the sample itself."""
    score, m = ("x",) * mean.score.count(slot), mean.measure
    if slot not in SIZES:
        return [(ONE, (Mean("", m, _as_one_sample(factor, slot), score),))]
    [(monomial, exponent)] = factor.terms
    refuse_unless(not exponent, f"an exponent holds the sum over {slot}")
    items: list[tuple[ExpPoly, tuple[str, ...]]] = [(ONE, ("x",)) for _ in score]
    for name, power in monomial:
        refuse_unless(power > 0, f"division by {name}")
        summed = parse_name(name).base != "A"
        refuse_unless(summed, f"{name} is any function of its slot, no sum over positions")
        items += [(_as_one_sample(ExpPoly.from_variable(name), slot), ())] * power
    if not items:
        return [(ONE, ())]
    refuse_unless("n" in context.parameters, "the batch size n is not declared as a parameter")
    size = ExpPoly.from_variable("n") - SIZES[slot]
    match items:  # the mean of a product of sums over `size` independent positions
        case [(a, first)]:
            return [(size, (Mean("", m, a, first),))]
        case [(a, first), (b, second)]:
            together = Mean("", m, a * b, first + second)
            return [(size, (together,)), (size * (size - 1), (Mean("", m, a, first), Mean("", m, b, second)))]
    raise Refused(f"a product of {len(items)} sums over positions: 2 at most")
