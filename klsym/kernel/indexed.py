"""The rules at an index of a batch or a sequence, on slots.  Trusted; standard library only.

Slots (slots.py): a batch has self and others, independent; a sequence past -> now -> future, where each
depends on what precedes it.  Below m is a measure, z a slot, V a variable that sums over positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from klsym.errors import Refused
from klsym.kernel.derivatives import (
    LOG_DENSITY,
    LOG_RATIOS,
    Data,
    Hypothesis,
    Outcome,
    attach,
    d_log_q,
    density_ratio,
    derivative_of_name,
    given_bases,
    refuse_unless,
)
from klsym.names import PROBABILITIES, SAMPLE, THETA_FREE, parse_name
from klsym.normal_form import ONE, ZERO, ExpPoly
from klsym.slots import PARTS, SECOND, SEQUENCE, SINGLE, SLOTS, UPSTREAM, at_slot, slot_of_score
from klsym.statements import (
    Atom,
    Context,
    Curl,
    E,
    Gradient,
    Indexed,
    IndexedGradient,
    Point,
    Side,
    TokenDivergence,
    with_coefficient,
)

SUMS = (*LOG_RATIOS, "R", "H", "length")  # what a whole sequence has is the sum over its steps
SCORE = "s"  # stands for the score function among the names of variables


def in_slot(element: ExpPoly, slot: str, context: Context) -> ExpPoly:
    """A one-sample coefficient, spoken of a slot."""
    return element.rename(lambda n: n if n in context.parameters else at_slot(n, slot))


def mentioned(element: ExpPoly, context: Context) -> set[str]:
    """The slots that a coefficient speaks of."""
    return {parse_name(name).slot for name in element.names() if context.is_sample(name)}


def _over_parts(index: str, over: str, under: str, context: Context) -> ExpPoly:
    """over/under for all of the batch or sequence, as a product over its slots."""
    ratio = ONE
    for slot in PARTS[index]:
        ratio = ratio * in_slot(density_ratio(over, under), slot, context)
    return ratio


def _ends(index: str, *measures: str) -> set[Hypothesis]:
    return {("ends", m) for m in measures if m != SAMPLE} if "t" in index else set()


def _substituted(a: ExpPoly, base: str, value: ExpPoly, slots: tuple[str, ...]) -> ExpPoly:
    return a.substitute({at_slot(base, slot): value for slot in slots})


# ---------------------------------------------------------------------------- derivatives
def slopes(loss: ExpPoly, index: str, context: Context) -> dict[str, ExpPoly]:
    """grad L = sum_z c_z s_z: the coefficient of the score function of each slot, sg(.) held constant."""

    def slope(name: str, slot: str) -> ExpPoly:
        if name in context.parameters:
            return ZERO
        parsed = parse_name(name)
        if parsed.slot != slot or parsed.detached or parsed.base in THETA_FREE:
            return ZERO
        one = slot in (*SINGLE, "x") or parsed.base in LOG_RATIOS
        refuse_unless(one, f"{name} is a sum over positions: its gradient is no multiple of their scores")
        return derivative_of_name(name)

    found = {z: loss.derive(lambda name, z=z: slope(name, z)) for z in SLOTS[index]}  # type: ignore[misc]
    return {z: c for z, c in found.items() if c}


def chain_rule(atom: IndexedGradient, context: Context) -> Outcome:
    """E_m[sum_t grad L] = E_m[sum_t sum_z (dL/dlog q[z]) s_z]."""
    found = slopes(atom.loss, atom.index, context).items()
    return _sum_of_means(Indexed(atom.index, atom.measure, c, (z,)) for z, c in found)


def _sum_of_means(means: Iterable[Indexed]) -> Outcome:
    """One mean as a sum of several, each of which must exist."""
    found = list(means)
    apart = len(found) > 1
    assumed: set[Hypothesis] = {("moment", mean) for mean in found if apart and mean.measure != SAMPLE}
    return Side.of(*((1, (mean,)) for mean in found)), assumed


def log_derivative(atom: Indexed) -> Outcome:
    """grad E_m[sum_t a] = E_m[sum_t a s] + E_m[sum_t grad a]; the first term for m = q only."""
    pathwise = Side.atom(IndexedGradient(atom.index, atom.measure, atom.coefficient))
    whole = (*PARTS[atom.index][3:], "x") if "t" in atom.index else PARTS[atom.index]
    value, apart = _sum_of_means(
        Indexed(atom.index, "q", atom.coefficient, (z,)) for z in whole if atom.measure == "q"
    )
    return value + pathwise, apart | {("exchange", atom.measure), *_ends(atom.index, atom.measure)}


def on_policy(atom: Indexed, context: Context) -> Indexed:
    """mu = sg(q): w is 0 in every slot."""
    a = _substituted(attach(atom.coefficient, context), "w", ZERO, SLOTS[atom.index])
    return Indexed(atom.index, "q" if atom.measure == "mu" else atom.measure, a, atom.score)


def curl(atom: Atom, data: Data, context: Context) -> Outcome:
    """d_v F.u - d_u F.v for F = E_m[sum_t sum_z c_z s_z]: the Hessians of log q are symmetric and cancel.

    d_v moves m = q along s.v of the whole sequence, and each c_z along its own slots.
    """
    refuse_unless(not data, f"data: expected [], got {sorted(data)}")
    if not isinstance(atom, Curl):
        raise Refused(f"the curl of a field expected, got {type(atom).__name__}")
    m = "q" if context.on_policy and atom.measure == "mu" else atom.measure
    bases = {parse_name(name).base for name in atom.loss.names()}
    refuse_unless(not bases & given_bases(context), "what a statement gives is known at one theta only")
    moved = any("w" in context.function_arguments.get(base, ()) for base in bases)
    refuse_unless(not (context.on_policy and moved), "on-policy, a function of w has another slope than f'")
    terms: list[tuple[str, str, ExpPoly]] = []
    for z, detached in slopes(atom.loss, "t", context).items():
        c = attach(detached, context)
        if context.on_policy:
            c = _substituted(c, "w", ZERO, SLOTS["t"])
        terms += [("x", z, c)] if m == "q" else []
        terms += [(y, z, d) for y, d in slopes(c, "t", context).items()]
    side = Side()
    for y, z, c in terms:  # c (s_y.v s_z.u - s_y.u s_z.v)
        side = side + Side.atom(Indexed("t", m, c, tuple(sorted((y + SECOND, z)))))
        side = side - Side.atom(Indexed("t", m, c, tuple(sorted((y, z + SECOND)))))
    assumed: set[Hypothesis] = {("on-policy",)} if context.on_policy else set()
    return side, assumed | {("exchange", m), *_ends("t", m)}


def tower(atom: Atom, data: Data, context: Context) -> Outcome:
    """E_m[sum_t E_a[log a/b | y_<t]] = E_m[sum_t (a/m)_t log(a/b)_t], and its gradient at fixed prefixes."""
    refuse_unless(not data, f"data: expected [], got {sorted(data)}")
    match atom:
        case TokenDivergence():
            value, assumed = _tower(atom, context)
            return Side.atom(value), assumed
        case Gradient(Side(((c, (TokenDivergence() as token,)),))) if not token.gradient:
            value, assumed = _tower(token, context)
            return Side.atom(Gradient(Side.of((c, (value,))))), assumed
    raise Refused(f"a sum of next-token divergences expected, got {type(atom).__name__}")


def _tower(atom: TokenDivergence, context: Context) -> tuple[Indexed, set[Hypothesis]]:
    m, a, b = atom.measure, atom.first, atom.second
    inner = LOG_DENSITY[a] - LOG_DENSITY[b]
    if atom.gradient:  # grad E_a[log a/b] = E_a[log a/b s 1{a = q} + grad log a/b]
        inner = (inner if a == "q" else ZERO) + d_log_q(inner, context)
    score = ("now",) if atom.gradient else ()
    value = Indexed("t", m, in_slot(density_ratio(a, m) * inner, "now", context), score)
    assumed: set[Hypothesis] = {("support", a, b), *_ends("t", m)}
    if a != m:
        assumed |= {("support", a, m), ("support", m, a)}
    return value, assumed | ({("exchange", "q")} if atom.gradient else set())


# ---------------------------------------------------------------------------- sums over t
def sum_over_t(atom: E | Point, of: object) -> Side:
    """V = sum_t V_t, s = sum_t s_t: one factor of a whole-sequence quantity becomes a sum over its steps."""
    measure = atom.measure if isinstance(atom, E) else SAMPLE
    refuse_unless(measure in (*PROBABILITIES, SAMPLE), "a mean over sequences expected")
    a, score = atom.coefficient, atom.score
    if of == SCORE:
        refuse_unless(bool(score), "there is no score function")
        score = ("now", *score[1:])
    else:
        known = isinstance(of, str) and of in SUMS
        refuse_unless(known, f"of: one of {sorted((SCORE, *SUMS))} expected, got {str(of)[:20]!r}")
        assert isinstance(of, str)
        powers = [dict(monomial).get(of, 0) for monomial, _ in a.terms]
        refuse_unless(min(powers, default=0) > 0, f"{of} is no factor of the coefficient")
        now = ONE if of == "length" else ExpPoly.variable(at_slot(of, "now"))
        a = a * ExpPoly.variable(of).inverse() * now
    return Side.atom(Indexed("t", measure, a, tuple(sorted(score))))


def parts(atom: Indexed, names: object) -> Outcome:
    """V = V_past + V_now + V_future for the variables named, and s for the score function; length_now = 1."""
    refuse_unless("t" in atom.index, "a sum over t expected")
    known = isinstance(names, list) and set(names) <= {SCORE, *SUMS}
    refuse_unless(known, f"of: a list of names among {sorted((SCORE, *SUMS))} expected")
    assert isinstance(names, list)
    values = {name: _sum_of_parts(name) for name in names if name != SCORE}
    if "length" in values:
        values["length[now]"] = ONE
    a = atom.coefficient.substitute(values)
    scores = [_score_parts(entry) if SCORE in names else (entry,) for entry in atom.score]
    found = (tuple(sorted(choice)) for choice in product(*scores))
    return _sum_of_means(Indexed(atom.index, atom.measure, a, score) for score in found)


def _sum_of_parts(name: str) -> ExpPoly:
    here = ONE if name == "length" else ExpPoly.variable(at_slot(name, "now"))
    return here + ExpPoly.variable(at_slot(name, "past")) + ExpPoly.variable(at_slot(name, "future"))


def _score_parts(entry: str) -> tuple[str, ...]:
    second = SECOND if entry.endswith(SECOND) else ""
    return tuple(z + second for z in SEQUENCE) if slot_of_score(entry) == "x" else (entry,)


def exchange_sums(part: Indexed, data: Data, context: Context) -> Side:
    """sum_t X_t sum_{u>t} Y_u = sum_u Y_u sum_{t<u} X_t, times what does not depend on t and u."""
    x, y, slot = data["now"], data["other"], data["slot"]
    refuse_unless("t" in part.index, "a sum over t expected")
    refuse_unless(slot in ("past", "future"), "slot: 'past' or 'future' expected")
    rest = _without(_without(part, x, "now", context), y, slot, context)
    fixed = {"x", "others"}
    left = mentioned(rest.coefficient, context) | {slot_of_score(z) for z in rest.score}
    refuse_unless(left <= fixed, f"more than {x} and {y} depends on t: {sorted(left - fixed)}")
    opposite = "future" if slot == "past" else "past"
    return Side.atom(_with(_with(rest, y, "now"), x, opposite))


def _summed(name: object, context: Context) -> bool:
    """Is it the score function, or a variable that is a sum over positions?"""
    plain = isinstance(name, str) and not name.startswith("sg(") and "[" not in name
    return plain and (name in (SCORE, *SUMS) or parse_name(str(name)).base in context.function_arguments)


def _without(atom: Indexed, name: str, slot: str, context: Context) -> Indexed:
    """The atom without one factor `name` in the slot."""
    refuse_unless(_summed(name, context), f"{str(name)[:20]!r} is no sum over positions")
    if name == SCORE:
        refuse_unless(slot in atom.score, f"no score function in the slot {slot}")
        score = list(atom.score)
        score.remove(slot)
        return Indexed(atom.index, atom.measure, atom.coefficient, tuple(score))
    if name == "length" and slot == "now":
        return atom
    return with_coefficient(atom, atom.coefficient * ExpPoly.variable(at_slot(name, slot)).inverse())  # type: ignore[return-value]


def _with(atom: Indexed, name: str, slot: str) -> Indexed:
    if name == SCORE:
        score = tuple(sorted((*atom.score, slot)))
        return Indexed(atom.index, atom.measure, atom.coefficient, score)
    if name == "length" and slot == "now":
        return atom
    return with_coefficient(atom, atom.coefficient * ExpPoly.variable(at_slot(name, slot)))  # type: ignore[return-value]


# ---------------------------------------------------------------------------- means
def change_of_measure(part: Indexed, target: str, context: Context) -> Outcome:
    """Slot by slot: E_m[sum_t a] = E_m'[sum_t a (m/m')_past (m/m')_now (m/m')_future]."""
    m = part.measure
    refuse_unless({m, target} <= set(PROBABILITIES), "at an index, from one probability measure to another")
    ratio = _over_parts(part.index, m, target, context)
    moved = Indexed(part.index, target, part.coefficient * ratio, part.score)
    assumed: set[Hypothesis] = {("support", m, target), ("support", target, m)} if m != target else set()
    return Side.atom(moved), assumed | _ends(part.index, m, target)


def refuse_downstream(
    part: Indexed, factor: ExpPoly, score: tuple[str, ...], slot: str, context: Context
) -> None:
    """Refuse unless the factor and the scores speak only of what does not depend on the slot."""
    allowed = UPSTREAM[part.index].get(slot)
    if allowed is None:
        raise Refused(f"slot: one of {sorted(UPSTREAM[part.index])} expected, got {str(slot)[:20]!r}")
    spoken = mentioned(factor, context) | {slot_of_score(z) for z in score}
    foreign = sorted(spoken - set(allowed))
    refuse_unless(not foreign, f"{foreign} may depend on the slot {slot}: only {sorted(allowed)} do not")


def score_mean_zero(part: Indexed, slot: str, context: Context) -> set[Hypothesis]:
    """Causality: E_q[sum_t c s_z] = 0 when c and the other scores do not depend on z."""
    refuse_unless(part.measure == "q", f"E_m[c s] = 0 needs m = q, got m = {part.measure}")
    own = [z for z in part.score if slot_of_score(z) == slot]
    refuse_unless(len(own) == 1, f"one score function of the slot {slot} expected, got {list(part.score)}")
    others = list(part.score)
    others.remove(own[0])
    refuse_downstream(part, part.coefficient, tuple(others), slot, context)
    return {("exchange", "q"), *_ends(part.index, "q")}


def ratio_mean_one(part: Indexed, other: str, slot: str, context: Context) -> Outcome:
    """E_m[sum_t c (m'/m)_z] = E_m[sum_t c] when c and the scores do not depend on z."""
    m = part.measure
    refuse_unless({m, other} <= set(PROBABILITIES), "two probability measures expected")
    refuse_unless(slot in SLOTS[part.index], f"unknown slot {str(slot)[:20]!r}")
    scale = part.coefficient * in_slot(density_ratio(m, other), slot, context)
    refuse_downstream(part, scale, part.score, slot, context)
    assumed = {("support", other, m), *_ends(part.index, m, other)}
    return Side.atom(Indexed(part.index, m, scale, part.score)), assumed
