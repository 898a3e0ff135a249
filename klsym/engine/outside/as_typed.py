"""The verdict on a sampled loss, written as one on the loss with exact means that was typed.  Untrusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.options.settings import Setting
from klsym.engine.verdicts.verdict import ChainStep, Verdict
from klsym.language.convert import canonical
from klsym.language.expressions import log_mu, log_q, rho, without_sg
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.positions import in_slot
from klsym.notation.printers import LATEX, TEXT, Text
from klsym.notation.tree import Call, Formula, Gradient, Mean, Over, Words, product

Explained = Callable[[Written, Setting], Verdict]


def as_typed(inner: Verdict, written: Written, **changes: Any) -> Verdict:
    """A verdict on a sampled loss as one on the loss as typed."""
    return replace(inner, loss=written.text, loss_latex=losses.show(written, LATEX), **changes)


def expression_at_policy(expression: Any) -> Any:
    """The sampler is q: log mu = log q, rho = 1."""
    return expression.xreplace({rho: sympy.Integer(1)}).subs(log_mu, log_q)


def slope_of(x: Any) -> Any:
    """x + dx/dlog q, which multiplies the scores in grad full(x)."""
    return canonical(without_sg(x + sympy.diff(x, log_q)))


def mean_text(of: Any, setting: Setting, spell: Text, gradient: bool = False) -> str:
    """E_m[sum_t L_t] of a loss as typed; gradient: E_m[sum_t grad L_t], or E_m[sum_t h_t s_t]."""
    tokens = setting.level == "token"
    shown: Formula = losses.tree_of(of, spell.positions)
    if gradient:
        score = in_slot("s", "now" if tokens else "x", spell.positions)
        shown = Gradient(shown) if setting.use == "loss" else product(Call("sg", (shown,)), score)
    return str(spell(Mean("q" if setting.on_policy else "mu", Over("t", shown) if tokens else shown)))


def mean_formula(of: Any, setting: Setting) -> Words:
    """E_m[sum_t L_t] in both notations."""
    return Words(mean_text(of, setting, TEXT), mean_text(of, setting, LATEX))


def steps_from(typed: Written, setting: Setting, rule: str, steps: Any) -> tuple[ChainStep, ...]:
    """The chain of the sampled loss, from the loss as typed."""
    text, latex = (mean_text(typed.expression, setting, spell, gradient=True) for spell in (TEXT, LATEX))
    (_, first, first_latex), *rest = steps or [("", "0", "0")]
    return ("", text, latex), (rule, first, first_latex), *rest
