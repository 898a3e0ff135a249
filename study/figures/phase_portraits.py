"""Phase portraits: the flow of E_q[R] - beta (penalty) for three outcomes, one panel a placement.

The flow is gradient ascent on the logits, dtheta_j/dt = q_j (C_j - sum q C) with C = R - beta c.  Its rest
points are those of `engine.questions.optimum`; nothing in the drawing knows where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from klsym.kernel.ring import ExpPoly
from klsym.study.figures.style import BLACK, CORNERS, GREY, PAGE, PURPLE, SKY, draw_simplex, open_panels
from klsym.study.questions.optimum import Optimum, find_optimum
from klsym.study.questions.outcomes import to_floats

STARTS = 8  # starts along an edge of the grid
STEP, STEPS = 0.008, 500  # length of a step in the picture, and how many
WIDTH = 3.0  # of a single panel, inches
NEAR = 0.02  # from a rest point or an edge, where a line ends


def draw(
    placements: Mapping[str, ExpPoly],
    rewards: Sequence[float],
    reference: Sequence[float],
    beta: float,
    columns: int,
) -> Any:
    """One panel a placement: lines of flow, rest points, and the reference policy.

    placements: title -> the score coefficient of a penalty, in k1.  rewards, reference: three numbers.
    Filled: stable; open: not; squares: on the boundary, attracting.
    """
    rows = -(-len(placements) // columns)
    width = PAGE if columns > 1 else WIDTH
    with open_panels(width, 1.95 * rows + 0.35, rows, columns, squeeze=False) as (figure, axes):
        for ax, (title, c) in zip(axes.flat, placements.items(), strict=True):
            optimum = find_optimum(c, beta, list(rewards), list(reference))
            _draw_portrait(
                ax, c, optimum, rewards=np.array(rewards), reference=np.array(reference), beta=beta
            )
            ax.set_title(f"{title}: {describe_ends(optimum)}", pad=14)
        _draw_legend(figure, 4 if columns > 1 else 2)
    return figure


def describe_ends(optimum: Optimum) -> str:
    """How many policies training can end at, and whether they keep all outcomes.

    >>> from klsym.calculus import k1
    >>> from klsym.language.convert import to_ring
    >>> describe_ends(find_optimum(to_ring(k1), 0.5, [0, 1], [0.5, 0.5]))
    'one end'
    """
    inside, collapsed = sum(bool(s.stable) for s in optimum.stationary), len(optimum.boundary)
    if not inside:
        return "collapses" if collapsed == 1 else f"{collapsed} ways to collapse"
    return "one end" if inside + collapsed == 1 else f"{inside + collapsed} ends"


def _draw_portrait(ax: Any, c: ExpPoly, optimum: Optimum, rewards: Any, reference: Any, beta: float) -> None:
    draw_simplex(ax, GREY)
    rest_points = [np.array(s.policy) @ CORNERS for s in (*optimum.stationary, *optimum.boundary)]
    for start in _list_starts():
        line = _trace_line(start, c, rewards, reference, beta=beta, rest_points=rest_points)
        if len(line) > 4:
            points = line @ CORNERS
            ax.plot(*points.T, color=SKY, lw=0.7, zorder=1)
            middle = len(points) // 3
            ax.annotate(
                "", points[middle + 1], points[middle],
                arrowprops={"arrowstyle": "-|>", "color": SKY, "lw": 0.5, "mutation_scale": 6},
            )  # fmt: skip
    _draw_points(ax, optimum, reference)
    for corner, (j, place) in zip(CORNERS, enumerate(("right", "left", "center")), strict=True):
        below = j < 2
        ax.annotate(
            f"$R={rewards[j]:g}$", corner, (0, -5 if below else 5), textcoords="offset points",
            ha={"right": "left", "left": "right"}.get(place, place), va="top" if below else "bottom",
            fontsize=8, color=GREY,
        )  # fmt: skip


def _draw_points(ax: Any, found: Optimum, reference: Any) -> None:
    for s in found.stationary:
        fill = PURPLE if s.stable else "white"
        ax.plot(*(np.array(s.policy) @ CORNERS), "o", ms=4.5, mfc=fill, mec=PURPLE, mew=0.9, zorder=4)
    for s in found.boundary:
        ax.plot(*(np.array(s.policy) @ CORNERS), "s", ms=4.5, color=PURPLE, zorder=4, clip_on=False)
    ax.plot(*(reference @ CORNERS), "+", ms=6, color=BLACK, mew=1.1, zorder=5)


def _list_starts() -> list[Any]:
    """A triangular grid inside the simplex."""
    pairs = [(i, j) for i in range(STARTS) for j in range(STARTS - i)]
    return [np.array([i + 1 / 3, j + 1 / 3, STARTS - i - j - 2 / 3]) / STARTS for i, j in pairs]


def _trace_line(
    start: Any, c: ExpPoly, rewards: Any, reference: Any, beta: float, rest_points: list[Any]
) -> Any:
    """A line of flow in steps of equal length, up to a rest point or an edge."""
    terms = to_floats(c)

    def find_direction(q: Any) -> Any:
        k = np.log(q / reference)
        total = rewards - beta * sum(value * k**n * np.exp(a * k) for value, n, a in terms)
        push = q * (total - (q * total).sum())
        weighted_push = q * (push - (q * push).sum())
        return weighted_push / max(float(np.linalg.norm(weighted_push @ CORNERS)), 1e-12)

    q, line = start, [start]
    for _ in range(STEPS):
        half = q + STEP / 2 * find_direction(q)
        if half.min() <= 1e-4:
            break
        q = q + STEP * find_direction(half)
        if q.min() <= 1e-4:
            break
        line.append(q)
        if any(np.linalg.norm(q @ CORNERS - point) < NEAR for point in rest_points):
            break
    return np.array(line)


def _draw_legend(figure: Any, columns: int) -> None:
    from matplotlib.lines import Line2D

    plain: Any = {"color": PURPLE, "ls": "", "ms": 4.5}
    handles = [
        Line2D([], [], marker="o", label="stable", **plain),
        Line2D([], [], marker="o", mfc="white", label="stationary, not stable", **plain),
        Line2D([], [], marker="s", label="on the boundary, attracting", **plain),
        Line2D([], [], marker="+", color=BLACK, ls="", ms=6, label="reference $p$"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handletextpad=0.2)
