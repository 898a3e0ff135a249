"""Claims about small KL divergences, and k2 as an f-divergence: their checks can fail."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from klsym.derivations import expansions
from klsym.derivations.tools.taylor import Expansion
from klsym.kernel.ring import ExpPoly
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import recall, settle


def test_the_printed_form_is_what_is_refuted():
    settled = recall("value.k2-not-csiszar")
    assert [part.kind for part in settled.parts] == ["exact", "exact", "refuted"]
    assert settled.printed == settled.parts[2].text


def test_the_limit_of_the_best_lambda():
    limit = expansions.optimal_lambda_limit()
    assert isinstance(limit, Evidence) and limit.kind == "exact"
    assert limit.text == (
        "lam* = 1 - E[eps^3]/(2*E[eps^2]) + O(eps^2), the remainder at most 0.546 e^2, so lam* -> 1 as p -> q"
    )
    assert "p is not q" in limit.hypotheses and limit.oracle()[0]


# ---------------------------------------------------------------------------- the numbers, by hand


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
        return Expansion(found.polynomial * ExpPoly.from_number(Fraction(101, 100)), found.order)

    monkeypatch.setattr(expansions, name, wrong)
    for claim in changed:
        assert not settle(load()[claim]).parts[position].oracle()[0]


def test_a_bound_that_is_too_small_is_caught(monkeypatch):
    monkeypatch.setattr(expansions, "expectation_bound", lambda loss, order: Fraction(1, 10))
    assert not settle(load()["value.k2-bias-order"]).parts[0].oracle()[0]


def test_an_f_with_a_kink_is_caught(monkeypatch):
    """Neither |x - 1| nor |x - 1|^(3/2) agrees with its second order."""
    for power in (1, 1.5):
        monkeypatch.setattr(expansions, "SMOOTH", {"": lambda x, power=power: abs(x - 1) ** power})
        assert not settle(load()["value.k2-bias-order"]).parts[2].oracle()[0]


def test_variances_that_differ_do_not_settle(monkeypatch):
    right = expansions.variance

    def wrong(loss, order):
        found = right(loss, order)
        return Expansion(found.polynomial + ExpPoly.from_variable("E[eps^4]"), found.order)

    monkeypatch.setattr(expansions, "variance", lambda *a: wrong(*a) if a[1] == 5 else right(*a))
    settled = settle(load()["value.variance-small-kl"])
    assert settled.status == "failed" or not settled.parts[1].oracle()[0]


def test_a_model_without_increase_does_not_settle(monkeypatch):
    monkeypatch.setattr(expansions, "P", (Fraction(1, 40), Fraction(2, 40), Fraction(37, 40)))
    settled = settle(load()["value.k2-not-csiszar"])
    assert settled.status == "failed" and "not what was computed" in settled.error
    assert not settled.parts[2].oracle()[0]
