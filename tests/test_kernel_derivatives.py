"""What the rules share: names, slots and densities, by their definitions."""

from __future__ import annotations

import pytest
from drafts import ONE, V, beta, k1, lam, number, r, sg, w

from klsym.kernel.derivatives import LOG_DENSITY, POWERS, attach, in_slot, sample_part
from klsym.ring import ExpPoly
from klsym.statements import Context

CONTEXT = Context(parameters=("beta", "lam"))


@pytest.mark.parametrize("name", POWERS)
def test_a_log_ratio_is_the_log_of_powers_of_densities(name):
    total = sum((LOG_DENSITY[density] * power for density, power in POWERS[name].items()), number(0))
    assert total == V(name)


def test_parameters_have_no_slot():
    assert in_slot(beta * k1 + sg(w), "now", CONTEXT) == beta * V("k1[now]") + V("sg(w[now])")
    assert in_slot(beta * r, "x", CONTEXT) == beta * r


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
    assert sample_part(*key, CONTEXT) == expected
