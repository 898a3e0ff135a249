"""Worlds: token trees of exact conditional probabilities in which a statement is evaluated literally.

Each branch of a node has q_theta proportional to (a + b.theta)^2, so that q may vanish at theta = 0 and still
be differentiable there, and p and mu that are fixed and may vanish too.  A sample is a path to an end.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

from klsym.kernel.ring import ExpPoly

from .numbers import exp, sine

MEASURES = ("q", "p", "mu")
DENSITIES = (*MEASURES, "old")  # nothing is drawn from old
ARGUMENTS = ("k1", "w", "log_q")
REWARDS = ("R", "H", "M")


@dataclass(frozen=True, eq=False)
class Step:
    """A branch: q with derivatives along u, v and both; p, mu, old, rewards.  moving: q leaves 0 nearby."""

    q: tuple[Fraction, Fraction, Fraction, Fraction]
    p: Fraction
    mu: Fraction
    moving: bool
    rewards: dict[str, Fraction]
    old: Fraction = Fraction(1)

    def density(self, name: str) -> Fraction:
        return self.q[0] if name == "q" else getattr(self, name)

    @property
    def zeros(self) -> tuple[str, ...]:
        return tuple(name for name in DENSITIES if not self.density(name))


Path = tuple[Step, ...]
Node = list[tuple[Step, Any]]  # branches and what follows each: a node or nothing


@dataclass(frozen=True)
class Function:
    """A generic function made concrete: sum of c * monomial, or c exp(line), or a sum of c sin(line)."""

    kind: str
    arguments: tuple[str, ...]
    rows: tuple[tuple[Fraction, tuple[int, ...]], ...]

    def __call__(self, values: dict[str, Any], order: int, of: Any) -> Any:
        """The derivative of this order along log q, of which all arguments have slope 1."""
        if self.kind == "polynomial":
            return self._polynomial(values, order, of)
        total = 0 * of(Fraction(1))
        for c, slopes in self.rows:
            line = of(Fraction(0))
            for name, slope in zip(self.arguments, slopes, strict=True):
                line = line + values[name] * slope if slope else line
            factor = of(c * sum(slopes) ** order)
            total = total + (exp(line) if self.kind == "exp" else sine(line, order)) * factor
        return total

    def _polynomial(self, values: dict[str, Any], order: int, of: Any) -> Any:
        rows = {powers: c for c, powers in self.rows}
        for _ in range(order):
            derived: dict[tuple[int, ...], Fraction] = {}
            for powers, c in rows.items():
                for i, power in enumerate(powers):
                    if power:
                        lower = (*powers[:i], power - 1, *powers[i + 1 :])
                        derived[lower] = derived.get(lower, Fraction(0)) + c * power
            rows = derived
        total = of(Fraction(0))
        for powers, c in rows.items():
            term = of(c)
            for name, power in zip(self.arguments, powers, strict=True):
                term = term * values[name] ** power if power else term
            total = total + term
        return total


@dataclass(frozen=True)
class OfK1:
    """A function of k1 given as sum of c k1^m exp(slope k1)."""

    rows: tuple[tuple[Fraction, int, Fraction], ...]
    arguments: tuple[str, ...] = ("k1",)
    kind: str = "sum"

    def __call__(self, values: dict[str, Any], order: int, of: Any) -> Any:
        rows = list(self.rows)
        for _ in range(order):
            rows = [(c * slope, m, slope) for c, m, slope in rows] + [
                (c * m, m - 1, s) for c, m, s in rows if m
            ]
        k1, total = values["k1"], of(Fraction(0))
        for c, m, slope in rows:
            total = total + of(c) * (k1**m if m else 1) * exp(k1 * of(slope))
        return total


@dataclass
class World:
    """A tree as its paths, with all that a statement needs a value for."""

    paths: tuple[Path, ...]
    sample: tuple[Path, ...]  # the batch at which "sample" is taken
    n: int
    parameters: dict[str, Fraction]
    functions: dict[str, Function]
    solved: tuple[tuple[str, Any], ...] = ()  # parameters that a premise gives as a side
    table: dict[Any, Fraction] = field(default_factory=dict)  # of A
    definitions: dict[str, tuple[str, Any]] = field(default_factory=dict)  # name -> its kind and e
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def free_value(self, key: Any) -> Fraction:
        """A: an arbitrary number for each thing that it may depend on."""
        if key not in self.table:
            self.table[key] = Fraction(self.rng.choice((-2, -1, 0, 1, 2, 3)), self.rng.choice((1, 2)))
        return self.table[key]

    def supports(self, a: str, b: str) -> bool:
        """a << b, after any prefix."""
        return all(step.density(b) for path in self.paths for step in path if a == "count" or step.density(a))

    @property
    def zero_kinds(self) -> set[str]:
        return {"=".join(step.zeros) + "=0" for path in self.paths for step in path if step.zeros}

    def describe(self) -> dict[str, Any]:
        """The world as data, for a report."""
        ids = {step: i for i, step in enumerate(dict.fromkeys(s for path in self.paths for s in path))}
        return {
            "steps": [
                {"q, dq/du, dq/dv, d2q/dudv": [str(x) for x in s.q], "moving": s.moving,
                 **{k: str(v) for k, v in {"p": s.p, "mu": s.mu, "old": s.old, **s.rewards}.items()}}
                for s in ids
            ],
            "paths": [[ids[s] for s in path] for path in self.paths],
            "sample": [[ids[s] for s in path] for path in self.sample],
            "n": self.n,
            "parameters": {k: str(v) for k, v in self.parameters.items()},
            "functions": {k: str(v) for k, v in self.functions.items()},
            "A": {str(_ids(k, ids)): str(v) for k, v in self.table.items()},
        }  # fmt: skip


def _ids(key: Any, ids: dict[Step, int]) -> Any:
    return [_ids(k, ids) for k in key] if isinstance(key, tuple) else ids.get(key, key)


# ---------------------------------------------------------------------------- branches
def square_family(rows: list[tuple[Fraction, Fraction, Fraction]]) -> list[tuple[Fraction, ...]]:
    """q proportional to (a + b_u theta_u + b_v theta_v)^2, with its derivatives at theta = 0."""
    weights = [(a * a, 2 * a * u, 2 * a * v, 2 * u * v) for a, u, v in rows]
    return _normalised(weights)


def softmax_family(q: list[Fraction], u: list[Fraction], v: list[Fraction]) -> list[tuple[Fraction, ...]]:
    """q proportional to q_0 exp(u theta_u + v theta_v)."""
    return _normalised([(x, x * a, x * b, x * a * b) for x, a, b in zip(q, u, v, strict=True)])


def _normalised(weights: list[tuple[Fraction, ...]]) -> list[tuple[Fraction, ...]]:
    total, du, dv, duv = (sum(column) for column in zip(*weights, strict=True))
    rows = []
    for w, a, b, ab in weights:
        q = w / total
        qu, qv = (a - q * du) / total, (b - q * dv) / total
        rows.append((q, qu, qv, (ab - qu * dv - qv * du - q * duv) / total))
    return rows


def paths_of(node: Node | None, prefix: Path = ()) -> Iterable[Path]:
    if node is None:
        yield prefix
        return
    for step, after in node:
        yield from paths_of(after, (*prefix, step))


# ---------------------------------------------------------------------------- worlds that are written down
def world_of(model: dict[str, Any]) -> World:
    """A recorded model as a world; A has a value for what holds a single step."""
    tokens: dict[Step, Fraction] = {}
    tree = _node_of(model["tree"], tokens)
    paths = tuple(paths_of(tree))
    parameters = {name: Fraction(value) for name, value in model["parameters"].items()}
    n, chosen, node = int(parameters.get("n", 2)), [], tree
    for branch in model["path"]:
        step, after = node[branch]
        chosen, node = [*chosen, step], after
    world = World(paths, (tuple(chosen),) * n, n, parameters, {})
    for path in paths:
        for t, step in enumerate(path):
            world.table["now", t, path[: t + 1]] = tokens[step]
        world.table["past", 1, path[:1]] = tokens[path[0]]
        world.table["future", len(path) - 2, path] = tokens[path[-1]]
        world.table |= {("x", path): tokens[path[0]]} if len(path) == 1 else {}
    return world


def _node_of(data: Any, tokens: dict[Step, Fraction]) -> Node:
    columns = {name: [Fraction(x) for x in data[name]] for name in ("q", "p", "mu", "u", "v")}
    q = softmax_family(columns["q"], columns["u"], columns["v"])
    node: Node = []
    for i, after in enumerate(data["next"]):
        paid = {name: Fraction(row[i]) for name, row in data["rewards"].items()}
        old = Fraction(data["old"][i]) if "old" in data else Fraction(1)
        step = Step(q[i], columns["p"][i], columns["mu"][i], False, paid, old)
        tokens[step] = paid.get("A", Fraction(0))
        node.append((step, _node_of(after, tokens) if after is not None else None))
    return node


# ---------------------------------------------------------------------------- softmax worlds
END: tuple[Any, ...] = ()  # a node without branches: the sequence is over
TWO, THREE = (END, END), (END, END, END)  # one token: the outcomes of a sample
DEEP = (END, (END, TWO))  # sequences of 1, 2, 3 and 3 tokens
WIDE = ((END, END, TWO), TWO)  # 2, 2, 3, 3 and 2, 2
NAMES = ("a", "b", "c", "beta", "nu", "lam", "m")
SLOPES = (Fraction(7, 10), Fraction(-2, 5), Fraction(3, 10))
FUNCTIONS = {  # f = sin(0.7 k1 - 0.4 w + 0.3 log q), g = sin(0.9 k1)
    "f": Function("sin", ("k1", "w", "log_q"), ((Fraction(1), SLOPES),)),
    "g": Function("sin", ("k1",), ((Fraction(1), (Fraction(9, 10),)),)),
}
_V = ExpPoly.from_variable
_K1, _A, _R, _NU, _RHO = _V("k1"), _V("A"), _V("R"), _V("nu"), _V("w").exp()
DEFINITIONS: dict[str, tuple[str, ExpPoly]] = {  # each speaks of those before it
    "up": ("region", _K1),
    "down": ("region", -_K1),
    "pos": ("region", _A),
    "high": ("region", _RHO - 1 - _NU),
    "low": ("region", 1 - _NU - _RHO),
    "below": ("region", 1 - (-_K1).exp() - _K1),
    "some": ("region", _R * _R + 1),
    "small": ("region", _NU - 1),
    "over": ("region", (_V("w[past]") + _V("w[now]")).exp() - _V("beta")),
    "win": ("region", _V("R[self]") - _V("R[others]")),
    "flip": ("region", _V("up") * 2 - 1),
    "inv": ("log", (-_K1).exp() + 1),
    "quot": ("log", _V("up") + 1),
    "mass": ("E_q", _V("M") + (-_K1).exp()),
    "theirs": ("E_p", _K1 * _R),
    "cost": ("E_mu", _V("w").exp() * _R),
    "spare": ("log", _V("mass") + 1),
    "share": ("let", _V("mass") * _R + _V("theirs")),
}


def softmax_world(seed: int, shape: Any = THREE, n: int = 2, gaps: float = 0, declared: Any = ()) -> World:
    """A random world of a shape; where densities are 0, those of q stay so."""
    rng = random.Random(seed)
    tree = _softmax_node(shape, gaps, rng)
    paths = tuple(paths_of(tree))
    full = [path for path in paths if not any(step.zeros for step in path)]
    parameters = {name: Fraction(rng.randint(8, 32), 20) for name in (*NAMES, *declared)} | {"n": Fraction(n)}
    sample = tuple(rng.choice(full) for _ in range(max(n, 2))) if full else ()
    world = World(paths, sample, n, parameters, dict(FUNCTIONS), rng=random.Random(seed))
    world.definitions = DEFINITIONS
    return world


kept_world = lru_cache(maxsize=200)(softmax_world)  # for tests that change nothing in it


def _softmax_node(shape: Any, gaps: float, rng: random.Random) -> Node:
    def density() -> list[Fraction]:
        kept = rng.randrange(len(shape))
        weights = [rng.randint(1, 9) * (k == kept or rng.random() >= gaps) for k in range(len(shape))]
        return [Fraction(weight, sum(weights)) for weight in weights]

    def numbers() -> list[Fraction]:
        return [Fraction(rng.randint(-9, 9), 7) for _ in shape]

    rows = zip(softmax_family(density(), numbers(), numbers()), density(), density(), strict=True)
    steps = [Step(q, p, mu, False, {"R": r, "H": h, "M": Fraction(r > 0)})
             for (q, p, mu), r, h in zip(rows, numbers(), numbers(), strict=True)]  # fmt: skip
    return [(step, _softmax_node(after, gaps, rng) if after else None)
            for step, after in zip(steps, shape, strict=True)]  # fmt: skip
