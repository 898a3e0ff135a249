"""Strategies of hypothesis: elements of the ring, and losses as texts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from klsym.kernel.ring import ExpPoly

V = ExpPoly.from_variable

NAMES = ("k1", "w", "log_q", "R", "A", "lam", "beta", "sg(k1)", "sg(w)", "sg(log_q)")
numbers = st.fractions(min_value=-9, max_value=9, max_denominator=7)
monomials = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3), max_size=3)
exponents = st.lists(st.tuples(numbers, monomials), max_size=2)


@st.composite
def ring_elements(draw: Any) -> ExpPoly:
    total = ExpPoly({})
    for value, powers, exponent in draw(st.lists(st.tuples(numbers, monomials, exponents), max_size=4)):
        total = (
            total + product(powers) * value * sum((product(m) * v for v, m in exponent), ExpPoly({})).exp()
        )
    return total


def product(powers: dict[str, int]) -> ExpPoly:
    result = ExpPoly.from_number(1)
    for name, power in powers.items():
        result = result * V(name) ** power
    return result


LEAVES = [
    *("k1", "k2", "k3", "r", "rho", "log_q", "log_p", "log_mu"),
    *("R", "A", "lam", "beta", "2", "0.3", "1/7"),
]


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operator = st.sampled_from(["+", "-", "*"])
    return (
        st.builds("({}) {} ({})".format, inner, operator, inner)
        | st.builds("({})**{}".format, inner, st.integers(0, 2))
        | st.builds("sg({})".format, inner)
        | st.builds("-({})".format, inner)
        | st.builds("k({})".format, inner)
        | st.sampled_from(["1/r", "r**lam", "sqrt(rho)", "log(r)", "exp(k1*lam)", "exp(-k2)", "rho**(-1/2)"])
    )


losses = st.recursive(st.sampled_from(LEAVES), _grow, max_leaves=7)
small = st.floats(-2, 2, allow_nan=False).map(lambda x: round(x, 3))
points = st.fixed_dictionaries(dict.fromkeys(("log_q", "log_p", "log_mu", "R", "A"), small))
