"""Which diagnostics apply to a verdict: each code is a condition on values.  Untrusted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import sympy

from klsym.diagnostics.codes import Code, find_code
from klsym.diagnostics.critic_bias import describe_critic_bias
from klsym.diagnostics.neighbours import (
    NEIGHBOURS,
    has_inverted_weight,
    has_other_value,
    invert_ratio,
    invert_weight,
    remove_weight,
)
from klsym.diagnostics.overflow import LIKELY, find_cancellation, find_overflows
from klsym.diagnostics.reward_signs import has_divided_reward, opposes_reward, warn_of_opposed_values
from klsym.diagnostics.truncated_weights import find_truncation
from klsym.engine.answers.dispatch import as_written, explain_written
from klsym.engine.answers.is_correct import guess_intended_target, has_right_penalties
from klsym.engine.answers.term_analysis import find_zero_regions
from klsym.engine.options.settings import Setting
from klsym.engine.regions.piecewise import PIECEWISE
from klsym.engine.targets.clamp_messages import remove_clips
from klsym.engine.targets.expected_value import find_expected_value
from klsym.engine.targets.ring import find_named_parts
from klsym.engine.verdicts.verdict import WITHOUT_NAME, ExpectedValue, Verdict
from klsym.errors import KlsymError
from klsym.language.convert import is_in_core
from klsym.language.expressions import PARAMETERS, A, R, log_mu, log_p, log_q, parameter, rho
from klsym.language.messages import Message
from klsym.language.sums import Divided, Normalised, find_word_bounds
from klsym.notation.losses import Written
from klsym.notation.values import collect_names

UNBOUNDED = Message("unbounded-below")
WITHOUT_REWARDS = {R: sympy.S.Zero, A: sympy.S.Zero}
MAX_TERMS = 12  # of a loss whose neighbours are explained
OF_WARNING = {  # codes of warnings -> the diagnostic that says them
    "missing-weight": "KL004",
    "prefixes-of-mu": "KL006", "means-at-prefixes-of-mu": "KL006",
    "wrong-sign": "KL008", "pushes-from-mu": "KL008", "score-has-a-mean": "KL011",
    "length-in-front": "KL012", "length-rewarded": "KL012", "counts-tokens": "KL012",
    "weighed-by-lengths": "KL012", "value-is-not-gradient": "KL017",
    "truncated": "KL018", "words-left-out": "KL018", "words-in-one-bucket": "KL018",
    "no-restoring-force": "KL013", "pushes-away": "KL013", "unbounded-below": "KL013",
}  # fmt: skip
SAY_THE_SAME = {"KL001", "KL002"}  # as KL017: the value is a KL, the gradient is not
IN_HEADLINE = ("vanishes", "zero-gradient", "outside-the-core", "time-is-up", "too-many-regions")
ORDER = (  # the most important first
    "KL001", "KL004", "KL008", "KL003", "KL015", "KL016", "KL005", "KL002", "KL006", "KL011", "KL013",
    "KL007", "KL010", "KL020", "KL019", "KL012", "KL018", "KL009", "KL017", "KL014",
)  # fmt: skip


@dataclass(frozen=True)
class Diagnostic:
    """A code that applies, with what is to be said of this loss."""

    code: Code
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class DiagnosedLoss:
    """A verdict with the loss it is about: what each condition looks at."""

    verdict: Verdict
    written: Written

    @property
    def setting(self) -> Setting:
        return self.verdict.setting

    @cached_property
    def intended(self) -> str | None:
        """The KL that the loss is likely to mean, if it does not descend one."""
        return guess_intended_target(self.verdict, self.written)

    @cached_property
    def value_of_penalty(self) -> ExpectedValue | None:
        """The expected value of the loss without rewards, inside the clip range, if its constant is known."""
        e = self.written.expression.xreplace(WITHOUT_REWARDS)
        free = remove_clips(e)
        try:
            value = find_expected_value(as_written(e if free is None else free, ()), self.setting)
        except KlsymError:
            return None
        return None if value.constant is None else value

    @cached_property
    def penalty(self) -> Verdict | None:
        """What the part without rewards does, if it compares q with p within bounds and is differentiated."""
        e = self.written.expression
        penalty = e.xreplace(WITHOUT_REWARDS)
        if self.setting.is_reward or not (penalty.has(log_p) and penalty.has(*PIECEWISE)):
            return None
        if penalty == e:
            return self.verdict
        try:
            return explain_written(as_written(penalty, ()), self.setting)
        except KlsymError:
            return None

    @cached_property
    def is_small(self) -> bool:
        """Has the loss few enough terms to explain its neighbours too?"""
        e = self.written.expression
        return is_in_core(e) and len(e.expand().args) <= MAX_TERMS

    def list_neighbours(self, name: str) -> list[Any]:
        """Return the losses that are one change of this kind away."""
        e = self.written.expression
        changed = [change(e) for change in NEIGHBOURS[name]]
        return [loss for loss in changed if has_other_value(loss, e)]

    def would_descend(self, loss: Any) -> bool:
        """Does the kernel prove that another loss descends KL(q||p), rewards aside?"""
        if self.setting.divides_by_std:
            return False
        try:
            parts = find_named_parts(Written("", loss), self.setting) or {}
        except KlsymError:
            return False
        named = "reverse-kl" in parts and set(parts) <= {"reverse-kl", "reward"}
        return named and prove_reverse_kl_descent(loss, self.setting) is True


def find_diagnostics(verdict: Verdict, written: Written) -> tuple[Diagnostic, ...]:
    """Return all diagnostics of a loss, the most important first."""
    messages_by_code: dict[str, list[Message]] = {}
    for message in verdict.messages:
        if message.code in OF_WARNING:
            messages_by_code.setdefault(OF_WARNING[message.code], []).append(message)
    if "KL004" in messages_by_code and _has_weighted_terms(verdict, written):
        del messages_by_code["KL004"]
    context = DiagnosedLoss(verdict, written)
    for name, check in CHECKS.items():
        if messages := [*check(context)]:
            messages_by_code[name] = [*messages, *messages_by_code.get(name, [])]
    compares = written.expression.has(log_p) and not has_divided_reward(written.expression)
    is_unnamed = verdict.target in WITHOUT_NAME
    others = messages_by_code.keys() - {"KL014", "KL017", "KL020"}
    if is_unnamed and compares and not others and not has_right_penalties(verdict):
        messages_by_code["KL013"] = [Message("other-objective")]
    if Message("reward-unbounded") in messages_by_code.get("KL005", []):  # which says the same
        messages_by_code["KL013"] = [m for m in messages_by_code.get("KL013", []) if m != UNBOUNDED]
    if any(message.values.get("kind") == "weight" for message in messages_by_code.get("KL016", [])):
        messages_by_code.pop("KL008", None)  # the sign follows from the ratio
    if messages_by_code.keys() & SAY_THE_SAME:
        messages_by_code.pop("KL017", None)
    return tuple(
        Diagnostic(find_code(name), tuple(messages_by_code[name]))
        for name in ORDER
        if messages_by_code.get(name)
    )


def _has_weighted_terms(verdict: Verdict, written: Written) -> bool:
    """Does every term that needs an importance weight have it, so that KL004 would be false?

    A term in q and mu alone, such as (log_q - log_mu)**2, needs none.  The answer is no where log_q and log_p
    of one difference are separate terms, as in log_q - log_p.
    """
    parts = sympy.Add.make_args(written.expression)
    apart = any(part.has(log_p, R, A) and not part.has(log_q) for part in parts)
    missing = (
        m for term in verdict.gradient.terms for m in term.verdict.messages if m.code == "missing-weight"
    )
    return bool(verdict.gradient.terms) and not apart and next(missing, None) is None


def select_notes(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the warnings that belong to no code."""
    return tuple(message for message in messages if message.code not in (*OF_WARNING, *IN_HEADLINE))


