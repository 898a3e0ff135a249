"""A stored picture stays only while it is the same, up to a shade in corners; the gallery draws it too."""

from __future__ import annotations

import base64
import io
import json
import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from klsym.experiments import gallery
from klsym.experiments.gallery import GALLERY

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "notebooks" / "regenerate.py"))
SAME, LEVELS, CORNERS = SCRIPT["same_picture"], SCRIPT["LEVELS"], SCRIPT["CORNERS"]


def png(pixels: np.ndarray) -> str:
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, format="png")
    return base64.b64encode(out.getvalue()).decode()


WHITE = np.full((100, 100, 3), 250)
FEW = int(CORNERS * 10_000)


def changed(count: int, by: int) -> str:
    pixels = WHITE.copy().reshape(-1, 3)
    pixels[:count] -= by
    return png(pixels.reshape(WHITE.shape))


@pytest.mark.parametrize(
    ("fresh", "same"),
    [
        (png(WHITE), True),
        (changed(FEW, LEVELS), True),
        (changed(FEW, LEVELS + 1), False),
        (changed(FEW + 1, 1), False),
        (png(WHITE[:50]), False),
        (png(WHITE[..., 0]), False),
    ],
)
def test_which_pictures_count_as_the_same(fresh, same):
    assert SAME(png(WHITE), fresh) is same


@pytest.mark.parametrize("broken", ["", "AAAA", "not base64!"])
def test_a_broken_stored_picture_is_replaced(broken):
    assert SAME(broken, png(WHITE)) is False


FOLDER = Path(__file__).parents[2] / "notebooks"
DRAWN_IN = {
    "off-policy": "03-off-policy-weighting", "rewards": "05-kl-as-reward", "variance": "04-variance",
    "batches": "06-centring", "sequences": "07-sequences",
    "coefficients": "10-bring-your-own-loss", "phase-portraits": "11-where-training-ends",
    "catalogue": "13-the-catalogue",
}  # fmt: skip


@cache
def stored(notebook: str) -> list[str]:
    cells = json.loads((FOLDER / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    data = (output.get("data", {}) for cell in cells for output in cell.get("outputs", []))
    return ["".join(one["image/png"]) for one in data if "image/png" in one]


@pytest.mark.parametrize("name", GALLERY)
@pytest.mark.share(8)
def test_the_gallery_draws_what_the_notebook_shows(name):
    """In that notebook alone; with labelled axes and a caption."""
    figure = GALLERY[name].make()
    drawn = base64.b64encode(figure._repr_png_()).decode()
    shown = [notebook for notebook in DRAWN_IN.values() if any(SAME(one, drawn) for one in stored(notebook))]
    assert shown == [DRAWN_IN[name]]
    assert GALLERY[name].caption and not GALLERY[name].caption.endswith(".")
    for ax in figure.axes:
        labels = (ax.get_title("left"), ax.get_title(), ax.get_xlabel(), ax.get_ylabel())
        assert any(labels) or any(text.get_text() for text in ax.texts)
        if name in ("rewards", "variance", "batches", "coefficients"):
            assert ax.get_xlabel() and (ax.get_ylabel() or name == "coefficients")


def test_the_losses_off_policy_have_the_targets_that_are_drawn():
    """The proofs behind the picture exist; a wrong target is refused."""
    from klsym.calculus import KL, derive, expected_gradient, grad, mu, p, q
    from klsym.errors import ProofError

    targets = gallery._targets()
    for loss, target in targets.values():
        proof = derive(expected_gradient(loss, under=mu)).differentiate().equals(target)
        assert proof.theorem.kind == "proved" and proof.trust == "kernel"
    loss, _ = targets["k3"]
    with pytest.raises(ProofError):
        derive(expected_gradient(loss, under=mu)).differentiate().equals(grad(KL(q, p)))
