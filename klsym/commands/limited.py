"""Losses answered in a process of their own."""

from __future__ import annotations

import argparse
import gc
from typing import ClassVar

from klsym.commands.console import FEW_COLLECTIONS
from klsym.commands.verdicts import answer_loss, load_modules
from klsym.worker_process import Asked, Options, Reply, serve


class Limited(Asked):
    """Asked: a loss."""

    module = "klsym.commands.limited"
    keys: ClassVar[dict[str, type]] = {"text": str, "code": int}
    late = "no answer within {}: try a larger --time-limit; 0 means no limit"
    ended = "the process that answers {}: out of memory?"

    def __init__(self, options: argparse.Namespace) -> None:
        given = {name: value for name, value in vars(options).items() if name != "loss"}
        super().__init__(given, options.time_limit)


def _prepare(loss: str, options: Options) -> None:
    load_modules(options["check"])


def _answer(loss: str, options: Options) -> Reply:
    return answer_loss(loss, argparse.Namespace(**options))


if __name__ == "__main__":
    gc.set_threshold(FEW_COLLECTIONS)
    serve(_prepare, _answer)
