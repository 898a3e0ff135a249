"""What `explain` says to write instead: right by the literal oracle, the first that `recommend` names."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.api import recommend
from klsym.errors import speak_of_flags, spell_option
from support.oracle.losses import Forest, Setting, samples, trees

ON, OFF = {"sampling": "on-policy"}, {"sampling": "off-policy"}
REWARD, TOKEN = {"use": "reward"}, {"level": "token"}
MEANS = {("q", "p"): ("k1", "q"), ("p", "q"): ("-k1", "p"), ("q", "mu"): ("log(rho)", "q")}  # KL = E_m[.]
CASES: list[tuple[str, dict[str, str], str, tuple[str, str], tuple[str, ...]]] = [
    ("k1", {}, "k2", ("q", "p"), ()),
    ("k3", {}, "k2", ("q", "p"), ()),
    ("abs(k1)", {}, "k2", ("q", "p"), ()),
    ("clip(k3, -10, 10)", {}, "k2", ("q", "p"), ()),
    ("rho*k2", {}, "k2", ("q", "p"), ()),
    ("r*log(r)", {}, "k3", ("p", "q"), ()),
    ("-A*rho + beta*k3", ON, "k2", ("q", "p"), ()),
    ("k3", OFF, "rho*k3", ("q", "p"), ()),
    ("rho*k2", OFF, "rho*k3", ("q", "p"), ()),
    ("sg(rho)*k3", OFF, "rho*k3", ("q", "p"), ()),
    ("-r*k1", OFF, "rho*k3", ("q", "p"), ()),  # off-policy its value is no KL at all
    ("-rho*r*k1 + k1", OFF, "rho*k3", ("q", "p"), ()),
    ("log_q - log_mu", OFF, "rho*(log_q - log_mu) + 1 - rho", ("q", "mu"), ()),
    ("k3", REWARD, "k1", ("q", "p"), ()),
    ("R - beta*k3", REWARD, "k1", ("q", "p"), ()),
    ("r*log(r)", REWARD, "1 - r", ("p", "q"), ()),
    ("k1", {**OFF, **REWARD}, "rho*k1", ("q", "p"), ()),
    ("log_q - log_mu", {**OFF, **REWARD}, "rho*(log_q - log_mu)", ("q", "mu"), ()),
    ("k3", TOKEN, "rho*k3", ("q", "p"), ("weights prefix",)),
    ("k3", {**TOKEN, **OFF}, "rho*k3", ("q", "p"), ("weights prefix",)),
    ("k1", {**TOKEN, **OFF}, "rho*k3", ("q", "p"), ("weights prefix",)),
    ("k3", {**TOKEN, **REWARD}, "k1", ("q", "p"), ()),
    ("k1", {**TOKEN, **REWARD, "credit": "same-token"}, "k1", ("q", "p"), ("credit to-go",)),
    ("k1", {**TOKEN, "aggregate": "mean"}, "rho*k3", ("q", "p"), ("aggregate sum", "weights prefix")),
    ("r*log(r)", TOKEN, "rho*k3", ("q", "p"), ("weights prefix",)),
    ("k3", {"level": "sequence", **OFF}, "rho*k3", ("q", "p"), ()),
    ("k3", {"batch": "leave-one-out"}, "k2", ("q", "p"), ()),
]  # fmt: skip
RIGHT: list[tuple[str, dict[str, str]]] = [
    ("k2", {}), ("3*k2", {}), ("k2 + k1", {}), ("-A*rho + beta*k2", ON), ("-A*rho", ON), ("rho*log_q", {}),
    ("r", {}), ("rho*(1 - r - r*k1)", {}), ("rho*k3", OFF), ("sg(rho)*k2", OFF), ("k1", REWARD),
    ("R - beta*k1", REWARD), ("-r", REWARD), ("rho*k1", {**OFF, **REWARD}), ("k1", {**TOKEN, **REWARD}),
    ("rho*k3", {**TOKEN, **OFF, "weights": "prefix"}), ("M*k3", {}),
    ("log_q - log_mu", {"sampling": "on-policy"}),
]  # fmt: skip


def wanted(instead: Any) -> tuple[str, tuple[str, str], tuple[str, ...]]:
    return instead.loss, instead.kl, instead.changed


@pytest.mark.parametrize(("loss", "options", "right", "kl", "changed"), CASES, ids=str)
@pytest.mark.share(3)
def test_what_to_write_instead(loss, options, right, kl, changed) -> None:
    verdict = klsym.explain(loss, **options)
    assert wanted(verdict.fix) == (right, kl, changed)
    assert klsym.check(verdict.fix.proof.certificate())
    text, [line] = str(verdict.fix), re.findall(r"^  fix +(.*)", str(verdict), re.MULTILINE)
    assert re.match(rf"-?(\w+\*)?{re.escape(right)}", line) and all(map(text.count, changed))
    assert all(spell_option(*option.split()) in str(verdict) for option in changed)
    with speak_of_flags():
        assert all(f"--{option}" in str(verdict) for option in changed)
    assert verdict.to_json()["warnings"][-1] == f"instead: {text}"


@pytest.mark.parametrize(("loss", "options", "right", "kl", "changed"), CASES, ids=str)
def test_it_is_right_by_the_literal_oracle(loss, options, right, kl, changed) -> None:
    setting = klsym.explain(loss, **options).fix.setting
    if setting.batch != "none":
        return
    given = {name: value for name, value in setting.to_json().items() if value}
    literal = Setting(**{"credit": "to-go", "weights": "token", **given})
    worlds = samples(3, copies=2) if setting.level == "sample" else trees(3, ((), ((), ())), copies=3)
    where = Forest(worlds, (setting.sampling,))
    assert np.abs(where.field(right, literal).a - where.slope(*MEANS[kl]).a).max() < 1e-10


@pytest.mark.parametrize(("loss", "options"), RIGHT, ids=str)
def test_nothing_is_said_of_what_is_right_or_no_penalty(loss, options) -> None:
    verdict = klsym.explain(loss, **options)
    assert verdict.fix is None and "Instead" not in str(verdict)


TO_THE_REFERENCE = "-rho*A, the ratio to the old policy in place of that to the reference: maximises E_q[A]"


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ("-A/r", TO_THE_REFERENCE),
        ("-torch.exp(logp - ref_logp.detach())*advantages", TO_THE_REFERENCE),
        ("-min(A/r, clip(1/r, 0.8, 1.2)*A)", "maximises E_q[A] inside the clip range"),
    ],
)
def test_a_reward_weighted_with_the_ratio_to_the_reference(loss: str, says: str) -> None:
    """k2 "in place of the penalty" would leave out the reward, as the loss is no sum."""
    verdict = klsym.explain(loss)
    assert says in " ".join(str(verdict).split()) and verdict.fix is None
    assert "in place of the penalty" not in str(verdict)


@pytest.mark.parametrize(
    "loss", ["-A*log_q", "-sg(A - beta*k1)*log_q", "k3 - A*log_q", "k3 - A/r", "-A*log_q*k1", "-rho*A/r"]
)
def test_the_ratio_is_not_said_to_be_wrong_elsewhere(loss: str) -> None:
    assert "in place of that to the reference" not in str(klsym.explain(loss))


@pytest.mark.parametrize(
    ("target", "sampling", "use"),
    [*product(("reverse-kl", "forward-kl"), ("on-policy", "off-policy"), ("loss", "reward"))],
)
@pytest.mark.share(3)
def test_it_is_the_first_that_is_recommended(target, sampling, use) -> None:
    """The value of -r*k1 is KL(p||q), that of k3 KL(q||p); off-policy with a weight."""
    weight = "" if sampling == "on-policy" else "sg(rho)*" if use == "loss" else "rho*"
    wrong = f"-{weight}r*k1" if target == "forward-kl" else f"{weight}k3"
    found = klsym.explain(wrong, sampling=sampling, use=use).fix
    assert found.loss == recommend(target, sampling, use).choices[0].loss