def is_reverse_kl_descent(verdict: Verdict | None) -> bool:
    """Is the target a positive multiple of KL(q||p), rewards aside?"""
    if verdict is None or verdict.gradient.rest:
        return False
    multiple = verdict.gradient.multiples.get("reverse-kl", "-")
    return set(verdict.gradient.multiples) <= {"reverse-kl", "reward"} and not multiple.startswith("-")


def prove_reverse_kl_descent(loss: Any, setting: Setting) -> bool | None:
    """Return whether a loss descends KL(q||p), rewards aside; None if the kernel proves neither."""
    try:
        verdict = explain_written(as_written(loss, ()), setting)
    except KlsymError:
        return None
    return is_reverse_kl_descent(verdict) if verdict.target and verdict.trust == "kernel" else None


# ---------------------------------------------------------------------------- conditions
Messages = Iterator[Message]


def check_forward_instead_of_reverse(context: DiagnosedLoss) -> Messages:
    """Find a loss that estimates KL(q||p) and descends KL(p||q), if only inside the clip range."""
    verdict, inside = context.verdict, context.verdict.gradient.inside_clamps
    if context.setting.is_reward or context.intended != "reverse-kl":
        return
    readings = [verdict.gradient, *([inside] if inside else [])]
    with_forward = next((x for x in readings if "forward-kl" in x.multiples), None)
    of_tokens = any(
        m.code == "kept" and m.values["term"].startswith("forward") for m in verdict.gradient.remarks
    )
    value = context.value_of_penalty if of_tokens or with_forward is not None else None
    if value is None or set(value.multiples) != {"reverse-kl"}:
        return
    is_clipped = with_forward is not None and with_forward is inside
    gradient = (
        {} if with_forward is None else {kl: x for kl, x in with_forward.multiples.items() if kl != "reward"}
    )
    yield Message(
        "descends-forward", value=value.multiples, constant=value.constant, gradient=gradient,
        tokens=of_tokens and with_forward is None, clipped=verdict if is_clipped else None,
        beside=context.written.expression.has(R, A),
    )  # fmt: skip


