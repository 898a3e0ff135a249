"""`klsym catalogue`: all losses of a small grammar."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from klsym.commands.console import parse_whole_number, show_bar
from klsym.engine.questions.candidates import Catalogue, load_catalogue
from klsym.errors import UsageError
from klsym.files import write_whole
from klsym.study.questions.catalogue import as_json, catalogue, write_catalogue
from klsym.study.render.catalogue import summarise

LARGEST = 10  # beyond it no memory suffices


def show_catalogue(options: argparse.Namespace) -> int:
    """What is stored, or all of a size made anew."""
    counted = _build_catalogue(options)
    if options.output:
        write_whole(Path(options.output), write_catalogue(counted))
    print(json.dumps(as_json(counted)) if options.format == "json" else summarise(counted))
    return 0


def _build_catalogue(options: argparse.Namespace) -> Catalogue:
    if options.size is None:
        if options.scheduler:
            raise UsageError("--scheduler: what is stored needs no workers; choose a --size")
        return load_catalogue()
    size = parse_whole_number("--size", options.size, 1)
    if size > LARGEST:
        raise UsageError(f"--size {size}: {LARGEST} or less expected")
    from klsym.study.questions.loss_enumeration import levels
    from klsym.study.sampling.enumeration import build_joiner

    with show_bar("row") as progress:
        return catalogue(levels(size, build_joiner(options.scheduler, progress)))
