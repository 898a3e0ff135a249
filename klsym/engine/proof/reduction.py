"""Choose the rules that bring a side to its canonical form.  Untrusted.

The canonical form of a mean over samples is under q: E_q[c s] without the constant of c, and E_q[v] with
constants, multiples of r and of 1/rho evaluated.  A sum over t is under q and in slots; terms independent of
a later slot lose the ratio and the score of that slot; in a sum over pairs of tokens the later one is `now`:
sum_t s_t sum_{u>t} V_u becomes sum_u V_u sum_{t<u} s_t.  Means over batches become products of means.
The kernel replays each step.

>>> side = Side.from_atom(Gradient(Side.from_atom(Mean("", "q", ExpPoly.from_variable("k1")))))
>>> [step["rule"] for step, _ in reduce_side(side, Context())]
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
from klsym.kernel.densities import build_density_ratio
from klsym.kernel.derivatives import list_slots, move_to_slot
from klsym.kernel.names import HELD, PROBABILITIES, SAMPLE, THETA_FREE, parse_name
from klsym.kernel.ring import ONE, ExpPoly, Key
from klsym.kernel.slots import UPSTREAM, find_slot, name_in_slot
from klsym.kernel.statements import Atom, Context, Curl, Gradient, Mean, MeanGradient, Side, walk_elements
from klsym.kernel.sums import SCORE, SUMS

MAX_STEPS = 500
INDEPENDENCE = "independence"
LENGTH_NAMES = ("length", "length[now]")
RuleStep = dict[str, Any]
Move = tuple[RuleStep, Side]
Reduced = tuple[str, RuleStep] | None


@dataclass(frozen=True, eq=False)
class CitedTheorems:
    """Theorems that may be cited: by the gradient on their left side, and by the digest of their parts."""

    by_left: dict[Atom, tuple[list[Any], Side, Side]] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)
    bodies: dict[str, list[Any]] = field(default_factory=dict)


NO_THEOREMS = CitedTheorems()


@dataclass(frozen=True)
class Strategy:
    """How far to go: stepwise, whole-sequence quantities become sums over t; evaluate, products of means are
    multiplied out; apart, no sample lies where two regions meet; cited, theorems that may be used."""

    stepwise: bool = False
    evaluate: bool = False
    apart: bool = False
    cited: CitedTheorems = NO_THEOREMS


def reduce_side(
    side: Side, context: Context, which: str = "left", strategy: Strategy = Strategy()
) -> Iterator[Move]:
    """Yield the steps that bring `side` into canonical form, each with the side after it."""
    for _ in range(MAX_STEPS):
        move = _find_next_step(side, context, strategy)
        if move is None:
            return
        step, side = move
        yield {**step, "side": which}, side
    raise ProofError(f"no canonical form after {MAX_STEPS} steps: is a gradient of a gradient meant?")


@lru_cache(maxsize=1024)
def _find_next_step(side: Side, context: Context, strategy: Strategy) -> Move | None:
    """Return the first step; cached, since the proofs of one verdict pass through the same sides."""
    proposal = choose_rule(side, context, strategy)
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
    """Return one step, its result computed by the kernel's rule."""
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


def choose_rule(
    side: Side, context: Context, strategy: Strategy
) -> tuple[int | None, int | None, str, RuleStep] | None:
    for term, (coefficient, atoms) in enumerate(side.terms):
        for factor, atom in enumerate(atoms):
            times = Side(((coefficient, atoms[:factor] + atoms[factor + 1 :]),))
            equation = _find_equation(atom, times, context, strategy.cited)
            if equation:
                return None, None, EQUATION, equation
            choice = _choose_rule_for_atom(atom, len(atoms) > 1, context, strategy)
            if choice:
                return term, factor, *choice
    return None