def check_neighbour(name: str) -> Callable[[DiagnosedLoss], Messages]:
    """Return the check whether the loss would descend KL(q||p) with this one change."""

    def check(context: DiagnosedLoss) -> Messages:
        if context.setting.is_reward or is_reverse_kl_descent(context.verdict) or not context.is_small:
            return
        for loss in context.list_neighbours(name):
            if context.would_descend(loss):
                shown = sympy.expand(loss) if name == "KL016" else loss  # of an inverted ratio
                yield Message("one-change-away", kind=name, of=shown)
                return

    return check


def check_inverted_ratio(context: DiagnosedLoss) -> Messages:
    """Find a loss whose value or gradient would be right with the ratio inverted."""
    yield from _find_inverted_weight(context)
    linear = context.verdict.value.target in ("reverse-kl", "forward-kl")  # k1: a matter of sign
    if linear or is_reverse_kl_descent(context.verdict) or not context.is_small or context.setting.is_reward:
        return
    yield from check_neighbour("KL016")(context)
    e = context.written.expression
    if not e.has(log_p) or context.verdict.value.is_unbiased_for("reverse-kl"):
        return
    loss = invert_ratio(e)
    if has_other_value(loss, e) and _is_reverse_kl_estimate(loss, context.setting):
        yield Message("one-change-away", kind="KL016", of=sympy.expand(loss))


def _find_inverted_weight(context: DiagnosedLoss) -> Messages:
    """Find a policy gradient with mu/q in place of q/mu, which has the other sign for that reason."""
    e, setting = context.written.expression, context.setting
    if (
        setting.is_reward
        or not e.has(R, A)
        or not has_inverted_weight(e)
        or not opposes_reward(context.verdict)
    ):
        return
    loss = invert_weight(e)
    try:
        opposite = explain_written(as_written(-loss, ()), setting)
    except KlsymError:
        return
    if opposes_reward(opposite):
        yield Message("one-change-away", kind="weight", of=loss)


def _is_reverse_kl_estimate(loss: Any, setting: Setting) -> bool:
    """Is the value of a loss an unbiased estimate of KL(q||p)?"""
    try:
        value = find_expected_value(Written("", loss), setting)
    except KlsymError:
        return False
    return value.target == "reverse-kl" and value.single and not value.constant


def check_bias_in_reward(context: DiagnosedLoss) -> Messages:
    """Find an estimator that is wrong in the reward, on-policy and without a weight too."""
    setting, e = context.setting, context.written.expression
    if (
        setting.is_differentiated
        or context.intended != "reverse-kl"
        or setting.divides_by_std
        or e.has(Normalised)
    ):
        return
    if e.has(R, A):  # the penalty of a reward alone, with the sign of a loss
        e = -e.xreplace(WITHOUT_REWARDS)
    if prove_reverse_kl_descent(remove_weight(e), Setting("on-policy", "reward")) is False:
        yield Message("no-reward-of-kl")
        if context.verdict.objective.generator is not None and UNBOUNDED in context.verdict.messages:
            yield Message("reward-unbounded")


def check_curl(context: DiagnosedLoss) -> Messages:
    if context.verdict.target == "no-objective":
        yield from describe_critic_bias(context.written.expression, context.setting)
        yield Message("has-a-curl", trust=context.verdict.trust)


def check_unused_inputs(context: DiagnosedLoss) -> Messages:
    """Find p, a reward or a coefficient that the loss contains and its gradient does not."""
    verdict, e = context.verdict, context.written.expression
    if verdict.target == "zero" or context.setting.is_centred or context.setting.is_reward:
        return
    if verdict.gradient.score_coefficient is None or e.has(Divided):  # whose reward is named H there
        return
    used = {name.partition("[")[0] for name in _collect_gradient_names(verdict)}
    names_of_inputs = {
        log_p: "p",
        R: "R",
        A: "A",
        **{parameter(name): name for name in PARAMETERS if name not in "nT"},
    }
    unused = tuple(said for x, said in names_of_inputs.items() if e.has(x) and said not in used)
    if unused:
        is_one = "eps" in unused and context.setting.on_policy and e.has(log_mu, rho)
        yield Message("not-in-gradient", of=unused, is_ratio_one=is_one)


