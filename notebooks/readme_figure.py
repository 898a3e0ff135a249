"""Draws the README's figure, which notebook 22 shows too; --check only compares."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from klsym.study.figures.style import render_figure
from klsym.study.notebook.page import draw_picture

FIGURE = Path(__file__).parents[1] / "docs" / "figure.png"
LEVELS, CORNERS = 3, 1e-3  # of 255, in a share of the pixels: how a processor's last bits paint corners


def is_same_picture(stored: bytes, fresh: bytes) -> bool:
    """Are two pictures the same, but for what the last bits of a processor's arithmetic decide?"""
    if stored == fresh:
        return True
    try:
        a, b = (np.asarray(Image.open(io.BytesIO(one)), int) for one in (stored, fresh))
    except (OSError, ValueError):  # what is stored is no picture
        return False
    if a.shape != b.shape:
        return False
    apart = np.abs(a - b).max(axis=-1)
    return bool(apart.max() <= LEVELS and (apart > 0).mean() <= CORNERS)


def main(arguments: list[str]) -> int:
    fresh = render_figure(draw_picture("training"), "png")
    same = FIGURE.is_file() and is_same_picture(FIGURE.read_bytes(), fresh)
    if arguments == ["--check"]:
        print(f"{FIGURE.name}: {'up to date' if same else 'differs from its drawing; run `make notebooks`'}")
        return 0 if same else 1
    if not same:
        FIGURE.write_bytes(fresh)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
