"""`klsym audit` of all targets of a project, as a linter; `--scan` proposes targets."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sized
from pathlib import Path
from typing import Any

from klsym.audit.binding import option, pair
from klsym.audit.child import Runner
from klsym.commands.console import complain
from klsym.engine.options.settings import CHOICES
from klsym.errors import UsageError
from klsym.escaping import printable
from klsym.files import read_text, write_whole
from klsym.lint.baseline import Audited, read_baseline, shrunk, write_baseline
from klsym.lint.config import Config, Target, configured, is_configured
from klsym.lint.findings import UNREADABLE, Finding, findings_of, kept, relative
from klsym.lint.reports import as_annotations, as_sarif, as_text
from klsym.lint.scan import as_targets, scanned
from klsym.worker_process import Reply

LARGEST = 1_000_000  # bytes of klsym.toml


def lint(options: argparse.Namespace) -> int:
    """Audit the targets, report what is found; 1 if something is."""
    config = _config(options)
    if not config.targets:
        raise UsageError(f"{config.file}: no target: --scan PATH --write proposes some")
    audited, times = [], []
    with Runner(options.time_limit, options.memory_limit) as runner:
        for target in config.targets:
            start = time.monotonic()
            audited.append((target, _asked(runner, target)))
            times.append(time.monotonic() - start)
    every = [one for target, reply in audited for one in findings_of(target, reply)]
    spans: dict[str, list[tuple[int, int]]] = {}
    for _, reply in audited:
        if "json" in reply:
            first, last = (max(1, line) for line in reply["json"]["lines"])
            spans.setdefault(relative(reply["json"]["file"]), []).append((first, last))
    left, suppressed = kept(every, spans, config)
    readable = [(target, reply) for target, reply in audited if "json" in reply]
    places = {(relative(r["json"]["file"]), t.code.rpartition(":")[2]) for t, r in readable}
    return _reported(options, config, left, suppressed, places, times)


def _reported(
    options: argparse.Namespace, config: Config, left: list[Finding], suppressed: int, audited: Audited,
    times: list[float],
) -> int:  # fmt: skip
    """Print what is new, and keep the baseline; the exit code."""
    path = Path(options.baseline or config.baseline) if options.baseline or config.baseline else None
    if options.write_baseline:
        stored = write_baseline(path or Path("klsym-baseline.json"), left, audited)
        print(f"{stored} findings stored in {path or 'klsym-baseline.json'}")
        return 0
    known = read_baseline(path) if path else set()
    new = [one for one in left if one.key not in known]
    remaining = shrunk(path, known, left, audited) if path else 0
    if options.format == "sarif":
        print(json.dumps(as_sarif(new), indent=1))
    elif options.format == "json":
        print(json.dumps([vars(one) for one in new]))
    else:
        print(
            "\n".join((as_annotations if options.format == "github" else as_text)(new)), end="\n" * bool(new)
        )
    if options.format == "text" and not options.quiet:
        slow = ", ".join(
            f"{t.code.rpartition(':')[2]} {s:.1f} s" for t, s in zip(config.targets, times, strict=True)
        )
        counts = f"{_counted(config.targets, 'target')}, {_counted(new, 'finding')}"
        print(printable(f"{counts} ({suppressed} suppressed, {remaining} in the baseline); {slow}"))
    failed = [one for one in new if one.code != UNREADABLE or one.level == "error"]
    return 0 if options.exit_zero or not failed else 1


def _counted(of: Sized, name: str) -> str:
    """Their number: 1 target, 2 targets."""
    return f"{len(of)} {name}" + "s" * (len(of) != 1)


def _asked(runner: Runner, target: Target) -> Reply:
    arguments = {
        "map": dict(target.map), "set": dict(target.set), "result": target.result, **target.setting
    }  # fmt: skip
    return runner.ask({"target": target.code, "options": arguments, "expect": target.expect})


def _config(options: argparse.Namespace) -> Config:
    """The configuration of the project, or the code that was typed with its options."""
    setting = {name: getattr(options, name) for name in CHOICES if getattr(options, name) is not None}
    if options.targets:
        maps = dict(pair(text, "--map") for text in options.map)
        values: dict[str, Any] = {}
        for text in options.set:
            name, value = pair(text, "--set")
            if name in values:
                raise UsageError(f"--set {name}: given twice; a report has one value of an option")
            values[name] = option(value)
        targets = tuple(
            Target(code, maps, values, options.result, setting, options.expect) for code in options.targets
        )
        return Config(targets=targets)
    if options.map or options.set or options.result or options.expect or setting:
        raise UsageError("no CODE for these options: name it, or write them in klsym.toml")
    return configured(Path.cwd())


def scan(options: argparse.Namespace) -> int:
    """Print the functions that may hold a KL; with --write, enter them as targets into klsym.toml."""
    found = scanned(Path(options.scan))
    for one in found:
        print(printable(str(one)))
    if not found:
        complain(f"{options.scan}: no function whose names speak of a KL or of a ratio")
        return 0
    if options.write:
        path = Path("klsym.toml")
        before = read_text(path, LARGEST) if path.exists() else ""
        if not before and is_configured(Path("pyproject.toml")):
            raise UsageError(
                "the targets stand in pyproject.toml, which klsym.toml would hide: add them there"
            )
        known = {target.code for target in configured(Path.cwd()).targets} if before else set()
        for one in found:
            if not one.is_text:
                complain(f"{one.code}: not written: a path in klsym.toml has to be UTF-8; rename the file")
        more = as_targets(found, known)
        write_whole(path, before + more)
        print(f"targets written to {path}: {more.count('[[target]]')}; add expect, sampling and map there")
    return 0
