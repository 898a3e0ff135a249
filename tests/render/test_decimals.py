"""Decimals in printed formulas: other digits, the same number."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.notation.decimals import choose_decimals, write_decimals

VALUES = {"r": 1.7, "k1": -0.53, "T": 3.0, "n": 4.0, "exp": math.exp}
ATOMS = ["2**2", "r", "k1", "exp(k1)", "k1**2", "(r - 1)", "(1 - r/25)", "3", "7"]
NUMBERS = [2, 3, 4, 5, 7, 8, 25, 30, 125]


@st.composite
def write_terms(draw: st.DrawFn) -> str:
    """A sum of products of atoms, each over a number, a letter, or both, as klsym prints them."""
    terms = []
    for _ in range(draw(st.integers(1, 3))):
        product = "*".join(draw(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3)))
        number = draw(st.sampled_from(NUMBERS))
        terms.append(
            product + draw(st.sampled_from(["", f"/{number}", "/T", f"/({number}*T)", f"/({number}*T*n)"]))
        )
    return draw(st.sampled_from(["", "-"])) + draw(st.sampled_from([" + ", " - "])).join(terms)


@given(write_terms())
def test_the_number_is_the_same(text: str) -> None:
    before, after = (eval(formula, dict(VALUES)) for formula in (text, write_decimals(text)))
    assert math.isclose(before, after, rel_tol=1e-12, abs_tol=1e-12), write_decimals(text)


@given(write_terms())
def test_no_finite_decimal_is_left_as_a_quotient(text: str) -> None:
    left = re.findall(r"(?<![\w.)\]])(\d+)/(\d+)(?![\w.*(])", write_decimals(text))
    assert [pair for pair in left if int(pair[1]) in (2, 4, 5, 8, 25, 125)] == []


@pytest.mark.parametrize(
    ("loss", "text", "written"),
    [
        ("0.04*k3", "minimises E_mu[r/25] - 1/25 KL(mu||q)", "minimises E_mu[0.04*r] - 0.04*KL(mu||q)"),
        ("clip(rho, 0.8, 1.2)", "where rho > 6/5", "where rho > 1.2"),
        ("0.3*k1", "k1/3", "k1/3"),  # no finite decimal
        ("k3/25", "E_mu[r/25]", "E_mu[r/25]"),  # typed as a quotient
        ("0.5*k1", "E_q[1/T], rho**(1/T), q/mu, k1**2/T", "E_q[1/T], rho**(1/T), q/mu, k1**2/T"),
        ("0.5*k1", "KL004 at 1/2, arXiv:2505.1/2x", "KL004 at 0.5, arXiv:2505.1/2x"),
    ],
)
def test_what_is_rewritten_and_what_stays(loss: str, text: str, written: str) -> None:
    assert choose_decimals(loss)(text) == written
