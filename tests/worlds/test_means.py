"""Expected gradients and curls of a world, against enumeration by hand and difference quotients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import pytest

from klsym.kernel.definitions import LET, LOG, REGION, Definition
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context
from klsym.worlds.draw import draw_sample_models, draw_tree_models
from klsym.worlds.elements import ScoreCoefficients
from klsym.worlds.means import compute_curl, compute_expected_gradient
from klsym.worlds.numbers import FLOATS, System, Tie
from klsym.worlds.world import World, read_model

Step = dict[str, float]
H = Callable[[tuple[Step, ...], int], float]
STEP = 1e-4


# ---------------------------------------------------------------------------- by hand
def list_steps(node: dict[str, Any], along: str, step: float) -> list[Step]:
    """The outcomes of a node at theta + step v: log densities, rewards and scores."""
    rows = {name: [float(Fraction(x)) for x in node[name]] for name in ("q", "p", "mu", "u", "v")}
    rewards = [float(Fraction(x)) for x in node["rewards"]["R"]]
    weights = [q * math.exp(step * x) for q, x in zip(rows["q"], rows[along], strict=True)]
    rows["q"] = [weight / sum(weights) for weight in weights]
    means = {d: sum(q * x for q, x in zip(rows["q"], rows[d], strict=True)) for d in "uv"}
    return [
        {**{name: row[k] for name, row in rows.items()}, "R": rewards[k],
         **{"s" + d: rows[d][k] - means[d] for d in "uv"},
         "k1": math.log(rows["q"][k] / rows["p"][k]), "w": math.log(rows["q"][k] / rows["mu"][k])}
        for k in range(len(rewards))
    ]  # fmt: skip


def list_sequences(node: dict[str, Any], along: str, step: float) -> Iterator[tuple[Step, ...]]:
    for first, after in zip(list_steps(node, along, step), node["next"], strict=True):
        rest = [()] if after is None else list_sequences(after, along, step)
        yield from ((first, *later) for later in rest)


def token_field(tree: dict[str, Any], h: dict[str, H], measure: str, move: str, step: float, d: str) -> float:
    """E_m[sum_t sum_z h_z s_z] along d, at theta + step in the direction `move`."""
    total = 0.0
    for path in list_sequences(tree, move, step):
        mass = math.prod(x[measure] for x in path)
        for t in range(len(path)):
            slots = {"past": path[:t], "now": path[t : t + 1], "future": path[t + 1 :]}
            total += sum(mass * f(path, t) * sum(x["s" + d] for x in slots[z]) for z, f in h.items())
    return total


def differentiate(field: Callable[[str, float, str], float]) -> float:
    """d_v F.u - d_u F.v by central differences."""
    pairs = (("v", "u"), ("u", "v"))
    across, along = ((field(m, STEP, d) - field(m, -STEP, d)) / (2 * STEP) for m, d in pairs)
    return across - along


# ---------------------------------------------------------------------------- tokens
def name(x: str) -> ExpPoly:
    return ExpPoly.from_variable(x)


def number(x: int) -> ExpPoly:
    return ExpPoly.from_number(x)


def total(path: tuple[Step, ...], x: str) -> float:
    return sum(step[x] for step in path)


DEFINED = Context(
    definitions=(
        Definition("over", REGION, name("k1") - Fraction(1, 7)),
        Definition("lift", LOG, number(1) + (-name("k1")).exp()),
        Definition("both", LET, name("k1") * name("R")),
    )
)
CASES: dict[str, tuple[dict[str, ExpPoly], dict[str, H]]] = {
    "k1": ({"now": name("k1[now]")}, {"now": lambda path, t: path[t]["k1"]}),
    "prefix weight": (
        {"now": name("w[past]").exp() * name("k1[now]") ** 2 * name("beta")},
        {"now": lambda path, t: 2 / 3 * math.exp(total(path[:t], "w")) * path[t]["k1"] ** 2},
    ),
    "later rewards": (
        {"now": name("R[future]") * name("k1[past]"), "past": name("length") * name("k1[now]")},
        {"now": lambda path, t: total(path[t + 1 :], "R") * total(path[:t], "k1"),
         "past": lambda path, t: len(path) * path[t]["k1"]},
    ),
    "reciprocal": (
        {"now": name("length") ** -1 * name("log_q[now]"), "future": (-name("k1")).exp()},
        {"now": lambda path, t: math.log(path[t]["q"]) / len(path),
         "future": lambda path, t: math.exp(-total(path, "k1"))},
    ),
    "defined": (
        {"now": name("over[now]") * name("lift[now]") + name("both[now]") * name("M[now]")},
        {"now": lambda path, t: (path[t]["k1"] > 1 / 7) * math.log(1 + math.exp(-path[t]["k1"]))},
    ),
    "given": (
        {"now": name("H") * name("k1[now]")},
        {"now": lambda path, t: sum(x["R"] ** 2 for x in path) * path[t]["k1"]},
    ),
}  # fmt: skip
WITH_CURL = ("prefix weight", "later rewards", "reciprocal")  # under q and under mu
TREES = [model for model, _ in zip(draw_tree_models(lambda step: {}), range(6), strict=False)]


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_curls_of_tokens(case: str, on_policy: bool) -> None:
    coefficients, by_hand = CASES[case]
    measure = "q" if on_policy else "mu"
    sums = {"H[now]": name("R[now]") ** 2}
    h = ScoreCoefficients(coefficients, True, on_policy, sums=sums, defined=DEFINED)
    if on_policy and "w" in h.bases:
        by_hand = {"now": lambda path, t: 2 / 3 * path[t]["k1"] ** 2}  # mu is q
    largest = 0.0
    for model in TREES:
        tree = model["tree"]

        def field(move: str, step: float, d: str, tree: dict[str, Any] = tree) -> float:
            return token_field(tree, by_hand, measure, move, step, d)

        with mpmath.workdps(50):
            world = read_model(tree, on_policy)
            beta = {"beta": world.system.lift(Fraction(2, 3))}
            assert float(compute_expected_gradient(world, h, beta)) == pytest.approx(field("u", 0, "u"))
            curl = float(compute_curl(world, field_of(h, beta=Fraction(2, 3))))
        assert curl == pytest.approx(differentiate(field), abs=1e-7)
        largest = max(largest, abs(curl))
    assert largest > 1e-3 or case not in WITH_CURL


def field_of(h: ScoreCoefficients, **numbers: Fraction) -> Callable[[World, str], Any]:
    def compute_field(world: World, along: str) -> Any:
        lifted = {name: world.system.lift(number) for name, number in numbers.items()}
        return compute_expected_gradient(world, h, lifted, along)

    return compute_field


# ---------------------------------------------------------------------------- batches
SAMPLES = [model for model in draw_sample_models(lambda step: {}) if len(model["tree"]["q"]) == 3][:6]


def batch_field(tree: dict[str, Any], h: Callable[[Step], float], move: str, step: float, d: str) -> float:
    """E_mu[(h_1 - mean h)/std s_1] over batches of three."""
    total = 0.0
    for batch in product(list_steps(tree, move, step), repeat=3):
        values = [h(sample) for sample in batch]
        mean = sum(values) / 3
        deviation = math.sqrt(sum((x - mean) ** 2 for x in values) / 3)
        share = (values[0] - mean) / deviation if deviation > 1e-12 else 0.0
        total += math.prod(sample["mu"] for sample in batch) * share * batch[0]["s" + d]
    return total


def test_curls_of_normalised_batches() -> None:
    k1 = name("k1")
    inner = ScoreCoefficients({"self": k1 * 2 + name("R") * k1**2}, False, False, word="normalised")
    h = ScoreCoefficients({"self": name("H[self]")}, False, False, divided={"H": inner})
    found = []
    for model in SAMPLES:
        tree = {**model["tree"], "v": ["0", "1", "0"], "u": ["1", "0", "0"]}

        def field(move: str, step: float, d: str, tree: dict[str, Any] = tree) -> float:
            return batch_field(tree, lambda x: 2 * x["k1"] + x["R"] * x["k1"] ** 2, move, step, d)

        with mpmath.workdps(50):
            try:
                found.append(float(compute_curl(read_model(tree), field_of(h))))
            except Tie:
                continue
        assert found[-1] == pytest.approx(differentiate(field), abs=1e-6)
    assert len(found) > 2 and max(map(abs, found)) > 1e-3


@pytest.mark.parametrize("system", [FLOATS, None])
def test_equal_coefficients_that_move_apart_are_a_tie(system: System | None) -> None:
    """q = p at two of three outcomes: their h is equal, and moves apart along u."""
    row, rewards = ["1/4", "1/4", "1/2"], {"R": ["0", "1", "2"]}
    tree = {"q": row, "p": ["3/8", "3/8", "1/4"], "mu": row, "u": ["1", "0", "0"], "v": ["0", "1", "0"],
            "rewards": rewards, "next": [None] * 3}  # fmt: skip
    for element, ties in ((name("k1"), True), (name("R"), False), (number(2), False)):
        inner = ScoreCoefficients({"self": element}, False, False, word="normalised")
        h = ScoreCoefficients({"self": name("H[self]")}, False, False, divided={"H": inner})
        with mpmath.workdps(50):
            world = read_model(tree, **({"system": system} if system else {}))
            if ties:
                with pytest.raises(Tie):
                    compute_curl(world, field_of(h))
            else:
                compute_curl(world, field_of(h))


def test_a_sample_on_a_bound_is_a_tie() -> None:
    """k1 = 0 where q = p: the region changes with theta; a bound on a reward does not."""
    tree = {"q": ["1/2", "1/2"], "p": ["1/2", "1/2"], "mu": ["1/3", "2/3"], "u": ["1", "0"], "v": ["0", "1"],
            "rewards": {"R": ["0", "1"]}, "next": [None] * 2}  # fmt: skip
    for bound, ties in ((name("k1"), True), (name("R"), False)):
        context = Context(definitions=(Definition("over", REGION, bound),))
        h = ScoreCoefficients({"now": name("over[now]")}, True, False, defined=context)
        with mpmath.workdps(50):
            world = read_model(tree)
            if ties:
                with pytest.raises(Tie):
                    compute_curl(world, field_of(h))
            else:
                assert compute_curl(world, field_of(h)) == 0
