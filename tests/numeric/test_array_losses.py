"""Losses on arrays, against the oracle of the tests (its own parser and definitions) and mpmath."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import example, given
from hypothesis import strategies as st

from klsym.errors import UsageError
from klsym.language.expressions import K1, A, clip, eps, k1, k3, lam, log_mu, log_p, log_q, r, rho, sg
from klsym.language.parser import parse
from klsym.numeric.array_losses import evaluate
from support.judges import autograd_judge as judge
from support.losses import loss_oracle as oracle
from support.losses.random_losses import Case
from support.scale import scaled

WRITTEN = (
    "log_q", "log_p*log_mu", "k1", "k2", "k3", "k(lam)", "k(1)", "r", "rho", "R - A", "3/7", "exp(2)*k1",
    "k1**3", "r**-2", "(1 + k2)**(5/2)", "1/(1 + r)", "1/sqrt(r)", "sqrt(1 + k2)", "2**k1", "(1 + r)**k1",
    "lam**2*k1 - beta/3", "exp(-k1/2)/rho", "log(1 + r)", "log(r)", "log(rho)", "abs(k1)", "abs(lam)*k1",
    "min(k1, 1/4)", "max(k1, r, sg(rho))", "min(lam, 2, 1/3)*k1", "clip(k1, -0.5, 0.5)",
    "clip(1/2, k1, k1 + r)", "clip(lam, 1, 2)*k1", "sg(rho)*k2", "sg(sg(k1) + rho)", "r**lam", "exp(R/3)",
    "sg(k3)**3/n", "T*k1",
)  # fmt: skip
DRAWN = judge.ring_cases(5, scaled(200, 60)) + judge.outside_cases(5, scaled(100, 30))
RANDOM = tuple(case.text for case in DRAWN)


def names() -> dict[str, np.ndarray]:
    return judge.atoms("off-policy")


def given_values(dtype: type = np.float64) -> dict[str, object]:
    wanted = ("log_q", "log_p", "log_mu", "R", "A")
    return {name: names()[name].astype(dtype) for name in wanted} | oracle.PARAMETERS


# ---------------------------------------------------------------------------- values
@pytest.mark.parametrize("texts", [WRITTEN, RANDOM], ids=["written", "random"])
def test_against_the_oracle(texts: tuple[str, ...]) -> None:
    """The oracle walks the text in Python's ast, and shares no code; sizes as in `autograd_judge`."""
    values = given_values()
    for text in texts:
        loss = parse(text)
        found = evaluate(loss, values, np)
        expected = np.broadcast_to(oracle.evaluate(text, names()), judge.POINTS)
        assert found.dtype == np.float64 and found.shape == (judge.POINTS,), text
        assert np.all(np.abs(found - expected) <= 1e-13 * judge.size(loss, "reward", names())), text
    for name, value in given_values().items():  # inputs are left alone
        assert np.array_equal(values[name], value), name


def test_the_comparison_can_fail() -> None:
    for text in WRITTEN:
        loss = parse(text)
        wrong = evaluate(loss * sympy.Rational(10**9 + 1, 10**9), given_values(), np)
        expected = np.broadcast_to(oracle.evaluate(text, names()), judge.POINTS)
        assert np.any(np.abs(wrong - expected) > 1e-13 * judge.size(loss, "reward", names())), text


