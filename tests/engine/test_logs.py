"""Logs, roots, quotients and constants in losses: theorems, in print as they were written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.engine.fields.slot_loss import build_slot_loss
from klsym.engine.options.settings import Setting
from klsym.engine.regions.logs import find_log_step
from klsym.engine.regions.relations import find_next_step, reduce_by_relations
from klsym.kernel.definitions import Definition
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.defined import LET, LOG, find_definition, name_definition
from klsym.language.parser import parse
from klsym.language.unfolding import differentiate_in_log_q
from klsym.notation.losses import Written
from support.judges.loss_judge import examine
from support.losses.loss_oracle import evaluate
from support.losses.loss_oracle import names as atoms
from support.losses.random_losses import Case

K1, RR = ExpPoly.from_variable("k1"), (-ExpPoly.from_variable("k1")).exp()
L = ExpPoly.from_variable("ln_1")


def where(e: ExpPoly, kind: str = LOG) -> Context:
    return Context(definitions=(Definition("ln_1", kind, e),))


def power(rate: Any) -> ExpPoly:
    return (L * rate).exp()


SAME: list[tuple[ExpPoly, ExpPoly, ExpPoly]] = [  # e, an element, its last form
    (1 + RR, RR * power(-1), 1 - power(-1)),
    (1 + RR, (1 + RR) * power(-1), ONE),
    (1 + RR, power(2), (1 + RR) ** 2),
    (1 + K1 * K1, K1**2 * power(-1), 1 - power(-1)),
    (1 + K1 * K1, K1 * power(-1), K1 * power(-1)),
    (ONE * 2, power(-1) * 2, ONE),
]


@pytest.mark.parametrize(("e", "element", "last"), SAME)
def test_relations_of_a_log(e: ExpPoly, element: ExpPoly, last: ExpPoly) -> None:
    assert reduce_by_relations(element, where(e)) == last
    assert find_log_step(last, where(e)) is None


def test_a_name_that_stands_alone_becomes_its_element() -> None:
    context = where(RR + 1, LET)
    assert reduce_by_relations(L * K1 + L**2, context) == (RR + 1) * K1 + (RR + 1) ** 2
    assert reduce_by_relations(L.exp(), context) == L.exp()


def test_a_name_tells_what_it_stands_for() -> None:
    name = name_definition(LOG, 1 + RR)
    now = (-ExpPoly.from_variable("k1[now]")).exp()
    assert find_definition(name) == (LOG, 1 + RR) and find_definition(f"{name}[now]") == (LOG, 1 + now)
    assert name != name_definition(LET, 1 + RR) and name_definition(LOG, ONE * 2).startswith("const_")
    assert find_definition("k1") is None and find_definition("beta") is None


def test_two_elements_have_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short digests are: of 40 names of one digit some would be the same."""
    monkeypatch.setattr("klsym.language.defined.DIGITS", 1)
    monkeypatch.setattr("klsym.language.defined._STANDS_FOR", {})
    elements = [RR + n for n in range(1, 41)]
    names = [name_definition(LOG, e) for e in elements]
    assert len(set(names)) == 40 and [find_definition(name) for name in names] == [(LOG, e) for e in elements]
    assert [name_definition(LOG, e) for e in elements] == names


LOSSES = [  # loss, its slope along log q with p and mu fixed
    ("log(1 + r)", "-r/(1 + r)"),
    ("sqrt(1 + k1**2)", "k1/sqrt(1 + k1**2)"),
    ("1/(1 + r)", "r/(1 + r)**2"),
    ("k1/(2 + r)", "1/(2 + r) + k1*r/(2 + r)**2"),
    ("log(2 + k3)*R", "R*(1 - r)/(2 + k3)"),
    ("2**k1", "log(2)*2**k1"),
    ("abs(k1)/sqrt(3)", "(k1/abs(k1))/sqrt(3)"),
]


@pytest.mark.parametrize(("loss", "slope"), LOSSES)
@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.share(3)
def test_the_gradient_is_that_of_calculus(loss: str, slope: str, sampling: Any) -> None:
    verdict = klsym.explain(loss, sampling=sampling)
    assert verdict.trust == "kernel" and "ln_" not in str(verdict) and "const_" not in str(verdict)
    q, p, R = (np.array(x) for x in ((-1.0, -0.4, -2.0), (-0.7, -1.3, -0.2), (1.0, -2.0, 0.5)))
    points = atoms(q, p, q if sampling == "on-policy" else np.array((-0.9, -0.6, -1.1)), R, R)
    assert np.allclose(evaluate(verdict.gradient.score_text, points), evaluate(slope, points))


def test_a_wrong_log_is_refused() -> None:
    """Were log(1 + r) said to have the slope of log(2 + r), the printed gradient would be another one."""
    told = klsym.explain("log(1 + r)").gradient.score_text
    q, p = np.array([-1.0]), np.array([-0.5])
    at = atoms(q, p, q, 0 * q, 0 * q)
    assert not np.allclose(evaluate(told, at), evaluate("-r/(2 + r)", at))
    assert math.isclose(float(evaluate(told, at)[0]), -math.exp(0.5) / (1 + math.exp(0.5)))


def test_zero_has_no_names() -> None:
    assert reduce_by_relations(ZERO, where(1 + RR)) == ZERO


@pytest.mark.parametrize(
    "loss", ["log(1 + r)*k1/(1 + r)", "sqrt(k2 + 1)*r", "-log((1 + r)/2)*(1 + r)/2 - r*k1/2"]
)
def test_a_step_does_not_depend_on_the_order_of_terms(loss: str) -> None:
    """Equal elements share a stored step, whatever order their terms were found in."""
    found = build_slot_loss(Written(loss, parse(loss)), Setting())
    for element in (differentiate_in_log_q(found.element, found.defined), found.element):
        terms = sorted(element.terms.items())
        ways = [ExpPoly(dict(order)) for order in (terms, terms[::-1], terms[1:] + terms[:1])]
        steps = [find_next_step.__wrapped__(way, found.defined, False) for way in ways]
        assert all(step == steps[0] for step in steps)


HELD_QUOTIENTS = ["sg(r/(1 + r))*r*(R > 0)", "sg(k2/(1 + k2))*k2*(k1 > 1)", "sg(1/(1 + r))*r*(A > 0)"]


@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize("text", HELD_QUOTIENTS)
def test_a_quotient_that_is_held_stays_held_beside_a_mask(text: str, sampling: str) -> None:
    """What is held has no slope: sg(r/(1 + r)) r is no sg(..) of r less a quotient that moves."""
    outcome = examine(Case(text, sampling, "loss", ring=False))
    assert not outcome.complaints and outcome.target in ("objective", "f-divergence")
    held, moving = (
        klsym.explain(loss, sampling).to_json()["gradient"]["per_sample"]  # type: ignore[arg-type]
        for loss in (text, text.replace("sg(", "("))
    )
    assert held != moving
