"""What `klsym audit` reads of a file and what it leaves alone; bad files and options get one clear line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from klsym.audit import audits
from klsym.audit.binding import bind, make_guesser
from klsym.audit.reading import read
from klsym.cli import main
from klsym.errors import UsageError

pytest.importorskip("torch")

TRAINER = """
import os
open("RAN", "w").write("the whole file was run")
os.system("touch RAN")
import torch
import heavy_package.inner as heavy
from another_heavy_package import register, Base
from .helpers import masked_mean

SCALE = float(0.5)
UNUSED = os.system("touch RAN")


@register("kl")
@torch.compile
def penalty(logp, ref_logp, kind="k2", *, weight=1.0):
    if kind == "k1":
        return weight * (logp - ref_logp)
    if kind == "k2":
        return weight * SCALE * (logp - ref_logp) ** 2
    if kind == "heavy":
        return heavy.penalty(logp, ref_logp)
    raise ValueError("no such kind")


class Trainer(Base):
    CLIP = 20

    def __init__(self):
        os.system("touch RAN")

    def estimate(self, d):
        return torch.exp(d.clamp(-self.CLIP, self.CLIP)) - d - 1

    @staticmethod
    def both(logp, ref_logp):
        return (logp - ref_logp) ** 2 / 2

    def compute_loss(self, model, inputs):
        logps = self._logps(model, inputs)
        mask = inputs["completion_mask"]
        kl = self.estimate(inputs["ref_logps"] - logps)
        metrics = {"kl": kl.mean().item()}
        if self.args.detach:
            kl = kl.detach()
        loss = masked_mean(self.args.beta * kl, mask)
        with torch.no_grad():
            frozen = 0.5 * (logps - inputs["ref_logps"]) ** 2
        return loss, metrics
"""
HELPERS = """
import torch
raise RuntimeError("the whole file was run")


def masked_mean(x, mask):
    return _total(x * mask) / mask.sum()


def _total(x):
    return x.sum()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "trainer.py").write_text(TRAINER, encoding="utf-8")
    (tmp_path / "helpers.py").write_text(HELPERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "RAN").exists()


def line_of(text: str, source: str = TRAINER) -> int:
    [number] = [n for n, line in enumerate(source.splitlines(), 1) if text in line]
    return number


def test_a_function_is_read_without_the_rest_of_its_file(folder):
    found = audits.audit("trainer.py:penalty")
    assert (found.expression, found.target) == ("k2", "reverse-kl")
    assert any("@register" in note and "left out" in note for note in found.notes)
    assert found.code.lines[0] == line_of("def penalty")
    assert "heavy_package" not in sys.modules


def test_options_choose_the_branch(folder):
    assert audits.audit("trainer.py:penalty", set={"kind": "k1", "weight": 3}).expression == "3*k1"
    with pytest.raises(UsageError, match=r"line \d+: the code raises ValueError: no such kind"):
        audits.audit("trainer.py:penalty", set={"kind": "k9"})
    with pytest.raises(UsageError, match=r"heavy_package.inner.*is not imported: map what it gives"):
        audits.audit("trainer.py:penalty", set={"kind": "heavy"})


def test_a_method_with_expressions_of_the_code_as_roles(folder):
    found = audits.audit(
        "trainer.py:Trainer.compute_loss",
        map={"self._logps(model, inputs)": "log_q"},
        set={"self.args.detach": False, "self.args.beta": 0.04},
    )
    assert found.expression == "1/25*exp(clip(-k1, -20, 20)) + 1/25*k1 - 1/25" or "clip" in found.expression
    assert found.tokens.words.startswith("averaged over all tokens of the batch")
    assert found.bindings.texts["inputs['ref_logps']"] == "log_p"
    assert found.bindings.guessed == ["inputs['ref_logps']", "inputs['completion_mask']"]
    assert any("2 values" in note for note in found.notes)


def test_what_is_free_is_a_parameter_or_is_named(folder):
    roles = {"self._logps(model, inputs)": "log_q"}
    found = audits.audit("trainer.py:Trainer.compute_loss", map=roles, set={"self.args.detach": False})
    assert list(found.bindings.free) == ["self.args.beta"] and "beta" in found.expression
    with pytest.raises(
        UsageError, match=r"branches on self.args.detach, which is unknown: .*--set self.args.detach=False"
    ):
        audits.audit("trainer.py:Trainer.compute_loss", map=roles)


def test_static_methods(folder):
    assert audits.audit("trainer.py:Trainer.both").expression == "k2"


def block(first: str, last: str) -> str:
    return f"trainer.py:{line_of(first)}-{line_of(last)}"


def test_lines_inside_a_method(folder):
    lines = block("kl = self.estimate", "kl = self.estimate")
    roles = {"self.estimate(inputs['ref_logps'] - logps)": "k3"}
    assert audits.audit(lines, map=roles).target == "forward-kl"
    lines = block("loss = masked_mean", "loss = masked_mean")
    found = audits.audit(lines, map={"kl": "k2"})
    assert found.expression == "beta*k2" and "all tokens of the batch" in found.tokens.words


