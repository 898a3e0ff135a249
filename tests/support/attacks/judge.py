"""The judge: is an accepted theorem true in random worlds that satisfy its recorded hypotheses?"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from klsym.kernel import Theorem
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Atom, Curl, Gradient, Mean, MeanGradient, Side
from support.oracle.definitions import signs
from support.oracle.numbers import Undefined, Unsupported, as_float, as_long
from support.oracle.statements import Oracle
from support.oracle.terms import TOTAL, VALUE, terms_of
from support.oracle.worlds import MEASURES, World

from .random_worlds import Wanted, random_world

TINY = 1e-11  # of floats; below that the two sides agree, above it they are computed with fifty digits
SHORT = 1e-30
LARGE = 1e12  # sides that are sums of larger numbers tell too little


@dataclass
class Verdict:
    """How often a theorem was judged, and what contradicts it."""

    judged: Counter[str] = field(
        default_factory=Counter
    )  # full, boundary, touched, and why a world was left out
    zeros: set[str] = field(default_factory=set)
    against: dict[str, Any] | None = None
    nontrivial: bool = False

    def note(self, world: World, oracle: Oracle, equality: bool) -> None:
        """Count a world in which the theorem was judged."""
        self.judged["boundary" if world.zero_kinds else "full"] += 1
        self.judged["touched"] += oracle.touched
        self.judged["n=1"] += world.n == 1
        self.judged["T=0"] += not world.paths[0]
        self.judged["T>1"] += any(len(path) > 1 for path in world.paths)
        self.judged["zero parameter"] += any(x == 0 for x in world.parameters.values())
        self.judged["equality"] += equality
        self.zeros |= world.zero_kinds if oracle.touched else set()


class Outside(Exception):
    """The world violates a hypothesis."""


# ---------------------------------------------------------------------------- what a theorem needs
def atoms_in(side: Side) -> list[Atom]:
    found: list[Atom] = []
    for _, atoms in side.terms:
        for atom in atoms:
            found.append(atom)
            if isinstance(atom, Gradient):
                found += atoms_in(atom.of)
    return found


def wanted_of(theorem: Theorem, boundary: bool, equal: bool) -> Wanted:
    """What worlds for a theorem are to have."""
    statement, hypotheses = theorem.statement, theorem.hypotheses
    pairs = [(statement.left, statement.right), *statement.context.premises]
    atoms = [atom for pair in pairs for side in pair for atom in atoms_in(side)]
    places = {(a.index, a.measure) for a in atoms if isinstance(a, Mean | MeanGradient | Curl)}
    named = [(h[0], h[1]) for h in hypotheses if h[0] in ("nonzero", "positive", "generic")]
    names = {kind: frozenset(x for k, x in named if k == kind) for kind in ("nonzero", "positive", "generic")}
    elements = [c for pair in pairs for side in pair for c in _elements(side)]
    sequences = any("t" in index for index, _ in places) or any("length" in c.names() for c in elements)
    return Wanted(
        boundary=boundary,
        supports=tuple((h[1], h[2]) for h in hypotheses if h[0] == "support"),
        sequences=sequences,
        batch=any("i" in index for index, _ in places),
        whole_n=any(h[0] == "batch" for h in hypotheses) or any(index == "ij" for index, _ in places),
        sample=any(measure == "sample" for _, measure in places),
        equal=equal,
        **names,
    )


def _elements(side: Side) -> list[ExpPoly]:
    return [
        a.coefficient if isinstance(a, Mean) else a.loss
        for a in atoms_in(side)
        if not isinstance(a, Gradient)
    ]


def solved_of(theorem: Theorem) -> list[tuple[str, Side]]:
    """Premises `parameter = side` that are used: the world takes the parameter from them."""
    found = []
    for h in theorem.hypotheses:
        if h[0] in ("equal", "premise"):
            names = h[1].terms[0][0].names() if len(h[1].terms) == 1 and not h[1].terms[0][1] else set()
            if len(names) == 1:
                [name] = names
                if h[1] == Side.from_constant(ExpPoly.from_variable(name)):
                    found.append((name, h[2]))
    return found


# ---------------------------------------------------------------------------- hypotheses
def check_hypotheses(theorem: Theorem, oracle: Oracle, close: Any) -> None:
    """Raise Outside or Undefined unless the world satisfies each hypothesis, read literally."""
    for h in theorem.hypotheses:
        try:
            fine = _holds(h, oracle, close)
        except ZeroDivisionError:  # what a hypothesis divides by is 0: it does not hold
            fine = False
        if not fine:
            raise Outside(h[0])


def _holds(h: tuple[Any, ...], oracle: Oracle, close: Any) -> bool:
    world = oracle.world
    match h:
        case ("support", a, b):
            return world.supports(a, b)
        case ("exchange" | "lipschitz", mean):
            oracle.exchange(mean)
        case ("away" | "off" | "apart", measure, e):
            return 0 not in signs(oracle, measure, e)
        case ("above", measure, e):
            return all(sign is None or sign > 0 for sign in signs(oracle, measure, e))
        case ("fact", e):
            return all(sign is None or sign >= 0 for sign in signs(oracle, "count", e))
        case ("nonzero" | "positive", "length"):
            return all(world.paths)
        case ("exists", atom):
            oracle.atom(atom)
        case ("batch", _):
            return world.n >= 2
        case ("nonzero", name):
            return abs(oracle.parameters[name]) > 1e-9  # one that a premise gives may be 0 but for rounding
        case ("positive", name):
            return oracle.parameters[name] > 1e-9
        case ("nonnegative", place, a):
            return all(x >= 0 for x in values_at(oracle, "", place, a, ()))
        case ("equal" | "premise" as kind, left, right):
            return _equal(oracle, left, right, kind == "premise", close)
    return True  # ends: trees are finite; generic: parameters are chosen so


def _equal(oracle: Oracle, left: Side, right: Side, always: bool, close: Any) -> bool:
    same = close(oracle.side(left), oracle.side(right), oracle.peak)
    return same and (not always or close(*(oracle.slope(x, TOTAL) for x in (left, right)), oracle.peak))


def values_at(
    oracle: Oracle, index: str, measure: str, element: ExpPoly, score: Any, weight: Any = None
) -> list[Any]:
    """The values of element * scores at each place where the measure (and a weight) has mass."""
    found = []
    for batch, at in oracle.batches(index, measure):
        if measure in MEASURES and not all(s.density(measure) for x in batch for s in x):
            continue
        for place in at:
            if weight is None:
                found.append(_total(oracle, element, place, score))
            elif (mass := _total(oracle, weight, place, ())) > 0:
                if mass < SHORT:  # what it weighs is lost beside other numbers
                    raise OverflowError
                try:
                    found.append(_total(oracle, element, place, score))
                except Undefined:  # a log of 0 is no 0
                    found.append(float("inf"))
    return found


def _total(oracle: Oracle, element: ExpPoly, place: Any, score: Any) -> Any:
    total = oracle.of(Fraction(0))
    for term in terms_of(element, oracle.names):
        total = total + oracle.term(term, place, "", VALUE, score)
    if not total - total == 0:
        raise Undefined("an element without value")
    return total


# ---------------------------------------------------------------------------- verdicts
def judge(theorem: Theorem, rng: random.Random, full: int = 2, boundary: int = 3, tries: int = 16) -> Verdict:
    """Judge an equation or an inequality in random worlds."""
    verdict, solved = Verdict(), solved_of(theorem)
    for attempt in range(tries):
        here = attempt % 4 != 0
        if verdict.judged["boundary" if here else "full"] >= (boundary if here else full):
            continue
        wanted = wanted_of(theorem, here, theorem.statement.relation == "<=" and rng.random() < 0.6)
        world = random_world(wanted, theorem.statement.context, solved, rng)
        reason = _judge_in(theorem, world, verdict)
        if reason:
            verdict.judged[reason] += 1
        if verdict.against:
            break
    return verdict


def _judge_in(theorem: Theorem, world: World, verdict: Verdict) -> str:
    """Judge in one world: why it was left out, or nothing."""
    try:
        oracle, left, right = _evaluated(theorem, world, as_float, _close_floats)
        fine = _agrees(theorem, oracle, left, right, TINY)
        if not fine:
            oracle, left, right = _evaluated(theorem, world, as_long, _close_long)
            fine = _agrees(theorem, oracle, left, right, SHORT)
    except Outside as error:
        return f"violates {error}"
    except Undefined:
        return "undefined"
    except Unsupported:
        return "unsupported"
    except OverflowError:
        return "overflow"
    except ZeroDivisionError:
        verdict.against = {"world": world.describe(), "why": "a parameter that divides may be 0"}
        return ""
    equality = bool(theorem.zeros) and abs(left - right) < TINY * (1 + oracle.peak)
    verdict.note(world, oracle, equality)
    verdict.nontrivial |= abs(left) > 1e-6
    if not fine:
        verdict.against = {"world": world.describe(), "left": str(left), "right": str(right)}
    return ""


FIRST = ("support", "nonzero", "away", "off", "apart", "above", "fact")


def _evaluated(theorem: Theorem, world: World, of: Any, close: Any) -> tuple[Oracle, Any, Any]:
    """Both sides in a world that satisfies the hypotheses."""
    oracle, statement = Oracle(world, of), theorem.statement
    for h in theorem.hypotheses:  # first what a division may need
        if h[0] in FIRST and not _holds(h, oracle, close):
            raise Outside(h[0])
    left, right = oracle.side(statement.left), oracle.side(statement.right)
    check_hypotheses(theorem, oracle, close)
    if oracle.peak > LARGE:
        raise OverflowError
    return oracle, left, right


def _close_floats(x: Any, y: Any, peak: float) -> bool:
    return bool(abs(x - y) <= 1e-9 * (1 + peak))


def _close_long(x: Any, y: Any, peak: float) -> bool:
    return bool(abs(x - y) <= 1e-30 * (1 + peak))


def _agrees(theorem: Theorem, oracle: Oracle, left: Any, right: Any, tiny: float) -> bool:
    gap, size = right - left, tiny * (1 + oracle.peak)
    if theorem.statement.relation == "=":
        return bool(abs(gap) <= size)
    if gap < -size:
        return False
    return not theorem.zeros or (abs(gap) <= size) == all_zero(theorem, oracle, tiny)


def all_zero(theorem: Theorem, oracle: Oracle, tiny: float) -> bool:
    """Does the recorded condition for equality hold?"""
    for zero in theorem.zeros:
        if abs(oracle.constant(zero.factor)) <= tiny:
            continue
        found = values_at(oracle, zero.index, zero.measure, zero.element, zero.score, zero.weight)
        least = found[0] if zero.constant and found else 0
        if any(abs(x - least) > tiny ** (0.5 if tiny < TINY else 0.4) for x in found):
            return False
    return True
