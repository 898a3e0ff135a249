"""Shapes that real trainers have: each is read or measured, and a neighbour gets the answer of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from klsym.cli import main
from klsym.confirmed.both import audit_and_measure
from klsym.measure.measuring import measure

FILE = "tests/support/audits/shapes.py"
JAX = "tests/support/audits/measured_jax.py"
VOCABULARY = {"map": {"p": "q[v]", "q": "p[v]"}}
# The shape and its neighbour: what is told; for each what is read, or a word of the reason why it is not; and
# the multiples that are measured, by hand ({}: no objective; None: neither read nor measured).
SHAPES: dict[str, tuple[dict[str, Any], tuple[str, Any], tuple[str, Any]]] = {
    "probabilities": (VOCABULARY, ("full(k1)", {"reverse-kl": 1.0}), ("full(-k1*r)", {"forward-kl": 1.0})),
    "template": ({}, ("takes out a part", {"next-token-reverse-kl/N": 1.0}), ("takes out a part", {})),
    "stacked": ({}, ("takes out a part", {"E_mu[k3/N]": 1.0}), ("takes out a part", {"E_mu[log_q/N]": 1.0})),
    "filled": ({}, ("inf in a formula", {"E_mu[k3/N]": 1.0}), ("inf in a formula", None)),
    "of_samples": ({}, ("k3", {"E_mu[k3/N]": 1.0}), ("k3", {"E_mu[k3/T]": 1.0})),
    "counted": (
        {"set": {"counts['response_mask']": 2.0}},
        ("k2/2", {"next-token-reverse-kl": 1.0}), ("k2", {"E_mu[k2/N]": 1.0}),
    ),
    "listed": ({}, ("cat is not", {"next-token-reverse-kl": 0.5}), ("k2", {"next-token-reverse-kl": 1.0})),
    "zipped": ({}, ("axes", {"next-token-reverse-kl": 1.0}), ("axes", {"next-token-reverse-kl": 0.5})),
    "chunked": ({}, ("takes out a part", {"E_mu[k2/N]": 1.0}), ("takes out a part", {"E_mu[k2/T]": 1.0})),
    "packed": (
        {}, ("packed sequences", {"next-token-reverse-kl": 0.5}),
        ("packed sequences", {"next-token-reverse-kl": 1.0}),
    ),
    "index_added": (
        {}, ("index_add is not", {"E_mu[k2/T]": 1.0}), ("index_add is not", {"next-token-reverse-kl": 1.0})
    ),
    "reported": ({}, ("k3", {"E_mu[k3/N]": 1.0}), (".item() takes", {})),
    "of_config": ({}, ("k2", {"E_mu[k2/N]": 1.0}), ("k3", {"E_mu[k3/N]": 1.0})),
    "of_partial": ({}, ("k3", {"E_mu[k3/N]": 1.0}), ("k2", {"E_mu[k2/N]": 1.0})),
    "normalised": (
        {}, ("std is not read", {"E_mu[centred(R)/(std_1(R) + 1e-6)*rho/N]": -1.0}),
        ("a sum over tokens", {"E_mu[loo(R)*rho/N]": -0.5}),
    ),
    "grouped": ({}, ("view", {"E_mu[loo(R)*rho/N]": -0.5}), ("view", None)),
    "by_row": ({}, ("a sum over tokens", {"policy-gradient": -0.5}), ("", {"policy-gradient": -1.0})),
    "of_the_batch": ({}, ("a sum over tokens", {"policy-gradient": -0.5}), ("a sum over tokens", {})),
}  # fmt: skip


def check(target: str, options: dict[str, Any], answer: tuple[str, Any]) -> None:
    both = audit_and_measure(target, **options)
    words, multiples = answer
    if both.read is not None:
        assert both.read.expression == words and both.agrees is True
    else:
        assert words in both.unread
    if multiples is None:
        assert both.read is None and both.measured is None and both.unmeasured
        return
    assert both.measured is not None and both.measured.multiples == multiples
    assert multiples or both.measured.kind == "no-objective"


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.share(3)
def test_a_shape_and_its_neighbour(name: str) -> None:
    options, right, beside = SHAPES[name]
    assert right != beside
    check(f"{FILE}:{name}", options, right)
    check(f"{FILE}:{name}_beside", options, beside)


def test_a_method_of_a_base_class_and_one_that_replaces_it() -> None:
    check(f"{FILE}:Inherited.loss", {}, ("k3", {"E_mu[k3/N]": 1.0}))
    check(f"{FILE}:Overridden.loss", {}, ("k2", {"E_mu[k2/N]": 1.0}))


def test_a_setting_of_a_config_chooses_its_method() -> None:
    """The method runs with the settings that the user gives; else with the defaults, and a note says so."""
    both = audit_and_measure(f"{FILE}:of_config")
    assert both.read is not None and any("config.kind is 'k2'" in note for note in both.read.notes)
    check(f"{FILE}:of_config", {"set": {"config.kind": "other"}}, ("k3", {"E_mu[k3/N]": 1.0}))


def test_jax_over_the_vocabulary_is_measured() -> None:
    pytest.importorskip("jax")
    reason = "are read in PyTorch only"
    check(f"{JAX}:reverse_of_words", {}, (reason, {"next-token-reverse-kl/N": 1.0}))
    check(f"{JAX}:forward_of_words", {}, (reason, {"next-token-forward-kl/N": 1.0}))


def cut(batch: Any, inside: bool) -> Any:
    ratio = (batch.logp - batch.old_logp).exp()
    kept = ((ratio > 0.8) & (ratio < 1.2)) == inside
    weighed = torch.where(kept, ratio, ratio.detach()) * batch.rewards[:, None] * batch.mask
    return -weighed.sum() / batch.mask.sum()


@pytest.mark.parametrize(("name", "inside"), [("detached_outside", True), ("detached_outside_beside", False)])
def test_what_a_clip_leaves_as_it_is_has_a_gradient(name: str, inside: bool) -> None:
    """where(w == w.clamp(..), w, w.detach()): the oracle says by comparisons what lies within the bounds."""
    both = audit_and_measure(f"{FILE}:{name}")
    assert both.measured is not None and both.measured.setting.sampling == "off-policy"
    oracle = measure(lambda batch: cut(batch, inside), sampling="off-policy", group=2)
    other = measure(lambda batch: cut(batch, not inside), sampling="off-policy", group=2)
    gap, apart = (abs(both.measured.gradients[0] - x.gradients[0]).max() for x in (oracle, other))
    assert gap < 1e-12 < 1e-3 < apart


# ---------------------------------------------------------------------------- what names do not say is asked
def test_two_names_of_one_policy_are_asked_about() -> None:
    """Neither is read nor measured: which of them is the old policy decides the answer."""
    check(f"{FILE}:of_two_policies", {}, ("cumsum is not read", {"token-policy-gradient": -1.0}))
    check(f"{FILE}:of_two_policies_beside", {}, ("would all be log_q by their names: --map says", None))
    told = {"map": {"log_prob": "log_mu"}, "sampling": "off-policy"}
    check(f"{FILE}:of_two_policies_beside", told, ("cumsum is not read", {"token-policy-gradient": -1.0}))


def test_a_sampled_word_or_the_vocabulary_is_asked() -> None:
    check(f"{FILE}:of_words", {}, ("names are no guide: --map logp=log_q[v] or --map logp=log_q", None))
    told = {"map": {"logp": "log_q[v]", "ref_logp": "log_p[v]"}}
    check(f"{FILE}:of_words", told, ("full(k1)", {"next-token-reverse-kl": 0.5}))


# ---------------------------------------------------------------------------- settings
SETTINGS = [
    f"config.{name}_of_several_settings=x" for name in ("first", "second", "third", "fourth", "fifth")
]


def test_settings_are_listed_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    target = f"{FILE}:many_settings"
    assert main(["audit", target, "--map", "logp=number", "--map", "ref_logp=number"]) == 2
    refused = capsys.readouterr().err
    assert main(["audit", target]) == 0
    measured = capsys.readouterr().out
    for text in (" ".join(refused.split()), " ".join(measured.split())):
        assert all(f"--set {setting}" in text for setting in SETTINGS) and "..." not in text
    command = [word for setting in SETTINGS for word in ("--set", setting)]
    assert main(["audit", target, *command]) == 0
    assert "branches on" not in capsys.readouterr().out


PYDANTIC = """from pydantic import BaseModel, Field
class Config({base}):
    kind: str = "k2"
    other: str = Field(default="k3", description="of the penalty")
    third: str = Field("k2")
