"""The reference of the commands, from the parser of the command line."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from generate.sources import write
from klsym.commands.option_groups import GRAMMAR
from klsym.commands.parser import build_parser

LEAD = """# Commands

Exit codes: 0 done, 1 a claim failed or a certificate was refused, 2 bad input (one line, no traceback).
{grammar} describes the losses. Every command prints these options with `--help`.
"""
SPECIAL = re.compile(r"([\\*_\[\]<>|$])")


def write_commands(into: Path) -> None:
    """All commands on one page."""
    found = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    helps = {one.dest: one.help or "" for one in found[0]._choices_actions}
    lines = [LEAD.format(grammar="[The grammar](grammar.md)")]
    for name, command in found[0].choices.items():
        lines += _command(name, helps.get(name, ""), command)
    write(into / "reference" / "commands.md", "\n".join(lines))


def _command(name: str, says: str, command: argparse.ArgumentParser) -> Iterator[str]:
    yield from ("", f"(klsym-{name})=", f"## klsym {name}", "")
    yield from (escaped(_sentence(command.description or says)), "")
    usage = re.sub(r"\s+", " ", command.format_usage().removeprefix("usage: ")).strip()
    usage = textwrap.fill(usage, 88, subsequent_indent="    ", break_on_hyphens=False)
    yield from ("```text", usage, "```", "")
    actions = [one for one in command._actions if one.dest != "help" and one.help != argparse.SUPPRESS]
    for action in actions:
        yield from (f"{_term(action)}", f": {escaped(_sentence(_help(action, command)))}", "")
    if command.epilog and command.epilog != GRAMMAR:
        yield from (escaped(command.epilog), "")


def _term(action: argparse.Action) -> str:
    """The name of an option with its values."""
    names = ", ".join(action.option_strings)
    shown = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else None
    metavar = action.metavar if isinstance(action.metavar, str) else shown or action.dest.upper()
    return f"`{names} {metavar}`" if names and action.nargs != 0 else f"`{names or metavar}`"


def _help(action: argparse.Action, command: argparse.ArgumentParser) -> str:
    return command._get_formatter()._expand_help(action) if action.help else "the form of the output"


def _sentence(text: str) -> str:
    """With a full stop."""
    text = " ".join(text.split())
    return text if text.endswith((".", ")", "!")) else f"{text}."


def escaped(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> escaped("E_q[k1] <x>")
    'E\\_q\\[k1\\] \\<x\\>'
    """
    return SPECIAL.sub(r"\\\1", text)
