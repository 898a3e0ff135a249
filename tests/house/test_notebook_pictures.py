"""A stored drawing stays only while it is the same, up to last bits; the gallery draws it too."""

from __future__ import annotations

import json
import runpy
from functools import cache
from pathlib import Path

import pytest

from klsym.experiments import gallery
from klsym.experiments.gallery import GALLERY
from klsym.study.figures.style import draw_svg
from klsym.study.notebook.alternative_texts import ALTERNATIVE_TEXTS

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "notebooks" / "regenerate.py"))
SAME, NEAR, DRAWING = SCRIPT["is_same_drawing"], SCRIPT["NEAR"], SCRIPT["DRAWING"]
LINE = '<svg><path id="p9e56664" d="M 1 2.5 L 3 {}"/></svg>'


@pytest.mark.parametrize(
    ("fresh", "same"),
    [
        (LINE.format(4), True),
        (LINE.format(4 + NEAR * 0.9), True),
        (LINE.format(4 + NEAR * 1.1), False),
        (LINE.format("4 L 5 6"), False),
        (LINE.format(-4), False),
        (LINE.replace("path", "line").format(4), False),
        ("", False),
    ],
)
def test_which_drawings_count_as_the_same(fresh, same):
    """An id that reads as a huge number is compared as a text."""
    assert SAME(LINE.format(4), fresh) is same
    assert SAME(LINE.format(4).splitlines(keepends=True), fresh) is same


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
    return ["".join(one[DRAWING]) for one in data if DRAWING in one]


@pytest.mark.parametrize("name", GALLERY)
@pytest.mark.share(8)
def test_the_gallery_draws_what_the_notebook_shows(name):
    """In that notebook alone; with labelled axes and a caption."""
    figure = GALLERY[name].make()
    drawn = draw_svg(figure)
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


NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_notebook_begins_with_a_result_and_a_picture_in_words(path):
    """The first picture comes before the first step; each has words for those who do not see it."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [(i, output) for i, cell in enumerate(cells) for output in cell.get("outputs", [])]
    pictures = [(i, output) for i, output in outputs if DRAWING in output.get("data", {})]
    steps = (i for i, cell in enumerate(cells) if "".join(cell["source"]).startswith("## "))
    assert "**Result.**" in "".join(cells[0]["source"]) and pictures[0][0] < next(steps)
    for i, output in pictures:
        alt = output["metadata"][DRAWING]["alt"]
        assert alt.endswith(".") and cells[i]["metadata"]["mystnb"]["image"]["alt"] == alt


def test_words_for_pictures_are_sentences_and_none_is_left_over():
    """Each is used by a page, or computed with its picture."""
    sources = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS)
    assert all(f'notebook.draw_picture(\\"{name}\\")' in sources for name in ALTERNATIVE_TEXTS)
    assert all(text.endswith(".") and len(text) > 60 for text in ALTERNATIVE_TEXTS.values())


@pytest.mark.parametrize("name", ["", "nothing", "tm-fig9", "training-settings"])
def test_a_picture_without_a_name_is_refused(name):
    import klsym

    with pytest.raises(klsym.UsageError, match="no picture has the name"):
        klsym.notebook.draw_picture(name)
