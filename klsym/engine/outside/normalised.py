"""explain for normalised(h), beside what is added to it.  Untrusted.

normalised(h) as a reward is batch std of h; what is added to it is explained by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sympy

from klsym.convert import to_ring, to_sympy
from klsym.engine.fields.primitives import at_policy
from klsym.engine.fields.slot_loss import n
from klsym.engine.options.settings import Setting
from klsym.engine.outside.batch_std import explain_batch_std
from klsym.engine.targets.ring import explain_ring
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.engine.verdicts.warnings import OF_LOSS
from klsym.errors import NotInRing
from klsym.language import R, own, parameter, rho, s, sg
from klsym.messages import Message
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.spelling import LATEX, TEXT
from klsym.notation.tree import total
from klsym.notation.values import LazyFormula, scored
from klsym.ring import ZERO, ExpPoly
from klsym.sums import Normalised


def explain_normalised(written: Written, setting: Setting) -> Verdict:
    """normalised(h) as a reward is batch std of h; what is added to it is explained by itself."""
    expression = written.expression.xreplace({rho: 1}) if setting.on_policy else written.expression
    if isinstance(expression, Normalised) and setting.use == "reward":
        return _by_option(Written(written.text, expression), setting)
    terms = sympy.Add.make_args(written.expression.xreplace({rho: 1}) if setting.on_policy else expression)
    main = [term for term in terms if isinstance(term, Normalised)]
    rest = sympy.Add(*(term for term in terms if term not in main))
    if len(main) != 1 or rest == 0 or rest.has(Normalised) or setting.use != "reward":
        raise NotInRing("normalised(h) is no reward by itself, with terms added to it")
    kept = sympy.Add(*(t for t in sympy.Add.make_args(written.expression) if not t.has(Normalised)))
    spread, added = (Written(losses.show(e, TEXT), e) for e in (main[0], kept))
    return _beside(written, spread, added, setting)


def _beside(written: Written, main: Written, rest: Written, setting: Setting) -> Verdict:
    """normalised(h) + rest: fields add up, and so do curls; where one has none, the other decides."""
    spread = _by_option(main, setting)
    other = explain_ring(rest, setting)
    gradient = other.target not in ("none", None)
    pushes = other.h if other.scores_named[0] else scored(_own(rest.expression, setting), own(s))
    said = [message for message in other.messages if message.code not in OF_LOSS]
    return replace(
        spread,
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        h=LazyFormula(total, (spread.h, pushes)),
        gradient=TargetReading(spread.target if gradient else None, {}),
        value=other.value,
        constant=other.constant,
        assumptions=tuple(dict.fromkeys((*spread.assumptions, *other.assumptions))),
        proofs=(*spread.proofs, *other.proofs),
        model=spread.model if gradient else None,
        objective_latex=None,
        shown="",
        steps=(),
        remarks=(
            Message("adds-no-curl" if gradient else "adds-a-curl", loss=rest.text, of=other),
            *spread.remarks,
            Message("weighs-by-spread"),
            *_recurrence(main, other),
        ),
        messages=tuple(dict.fromkeys((*spread.messages, *said))),
    )


def _recurrence(main: Written, other: Verdict) -> tuple[Message, ...]:
    """What normalised(R) - beta KL(q||p) makes of rewards 0 and 1, from one policy to the next."""
    if main.expression not in (Normalised(R), Normalised(-R)) or other.target != "reverse-kl":
        return ()
    sign = (
        -1 if main.expression == Normalised(R) else 1
    )  # descended, R less the KL stands with its sign turned
    beta, P = sign * to_sympy(other.gradient.parts["reverse-kl"]), parameter("P")
    if beta.has(n) or beta.is_negative:
        return ()
    return (Message("success-recurrence", beta=beta, step=1 / (beta * sympy.sqrt(P * (1 - P)))),)


def _own(rest: Any, setting: Setting) -> ExpPoly:
    """What a detached reward is at sample i."""
    element = to_ring(rest.replace(lambda e: isinstance(e, sg), lambda e: e.args[0]))
    return to_ring(own(to_sympy(at_policy(element) if setting.on_policy else element)))


def _by_option(written: Written, setting: Setting) -> Verdict:
    """A detached reward that is centred as a whole is one with the option batch."""
    of = written.expression
    single = Written(written.text, of.args[0])
    verdict = explain_batch_std(single, replace(setting, batch="std"))
    h = scored(verdict.h, own(s)) if verdict.pushes else ZERO
    latex = losses.show(written, LATEX)
    return replace(
        verdict,
        loss_latex=latex,
        setting=setting,
        h=h,
        scores_named=(True, False),
        value=TargetReading("zero"),  # what is centred has mean 0
        constant=ZERO,
        messages=tuple(x for x in verdict.messages if x.code != "value-is-not-gradient"),
    )
