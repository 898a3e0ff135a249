"""Evaluate expressions by enumeration of all sequences of a token tree, and of all batches of sequences.

Every number carries its derivative along one direction u of the logits, as autograd computes it: m and sg(.)
are constant, and the derivative of a token's log q is u.s.  Sums over tokens, samples and the vocabulary are
computed term by term.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import mpmath
import sympy

from klsym.language.expressions import OverPositions, sg
from klsym.language.sums import OverVocabulary, Summed
from klsym.numeric.loss_by_definition import Dual, compile_expression
from klsym.numeric.models import FiniteModel

UNIT, AT_REST = mpmath.mpf(1), mpmath.mpf(0)
CRITICS = {"V": "past", "V_next": "now"}
DENSITIES = {"log_q": "q", "log_p": "p", "log_mu": "mu", "log_old": "old"}


@dataclass(frozen=True)
class Place:
    """Token t of sequence i of a batch, or the whole sequence.

    word: another branch that replaces the token.  alone: differentiate in log q of this sequence.
    """

    batch: tuple[int, ...]
    i: int = 0
    t: int | None = None
    word: int | None = None
    alone: bool = False


class World:
    """A finite model whose sequences and batches are enumerated, in mpmath's current precision.

    E_m[e] = sum_y m(y) e(y)        grad E_q[e] along u = sum_y q(y) (e(y) u.s(y) + de(y))

    >>> from klsym.language.expressions import k1, r
    >>> from klsym.numeric.models import random_tree
    >>> with mpmath.workdps(50):
    ...     world = World(random_tree(0), {}, on_policy=False)
    ...     print(abs(world.compute_mean(r) - 1) < 1e-45, abs(world.differentiate_mean(r)) < 1e-45)
    ...     print(abs(world.differentiate_mean(k1)) < 1e-45)
    True True
    False

    parameters: name -> value.  on_policy: mu is q, held fixed.  Fewer than 30 digits will not do: sums that
    cancel to the last `loss_by_definition.TIED` digits count as 0.
    size: of a batch.  formulas, regions: the definitions of H and its like, and of names of regions.
    """

    def __init__(self, model: FiniteModel, parameters: Mapping[str, float], on_policy: bool) -> None:
        self.model, self.on_policy = model, on_policy
        self.parameters = {name: mpmath.mpf(value) for name, value in parameters.items()}
        self.paths = model.layout.paths
        self.size = 1  # of a batch
        self.formulas: dict[str, Any] = {}
        # A region is 1 where x has one of these signs: x at the position, x of the whole sequence, signs.
        self.regions: dict[str, tuple[Any, Any, tuple[int, ...]]] = {}

    @cached_property
    def rows(self) -> dict[str, list[Any]]:
        """log q, log p, log mu, log old, R, M and the score s of each branch."""
        rows = {}
        for name, density in DENSITIES.items():
            if (row := self.model.rows.get(density)) is not None:
                rows[name] = [x for node in self.model.layout.nodes for x in _compute_logs(row[node])]
        if self.on_policy:
            rows["log_mu"] = rows["log_q"]
        rewards = self.model.rewards
        for name in {"R", "M"} & {*rewards}:
            rows[name] = [mpmath.mpf(float(x)) for x in rewards[name]]
        rows["s"] = []
        for node in self.model.layout.nodes:
            u = [mpmath.mpf(float(x)) for x in self.model.u[node]]
            mean = mpmath.fsum(mpmath.exp(q) * x for q, x in zip(rows["log_q"][node], u, strict=True))
            rows["s"] += [x - mean for x in u]
        return rows

    # ------------------------------------------------------------------ means
    def enumerate_batches(self, n: int, measure: str) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield all batches of n sequences with their probability under q, p or mu."""
        log = self.rows[f"log_{measure}"]
        masses = [mpmath.exp(mpmath.fsum(log[b] for b in path)) for path in self.paths]
        for batch in product(range(len(self.paths)), repeat=n):
            yield batch, mpmath.fprod(masses[k] for k in batch)

    def compute_score(self, place: Place) -> Any:
        """Return u.s of the token, or of the sequence."""
        return mpmath.fsum(self.rows["s"][b] for b in self.list_branches(place, ""))

    def differentiate_mean(self, e: Any) -> Any:
        """Return grad E_q[e] along u, which is E_q[e s + grad e]."""
        total = AT_REST
        for batch, mass in self.enumerate_batches(1, "q"):
            value, slope = self.evaluate_at(e, place := Place(batch))
            total += mass * (value * self.compute_score(place) + slope)
        return total

    def compute_mean(self, e: Any, measure: str = "q") -> Any:
        """Return E_m[e] of whole sequences, under q, p or mu."""
        return mpmath.fsum(
            mass * self.evaluate_at(e, Place(batch))[0] for batch, mass in self.enumerate_batches(1, measure)
        )

    # ------------------------------------------------------------------ values
    def evaluate_at(self, e: Any, place: Place) -> Dual:
        """Return the value of an expression at a place, and its derivative."""
        plain, sums = replace_sums(e)
        at = _Names(self, place)
        at.update({name: self.evaluate_sum(node, place) for name, node in sums})
        return compile_expression(plain)(at)

    def evaluate_sum(self, node: Any, place: Place) -> Dual:
        """Return the value of past(x), others(x), full(x) or sg of such a sum, and its derivative."""
        inner = node.args[0]
        if isinstance(node, sg):
            return self.evaluate_at(inner, place)[0], AT_REST
        if isinstance(node, OverVocabulary):
            return self._sum_over_vocabulary(inner, place)
        if isinstance(node, Summed):
            tokens = range(len(self.paths[place.batch[place.i]]))
            t = place.t if place.t is not None else 0
            steps = {"past": tokens[:t], "now": tokens[t : t + 1], "future": tokens[t + 1 :], "x": tokens}[
                node.slot
            ]
            return add_duals(self.evaluate_at(inner, replace(place, t=u)) for u in steps)
        own_value, rest_value = sympy.symbols("own rest", real=True)
        at = _Names(self, place)
        at["own"] = self.evaluate_at(inner, place)
        at["rest"] = add_duals(
            self.evaluate_at(inner, other_place) for other_place in _list_other_places(place)
        )
        return compile_expression(node.combine(own_value, rest_value))(at)

    def _sum_over_vocabulary(self, x: Any, place: Place) -> Dual:
        """Return sum_y q(y) x(y) and its derivative."""
        token = self.paths[place.batch[place.i]][place.t or 0]
        node = next(
            candidate for candidate in self.model.layout.nodes if candidate.start <= token < candidate.stop
        )
        terms = []
        for b in range(node.start, node.stop):
            value, slope = self.evaluate_at(x, replace(place, word=b))
            q = mpmath.exp(self.rows["log_q"][b])
            terms.append((q * value, q * (value * self.rows["s"][b] + slope)))
        return add_duals(terms)

    def evaluate_name(self, name: str, place: Place) -> Dual:
        """Return the value of a variable such as log_q[past], and its derivative."""
        base, _, slot = name.partition("[")
        slot = slot.removesuffix("]")
        if slot == "others":
            return add_duals(
                self.evaluate_name(f"{base}[self]", other_place) for other_place in _list_other_places(place)
            )
        if base in self.regions:
            at_position, of_sequence, signs = self.regions[base]
            expression = at_position if slot else of_sequence
            return mpmath.mpf(int(mpmath.sign(self.evaluate_at(expression, place)[0])) in signs), AT_REST
        if base in self.formulas:
            return self._evaluate_definition(base, slot, place)
        if base in CRITICS or (base == "A" and slot in ("past", "now")):
            return self._evaluate_critic(place, CRITICS.get(base, slot)), AT_REST
        if base == "A":
            return mpmath.mpf(float(self.model.rewards["A"][place.batch[place.i]])), AT_REST
        if base in ("T", "length"):
            return mpmath.mpf(len(self.list_branches(place, slot or "x"))), AT_REST
        if base in ("n", "m"):
            return mpmath.mpf(self.size - (base == "m")), AT_REST
        if base not in self.rows:
            return self.parameters[base], AT_REST
        branches = self.list_branches(place, slot)
        value = mpmath.fsum(self.rows[base][b] for b in branches)
        if base != "log_q":
            return value, AT_REST
        if place.alone:
            return value, UNIT * len(branches) / len(self.list_branches(place, "x"))
        return value, mpmath.fsum(self.rows["s"][b] for b in branches)

    def _evaluate_definition(self, name: str, slot: str, place: Place) -> Dual:
        """Return the sum over a slot of the definition of H."""
        formula, of_tokens = self.formulas[name]
        if not of_tokens:
            value = formula(self, place) if callable(formula) else self.evaluate_at(formula, place)[0]
            return value, AT_REST
        steps = range(len(self.paths[place.batch[place.i]]))
        t = place.t or 0
        chosen = {"past": steps[:t], "now": steps[t : t + 1], "future": steps[t + 1 :]}.get(slot, steps)
        return add_duals((self.evaluate_at(formula, replace(place, t=u))[0], AT_REST) for u in chosen)

    def _evaluate_critic(self, place: Place, slot: str) -> Any:
        """Return a critic: a function of the tokens before one, or of those up to it, 0 after the last."""
        before, branches_of_token, after = (self.list_branches(place, z) for z in ("past", "now", "future"))
        if slot == "now" and not after:
            return mpmath.mpf(0)
        return mpmath.cos(1 + 3 * sum((*before, *(branches_of_token if slot == "now" else ()))))

    def list_branches(self, place: Place, slot: str) -> tuple[int, ...]:
        """Return the branches of a slot; without a slot, the token or the whole sequence."""
        path, t = self.paths[place.batch[place.i]], place.t
        if slot in ("x", "self") or (t is None and not slot and place.word is None):
            return path
        t = t or 0
        branches_of_token = path[t : t + 1] if place.word is None else (place.word,)
        return {"past": path[:t], "future": path[t + 1 :]}.get(slot, branches_of_token)


