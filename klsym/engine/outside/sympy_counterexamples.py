"""Finite models on which coefficients outside the ring differ, to 15 decimals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import mpmath
import sympy
from sympy import Rational

from klsym.engine.outside.numbers import GIVEN, number_at, parameters
from klsym.engine.proof.counterexamples import completed, models, shown_model
from klsym.engine.regions.piecewise import DENSITIES, Regions, joint_signs
from klsym.errors import NotInRing
from klsym.language import log_old, log_p, log_q, unfold
from klsym.statements import Context
from klsym.sums import OverVocabulary
from klsym.unfolding import plain_model

SHORT_NAMES = {"log_old": "o", "length": "T"}


def shown_witness(c: Any, right: Any, on_policy: bool, refuted: str) -> dict[str, Any] | None:
    """A finite model in which E_q[c s] is not E_q[right s], as it is printed."""

    def candidates(names: tuple[str, ...], met: list[tuple[str, Any]]) -> Any:
        tried = models(Context(parameters=names), on_policy, met)
        return (_with_lengths(plain_model(completed(model, {"o", "M"}))) for model in tried)

    model = witness(c, right, candidates)
    if model is None:
        return None
    used = {SHORT_NAMES.get(str(x), str(x)) for x in c.free_symbols} | (set() if on_policy else {"w"})
    model["rewards"]["T"] = model["rewards"].pop("length")
    return shown_model(refuted, model, model["left"], model["right"], used)


def _with_lengths(model: dict[str, Any]) -> dict[str, Any]:
    """Outcomes that are sequences of 1, 2, .. tokens."""
    lengths = [str(x + 1) for x in range(len(model["q"]))]
    return model | {"rewards": {**model["rewards"], "length": lengths}}


def witness(c: Any, right: Any, models: Callable[..., Iterable[dict[str, Any]]]) -> Any:
    """A finite model in which E_q[c s] is not E_q[right s], to 15 decimals, with no tie that matters.

    models: from the names of parameters and values of log ratios that are to be met.
    """
    free, bounds, tied = parameters(c), *_ties_of(c)
    for model in models(tuple(str(s) for s in free), _beyond(bounds)):
        outcomes = _outcomes(model, {s: Rational(model["parameters"][str(s)]) for s in free})
        if any(tied(at) for _, at in outcomes):
            continue
        sides = [x for x in (_scored(e, outcomes) for e in (c, right)) if x is not None]
        if len(sides) == 2 and abs(sides[0] - sides[1]) > 1e-9 * max(map(abs, sides)):
            shown = [mpmath.nstr(side, 15) for side in sides]
            return model | {"left": [shown[0]] * 2, "right": [shown[1]] * 2}
    return None


def _beyond(bounds: list[Any]) -> list[tuple[str, Any]]:
    """Values of a log ratio on both sides of what bounds it: ("p", k1), ("mu", w) or ("old", o)."""
    found = []
    for x in bounds:
        for ratios in (joint_signs(x) or {}).values():
            below = "p" if x.has(log_p) else "old" if x.has(log_old) else "mu"
            found += [(below, ratio) for ratio in ratios]
    return found


def _ties_of(c: Any) -> tuple[list[Any], Callable[[dict[Any, Any]], bool]]:
    """What bounds the regions of c; and: does c sit at a tie at these values, and does its slope matter?"""
    steps, regions = c.atoms(sympy.Heaviside, sympy.sign), Regions()
    with suppress(NotInRing):
        for step in steps:
            regions.step(step.args[0])
        if not steps:
            regions.polynomial(c)
    ends = [c.xreplace({step: _step_with(step, end) for step in steps}) for end in (0, 1)]

    def tied(at: dict[Any, Any]) -> bool:
        met = any(number_at(x, at) == 0 for x in regions.table.values())
        return met and number_at(ends[0], at) != number_at(ends[1], at)

    return list(regions.table.values()), tied


def _step_with(step: Any, at_zero: int) -> Any:
    """The step with another value at a tie."""
    at = sympy.Heaviside(step.args[0], at_zero)
    return 2 * at - 1 if isinstance(step, sympy.sign) else at


def _outcomes(model: dict[str, Any], fixed: dict[Any, Any]) -> list[tuple[Any, dict[Any, Any]]]:
    """For each outcome q (u - E_q[u]), and the values of the symbols."""
    known = {symbol: model[name] for symbol, name in zip(DENSITIES, ("q", "p", "mu", "old"), strict=True)}
    q, u = ([Rational(x) for x in row] for row in (model["q"], model["u"]))
    mean = sum(a * b for a, b in zip(q, u, strict=True))
    rows = []
    for x in range(len(q)):
        logs = {symbol: sympy.log(Rational(row[x])) for symbol, row in known.items()}
        given = {symbol: model["rewards"].get(symbol.name) for symbol in GIVEN}
        rewards = {symbol: Rational(row[x]) for symbol, row in given.items() if row is not None}
        rows.append((q[x] * (u[x] - mean), logs | rewards | fixed))
    return rows


def _scored(coefficient: Any, outcomes: list[tuple[Any, dict[Any, Any]]]) -> Any | None:
    """E_q[coefficient u.s] in a model, where full(x) is E_q[x]."""
    sums = coefficient.atoms(OverVocabulary)
    masses = [(sympy.exp(at[log_q]), at) for _, at in outcomes]
    exact = {of: sum(q * unfold(of.args[0]).xreplace(at) for q, at in masses) for of in sums}
    values = [number_at(coefficient.xreplace(exact), at) for _, at in outcomes]
    if any(value is None for value in values):
        return None
    return mpmath.fsum(v * w.p / w.q for v, (w, _) in zip(values, outcomes, strict=True))
