"""Closed forms of stationary policies, each worked out by hand in floats."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from mpmath import lambertw

from klsym.language.convert import to_ring
from klsym.language.expressions import k1, k2, k3, log_q, r, rho
from klsym.study.questions.optimum import find_optimum
from klsym.study.render.optima import format_optimum, solve_closed_form

REWARDS, P, BETA = np.array([1.0, 0.0, 0.5]), np.array([0.2, 0.3, 0.5]), 0.7

# the penalty's coefficient, its closed form, and that form in floats
FORMS = {
    "k1": (k1, r"q_j = \frac{1}{Z}\, p_j\, \exp\!\left(\frac{R_j}{\beta}\right)",
        lambda nu: P * np.exp((REWARDS - nu) / BETA)),
    "2 k1": (2 * k1, r"q_j = \frac{1}{Z}\, p_j\, \exp\!\left(\frac{R_j}{2\, \beta}\right)",
        lambda nu: P * np.exp((REWARDS - nu) / BETA / 2)),
    "-r": (-r, r"q_j = \frac{\beta\, p_j}{\nu - R_j}", lambda nu: BETA * P / (nu - REWARDS)),
    "log q": (log_q, r"q_j = \frac{1}{Z}\, \exp\!\left(\frac{R_j}{\beta}\right)",
        lambda nu: np.exp((REWARDS - nu) / BETA)),
    "k1 + log q": (k1 + log_q,
        r"q_j = \frac{1}{Z}\, p_j^{\tfrac{1}{2}}\, \exp\!\left(\frac{R_j}{2\, \beta}\right)",
        lambda nu: np.sqrt(P) * np.exp((REWARDS - nu) / BETA / 2)),
    "k1 - 2 r": (k1 - 2 * r,
        r"q_j = p_j / r_j,\quad r_j = \tfrac{1}{2}\, W\!\left(2\, e^{(\nu - R_j)/\beta}\right)",
        lambda nu: P / (np.array([float(lambertw(2 * np.exp((nu - x) / BETA)).real) for x in REWARDS]) / 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_the_form_is_the_policy(name):
    c, shown, policy = FORMS[name]
    assert solve_closed_form(to_ring(c)) == shown
    [found] = find_optimum(to_ring(c), BETA, list(REWARDS), list(P)).stationary
    assert np.abs(policy(found.multiplier) - np.array(found.policy)).max() < 1e-10


def test_forms_with_branches():
    """k3 and k2 in the reward: each policy found lies on one of the branches."""
    assert solve_closed_form(to_ring(k3)) == (
        r"q_j = p_j / r_j,\quad r_j = -W\!\left(-e^{(\nu - R_j)/\beta}\right)\ \text{on either branch}"
    )
    for found in find_optimum(to_ring(k3 + 1), BETA, list(REWARDS), list(P)).stationary:
        for q, p, reward in zip(found.policy, P, REWARDS, strict=True):
            inner = -np.exp((found.multiplier - reward) / BETA)
            branches = [float(-lambertw(inner, k).real) for k in (0, -1)]
            assert min(abs(p / q - branch) for branch in branches) < 1e-6 * p / q
    assert solve_closed_form(to_ring(k2)) == (
        r"q_j = p_j\, \exp\!\left(\pm\sqrt{\frac{2\, (R_j - \nu)}{\beta}}\right)"
    )
    for found in find_optimum(to_ring(k1 + k2), BETA, list(REWARDS), list(P)).stationary:
        for q, p, reward in zip(found.policy, P, REWARDS, strict=True):
            root = np.sqrt(1 + (reward - found.multiplier) / (BETA / 2))
            assert min(abs(np.log(q / p) - x) for x in (-1 + root, -1 - root)) < 1e-6


@pytest.mark.parametrize("c", [rho * k1, k1 * r, k1**3, k1 - log_q, k2 - r])
def test_what_does_not_invert_has_no_form(c):
    assert solve_closed_form(to_ring(c)) is None


def test_the_table():
    found = find_optimum(to_ring(k2), 1.0, [1.0, 0.0, 0.5], [0.2, 0.3, 0.5])
    lines = format_optimum("k2", Fraction(1, 2), found, ("no restoring force at q = p",)).splitlines()
    assert lines[0] == "where training with rewards and the penalty 0.5*k2 ends"
    assert lines[1].split(maxsplit=1)[1].startswith("policy with mass on every outcome, and no other  ")
    assert lines[2].startswith("  inside   q = (0.") and re.search(r"\), (not )?stable, nu = -?\d", lines[2])
    assert len(lines) == 4 + len(found.stationary) + len(found.boundary)
    assert lines[-2] == "  note     no restoring force at q = p"


def test_what_has_no_room_is_counted():
    found = find_optimum(to_ring(k2), 1.0, [1.0, 0.0, 0.5], [0.2, 0.3, 0.5])
    warnings = tuple(f"remark {number}" for number in range(20))
    for width, most in ((100, 12), (60, 16)):
        lines = format_optimum("k1 - r", Fraction(1, 3), found, warnings, width).splitlines()
        assert " ".join(lines).startswith("where training with rewards and the penalty 1/3*(k1 - r)")
        assert len(lines) <= most and max(map(len, lines)) <= width and " more lines: to_json()" in lines[-2]
