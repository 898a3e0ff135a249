"""`klsym audit`: real code, in a process of its own."""

from __future__ import annotations

import argparse
import json
from itertools import product
from typing import Any

from klsym.audit.binding import parse_option, split_pair
from klsym.commands.console import LONGEST, format_line, print_complaint
from klsym.commands.fixes import fix_code
from klsym.commands.lint import read_config, report_findings, scan_project
from klsym.confirmed.child import Runner
from klsym.engine.answers.expectation import read_expectation
from klsym.engine.options.option_table import CHOICES
from klsym.errors import UsageError
from klsym.escaping import printable
from klsym.worker_process import Reply

HEADS = ("code", "options", "loss", "target")
WIDEST = 60
LINTED = ("sarif", "github")  # formats of reports


def audit_code(options: argparse.Namespace) -> int:
    """Print the verdict on a function, or a table for several functions or several values of an option."""
    if options.expect is not None:
        read_expectation(options.expect)  # refused before any code is run
    if options.scan:
        if options.diff or options.fix:
            raise UsageError("--scan PATH runs nothing, and so changes nothing: --diff and --fix name code")
        return scan_project(options)
    if options.write:
        raise UsageError("--write: only beside --scan PATH, whose functions it enters into klsym.toml")
    if options.diff or options.fix:
        return _fix_targets(options)
    flags = (
        options.baseline,
        options.write_baseline,
        options.exit_zero,
        options.quiet,
        options.explain_unread,
    )
    if not options.targets or options.format in LINTED or any(flags):
        return report_findings(options)
    maps = dict(split_pair(text, "--map") for text in options.map)
    setting = {name: getattr(options, name) for name in CHOICES if getattr(options, name) is not None}
    questions = [
        (target, {"map": maps, "set": chosen, "result": options.result, **setting})
        for target in options.targets
        for chosen in combine_choices(options.set)
    ]
    with Runner(options.time_limit, options.memory_limit) as runner:
        replies = [
            runner.ask({"target": target, "options": arguments, "expect": options.expect, "measure": True})
            for target, arguments in questions
        ]
    if len(replies) == 1 and replies[0].get("code") == 2 and not replies[0].get("measured"):
        raise UsageError(replies[0]["error"])
    answered_questions = zip(questions, replies, strict=True)
    codes = [
        report_reply(reply, options.expect, target) for (target, _), reply in answered_questions
    ]  # reasons come first
    _print_replies(questions, replies, options.format)
    return max(codes)


def _fix_targets(options: argparse.Namespace) -> int:
    """Print or write the changes with which the targets are right."""
    flag = "--fix" if options.fix else "--diff"
    if options.format != "text" or options.baseline or options.write_baseline or options.exit_zero:
        raise UsageError(f"{flag}: neither a format nor a baseline goes with it")
    config = read_config(options)
    if not config.targets:
        raise UsageError(f"{config.file}: no target: --scan PATH --write proposes some")
    return fix_code(options, config)


def combine_choices(texts: list[str]) -> list[dict[str, Any]]:
    """Return all combinations of the values, where an option is given several times.

    >>> combine_choices(["kind=k1", "kind=k3", "beta=0.1"])
    [{'kind': 'k1', 'beta': 0.1}, {'kind': 'k3', 'beta': 0.1}]
    """
    values: dict[str, list[Any]] = {}
    for text in texts:
        name, value = split_pair(text, "--set")
        values.setdefault(name, []).append(parse_option(value))
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def report_reply(reply: Reply, expected: str | None, target: str) -> int:
    """Print a complaint and return 1 if the trace disagrees or the target is not the expected one; else 0."""
    if measured := reply.get("measured"):
        meets = bool(reply.get("measured_meets"))
        if not meets:
            print_complaint(f"{target}: {measured}, not {expected}")
        return int(not meets)
    if "error" in reply:
        print_complaint(reply["error"])
        return int(reply["code"])
    if not reply["meets"]:
        sign = "minus " if reply["target"] == expected else ""
        print_complaint(f"{target} targets {sign}{reply['target']}, not {expected}")
        return 1
    return 0


def _print_replies(questions: list[tuple[str, dict[str, Any]]], replies: list[Reply], form: str) -> None:
    if form == "json":
        for (target, _), reply in zip(questions, replies, strict=True):
            unread = {"function": target, "error": reply.get("error"), **reply.get("both", {})}
            print(json.dumps(reply.get("json", unread)))
    elif len(replies) == 1:
        text = replies[0].get("text") or replies[0].get("measured_text")
        if text is not None:
            print(text)
    else:
        answered_questions = zip(questions, replies, strict=True)
        rows = [HEADS, *(tuple(map(printable, _format_row(*each))) for each in answered_questions)]
        widths = [min(max(len(row[i]) for row in rows), WIDEST) for i in range(len(HEADS))]
        for row in rows:
            print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _format_row(question: tuple[str, dict[str, Any]], reply: Reply) -> tuple[str, ...]:
    target, arguments = question
    if "row" in reply:
        return tuple(f"{cell}" for cell in [*reply["row"], *HEADS][: len(HEADS)])
    values = ", ".join(f"{k}={v}" for k, v in arguments["set"].items()) or "-"
    if measured := reply.get("measured"):
        return target.rpartition(":")[2], values, "not read", f"measured: {measured}"
    return target.rpartition(":")[2], values, "-", f"not read: {format_line(reply['error'], LONGEST)}"
