"""The objective E_q[sum_t C_t] of exact means C_t = full(x) at each prefix, on-policy.  Untrusted.

    grad E_q[sum_t C_t] = E_q[sum_t (grad C_t + sum_{u>t} C_u s_t)]

since C_u of an earlier or the same token is known before the token is drawn.  So a loss C_t and, detached,
what comes later times log q has this objective, whatever function of the next token x is: the KL among them,
which the kernel proves, and js(q, p), which lies outside the ring.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.explain_outside import EXCHANGED
from klsym.engine.explain_setting import Setting
from klsym.engine.piecewise import OWN
from klsym.engine.verdict import Meaning, Verdict
from klsym.language import REWARDS, length, log_mu, log_old, log_p, log_q, parameter, rho, sg
from klsym.render import losses
from klsym.render.spelling import LATEX, TEXT
from klsym.render.told import about
from klsym.render.tree import Mean, Over
from klsym.sums import After, Here, OverVocabulary

RANDOM = (log_q, log_p, log_mu, log_old, *REWARDS, length, parameter("T"))
NAMED = (
    "grad E_q[sum_t C_t] = E_q[sum_t (grad C_t + sum_{u>t} C_u s_t)] for exact means C_t, each known at its"
    " prefix"
)


def with_objective(verdict: Verdict, loss: Any, setting: Setting) -> Verdict:
    """The verdict, with the objective where the loss is of this form and nothing else is known of it."""
    means = prefix_means(loss)
    plain = setting.level == "token" and setting.use == "loss" and setting.on_policy
    if verdict.target is not None or means is None or not plain:
        return verdict
    shown, latex = (
        spell(Mean("q", Over("t", losses.tree_of(means, spell.positions)))) for spell in (TEXT, LATEX)
    )
    return replace(
        verdict,
        gradient=Meaning("separable", {}, verdict.c),
        trust="sympy",
        shown=f"grad {shown}",
        objective_latex=latex,
        hypotheses=tuple(dict.fromkeys((*verdict.hypotheses, EXCHANGED.format("q")))),
        notes=(NAMED, *(note for note in verdict.notes if not note.startswith("open"))),
        warnings=(
            "outside the decidable core: this verdict is not proved, it rests on SymPy",
            *(line for line in verdict.warnings if about(line) not in ("outside_the_core", "later_dropped")),
        ),
    )


def prefix_means(loss: Any) -> Any | None:
    """The sum of the C_t, or None for a loss of another form.

    >>> from klsym.language import k1, r
    >>> c = OverVocabulary(k1 * r)
    >>> prefix_means(2*c + 2*sg(After(c))*log_q), prefix_means(c + sg(After(c))*log_q*3)
    (2*full(k1*r), None)
    """
    sums = sorted(loss.atoms(OverVocabulary), key=str)
    marks = {
        of: sympy.Function(f"mean{OWN}{i}", real=True)(log_q) for i, of in enumerate(sums)
    }  # sg keeps it
    if not marks or any(of.has(sg, rho, log_mu) for of in marks):
        return None
    terms = sympy.Add.make_args(sympy.expand_mul(loss.xreplace(marks)))
    attached = sympy.Add(*(term for term in terms if not term.has(sg)))
    if not _is_linear(attached, marks.values()):
        return None
    detached = sympy.Add(*(term for term in terms if term.has(sg)))
    later = detached.replace(lambda e: isinstance(e, sg), lambda e: _later(e.args[0]))
    if sympy.expand(later - log_q * attached) != 0:
        return None
    return attached.xreplace({mark: of for of, mark in marks.items()})


def _is_linear(e: Any, marks: Collection[Any]) -> bool:
    """Constants times exact means."""
    rest = sympy.expand(e).xreplace(dict.fromkeys(marks, sympy.S.Zero))
    slopes = [sympy.diff(e, mark) for mark in marks]
    return e != 0 and rest == 0 and not any(slope.has(*RANDOM, *marks) for slope in slopes)


def _later(e: Any) -> Any:
    """A detached sum over later tokens as what it sums; that of the token itself has mean zero."""
    e = e.replace(lambda x: isinstance(x, Here), lambda x: sympy.S.Zero)
    return e.replace(lambda x: isinstance(x, After), lambda x: x.args[0])
