"""The numeric cross-check of a verdict: its theorems, or its formulas, judged on exact finite models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import sympy

from klsym.abbreviations import Context
from klsym.engine.verdict import Verdict
from klsym.language import PARAMETERS, A, R, log_mu, log_p, log_q, sg, unfold
from klsym.numeric.exact import check_theorem
from klsym.numeric.models import FiniteModel, random_model
from klsym.parser import parse

DIGITS = 40
STEP = mpmath.mpf(10) ** -12  # a central difference in 40 digits errs by about STEP^2
CLOSE = 1e-12
SEEDS = range(4)


def with_check(verdict: Verdict, loss: Any) -> Verdict:
    """The verdict with `check`: {"passed", "text"}.

    In the ring each theorem is judged by the exact oracle.  Outside it, the printed per-sample gradient
    and score coefficient are compared with central differences of the literal loss.
    """
    if not verdict.proofs:
        return replace(verdict, check=_literal_check(verdict, loss))
    outcomes = [check_theorem(proof.theorem) for proof in verdict.proofs]
    passed = all(outcome.passed for outcome in outcomes)
    return replace(verdict, check={"passed": passed, "text": "; ".join(o.text for o in outcomes)})


def _literal_check(verdict: Verdict, loss: Any) -> dict[str, Any]:
    names = sorted(str(x) for x in loss.free_symbols - {log_q, log_p, log_mu, R, A})
    assert verdict.coefficient is not None, "outside the ring it is always printed"
    strings = (verdict.per_sample, verdict.coefficient)
    per_sample, coefficient = (parse(text, [n for n in names if not _known(n)]) for text in strings)
    worst = 0.0
    with mpmath.workdps(DIGITS):
        for seed in SEEDS:
            context = Context(parameters=tuple(names), on_policy=verdict.setting.on_policy)
            model = random_model(seed, 4, context)
            under = model.q if verdict.setting.on_policy or model.mu is None else model.mu
            literal = _expected_gradient(loss, model, under, verdict.setting.use)
            for measure, a in ((under, per_sample), (model.q, coefficient)):
                worst = max(worst, abs(float(literal - _score_form(a, model, measure))))
    text = f"literal loss on {len(SEEDS)} models: largest difference {worst:.1e}"
    return {"passed": worst < CLOSE, "text": text}


def _known(name: str) -> bool:
    return name in PARAMETERS


def _at(model: FiniteModel, x: int, shift: Any = 0) -> dict[Any, Any]:
    """Values at outcome x, the logits of q moved by shift * u."""
    total = sum(mpmath.mpf(q) * mpmath.exp(shift * u) for q, u in zip(model.q, model.u, strict=True))
    values = {log_q: mpmath.log(model.q[x]) + shift * model.u[x] - mpmath.log(total)}
    mu = model.q if model.mu is None else model.mu
    values |= {log_p: mpmath.log(model.p[x]), log_mu: mpmath.log(mu[x])}
    rewards = {R: model.rewards.get("R"), A: model.rewards.get("A")}
    values |= {symbol: mpmath.mpf(row[x]) for symbol, row in rewards.items() if row is not None}
    return {k: sympy.Float(str(v), DIGITS) for k, v in values.items()}


def _value(expression: Any, at: dict[Any, Any], model: FiniteModel) -> Any:
    numbers = {s: sympy.Float(str(model.parameters[s.name]), DIGITS)
               for s in expression.free_symbols if s.name in model.parameters}  # fmt: skip
    return mpmath.mpf(str(sympy.N(unfold(expression).subs(at | numbers), DIGITS)))


def _expected_gradient(loss: Any, model: FiniteModel, under: Any, use: str) -> Any:
    """sum_x m(x) dL(x)/dt along u with sg(.) frozen, or sum_x m(x) L(x) u.s(x) for a reward."""
    if use == "reward":
        return _score_form(loss.replace(sg, lambda e: e), model, under)
    total = mpmath.mpf(0)
    for x in range(len(model.q)):
        frozen = _freeze(loss, _at(model, x), model)
        ahead, behind = (_value(frozen, _at(model, x, shift), model) for shift in (STEP, -STEP))
        total += mpmath.mpf(under[x]) * (ahead - behind) / (2 * STEP)
    return total


def _freeze(loss: Any, at: dict[Any, Any], model: FiniteModel) -> Any:
    """sg(x) becomes the number that x is at theta."""
    return loss.replace(
        lambda e: isinstance(e, sg),
        lambda e: sympy.Float(str(_value(e.args[0], at, model)), DIGITS),
    )


def _score_form(a: Any, model: FiniteModel, under: Any) -> Any:
    """sum_x m(x) a(x) u.s(x)."""
    mean = sum(mpmath.mpf(q) * u for q, u in zip(model.q, model.u, strict=True))
    return mpmath.fsum(
        mpmath.mpf(m) * (u - mean) * _value(a, _at(model, x), model)
        for x, (m, u) in enumerate(zip(under, model.u, strict=True))
    )
