"""The verdict on a sampled loss, written as one on the loss with exact means that was typed.  Untrusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from klsym.engine.options.settings import Setting
from klsym.engine.verdicts.lazy import ChainStep
from klsym.engine.verdicts.verdict import Verdict
from klsym.language.convert import normalise_expression
from klsym.language.expressions import log_mu, log_q, remove_sg, rho
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.positions import build_in_slot
from klsym.notation.printers import LATEX, TEXT, Text
from klsym.notation.tree import Call, Formula, Gradient, Mean, Over, Words, multiply

Explained = Callable[[Written, Setting], Verdict]


def as_typed(inner: Verdict, written: Written, **changes: Any) -> Verdict:
    """Return a verdict on a sampled loss as one on the loss as typed."""
    return inner.revise(text=written.text, written=written, **changes)


def substitute_policy(expression: Any) -> Any:
    """Substitute q for the sampler: log mu = log q, rho = 1."""
    return expression.xreplace({rho: sympy.Integer(1)}).subs(log_mu, log_q)


def build_slope(x: Any) -> Any:
    """Return x + dx/dlog q, which multiplies the scores in grad full(x)."""
    return normalise_expression(remove_sg(x + sympy.diff(x, log_q)))


def show_mean(loss: Any, setting: Setting, spell: Text, gradient: bool = False) -> str:
    """Return E_m[sum_t L_t] of a loss as typed; gradient: E_m[sum_t grad L_t], or E_m[sum_t h_t s_t]."""
    tokens = setting.is_per_token
    formula: Formula = losses.build_tree(loss, spell.positions)
    if gradient:
        score = build_in_slot("s", "now" if tokens else "x", spell.positions)
        formula = Gradient(formula) if setting.is_differentiated else multiply(Call("sg", (formula,)), score)
    return str(spell(Mean("q" if setting.on_policy else "mu", Over("t", formula) if tokens else formula)))


def build_mean_formula(loss: Any, setting: Setting) -> Words:
    """Return E_m[sum_t L_t] in both notations."""
    return Words(show_mean(loss, setting, TEXT), show_mean(loss, setting, LATEX))


def add_first_step(typed: Written, setting: Setting, rule: str, steps: Any) -> tuple[ChainStep, ...]:
    """Return the chain of the sampled loss, preceded by the loss as typed."""
    text, latex = (show_mean(typed.expression, setting, spell, gradient=True) for spell in (TEXT, LATEX))
    (_, first, first_latex), *others = steps or [("", "0", "0")]
    return ("", text, latex), (rule, first, first_latex), *others
