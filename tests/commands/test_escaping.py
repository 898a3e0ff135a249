"""Nothing from outside is printed raw: file names, arguments, certificates, code that is audited."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klsym.cli import main
from klsym.escaping import printable
from klsym.kernel import digest
from support.scale import scaled

pytestmark = pytest.mark.usefixtures("without_copies", "forked_audits")

HOSTILE = {
    "escape": "\x1b[2K\rok\x1b[8m",
    "line": "x\nok forged",
    "end of a line": "x\u2028ok\x85",
    "byte": "\udcff\udc80",
    "half of a pair": "\ud800",
    "other direction": "x\u202eko",
    "bell": "\a\b\b\x7f\x9b2J",
    "width of nothing": "k1\u200b\ufeff",
    "all of them": (WORST := "\x1b[2K\rok\nok forged\u2028\ud800\u202e\a"),
}
TYPED = [
    ("explain", "{}"), ("explain", "k1", "--param", "{}"), ("compare", "{}", "k1"), ("divergence", "{}"),
    ("optimum", "{}", "--beta", "1", "--rewards", "1,0"), ("optimum", "k1", "--beta", "{}", "--rewards", "1"),
    ("optimum", "k1", "--beta", "1", "--rewards", "{}"), ("recommend", "--target", "{}"),
    ("catalogue", "--size", "{}"), ("prove", "{}"), ("claims", "{}"), ("axioms", "{}"), ("verify", "{}"),
    ("verify", "--backend", "{}"), ("verify", "--seed", "{}"), ("figures", "{}"), ("tables", "{}"),
    ("tables", "gradients", "--only", "{}"), ("tables", "gradients", "--columns", "{}"),
    ("check", "{}"), ("export", "{}"), ("{}",),
    ("explain", "k1", "--format", "{}"), ("audit", "{}"),
]  # fmt: skip
REWARD = ("audit", "reward.py:f", "--use", "reward")
AUDITED = [
    ("audit", "{}:f"), ("audit", "reward.py:{}"), ("audit", "{}.py:f", "{}.py:g"),
    *((*REWARD, "--map", pair) for pair in ("{}=k1", "logp={}")), (*REWARD, "--set", "{}=1"),
    (*REWARD, "--result", "{}"),
]  # fmt: skip
WRITTEN = [
    ("prove", "value.k1-unbiased", "--certificates", "{}"), ("tables", "gradients", "-o", "{}"),
    ("export", "good.json", "--rocq", "{}"), ("optimum", "k1", "--beta", "1", "--rewards", "1,0", "-o", "{}"),
]  # fmt: skip
Out = Any  # capsys


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out) -> Path:
    monkeypatch.chdir(tmp_path)
    text = "import numpy as np\ndef f(logp, ref_logp):\n    return np.subtract(logp, ref_logp)\n"
    (tmp_path / "reward.py").write_text(text, encoding="utf-8")
    assert main(["prove", "value.k1-unbiased", "--certificates", "."]) == 0
    (tmp_path / "value.k1-unbiased.json").rename(tmp_path / "good.json")
    capsys.readouterr()
    return tmp_path


def told(capsys: Out, *argv: str) -> tuple[int, list[str]]:
    """The exit code and the lines of both streams; each can be printed."""
    code = main(list(argv))
    out, err = capsys.readouterr()
    lines: list[str] = (out + err).split("\n")
    assert all(line.isprintable() for line in lines), ascii(out + err)
    assert "ok forged" not in lines and len(err.split("\n")) <= 1 + err.count("klsym: ")
    return code, lines


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.share(3)
def test_what_is_typed_is_printed_with_escapes(text: str, folder: Path, capsys: Out) -> None:
    """Every kind of text in two places, and every place for one text; each audit starts a process."""
    every = [*TYPED, *AUDITED] if text == WORST else [TYPED[0], TYPED[-5]]
    for argv in every:
        code, lines = told(capsys, *(word.replace("{}", text) for word in argv))
        assert code == 2 and any(line.startswith("klsym: ") for line in lines), argv


@pytest.mark.parametrize("text", [t for t in HOSTILE.values() if "\ud800" not in t], ids=ascii)
@pytest.mark.share(3)
def test_names_of_files_are_printed_with_escapes(text: str, folder: Path, capsys: Out) -> None:
    whole = (folder / "good.json").read_bytes()
    for content, expected in ((whole, 0), (b"{}", 1), (b"", 2)):
        (folder / f"{text}.json").write_bytes(content)
        code, lines = told(capsys, "check", f"{text}.json", "good.json")
        assert code == expected and "ok good.json" in lines
        assert expected or f"ok {printable(text)}.json" in lines
    if text in (HOSTILE["line"], HOSTILE["byte"]):  # each audit starts a process
        (folder / f"{text}.py").write_bytes((folder / "reward.py").read_bytes())
        code, lines = told(capsys, "audit", f"{text}.py:f", "--use", "reward")
        assert code == 0 and f"{printable(text)}.py:2-3" in lines[0]
    for argv in WRITTEN:
        told(capsys, *(word.replace("{}", f"new{text}") for word in argv))


def changed(certificate: Any, text: str) -> Iterator[Any]:
    """The certificate with this text in place of, and behind, each of its strings and keys."""
    for place, key in strings(certificate):
        for kept in (False, True):
            other = copy.deepcopy(certificate)
            inside = other
            for step in place:
                inside = inside[step]
            if key is None:
                for step, value in list(inside.items() if isinstance(inside, dict) else enumerate(inside)):
                    inside[step] = value * kept + text if isinstance(value, str) else value
            else:
                inside[key * kept + text] = inside.pop(key)
            yield {**other, "digest": digest(other.get("parts", []))} if place[:1] != ["digest"] else other


def strings(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str | None]]:
    """Where keys stand, with the key, and where there are strings, with None."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    pairs = list(items)
    if any(isinstance(inner, str) for _, inner in pairs):
        yield place, None
    for key, inner in pairs:
        if isinstance(key, str):
            yield place, key
        yield from strings(inner, (*place, key))


@pytest.mark.parametrize("claim", ["gradient.score-mean-zero", "gradient.k3-loss"])
def test_a_certificate_with_text_of_any_kind_in_it_is_refused(claim: str, folder: Path, capsys: Out) -> None:
    """With half of a surrogate pair too, and the next file is checked."""
    assert main(["prove", claim, "--certificates", "."]) == 0
    capsys.readouterr()
    certificate = json.loads((folder / f"{claim}.json").read_text())
    count = 0
    for other in list(changed(certificate, "\ud800\x1b[2K"))[:: scaled(1, 3)]:
        (folder / "other.json").write_text(json.dumps(other))
        code, lines = told(capsys, "check", "other.json", "good.json")
        assert code == 1 and lines[0].startswith("REFUSED other.json: ") and lines[1] == "ok good.json"
        count += 1
    assert count > 30


CODE = """import numpy as np

def raises(logp, ref_logp):
    raise ValueError("\\x1b[2K\\rok\\u2028\\ud800")

def named(logp, ref_logp, **options):
    return np.subtract(logp, ref_logp) * options["\\x1b[2K\\nok forged"]
"""


def test_code_that_is_audited_prints_nothing_raw(folder: Path, capsys: Out) -> None:
    (folder / "code.py").write_text(CODE, encoding="utf-8")
    for argv in (["raises"], ["named", "--json"], ["raises", "code.py:named", "--json"], ["3-4"]):
        told(capsys, "audit", f"code.py:{argv[0]}", *argv[1:], "--use", "reward")
