"""The command line: exit codes, one clear line for bad input, valid JSON, certificates, pipes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from klsym import __version__
from klsym.calculus import KL, derive, expectation, k2, p, q
from klsym.cli import FORMATS, main
from klsym.kernel import check, digest, read, show
from klsym.ledger import registry as ledger
from klsym.ledger.registry import Claim

COMMANDS = ("explain", "compare", "prove", "check", "claims", "axioms")
Out = Any  # capsys


def run(capsys: Out, *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def start(*argv: Any, **options: Any) -> subprocess.Popen[bytes]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-m", "klsym", *argv], **pipes, **options)


def shell(*argv: Any, text: bytes = b"", **environment: str) -> tuple[int, str, str]:
    done = start(*argv, env={**os.environ, **environment})
    out, err = done.communicate(text, timeout=60)
    return done.returncode, out.decode(), err.decode()


def one_line_of_complaint(err: str) -> None:
    assert re.fullmatch(r"klsym: [^\n]{5,400}\n", err), err
    assert err.strip().isprintable() and "Traceback" not in err


# ---------------------------------------------------------------------------- bad input
BAD: list[tuple[list[str], str]] = [
    ([], "COMMAND"),
    (["bogus"], "invalid choice: 'bogus'"),
    (["explain"], "LOSS"),
    (["explain", "k1", "k2"], "k2"),
    (["explain", ""], "empty loss"),
    (["explain", "k9"], "unknown name 'k9' at character 1"),
    (["explain", "__import__('os').system('id')"], "unexpected"),
    (["explain", "k1/(k1 - k1)"], "division by zero"),
    (["explain", "1/k1"], "divi"),
    (["explain", "\udcff"], "unexpected"),
    (["explain", "k1\nk2"], "unexpected"),
    (["explain", "(" * 3000], "nested|parenthes|closed"),
    (["explain", "k1", "--sampling", "sometimes"], "--sampling.*sometimes"),
    (["explain", "k1", "--use", "penalty"], "--use.*penalty"),
    (["explain", "k1", "--level", "word"], "--level.*word"),
    (["explain", "k1", "--batch", "median"], "--batch.*median"),
    (["explain", "k1", "--level", "token", "--credit", "total"], "credit: a differentiated loss"),
    (["explain", "k1", "--level", "token", "--weights", "tokens"], "--weights.*tokens"),
    (["explain", "k1", "--level", "token", "--batch", "mean"], "batch: samples are centred whole"),
    (["explain", "k1", "--aggregate", "mean"], "aggregate: a single sample has no length"),
    (["explain", "k1", "--weights", "prefix"], "weights: this is said of tokens"),
    (["explain", "min(future(k3), 1)", "--level", "token"], "is differentiated here: write the loss"),
    (["explain", "k1/T"], "is the length of a sequence, and a single sample has none"),
    (["explain", "k1", "--format", "pdf"], "--format.*pdf"),
    (["explain", "k1", "--param", "a b"], "parameter 'a b'"),
    (["explain", "k1", "--param", "r"], "parameter 'r'"),
    (["explain", "w*k1", "--param", "w"], "parameter 'w'"),
    (["explain", "k1", "--nonsense"], "nonsense"),
    (["explain", "har*k1"], "--param har"),
    (["prove", "nope"], "unknown claim 'nope'"),
    (["prove", "value.k2-biased", "nope"], "unknown claim 'nope'"),
    (["prove", "--certificates"], "--certificates"),
    (["claims", "nope"], "unknown claim"),
    (["claims", "\udcff"], "unknown claim"),
    (["axioms"], "ID"),
    (["axioms", "nope"], "unknown claim"),
    (["axioms", "gradient"], "is an area"),
    (["check"], "FILE"),
    (["check", "/no/such/file.json"], "No such file"),
    (["check", ""], "[Ff]ile|folder"),
]


@pytest.mark.parametrize(("argv", "words"), BAD, ids=[ascii(" ".join(argv)[:40]) for argv, _ in BAD])
def test_bad_input_is_one_line_on_stderr_and_exit_2(argv: list[str], words: str, capsys: Out) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    one_line_of_complaint(err)
    assert re.search(words, err), err


@pytest.mark.parametrize(
    ("option", "beside"),
    [
        (["--level", "token"], []),
        (["--level", "sequence"], []),
        (["--batch", "mean"], []),
        (["--batch", "leave-one-out"], ["--use", "reward"]),
        (["--batch", "std"], []),
        (["--credit", "total"], ["--level", "token", "--use", "reward"]),
        (["--weights", "prefix"], ["--level", "token"]),
        (["--aggregate", "mean"], ["--level", "sequence"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_an_option_is_not_ignored(option: list[str], beside: list[str], capsys: Out) -> None:
    code, out, err = run(capsys, "explain", "k1", *beside, *option, "--json")
    assert (code, err) == (0, "") and json.loads(out)[option[0].strip("-")] == option[1]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "options",
    [
        ["--level", "token"],
        ["--level", "sequence", "--aggregate", "mean"],
        ["--batch", "mean"],
        ["--batch", "std"],
    ],
    ids=lambda value: " ".join(value),
)
def test_formats_of_tokens_and_batches(options: list[str], form: str, capsys: Out) -> None:
    code, out, err = run(capsys, "explain", "k3", *options, "--format", form)
    assert (code, err) == (0, "")
    sign = {
        "text": "k3  (on-policy, as a loss",
        "latex": r"\begin{aligned}",
        "markdown": "**k3",
        "json": '{"loss": "k3',
    }
    assert sign[form] in out and "ExpPoly" not in out


@pytest.mark.parametrize(
    "argv",
    [
        ["k3", "--level", "token"],
        ["rho*k1", "--level", "token", "--use", "reward", "--sampling", "off-policy", "--weights", "prefix"],
        ["k1", "--level", "sequence", "--aggregate", "mean"],
        ["rho*k1", "--batch", "leave-one-out", "--use", "reward", "--sampling", "off-policy"],
        ["k1", "--batch", "std"],
    ],
    ids=lambda value: " ".join(value),
)
def test_check_of_tokens_and_batches(argv: list[str], capsys: Out) -> None:
    code, out, err = run(capsys, "explain", *argv, "--check", "--json")
    assert (code, err) == (0, "") and json.loads(out)["check"]["passed"] is True


def test_a_stream_takes_the_options_of_tokens(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("k1\nmin(future(k3), 1)\nrho*k1\n"))
    code, out, _ = run(capsys, "explain", "-", "--level", "token", "--weights", "prefix")
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 2 and "error" in answers[1]
    assert [answers[i]["gradient"]["target"] for i in (0, 2)] == ["zero", "reverse-kl"]


# ---------------------------------------------------------------------------- help and version
@pytest.mark.parametrize(
    ("command", "mentioned"),
    [
        ("", [*COMMANDS, "--version"]),
        (
            "explain",
            [
                "LOSS",
                "--sampling",
                "--use",
                "--level",
                "--batch",
                "--credit",
                "--weights",
                "--aggregate",
                "--format",
                "--json",
                "--check",
                "--param",
            ],
        ),
        ("compare", ["LOSS_A", "LOSS_B", "--sampling", "--use", "--format", "--json", "--param"]),
        ("prove", ["ID", "--certificates"]),
        ("check", ["FILE"]),
        ("claims", ["ID", "--json"]),
        ("catalogue", ["--size", "--scheduler", "--output", "--json"]),
        ("axioms", ["ID"]),
    ],
)
def test_help(command: str, mentioned: list[str], capsys: Out) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*filter(None, [command]), "--help"])
    out, err = capsys.readouterr()
    assert (caught.value.code, err) == (0, "")
    assert out.startswith("usage: klsym") and all(word in out for word in mentioned)


def test_version(capsys: Out) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0 and capsys.readouterr().out == f"klsym {__version__}\n"


# ---------------------------------------------------------------------------- explain
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("loss", ["k3", "k1**3", "clip(k3, 0, 5)"])
def test_formats(loss: str, form: str, capsys: Out) -> None:
    code, out, err = run(capsys, "explain", loss, "--format", form)
    assert (code, err) == (0, "")
    sign = {
        "text": f"{loss}  (on-policy, as a loss) targets",
        "latex": r"\begin{aligned}",
        "markdown": "**" + loss.replace("*", r"\*"),
        "json": '{"loss": "' + loss,
    }
    assert sign[form] in out
    if form == "json":
        assert out.count("\n") == 1 and json.loads(out)["loss"] == loss


def test_numbers_beyond_floats_are_printed(capsys: Out) -> None:
    code, out, err = run(capsys, "explain", "exp(1000)*k3")
    assert (code, err) == (0, "") and re.search(r"left side \d\.\d+e\+43\d", out)


def test_json_is_short_for_format_json(capsys: Out) -> None:
    assert run(capsys, "explain", "k3", "--json") == run(capsys, "explain", "k3", "--format", "json")


@pytest.mark.parametrize(
    ("argv", "loss"),
    [
        (["-k1"], "-k1"),
        (["-k1", "--json"], "-k1"),
        (["--json", "-k1"], "-k1"),
        (["--sampling", "off-policy", "-rho*k3"], "-rho*k3"),
        (["-0.5*k1"], "-0.5*k1"),
        (["-.5*k1"], "-.5*k1"),
        (["-(k1 + k2)"], "-(k1 + k2)"),
        (["--", "-k1"], "-k1"),
        (["--k1"], "--k1"),
        (["-har*k1", "--param", "har"], "-har*k1"),
        (["-sg(rho)*k2", "--use", "reward"], "-sg(rho)*k2"),
        (["- k1"], "- k1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_loss_may_start_with_a_minus(argv: list[str], loss: str, capsys: Out) -> None:
    code, out, err = run(capsys, "explain", "--format", "json", *argv)
    assert (code, err) == (0, ""), err
    assert json.loads(out)["loss"] == loss


def test_options_reach_the_answer(capsys: Out) -> None:
    argv = [
        "explain",
        "har*rho*k1",
        "--param",
        "har",
        "--sampling",
        "off-policy",
        "--use",
        "reward",
        "--json",
    ]
    code, out, _ = run(capsys, *argv)
    answer = json.loads(out)
    assert (code, answer["sampling"], answer["use"]) == (0, "off-policy", "reward")
    assert answer["gradient"]["combination"] == {"reverse-kl": "har"}


@pytest.mark.parametrize(("loss", "passed"), [("k3", True), ("rho*k2", True), ("abs(k1)", True)])
def test_check_adds_the_cross_check(loss: str, passed: bool, capsys: Out) -> None:
    code, out, _ = run(capsys, "explain", loss, "--check", "--json")
    answer = json.loads(out)
    assert code == 0 and answer["check"]["text"]
    assert answer["check"]["passed"] is passed
    assert "check" not in json.loads(run(capsys, "explain", loss, "--json")[1])


STREAM = [
    "k1",
    "",
    "k9",
    "  rho*k3  ",
    "1/(1 - 1)",
    "k3/(n - 1)",
    "1/k1",
    "(((",
    "λ",
    "x" * 9000,
    "k2",
    "-k1",
]


def test_stream(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line is answered, in order, also after a bad one; the exit code remembers."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(STREAM)))
    code, out, err = run(capsys, "explain", "-", "--sampling", "off-policy")
    answers = [json.loads(line) for line in out.splitlines()]
    asked = [line.strip() for line in STREAM if line.strip()]
    assert (code, err) == (2, "")
    assert [a["loss"][:200] for a in answers] == [line[:200] for line in asked]
    bad = {a["loss"] for a in answers if "error" in a}
    assert {"k9", "1/(1 - 1)", "(((", "λ"} <= bad and not bad & {"k1", "rho*k3", "k2", "-k1"}
    for answer in answers:
        assert set(answer) == {"loss", "error"} or answer["sampling"] == "off-policy"
        assert "\n" not in answer.get("error", "") and len(answer.get("error", "")) <= 400


def test_stream_of_good_lines_ends_with_0(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("k1\nk2\n"))
    code, out, err = run(capsys, "explain", "-")
    assert (code, err, len(out.splitlines())) == (0, "", 2)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run(capsys, "explain", "-") == (0, "", "")


# ---------------------------------------------------------------------------- the ledger
PROOFS = (
    "batch",
    "gradient",
    "neighbour",
    "offpolicy",
    "reward",
    "sequence",
    "value",
    "variance",
)  # no experiments


def test_axioms_name_the_closing_that_was_used(capsys: Out) -> None:
    """The rule and the closing that are both called independence are told apart."""
    _, out, _ = run(capsys, "axioms", "variance.loo")
    rules, closed = out.split("\nClosed by\n")
    assert "  independence: E_m[a(self) b(others)]" in rules
    assert closed.startswith("  equality: ") and "independence" not in closed.split("\n\n")[0]


def test_claims(capsys: Out) -> None:
    code, out, err = run(capsys, "claims", *PROOFS)
    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", 105)
    row = r"[a-z]+\.[a-z0-9-]+ +(proved|refuted|corrected|exact) +settled +(kernel|sympy) +\S"
    assert all(re.match(row, line) for line in lines)
    assert len(run(capsys, "claims", "reward", "value.k2-biased")[1].splitlines()) == 9


def test_claims_json(capsys: Out) -> None:
    code, out, err = run(capsys, "claims", "--json", *PROOFS)
    rows = json.loads(out)
    assert (code, err, len(rows), len({row["id"] for row in rows})) == (0, "", 105, 105)
    text, listed = (str, type(None)), ("hypotheses", "verified")
    for row in rows:
        assert list(row) == [
            "id", "verdict", "status", "trust", "source", "statement", "hypotheses", "printed", "verified"
        ]  # fmt: skip
        assert all(isinstance(row[key], text) for key in row if key not in listed)
        if row["trust"] == "kernel":  # then each part has a certificate, which may be outside Rocq's reach
            assert "no certificate" not in row["verified"]["outside"].values()
        assert all(isinstance(line, str) for line in row["hypotheses"])
        assert row["verdict"] in ("proved", "refuted", "corrected", "exact") and row["status"] == "settled"


def test_axioms(capsys: Out) -> None:
    code, out, err = run(capsys, "axioms", "gradient.k3-loss")
    assert (code, err) == (0, "")
    parts = [
        "E_q[grad k3] = grad KL(p||q)",
        "Rules",
        "score mean zero: E_q[c s_z] = 0",
        "Closed by",
        "Hypotheses",
    ]
    assert [part for part in parts if part not in out] == []
    assert "p << q" in out and "[Williams 1992]" in out
    assert run(capsys, "axioms", "gradient.per-sample")[1].rstrip().endswith("- none")


def test_prove(capsys: Out) -> None:
    code, out, _ = run(capsys, "prove", "reward", "value.k2-biased")
    assert code == 0 and "FAILED" not in out
    rows = {
        line.split()[0]: line.split()[1:]
        for line in out.splitlines()
        if re.match(r"(reward|value|all) ", line)
    }
    assert rows["reward"][:3] == ["8", "8", "8"] and rows["value"][:3] == ["1", "1", "1"]
    assert rows["all"][:3] == ["9", "9", "9"] and rows["all"][3] == rows["all"][4]


@pytest.fixture
def false_claim(monkeypatch: pytest.MonkeyPatch) -> str:
    def build() -> Any:
        return derive(expectation(k2, under=q)).equals(KL(q, p))

    ledger.load()
    monkeypatch.setitem(ledger.REGISTRY, "test.false", Claim("test.false", "proved", "test", "False.", build))
    return "test.false"


@pytest.mark.parametrize("command", ["prove", "claims", "axioms"])
def test_a_false_claim_ends_with_1(command: str, false_claim: str, capsys: Out, tmp_path: Path) -> None:
    extra = ["--certificates", str(tmp_path)] if command == "prove" else []
    code, out, _ = run(capsys, command, false_claim, *extra)
    assert code == 1 and list(tmp_path.iterdir()) == []
    assert (
        "failed" in out
        if command == "claims"
        else "FAILED test.false: SidesDiffer: the two sides differ" in out
    )


# ---------------------------------------------------------------------------- certificates
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
    assert lines[start + 1 : start + 3] == [f"  {show(theorem, False)}" for theorem in theorems]
    assert [line.split(" = ")[0] for line in lines[start + 1 : start + 3]] == [
        "  E_q[exp(-k1)]",
        "  E_mu[exp(w)]",
    ]
    assert all(line.startswith(("ok ", "  ")) for line in lines)


def test_check_in_full(certificates: Path, capsys: Out) -> None:
    """Every hypothesis, premise and model, in the words of the kernel."""
    names = ("value.k3-unbiased", "value.k2-biased", "value.optimal-lambda")
    files = [str(certificates / f"{name}.json") for name in names]
    code, short, _ = run(capsys, "check", *files)
    assert code == 0 and "p << q" not in short and "model" not in short
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


def forged(certificates: Path, **changes: Any) -> str:
    """A certificate with other content and a fitting digest."""
    body = {**json.loads((certificates / "value.k1-unbiased.json").read_text()), **changes}
    return json.dumps({**body, "digest": digest(body["parts"])})


def broken(name: str, certificates: Path) -> bytes:
    whole = (certificates / "value.k1-unbiased.json").read_bytes()
    parts = json.loads(whole)["parts"]

    def changed(**fields: Any) -> bytes:
        return forged(certificates, parts=[{**parts[0], **fields}]).encode()

    def named(relation: Any) -> bytes:
        return changed(relation=relation)

    def ruled(name: str) -> bytes:
        step = {"rule": name, "side": "left", "term": 0, "factor": 0, "data": {}, "result": []}
        return changed(steps=[step])

    def declared(name: str) -> bytes:
        return changed(context={**parts[0]["context"], "parameters": [name]})

    return {
        "other digest": whole.replace(b'"digest": "', b'"digest": "0'),
        "other content": whole.replace(b'"k1"', b'"w"'),
        "false right side": forged(certificates, parts=[{**parts[0], "right": []}]).encode(),
        "no parts": forged(certificates, parts=[]).encode(),
        "other format": forged(certificates, format="klsym-certificate/9").encode(),
        "extra key": forged(certificates, note="x").encode(),
        "a list": b"[]",
        "a number": b"3",
        "NaN": b"NaN",
        "a claim": forged(certificates, claim="value.k1-unbiased").encode(),
        "cites that are no list": forged(certificates, cites={}).encode(),
        "a relation that is a list": named([1]),
        "a relation with a newline": named("a\nok gradient.k9\n  E_q[k9] = 0"),
        "a relation with an escape": named("\x1b[2J"),
        "a relation with a surrogate": named("\ud800"),
        "a relation of 100 kB": named("x" * 100_000),
        "a rule with a newline": ruled("a\nok gradient.k9\n  E_q[k9] = 0"),
        "a rule with an escape": ruled("\x1b[2J"),
        "a rule with a surrogate": ruled("\ud800"),
        "a rule of 100 kB": ruled("x" * 100_000),
        "a parameter with a newline": declared("a\nok gradient.k9\n  E_q[k9] = 0"),
        "a parameter with an escape": declared("\x1b[2J"),
        "a parameter of 100 kB": declared("x" * 100_000),
        "a key twice": whole.replace(b'"cites": [],', b'"cites": [], "cites": [],'),
        "two megabytes": whole + b" " * 2_000_000,
        "half": whole[: len(whole) // 2],
        "empty": b"",
        "words": b"hello",
        "binary": b"\xff\x00\x80\x81",
        "deep": b"[" * 100_000 + b"]" * 100_000,
        "huge number": b'{"a": ' + b"9" * 10_000 + b"}",
    }[name]


REFUSED = (
    *(
        "other digest",
        "other content",
        "false right side",
        "no parts",
        "other format",
        "extra key",
        "a list",
        "a number",
    ),
    *("a claim", "cites that are no list", "a relation that is a list"),
    *(f"a {what} {how}" for what in ("relation", "rule") for how in ("with a newline", "with an escape")),
    *(f"a {what} {how}" for what in ("relation", "rule") for how in ("with a surrogate", "of 100 kB")),
    *(f"a parameter {how}" for how in ("with a newline", "with an escape", "of 100 kB")),
)
UNREADABLE = (
    *("half", "empty", "words", "binary", "deep", "huge number", "NaN", "a key twice", "two megabytes"),
)


@pytest.mark.parametrize("name", [*REFUSED, *UNREADABLE])
def test_check_refuses(name: str, certificates: Path, tmp_path: Path, capsys: Out) -> None:
    """1 for a wrong certificate, 2 for what is none; its good neighbour is replayed all the same."""
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    bad.write_bytes(broken(name, certificates))
    good.write_bytes((certificates / "value.k3-unbiased.json").read_bytes())
    code, out, err = run(capsys, "check", str(bad), str(good))
    told = [f"ok {good}", "  E_q[-1 + exp(-k1) + k1] = E_q[k1]   (1 hypothesis)"]
    assert out.splitlines()[-2:] == told
    assert out.isascii() and all(len(line) < 2000 and line.isprintable() for line in out.splitlines())
    if name in UNREADABLE:
        assert code == 2 and len(out.splitlines()) == 2
        one_line_of_complaint(err)
    else:
        assert (code, err) == (1, "") and len(out.splitlines()) == 3
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


def test_the_name_of_a_file_is_one_line(certificates: Path, tmp_path: Path, capsys: Out) -> None:
    """A file's name cannot say that another one has been checked."""
    whole = (certificates / "value.k1-unbiased.json").read_bytes()
    for content, code in ((whole, 0), (b"{}", 1), (b"", 2)):
        path = tmp_path / "a\nok b.json"
        path.write_bytes(content)
        found, out, err = run(capsys, "check", str(path))
        assert found == code and not any(line.startswith("ok b") for line in (out + err).splitlines())


