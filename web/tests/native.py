"""Print what `klsym` on the command line answers to the questions of the browser test, as JSON.

    python web/tests/native.py > NATIVE.json

Each row has the question of the page, the words of the command line, the text on stdout or stderr, and the
exit code.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from klsym.cli import main

OFF = {"sampling": "off-policy"}
TOKENS = {"level": "token"}
PASTED = "d = ref_logp - logp\nloss = torch.exp(logp - old_logp).detach()*(torch.expm1(d) - d)"
CLIPPED = "-min(rho*A, clip(rho, 1-eps, 1+eps)*A)"
EXPLAINED: list[tuple[str, dict[str, str]]] = [
    ("k1", {}), ("k2", {}), ("k3", {}), ("k1", OFF), ("rho*k1", OFF), ("rho*k3", OFF), ("sg(rho)*k2", OFF),
    ("sg(rho)*k3", OFF), (CLIPPED, OFF), ("k3", {"use": "reward"}), ("k1", {"use": "reward", **TOKENS}),
    ("k3", {**TOKENS, **OFF}), ("rho*k3", {**TOKENS, **OFF, "weights": "prefix"}),
    ("k2", {"level": "sequence"}),
    ("k1", {"use": "reward", "batch": "leave-one-out"}), ("k3", {**TOKENS, "aggregate": "mean"}),
    ("k3", {"sampling": "truncated"}), ("log(1 + r)", {}), ("abs(k1)", {}), ("full_kl(q, p)", TOKENS),
    (PASTED, OFF),
    ("-A*log_q + beta*k3", {}), ("k2 + sg(k1 - k2)", {}), ("js(q, p, 1/10)", TOKENS),
]  # fmt: skip
OTHERS: list[dict[str, Any]] = [
    {"kind": "compare", "loss": "rho*k1", "other": "rho*k3", "options": OFF},
    {"kind": "compare", "loss": "k2", "other": "k1*sg(k1)", "options": {}},
    {"kind": "recommend", "options": {"target": "reverse-kl", **OFF}},
    {"kind": "recommend", "options": {"target": "forward-kl", "use": "value", "framework": "jax"}},
    {"kind": "divergence", "divergence": "jeffreys", "options": {}},
    {"kind": "divergence", "divergence": "r*log(r)", "options": OFF},
    {"kind": "optimum", "loss": "k3", "beta": "1/2", "rewards": "0,0.4,1", "reference": "0.5,0.3,0.2",
     "options": {"use": "reward"}},
    {"kind": "explain", "loss": "gamma*k3", "parameters": ["gamma"], "options": {}},
]  # fmt: skip
REFUSED: list[dict[str, Any]] = [
    {"kind": "explain", "loss": loss, "options": {}}
    for loss in ("k1 + kk", "ratio*A", '__import__("os").system("true")', "1/0", "k1 +", "<img src=x>", "")
]
POSITIONS = ("loss", "other", "divergence")


def words_of(question: dict[str, Any]) -> list[str]:
    """The words of the command line that asks the same."""
    words = [question["kind"], *(question[name] for name in POSITIONS if name in question)]
    given = {name: question[name] for name in ("beta", "rewards", "reference") if name in question}
    for name, value in {**given, **question["options"]}.items():
        words += [f"--{name}", value]
    return [*words, *(word for name in question.get("parameters", ()) for word in ("--param", name))]


def answered(question: dict[str, Any]) -> dict[str, Any]:
    """The question with its answer on the command line."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words_of(question))
    text = out.getvalue().removesuffix("\n") or err.getvalue().strip().removeprefix("klsym: ")
    return {"question": question, "text": text, "code": code}


if __name__ == "__main__":
    explained = [{"kind": "explain", "loss": loss, "options": options} for loss, options in EXPLAINED]
    json.dump([answered(question) for question in (*explained, *OTHERS, *REFUSED)], sys.stdout)
