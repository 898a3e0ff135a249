"""Claims about Gaussians: their checks can fail, and the quadrature is right."""

from __future__ import annotations

import math

import pytest
import sympy

from klsym.derivations import gaussians
from klsym.derivations.tools.gaussian_quadrature import mean
from klsym.study.gaussian.models import Gaussian
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import settle

CLAIMS = (
    "value.gaussian-table-near",
    "value.gaussian-table-far",
    "value.gaussian-crossover",
    "value.heavy-tail",
)


# ---------------------------------------------------------------------------- checks that can fail
def test_a_wrong_closed_form_is_caught(monkeypatch):
    """Closed forms at another q than the quadrature's."""
    right = gaussians.build_table
    monkeypatch.setattr(
        gaussians, "build_table", lambda q, p: right(Gaussian(0, sympy.Rational(101, 100)), p)
    )
    for name in CLAIMS[:2]:
        assert not settle(load()[name]).parts[0].oracle()[0]


@pytest.mark.parametrize("name", CLAIMS[2:])
def test_a_wrong_variance_is_caught(monkeypatch, name):
    monkeypatch.setattr(gaussians, "STANDARD", Gaussian(0, sympy.Rational(4, 5)))
    found = settle(load()[name])
    assert found.status == "failed" and "not what was computed" in found.error
    assert not any(part.oracle()[0] for part in found.parts[:2])


def test_a_tail_that_is_too_heavy_is_caught(monkeypatch):
    """The second moment of k3 does not settle at a = 0.9, and does not grow at a = 1.2."""
    for tails in ((0.9, 0.8), (1.5, 1.2)):
        monkeypatch.setattr(gaussians, "TAILS", tails)
        assert not settle(load()["value.heavy-tail"]).parts[2].oracle()[0]


@pytest.mark.parametrize("printed", ["0.0020", "0.0024", "0.004", "0.001"])
def test_a_printed_figure_that_is_wrong_in_its_digits_is_caught(monkeypatch, printed):
    figures = gaussians.PRINTED["near"] | {"k2": (printed, "1.42")}
    monkeypatch.setattr(gaussians, "PRINTED", {"near": figures})
    found = settle(load()[CLAIMS[0]])
    assert found.status == "failed" and "not what was computed" in found.error


# ---------------------------------------------------------------------------- quadrature itself
@pytest.mark.parametrize(
    "value, q, p, expected",
    [
        (lambda k: k**0, (3.0, 2.0), (0.0, 1.0), 1.0),
        (lambda k: k, (0.0, 1.0), (2.0, 1.0), 2.0),
        (lambda k: k, (1.0, 4.0), (0.0, 9.0), (math.log(9 / 4) + 5 / 9 - 1) / 2),
        (lambda k: math.e**-k, (0.0, 1.0), (1.5, 1.0), 1.0),
        (lambda k: math.e ** (-2 * k), (0.0, 1.0), (1.0, 1.0), math.e),
    ],
)
def test_quadrature_by_hand(value, q, p, expected):
    assert mean(value, q, p) == pytest.approx(expected, rel=1e-12)


def test_a_divergent_integral_grows_with_its_range():
    reaches = [mean(lambda k: math.e ** (-2 * k), (0.0, 1.0), (0.0, 2.5), reach) for reach in (5, 10, 20)]
    assert reaches[0] * 10 < reaches[1] < reaches[2] / 10
