"""`klsym measure`: any loss code, run on every sample of a small world, in a process of its own."""

from __future__ import annotations

import argparse
import json

from klsym.audit.binding import parse_option, split_pair
from klsym.commands.console import print_complaint
from klsym.errors import UsageError
from klsym.measure.child import Runner

OPTIONS = (
    "sampling", "group", "words", "length", "prompts", "third", "fixed_length", "tool", "binary", "worlds",
    "framework", "expect", "vs", "model",
)  # fmt: skip
LEEWAY = 1.2  # the process gets more time than the runs in it, whose own message says more


def measure_code(options: argparse.Namespace) -> int:
    """Print what the expected gradient of a loss is the gradient of; 1 if it is not what is expected."""
    chosen = {name: getattr(options, name) for name in OPTIONS if getattr(options, name) is not None}
    chosen["map"] = dict(split_pair(text, "--map") for text in options.map)
    chosen["set"] = {name: parse_option(text) for name, text in (split_pair(s, "--set") for s in options.set)}
    chosen["seconds"] = options.time_limit
    with Runner(LEEWAY * options.time_limit + 1, options.memory_limit) as runner:
        reply = runner.ask({"target": options.target, "options": chosen})
    if "error" in reply:
        raise UsageError(reply["error"])
    print(json.dumps(reply["json"]) if options.format == "json" else reply["text"])
    if not reply["ok"]:
        print_complaint(f"{options.target} is not {options.expect} in expectation")
        return 1
    return 0
