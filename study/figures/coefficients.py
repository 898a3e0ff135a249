"""The score coefficients of losses against r: how hard each one pulls at a sample, and which way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy

from klsym.errors import UsageError
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import k1, log_p, log_q, r, unfold
from klsym.study.figures.style import BLACK, COLOURS, GREY, ORANGE, PAGE, PURPLE, SKY, label_ends, open_panels

OF_LOSSES = {ZERO: "k1", to_ring(k1): "k2", to_ring(-r): "k3"}  # c of a loss, less its constant
OTHERS = (ORANGE, PURPLE, SKY, BLACK)  # for what is no estimator used as a loss
DIGITS = 30
NEAR_ONE = sympy.Rational(1, 10**20)  # |log r| at the two points that stand for r = 1
MARKS = (1, 2, 5, 10, 20, 50, 100)  # on the axis of r, and their inverses
SHARED = 0.3  # of the points of two lines that are drawn as one
TOO_OFTEN, TOO_RARELY = "(a) $r<1$: $q$ draws it too often", "(b) $r>1$: $q$ draws it too rarely"
POINTS = 160  # an even number: r = 1, where a slope may jump, is none of them


def compute_curve(verdict: Any, r: Sequence[float]) -> Any:
    """c(r) of a verdict, less its value at r = 1: E_q[c s] does not change with a constant.

    >>> from klsym.api import explain
    >>> compute_curve(explain("k3"), [0.5, 2.0])
    array([ 0.5, -1. ])

    Where c jumps at r = 1, it is the middle of the jump that is 0.
    Raises UsageError: no coefficient, or one that depends on more than r.
    """
    c = take_sample_coefficient(verdict)
    c = unfold(to_sympy(c) if isinstance(c, ExpPoly) else c).subs(log_q, 0)
    others = sorted(str(symbol) for symbol in c.free_symbols - {log_p})
    if others:
        raise UsageError(
            f"{_name_coefficient(verdict)} depends on {', '.join(others)} beside r: "
            "nothing to draw against r alone"
        )

    def evaluate_at(log_r: Any) -> Any:
        return sympy.N(c.subs(log_p, sympy.Float(log_r, DIGITS)), DIGITS)

    level = (evaluate_at(NEAR_ONE) + evaluate_at(-NEAR_ONE)) / 2
    return np.array([float(evaluate_at(sympy.log(sympy.Float(x, DIGITS))) - level) for x in r])


def take_sample_coefficient(verdict: Any) -> Any:
    """The coefficient of a verdict on one sample, as a value; UsageError where there is none."""
    if (
        not isinstance(verdict.gradient.canonical_coefficient, ExpPoly | sympy.Expr)
        or verdict.setting.is_per_token
    ):
        raise UsageError(f"{_name_coefficient(verdict)}: no function of one sample's r")
    return verdict.gradient.canonical_coefficient


def _name_coefficient(verdict: Any) -> str:
    return f"the coefficient of {verdict.loss.text!r}"


def curves(verdicts: Mapping[str, Any], r: Sequence[float]) -> dict[str, Any]:
    """The curve of each verdict; verdicts with one coefficient share one, and their names.

    >>> from klsym.api import explain
    >>> list(curves({"k2": explain("k2"), "rho k3": explain("rho*k3")}, [2.0]))
    ['k2, rho k3']
    """
    names: dict[Any, list[str]] = {}
    for name, verdict in verdicts.items():
        names.setdefault(take_sample_coefficient(verdict), []).append(name)
    return {
        ", ".join(equal_names): compute_curve(verdicts[equal_names[0]], r) for equal_names in names.values()
    }


def choose_colours(verdicts: Mapping[str, Any]) -> list[str]:
    """A colour for each coefficient: that of the estimator whose loss has it, else one of OTHERS.

    >>> from klsym.api import explain
    >>> losses = {name: explain(name) for name in ("k2", "(log_q - log_p)**2/2", "rho*k3", "k3", "k1")}
    >>> choose_colours(losses) == [COLOURS[name] for name in ("k2", "k3", "k1")]
    True
    """
    coefficients = map(take_sample_coefficient, verdicts.values())
    first = {c: COLOURS.get(OF_LOSSES.get(c, ""), "") for c in coefficients}
    others = [c for c, colour in first.items() if not colour]
    if len(others) > len(OTHERS):
        raise UsageError(f"more than {len(OTHERS)} curves beside k1, k2, k3 cannot be told apart: draw fewer")
    return list((first | dict(zip(others, OTHERS, strict=False))).values())


def draw(
    verdicts: Mapping[str, Any], reach: float = 20.0, titles: tuple[str, str] = (TOO_OFTEN, TOO_RARELY)
) -> Any:
    """c(r) - c(1) against r, for r from 1/reach to 1 and from 1 to reach, on two scales.

    verdicts: name -> verdict, each with a coefficient of r alone; at most four that are not of k1, k2, k3.
    titles: of the two panels.
    Raises UsageError: too many curves, and what `compute_curve` raises.
    """
    shades = choose_colours(verdicts)
    r = np.geomspace(1 / reach, reach, POINTS)
    drawn = curves(verdicts, r.tolist())
    with open_panels(PAGE, 2.9, 1, 2) as (figure, (left_axes, right)):
        for ax, side in ((left_axes, r < 1), (right, r > 1)):
            _draw_panel(ax, r[side], [c[side] for c in drawn.values()], shades)
        for ax, title in zip((left_axes, right), titles, strict=True):
            ax.set_title(title, loc="left")
        left_axes.set_ylabel("$c(r)-c(1)$")
        ends = [
            (float(c[-1]), write_estimators(n), colour)
            for (n, c), colour in zip(drawn.items(), shades, strict=True)
        ]
        label_ends(right, ends, float(r[-1]))
    return figure


def write_estimators(name: str) -> str:
    """Words with their estimators as formulas.

    >>> write_estimators("k3 clamped"), write_estimators("$k_2$")
    ('$k_3$ clamped', '$k_2$')
    """
    return name if "$" in name else re.sub(r"\bk([123])\b", r"$k_\1$", name)


def _draw_panel(ax: Any, r: Any, drawn: Sequence[Any], shades: Sequence[str]) -> None:
    """One side of r = 1; a line that runs along an earlier one is dashed, so that both are seen."""
    earlier: list[Any] = []
    for c, colour in zip(drawn, shades, strict=True):
        along = any(np.isclose(c, earlier_curve).mean() > SHARED for earlier_curve in earlier)
        ax.plot(r, c, color=colour, ls=(0, (3, 2)) if along else "-")
        earlier.append(c)
    lowest, highest = float(np.min(earlier)), float(np.max(earlier))
    room = 0.06 * (highest - lowest)
    rare = bool(r[0] > 1)
    ax.set(
        xscale="log", ylim=(lowest - room, highest + room), xlabel="$r = p/q$ at the sample",
        xlim=(1, r[-1]) if rare else (r[0], 1),
    )  # fmt: skip
    marks = [n for n in MARKS if n <= max(r[-1], 1 / r[0])]
    ax.set_xticks(
        [n if rare else 1 / n for n in marks], [f"{n}" if rare or n == 1 else f"1/{n}" for n in marks]
    )
    ax.minorticks_off()
    note = {"x": 0.5, "color": GREY, "fontsize": 8, "ha": "center", "transform": ax.transAxes}
    if highest > room:
        ax.text(y=0.97, s="the higher, the rarer it gets", va="top", **note)
    if lowest < -room:
        ax.text(y=0.03, s="the lower, the more frequent", va="bottom", **note)