class _Names(dict[str, Any]):
    """Values of names at a place, computed on demand."""

    def __init__(self, world: World, place: Place) -> None:
        super().__init__()
        self.world, self.place = world, place

    def __missing__(self, name: str) -> Dual:
        self[name] = value = self.world.evaluate_name(name, self.place)
        return value


@lru_cache(maxsize=512)
def replace_sums(e: Any) -> tuple[Any, tuple[tuple[str, Any], ...]]:
    """Replace sums over positions, and sg of them, by symbols; return the expression and the sums."""
    names: dict[Any, Any] = {}

    def walk(node: Any) -> Any:
        if not node.has(OverPositions):
            return node
        if isinstance(node, OverPositions | sg):
            return names.setdefault(node, sympy.Symbol(f"sum{len(names)}", real=True))
        return node.func(*map(walk, node.args))

    return walk(e), tuple((name.name, node) for node, name in names.items())


def _list_other_places(place: Place) -> Iterator[Place]:
    return (replace(place, i=j, t=None) for j in range(len(place.batch)) if j != place.i)


def add_duals(parts: Any) -> Dual:
    """Return the sum of numbers with their derivatives."""
    values, slopes = zip(*[(AT_REST, AT_REST), *parts], strict=True)
    return mpmath.fsum(values), mpmath.fsum(slopes)


def _compute_logs(row: Any) -> list[Any]:
    """Return the logs of the probabilities at a node, which add up to 1 in all digits."""
    numbers = [mpmath.mpf(float(x)) for x in row]
    total = mpmath.fsum(numbers)
    return [mpmath.log(x / total) for x in numbers]
