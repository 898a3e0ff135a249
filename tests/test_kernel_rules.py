"""Each rule against an oracle that shares no code with it: softmax models, complex-step gradients.

A `World` holds probabilities and logits; it knows what k1, w, sg, KL or an expected gradient *are*.
Whatever a rule puts in place of an atom must have the value of that atom in every world.  More than
500 lines, because the table of named cases and the oracle that judges them belong together.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from drafts import (
    KL,
    ONE,
    Eg,
    Em,
    R,
    a,
    beta,
    f,
    grad,
    k1,
    k2,
    k3,
    log_q,
    nu,
    number,
    point,
    r,
    rho,
    sg,
    w,
)  # fmt: skip
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klsym.errors import NotInRing, Refused
from klsym.kernel import RULES, apply_step
from klsym.names import MEASURES
from klsym.normal_form import ExpPoly
from klsym.statements import (
    Bregman,
    Context,
    Covariance,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Point,
    PointGradient,
    Side,
)

STEP = 1e-30  # complex step: derivatives without cancellation
CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=100,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


# ---------------------------------------------------------------------------- the oracle
def softmax(logits: Any) -> Any:
    weights = np.exp(logits)
    return weights / weights.sum()


class World:
    """A finite model: q = softmax(theta), fixed p and mu, a direction u of theta, one outcome."""

    def __init__(self, seed: int, context: Context | None = None) -> None:
        context, size = context or Context(), 3
        stream = np.random.default_rng(seed)
        self.theta, p, mu, self.u, reward, advantage = stream.normal(size=(6, size)) * 0.8
        self.p = softmax(p)
        self.mu = softmax(self.theta if context.on_policy else mu)
        self.free = {"R": reward, "A": advantage}
        self.parameters = dict(zip(("a", "beta", "nu"), stream.uniform(0.4, 1.6, 3), strict=True))
        self.outcome = int(stream.integers(size))
        self.g = lambda x, n: 0.9**n * np.sin(0.9 * x + 0.2 + n * np.pi / 2)
        for name, value in context.given:
            self.free[name] = self.value(value, self.theta) + 0 * self.p

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

    def value(self, element: ExpPoly, theta: Any) -> Any:
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

    def mean(self, measure: str, values: Any, theta: Any) -> Any:
        density = {"q": softmax(theta), "p": self.p, "mu": self.mu, "count": 1.0}
        return (density[measure] * values).sum()

    def score(self, theta: Any) -> Any:
        return self.u - (softmax(theta) * self.u).sum()

    def slope(self, function: Any) -> Any:
        """d/dt function(theta + t u) at t = 0."""
        return np.imag(function(self.theta + 1j * STEP * self.u)) / STEP

    def divergence(self, kind: str, first: str, second: str, theta: Any) -> Any:
        densities = {"q": softmax(theta), "p": self.p, "mu": self.mu}
        x, y = densities[first], densities[second]
        forward, backward = (x * np.log(x / y)).sum(), (y * np.log(y / x)).sum()
        return {"KL": forward, "J": forward + backward, "chi2": ((x - y) ** 2 / y).sum()}[kind]

    def atom(self, atom: Any, theta: Any) -> Any:
        match atom:
            case E(m, of, score):
                return self.mean(m, self.value(of, theta) * self.score(theta) ** len(score), theta)
            case Point(of, score):
                return (self.value(of, theta) * self.score(theta) ** len(score))[self.outcome]
            case Covariance(m, x, y):
                x, y = self.value(x, theta), self.value(y, theta)
                x, y = x - self.mean(m, x, theta), y - self.mean(m, y, theta)
                return self.mean(m, x * y, theta)
            case Divergence(kind, first, second):
                return self.divergence(kind, first, second, theta)
            case Bregman(phi):
                return self.bregman(phi, self.p / softmax(theta))[self.outcome]
        assert not np.iscomplexobj(theta), "a gradient of a gradient"
        match atom:
            case ExpectedGradient(m, loss):
                return self.mean(m, self.slope(lambda t: self.value(loss, t)), theta)
            case PointGradient(loss):
                return self.slope(lambda t: self.value(loss, t))[self.outcome]
            case Gradient(side):
                return self.slope(lambda t: self.side(side, t))
        raise AssertionError(atom)

    def bregman(self, phi: ExpPoly, ratio: Any) -> Any:
        def at(x: Any) -> Any:  # phi as a function of r alone
            terms = 0 * x
            for (powers, exponent), factor in phi.terms.items():
                term = float(factor) + 0 * x
                for n, k in powers:
                    term = term * (-np.log(x) if n == "k1" else self.parameters[n]) ** k
                for m, v in exponent:
                    inside = float(v)
                    for n, k in m:
                        inside = inside * (-np.log(x) if n == "k1" else self.parameters[n]) ** k
                    term = term * np.exp(inside)
                terms = terms + term
            return terms

        one = np.ones(1)
        slope = np.imag(at(one + 1j * STEP)) / STEP
        return at(ratio) - at(one) - slope * (ratio - 1)

    def side(self, side: Side, theta: Any) -> Any:
        total = 0.0
        for factor, atoms in side.terms:
            scale = self.value(factor, theta)
            assert np.ptp(scale.real) == 0, "a random coefficient outside its expectation"
            total = total + scale[0] * np.prod([self.atom(atom, theta) for atom in atoms])
        return total


def same(before: Any, after: Any) -> bool:
    return bool(abs(before - after) <= 1e-8 * (1 + abs(before) + abs(after)))


def test_the_oracle_knows_what_a_score_is():
    world = World(0)
    assert np.allclose(world.slope(lambda t: np.log(softmax(t))), world.score(world.theta))
    assert same(world.mean("q", world.score(world.theta), world.theta), 0)
    half = world.theta + 1e-5 * world.u, world.theta - 1e-5 * world.u
    numeric = np.subtract(*(world.divergence("KL", "q", "p", t) for t in half)) / 2e-5
    assert abs(numeric - world.atom(Gradient(KL("q", "p")), world.theta)) < 1e-8
    assert not same(world.atom(Gradient(KL("p", "q")), world.theta), numeric)


def test_the_oracle_holds_sg_constant():
    world = World(1)
    theta, losses = world.theta, (rho * k2, sg(rho) * k2)
    live, held = (world.atom(ExpectedGradient("mu", loss), theta) for loss in losses)
    extra = world.mean("mu", world.value(rho * k2, theta) * world.score(theta), theta)
    assert same(live - held, extra) and not same(live, held)


# ---------------------------------------------------------------------------- named cases
PLAIN = Context(parameters=("beta", "nu"), functions=(("f", ("k1", "log_q", "w")), ("g", ("k1",))))
ON = Context(parameters=("beta", "nu"), on_policy=True)
GIVEN = Context(parameters=("beta", "nu"), given=(("R", nu + beta * k1),))
# true in every world: KL(q||p) = E_q[k3], E_mu[rho k1] = KL(q||p)
FACTS = Context(premises=((KL("q", "p"), Em("q", k3)), (Em("mu", rho * k1), KL("q", "p"))))


def lone(side: Side) -> Any:
    """The single atom of a side."""
    ((_, (atom,)),) = side.terms
    return atom


def bregman(phi: ExpPoly) -> Side:
    return Side.atom(Bregman(phi))


def only(side: Side, **data: Any) -> tuple[Any, dict[str, Any]]:
    return lone(side), {k: v.to_json() if isinstance(v, ExpPoly) else v for k, v in data.items()}


def pg(loss: ExpPoly) -> Side:
    return Side.atom(PointGradient(loss))


def cov(x: ExpPoly, y: ExpPoly, measure: str = "q") -> Side:
    return Side.atom(Covariance(measure, x, y))


f1 = ExpPoly.variable("f'")
C, N, N_ = Side.constant, Side(), number(0)
# rule: (name, (atom, data), context, the replacement or the message of the refusal)
CASES: dict[str, list[Any]] = {
    "definition": [
        ("reverse kl", only(KL("q", "p")), PLAIN, Em("q", k1)),
        ("forward kl", only(KL("p", "q")), PLAIN, Em("p", -k1)),
        ("kl to mu", only(KL("p", "mu")), PLAIN, Em("p", w - k1)),
        ("chi2", only(KL("p", "q", "chi2")), PLAIN, Em("q", (r - 1) ** 2)),
        ("gradient of kl", only(grad(KL("q", "p") * beta)), PLAIN, grad(Em("q", beta * k1))),
        ("covariance", only(cov(k1, R)), PLAIN, Em("q", k1 * R) - Em("q", k1).times(Em("q", R))),
        ("bregman of -log r", only(bregman(k1)), PLAIN, point(k3)),
        ("bregman of r log r", only(bregman(-k1 * r)), PLAIN, point(-k1 * r - (r - 1))),
        ("expectation", only(Em("q", k1)), PLAIN, "nothing to unfold in E"),
        ("loss", only(Eg("q", k1)), PLAIN, "nothing to unfold in ExpectedGradient"),
        ("bregman in w", only(bregman(w)), PLAIN, "phi: a function of r alone"),
        ("bregman of sg", only(bregman(sg(k1))), PLAIN, "phi: a function of r alone"),
        ("gradient of a product", only(grad(KL("q", "p").times(KL("q", "p")))), PLAIN,
            "gradient: a single quantity expected"),
        ("data", only(KL("q", "p"), to="q"), PLAIN, "data: expected"),
        ("gradient of an expectation", only(grad(Em("q", k1))), PLAIN, "nothing to unfold in E"),
    ],
    "chain rule": [
        ("k2", only(Eg("q", k2)), PLAIN, Em("q", k1, 1)),
        ("k3 under mu", only(Eg("mu", rho * k3)), PLAIN, Em("mu", rho * k1, 1)),
        ("detached weight", only(Eg("mu", sg(rho) * k2)), PLAIN, Em("mu", sg(rho) * k1, 1)),
        ("reward", only(Eg("q", R * log_q)), PLAIN, Em("q", R, 1)),
        ("generic function", only(Eg("q", f * k1)), PLAIN, Em("q", f + f1 * k1, 1)),
        ("fully detached", only(pg(sg(k2) + R)), PLAIN, N),
        ("at a sample", only(pg(k2 * beta)), PLAIN, point(beta * k1, 1)),
        ("gradient", only(grad(Em("q", k2))), PLAIN, "a gradient of a loss expected, got Gradient"),
        ("expectation", only(Em("q", k2)), PLAIN, "a gradient of a loss expected, got E"),
        ("point", only(point(k2)), PLAIN, "a gradient of a loss expected, got Point"),
        ("divergence", only(KL("q", "p")), PLAIN, "expected, got Divergence"),
        ("bregman", only(bregman(k1)), PLAIN, "expected, got Bregman"),
        ("data", only(Eg("q", k2), part=ONE), PLAIN, "data: expected"),
    ],
    "stop-gradient": [
        ("weight", only(Em("mu", sg(rho) * k1, 1)), PLAIN, Em("mu", rho * k1, 1)),
        ("function", only(Em("q", sg(f) * f)), PLAIN, Em("q", f * f)),
        ("at a sample", only(point(sg(k1) - k1, 1)), PLAIN, N),
        ("nothing detached", only(Em("p", k1)), PLAIN, Em("p", k1)),
        ("loss", only(Eg("q", sg(k1))), PLAIN, "sample values, not in the gradient of a loss"),
        ("loss at a sample", only(pg(sg(k1))), PLAIN, "sample values, not in the gradient of a loss"),
        ("gradient", only(grad(Em("q", sg(k1)))), PLAIN, "sample values, not in a gradient"),
        ("covariance", only(cov(sg(k1), k1)), PLAIN, "sample values, not in a covariance"),
    ],
    "log-derivative": [
        ("under q", only(grad(Em("q", k2))), PLAIN, Em("q", k2, 1) + Eg("q", k2)),
        ("under p", only(grad(Em("p", k2))), PLAIN, Eg("p", k2)),
        ("under mu", only(grad(Em("mu", rho))), PLAIN, Eg("mu", rho)),
        ("sampler", only(grad(Em("mu", k2))), ON, Eg("mu", k2)),
        ("detached", only(grad(Em("q", sg(k2)))), PLAIN, Em("q", sg(k2), 1) + Eg("q", sg(k2))),
        ("with a score", only(grad(Em("q", k2, 1))), PLAIN, "the gradient of one expectation"),
        ("counting measure", only(grad(Em("count", k2))), PLAIN, "the gradient of one expectation"),
        ("a sum", only(grad(Em("q", k1) + Em("p", k1))), PLAIN, "the gradient of one expectation"),
        ("a divergence", only(grad(KL("q", "p"))), PLAIN, "the gradient of one expectation"),
        ("a loss", only(Eg("q", k2)), PLAIN, "the gradient of one expectation"),
    ],
    "linearity": [
        ("sum", only(grad(KL("q", "p") * beta - KL("p", "q"))), PLAIN,
            grad(KL("q", "p")) * beta - grad(KL("p", "q"))),
        ("constant", only(grad(KL("q", "p") + C(nu))), PLAIN, grad(KL("q", "p"))),
        ("only constants", only(grad(C(beta))), PLAIN, N),
        ("single", only(grad(KL("q", "p") * 2)), PLAIN, grad(KL("q", "p")) * 2),
        ("product", only(grad(Em("q", k1).times(Em("p", k1)))), PLAIN, "product is not linear"),
        ("square", only(grad(KL("q", "p").times(KL("q", "p")))), PLAIN, "product is not linear"),
        ("loss", only(Eg("q", k1 + k2)), PLAIN, "a gradient expected, got ExpectedGradient"),
        ("expectation", only(Em("q", k1 + k2)), PLAIN, "a gradient expected, got E"),
    ],
    "change of measure": [
        ("mu to q", only(Em("mu", rho * k1, 1), to="q"), PLAIN, Em("q", k1, 1)),
        ("q to p", only(Em("q", r, 2), to="p"), PLAIN, Em("p", ONE, 2)),
        ("p to mu", only(Em("p", R), to="mu"), PLAIN, Em("mu", R * (w - k1).exp())),
        ("q to sum", only(Em("q", k1), to="count"), PLAIN, Em("count", k1 * log_q.exp())),
        ("sum to q", only(Em("count", ONE), to="q"), PLAIN, Em("q", (-log_q).exp())),
        ("part", only(Em("q", k1 - r), to="p", part=-r), PLAIN, Em("q", k1) - Em("p", ONE)),
        ("no target", only(Em("q", k1)), PLAIN, "data: expected \\['to'\\], got \\[\\]"),
        ("unknown", only(Em("q", k1), to="pi"), PLAIN, "to: one of"),
        ("no string", only(Em("q", k1), to=1), PLAIN, "to: one of"),
        ("a loss", only(Eg("q", k1), to="p"), PLAIN, "expectation expected, got ExpectedGradient"),
        ("a covariance", only(cov(k1, r), to="p"), PLAIN, "expectation expected, got Covariance"),
        ("part not declared", only(Em("q", k1), to="p", part=a), PLAIN, "unknown name 'a'"),
    ],
    "score mean zero": [
        ("one", only(Em("q", ONE, 1)), PLAIN, N),
        ("parameter", only(Em("q", beta * 3, 1)), PLAIN, N),
        ("part", only(Em("q", k1 + 1, 1), part=ONE), PLAIN, Em("q", k1, 1)),
        ("baseline", only(Em("q", R, 1), part=nu), PLAIN, Em("q", R - nu, 1)),
        ("under p", only(Em("p", ONE, 1)), PLAIN, "E_m\\[s\\] = 0 needs m = q, got m = p"),
        ("under mu on-policy", only(Em("mu", ONE, 1)), ON, "needs m = q, got m = mu"),
        ("reward", only(Em("q", R, 1)), PLAIN, "the coefficient depends on the sample"),
        ("detached", only(Em("q", sg(k1), 1)), PLAIN, "the coefficient depends on the sample"),
        ("part random", only(Em("q", k1 + 1, 1), part=k1), PLAIN, "depends on the sample"),
        ("squared", only(Em("q", ONE, 2)), PLAIN, "one score function expected"),
        ("no score", only(Em("q", ONE)), PLAIN, "one score function expected"),
    ],
    "normalisation": [
        ("under q", only(Em("q", beta)), PLAIN, C(beta)),
        ("under mu", only(Em("mu", number(3))), PLAIN, C(3)),
        ("part", only(Em("p", k1 - 1), part=-ONE), PLAIN, Em("p", k1) - C(1)),
        ("sum", only(Em("count", ONE)), PLAIN, "no total mass one"),
        ("random", only(Em("q", R)), PLAIN, "depends on the sample"),
        ("score", only(Em("q", ONE, 1)), PLAIN, "no score function expected"),
        ("point", only(point(ONE)), PLAIN, "an expectation expected, got Point"),
    ],
    "ratio mean one": [
        ("r", only(Em("q", beta * r), of="p"), PLAIN, C(beta)),
        ("rho", only(Em("mu", rho), of="q"), PLAIN, C(1)),
        ("under p", only(Em("p", (k1 - w).exp()), of="mu"), PLAIN, C(1)),
        ("part", only(Em("q", r - 1 + k1), of="p", part=r), PLAIN, C(1) + Em("q", k1 - 1)),
        ("wrong way", only(Em("q", k1.exp()), of="p"), PLAIN, "not a constant multiple of p/q"),
        ("rho under q", only(Em("q", rho), of="mu"), PLAIN, "not a constant multiple of mu/q"),
        ("detached", only(Em("q", sg(r)), of="p"), PLAIN, "not a constant multiple of p/q"),
        ("score", only(Em("q", r, 1), of="p"), PLAIN, "no score function expected"),
        ("sum", only(Em("q", (-log_q).exp()), of="count"), PLAIN, "two probability measures"),
        ("no ratio", only(Em("q", r)), PLAIN, "data: expected \\['of'\\]"),
    ],
    "on-policy": [
        ("weight", only(Em("mu", rho * k1, 1)), ON, Em("q", k1, 1)),
        ("detached weight", only(Em("mu", sg(rho) * w)), ON, N),
        ("under p", only(Em("p", w + k1)), ON, Em("p", k1)),
        ("at a sample", only(point(rho * R)), ON, point(R)),
        ("off-policy", only(Em("mu", rho * k1, 1)), PLAIN, "does not say that the sampler is q"),
        ("loss", only(Eg("mu", rho * k1)), ON, "under q, p or mu expected, got the gradient of a loss"),
        ("gradient", only(grad(Em("mu", w))), ON, "q, p or mu expected, got a gradient"),
        ("sum", only(Em("count", w)), ON, "an expectation under q, p or mu expected"),
    ],
    "given": [
        ("reward", only(Em("q", R - nu, 1)), GIVEN, Em("q", beta * k1, 1)),
        ("at a sample", only(point(R * R)), GIVEN, point((nu + beta * k1) ** 2)),
        ("detached", only(Em("mu", sg(R) * k1)), GIVEN, Em("mu", (nu + beta * k1) * k1)),
        ("exponent", only(Em("p", R.exp())), GIVEN, Em("p", (nu + beta * k1).exp())),
        ("nothing given", only(Em("q", R)), PLAIN, "given no values"),
        ("loss", only(Eg("q", R * log_q)), GIVEN, "sample values, not into the gradient of a loss"),
        ("gradient", only(grad(Em("q", R))), GIVEN, "not into a gradient"),
        ("covariance", only(cov(R, k1)), GIVEN, "not into a covariance"),
    ],
    "premise": [
        ("value", only(KL("q", "p"), number=0), FACTS, Em("q", k3)),
        ("gradient", only(grad(KL("q", "p")), number=0), FACTS, grad(Em("q", k3))),
        ("second", only(grad(Em("mu", rho * k1)), number=1), FACTS, grad(KL("q", "p"))),
        ("other", only(KL("p", "q"), number=0), FACTS, "premise 0 speaks of something else"),
        ("backwards", only(Em("q", k3), number=0), FACTS, "speaks of something else"),
        ("multiple", only(grad(KL("q", "p") * 2), number=0), FACTS, "speaks of something else"),
        ("out of range", only(KL("q", "p"), number=2), FACTS, "no such premise"),
        ("negative", only(KL("q", "p"), number=-1), FACTS, "no such premise"),
        ("no integer", only(KL("q", "p"), number=False), FACTS, "no such premise"),
        ("none", only(KL("q", "p"), number=0), PLAIN, "no such premise"),
    ],
}  # fmt: skip
ROWS = [
    pytest.param(rule, *case, id=f"{rule}-{name}") for rule, cases in CASES.items() for name, *case in cases
]


@pytest.mark.parametrize(("rule", "atom_data", "context", "expected"), ROWS)
def test_named_case(rule, atom_data, context, expected):
    atom, data = atom_data
    if isinstance(expected, str):
        with pytest.raises(Refused) as refusal:
            RULES[rule].apply(atom, data, context)
        assert re.search(expected, str(refusal.value))
        return
    result, _ = RULES[rule].apply(atom, data, context)
    assert result == expected
    for seed in range(3):
        world = World(seed, context)
        assert same(world.atom(atom, world.theta), world.side(expected, world.theta))


def test_every_rule_for_single_samples_has_cases_of_both_kinds():
    """Those at an index are in test_kernel_rules_indexed.py, where no rule may be missing."""
    assert set(CASES) <= set(RULES)
    for rule, cases in CASES.items():
        refusals = sum(isinstance(case[-1], str) for case in cases)
        assert refusals >= 3 and len(cases) - refusals >= 3, rule


# ---------------------------------------------------------------------------- random atoms
LIVE = ("k1", "w", "log_q", "R", "A", "f", "f'", "g", "beta", "nu")
NAMES = (*LIVE, "sg(k1)", "sg(w)", "sg(f)", "sg(R)")
SMALL = st.sampled_from([-2, -1, 1, 2, 3, Fraction(1, 2), Fraction(-3, 2)])
MEASURE = st.sampled_from(["q", "p", "mu", "count"])
PROBABILITY = st.sampled_from(["q", "p", "mu"])
SCORE = st.sampled_from([(), ("x",), ("x",), ("x", "x")])


@st.composite
def elements(draw: Any, names: tuple[str, ...] = NAMES, largest: int = 3) -> ExpPoly:
    """A sum of up to `largest` terms: powers of names times exp of small multiples of them."""
    total = ExpPoly({})
    for _ in range(draw(st.integers(1, largest))):
        term = number(draw(SMALL))
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            term = term * ExpPoly.variable(name)
        if "beta" in names and draw(st.integers(0, 4)) == 0:
            term = term * beta.inverse()
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            term = term * (ExpPoly.variable(name) * draw(SMALL) * Fraction(1, 2)).exp()
        total = total + term
    return total


CONSTANTS = elements(("beta", "nu"), 2)


@st.composite
def sides(draw: Any, depth: int = 1) -> Side:
    """A combination of one or two products of atoms."""
    total = Side()
    for _ in range(draw(st.integers(1, 2))):
        chosen = draw(st.lists(atoms(depth), min_size=0 if depth == 0 else 1, max_size=2))
        total = total + Side.of((draw(CONSTANTS), tuple(chosen)))
    return total


@st.composite
def atoms(draw: Any, depth: int = 1) -> Any:
    kinds = ["E", "E", "divergence", "covariance", "bregman"]
    kinds += ["E", "point", "loss", "point loss", "gradient", "gradient"] if depth else []
    match draw(st.sampled_from(kinds)):
        case "E":
            return E(draw(MEASURE), draw(structured()), draw(SCORE))
        case "point":
            return Point(draw(elements()), draw(SCORE))
        case "loss":
            return ExpectedGradient(draw(PROBABILITY), draw(elements()))
        case "point loss":
            return PointGradient(draw(elements()))
        case "divergence":
            kind = draw(st.sampled_from(["KL", "chi2", "J"]))
            return Divergence(kind, draw(PROBABILITY), draw(PROBABILITY))
        case "covariance":
            return Covariance(draw(PROBABILITY), draw(elements()), draw(elements()))
        case "bregman":
            return Bregman(draw(elements(("k1", "beta"))))
    return Gradient(draw(sides(0)))


@st.composite
def structured(draw: Any) -> ExpPoly:
    """Coefficients that rules look for: constants, density ratios, detached weights."""
    ratios = [ONE, r, rho, k1.exp(), (w - k1).exp(), (-w).exp(), sg(rho), log_q.exp()]
    found, other = draw(st.sampled_from(ratios)), draw(elements())
    scaled = found * draw(CONSTANTS)
    return draw(st.sampled_from([scaled, scaled, scaled + other, found * other]))


# Premises that hold in every world and for every theta, so that their gradients agree too.
TRUE = (
    (KL("q", "p"), Em("q", k3)),
    (Em("q", r), C(1)),
    (Em("q", ONE, 1), N),
    (KL("q", "p", "J"), KL("q", "p") + KL("p", "q")),
    (Em("mu", rho * R), Em("q", R)),
)


@st.composite
def contexts(draw: Any) -> Context:
    value = draw(elements(("k1", "w", "A", "beta", "nu", "f", "sg(k1)"), 2))
    return Context(
        parameters=("beta", "nu"),
        functions=PLAIN.functions,
        on_policy=draw(st.booleans()),
        given=(("R", value),) if draw(st.booleans()) else (),
        premises=TRUE,
    )


NAMED = [lone(side) for side in (KL("q", "p"), KL("p", "mu", "chi2"), cov(k1, R), bregman(k3 * r))]


@st.composite
def likely(draw: Any, rule: str) -> Any:
    """Atoms of the kind that a rule works on."""
    if draw(st.integers(0, 3)) == 0:
        return draw(atoms())
    match rule:
        case "definition":
            named = draw(st.sampled_from(NAMED))
            return draw(st.sampled_from([named, Gradient(Side.of((draw(CONSTANTS), (named,))))]))
        case "chain rule":
            loss = draw(elements())
            return draw(st.sampled_from([ExpectedGradient("mu", loss), PointGradient(loss)]))
        case "log-derivative":
            return Gradient(Side.atom(E(draw(PROBABILITY), draw(elements()))))
        case "linearity":
            terms = [(draw(CONSTANTS), (atom,)) for atom in draw(st.lists(atoms(0), max_size=3))]
            return Gradient(Side.of((draw(CONSTANTS), ()), *terms))
        case "score mean zero" | "normalisation":
            random = draw(st.sampled_from([k1, N_, N_]))
            score = ("x",) if rule == "score mean zero" else ()
            measure = draw(st.sampled_from(["q", "q", *MEASURES]))
            return E(measure, draw(CONSTANTS) + random, score)
        case "ratio mean one":
            return E(draw(PROBABILITY), draw(st.sampled_from([r, rho, ONE])) * beta)
        case "premise":
            left = draw(st.sampled_from(TRUE))[0]
            return draw(st.sampled_from([lone(left), Gradient(left)]))
    return E(draw(PROBABILITY), draw(structured()), draw(SCORE))


@st.composite
def data_for(draw: Any, rule: str, atom: Any) -> dict[str, Any]:
    """Data that the rule may well accept."""
    data: dict[str, Any] = {}
    if rule == "premise":
        fits = [i for i, (left, _) in enumerate(TRUE) if atom in (lone(left), Gradient(left))]
        return {"number": draw(st.sampled_from([*fits, *fits, 0, len(TRUE)]))}
    if rule in ("change of measure", "ratio mean one"):
        key = "to" if rule == "change of measure" else "of"
        data[key] = draw(st.sampled_from([*MEASURES, "pi"]))
    elif rule not in ("score mean zero", "normalisation"):
        return {} if draw(st.integers(0, 9)) else {"to": "q"}
    if draw(st.integers(0, 2)):
        terms = sorted(getattr(atom, "coefficient", ONE).terms.items())
        data["part"] = draw(st.sampled_from([ExpPoly(dict([term])) for term in terms] or [ONE]))
        data["part"] = draw(st.one_of(st.just(data["part"]), CONSTANTS, elements())).to_json()
    return data


def assert_preserved(rule: str, before: Side, after: Side, context: Context) -> None:
    for seed in range(2):
        world = World(seed, context)
        values = world.side(before, world.theta), world.side(after, world.theta)
        assert same(*values), f"{rule}: {before.to_json()} is {values[0]}, got {values[1]}"


@pytest.mark.parametrize("rule", CASES)
def test_what_replaces_an_atom_has_its_value(rule):
    counts: Counter[bool] = Counter()

    @CHECK
    @given(st.data())
    def run(data: Any) -> None:
        context, atom = data.draw(contexts()), data.draw(likely(rule))
        try:
            result, _ = RULES[rule].apply(atom, data.draw(data_for(rule, atom)), context)
        except (Refused, NotInRing):
            counts[False] += 1
            return
        counts[True] += 1
        assert_preserved(rule, Side.atom(atom), result, context)

    run()
    assert min(counts[True], counts[False]) >= 10, counts


SUITED = {
    Gradient: ["definition", "linearity", "log-derivative", "premise"],
    ExpectedGradient: ["chain rule"],
    PointGradient: ["chain rule"],
    Divergence: ["definition"],
    Covariance: ["definition"],
    Bregman: ["definition"],
}


def test_a_chain_of_random_steps_preserves_the_value():
    counts: Counter[str] = Counter()

    @CHECK
    @given(st.data())
    def run(data: Any) -> None:
        context, side = data.draw(contexts()), data.draw(sides())
        for _ in range(6):
            places = [(i, j) for i, (_, found) in enumerate(side.terms) for j in range(len(found))]
            if not places:
                return
            term, factor = data.draw(st.sampled_from(places))
            atom = side.terms[term][1][factor]
            rule = data.draw(st.sampled_from(SUITED.get(type(atom), sorted(RULES))))
            step = {"rule": rule, "side": "left", "term": term, "factor": factor}
            step["data"] = data.draw(data_for(rule, atom))
            try:
                after, _ = apply_step({"left": side}, step, context)
            except (Refused, NotInRing):
                continue
            assert_preserved(rule, side, after, context)
            counts[rule] += 1
            side = after

    run()
    assert sum(counts.values()) >= 60 and len(counts) >= 6, counts


@CHECK
@given(st.lists(st.tuples(CONSTANTS, st.lists(atoms(), max_size=2)), max_size=3))
def test_the_canonical_form_of_a_side_has_the_value_of_what_was_written(terms):
    world = World(3)
    side = Side.of(*((c, tuple(found)) for c, found in terms))
    written = sum(
        world.value(c, world.theta)[0] * np.prod([world.atom(x, world.theta) for x in found])
        for c, found in terms
    )
    assert same(written, world.side(side, world.theta))
    assert Side.from_json(side.to_json()) == side