def loss(logp, ref_logp, mask, config: Config):
    d = ref_logp - logp
    k = d.exp() - 1 - d if config.{name} == "k3" else 0.5 * d**2
    return (k * mask).sum() / mask.sum()
"""


@pytest.mark.parametrize(("name", "read"), [("kind", "k2"), ("other", "k3"), ("third", "k2")])
def test_a_word_that_a_model_of_pydantic_declares(name: str, read: str, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(PYDANTIC.format(base="BaseModel", name=name), encoding="utf-8")
    check(f"{tmp_path}/code.py:loss", {}, (read, {f"E_mu[{read}/N]": 1.0}))
    (tmp_path / "code.py").write_text(PYDANTIC.format(base="Unknown", name=name), encoding="utf-8")
    both = audit_and_measure(f"{tmp_path}/code.py:loss")
    assert both.read is None and f"branches on config.{name}" in both.unread
    assert any(f"--set config.{name}=k3" in note for note in both.assumed)


# ---------------------------------------------------------------------------- what is assumed is printed
ADVANTAGES = """import torch
def compute_advantages(rewards, logp, ref_logp):
    return (rewards - 0.1 * (logp - ref_logp)).flip(-1).cumsum(-1).flip(-1)
def compute_rewards(rewards, logp, ref_logp):
    return rewards - 0.1 * (logp - ref_logp)