# ---------------------------------------------------------------------------- as a process
def test_check_needs_no_sympy(certificates: Path) -> None:
    code = (
        "import sys; from klsym.cli import main; code = main(['check', sys.argv[1]]);"
        "print([m for m in ('sympy', 'numpy', 'torch', 'matplotlib', 'tqdm') if m in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(certificates)], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[] 0" and done.stderr == ""


def test_both_ways_to_start() -> None:
    script = Path(sys.executable).with_name("klsym")
    done = subprocess.run([script, "explain", "k2", "--json"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == shell("explain", "k2", "--json")
    assert json.loads(done.stdout)["gradient"]["target"] == "reverse-kl"


def test_exit_codes_of_the_process(certificates: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(broken("other content", certificates))
    assert shell("check", str(tmp_path))[0] == 1
    for argv in (["explain", "k9"], ["check", b"/no/such/\xff.json"]):
        code, out, err = shell(*argv)
        assert (code, out) == (2, "")
        one_line_of_complaint(err)


def test_no_progress_bar_into_a_file() -> None:
    code, out, err = shell("prove", "value.k1-unbiased", "value.k2-biased")
    assert (code, err) == (0, "") and "%" not in out


@pytest.mark.parametrize("strictness", ["strict", "surrogateescape"])
def test_stream_with_bytes_that_are_no_text(strictness: str) -> None:
    code, out, err = shell("explain", "-", text=b"k1\n\xff\xfe\nk3\n", PYTHONIOENCODING=f"utf-8:{strictness}")
    answers = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (2, "") and [("error" in a) for a in answers] == [False, True, False]


def test_plain_ascii_output_in_any_locale() -> None:
    code, out, err = shell("explain", "k3", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "") and out.isascii()


def test_a_reader_that_goes_away() -> None:
    """klsym explain - | head -1."""
    process = start("explain", "-")
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b"k3\n" * 400)
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["loss"] == "k3"
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == b"" and process.wait(60) == 0


def test_interrupt() -> None:
    process = start("explain", "-")
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b"k3\n")
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130 and process.stderr.read() == b"klsym: interrupted\n"


def test_interrupt_where_a_shell_ignores_it() -> None:
    """What `nohup make test &` hands to the tests, and a narrow screen with other letters beside it."""
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT});"
        "os.execv(sys.executable, [sys.executable, '-m', 'pytest', '-q', '-p', 'no:nbval', *sys.argv[1:]])"
    )
    tests = [f"{__file__}::{name}" for name in ("test_interrupt", "test_help")]
    odd = {"COLUMNS": "20", "PYTHONIOENCODING": "latin-1", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-c", code, *tests], env={**os.environ, **odd}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout
