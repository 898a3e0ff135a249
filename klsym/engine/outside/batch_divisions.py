"""explain for normalised(h), relative(h) and scaled(h), values over a statistic of their batch.  Untrusted.

normalised(h) as a reward is batch std of h; what is added to it is explained by itself.  A loss with the
gradient (b + normalised(h)) s gets the same answer as this reward.  In every other loss the symbol H is
normalised(h), relative(h) or scaled(h).  Given the other samples, H is a function of its own sample, and
independent of theta where h is.  For samples from mu and an attached loss therefore

    E_mu[grad L] = grad E_mu[L].

On-policy a reward that is 0 or 1 has an objective (`two_values`).  Otherwise numbers tell whether the field
has a curl.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import sympy

from klsym.engine.fields.field import ReducedGradient, reduce_typed_loss
from klsym.engine.fields.named_terms import Decomposition
from klsym.engine.fields.position_sums import n
from klsym.engine.fields.slot_loss import SlotLoss, build_slot_loss, divide_by_length, has_batch_sum
from klsym.engine.options.settings import Setting
from klsym.engine.outside.batch_std import explain_batch_std, list_size_messages
from klsym.engine.outside.two_values import Push, add_gradient, add_two_values
from klsym.engine.proof.quantities import Quantity, expectation, grad
from klsym.engine.proof.sequence_quantities import mean_over_i
from klsym.engine.regions.piecewise import is_piecewise
from klsym.engine.regions.relations import reduce_by_relations
from klsym.engine.targets.decide import (
    Decision,
    build_loss_mean,
    decide,
    decide_numerically,
    expand_scores,
    has_detached_part,
)
from klsym.engine.targets.ring import build_verdict, explain_ring
from klsym.engine.targets.ring_notes import READING_NOTES
from klsym.engine.verdicts.lazy import Chain
from klsym.engine.verdicts.verdict import Counterexample, ExpectedValue, TargetReading, Verdict
from klsym.engine.verdicts.warnings import DESCENT_WARNINGS, LOSS_WARNINGS
from klsym.errors import NotInRing, UsageError
from klsym.kernel.derivatives import attach, is_live
from klsym.kernel.names import HELD, parse_name
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.convert import substitute_on_policy, to_ring, to_sympy
from klsym.language.expressions import GIVEN, SLOTTED, R, log_q, own, parameter, rho, s, sg, unfold
from klsym.language.messages import Message
from klsym.language.sums import Divided, Normalised
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.tree import add_terms
from klsym.notation.values import LazyFormula, multiply_by_score

MOST = 2  # in one loss
MOVES = "{}(h) of what is differentiated is not read: put sg(..) around it, which is another loss"
SEVERAL = f"{{}}(h) is read for {MOST} different h at most, and not within itself"


def explain_divided(written: Written, setting: Setting) -> Verdict:
    """Return the verdict, with the objective where the divided reward is 0 or 1 on-policy."""
    verdict = _explain_divided(written, setting)
    linear = _find_linear(written, setting) if setting.on_policy else None
    if linear is None:
        return verdict
    if not linear.added.has(*SLOTTED):  # a constant times the score has the mean 0
        return add_two_values(verdict, linear.push)
    added = Written(losses.show(linear.added, TEXT), linear.added)
    return add_gradient(verdict, linear.push, explain_ring(added, replace(setting, use="reward")))


def _explain_divided(written: Written, setting: Setting) -> Verdict:
    """Return the verdict: normalised(h) as a reward is batch std of h; other terms are explained alone."""
    expression = written.expression.xreplace({rho: 1}) if setting.on_policy else written.expression
    if isinstance(expression, Normalised) and setting.is_reward:
        with suppress(NotInRing):
            return _explain_by_option(Written(written.text, expression), setting)
    terms = sympy.Add.make_args(written.expression.xreplace({rho: 1}) if setting.on_policy else expression)
    main = [term for term in terms if isinstance(term, Normalised)]
    remainder = sympy.Add(*(term for term in terms if term not in main))
    if len(main) != 1 or remainder == 0 or remainder.has(Divided) or setting.is_differentiated:
        return _explain_in_general(written, setting)
    terms_without = sympy.Add(*(t for t in sympy.Add.make_args(written.expression) if not t.has(Normalised)))
    spread, added = (Written(losses.show(e, TEXT), e) for e in (main[0], terms_without))
    return _combine_with_reward(written, spread, added, setting)


def _combine_with_reward(written: Written, main: Written, remainder: Written, setting: Setting) -> Verdict:
    """Return the verdict on normalised(h) + remainder.

    Expected gradients add up, and so do curls; if one term has no curl, the other decides.
    """
    spread = _explain_by_option(main, setting)
    reward_verdict = explain_ring(remainder, setting)
    gradient = reward_verdict.target not in ("no-objective", None)
    pushes = (
        reward_verdict.gradient.score_coefficient
        if reward_verdict.gradient.scores_named[0]
        else multiply_by_score(_write_own_reward(remainder.expression, setting), own(s))
    )
    messages = [message for message in reward_verdict.messages if message.code not in LOSS_WARNINGS]
    return spread.revise(
        text=written.text,
        score_coefficient=LazyFormula(add_terms, (spread.gradient.score_coefficient, pushes)),
        gradient=TargetReading(spread.target if gradient else None, {}),
        value=reward_verdict.value,
        assumptions=tuple(dict.fromkeys((*spread.assumptions, *reward_verdict.assumptions))),
        theorems=(*spread.proof.theorems, *reward_verdict.proof.theorems),
        counterexample=spread.counterexample if gradient else Counterexample(),
        formula=None,
        in_quantities=None,
        steps=(),
        remarks=(
            Message("adds-no-curl" if gradient else "adds-a-curl", loss=remainder.text, of=reward_verdict),
            *spread.gradient.remarks,
            Message("weighs-by-spread"),
            *_describe_recurrence(main, reward_verdict),
        ),
        messages=tuple(dict.fromkeys((*spread.messages, *messages))),
    )


# ---------------------------------------------------------------------------- in any loss
def _explain_in_general(written: Written, setting: Setting) -> Verdict:
    """Return the verdict, with H and its like in place of each value that is divided by one of its batch."""
    back = _name_divided(written, setting)
    loss = _replace_divided(written, back)
    field = reduce_typed_loss(loss, setting)
    if (reward := _as_reward(field, setting, back)) is not None:
        verdict_of_reward = _explain_divided(reward, replace(setting, use="reward"))
        return _restate(verdict_of_reward, written, setting, field)

    def explain_inner(inside: Written, use: Setting) -> Verdict:
        return _explain_divided(Written(inside.text, inside.expression.xreplace(back)), use)

    label = divide_by_length(written) if setting.averaged and not field.loss.index else written
    decision = _decide_target(field, label, back)
    if _has_given_names(field):  # H depends on the other samples: no independence, and no c
        field = replace(field, canonical_form=None, coefficients={}, products=())
    verdict = build_verdict(loss, setting, field, single=field, decision=decision, explain=explain_inner)
    reading = () if field.loss.index else (READING_NOTES["mean"],)
    rows = tuple((symbol.name, losses.show(of, TEXT)) for symbol, of in back.items())
    over_std = [of for of in back.values() if isinstance(of, Normalised)]
    size = list_size_messages(*(_build_inner_loss(of).element for of in over_std)) if over_std else ()
    return verdict.revise(
        messages=(*verdict.messages, *size),
        canonical_coefficient=None,
        canonical_cases=(),
        steps=tuple(verdict.proof.steps)[:2],
        value=ExpectedValue(),
        generator=None,
        inside_clamps=None,
        convexity=None,
        penalty=None,
        assumptions=(*reading, Message("given", place="sample", rows=rows), *verdict.assumptions),
    )


def _replace_divided(written: Written, names: Mapping[Any, Any]) -> Written:
    """Return the loss with the names of what is divided."""
    symbols = {divided: symbol for symbol, divided in names.items()}
    return Written(written.text, written.expression.xreplace(symbols))


def _name_divided(written: Written, setting: Setting) -> Mapping[Any, Any]:
    """Return symbol -> normalised(h) or its like; refuse one that depends on theta and is not detached."""
    divided = sorted(written.expression.atoms(Divided), key=sympy.default_sort_key)
    if len(divided) > MOST or any(element.args[0].has(Divided) for element in divided):
        raise UsageError(f"{written.text[:60]!r}: {SEVERAL.format(divided[0].name)}")
    attached = written.expression.replace(lambda e: isinstance(e, sg), lambda _: sympy.S.Zero)
    for element in attached.atoms(Divided) if setting.is_differentiated else ():
        if _has_gradient(element):
            raise UsageError(f"{losses.show(element, TEXT)}: {MOVES.format(element.name)}")
    names = GIVEN[::-1] if has_batch_sum(written.expression.xreplace(dict.fromkeys(divided, R))) else GIVEN
    return dict(zip(names, divided, strict=False))  # sums of others take the first names


def _has_gradient(of: Any) -> bool:
    return bool(unfold(of.args[0]).has(log_q))


def _build_inner_loss(of: Any) -> SlotLoss:
    """Return h of normalised(h) and its like."""
    return build_slot_loss(Written(losses.show(of, TEXT), of.args[0]), Setting("off-policy", "reward"))


def _has_given_names(field: ReducedGradient) -> bool:
    """Does H occur in a score coefficient, or in a bound or log there?"""
    definitions = field.loss.defined.walk_definitions(*field.score_coefficients.values())
    return any(parse_name(x).base in HELD for e in definitions for x in e.names())


def _decide_target(field: ReducedGradient, written: Written, back: Mapping[Any, Any]) -> Decision:
    """Return a gradient where H is fixed and mu draws the samples; else decide by numbers."""
    if not _has_given_names(field):
        return decide(field)
    right, proofs = expand_scores(field)
    none = Decomposition((), {})
    objective = None if any(map(_has_gradient, back.values())) else _find_mean_under_mu(field.loss, written)
    if objective is not None:
        proofs = (*proofs, field.start.equals(grad(objective)))
        return Decision(
            "objective", right, proofs=proofs, decomposition=none, objective=objective, trust="numeric"
        )
    return decide_numerically(
        field,
        gradient=right,
        proofs=proofs,
        decomposition=none,
        divided={symbol.name: (of.name, _build_inner_loss(of)) for symbol, of in back.items()},
    )


def _find_mean_under_mu(loss: SlotLoss, written: Written) -> Quantity | None:
    """Return E_mu[L], or E_mu[L log q] of a reward that does not depend on theta; else None."""
    if not has_detached_part(loss):
        return build_loss_mean(loss, None if loss.index else written)
    if not loss.detached or loss.measure != "mu" or is_live(loss.element, loss.defined):
        return None
    mean, log_density = (mean_over_i, own(log_q)) if loss.index else (expectation, log_q)
    element = loss.expression * log_density
    label = written.expression * log_q
    shown = element if loss.index else Written(losses.show(label, TEXT), label)
    return replace(mean(element, "mu"), labels={to_ring(element): shown})


def _as_reward(field: ReducedGradient, setting: Setting, back: Mapping[Any, Any]) -> Written | None:
    """Return b + H or b - H, H = normalised(h), if the gradient of the loss is b s + H s, or b s - H s."""
    linear = None if setting.is_reward else _split_score_coefficient(field, setting, back)
    if linear is None or not isinstance(linear.push.divided, Normalised) or linear.push.scale not in (1, -1):
        return None
    if not linear.is_plain or _build_inner_loss(linear.push.divided).defined.definitions:
        return None
    reward = Normalised(linear.push.scale * linear.push.divided.args[0]) + linear.added
    return Written(losses.show(reward, TEXT), reward)


class LinearCoefficient(NamedTuple):
    """The coefficient a H + b of a score, H what is divided by a value of its batch."""

    push: Push
    added: Any

    @property
    def is_plain(self) -> bool:
        """Is b without bounds and sums over other samples?"""
        return not is_piecewise(self.added) and "[" not in str(self.added)


def _find_linear(written: Written, setting: Setting) -> LinearCoefficient | None:
    """Return c H + b of a loss or reward with the gradient (c H + b) s, c a constant."""
    names = _name_divided(written, setting)
    field = reduce_typed_loss(_replace_divided(written, names), setting)
    linear = _split_score_coefficient(field, setting, names)
    return linear if linear is not None and linear.is_plain and not linear.push.scale.has(*SLOTTED) else None


def _split_score_coefficient(
    field: ReducedGradient, setting: Setting, back: Mapping[Any, Any]
) -> LinearCoefficient | None:
    """Return a H + b, if the gradient of the loss is (a H + b) s."""
    slots = {
        slot: reduce_by_relations(attach(h), field.loss.defined, has_gradient=False)
        for slot, h in field.score_coefficients.items()
    }
    slots = {slot: substitute_on_policy(h) if setting.on_policy else h for slot, h in slots.items()}
    if not set(slots) <= {"x", "self"} or len(slots) != 1 or len(back) != 1:
        return None
    [h], [(symbol, of)] = slots.values(), back.items()
    if any(field.loss.defined.find_definition(name) is not None for name in h.names()):
        return None
    plain = to_sympy(h.rename(lambda name: name.removesuffix("[self]")))
    scale, added = plain.coeff(symbol, 1), plain.coeff(symbol, 0)
    is_linear = sympy.expand(plain - scale * symbol - added) == 0
    return LinearCoefficient(Push(scale, of), added) if is_linear else None


def _restate(verdict: Verdict, written: Written, setting: Setting, field: ReducedGradient) -> Verdict:
    """Return the verdict on a reward for the loss that has the same gradient."""
    _, (proof,) = expand_scores(field)
    others = ((why or "chain rule", text, latex) for why, text, latex in verdict.proof.steps)
    steps = (Chain(proof).rows[0], *others)
    return verdict.revise(
        text=written.text,
        setting=setting,
        value=ExpectedValue(),
        steps=steps,
        messages=tuple(x for x in verdict.messages if x.code not in DESCENT_WARNINGS),
    )


def _describe_recurrence(main: Written, reward_verdict: Verdict) -> tuple[Message, ...]:
    """Return how normalised(R) - beta KL(q||p) changes rewards 0 and 1 from one policy to the next."""
    if main.expression not in (Normalised(R), Normalised(-R)) or reward_verdict.target != "reverse-kl":
        return ()
    sign = (
        -1 if main.expression == Normalised(R) else 1
    )  # descended, R less the KL stands with its sign turned
    beta, P = sign * to_sympy(reward_verdict.gradient.parts["reverse-kl"]), parameter("P")
    if beta.has(n) or beta.is_negative:
        return ()
    return (Message("success-recurrence", beta=beta, step=1 / (beta * sympy.sqrt(P * (1 - P)))),)


def _write_own_reward(reward: Any, setting: Setting) -> ExpPoly:
    """Return a detached reward at sample i."""
    element = to_ring(reward.replace(lambda e: isinstance(e, sg), lambda e: e.args[0]))
    return to_ring(own(to_sympy(substitute_on_policy(element) if setting.on_policy else element)))


def _explain_by_option(written: Written, setting: Setting) -> Verdict:
    """Return the verdict on a detached reward that is centred as a whole, by the option batch."""
    normalised = written.expression
    single = Written(written.text, normalised.args[0])
    verdict = explain_batch_std(single, replace(setting, batch="std"))
    h = multiply_by_score(verdict.gradient.score_coefficient, own(s)) if verdict.gradient.is_nonzero else ZERO
    return verdict.revise(
        setting=setting,
        score_coefficient=h,
        scores_named=(True, False),
        value=ExpectedValue("zero", constant=ZERO),  # what is centred has mean 0
        messages=tuple(x for x in verdict.messages if x.code != "value-is-not-gradient"),
    )
