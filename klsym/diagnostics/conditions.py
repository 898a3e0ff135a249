"""Which diagnostics apply to a verdict: each code is a condition on values.  Untrusted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy

from klsym.diagnostics.codes import Code, code
from klsym.diagnostics.neighbours import NEIGHBOURS, differ, without_weight
from klsym.diagnostics.overflow import cancellation, overflows
from klsym.diagnostics.reward_signs import opposed_reward
from klsym.engine.answers.dispatch import as_written, explained
from klsym.engine.answers.intended_target import intended_target
from klsym.engine.answers.term_analysis import dropped
from klsym.engine.options.settings import Setting
from klsym.engine.targets.clamp_messages import inside_clamps
from klsym.engine.targets.expected_value import value_of
from klsym.engine.targets.ring import named_parts
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.errors import KlsymError
from klsym.language.convert import in_core
from klsym.language.expressions import PARAMETERS, A, R, log_p, log_q, parameter
from klsym.language.messages import Message
from klsym.language.sums import Normalised, clamped_words
from klsym.notation.losses import Written
from klsym.notation.values import names

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
    "KL007", "KL010", "KL019", "KL012", "KL018", "KL009", "KL017", "KL014",
)  # fmt: skip


@dataclass(frozen=True)
class Diagnostic:
    """A code that applies, with what is to be said of this loss."""

    code: Code
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Asked:
    """A verdict with the loss it is about; what the conditions look at."""

    verdict: Verdict
    written: Written

    @property
    def setting(self) -> Setting:
        return self.verdict.setting

    @cached_property
    def intended(self) -> str | None:
        """The KL that the loss is likely to mean, where it descends none."""
        return intended_target(self.verdict, self.written)

    @cached_property
    def value_of_penalty(self) -> tuple[TargetReading, Any] | None:
        """The expected value of the loss without rewards, where no bound binds, and its constant."""
        e = self.written.expression.xreplace({R: sympy.S.Zero, A: sympy.S.Zero})
        free = inside_clamps(e)
        try:
            reading, constant = value_of(as_written(e if free is None else free, ()), self.setting)
        except KlsymError:
            return None
        return None if constant is None else (reading, constant)

    @cached_property
    def is_small(self) -> bool:
        """Is it worthwhile to explain its neighbours?"""
        e = self.written.expression
        return in_core(e) and len(e.expand().args) <= MAX_TERMS

    def would_descend(self, loss: Any) -> bool:
        """Is it proved that another loss descends KL(q||p), beside rewards?  Named terms are quick to see."""
        if self.setting.batch == "std":
            return False
        try:
            parts = named_parts(as_written(loss, ()), self.setting) or {}
        except KlsymError:
            return False
        named = "reverse-kl" in parts and set(parts) <= {"reverse-kl", "reward"}
        return named and proved_descent(loss, self.setting) is True


def diagnosed(verdict: Verdict, written: Written) -> tuple[Diagnostic, ...]:
    """All diagnostics of a loss, the most important first."""
    found: dict[str, list[Message]] = {}
    for message in verdict.messages:
        if message.code in OF_WARNING:
            found.setdefault(OF_WARNING[message.code], []).append(message)
    if "KL004" in found and _is_weighted_by_terms(verdict, written):
        del found["KL004"]
    asked = Asked(verdict, written)
    for name, check in CHECKS.items():
        if messages := [*check(asked)]:
            found[name] = [*messages, *found.get(name, [])]
    if (
        verdict.target == "separable"
        and not found.keys() - {"KL014", "KL017"}
        and written.expression.has(log_p)
    ):
        found["KL013"] = [Message("other-objective")]
    if found.keys() & SAY_THE_SAME:
        found.pop("KL017", None)
    return tuple(Diagnostic(code(name), tuple(found[name])) for name in ORDER if name in found)


def _is_weighted_by_terms(verdict: Verdict, written: Written) -> bool:
    """Has each term its weight that speaks of more than q and mu, beside others such as (log_q - log_mu)**2?

    log_q - log_p is no sum of a term of q and one of p.
    """
    parts = sympy.Add.make_args(written.expression)
    apart = any(part.has(log_p, R, A) and not part.has(log_q) for part in parts)
    missing = (m for term in verdict.terms for m in term.verdict.messages if m.code == "missing-weight")
    return bool(verdict.terms) and not apart and next(missing, None) is None


def notes(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The warnings that belong to no code."""
    return tuple(message for message in messages if message.code not in (*OF_WARNING, *IN_HEADLINE))


