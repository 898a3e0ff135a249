"""The strategy: which rule brings a side one step closer to its canonical form.  Untrusted.

The canonical form of a mean over samples stands under q, E_q[c s] with the constant of c dropped and E_q[v]
with constants, multiples of r and of 1/rho evaluated.  A sum over t stands under q and speaks of slots alone;
what does not depend on a later slot has lost the ratio and the score of that slot; of two sums over pairs of
steps, the later step is `now`: sum_t s_t sum_{u>t} V_u becomes sum_u V_u sum_{t<u} s_t.  Means over batches
become products of means.  The kernel replays what is proposed.

>>> side = Side.atom(Gradient(Side.atom(Mean("", "q", ExpPoly.variable("k1")))))
>>> [step["rule"] for step, _ in reduction(side, Context())]
['log-derivative', 'chain rule', 'score mean zero']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from klsym.engine.regions.relations import find_continuous_regions, find_next_step
from klsym.errors import ProofError, Refused
from klsym.kernel import EQUATION, apply_step
from klsym.kernel.densities import density_ratio
from klsym.kernel.derivatives import in_slot, mentioned
from klsym.kernel.names import HELD, PROBABILITIES, SAMPLE, parse_name
from klsym.kernel.ring import ONE, ExpPoly, Key
from klsym.kernel.slots import UPSTREAM, at_slot, slot_of_score
from klsym.kernel.statements import Atom, Context, Curl, Gradient, Mean, MeanGradient, Side, elements
from klsym.kernel.sums import SCORE, SUMS

MAX_STEPS = 500
INDEPENDENCE = "independence"
LENGTH_NAMES = ("length", "length[now]")
RuleStep = dict[str, Any]
Move = tuple[RuleStep, Side]
Reduced = tuple[str, RuleStep] | None


@dataclass(frozen=True, eq=False)
class Cited:
    """Theorems at hand: by the gradient that is their left side, and by the digest of their parts."""

    by_left: dict[Atom, tuple[list[Any], Side, Side]] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)
    bodies: dict[str, list[Any]] = field(default_factory=dict)


NOT_CITED = Cited()


@dataclass(frozen=True)
class Strategy:
    """How far to go: stepwise, whole-sequence quantities become sums over t; evaluate, products of means are
    multiplied out; cited, theorems that may be used."""

    stepwise: bool = False
    evaluate: bool = False
    cited: Cited = NOT_CITED


def reduction(
    side: Side, context: Context, which: str = "left", strategy: Strategy = Strategy()
) -> Iterator[Move]:
    """The steps that bring `side` into canonical form, each with the side that it gives."""
    for _ in range(MAX_STEPS):
        move = _next(side, context, strategy)
        if move is None:
            return
        step, side = move
        yield {**step, "side": which}, side
    raise ProofError(f"no canonical form after {MAX_STEPS} steps: is a gradient of a gradient meant?")


@lru_cache(maxsize=1024)
def _next(side: Side, context: Context, strategy: Strategy) -> Move | None:
    """The first step; the proofs behind one verdict pass through the same sides."""
    proposal = propose(side, context, strategy)
    if proposal is None:
        return None
    try:
        return make_step(side, context, "left", *proposal, known=strategy.cited.known)
    except Refused:
        if INDEPENDENCE not in proposal:
            raise
        return None  # a mean over batches that does not come apart stays as it is


def make_step(
    side: Side,
    context: Context,
    which: str,
    term: int | None,
    factor: int | None,
    rule: str,
    data: RuleStep,
    known: Any = None,
) -> Move:
    """One step, its result computed by the kernel's own rule."""
    step: RuleStep = {
        "rule": rule,
        "side": which,
        "term": term,
        "factor": factor,
        "data": data,
        "result": None,
    }
    result, _ = apply_step({which: side}, step, context, known or {})
    return {**step, "result": result.to_json()}, result


def propose(
    side: Side, context: Context, strategy: Strategy
) -> tuple[int | None, int | None, str, RuleStep] | None:
    for term, (coefficient, atoms) in enumerate(side.terms):
        for factor, atom in enumerate(atoms):
            times = Side(((coefficient, atoms[:factor] + atoms[factor + 1 :]),))
            equation = _equation(atom, times, context, strategy.cited)
            if equation:
                return None, None, EQUATION, equation
            found = _rule_for(atom, len(atoms) > 1, context, strategy)
            if found:
                return term, factor, *found
    return None


def _equation(atom: Atom, times: Side, context: Context, cited: Cited) -> RuleStep | None:
    """A gradient of which a premise or a cited theorem speaks, or a mean of H, whose value is given."""
    if not all(isinstance(a, Mean) for _, atoms in times.terms for a in atoms):
        return None
    if isinstance(atom, Mean):
        return _of_given(atom, times, context)
    if isinstance(atom, Gradient):
        for number, (left, _) in enumerate(context.premises):
            if left == atom.of and not any(map(_is_given, elements(left))):
                return {"of": number, "times": times.to_json(), "gradient": 1}
    if atom in cited.by_left:
        return {"of": cited.by_left[atom][0], "times": times.to_json(), "gradient": 0}
    return None