def _find_equation(atom: Atom, times: Side, context: Context, cited: CitedTheorems) -> RuleStep | None:
    """Return a premise or a cited theorem on a gradient, or the premise with the value of a mean of H."""
    if not all(isinstance(a, Mean) for _, atoms in times.terms for a in atoms):
        return None
    if isinstance(atom, Mean):
        return _find_premise(atom, times, context)
    if isinstance(atom, Gradient):
        for number, (left, _) in enumerate(context.premises):
            if left == atom.of and not any(map(_holds_given, walk_elements(left))):
                return {"of": number, "times": times.to_json(), "gradient": 1}
    if atom in cited.by_left:
        return {"of": cited.by_left[atom][0], "times": times.to_json(), "gradient": 0}
    return None


def _holds_given(element: ExpPoly) -> bool:
    """Does it contain H, the value of which is known at one theta?"""
    return _has_given_name(element.names())


def _has_given_name(names: frozenset[str]) -> bool:
    return any(parse_name(name).base in HELD for name in names)


def _find_premise(mean: Mean, times: Side, context: Context) -> RuleStep | None:
    """Return the premise E_m[H a] = E_m[v a], for the terms with H."""
    part = _select(mean.coefficient, _has_given_name)
    is_alone = all(not atoms for _, atoms in times.terms)  # a lone mean merges with what is put in
    if not part or not (is_alone or part == mean.coefficient):
        return None
    given_mean = Side.from_atom(Mean(mean.index, mean.measure, part, mean.score))
    for number, (left, _) in enumerate(context.premises):
        if left == given_mean:
            return {"of": number, "times": times.to_json(), "gradient": 0}
    return None


def _choose_rule_for_atom(atom: Atom, in_product: bool, context: Context, strategy: Strategy) -> Reduced:
    match atom:
        case MeanGradient():
            return "chain rule", {}
        case Curl():
            return "curl", {}
        case Gradient(of) if any(len(atoms) > 1 for _, atoms in of.terms):
            return "product rule", {}
        case Gradient():
            return "log-derivative", _list_jumps(atom, context)
        case Mean(_, _, a, _):
            if any(parse_name(name).detached for name in a.names() if context.is_sample(name)):
                return "stop-gradient", {}
            choice = _choose_rule_for_mean(atom, context, strategy)
            if (
                not choice
                and context.definitions
                and (tidy := find_next_step(a, context, False, True, apart=strategy.apart))
            ):
                return tidy[:2]
            return choice or (_choose_linearity(atom, context) if strategy.evaluate and in_product else None)
    return None


def _list_jumps(gradient: Gradient, context: Context) -> RuleStep:
    """Return the regions e > 0 at whose bounds the integrand is continuous: it changes by a multiple of e."""
    match gradient.of.terms:
        case ((_, (Mean(_, _, a, ()),)),) if context.definitions:
            continuous = find_continuous_regions(a, context)
            return {"jumps": {name: g.to_json() for name, g in continuous.items()}} if continuous else {}
    return {}


def _choose_rule_for_mean(mean: Mean, context: Context, strategy: Strategy) -> Reduced:
    """Choose the rule for a mean, in this order: parts, independence, measure, evaluation, exchange."""
    is_sequence = "t" in mean.index
    if is_sequence and (choice := _choose_parts(mean)):
        return choice
    if "i" in mean.index and mean.measure != SAMPLE:
        if is_sequence and mean.measure != "q" and _weighs_others(mean.coefficient):
            return "change of measure", {"to": "q"}
        return INDEPENDENCE, {}
    if mean.measure != SAMPLE and (is_sequence or len(mean.score) < 2):
        choice = _choose_evaluation(mean, context) if not is_sequence and not mean.score else None
        if not choice and mean.measure != "q":
            return "change of measure", {"to": "q"}
        choice = choice or _choose_ratio_mean_one(mean, context) or _choose_score_mean_zero(mean, context)
        if choice:
            return choice
    if mean.measure == SAMPLE and strategy.evaluate and not is_sequence and not mean.score:
        constant = select_multiples(mean.coefficient, context, ONE)
        return ("normalisation", _as_part_data(constant, mean)) if constant else None
    return (
        _choose_exchange(mean, context)
        if is_sequence
        else choose_sum_over_t(mean)
        if strategy.stepwise
        else None
    )


def _weighs_others(a: ExpPoly) -> bool:
    """Do quantities of the other samples depend on theta, or on mu?  Their lengths and rewards do not."""
    others = (parse_name(name) for name in a.names() if parse_name(name).slot == "others")
    return any(name.base not in THETA_FREE for name in others)


# ---------------------------------------------------------------------------- single samples
def _choose_evaluation(mean: Mean, context: Context) -> Reduced:
    """Choose E_m[c] = c or E_m[c m'/m] = E_m[c]."""
    if mean.measure not in PROBABILITIES:
        return None
    constant = select_multiples(mean.coefficient, context, ONE)
    if constant:
        return "normalisation", _as_part_data(constant, mean)
    for measure in PROBABILITIES:
        if measure != mean.measure:
            part = select_multiples(mean.coefficient, context, build_density_ratio(measure, mean.measure))
            if part:
                return "ratio mean one", {"of": measure, "slot": "x", **_as_part_data(part, mean)}
    return None


def select_multiples(a: ExpPoly, context: Context, pattern: ExpPoly) -> ExpPoly:
    """Return the terms of `a` that are a constant times the single term `pattern`."""
    multiples = _select(a * pattern.invert(), lambda names: not any(map(context.is_sample, names)))
    return multiples * pattern


def _choose_linearity(mean: Mean, context: Context) -> Reduced:
    """Choose linearity in a product: E_m[c a + b] = c E_m[a] + E_m[b] for a constant c."""
    [first, *other_terms] = sorted(mean.coefficient.terms.items())
    (monomial, exponent), value = first
    constants = tuple((n, p) for n, p in monomial if n in context.parameters)
    fixed = tuple((m, v) for m, v in exponent if all(not context.is_sample(n) for n, _ in m))
    constant = ExpPoly({(constants, fixed): 1})
    if other_terms:
        part = ExpPoly({(monomial, exponent): value})
        return "linearity", {"constant": constant.to_json(), "part": part.to_json()}
    return ("linearity", {"constant": constant.to_json()}) if constant != ONE else None


# ---------------------------------------------------------------------------- slots
def _select(a: ExpPoly, keep: Callable[[frozenset[str]], bool]) -> ExpPoly:
    """Return the terms whose names satisfy a condition."""
    return ExpPoly({key: value for key, value in a.terms.items() if keep(_collect_names(key))})


@lru_cache(maxsize=8192)
def _collect_names(key: Key) -> frozenset[str]:
    return ExpPoly({key: 1}).names()


def _as_part_data(part: ExpPoly, mean: Mean) -> RuleStep:
    return {} if part == mean.coefficient else {"part": part.to_json()}


def _choose_parts(mean: Mean) -> Reduced:
    """Choose to split sums over the whole sequence into slots; 1/T is not split."""
    names = mean.coefficient.names()
    summed_names = [name for name in SUMS if name in names and name != "length"]
    summed_names += [SCORE] * any(find_slot(entry) == "x" for entry in mean.score)
    if summed_names:
        return "parts of a sum", {"of": summed_names}
    if names.isdisjoint(LENGTH_NAMES):
        return None
    terms = mean.coefficient.terms.items()
    part = ExpPoly({key: value for key, value in terms if _has_plain_length(ExpPoly({key: 1}))})
    return ("parts of a sum", {"of": ["length"], **_as_part_data(part, mean)}) if part else None


def _has_plain_length(term: ExpPoly) -> bool:
    """Does a term contain T, or the length 1 of a token, and no 1/T?"""
    return not term.names().isdisjoint(LENGTH_NAMES) and "length" not in term.collect_divisors()


def _is_free_of(slot: str, mean: Mean, context: Context) -> Callable[[frozenset[str]], bool]:
    """Return a predicate: are all names independent of the slot?"""
    allowed = frozenset(UPSTREAM[mean.index][slot])
    return lambda names: all(context.find_slots(n) <= allowed for n in names)


