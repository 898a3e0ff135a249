"""KL014 against real float32: PyTorch runs and differentiates each loss, as code that is written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from klsym.diagnostics.arithmetic import Arithmetic
from klsym.diagnostics.overflow import AT, LIKELIEST, LIKELY, NEAR, NOISE, find_cancellation, find_overflows
from klsym.diagnostics.typed_code import ELEMENTWISE
from klsym.engine.answers.dispatch import as_written

torch = pytest.importorskip("torch")

A = R = 0.5


def exp(x: Any) -> Any:
    return torch.exp(x)


def constant(x: float) -> Any:
    return torch.tensor(x, dtype=torch.float32)


def k3(q: Any, p: Any) -> Any:
    return torch.expm1(p - q) - (p - q)


def jsd(q: Any, p: Any) -> Any:
    mixed = torch.log((exp(q) + exp(p)) / 2)
    return 0.5 * exp(q) * (q - mixed) + 0.5 * exp(p) * (p - mixed)


JSD = (
    "0.5*exp(log_q)*(log_q - log((exp(log_q) + exp(log_p))/2))"
    " + 0.5*exp(log_p)*(log_p - log((exp(log_q) + exp(log_p))/2))"
)
CODE: dict[str, Callable[[Any, Any], Any]] = {  # of log q, which has a gradient, and log p; rho is 1
    # finite at both ends
    "k1": lambda q, p: q - p,
    "k2": lambda q, p: (q - p) ** 2 / 2,
    "abs(k1)": lambda q, p: (q - p).abs(),
    "max(k1, 0)": lambda q, p: torch.maximum(q - p, constant(0.0)),
    "-A*log_q + beta*k2": lambda q, p: -A * q + 0.5 * (q - p) ** 2 / 2,
    "clip(k1, -10, 10)": lambda q, p: torch.clamp(q - p, -10, 10),
    "where(k1 > -5, k2, 0)": lambda q, p: torch.where(q - p > -5, (q - p) ** 2 / 2, constant(0.0)),
    "sg(min(r, 2))*log_q": lambda q, p: torch.minimum(exp(p - q), constant(2.0)).detach() * q,
    JSD: jsd,
    "F.logsigmoid(logp - ref_logp)": lambda q, p: torch.nn.functional.logsigmoid(q - p),
    "F.softplus(ref_logp - logp)": lambda q, p: torch.nn.functional.softplus(p - q),
    "d = (ref_logp - logp).clamp(-20, 20); torch.expm1(d) - d": lambda q, p: (
        torch.expm1((p - q).clamp(-20, 20)) - (p - q).clamp(-20, 20)
    ),
    "torch.sigmoid(logp - ref_logp)": lambda q, p: torch.sigmoid(q - p),
    "R - beta*k1": lambda q, p: R - 0.5 * (q - p),
    # infinite, or not a number, in the value
    "k3": k3,
    "r": lambda q, p: exp(p - q),
    "1/r": lambda q, p: 1 / exp(p - q),
    "rho*k3": lambda q, p: exp(q - q.detach()) * k3(q, p),
    "exp(k1) - 1 - k1": lambda q, p: exp(q - p) - 1 - (q - p),
    "sqrt(k3)": lambda q, p: torch.sqrt(k3(q, p)),
    "log(1 + r)": lambda q, p: torch.log(1 + exp(p - q)),
    "k2**16": lambda q, p: ((q - p) ** 2 / 2) ** 16,
    "r/(1 + r)": lambda q, p: exp(p - q) / (1 + exp(p - q)),
    "sg(r)*log_q": lambda q, p: exp(p - q).detach() * q,
    "k3*where(k1 > -5, 1, 0)": lambda q, p: k3(q, p) * torch.where(q - p > -5, 1.0, 0.0),
    "k3*(k1 > -5)": lambda q, p: k3(q, p) * (q - p > -5),
    "exp(k1)*exp(-k1)": lambda q, p: exp(q - p) * exp(-(q - p)),
    "r*k1 - r*k1": lambda q, p: exp(p - q) * (q - p) - exp(p - q) * (q - p),
    "k1**2*r": lambda q, p: (q - p) ** 2 * exp(p - q),
    # not a number in the gradient alone
    "clip(k3, -10, 10)": lambda q, p: torch.clamp(k3(q, p), -10, 10),
    "clip(k3, 0, 10)": lambda q, p: torch.clamp(k3(q, p), 0, 10),
    "min(r, 2)": lambda q, p: torch.minimum(exp(p - q), constant(2.0)),
    "clip(r, 0.5, 2)": lambda q, p: torch.clamp(exp(p - q), 0.5, 2),
    "where(k1 > 0, r, 1)": lambda q, p: torch.where(q - p > 0, exp(p - q), constant(1.0)),
    "max(1/r, 0) - max(1/r, 0)": lambda q, p: (
        torch.maximum(1 / exp(p - q), constant(0.0)) - torch.maximum(1 / exp(p - q), constant(0.0))
    ),
    "-A*log_q + beta*min(k3, 4)": lambda q, p: -A * q + 0.5 * torch.minimum(k3(q, p), constant(4.0)),
    "torch.exp(ref_logp - logp).clamp(max=5)": lambda q, p: exp(p - q).clamp(max=5),
    # terms that cancel
    "exp(-k1) - 1 + k1": lambda q, p: exp(-(q - p)) - 1 + (q - p),
    "exp(log_p - log_q) - 1 - (log_p - log_q)": lambda q, p: exp(p - q) - 1 - (p - q),
    "d = ref_logp - logp; torch.exp(d) - d - 1": lambda q, p: exp(p - q) - (p - q) - 1,
    "r - 1 + k1": lambda q, p: exp(p - q) - 1 + (q - p),
    "(exp(-k1) - 1 + k1)*beta": lambda q, p: (exp(-(q - p)) - 1 + (q - p)) * 0.5,
    "1/r - log(1/r) - 1": lambda q, p: 1 / exp(p - q) - torch.log(1 / exp(p - q)) - 1,
    "r*log(r) - r + 1": lambda q, p: exp(p - q) * torch.log(exp(p - q)) - exp(p - q) + 1,
    "log((1 + r)/2) - log(r)/2": lambda q, p: torch.log((1 + exp(p - q)) / 2) - torch.log(exp(p - q)) / 2,
    "d = ref_logp - logp; torch.expm1(d) - d": lambda q, p: torch.expm1(p - q) - (p - q),
    "(r - 1)**2/2": lambda q, p: (exp(p - q) - 1) ** 2 / 2,
    "r - 1": lambda q, p: exp(p - q) - 1,
    "k1*r": lambda q, p: (q - p) * exp(p - q),
    "k3 - A*log_q": lambda q, p: k3(q, p) - A * q,
}  # fmt: skip


def run(code: Callable[[Any, Any], Any], q: float, p: float, dtype: Any) -> tuple[float, float]:
    """Value and gradient by autograd."""
    leaf = torch.tensor(q, dtype=dtype, requires_grad=True)
    value = code(leaf, torch.tensor(p, dtype=dtype))
    value.backward()
    return value.item(), leaf.grad.item()


def kind(x: float) -> str:
    return "nan" if math.isnan(x) else "finite" if math.isfinite(x) else f"{x:+g}"


@pytest.mark.parametrize("loss", CODE)
def test_what_is_not_finite_is_that_of_pytorch(loss: str) -> None:
    """Both log densities are at most 0: the likelier token has the log-probability -1."""
    seen = {}
    for at in AT:
        value, slope = run(CODE[loss], LIKELY + min(at, 0), LIKELY - max(at, 0), torch.float32)
        seen |= {(at, "value"): value, (at, "gradient"): slope}
    told = {(one.at, one.what): kind(one.value) for one in find_overflows(as_written(loss, ()))}
    assert told == {place: kind(x) for place, x in seen.items() if not math.isfinite(x)}


def test_the_table_meets_each_outcome() -> None:
    found = {loss: {(x.what, kind(x.value)) for x in find_overflows(as_written(loss, ()))} for loss in CODE}
    assert sum(not of for of in found.values()) >= 14
    assert sum({what for what, _ in of} == {"gradient"} for of in found.values()) >= 7
    outcomes = {one for of in found.values() for one in of}
    assert outcomes >= {("value", "+inf"), ("value", "nan"), ("gradient", "-inf"), ("gradient", "nan")}


@pytest.mark.parametrize("loss", CODE)
def test_what_cancels_is_that_of_pytorch(loss: str) -> None:
    """A value whose error is larger than half of it, beside the same code in float64."""
    noisy = {}
    for near in NEAR:
        q, p = (float(torch.tensor(x, dtype=torch.float32)) for x in (LIKELIEST, LIKELIEST - near))
        (single, _), (double, _) = (run(CODE[loss], q, p, dtype) for dtype in (torch.float32, torch.float64))
        if double and abs(single - double) > NOISE * abs(double):
            noisy[near] = single
    told = find_cancellation(as_written(loss, ()))
    assert (told is not None) == bool(noisy)
    assert told is None or told.at in noisy


def test_some_cancel_and_some_do_not() -> None:
    found = [loss for loss in CODE if find_cancellation(as_written(loss, ())) is not None]
    assert 8 <= len(found) <= len(CODE) - 30 and JSD in found
    assert "k3" not in found and "d = ref_logp - logp; torch.expm1(d) - d" not in found


def test_noise_can_be_negative() -> None:
    """exp(d) - 1 - d is never negative, and its float32 value is."""
    code = CODE["exp(log_p - log_q) - 1 - (log_p - log_q)"]
    values = [run(code, LIKELIEST, LIKELIEST + x * 1e-5, torch.float32)[0] for x in range(-40, 40)]
    assert min(values) < 0 < max(values)


def test_a_reward_has_no_gradient_that_could_overflow() -> None:
    clamped = as_written("clip(k3, -10, 10)", ())
    assert find_overflows(clamped, gradient=False) == () and find_overflows(clamped)
    assert {one.what for one in find_overflows(as_written("k3", ()), gradient=False)} == {"value"}


SEVERAL = [  # of two numbers: the arithmetic, and PyTorch
    ("add", lambda a, b: a + b), ("subtract", lambda a, b: a - b), ("multiply", lambda a, b: a * b),
    ("divide", lambda a, b: a / b), ("power", lambda a, b: a**b), ("minimum", torch.minimum),
    ("maximum", torch.maximum),
]  # fmt: skip
SINGLE = [
    ("exp", torch.exp), ("expm1", torch.expm1), ("log", torch.log), ("log1p", torch.log1p),
    ("sqrt", torch.sqrt), ("sigmoid", torch.sigmoid), ("logsigmoid", torch.nn.functional.logsigmoid),
    ("absolute", torch.abs), ("negative", torch.neg),
]  # fmt: skip
NUMBERS = (
    0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -3.0, 9.0, 20.0, -20.0, 90.0, 1e30, -1e30,
    math.inf, -math.inf, math.nan,
)  # fmt: skip


def agree(mine: float, theirs: float, tolerance: float = 4e-6) -> bool:
    if math.isnan(mine) or math.isnan(theirs):
        return math.isnan(mine) and math.isnan(theirs)
    return mine == theirs or abs(mine - theirs) <= tolerance * max(abs(theirs), 1e-37)


@pytest.mark.parametrize(("name", "code"), SINGLE, ids=[name for name, _ in SINGLE])
def test_functions_of_one_number(name: str, code: Any) -> None:
    arithmetic = Arithmetic()
    for x in NUMBERS:
        leaf, theirs = arithmetic.make_leaf(x), torch.tensor(x, requires_grad=True)
        node, value = getattr(arithmetic, name)(leaf), code(theirs)
        value.backward()
        assert agree(node.value, float(value)), (x, node.value, float(value))
        slope = arithmetic.differentiate(node, leaf)
        assert agree(slope, float(theirs.grad)), (x, slope, float(theirs.grad))


@pytest.mark.parametrize(("name", "code"), SEVERAL, ids=[name for name, _ in SEVERAL])
def test_functions_of_two_numbers(name: str, code: Any) -> None:
    arithmetic = Arithmetic()
    for x in NUMBERS:
        for y in NUMBERS:
            a, b = arithmetic.make_leaf(x), arithmetic.make_leaf(y)
            u, v = (torch.tensor(z, requires_grad=True) for z in (x, y))
            node, value = getattr(arithmetic, name)(a, b), code(u, v)
            value.backward()
            slopes = arithmetic.differentiate(node, a), arithmetic.differentiate(node, b)
            assert agree(node.value, float(value)), (x, y, node.value, float(value))
            assert agree(slopes[0], float(u.grad)), (x, y, slopes, float(u.grad))
            assert agree(slopes[1], float(v.grad)), (x, y, slopes, float(v.grad))


@pytest.mark.parametrize("loss", ["past(r)", "loo(r)*k1", "full(k3)"])
def test_sums_are_left_alone(loss: str) -> None:
    assert find_overflows(as_written(loss, ())) == () and find_cancellation(as_written(loss, ())) is None


@pytest.mark.parametrize("x", [-1.0, 0.0, 1.0, math.inf, math.nan])
def test_relu_is_that_of_pytorch(x: float) -> None:
    arithmetic = Arithmetic()
    mine = ELEMENTWISE["relu"](arithmetic, arithmetic.make_number(x)).value
    theirs = torch.relu(constant(x)).item()
    assert mine == theirs or (math.isnan(mine) and math.isnan(theirs))
