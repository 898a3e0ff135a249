"""The oracle: what sides are worth in a world, read off literally.  It shares no code with klsym.

E_m sums over what has m > 0, "count" over all outcomes, "sample" means one batch.  Where a density is 0,
a product that holds a positive power of it is 0; otherwise a term that is infinite or has no value makes the
mean undefined.  Next to a zero of q = (b.theta)^2 a term is as a power of b.theta, times logs: it is
differentiable, with derivative 0, when that power is above 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Atom, Curl, Gradient, Mean, MeanGradient, Side

from .definitions import LET, LOG, REGION, defined_value, kind_of, plain_variables, refuse_kinks
from .numbers import Jet, Undefined, Unsupported, as_long, exp, is_plain, log, value_of
from .terms import AXES, GRADIENT, PATHWISE, RATIO, VALUE, Constants, Mode, Term, Variable, terms_of
from .worlds import ARGUMENTS, MEASURES, REWARDS, Path, Step, World


# ---------------------------------------------------------------------------- places
@dataclass(eq=False)
class Place:
    """What is averaged: one batch, and one step of it; a variable is a sum over the units of its slot."""

    slots: dict[str, tuple[Path, ...]]
    known: dict[str, Any]  # what A of a slot may depend on
    positions: tuple[tuple[Step, tuple[str, ...]], ...]  # each step drawn, and the slots that speak of it
    cache: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.zeros = tuple(p for p in self.positions if p[0].zeros)


def places(index: str, batch: tuple[Path, ...]) -> Iterator[Place]:
    """The places of one batch whose first sample is its own."""
    own, more = batch[0], batch[1:]
    if index == "":
        yield Place({"x": (own,)}, {"x": ("x", own)}, tuple((s, ("x",)) for s in own))
    elif index == "i":
        at = [*((s, ("self",)) for s in own), *((s, ("others",)) for x in more for s in x)]
        known = {"self": ("x", own), "others": ("others", more)}
        yield Place({"self": (own,), "others": more}, known, tuple(at))
    elif index == "ij":
        other, rest = batch[1], batch[2:]
        at = [*((s, ("self",)) for s in own), *((s, ("other",)) for s in other)]
        at += [(s, ("rest",)) for x in rest for s in x]
        known = {"self": ("x", own), "other": ("x", other), "rest": ("rest", rest)}
        yield Place({"self": (own,), "other": (other,), "rest": rest}, known, tuple(at))
    else:
        for t in range(len(own)):
            yield _step(own, t, more if index == "it" else None)


def _step(own: Path, t: int, others: tuple[Path, ...] | None) -> Place:
    slots = {
        "past": tuple((s,) for s in own[:t]), "now": ((own[t],),),
        "future": tuple((s,) for s in own[t + 1 :]), "x": (own,),
    }  # fmt: skip
    known: dict[str, Any] = {
        "past": ("past", t, own[:t]), "now": ("now", t, own[: t + 1]), "future": ("future", t, own),
        "x": ("x", own),
    }  # fmt: skip
    at = [(s, ("past" if u < t else "now" if u == t else "future", "x")) for u, s in enumerate(own)]
    if others is not None:
        slots["others"], known["others"] = others, ("others", others)
        at += [(s, ("others",)) for x in others for s in x]
    return Place(slots, known, tuple(at))


# ---------------------------------------------------------------------------- worlds
class Oracle:
    """Values of sides in one world."""

    def __init__(self, world: World, of: Any) -> None:
        self.world, self.of, self.peak, self.touched = world, of, 0.0, False
        self.names = frozenset(world.parameters) | {name for name, _ in world.solved}
        self.parameters: dict[str, Any] = dict(world.parameters)
        self._places: dict[Any, list[tuple[tuple[Path, ...], list[Place]]]] = {}
        self._steps: dict[Any, Any] = {}
        self.named: dict[Any, Any] = {}  # the means that have a name
        for name, side in world.solved:
            self.parameters[name] = self.side(side)

    @cached_property
    def long(self) -> Oracle:
        """The same with fifty digits."""
        return self if self.of is as_long else Oracle(self.world, as_long)

    # -- sides ----------------------------------------------------------------------------
    def side(self, side: Side) -> Any:
        total = self.of(Fraction(0))
        for coefficient, atoms in side.terms:
            value = self.constant(coefficient)
            for atom in atoms:
                value = value * self.atom(atom)
            self._note(value)
            total = total + value
        return total

    def atom(self, atom: Atom) -> Any:
        if isinstance(atom, Mean):
            return self.mean(atom.index, atom.measure, atom.coefficient, atom.score, VALUE)
        if isinstance(atom, MeanGradient):
            return self._slope(self.mean(atom.index, atom.measure, atom.loss, (), PATHWISE))
        if isinstance(atom, Gradient):
            return self.slope(atom.of)
        assert isinstance(atom, Curl)
        ends = []
        for inner, outer in (("uv", ".v"), ("vu", ".u")):
            mode = Mode(inner, outer, outer if atom.measure == "q" else "", 2, True)
            value = self.mean(atom.index, atom.measure, atom.loss, (), mode)
            ends.append(value.ab if isinstance(value, Jet) else value * 0)
        return ends[0] - ends[1]

    def _slope(self, x: Any) -> Any:
        return x.a if isinstance(x, Jet) else x * 0

    def slope(self, side: Side, mode: Mode = GRADIENT) -> Any:
        """The derivative along u of a combination of products of means."""
        total: Any = self.of(Fraction(0))
        for coefficient, atoms in side.terms:
            value = self.constant(coefficient)
            for atom in atoms:
                if not isinstance(atom, Mean) or atom.score:
                    raise Unsupported("a second derivative")
                value = value * self.mean(atom.index, atom.measure, atom.coefficient, (), mode)
            total = total + value
        return self._slope(total)

    def constant(self, element: ExpPoly) -> Any:
        nowhere = Place({}, {}, ())
        total = self.of(Fraction(0))
        for term in terms_of(element, self.names):
            total = total + self.term(term, nowhere, "", VALUE, ())
        return total

    # -- means ----------------------------------------------------------------------------
    def mean(self, index: str, measure: str, element: ExpPoly, score: tuple[str, ...], mode: Mode) -> Any:
        if score and mode.moves:
            raise Unsupported("a second derivative")
        total: Any = self.of(Fraction(0))
        terms = terms_of(element, self.names)
        for batch, found in self.batches(index, measure):
            steps = [s for x in batch for s in x]
            drawn = measure in MEASURES
            if drawn and any(not s.density(measure) and not (mode.measure and s.moving) for s in steps):
                continue
            if drawn and measure != "q" and not all(s.density(measure) for s in steps):
                continue
            weight = self._weight(steps, measure, mode) if drawn else self.of(Fraction(1))
            for place in found:
                for term in terms:
                    value = weight * self.term(term, place, measure, mode, score)
                    if not is_plain(value):
                        raise Undefined(f"{measure}: {term}")
                    self._note(value_of(value))
                    total = total + value
        return total

    def batches(self, index: str, measure: str) -> list[tuple[tuple[Path, ...], list[Place]]]:
        key = index, measure == "sample"
        if key not in self._places:
            size = self.world.n if "i" in index else 1
            if "j" in index and size < 2:
                raise Unsupported("two samples of a batch of one")
            if measure == "sample":
                if len(self.world.sample) < size:
                    raise Undefined("there is no sample at which all densities are positive")
                batches = [self.world.sample[:size]]
            else:
                batches = list(product(self.world.paths, repeat=size))
            self._places[key] = [(batch, list(places(index, batch))) for batch in batches]
        return self._places[key]

    def _weight(self, steps: list[Step], measure: str, mode: Mode) -> Any:
        weight: Any = self.of(Fraction(1))
        for step in steps:
            weight = weight * self._density(step, measure, mode.measure if measure == "q" else "")
        return weight

    def _density(self, step: Step, name: str, axes: str) -> Any:
        key = step, name, axes
        if key not in self._steps:
            if name != "q" or not axes:
                found = self.of(step.density(name))
            else:
                parts = [self.of(step.q[i] if i is not None else Fraction(0)) for i in AXES[axes]]
                found = Jet(self.of(step.q[0]), *parts)
            self._steps[key] = found
        return self._steps[key]

    def _log(self, step: Step, name: str, axes: str) -> Any:
        key = "log", step, name, axes
        if key not in self._steps:
            self._steps[key] = log(self._density(step, name, axes))
        return self._steps[key]

    def _note(self, value: Any) -> None:
        self.peak = max(self.peak, abs(float(value)))

    # -- terms ----------------------------------------------------------------------------
    def term(self, term: Term, place: Place, measure: str, mode: Mode, score: tuple[str, ...]) -> Any:
        if place.zeros:
            term = self._resolved(term, place)
            if self._vanishes(term, place, measure, mode, score):
                return self.of(Fraction(0))
        value = self.product(term, place, mode)
        for entry in score:
            value = value * self.score(entry, place)
        return value

    def product(self, term: Term, place: Place, mode: Mode) -> Any:
        """A term where no density that it speaks of is 0."""
        value = self.of(term.scale) * self._constants(term.constants)
        for variable, power in term.factors:
            value = value * self._power(self.variable(variable, place, mode), power)
        return value * exp(self._exponent(term, place, mode)) if term.lines or term.wild else value

    def _power(self, value: Any, power: int) -> Any:
        if power < 0 and value_of(value) == 0:
            raise Undefined("division by 0")
        return value**power

    def _constants(self, constants: Constants) -> Any:
        value = self.of(Fraction(1))
        for name, power in constants:
            value = value * self.of(self.parameters[name]) ** power
        return value

    def _exponent(self, term: Term, place: Place, mode: Mode) -> Any:
        total: Any = self.of(Fraction(0))
        for scale, constants, variable in term.lines:
            factor = self.of(scale) * self._constants(constants)
            if not place.zeros:
                total = total + factor * self.variable(variable, place, mode)
                continue
            axes = mode.frozen if variable.frozen else mode.live
            for step, slots in place.positions:  # what vanishes has the power 0 by now: it cancels
                if variable.slot in slots:
                    for name, sign in RATIO[variable.base].items():
                        if step.density(name):
                            total = total + factor * (self._log(step, name, axes) * sign)
        for scale, constants, factors in term.wild:
            value = self.of(scale) * self._constants(constants)
            for variable, power in factors:
                value = value * self._power(self.variable(variable, place, mode), power)
            total = total + value
        return total

    # -- variables ------------------------------------------------------------------------
    def variable(self, variable: Variable, place: Place, mode: Mode) -> Any:
        axes = mode.frozen if variable.frozen else mode.live
        key = variable, axes
        if axes and variable.base in self.world.definitions:
            refuse_kinks(self, variable, place, axes, mode.total)
        if key not in place.cache:
            place.cache[key] = self._value(variable, place, axes)
        return place.cache[key]

    def _value(self, variable: Variable, place: Place, axes: str) -> Any:
        if variable.base == "A":
            return self.of(self.world.free_value(place.known[variable.slot]))
        if variable.base in self.world.definitions:
            return defined_value(self, variable, place, axes)
        total: Any = self.of(Fraction(0))
        for unit in place.slots[variable.slot]:
            total = total + self._of_unit(variable, unit, axes)
        return total

    def _of_unit(self, variable: Variable, unit: Path, axes: str) -> Any:
        base = variable.base
        if base == "length":
            return self.of(Fraction(len(unit)))
        if base in REWARDS:
            return self.of(sum((s.rewards[base] for s in unit), Fraction(0)))
        if base in RATIO:
            total: Any = self.of(Fraction(0))
            for step in unit:
                for name, sign in RATIO[base].items():
                    total = total + self._log(step, name, axes) * sign
            return total
        values = {name: self._of_unit(Variable(name, 0, "", False), unit, axes) for name in ARGUMENTS}
        return self.world.functions[base](values, variable.order, self.of)

    def score(self, entry: str, place: Place) -> Any:
        key = "score", entry
        if key not in place.cache:
            slot, second = entry.removesuffix("'"), entry.endswith("'")
            total = self.of(Fraction(0))
            for unit in place.slots[slot]:
                for step in unit:
                    if step.q[0]:
                        total = total + self.of(step.q[2 if second else 1] / step.q[0])
                    else:
                        total = total + float("nan")
            place.cache[key] = total
        return place.cache[key]

    # -- zeros of densities ---------------------------------------------------------------
    def _resolved(self, term: Term, place: Place) -> Term:
        """The same with all the powers of densities that it holds at a place: exp(R k1), or f = exp(k1)."""
        scale, factors, lines, wild = term.scale, [], list(term.lines), []
        for variable, power in term.factors:
            function = self.world.functions.get(variable.base)
            if function is None or function.kind != "exp" or len(place.slots[variable.slot]) != 1:
                factors.append((variable, power))
                continue
            [(c, slopes)] = function.rows
            scale *= (c * Fraction(sum(slopes)) ** variable.order) ** power
            for name, slope in zip(function.arguments, slopes, strict=True):
                log_ratio = Variable(name, 0, variable.slot, variable.frozen)
                lines.append((Fraction(slope * power), (), log_ratio))
        for value, constants, inside in term.wild:
            live = [(v, p) for v, p in inside if v.base not in (*REWARDS, "A", "length")]
            if len(live) != 1 or live[0][1] != 1 or live[0][0].base not in RATIO:
                wild.append((value, constants, inside))
                continue
            for variable, power in inside:
                value *= self._exact(variable, place) ** power if variable.base not in RATIO else 1
            lines.append((value, constants, live[0][0]))
        return Term(scale, term.constants, tuple(factors), tuple(lines), tuple(wild))

    def _exact(self, variable: Variable, place: Place) -> Fraction:
        """A quantity that does not depend on theta."""
        if variable.base == "A":
            return self.world.free_value(place.known[variable.slot])
        units = place.slots[variable.slot]
        if variable.base == "length":
            return Fraction(sum(len(unit) for unit in units))
        return sum((s.rewards[variable.base] for unit in units for s in unit), Fraction(0))

    def _vanishes(self, term: Term, place: Place, measure: str, mode: Mode, score: tuple[str, ...]) -> bool:
        """Is the term 0 by convention, and differentiable with derivative 0 where it has to move?"""
        self.touched = True
        positive, bad, moving = False, "", []
        for step, slots in place.zeros:
            for density in step.zeros:
                live, frozen, logs, frozen_logs = self._powers(term, slots, density)
                live += density == measure
                if mode.frozen and not mode.curl:
                    live, frozen, logs, frozen_logs = live + frozen, 0, logs or frozen_logs, False
                if density == "q" and step.moving and mode.moves:
                    self._refuse_unknown(term, slots)
                    drawn = measure == "q" and bool(mode.measure)
                    if not mode.curl:
                        positive = positive or (frozen > 0 and live >= 0)
                        bad = bad or ("frozen" if frozen < 0 or frozen_logs else "")
                    if live or frozen or logs or drawn:
                        both = frozen if mode.curl else 0
                        moving.append((live + both, min(live, frozen), logs or frozen_logs))
                elif live + frozen > 0:
                    positive = True
                elif live + frozen < 0 or (mode.moves and (logs or frozen_logs)):
                    bad = "infinite"
        if positive:
            return True
        if bad:
            raise Undefined(bad)
        return bool(moving) and self._smooth(moving, mode)

    def _smooth(self, moving: list[tuple[Any, Any, bool]], mode: Mode) -> bool:
        """Powers of q at zeros that move: the product has derivatives 0 if each is high enough."""
        if len(moving) == 1 and mode.curl:
            power, least, logs = moving[0]
            if power == 1 and least >= 0 and not logs:
                return True  # (b.theta)^2: its second derivative is symmetric
        if all(least >= 0 and 2 * power > mode.threshold for power, least, _ in moving):
            return True
        raise Undefined("not differentiable at a zero of q")

    def _powers(self, term: Term, slots: tuple[str, ...], density: str) -> tuple[Any, Any, bool, bool]:
        """The powers of a density at a position, live and detached, and whether its log stands there."""
        powers = [Fraction(0), Fraction(0)]
        for scale, constants, variable in term.lines:
            sign = RATIO[variable.base].get(density, 0)
            if sign and variable.slot in slots:
                value = scale
                for name, power in constants:
                    value = value * Fraction(float(self.parameters[name])) ** power
                powers[variable.frozen] += sign * value
        logs = [False, False]
        inside = [pair for _, _, factors in term.wild for pair in factors]
        for variable, _ in (*term.factors, *inside):
            if self._grows(variable, slots, density):
                logs[variable.frozen] = True
        return powers[0], powers[1], logs[0], logs[1]

    def _grows(self, variable: Variable, slots: tuple[str, ...], density: str) -> bool:
        """May it be large, or jump, where the density of a position vanishes?  A region jumps if q moves."""
        found = [v for v in plain_variables(self, variable) if v.slot in slots]
        bounded = kind_of(self, variable) == REGION and density != "q"
        return any(self.speaks_of(v, density) for v in found) and not bounded

    def speaks_of(self, variable: Variable, density: str) -> bool:
        base = variable.base
        names = (base,) if base in RATIO else ()
        if base in self.world.functions:
            names = self.world.functions[base].arguments
        return any(density in RATIO[name] for name in names)

    def _refuse_unknown(self, term: Term, slots: tuple[str, ...]) -> None:
        """At a zero of q: what stands in an exponent, or a sum of exponentials, has an unknown size."""
        inside = [pair for _, _, factors in term.wild for pair in factors]
        inside += [pair for pair in term.factors if self._is_unknown(pair[0])]
        if any(self._grows(v, slots, "q") for v, _ in inside):
            raise Undefined("of unknown size at a zero of q")

    def _is_unknown(self, variable: Variable) -> bool:
        function = self.world.functions.get(variable.base)
        return kind_of(self, variable) in (LOG, LET) or (function is not None and function.kind == "exp")

    # -- hypotheses -----------------------------------------------------------------------
    def exchange(self, mean: Mean) -> None:
        """Raise Undefined unless the sum of a mean may be differentiated term by term near theta."""
        if not mean.score:
            self.mean(mean.index, mean.measure, mean.coefficient, (), GRADIENT)
            return
        self.atom(mean)
        terms = terms_of(mean.coefficient, self.names)
        mode = Mode(live="u", measure="u", threshold=1 + len(mean.score))
        for batch, found in self.batches(mean.index, mean.measure):
            steps = [s for x in batch for s in x]
            if any(not s.density(mean.measure) and not (mean.measure == "q" and s.moving) for s in steps):
                continue
            for place in found:
                for term in terms:
                    if place.zeros:
                        self._vanishes(term, place, mean.measure, mode, mean.score)
