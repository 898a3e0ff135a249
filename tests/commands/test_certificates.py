"""`klsym check` and `klsym prove --certificates`: files are whole, replayed, and refused for a reason."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klsym.cli import main
from klsym.kernel import check, digest, read, show
from support.commands import Out, one_line_of_complaint, run, shell


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates") / "a" / "b"
    assert main(["prove", "value", "--certificates", str(folder)]) == 0
    return folder


def test_certificates_are_whole_and_reproducible(certificates: Path, tmp_path: Path, capsys: Out) -> None:
    names = sorted(path.name for path in certificates.iterdir())
    assert len(names) == 17 and all(re.fullmatch(r"value\.[a-z0-9-]+\.json", name) for name in names)
    again = [name.removesuffix(".json") for name in names[::4]]
    code, out, _ = run(capsys, "prove", *again, "--certificates", str(tmp_path))
    assert code == 0 and "5 certificates in" in out
    assert all((tmp_path / name).read_bytes() == (certificates / name).read_bytes() for name in names[::4])


def test_check_replays_a_folder(certificates: Path, capsys: Out) -> None:
    code, out, err = run(capsys, "check", str(certificates))
    lines = out.splitlines()
    ok = [line for line in lines if line.startswith("ok ")]
    assert (code, err) == (0, "") and ok == [f"ok {path}" for path in sorted(certificates.iterdir())]
    start = lines.index(f"ok {certificates / 'value.ratio-mean-one.json'}")
    theorems = check(read((certificates / "value.ratio-mean-one.json").read_text()))
    shown = [f"  {line}" for theorem in theorems for line in show(theorem, False).splitlines()]
    assert (
        lines[start + 1 : start + 5]
        == shown
        == [
            "  E_q[exp(-k1)] = (1)",
            "    if p << q: wherever p > 0, also q > 0",
            "  E_mu[exp(w)] = (1)",
            "    if q << mu: wherever q > 0, also mu > 0",
        ]
    )
    assert all(line.startswith(("ok ", "  ")) for line in lines)


def test_check_in_full(certificates: Path, capsys: Out) -> None:
    """What is quantified over, the model and the conventions, beside every hypothesis."""
    names = ("value.k3-unbiased", "value.k2-biased", "value.optimal-lambda")
    files = [str(certificates / f"{name}.json") for name in names]
    code, short, _ = run(capsys, "check", *files)
    assert code == 0 and "model" not in short and "for every number" not in short
    assert "    if p << q: wherever p > 0, also q > 0" in short.splitlines()
    code, full, err = run(capsys, "check", "--full", *files)
    assert (code, err) == (0, "") and full.isascii()
    assert "p << q: wherever p > 0, also q > 0" in full
    assert "lam_star" in full and "1/2" in full
    shown = show(*check(read(Path(files[0]).read_text())), True)
    assert all(f"  {line}" in full.splitlines() for line in shown.splitlines())


@pytest.mark.parametrize(
    "where", ["a file", "under a file", "a folder in the way", "no permission", "disk full"]
)
def test_unwritable(where: str, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    if where in ("a file", "under a file"):
        target.write_text("x")
        target = target / "deeper" if where == "under a file" else target
    elif where == "a folder in the way":
        (target / "value.k1-unbiased.json").mkdir(parents=True)
    else:
        error = (
            PermissionError(13, "Permission denied")
            if where == "no permission"
            else OSError(28, "No space left")
        )
        monkeypatch.setattr(Path, "open", lambda *_, **__: (_ for _ in ()).throw(error))
    code, _, err = run(capsys, "prove", "value.k1-unbiased", "--certificates", str(target))
    assert code == 2
    one_line_of_complaint(err.splitlines()[-1] + "\n")


def forged(whole: bytes, **changes: Any) -> bytes:
    """A certificate with other content and a fitting digest."""
    body = {**json.loads(whole), **changes}
    return json.dumps({**body, "digest": digest(body["parts"])}).encode()


def with_part(whole: bytes, **fields: Any) -> bytes:
    [part, *_] = json.loads(whole)["parts"]
    return forged(whole, parts=[{**part, **fields}])


def ruled(whole: bytes, name: str) -> bytes:
    step = {"rule": name, "side": "left", "term": 0, "factor": 0, "data": {}, "result": []}
    return with_part(whole, steps=[step])


def declared(whole: bytes, name: str) -> bytes:
    context = json.loads(whole)["parts"][0]["context"]
    return with_part(whole, context={**context, "parameters": [name]})


TEXTS = {
    "with a newline": "a\nok gradient.k9\n  E_q[k9] = 0",
    "with an escape": "\x1b[2J",
    "with a surrogate": "\ud800",
    "of 100 kB": "x" * 100_000,
}
Broken = Callable[[bytes], bytes]  # what a whole certificate is changed into
REFUSED: dict[str, Broken] = {
    "other digest": lambda whole: whole.replace(b'"digest": "', b'"digest": "0'),
    "other content": lambda whole: whole.replace(b'"k1"', b'"w"'),
    "false right side": lambda whole: with_part(whole, right=[]),
    "no parts": lambda whole: forged(whole, parts=[]),
    "other format": lambda whole: forged(whole, format="klsym-certificate/9"),
    "extra key": lambda whole: forged(whole, note="x"),
    "a list": lambda _: b"[]",
    "a number": lambda _: b"3",
    "a claim": lambda whole: forged(whole, claim="value.k1-unbiased"),
    "cites that are no list": lambda whole: forged(whole, cites={}),
    "a relation that is a list": lambda whole: with_part(whole, relation=[1]),
    **{f"a relation {how}": lambda whole, x=x: with_part(whole, relation=x) for how, x in TEXTS.items()},
    **{f"a rule {how}": lambda whole, x=x: ruled(whole, x) for how, x in TEXTS.items()},
    **{f"a parameter {how}": lambda whole, x=x: declared(whole, x) for how, x in TEXTS.items()},
}
UNREADABLE: dict[str, Broken] = {
    "NaN": lambda _: b"NaN",
    "a key twice": lambda whole: whole.replace(b'"cites": [],', b'"cites": [], "cites": [],'),
    "two megabytes": lambda whole: whole + b" " * 2_000_000,
    "half": lambda whole: whole[: len(whole) // 2],
    "empty": lambda _: b"",
    "words": lambda _: b"hello",
    "binary": lambda _: b"\xff\x00\x80\x81",
    "deep": lambda _: b"[" * 100_000 + b"]" * 100_000,
    "huge number": lambda _: b'{"a": ' + b"9" * 10_000 + b"}",
}


def broken(name: str, certificates: Path) -> bytes:
    change = {**REFUSED, **UNREADABLE}[name]
    return change((certificates / "value.k1-unbiased.json").read_bytes())


@pytest.mark.parametrize("name", [*REFUSED, *UNREADABLE])
def test_check_refuses(name: str, certificates: Path, tmp_path: Path, capsys: Out) -> None:
    """1 for a wrong certificate, 2 for what is none; its good neighbour is replayed all the same."""
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    bad.write_bytes(broken(name, certificates))
    good.write_bytes((certificates / "value.k3-unbiased.json").read_bytes())
    code, out, err = run(capsys, "check", str(bad), str(good))
    theorem, hypothesis = "  E_q[-1 + exp(-k1) + k1] = E_q[k1]", "    if p << q: wherever p > 0, also q > 0"
    assert out.splitlines()[-3:] == [f"ok {good}", theorem, hypothesis]
    assert out.isascii() and all(len(line) < 2000 and line.isprintable() for line in out.splitlines())
    if name in UNREADABLE:
        assert code == 2 and len(out.splitlines()) == 3
        one_line_of_complaint(err)
    else:
        assert (code, err) == (1, "") and len(out.splitlines()) == 4
        assert out.startswith(f"REFUSED {bad}: ")


def test_check_an_empty_folder_and_a_mixture(certificates: Path, tmp_path: Path, capsys: Out) -> None:
    code, out, err = run(capsys, "check", str(tmp_path))
    assert (code, out) == (2, "")
    one_line_of_complaint(err)
    (tmp_path / "half.json").write_bytes(broken("half", certificates))
    (tmp_path / "tampered.json").write_bytes(broken("other content", certificates))
    code, out, err = run(capsys, "check", str(tmp_path), str(certificates))
    assert code == 2 and out.count("REFUSED") == 1
    assert sum(line.startswith("ok ") for line in out.splitlines()) == 17
    one_line_of_complaint(err)


def test_check_needs_no_sympy(certificates: Path) -> None:
    code = (
        "import sys; from klsym.cli import main; code = main(['check', sys.argv[1]]);"
        "print([m for m in ('sympy', 'numpy', 'torch', 'matplotlib', 'tqdm') if m in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(certificates)], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[] 0" and done.stderr == ""


def test_exit_codes_of_the_process(certificates: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(broken("other content", certificates))
    assert shell("check", str(tmp_path))[0] == 1
    for argv in (["explain", "k9"], ["check", b"/no/such/\xff.json"]):
        code, out, err = shell(*argv)
        assert (code, out) == (2, "")
        one_line_of_complaint(err)
