"""`klsym audit --diff` and `--fix`: the changes with which losses are right, printed or written."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from klsym.commands.console import get_terminal_width, iterate_shown, print_complaint, print_patch
from klsym.errors import UsageError
from klsym.escaping import printable
from klsym.files import read_text, write_whole
from klsym.fixing.child import Fixer
from klsym.fixing.edits import Edit, write_diff
from klsym.lint.config import Config, Target
from klsym.lint.findings import as_relative_path
from klsym.worker_process import Reply

LARGEST = 5_000_000  # bytes of a file


class ChangedFiles:
    """The texts of files as they are and as they are to be; nothing is written before `write`."""

    def __init__(self) -> None:
        self.before: dict[str, str] = {}
        self.after: dict[str, str] = {}

    def apply(self, fix: dict[str, Any]) -> None:
        """Make a change that was proposed; raises UsageError where the file is not the one that was read."""
        path = fix["file"]
        text = self.after.get(path) or read_text(Path(path), LARGEST)
        edit = Edit(**{name: fix[name] for name in ("start", "end", "new", "old", "kind")})
        if not 0 <= edit.start <= edit.end or text.encode()[edit.start : edit.end] != edit.old.encode():
            raise UsageError(f"{path}: changed while it was audited: try again")
        self.before.setdefault(path, text)
        self.after[path] = edit.apply(text)

    def print_diffs(self) -> None:
        for path, text in self.after.items():
            print_patch(write_diff(as_relative_path(path), self.before[path], text))

    def write(self) -> None:
        """Write the files; raises UsageError before any is written if one cannot be."""
        for path in self.after:
            if not os.access(path, os.W_OK):
                raise UsageError(f"cannot write {path}: permission denied")
        for path, text in self.after.items():
            write_whole(Path(path).resolve(), text)


def fix_code(options: argparse.Namespace, config: Config) -> int:
    """Propose a change for each target; with --fix, write them.

    Returns 0 if no loss is wrong, or if every wrong one was fixed; else 1.  Where no change is found, the
    answer is that of `klsym audit`, with what to write.
    """
    for target in config.targets:
        if ".py:" not in target.code:
            raise UsageError(f"{target.code[:80]}: a change is made in a file: name FILE.py:FUNC")
    files, replies = ChangedFiles(), []
    with Fixer(options.time_limit, options.memory_limit) as fixer:
        for target in iterate_shown(config.targets, fixer, lambda target: target.code):
            reply = _ask_target(fixer, target, files.after)
            replies.append(reply)
            fix = reply.get("fix", {})
            if "start" in fix:
                _refuse_other_file(fix, target)
                files.apply(fix)
    if len(replies) == 1 and replies[0].get("code") == 2 and "fix" not in replies[0]:
        raise UsageError(replies[0]["error"])
    if options.fix:
        files.write()
    else:
        files.print_diffs()
    codes = [_report(target, reply, options) for target, reply in zip(config.targets, replies, strict=True)]
    return max(codes)


def _ask_target(fixer: Fixer, target: Target, sources: dict[str, str]) -> Reply:
    arguments = {
        "map": dict(target.map), "set": dict(target.set), "result": target.result, **target.setting
    }  # fmt: skip
    width = get_terminal_width()
    return fixer.ask(
        {"target": target.code, "options": arguments, "expect": target.expect, "sources": sources,
         "width": width}
    )  # fmt: skip


def _refuse_other_file(fix: dict[str, Any], target: Target) -> None:
    """Code that is run can forge a reply: no other file than the one that was named is changed."""
    if Path(fix["file"]) != Path(target.code.rpartition(":")[0]):
        raise UsageError(f"{target.code}: the process that runs the code says what is no reply")


def _report(target: Target, reply: Reply, options: argparse.Namespace) -> int:
    """Say on stderr what a change does, or why there is none, and return the exit code of a target."""
    fix = reply.get("fix", {"wrong": True, "reason": reply.get("error", "")})
    if "start" in fix:
        done = "changed" if options.fix else "with this change"
        print_complaint(f"{target.code}: {done}: {fix['says']}")
        return 0 if options.fix else 1
    print_complaint(f"{target.code}: {fix['reason']}")
    text = reply.get("text") or reply.get("measured_text")
    if fix["wrong"] and text and not options.quiet:
        print(printable(text, keep="\n"))
    return int(bool(fix["wrong"]))
