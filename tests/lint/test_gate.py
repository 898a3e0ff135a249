"""The exit rule, what `recommend` prints under it, and targets that keep their answers."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from klsym.api import recommend
from klsym.cli import main
from klsym.errors import UsageError
from klsym.lint.config import Config, Target, read_project
from klsym.lint.findings import collect_findings
from klsym.lint.store import build_target, replace_target, store_target, write_table
from support.forked import fork_processes
from support.kept_replies import keep_replies

TRAINER = """\
import torch

def k3(logp, ref_logp):
    d = ref_logp - logp
    return d.exp() - d - 1

def k2(logp, ref_logp):
    return 0.5 * (logp - ref_logp) ** 2

def free(logp, ref_logp, config):
    return 0.5 * (logp - ref_logp) ** 2 if config.kind == "k2" else abs(logp - ref_logp)

def unread(logp, ref_logp):
    return torch.erf(logp - ref_logp)
"""
ANSWER: dict[str, Any] = {
    "file": "trainer.py", "lines": [3, 5], "summary": "minimises x", "trust": "kernel", "expression": "k3",
    "expect": None,
    **dict.fromkeys(("sampling", "use", "level", "batch", "credit", "weights", "aggregate")),
}  # fmt: skip


def make_reply(*codes: str, expect: Mapping[str, Any] | None = None) -> dict[str, Any]:
    listed = [{"code": code, "name": "n", "message": "m"} for code in codes]
    return {"json": {**ANSWER, "diagnostics": listed, "expect": expect}}


MET, UNMET = {"wanted": "forward-kl", "ok": True}, {"wanted": "reverse-kl", "ok": False}
REPLIES: list[tuple[str, dict[str, Any], dict[str, Any], list[str], bool]] = [
    # expectation, reply, configuration, codes that are reported, does it fail
    ("", make_reply("KL002", "KL014"), {}, ["KL002", "KL014"], True),
    ("", make_reply("KL014", "KL006"), {}, ["KL014", "KL006"], False),
    ("", make_reply("KL014"), {"select": ("KL014",)}, ["KL014"], True),
    ("", make_reply("KL014"), {"select": ("KL0",)}, ["KL014"], False),
    ("", make_reply(), {}, [], False),
    ("forward-kl", make_reply("KL002", "KL007", "KL013", "KL004", expect=MET), {}, ["KL004"], False),
    ("reverse-kl", make_reply("KL014", expect=UNMET), {}, ["KL900", "KL014"], True),
    ("", {"error": "no"}, {}, ["KL901"], False),
    ("reverse-kl", {"error": "no"}, {}, ["KL901"], True),
    ("", {"error": "the trace disagrees", "code": 1}, {}, ["KL901"], True),
    ("", {"error": "no", "measured": "minimises x"}, {}, ["KL901"], False),
    ("reverse-kl", {"error": "no", "measured": "minimises x", "measured_meets": True}, {}, ["KL901"], False),
    ("reverse-kl", {"error": "no", "measured": "minimises x", "measured_meets": False}, {}, ["KL900"], True),
]  # fmt: skip


@pytest.mark.parametrize("expect, reply, options, codes, fails", REPLIES)
def test_which_findings_fail(
    expect: str, reply: dict[str, Any], options: dict[str, Any], codes: list[str], fails: bool
) -> None:
    config = Config(**options)
    findings = collect_findings(Target("trainer.py:f", expect=expect or None), reply)
    assert [finding.code for finding in findings] == codes
    assert any(config.is_failing(finding.code, finding.level) for finding in findings) is fails


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch")
    (tmp_path / "trainer.py").write_text(TRAINER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    keep_replies(monkeypatch)
    fork_processes(monkeypatch)
    return tmp_path


TYPED = [("k3", 1), ("k2", 0), ("unread", 0), ("k3 --expect forward-kl", 0), ("k2 --expect forward-kl", 1)]


@pytest.mark.parametrize("typed, code", TYPED)
def test_no_format_changes_the_exit_code(typed: str, code: int, project: Path, capsys: Any) -> None:
    name, *options = typed.split()
    for form in ([], ["--json"], ["--format", "sarif"]):
        assert main(["audit", f"trainer.py:{name}", *options, *form]) == code, form
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("klsym: ") for line in lines) and bool(lines) >= bool(code)


def test_a_baseline_of_the_folder_is_used_without_its_name(project: Path, capsys: Any) -> None:
    assert main(["audit", "trainer.py:k3", "--quiet"]) == 1
    assert main(["audit", "trainer.py:k3", "--write-baseline"]) == 0
    assert (project / "klsym-baseline.json").exists()
    for form in ([], ["--quiet"], ["--json"]):
        assert main(["audit", "trainer.py:k3", *form]) == 0
    (project / "trainer.py").write_text(TRAINER.replace("- 1\n", "- 1 + 0.5 * d**2\n"))
    assert main(["audit", "trainer.py:k3", "--quiet"]) == 1  # another loss


def test_a_cell_of_a_notebook_has_findings_and_suppressions(project: Path, capsys: Any) -> None:
    body = "def k3(logp, ref_logp):\n    d = ref_logp - logp\n    return d.exp() - d - 1\n"
    for comment, codes in (("", ["KL002", "KL014"]), ("  # klsym: ignore[KL002, KL014]", [])):
        lines = body.replace(" - 1\n", f" - 1{comment}\n").splitlines(True)
        cells = [{"cell_type": "code", "source": source} for source in (["import torch\n"], lines)]
        (project / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}))
        for target in ("a.ipynb:k3", "a.ipynb:2"):
            assert main(["audit", target, "--format", "json", "--quiet"]) == int(bool(codes))
            found = json.loads(capsys.readouterr().out)
            assert [finding["code"] for finding in found] == codes, target


# ---------------------------------------------------------------------------- what klsym recommends
TARGETS = ("reverse-kl", "forward-kl", "next-token-reverse-kl", "next-token-forward-kl")
QUESTIONS = [*product(TARGETS, ("on-policy", "off-policy"), ("loss", "reward"), ("sample", "token"))]


def list_snippets(question: tuple[str, ...]) -> list[str]:
    target, sampling, use, level = question
    try:
        answer = recommend(target, sampling=sampling, use=use, level=level)
    except UsageError:
        return []
    snippets = []
    for number in range(len(answer.choices)):
        try:
            snippets.append(answer.snippet("torch", number))
        except UsageError:  # no code in this library
            continue
    return snippets


@pytest.mark.share(6)
@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_what_is_recommended_passes_its_gate(question: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from klsym.confirmed.both import audit_and_measure
    from klsym.confirmed.child import describe_both

    target, sampling, use, level = question
    for number, snippet in enumerate(list_snippets(question)):
        file = tmp_path / f"snippet{number}.py"
        file.write_text(f"import torch\n{snippet}")
        name = re.findall(r"def (\w+)", snippet)[0]
        options: dict[str, Any] = {"use": "loss" if name == "surrogate" else use, "sampling": sampling}
        if "over all words" in snippet:
            options["map"] = {"log_q": "log_q[v]", "log_p": "log_p[v]"}
        code = f"{file}:{name}"
        reply = describe_both(audit_and_measure(code, level=level, **options), target)
        findings = collect_findings(Target(code, expect=target), reply)
        assert not [one for one in findings if Config().is_failing(one.code, one.level)], snippet


def test_snippets_are_found() -> None:
    assert sum(len(list_snippets(question)) for question in QUESTIONS) > 80


# ---------------------------------------------------------------------------- stored answers
def test_answers_are_stored_and_nothing_is_asked_again(project: Path, capsys: Any) -> None:
    assert main(["audit", "trainer.py:free"]) == 0  # measured, with what was assumed
    assert "--set config.kind=k2" in capsys.readouterr().out
    typed = ["--set", "config.kind=k2", "--map", "ref_logp=log_p", "--sampling", "on-policy"]
    assert main(["audit", "trainer.py:free", *typed, "--write"]) == 0
    assert "stored in klsym.toml" in capsys.readouterr().err
    [target] = read_project(project).targets
    assert target.code == "trainer.py:free" and target.set == {"config.kind": "k2"}
    assert target.map["logp"] == "log_q" and target.map["ref_logp"] == "log_p"
    assert target.setting["sampling"] == "on-policy" and target.setting["use"] == "loss"
    assert main(["audit", "trainer.py:free", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["guessed"] == [] and answer["set"] == {"config.kind": "k2"}
    assert main(["audit", "trainer.py:free", "--sampling", "off-policy", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["sampling"] == "off-policy"  # what is typed goes first
    assert main(["audit", "--quiet"]) == 0


BEFORE = """# targets of the trainer
ignore = ["KL014"]

