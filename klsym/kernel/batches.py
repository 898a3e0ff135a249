"""Independence of the samples of a batch.  Trusted; standard library only.

A batch holds n independent samples (n is a declared parameter, a whole number).  With N positions in a slot,

    E[V_slot] = N E[V]        E[V_slot W_slot] = N E[V W] + N (N - 1) E[V] E[W]

where N = n - 1 for the others of one sample, n - 2 for the rest of two.
"""

from __future__ import annotations

from klsym.errors import Refused
from klsym.kernel.assumptions import Assumptions, Data, refuse_unless
from klsym.kernel.derivatives import sample_part
from klsym.kernel.names import PROBABILITIES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Key
from klsym.kernel.slots import PARTS, SEQUENCE, is_second
from klsym.kernel.statements import Atom, Context, Mean, Side

Row = tuple[ExpPoly, tuple[Atom, ...]]
SIZES = {"others": 1, "rest": 2}  # N = n less this
OWN = {"i": ("self",), "ij": ("self",), "it": (*SEQUENCE, "x")}  # the slots of the sample itself


def independence(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """E_m[a(self) b(others)] = E_m[a] E_m[b], term by term."""
    context = assumed.context
    refuse_unless(mean.index in OWN, "a mean over batches expected")
    refuse_unless(mean.measure in PROBABILITIES, "a mean over batches expected, not the value at one")
    refuse_unless(not any(is_second(z) for z in mean.score), "one direction expected")
    own = OWN[mean.index]
    foreign = (context.slots_of(n) - {parse_name(n).slot} for n in mean.coefficient.names())
    inside = all(not slots or (mean.index == "it" and slots <= set(own)) for slots in foreign)
    refuse_unless(inside, "a definition that names slots of a batch belongs to no sample")
    groups = (own, *((slot,) for slot in PARTS[mean.index] if slot not in own))
    products: dict[tuple[ExpPoly, ...], ExpPoly] = {}  # factors of the other groups -> that of self
    for key, value in mean.coefficient.terms.items():
        first, *rest = _factors(key, groups, context)
        products[tuple(rest)] = products.get(tuple(rest), ZERO) + first * value
    rows: list[Row] = []
    for others, factor in products.items():
        constant, varying = _without_constant(factor, context)
        found: list[Row] = [(constant, (_of_self(mean, varying, own),))]
        for (slot,), other in zip(groups[1:], others, strict=True):
            moments = _of_group(mean, other, slot, context)
            found = [(c * d, a + b) for c, a in found for d, b in moments]
        rows += found
    assumed.exist(*(atom for _, atoms in rows for atom in atoms if len(rows) + len(atoms) > 2))
    assumed.draw(mean.index, mean.measure)
    return Side.of(*rows)


def _without_constant(a: ExpPoly, context: Context) -> tuple[ExpPoly, ExpPoly]:
    """A constant times what is random, for terms that differ in constants alone; other sums stay whole."""
    random = {sample_part(*key, context) for key in a.terms}
    if len(random) != 1:
        return ONE, a
    [varying] = random
    return a * varying.inverse(), varying


def _factors(key: Key, groups: tuple[tuple[str, ...], ...], context: Context) -> list[ExpPoly]:
    """One term as a product of factors, one for each group; constants go with the first."""
    monomial, exponent = key
    found = [ONE] * len(groups)
    for name, power in monomial:
        i = _group_of({name}, groups, context)
        found[i] = found[i] * ExpPoly({(((name, power),), ()): 1})
    for inner, value in exponent:
        i = _group_of({name for name, _ in inner}, groups, context)
        found[i] = found[i] * ExpPoly({((), ((inner, value),)): 1})
    return found


def _group_of(names: set[str], groups: tuple[tuple[str, ...], ...], context: Context) -> int:
    slots = {slot for name in names for slot in context.slots_of(name)}
    inside = [i for i, group in enumerate(groups) if slots <= set(group)]
    refuse_unless(bool(inside), f"an exponent joins the slots {sorted(slots)}, which are independent")
    return inside[0]


def _as_one_sample(factor: ExpPoly, slot: str) -> ExpPoly:
    return factor.rename(lambda name: name.replace(f"[{slot}]", ""))


def _of_self(mean: Mean, factor: ExpPoly, own: tuple[str, ...]) -> Mean:
    score = tuple(z for z in mean.score if z in own)
    if mean.index == "it":
        return Mean("t", mean.measure, factor, score)
    return Mean("", mean.measure, _as_one_sample(factor, "self"), ("x",) * len(score))


def _of_group(mean: Mean, factor: ExpPoly, slot: str, context: Context) -> list[Row]:
    """The moments of one slot beside the sample itself."""
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
        items += [(_as_one_sample(ExpPoly.variable(name), slot), ())] * power
    if not items:
        return [(ONE, ())]
    refuse_unless("n" in context.parameters, "the batch size n is not declared as a parameter")
    size = ExpPoly.variable("n") - SIZES[slot]
    match items:  # the mean of a product of sums over `size` independent positions
        case [(a, first)]:
            return [(size, (Mean("", m, a, first),))]
        case [(a, first), (b, second)]:
            together = Mean("", m, a * b, first + second)
            return [(size, (together,)), (size * (size - 1), (Mean("", m, a, first), Mean("", m, b, second)))]
    raise Refused(f"a product of {len(items)} sums over positions: 2 at most")
