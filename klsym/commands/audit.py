"""`klsym audit`: real code, in a process of its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from klsym.commands.console import (
    LONGEST,
    format_line,
    get_terminal_width,
    is_on_terminal,
    iterate_shown,
    print_complaint,
)
from klsym.commands.fixes import fix_code
from klsym.commands.lint import judge_replies, report_findings, scan_project
from klsym.commands.targets import ask_target, read_config, refuse_choices
from klsym.confirmed.child import Runner
from klsym.engine.answers.objectives import read_objective
from klsym.errors import UsageError
from klsym.escaping import printable
from klsym.lint.baseline import find_baseline
from klsym.lint.config import Target
from klsym.lint.findings import EXPECTED, UNREADABLE
from klsym.lint.store import build_target, store_target
from klsym.render.answer import add_label, wrap_text
from klsym.worker_process import Reply

HEADS = ("code", "options", "loss", "target")
WIDEST = 60
DOES = {  # what code does that minimises nothing with a name
    "zero": "has zero expected gradient",
    "own-mean": "minimises its own mean under the old policy",
    "objective": "minimises an objective without a name",
    "no-objective": "has no objective",
    "open": "is not decided",
}
Audited = tuple[Target, Reply]
LINTED = ("sarif", "github")  # formats of reports


def audit_code(options: argparse.Namespace) -> int:
    """Print the verdict on a function, or a table for several functions or several values of an option."""
    if options.expect is not None:
        read_objective(options.expect)  # refused before any code is run
    if options.scan:
        if options.diff or options.fix:
            raise UsageError("--scan PATH runs nothing, and so changes nothing: --diff and --fix name code")
        return scan_project(options)
    if options.diff or options.fix:
        return _fix_targets(options)
    flags = (
        options.baseline,
        options.write_baseline,
        options.exit_zero,
        options.quiet,
        options.explain_unread,
    )
    is_report = not options.targets or options.format in LINTED or any(flags)
    if options.write and is_report:
        raise UsageError("--write: beside --scan PATH, or beside CODE, which it stores in klsym.toml")
    return report_findings(options) if is_report else _answer_targets(options)


def _answer_targets(options: argparse.Namespace) -> int:
    """Print the verdict on each target; the exit code is that of a report."""
    config = read_config(options)
    with Runner(options.time_limit, options.memory_limit) as runner:
        shown = iterate_shown(config.targets, runner, lambda target: target.code)
        form = "json" if options.format == "json" else "full" if options.full else "text"
        audited = [(target, ask_target(runner, target, form)) for target in shown]
    audited = _drop_unread(audited, options.targets)
    replies = [reply for _, reply in audited]
    if len(replies) == 1 and replies[0].get("code") == 2 and not replies[0].get("measured"):
        raise UsageError(replies[0]["error"])
    codes = [report_reply(reply, target.expect, target.code) for target, reply in audited]  # reasons first
    judged = judge_replies(audited, config, find_baseline(config.baseline))
    with_expectation = {target.code.rpartition(":")[2] for target in config.targets if target.expect}
    for finding in judged.failing:
        if finding.code not in (EXPECTED, UNREADABLE) and finding.function not in with_expectation:
            said = f"{finding.code} {finding.name} is an error: the exit code is 1"
            print_complaint(f"{finding.function}: {said}")
    _print_replies(audited, options.format)
    if options.format == "text" and len(audited) == 1 and audited[0][0].expect and not codes[0]:
        print(f"  expected {audited[0][0].expect}: yes")
    if options.write:
        for target, reply in audited:
            path = store_target(Path.cwd(), build_target(target, reply.get("json")))
            print_complaint(f"{target.code}: stored in {path.name}, with what was assumed")
    return max(int(bool(judged.failing)), *(code for code in codes if code != 1), 0)


def _drop_unread(audited: Sequence[Audited], typed: Sequence[str]) -> list[Audited]:
    """Return the audits without those of functions that a file was searched for and that cannot be read.

    Each of them has a line on stderr.  All audits are returned where none of them could be read.
    """
    unread = [
        (target, reply) for target, reply in audited
        if target.code not in typed and reply.get("code") == 2 and not reply.get("measured")
    ]  # fmt: skip
    if len(unread) == len(audited):
        return list(audited)
    for target, reply in unread:
        print_complaint(f"{target.code} is not read: {reply['error']}")
    return [each for each in audited if each not in unread]


def _fix_targets(options: argparse.Namespace) -> int:
    """Print or write the changes with which the targets are right."""
    flag = "--fix" if options.fix else "--diff"
    if options.format != "text" or options.baseline or options.write_baseline or options.exit_zero:
        raise UsageError(f"{flag}: neither a format nor a baseline goes with it")
    refuse_choices(options)
    config = read_config(options)
    if not config.targets:
        raise UsageError(f"{config.file}: no target: --scan PATH --write proposes some")
    return fix_code(options, config)


def report_reply(reply: Reply, expected: str | None, target: str) -> int:
    """Print a complaint and return 1 if the trace disagrees or the target is not the expected one; else 0."""
    if measured := reply.get("measured"):
        meets = bool(reply.get("measured_meets"))
        if not meets:
            print_complaint(f"{target}: {measured}; expected {expected}")
        return int(not meets)
    if "error" in reply:
        print_complaint(reply["error"])
        return int(reply["code"])
    if not reply["meets"]:
        sign = "minus " if reply["target"] == expected else ""
        does = DOES.get(reply["target"], f"minimises {sign}{reply['target']}")
        print_complaint(f"{target} {does}; expected {expected}")
        return 1
    return 0


def _print_replies(audited: Sequence[tuple[Target, Reply]], form: str) -> None:
    if form == "json":
        for target, reply in audited:
            unread = {"function": target.code, "error": reply.get("error"), **reply.get("both", {})}
            print(json.dumps(reply.get("json", unread)))
    elif len(audited) == 1:
        ((_, reply),) = audited
        text = reply.get("text") or reply.get("measured_text")
        if text is not None:
            print(text)
    else:
        rows = [HEADS, *(tuple(map(printable, _format_row(*each))) for each in audited)]
        print("\n".join(_align_rows(rows)))


def _align_rows(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table; on a terminal each target has a line for each of its cells."""
    if is_on_terminal():
        heads, *cells = rows
        pairs = [pair for row in cells for pair in zip(heads, row, strict=True) if pair[1] != "-"]
        return [line for head, text in pairs for line in _format_cell(head, text)]
    widths = [min(max(len(row[i]) for row in rows), WIDEST) for i in range(len(HEADS))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _format_cell(head: str, text: str) -> list[str]:
    """Return the name of the code, or a row below it."""
    width = get_terminal_width()
    return wrap_text(text, "", "  ", width) if head == HEADS[0] else add_label(head, text, width)


def _format_row(target: Target, reply: Reply) -> tuple[str, ...]:
    if "row" in reply:
        return tuple(f"{cell}" for cell in [*reply["row"], *HEADS][: len(HEADS)])
    values = ", ".join(f"{k}={v}" for k, v in target.set.items()) or "-"
    name = target.code.rpartition(":")[2]
    if measured := reply.get("measured"):
        return name, values, "not read", f"measured: {measured}"
    return name, values, "-", f"not read: {format_line(reply['error'], LONGEST)}"