[[target]]  # the penalty
code = "a.py:f"
map = { "x" = "log_q" }

[[target]]
code = "b.py:g"
expect = "reverse-kl"
"""


def test_a_target_takes_the_place_of_its_own() -> None:
    text = replace_target(BEFORE, Target("a.py:f", {"y": "log_p"}, {"beta": 0.04}))
    data = tomllib.loads(text)
    assert data["ignore"] == ["KL014"] and [t["code"] for t in data["target"]] == ["a.py:f", "b.py:g"]
    assert data["target"][0] == {"code": "a.py:f", "map": {"y": "log_p"}, "set": {"beta": 0.04}}
    assert text.startswith('# targets of the trainer\nignore = ["KL014"]')
    assert text.endswith(BEFORE[BEFORE.index('[[target]]\ncode = "b') :])
    added = replace_target(text, Target("c.py:h"))
    assert added.startswith(text) and tomllib.loads(added)["target"][2] == {"code": "c.py:h"}


@pytest.mark.parametrize(
    "values", [{"a": None}, {"a": True, "b": False}, {"a": 2, "b": 0.5}, {"a": [1, "x"]}, {'q"': 'a"b\\'}]
)
def test_values_are_read_as_they_were_written(values: dict[str, Any], tmp_path: Path) -> None:
    target = Target(
        "a.py:f", {'batch["x"]': "log_q"}, values, "loss", {"sampling": "off-policy"}, "reverse-kl"
    )
    (tmp_path / "klsym.toml").write_text(write_table(target))
    assert read_project(tmp_path).targets == (target,)


def test_what_is_not_stored(tmp_path: Path) -> None:
    assert build_target(Target("a.py:f"), None) == Target("a.py:f")
    (tmp_path / "pyproject.toml").write_text("[tool.klsym]\nignore = []\n")
    with pytest.raises(UsageError, match=r"the targets stand in pyproject\.toml"):
        store_target(tmp_path, Target("a.py:f"))
    (tmp_path / "pyproject.toml").unlink()
    with pytest.raises(UsageError, match="has to be UTF-8"):
        store_target(tmp_path, Target("a\udc80.py:f"))
