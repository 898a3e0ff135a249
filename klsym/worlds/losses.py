"""Losses at the places of a world: their value, and their slope as autograd computes it.

Every number carries its derivative along one direction u of the logits: m and sg(.) are constant, and the
derivative of a token's log q is u.s.  Sums over tokens, samples and the vocabulary are computed term by term.
At ties the slopes are those that a verdict states: 1 for clip at its bounds, 0 for |x| at 0, halves for min
and max, taken by pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache, reduce
from typing import Any, Self

import mpmath
import sympy

from klsym.language.expressions import (
    A,
    Estimator,
    M,
    OverPositions,
    R,
    V,
    V_next,
    clip,
    log_mu,
    log_old,
    log_p,
    log_q,
    sg,
)
from klsym.language.sums import OverVocabulary, Summed
from klsym.worlds.numbers import DIGITS, Dual, Duals, System, build_duals
from klsym.worlds.world import Place, World, list_other_places, read_model

SAMPLED = (log_q, log_p, log_mu, log_old, R, A, M, V, V_next)  # what differs from sample to sample
CRITICS = {"V": "past", "V_next": "now"}
Step = Callable[[Mapping[str, Any], list[Dual]], Dual]


# ---------------------------------------------------------------------------- expressions
def evaluate_at_sample(expression: Any, values: Mapping[str, Any]) -> Dual:
    """Return the value at a sample, and the slope in log q; in mpmath's current precision, well above 20
    digits.

    >>> from klsym.language.expressions import k2, rho
    >>> values = {"log_q": mpmath.mpf(1), "log_p": mpmath.mpf(3), "log_mu": mpmath.mpf(1)}
    >>> with mpmath.workdps(50):
    ...     weighted, detached = (evaluate_at_sample(x * k2, values) for x in (rho, sg(rho)))
    ...     print(weighted.value, weighted.slope, detached.value, detached.slope)
    2.0 0.0 2.0 -2.0

    values: name of each symbol -> number.
    Raises ArithmeticError or ValueError: there is no real value here.
    """
    unit, zero = mpmath.mpf(1), mpmath.mpf(0)
    duals = {name: Dual(value, unit if name == log_q.name else zero) for name, value in values.items()}
    return compile_loss(expression, build_duals(DIGITS))(duals)


@lru_cache(maxsize=4096)
def compile_loss(expression: Any, system: Duals) -> Callable[[Mapping[str, Any]], Dual]:
    """Return values -> the dual number of an expression, each part of which is computed once.

    >>> from klsym.language.expressions import k1
    >>> from klsym.worlds.numbers import FLOATS
    >>> compile_loss(k1**2, build_duals(FLOATS))({"log_q": Dual(3.0, 1.0), "log_p": Dual(1.0, 0.0)})
    Dual(value=4.0, slope=4.0)

    values: name of each symbol -> number of the system.
    """
    program: list[Step] = []
    positions: dict[Any, int] = {}  # of a part, in the program

    def add_part(e: Any) -> int:
        if e not in positions:
            step = _compile_part(e, [add_part(x) for x in _list_parts(e)], system)
            positions[e] = len(program)
            program.append(step)
        return positions[e]

    last = add_part(expression)

    def compute(values: Mapping[str, Any]) -> Dual:
        results: list[Dual] = []
        for step in program:
            results.append(step(values, results))
        return results[last]

    return compute


def _list_parts(e: Any) -> Iterable[Any]:
    if isinstance(e, Estimator):
        return (e.definition(),)
    return order_arguments(e) if isinstance(e, sympy.Min | sympy.Max) else e.args


def _compile_part(e: Any, at: list[int], system: Duals) -> Step:
    """Return (values, results so far) -> the dual number of an expression.  at: where its parts are."""
    match e:
        case sympy.Symbol(name=name):
            return lambda values, results: values[name]
        case sympy.Rational(p=p, q=q):
            number = Fraction(int(p), int(q))  # lifted in the precision of each call
            return lambda values, results: system.lift(number)
        case Estimator():
            return lambda values, results: results[at[0]]
        case sympy.Min() | sympy.Max():
            side = -1 if isinstance(e, sympy.Min) else 1
            return lambda values, results: reduce(
                lambda x, y: _choose(system, x, y, side), (results[i] for i in at)
            )
    if e is sympy.E:
        return lambda values, results: system.exp(system.lift(1))
    rule = RULES[e.func]
    return lambda values, results: rule(system, *[results[i] for i in at])


def order_arguments(e: Any) -> Iterable[Any]:
    """Return the arguments of min or max, what differs from sample to sample first."""
    return sorted(e.args, key=lambda a: not a.has(*SAMPLED))


def _compare(system: Duals, x: Dual, y: Dual) -> int:
    """Return the sign of x - y."""
    return system.over.sign(system.over.cancel([x.value, -y.value]))


def _choose(system: Duals, x: Dual, y: Dual, side: int) -> Dual:
    """Return the larger number, or for side -1 the smaller one."""
    if order := side * _compare(system, x, y):
        return x if order > 0 else y
    value = x.value if side * system.over.sign(x.value - y.value) >= 0 else y.value
    return Dual(value, (x.slope + y.slope) / 2)


def _compute_absolute(system: Duals, x: Dual) -> Dual:
    sign = system.over.sign(x.value)
    return Dual(x.value * sign, x.slope * sign)


def _compute_step(system: Duals, x: Dual, at_zero: Dual) -> Dual:
    """Return 1 where x > 0, 0 where x < 0, without a slope."""
    sign, zero = _compare(system, x, system.zero), system.over.zero
    return Dual(system.over.lift(int(sign > 0)) if sign else at_zero.value, zero)


def _clip(system: Duals, x: Dual, lo: Dual, hi: Dual) -> Dual:
    """Return min(max(x, lo), hi); where it meets a bound it moves like x."""
    if _compare(system, lo, hi) > 0 or _compare(system, x, hi) > 0:
        return hi
    return lo if _compare(system, x, lo) < 0 else x


RULES: dict[Any, Any] = {
    sympy.Add: lambda system, *terms: system.cancel(terms),
    sympy.Mul: lambda system, *factors: system.multiply(factors),
    sympy.Pow: Duals.raise_to,
    sympy.exp: Duals.exp,
    sympy.log: Duals.log,
    sympy.Abs: _compute_absolute,
    sympy.sign: lambda system, x: system.lift(system.over.sign(x.value)),
    clip: _clip,
    sg: lambda system, x: Dual(x.value, system.over.zero),
    sympy.Heaviside: _compute_step,
}


# ---------------------------------------------------------------------------- at the places of a world
@dataclass
class LossWorld(World):
    """A world whose places have values of losses.

    E_m[e] = sum_y m(y) e(y)        grad E_q[e] along u = sum_y q(y) (e(y) u.s(y) + de(y))

    >>> from klsym.language.expressions import k1, r
    >>> from klsym.worlds.numbers import FLOATS
    >>> from klsym.worlds.tree import build_layout
    >>> from klsym.worlds.world import take_logs
    >>> layout = build_layout((None, None))
    >>> rows = {"log_q": take_logs([1, 1], layout, FLOATS), "log_p": take_logs([1, 3], layout, FLOATS)}
    >>> world = LossWorld(layout, rows, {"u": [1.0, 0.0]}, FLOATS)
    >>> print(round(world.compute_mean(r), 12), round(world.differentiate_mean(r), 12))
    1.0 0.0
    >>> round(world.differentiate_mean(k1), 4)  # grad KL(q||p) = cov(k1, u)
    0.2747

    parameters: name -> number.  advantages: A of each sequence.  size: of a batch.  along: u, the direction.
    formulas: H and its like -> its definition, and whether it is one of tokens.
    regions: a region is 1 where x has one of some signs: x at the position, x of the whole sequence, signs.
    """

    parameters: dict[str, Any] = field(default_factory=dict)
    advantages: Sequence[Any] = ()
    size: int = 1
    along: str = "u"
    formulas: dict[str, Any] = field(default_factory=dict)
    regions: dict[str, tuple[Any, Any, tuple[int, ...]]] = field(default_factory=dict)

    @staticmethod
    def from_model(model: Mapping[str, Any], on_policy: bool = False, system: System = DIGITS) -> LossWorld:
        """Return the world of a model in JSON: a tree, and values of parameters.

        >>> from klsym.language.expressions import k1, parameter
        >>> from klsym.worlds.draw import finite_model
        >>> model = finite_model(["1/2", "1/2"], ["1/4", "3/4"], ["1/3", "2/3"], u=[1, 0], beta=2)
        >>> with mpmath.workdps(30):
        ...     print(mpmath.nstr(LossWorld.from_model(model).compute_score_mean(parameter("beta") * k1), 4))
        0.5493
        """
        world = read_model(model["tree"], on_policy, system)
        return LossWorld(
            world.layout, world.rows, world.directions, system=system, on_policy=on_policy,
            parameters={name: system.lift(Fraction(x)) for name, x in model["parameters"].items()},
            advantages=[system.add(world.rows["A"][b] for b in path) for path in world.paths],
        )  # fmt: skip

    @cached_property
    def duals(self) -> Duals:
        """The system of values with slopes."""
        return build_duals(self.system)

    def move(self, along: str) -> Self:
        """Return the world at theta + t v: its values, which have slopes in u, have slopes in t as well."""
        lift = build_duals(self.system).lift
        parameters = {name: lift(x) for name, x in self.parameters.items()}
        return replace(super().move(along), parameters=parameters, advantages=[*map(lift, self.advantages)])

    # ------------------------------------------------------------------ means
    def differentiate_mean(self, e: Any) -> Any:
        """Return grad E_q[e] along u, which is E_q[e s + grad e]."""
        total = self.system.zero
        for batch, mass in self.enumerate_batches(1, "q"):
            e_here = self.evaluate_at(e, place := Place(batch))
            total += mass * (e_here.value * self.compute_score(place, self.along) + e_here.slope)
        return total

    def compute_score_mean(self, c: Any) -> Any:
        """Return E_q[c s] of whole sequences along u."""
        return self.system.add(
            mass * self.evaluate_at(c, place := Place(batch)).value * self.compute_score(place, self.along)
            for batch, mass in self.enumerate_batches(1, "q")
        )

    def compute_mean(self, e: Any, measure: str = "q") -> Any:
        """Return E_m[e] of whole sequences, under q, p or mu."""
        return self.system.add(
            mass * self.evaluate_at(e, Place(batch)).value
            for batch, mass in self.enumerate_batches(1, measure)
        )

    # ------------------------------------------------------------------ values
    def evaluate_at(self, e: Any, place: Place) -> Dual:
        """Return the value of an expression at a place, and its derivative."""
        plain, sums = replace_sums(e)
        at = _Names(self, place)
        at.update({name: self.evaluate_sum(node, place) for name, node in sums})
        return compile_loss(plain, self.duals)(at)

    def evaluate_sum(self, node: Any, place: Place) -> Dual:
        """Return the value of past(x), others(x), full(x) or sg of such a sum, and its derivative."""
        inner = node.args[0]
        if isinstance(node, sg):
            return self._detach(self.evaluate_at(inner, place).value)
        if isinstance(node, OverVocabulary):
            return self._sum_over_vocabulary(inner, place)
        if isinstance(node, Summed):
            tokens = self._list_tokens(node.slot, place)
            return self.duals.add(self.evaluate_at(inner, replace(place, t=u)) for u in tokens)
        own_value, rest_value = sympy.symbols("own rest", real=True)
        at = _Names(self, place)
        at["own"] = self.evaluate_at(inner, place)
        at["rest"] = self.duals.add(
            self.evaluate_at(inner, other_place) for other_place in list_other_places(place)
        )
        return compile_loss(node.combine(own_value, rest_value), self.duals)(at)

    def _list_tokens(self, slot: str, place: Place) -> range:
        """Return the positions in a slot; without a position all tokens follow the first one."""
        tokens, t = range(len(self.paths[place.batch[place.i]])), place.t or 0
        return {"past": tokens[:t], "now": tokens[t : t + 1], "future": tokens[t + 1 :]}.get(slot, tokens)

    def _sum_over_vocabulary(self, x: Any, place: Place) -> Dual:
        """Return sum_y q(y) x(y) and its derivative."""
        token = self.paths[place.batch[place.i]][place.t or 0]
        node = next(nodes for nodes in self.layout.nodes if nodes.start <= token < nodes.stop)
        terms = []
        for b in range(node.start, node.stop):
            x_here = self.evaluate_at(x, replace(place, word=b))
            q = self.system.exp(self.rows["log_q"][b])
            slope = x_here.value * self.list_scores(self.along)[b] + x_here.slope
            terms.append(Dual(q * x_here.value, q * slope))
        return self.duals.add(terms)

    def evaluate_name(self, name: str, place: Place) -> Dual:
        """Return the value of a variable such as log_q[past], and its derivative."""
        base, _, slot = name.partition("[")
        slot = slot.removesuffix("]")
        if slot == "others":
            places = list_other_places(place)
            return self.duals.add(self.evaluate_name(f"{base}[self]", sample) for sample in places)
        if base in self.regions:
            at_position, of_sequence, signs = self.regions[base]
            x = self.evaluate_at(at_position if slot else of_sequence, place).value
            return self.duals.lift(int(self.system.sign(x) in signs))
        if base in self.formulas:
            return self._evaluate_definition(base, slot, place)
        if base != "log_q":
            return self._detach(self._compute_constant(base, slot, place))
        branches = self.list_branches(place, slot)
        value, scores = self.system.add(self.rows[base][b] for b in branches), self.list_scores(self.along)
        if not place.alone:
            return Dual(value, self.system.add(scores[b] for b in branches))
        share = Fraction(len(branches), len(self.list_branches(place, "x")))
        return Dual(value, self.system.lift(share))

    def _compute_constant(self, base: str, slot: str, place: Place) -> Any:
        """Return what does not depend on theta."""
        lift = self.system.lift
        if base in CRITICS or (base == "A" and slot in ("past", "now")):
            return self._compute_critic(place, CRITICS.get(base, slot))
        if base == "A":
            outcome = place.word if len(self.layout.nodes) == 1 else None  # in place of the one drawn
            return self.advantages[place.batch[place.i] if outcome is None else outcome]
        if base in ("T", "length"):
            return lift(len(self.list_branches(place, slot or "x")))
        if base in ("n", "m"):
            return lift(self.size - (base == "m"))
        if base not in self.rows and base != "s":
            return self.parameters[base]
        row = self.list_scores(self.along) if base == "s" else self.rows[base]
        return self.system.add(row[b] for b in self.list_branches(place, slot))

    def _detach(self, value: Any) -> Dual:
        return Dual(value, self.system.zero)

    def _evaluate_definition(self, name: str, slot: str, place: Place) -> Dual:
        """Return the sum over a slot of the definition of H, detached."""
        formula, of_tokens = self.formulas[name]
        if of_tokens:
            tokens = self._list_tokens(slot, place)
            values = (self.evaluate_at(formula, replace(place, t=u)).value for u in tokens)
            return self._detach(self.system.add(values))
        return self._detach(
            formula(self, place) if callable(formula) else self.evaluate_at(formula, place).value
        )

    def _compute_critic(self, place: Place, slot: str) -> Any:
        """Return a critic: a function of the tokens before one, or of those up to it, 0 after the last."""
        before, branches_of_token, after = (self.list_branches(place, z) for z in ("past", "now", "future"))
        if slot == "now" and not after:
            return self.system.zero
        prefix = (*before, *(branches_of_token if slot == "now" else ()))
        return self.system.lift(mpmath.cos(1 + 3 * sum(prefix)))


class _Names(dict[str, Any]):
    """Values of names at a place, computed on demand."""

    def __init__(self, world: LossWorld, place: Place) -> None:
        super().__init__()
        self.world, self.place = world, place

    def __missing__(self, name: str) -> Dual:
        self[name] = value = self.world.evaluate_name(name, self.place)
        return value


@lru_cache(maxsize=512)
def replace_sums(e: Any) -> tuple[Any, tuple[tuple[str, Any], ...]]:
    """Replace sums over positions, and sg of them, by symbols; return the expression and the sums.

    >>> from klsym.language.parser import parse
    >>> replace_sums(parse("2*full(r)"))[0]
    2*sum0
    """
    names: dict[Any, Any] = {}

    def walk(node: Any) -> Any:
        if not node.has(OverPositions):
            return node
        if isinstance(node, OverPositions | sg):
            return names.setdefault(node, sympy.Symbol(f"sum{len(names)}", real=True))
        return node.func(*map(walk, node.args))

    return walk(e), tuple((name.name, node) for node, name in names.items())
