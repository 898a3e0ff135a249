"""A project with three wrong losses: its configuration, what is reported, what is suppressed or known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from klsym.cli import main
from klsym.errors import UsageError
from klsym.lint.config import read_project
from klsym.lint.findings import Finding, sort_findings
from klsym.lint.reports import as_annotations, as_sarif, as_text
from klsym.lint.scan import find_candidates
from support.audits.sarif_schema import SARIF
from support.forked import fork_processes
from support.kept_replies import keep_replies

TRAINER = """import torch


class Trainer:
    def penalty(self, logps, ref_logps):
        d = ref_logps - logps
        return d.exp() - d - 1  # klsym: ignore[KL014] the ratio is bounded elsewhere

    def frozen(self, logps, old_logps, ref_logps, advantages):
        with torch.no_grad():
            kl = 0.5 * (logps - ref_logps) ** 2
        return -torch.exp(logps - old_logps) * advantages + self.args.beta * kl

    # klsym: ignore[KL007] nothing of the kind is found here
    def reward(self, logps, ref_logps):
        return 0.5 * (logps - ref_logps) ** 2

    def right(self, logps, ref_logps):
        return 0.5 * (logps - ref_logps) ** 2
"""
CONFIG = """baseline = "known.json"
ignore = ["KL013"]

[[target]]
code = "trainer.py:Trainer.penalty"
expect = "reverse-kl"

[[target]]
code = "trainer.py:Trainer.frozen"
sampling = "off-policy"
set = { "self.args.beta" = 0.04 }

[[target]]
code = "trainer.py:Trainer.reward"
use = "reward"

