"""What is answered to a loss: its verdict in the form asked for, and the exit code."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from klsym.commands.console import explain_letters, format_line, get_terminal_width
from klsym.engine.options.option_table import CHOICES
from klsym.errors import KlsymError, UsageError

if TYPE_CHECKING:
    from klsym.render.verdict import PrintedVerdict

Reply = dict[str, Any]  # {"text", "code"}, or {"error"}


def answer_loss(loss: str, options: argparse.Namespace) -> Reply:
    """Return what is printed and the exit code, or one line that says what is wrong, whatever happens."""
    try:
        verdict = explain_typed(loss, options)
        return {"text": format_verdict(verdict, options), "code": get_exit_code(verdict)}
    except KlsymError as error:
        return {"error": format_line(str(error))}
    except Exception as error:  # a defect of klsym is no reason to leave the other lines unanswered
        return {
            "error": format_line(
                f"klsym fails on this loss, please report it: {type(error).__name__}: {error}"
            )
        }


def load_modules(check: bool) -> None:
    """Import all modules that an answer needs."""
    import sympy  # noqa: F401  first, as klsym.commands.timed says

    import klsym.api

    if check:
        import klsym.numeric.checks.cross_check  # noqa: F401


def get_exit_code(verdict: PrintedVerdict) -> int:
    """Return 1 if the cross-check failed, else 0."""
    return 0 if verdict.proof.check is None or verdict.proof.check["passed"] else 1


def explain_typed(loss: str, options: argparse.Namespace) -> Any:
    from klsym.api import explain

    try:
        verdict = explain(loss, parameters=options.param, **read_setting(options))
    except UsageError as error:
        raise UsageError(f"{error}{_suggest_measure(loss)}") from None
    if not options.check:
        return verdict
    from klsym.numeric.checks.cross_check import with_check

    assert verdict.loss.written is not None  # as explain gives it
    return with_check(verdict, verdict.loss.written.expression)


def _suggest_measure(loss: str) -> str:
    """Return the hint to run unread code with klsym measure, if all its names are known; else ""."""
    from klsym.language.pasted.function import is_pasted

    if not is_pasted(loss):
        return ""
    try:
        from klsym.measure.pasted import is_runnable
    except ImportError:  # without NumPy
        return ""
    return "; klsym measure with the same code runs it" if is_runnable(loss) else ""


def read_setting(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that say how the loss is used."""
    return {name: getattr(options, name) for name in CHOICES if hasattr(options, name)}


def format_verdict(verdict: PrintedVerdict, options: argparse.Namespace) -> str:
    """Return the answer in the format asked for; text has the width of the terminal."""
    from klsym.render.answer import MAX_LINES, MAX_NARROW, NARROW

    if options.format == "json":
        return json.dumps(verdict.to_json())
    if options.format == "latex":
        from klsym.render.details import derivation_latex

        if not verdict.proof.steps:
            return f"% no derivation: {verdict.summary}"
        return f"\\[\n{derivation_latex(verdict)}\n\\]"
    if options.format == "markdown":
        return str(verdict.markdown)
    width = get_terminal_width()
    text = verdict.text(options.proof, options.full, width)
    has_room = text.count("\n") + 1 < (MAX_LINES if width >= NARROW else MAX_NARROW)
    letters = explain_letters(text) if has_room else ""
    return "\n".join(filter(None, [text, letters]))
