"""Independence of the samples of a batch, and the variance of its mean.  Trusted; standard library only.

A batch holds n independent samples (n is a declared parameter).  With N positions in a slot,

    E[V_slot] = N E[V]        E[V_slot W_slot] = N E[V W] + N (N - 1) E[V] E[W]

where N = n - 1 for the others of one sample, n - 2 for the rest of two.
"""

from __future__ import annotations

from klsym.errors import Refused
from klsym.kernel.derivatives import Data, Hypothesis, Outcome, attach, refuse_unless, sample_part
from klsym.names import PROBABILITIES, parse_name
from klsym.normal_form import ONE, ZERO, ExpPoly, Key
from klsym.slots import PARTS, SECOND, SEQUENCE, at_slot
from klsym.statements import Atom, Context, E, Indexed, MeanVariance, Side

Row = tuple[ExpPoly, tuple[Atom, ...]]
SIZES = {"others": 1, "rest": 2}  # N = n less this
SELF = {"i": ("self",), "ij": ("self",), "it": (*SEQUENCE, "x")}


def _size(slot: str, context: Context) -> ExpPoly:
    refuse_unless("n" in context.parameters, "the batch size n is not declared as a parameter")
    return ExpPoly.variable("n") - SIZES[slot]


def _groups(index: str) -> tuple[tuple[str, ...], ...]:
    """Slots that depend on one another, sample by sample."""
    refuse_unless(index in SELF, "a batch expected, not a single sequence")
    return (SELF[index], *((slot,) for slot in PARTS[index] if slot not in SELF[index]))


def independence(part: Indexed, context: Context) -> Outcome:
    """E_m[a(self) b(others)] = E_m[a] E_m[b], term by term."""
    refuse_unless(part.measure in PROBABILITIES, "a mean over batches expected")
    refuse_unless(not any(z.endswith(SECOND) for z in part.score), "one direction expected")
    groups = _groups(part.index)
    products: dict[tuple[ExpPoly, ...], ExpPoly] = {}  # factors of the other groups -> that of self
    for key, value in part.coefficient.terms.items():
        own, *rest = _factors(key, groups, context)
        known = tuple(rest)
        products[known] = products.get(known, ZERO) + own * value
    rows: list[Row] = []
    for others, own in products.items():
        constant, varying = _without_constant(own, context)
        found: list[Row] = [(constant, (_of_self(part, varying, groups[0], context),))]
        for slot, factor in zip(groups[1:], others, strict=True):
            moments = _of_group(part, factor, slot[0], context)
            found = [(c * d, a + b) for c, a in found for d, b in moments]
        rows += found
    split = {atom for _, atoms in rows for atom in atoms if len(rows) + len(atoms) > 2}
    assumed: set[Hypothesis] = {("moment", a) for a in split if not _is_trivial(a, context)}
    return Side.of(*rows), assumed | {("batch", part.measure)}


def _without_constant(a: ExpPoly, context: Context) -> tuple[ExpPoly, ExpPoly]:
    """A constant times what is random, for terms that differ in constants alone; other sums stay whole."""
    random = {sample_part(*key, context) for key in a.terms}
    if len(random) != 1:
        return ONE, a
    [varying] = random
    return a * varying.inverse(), varying


def _is_trivial(atom: Atom, context: Context) -> bool:
    """A mean of a constant, or the score function's; not the length's, which is a sum over t of 1."""
    return isinstance(atom, E) and context.is_constant(atom.coefficient)


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
    slots = {parse_name(name).slot for name in names if context.is_sample(name)}
    inside = [i for i, group in enumerate(groups) if slots <= set(group)]
    refuse_unless(bool(inside), f"an exponent joins the slots {sorted(slots)}, which are independent")
    return inside[0]


def _as_one_sample(factor: ExpPoly, slot: str, context: Context) -> ExpPoly:
    def whole(name: str) -> str:
        return name if name in context.parameters else name.replace(f"[{slot}]", "")

    return factor.rename(whole)