def advantage_loss(rewards, logp, ref_logp):
    return rewards - 0.1 * (logp - ref_logp)
def old(logp, old_logp, rewards):
    return -(torch.exp(logp - old_logp) * rewards).cumsum(-1)[:, -1].mean()
"""
ASSUMED = {
    "compute_advantages": ("use reward", "credit same-token", "rewards = R"),
    "old": ("sampling off-policy: old_logp", "--sampling on-policy", "logp = log_q"),
}


@pytest.mark.parametrize("name", ASSUMED)
def test_what_is_assumed_of_measured_code_is_printed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code.py").write_text(ADVANTAGES, encoding="utf-8")
    assert main(["audit", f"{tmp_path}/code.py:{name}"]) == 0
    text = capsys.readouterr().out
    assert all(words in text for words in ASSUMED[name]) and "not read" in text
    assert main(["audit", f"{tmp_path}/code.py:{name}", "--json"]) == 0
    assumed = " ".join(json.loads(capsys.readouterr().out)["assumed"])
    assert all(words in assumed for words in ASSUMED[name])


def test_a_function_named_after_rewards_is_a_reward(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(ADVANTAGES, encoding="utf-8")
    rewards, loss = (
        audit_and_measure(f"{tmp_path}/code.py:{x}") for x in ("compute_rewards", "advantage_loss")
    )
    assert rewards.read is not None and rewards.read.verdict.setting.is_reward
    assert rewards.measured is not None and "maximises E[R]" in rewards.measured.summary
    assert any("--use loss if it gives a loss" in note for note in rewards.read.notes)
    assert loss.read is not None and not loss.read.verdict.setting.is_reward
    asked = audit_and_measure(f"{tmp_path}/code.py:compute_rewards", use="loss")
    assert asked.read is not None and not asked.read.verdict.setting.is_reward


# ---------------------------------------------------------------------------- notebooks
CELLS = (
    "%pip install torch\nimport torch\nbeta = 0.5\nlogp = torch.randn(2, 3)",
    "def k2(logp, ref_logp):\n    d = ref_logp - logp\n    return 0.5 * d**2",
    "loss = beta * (k2(logp, ref_logp) * mask).sum() / mask.sum()\nloss.backward()",
    "d = logp - ref_logp\n0.5 * d**2",
    "%%bash\nls",
)
READ_CELLS = {"2": "k2", "k2": "k2", "3": "k2/2", "4": "k2"}
REFUSED_CELLS = {
    "5": "no code in cell 5 (there are 5 cells of code)",
    "6": "no code in cell 6",
    "0": "no code in cell 0",
    "k3": "no function k3",
}


def write_notebook(folder: Path, cells: tuple[str, ...]) -> str:
    listed = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    listed.insert(1, {"cell_type": "markdown", "source": "# a title"})
    (folder / "nb.ipynb").write_text(json.dumps({"cells": listed}), encoding="utf-8")
    return f"{folder}/nb.ipynb"


@pytest.mark.parametrize("name", READ_CELLS)
def test_a_cell_of_a_notebook_is_read(name: str, tmp_path: Path) -> None:
    both = audit_and_measure(f"{write_notebook(tmp_path, CELLS)}:{name}")
    assert both.read is not None and both.read.expression == READ_CELLS[name]


@pytest.mark.parametrize("name", REFUSED_CELLS)
def test_what_is_no_cell_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", f"{write_notebook(tmp_path, CELLS)}:{name}"]) == 2
    err = capsys.readouterr().err
    assert REFUSED_CELLS[name] in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["", "[]", '{"cells": 3}', '{"cells": [{}]}', '{"cells": [{"cell_type": "code"}]}']
)
def test_what_is_no_notebook_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nb.ipynb").write_text(text, encoding="utf-8")
    assert main(["audit", f"{tmp_path}/nb.ipynb:1"]) == 2
    assert "no notebook" in capsys.readouterr().err
