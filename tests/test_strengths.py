"""f''(1) of coefficients outside the ring, in every form of the answer; and products of steps in the ring."""

from __future__ import annotations

import json

import pytest
import sympy

from klsym.cli import main
from klsym.convert import to_ring
from klsym.engine.outside import sympy_target
from klsym.engine.regions.piecewise import Regions
from klsym.parser import parse

# loss, use -> what is said of f at r = 1
SAID = {
    ("sqrt(k3)", "loss"): "f''(1) is not known", ("sqrt(k3)", "reward"): "f''(1) is not known",
    ("sqrt(k3)**3", "loss"): "f''(1) is not known", ("1/sqrt(k3)", "loss"): "f''(1) is not known",
    ("sqrt(k3)**3", "reward"): "f''(1) = 0", ("log(r)/(r-1)", "loss"): "f''(1) is not known",
    ("abs(k1)", "loss"): "a kink at r = 1", ("abs(k1)", "reward"): "a kink at r = 1",
    ("max(r,1)", "loss"): "a kink at r = 1", ("log(1+r)", "reward"): "f''(1) = ",
}  # fmt: skip


@pytest.mark.parametrize(("loss", "use"), SAID)
def test_what_is_said_where_q_is_p(loss, use, capsys):
    said = SAID[loss, use]
    for form in ("text", "markdown", "latex", "json"):
        assert main(["explain", loss, "--use", use, "--format", form]) == 0
        out = capsys.readouterr().out
        if form == "json":
            strength = json.loads(out)["gradient"]["fisher_strength"]
            assert (strength is None) == (" = " not in said or "kink" in said)
        elif form == "text":
            assert said in out


@pytest.mark.parametrize(
    "loss",
    [
        "clip(k1,-1,1)*k2", "clip(rho*clip(k1,-1,1),-2,2)", "max(k1,0)*min(r,1)*k3", "abs(k1)*clip(r,1/2,2)",
        "(clip(k1,-1,1) + abs(k1))*(max(r,1) - k2)", "min(r,1)*min(rho,2)",
    ],
)  # fmt: skip
def test_products_without_empty_regions_are_the_same(loss):
    regions = Regions()
    e = regions.polynomial(parse(loss))
    one = regions.reduced(sympy_target._element(e, regions))
    assert one == regions.reduced(to_ring(sympy.expand(e))) and regions.table