[[target]]
code = "trainer.py:Trainer.right"
expect = "reverse-kl"
"""
FOUND = [  # line, code, words
    (5, "KL900", "minimises KL(p||q), the forward KL; expected reverse-kl"),
    (5, "KL002", "the gradient is that of KL(p||q)"),
    (15, "KL005", "in the reward only k1"),
    (9, "KL009", "p does not appear in the gradient"),
    (14, "KL902", "KL007 is not found here"),
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch")
    (tmp_path / "trainer.py").write_text(TRAINER, encoding="utf-8")
    (tmp_path / "klsym.toml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    keep_replies(monkeypatch)
    fork_processes(monkeypatch)
    return tmp_path


def test_a_project_with_three_wrong_losses(project: Path, capsys: Any) -> None:
    assert main(["audit"]) == 1
    *lines, summary = capsys.readouterr().out.splitlines()
    for line, (number, code, words) in zip(lines, FOUND, strict=True):
        assert line.startswith(f"trainer.py:{number}: {code} ") and words in line
    assert summary.startswith(
        "4 targets, 5 findings, of which 3 fail (1 suppressed, 0 in the baseline); Trainer.penalty "
    )
    assert summary.count(" s") >= 4
    assert main(["audit", "--exit-zero", "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_sarif_is_valid_and_points_at_the_code(project: Path, capsys: Any) -> None:
    assert main(["audit", "--format", "sarif"]) == 1
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SARIF)
    [run] = report["runs"]
    found = [
        (r["locations"][0]["physicalLocation"]["region"]["startLine"], r["ruleId"]) for r in run["results"]
    ]
    assert found == [(line, code) for line, code, _ in FOUND]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in run["results"])
    by_code = {rule["id"]: rule for rule in rules}
    assert "KL(p||q)" in by_code["KL002"]["fullDescription"]["text"]
    assert by_code["KL002"]["properties"]["precision"] == "very-high"
    assert [r["level"] for r in run["results"]].count("error") == 3


def test_annotations_of_github(project: Path, capsys: Any) -> None:
    assert main(["audit", "--format", "github"]) == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("::error file=trainer.py,line=5,title=KL900 unmet-expectation::minimises")
    levels = [line.partition(" file=trainer.py,line=")[0] for line in rest]
    assert levels == ["::error", "::error", "::warning", "::warning"]


def test_a_baseline_that_shrinks(project: Path, capsys: Any) -> None:
    assert main(["audit", "--write-baseline"]) == 0
    stored = json.loads((project / "known.json").read_text())
    assert {row["code"] for row in stored["findings"]} == {"KL900", "KL002", "KL009", "KL005"}
    text = TRAINER.replace("import torch\n", "import torch\n\n\n# moved\n")
    (project / "trainer.py").write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert main(["audit"]) == 0  # the comment that suppresses nothing is a warning
    assert " 1 finding, of which 0 fail (1 suppressed, 4 in the baseline)" in capsys.readouterr().out
    mended = text.replace(
        "d.exp() - d - 1  # klsym: ignore[KL014] the ratio is bounded elsewhere", "0.5 * d**2"
    )
    (project / "trainer.py").write_text(
        mended.replace("    # klsym: ignore[KL007]", "    #"), encoding="utf-8"
    )
    assert main(["audit"]) == 0
    left = json.loads((project / "known.json").read_text())["findings"]
    assert [row["code"] for row in left] == ["KL009", "KL005"]
    other = mended.replace("self.args.beta * kl", "2 * self.args.beta * kl")
    (project / "trainer.py").write_text(other, encoding="utf-8")
    capsys.readouterr()
    assert main(["audit"]) == 0 and "KL009" in capsys.readouterr().out  # another loss: another finding


def test_what_cannot_be_read_is_no_pass(project: Path, capsys: Any) -> None:
    (project / "trainer.py").write_text("import torch\ndef f(logps):\n    return torch.erf(logps)\n")
    read = "KL901 unreadable-code  the operation erf is not read; measured: "
    cases = (("", 0, read), ('expect = "reverse-kl"\n', 1, "KL900 unmet-expectation  has no objective: "))
    for expect, code, said in cases:
        (project / "klsym.toml").write_text(f'[[target]]\ncode = "trainer.py:f"\n{expect}')
        assert main(["audit"]) == code
        line = capsys.readouterr().out.splitlines()[0]
        assert line.startswith(f"trainer.py:3: {said}")


def test_targets_of_pyproject_and_select(project: Path, capsys: Any) -> None:
    (project / "klsym.toml").unlink()
    text = '[project]\nname = "x"\n[tool.klsym]\nselect = ["KL00"]\n[[tool.klsym.target]]\n'
    (project / "pyproject.toml").write_text(text + 'code = "trainer.py:Trainer.penalty"\n')
    assert main(["audit", "--quiet"]) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert "KL002" in line  # KL014 is suppressed, and not selected


def test_code_that_is_typed_has_the_reports_too(project: Path, capsys: Any) -> None:
    assert main(["audit", "trainer.py:Trainer.right", "--format", "sarif"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["runs"][0]["results"] == []
    jsonschema.validate(report, SARIF)


# ---------------------------------------------------------------------------- configuration
BAD: dict[str, tuple[str, str]] = {
    "no TOML": ("[[target", "klsym.toml: no TOML"),
    "a key": ("selekt = []", "klsym.toml: no key 'selekt' (there are select)"),
    "a type": ('select = "KL"', "klsym.toml: select: list expected, got 'KL'"),
    "a code": ('ignore = ["KL777"]', "klsym.toml: ignore: 'KL777' is no code"),
    "an empty code": ('ignore = [""]', "klsym.toml: ignore: '' is no code"),
    "no code": ('[[target]]\nexpect = "zero"', "klsym.toml: target 1: code is missing"),
    "a key of a target": (
        '[[target]]\ncode = "a.py:f"\nsample = "x"', "target 1: no key 'sample' (there are sampling)"
    ),
    "a choice": (
        '[[target]]\ncode = "a.py:f"\nuse = "lost"', "target 1: use: 'lost' is none of loss, reward"
    ),
    "an objective": ('[[target]]\ncode = "a.py:f"\nexpect = "revers-kl"', "target 1: expect: 'revers-kl'"),
    "an old word": ('[[target]]\ncode = "a.py:f"\nexpect = "separable"', "write own-mean"),
    "a loss": ('[[target]]\ncode = "a.py:f"\nexpect = "grpo"', "klsym explain grpo"),
    "a table": ("target = [3]", "target 1: a table of keys expected"),
    "no target": ("select = ['KL']", "no target: --scan PATH --write proposes some"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_configuration_gets_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    text, words = BAD[name]
    (tmp_path / "klsym.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["audit"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err


def test_without_code_and_configuration_it_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no klsym.toml or .tool.klsym. here"):
        read_project(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", '{"version": 1}', '{"version": 9, "findings": []}', "[" * 10000])
def test_what_is_no_baseline_is_refused(text: str, tmp_path: Path) -> None:
    from klsym.lint.baseline import read_baseline

    (tmp_path / "known.json").write_text(text)
    with pytest.raises(UsageError, match="baseline"):
        read_baseline(tmp_path / "known.json")


def test_words_of_a_set_are_read_as_on_the_command_line(tmp_path: Path) -> None:
    text = '[[target]]\ncode = "a.py:f"\nset = { a = "None", b = "[1, 2]", c = "k3", d = 0.5, e = true }\n'
    (tmp_path / "klsym.toml").write_text(text)
    [target] = read_project(tmp_path).targets
    assert target.set == {"a": None, "b": [1, 2], "c": "k3", "d": 0.5, "e": True}


IDLE = {  # what is typed, words of the one line
    "--write": "beside --scan PATH, or beside CODE", "--expect zero": "no CODE for these options",
    "--set a=1": "no CODE for these options",
    "--sampling off-policy": "no CODE for these options", "--level token": "no CODE for these options",
    "a.py:f --explain-unread --json": "--explain-unread: --format json lists all",
    "a.py:f --quiet --set a=1 --set a=2": "--set a: given twice",
}  # fmt: skip


@pytest.mark.parametrize("typed", IDLE)
def test_options_that_would_do_nothing_are_refused(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "klsym.toml").write_text('[[target]]\ncode = "a.py:f"\n')
    monkeypatch.chdir(tmp_path)
    assert main(["audit", *typed.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and IDLE[typed] in err


# ---------------------------------------------------------------------------- scan
def test_candidates_are_found_by_their_names_and_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    text = TRAINER + "\n\ndef unrelated(x, y):\n    return x + y\n\nraise RuntimeError('the file was run')\n"
    (tmp_path / "trainer.py").write_text(text)
    (tmp_path / "broken.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    found = find_candidates(Path())
    assert [one.function for one in found] == [
        f"Trainer.{n}" for n in ("penalty", "frozen", "reward", "right")
    ]
    assert dict(found[1].roles) == {
        "logps": "log_q", "old_logps": "log_mu", "ref_logps": "log_p", "advantages": "A",
    }  # fmt: skip
    assert found[1].lines == (11, 12)
    for written in (4, 0):
        assert main(["audit", "--scan", ".", "--write"]) == 0
        assert f"targets written to klsym.toml: {written};" in capsys.readouterr().out
    assert len(read_project(tmp_path).targets) == 4
    assert main(["audit", "--scan", "nowhere"]) == 2
    (tmp_path / "klsym.toml").unlink()
    (tmp_path / "pyproject.toml").write_text('[tool.klsym]\nignore = ["KL014"]\n')
    assert main(["audit", "--scan", ".", "--write"]) == 2  # a new klsym.toml would hide these targets
    assert not (tmp_path / "klsym.toml").exists()


# ---------------------------------------------------------------------------- reports
def finding(**changed: Any) -> Finding:
    return Finding(
        **{
            "code": "KL002",
            "name": "n",
            "message": "m",
            "path": "a.py",
            "line": 1,
            "function": "f",
            **changed,
        }
    )


def test_annotations_are_few_and_escaped() -> None:
    many = [finding(line=n, message="50%\n\x1b[2J", path="a,b.py") for n in range(1, 30)]
    lines = as_annotations([*many, finding(level="error")])
    assert len(lines) == 11 and lines[0].startswith("::error ")
    assert "file=a%2Cb.py" in lines[1] and "50%25" in lines[1] and all(map(str.isprintable, lines))


def test_findings_are_ordered_by_importance() -> None:
    unread = finding(code="KL901", level="note", name="unreadable-code")
    rows = [unread, finding(code="KL902"), finding(), finding(code="KL900", level="error")]
    rows.append(finding(code="KL901", level="error"))
    codes = [(one.code, one.level) for one in sort_findings(rows)]
    assert codes == [
        ("KL900", "error"), ("KL901", "error"), ("KL002", "warning"), ("KL902", "warning"), ("KL901", "note"),
    ]  # fmt: skip


UNREAD = [  # code that cannot be read, how many lines say so, whether one has their number
    (1, False, 1, False),
    (3, False, 1, True),
    (3, True, 3, False),
]


@pytest.mark.parametrize(("count", "explain", "lines", "folded"), UNREAD)
def test_one_line_for_all_that_cannot_be_read(count: int, explain: bool, lines: int, folded: bool) -> None:
    unread = finding(code="KL901", level="note", name="unreadable-code")
    text = as_text([finding(), *([unread] * count)], None if explain else 5)
    assert len(text) == 1 + lines and ("3 of 5 targets cannot be read" in text[-1]) == folded
    errors = as_text([finding(code="KL901", level="error")] * 2, 5)
    assert len(errors) == 2  # an objective is expected of them


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {  # what the schema of SARIF refuses
    "version": lambda r: r.update(version="2.0"),
    "no message": lambda r: r["runs"][0]["results"][0].pop("message"),
    "a level": lambda r: r["runs"][0]["results"][0].update(level="fatal"),
    "a line": lambda r: r["runs"][0]["results"][0]["locations"][0]["physicalLocation"].update(
        region={"startLine": 0}
    ),
    "no tool": lambda r: r["runs"][0].pop("tool"),
    "an extra key": lambda r: r["runs"][0]["results"][0].update(code="KL002"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_schema_refuses_what_is_wrong(name: str) -> None:
    report = as_sarif([finding()])
    jsonschema.validate(report, SARIF)
    WRONG[name](report)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, SARIF)
