"""f''(1) of coefficients outside the ring, in every form of the answer."""

from __future__ import annotations

import json

import pytest

from klsym.cli import main

# loss, use -> what is said of f at r = 1
SAID = {
    ("sqrt(k3)", "loss"): "f''(1) is not known", ("sqrt(k3)", "reward"): "f''(1) is not known",
    ("sqrt(k3)**3", "loss"): "f''(1) is not known", ("1/sqrt(k3)", "loss"): "f''(1) is not known",
    ("sqrt(k3)**3", "reward"): "f''(1) is not known", ("log(r)/(r-1)", "loss"): "f''(1) is not known",
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
