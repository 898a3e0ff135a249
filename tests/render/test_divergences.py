"""f in r, read back by the grammar, and the regions where it is convex."""

from __future__ import annotations

import pytest
import sympy

from klsym.engine.divergences.f_divergence import NAMED_GENERATORS, find_convex_region, generator
from klsym.language.convert import to_ring
from klsym.language.expressions import k1, k2, k3, lam, r
from klsym.language.parser import parse
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.ratios import describe_region, rewrite_in_r

COEFFICIENTS = {
    "k1": (k1, "r - log(r) - 1"),
    "-r": (-r, "r*log(r) - r + 1"),
    "k2": (k2, "log(r)**2/2 + log(r) - r + 1"),
    "k3": (k3, "2*r - log(r) - r*log(r) - 2"),
    "rho k2": (k1 + k2, "log(r)**2/2"),
    "lam": (lam * k1, "lam*(r - log(r) - 1)"),
    "pearson": (-(r**2), "r**2 - 2*r + 1"),
    "neyman": (1 / r, "r/2 + 1/(2*r) - 1"),
    "root": (-(r ** sympy.Rational(1, 2)), "r - 2*r**(1/2) + 1"),
}


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_f_reads_back(name):
    """The text is in the loss grammar, where r and log(r) are what they were."""
    c, expected = COEFFICIENTS[name]
    f = generator(to_ring(c))
    shown = TEXT(rewrite_in_r(f))
    assert to_ring(parse(shown, {"lam"})) == f
    assert shown == expected


def test_latex():
    assert LATEX(rewrite_in_r(NAMED_GENERATORS["reverse-kl"])) == r"r - \log(r) - 1"


REGIONS = {
    "k2": (k2, "r <= 1"),
    "rho k2": (k1 + k2, "r <= e"),
    "r k1": (r * k1, "r >= 1/e"),
    "cubic": (k1**3 - 3 * k1, "r <= 1/e or r >= e"),
    "minus cubic": (3 * k1 - k1**3, "1/e <= r <= e"),
    "half": (k1**2 - k1, "r <= exp(-1/2)"),
    "root": (k1**3 - 6 * k1, "r <= 0.243117 or r >= 4.11325"),
}


@pytest.mark.parametrize("name", REGIONS)
def test_regions(name):
    c, expected = REGIONS[name]
    assert describe_region(find_convex_region(to_ring(c))) == expected
