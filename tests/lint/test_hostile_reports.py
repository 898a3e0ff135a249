"""Reports of files, functions and messages that hold what a viewer or a log could take for its own."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jsonschema
import pytest

from klsym.cli import main
from klsym.escaping import printable
from klsym.lint.findings import Finding
from klsym.lint.reports import as_annotations, as_sarif, as_text
from support.audits.sarif_schema import SARIF
from support.forked import fork_processes

HOSTILE = [
    "a\nb", 'a"b', "a\r\n::error file=x::forged", "\x1b[2J\x1b]0;title\x07", "%0A%s%n",
    "\u202edlo\u2066\u200b",
    "\ud800", "\udcff", "\x00", "f[x](https://evil.test)", "{0} {x} }{", "\\[a](1)", "<script>&amp;",
    "a,b:c=d", "\u2028",
]  # fmt: skip
LINK = re.compile(r"\[(?:[^\[\]\\]|\\.)*\]\([^()]*\)")  # of SARIF, 3.11.6
PLACEHOLDER = re.compile(r"(?<!\{)(?:\{\{)*\{\d+\}")  # of SARIF, 3.11.5
PLAIN = "minimises E_mu[k3/T] - KL(mu||q); expected reverse-kl"


def as_read(message: str) -> str:
    """The text that a viewer shows, links and placeholders aside."""
    return message.replace("{{", "{").replace("}}", "}").replace("\\](", "](")


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_sarif_holds_hostile_text_as_text(text: str) -> None:
    """In the path, the function and the message: no link, no placeholder, no control character."""
    hostile = Finding("KL901", "unreadable-code", f"m {text}", f"d {text}.py", 3, text)
    report = as_sarif([hostile, Finding("KL900", "unmet-expectation", PLAIN, "a.py", 1, "f")])
    jsonschema.validate(report, SARIF)
    json.dumps(report, ensure_ascii=False).encode()  # no surrogate is left
    result, plain = report["runs"][0]["results"]
    said = result["message"]["text"]
    assert said.isprintable() and not LINK.search(said) and not PLACEHOLDER.search(said)
    assert as_read(said) == f"m {printable(text)}"
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", uri)
    named = os.fsdecode(unquote_to_bytes(uri))
    assert named == (printable(hostile.path) if text == "\ud800" else hostile.path)
    assert result["partialFingerprints"]["klsym/v1"].isprintable()
    assert plain["message"]["text"] == PLAIN


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_lines_and_annotations_hold_hostile_text_in_one_line(text: str) -> None:
    finding = Finding("KL008", "wrong-sign", f"m {text}", f"{text}.py", 3, text, level="error")
    [line], [annotation] = as_text([finding]), as_annotations([finding])
    assert line.isprintable() and annotation.isprintable()
    properties, _, message = annotation.removeprefix("::error ").partition("::")
    assert [part.split("=")[0] for part in properties.split(",")] == ["file", "line", "title"]
    assert message.replace("%25", "%") == f"m {printable(text)}"


def test_the_judges_see_links_and_placeholders() -> None:
    assert LINK.search("f[x](1)") and LINK.search("[a\\]b](c)") and not LINK.search("f[x\\](1)")
    assert PLACEHOLDER.search("a {0}") and PLACEHOLDER.search("{{{0}") and not PLACEHOLDER.search("{{0}}")


@pytest.mark.parametrize(
    "name", ['a"b %s {0}[x](y).py', "\u202eyp.a\n::error::x.py", os.fsdecode(b"\xff.py")], ids=ascii
)
def test_code_in_files_with_hostile_names_is_reported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    fork_processes(monkeypatch)
    code = "import torch\ndef f(logp, ref_logp):\n    return torch.erf(logp) + table[logp](ref_logp)\n"
    Path(name).write_text(code, encoding="utf-8")
    for form in ("sarif", "github", "text"):
        assert main(["audit", f"{name}:f", "--expect", "reverse-kl", "--quiet", "--format", form]) == 1
        out, err = capsys.readouterr()
        lines = (out + err).splitlines()
        assert lines and all(line.isprintable() for line in lines), ascii(out + err)
        if form == "sarif":
            [result] = json.loads(out)["runs"][0]["results"]
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            assert os.fsdecode(unquote_to_bytes(uri)) == name and not LINK.search(result["message"]["text"])
        elif form == "github":
            assert sum(line.startswith("::") for line in lines) == 1
