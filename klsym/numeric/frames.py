"""All variables of a model at one theta: of whole samples, of tokens, and at the rows of an index."""

from __future__ import annotations

from typing import Any

from klsym.abbreviations import Context
from klsym.names import parse_name
from klsym.numeric.indices import PREFIX, Index, index_of
from klsym.numeric.positions import Moves, Places
from klsym.numeric.systems import Ratio, Sized, System, refuse_unless
from klsym.numeric.trees import Model, TreeModel
from klsym.numeric.values import BELOW, Functions, Scope, Values
from klsym.ring import ExpPoly
from klsym.slots import SECOND, slot_of_score

ONE_SAMPLE = ("self", "other", "x")  # slots where A is that of one whole sample


class Frame(Values):
    """All variables of whole samples at theta + t u; `still` is the frame at theta.

    tilt: a change of theta itself, of the frame at theta too.  along: the direction of t, "u" or "v".
    origin: the frame whose values the statement gives; rewards stay what they are there.
    """

    still: Frame

    def __init__(
        self, model: Model, system: System, context: Context, functions: Functions,
        still: Frame | None = None, tilt: Moves = (), along: str = "u",
        origin: Frame | None = None,
    ) -> None:  # fmt: skip
        self.origin = origin or still or self
        self.tilt, self.cache = tilt, dict[str, Any]()
        step = ((system.step, along),) if still else ()
        positions = model.positions(system, tilt, step, context.on_policy)
        super().__init__(model, system, context, functions, positions, still)

    def moved(self, along: str = "u") -> Frame:
        """The frame whose q, k1, w, log_q move along a direction."""
        refuse_unless(not self.moving, "a gradient inside a gradient is not evaluated")
        key = f"moved along {along}"
        if key not in self.cache:
            system, context, functions = self.system, self.context, self.functions
            self.cache[key] = Frame(
                self.model, system, context, functions, self, self.tilt, along, self.origin
            )
        return self.cache[key]

    @property
    def tokens(self) -> Tokens:
        """All variables of the tokens of a tree."""
        if "tokens" not in self.cache:
            self.cache["tokens"] = Tokens(self)
        return self.cache["tokens"]

    def rows(self, index: str) -> Rows:
        """All variables at the rows of an index."""
        key = f"rows of {index}"
        if key not in self.cache:
            self.cache[key] = Rows(self, index)
        return self.cache[key]

    def _given(self, name: str) -> Sized | None:
        """The value at the origin, a constant from then on; a sum of what is given for tokens."""
        given = dict(self.context.given)
        if name in given:
            refuse_unless(not given[name].names() & set(given), "given values name one another")
            return self.origin.polynomial(given[name])
        if f"{name}[now]" in given and name != "A" and isinstance(self.model, TreeModel):
            paths = Places.of(self.model.layout.paths, whole=False)
            return paths.summed(self.tokens.variable(name), self.system)
        return None


class Tokens(Values):
    """All variables of the tokens of a tree, at the theta of a frame."""

    def __init__(self, at: Frame) -> None:
        refuse_unless(at.positions.tokens is not None, "a sequence needs a model that is a tree")
        assert at.positions.tokens is not None
        self.at, still = at, at.still.tokens if at.moving else None
        super().__init__(at.model, at.system, at.context, at.functions, at.positions.tokens, still)

    def _given(self, name: str) -> Sized | None:
        """The value at the origin for a token and its prefix."""
        given = dict(self.context.given)
        if f"{name}[now]" in given:
            return self.at.origin.rows(PREFIX).polynomial(given[f"{name}[now]"])
        refuse_unless(name not in given, f"{name!r} is given at whole samples, and asked for at a token")
        return None


class Rows(Scope):
    """All variables at the rows of an index: each is summed over the positions of its slot."""

    def __init__(self, at: Frame, index: str) -> None:
        super().__init__(at.model, at.system, {})
        self.at, self.index = at, index
        self.where: Index = index_of(at.model, index)

    @property
    def count(self) -> int:
        return self.where.count

    def density(self, measure: str) -> Ratio:
        """The probability of what each row is a part of: a sequence, or all samples of a batch."""
        return self.where.drawn.product(self.at.density(measure))

    def score(self, entry: str) -> Sized:
        """The score of a slot, along u, or along v where it is marked."""
        places = self._places(slot_of_score(entry), entry)
        values = self._values(places).score("v" if entry.endswith(SECOND) else "u")
        return places.summed(values, self.system)

    def scored(self, a: ExpPoly, score: tuple[str, ...]) -> Sized:
        """a s..s at each row."""
        values = self.polynomial(a)
        for entry in score:
            values = values * self.score(entry)
        return values

    def ratio(self, name: str) -> Ratio | None:
        """A log ratio of a slot is the log of a product over its positions."""
        if name in self.at.context.parameters:
            return None
        if name not in self.ratios:
            parsed = parse_name(name)
            if parsed.base not in BELOW or parsed.primes:
                return None
            places = self._places(parsed.slot, name)
            known = f"sg({parsed.base})" if parsed.detached else parsed.base
            self.ratios = {**self.ratios, name: places.product(self._values(places).ratios[known])}
        return self.ratios[name]

    def _find(self, name: str) -> Sized:
        """A sum over positions, of log ratios too; A alone is none."""
        if name in self.at.context.parameters:
            return super()._find(name)
        parsed = parse_name(name)
        places = self._places(parsed.slot, name)
        if parsed.detached:
            return self.at.still.rows(self.index).variable(name[3:-1])
        summed = parsed.base != "A" or parsed.slot in ONE_SAMPLE or name in dict(self.at.context.given)
        if not summed:
            keys = self.where.known[parsed.slot]
            return self.constant([self.model.advantage_at(parsed.slot, key) for key in keys])
        values = self._values(places).variable(parsed.base + "'" * parsed.primes)
        return places.summed(values, self.system)

    def _places(self, slot: str, name: str) -> Places:
        refuse_unless(slot in self.where.slots, f"{name!r}: the index {self.index!r} has no such slot")
        return self.where.slots[slot]

    def _values(self, places: Places) -> Values:
        return self.at if places.whole else self.at.tokens
