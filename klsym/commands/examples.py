"""`klsym examples`: the losses that have usual names, with commands to paste."""

from __future__ import annotations

import argparse
import json

from klsym.commands.console import wrap_for_terminal
from klsym.errors import UsageError, suggest_nearest
from klsym.language.named_losses import NamedLoss, find_named_loss, list_names, load_named_losses


def list_examples(options: argparse.Namespace) -> int:
    """One row, or all rows."""
    rows = load_named_losses() if options.name is None else (_find_row(options.name),)
    if options.format == "json":
        print(json.dumps([_row_as_json(row) for row in rows]))
        return 0
    for row in rows:
        print(wrap_for_terminal(f"klsym explain {row.name:<12} {row.says}; {row.whose}"))
        if options.name is not None:
            print(f"  the same as  klsym explain '{row.loss}' {row.option_words}".rstrip())
    return 0


def _find_row(name: str) -> NamedLoss:
    row = find_named_loss(name)
    if row is None:
        nearest = suggest_nearest(name, list_names())
        raise UsageError(f"{name[:40]!r} is no name of a loss{nearest}; klsym examples lists them")
    return row


def _row_as_json(row: NamedLoss) -> dict[str, object]:
    return {
        "name": row.name, "names": list(row.names), "loss": row.loss, "options": dict(row.options),
        "whose": row.whose, "says": row.says, "command": f"klsym explain {row.name}",
    }  # fmt: skip