def _is_given(element: ExpPoly) -> bool:
    """Does it hold H, the value of which is known at one theta?"""
    return _speaks_of_given(element.names())


def _speaks_of_given(names: frozenset[str]) -> bool:
    return any(parse_name(name).base in HELD for name in names)


def _of_given(mean: Mean, times: Side, context: Context) -> RuleStep | None:
    """E_m[H a] = E_m[v a] is a premise: the terms that hold H."""
    part = _select(mean.coefficient, _speaks_of_given)
    alone = all(not atoms for _, atoms in times.terms)  # a lone mean merges with what is put in
    if not part or not (alone or part == mean.coefficient):
        return None
    held = Side.atom(Mean(mean.index, mean.measure, part, mean.score))
    for number, (left, _) in enumerate(context.premises):
        if left == held:
            return {"of": number, "times": times.to_json(), "gradient": 0}
    return None


def _rule_for(atom: Atom, in_product: bool, context: Context, strategy: Strategy) -> Reduced:
    match atom:
        case MeanGradient():
            return "chain rule", {}
        case Curl():
            return "curl", {}
        case Gradient():
            return "log-derivative", _jumps(atom, context)
        case Mean(_, _, a, _):
            if any(parse_name(name).detached for name in a.names() if context.is_sample(name)):
                return "stop-gradient", {}
            found = _for_mean(atom, context, strategy)
            if not found and context.definitions and (tidy := find_next_step(a, context, False, True)):
                return tidy[:2]
            return found or (_single(atom, context) if strategy.evaluate and in_product else None)
    return None


def _jumps(gradient: Gradient, context: Context) -> RuleStep:
    """Where the loss of a single mean is continuous, as it changes at each bound by a multiple of e."""
    match gradient.of.terms:
        case ((_, (Mean(_, _, a, ()),)),) if context.definitions:
            found = find_continuous_regions(a, context)
            return {"jumps": {name: g.to_json() for name, g in found.items()}} if found else {}
    return {}


def _for_mean(mean: Mean, context: Context, strategy: Strategy) -> Reduced:
    along = "t" in mean.index
    if along and (found := _parts(mean)):
        return found
    if "i" in mean.index and mean.measure != SAMPLE:
        if along and mean.measure != "q":
            return "change of measure", {"to": "q"}
        return INDEPENDENCE, {}
    if mean.measure != SAMPLE and (along or len(mean.score) < 2):
        found = _evaluate(mean, context) if not along and not mean.score else None
        if not found and mean.measure != "q":
            return "change of measure", {"to": "q"}
        found = found or _ratio_mean_one(mean, context) or _score_mean_zero(mean, context)
        if found:
            return found
    if mean.measure == SAMPLE and strategy.evaluate and not along and not mean.score:
        constant = part_of(mean.coefficient, context, ONE)
        return ("normalisation", _part(constant, mean)) if constant else None
    return _exchange(mean, context) if along else into_steps(mean) if strategy.stepwise else None


# ---------------------------------------------------------------------------- single samples
def _evaluate(mean: Mean, context: Context) -> Reduced:
    """E_m[c] = c and E_m[c m'/m] = E_m[c]."""
    if mean.measure not in PROBABILITIES:
        return None
    constant = part_of(mean.coefficient, context, ONE)
    if constant:
        return "normalisation", _part(constant, mean)
    for other in PROBABILITIES:
        if other != mean.measure:
            part = part_of(mean.coefficient, context, density_ratio(other, mean.measure))
            if part:
                return "ratio mean one", {"of": other, "slot": "x", **_part(part, mean)}
    return None


def part_of(a: ExpPoly, context: Context, pattern: ExpPoly) -> ExpPoly:
    """The terms of `a` that are a constant times the single term `pattern`."""
    found = _select(a * pattern.inverse(), lambda names: not any(map(context.is_sample, names)))
    return found * pattern


def _single(mean: Mean, context: Context) -> Reduced:
    """In a product: E_m[c a + b] = c E_m[a] + E_m[b] for a constant c."""
    [first, *rest] = sorted(mean.coefficient.terms.items())
    (monomial, exponent), value = first
    constants = tuple((n, p) for n, p in monomial if n in context.parameters)
    fixed = tuple((m, v) for m, v in exponent if all(not context.is_sample(n) for n, _ in m))
    constant = ExpPoly({(constants, fixed): 1})
    if rest:
        part = ExpPoly({(monomial, exponent): value})
        return "linearity", {"constant": constant.to_json(), "part": part.to_json()}
    return ("linearity", {"constant": constant.to_json()}) if constant != ONE else None


# ---------------------------------------------------------------------------- slots
def _select(a: ExpPoly, keep: Callable[[frozenset[str]], bool]) -> ExpPoly:
    """The terms of which the names are such."""
    return ExpPoly({key: value for key, value in a.terms.items() if keep(_names(key))})


