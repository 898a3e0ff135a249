"""All variables of a model at one theta: of its tokens and whole sequences, and at the rows of an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.kernel.names import MEASURES, SAMPLE, THETA_FREE, attach_name, parse_name
from klsym.kernel.ring import Exponent, ExpPoly, Monomial
from klsym.kernel.slots import LENGTHS, SECOND, find_slot
from klsym.language.abbreviations import Context
from klsym.numeric.definitions import find_defined_value
from klsym.numeric.indices import ONE_SAMPLE, PREFIX, Index, build_index
from klsym.numeric.models import FiniteModel
from klsym.numeric.number_systems import FLOAT, Ratio, Sized, System, refuse_unless
from klsym.numeric.positions import Moves, Places, Positions, compute_tokens, list_sequence_tokens

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

    def find_ratio(self, name: str) -> Ratio | None:
        """Return what a variable is the log of, if it is the log of anything."""
        return self.ratios.get(name)

    def get_variable(self, name: str) -> Sized:
        if name not in self.known:
            self.known[name] = self._find_variable(name)
        return self.known[name]

    def _find_variable(self, name: str) -> Sized:
        if name in self.model.parameters:
            return self.make_constant(self.model.parameters[name])
        ratio = self.find_ratio(name)
        refuse_unless(ratio is not None, f"no value for {name!r}")
        assert ratio is not None
        return ratio.take_log()

    def make_constant(self, value: Any) -> Sized:
        lifted = self.system.lift(value)
        return Sized(lifted, self.system.magnitude(lifted))

    def evaluate_element(self, a: ExpPoly) -> Sized:
        """Return the values of an exponential polynomial at each position, shape (count,)."""
        total = self.make_constant([0] * self.count)
        for (monomial, exponent), value in a.terms.items():
            scale = self.make_constant(Fraction(value))
            total = total + scale * self._evaluate_monomial(monomial) * self._evaluate_exponential(exponent)
        return total

    def _evaluate_monomial(self, monomial: Monomial) -> Sized:
        product = self.make_constant(1)
        for name, power in monomial:
            positive = power > 0 or attach_name(name) in LENGTHS
            nonzero = positive or bool(self.model.parameters.get(name))
            refuse_unless(nonzero, f"division by {name}, which is zero or random")
            factor = self.get_variable(name)
            product = product * Sized(factor.value**power, factor.size**power)
        return product

    def _evaluate_exponential(self, exponent: Exponent) -> Sized:
        product, exponent_sum = self.make_constant(1), self.make_constant(0)
        for monomial, value in exponent:
            name, power = monomial[0] if len(monomial) == 1 else ("", 0)
            ratio = self.find_ratio(name) if power == 1 and value.denominator == 1 else None
            if ratio is not None:
                product = product * ratio.raise_to(int(value))
            else:
                exponent_sum = exponent_sum + self.make_constant(Fraction(value)) * self._evaluate_monomial(
                    monomial
                )
        value = np.exp(exponent_sum.value)
        return product * Sized(value, self.system.magnitude(value) * (1 + 1j * np.imag(exponent_sum.size)))


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
        tokens = compute_tokens(model, system, tilt, step, on_policy=context.on_policy)
        self.tokens = Values(self, tokens, whole=False)
        self.whole = Values(
            self, tokens.join_tokens(list_sequence_tokens(model.layout.paths), system), whole=True
        )

    def move_frame(self, along: str = "u", kinks_refused: bool = False) -> Frame:
        """Return the frame whose q, k1, w, log_q move along a direction."""
        refuse_unless(not self.moving, "a gradient inside a gradient is not evaluated")
        key = along, kinks_refused
        if key not in self._moved:
            system, context, functions = self.system, self.context, self.functions
            self._moved[key] = Frame(
                self.model,
                system,
                context,
                functions,
                still=self,
                tilt=self.tilt,
                along=along,
                origin=self.origin,
                kinks_refused=kinks_refused,
            )
        return self._moved[key]

    def get_rows(self, index: str = "") -> Rows:
        """Return all variables at the rows of an index."""
        if index not in self._rows:
            self._rows[index] = Rows(self, index)
        return self._rows[index]

    def make_constant(self, value: Any) -> Sized:
        return self.whole.make_constant(value)


class Values(Scope):
    """All variables at the tokens of a model, or at its whole sequences."""

    def __init__(self, at: Frame, positions: Positions, whole: bool) -> None:
        self.at, self.whole, self.positions = at, whole, positions
        self.still: Values = (at.still.whole if whole else at.still.tokens) if at.moving else self
        super().__init__(at.model, at.system, {})

    @property
    def count(self) -> int:
        return len(self.positions.densities["q"].value)

    def find_ratio(self, name: str) -> Ratio | None:
        """Return q over a density, whose log k1, w or log q is; detached, at theta."""
        live = name.removeprefix("sg(").removesuffix(")")
        if name not in self.ratios and live in BELOW and name not in self.at.context.parameters:
            refuse_unless(BELOW[live] in self.positions.densities, f"the model has no row {BELOW[live]}")
            q, below = self.positions.densities["q"], self.positions.densities[BELOW[live]]
            ratio = q.divide_by(below) if live == name else self.still.find_ratio(live)
            self.ratios |= {} if ratio is None else {name: ratio}
        return self.ratios.get(name)

    def get_density(self, measure: str) -> Ratio:
        refuse_unless(measure in MEASURES, f"unknown measure {measure!r}")
        return self.positions.densities[measure]

    def get_score(self, along: str = "u") -> Sized:
        """Return u.s(x) = u_x - sum q u."""
        refuse_unless(not self.at.moving, "the gradient of a score function is not evaluated")
        refuse_unless(along in self.positions.scores, f"the model has no direction {along!r}")
        return self.positions.scores[along]

    def _find_variable(self, name: str) -> Sized:
        if name in self.at.context.parameters or self.find_ratio(name) is not None:
            return super()._find_variable(name)
        parsed = parse_name(name)
        if parsed.detached:
            return self.still.get_variable(name[3:-1])
        if parsed.primes:
            once = parsed.primes == 1 and not self.at.moving
            refuse_unless(once, f"{name!r} is differentiated once more")
            return self._differentiate_function(parsed.base)
        if name in self.at.context.function_arguments:
            return self._call_function(name)
        origin = self.at.origin.whole if self.whole else self.at.origin.tokens
        if (value := find_defined_value(name, self, origin, self.at)) is not None:
            return value
        given_value = self._find_given(name)
        return self._find_reward(name) if given_value is None else given_value

    def _find_reward(self, name: str) -> Sized:
        """Return what does not depend on theta: A of whole sequences, and sums over tokens."""
        rewards = self.model.list_token_rewards()
        if self.whole and name == "A" and "A" in self.model.rewards:
            return self.make_constant(self.model.rewards["A"])
        refuse_unless(name in (*THETA_FREE, "length") and name in rewards, f"no value for {name!r}")
        return self._sum_over_tokens(name) if self.whole else self.make_constant(rewards[name])

    def _sum_over_tokens(self, name: str) -> Sized:
        return list_sequence_tokens(self.model.layout.paths).sum_sized(
            self.at.tokens.get_variable(name), self.system
        )

    def _find_given(self, name: str) -> Sized | None:
        """Return the value that the statement gives a reward, at the origin: a constant from then on."""
        given_values, origin = dict(self.at.context.given), self.at.origin
        token_name = f"{name}[now]"
        if self.whole and name in given_values:
            refuse_unless(not given_values[name].names() & set(given_values), "given values name one another")
            return origin.get_rows().evaluate_element(given_values[name])
        if token_name in given_values:
            return (
                self._sum_over_tokens(name)
                if self.whole
                else origin.get_rows(PREFIX).evaluate_element(given_values[token_name])
            )
        refuse_unless(
            name not in given_values, f"{name!r} is given at whole samples, and asked for at a token"
        )
        return None

    def _differentiate_function(self, name: str) -> Sized:
        """Return df/dlog q, along which k1, w and log q all move by t."""
        shifted, unit_step = copy(self), self.system.lift(1) + self.system.step
        live = {n: self.find_ratio(n) for n, row in BELOW.items() if row in self.positions.densities}
        shifted.ratios = {n: Ratio(r.system, r.value * unit_step, r.size, 1.0) for n, r in live.items() if r}
        shifted.known = {}
        value = shifted._call_function(name)
        return Sized(np.array([self.system.slope(v) for v in value.value]), FLOAT.slope(value.size))

    def _call_function(self, name: str) -> Sized:
        names = self.at.context.function_arguments[name]
        instance = self.at.functions[name]
        if isinstance(instance, ExpPoly):
            foreign = instance.names() - {*names, *self.at.context.parameters}
            refuse_unless(not foreign, f"function {name}: may depend on {', '.join(names)} only")
            return self.evaluate_element(instance)
        refuse_unless(self.system is FLOAT, f"function {name} is a callable, known in floats only")
        arguments = [self.get_variable(argument).value for argument in names]
        value = np.broadcast_to(instance(*arguments), arguments[0].shape)
        return Sized(value, np.abs(np.real(value)) + 1j * np.abs(np.imag(value)))


# ---------------------------------------------------------------------------- the rows of an index
class Rows(Scope):
    """All variables at the rows of an index: each is summed over the positions of its slot."""

    def __init__(self, at: Frame, index: str) -> None:
        super().__init__(at.model, at.system, {})
        self.at, self.index = at, index
        self.where: Index = build_index(at.model, index)

    @property
    def count(self) -> int:
        return self.where.count

    def get_density(self, measure: str) -> Ratio:
        """Return the probability of what each row is a part of: a sequence, a batch, or a prefix."""
        return self.where.drawn.multiply_ratios(self._get_values(self.where.drawn).get_density(measure))

    def get_score(self, entry: str) -> Sized:
        """Return the score of a slot, along u, or along v where it is marked."""
        places = self._get_places(find_slot(entry), entry)
        values = self._get_values(places).get_score("v" if entry.endswith(SECOND) else "u")
        return places.sum_sized(values, self.system)

    def multiply_by_scores(self, a: ExpPoly, score: tuple[str, ...]) -> Sized:
        """Return a s..s at each row."""
        values = self.evaluate_element(a)
        for entry in score:
            values = values * self.get_score(entry)
        return values

    def compute_mean(self, measure: str, values: Sized) -> Sized:
        """Return the sum over rows of m times values; over those of one batch or sequence for "sample"."""
        if measure == SAMPLE:
            return values.select(self.where.select_sample(self.model.outcome, self.model.size)).sum_entries()
        return (self.get_density(measure).raise_to(1) * values).sum_entries()

    def find_ratio(self, name: str) -> Ratio | None:
        """Return a product over positions, whose log the log ratio of a slot is."""
        if name in self.at.context.parameters:
            return None
        if name not in self.ratios:
            parsed = parse_name(name)
            if parsed.base not in BELOW or parsed.primes:
                return None
            places = self._get_places(parsed.slot, name)
            ratio = self._get_values(places).find_ratio(
                f"sg({parsed.base})" if parsed.detached else parsed.base
            )
            self.ratios |= {} if ratio is None else {name: places.multiply_ratios(ratio)}
        return self.ratios.get(name)

    def _find_variable(self, name: str) -> Sized:
        """Return the value of a name: a sum over positions, of log ratios too; A alone is none."""
        if name in self.at.context.parameters:
            return super()._find_variable(name)
        parsed = parse_name(name)
        if parsed.detached:
            return self.at.still.get_rows(self.index).get_variable(name[3:-1])
        if self.at.context.definitions:
            origin = self.at.origin.get_rows(self.index)
            if (value := find_defined_value(name, self, origin, self.at)) is not None:
                return value
        places = self._get_places(parsed.slot, name)
        if parsed.base == "A" and parsed.slot not in ONE_SAMPLE:
            keys = self.where.known[parsed.slot]
            return self.make_constant([self.model.compute_advantage(parsed.slot, key) for key in keys])
        values = self._get_values(places).get_variable(parsed.base + "'" * parsed.primes)
        return places.sum_sized(values, self.system)

    def _get_places(self, slot: str, name: str) -> Places:
        refuse_unless(slot in self.where.slots, f"{name!r}: the index {self.index!r} has no such slot")
        return self.where.slots[slot]

    def _get_values(self, places: Places) -> Values:
        return self.at.whole if places.whole else self.at.tokens