def descends_reverse(verdict: Verdict | None) -> bool:
    """Is the target a positive multiple of KL(q||p), beside rewards?"""
    if verdict is None or verdict.gradient.rest:
        return False
    multiple = verdict.gradient.multiples.get("reverse-kl", "-")
    return set(verdict.gradient.multiples) <= {"reverse-kl", "reward"} and not multiple.startswith("-")


def proved_descent(loss: Any, setting: Setting) -> bool | None:
    """Does a loss descend KL(q||p), beside rewards?  None where the kernel proves neither."""
    try:
        verdict = explained(as_written(loss, ()), setting)
    except KlsymError:
        return None
    return descends_reverse(verdict) if verdict.target and verdict.trust == "kernel" else None


# ---------------------------------------------------------------------------- conditions
Found = Iterator[Message]


def forward_not_reverse(asked: Asked) -> Found:
    """The forward KL, in the gradient or where no bound binds, of a loss that estimates the reverse one."""
    verdict, inside = asked.verdict, asked.verdict.inside_clamps
    if asked.setting.use == "reward" or asked.intended != "reverse-kl":
        return
    readings = [verdict.gradient, *([inside] if inside else [])]
    found = next((x for x in readings if "forward-kl" in x.multiples), None)
    of_tokens = any(m.code == "kept" and m.values["term"].startswith("forward") for m in verdict.remarks)
    value = asked.value_of_penalty if of_tokens or found is not None else None
    if value is None or set(value[0].multiples) != {"reverse-kl"}:
        return
    bounded = found is not None and found is inside
    gradient = {} if found is None else {kl: x for kl, x in found.multiples.items() if kl != "reward"}
    yield Message(
        "descends-forward", value=value[0].multiples, constant=value[1], gradient=gradient,
        tokens=of_tokens and found is None, bounded=bounded, beside=asked.written.expression.has(R, A),
    )  # fmt: skip


def neighbour(name: str) -> Callable[[Asked], Found]:
    """Would the loss descend KL(q||p) with this one change?"""

    def check(asked: Asked) -> Found:
        if asked.setting.use == "reward" or descends_reverse(asked.verdict) or not asked.is_small:
            return
        for change in NEIGHBOURS[name]:
            loss = change(asked.written.expression)
            if differ(loss, asked.written.expression) and asked.would_descend(loss):
                yield Message("one-change-away", kind=name, of=loss)
                return

    return check


def upside_down(asked: Asked) -> Found:
    """Would the value be KL(q||p), or the gradient its gradient, with the ratio the other way round?"""
    linear = asked.verdict.value.target in ("reverse-kl", "forward-kl")  # a multiple of k1: a matter of sign
    if linear or descends_reverse(asked.verdict) or not asked.is_small or asked.setting.use == "reward":
        return
    yield from neighbour("KL016")(asked)
    change = NEIGHBOURS["KL016"][0]
    loss = change(asked.written.expression)
    wrong = asked.written.expression.has(log_p) and not asked.verdict.unbiased_for("reverse-kl")
    if wrong and differ(loss, asked.written.expression) and _estimates_reverse(loss, asked.setting):
        yield Message("one-change-away", kind="KL016", of=loss)


def _estimates_reverse(loss: Any, setting: Setting) -> bool:
    """Is the value of a loss an unbiased estimate of KL(q||p)?"""
    try:
        value, constant = value_of(as_written(loss, ()), setting)
    except KlsymError:
        return False
    return value.target == "reverse-kl" and value.single and not constant


def biased_in_reward(asked: Asked) -> Found:
    """The estimator is at fault, not the weight: wrong also on-policy without a weight."""
    setting, e = asked.setting, asked.written.expression
    if (
        setting.use != "reward"
        or asked.intended != "reverse-kl"
        or setting.batch == "std"
        or e.has(Normalised)
    ):
        return
    if e.has(R, A):  # the penalty of a reward alone, with the sign of a loss
        e = -e.xreplace({R: sympy.S.Zero, A: sympy.S.Zero})
    if proved_descent(without_weight(e), Setting("on-policy", "reward")) is False:
        yield Message("no-reward-of-kl")


def no_objective(asked: Asked) -> Found:
    if asked.verdict.target == "none":
        yield Message("has-a-curl", trust=asked.verdict.trust)


