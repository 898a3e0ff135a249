"""What is answered to a loss: its verdict in the form asked for, and the exit code."""

from __future__ import annotations

import argparse
import json
from typing import Any

from klsym.commands.console import one_line, terminal_width
from klsym.engine.options.settings import CHOICES
from klsym.errors import KlsymError

Reply = dict[str, Any]  # {"text", "code"}, or {"error"}


def answered(loss: str, options: argparse.Namespace) -> Reply:
    """What is printed and the exit code; or one line that says what is wrong, whatever happens."""
    try:
        verdict = verdict_of(loss, options)
        return {"text": printed(verdict, options), "code": exit_code(verdict)}
    except KlsymError as error:
        return {"error": one_line(str(error))}
    except Exception as error:  # a defect of klsym is no reason to leave the other lines unanswered
        return {
            "error": one_line(f"klsym fails on this loss, please report it: {type(error).__name__}: {error}")
        }


def load(check: bool) -> None:
    """Import what answers."""
    import klsym.api

    if check:
        import klsym.numeric.checks.cross_check  # noqa: F401


def exit_code(verdict: Any) -> int:
    """1 if the cross-check failed."""
    return 0 if verdict.check is None or verdict.check["passed"] else 1


def verdict_of(loss: str, options: argparse.Namespace) -> Any:
    from klsym.api import explain

    verdict = explain(loss, parameters=options.param, **setting_of(options))
    if not options.check:
        return verdict
    from klsym.numeric.checks.cross_check import with_check

    assert verdict.written is not None  # as explain gives it
    return with_check(verdict, verdict.written.expression)


def setting_of(options: argparse.Namespace) -> dict[str, Any]:
    """How the loss is used, as it was asked for."""
    return {name: getattr(options, name) for name in CHOICES if hasattr(options, name)}


def printed(verdict: Any, options: argparse.Namespace) -> str:
    """The answer in the form asked for; as text in the width of the terminal."""
    if options.format == "json":
        return json.dumps(verdict.to_json())
    if options.format == "latex":
        from klsym.render.details import derivation_latex

        if not verdict.steps:
            return f"% no derivation: {verdict.summary}"
        return f"\\[\n{derivation_latex(verdict)}\n\\]"
    if options.format == "markdown":
        return str(verdict.markdown)
    return str(verdict.text(options.proof, options.full, terminal_width()))
