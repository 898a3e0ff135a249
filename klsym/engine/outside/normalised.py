"""explain for normalised(h).  Untrusted.

normalised(h) as a reward is batch std of h; what is added to it is explained by itself.  A loss with the
gradient (b + normalised(h)) s is this reward.  In any other loss H stands for normalised(h): given the other
samples it is a function of its own sample, free of theta where h is, so that mu and an attached loss leave

    E_mu[grad L] = grad E_mu[L].

Otherwise numbers tell whether the field has a curl.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.fields.field import ReducedGradient, reduce_typed_loss
from klsym.engine.fields.named_terms import Decomposition
from klsym.engine.fields.position_sums import n
from klsym.engine.fields.primitives import substitute_on_policy
from klsym.engine.fields.slot_loss import SlotLoss, build_slot_loss, divide_by_length, has_batch_sum
from klsym.engine.options.settings import Setting
from klsym.engine.outside.batch_std import explain_batch_std, size_messages
from klsym.engine.proof.quantities import grad
from klsym.engine.regions.piecewise import is_piecewise
from klsym.engine.regions.relations import reduce_by_relations
from klsym.engine.targets.decide import Decision, by_numbers, decide, is_held, own_mean, with_scores
from klsym.engine.targets.ring import explain_ring, verdict_of
from klsym.engine.targets.ring_notes import READINGS
from klsym.engine.verdicts.verdict import Chain, TargetReading, Verdict
from klsym.engine.verdicts.warnings import OF_DESCENT, OF_LOSS
from klsym.errors import NotInRing, UsageError
from klsym.kernel.derivatives import attach
from klsym.kernel.names import HELD, parse_name
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import GIVEN, R, log_q, own, parameter, rho, s, sg, unfold
from klsym.language.messages import Message
from klsym.language.sums import Normalised
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.tree import total
from klsym.notation.values import LazyFormula, scored

MOST = 2  # in one loss
MOVES = "normalised(h) of what is differentiated is not read: put sg(..) around it, which is another loss"
SEVERAL = f"normalised(h) is read for {MOST} different h at most, and not within itself"


def explain_normalised(written: Written, setting: Setting) -> Verdict:
    """normalised(h) as a reward is batch std of h; what is added to it is explained by itself."""
    expression = written.expression.xreplace({rho: 1}) if setting.on_policy else written.expression
    if isinstance(expression, Normalised) and setting.use == "reward":
        with suppress(NotInRing):
            return _by_option(Written(written.text, expression), setting)
    terms = sympy.Add.make_args(written.expression.xreplace({rho: 1}) if setting.on_policy else expression)
    main = [term for term in terms if isinstance(term, Normalised)]
    rest = sympy.Add(*(term for term in terms if term not in main))
    if len(main) != 1 or rest == 0 or rest.has(Normalised) or setting.use != "reward":
        return _in_general(written, setting)
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
        objective_formula=None,
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


# ---------------------------------------------------------------------------- in any loss
def _in_general(written: Written, setting: Setting) -> Verdict:
    """H and its like stand for each normalised(h)."""
    back = _read(written, setting)
    loss = Written(written.text, written.expression.xreplace({of: symbol for symbol, of in back.items()}))
    field = reduce_typed_loss(loss, setting)
    if (reward := _as_reward(field, setting, back)) is not None:
        found = explain_normalised(reward, replace(setting, use="reward"))
        return _renamed(found, written, setting, field)

    def explained(inside: Written, use: Setting) -> Verdict:
        return explain_normalised(Written(inside.text, inside.expression.xreplace(back)), use)

    label = divide_by_length(written) if setting.averaged and not field.loss.index else written
    decision = _decided(field, label, back)
    if _speaks_of_held(field):  # H depends on the other samples: no independence, and no c
        field = replace(field, canonical_form=None, coefficients={}, products=())
    verdict = verdict_of(loss, setting, field, field, decision, explained)
    reading = () if field.loss.index else (READINGS["mean"],)
    rows = tuple((symbol.name, losses.show(of, TEXT)) for symbol, of in back.items())
    size = size_messages(*(_inside(of).element for of in back.values()))
    return replace(
        verdict,
        loss_latex=losses.show(written, LATEX),
        messages=(*verdict.messages, *size),
        c=None,
        coefficient_cases=(),
        steps=tuple(verdict.steps)[:2],
        value=TargetReading(None),
        constant=None,
        generated=None,
        functional=None,
        penalty=None,
        assumptions=(*reading, Message("given", place="sample", rows=rows), *verdict.assumptions),
    )


def _read(written: Written, setting: Setting) -> Mapping[Any, Any]:
    """What stands for each normalised(h) -> this; it is detached where it moves."""
    found = sorted(written.expression.atoms(Normalised), key=sympy.default_sort_key)
    if len(found) > MOST or any(of.args[0].has(Normalised) for of in found):
        raise UsageError(f"{written.text[:60]!r}: {SEVERAL}")
    attached = written.expression.replace(lambda e: isinstance(e, sg), lambda _: sympy.S.Zero)
    for of in attached.atoms(Normalised) if setting.use == "loss" else ():
        if _moves(of):
            raise UsageError(f"{losses.show(of, TEXT)}: {MOVES}")
    names = GIVEN[::-1] if has_batch_sum(written.expression.xreplace(dict.fromkeys(found, R))) else GIVEN
    return dict(zip(names, found, strict=False))  # sums of others take the first names


def _moves(of: Any) -> bool:
    return bool(unfold(of.args[0]).has(log_q))


def _inside(of: Any) -> SlotLoss:
    """h of normalised(h)."""
    return build_slot_loss(Written(losses.show(of, TEXT), of.args[0]), Setting("off-policy", "reward"))


def _speaks_of_held(field: ReducedGradient) -> bool:
    """Does H stand in what multiplies the scores, or in a bound or log there?"""
    told = field.loss.defined.within(*field.score_coefficients.values())
    return any(parse_name(x).base in HELD for e in told for x in e.names())


def _decided(field: ReducedGradient, written: Written, back: Mapping[Any, Any]) -> Decision:
    """Where H is fixed and the loss attached, a gradient; else what numbers tell."""
    if not _speaks_of_held(field):
        return decide(field)
    right, proofs = with_scores(field)
    none = Decomposition((), {})
    if not any(map(_moves, back.values())) and not is_held(field.loss):
        aim = own_mean(field.loss, None if field.loss.index else written)
        proofs = (*proofs, field.start.equals(grad(aim)))
        return Decision("separable", right, proofs, none, aim, trust="numeric")
    return by_numbers(field, right, proofs, none, {symbol.name: _inside(of) for symbol, of in back.items()})


def _as_reward(field: ReducedGradient, setting: Setting, back: Mapping[Any, Any]) -> Written | None:
    """b + normalised(h), or b - normalised(h), of a loss with the gradient b s + H s, or b s - H s."""
    slots = {
        slot: reduce_by_relations(attach(h), field.loss.defined, has_gradient=False)
        for slot, h in field.score_coefficients.items()
    }
    slots = {slot: substitute_on_policy(h) if setting.on_policy else h for slot, h in slots.items()}
    if setting.use == "reward" or not set(slots) <= {"x", "self"} or len(slots) != 1 or len(back) != 1:
        return None
    [h], [(symbol, of)] = slots.values(), back.items()
    if any(field.loss.defined.defined(name) is not None for name in h.names()):
        return None
    plain = to_sympy(h.rename(lambda name: name.removesuffix("[self]")))
    [a, b] = plain.coeff(symbol, 1), plain.coeff(symbol, 0)
    if a not in (1, -1) or sympy.expand(plain - a * symbol - b) != 0 or is_piecewise(b) or "[" in str(b):
        return None
    reward = Normalised(a * of.args[0]) + b
    return Written(losses.show(reward, TEXT), reward)


def _renamed(verdict: Verdict, written: Written, setting: Setting, field: ReducedGradient) -> Verdict:
    """The verdict on a reward, said of the loss that has the same gradient."""
    _, (proof,) = with_scores(field)
    rest = ((why or "chain rule", text, latex) for why, text, latex in verdict.steps)
    steps = (Chain(proof).rows[0], *rest)
    return replace(
        verdict,
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        value=TargetReading(None),
        constant=None,
        steps=steps,
        messages=tuple(x for x in verdict.messages if x.code not in OF_DESCENT),
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
    return to_ring(own(to_sympy(substitute_on_policy(element) if setting.on_policy else element)))


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