@lru_cache(maxsize=8192)
def _names(key: Key) -> frozenset[str]:
    return ExpPoly({key: 1}).names()


def _part(part: ExpPoly, mean: Mean) -> RuleStep:
    return {} if part == mean.coefficient else {"part": part.to_json()}


def _parts(mean: Mean) -> Reduced:
    """Sums that are written for the whole sequence; a length in a denominator stays whole."""
    names = mean.coefficient.names()
    whole = [name for name in SUMS if name in names and name != "length"]
    whole += [SCORE] * any(slot_of_score(entry) == "x" for entry in mean.score)
    if whole:
        return "parts of a sum", {"of": whole}
    if names.isdisjoint(LENGTH_NAMES):
        return None
    terms = mean.coefficient.terms.items()
    part = ExpPoly({key: value for key, value in terms if _has_length(ExpPoly({key: 1}))})
    return ("parts of a sum", {"of": ["length"], **_part(part, mean)}) if part else None


def _has_length(term: ExpPoly) -> bool:
    """Does a term hold T, or the length 1 of a step, and no 1/T?"""
    return not term.names().isdisjoint(LENGTH_NAMES) and "length" not in term.inverted()


def _free_of(slot: str, mean: Mean, context: Context) -> Callable[[frozenset[str]], bool]:
    """Do the names of a factor speak only of what does not depend on the slot?"""
    allowed = frozenset(UPSTREAM[mean.index][slot])
    return lambda names: all(context.slots_of(n) <= allowed for n in names)


def _latest_first(mean: Mean) -> list[str]:
    return list(UPSTREAM[mean.index])[::-1]


def _ratio_mean_one(mean: Mean, context: Context) -> Reduced:
    scores = {slot_of_score(entry) for entry in mean.score}
    for slot in _latest_first(mean):
        if not scores <= set(UPSTREAM[mean.index][slot]):
            continue
        free = _free_of(slot, mean, context)
        for other in ("p", "mu"):
            part = _select(mean.coefficient * _ratio("q", other, slot), free)
            if part:
                part = part * _ratio(other, "q", slot)
                return "ratio mean one", {"of": other, "slot": slot, **_part(part, mean)}
    return None


@lru_cache(maxsize=64)
def _ratio(over: str, under: str, slot: str) -> ExpPoly:
    """One density over another at the slot."""
    return in_slot(density_ratio(over, under), slot, Context())


def _score_mean_zero(mean: Mean, context: Context) -> Reduced:
    for slot in _latest_first(mean):
        own = [entry for entry in mean.score if slot_of_score(entry) == slot]
        rest = {slot_of_score(entry) for entry in mean.score} - {slot}
        if len(own) == 1 and rest <= set(UPSTREAM[mean.index][slot]):
            part = _select(mean.coefficient, _free_of(slot, mean, context))
            if part:
                return "score mean zero", {"slot": slot, **_part(part, mean)}
    return None


def _exchange(mean: Mean, context: Context) -> Reduced:
    """One factor of the future against one of the present, all else the same for every pair of steps.

    H stays at its own step, where its value may be given.
    """
    for key, value in sorted(mean.coefficient.terms.items()):
        term = ExpPoly({key: value})
        later = _factor(key, mean, "future", context)
        here = _factor(key, mean, "now", context) or "length"
        if later is None or here in HELD or not _left_is_fixed(term, mean, here, later, context):
            continue
        return "exchange of sums", {"now": here, "other": later, "slot": "future", **_part(term, mean)}
    return None


def _factor(key: Key, mean: Mean, slot: str, context: Context) -> str | None:
    """The one summed variable, or score function, that a term holds in the slot."""
    names = [n for n, _ in key[0] if context.is_sample(n) and parse_name(n).slot == slot]
    names += [SCORE] * mean.score.count(slot)
    return names[0].partition("[")[0] if len(names) == 1 else None


def _left_is_fixed(term: ExpPoly, mean: Mean, here: str, later: str, context: Context) -> bool:
    score = list(mean.score)
    for name, slot in ((here, "now"), (later, "future")):
        if name == SCORE:
            score.remove(slot)
        elif not (name == "length" and slot == "now"):
            if name not in SUMS and parse_name(name).base not in context.function_arguments:
                return False
            term = term * ExpPoly.variable(at_slot(name, slot)).inverse()
    return mentioned(term, context) | {slot_of_score(entry) for entry in score} <= {"x", "others"}


def into_steps(mean: Mean) -> Reduced:
    """A whole-sequence value as a sum over t, by its score function or by a factor that is a sum."""
    if mean.index or mean.measure == "count":
        return None
    if mean.score:
        return "sum over t", {"of": SCORE}
    for name in SUMS:
        terms = mean.coefficient.terms.items()
        part = ExpPoly({key: value for key, value in terms if dict(key[0]).get(name, 0) > 0})
        if part:
            return "sum over t", {"of": name, **_part(part, mean)}
    return None
