"""`klsym audit` of all targets of a project, as a linter; `--scan` proposes targets."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sized
from pathlib import Path
from typing import Any

from klsym.audit.binding import parse_option, split_pair
from klsym.commands.console import print_complaint
from klsym.confirmed.child import Runner
from klsym.engine.options.option_table import CHOICES
from klsym.errors import UsageError
from klsym.escaping import printable
from klsym.files import read_text, write_whole
from klsym.lint.baseline import Audited, read_baseline, shrink_baseline, write_baseline
from klsym.lint.config import Config, Target, has_project_table, read_project
from klsym.lint.findings import (
    UNREADABLE,
    Finding,
    as_relative_path,
    collect_findings,
    drop_suppressed,
    sort_findings,
)
from klsym.lint.reports import as_annotations, as_sarif, as_text
from klsym.lint.scan import as_targets, find_candidates
from klsym.worker_process import Reply

LARGEST = 1_000_000  # bytes of klsym.toml


def report_findings(options: argparse.Namespace) -> int:
    """Audit the targets and report the findings; return 1 if there are any."""
    if options.explain_unread and options.format != "text":
        raise UsageError(f"--explain-unread: --format {options.format} lists all that cannot be read anyway")
    config = read_config(options)
    if not config.targets:
        raise UsageError(f"{config.file}: no target: --scan PATH --write proposes some")
    audited, times = [], []
    with Runner(options.time_limit, options.memory_limit) as runner:
        for target in config.targets:
            start = time.monotonic()
            audited.append((target, _ask_target(runner, target)))
            times.append(time.monotonic() - start)
    every = [finding for target, reply in audited for finding in collect_findings(target, reply)]
    spans: dict[str, list[tuple[int, int]]] = {}
    for _, reply in audited:
        if "json" in reply:
            first, last_line = (max(1, line) for line in reply["json"]["lines"])
            spans.setdefault(as_relative_path(reply["json"]["file"]), []).append((first, last_line))
    unsuppressed, suppressed = drop_suppressed(every, spans, config)
    readable = [(target, reply) for target, reply in audited if "json" in reply]
    places = {(as_relative_path(r["json"]["file"]), t.code.rpartition(":")[2]) for t, r in readable}
    return _report_new(options, config, unsuppressed, suppressed, places, times)


def _report_new(
    options: argparse.Namespace, config: Config, unsuppressed: list[Finding], suppressed: int,
    audited: Audited, times: list[float],
) -> int:  # fmt: skip
    """Print the findings that are not in the baseline, update it, and return the exit code."""
    path = Path(options.baseline or config.baseline) if options.baseline or config.baseline else None
    if options.write_baseline:
        stored = write_baseline(path or Path("klsym-baseline.json"), unsuppressed, audited)
        print(f"{stored} findings stored in {path or 'klsym-baseline.json'}")
        return 0
    known = read_baseline(path) if path else set()
    new = sort_findings(finding for finding in unsuppressed if finding.key not in known)
    remaining = shrink_baseline(path, known, unsuppressed, audited) if path else 0
    _print_findings(new, options, len(config.targets))
    if options.format == "text" and not options.quiet:
        slow = ", ".join(
            f"{t.code.rpartition(':')[2]} {s:.1f} s" for t, s in zip(config.targets, times, strict=True)
        )
        counts = f"{_count_items(config.targets, 'target')}, {_count_items(new, 'finding')}"
        print(printable(f"{counts} ({suppressed} suppressed, {remaining} in the baseline); {slow}"))
    failed = [finding for finding in new if finding.code != UNREADABLE or finding.level == "error"]
    return 0 if options.exit_zero or not failed else 1


def _print_findings(new: list[Finding], options: argparse.Namespace, targets: int) -> None:
    if options.format == "sarif":
        print(json.dumps(as_sarif(new), indent=1))
    elif options.format == "json":
        print(json.dumps([vars(finding) for finding in new]))
    elif options.format == "github":
        print("\n".join(as_annotations(new)), end="\n" * bool(new))
    else:
        print("\n".join(as_text(new, None if options.explain_unread else targets)), end="\n" * bool(new))


def _count_items(of: Sized, name: str) -> str:
    """Return the number of items with their name: 1 target, 2 targets."""
    return f"{len(of)} {name}" + "s" * (len(of) != 1)


def _ask_target(runner: Runner, target: Target) -> Reply:
    arguments = {
        "map": dict(target.map), "set": dict(target.set), "result": target.result, **target.setting
    }  # fmt: skip
    return runner.ask({"target": target.code, "options": arguments, "expect": target.expect})


def read_config(options: argparse.Namespace) -> Config:
    """Return the configuration of the project, or the code that was typed with its options."""
    setting = {name: getattr(options, name) for name in CHOICES if getattr(options, name) is not None}
    if options.targets:
        maps = dict(split_pair(text, "--map") for text in options.map)
        values: dict[str, Any] = {}
        for text in options.set:
            name, value = split_pair(text, "--set")
            if name in values:
                raise UsageError(f"--set {name}: given twice; a report has one value of an option")
            values[name] = parse_option(value)
        targets = tuple(
            Target(code, maps, values, options.result, setting, options.expect) for code in options.targets
        )
        return Config(targets=targets)
    if options.map or options.set or options.result or options.expect or setting:
        raise UsageError("no CODE for these options: name it, or write them in klsym.toml")
    return read_project(Path.cwd())


def scan_project(options: argparse.Namespace) -> int:
    """Print the functions that may hold a KL; with --write, enter them as targets into klsym.toml."""
    candidates = find_candidates(Path(options.scan))
    for candidate in candidates:
        print(printable(str(candidate)))
    if not candidates:
        print_complaint(f"{options.scan}: no function that computes a KL or a policy loss")
        return 0
    if options.write:
        path = Path("klsym.toml")
        before = read_text(path, LARGEST) if path.exists() else ""
        if not before and has_project_table(Path("pyproject.toml")):
            raise UsageError(
                "the targets stand in pyproject.toml, which klsym.toml would hide: add them there"
            )
        known = {target.code for target in read_project(Path.cwd()).targets} if before else set()
        for candidate in candidates:
            if not candidate.is_text:
                print_complaint(
                    f"{candidate.code}: not written: a path in klsym.toml has to be UTF-8; rename the file"
                )
        tables = as_targets(candidates, known)
        write_whole(path, before + tables)
        print(f"targets written to {path}: {tables.count('[[target]]')}; add expect, sampling and map there")
    return 0