def test_lines_under_no_grad_are_detached(folder):
    lines = block("frozen = 0.5", "frozen = 0.5")
    assert audits.audit(lines).expression == "sg(k2)"


def test_lines_that_read_a_name_before_they_change_it(folder):
    (folder / "inline.py").write_text("import torch\nkl = kl * 2\nkl = kl + 1\n", encoding="utf-8")
    found = audits.audit("inline.py:2-3", map={"kl": "k2"})
    assert found.expression == "2*k2 + 1"
    assert audits.audit("inline.py:2", map={"kl": "k2"}, result="kl * 3").expression == "6*k2"


def test_lines_that_end_in_a_branch(folder):
    """What is assigned there is the result, and no name that the lines assign first is asked for."""
    text = "if beta != 0:\n    kl = logp - ref_logp\n    kl = kl * kl / 2\n    kl *= beta\n"
    (folder / "branch.py").write_text(text, encoding="utf-8")
    found = audits.audit("branch.py:1-4", set={"beta": 2})
    assert (found.expression, sorted(found.bindings.texts)) == ("2*k2", ["logp", "ref_logp"])


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("trainer.py:nothing", {}, "no function nothing (there are penalty)"),
    ("trainer.py:Nothing.f", {}, "no class Nothing"),
    ("trainer.py:Trainer.nothing", {}, "no function Trainer.nothing (there are __init__, estimate, both"),
    ("missing.py:f", {}, "missing.py: No such file"),
    ("trainer.py:9000-9001", {}, "no statement in lines 9000 to 9001"),
    ("trainer.py", {}, "FILE.py:FUNC, FILE.py:120-128 or MODULE:FUNC expected"),
    ("nowhere_at_all:f", {}, "nowhere_at_all:f cannot be imported: ModuleNotFoundError"),
    ("trainer.py:penalty", {"map": {"nosuch": "log_q"}}, "reads no 'nosuch' (it reads logp, ref_logp, kind"),
    ("trainer.py:penalty", {"map": {"logp": "logq"}}, "unknown name 'logq' at character 1"),
    ("trainer.py:penalty", {"map": {"logp": "__import__('os')"}}, "unexpected"),
    ("trainer.py:penalty", {"map": {"logp +": "log_q"}}, "'logp +' is no name or expression"),
]


@pytest.mark.parametrize(("target", "options", "words"), BAD, ids=str)
def test_bad_input_gets_one_line(folder, target, options, words):
    with pytest.raises(UsageError) as refused:
        audits.audit(target, **options)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_lines_that_cut_a_statement(folder):
    start = line_of("if self.args.detach")
    found = audits.audit(f"trainer.py:{start}-{start}", map={"kl": "k2"}, set={"self.args.detach": True})
    assert found.expression == "sg(k2)"
    assert f"lines {start}-{start} cut a statement: lines {start}-{start + 1} are read" in found.notes
    with pytest.raises(UsageError, match="cut the definition of lines"):
        audits.audit(f"trainer.py:{line_of('def estimate')}")


def guessed(target: str, *names: str, **maps: str) -> dict[str, str]:
    """What is taken for what, once the code computes with these names."""
    code = read(target)
    found = bind(code, maps, {})
    for name in names:
        found.guess(*make_guesser(code)(name, "", False))
    return found.texts


def test_a_guess_can_be_overridden(folder):
    code = read("trainer.py:penalty")
    assert guessed("trainer.py:penalty", "logp", "ref_logp") == {"logp": "log_q", "ref_logp": "log_p"}
    turned = bind(code, {"logp": "log_p", "ref_logp": "log_q"}, {})
    assert (turned.texts, turned.guessed) == ({"logp": "log_p", "ref_logp": "log_q"}, [])


def test_the_words_of_the_grammar_are_taken_at_their_word(folder):
    """log_p beside log_q is the reference; without it, it is the policy, as logp is."""
    text = "def f(log_q, log_p):\n    return log_q\ndef g(log_p, ref_logp):\n    return log_p - ref_logp\n"
    (folder / "words.py").write_text(text, encoding="utf-8")
    assert guessed("words.py:f", "log_q", "log_p") == {"log_q": "log_q", "log_p": "log_p"}
    assert guessed("words.py:g", "log_p", "ref_logp") == {"log_p": "log_q", "ref_logp": "log_p"}


def test_the_old_policy_beside_the_one_that_samples(folder):
    text = "def f(logp, old_logp, rollout_logp):\n    return logp - old_logp\n"
    (folder / "three.py").write_text(text, encoding="utf-8")
    assert guessed("three.py:f", "logp", "old_logp", "rollout_logp") == {
        "logp": "log_q", "old_logp": "log_old", "rollout_logp": "log_mu",
    }  # fmt: skip
    assert guessed("three.py:f", "old_logp", rollout_logp="R")["old_logp"] == "log_mu"


