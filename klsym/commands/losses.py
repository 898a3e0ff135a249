"""`klsym explain` and `klsym compare`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from klsym.commands.console import one_line
from klsym.engine.explain_setting import CHOICES
from klsym.errors import KlsymError, UsageError

LONGEST = 1_000_000  # characters of a line that are read; the parser's own limit is below
Reply = dict[str, Any]  # {"text", "code"}, or {"error"}
STREAM_LIMIT = 10.0  # seconds a line


def explain_loss(options: argparse.Namespace) -> int:
    """The verdict on a loss, or on each line of standard input."""
    if options.loss == "-":
        return _explain_stream(options)
    loss = options.loss.strip(" ")
    if not options.time_limit:
        verdict = _explain(loss, options)
        reply: Reply = {"text": _render(verdict, options.format), "code": _code(verdict)}
    else:
        from klsym.commands.limited import Limited

        with Limited(options) as limited:
            reply = limited.ask(loss)
        if "error" in reply:
            raise UsageError(reply["error"])
    print(reply["text"])
    return int(reply["code"])


def answered(loss: str, options: argparse.Namespace) -> Reply:
    """What is printed and the exit code; or one line that says what is wrong, whatever happens."""
    try:
        verdict = _explain(loss, options)
        return {"text": _render(verdict, options.format), "code": _code(verdict)}
    except KlsymError as error:
        return {"error": one_line(str(error))}
    except Exception as error:  # a defect of klsym is no reason to leave the other lines unanswered
        return {
            "error": one_line(f"klsym fails on this loss, please report it: {type(error).__name__}: {error}")
        }


def load(check: bool) -> None:
    """Import what answers."""
    import klsym.engine.explain
    import klsym.render.verdict

    if check:
        import klsym.numeric.cross_check  # noqa: F401


def _code(verdict: Any) -> int:
    """1 if the cross-check failed."""
    return 0 if verdict.check is None or verdict.check["passed"] else 1


def _explain(loss: str, options: argparse.Namespace) -> Any:
    from klsym.engine.explain import explain

    verdict = explain(loss, parameters=options.param, **_setting(options))
    if not options.check:
        return verdict
    from klsym.numeric.cross_check import with_check
    from klsym.parser import parse

    return with_check(verdict, parse(loss, options.param))


def _setting(options: argparse.Namespace) -> dict[str, Any]:
    """How the loss is used, as it was asked for."""
    return {name: getattr(options, name) for name in CHOICES if hasattr(options, name)}


def _explain_stream(options: argparse.Namespace) -> int:
    """One JSON object a line, also for a line that has no answer; then the exit code is 2."""
    from klsym.commands.limited import Limited

    code, options.format = 0, "json"
    options.time_limit = STREAM_LIMIT if options.time_limit is None else options.time_limit
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
    found = compare(*losses, parameters=options.param, **_setting(options))
    print(json.dumps(found.to_json()) if options.format == "json" else found)
    return 0
