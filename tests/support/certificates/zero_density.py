"""Finite models whose densities may be zero: what a mean is worth there, under the printed convention.

    E_m[a s..s] is the sum of m a s..s over what m gives mass to.  A product that holds a positive power of a
    density that is 0 is 0, whatever its other factors.  What holds a log, another power, an unknown function
    or too many scores of such a density has no value: that mean does not exist.

q goes to zero as the square of a distance, so that each score there counts as the power -1/2 of q.
Shares no code with klsym.kernel.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Mean, Side

NAME = re.compile(r"(?:sg\()?([A-Za-z]\w*)('*)(?:\[(\w+)\])?\)?")
RATIOS = {"k1": {"q": 1, "p": -1}, "w": {"q": 1, "mu": -1}, "log_q": {"q": 1}}
MEASURES = ("q", "p", "mu")
END: tuple[Any, ...] = ()
ONE_STEP, TWO_STEPS = (END, END, END), ((END, END), END)
Undefined = type(None)


class Token:
    """Log densities of one token given its prefix, its rewards, its score."""

    def __init__(self, logs: dict[str, float], values: dict[str, float], score: float) -> None:
        self.logs, self.values, self.score = logs, values, score

    def log_ratio(self, base: str) -> float | None:
        """None where a density in it is 0."""
        if any(self.logs[m] == -math.inf for m in RATIOS[base]):
            return None
        return sum(c * self.logs[m] for m, c in RATIOS[base].items())


Rows = list[dict[str, list[Token]]]


class Boundary:
    """A tree of tokens, batches of n of its sequences, and values of parameters."""

    def __init__(self, seed: int, shape: Any = ONE_STEP, n: int = 2, zeros: float = 0.4) -> None:
        self.stream, self.n, self.zeros = np.random.default_rng(seed), n, zeros
        self.sequences = list(self._grow(shape, []))
        self.parameters = {"beta": 0.8, "a": 1.3, "b": 0.6, "lam": 0.7, "nu": -0.4, "n": float(n)}
        self._rows: dict[str, Rows] = {}

    def _density(self, count: int) -> Any:
        weights = self.stream.uniform(0.2, 1, count) * (self.stream.uniform(size=count) > self.zeros)
        if not weights.any():
            weights[self.stream.integers(count)] = 1
        with np.errstate(divide="ignore"):
            return np.log(weights / weights.sum())

    def _grow(self, shape: Any, prefix: list[Token]) -> Iterator[list[Token]]:
        logs = {m: self._density(len(shape)) for m in MEASURES}
        for k, after in enumerate(shape):
            reward, other, score = self.stream.normal(size=3)
            values = {"R": reward, "H": other, "A": other, "length": 1.0}
            token = Token({m: float(row[k]) for m, row in logs.items()}, values, score)
            if after:
                yield from self._grow(after, [*prefix, token])
            else:
                yield [*prefix, token]

    def mass(self, measure: str, sequence: list[Token]) -> bool:
        return all(token.logs[measure] > -math.inf for token in sequence)

    def supports(self, a: str, b: str) -> bool:
        """a << b"""
        return all(
            (a != "count" and not self.mass(a, y)) or b == "count" or self.mass(b, y) for y in self.sequences
        )

    def satisfies(self, hypotheses: Any) -> bool:
        return all(self.supports(h[1], h[2]) for h in hypotheses if h[0] == "support")

    # ------------------------------------------------------------------ rows
    def rows(self, index: str) -> Rows:
        """What each slot holds, at every sequence, step, or place in a batch."""
        if index not in self._rows:
            self._rows[index] = list(self._all_rows(index))
        return self._rows[index]

    def _all_rows(self, index: str) -> Iterator[dict[str, list[Token]]]:
        if index in ("", "t"):
            batches = [[y] for y in self.sequences]
        else:
            batches = [list(batch) for batch in product(self.sequences, repeat=self.n)]
        for batch in batches:
            own, *rest = batch  # the batch is exchangeable: i is the first, j the second
            others = [token for y in rest for token in y]
            spare = [token for y in rest[1:] for token in y]
            match index:
                case "":
                    yield {"x": own}
                case "i":
                    yield {"self": own, "others": others}
                case "ij":
                    yield {"self": own, "other": rest[0], "rest": spare}
                case _:
                    for t in range(len(own)):
                        at = {"past": own[:t], "now": own[t : t + 1], "future": own[t + 1 :], "x": own}
                        yield at | ({"others": others} if index == "it" else {})

    @staticmethod
    def drawn(row: dict[str, list[Token]]) -> list[Token]:
        """All that the mass of a row is a product over."""
        return [token for slot, tokens in row.items() if slot != "x" or len(row) == 1 for token in tokens]

    # ------------------------------------------------------------------ values
    def term(self, key: Any, row: Any, weight: str | None, scores: tuple[str, ...]) -> float | Undefined:
        """One term of a coefficient at a row, times the mass of the row and scores."""
        powers: dict[tuple[Token, str], Any] = defaultdict(int)
        for token in self.drawn(row) if weight in MEASURES else ():
            powers[token, weight] += 1
        log, sign, finite, wild = 0.0, 1.0, True, False
        for monomial, value in key[1]:
            name = NAME.fullmatch(monomial[0][0]) if len(monomial) == 1 and monomial[0][1] == 1 else None
            if name and name[1] in RATIOS and name[1] not in self.parameters:
                for token in row[name[3] or "x"]:
                    for m, c in RATIOS[name[1]].items():
                        powers[token, m] += c * Fraction(value)
                continue
            inside = [self.variable(name, row) for name, _ in monomial]
            wild = wild or None in inside
            if None not in inside:
                log += float(value) * math.prod(x**k for x, (_, k) in zip(inside, monomial, strict=True))
        for name, power in key[0]:
            x = self.variable(name, row)
            wild, finite = (
                wild or (x is None and NAME.fullmatch(name)[1] not in RATIOS),
                finite and x is not None,
            )
            if x is not None:
                sign *= x**power
        for entry in scores:
            for token in row[entry.removesuffix("'")]:
                if token.logs["q"] == -math.inf:
                    powers[token, "q"] -= Fraction(1, 2)
            sign *= sum(token.score for token in row[entry.removesuffix("'")])
        gone = [power for (token, m), power in powers.items() if token.logs[m] == -math.inf and power]
        blown = any(
            token.logs["q"] == -math.inf for entry in scores for token in row[entry.removesuffix("'")]
        )
        if not wild and any(power > 0 for power in gone):
            return 0.0
        if wild or gone or not finite or blown:
            return None
        log += sum(float(power) * token.logs[m] for (token, m), power in powers.items() if power)
        return sign * math.exp(log)

    def log_term(self, key: Any, row: Any, weight: str) -> float:
        """log of the size of a term where no density is 0; log densities alone may be large."""
        log = sum(token.logs[weight] for token in self.drawn(row)) if weight in MEASURES else 0.0
        for monomial, value in key[1]:
            log += float(value) * math.prod(self.variable(name, row) ** k for name, k in monomial)
        for name, power in key[0]:
            x = abs(self.variable(name, row))
            log += power * math.log(x) if x else -math.inf
        return log

    def variable(self, name: str, row: Any) -> float | Undefined:
        if name in self.parameters:
            return self.parameters[name]
        base, primes, slot = NAME.fullmatch(name).groups()
        tokens = row[slot or "x"]
        if base in RATIOS:
            logs = [token.log_ratio(base) for token in tokens]
            return None if None in logs else math.fsum(logs)
        if base in ("f", "g"):
            logs = [token.log_ratio("k1") for token in tokens]
            return None if None in logs else math.cos(sum(logs) + len(primes))
        return sum(token.values[base] for token in tokens)

    def at(self, a: ExpPoly, row: Any, weight: str | None = None, scores: Any = ()) -> float | Undefined:
        found = [(self.term(key, row, weight, scores), value) for key, value in a.terms.items()]
        return None if any(x is None for x, _ in found) else sum(x * float(c) for x, c in found)

    def counted(self, index: str, measure: str) -> Rows:
        """The rows that a measure gives mass to."""
        rows = self.rows(index)
        return [row for row in rows if measure == "count" or self.mass(measure, self.drawn(row))]

    def mean(self, mean: Mean) -> float | Undefined:
        if mean.measure == "sample":  # the first sequence, at all of its steps, or a batch of it
            rows = [row for row in self.rows(mean.index) if set(self.drawn(row)) == set(self.sequences[0])]
        else:
            rows = self.counted(mean.index, mean.measure)
        weight = mean.measure if mean.measure in MEASURES else None
        found = [self.at(mean.coefficient, row, weight, mean.score) for row in rows]
        return None if None in found else math.fsum(found)

    def side(self, side: Side) -> float | Undefined:
        total = 0.0
        for factor, atoms in side.terms:
            values = [self.at(factor, {"x": []}), *(self.mean(atom) for atom in atoms)]
            if None in values:
                return None
            total += math.prod(values)
        return total
