"""recommend: what to write for a KL penalty, each choice judged by the engine.  Untrusted.

>>> found = recommend("reverse-kl", sampling="off-policy")
>>> [choice.loss for choice in found.choices]
['rho*k3', 'rho*sg(k1)', 'sg(rho)*k2', 'rho*k1']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise, zip_longest
from typing import Any, Literal, get_args

import sympy

from klsym.engine.answers.dispatch import as_written, explain_written
from klsym.engine.answers.is_correct import DENSITIES_OF_KL, NEXT_TOKENS, is_right, prove_choice
from klsym.engine.answers.objectives import KINDS, NAMES, OF_KLS, WHICH_KL
from klsym.engine.divergences.f_divergence import differentiate_in_log_q
from klsym.engine.divergences.usual_names import find_divergence, name_kls, suggest_divergence
from klsym.engine.fields.slot_loss import build_slot_loss, has_vocabulary_sum, needs_sampler
from klsym.engine.options.choices import is_differentiated
from klsym.engine.options.option_table import Level, Sampling
from klsym.engine.options.settings import Setting, checked_setting
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import KL, Quantity, expectation
from klsym.engine.proof.sequence_quantities import sum_over_t
from klsym.engine.questions.candidates import (
    EXACT_LOSSES,
    Candidate,
    contains_reference_ratio,
    list_candidates,
    list_tempting_losses,
    load_catalogue,
)
from klsym.engine.questions.compare import compare_losses
from klsym.engine.questions.variances import Estimate, Spread, compare_variances
from klsym.engine.verdicts.verdict import Verdict
from klsym.engine.verdicts.warnings import is_attached, needs_weight_gradient
from klsym.errors import ProofError, UsageError, suggest_nearest
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import log_mu, log_p, log_q, rho, sg, unfold
from klsym.language.sums import OverVocabulary, Summed
from klsym.notation.losses import Written
from klsym.records import record

KLTarget = Literal["reverse-kl", "forward-kl", "next-token-reverse-kl", "next-token-forward-kl"]
Purpose = Literal["loss", "reward", "value"]
BOUND, MAX_WEIGHT = 10, 2  # of what is clamped, and of a weight that is truncated: as training code has them


@record
class Clamped:
    """What is left of a choice where a bound is put on it.

    loss: the choice with its bound.  target: what that targets.  inside: where the bound does not bind.
    beyond: what multiplies the score under q there, by cases, as (where, coefficient).
    """

    loss: str
    target: str | None
    inside: str | None
    beyond: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Choice:
    """A loss that is right, and what is proved of it.

    verdict: of `explain`, in the setting in which it is right.  value: the theorem that its mean is the KL,
    if it is.  kind: the number of the choices that push alike; against: how its variance compares with that
    of the choices after it (B), None for the last.  source: as of a `Candidate`.
    """

    written: Written
    verdict: Verdict
    value: Proof | None
    kind: int = 0
    against: Spread | None = None
    source: str = "catalogue"

    @property
    def loss(self) -> str:
        return self.written.text

    @property
    def setting(self) -> Setting:
        return self.verdict.setting

    @cached_property
    def element(self) -> ExpPoly:
        return _in_ring(self.written.expression)

    @property
    def fragile(self) -> bool:
        """On-policy, does it rest on the gradient of a weight whose value is 1?"""
        setting = self.setting
        return setting.on_policy and setting.is_differentiated and needs_weight_gradient(self.element)

    @property
    def attached(self) -> bool:
        """Does rho stand outside sg, so that a bound on it changes more than its value?"""
        return self.setting.is_differentiated and is_attached(self.element)

    @property
    def is_second_order(self) -> bool:
        """Near q = p, is the value of second order in log q/p, like the KL itself?"""
        return not _has_slope_at_equality(self.element)

    @property
    def needs_ratio(self) -> bool:
        """Does the value or the push hold r = p/q, which overflows before its logarithm does?"""
        pushes = () if self.setting.is_per_token or self.exact else (self.verdict.gradient.score_coefficient,)
        return any(map(contains_reference_ratio, (self.element, *pushes)))

    @property
    def has_weight(self) -> bool:
        """Does it hold rho?"""
        return bool(self.written.expression.has(rho))

    @property
    def exact(self) -> bool:
        """Is it a sum over all words, which has no noise of the word that is drawn?"""
        return has_vocabulary_sum(self.written.expression)

    @property
    def padded(self) -> bool:
        """Does something stand beside it for its value alone, as sg(k1 - k2) beside k2?"""
        parts = sympy.Add.make_args(self.written.expression)
        return any(not differentiate_in_log_q(_in_ring(part)) for part in parts if part.has(sg))

    @property
    def order(self) -> tuple[Any, ...]:
        """Among choices that push alike: exact, sturdy, plain, its value right, a quiet one, the simplest."""
        size = sum(1 for _ in sympy.preorder_traversal(self.written.expression))
        wanting = not self.exact, self.fragile, self.padded, self.value is None, not self.is_second_order
        return *wanting, size, self.needs_ratio, self.loss

    @cached_property
    def clamps(self) -> tuple[Clamped, ...]:
        """Its value clamped, and its weight truncated; none where the engine does not decide it."""
        if self.exact:
            return ()
        bounded = [f"clip({self.loss}, -{BOUND}, {BOUND})"]
        if self.has_weight and not self.setting.on_policy:
            bounded.append(self.loss.replace("rho", f"min(rho, {MAX_WEIGHT})"))
        return tuple(found for found in (_clamped(text, self.setting) for text in bounded) if found)


@record
class TemptingLoss:
    """A tempting choice that is none, and its verdict."""

    written: Written
    verdict: Verdict

    @property
    def loss(self) -> str:
        return self.written.text

    @property
    def has_weight(self) -> bool:
        """Does it hold rho?"""
        return bool(self.written.expression.has(rho))


@record
class Family:
    """What the catalogue knows of all losses with the gradient that was asked for.

    size, spellings: of the catalogue.  losses: how many have it.  constants: b of their gradients, in their
    order, which are (c + b) s at a sample, times rho off-policy.  best: the b that varies least of all where
    log r (reverse KL) or r (forward KL) lies in `where`, since b_star then lies there.
    """

    size: int
    spellings: int
    losses: int
    constants: tuple[str, ...]
    best: str
    where: tuple[str | None, str | None]


def family_of(target: str, sampling: str, use: str) -> Family:
    """All that have the gradient of a KL, in the catalogue that is stored.

    >>> found = family_of("reverse-kl", "off-policy", "loss")
    >>> found.best, found.where, len(found.constants)
    ('0', ('-1/8', '1/8'), 21)
    """
    known = load_catalogue()
    choices = known.of(sampling, use).choices[target]
    best = {"reverse-kl": "0", "forward-kl": "1"}[target]  # b_star at q = p
    [nearest] = (choice.nearest for choice in choices if choice.constant == best)
    constants = sorted((choice.constant for choice in choices), key=Fraction)
    losses = sum(choice.losses for choice in choices)
    return Family(
        known.size, known.spellings[-1], losses, constants=tuple(constants), best=best, where=nearest
    )


@dataclass(frozen=True, eq=False)
class WeightedReward:
    """What to write in a reward that the policy loss multiplies by rho, as -rho*sg(A - beta*REWARD) does.

    reward: the penalty as it stands there.  as_loss: rho*sg(reward), which is judged.
    """

    reward: str
    as_loss: Choice


@record
class Recommendation:
    """What to write for a KL penalty or its value; `klsym.render.questions.recommend` prints it.

    choices: the best first.  tried: how many candidates were judged.  wrong: what is tempting, and is not it.
    elsewhere: where no candidate is right, one that is in a neighbouring setting.
    family: all losses of the catalogue that have the gradient; None for values and tokens.
    weighted: of a reward off-policy, what to write where the policy loss multiplies the reward by rho.
    """

    target: str
    use: str
    setting: Setting
    choices: tuple[Choice, ...]
    tried: int
    wrong: tuple[TemptingLoss, ...]
    elsewhere: Choice | None = None
    family: Family | None = None
    weighted: WeightedReward | None = None


def recommend(
    target: KLTarget, sampling: Sampling = "on-policy", use: Purpose = "loss", level: Level = "sample"
) -> Recommendation:
    """What to write, the best first, each with what is proved of it; see `klsym.api.recommend`."""
    target = _read_target(target)
    if use not in get_args(Purpose):
        raise UsageError(f"use={use!r}: one of {', '.join(get_args(Purpose))} expected")
    given = "loss" if use == "value" else use
    setting = replace(checked_setting(sampling=sampling, use=given, level=level), weights="", credit="")
    if target in NEXT_TOKENS:
        if not is_differentiated(use) or setting.is_of_sequence:
            raise UsageError(f"{target}: a loss of each token is recommended: leave use and level out")
        setting = replace(setting, level="token", weights="token")
    if setting.truncated and not (is_differentiated(use) and setting.is_of_sample):
        raise UsageError(
            "sampling truncated: no sample from M*q/S lies where M = 0: choose level sample and use loss"
        )
    return _recommend_in_setting(target, use, setting)


def _read_target(target: str) -> KLTarget:
    """Return the target that a usual name means: reverse-kl of "reverse KL" and of "KL(q||p)"."""
    usual = find_divergence(str(target)) or name_kls(str(target))
    name = next((name for name in get_args(KLTarget) if name in (target, usual)), None)
    if name is None:
        raise UsageError(_describe_other_target(target))
    return name


def _describe_other_target(target: str) -> str:
    """Say for which targets there are losses."""
    answered = ", ".join(get_args(KLTarget))
    if target in (*NAMES, *KINDS):
        entropy = "; for an entropy bonus type klsym explain entropy" * ("entropy" in target)
        return f"target={target!r}: no loss is recommended for this objective, only for {answered}{entropy}"
    typed, wanted = str(target), f"target={target!r}: one of {answered} expected"
    if typed.lower() in OF_KLS:
        return f"target={target!r}: {WHICH_KL} expected"
    return wanted + (suggest_divergence(typed) or suggest_nearest(typed, get_args(KLTarget)))


@lru_cache(maxsize=256)
def _recommend_in_setting(target: str, use: str, setting: Setting) -> Recommendation:
    tried = list(list_candidates(target, setting, use))
    if setting.truncated:  # an exact sum needs no sample
        tried = [Candidate(EXACT_LOSSES[target], replace(setting, sampling="on-policy"), "exact")]
    judgements = ((one, judge_candidate(one.loss, one.setting, target, use)) for one in tried)
    ranked = _rank_choices([replace(found, source=one.source) for one, found in judgements if found], use)
    wrong = tuple(
        one
        for one in (
            _judge_tempting_loss(text, setting, target, use) for text in list_tempting_losses(setting, use)
        )
        if one
    )
    elsewhere = None if ranked or target in NEXT_TOKENS else _find_at_other_level(target, use, setting)
    alone = use != "value" and not setting.is_per_token and not setting.truncated
    family = family_of(target, setting.sampling, use) if alone else None
    return Recommendation(
        target, use, setting, ranked, tried=len(tried), wrong=wrong, elsewhere=elsewhere, family=family,
        weighted=_find_weighted(target, setting) if setting.is_reward and not setting.on_policy else None,
    )  # fmt: skip


def _find_weighted(target: str, setting: Setting) -> WeightedReward | None:
    """The first reward that is right on-policy and, times rho, as a loss of the older samples, too."""
    for choice in _recommend_in_setting(target, "reward", replace(setting, sampling="on-policy")).choices:
        as_loss = judge_candidate(
            f"rho*sg({choice.loss})", replace(setting, use="loss", credit=""), target, "loss"
        )
        if as_loss is not None:
            return WeightedReward(choice.loss, as_loss)
    return None


# ---------------------------------------------------------------------------- right or wrong
def judge_candidate(text: str, setting: Setting, target: str, use: str) -> Choice | None:
    """The loss as a choice, if the engine proves that it is one."""
    verdict, written = prove_choice(text, setting, target, use), as_written(text, ())
    if verdict is None:
        return None
    return Choice(written, verdict, None if target in NEXT_TOKENS else _prove_value(written, setting, target))


def _in_ring(expression: Any) -> ExpPoly:
    """The loss in the ring; at the first token, before which there is none, and without exact sums."""
    sums = (Summed, OverVocabulary)
    return to_ring(expression.replace(lambda e: isinstance(e, sums), lambda e: sympy.S.Zero))


def _prove_value(written: Written, setting: Setting, target: str) -> Proof | None:
    """E_m[L] = KL, if so; at the level of tokens L is summed over t."""
    if has_vocabulary_sum(written.expression):
        return None
    copied = setting.on_policy and needs_sampler(_in_ring(written.expression), setting)
    under = "mu" if copied or not setting.on_policy else "q"
    try:
        return derive(_mean(written, setting, under), on_policy=copied).equals(KL(*DENSITIES_OF_KL[target]))
    except ProofError:
        return None


def _mean(written: Written, setting: Setting, under: str) -> Quantity:
    if setting.is_per_token:
        return sum_over_t(build_slot_loss(written, replace(setting, use="loss")).expression, under)
    return replace(expectation(written.expression, under), labels={to_ring(written.expression): written})


def _judge_tempting_loss(text: str, setting: Setting, target: str, use: str) -> TemptingLoss | None:
    """A tempting loss that is not right in any placement; None if it is, or if it is beyond the engine."""
    written = as_written(text, ())
    try:
        verdict = explain_written(written, checked_setting(**setting.to_json()))
    except UsageError:
        return None
    return None if is_right(verdict, target, use) else TemptingLoss(written, verdict)


def _find_at_other_level(target: str, use: str, setting: Setting) -> Choice | None:
    """The first choice at another level, for the same use or in the reward."""
    for level in ("sequence", "sample"):
        if level != setting.level:
            found = _recommend_in_setting(target, use, replace(setting, level=level, credit="", weights=""))
            if found.choices:
                return found.choices[0]
    return None


# ---------------------------------------------------------------------------- which is better
def _rank_choices(choices: Iterable[Choice], use: str) -> tuple[Choice, ...]:
    """By the variance in the region that holds q = p, as far as that is proved; then by `Choice.order`."""
    key: Callable[[Choice], Any] = _key_by_gradient if use != "value" else lambda choice: choice.loss
    kinds: dict[Any, list[Choice]] = {}
    for choice in choices:
        kinds.setdefault(key(choice), []).append(choice)
    groups = sorted(
        (sorted(group, key=lambda c: c.order) for group in kinds.values()), key=lambda g: g[0].order
    )
    ordered: list[list[Choice]] = []
    for group in groups:  # the variances of the kinds decide, where they have an order
        place = next((i for i, other in enumerate(ordered) if _is_quieter(group[0], other[0], use)), None)
        ordered.insert(len(ordered) if place is None else place, group)
    spreads: list[Spread | None] = [_spread(a[0], b[0], use) for a, b in pairwise(ordered)]
    return tuple(
        replace(choice, kind=number, against=found)
        for number, (group, found) in enumerate(zip_longest(ordered, spreads))
        for choice in group
    )


def _key_by_gradient(choice: Choice) -> Any:
    h = choice.verdict.gradient.score_coefficient
    slots = frozenset(h.items()) if isinstance(h, Mapping) else h
    return slots, choice.setting.weights, choice.setting.credit


def _is_quieter(a: Choice, b: Choice, use: str) -> bool:
    found = _spread(a, b, use)
    return found is not None and "A" in (found.lower, found.regional_lower)


@lru_cache(maxsize=1024)
def _spread(a: Choice, b: Choice, use: str) -> Spread | None:
    """Whose variance is lower: that of the gradient, or of the value; of sums over tokens it is not known."""
    if a.setting.is_per_token or a.setting != b.setting:
        return None
    if use != "value":
        return compare_losses((a.written, b.written), a.setting).variance
    first, second = (Estimate(one.element, one.value) for one in (a, b) if one.value)
    return compare_variances(first, second, "q" if a.setting.on_policy else "mu", True, scored=False)


def _has_slope_at_equality(element: ExpPoly) -> bool:
    """Does a value change with log q/p at q = p = mu?"""
    x = sympy.Symbol("x", real=True)
    moved = to_sympy(element.rename(lambda name: name.removeprefix("sg(").removesuffix(")")))
    along = unfold(moved).xreplace({log_q: x, log_p: sympy.S.Zero, log_mu: x})
    return bool(sympy.simplify(along.diff(x).subs(x, 0)) != 0)


# ---------------------------------------------------------------------------- clamps
def _clamped(text: str, setting: Setting) -> Clamped | None:
    from klsym.notation.values import describe_conditions, show_coefficient

    try:
        verdict = explain_written(as_written(text, ()), setting)
    except UsageError:
        return None
    inside = verdict.gradient.inside_clamps
    rows = tuple((describe_conditions(on), show_coefficient(c)) for on, c in verdict.gradient.canonical_cases)
    return Clamped(text, verdict.target, inside.target if inside else None, rows)
