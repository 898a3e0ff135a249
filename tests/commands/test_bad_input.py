"""What cannot be answered is one line on stderr, exit code 2, and nothing written, whatever the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.commands import Out, one_line_of_complaint, run

pytestmark = pytest.mark.usefixtures("without_copies")

NUMBERS = [
    "0", "-1", "-1e6", "nan", "-nan", "sNaN", "inf", "-inf", "1e40", "1e999999999", "1e-999999999", "1.5",
    "1e-3", "", " ", "abc", "1e", "0x10", "1/2", "1,000", "--", "10" * 30, "\u221e",
]  # fmt: skip
WHOLE = "a whole number"
LONG = "a" * 5000
BAD: list[tuple[list[str], str]] = [
    (["recommend", "--target", "kl"], "target='kl': reverse-kl for KL"),
    (["recommend"], "--target"),
    (["recommend", "--target", "reverse-kl", "--use", "x"], "invalid choice: 'x'"),
    (["bogus"], "invalid choice: 'bogus'"),
    (["explain"], "LOSS"),
    (["explain", "k1", "k2"], "k2"),
    (["explain", ""], "empty loss"),
    (["explain", "k9"], "unknown name 'k9' at character 1"),
    (["explain", "__import__('os').system('id')"], "unexpected"),
    (["explain", "k1/(k1 - k1)"], "division by zero"),
    (["explain", "1/k1"], "divi"),
    (["explain", "\udcff"], "unexpected"),
    (["explain", "k1\nk2"], "a formula that is not used"),
    (["explain", "(" * 3000], "nested|parenthes|closed"),
    (["explain", "k1", "--sampling", "sometimes"], "--sampling.*sometimes"),
    (["explain", "k1", "--use", "penalty"], "--use.*penalty"),
    (["explain", "k1", "--level", "word"], "--level.*word"),
    (["explain", "k1", "--batch", "median"], "--batch.*median"),
    (["explain", "k1", "--level", "token", "--credit", "total"], "credit: a differentiated loss"),
    (["explain", "k1", "--level", "token", "--weights", "tokens"], "--weights.*tokens"),
    (["explain", "k1", "--level", "token", "--batch", "mean"], "batch: samples are centred whole"),
    (["explain", "k1", "--aggregate", "mean"], "aggregate: a single sample has no length"),
    (["explain", "k1", "--weights", "prefix"], "weights: needs level token"),
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
    (["verify", "bogus"], "unknown claim 'bogus'"),
    (["verify", "reward.k1", "gradient."], "unknown claim 'gradient.'"),
    (["verify", "x" * 5000], "unknown claim"),
    (["verify", "a\nb"], "unknown claim"),
    (["verify", "experiment"], "experiments are no identities"),
    (["verify", "reward.k1", "--backend", "tensorflow"], "'tensorflow': unknown; known: numpy, torch, jax"),
    (["verify", "reward.k1", "--backend", ""], "unknown; known: numpy"),
    (["verify", "reward.k1", "--backend", "NumPy"], "unknown; known: numpy"),
    (["verify", "reward.k1", "--device", "cuda"], "numpy: no device 'cuda', it has cpu only"),
    (["verify", "reward.k1", "--device", ""], "numpy: no device ''"),
    (["verify", "reward.k1", "--scheduler", ""], "an address such as"),
    (["verify", "reward.k1", "--scheduler", "nowhere"], "an address such as"),
    (["verify", "reward.k1", "--scheduler", "http://localhost:8786"], "an address such as"),
    (["verify", "reward.k1", "--samples"], "expected one argument"),
    (["verify", "reward.k1", "--false-alarm", "0.1"], "--false-alarm"),
    (["verify", "reward.k1-unique", "--samples", "9007199254740993"], r"from 1 to 2\^53"),
    (["verify", "reward.k1", "--samples", "1e17"], r"from 1 to 2\^53"),
    *((["verify", "reward.k1", f"--samples={text}"], f"--samples.*{WHOLE}, 1 or more") for text in NUMBERS),
    *((["verify", "reward.k1", f"--seed={text}"], f"--seed.*{WHOLE}, 0 or more")
      for text in NUMBERS if text not in ("0", "1e-999999999")),
    (["tables", ""], "TABLE: a name expected"),
    (["tables", "\N{SNOWMAN}"], "unknown table '\N{SNOWMAN}'"),
    (["tables", "GRADIENTS"], "unknown table"),
    (["tables", "\udcff"], r"unknown table '\\udcff'"),
    (["tables", "gradients", "--only"], "--only"),
    (["tables", "gradients", "--only", " , "], "--only: a name expected"),
    (["tables", "gradients", "--only", "k3", "k9"], "--only 'k9': no row"),
    (["tables", "gradients", "--only", "k3\nx"], r"--only 'k3\\nx'"),
    (["tables", "--only", "k3", "schulman"], "tables come before --only"),
    (["tables", "schulman", "--columns", ""], "--columns: a name expected"),
    (["tables", "gradients", "--notation", "bourbaki"], "--notation"),
    (["tables", "gradients", "--format", "docx"], "--format"),
    (["tables", "schulman", "--columns", "claim", "colour"], "no column 'colour'"),
    (["report", "extra"], "unrecognized arguments: extra"),
    (["paper", "extra"], "unrecognized arguments: extra"),
    *(([command, "-o", ""], "the name of a folder is empty") for command in ("tables", "report", "paper")),
    *(([command, "-o", LONG], "File name too long") for command in ("tables", "report", "paper", "figures")),
    *((["explain", "k1", f"--time-limit={text}"], "--time-limit")
      for text in ("nan", "-1", "inf", "soon", "1e9")),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "words"), BAD, ids=[ascii(" ".join(argv)[:40]) for argv, _ in BAD])
@pytest.mark.share(4)
def test_bad_input_is_one_line_on_stderr_and_exit_2(
    argv: list[str], words: str, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    one_line_of_complaint(err)
    assert re.search(words, err), err
    assert list(tmp_path.iterdir()) == []
