"""The strategy at an index of a batch or a sequence, see `reduce`.  Untrusted.

The canonical form of a sum over t stands under q and speaks of slots alone; what does not depend on a later
slot has lost the ratio and the score of that slot; of two sums over pairs of steps, the later step is `now`:
sum_t s_t sum_{u>t} V_u becomes sum_u V_u sum_{t<u} s_t.  Means over batches become products of means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klsym.kernel.derivatives import density_ratio
from klsym.kernel.indexed import SCORE, SUMS, in_slot, mentioned
from klsym.names import SAMPLE, parse_name
from klsym.normal_form import ExpPoly, Key
from klsym.slots import UPSTREAM, at_slot, slot_of_score
from klsym.statements import Atom, Context, E, Indexed, Point

Found = tuple[str, dict[str, Any]] | None


def rule_at_index(atom: Indexed, context: Context) -> Found:
    """The next rule for a value at an index, once detached quantities are gone."""
    if context.on_policy and atom.measure == "mu":
        return "on-policy", {}
    if "t" in atom.index and (found := _parts(atom)):
        return found
    if atom.measure != SAMPLE:
        if atom.measure != "q" and "t" in atom.index:
            return "change of measure", {"to": "q"}
        if atom.index != "t":
            return "independence", {}
        found = _ratio_mean_one(atom, context) or _score_mean_zero(atom, context)
        if found:
            return found
    return _exchange(atom, context) if "t" in atom.index else None


def _parts(atom: Indexed) -> Found:
    """Sums that are written for the whole sequence; a length in a denominator stays whole."""
    names = atom.coefficient.names()
    whole = [name for name in SUMS if name in names and name != "length"]
    whole += [SCORE] * any(slot_of_score(entry) == "x" for entry in atom.score)
    if whole:
        return "parts of a sum", {"of": whole}
    part = _select(atom.coefficient, _has_length)
    return ("parts of a sum", {"of": ["length"], **_part(part, atom)}) if part else None


def _has_length(term: ExpPoly) -> bool:
    """Does a term hold T, or the length 1 of a step, and no 1/T?"""
    return bool({"length", "length[now]"} & term.names()) and "length" not in term.inverted()


def _select(a: ExpPoly, keep: Callable[[ExpPoly], bool]) -> ExpPoly:
    return ExpPoly({key: value for key, value in a.terms.items() if keep(ExpPoly({key: value}))})


def _part(part: ExpPoly, atom: Indexed | E) -> dict[str, Any]:
    return {} if part == atom.coefficient else {"part": part.to_json()}


def _free_of(slot: str, atom: Indexed, context: Context) -> Callable[[ExpPoly], bool]:
    """Does a factor speak only of what does not depend on the slot?"""
    allowed = set(UPSTREAM[atom.index][slot])
    return lambda factor: mentioned(factor, context) <= allowed


def _ratio_mean_one(atom: Indexed, context: Context) -> Found:
    scores = {slot_of_score(entry) for entry in atom.score}
    for slot in ("future", "now"):
        if not scores <= set(UPSTREAM[atom.index][slot]):
            continue
        free = _free_of(slot, atom, context)
        for other in ("p", "mu"):
            back = in_slot(density_ratio("q", other), slot, context)
            part = _select(atom.coefficient, lambda term, back=back, free=free: free(term * back))  # type: ignore[misc]
            if part:
                return "ratio mean one", {"of": other, "slot": slot, **_part(part, atom)}
    return None


def _score_mean_zero(atom: Indexed, context: Context) -> Found:
    for slot in ("future", "now"):
        own = [entry for entry in atom.score if slot_of_score(entry) == slot]
        rest = {slot_of_score(entry) for entry in atom.score} - {slot}
        if len(own) == 1 and rest <= set(UPSTREAM[atom.index][slot]):
            part = _select(atom.coefficient, _free_of(slot, atom, context))
            if part:
                return "score mean zero", {"slot": slot, **_part(part, atom)}
    return None


def _exchange(atom: Indexed, context: Context) -> Found:
    """One factor of the future against one of the present, all else the same for every pair of steps."""
    for key, value in sorted(atom.coefficient.terms.items()):
        term = ExpPoly({key: value})
        later = _factor(key, atom, "future", context)
        here = _factor(key, atom, "now", context) or "length"
        if later is None or not _left_is_fixed(term, atom, here, later, context):
            continue
        return "exchange of sums", {"now": here, "other": later, "slot": "future", **_part(term, atom)}
    return None


def _factor(key: Key, atom: Indexed, slot: str, context: Context) -> str | None:
    """The one summed variable, or score function, that a term holds in the slot."""
    names = [n for n, _ in key[0] if context.is_sample(n) and parse_name(n).slot == slot]
    names += [SCORE] * atom.score.count(slot)
    return names[0].partition("[")[0] if len(names) == 1 else None


def _left_is_fixed(term: ExpPoly, atom: Indexed, here: str, later: str, context: Context) -> bool:
    score = list(atom.score)
    for name, slot in ((here, "now"), (later, "future")):
        if name == SCORE:
            score.remove(slot)
        elif not (name == "length" and slot == "now"):
            if not _is_sum(name, context):
                return False
            term = term * ExpPoly.variable(at_slot(name, slot)).inverse()
    return mentioned(term, context) | {slot_of_score(entry) for entry in score} <= {"x", "others"}


def _is_sum(name: str, context: Context) -> bool:
    return name in SUMS or parse_name(name).base in context.function_arguments


def into_steps(atom: Atom) -> Found:
    """A whole-sequence value as a sum over t, by its score function or by a factor that is a sum."""
    if not isinstance(atom, E | Point) or (isinstance(atom, E) and atom.measure == "count"):
        return None
    if atom.score:
        return "sum over t", {"of": SCORE}
    for name in SUMS:
        part = _select(atom.coefficient, lambda term, name=name: _has_factor(term, name))  # type: ignore[misc]
        if part:
            whole = isinstance(atom, Point) or part == atom.coefficient
            return "sum over t", {"of": name} | ({} if whole else {"part": part.to_json()})
    return None


def _has_factor(term: ExpPoly, name: str) -> bool:
    [(monomial, _)] = term.terms
    return dict(monomial).get(name, 0) > 0
