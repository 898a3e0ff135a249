"""What the options credit, weights, aggregate and batch stand for, in the words of the grammar.  Untrusted.

    --weights prefix      rho is exp(past(log_q - log_mu))*rho        --credit to-go    togo(LOSS)
    --weights sequence    rho is exp(whole(log_q - log_mu))           --credit total    whole(LOSS)
    --aggregate mean      LOSS/T                             --aggregate batch    n*LOSS/(T + others(T))
    --sampling truncated  M*LOSS/S, samples from q itself
    --batch leave-one-out, mean, std: loo(h), centred(h), normalised(h), h what multiplies the score, detached

The loss so written, without the options, has the same verdict.

>>> from klsym.language.parser import parse
>>> setting = Setting(use="reward", level="token", credit="to-go", aggregate="mean")
>>> expand_options(Written("R - beta*k1", parse("R - beta*k1")), setting)
'togo(R - beta*k1)/T'
"""

from __future__ import annotations

from typing import Any

import sympy

from klsym.engine.options.settings import Setting
from klsym.language.expressions import A, rho
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.tree import Call, Formula, Name, add_terms, divide, multiply


def expand_options(written: Written, setting: Setting, h: Formula | None = None) -> str | None:
    """Return the loss written without options; None if they change nothing.

    h: what multiplies the score of a sample.
    """
    typed = setting.weighting.typed
    weighted = typed != rho and written.expression.has(rho)
    expression = written.expression.xreplace({rho: typed}) if weighted else written.expression
    divisor, centring = setting.divisor, setting.centring
    has_options = weighted or setting.truncated or divisor.divides or setting.credits_other_tokens or centring
    if not has_options:
        return None
    formula = losses.build_tree(expression if weighted else written)
    if setting.credits is not None and setting.credits.word is not None:
        formula = _apply_credit(expression if expression.has(A) else None, formula, setting.credits.word)
    if divisor.divides and not divisor.over_batch:
        formula = divide(formula, losses.build_tree(divisor.number))
    if setting.truncated:
        formula = divide(multiply(Name("M"), formula), Name("S"))
    if divisor.over_batch:
        formula = divide(multiply(Name("n"), formula), losses.build_tree(divisor.number))
    if centring is not None and setting.is_reward:
        formula = Call(centring.word, (formula,))
    elif centring is not None and h is not None:
        formula = multiply(Call("sg", (Call(centring.word, (h,)),)), Name("log_q"))
    return TEXT(formula)


def _apply_credit(expression: Any, formula: Formula, credit: str) -> Formula:
    """Give a loss its credit, except A, which is of the whole sequence and is credited once."""
    if expression is None:
        return Call(credit, (formula,))
    terms = sympy.Add.make_args(sympy.expand_mul(expression))
    credited_once = sympy.Add(*(term for term in terms if term.has(A)))
    uncredited = sympy.Add(*(term for term in terms if not term.has(A)))
    parts = [losses.build_tree(credited_once)] + (
        [Call(credit, (losses.build_tree(uncredited),))] if uncredited else []
    )
    return add_terms(*parts)
