"""What the rules share: names, slots and densities, by their definitions."""

from __future__ import annotations

from fractions import Fraction

import pytest

from klsym.kernel.assumptions import Assumptions
from klsym.kernel.definitions import Definition
from klsym.kernel.densities import LOG_DENSITY, POWERS, find_power
from klsym.kernel.derivatives import attach, differentiate_by_means, move_to_slot, select_sample_part
from klsym.kernel.means import apply_log_derivative
from klsym.kernel.regions import apply_definition
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context, Gradient, Mean, Side
from support.certificates.faulty_certificates import ONE, V, beta, k1, lam, number, r, sg, w

CONTEXT = Context(parameters=("beta", "lam"))


def test_the_third_policy_is_no_measure():
    """o = log q - log old: of its densities q alone is one that is averaged over."""
    assert POWERS["o"] == {"q": 1, "old": -1} and "old" not in LOG_DENSITY


@pytest.mark.parametrize("name", [name for name in POWERS if name != "o"])
def test_a_log_ratio_is_the_log_of_powers_of_densities(name):
    total = sum((LOG_DENSITY[density] * power for density, power in POWERS[name].items()), number(0))
    assert total == V(name)


def drawn(index: str, *measures: str) -> tuple[set[object], set[str]]:
    assumed = Assumptions(CONTEXT)
    assumed.draw(index, *measures)
    return assumed.found, assumed.masses


def test_values_at_one_sample_are_not_drawn():
    assert drawn("t", "q", "sample") == ({("ends", "q")}, {"q"})
    assert drawn("it", "mu", "q") == ({(k, m) for k in ("ends", "batch") for m in ("q", "mu")}, {"q", "mu"})
    assert drawn("", "q", "count") == (set(), {"q"}) and drawn("i", "sample") == (set(), set())


def test_the_gradient_of_a_multiple():
    """A side that is not in normal form, as no certificate holds it: the coefficient is kept."""
    side = Side(((beta, (Mean("", "q", k1),)),))
    found = apply_log_derivative(Gradient(side), {}, Assumptions(CONTEXT))
    [(_, (mean,))] = [term for term in found.terms if isinstance(term[1][0], Mean)]
    assert mean == Mean("", "q", beta * k1, ("x",))


def test_parameters_have_no_slot():
    assert move_to_slot(beta * k1 + sg(w), "now", CONTEXT) == beta * V("k1[now]") + V("sg(w[now])")
    assert move_to_slot(beta * r, "x", CONTEXT) == beta * r


def test_an_attached_copy_is_the_value():
    assert attach(beta * sg(k1) + sg(w).exp()) == beta * k1 + w.exp()


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (beta * k1 * 2, k1),
        (beta.exp() * k1, k1),
        ((beta + k1).exp(), k1.exp()),
        ((beta * k1 + lam).exp() * beta, (beta * k1).exp()),
        (beta * (lam * 3).exp(), ONE),
    ],
)
def test_the_factor_that_changes_from_sample_to_sample(term: ExpPoly, expected: ExpPoly):
    [key] = term.terms
    assert select_sample_part(*key, CONTEXT) == expected


@pytest.mark.parametrize(
    ("exponent", "power"),
    [
        (k1 * 2 + beta + 1, 2),
        (number(1), 0),
        (beta * lam, 0),
        (w * Fraction(1, 2) - k1, Fraction(-1, 2)),
        (k1 * k1, None),
        (beta * k1, None),
        (V("R"), None),
    ],
)
def test_the_power_of_a_density(exponent: ExpPoly, power: Fraction | None):
    """exp(2 k1 + beta + 1) holds q^2: constants hold none, and what is no power of q has no number."""
    [(_, held)] = exponent.exp().terms
    assert find_power("q", "x", held, CONTEXT) == power


def test_two_names_of_one_expectation_move_together():
    """a = b = E_q[M]: d(a + 2 b)/dE_q[M] = 3, and a - b does not move."""
    a, b, M, R = map(V, ("first", "second", "M", "R"))
    context = Context(definitions=(Definition("first", "E_q", M), Definition("second", "E_q", M)))
    mean = Mean("", "q", M)
    assert differentiate_by_means(a + 2 * b, context) == {mean: number(3)}
    assert differentiate_by_means((a + b) * R, context) == {mean: 2 * R}
    assert differentiate_by_means((a - b) * R, context) == {}
    assert differentiate_by_means(a + sg(b), context) == {mean: ONE}


@pytest.mark.parametrize(
    ("index", "loss", "times", "parts"),
    [
        ("", V("mass") * V("R"), k1, (k1, V("mass") * (V("R") - k1))),
        ("", V("mass") * k1, k1, (k1,)),
        ("t", V("mass") * V("k1[now]"), V("k1[now]"), (V("k1[now]"),)),  # nothing is left beside it
    ],
)
def test_means_into_which_an_expectation_splits_one_are_assumed_to_exist(index, loss, times, parts):
    """E_p[a] = E_p[a - b v] + E E_p[b] with v = E: each mean that is not a constant's must exist."""
    assumed = Assumptions(Context(definitions=(Definition("mass", "E_q", V("M")),)))
    apply_definition(Mean(index, "p", loss), {"name": "mass", "times": times.to_json()}, assumed)
    assert {h for h in assumed.found if h[0] == "exists"} == {("exists", Mean(index, "p", x)) for x in parts}
