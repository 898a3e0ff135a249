"""The pictures of the notebooks: each is drawn from proof objects, and shows what its theorems say."""

from __future__ import annotations

import pytest

from klsym.figures import gallery
from klsym.figures.gallery import GALLERY


@pytest.mark.parametrize("name", GALLERY)
def test_each_picture_has_labelled_axes(name):
    figure = GALLERY[name].make()
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
