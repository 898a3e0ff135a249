"""`klsym explain`, `klsym compare`, and `klsym recommend`: what to write for a KL penalty."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from klsym.commands.console import get_terminal_width
from klsym.commands.timed import limit_time
from klsym.commands.verdicts import answer_loss, explain_typed, format_verdict, get_exit_code, read_setting

LONGEST = 1_000_000  # characters of a line that are read; the parser's own limit is below


def explain_loss(options: argparse.Namespace) -> int:
    """The verdict on a loss, or on each line of standard input."""
    return _explain_stream(options) if options.loss == "-" else _explain_one(options)


def _print_late(options: argparse.Namespace) -> int:
    from klsym.commands.late import print_late_verdict

    return print_late_verdict(options)


@limit_time(_print_late)
def _explain_one(options: argparse.Namespace) -> int:
    verdict = explain_typed(options.loss.strip(" "), options)
    print(format_verdict(verdict, options))
    return get_exit_code(verdict)


def _explain_stream(options: argparse.Namespace) -> int:
    """One JSON object a line, also for a line that has no answer; then the exit code is 2."""
    code, options.format = 0, "json"
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a line that is no text is answered like any other bad line
    from klsym.commands.limited import Limited

    with Limited(options) as limited:
        for loss in _read_lines(sys.stdin):
            reply = limited.ask(loss) if options.time_limit else answer_loss(loss, options)
            if "error" in reply:
                reply = {"text": json.dumps({"loss": loss[:200], "error": reply["error"]}), "code": 2}
            print(reply["text"], flush=True)
            code = max(code, int(reply["code"]))
    return code


def _read_lines(stream: Any) -> Iterator[str]:
    """Lines that are not empty; of one beyond any loss only the beginning is kept."""
    while line := stream.readline(LONGEST):
        end = line
        while len(end) == LONGEST and not end.endswith("\n"):
            end = stream.readline(LONGEST)
        if line.strip():
            yield line.strip()


@limit_time()
def compare_losses(options: argparse.Namespace) -> int:
    """Compare two losses."""
    from klsym.api import compare

    losses = (options.loss_a.strip(" "), options.loss_b.strip(" "))
    comparison = compare(*losses, parameters=options.param, **read_setting(options))
    if options.format == "json":
        print(json.dumps(comparison.to_json()))
    else:
        print(comparison.text(options.proof, options.full, get_terminal_width()))
    return 0


@limit_time()
def recommend_loss(options: argparse.Namespace) -> int:
    """The correct choices, the best first, the tempting wrong ones, and code."""
    from klsym.api import recommend

    recommendation = recommend(options.target, options.sampling, options.use, options.level)
    if options.format == "json":
        print(json.dumps(recommendation.to_json()))
        return 0
    if options.format == "markdown":
        print(recommendation.markdown(options.framework))
    else:
        width = get_terminal_width()
        print(recommendation.text(options.framework, options.proof, options.full, width))
    return 0
