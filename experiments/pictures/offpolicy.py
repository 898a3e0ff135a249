"""Off-policy: how far each weighted loss is from the reverse KL, and where descent with a reward ends.

The expected gradients are the left sides of theorems, differentiated literally by the exact oracle along
every logit; the theorems say what they equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from klsym.engine.proof.derivation import Proof
from klsym.experiments.pictures.models import along_logits, left, right
from klsym.numeric.models import FiniteModel
from klsym.study.figures.style import (
    BLACK,
    COLOURS,
    CORNERS,
    GREY,
    PAGE,
    draw_simplex,
    label_ends,
    open_panels,
)

WEIGHTS: dict[str, Any] = {"rho": "-", "sg(rho)": (0, (4, 1.5)), "": (0, (1, 1.2))}  # line styles
NAMES = {"rho": r"\rho\,", "sg(rho)": r"\mathrm{sg}(\rho)\,", "": ""}
STILL = 1e-6  # slope in every logit below which descent has ended
TOGETHER = 1e-6  # gradients and ends that are closer than this are one curve, one point


def expected_gradient(proof: Proof, model: FiniteModel) -> Any:
    """The left side of a theorem, the expected gradient of a loss, along each logit."""
    return along_logits(left(proof), model)


def away(model: FiniteModel, t: float) -> FiniteModel:
    """The model with its sampler moved: q at t = 0, mu at t = 1, proportional to q^(1 - t) mu^t."""
    q, mu = (np.array([float(v) for v in row]) for row in (model.q, model.mu or model.q))
    tilted = q ** (1 - t) * mu**t
    return replace(model, mu=tuple((tilted / tilted.sum()).tolist()))


def errors(losses: Mapping[str, Proof], reverse: Proof, model: FiniteModel, ts: Any) -> dict[str, Any]:
    """|E_mu[grad L] - grad KL(q||p)| / |grad KL(q||p)| as the sampler moves away from q.

    reverse: a theorem whose right side is grad KL(q||p).  ts: see `away`.  Returns name -> shape (ts,).
    """
    truth = along_logits(right(reverse), model)
    found: dict[str, list[float]] = {name: [] for name in losses}
    for t in ts:
        at = away(model, float(t))
        for name, proof in losses.items():
            gap = expected_gradient(proof, at) - truth
            found[name].append(float(np.linalg.norm(gap) / np.linalg.norm(truth)))
    return {name: np.array(row) for name, row in found.items()}


def descend(proof: Proof, model: FiniteModel, rate: float, steps: int) -> tuple[Any, bool]:
    """Gradient descent on the logits of q along the exact expected gradient, the sampler held.

    Returns the policies, shape (steps + 1, outcomes), and whether it came to rest.
    """
    logits = np.log([float(v) for v in model.q])
    path, slope = [model.q], np.inf
    for _ in range(steps):
        gradient = expected_gradient(proof, replace(model, q=tuple(path[-1])))
        slope = float(np.abs(gradient).max())
        logits = logits - rate * gradient
        path.append(FiniteModel.from_logits(logits, p=model.p, u=model.u).q)
    return np.array([[float(v) for v in q] for q in path]), slope < STILL


def draw(
    losses: Mapping[str, Proof], reverse: Proof, model: FiniteModel, ts: Any,
    paths: Mapping[str, tuple[Any, bool]], optimum: Any,
) -> Any:  # fmt: skip
    """Left: the error of each expected gradient against the sampler's distance.  Right: paths on the simplex.

    losses: "rho*k3", "sg(rho)*k2", "k1", ... -> theorem.  model: three outcomes, rewards R.  ts: see `away`.
    paths: the same names -> what `descend` returns, from mu.  optimum: of the right objective, (3,).
    Curves and paths that agree share a label.
    """
    with open_panels(PAGE, 3.0, 1, 2, width_ratios=(1, 1.2)) as (figure, (distances, ends)):
        _errors(distances, errors(losses, reverse, model, ts), ts)
        _ends(ends, paths, model, optimum)
    return figure


def look(name: str) -> tuple[str, Any, str]:
    """Colour by estimator, line by weight, and the name in mathematics.

    >>> look("sg(rho)*k2")[2]
    '$\\\\mathrm{sg}(\\\\rho)\\\\,k_2$'
    """
    weight, _, estimator = name.rpartition("*")
    return COLOURS[estimator], WEIGHTS[weight], f"${NAMES[weight]}k_{estimator[1]}$"


def together(ends: Mapping[str, Any]) -> list[list[str]]:
    """The names whose arrays agree, in groups.

    >>> together({"a": np.zeros(2), "b": np.ones(2), "c": np.zeros(2)})
    [['a', 'c'], ['b']]
    """
    groups: list[list[str]] = []
    for name, end in ends.items():
        known = next((g for g in groups if np.abs(ends[g[0]] - end).max() < TOGETHER), None)
        groups.append([name]) if known is None else known.append(name)
    return groups


def _group(names: list[str]) -> tuple[str, str]:
    """The label of curves that lie on each other, and its colour."""
    text = ", ".join(look(name)[2] for name in names)
    return text, look(names[0])[0] if len(names) == 1 else BLACK


def _strokes(ax: Any, x: Any, y: Any, names: list[str]) -> None:
    """Curves that lie on each other are drawn from wide to thin, so that each shows."""
    for i, name in enumerate(names):
        colour, line, _ = look(name)
        ax.plot(x, y, color=colour, ls=line, lw=3.2 - i if len(names) > 1 else 1.3, zorder=2 + i)


def _errors(ax: Any, found: dict[str, Any], ts: Any) -> None:
    ends = []
    for names in together(found):
        curve = found[names[0]]
        _strokes(ax, ts, curve, names)
        ends.append((float(curve[-1]), *_group(names)))
    ax.set(
        xlim=(ts[0], ts[-1]), ylim=(-0.04, None), xlabel=r"sampler: from $q$ (0) to $\mu$ (1)",
        ylabel=r"distance from $\nabla\mathrm{KL}(q\,\Vert\,p)$, relative",
    )  # fmt: skip
    ax.set_title("(a) Three losses have the reverse KL's gradient", loc="left")
    label_ends(ax, ends, float(ts[-1]))


def _ends(ax: Any, paths: Mapping[str, tuple[Any, bool]], model: FiniteModel, optimum: Any) -> None:
    """An end is filled where descent came to rest, and open where it is still moving."""
    draw_simplex(ax, GREY)
    ends = []
    for names in together({name: path for name, (path, _) in paths.items()}):
        path, rests = paths[names[0]]
        x, y = (path @ CORNERS).T
        _strokes(ax, x, y, names)
        text, colour = _group(names)
        face = colour if rests else "white"
        ax.plot(x[-1], y[-1], "o", color=colour, mfc=face, ms=4.5, zorder=6, clip_on=False)
        ends.append((float(x[-1]), float(y[-1]), text, colour))
    _marks(ax, model, optimum)
    _labels(ax, ends)
    ax.set_title(r"(b) With a reward, the same three end at $q^\star$", loc="left")
    ax.set(xlim=(-0.42, 1.05), ylim=(-0.1, 1.0))


def _marks(ax: Any, model: FiniteModel, optimum: Any) -> None:
    for policy, mark, size, text, place in (
        (model.p, "+", 9, "$p$", (8, -2)),
        (model.mu or model.q, "x", 8, r"$\mu=q_0$", (8, -2)),
        (optimum, "*", 11, r"$q^\star$", (-7, 11)),
    ):
        at = np.array([float(v) for v in policy]) @ CORNERS
        ax.plot(*at, mark, color=BLACK, ms=size, mew=0.5 if mark == "*" else 1.2, mfc="white", zorder=5)
        ax.annotate(text, at, place, textcoords="offset points", ha="left", va="center", zorder=7)
    for corner, reward in zip(CORNERS, model.rewards["R"], strict=True):
        top = corner[1] > 0
        ax.annotate(
            f"$R={float(reward):g}$", corner, (7, 4) if top else (0, -7), textcoords="offset points",
            ha="left" if top else "center", va="center", color=GREY, fontsize=8,
        )  # fmt: skip


def _labels(ax: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """The names of the ends along the left edge, in their order from top to bottom."""
    ends = sorted(ends, key=lambda end: -end[1])
    for (x, y, text, colour), height in zip(ends, np.linspace(0.96, 0.1, len(ends)), strict=True):
        place = (height * CORNERS[2, 0] / CORNERS[2, 1] - 0.12, height)
        ax.annotate(
            text, (x, y), place, color=colour, fontsize=8, va="center", ha="right",
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.4, "relpos": (1, 0.5), "shrinkA": 1},
        )  # fmt: skip
