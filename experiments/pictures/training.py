"""One training run with three KL terms: exact updates of a policy on three outcomes, a reward, one beta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from klsym.study.figures.style import COLOURS, GREY, label_ends, open_panels

Array = Any
REWARDS, REFERENCE, BETA = np.array([1.0, 0.0, 0.0]), np.array([0.05, 0.35, 0.60]), 0.4
RATE, STEPS = 0.4, 120  # of gradient ascent on the logits, from q = p
TINY = 1e-30  # the step into the imaginary axis: its square is lost in rounding, it is not
LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "k1": lambda log_q, log_p: log_q - log_p,
    "k2": lambda log_q, log_p: (log_q - log_p) ** 2 / 2,
    "k3": lambda log_q, log_p: np.exp(log_p - log_q) - 1 - (log_p - log_q),
}


def compute_update(loss: Callable[[Array, Array], Array], q: Array) -> Array:
    """E_q[R grad log q - beta grad loss] along the logits; the samples are held fixed, as in training.

    >>> compute_update(LOSSES["k1"], np.array([0.5, 0.25, 0.25])).round(3).tolist()
    [0.25, -0.125, -0.125]
    """
    log_q, scores = np.log(q), np.eye(len(q)) - q
    per_sample = loss(log_q + 1j * TINY, np.log(REFERENCE)).imag / TINY  # d loss / d log q
    return (q * (REWARDS - BETA * per_sample)) @ scores


def run_training(name: str) -> tuple[Array, Array]:
    """E_q[R] - beta KL(q||p) before each step, shape (STEPS + 1,), and the policy at the end.

    >>> values, q = run_training("k2")
    >>> bool(abs(values[-1] - compute_best()) < 1e-3)
    True
    """
    logits, values = np.log(REFERENCE), []
    for _ in range(STEPS + 1):
        q = np.exp(logits - logits.max())
        q = q / q.sum()
        values.append(q @ REWARDS - BETA * (q @ np.log(q / REFERENCE)))
        logits = logits + RATE * compute_update(LOSSES[name], q)
    return np.array(values), q


def compute_best() -> float:
    """The largest value of E_q[R] - beta KL(q||p): beta log sum_x p_x exp(R_x/beta)."""
    return float(BETA * np.log(REFERENCE @ np.exp(REWARDS / BETA)))


def draw() -> Any:
    """The three curves, named at their ends, and the best value."""
    words = {"k2": "$k_2$: the reverse KL", "k3": "$k_3$: the forward KL", "k1": "$k_1$: no penalty"}
    with open_panels(4.8, 2.7) as (figure, ax):
        best = compute_best()
        ax.axhline(best, color=GREY, lw=0.8, ls=":")
        ax.annotate("best possible", (0, best), (2, 3), textcoords="offset points", color=GREY)
        ends = []
        for name, text in words.items():
            values, _ = run_training(name)
            ax.plot(values, color=COLOURS[name], lw=2)
            ends.append((float(values[-1]), text, COLOURS[name]))
        ax.set(
            xlabel="step of training", xlim=(0, STEPS), ylim=(None, best + 0.05),
            ylabel=r"$\mathbb{E}_q[R] - \beta\,\mathrm{KL}(q\,\Vert\,p)$",
        )  # fmt: skip
        label_ends(ax, ends, STEPS, fontsize=10)
        ax.set_title("One of three KL terms in the loss ends at the best policy", loc="left", fontsize=10)
    return figure
