"""`klsym optimum`: where training ends."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from klsym.commands.console import get_terminal_width
from klsym.commands.timed import limit_time
from klsym.errors import UsageError

FORMATS = ("pdf", "png")


def show_optimum(options: argparse.Namespace) -> int:
    """All stationary policies; with -o also a phase portrait."""
    pictures = ("klsym.study.figures.phase_portraits",) if options.output else ()
    return limit_time(None, *pictures)(_show)(options)


def _show(options: argparse.Namespace) -> int:
    from klsym.study.api import optimum as find_optimum

    rewards, reference, behaviour = map(_split_row, (options.rewards, options.reference, options.behaviour))
    optimum = find_optimum(
        options.loss,
        options.beta,
        rewards=rewards or (),
        reference=reference,
        behaviour=behaviour,
        sampling=options.sampling,
        use=options.use,
        level=options.level,
        credit=options.credit,
        weights=options.weights,
        words=options.words,
    )
    if options.output:
        _draw(Path(options.output), optimum, options.use)
    print(json.dumps(optimum.to_json()) if options.format == "json" else optimum.text(get_terminal_width()))
    return 0


def _split_row(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


def _draw(target: Path, found: Any, use: str) -> None:
    """The flow on the simplex of three outcomes."""
    from klsym.study.questions.optimum_of_loss import OptimumAnswer

    kind = target.suffix.lstrip(".")
    if kind not in FORMATS:
        raise UsageError(f"--output: a name that ends in .pdf or .png expected, got {target.name[:60]!r}")
    if not isinstance(found, OptimumAnswer):
        raise UsageError("--output: no picture of tokens: leave the level at sample")
    if len(found.rewards) != 3 or found.coefficient.names() - {"k1"}:
        raise UsageError("--output: a picture needs three outcomes, and a penalty that is a function of r")
    from klsym.files import write_whole
    from klsym.study.figures.phase_portraits import draw
    from klsym.study.figures.style import render_figure

    rewards, reference = ([float(x) for x in row] for row in (found.rewards, found.reference))
    figure = draw(
        {f"{found.loss} in the {use}": found.coefficient},
        rewards,
        reference,
        beta=float(found.beta),
        columns=1,
    )
    write_whole(target, render_figure(figure, kind))
