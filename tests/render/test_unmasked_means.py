"""A mean without the mask in one of two losses: what is assumed of it is the difference asked about."""

from __future__ import annotations

import numpy as np
import pytest

import klsym

BEFORE = "kl = k3; pg = -A*log_q; "
MASKED = f"{BEFORE}loss = masked_mean(pg + beta*kl, mask)"
WITHOUT = f"{BEFORE}loss = masked_mean(pg, mask) + (beta*kl).mean()"
SAID = "alone has mean() without the mask"


@pytest.mark.parametrize(("first", "second", "letter"), [(WITHOUT, MASKED, "A"), (MASKED, WITHOUT, "B")])
def test_the_loss_with_the_mean_without_the_mask_is_named(first: str, second: str, letter: str) -> None:
    answer = " ".join(str(klsym.compare(first, second)).split())
    assert f"mask {letter} {SAID}" in answer
    assert "smaller by the share of tokens that the mask keeps, and the losses differ" in answer


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (MASKED, MASKED),
        (WITHOUT, WITHOUT),
        (WITHOUT, f"{BEFORE}loss = masked_mean(pg, mask) + 2*(beta*kl).mean()"),
        ("loss = (k3 - A*log_q).mean()", "loss = k3.mean() - (A*log_q).mean()"),
        (MASKED, f"{BEFORE}loss = masked_mean(pg, mask) + masked_mean(beta*kl, mask)"),
    ],
)
def test_where_both_or_neither_have_it_nothing_is_said(first: str, second: str) -> None:
    assert SAID not in str(klsym.compare(first, second))


def test_the_term_is_smaller_by_the_share_of_tokens_that_the_mask_keeps() -> None:
    mask = np.array([[1.0, 1, 1, 0], [1, 0, 0, 0]])
    kl = np.array([[0.3, 0.1, 0.2, 0.0], [0.7, 0.0, 0.0, 0.0]])  # 0 at padding
    masked = (kl * mask).sum() / mask.sum()
    assert kl.mean() == pytest.approx(masked * mask.mean())
