"""`klsym catalogue`: all losses of a small grammar."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from klsym.commands.console import parse_whole_number, show_bar
from klsym.engine.questions.candidates import Catalogue, load_catalogue
from klsym.errors import UsageError
from klsym.files import write_whole
from klsym.study.questions.catalogue import as_json, catalogue, written
from klsym.study.render.catalogue import summary

LARGEST = 10  # beyond it no memory suffices


def show_catalogue(options: argparse.Namespace) -> int:
    """What is stored, or all of a size made anew."""
    found = _made(options)
    if options.output:
        write_whole(Path(options.output), written(found))
    print(json.dumps(as_json(found)) if options.format == "json" else summary(found))
    return 0


def _made(options: argparse.Namespace) -> Catalogue:
    if options.size is None:
        if options.scheduler:
            raise UsageError("--scheduler: what is stored needs no workers; choose a --size")
        return load_catalogue()
    size = parse_whole_number("--size", options.size, 1)
    if size > LARGEST:
        raise UsageError(f"--size {size}: {LARGEST} or less expected")
    from klsym.study.questions.loss_enumeration import levels
    from klsym.study.sampling.enumeration import across

    with show_bar("row") as shown:
        return catalogue(levels(size, across(options.scheduler, shown)))
