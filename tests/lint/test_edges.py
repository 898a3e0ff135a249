"""Files, names and replies at the edge of what `klsym audit` reads: one line, and never a traceback."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klsym.cli import main
from klsym.confirmed.child import Runner
from klsym.engine.answers.objectives import read_objective
from klsym.lint.config import Target, read_project
from klsym.lint.findings import Finding, collect_findings
from klsym.lint.reports import as_annotations, as_sarif, as_text
from klsym.lint.scan import as_targets, as_toml_string, find_candidates
from support.forked import fork_processes

LOSS = "import torch\ndef f(logp, ref_logp):\n    return 0.5*(logp - ref_logp)**2\n"


@pytest.fixture
def plain_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(plain_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fork_processes(monkeypatch)
    return plain_folder


# ---------------------------------------------------------------------------- configurations
NO_TABLES = [
    "tool = 5", "tool = 'klsym'", "tool = []", "tool = 1.5", "tool = true", "[[tool]]\nx = 1",
    "[tool]\nklsym = 5", "[tool]\nother = 1", "",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_TABLES)
def test_a_pyproject_without_a_table_of_klsym_is_passed_over(text: str, folder: Path, capsys: Any) -> None:
    (folder / "pyproject.toml").write_text(text)
    assert main(["audit"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "no klsym.toml or [tool.klsym] here" in err


@pytest.mark.parametrize("select", ["KL", "KL00"])
def test_a_pyproject_with_one_is_read(select: str, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.klsym]\nselect = ['{select}']\n")
    assert read_project(folder).select == (select,)


# ---------------------------------------------------------------------------- names of files
NAMES = [
    "a.py",
    "é.py",
    "𝔣.py",
    "d𝔣/😀.py",
    "a b.py",
    "a'b.py",
    'a"b.py',
    "a\\b.py",
    "a\x7fb.py",
    "a\tb.py",
    "%41.py",
]
NO_TEXT = [b"b\xff.py", b"\xc3.py", b"\xed\xa0\x80.py", b"d\xff/a.py"]


def made(name: Any) -> None:
    path = Path(os.fsdecode(name))
    path.parent.mkdir(exist_ok=True)
    path.write_text(LOSS)


def test_names_that_are_written_are_read_again(folder: Path, capsys: Any) -> None:
    """Those that no TOML can hold are left out, each with its line."""
    for name in (*NAMES, *NO_TEXT):
        made(name)
    assert main(["audit", "--scan", ".", "--write"]) == 0
    out, err = capsys.readouterr()
    assert f"targets written to klsym.toml: {len(NAMES)}" in out
    assert err.count("\n") == err.count("has to be UTF-8; rename the file") == len(NO_TEXT)
    assert sorted(target.code for target in read_project(folder).targets) == sorted(f"{n}:f" for n in NAMES)
    assert main(["audit", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("form", [as_text, as_annotations, as_sarif])
def test_reports_name_every_file(form: Any, folder: Path) -> None:
    found = [Finding("KL008", "n", "m", os.fsdecode(name), 1, "f") for name in (*NO_TEXT, *NAMES[:6])]
    text = json.dumps(form(found))
    text.encode()  # no surrogate is left
    assert text.count("KL008") >= len(found)


@pytest.mark.parametrize("text", [*NAMES, "a\x00b", "\x1f", "\u2028", "\\u0041", "\uffff"])
def test_a_string_of_toml_is_the_text(text: str) -> None:
    assert tomllib.loads(f"x = {as_toml_string(text)}")["x"] == text


def test_only_candidates_that_are_text_become_targets(folder: Path) -> None:
    for name in (*NO_TEXT, *NAMES[:4]):
        made(name)
    text = as_targets(find_candidates(Path()), set())
    written = tomllib.loads(text)["target"]
    assert sorted(row["code"] for row in written) == sorted(f"{name}:f" for name in NAMES[:4])
    expected = tomllib.loads(text.replace("# expect", "expect"))["target"]  # as its author would say it
    assert all("reverse-kl" in read_objective(row["expect"]).multiples for row in expected)
    assert len(expected) == len(written)


# ---------------------------------------------------------------------------- where a finding stands
BODIES = {  # bodies that cannot be read, the line of the finding, and how its message begins
    "if kind == 'k1':\n    return torch.erf(logp)\nreturn logp - ref_logp": (2, "f branches on kind"),
    "if self_kind.a == 'k1':\n    return torch.erf(logp)\nreturn logp - ref_logp": (2, "f branches on"),
    "if kind:\n    return torch.cumsum(logp, 1)\nreturn logp - ref_logp": (2, "f branches on kind"),
    "return torch.erf(logp - ref_logp)": (3, "the operation erf is not read"),
    "x = 1\nreturn torch.cumsum(logp - ref_logp, 1)*x": (4, "the operation cumsum is not read"),
    "return other.helper(logp)": (3, "the code raises NameError"),
    "return None": (2, "nothing is returned"),
    "return [1][2]": (3, "the code raises IndexError"),
}  # fmt: skip


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    pytest.importorskip("torch")
    with Runner(60, 8) as found:
        yield found


@pytest.mark.parametrize("body", BODIES)
def test_no_sentence_gets_into_the_name_of_a_file(body: str, folder: Path, runner: Runner) -> None:
    line, words = BODIES[body]
    lines = "".join(f"    {row}\n" for row in body.splitlines())
    (folder / "m4.py").write_text(f"import torch\ndef f(logp, ref_logp, kind, self_kind):\n{lines}")
    reply = runner.ask({"target": f"{folder}/m4.py:f", "options": {}, "expect": None})
    [found] = collect_findings(Target(f"{folder}/m4.py:f"), reply)
    assert (found.path, found.line) == ("m4.py", line) and found.message.startswith(words)


def test_a_finding_in_another_file_stands_there(folder: Path, capsys: Any) -> None:
    (folder / "helper.py").write_text("import torch\n\ndef g(x):\n    return torch.erf(x)\n")
    (folder / "m.py").write_text("from helper import g\ndef f(logp):\n    return g(logp)\n")
    main(["audit", "m.py:f", "--format", "text", "--quiet"])
    assert capsys.readouterr().out.startswith("helper.py:4: KL901 unreadable-code  the operation erf")


def test_a_file_that_is_no_python_is_named_with_its_line(folder: Path, capsys: Any) -> None:
    (folder / "m.py").write_text("import torch\ndef f(:\n")
    main(["audit", "m.py:f", "--format", "text", "--quiet"])
    assert capsys.readouterr().out.startswith("m.py:2: KL901 unreadable-code  no Python: ")


# ---------------------------------------------------------------------------- forged replies
FORGE = """import json, os, sys
def f(logp):
    frame = sys._getframe()
    while "mark" not in frame.f_locals:
        frame = frame.f_back
    for fd in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{{fd}}").startswith("pipe") and os.write(fd, b""):
                pass
            os.write(fd, (json.dumps([frame.f_locals["mark"], json.loads({!r})]) + chr(10)).encode())
        except OSError:
            continue
    return logp
