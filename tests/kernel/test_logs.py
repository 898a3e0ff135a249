"""Names for logs, log(e), and for elements: what the kernel accepts of them, and what it refuses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from klsym.errors import Refused
from klsym.kernel import certify, check, read
from klsym.kernel.definitions import LET, Definition
from klsym.kernel.intervals import Interval, enclose_log_of_interval
from klsym.kernel.printer import show
from klsym.kernel.ring import ExpPoly
from support.certificates.faulty_certificates import *
from support.certificates.kernel_words import Mg
from support.certificates.region_certificates import setting
from support.certificates.region_words import log, region
from support.certificates.small_trees import HALF as EVEN
from support.certificates.small_trees import node
from support.certificates.valid_certificates import refuted

HALF = Fraction(1, 2)
ln, v, c = V("l"), V("ratio"), V("c")
ROOT = setting("", log("l", k1 * k1 + 1))
RATIO = setting("", Definition("ratio", LET, rho))
K1 = setting("", Definition("d", LET, k1))
TWO = setting("", log("c", ONE * 2))
KEPT = setting("", log("l", R))


def power(a: ExpPoly, rate: Any) -> ExpPoly:
    return (a * rate).exp()


SLOPE_OF_ROOT, SLOPE_OF_LOG, SLOPE_OF_EXP = k1 * power(ln, -HALF), 2 * k1 * power(ln, -1), v.exp() * rho


def root(slope: ExpPoly = SLOPE_OF_ROOT) -> Draft:
    """d sqrt(1 + k1^2) = k1/sqrt(1 + k1^2) s."""
    return Draft(Mg("q", power(ln, HALF)), Em("q", slope, 1), **ROOT).step("chain rule")


def of_log(slope: ExpPoly = SLOPE_OF_LOG) -> Draft:
    return Draft(Mg("mu", ln), Em("mu", slope, 1), **ROOT).step("chain rule")


def of_exp(slope: ExpPoly = SLOPE_OF_EXP) -> Draft:
    """d exp(rho) = exp(rho) rho s."""
    return Draft(Mg("mu", v.exp()), Em("mu", slope, 1), **RATIO).step("chain rule")


def put_in(e: ExpPoly = rho) -> Draft:
    return Draft(Em("mu", v * R), Em("mu", e * R), **RATIO).step("definition", name="ratio", times=R)


def negative(times: ExpPoly = R) -> Draft:
    """d = k1 is put in, though k1 may be negative."""
    draft = Draft(Em("mu", V("d") * R), Em("mu", k1 * R), **K1)
    return draft.step("definition", name="d", times=times)


def moved(right: Side | None = None) -> Draft:
    """grad E_mu[d] = E_mu[grad d] for d = k1, whose sign does not matter."""
    return Draft(grad(Em("mu", V("d"))), right or Mg("mu", V("d")), **K1).step("log-derivative")


def constant_root(value: int = 2) -> Draft:
    """exp(log 2) = 2."""
    draft = Draft(Em("q", c.exp()), constant(value), **TWO)
    return draft.step("definition", name="c", times=-c.exp()).step("normalisation")


def divided(times: ExpPoly = ONE) -> Draft:
    """E_mu[R/R] = 1 where R > 0."""
    draft = Draft(Em("mu", R * power(ln, -1)), constant(1), **KEPT)
    return draft.step("definition", name="l", times=times).step("normalisation")


TRUE: dict[str, tuple[Callable[[], Draft], set[str]]] = {
    "a root": (root, set()),
    "a log": (of_log, {"support"}),
    "an exponential of a ratio": (of_exp, {"support"}),
    "an element for its name": (put_in, {"support"}),
    "an element that may be negative": (negative, {"support"}),
    "the gradient of such a mean": (moved, {"exchange"}),
    "a constant": (constant_root, set()),
    "a quotient": (divided, {"above"}),
}


@pytest.mark.parametrize("name", TRUE)
def test_what_is_true_is_accepted(name: str) -> None:
    draft, kinds = TRUE[name]
    [theorem] = check(read(json.dumps(draft().certificate())))
    assert {h[0] for h in theorem.hypotheses} <= kinds | {"support"}
    assert kinds - {"support"} <= {h[0] for h in theorem.hypotheses}
    assert "\n  where " in show(theorem, full=True)


FALSE: dict[str, Callable[[], Draft]] = {
    "a root without its half": lambda: root(2 * k1 * power(ln, -HALF)),
    "a root as its square": lambda: root(k1 * power(ln, HALF)),
    "a log that is not divided": lambda: of_log(2 * k1),
    "an exponential of a constant": lambda: of_exp(v.exp()),
    "another element": lambda: put_in(rho * 2),
    "another multiple of an element": lambda: negative(2 * R),
    "the gradient of another element": lambda: moved(Mg("mu", 2 * V("d"))),
    "another constant": lambda: constant_root(3),
    "another multiple": lambda: divided(ONE * 2),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_is_false_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        certify(FALSE[name]().part, {})


def test_a_log_of_what_may_be_negative_says_so() -> None:
    """R is positive by the hypothesis, 1 + k1^2 by itself; k1 + r is so, and this is not looked for."""
    for e, assumed in (
        (R, True),
        (k1 * k1 + 1, False),
        (r + 1, False),
        (k1 * k1, True),
        (k1 + r, True),
        (2 - r, True),
        (2 - r * HALF, True),
    ):
        draft = Draft(Em("q", e * power(ln, -1)), constant(1), **setting("", log("l", e)))
        draft.step("definition", name="l", times=ONE).step("normalisation")
        [theorem] = check(read(json.dumps(draft.certificate())))
        assert (("above", "q", e) in theorem.hypotheses) == assumed
    with pytest.raises(Refused, match=r"hypotheses: .*above.*recorded"):
        check(read(json.dumps(divided().without("above").certificate())))


def test_a_region_has_no_log() -> None:
    for name, kind in (("up", region), ("k1", None)):
        context = setting("", *([kind(name, k1)] if kind else []))
        with pytest.raises(Refused, match="is no name of a log"):
            Draft(Em("q", V(name)), NOTHING, **context).step("definition", name=name, times=ONE)


def test_models_have_the_values_of_logs() -> None:
    """q = p = 1/2: E_q[sqrt(1 + k1^2)] is 1, and no 2; a model where e <= 0 is none."""
    tree = node([None, None], p=EVEN, rewards={"R": ["1", "2"]})
    assert (
        certify(refuted(Draft(Em("q", power(ln, HALF)), constant(2), **ROOT), tree).part, {})[1].kind
        == "refuted"
    )
    with pytest.raises(Refused, match="do not contradict"):
        certify(refuted(Draft(Em("q", power(ln, HALF)), constant(1), **ROOT), tree).part, {})
    context = setting("", log("l", R - 1))
    with pytest.raises(Refused, match="l is the log of what is not positive"):
        certify(refuted(Draft(Em("q", ln), constant(9), **context), tree).part, {})


def test_a_mean_of_a_root_is_enclosed() -> None:
    tree = node([None, None], q=["1/3", "2/3"], p=["2/3", "1/3"], rewards={"R": ["4", "9"]})
    draft = refuted(Draft(Em("q", power(ln, HALF)), constant(2), **KEPT), tree)
    low, high = (float(Fraction(end)) for end in draft.part["close"]["left"])
    assert low <= 8 / 3 <= high and math.isclose(low, high)


def test_the_log_of_an_interval_holds_both_ends() -> None:
    found = enclose_log_of_interval(Interval(Fraction(1), Fraction(2)))
    assert found.lower <= 0 and math.log(2) <= found.upper < 0.7


def test_a_name_has_powers() -> None:
    """E_mu[rho^2] in a model, where rho is 3/2 and 3/4."""
    tree = node([None, None], mu=["1/3", "2/3"])
    draft = refuted(Draft(Em("mu", v**2), constant(1), **RATIO), tree)
    assert draft.part["close"]["left"] == ["9/8", "9/8"]


def test_what_stands_before_a_mean_is_constant() -> None:
    """E_p[sqrt(2) w] = sqrt(2) E_p[w], in a product; exp(k1) and log(2), which might be 0, stay inside."""
    product = Em("p", power(c, HALF) * w).multiply(Em("q", k1))
    draft = Draft(product, Em("p", w).multiply(Em("q", k1)) * power(c, HALF), **TWO)
    check(read(json.dumps(draft.step("linearity", constant=power(c, HALF)).certificate())))
    for times in (k1.exp(), power(V("c"), HALF) * k1.exp(), c):
        of = Draft(Em("p", times * w).multiply(Em("q", k1)), NOTHING, **TWO)
        with pytest.raises(Refused, match="it depends on the sample, or may be 0"):
            of.step("linearity", constant=times)