def _list_latest_first(mean: Mean) -> list[str]:
    return list(UPSTREAM[mean.index])[::-1]


def _choose_ratio_mean_one(mean: Mean, context: Context) -> Reduced:
    scores = {find_slot(entry) for entry in mean.score}
    for slot in _list_latest_first(mean):
        if not scores <= set(UPSTREAM[mean.index][slot]):
            continue
        is_free = _is_free_of(slot, mean, context)
        for measure in ("p", "mu"):
            part = _select(mean.coefficient * _build_ratio("q", measure, slot), is_free)
            if part:
                part = part * _build_ratio(measure, "q", slot)
                return "ratio mean one", {"of": measure, "slot": slot, **_as_part_data(part, mean)}
    return None


@lru_cache(maxsize=64)
def _build_ratio(over: str, under: str, slot: str) -> ExpPoly:
    """Return one density over another at the slot."""
    return move_to_slot(build_density_ratio(over, under), slot, Context())


def _choose_score_mean_zero(mean: Mean, context: Context) -> Reduced:
    for slot in _list_latest_first(mean):
        entries_at_slot = [entry for entry in mean.score if find_slot(entry) == slot]
        other_slots = {find_slot(entry) for entry in mean.score} - {slot}
        if len(entries_at_slot) == 1 and other_slots <= set(UPSTREAM[mean.index][slot]):
            part = _select(mean.coefficient, _is_free_of(slot, mean, context))
            if part:
                return "score mean zero", {"slot": slot, **_as_part_data(part, mean)}
    return None


def _choose_exchange(mean: Mean, context: Context) -> Reduced:
    """Exchange a factor of the future and one of the present, if all else is equal for every pair of tokens.

    H stays at its own step, where its value may be given.
    """
    for key, value in sorted(mean.coefficient.terms.items()):
        term = ExpPoly({key: value})
        future_factor = _find_factor(key, mean, "future", context)
        present_factor = _find_factor(key, mean, "now", context) or "length"
        if (
            future_factor is None
            or present_factor in HELD
            or not _is_remainder_fixed(term, mean, present_factor, future_factor, context=context)
        ):
            continue
        return "exchange of sums", {
            "now": present_factor,
            "other": future_factor,
            "slot": "future",
            **_as_part_data(term, mean),
        }
    return None


def _find_factor(key: Key, mean: Mean, slot: str, context: Context) -> str | None:
    """Return the one summed variable, or score function, that a term contains in the slot; else None."""
    names = [n for n, _ in key[0] if context.is_sample(n) and parse_name(n).slot == slot]
    names += [SCORE] * mean.score.count(slot)
    return names[0].partition("[")[0] if len(names) == 1 else None


def _is_remainder_fixed(
    term: ExpPoly, mean: Mean, present_factor: str, future_factor: str, context: Context
) -> bool:
    score = list(mean.score)
    for name, slot in ((present_factor, "now"), (future_factor, "future")):
        if name == SCORE:
            score.remove(slot)
        elif not (name == "length" and slot == "now"):
            if name not in SUMS and parse_name(name).base not in context.function_arguments:
                return False
            term = term * ExpPoly.from_variable(name_in_slot(name, slot)).invert()
    return list_slots(term, context) | {find_slot(entry) for entry in score} <= {"x", "others"}


def choose_sum_over_t(mean: Mean) -> Reduced:
    """Choose to write a whole-sequence mean as a sum over t, by its score or by a factor that is a sum."""
    if mean.index or mean.measure == "count":
        return None
    if mean.score:
        return "sum over t", {"of": SCORE}
    for name in SUMS:
        terms = mean.coefficient.terms.items()
        part = ExpPoly({key: value for key, value in terms if dict(key[0]).get(name, 0) > 0})
        if part:
            return "sum over t", {"of": name, **_as_part_data(part, mean)}
    return None
