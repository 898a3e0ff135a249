"""Elements of the ring at the places of a world.

A variable of a slot is the sum over its positions: tokens of a sequence before, at and after one, or samples
of a batch.  A name may stand for more: a region, a log or another element of a context, H for an element at
each position, and N for (h - mean h)/std over a batch, (h - mean h)/mean h or h/mean h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from klsym.kernel.definitions import LOG, REGION
from klsym.kernel.names import HELD, SAMPLE_BASES, parse_name
from klsym.kernel.ring import Exponent, ExpPoly, Monomial
from klsym.kernel.slots import name_in_slot
from klsym.kernel.statements import Context
from klsym.language.sums import Normalised, Relative
from klsym.worlds.world import Place, World, list_other_places

UNDER = {"k1": "p", "w": "mu", "o": "old"}  # the denominators of the ratios whose logs they are
SIZES = ("n", "m")  # of a batch, and of the rest of it


@dataclass(frozen=True)
class ScoreCoefficients:
    """h of each slot of tokens, or of the samples of a batch; on-policy, mu is q and depends on theta.

    >>> h = ExpPoly.from_variable("k1[now]") * ExpPoly.from_variable("lam")
    >>> ScoreCoefficients({"now": h}, tokens=True, on_policy=True).parameters
    ('lam',)

    sums: H, H2, .. -> their values at one position.  divided: names -> h, for names of normalised(h) and its
    like.  word: of these the own word.  defined: the regions, logs and elements that names stand for.
    """

    by_slot: Mapping[str, ExpPoly]
    tokens: bool
    on_policy: bool
    sums: Mapping[str, ExpPoly] = field(default_factory=dict)
    divided: Mapping[str, ScoreCoefficients] = field(default_factory=dict)
    defined: Context = field(default_factory=Context)
    word: str = ""

    @cached_property
    def bases(self) -> set[str]:
        """The names in the coefficients, without their slots."""
        all_elements = self.defined.walk_definitions(*self.by_slot.values(), *self.sums.values())
        bases = {parse_name(name).base for e in all_elements for name in e.names()}
        bases -= {definition.name for definition in self.defined.definitions}
        return bases.union(*(inner.bases for inner in self.divided.values()))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names that are no variable of a sample."""
        return tuple(sorted(self.bases - {*SAMPLE_BASES, *SIZES}))

    @property
    def batch_size(self) -> int:
        """The size of a batch: 3 for normalised(h), since (h - mean)/std is a constant sign at n = 2."""
        return 3 if self.divided else 2


