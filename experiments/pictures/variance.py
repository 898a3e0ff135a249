"""Which of two gradients with one mean varies less: per-sample coefficients, and the best baseline."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import sympy

from klsym.engine.proof.quantities import sample_gradient
from klsym.language.abbreviations import Point
from klsym.language.convert import to_sympy
from klsym.language.expressions import k1, k3, log_p, log_q, rho
from klsym.numeric.models import FiniteModel
from klsym.study.figures.style import BLACK, COLOURS, GREY, ORANGE, PAGE, SKY, label_ends, open_panels
from klsym.study.ledger.settle_claim import recall


def draw(model: FiniteModel) -> Any:
    """Left: the squared coefficients of grad(rho k1) and grad(rho k3) against r.  Right: Var (k1 - b) s.

    The coefficients are those of the claim offpolicy.per-sample, equal at r = sqrt(e).
    The total variance over the logits of `model` is exact.
    """
    with open_panels(PAGE, 2.6, 1, 2) as (figure, (left, right)):
        _coefficients(left)
        _baselines(right, *baseline_curve(model))
    return figure


def coefficient(loss: Any, r: Any) -> Any:
    """a(r) in grad L = rho a s, from the theorem on the gradient of L at a sample.

    >>> coefficient(rho * k3, np.array([2.0, np.e])).round(3)
    array([-0.693, -1.   ])

    r: values of p/q.  Raises ValueError: no part of the claim offpolicy.per-sample speaks of this loss.
    """
    left = sample_gradient(loss).side
    for theorem in recall("offpolicy.per-sample").theorems:
        if theorem.statement.left == left:
            ((_, (point,)),) = theorem.statement.right.terms
            assert isinstance(point, Point)  # the right side is a value at one sample
            a = sympy.expand(to_sympy(point.coefficient) / rho).subs(k1, log_q - log_p).subs(log_q, 0)
            return sympy.lambdify(log_p, a, "numpy")(np.log(r))
    raise ValueError(f"offpolicy.per-sample does not speak of {loss}")


def _coefficients(ax: Any) -> None:
    r = np.geomspace(0.1, 20, 400)
    first, best = coefficient(rho * k1, r) ** 2, coefficient(rho * k3, r) ** 2
    ax.plot(r, first, color=COLOURS["k1"])
    ax.plot(r, best, color=COLOURS["k3"], ls="--")
    ax.axvline(math.sqrt(math.e), color=GREY, lw=0.6, ls=":")
    ax.annotate(
        r"$r=\sqrt{e}$", (math.sqrt(math.e), 8.5), (3, 0), textcoords="offset points", color=GREY, fontsize=8
    )
    ax.set(
        xscale="log",
        xlabel=r"$r = p/q$ at a sample",
        ylabel=r"squared coefficient of $\rho\,s$",
        ylim=(0, 9.5),
    )
    ax.set_title("(a) Neither gradient is smaller at every sample", loc="left")
    names = (r"$\nabla(\rho\,k_1)$", COLOURS["k1"]), (r"$\nabla(\rho\,k_3)$", COLOURS["k3"])
    label_ends(ax, [(first[-1], *names[0]), (best[-1], *names[1])], float(r[-1]))


def baseline_curve(model: FiniteModel) -> tuple[Any, Any, dict[str, tuple[float, float]]]:
    """b, the total variance of (k1 - b) s over the logits at each b, and three special points (b, variance).

    sum_i Var_q((k1 - b) s_i) = E_q[(k1 - b)^2 |s|^2] - |E_q[k1 s]|^2,  s_i = 1[x = i] - q_i

    >>> model = FiniteModel(q=[0.5, 0.5], p=[0.25, 0.75], u=[1, 0])
    >>> b, variance, points = baseline_curve(model)
    >>> bool(points["b*"][1] <= variance.min() + 1e-12)
    True
    """
    q, p = (np.array([float(v) for v in row]) for row in (model.q, model.p))
    k1, scores = np.log(q / p), np.eye(len(q)) - q
    squares, mean = (scores**2).sum(axis=1), (q * k1) @ scores
    best, kl = float(q @ (k1 * squares) / (q @ squares)), float(q @ k1)

    def variance(at: float) -> float:
        return float(q @ ((k1 - at) ** 2 * squares) - mean @ mean)

    reach = 1.6 * max(abs(best), abs(kl), abs(best - kl), 0.1)
    b = np.linspace(best - reach, best + reach, 201)
    points = {name: (at, variance(at)) for name, at in (("none", 0.0), ("KL", kl), ("b*", best))}
    return b, np.array([variance(at) for at in b]), points


def _baselines(ax: Any, b: Any, variance: Any, points: dict[str, tuple[float, float]]) -> None:
    ax.plot(b, variance, color=BLACK)
    shown = {
        "none": ("no baseline", COLOURS["vanilla"], "o"),
        "KL": ("the true KL", ORANGE, "s"),
        "b*": (r"$b_\star$", SKY, "^"),
    }
    for name, (x, y) in points.items():
        text, colour, mark = shown[name]
        ax.plot([x], [y], mark, color=colour, ms=5)
        side = -1 if x < points["b*"][0] else 1
        place = (0, -12) if name == "b*" else (8 * side, 0)
        ax.annotate(
            text, (x, y), place, textcoords="offset points", color=colour, fontsize=8, va="center",
            ha="center" if name == "b*" else ("right" if side < 0 else "left"),
        )  # fmt: skip
    low, high = float(variance.min()), float(variance.max())
    ax.set_title("(b) The best baseline is not the true KL", loc="left")
    ax.set(
        xlabel="baseline $b$, nats",
        ylabel=r"total variance of $(k_1-b)\,s$",
        ylim=(low - 0.18 * (high - low), high),
    )
