"""Each rule at one sample against an oracle that shares no code with it: softmax models, complex steps.

A `World` holds probabilities and logits; it knows what k1, w, sg, a mean or a mean gradient *are*.
Whatever a rule puts in place of an atom must have the value of that atom in every world.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from drafts import NOTHING, Em, R, beta, grad, k1, k2, k3, log_q, mean, nu, number, r, rho, sg, w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_words import PLAIN, C, Mg, step
from one_sample_cases import CASES, ELSEWHERE
from slotted import lone

from klsym.errors import NotInRing, Refused
from klsym.kernel import EQUATION, RULES, apply_step
from klsym.names import MEASURES, SAMPLE
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.statements import Context, Curl, Gradient, Mean, MeanGradient, Side

STEP = 1e-30  # complex step: derivatives without cancellation
WIDTH = 0.01  # of the central difference of a curl, whose error is of order WIDTH**8
STENCIL = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))
CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=100,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


# ---------------------------------------------------------------------------- the oracle
def softmax(logits: Any) -> Any:
    weights = np.exp(logits)
    return weights / weights.sum()


class World:
    """A finite model: q = softmax(theta), fixed p and mu, directions u and v of theta, one outcome."""

    def __init__(self, seed: int, context: Context | None = None, size: int = 3) -> None:
        stream = np.random.default_rng(seed)
        self.theta, p, mu, self.u, self.v, reward, advantage, other = stream.normal(size=(8, size)) * 0.8
        self.p, self.mu = softmax(p), softmax(mu)
        self.free = {"R": reward, "A": advantage, "H": other, "length": stream.integers(1, 4, size) * 1.0}
        self.parameters = {"n": 2.0, "m": 1.7, "b": 0.9, "lam": 0.7, "c": 1.1}
        self.parameters |= dict(zip(("a", "beta", "nu"), stream.uniform(0.4, 1.6, 3), strict=True))
        self.outcome = int(stream.integers(size))
        self.g = lambda x, n: 0.9**n * np.sin(0.9 * x + 0.2 + n * np.pi / 2)

    def variable(self, name: str, theta: Any) -> Any:
        """A variable at every outcome; sg(.) looks at the logits that are not varied."""
        if name in self.parameters:
            return self.parameters[name]
        if name.startswith("sg("):
            name, theta = name[3:-1], self.theta
        base, primes = name.rstrip("'"), name.count("'")
        q = softmax(theta)
        live = {"log_q": np.log(q), "k1": np.log(q / self.p), "w": np.log(q / self.mu)}
        if base == "f":  # f = sin(z), z = 0.7 k1 - 0.4 w + 0.3 log q, so dz/dlog q = 0.6
            z = 0.7 * live["k1"] - 0.4 * live["w"] + 0.3 * live["log_q"]
            return 0.6**primes * np.sin(z + primes * np.pi / 2)
        if base == "g":
            return self.g(live["k1"], primes)
        return live[base] if base in live else self.free[base]

    def value(self, element: ExpPoly, theta: Any = None) -> Any:
        theta = self.theta if theta is None else theta

        def product(powers: Any) -> Any:
            total = 0 * self.p + 1
            for n, k in powers:
                total = total * self.variable(n, theta) ** float(k)
            return total

        total = 0 * self.p
        for (powers, exponent), factor in element.terms.items():
            inside = sum((float(v) * product(m) for m, v in exponent), 0 * self.p)
            total = total + float(factor) * product(powers) * np.exp(inside)
        return total

    def average(self, measure: str, values: Any, theta: Any) -> Any:
        if measure == SAMPLE:
            return values[self.outcome]
        density = {"q": softmax(theta), "p": self.p, "mu": self.mu, "count": 1.0}
        return (density[measure] * values).sum()

    def q(self) -> Any:
        return softmax(self.theta)

    def score(self, theta: Any, direction: Any = None) -> Any:
        direction = self.u if direction is None else direction
        return direction - (softmax(theta) * direction).sum()

    def slope(self, function: Any, direction: Any = None) -> Any:
        """d/dt function(theta + t u) at t = 0."""
        direction = self.u if direction is None else direction
        return np.imag(function(self.theta + 1j * STEP * direction)) / STEP

    def atom(self, atom: Any, theta: Any = None) -> Any:
        theta = self.theta if theta is None else theta
        if isinstance(atom, Mean):
            values = self.value(atom.coefficient, theta)
            for entry in atom.score:
                values = values * self.score(theta, {"x": self.u, "x'": self.v}[entry])
            return self.average(atom.measure, values, theta)
        assert not np.iscomplexobj(theta), "a gradient of a gradient"
        match atom:
            case MeanGradient("", m, loss):
                return self.average(m, self.slope(lambda t: self.value(loss, t)), theta)
            case Curl("", m, loss):
                return self.curl(m, loss)
            case Gradient(side):
                return self.slope(lambda t: self.side(side, t))
        raise AssertionError(atom)

    def curl(self, measure: str, loss: ExpPoly) -> float:
        """d_v F.u - d_u F.v, by differences of a world that is moved along."""
        total, start = 0.0, self.theta
        for along, component, sign in ((self.v, self.u, 1), (self.u, self.v, -1)):
            for k, weight in STENCIL:
                for end in (1, -1):
                    self.theta = start + end * k * WIDTH * along
                    slope = self.slope(lambda t: self.value(loss, t), component)
                    total += sign * weight * end / WIDTH * self.average(measure, slope, self.theta)
        self.theta = start
        return total

    def side(self, side: Side, theta: Any = None) -> Any:
        theta, total = self.theta if theta is None else theta, 0.0
        for factor, atoms in side.terms:
            scale = self.value(factor, theta)
            assert np.ptp(scale.real) == 0, "a random coefficient outside its mean"
            total = total + scale[0] * np.prod([self.atom(atom, theta) for atom in atoms])
        return total


def same(before: Any, after: Any, slack: float = 1e-8) -> bool:
    return bool(abs(before - after) <= slack * (1 + abs(before) + abs(after)))


def test_the_oracle_knows_what_a_score_is():
    world = World(0)
    assert np.allclose(world.slope(lambda t: np.log(softmax(t))), world.score(world.theta))
    assert same(world.average("q", world.score(world.theta), world.theta), 0)
    half = world.theta + 1e-5 * world.u, world.theta - 1e-5 * world.u
    numeric = np.subtract(*(world.side(Em("q", k1), t) for t in half)) / 2e-5
    assert abs(numeric - world.side(grad(Em("q", k1)))) < 1e-8
    assert not same(world.side(grad(Em("p", -k1))), numeric)


def test_the_oracle_holds_sg_constant():
    world = World(1)
    live, held = (world.side(Mg("mu", loss)) for loss in (rho * k2, sg(rho) * k2))
    extra = world.side(Em("mu", rho * k2, 1))
    assert same(live - held, extra) and not same(live, held)


def test_the_oracle_tells_directions_apart():
    """E_mu[k1 s.u s.v] is symmetric, E_mu[s.u] E_mu[k1 s.v] is not."""
    world, (u, v) = World(2), ("x", "x'")
    assert same(world.side(mean("", "mu", k1, u, v)), world.side(mean("", "mu", k1, v, u)))
    first, second = (
        world.side(mean("", "mu", ONE, x).times(mean("", "mu", k1, y))) for x, y in ((u, v), (v, u))
    )
    assert not same(first, second)


# ---------------------------------------------------------------------------- named cases
ACCEPTED, REFUSED = (
    [
        pytest.param(rule, *case, id=f"{rule}-{name}")
        for rule, cases in CASES.items()
        for name, *case in cases
        if isinstance(case[2], str) == refused
    ]
    for refused in (False, True)
)


def applied(rule: str, side: Side, data: dict[str, Any], context: Context = PLAIN, **place: int) -> Any:
    return apply_step({"left": side}, step(rule, **place, **data), context, {})


@pytest.mark.parametrize(("rule", "side", "data", "expected", "assumed"), ACCEPTED)
def test_named_case(rule, side, data, expected, assumed):
    assert applied(rule, side, data) == (expected, assumed)
    for seed in range(3):
        world = World(seed, PLAIN)
        if all(getattr(atom, "index", "") == "" for _, atoms in expected.terms for atom in atoms):
            assert same(world.side(side), world.side(expected))


@pytest.mark.parametrize(("rule", "side", "data", "message"), REFUSED)
def test_named_refusal(rule, side, data, message):
    with pytest.raises((Refused, NotInRing)) as refusal:
        applied(rule, side, data)
    assert re.search(message, str(refusal.value))


def test_every_rule_has_cases_of_both_kinds():
    """The rest speak of a batch or a sequence alone."""
    assert set(CASES) | set(ELSEWHERE) == set(RULES) and EQUATION not in RULES
    for rule, cases in CASES.items():
        refusals = sum(isinstance(case[3], str) for case in cases)
        assert refusals >= 3 and len(cases) - refusals >= 3, rule


@pytest.mark.parametrize("rule", ELSEWHERE)
@pytest.mark.parametrize("side", [Em("q", k1), Em("p", k1, 2), Em("sample", R), Em("count", R), Mg("q", k1)])
def test_what_speaks_of_a_sequence_or_a_batch_refuses_one_sample(rule, side):
    with pytest.raises(Refused, match=r"a sum over t expected|over batches|Mean expected, got MeanGradient"):
        applied(rule, side, ELSEWHERE[rule])


# ---------------------------------------------------------------------------- a part, in its place
HALF = Fraction(1, 2)
WHOLE = Em("q", k1 + r * 2, 1).times(Em("p", w)) * beta + Em("mu", R) + C(3)


def test_a_part_is_split_off_in_its_product():
    """The other factors, their coefficient and the other terms stay as they are."""
    [(number_of, factor)] = [
        (i, j)
        for i, (_, atoms) in enumerate(WHOLE.terms)
        for j, atom in enumerate(atoms)
        if isinstance(atom, Mean) and atom.score
    ]
    atom = WHOLE.terms[number_of][1][factor]
    one = ExpPoly(dict([min(atom.coefficient.terms.items())]))  # products are monic
    data, place = {"to": "p", "part": one}, {"term": number_of, "factor": factor}
    after, assumed = applied("change of measure", WHOLE, data, **place)
    assert ("exists", Mean("", "q", one, ("x",))) in assumed
    assert len(after.terms) == len(WHOLE.terms) + 1
    for seed in range(3):
        assert same(World(seed).side(WHOLE), World(seed).side(after))


@pytest.mark.parametrize(
    ("side", "rule", "data", "assumed"),
    [
        (Em("q", k1), "stop-gradient", {"part": k1 - beta}, {Em("q", k1 - beta)}),
        (Em("q", k1), "stop-gradient", {"part": beta}, set()),
        (Em("q", k1, 1), "stop-gradient", {"part": beta}, {Em("q", beta, 1)}),
        (Em("count", k1), "stop-gradient", {"part": beta}, {Em("count", beta)}),
        (Em("sample", k1), "stop-gradient", {"part": k1 - w}, set()),
        (Em("q", k1), "stop-gradient", {"part": k1}, set()),  # all of it
        (Em("q", k1), "stop-gradient", {"part": ZERO}, set()),
        (
            Em("q", k1 + beta, 1),
            "score mean zero",
            {"part": beta, "slot": "x"},
            set(),
        ),  # the exchange says so
        (Em("p", beta + k1, 1), "change of measure", {"part": beta, "to": "mu"}, {Em("p", beta, 1)}),
    ],
)
def test_a_part_that_is_split_off_exists(side, rule, data, assumed):
    """Unless it is all there is, a constant, a value at one sample, or said to exist by an exchange."""
    _, found = applied(rule, side, data)
    assert {h for h in found if h[0] == "exists"} == {("exists", lone(of)) for of in assumed}


# ---------------------------------------------------------------------------- random atoms
LIVE = ("k1", "w", "log_q", "R", "A", "H", "length", "f", "f'", "g", "beta", "nu")
NAMES = (*LIVE, "sg(k1)", "sg(w)", "sg(f)", "sg(R)")
SMALL = st.sampled_from([-2, -1, 1, 2, 3, HALF, Fraction(-3, 2)])
MEASURE = st.sampled_from(MEASURES)
PLACE = st.sampled_from([*MEASURES, *MEASURES, SAMPLE])
PROBABILITY = st.sampled_from(["q", "p", "mu"])
SCORE = st.sampled_from([(), ("x",), ("x",), ("x", "x"), ("x", "x'")])


@st.composite
def elements(draw: Any, names: tuple[str, ...] = NAMES, largest: int = 3) -> ExpPoly:
    """A sum of up to `largest` terms: powers of names times exp of small multiples of them."""
    total = ZERO
    for _ in range(draw(st.integers(1, largest))):
        term = number(draw(SMALL))
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            term = term * ExpPoly.variable(name)
        if "beta" in names and draw(st.integers(0, 4)) == 0:
            term = term * beta.inverse()
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            term = term * (ExpPoly.variable(name) * draw(SMALL) * HALF).exp()
        total = total + term
    return total


CONSTANTS = elements(("beta", "nu"), 2)
RATIOS = [ONE, r, rho, k1.exp(), (w - k1).exp(), (-w).exp(), sg(rho), log_q.exp()]


RATIO_OF = {("q", "p"): r, ("mu", "q"): rho, ("p", "mu"): (k1 - w).exp(), ("mu", "p"): (w - k1).exp()}


@st.composite
def structured(draw: Any) -> ExpPoly:
    """Coefficients that rules look for: constants, density ratios, detached weights."""
    found, other = draw(st.sampled_from(RATIOS)), draw(elements())
    scaled = found * draw(CONSTANTS)
    return draw(st.sampled_from([scaled, scaled, scaled + other, found * other]))


@st.composite
def sides(draw: Any, depth: int = 1) -> Side:
    """A combination of one or two products of atoms; at depth 0, of means without scores."""
    total = NOTHING
    for _ in range(draw(st.integers(1, 2))):
        chosen = draw(st.lists(atoms(depth), min_size=depth, max_size=1 + depth))
        total = total + Side.of((draw(CONSTANTS), tuple(chosen)))
    return total


@st.composite
def atoms(draw: Any, depth: int = 1) -> Any:
    kinds = ["mean", "mean", "mean", "loss", "gradient", "gradient", "curl"] if depth else ["plain"]
    match draw(st.sampled_from(kinds)):
        case "plain":
            return Mean("", draw(PLACE), draw(structured()))
        case "mean":
            return Mean("", draw(PLACE), draw(structured()), draw(SCORE))
        case "loss":
            return MeanGradient("", draw(PLACE), draw(elements()))
        case "curl":
            return Curl("", draw(PROBABILITY), draw(elements(("k1", "w", "R", "beta", "sg(k1)", "f"), 2)))
    return Gradient(draw(sides(0)))


# Premises that hold in every world and for every theta, so that their gradients agree too.
TRUE = (
    (Em("q", k1), Em("q", k3)),
    (Em("q", r), C(1)),
    (Em("q", ONE, 1), NOTHING),
    (Em("p", -k1) * beta, Em("q", -k1 * r) * beta),
    (Em("mu", rho * R), Em("q", R)),
)
CONTEXT = Context(("beta", "nu"), PLAIN.functions, TRUE)


@st.composite
def likely(draw: Any, rule: str) -> Any:
    """Atoms of the kind that a rule works on."""
    if draw(st.integers(0, 3)) == 0:
        return draw(atoms())
    match rule:
        case "chain rule":
            return MeanGradient("", draw(PLACE), draw(elements()))
        case "curl":
            return Curl("", draw(PROBABILITY), draw(elements(("k1", "w", "R", "beta", "sg(k1)", "f"), 2)))
        case "log-derivative":
            found = draw(sides(0))
            return Gradient(found.times(draw(sides(0))) if draw(st.integers(0, 2)) == 0 else found)
        case "score mean zero" | "normalisation":
            random = draw(st.sampled_from([k1, ZERO, ZERO]))
            score = ("x",) if rule == "score mean zero" else ()
            return Mean("", draw(st.sampled_from(["q", "q", *MEASURES])), draw(CONSTANTS) + random, score)
        case "ratio mean one":
            (m, _), ratio = draw(st.sampled_from(sorted(RATIO_OF.items())))
            return Mean("", m, ratio * beta + draw(st.sampled_from([ZERO, ZERO, k1])))
    return Mean("", draw(PLACE), draw(structured()), draw(SCORE))


@st.composite
def data_for(draw: Any, rule: str, atom: Any) -> dict[str, Any]:
    """Data that the rule may well accept."""
    data: dict[str, Any] = {}
    if rule in ("change of measure", "ratio mean one"):
        key = "to" if rule == "change of measure" else "of"
        likely_of = [of for m, of in RATIO_OF if getattr(atom, "measure", "") == m]
        data[key] = draw(st.sampled_from([*MEASURES, "pi", *likely_of * 8]))
    if rule in ("score mean zero", "ratio mean one"):
        data["slot"] = draw(st.sampled_from(["x"] * 6 + ["now"]))
    if rule == "linearity":
        data["constant"] = draw(st.sampled_from([number(3), beta, beta.inverse() * nu, beta + 1, k1]))
    if isinstance(atom, Mean) and draw(st.integers(0, 2)):
        terms = [ExpPoly(dict([term])) for term in sorted(atom.coefficient.terms.items())] or [ONE]
        data["part"] = draw(st.one_of(st.sampled_from(terms), st.sampled_from(terms), CONSTANTS, elements()))
    return data


def assert_preserved(rule: str, before: Side, after: Side) -> None:
    for seed in range(2):
        world = World(seed)
        values = world.side(before), world.side(after)
        slack = 1e-5 if rule == "curl" else 1e-8
        assert same(*values, slack), f"{rule}: {before.to_json()} is {values[0]}, got {values[1]}"


ONE_SAMPLE = [rule for rule in CASES if rule != "sum over t"]


@pytest.mark.parametrize("rule", ONE_SAMPLE)
def test_what_replaces_an_atom_has_its_value(rule):
    counts: Counter[bool] = Counter()

    @CHECK
    @given(st.data())
    def run(data: Any) -> None:
        side = Side.atom(data.draw(likely(rule)))
        if not side.terms or len(side.terms[0][1]) != 1:
            return
        try:
            result, _ = applied(rule, side, data.draw(data_for(rule, lone(side))), CONTEXT)
        except (Refused, NotInRing):
            counts[False] += 1
            return
        counts[True] += 1
        assert_preserved(rule, side, result)

    run()
    assert min(counts[True], counts[False]) >= 5, counts


SUITED = {Gradient: ["log-derivative"], MeanGradient: ["chain rule"], Curl: ["curl"]}


@st.composite
def steps_for(draw: Any, side: Side) -> dict[str, Any]:
    """A step at a random place, or an equation."""
    places = [(i, j) for i, (_, found) in enumerate(side.terms) for j in range(len(found))]
    if not places or draw(st.integers(0, 4)) == 0:
        times = draw(st.one_of(CONSTANTS.map(C), atoms(0).map(Side.atom)))
        return step(EQUATION, of=draw(st.integers(0, 5)), times=times, gradient=draw(st.integers(0, 1)))
    term, factor = draw(st.sampled_from(places))
    atom = side.terms[term][1][factor]
    rule = draw(st.sampled_from(SUITED.get(type(atom), ONE_SAMPLE)))
    return step(rule, "left", term, factor, **draw(data_for(rule, atom)))


def test_a_chain_of_random_steps_preserves_the_value():
    counts: Counter[str] = Counter()

    @CHECK
    @given(st.data())
    def run(data: Any) -> None:
        side = data.draw(sides())
        for _ in range(6):
            taken = data.draw(steps_for(side))
            try:
                after, _ = apply_step({"left": side}, taken, CONTEXT, {})
            except (Refused, NotInRing):
                continue
            assert_preserved("curl" if "Curl" in str(side.to_json()) else "", side, after)
            counts[taken["rule"]] += 1
            side = after

    run()
    assert sum(counts.values()) >= 60 and len(counts) >= 7 and counts[EQUATION] >= 10, counts


@CHECK
@given(st.lists(st.tuples(CONSTANTS, st.lists(atoms(), max_size=2)), max_size=3))
def test_the_canonical_form_of_a_side_has_the_value_of_what_was_written(terms):
    world = World(3)
    side = Side.of(*((c, tuple(found)) for c, found in terms))
    written = sum(world.value(c)[0] * np.prod([world.atom(x) for x in found]) for c, found in terms)
    assert same(written, world.side(side))
    assert Side.from_json(side.to_json()) == side
