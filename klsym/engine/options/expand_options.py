"""What the options credit, weights, aggregate and batch stand for, in the words of the grammar.  Untrusted.

    --weights prefix      rho is exp(past(log_q - log_mu))*rho        --credit to-go    togo(LOSS)
    --weights sequence    rho is exp(whole(log_q - log_mu))           --credit total    whole(LOSS)
    --aggregate mean      LOSS/T                             --aggregate batch    n*LOSS/(T + others(T))
    --sampling truncated  M*LOSS/S, samples from q itself
    --batch leave-one-out, mean, std: loo(h), centred(h), normalised(h), h what multiplies the score, detached

The loss so written, without the options, has the same verdict.

>>> from klsym.language.parser import parse
>>> setting = Setting(use="reward", level="token", credit="to-go", aggregate="mean")
>>> expansion(Written("R - beta*k1", parse("R - beta*k1")), setting)
'togo(R - beta*k1)/T'
"""

from __future__ import annotations

from typing import Any

import sympy

from klsym.engine.options.settings import Setting
from klsym.language.expressions import A, exp, log_mu, log_q, rho
from klsym.language.sums import Before, Whole
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.tree import Call, Formula, Name, product, quotient, total

CREDITS = {"to-go": "togo", "total": "whole"}
BATCHES = {"leave-one-out": "loo", "mean": "centred", "std": "normalised"}


def expansion(written: Written, setting: Setting, h: Formula | None = None) -> str | None:
    """The loss without options; None where they say nothing.  h: what multiplies the score of a sample."""
    expression = written.expression.xreplace({rho: weight_of(setting.weights)})
    weighted = expression != written.expression
    shown = losses.tree_of(expression if weighted else written)
    if setting.credit in CREDITS:
        shown = _credited(expression if expression.has(A) else None, shown, CREDITS[setting.credit])
    if setting.averaged:
        shown = quotient(shown, Name("T"))
    if setting.truncated:
        shown = quotient(product(Name("M"), shown), Name("S"))
    if setting.aggregate == "batch":
        shown = quotient(product(Name("n"), shown), total(Name("T"), Call("others", (Name("T"),))))
    if setting.batch in BATCHES:
        centre = BATCHES[setting.batch]
        if setting.use == "reward":
            shown = Call(centre, (shown,))
        elif h is not None:
            shown = product(Call("sg", (Call(centre, (h,)),)), Name("log_q"))
    said = (
        weighted
        or setting.truncated
        or setting.aggregate in ("mean", "batch")
        or setting.credit in CREDITS
        or setting.batch in BATCHES
    )
    return TEXT(shown) if said else None


def weight_of(weights: str) -> Any:
    """What rho stands for."""
    if weights == "prefix":
        return exp(Before(log_q - log_mu)) * rho
    return exp(Whole(log_q - log_mu)) if weights == "sequence" else rho


def _credited(expression: Any, shown: Formula, credit: str) -> Formula:
    """A is of the whole sequence, and each score meets it once."""
    if expression is None:
        return Call(credit, (shown,))
    terms = sympy.Add.make_args(sympy.expand_mul(expression))
    once = sympy.Add(*(term for term in terms if term.has(A)))
    rest = sympy.Add(*(term for term in terms if not term.has(A)))
    parts = [losses.tree_of(once)] + ([Call(credit, (losses.tree_of(rest),))] if rest else [])
    return total(*parts)
