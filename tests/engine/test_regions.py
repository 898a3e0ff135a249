"""Losses with bounds as polynomials in regions: values, slopes at ties, relations between regions.

The oracle is Python's own min, max and abs on floats, and slopes that are written down by hand as PyTorch
takes them: abs has slope 0 at 0, clip 1 at its bounds, and arguments of min and max that tie share it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping

import pytest

from klsym.engine.fields.slot_loss import SlotLoss, build_slot_loss
from klsym.engine.options.settings import Setting
from klsym.engine.regions.in_span import is_combination
from klsym.engine.regions.relations import find_next_step, reduce_by_relations
from klsym.kernel.definitions import REGION, Definition
from klsym.kernel.derivatives import attach, differentiate_loss
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context
from klsym.language.parser import parse
from klsym.notation.losses import Written

Values = Mapping[str, float]
OFF = Setting("off-policy")


def read(loss: str, setting: Setting = OFF, parameters: tuple[str, ...] = ()) -> SlotLoss:
    return build_slot_loss(Written(loss, parse(loss, parameters)), setting)


def worth(element: ExpPoly, at: Values, context: Context) -> float:
    """The value, term by term; a region is 1 where its element is positive, up to rounding."""
    known = dict(at)
    for name, _, e in context.definitions:
        known[name] = float(plain(e, known) > 1e-12)
    return plain(element, known)


def plain(element: ExpPoly, known: Values) -> float:
    def product(monomial: tuple[tuple[str, int], ...]) -> float:
        return math.prod(known[name] ** power for name, power in monomial)

    return sum(
        float(scale) * product(monomial) * math.exp(sum(float(v) * product(m) for m, v in exponent))
        for (monomial, exponent), scale in element.terms.items()
    )


def clamp(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def k3(v: Values) -> float:
    return math.exp(-v["k1"]) - 1 + v["k1"]


def rho(v: Values) -> float:
    return math.exp(v["w"])


# ---------------------------------------------------------------------------- values
VALUES: dict[str, Callable[[Values], float]] = {
    "min(k1, k3)": lambda v: min(v["k1"], k3(v)),
    "max(k1, -k1, A)": lambda v: max(v["k1"], -v["k1"], v["A"]),
    "abs(k1)*clip(k3, 0, 1)": lambda v: abs(v["k1"]) * clamp(k3(v), 0, 1),
    "abs(abs(k1) - 1)": lambda v: abs(abs(v["k1"]) - 1),
    "clip(k1, -beta, 2*beta)": lambda v: clamp(v["k1"], -v["beta"], 2 * v["beta"]),
    "exp(min(k1, 1))": lambda v: math.exp(min(v["k1"], 1)),
    "-min(rho*A, clip(rho, 4/5, 6/5)*A)": lambda v: -min(rho(v) * v["A"], clamp(rho(v), 0.8, 1.2) * v["A"]),
    "max(min(rho*A, clip(rho, 1/2, 2)*A), 3*A)": lambda v: max(
        min(rho(v) * v["A"], clamp(rho(v), 0.5, 2) * v["A"]), 3 * v["A"]
    ),
    "min(max(k1, A), max(R, -k1))": lambda v: min(max(v["k1"], v["A"]), max(v["R"], -v["k1"])),
    "max(k2, k3) + min(k2, k3)": lambda v: v["k1"] ** 2 / 2 + k3(v),
    "clip(A, -1, 1)*k1 + abs(R*A)": lambda v: clamp(v["A"], -1, 1) * v["k1"] + abs(v["R"] * v["A"]),
}
PLACES = [
    {"k1": a, "w": b, "A": c, "R": d, "beta": beta}
    for a, b, c, d, beta in itertools.product(
        (-1.5, -1.0, 0.0, 0.3, 1.0, 2.0),
        (math.log(0.8), 0.0, 0.7),
        (-2.0, 0.0, 1.0),
        (-1.0, 0.0, 2.5),
        (0.5, 1.0),
    )
]


@pytest.mark.parametrize("loss", VALUES)
@pytest.mark.share(3)
def test_values_are_those_of_the_loss_at_bounds_and_beside_them(loss: str) -> None:
    found = read(loss, parameters=("beta",))
    for at in PLACES:
        assert worth(found.element, at, found.defined) == pytest.approx(VALUES[loss](at), abs=1e-9), at


@pytest.mark.parametrize(
    ("loss", "other"), [("min(k1, k3)", "max(k1, -k1, A)"), ("exp(min(k1, 1))", "min(k1, k3)")]
)
def test_the_values_of_another_loss_are_not_taken_for_these(loss: str, other: str) -> None:
    found = read(loss)
    assert any(abs(worth(found.element, at, found.defined) - VALUES[other](at)) > 0.1 for at in PLACES)


# ---------------------------------------------------------------------------- slopes
SLOPES: list[tuple[str, dict[str, float], float]] = [  # dL/dlog q; that of k1 and of w is 1
    ("abs(k1)", {"k1": 0}, 0),
    ("abs(k1)", {"k1": -2}, -1),
    ("clip(k1, -1, 1)", {"k1": 1}, 1),
    ("clip(k1, -1, 1)", {"k1": -1}, 1),
    ("clip(k1, -1, 1)", {"k1": 1.5}, 0),
    ("max(k1, 0)", {"k1": 0}, 0.5),
    ("min(k1, 0)", {"k1": 0}, 0.5),
    ("max(k1, -k1)", {"k1": 0}, 0),
    ("max(k1, 3*k1)", {"k1": 0}, 2),
    ("exp(min(k1, 1))", {"k1": 1}, math.e / 2),
    ("abs(abs(k1) - 1)", {"k1": 1}, 0),
    ("abs(abs(k1) - 1)", {"k1": 0}, 0),
    ("-min(rho*A, clip(rho, 1/2, 2)*A)", {"w": 0, "A": 1}, -1),
    ("-min(rho*A, clip(rho, 1/2, 2)*A)", {"w": 1, "A": 1}, 0),
    ("-min(rho*A, clip(rho, 1/2, 2)*A)", {"w": 1, "A": -1}, math.e),
    ("max(k1, 0)*sg(max(k1, 1))", {"k1": 2}, 2),
    ("sg(max(k1, 0))", {"k1": 2}, 0),
]


@pytest.mark.parametrize(("loss", "at", "slope"), SLOPES)
def test_slopes_are_those_of_autograd(loss: str, at: dict[str, float], slope: float) -> None:
    found = read(loss)
    at = {"k1": 0.3, "w": 0.2, "A": 1.0, "R": 1.0} | at
    moved = differentiate_loss(found.element, "", found.defined)
    assert worth(attach(moved.get("x", ExpPoly.from_number(0))), at, found.defined) == pytest.approx(slope)


# ---------------------------------------------------------------------------- relations
@pytest.mark.parametrize("loss", VALUES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.share(3)
def test_what_relations_take_off_is_0_everywhere(loss: str, seed: int) -> None:
    """Products of regions of the loss, in their last form, at every place, on bounds too."""
    rng, context = random.Random(seed), read(loss, parameters=("beta",)).defined
    names = [name for name, _, _ in context.definitions]
    variables = [ExpPoly.from_variable(name) for name in (*names, *names, "k1", "A")]
    element = sum(
        (rng.choice(variables) * rng.choice(variables) * rng.choice(variables) for _ in range(6)),
        ExpPoly.from_number(0),
    )
    last = reduce_by_relations(element, context, has_gradient=False)
    for at in PLACES:
        assert worth(last, at, context) == pytest.approx(worth(element, at, context), abs=1e-9), at


A, K1, W = (ExpPoly.from_variable(name) for name in ("A", "k1", "w"))
K3 = (-K1).exp() - 1 + K1
UP, DOWN, FAR = (ExpPoly.from_variable(name) for name in ("up", "down", "far"))
SIDES = Context(
    definitions=(
        Definition("up", REGION, K1),
        Definition("down", REGION, -K1),
        Definition("far", REGION, K1 - 1),
    )
)


@pytest.mark.parametrize(
    ("element", "last"),
    [
        (UP * DOWN, ExpPoly.from_number(0)),
        (UP * UP, UP),
        (FAR * DOWN, ExpPoly.from_number(0)),
        (FAR * UP, FAR),
        (UP + DOWN, UP + DOWN),  # at k1 = 0 it is 0, elsewhere 1
        (UP * A, UP * A),
    ],
)
def test_relations_of_three_regions(element: ExpPoly, last: ExpPoly) -> None:
    assert reduce_by_relations(element, SIDES, has_gradient=False) == last


def test_off_bounds_more_is_known() -> None:
    """k3 = 0 at k1 = 0 alone."""
    bend, context = ExpPoly.from_variable("bend"), Context(definitions=(Definition("bend", REGION, K3),))
    assert reduce_by_relations(A * bend, context, has_gradient=False) == A * bend
    assert reduce_by_relations(A * bend, context, has_gradient=False, off_bounds=True) == A
    assert find_next_step(A * UP, SIDES, False, True) is None  # k1 may be negative


@pytest.mark.parametrize(
    ("c", "expected"),
    [(K1 * (UP + DOWN), True), (K1 * (UP - DOWN), False), (K1 * FAR, False), (K1 * (1 - FAR * DOWN), True)],
)
def test_a_combination_is_told_from_what_bends(c: ExpPoly, expected: bool) -> None:
    assert is_combination(c, SIDES) is expected


def test_bounds_that_are_close_to_one_another_are_met() -> None:
    found = read("clip(rho, 0.9997, 1.0004)*sg(k1)")
    assert not is_combination(attach(found.element), found.defined)
