"""On-policy losses: the number that each estimator logs, and the gradient that its loss descends.

Both are left sides of theorems, evaluated exactly on two outcomes; the divergences are right sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.experiments.pictures.models import along_odds, left, right
from klsym.study.figures.style import BLACK, COLOURS, GREY, NAMES, ORANGE, PAGE, SKY, label_ends, open_panels

# On one curve each stays visible: k1 is drawn over k3.
LINES: dict[str, Any] = {"k1": (0, (1, 2)), "k2": "-", "k3": "-"}
TARGETS = {
    "reverse": (SKY, r"\mathrm{KL}(q\,\Vert\,p)"),
    "forward": (ORANGE, r"\mathrm{KL}(p\,\Vert\,q)"),
}
BAND = 5.0  # width of the line of a divergence, points


@dataclass(frozen=True)
class Loss:
    """Two theorems on an estimator a, of which the left sides are used: its mean, its gradient as a loss.

    value: on E_q[a].  gradient: on E_q[grad a].
    """

    value: Proof
    gradient: Proof

    def curves(self, p: Sequence[float], ts: Any) -> tuple[Any, Any]:
        """The mean and the expected gradient along the path `models.tilted`, each of shape (ts,)."""
        return along_odds(left(self.value), p, ts), along_odds(left(self.gradient), p, ts)


def targets(proofs: Mapping[str, Proof], p: Sequence[float], ts: Any) -> dict[str, Any]:
    """The right side of each theorem along the path: a divergence, or the gradient of one."""
    return {name: along_odds(right(proof), p, ts) for name, proof in proofs.items()}


def draw(
    losses: Mapping[str, Loss], value: Proof, gradients: Mapping[str, Proof], p: Sequence[float], ts: Any
) -> Any:
    """Left: the means.  Right: the expected gradients.  Pale and wide behind them: the divergences.

    losses: "k1", "k2", "k3".  value: a theorem whose right side is KL(q||p).
    gradients: "reverse" and "forward" -> a theorem whose right side is the gradient of that divergence.
    p, ts: see `models.tilted`.
    """
    drawn = {name: loss.curves(p, ts) for name, loss in losses.items()}
    with open_panels(PAGE, 2.7, 1, 2) as (figure, (logged, followed)):
        _panel(logged, ts, targets({"reverse": value}, p, ts), {n: c for n, (c, _) in drawn.items()}, "")
        logged.set(ylabel=r"$\mathbb{E}_q[k_i]$, nats")
        logged.set_title(r"(a) As values, $k_1$ and $k_3$ estimate $\mathrm{KL}(q\,\Vert\,p)$", loc="left")
        slopes = {n: c for n, (_, c) in drawn.items()}
        _panel(followed, ts, targets(gradients, p, ts), slopes, r"\nabla")
        followed.set(ylabel=r"$\mathbb{E}_q[\nabla k_i]$ along the log odds")
        followed.set_title("(b) As losses, $k_3$ follows the forward KL, $k_2$ the reverse", loc="left")
    return figure


def _panel(ax: Any, ts: Any, bands: Mapping[str, Any], curves: Mapping[str, Any], sign: str) -> None:
    """A curve for each estimator, on the wide and pale one of the divergence that it follows."""
    ax.axhline(0, color=GREY, lw=0.6, zorder=0)
    for name, band in bands.items():
        colour, text = TARGETS[name]
        ax.plot(ts, band, color=colour, lw=BAND, alpha=0.55, solid_capstyle="butt", label=f"${sign}{text}$")
    for name in sorted(curves, reverse=True):
        ax.plot(ts, curves[name], color=COLOURS[name], ls=LINES[name], zorder=3)
    ax.set(xlim=(ts[0], ts[-1]), xlabel="log odds of $q$ less those of $p$")
    ax.legend(loc="upper left", handlelength=1.4)
    label_ends(ax, ends(curves), float(ts[-1]))


def ends(curves: Mapping[str, Any]) -> list[tuple[float, str, str]]:
    """The labels of curves at their right ends, for `style.label_ends`; what ends together shares one.

    >>> import numpy as np
    >>> ends({"k1": np.array([1.0, 2.0]), "k2": np.array([0.0, 3.0]), "k3": np.array([1.5, 2.0])})
    [(2.0, '$k_1$, $k_3$', '#000000'), (3.0, '$k_2$', '#009E73')]
    """
    found: dict[float, list[str]] = {}
    for name, curve in curves.items():
        known = next((y for y in found if abs(y - curve[-1]) < 1e-9), float(curve[-1]))
        found.setdefault(known, []).append(name)
    return [
        (y, ", ".join(NAMES[name] for name in names), COLOURS[names[0]] if len(names) == 1 else BLACK)
        for y, names in found.items()
    ]