@dataclass
class BatchValues:
    """The values of names and elements at the positions of one batch of a world.

    >>> from klsym.worlds.numbers import FLOATS
    >>> from klsym.worlds.tree import build_layout
    >>> layout, rows = build_layout(((None,),)), {"log_q": [-1.0, -2.0], "log_p": [-2.0, -5.0]}
    >>> h = ExpPoly.from_variable("k1[past]") + ExpPoly.from_variable("k1[now]") ** 2
    >>> coefficients = ScoreCoefficients({"now": h}, tokens=True, on_policy=False)
    >>> BatchValues(World(layout, rows, system=FLOATS), (0,), coefficients, {}).evaluate(h, Place((0,), t=1))
    10.0

    coefficients: says what names stand for.  parameters: name -> number.
    """

    world: World
    batch: tuple[int, ...]
    coefficients: ScoreCoefficients
    parameters: Mapping[str, Any]
    cache: dict[tuple[str, int, int | None], Any] = field(default_factory=dict)

    def list_places(self) -> list[Place]:
        """Return the positions: the tokens of a sequence, or the samples of the batch."""
        if self.coefficients.tokens:
            return [Place(self.batch, 0, t) for t in range(len(self.world.paths[self.batch[0]]))]
        return [Place(self.batch, i) for i in range(len(self.batch))]

    def list_places_in(self, slot: str, place: Place) -> Sequence[Place]:
        """Return the positions in a slot of a position."""
        if place.t is None:
            return [*list_other_places(place)] if slot in ("others", "rest") else [place]
        tokens, t = range(len(self.world.paths[self.batch[place.i]])), place.t
        chosen = {"past": tokens[:t], "future": tokens[t + 1 :], "x": tokens}.get(slot, tokens[t : t + 1])
        return [replace(place, t=u) for u in chosen]

    def compute_score(self, slot: str, place: Place, along: str) -> Any:
        """Return the score of a slot along a direction."""
        places = self.list_places_in(slot, place)
        return self.world.system.add(self.world.compute_score(position, along) for position in places)

    def evaluate(self, e: ExpPoly, place: Place) -> Any:
        """Return the value of an element at a position; raises Tie where a region has its bound."""
        return self.world.system.cancel(
            self.world.system.multiply([
                self.world.system.lift(scale),
                *self._list_factors(monomial, place),
                *self._list_exponentials(exponent, place),
            ])
            for (monomial, exponent), scale in e.terms.items()
        )  # fmt: skip

    def _list_factors(self, monomial: Monomial, place: Place) -> list[Any]:
        return [self._find_value(name, place) ** power for name, power in monomial]

    def _list_exponentials(self, exponent: Exponent, place: Place) -> list[Any]:
        """Return exp of a polynomial, as a list of no or one number."""
        system = self.world.system
        terms = [
            system.multiply([system.lift(scale), *self._list_factors(monomial, place)])
            for monomial, scale in exponent
        ]
        return [system.exp(system.add(terms))] if terms else []

    def _find_value(self, name: str, place: Place) -> Any:
        key = name, place.i, place.t
        if key not in self.cache:
            self.cache[key] = self._compute_value(name, place)
        return self.cache[key]

    def _compute_value(self, name: str, place: Place) -> Any:
        if name in self.parameters:
            return self.parameters[name]
        defined = self.coefficients.defined
        if (e := defined.find_definition(name)) is not None:
            value = self.evaluate(e, place)
            if defined.find_definition(name, REGION) is not None:
                return self.world.system.lift(int(self.world.system.sign(value) > 0))
            return self.world.system.log(value) if defined.find_definition(name, LOG) is not None else value
        parsed = parse_name(name)
        places = self.list_places_in(parsed.slot, place)
        return self.world.system.cancel(self._compute_summand(parsed.base, position) for position in places)

    def _compute_summand(self, base: str, place: Place) -> Any:
        """Return the value at one position of a variable that is summed over a slot."""
        if base in self.coefficients.divided:
            return self._divide(self.coefficients.divided[base], place)
        if base in HELD:
            own_slot = "now" if self.coefficients.tokens else "x"
            return self.evaluate(self.coefficients.sums[name_in_slot(base, own_slot)], place)
        rows, system = self.world.rows, self.world.system
        branches = self.world.list_branches(place, "")
        if base == "length" and base not in rows:
            return system.lift(len(branches))
        if base in UNDER:
            under = rows[f"log_{UNDER[base]}"]
            logs = [x for b in branches for x in (rows["log_q"][b], under[b] * system.lift(-1))]
            return system.cancel(logs)
        return system.add(rows[base][b] for b in branches)

    def _divide(self, coefficients: ScoreCoefficients, place: Place) -> Any:
        """Return h of a sample, centred or not, over a statistic of the batch."""
        system, h = self.world.system, coefficients.by_slot["self"]
        inner = BatchValues(self.world, self.batch, coefficients, self.parameters)
        values = [inner.evaluate(h, position) for position in self.list_places()]
        share = system.lift(len(values)) ** -1
        below = system.multiply([system.add(values), system.lift(-1), share])
        centred = [system.cancel([x, below]) for x in values]
        if coefficients.word == Normalised.name:
            return self._divide_by_std(centred, place)
        if not system.sign(below):
            return system.zero
        own = (centred if coefficients.word == Relative.name else values)[place.i]
        return system.divide(own, system.multiply([system.add(values), share]))

    def _divide_by_std(self, centred: Sequence[Any], place: Place) -> Any:
        """Return (h - mean h)/std; 0 where all h are equal, if they stay so at any theta nearby."""
        system = self.world.system
        square = system.multiply([system.add(x**2 for x in centred), system.lift(len(centred)) ** -1])
        if system.sign(square):
            return system.divide(centred[place.i], system.sqrt(square))
        for x in centred:  # the slope of the square is 0 even where these move apart
            system.sign(x)
        return system.zero
