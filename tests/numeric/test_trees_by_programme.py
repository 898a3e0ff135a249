"""Trees against the dynamic programs: the same numbers for models with tied parameters."""

from __future__ import annotations

import numpy as np
import pytest

from klsym.derivations.tools.sequence_examples import offset_pair
from klsym.language.abbreviations import Covariance, Side
from klsym.numeric import autoregressive as chain
from klsym.numeric.checks import sequence_fields as fields
from klsym.numeric.exact import evaluate
from klsym.numeric.models import from_certificate
from support.oracle_atoms import *


def tree_of(q, p, mu, u, v):
    """The tree of all sequences of three models of one shape; u and v are directions of the tied logits."""

    def node(state, step):
        if step == q.max_length:  # stop is forced
            return {name: [1] for name in ("q", "p", "mu")} | {n: [0] for n in "uvR"} | {"next": [None]}
        after = [node(s, step + 1) for s in q.successors[state].tolist()]
        rows = {name: m.probabilities[state].tolist() for name, m in (("q", q), ("p", p), ("mu", mu))}
        rows |= {"u": u[state].tolist(), "v": v[state].tolist(), "R": [0] * (q.vocabulary + 1)}
        return {**rows, "next": [*after, None]}

    return from_certificate({"tree": node(0, 1), "parameters": {}})


def drawn(seed, vocabulary=2, memory=1, max_length=4):
    """Three random models, two random directions, and their tree."""
    shape = (vocabulary, memory, max_length)
    q, p, mu = (chain.random_autoregressive(seed + i, *shape) for i in range(3))
    u, v = np.random.default_rng(seed).normal(size=(2, *q.logits.shape))
    return q, p, mu, u, v, tree_of(q, p, mu, u, v)


def along(table, direction):
    return float((table * direction).sum())


def value(side, tree):
    return evaluate(claim(side), tree)[0]


# the side, and its value by dynamic programming
SIDES = {
    "KL": (KL("q", "p"), lambda q, p, mu, u: chain.sequence_kl(q, p)[0]),
    "KL, by tokens": (tokens("q", "p"), lambda q, p, mu, u: chain.sequence_kl(q, p)[0]),
    "forward KL": (tokens("p", "q", m="p"), lambda q, p, mu, u: fields.forward_kl(q, p)[0]),
    "grad KL": (REVERSE, lambda q, p, mu, u: along(chain.sequence_kl(q, p)[1], u)),
    "grad KL, score form": (over_t(k1("now"), "x"), lambda q, p, mu, u: along(chain.sequence_kl(q, p)[1], u)),
    "grad of the forward KL": (FORWARD, lambda q, p, mu, u: along(fields.forward_kl(q, p)[1], u)),
    "token field of k2": (
        gradient_over("t", k2("now")), lambda q, p, mu, u: along(chain.token_field(q, p, "k2"), u),
    ),
    "token field of k3": (
        gradient_over("t", k3("now")), lambda q, p, mu, u: along(chain.token_field(q, p, "k3"), u),
    ),
    "prefix weights": (
        over_t(rho("past") * rho("now") * k1("now"), "past", m="mu")
        + over_t(rho("past") * rho("now") * k1("now"), "now", m="mu"),
        lambda q, p, mu, u: along(chain.sequence_kl(q, p)[1], u),
    ),
    "token weights": (
        gradient_over("t", sg(rho("now")) * k2("now"), m="mu"),
        lambda q, p, mu, u: along(fields.token_weighted_field(q, p, mu), u),
    ),
    "mean length": (over_t(1), lambda q, p, mu, u: fields.length_gradient(q).mean),
    "mean of 1/T": (whole(length.inverse()), lambda q, p, mu, u: fields.length_gradient(q).inverse),
    "its gradient": (
        grad(whole(length.inverse())),
        lambda q, p, mu, u: along(fields.length_gradient(q).inverse_gradient, u),
    ),
    "mean k1 over the length": (
        gradient_over("t", k1("now") * length.inverse()),
        lambda q, p, mu, u: along(fields.length_gradient(q).inverse_gradient, u),
    ),
    "variance of the sum": (
        Side.atom(Covariance("q", k1("x"), k1("x"))), lambda q, p, mu, u: fields.kl_variances(q, p).sampled,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("seed", range(2))
def test_values_and_fields(name, seed):
    q, p, mu, u, _, tree = drawn(seed)
    side, expected = SIDES[name]
    assert value(side, tree) == pytest.approx(expected(q, p, mu, u), rel=1e-10, abs=1e-12)


def test_sides_differ_from_one_another():
    """The comparison is no coincidence of models where everything is the same."""
    tree = drawn(0)[-1]
    values = {name: round(value(side, tree), 9) for name, (side, _) in SIDES.items()}
    assert (
        len(set(values.values())) == len(values) - 4
    )  # KL twice, its gradient three times, that of 1/T twice


CURLS = {
    "k2": (k2("now"), lambda q, p: chain.token_field(q, p, "k2")),
    "k3": (k3("now"), lambda q, p: chain.token_field(q, p, "k3")),
    "kl": (sg(k1("x")) * k1("now"), lambda q, p: chain.sequence_kl(q, p)[1]),
}


@pytest.mark.parametrize("field", CURLS)
@pytest.mark.parametrize("seed", range(2))
def test_curls_are_central_differences_of_the_programmes(field, seed):
    """d_v F.u - d_u F.v."""
    q, p, _, u, v, tree = drawn(seed, max_length=3)
    loss, programme = CURLS[field]

    def slope(of, over, h=1e-5):
        moved = (chain.Autoregressive(q.logits + h * sign * over, 1, 3) for sign in (1, -1))
        up, down = (along(programme(model, p), of) for model in moved)
        return (up - down) / (2 * h)

    found = value(curl(loss), tree)
    assert found == pytest.approx(slope(u, v) - slope(v, u), rel=1e-6, abs=1e-9)
    assert (abs(found) < 1e-11) is (field == "kl")


@pytest.mark.parametrize(("loss", "expected"), [(k2, np.log(3) / 16), (k3, 1 / 16)])
def test_the_example_of_a_field_that_is_no_gradient(loss, expected):
    """u moves the token after a token, v the token at the start: log(3)/16 and 1/16 against 0."""
    tables = ([[0.5, 0.5], row] for row in ([0.5, 0.5], [0.25, 0.75]))
    q, p = (chain.Autoregressive(np.log(table), 1, 3) for table in tables)
    u, v = np.zeros((2, 2, 2))
    u[1, 0], v[0, 0] = 1, 1
    assert value(curl(loss("now")), tree_of(q, p, q, u, v)) == pytest.approx(expected, rel=1e-11)


def test_the_example_of_exact_steps_that_vary_more():
    q, p = offset_pair()
    tree = tree_of(q, p, q, *np.zeros((2, 2, 2)))
    side = Side.atom(Covariance("q", k1("x"), k1("x")))
    assert value(side, tree) == pytest.approx(fields.kl_variances(q, p).sampled, rel=1e-12)