def unused_input(asked: Asked) -> Found:
    """p, a reward, or a coefficient that the gradient does not hold."""
    verdict, e = asked.verdict, asked.written.expression
    if verdict.target == "zero" or asked.setting.batch != "none" or asked.setting.use == "reward":
        return
    if verdict.h is None:
        return
    used = {name.partition("[")[0] for name in _in_gradient(verdict)}
    held = {log_p: "p", R: "R", A: "A", **{parameter(name): name for name in PARAMETERS if name not in "nT"}}
    unused = tuple(said for x, said in held.items() if e.has(x) and said not in used)
    if unused:
        yield Message("not-in-gradient", of=unused)


def _in_gradient(verdict: Verdict) -> set[str]:
    """Names in what multiplies the score, and in the conditions on which that depends; k1 and r hold p."""
    values = [verdict.h, *(x for on, h in verdict.per_sample_cases for x in (h, *(c.x for c in on)))]
    found = {name for value in values for name in names(value)}
    bases = {name.partition("[")[0] for name in found}
    return found | ({"p"} if bases & {"k1", "k2", "k3", "r", "log_p"} else set())


def rewards_opposed(asked: Asked) -> Found:
    """Where no objective that is named says it: each sample is pushed against its reward."""
    lowered = any(
        kind.startswith("lowers")
        for message in asked.verdict.messages if message.code in ("wrong-sign", "pushes-from-mu")
        for (kind, _), _ in message.values["does"]
    )  # fmt: skip
    if asked.setting.use == "reward" or asked.verdict.target == "zero" or lowered:
        return
    if (reward := opposed_reward(asked.verdict)) is not None:
        yield Message("against-reward", of=reward)


def clamp_drops(asked: Asked) -> Found:
    """A bound of clip, min, max or where beyond which a sample has no gradient."""
    if asked.verdict.target == "zero" or asked.setting.use == "reward":
        return
    if words := clamped_words(asked.written.expression):
        yield Message("clamps-words", of=words)
        return
    lost = [m for m in dropped(asked.verdict) if not _is_tie(m)]
    bias = tuple(asked.verdict.bias_cases)
    yield from [Message("drops", cases=bias)] if lost and bias else lost


def _is_tie(message: Message) -> bool:
    """Is the gradient zero on a set without probability alone, as that of abs at 0?"""
    rows = message.values["where"]
    if message.code == "zero-but-where":
        signs = {(c.x, sign) for on in rows for c in on for sign in c.signs}
        return all({(x, 1), (x, -1)} <= signs for x, _ in signs)
    return all(any(tuple(c.signs) == (0,) for c in on) for on in rows)


def other_divergence(asked: Asked) -> Found:
    """E_q[f(r)] with an f of neither KL."""
    verdict = asked.verdict
    parts = verdict.gradient.multiples
    both = {"reverse-kl", "forward-kl"} <= set(parts)
    if verdict.generated is not None and (verdict.target == "f-divergence" or both):
        yield Message("other-f")


def overflow(asked: Asked) -> Found:
    """Find values that overflow or cancel in float32; of code that was run, those of its own run."""
    written = asked.written
    found = overflows(written, gradient=asked.setting.use == "loss")
    if (seen := written.in_float32) is not None:
        found = tuple(one for one in found if one.at in dict(seen))
        of_code = tuple((at, what) for at, what in seen if at not in {one.at for one in found})
        yield from [Message("overflows-in-code", found=of_code)] if of_code else []
    if found:
        yield Message("overflows", found=found)
    if seen is None and (near := cancellation(written)):
        yield Message("cancels", at=near.at, value=near.value, exact=near.exact)


def normalised_penalty(asked: Asked) -> Found:
    e = asked.written.expression
    inside = any(x.has(log_p) for x in e.atoms(Normalised))
    if inside or (asked.setting.batch == "std" and e.has(log_p)):
        yield Message("divided-by-std")


def zero_gradient(asked: Asked) -> Found:
    if asked.verdict.target == "zero" and asked.written.expression.has(log_q) and not asked.written.is_guess:
        yield Message("no-update", penalty=asked.written.expression.has(log_p))


CHECKS: dict[str, Callable[[Asked], Found]] = {
    "KL001": zero_gradient, "KL002": forward_not_reverse, "KL003": neighbour("KL003"),
    "KL005": biased_in_reward,
    "KL007": no_objective, "KL008": rewards_opposed, "KL009": unused_input, "KL010": clamp_drops,
    "KL013": other_divergence, "KL014": overflow, "KL015": neighbour("KL015"), "KL016": upside_down,
    "KL019": normalised_penalty,
}  # fmt: skip
