"""A model on which a coefficient of exact means is not that of the reverse KL, to 15 decimals.  Untrusted."""

from __future__ import annotations

from typing import Any

import mpmath
import sympy
from sympy import Rational

from klsym.engine.proof.counterexamples import add_rows, describe_model, generate_models
from klsym.kernel.statements import Context
from klsym.language.expressions import DENSITIES, REWARDS, k1, log_q, unfold
from klsym.language.sums import OverVocabulary
from klsym.language.unfolding import simplify_model

DIGITS, APART = 40, 1e-9  # by which two sides differ, of the larger one
MAX_EXPONENT = sympy.Integer(10) ** 300  # exp(x) takes as many bits of precision as x has
Outcomes = list[tuple[Any, dict[Any, Any]]]


def find_counterexample(c: Any, on_policy: bool, refuted: str) -> dict[str, Any] | None:
    """Return a model in which E_q[c s] is not grad KL(q||p), as it is printed."""
    free = sorted(c.free_symbols - {*DENSITIES, *REWARDS}, key=str)
    for tried in generate_models(Context(parameters=tuple(map(str, free))), on_policy, []):
        model = simplify_model(add_rows(tried, {"o", "M"}))
        outcomes = _list_outcomes(model, {x: Rational(model["parameters"][str(x)]) for x in free})
        left, right = (_compute_expected_gradient(e, outcomes) for e in (c, k1))
        if left is not None and right is not None and abs(left - right) > APART * max(abs(left), abs(right)):
            used = {str(x) for x in c.free_symbols} | (set() if on_policy else {"w"})
            first, second = ([mpmath.nstr(x, 15)] * 2 for x in (left, right))
            return describe_model(refuted, model, first, second, used)
    return None


def _list_outcomes(model: dict[str, Any], fixed: dict[Any, Any]) -> Outcomes:
    """Return for each outcome q (u - E_q[u]), and the values of the symbols."""
    rows_of_policies = {
        symbol: model[name] for symbol, name in zip(DENSITIES, ("q", "p", "mu", "old"), strict=True)
    }
    q, u = ([Rational(x) for x in row] for row in (model["q"], model["u"]))
    mean = sum(a * b for a, b in zip(q, u, strict=True))
    rows = []
    for x in range(len(q)):
        logs = {symbol: sympy.log(Rational(row[x])) for symbol, row in rows_of_policies.items()}
        rows_of_rewards = {symbol: model["rewards"].get(symbol.name) for symbol in REWARDS}
        rewards = {symbol: Rational(row[x]) for symbol, row in rows_of_rewards.items() if row is not None}
        rows.append((q[x] * (u[x] - mean), logs | rewards | fixed))
    return rows


def _compute_expected_gradient(coefficient: Any, outcomes: Outcomes) -> Any | None:
    """Return E_q[coefficient u.s] in a model, where full(x) is E_q[x]."""
    sums = coefficient.atoms(OverVocabulary)
    masses = [(sympy.exp(at[log_q]), at) for _, at in outcomes]
    exact = {mean: sum(q * unfold(mean.args[0]).xreplace(at) for q, at in masses) for mean in sums}
    values = [compute_number(coefficient.xreplace(exact), at) for _, at in outcomes]
    if any(value is None for value in values):
        return None
    return mpmath.fsum(v * w.p / w.q for v, (w, _) in zip(values, outcomes, strict=True))


def compute_number(expression: Any, at: dict[Any, Any]) -> Any | None:
    """Return the real value of an expression; None without one, or with exp of more than MAX_EXPONENT."""
    unfolded = unfold(expression)
    inside = {e.args[0] for e in unfolded.atoms(sympy.exp) if e.args[0].has(sympy.exp)}
    try:
        if any(abs(sympy.N(x.xreplace(at))) > MAX_EXPONENT for x in sorted(inside, key=sympy.count_ops)):
            return None
        value = sympy.N(unfolded.xreplace(at), DIGITS)
    except (ValueError, TypeError):  # such as a comparison with infinity
        return None
    mantissa = value._mpf_ if value.is_Float else int(value) if value.is_Integer else None
    return None if mantissa is None else mpmath.mpf(mantissa)
