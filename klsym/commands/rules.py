"""`klsym rule` and `klsym rules`: the diagnostic codes."""

from __future__ import annotations

import argparse
import json
from typing import Any

from klsym.commands.console import terminal_width
from klsym.diagnostics.codes import Code, find_code, load_codes
from klsym.render.diagnoses import page_text


def show_rule(options: argparse.Namespace) -> int:
    """The page of one code."""
    found = find_code(options.code)
    print(json.dumps(_json(found)) if options.format == "json" else page_text(found, terminal_width()))
    return 0


def list_rules(options: argparse.Namespace) -> int:
    """One line a code."""
    if options.format == "json":
        print(json.dumps([_json(one) for one in load_codes()]))
        return 0
    for one in load_codes():
        print(f"{one.code}  {one.name:<24} {one.says}")
    return 0


def _json(one: Code) -> dict[str, Any]:
    return {
        "code": one.code, "name": one.name, "says": one.says, "means": one.means, "matters": one.matters,
        "example": one.example.words, "write": one.write.words, "theorem": one.theorem or None,
    }  # fmt: skip
