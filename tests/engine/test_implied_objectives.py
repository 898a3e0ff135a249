"""f, its region and its strength as `explain` prints them, against floats that share nothing with klsym."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import klsym
from klsym import calculus
from support.judges import implied_judge
from support.scale import scaled

COUNT = scaled(100, 16)


def told(loss: str, **setting: Any) -> dict[str, Any]:
    return klsym.explain(loss, **setting).to_json()["gradient"]


@pytest.mark.parametrize("number", range(COUNT))
@pytest.mark.share(3)
def test_a_random_coefficient(number: int) -> None:
    """A detached reward is its own coefficient; the thousand are `make implied`."""
    c = implied_judge.coefficient(7, number)
    answer = told(c, use="reward")
    if answer["f"] is None:
        assert answer["target"] == "zero"
        return
    assert implied_judge.faults(c, answer, number) == []


WRONG = {
    "another f": {"f": "r - log(r) - 1 + (r - 1)**2"},
    "f that is not normalised": {"f": "r - log(r)"},
    "the other divergence": {"f": "r*log(r) - r + 1"},
    "twice the strength": {"fisher_strength": "2"},
    "no strength": {"fisher_strength": "0"},
    "half of the region": {"genuine_divergence": {"holds": False, "where": "r <= 1"}},
    "no region": {"genuine_divergence": {"holds": False, "where": None}},
}


@pytest.mark.parametrize("name", WRONG)
def test_the_judge_notices(name: str) -> None:
    right = {
        "f": "r - log(r) - 1",
        "fisher_strength": "1",
        "genuine_divergence": {"holds": True, "where": None},
    }
    assert implied_judge.faults("k1", right, 3) == []
    assert implied_judge.faults("k1", right | WRONG[name], 3) != []


def test_a_region_that_is_too_large_is_noticed() -> None:
    answer = told("rho*k2", sampling="off-policy")
    c = "k1 + k2"
    assert answer["genuine_divergence"] == {"holds": False, "where": "r <= e"}
    assert implied_judge.faults(c, answer, 1) == []
    for where in ("r <= 3.3", "r <= 2.4", "r >= e"):
        assert implied_judge.faults(c, answer | {"genuine_divergence": {"holds": False, "where": where}}, 1)


# a reward with parameters, where f is convex, what it says beside it
PARAMETERS = {
    "k(lam)": ("lam*r <= 1", "everywhere if lam <= 0"),
    "lam*k1 + k3": ("r <= lam + 1", None),
    "lam*k1 - beta*r": ("beta*r + lam >= 0", "everywhere if beta >= 0 and lam >= 0"),
    "lam*k1": ("lam >= 0", None),
    "lam*k1 + beta*k2": ("beta*log(r) <= lam", "everywhere if beta = 0 and lam >= 0"),
    "beta*k1*r": ("beta*(log(r) + 1) >= 0", "everywhere if beta = 0"),
}


@pytest.mark.parametrize("loss", PARAMETERS)
def test_a_region_with_parameters(loss: str) -> None:
    """The printed condition has the sign of -dc/dlog r, by differences of the loss as it is written."""
    where, beside = PARAMETERS[loss]
    verdict = klsym.explain(loss, use="reward")
    assert told(loss, use="reward")["genuine_divergence"] == {"holds": False, "where": where}
    assert beside is None or beside in verdict.text(full=True)
    stream = np.random.default_rng(0)
    seen = set()
    for lam, beta, log_r in stream.normal(size=(200, 3)) * 2:
        ratios = np.exp(np.array([log_r - 1e-5, log_r + 1e-5]))
        k1 = -np.log(ratios)
        values = {
            "k(lam)": k1 + lam * (ratios - 1), "lam*k1 + k3": lam * k1 + ratios - 1 + k1,
            "lam*k1 - beta*r": lam * k1 - beta * ratios, "lam*k1": lam * k1,
            "lam*k1 + beta*k2": lam * k1 + beta * k1**2 / 2, "beta*k1*r": beta * k1 * ratios,
        }[loss]  # fmt: skip
        expected = values[0] - values[1] > 0
        seen.add(expected)
        assert implied_judge.holds(where, float(np.exp(log_r)), lam=lam, beta=beta) == expected
    assert seen == {True, False}


def test_parameters_that_do_not_matter() -> None:
    assert told("lam**2*k1", use="reward")["genuine_divergence"] == {"holds": True, "where": None}
    assert told("lam*k1 + beta*k2 + r*k1", use="reward")["genuine_divergence"] is None  # open


# off-policy losses without a region in r alone: c(q, p, mu), and where it rises with q
WITHOUT_NAME = {
    "k2": (
        lambda q, p, mu: mu / q * np.log(q / p), "convex in q where r >= 1/e", lambda r, rho: r >= 1 / np.e,
    ),
    "k3": (lambda q, p, mu: mu / q * (1 - p / q), "convex in q where r >= 0.5", lambda r, rho: r >= 0.5),
    "k1": (lambda q, p, mu: mu / q, "convex nowhere", lambda r, rho: False),
    "rho*log(rho)": (
        lambda q, p, mu: q / q * (np.log(q / mu) + 1), "convex in q", lambda r, rho: True,
    ),
    "rho*log(rho)**2": (
        lambda q, p, mu: np.log(q / mu) ** 2 + 2 * np.log(q / mu), "convex in q where rho >= 1/e",
        lambda r, rho: rho >= 1 / np.e,
    ),
}  # fmt: skip


@pytest.mark.parametrize("loss", WITHOUT_NAME)
def test_an_objective_without_a_name(loss: str) -> None:
    """c at one outcome, from the definition of the estimator, against where it is said to rise with q."""
    c, printed, where = WITHOUT_NAME[loss]
    verdict = klsym.explain(loss, sampling="off-policy")
    assert verdict.target == "own-mean" and printed in verdict.text(full=True)
    stream = np.random.default_rng(1)
    for q, p, mu in stream.uniform(0.01, 1, size=(200, 3)):
        rises = c(q * (1 + 1e-6), p, mu) > c(q, p, mu)
        assert rises == bool(where(p / q, q / mu))
    warned = any("is convex in q" in w for w in verdict.warnings)
    assert warned == (not printed.endswith("convex in q"))


# a reward less a penalty, and the like: what is ascended and what is descended
WHOLE = {
    ("R - beta*k3", "on-policy", "reward"): (
        "E_q[R]",
        "beta*(2*r - log(r) - r*log(r) - 2)",
        "beta*(1 - r) >= 0",
    ),
    ("R - 2*k2", "on-policy", "reward"): ("E_q[R]", "log(r)**2 + 2*log(r) - 2*r + 2", "r <= 1"),
    ("A - k1", "on-policy", "reward"): ("E_q[A]", "r - log(r) - 1", None),
    ("k1 - R", "on-policy", "reward"): ("-E_q[R]", "log(r) - r + 1", ""),
    ("rho*(beta*k3 - R)", "off-policy", "loss"): ("E_q[R]", "beta*(r - log(r) - 1)", "beta >= 0"),
    ("rho*(k2 - R)", "off-policy", "loss"): ("E_q[R]", "log(r)**2/2", "r <= e"),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_whole_objective(case: tuple[str, str, str]) -> None:
    """The update raises E_q[reward] - E_q[f(r)]: its gradient is the literal field, by differences."""
    loss, sampling, use = case
    mean, f, where = WHOLE[case]
    verdict = klsym.explain(loss, sampling=sampling, use=use)
    gradient = verdict.to_json()["gradient"]
    turned = mean.startswith("-")
    said = f"minimises {mean[1:]} + E_q[f(r)]" if turned else f"maximises {mean} - E_q[f(r)]"
    assert f"{said} with f = {f}" in verdict.text(full=True) and gradient["f"] == f
    assert gradient["genuine_divergence"] == {"holds": where is None, "where": where or None}
    model, beta = implied_judge.Model(5), 0.3
    paid = np.array([1.0, -0.5, 0.3, 2.0])

    def whole(t: float) -> float:
        return float((model.q(t) * paid).sum()) * (-1 if turned else 1) - model.objective(f, t)

    q, mu = model.q(), np.array([0.1, 0.2, 0.3, 0.4])
    k1 = np.log(q / model.p)
    score = model.u - (q * model.u).sum()
    if use == "reward":
        by_hand = {"R - beta*k3": paid - beta * (model.p / q - 1 + k1), "R - 2*k2": paid - k1**2,
                   "A - k1": paid - k1, "k1 - R": k1 - paid}[loss]  # fmt: skip
        ascent = float((q * by_hand * score).sum())
    else:

        def literal(t: float) -> float:
            """E_mu[L] with mu fixed."""
            now = model.q(t)
            k = np.log(now / model.p)
            penalty = {"rho*(beta*k3 - R)": beta * (model.p / now - 1 + k), "rho*(k2 - R)": k**2 / 2}[loss]
            return float((mu * now / mu * (penalty - paid)).sum())

        ascent = -(literal(1e-5) - literal(-1e-5)) / 2e-5
    assert abs((whole(1e-5) - whole(-1e-5)) / 2e-5 - ascent) < 1e-7


# outside the ring, as detached rewards, which are their own coefficients: is f known, where is it convex
OUTSIDE = {
    "-log((1 + r)/2)/2": (True, True, None),
    "log(1 + r)": (True, False, None),
    "1/(1 + r)": (True, True, None),
    "r/(1 + r)": (True, False, None),
    "1/(1 + r)**2": (True, True, None),
    "sqrt(2)*k1*r": (True, False, "r >= 1/e"),
    "k1 - log(1 + r)": (True, True, None),
    "k1 + log(1 + r)**2/8": (False, None, None),  # neither f nor the region
    "sqrt(1 + r)": (False, False, None),
    "exp(-r)": (False, True, None),
    "abs(k1)": (True, False, "r <= 1"),
    "min(k1, 3)": (True, True, None),
    "clip(k1, -2, 1)": (True, True, None),
    "clip(k2, -1, 2)": (True, False, "r <= 1 or r >= exp(2)"),
    "clip(k3, -10, 10)": (False, False, "r <= 1 or r >= 13.6109"),
    "clip(r, 0.5, 2)": (False, False, "r <= 0.5 or r >= 2"),
    "abs(k1 - 1)": (True, False, "r <= 1/e"),
    "max(k1, 2*k1)": (True, True, None),
    "min(k1, 2*k1) - r/4": (True, True, None),
}


@pytest.mark.parametrize("c", OUTSIDE)
@pytest.mark.share(3)
def test_outside_the_ring(c: str) -> None:
    known, holds, where = OUTSIDE[c]
    verdict = klsym.explain(c, use="reward")
    answer = verdict.to_json()["gradient"]
    expected = None if holds is None else {"holds": holds, "where": where}
    assert (answer["f"] is not None, answer["genuine_divergence"]) == (known, expected)
    assert verdict.trust in ("sympy", "kernel") and bool(answer["objective"]) == known
    if known:
        assert implied_judge.faults(c, answer, 1) == []
    assert not known or calculus.parse(answer["f"]).has(calculus.r, calculus.k1)


STRENGTHS = {  # loss, use -> what is said of f''(1)
    ("sqrt(k3)", "reward"): "f''(1) is not known", ("sqrt(k3)**3", "loss"): "f''(1) is not known",
    ("log(r)/(r-1)", "loss"): "f''(1) is not known", ("abs(k1)", "loss"): "a kink at r = 1",
    ("max(r,1)", "loss"): "a kink at r = 1", ("log(1+r)", "reward"): "f''(1) = ",
}  # fmt: skip


@pytest.mark.parametrize(("loss", "use"), STRENGTHS)
def test_what_is_said_where_q_is_p(loss: str, use: str) -> None:
    """In text and JSON; LaTeX and Markdown are written all the same."""
    said, verdict = STRENGTHS[loss, use], klsym.explain(loss, use=use)
    assert said in verdict.text(full=True) and verdict._repr_latex_()
    strength = verdict.to_json()["gradient"]["fisher_strength"]
    assert (strength is None) == (" = " not in said or "kink" in said)


def test_a_difference_of_absolute_logs_is_the_total_variation() -> None:
    """E_q[sign(k1) s] = grad sum |p - q|, by differences; a kink at r = 1 has no strength."""
    verdict = klsym.explain("abs(k1)")
    told_of_abs = verdict.to_json()["gradient"]
    assert told_of_abs["f"] == "abs(r - 1)" and told_of_abs["fisher_strength"] is None
    assert told_of_abs["genuine_divergence"] == {"holds": True, "where": None}
    assert "a kink at r = 1" in verdict.text(full=True)
    assert not any("restoring" in w for w in verdict.warnings)
    model = implied_judge.Model(4)
    q = model.q()
    field = (q * np.sign(np.log(q / model.p)) * (model.u - (q * model.u).sum())).sum()
    ends = [np.abs(model.p - model.q(t)).sum() for t in (1e-6, -1e-6)]
    assert abs((ends[0] - ends[1]) / 2e-6 - field) < 1e-8


def test_a_fall_of_c_parts_its_regions() -> None:
    """The slope of -abs(k1) jumps down at r = 1: concave there, and flat on both sides."""
    answer = told("-abs(k1)")
    assert answer["genuine_divergence"] == {"holds": False, "where": "everywhere but not across r = 1"}
    assert answer["f"] == "-abs(r - 1)"


def test_intervals_that_meet_are_told_as_one() -> None:
    """The clamp is convex on either side of r = exp(-40), where its slope falls: no word of two intervals."""
    verdict = klsym.explain("clip(k1, -40, 40)")
    place = "everywhere but not across r = exp(-40)"
    assert verdict.to_json()["gradient"]["genuine_divergence"] == {"holds": False, "where": place}
    assert f"convex {place}" in verdict.text(full=True) and not any("unless" in w for w in verdict.warnings)
    both = told("exp(clip(-k1, -40, 40)) - 1 - clip(-k1, -40, 40)")["genuine_divergence"]
    assert both["where"] == "everywhere but not across r = exp(-40) or r = exp(40)"


@pytest.mark.parametrize("loss", ["beta*k3", "2*beta*k3", "beta*k3/3"])
def test_conditions_on_parameters_are_told_once(loss: str) -> None:
    """2 beta >= 0 and beta <= 0 is beta = 0."""
    text = klsym.explain(loss, "off-policy").text(full=True)
    assert "(everywhere if beta = 0)" in text
