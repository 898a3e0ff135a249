"""explain for centred batches: covariances, normalisation by the standard deviation, printed forms.

Each is judged by enumeration of all batches of one sample of three outcomes (batch_judge.py).
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest

from klsym.api import Verdict, explain
from klsym.engine.proof.numeric_curl import choose_second_direction
from klsym.language.parser import parse
from klsym.notation.printers import LATEX
from klsym.notation.values import collect_names, show_value
from klsym.numeric.checks.cross_check import with_check
from klsym.render.objective import write_objective_latex
from support.judges import batch_judge as judge
from support.losses.cases import options

CLOSE = 1e-10


@cache
def ask(loss: str, words: str) -> Verdict:
    return explain(loss, **options(words))


CHECKED = [("k1", "loo"), ("beta*k2 - rho*A", "mean"), ("R - beta*k1", "reward loo"), ("rho*k3", "off mean"),
           ("rho*(1 - r)", "off reward loo"), ("R*k1", "off reward mean"), ("A - k1", "sequence reward /T"),
           ("-min(rho*A, clip(rho, 0.8, 1.2)*A) + beta*k3", "off loo")]  # fmt: skip


@pytest.mark.parametrize(("loss", "words"), CHECKED)
@pytest.mark.share(3)
def test_the_cross_check_agrees(loss: str, words: str) -> None:
    checked = with_check(ask(loss, words), parse(loss))
    assert checked.proof.check is not None and checked.proof.check["passed"], checked.proof.check


H_I = r"H_i - \tfrac{1}{n}\,\left(H_i + \sum_{j\ne i} H_j\right)"
OF_BATCH = "H[others] H[self] n"
MADE = [
    ("k3", "loo", r"H_i - \tfrac{1}{n - 1} \sum_{j\ne i} H_j", OF_BATCH),
    ("abs(k1)", "mean", H_I, OF_BATCH),
    ("R", "reward std", rf"\frac{{{H_I}}}{{\mathit{{std}}}}", f"{OF_BATCH} std"),
    ("k3", "token /batch", r"\frac{(1 - r_t)\,s_t\,n}{T_i + \sum_{j\ne i} T_j}",
     "k1[now] length[others] length[self] n s[now]"),
    ("normalised(R) - beta*k1", "reward", None, f"{OF_BATCH} beta k1[self] s[self] std"),
    ("full(k1) + abs(k1)", "", None, "log_p log_q s"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "latex", "named"), MADE)
def test_h_is_a_value(loss: str, words: str, latex: str | None, named: str) -> None:
    """It can be printed in LaTeX, and says what it is made of."""
    verdict = ask(loss, words)
    assert not isinstance(verdict.gradient.score_coefficient, str) and not isinstance(
        verdict.gradient.canonical_coefficient, str
    )
    assert collect_names(verdict.gradient.score_coefficient) == {*named.split()}
    assert latex is None or show_value(verdict.gradient.score_coefficient, LATEX) == latex


def test_a_verdict_without_steps_has_no_latex() -> None:
    verdict = ask("normalised(R) - beta*k1", "reward")
    assert not verdict.proof.steps and verdict._repr_latex_() is None
    assert "$$" in (ask("k1", "reward mean")._repr_latex_() or "")


def test_multiples_shrink_with_the_batch_mean() -> None:
    """By 1 - 1/n; a loss may name n itself."""
    parts = ask("R - beta*k1", "reward mean").to_json()["gradient"]["combination"]
    at = {"n": 4, "beta": 0.7, "R": 1.7}
    assert judge.value(parts["reverse-kl"], at) == pytest.approx(-0.7 * 3 / 4)
    assert judge.value(parts["reward"], at) == pytest.approx(1.7 * 3 / 4)
    named = ask("n*k1", "reward mean").gradient.multiples["reverse-kl"]
    assert judge.value(named, {"n": 5}) == pytest.approx(4)


def test_what_the_names_of_a_batch_stand_for_is_declared() -> None:
    declared = ask("rho*loo(R)", "off reward").to_json()["names"]
    assert declared["m"] == "n - 1" and declared["R_others"] == "the sum of R over the other n - 1 samples"


@pytest.mark.parametrize(
    "u", [["1", "0"], ["0", "1"], ["1", "0", "0"], ["0", "1", "0"], ["0", "0", "0", "1"]]
)
def test_the_two_directions_of_a_curl_differ(u: list[str]) -> None:
    """Along one direction twice every curl is 0, so that a model would be tried in vain."""
    v = choose_second_direction(u)
    assert v != u and len(v) == len(u) and sorted(v) == sorted(u)


@pytest.mark.parametrize("digits", [15, 50])
def test_the_digits_that_are_set_elsewhere_change_nothing(digits: int) -> None:
    """Fifteen is what mpmath has when nobody asks for more."""
    with mpmath.workdps(digits):
        assert explain("M*(clip(rho*A, A + k1, A)*R)", **options("off loo")).target == "no-objective"


# ---------------------------------------------------------------------------- covariances under mu
def field(h: str, words: str, batch: str, n: int, theta: Any = judge.THETA) -> Any:
    return judge.field(judge.formula(h), theta, "off" not in words, batch, n)


def slopes(of: Any) -> Any:
    """Central differences along each logit."""
    moved = [[of(judge.THETA + sign * judge.STEP * e) for sign in (1, -1)] for e in np.eye(3)]
    return np.array([(up - down) / (2 * judge.STEP) for up, down in moved])


def covariance(a: str, b: str, theta: Any) -> float:
    def mean(text: str) -> float:
        return judge.mean_under_mu(text, theta)

    return mean(f"({a})*({b})") - mean(a) * mean(b)


COVARIANCES: list[tuple[str, str, str, list[tuple[float, str, str]]]] = [
    # loss, how it is used, h; the objective as multiples of Cov_mu
    ("k1", "off reward", "k1", [(0.5, "k1", "k1")]), ("lam*k1", "off reward", "lam*k1", [(0.5, "lam*k1",
    "k1")]),
    ("R - beta*k1", "off reward", "R - beta*k1", [(1, "R", "log_q"), (-0.5, "beta*k1", "k1")]),
    ("k2", "off", "k1", [(0.5, "k1", "k1")]),
    ("rho*r + log_q", "off reward", "rho*r + log_q", [(0.5, "log_q", "log_q"), (1, "rho*r", "log_q")]),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "h", "parts"), COVARIANCES, ids=str)
@pytest.mark.parametrize("batch", ["mean", "loo"])
def test_a_covariance_is_the_objective(loss: str, words: str, h: str, parts: Any, batch: str) -> None:
    """The field of all batches of three draws, beside central differences of covariances under a fixed mu."""
    verdict = ask(loss, f"{words} {batch}")
    assert (verdict.target, verdict.trust) == ("objective", "kernel")
    assert "_mu(" in verdict.to_json()["summary"]
    gradient = slopes(lambda theta: sum(scale * covariance(a, b, theta) for scale, a, b in parts))
    scale, name = (1, "leave-one-out") if batch == "loo" else (1 - 1 / 3, "mean")
    assert np.abs(field(h, words, name, 3) - scale * gradient).max() < 1e-8


def test_a_detached_quotient_over_a_sum_of_samples_is_answered() -> None:
    verdict = ask("sg(sg(k3*k3)*log(1 + k3**2)/loo(rho))", "")
    assert verdict.target == "zero" and verdict.counterexample.model is None and str(verdict)


def test_no_covariance_where_a_reward_multiplies_k1() -> None:
    """Cov_mu(R k1, s) has a curl: it is no gradient of E_mu[R k1**2]/2 less anything."""
    verdict = ask("R*k1", "off reward loo")
    assert (
        verdict.target == "no-objective"
        and write_objective_latex(verdict) is None
        and "Cov" not in str(verdict)
    )


# ---------------------------------------------------------------------------- the standard deviation
STD = ["k1", "R - beta*k1", "k1**3", "rho*k1", "R", "log_q", "A - k1", "k1 - k1", "2*k1", "rho"]


def slope_of(h: str) -> float | None:
    """dh/dlog q, if it is the same number at all outcomes."""
    moved = slopes(lambda theta: np.array([judge.formula(h)(x, theta) for x in range(3)]))
    found = moved.T / judge.scores(judge.THETA)
    return float(found[0, 0]) if np.ptp(found) < 1e-6 else None


@pytest.mark.parametrize("h", STD)
@pytest.mark.parametrize("words", ["", "off "])
def test_std(h: str, words: str) -> None:
    """zero for constants; on-policy refuted at n = 2; under mu a gradient exactly where h moves alike."""
    verdict = ask(h, f"{words}reward std")
    h = h if words else h.replace("rho", "1")
    fields = {n: lambda theta, n=n: field(h, words, "std", n, theta) for n in (2, 3)}
    if np.ptp([judge.formula(h)(x, judge.THETA) for x in range(3)]) < 1e-12:
        expected = "zero"
        assert np.abs(fields[3](judge.THETA)).max() < CLOSE
    elif not words:
        expected = "no-objective"
        assert judge.twist(fields[2]) > 1e-3
    elif slope_of(h) is not None:
        expected = "objective"
        assert max(judge.twist(of) for of in fields.values()) < 1e-8
    else:  # at n = 2 signs do not move
        expected = "no-objective"
        assert judge.twist(fields[2]) < 1e-8 < 1e-4 < judge.twist(fields[3])
    assert (verdict.target, verdict.trust) == (expected, "kernel" if expected == "zero" else "numeric")
    assert (write_objective_latex(verdict) is not None) == (expected in ("zero", "objective"))


@pytest.mark.parametrize("h", ["k1", "2*k1", "R - beta*k1", "log_q", "A + 3"])
def test_what_std_descends_under_mu(h: str) -> None:
    """E_mu[std]/b for dh = b dlog q; E_mu[mean_i a_i log q_i] where b = 0: central differences, mu fixed."""
    b = slope_of(h)
    assert b is not None

    def objective(theta: Any, n: int) -> float:
        total = 0.0
        for drawn in product(range(3), repeat=n):
            values = np.array([judge.formula(h)(x, theta) for x in drawn])
            logs = np.log(judge.softmax(theta))[list(drawn)]
            inside = values.std() / b if abs(b) > 1e-6 else np.mean(judge.centred(values, "std") * logs)
            total += np.prod(judge.MU[list(drawn)]) * inside
        return total

    for n in (2, 3):
        gradient = slopes(lambda theta, n=n: objective(theta, n))
        assert np.abs(field(h, "off", "std", n) - gradient).max() < 1e-8


@pytest.mark.parametrize(
    ("n", "slope"),
    [(2, lambda P: 1.0), (3, lambda P: 2**0.5), (4, lambda P: 3**0.5 + (3 - 2 * 3**0.5) * P * (1 - P))],
)
def test_std_of_binary_rewards_has_an_objective_for_each_n(n: int, slope: Any) -> None:
    """Phi'(P) grad P with Phi' = E[sqrt(K (n - K))]/(n P (1 - P)), by all batches; of three values, none."""
    notes = " ".join(ask("R", "reward std").notes)
    assert "E[sqrt(K*(n - K))]/(n*P*(1 - P))" in notes and "E_q[R] and sqrt(2)*E_q[R]" in notes
    q, s = judge.softmax(judge.THETA), judge.scores(judge.THETA)
    P = q[0]
    chance = [math.comb(n, k) * P**k * (1 - P) ** (n - k) for k in range(n + 1)]
    mean = sum(w * (k * (n - k)) ** 0.5 for k, w in enumerate(chance)) / (n * P * (1 - P))
    assert abs(mean - slope(P)) < 1e-12
    found = judge.field(lambda x, _: float(x == 0), judge.THETA, True, "std", n)
    assert np.abs(found - mean * P * s[0]).max() < CLOSE
    other = judge.field(lambda x, _: float(x), judge.THETA, True, "std", n)
    assert np.abs(other - mean * sum(q[x] * x * s[x] for x in range(3))).max() > 1e-3


def test_std_has_a_limit_for_large_n() -> None:
    """E_q[h s]/sd(h), of binary rewards grad 2 arcsin(sqrt(E_q[R])): the error falls with n."""
    assert any("2*arcsin(sqrt(E_q[R]))" in note for note in ask("R", "reward std").notes)
    assert not any("arcsin" in note for note in ask("k1", "reward std").notes)
    q, h = judge.softmax(judge.THETA), [judge.formula("k1")(x, judge.THETA) for x in range(3)]
    spread = np.sqrt(np.dot(q, np.square(h)) - np.dot(q, h) ** 2)
    limits = {
        "k1": (judge.formula("k1"), judge.score_form("k1", judge.THETA) / spread),
        "R": (lambda x, _: float(x == 0), slopes(lambda t: 2 * np.arcsin(np.sqrt(judge.softmax(t)[0])))),
    }
    for of, limit in limits.values():
        found = [judge.field(of, judge.THETA, True, "std", n) for n in (2, 4, 8)]
        errors = [np.abs(one - limit).max() for one in found]
        assert errors[0] > errors[1] > errors[2]


def test_a_penalty_inside_the_normalisation_loses_its_weight() -> None:
    """Where the rewards agree, R - beta k1 over its std is the same for every beta > 0."""
    for beta in (1e-6, 1.0, 50.0):
        pushes = judge.centred(np.array([1 - beta * x for x in (0.3, -2.0, 0.7)]), "std")
        assert np.allclose(pushes, judge.centred(-np.array([0.3, -2.0, 0.7]), "std"), atol=1e-8)
    assert any("divided by the same sd(h)" in note for note in ask("R - beta*k1", "reward std").notes)


def test_std_keeps_the_sign_alone_at_n_2() -> None:
    """At n = 2 the coefficient is 1 or -1 whatever its size is."""
    pairs = [judge.centred(np.array([a, b]), "std") for a in (0.3, -2.0) for b in (1.0, 5.0, -7.0)]
    assert all(np.allclose(np.abs(pair), 1) for pair in pairs)
    one, *others = (field(h, "", "std", 2) for h in ("k1", "7*k1", "k1 + 3"))
    assert all(np.abs(one - other).max() < CLOSE for other in others)


def test_the_recurrence_of_success_stands_where_it_holds() -> None:
    """A KL to the reference beside normalised rewards, ascended and not descended."""
    losses = ("normalised(R) - 0.04*k1", "normalised(R) + 0.04*k1", "normalised(R) - beta*k3")
    said = [[note for note in ask(loss, "reward").notes if "success-recurrence" in note] for loss in losses]
    assert [len(notes) for notes in said] == [1, 0, 0]
    assert "logit P' = logit P_p + 25/sqrt(P*(1 - P))" in said[0][0]