# ---------------------------------------------------------------------------- the command
BROKEN = {
    "syntax.py": ("def f(logp:\n", "syntax.py, line 1: no Python"),
    "leaves.py": (
        "import sys\ndef f(logp):\n    sys.exit('bye')\n",
        "line 3: the code raises SystemExit: bye",
    ),
    "arity.py": (
        "def g(x):\n    return x\ndef f(logp):\n    return g()\n",
        "line 4: the code raises TypeError",
    ),
    "binary.py": ("\x00\x01", "no Python"),
    "endless.py": ("def f(logp):\n    return f(logp)\n", "line 2: the code raises RecursionError"),
    "empty.py": ("def f(logp):\n    pass\n", "nothing is returned"),
    "listed.py": ("def f(logp):\n    return {'kl': logp}\n", "a dict is returned (kl): name the loss"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(folder, name):
    text, words = BROKEN[name]
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        audits.audit(f"{name}:f")
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["f", "2"])
def test_code_that_is_nested_too_deeply_gets_one_line(name, tmp_path):
    """It parses; to copy or to walk it would need more of Python's stack than there is."""
    file = tmp_path / "deep.py"
    file.write_text(f"def f(x):\n    return {'-' * 900}x\n")
    with pytest.raises(UsageError, match="nested too deeply"):
        read(f"{file}:{name}")


def test_the_command_with_several_values_and_an_expectation(folder, capsys):
    options = ["--set", "kind=k1", "--set", "kind=k2", "--set", "kind=k9", "--expect", "reverse-kl"]
    assert main(["audit", "trainer.py:penalty", *options]) == 2
    out, err = capsys.readouterr()
    head, first, second, third = out.splitlines()
    assert head.split() == ["code", "options", "loss", "target"]
    assert first.split()[:3] == ["penalty", "kind=k1", "k1"] and "zero expected gradient" in first
    assert second.split()[:3] == ["penalty", "kind=k2", "k2"] and third.split()[3] == "not"
    assert (
        "trainer.py:penalty has zero expected gradient; expected reverse-kl" in err and err.count("\n") == 2
    )


def test_the_command_prints_json(folder, capsys):
    both = ["--set", "weight=1", "--set", "weight=-1"]
    assert main(["audit", "trainer.py:penalty", *both, "--json", "--expect", "reverse-kl"]) == 1
    out, err = capsys.readouterr()
    plain, turned = map(json.loads, out.splitlines())
    assert plain["gradient"]["target"] == "reverse-kl" and plain["expression"] == "k2"
    assert Path(plain["file"]).name == "trainer.py" and turned["set"] == {"weight": -1}
    assert err == "klsym: trainer.py:penalty minimises minus reverse-kl; expected reverse-kl\n"


AGGREGATED = """import torch
def mean(logp, ref_logp, mask):
    k = 0.5 * (logp - ref_logp) ** 2
    return ((k * mask).sum(-1) / mask.sum(-1)).mean()
def sums(logp, ref_logp, mask):
    return ((0.5 * (logp - ref_logp) ** 2) * mask).sum(-1).mean()
def batch(logp, ref_logp, mask):
    return ((0.5 * (logp - ref_logp) ** 2) * mask).sum() / mask.sum()
def single(logp, ref_logp):
    return 0.5 * (logp - ref_logp) ** 2
"""


def test_expectations_are_of_what_the_code_does_with_tokens(folder, capsys):
    """On a tree, k2 averaged over tokens has 0.1238 where grad KL is 0.2059, summed it has 0.1636."""
    (folder / "k2.py").write_text(AGGREGATED, encoding="utf-8")
    names = ("mean", "sums", "batch", "single")
    command = ["audit", *(f"k2.py:{name}" for name in names), "--expect", "reverse-kl"]
    assert main([*command, "--json"]) == 1
    out, err = capsys.readouterr()
    levels = [json.loads(line)["level"] for line in out.splitlines()]
    assert levels == ["token"] * 3 + ["sample"]
    assert err.count("expected reverse-kl") == 3 and "single" not in err
    assert main([*command, "--level", "sample"]) == 0  # what the user asks for


def test_a_reward_that_is_summed_goes_to_all_tokens(folder):
    body = "return np.sum((logp - ref_logp) * mask, -1)"
    text = f"import numpy as np\ndef f(logp, ref_logp, mask):\n    {body}\n"
    (folder / "summed.py").write_text(text, encoding="utf-8")
    for level in ("token", None):
        found = audits.audit("summed.py:f", use="reward", level=level)
        assert (found.target, found.verdict.setting.credit) == ("reverse-kl", "total")
    asked = audits.audit("summed.py:f", use="reward", credit="same-token")
    assert (asked.target, asked.verdict.setting.level) == ("no-objective", "token")


def test_the_help_says_that_the_code_is_run(capsys):
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    assert "THIS RUNS THE CODE" in capsys.readouterr().out
