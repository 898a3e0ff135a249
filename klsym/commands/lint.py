"""`klsym audit` of all targets of a project, as a linter; `--scan` proposes targets."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence, Sized
from pathlib import Path

from klsym.commands.console import iterate_shown, print_complaint, wrap_for_terminal
from klsym.commands.targets import ask_target, read_config, refuse_choices
from klsym.confirmed.child import Runner
from klsym.errors import UsageError
from klsym.escaping import printable
from klsym.files import read_text, write_whole
from klsym.lint.baseline import STORED, Audited, find_baseline, read_baseline, shrink_baseline, write_baseline
from klsym.lint.config import LARGEST, Config, Target, has_project_table, read_project
from klsym.lint.findings import (
    Finding,
    as_relative_path,
    collect_findings,
    drop_suppressed,
    sort_findings,
)
from klsym.lint.reports import as_annotations, as_sarif, as_text
from klsym.lint.scan import as_targets, find_candidates
from klsym.records import record
from klsym.worker_process import Reply


@record
class Judged:
    """The findings of some targets; new: those that no baseline has.  suppressed: how many comments suppress.

    audited: file and function of the targets that were read.
    """

    findings: list[Finding]
    new: list[Finding]
    failing: list[Finding]
    suppressed: int
    audited: Audited


def judge_replies(audited: Sequence[tuple[Target, Reply]], config: Config, baseline: Path | None) -> Judged:
    """Return what is found in the replies of audits, and what of it fails the gate."""
    every = [finding for target, reply in audited for finding in collect_findings(target, reply)]
    spans: dict[str, list[tuple[int, int]]] = {}
    for _, reply in audited:
        if "json" in reply:
            first, last_line = (max(1, line) for line in reply["json"]["lines"])
            spans.setdefault(as_relative_path(reply["json"]["file"]), []).append((first, last_line))
    findings, suppressed = drop_suppressed(every, spans, config)
    readable = [(target, reply) for target, reply in audited if "json" in reply]
    places = {(as_relative_path(r["json"]["file"]), t.code.rpartition(":")[2]) for t, r in readable}
    accepted = read_baseline(baseline) if baseline else set()
    new = sort_findings(finding for finding in findings if finding.key not in accepted)
    failing = [finding for finding in new if config.is_failing(finding.code, finding.level)]
    return Judged(findings, new, failing, suppressed, audited=places)


def report_findings(options: argparse.Namespace) -> int:
    """Audit the targets and report the findings; return 1 if one of them fails the gate."""
    if options.explain_unread and options.format != "text":
        raise UsageError(f"--explain-unread: --format {options.format} lists all that cannot be read anyway")
    refuse_choices(options)
    config = read_config(options)
    if not config.targets:
        raise UsageError(f"{config.file}: no target: --scan PATH --write proposes some")
    audited, times = [], []
    with Runner(options.time_limit, options.memory_limit) as runner:
        for target in iterate_shown(config.targets, runner, lambda target: target.code):
            start = time.monotonic()
            audited.append((target, ask_target(runner, target)))
            times.append(time.monotonic() - start)
    path = find_baseline(options.baseline or config.baseline)
    if options.write_baseline:
        judged = judge_replies(audited, config, None)
        stored = write_baseline(path or Path(STORED), judged.findings, judged.audited)
        print(f"{stored} findings stored in {path or STORED}")
        return 0
    judged = judge_replies(audited, config, path)
    remaining = shrink_baseline(path, read_baseline(path), judged.findings, judged.audited) if path else 0
    _print_findings(judged.new, options, len(config.targets))
    if options.format == "text" and not options.quiet:
        slow = ", ".join(
            f"{t.code.rpartition(':')[2]} {s:.1f} s" for t, s in zip(config.targets, times, strict=True)
        )
        counts = f"{_count_items(config.targets, 'target')}, {_count_items(judged.new, 'finding')}"
        fails = f"{len(judged.failing)} fail" + "s" * (len(judged.failing) == 1)
        stored_counts = f"{judged.suppressed} suppressed, {remaining} in the baseline"
        print(wrap_for_terminal(printable(f"{counts}, of which {fails} ({stored_counts}); {slow}")))
    return int(bool(judged.failing) and not options.exit_zero)


def _print_findings(new: list[Finding], options: argparse.Namespace, targets: int) -> None:
    if options.format == "sarif":
        print(json.dumps(as_sarif(new), indent=1))
    elif options.format == "json":
        print(json.dumps([vars(finding) for finding in new]))
    elif options.format == "github":
        print("\n".join(as_annotations(new)), end="\n" * bool(new))
    else:
        lines = as_text(new, None if options.explain_unread else targets)
        print("\n".join(map(wrap_for_terminal, lines)), end="\n" * bool(new))


def _count_items(of: Sized, name: str) -> str:
    """Return the number of items with their name: 1 target, 2 targets."""
    return f"{len(of)} {name}" + "s" * (len(of) != 1)


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
