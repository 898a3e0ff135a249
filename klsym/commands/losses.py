"""`klsym explain` and `klsym compare`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from klsym.commands.late import late_verdict
from klsym.commands.limited import Limited
from klsym.commands.timed import timed
from klsym.commands.verdicts import answered, exit_code, printed, setting_of, verdict_of

LONGEST = 1_000_000  # characters of a line that are read; the parser's own limit is below


def explain_loss(options: argparse.Namespace) -> int:
    """The verdict on a loss, or on each line of standard input."""
    return _explain_stream(options) if options.loss == "-" else _explain_one(options)


@timed(late_verdict)
def _explain_one(options: argparse.Namespace) -> int:
    verdict = verdict_of(options.loss.strip(" "), options)
    print(printed(verdict, options))
    return exit_code(verdict)


def _explain_stream(options: argparse.Namespace) -> int:
    """One JSON object a line, also for a line that has no answer; then the exit code is 2."""
    code, options.format = 0, "json"
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a line that is no text is answered like any other bad line
    with Limited(options) as limited:
        for loss in _lines(sys.stdin):
            reply = limited.ask(loss) if options.time_limit else answered(loss, options)
            if "error" in reply:
                reply = {"text": json.dumps({"loss": loss[:200], "error": reply["error"]}), "code": 2}
            print(reply["text"], flush=True)
            code = max(code, int(reply["code"]))
    return code


def _lines(stream: Any) -> Iterator[str]:
    """Lines that are not empty; of one beyond any loss only the beginning is kept."""
    while line := stream.readline(LONGEST):
        end = line
        while len(end) == LONGEST and not end.endswith("\n"):
            end = stream.readline(LONGEST)
        if line.strip():
            yield line.strip()


@timed()
def compare_losses(options: argparse.Namespace) -> int:
    """Two losses beside one another."""
    from klsym.api import compare

    losses = (options.loss_a.strip(" "), options.loss_b.strip(" "))
    found = compare(*losses, parameters=options.param, **setting_of(options))
    if options.format == "json":
        print(json.dumps(found.to_json()))
    else:
        print(found.text(options.proof, options.full))
    return 0
