"""All variables of a model at one theta: of its tokens and whole sequences, and at the rows of an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.kernel.names import MEASURES, SAMPLE, THETA_FREE, attach_name, parse_name
from klsym.kernel.ring import Exponent, ExpPoly, Monomial
from klsym.kernel.slots import LENGTHS, SECOND, slot_of_score
from klsym.language.abbreviations import Context
from klsym.numeric.definitions import defined_value
from klsym.numeric.indices import ONE_SAMPLE, PREFIX, Index, index_of
from klsym.numeric.models import FiniteModel
from klsym.numeric.number_systems import FLOAT, Ratio, Sized, System, refuse_unless
from klsym.numeric.positions import Moves, Places, Positions, sequences, tokens_at

BELOW = {"k1": "p", "w": "mu", "o": "old", "log_q": "count"}  # each is the log of q over this density

Instance = Callable[..., Any] | ExpPoly  # what a generic function may be
Functions = Mapping[str, Instance]


# ---------------------------------------------------------------------------- exponential polynomials
class Scope:
    """Variables that are logs of given ratios, and parameters."""

    def __init__(self, model: FiniteModel, system: System, ratios: Mapping[str, Ratio]) -> None:
        self.model, self.system, self.ratios = model, system, dict(ratios)
        self.known: dict[str, Sized] = {}

    @property
    def count(self) -> int:
        """How many values a variable has."""
        return len(next(iter(self.ratios.values())).value)

    def ratio(self, name: str) -> Ratio | None:
        """What a variable is the log of."""
        return self.ratios.get(name)

    def variable(self, name: str) -> Sized:
        if name not in self.known:
            self.known[name] = self._find(name)
        return self.known[name]

    def _find(self, name: str) -> Sized:
        if name in self.model.parameters:
            return self.constant(self.model.parameters[name])
        ratio = self.ratio(name)
        refuse_unless(ratio is not None, f"no value for {name!r}")
        assert ratio is not None
        return ratio.log()

    def constant(self, value: Any) -> Sized:
        lifted = self.system.lift(value)
        return Sized(lifted, self.system.magnitude(lifted))

    def polynomial(self, a: ExpPoly) -> Sized:
        """An exponential polynomial at each position, shape (count,)."""
        total = self.constant([0] * self.count)
        for (monomial, exponent), value in a.terms.items():
            scale = self.constant(Fraction(value))
            total = total + scale * self._monomial(monomial) * self._exponential(exponent)
        return total

    def _monomial(self, monomial: Monomial) -> Sized:
        product = self.constant(1)
        for name, power in monomial:
            positive = power > 0 or attach_name(name) in LENGTHS
            nonzero = positive or bool(self.model.parameters.get(name))
            refuse_unless(nonzero, f"division by {name}, which is zero or random")
            factor = self.variable(name)
            product = product * Sized(factor.value**power, factor.size**power)
        return product

    def _exponential(self, exponent: Exponent) -> Sized:
        product, rest = self.constant(1), self.constant(0)
        for monomial, value in exponent:
            name, power = monomial[0] if len(monomial) == 1 else ("", 0)
            ratio = self.ratio(name) if power == 1 and value.denominator == 1 else None
            if ratio is not None:
                product = product * ratio.power(int(value))
            else:
                rest = rest + self.constant(Fraction(value)) * self._monomial(monomial)
        value = np.exp(rest.value)
        return product * Sized(value, self.system.magnitude(value) * (1 + 1j * np.imag(rest.size)))


# ---------------------------------------------------------------------------- theta
class Frame:
    """All variables of a model at theta + t u; `still` is the frame at theta.

    tilt: a change of theta itself, of the frame at theta too.  along: the direction of t, "u" or "v".
    origin: the frame whose values the statement gives; rewards and regions stay what they are there.
    kinks_refused: is a mean differentiated, so that no sample may lie where a region changes?
    tokens, whole: variables at each token and at each sequence.
    """

    def __init__(
        self, model: FiniteModel, system: System, context: Context, functions: Functions,
        still: Frame | None = None, tilt: Moves = (), along: str = "u",
        origin: Frame | None = None, kinks_refused: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.system, self.context, self.functions = model, system, context, functions
        self.still, self.moving = still or self, still is not None
        self.origin, self.tilt, self.kinks_refused = origin or still or self, tilt, kinks_refused
        self._moved: dict[tuple[str, bool], Frame] = {}
        self._rows: dict[str, Rows] = {}
        step = ((system.step, along),) if still else ()
        tokens = tokens_at(model, system, tilt, step, context.on_policy)
        self.tokens = Values(self, tokens, whole=False)
        self.whole = Values(self, tokens.joined(sequences(model.layout.paths), system), whole=True)

    def moved(self, along: str = "u", kinks_refused: bool = False) -> Frame:
        """The frame whose q, k1, w, log_q move along a direction."""
        refuse_unless(not self.moving, "a gradient inside a gradient is not evaluated")
        key = along, kinks_refused
        if key not in self._moved:
            system, context, functions = self.system, self.context, self.functions
            self._moved[key] = Frame(
                self.model, system, context, functions, self, self.tilt, along, self.origin, kinks_refused
            )
        return self._moved[key]

    def rows(self, index: str = "") -> Rows:
        """All variables at the rows of an index."""
        if index not in self._rows:
            self._rows[index] = Rows(self, index)
        return self._rows[index]

    def constant(self, value: Any) -> Sized:
        return self.whole.constant(value)


class Values(Scope):
    """All variables at the tokens of a model, or at its whole sequences."""

    def __init__(self, at: Frame, positions: Positions, whole: bool) -> None:
        self.at, self.whole, self.positions = at, whole, positions
        self.still: Values = (at.still.whole if whole else at.still.tokens) if at.moving else self
        super().__init__(at.model, at.system, {})

    @property
    def count(self) -> int:
        return len(self.positions.densities["q"].value)

    def ratio(self, name: str) -> Ratio | None:
        """k1, w and log q are logs of q over a density; detached, at theta."""
        live = name.removeprefix("sg(").removesuffix(")")
        if name not in self.ratios and live in BELOW and name not in self.at.context.parameters:
            refuse_unless(BELOW[live] in self.positions.densities, f"the model has no row {BELOW[live]}")
            q, below = self.positions.densities["q"], self.positions.densities[BELOW[live]]
            found = q.over(below) if live == name else self.still.ratio(live)
            self.ratios |= {} if found is None else {name: found}
        return self.ratios.get(name)

    def density(self, measure: str) -> Ratio:
        refuse_unless(measure in MEASURES, f"unknown measure {measure!r}")
        return self.positions.densities[measure]

    def score(self, along: str = "u") -> Sized:
        """u.s(x) = u_x - sum q u."""
        refuse_unless(not self.at.moving, "the gradient of a score function is not evaluated")
        refuse_unless(along in self.positions.scores, f"the model has no direction {along!r}")
        return self.positions.scores[along]

    def _find(self, name: str) -> Sized:
        if name in self.at.context.parameters or self.ratio(name) is not None:
            return super()._find(name)
        parsed = parse_name(name)
        if parsed.detached:
            return self.still.variable(name[3:-1])
        if parsed.primes:
            once = parsed.primes == 1 and not self.at.moving
            refuse_unless(once, f"{name!r} is differentiated once more")
            return self._slope(parsed.base)
        if name in self.at.context.function_arguments:
            return self._call(name)
        origin = self.at.origin.whole if self.whole else self.at.origin.tokens
        if (found := defined_value(name, self, origin, self.at)) is not None:
            return found
        given = self._given(name)
        return self._reward(name) if given is None else given

    def _reward(self, name: str) -> Sized:
        """What does not depend on theta: A of whole sequences, and sums over tokens."""
        rewards = self.model.token_rewards()
        if self.whole and name == "A" and "A" in self.model.rewards:
            return self.constant(self.model.rewards["A"])
        refuse_unless(name in (*THETA_FREE, "length") and name in rewards, f"no value for {name!r}")
        return self._summed(name) if self.whole else self.constant(rewards[name])

    def _summed(self, name: str) -> Sized:
        return sequences(self.model.layout.paths).summed(self.at.tokens.variable(name), self.system)

    def _given(self, name: str) -> Sized | None:
        """What the statement says that a reward is, at the origin: a constant from then on."""
        given, origin = dict(self.at.context.given), self.at.origin
        here = f"{name}[now]"
        if self.whole and name in given:
            refuse_unless(not given[name].names() & set(given), "given values name one another")
            return origin.rows().polynomial(given[name])
        if here in given:
            return self._summed(name) if self.whole else origin.rows(PREFIX).polynomial(given[here])
        refuse_unless(name not in given, f"{name!r} is given at whole samples, and asked for at a token")
        return None

    def _slope(self, name: str) -> Sized:
        """df/dlog q, along which k1, w and log q all move by t."""
        moved, one = copy(self), self.system.lift(1) + self.system.step
        live = {n: self.ratio(n) for n, row in BELOW.items() if row in self.positions.densities}
        moved.ratios = {n: Ratio(r.system, r.value * one, r.size, 1.0) for n, r in live.items() if r}
        moved.known = {}
        value = moved._call(name)
        return Sized(np.array([self.system.slope(v) for v in value.value]), FLOAT.slope(value.size))

    def _call(self, name: str) -> Sized:
        names = self.at.context.function_arguments[name]
        instance = self.at.functions[name]
        if isinstance(instance, ExpPoly):
            foreign = instance.names() - {*names, *self.at.context.parameters}
            refuse_unless(not foreign, f"function {name}: may depend on {', '.join(names)} only")
            return self.polynomial(instance)
        refuse_unless(self.system is FLOAT, f"function {name} is a callable, known in floats only")
        arguments = [self.variable(argument).value for argument in names]
        value = np.broadcast_to(instance(*arguments), arguments[0].shape)
        return Sized(value, np.abs(np.real(value)) + 1j * np.abs(np.imag(value)))


# ---------------------------------------------------------------------------- the rows of an index
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
        """The probability of what each row is a part of: a sequence, a batch, or a prefix."""
        return self.where.drawn.product(self._values(self.where.drawn).density(measure))

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

    def mean(self, measure: str, values: Sized) -> Sized:
        """The sum over rows of m times values; over those of one batch or sequence for "sample"."""
        if measure == SAMPLE:
            return values.at(self.where.sample(self.model.outcome, self.model.size)).sum()
        return (self.density(measure).power(1) * values).sum()

    def ratio(self, name: str) -> Ratio | None:
        """A log ratio of a slot is the log of a product over its positions."""
        if name in self.at.context.parameters:
            return None
        if name not in self.ratios:
            parsed = parse_name(name)
            if parsed.base not in BELOW or parsed.primes:
                return None
            places = self._places(parsed.slot, name)
            found = self._values(places).ratio(f"sg({parsed.base})" if parsed.detached else parsed.base)
            self.ratios |= {} if found is None else {name: places.product(found)}
        return self.ratios.get(name)

    def _find(self, name: str) -> Sized:
        """A sum over positions, of log ratios too; A alone is none."""
        if name in self.at.context.parameters:
            return super()._find(name)
        parsed = parse_name(name)
        if parsed.detached:
            return self.at.still.rows(self.index).variable(name[3:-1])
        if self.at.context.definitions:
            origin = self.at.origin.rows(self.index)
            if (found := defined_value(name, self, origin, self.at)) is not None:
                return found
        places = self._places(parsed.slot, name)
        if parsed.base == "A" and parsed.slot not in ONE_SAMPLE:
            keys = self.where.known[parsed.slot]
            return self.constant([self.model.advantage_at(parsed.slot, key) for key in keys])
        values = self._values(places).variable(parsed.base + "'" * parsed.primes)
        return places.summed(values, self.system)

    def _places(self, slot: str, name: str) -> Places:
        refuse_unless(slot in self.where.slots, f"{name!r}: the index {self.index!r} has no such slot")
        return self.where.slots[slot]

    def _values(self, places: Places) -> Values:
        return self.at.whole if places.whole else self.at.tokens
