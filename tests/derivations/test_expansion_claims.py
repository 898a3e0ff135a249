"""Claims about small KL divergences, and k2 as an f-divergence: texts by hand, checks that can fail."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from klsym.derivations import expansions
from klsym.derivations.tools.taylor import Expansion
from klsym.kernel.ring import ExpPoly
from klsym.ledger.evidence import Evidence
from klsym.ledger.registry import load, recall, settle

TEXTS = {
    "value.k2-bias-order": [
        "E_q[k2] - KL(q||p) = -E[eps^3]/6 + O(eps^4), the remainder at most 0.420 e^4",
        "f''(1) = 1 for f = (log x)^2/2 and f''(1) = 1 for f = -log x",
    ],
    "value.variance-small-kl": [
        "Var k1 = E[eps^2] + O(eps^3), the remainder at most 3.688 e^3",
        "Var k2 = Var(eps^2)/4 + O(eps^5), the remainder at most 2.694 e^5",
        "Var k3 = Var(eps^2)/4 + O(eps^5), the remainder at most 1.388 e^5",
    ],
    "value.k2-not-csiszar": [
        "f(x) = (log x)^2/2 has f'' = (1 - log(x))/x^2: it is convex for x <= e only",
        "where p <= e q, E_q[k2] = E_q[g(r)] with g convex: g = (log x)^2/2 for x <= e, g = x/e - 1/2 beyond",
        "E_q[k2] is a Csiszar f-divergence, with f(x) = (log x)^2/2",
    ],
}


@pytest.mark.parametrize("name", TEXTS)
def test_claims_settle_with_these_statements(name):
    settled = recall(name)
    assert (settled.status, settled.error, settled.trust) == ("settled", "", "sympy")
    assert [part.text for part in settled.parts] == TEXTS[name]
    for part in settled.parts:
        passed, line = part.oracle()
        assert passed and "\n" not in line
        assert part.latex.count("{") == part.latex.count("}")


def test_hypotheses_name_the_neighbourhood():
    settled = recall("value.k2-bias-order")
    assert settled.hypotheses == [
        "p << q: wherever p > 0, also q > 0",
        "e = sup |p/q - 1| is at most 1/2",
    ]


def test_the_printed_form_is_what_is_refuted():
    settled = recall("value.k2-not-csiszar")
    assert [part.kind for part in settled.parts] == ["exact", "exact", "refuted"]
    assert settled.printed == TEXTS["value.k2-not-csiszar"][2]


def test_the_limit_of_the_best_lambda():
    limit = expansions.optimal_lambda_limit()
    assert isinstance(limit, Evidence) and limit.kind == "exact"
    assert limit.text == (
        "lam* = 1 - E[eps^3]/(2*E[eps^2]) + O(eps^2), the remainder at most 0.546 e^2, so lam* -> 1 as p -> q"
    )
    assert "p is not q" in limit.hypotheses and limit.oracle()[0]


# ---------------------------------------------------------------------------- the numbers, by hand
def test_bounds_are_those_of_the_series():
    """|11/24 - 1/4| + ... : the tail of k2 - k3 at |eps| = 1/2, summed in floats."""
    log = [0.0] + [(-1) ** i / i for i in range(1, 200)]
    square = [sum(log[i] * log[n - i] for i in range(n + 1)) / 2 for n in range(200)]
    tails = {
        0.420: sum(abs(square[i] - log[i]) * 0.5 ** (i - 4) for i in range(4, 200)),
        3.688: 16 * (math.log(2) ** 2 - 0.25),
        0.546: sum(abs(log[i - 1]) * 0.5 ** (i - 4) for i in range(4, 200)),
    }
    for printed, value in tails.items():
        assert printed - 0.001 <= value <= printed


def k2_of(q, p):
    return sum(float(a) * math.log(b / a) ** 2 / 2 for a, b in zip(q, p, strict=True))


def test_merging_increases_k2_beyond_e_and_no_true_divergence():
    q, p = (
        (Fraction(1, 40), Fraction(1, 40), Fraction(19, 20)),
        (Fraction(1, 10), Fraction(2, 5), Fraction(1, 2)),
    )
    assert (q, p) == (expansions.Q, expansions.P) and sum(q) == sum(p) == 1
    merged = [(q[0] + q[1], q[2]), (p[0] + p[1], p[2])]
    assert k2_of(q, p) == pytest.approx(0.315802, abs=1e-6)
    assert k2_of(*merged) == pytest.approx(0.328236, abs=1e-6)
    assert min(p[0] / q[0], p[1] / q[1]) > math.e  # both in the concave part
    kl = [sum(float(a) * math.log(a / b) for a, b in zip(*pair, strict=True)) for pair in ((q, p), merged)]
    assert kl[1] < kl[0]


def test_merging_never_increases_k2_where_r_is_at_most_e():
    """The second part of the claim, on random models."""
    rng, tried = random.Random(1), 0
    while tried < 300:
        q, p = ([rng.uniform(0.05, 1) for _ in range(3)] for _ in range(2))
        q, p = ([x / sum(w) for x in w] for w in (q, p))
        if max(b / a for a, b in zip(q, p, strict=True)) <= math.e:
            tried += 1
            assert k2_of((q[0] + q[1], q[2]), (p[0] + p[1], p[2])) <= k2_of(q, p) + 1e-15


# ---------------------------------------------------------------------------- checks that can fail
@pytest.mark.parametrize(
    "name, position, changed",
    [("expected_expansion", 0, {"value.k2-bias-order"}), ("variance", 0, {"value.variance-small-kl"})],
)
def test_a_wrong_coefficient_is_caught(monkeypatch, name, position, changed):
    """Every term of the expansion a hundredth too large: the measured order drops."""
    right = getattr(expansions, name)

    def wrong(*arguments):
        found = right(*arguments)
        return Expansion(found.polynomial * ExpPoly.number(Fraction(101, 100)), found.order)

    monkeypatch.setattr(expansions, name, wrong)
    for claim in changed:
        assert not settle(load()[claim]).parts[position].oracle()[0]


def test_a_bound_that_is_too_small_is_caught(monkeypatch):
    monkeypatch.setattr(expansions, "expectation_bound", lambda loss, order: Fraction(1, 10))
    assert not settle(load()["value.k2-bias-order"]).parts[0].oracle()[0]


def test_variances_that_differ_do_not_settle(monkeypatch):
    right = expansions.variance

    def wrong(loss, order):
        found = right(loss, order)
        return Expansion(found.polynomial + ExpPoly.variable("E[eps^4]"), found.order)

    monkeypatch.setattr(expansions, "variance", lambda *a: wrong(*a) if a[1] == 5 else right(*a))
    settled = settle(load()["value.variance-small-kl"])
    assert settled.status == "failed" or not settled.parts[1].oracle()[0]


def test_a_model_without_increase_does_not_settle(monkeypatch):
    monkeypatch.setattr(expansions, "P", (Fraction(1, 40), Fraction(2, 40), Fraction(37, 40)))
    settled = settle(load()["value.k2-not-csiszar"])
    assert settled.status == "failed" and "not what was computed" in settled.error
    assert not settled.parts[2].oracle()[0]
