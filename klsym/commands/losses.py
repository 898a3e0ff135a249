"""`klsym explain` and `klsym compare`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from klsym.commands.console import one_line
from klsym.errors import KlsymError


def explain_loss(options: argparse.Namespace) -> int:
    """The verdict on a loss, or on each line of standard input."""
    if options.loss == "-":
        return _explain_stream(options)
    print(_render(_explain(options.loss.strip(" "), options), options.format))
    return 0


def _explain(loss: str, options: argparse.Namespace) -> Any:
    from klsym.engine.explain import explain

    verdict = explain(
        loss, options.sampling, options.use, options.level, options.batch, options.param, options.credit,
        options.weights, options.aggregate,
    )  # fmt: skip
    if not options.check:
        return verdict
    from klsym.numeric.cross_check import with_check
    from klsym.parser import parse

    return with_check(verdict, parse(loss, options.param))


def _explain_stream(options: argparse.Namespace) -> int:
    """One JSON object a line, also for a line that cannot be read; then the exit code is 2."""
    code = 0
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a line that is no text is answered like any other bad line
    for line in sys.stdin:
        loss = line.strip()
        if not loss:
            continue
        try:
            answer = _explain(loss, options).to_json()
        except KlsymError as error:
            answer, code = {"loss": loss[:200], "error": one_line(str(error))}, 2
        print(json.dumps(answer), flush=True)
    return code


def _render(verdict: Any, form: str) -> str:
    if form == "json":
        return json.dumps(verdict.to_json())
    from klsym.render.verdict import derivation_latex, verdict_markdown

    if form == "latex":
        return f"\\[\n{derivation_latex(verdict)}\n\\]"
    return verdict_markdown(verdict) if form == "markdown" else str(verdict)


def compare_losses(options: argparse.Namespace) -> int:
    """Two losses beside one another."""
    from klsym.engine.compare import compare

    losses = (options.loss_a.strip(" "), options.loss_b.strip(" "))
    level = {name: getattr(options, name) for name in ("level", "credit", "weights", "aggregate")}
    found = compare(*losses, options.sampling, options.use, options.param, **level)
    print(json.dumps(found.to_json()) if options.format == "json" else found)
    return 0
