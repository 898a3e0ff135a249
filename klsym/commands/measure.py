"""`klsym measure`: any loss code, run on every sample of a small world, in a process of its own."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from klsym.audit.binding import parse_option, split_pair
from klsym.commands.console import describe_work, get_terminal_width, print_complaint, show_waiting
from klsym.engine.answers.objectives import read_objective
from klsym.errors import UsageError
from klsym.language.pasted.function import name_code
from klsym.measure.child import Runner

OPTIONS = (
    "sampling", "group", "words", "length", "prompts", "third", "fixed_length", "tool", "binary", "worlds",
    "framework", "expect", "vs", "model",
)  # fmt: skip
OF_SAMPLES = ("samples", "ref_model", "old_model", "error_rate")  # what klsym.measure_samples takes beside
LONGEST = 100_000  # characters of code from standard input
OF_BOTH = ("model", "group", "length", "expect")
LEEWAY = 1.2  # the process gets more time than the runs in it, whose own message says more


def measure_code(options: argparse.Namespace) -> int:
    """Print what the expected gradient of a loss is the gradient of; 1 if it is not what is expected."""
    if options.target == "-":
        options.target = sys.stdin.read(LONGEST)
    chosen = _choose_options(options)
    if options.expect is not None:
        read_objective(options.expect)  # refused before any code is run
    chosen["map"] = dict(split_pair(text, "--map") for text in options.map)
    chosen["set"] = {name: parse_option(text) for name, text in (split_pair(s, "--set") for s in options.set)}
    if options.samples is None:
        chosen["seconds"] = options.time_limit
    runner = Runner(LEEWAY * options.time_limit + 1, options.memory_limit)
    with runner, show_waiting(lambda: describe_work(runner, name_code(options.target))):
        width = get_terminal_width()
        reply = runner.ask({"target": options.target, "options": chosen, "width": width})
    if "error" in reply:
        raise UsageError(reply["error"])
    print(json.dumps(reply["json"]) if options.format == "json" else reply["text"])
    if not reply["ok"]:
        print_complaint(f"{name_code(options.target)} is not {options.expect} in expectation")
        return 1
    return 0


def _choose_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `klsym.measure`, or with --samples those of `klsym.measure_samples`.

    Raises UsageError: options that do not go together.
    """
    chosen = {name: getattr(options, name) for name in (*OPTIONS, *OF_SAMPLES)}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if options.samples is None:
        unfit = [name for name in OF_SAMPLES if name in chosen]
        reason = "only beside --samples N"
    elif options.model is None or options.ref_model is None:
        raise UsageError(
            "--samples: --model CODE and --ref-model CODE expected, functions that return networks"
        )
    else:
        unfit = [name for name in OPTIONS if name in chosen and name not in OF_BOTH]
        reason = "not beside --samples; samples are off-policy with --old-model CODE"
    if unfit:
        raise UsageError(f"--{unfit[0].replace('_', '-')}: {reason}")
    return chosen
