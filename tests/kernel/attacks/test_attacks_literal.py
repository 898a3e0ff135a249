"""Certificates about regions against the losses as they are written, with samples on the bounds.

An expected gradient is computed from duals with the slopes of torch where pieces meet (kinked_losses.py), an
objective by differences; what the theorem says of it by the oracle of statements.  Neither knows the kernel.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import pytest

from klsym.kernel import Theorem, check
from klsym.kernel.statements import Gradient, MeanGradient, Side
from support.attacks.infinite_worlds import InfiniteWorld, Unjudged, contradicted
from support.attacks.judge import Outside, check_hypotheses
from support.attacks.judge_closings import TRUE, judged
from support.certificates.region_certificates import CERTIFICATES
from support.losses.kinked_losses import (
    Dual,
    Literal,
    Sequence,
    absolute,
    clamp,
    detach,
    expected_gradient,
    exponential,
    long,
    maximum,
    minimum,
    objective,
)
from support.oracle.definitions import signs
from support.oracle.numbers import LONG, Undefined, as_long
from support.oracle.statements import Oracle

F, HALF = Fraction, Fraction(1, 2)
EXACT = LONG.mpf(10) ** -35


@cache
def theorem(name: str) -> Theorem:
    [found] = check(CERTIFICATES[name]().certificate())
    return found


# ---------------------------------------------------------------------------- losses as they are written
def k3_of(s: Sequence, *steps: int) -> Dual:
    return exponential(-s.log("p", *steps)) - 1 + s.log("p", *steps)


def ppo(x: Dual, A: Fraction, v: Any) -> Dual:
    return -minimum(x * A, clamp(x, 1 - v["nu"], 1 + v["nu"]) * A)


def mean_ratio(s: Sequence) -> Dual:
    """(q/mu)^(1/T), exactly 1 where the ratio is 1."""
    log = s.log("mu") * F(1, len(s.q))
    return exponential(log) if log.value else Dual(F(1), log.slope)


def prefix_ratio(s: Sequence, t: int, v: Any) -> Dual:
    ratio = s.ratio("mu", *range(t + 1))
    return -detach(minimum(ratio, v["beta"])) * s.tokens[t].rewards["R"] * s.log("", t)


def masked(s: Sequence, v: Any) -> Fraction:
    return F(v["a"] <= s.ratio("mu").value <= v["lam"])


def token_mean(s: Sequence, t: int) -> Dual:
    k1 = s.log("p", t)
    kept = sum((token.rewards["M"] for token in s.tokens), F(0))
    return k1 * k1 * (HALF * s.tokens[t].rewards["M"] / kept)


class Written(NamedTuple):
    """A loss of the measure m, of a sequence or of its steps."""

    m: str
    loss: Callable[[Sequence, int, Any], Dual]
    steps: bool = False


LOSSES: dict[str, Written] = {
    "ppo": Written("mu", lambda s, t, v: ppo(s.ratio("mu"), s.A, v)),
    "ppo token": Written("mu", lambda s, t, v: ppo(s.ratio("mu", t), s.A, v), True),
    "ppo on policy": Written("q", lambda s, t, v: ppo(Dual(1, s.log("").slope), s.A, v)),
    "gspo": Written("mu", lambda s, t, v: ppo(mean_ratio(s), s.A, v)),
    "cispo": Written("mu", lambda s, t, v: -detach(minimum(s.ratio("mu"), v["beta"])) * s.A * s.log("")),
    "tis": Written("mu", lambda s, t, v: -minimum(s.mass("old").value / s.mass("mu").value, v["beta"])
        * s.ratio("old") * s.A),
    "icepop": Written("mu", lambda s, t, v: s.ratio("mu") * (-masked(s, v) * s.A)),
    "prefix ratio": Written("mu", prefix_ratio, True),
    "mask of tokens": Written("mu", lambda s, t, v: minimum(sum(x.rewards["M"] for x in s.tokens), 1)
        * s.log("p") * s.log("p") * HALF),
    "clamped k3": Written("q", lambda s, t, v: minimum(k3_of(s), 10)),
    "clamped k3 bias": Written("q", lambda s, t, v: clamp(k3_of(s), -1, 10)),
    "clamped k3 no ties": Written("q", lambda s, t, v: minimum(k3_of(s), 10)),
    "never chosen": Written("q", lambda s, t, v: maximum(s.log("p") * s.log("p") * HALF, s.log("p") - HALF)),
    "absolute": Written("q", lambda s, t, v: absolute(s.log("p"))),
    "sigmoid": Written("mu", lambda s, t, v: sigmoid(s.log("p"))),
    "kept token mean": Written("mu", lambda s, t, v: token_mean(s, t), True),
}  # fmt: skip
OBJECTIVES: dict[str, Written] = {
    "ppo objective": LOSSES["ppo"], "ppo token objective": LOSSES["ppo token"],
    "gspo objective": LOSSES["gspo"], "tis objective": LOSSES["tis"],
    "mask objective": Written("mu", lambda s, t, v: s.ratio("mu") * (-masked(s, v) * s.A)),
    "clamped k3 objective": LOSSES["clamped k3"],
    "absolute objective": Written("mu", LOSSES["absolute"].loss),
}  # fmt: skip
SEQUENCES = {name for name, of in {**LOSSES, **OBJECTIVES}.items() if of.steps or name.startswith("gspo")}


def sigmoid(x: Dual) -> Dual:
    value = 1 / (1 + LONG.exp(-long(x.value)))
    return Dual(value, value * (1 - value) * long(x.slope))


# ---------------------------------------------------------------------------- worlds
def parameters(rng: random.Random, literal: Literal) -> dict[str, Fraction]:
    """At times such that a ratio of a sequence, or of a step, is on a bound."""
    found = []
    for s in literal.sequences():
        steps = [(t,) for t in range(len(s.q))] + [(), tuple(range(2))[: len(s.q)]]
        found += [s.ratio("mu", *some).value for some in steps if all(x.mu for x in s.tokens)]
        found += [s.mass("old").value / s.mass("mu").value for _ in (0,) if s.mass("mu").value]
    ratio, other = (rng.choice(found or [F(1)]) for _ in range(2))
    low, high = sorted((ratio, other if rng.random() < 0.5 else rng.choice((HALF, F(2)))))
    nu = rng.choice((F(0), F(1), HALF, F(1, 3), abs(ratio - 1), abs(ratio - 1)))
    return {"nu": nu, "beta": rng.choice((ratio, F(1), F(3, 2), HALF)), "a": low, "lam": high}


def settings(name: str, zeros: bool = False) -> Any:
    """A random tree with parameters, and the oracle of the theorem there."""
    rng = random.Random(f"{name} {zeros}")
    while True:
        literal = Literal(rng, 3 if name in SEQUENCES else 1, zeros)
        values, definitions = parameters(rng, literal), theorem(name).statement.context.definitions
        used = {n: x for n, x in values.items() if n in theorem(name).statement.context.parameters}
        yield literal, values, Oracle(literal.world(used, definitions), as_long)


def on_bounds(name: str, m: str, oracle: Oracle) -> int:
    """How many samples are on the bound of a region."""
    world, found = oracle.world, 0
    for kind, e in world.definitions.values():
        if kind == "region":
            found += sum(sign == 0 for sign in signs(oracle, m, e))
    return found


def holds(name: str, oracle: Oracle) -> bool:
    """Is all satisfied that the theorem assumes?"""
    try:
        check_hypotheses(theorem(name), oracle, lambda x, y, peak: abs(x - y) < EXACT)
    except (Outside, Undefined):
        return False
    return True


def side_of(name: str, gradient: bool) -> Side:
    """The side that is an expected gradient (of a mean, if `gradient`), or the one that is not."""
    statement = theorem(name).statement
    kind = Gradient if gradient else MeanGradient
    left = any(isinstance(atom, kind) for _, atoms in statement.left.terms for atom in atoms)
    return statement.right if left else statement.left


# ---------------------------------------------------------------------------- expected gradients
MET = {"ppo", "ppo token", "ppo on policy", "cispo", "tis", "icepop", "prefix ratio", "absolute"}  # bounds


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.share(3)
def test_an_expected_gradient_is_that_of_the_loss_as_written(name):
    """Also at the kinks: nothing is assumed of bounds unless it is recorded."""
    written, counts = LOSSES[name], Counter[str]()
    for literal, values, oracle in settings(name):
        if counts["tried"] >= 30 and (counts["not 0"] >= 15 or counts["tried"] == 400):
            break
        counts["tried"] += 1
        if not holds(name, oracle):
            continue
        try:
            expected = expected_gradient(written.m, written.loss, literal, values, written.steps)
        except ZeroDivisionError:  # no token is kept
            continue
        statement = theorem(name).statement
        for side in (statement.left, statement.right):
            assert abs(oracle.side(side) - expected) < EXACT * (1 + oracle.peak), (name, values)
        counts["judged"] += 1
        counts["not 0"] += abs(expected) > EXACT
        counts["on a bound"] += bool(on_bounds(name, written.m, oracle))
    assert counts["not 0"] >= 15, counts
    assert counts["on a bound"] >= 3 or name not in MET, counts


ZEROS = ["ppo", "ppo token", "cispo", "tis", "icepop", "absolute", "sigmoid", "clamped k3 bias"]


@pytest.mark.parametrize("name", ZEROS)
@pytest.mark.share(3)
def test_where_densities_vanish_the_recorded_supports_suffice(name):
    """And where they are needed, the sides differ, or one has no value, in a world that violates them."""
    written, counts = LOSSES[name], Counter[str]()
    supports = {h for h in theorem(name).hypotheses if h[0] == "support"}
    for literal, values, oracle in settings(name, zeros=True):
        if counts["tried"] == 90:
            break
        counts["tried"] += 1
        within = holds(name, oracle)
        try:
            expected = expected_gradient(written.m, written.loss, literal, values, written.steps)
            right = oracle.side(theorem(name).statement.right)
        except (Undefined, ZeroDivisionError, ValueError):
            counts["undefined outside"] += not within
            continue
        same = abs(right - expected) < EXACT * (1 + oracle.peak)
        assert same or not within, (name, values)
        counts["judged"] += within
        counts["differ outside"] += not same
    assert counts["judged"] >= 15, counts
    assert counts["undefined outside"] + counts["differ outside"] >= 2 or not supports, counts


# ---------------------------------------------------------------------------- objectives
STEP = F(1, 10**18)


def slopes_beside(written: Written, literal: Literal, values: Any) -> list[Any]:
    """The difference quotients of the objective to the left and to the right."""

    def at(theta: Fraction) -> Any:
        return objective(written.m, written.loss, literal, values, written.steps, theta)

    return [(4 * at(h) - 3 * at(F(0)) - at(2 * h)) / long(2 * h) for h in (-STEP, STEP)]


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.share(3)
def test_an_objective_has_the_gradient_that_is_claimed(name):
    """Off the bounds; on them, the theorem assumes what fails, and some objective has a kink or a jump."""
    written, counts = OBJECTIVES[name], Counter[str]()
    for literal, values, oracle in settings(name):
        if counts["tried"] >= 30 and (counts["not 0"] >= 15 or counts["tried"] == 400):
            break
        counts["tried"] += 1
        if not holds(name, oracle):
            left, right = slopes_beside(written, literal, values)
            counts["outside"] += 1
            counts["kinks"] += abs(left - right) > 1e-6
            continue
        expected = oracle.side(side_of(name, gradient=True))
        left, right = slopes_beside(written, literal, values)
        assert max(abs(left - expected), abs(right - expected)) < 1e-10 * (1 + oracle.peak), (name, values)
        counts["judged"] += 1
        counts["not 0"] += abs(expected) > EXACT
    assert counts["not 0"] >= 15, counts
    assert counts["kinks"] >= 3 or name == "tis objective" or "clamped" in name, counts


# ---------------------------------------------------------------------------- all certificates
@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_certificate_is_true_in_random_worlds(name):
    assert judged(theorem(name)) == TRUE


INFINITE = ("ppo", "ppo token", "cispo", "icepop", "prefix ratio", "causal", "absolute")


@pytest.mark.parametrize("stake", [1.0, 2.0])
@pytest.mark.parametrize(
    "name", ["ppo", "ppo token", "cispo", "icepop", "prefix ratio", "causal", "absolute"]
)
@pytest.mark.share(3)
def test_and_in_infinite_worlds(name, stake):
    """Sequences without a longest one."""
    counts: Counter[str] = Counter()
    for q in ("1/2", "4/5"):
        for mu in ("1/2", "1/3", "4/5"):
            values = {"nu": 0.25, "beta": 1.5, "a": 0.5, "lam": 2.0}
            known = {n: x for n, x in values.items() if n in theorem(name).statement.context.parameters}
            world = InfiniteWorld({"q": q, "p": "1/3", "mu": mu, "old": "1/2"}, True, stake, known)
            try:
                assert not contradicted(theorem(name), world)
                counts["judged"] += 1
            except Unjudged:
                counts["not judged"] += 1
    assert counts["judged"] >= 1, counts


def test_an_infinite_world_tells_a_false_theorem():
    """Twice the gradient of PPO."""
    found = theorem("ppo token")
    wrong = replace(found.statement, right=found.statement.right * 2)
    world = InfiniteWorld({"q": "1/2", "p": "1/3", "mu": "1/3", "old": "1/2"}, True, 1.0, {"nu": 0.25})
    assert contradicted(replace(found, statement=wrong), world)