def _collect_gradient_names(verdict: Verdict) -> set[str]:
    """Return the names in the score coefficient and in the conditions of its cases; k1 and r contain p."""
    values = [
        verdict.gradient.score_coefficient,
        *(x for on, h in verdict.gradient.score_cases for x in (h, *(c.x for c in on))),
    ]
    names_found = {name for value in values for name in collect_names(value)}
    bases = {name.partition("[")[0] for name in names_found}
    return names_found | ({"p"} if bases & {"k1", "k2", "k3", "r", "log_p"} else set())


def check_signs(context: DiagnosedLoss) -> Messages:
    """Find a reward, a reference, or a bound on the ratio, that moves samples the wrong way."""
    if not context.setting.is_reward and context.verdict.target != "zero":
        yield from warn_of_opposed_values(context.verdict)
    if (penalty := context.penalty) is None:
        return
    from klsym.diagnostics.turned_signs import find_turned_sign

    if (turn := find_turned_sign(penalty)) is not None:
        yield Message("sign-turns", where=turn.where, lasts=turn.lasts)


def check_dropped_gradient(context: DiagnosedLoss) -> Messages:
    """Find the bounds of clip, min, max or where beyond which a sample has no gradient."""
    if context.verdict.target == "zero" or context.setting.is_reward:
        return
    if words := find_word_bounds(context.written.expression):
        yield Message("clamps-words", of=words)
        return
    lost = [m for m in find_zero_regions(context.verdict) if not _is_tie(m)]
    bias = tuple(context.verdict.gradient.bias_cases)
    yield from [Message("drops", cases=bias)] if lost and bias else lost


def check_truncated_weight(context: DiagnosedLoss) -> Messages:
    """Find the bounds beyond which the score of a term has another factor, not 0: of a truncated weight."""
    if context.verdict.target == "zero" or context.setting.is_reward:
        return
    terms = [term.verdict for term in context.verdict.gradient.terms] or [context.verdict]
    for verdict in terms:
        if verdict.target != "zero" and not any(find_zero_regions(verdict)):
            yield from find_truncation(verdict)


def _is_tie(message: Message) -> bool:
    """Is the gradient zero only on a set of probability zero, as that of abs at 0?"""
    rows = message.values["where"]
    if message.code == "zero-but-where":
        signs = {(c.x, sign) for on in rows for c in on for sign in c.signs}
        return all({(x, 1), (x, -1)} <= signs for x, _ in signs)
    return all(any(tuple(c.signs) == (0,) for c in on) for on in rows)


def check_other_divergence(context: DiagnosedLoss) -> Messages:
    """Find an objective E_q[f(r)] that is neither KL."""
    verdict = context.verdict
    parts = verdict.gradient.multiples
    both = {"reverse-kl", "forward-kl"} <= set(parts)
    if verdict.objective.generator is not None and (verdict.target == "f-divergence" or both):
        yield Message("other-f")


def check_float32(context: DiagnosedLoss) -> Messages:
    """Find values that overflow or cancel in float32; of code that was run, those of its own run."""
    written = context.written
    infinities = find_overflows(written, gradient=context.setting.is_differentiated)
    if (in_run := written.in_float32) is not None:
        infinities = tuple(one for one in infinities if one.at in dict(in_run))
        of_code = tuple((at, what) for at, what in in_run if at not in {one.at for one in infinities})
        yield from [Message("overflows-in-code", found=of_code)] if of_code else []
    if infinities and written.expression.has(log_p):
        yield Message("overflows", found=infinities, of="log q - log p")
    elif infinities:
        rare = tuple(replace(overflow, at=int(LIKELY) + min(overflow.at, 0)) for overflow in infinities)
        yield Message("overflows", found=rare, of="log q")
    if in_run is None and (near := find_cancellation(written)):
        yield Message("cancels", at=near.at, value=near.value, exact=near.exact)


def check_normalised_penalty(context: DiagnosedLoss) -> Messages:
    e = context.written.expression
    inside = any(x.has(log_p) for x in e.atoms(Normalised))
    if inside or (context.setting.divides_by_std and e.has(log_p)):
        yield Message("divided-by-std")


def check_zero_gradient(context: DiagnosedLoss) -> Messages:
    if (
        context.verdict.target == "zero"
        and context.written.expression.has(log_q)
        and not context.written.is_guess
    ):
        yield Message("no-update", penalty=context.written.expression.has(log_p))


CHECKS: dict[str, Callable[[DiagnosedLoss], Messages]] = {
    "KL001": check_zero_gradient, "KL002": check_forward_instead_of_reverse,
    "KL003": check_neighbour("KL003"), "KL005": check_bias_in_reward, "KL007": check_curl,
    "KL008": check_signs, "KL009": check_unused_inputs, "KL010": check_dropped_gradient,
    "KL013": check_other_divergence, "KL014": check_float32, "KL015": check_neighbour("KL015"),
    "KL016": check_inverted_ratio, "KL019": check_normalised_penalty, "KL020": check_truncated_weight,
}  # fmt: skip