@pytest.mark.parametrize("text", WRITTEN)
def test_single_precision_stays_single(text: str) -> None:
    loss = parse(text)
    found = evaluate(loss, given_values(np.float32), np)
    error = np.abs(found - oracle.evaluate(text, names()))
    assert found.dtype == np.float32
    assert np.all(error <= 1e-5 * judge.size(loss, "reward", names()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_k3_near_zero(dtype: type) -> None:
    """A few units in the last place, at every size of k1 and across the switch to the series."""
    size = np.concatenate([10.0 ** -np.arange(0.0, 15), np.linspace(0.2499, 0.2501, 21), [0.0, 1.5, 30]])
    d = np.concatenate([size, -size]).astype(dtype)
    found = evaluate(k3, {"log_q": d, "log_p": np.zeros_like(d)}, np)
    with mpmath.workdps(60):
        exact = [mpmath.exp(-mpmath.mpf(float(x))) - 1 + mpmath.mpf(float(x)) for x in d]
        errors = [
            abs(mpmath.mpf(float(f)) / e - 1) if e else abs(f) for f, e in zip(found, exact, strict=True)
        ]
    assert max(errors) < 10 * np.finfo(dtype).eps
    literal = np.exp(-d) - 1 + d  # what this is for
    assert np.any(np.abs(literal - found) > 1e-3 * found)


EPS, TINY = np.finfo(float).eps, float(np.finfo(float).smallest_subnormal)


@given(st.floats(-700, 700), st.floats(-700, 700))
@example(-0.4479233545953178, 0.0)  # the two ways end 8 units of the last place apart
def test_k3_is_never_negative_and_vanishes_only_at_zero(a: float, b: float) -> None:
    values = {"log_q": np.array([a]), "log_p": np.array([b])}
    with np.errstate(over="ignore", under="ignore"):
        [found] = evaluate(k3, values, np)
    if abs(a - b) <= 700:  # numbers have a path of their own, and are refused where exp overflows
        number = float(evaluate(k3, {"log_q": a, "log_p": b}, np))
        with mpmath.workdps(400):
            d = mpmath.mpf(a - b)
            exact = mpmath.exp(-d) - 1 + d
            errors = [abs(mpmath.mpf(float(x)) - exact) for x in (number, found)]
            assert max(errors) <= 10 * EPS * exact + TINY
    assert found >= 0 and (found > 0 or abs(a - b) < 1e-150)


def test_log_of_a_ratio_survives_overflow() -> None:
    values = {"log_q": np.array([-900.0, 900.0]), "log_p": np.zeros(2), "log_mu": np.zeros(2)}
    assert evaluate(sympy.log(r), values, np).tolist() == [900.0, -900.0]
    assert evaluate(sympy.log(rho), values, np).tolist() == [-900.0, 900.0]


# ---------------------------------------------------------------------------- exact numbers
def test_numbers_stay_exact_until_they_meet_an_array() -> None:
    x = np.random.default_rng(0).normal(size=50)
    values = {"log_q": x, "log_p": np.zeros(50), "lam": Fraction(3, 10), "eps": sympy.Rational(1, 10), "n": 3}
    n = sympy.Symbol("n", real=True, positive=True)
    for loss, expected in (
        ((lam - 3 * eps) * k1, 0 * x),  # 0.3 - 3 * 0.1 is 5.6e-17 in floats
        (k1 * n / 3, x),
        (k1 * 10 * lam / 3, x),
        (k1 / (lam / eps - 2), x),
    ):
        assert np.array_equal(evaluate(loss, values, np), expected), loss


def test_a_constant_takes_the_shape_of_log_q() -> None:
    log_q_values = np.zeros((2, 3), dtype=np.float32)
    counts = np.ones(4, dtype=np.int64)
    assert evaluate(lam / 3, {"A": counts, "log_q": log_q_values, "lam": 2}, np).shape == (2, 3)
    assert evaluate(lam / 3, {"A": np.ones(4), "lam": 2}, np).tolist() == [2 / 3] * 4
    assert evaluate(lam / 3, {"A": counts, "lam": 2}, np) == 2 / 3
    assert evaluate(k1, {"log_q": -1.0, "log_p": Fraction(1, 2)}, np) == -1.5


# ---------------------------------------------------------------------------- stop-gradient and ties
def test_stop_gradient_is_applied_to_what_stands_in_sg() -> None:
    seen = []

    def stop(x: np.ndarray) -> np.ndarray:
        seen.append(x)
        return 0 * x + 1

    values = given_values()
    found = evaluate(sg(k1 + A) * r + sg(rho) ** 2, values, np, stop)
    np.testing.assert_allclose(found, names()["r"] + 1)
    expected = {tuple(names()["k1"] + names()["A"]), tuple(names()["rho"])}
    assert {tuple(x) for x in seen} == expected


X = K1(log_q, log_p)
TIES = (
    (abs(X), [1.0, 0.0, 2.0]),
    (sympy.Min(X, 0), [-1.0, 0.0, 0.0]),
    (clip(X, -1, 0), [-1.0, 0.0, 0.0]),
    (clip(X, 0, -1), [-1.0, -1.0, -1.0]),  # lo above hi: hi, as torch.clamp has it
    (sympy.sign(X), [-1.0, 0.0, 1.0]),
    (sympy.Heaviside(X), [0.0, 0.5, 1.0]),
    (sympy.Heaviside(X, 1), [0.0, 1.0, 1.0]),
    (sympy.Heaviside(X, 0), [0.0, 0.0, 1.0]),
    (sympy.Heaviside(lam) * X, [-0.5, 0.0, 1.0]),
    (sympy.sign(lam - 1) * X, [1.0, 0.0, -2.0]),
)


@pytest.mark.parametrize(("loss", "expected"), TIES, ids=[str(loss) for loss, _ in TIES])
def test_values_at_ties(loss: object, expected: list[float]) -> None:
    values = {"log_q": np.array([-1.0, 0.0, 2.0]), "log_p": np.zeros(3), "lam": 0}
    assert evaluate(loss, values, np).tolist() == expected


@pytest.mark.parametrize("text", judge.PIECEWISE + judge.SMOOTH)
def test_derivatives_can_be_evaluated(text: str) -> None:
    """`sympy.diff` of a loss, step functions and all, against the printed per-sample gradient."""
    case = Case(text, "off-policy", "loss")
    exact = judge.outside_gradient(case)
    slope = sympy.diff(parse(text), log_q).replace(sympy.DiracDelta, lambda *_: sympy.S.Zero)
    assert exact.misses(evaluate(slope, given_values(), np)) < judge.AGREE


# ---------------------------------------------------------------------------- refusals
ARRAY = np.array([-1.0, -2.0])
GOOD = {"log_q": ARRAY, "log_p": 0.5 * ARRAY, "log_mu": ARRAY, "lam": 0.5}
REFUSED = (
    (k1 * A, {}, "no value for A, which A*k1 needs"),
    (k1 * sympy.Symbol("gamma"), {}, "no value for gamma"),
    (sg(rho * eps) * k1, {}, "no value for eps"),
    (sympy.cos(k1), {}, "cos cannot be evaluated, in cos(k1)"),
    (sympy.pi * k1, {}, "pi cannot be evaluated"),
    (k1 + sympy.oo * log_mu, {}, "oo cannot be evaluated"),
    (sympy.Function("g")(k1), {}, "g cannot be evaluated"),
    (sympy.DiracDelta(k1), {}, "DiracDelta cannot be evaluated"),
    (k1 * sympy.Float("0.5") * sympy.I, {}, "I cannot be evaluated"),
    ("k1", {}, "a SymPy expression expected, got str"),
    (k1, {"log_p": [1.0, 2.0]}, "values['log_p']: an array or a number expected, got list"),
    (k1, {"log_p": "1"}, "values['log_p']: an array or a number expected, got str"),
    (k1 * lam, {"lam": True}, "values['lam']: an array or a number expected, got bool"),
    (k1 * lam, {"lam": 1j}, "values['lam']: an array or a number expected, got complex"),
    (k1, {"log_p": np.array([1, 2])}, "values['log_p']: real floating numbers expected, got int64"),
    (k1, {"log_p": ARRAY * 1j}, "values['log_p']: real floating numbers expected, got complex128"),
    (k1, {"log_p": np.zeros(3)}, "shape (3,) does not fit (2,)"),
    (sympy.log(lam) * k1, {"lam": -1}, "log(lam) has no finite real value, in log(lam)*k1"),
    (sympy.sqrt(lam) * k1, {"lam": -1.0}, "sqrt(lam) has no finite real value"),
    (k1 / lam, {"lam": 0}, "1/lam has no finite real value"),
    (k1 * sympy.exp(lam), {"lam": 1000}, "exp(lam) has no finite real value"),
    (k1 * 10**400, {}, "has no finite real value"),
    (sympy.Integer(10) ** 400, {}, "has no finite real value"),
)


@pytest.mark.parametrize(("loss", "change", "message"), REFUSED, ids=[row[2][:40] for row in REFUSED])
def test_refusals(loss: object, change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        evaluate(loss, GOOD | change, np)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_the_refusals_change_is_all_that_is_wrong() -> None:
    assert np.all(np.isfinite(evaluate(k1 * lam * rho, GOOD, np)))