"""
ANSWER = {
    "file": "m.py", "lines": [1, 2], "summary": "s", "trust": "kernel", "expression": "k1", "expect": None,
    "diagnostics": [{"code": "KL002", "name": "n", "message": "m"}],
    **dict.fromkeys(("sampling", "use", "level", "batch", "credit", "weights", "aggregate")),
}  # fmt: skip
REPLY = {"text": "t", "json": ANSWER, "target": "zero", "row": ["a", "b", "c", "d"], "meets": True}
WRONG: dict[str, Any] = {
    "nothing": {}, "a file": {"file": 5}, "no lines": {"lines": []}, "a line": {"lines": ["1", 2]},
    "codes": {"diagnostics": 3}, "a code": {"diagnostics": [{"code": "KL002"}]},
    "an unknown code": {"diagnostics": [{"code": "KL777", "name": "n", "message": "m"}]},
    "a list of codes": {"diagnostics": ["KL002"]}, "what was expected": {"expect": {"ok": False}},
    "what it is": {"expect": 3}, "a summary": {"summary": None}, "an option": {"level": ["token"]},
    "trust": {"trust": []}, "an expression": {"expression": 1},
}  # fmt: skip
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="how the code finds the pipe")


def forged(folder: Path, reply: Any) -> None:
    (folder / "m.py").write_text(FORGE.format(json.dumps(reply)))


@pytest.mark.parametrize("name", WRONG)
def test_a_reply_of_another_form_is_none(name: str) -> None:
    answer = {**ANSWER, **WRONG[name]} if WRONG[name] else {}
    assert Runner(1, 1).fits(REPLY) and not Runner(1, 1).fits({**REPLY, "json": answer})


@needs_proc
@pytest.mark.parametrize("name", ["a file", "an unknown code"])
def test_a_forged_reply_is_no_traceback(name: str, folder: Path, capsys: Any) -> None:
    forged(folder, {**REPLY, "json": {**ANSWER, **WRONG[name]}})
    main(["audit", "m.py:f", "--format", "github", "--use", "reward"])
    out, err = capsys.readouterr()
    assert "says what is no reply" in out and err == ""


@needs_proc
@pytest.mark.parametrize("place", [5, ["m.py", "1", "x"], {"file": "m.py"}])
def test_a_forged_place_is_left_out(place: Any, folder: Path, capsys: Any) -> None:
    forged(folder, {"error": "forged", "code": 2, "place": place})
    assert main(["audit", "m.py:f", "--format", "text", "--quiet", "--use", "reward"]) == 0
    assert capsys.readouterr().out == "m.py:1: KL901 unreadable-code  forged (f)\n"


@needs_proc
def test_a_reply_of_the_right_form_is_reported(folder: Path, capsys: Any) -> None:
    """It can be forged, as the page on security says."""
    forged(folder, REPLY)
    assert main(["audit", "m.py:f", "--format", "github", "--use", "reward"]) == 1
    assert capsys.readouterr().out == "::error file=m.py,line=1,title=KL002 n::m\n"


# ---------------------------------------------------------------------------- packages that are missing
@pytest.mark.parametrize(
    ("package", "options"), [("numpy", ""), ("array_api_compat", "--format text --quiet")]
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, options: str, plain_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (plain_folder / "m.py").write_text(LOSS)
    missing = plain_folder / "absent" / package
    missing.mkdir(parents=True)
    (missing / "__init__.py").write_text(f"raise ModuleNotFoundError('no', name={package!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(missing.parent))
    main(["audit", "m.py:f", *shlex.split(options)])
    said = "".join(capsys.readouterr())
    assert f'needs {package}, which is not installed: pip install ".[torch]" in a clone of klsym' in said
    assert said.count("\n") == 1 and "--memory-limit" not in said
