"""Sequences: which products of log ratios and scores an estimate keeps, and what 1/T does to lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klsym.study.figures.style import BLACK, GREY, ORANGE, PAGE, SKY, open_panels
from klsym.study.sequences.autoregressive import (
    Autoregressive,
    compute_log_probabilities,
    compute_token_log_probabilities,
    compute_token_scores,
    enumerate_sequences,
)
from klsym.study.sequences.sequence_fields import compute_length_gradients


def products(q: Autoregressive, p: Autoregressive) -> Any:
    """|E_q[l_u s_t]| for each pair of steps, shape (t, u): the length of the vector over all logits.

    >>> from klsym.study.sequences.autoregressive import random_autoregressive
    >>> found = products(random_autoregressive(0, 2, 1, 4), random_autoregressive(1, 2, 1, 4))
    >>> bool(np.abs(np.tril(found, -1)).max() < 1e-15 < np.triu(found)[:3, :3].max())
    True
    """
    y = enumerate_sequences(q)
    weight = np.exp(compute_log_probabilities(q, y))
    ratios = compute_token_log_probabilities(q, y) - compute_token_log_probabilities(p, y)
    found = np.einsum("n,nu,ntsa->tusa", weight, ratios, compute_token_scores(q, y))
    return np.sqrt((found**2).sum(axis=(2, 3)))


def mean_lengths(q: Autoregressive, rate: float, steps: int) -> Any:
    """E_q[T] at each step of gradient descent along E_q[sum_t grad k1(l_t)/T] = grad E_q[1/T], exactly.

    rate: of the descent.  Returns shape (steps + 1,).
    """
    found = []
    for _ in range(steps + 1):
        lengths = compute_length_gradients(q)
        found.append(lengths.mean)
        q = replace(q, logits=q.logits - rate * lengths.inverse_gradient)
    return np.array(found)


def draw(
    q: Autoregressive, p: Autoregressive, starts: Sequence[Autoregressive], rate: float, steps: int
) -> Any:
    """Left: the products of l_u and s_t.  Right: mean lengths under the length-normalised k1 loss."""
    with open_panels(PAGE, 2.7, 1, 2, width_ratios=(1, 1.15)) as (figure, (left, right)):
        figure.get_layout_engine().set(wspace=0.08)
        _pairs(figure, left, products(q, p)[: q.max_length - 1, : q.max_length - 1])
        for start, colour in zip(starts, (SKY, ORANGE, BLACK), strict=True):
            right.plot(mean_lengths(start, rate, steps), color=colour)
        longest = starts[0].max_length
        right.axhline(longest, color=GREY, lw=0.6, ls=":")
        right.annotate(
            "longest possible", (steps, longest), (0, 3), textcoords="offset points", color=GREY, fontsize=8,
            ha="right",
        )  # fmt: skip
        right.set(
            xlabel=r"steps of descent on $\frac{1}{T}\sum_t k_{1,t}$", ylabel=r"$\mathbb{E}_q[T]$, steps",
            ylim=(0, longest * 1.12), xlim=(0, steps),
        )  # fmt: skip
        right.set_title("(b) Descent on $k_1/T$ makes three models longer", loc="left")
    return figure


def _pairs(figure: Any, ax: Any, found: Any) -> None:
    from matplotlib.patches import Rectangle

    size = len(found)
    shown = ax.imshow(np.where(found > 1e-14, found, np.nan), cmap="Blues", vmin=0)
    figure.colorbar(shown, ax=ax, label=r"$|\mathbb{E}_q[k_{1,u}\, s_t]|$", shrink=0.9)
    for t in range(size):
        for u in range(t):
            ax.text(u, t, "0", ha="center", va="center", color=GREY, fontsize=8)
        ax.add_patch(Rectangle((t - 0.5, t - 0.5), 1, 1, fill=False, edgecolor=ORANGE, lw=1.6))
    ax.plot([-0.5, size - 0.5, size - 0.5], [-0.5, -0.5, size - 0.5], color=BLACK, lw=1.2, clip_on=False)
    for t in range(size):
        ax.plot([t - 0.5] * 2, [t - 0.5, t + 0.5], color=BLACK, lw=1.2)
        ax.plot([t - 0.5, t + 0.5], [t + 0.5] * 2, color=BLACK, lw=1.2)
    ax.set_title("(a) A token loss (orange) omits pairs", loc="left")
    ticks = range(size)
    ax.set_xticks(ticks, [str(i + 1) for i in ticks])
    ax.set_yticks(ticks, [str(i + 1) for i in ticks])
    ax.set(xlabel="step $u$ of the log ratio", ylabel="step $t$ of the score")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