def _of_self(part: Indexed, own: ExpPoly, group: tuple[str, ...], context: Context) -> Atom:
    score = tuple(z for z in part.score if z in group)
    if part.index == "it":
        return Indexed("t", part.measure, own, score)
    return E(part.measure, _as_one_sample(own, "self", context), ("x",) * len(score))


def _of_group(part: Indexed, factor: ExpPoly, slot: str, context: Context) -> list[Row]:
    score, m = ("x",) * part.score.count(slot), part.measure
    if slot not in SIZES:
        return [(ONE, (E(m, _as_one_sample(factor, slot, context), score),))]
    [(monomial, exponent)] = factor.terms
    refuse_unless(not exponent, f"an exponent holds the sum over {slot}")
    items: list[tuple[ExpPoly, tuple[str, ...]]] = [(ONE, ("x",)) for _ in score]
    for name, power in monomial:
        refuse_unless(power > 0, f"division by {name}")
        _refuse_unless_a_sum(name)
        one = _as_one_sample(ExpPoly.variable(name), slot, context)
        items += [(one, ())] * power
    return _moment(items, m, _size(slot, context) if items else ONE)


def _refuse_unless_a_sum(name: str) -> None:
    base = parse_name(name).base
    refuse_unless(base != "A", f"{name} is any function of its slot, no sum over positions")


def _moment(items: list[tuple[ExpPoly, tuple[str, ...]]], m: str, size: ExpPoly) -> list[Row]:
    """The mean of a product of sums over `size` independent positions."""
    match items:
        case []:
            return [(ONE, ())]
        case [(a, score)]:
            return [(size, (E(m, a, score),))]
        case [(a, first), (b, second)]:
            together, apart = E(m, a * b, first + second), (E(m, a, first), E(m, b, second))
            return [(size, (together,)), (size * (size - 1), apart)]
    raise Refused(f"a product of {len(items)} sums over positions: 2 at most")


def variance_of_a_mean(atom: Atom, data: Data, context: Context) -> Outcome:
    """Var(mean_i X_i) = E[X_i^2]/n + (1 - 1/n) E[X_i X_j] - E[X_i]^2, for j != i."""
    refuse_unless(not data, f"data: expected [], got {sorted(data)}")
    if not isinstance(atom, MeanVariance):
        raise Refused(f"the variance of a mean expected, got {type(atom).__name__}")
    refuse_unless("n" in context.parameters, "the batch size n is not declared as a parameter")
    refuse_unless(set(atom.score) <= {"self"}, "score functions of self expected")
    m, a, k = atom.measure, attach(atom.coefficient, context), len(atom.score)
    sampled = [name for name in a.names() if context.is_sample(name)]
    for name in sampled:
        if parse_name(name).slot == "others":
            _refuse_unless_a_sum(name)
    parsed = [parse_name(name) for name in sampled]
    names = {name.base + "'" * name.primes for name in parsed}
    swap: dict[str, ExpPoly] = {}
    here: dict[str, ExpPoly] = {}
    for base in names:
        mine, yours, rest = (ExpPoly.variable(at_slot(base, z)) for z in PARTS["ij"])
        here[at_slot(base, "others")] = yours + rest
        swap[at_slot(base, "self")], swap[at_slot(base, "others")] = yours, mine + rest
    pair = a.substitute(here) * a.substitute(swap)
    mean, square = Indexed("i", m, a, ("self",) * k), Indexed("i", m, a * a, ("self",) * (2 * k))
    one_over_n = ExpPoly.variable("n").inverse()
    side = Side.of(
        (one_over_n, (square,)),
        (1 - one_over_n, (Indexed("ij", m, pair, tuple(sorted(("self", "other") * k))),)),
        (-1, (mean, mean)),
    )
    return side, {("batch", m), ("moment", square), ("nonzero", "n")}
