"""explain for functions of exact means over one outcome, L(x, F) with F_i = full(x_i).  Untrusted.

F is the same at every outcome that is drawn, and moves with theta:

    E_m[grad L] = E_m[(grad L)(x, F held)] + sum_i E_m[dL/dF_i] grad F_i,    grad F_i = E_m[grad(rho x_i)]

At one theta the values F_i and E_m[dL/dF_i] are numbers h_j.  So it is the expected gradient of the sampled
loss L(x, h) + sum_i h_i rho x_i, which is explained for every value of the h_j, and so for these.  The mean
of dL/dF_i over the outcome drawn is an exact mean, too: E_m[c] = full(c/rho).

Along a sequence the h_j are functions of the prefix, which no parameter is: there this is refused.

Exact means times what is drawn, at each token: L_t(y, F) with F_i = full(x_i).  Untrusted.

    grad L_t = (grad L_t)(y, F held) + sum_i dL_t/dF_i full((x_i + dx_i/dlog q) s)

No loss of one token drawn has this expected gradient: what multiplies F is drawn beside it.  If tokens come
from mu and nothing is detached, sum_t L_t is a function of theta at each sequence, and mu does not move:
E_mu[sum_t grad L_t] = grad E_mu[sum_t L_t].  Otherwise numbers tell whether the field has a curl.

Where such a coefficient is not that of the reverse KL, a model shows it, to 15 decimals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import mpmath
import sympy
from sympy import S

from klsym.engine.fields.field import collect_score_coefficients
from klsym.engine.fields.position_sums import simplify_sum
from klsym.engine.fields.slot_loss import CRITIC, build_slot_loss
from klsym.engine.options.choices import is_differentiated, is_reward
from klsym.engine.options.settings import Setting
from klsym.engine.outside.as_typed import (
    Explained,
    add_first_step,
    as_typed,
    build_mean_formula,
    build_slope,
    show_mean,
    substitute_policy,
)
from klsym.engine.outside.exact_mean_curl import find_curl_of_means
from klsym.engine.outside.named_means import prove_objective
from klsym.engine.outside.vocabulary_means import INSIDE, RANDOM, write_loss
from klsym.engine.proof.counterexamples import describe_model, generate_models
from klsym.engine.proof.derivation import derive
from klsym.engine.proof.sequence_quantities import token_gradient
from klsym.engine.regions.in_steps import to_steps
from klsym.engine.targets.ring_notes import collect_assumptions
from klsym.engine.verdicts.verdict import (
    Counterexample,
    ExpectedValue,
    TargetReading,
    Verdict,
    build_open_verdict,
)
from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context
from klsym.language.convert import is_in_core, to_sympy
from klsym.language.expressions import (
    DENSITIES,
    REWARDS,
    A,
    M,
    Slot,
    k1,
    log_mu,
    now,
    parameter,
    remove_sg,
    rho,
    s,
    sg,
)
from klsym.language.messages import Message
from klsym.language.sums import Before, OverBatch, OverVocabulary, Summed, Whole, is_mass
from klsym.language.unfolding import simplify_model
from klsym.notation import losses
from klsym.notation.coefficients import find_common_factor
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.tree import Gradient
from klsym.notation.values import collect_names
from klsym.worlds.draw import add_rows
from klsym.worlds.losses import LossWorld

DIGITS, APART = 40, 1e-9  # by which two sides differ, of the larger one


def find_counterexample(c: Any, on_policy: bool, refuted: str) -> dict[str, Any] | None:
    """Return a model in which E_q[c s] is not grad KL(q||p), as it is printed."""
    free = sorted(c.free_symbols - {*DENSITIES, *REWARDS}, key=str)
    for tried in generate_models(Context(parameters=tuple(map(str, free))), on_policy, []):
        model = add_rows(tried, {"o", "M"})
        with mpmath.workdps(DIGITS):
            world = LossWorld.from_model(model, on_policy)
            try:
                left, right = (world.compute_score_mean(e) for e in (c, k1))
            except (ArithmeticError, ValueError):  # no real value, or an exponent beyond what is computed
                continue
        if abs(left - right) > APART * max(abs(left), abs(right)):
            used = {str(x) for x in c.free_symbols} | (set() if on_policy else {"w"})
            used |= {"o"} if "rho_old" in used or "log_old" in used else set()
            first, second = ([mpmath.nstr(x, 15)] * 2 for x in (left, right))
            return describe_model(refuted, model=simplify_model(model), left=first, right=second, used=used)
    return None


DRAWN = RANDOM - {parameter("T")}
OUTSIDE = (
    "of exact means and of what is drawn, only sums of products of the two are handled, and of what is drawn"
    " exponential polynomials (log ratios, rewards and powers of r and rho)"
)
IN_PRODUCT = "full(..) multiplies what is drawn, whose mean over a batch is not handled: add it instead"
HELD_RULE = "exact means held"


@dataclass(frozen=True)
class FixedMeans:
    """L(x, h) + sum_i h_i rho x_i, and what each h is.

    loss: L(x, h).  moving: pairs (h_i, x_i).  names: h -> its value, a function of exact means.
    pushes: pairs (dL/dF_i at one outcome, x_i), of which h_i is the mean.
    """

    loss: Any
    moving: tuple[tuple[Any, Any], ...]
    names: dict[Any, Any]
    pushes: tuple[tuple[Any, Any], ...] = ()

    def build_sampled_loss(self, centred: bool) -> Any:
        """Return the sampled loss; centred: without terms that all samples of a batch share."""
        terms = sympy.Add.make_args(sympy.expand_mul(self.loss))
        drawn = sympy.Add(*(x for x in terms if x.free_symbols & DRAWN)) if centred else self.loss
        return drawn + sympy.Add(*(h * rho * x for h, x in self.moving))


def fix_means(loss: Any, on_policy: bool, use: str = "loss") -> FixedMeans:
    """Return the loss with its exact means, and the means of what multiplies their gradients, as numbers.

    >>> from klsym.language.expressions import k1, k3
    >>> found = fix_means(OverVocabulary(k1)**2, True)
    >>> found.moving, found.names
    (((h1, k1),), {h1: 2*full(k1)})
    """
    sums = sorted(loss.atoms(OverVocabulary), key=str)
    dummies, still = ({exact_mean: sympy.Dummy(real=True) for exact_mean in sums} for _ in range(2))
    back = {dummy: exact_mean for table in (dummies, still) for exact_mean, dummy in table.items()}
    opened = loss.replace(lambda e: isinstance(e, sg), lambda e: e.xreplace(still)).xreplace(dummies)
    names: dict[Any, Any] = {}

    def name_number(value: Any) -> Any:
        value = substitute_policy(value) if on_policy else value
        if not value.atoms(OverVocabulary) or value in names.values():
            return next((h for h, exact_mean in names.items() if exact_mean == value), value)
        used_names = {x.name for x in loss.free_symbols} | {h.name for h in names}
        fresh = next(n for i in range(1, 1000) if (n := f"h{i}") not in used_names)
        names[parameter(fresh)] = value
        return parameter(fresh)

    moving, pushes = [], []
    for exact_mean, dummy in dummies.items() if is_differentiated(use) else ():
        push = sympy.diff(opened, dummy)
        slope = _take_mean(push, back, on_policy).xreplace(back)
        if slope != 0:
            moving.append((name_number(slope), exact_mean.args[0]))
        if push != 0:
            value = remove_sg(push).xreplace(back)
            pushes.append((substitute_policy(value) if on_policy else value, exact_mean.args[0]))
    drawn = opened.free_symbols & DRAWN or is_reward(use)
    values = {d: name_number(exact_mean) for d, exact_mean in back.items() if drawn and opened.has(d)}
    return FixedMeans(opened.xreplace(values) if drawn else sympy.S.Zero, tuple(moving), names, tuple(pushes))


def _take_mean(c: Any, sums: dict[Any, Any], on_policy: bool) -> Any:
    """Return E_m[c], where the exact means in it are numbers."""
    total = sympy.S.Zero
    for term in sympy.Add.make_args(sympy.expand_mul(c)):
        drawn = sympy.Mul(*(f for f in sympy.Mul.make_args(term) if f.free_symbols & DRAWN))
        if drawn.free_symbols & {*sums}:
            raise UsageError(f"{losses.show(drawn.xreplace(sums), TEXT)[:60]!r}: {OUTSIDE}")
        expression = remove_sg(drawn if on_policy else drawn / rho)
        total += term / drawn * (OverVocabulary(expression) if drawn != 1 else 1)
    return total


def explain_functions(written: Written, setting: Setting, explained: Explained) -> Verdict:
    """Return the verdict on the sampled loss, with the values of its numbers h put in."""
    loss = written.expression
    means = fix_means(loss, setting.on_policy, setting.use)
    sampled = means.build_sampled_loss(centred=setting.is_centred)
    in_batch = setting.is_centred or bool(loss.atoms(OverBatch))
    if not (is_in_core(sampled) or loss.atoms(OverBatch)):
        raise UsageError(f"{written.text[:60]!r}: {OUTSIDE}")
    inner = explained(write_loss(sampled), setting)
    has_numbers = _has_numbers(inner, means)
    if has_numbers and in_batch:
        raise UsageError(f"{written.text[:60]!r}: {IN_PRODUCT}")
    h = inner.gradient.score_coefficient if in_batch else _build_per_sample(means, setting, explained)
    verdict = as_typed(
        inner,
        written,
        score_coefficient=h,
        value=ExpectedValue(),
        assumptions=(_describe_reading(sampled, means), *inner.assumptions),
    )
    if has_numbers:
        return _put_numbers_in(verdict, written, setting, means)
    is_scored = not in_batch and setting.is_differentiated and h != 0
    return verdict.revise(
        scores_named=(is_scored, inner.gradient.scores_named[1]),
        remarks=(*inner.gradient.remarks, *([Message("one-number")] if setting.is_reward else [])),
    )


def _put_numbers_in(verdict: Verdict, written: Written, setting: Setting, means: FixedMeans) -> Verdict:
    """Return the verdict with the values of the numbers h, and the objective if it is the mean."""
    loss, zero = written.expression, verdict.target == "zero"
    c = _substitute_numbers(verdict.gradient.canonical_coefficient, means)
    steps = add_first_step(written, setting, HELD_RULE, verdict.proof.steps)
    witness = find_counterexample(c, setting.on_policy, f"{steps[0][1]} = grad KL(q||p)")
    is_known = not zero and _is_gradient_of_mean(loss, means, setting) and witness is not None
    proof = prove_objective(loss, setting.on_policy) if is_known else None
    proofs, mean = () if proof is None else (proof,), build_mean_formula(loss, setting) if is_known else None
    hypotheses = (*collect_assumptions(proofs), *_list_hypotheses(loss, is_proved=proof is not None))
    return verdict.revise(
        scores_named=(setting.is_differentiated, False),
        canonical_coefficient=c,
        gradient=verdict.gradient if zero else TargetReading("objective" if is_known else None),
        in_quantities=None if mean is None else Gradient(mean),
        formula=mean,
        assumptions=tuple(dict.fromkeys((*verdict.assumptions, *hypotheses))),
        trust=verdict.trust if zero or proof is not None else "sympy",
        steps=steps,
        remarks=tuple(_list_remarks(means, is_known or zero)),
        theorems=(*verdict.proof.theorems[:1], *proofs),
        counterexample=Counterexample(witness), quantity=None, generator=None, convexity=None, penalty=None,
        inside_clamps=None, terms=(), messages=tuple(_list_messages(c, zero, written, setting)),
    )  # fmt: skip


def _list_remarks(means: FixedMeans, decided: bool) -> Iterator[Message]:
    if means.loss == 0:
        yield Message("no-variance")
    if not decided:
        yield Message("open-held-means")


def _has_numbers(inner: Verdict, means: FixedMeans) -> bool:
    """Does the expected gradient of the sampled loss depend on the numbers h?"""
    values = (inner.gradient.canonical_coefficient, inner.gradient.parts, inner.gradient.rest)
    return not {h.name for h in means.names}.isdisjoint(
        name for value in values for name in collect_names(value)
    )


def _substitute_numbers(value: Any, means: FixedMeans) -> Any:
    """Replace the numbers h by their values; a common factor of all terms is kept in front."""
    if isinstance(value, ExpPoly):
        shared, remainder = find_common_factor(value) or (((), ()), value)
        value = to_sympy(ExpPoly({shared: 1})) * to_sympy(remainder)
    return value.xreplace(means.names)


def _is_gradient_of_mean(loss: Any, means: FixedMeans, setting: Setting) -> bool:
    """Is the expected gradient grad E_m[L]?  Yes if nothing is detached, and on-policy nothing is drawn.

    On-policy the distribution of what is drawn depends on theta.
    """
    detached = setting.is_reward or loss.atoms(sg) or (setting.on_policy and loss.has(rho, log_mu))
    return not detached and (not setting.on_policy or means.loss == 0)


def _build_per_sample(means: FixedMeans, setting: Setting, explained: Explained) -> Any:
    """Return h: L(x, h) times the score of the outcome, and each exact mean with the scores of all."""
    total = sympy.S.Zero
    if means.loss != 0:
        sample_part = explained(write_loss(means.loss), setting).gradient.score_coefficient
        total += _substitute_numbers(sample_part, means) * (s if setting.is_differentiated else 1)
    for push, x in means.pushes:
        slope = build_slope(x)
        total += push * (OverVocabulary(slope * s) if slope.free_symbols & DRAWN else 0)  # full(s) = 0
    return total


def _describe_reading(sampled: Any, means: FixedMeans) -> Message:
    return Message("full-over-outcomes", of=sampled, numbers=tuple(means.names.items()))


def _list_hypotheses(loss: Any, is_proved: bool) -> Iterator[Message]:
    """Yield the hypotheses on exact means whose inverse or logarithm is taken; a proof says what is not 0."""
    divided = (e.base for e in loss.atoms(sympy.Pow) if e.exp.could_extract_minus_sign())
    for element in sorted({*divided, *(e.args[0] for e in loss.atoms(sympy.log))}, key=str):
        if element.atoms(OverVocabulary) and not is_proved:
            yield Message("nonzero", of=losses.show(element, TEXT))
        if is_mass(element) and not isinstance(element, OverVocabulary):
            yield Message("mass", of=losses.show(1 - element, TEXT))


def _list_messages(c: Any, zero: bool, written: Written, setting: Setting) -> Iterator[Message]:
    """Yield what is to be known of a loss with the coefficient c: also what it is where M is 0."""
    if zero:
        yield Message("zero-gradient", loss=written.text, setting=setting)
    if c.has(M):
        held = {exact_mean: sympy.Dummy(real=True) for exact_mean in c.atoms(OverVocabulary)}
        left_out = sympy.expand(c.xreplace(held).xreplace({M: S.Zero}))
        in_a_bucket = any(_is_mass_of_rest(log.args[0]) for log in written.expression.atoms(sympy.log))
        if not left_out.free_symbols & DRAWN:
            yield Message("words-in-one-bucket" if in_a_bucket or left_out != 0 else "words-left-out")


def _is_mass_of_rest(x: Any) -> bool:
    """Is it the mass of all words with M = 0?"""
    if isinstance(x, OverVocabulary):
        return bool(x.args[0].xreplace({M: sympy.S.One}) == 0)
    return is_mass(x)


def is_product(written: Written, setting: Setting) -> bool:
    """Is it a loss of tokens in which full(..) stands outside of sums over tokens?"""
    within = any(of.has(OverVocabulary) for of in written.expression.atoms(Summed))
    return setting.is_per_token and setting.is_differentiated and not within


def explain_products(written: Written, typed: Written, setting: Setting) -> Verdict:
    """Return the gradient at each token, and the objective if the sampler does not depend on theta.

    typed: the loss with the weights of its options.
    """
    loss = typed.expression
    for exact_mean in sorted(loss.atoms(OverVocabulary), key=str):
        if exact_mean.args[0].atoms(Summed):
            raise UsageError(f"{losses.show(exact_mean, TEXT)[:60]!r} is {INSIDE}")
    pushes = _build_gradient(loss, setting)
    verdict = build_open_verdict(written, setting, Message("open-held-means"), pushes)
    verdict = verdict.revise(messages=(), remarks=verdict.messages, scores_named=(True, True))
    at_mu = Message("means-at-prefixes-of-mu")
    prefix_messages = () if setting.on_policy or loss.has(Before, Whole) else (at_mu,)
    outside = Message("outside-the-core", trust="sympy")
    if pushes == 0:
        messages = (outside, Message("vanishes", loss=written.text))
        return verdict.revise(gradient=TargetReading("zero"), trust="sympy", remarks=(), messages=messages)
    if setting.on_policy or loss.atoms(sg):
        return _refute_objective(verdict.revise(messages=prefix_messages), loss, setting)
    return verdict.revise(
        gradient=TargetReading("objective"),
        trust="sympy",
        in_quantities=Gradient(build_mean_formula(_write_at_now(loss), setting)),
        formula=build_mean_formula(_write_at_now(loss), setting),
        assumptions=(Message("exchange-mean", under="mu"),),
        remarks=(),
        messages=(outside, *prefix_messages),
    )


def _refute_objective(verdict: Verdict, loss: Any, setting: Setting) -> Verdict:
    """Return the verdict that there is no objective, if numbers show a curl on a tree; else it stays open."""
    start = show_mean(_write_at_now(loss), setting, TEXT, gradient=True)
    witness = find_curl_of_means(loss, setting.on_policy, start)
    if witness is None:
        return verdict
    return verdict.revise(
        gradient=TargetReading("no-objective"),
        trust="numeric",
        counterexample=Counterexample(witness),
        remarks=(),
        messages=(Message("outside-the-core", trust="numeric"), *verdict.messages),
    )


def _build_gradient(loss: Any, setting: Setting) -> Any:
    """Return the gradient at a token: its scores, and each exact mean with the scores of all words."""
    sums = sorted(loss.atoms(OverVocabulary), key=str)
    moving, still = (
        {exact_mean: _choose_free_parameter(loss, f"h{i}{end}") for i, exact_mean in enumerate(sums)}
        for end in ("", "s")
    )
    back = {name: exact_mean for table in (moving, still) for exact_mean, name in table.items()}
    opened = loss.replace(lambda e: isinstance(e, sg), lambda e: e.xreplace(still)).xreplace(moving)
    at_token = build_slot_loss(Written("", opened), replace(setting, credit=""))
    under = "q" if setting.on_policy else "mu"
    defined = at_token.defined
    start = derive(token_gradient(at_token.expression, under), on_policy=setting.on_policy, defined=defined)
    slots, total = collect_score_coefficients(start.differentiate()), S.Zero
    for slot, c in slots.items():
        total += _multiply_by_score(to_steps(c, defined, True), slot).xreplace(back)
    for exact_mean, name in moving.items():
        push, slope = remove_sg(sympy.diff(opened, name)), build_slope(exact_mean.args[0])
        push = substitute_policy(push) if setting.on_policy else push
        if slope.free_symbols & RANDOM:  # full(s) = 0
            total += _write_at_now(push).xreplace(back) * OverVocabulary(slope * s)
    return total


def _choose_free_parameter(loss: Any, name: str) -> Any:
    """Return a parameter that does not occur in the loss."""
    used_names = {x.name for x in loss.free_symbols}
    return parameter(next(x for i in range(1000) if (x := f"{name}{i or ''}") not in used_names))


def _multiply_by_score(c: Any, slot: str) -> Any:
    return c * (s if slot == "x" else Slot(slot)(s))


def _write_at_now(e: Any) -> Any:
    """Write bare names, which in an answer are of the whole sequence, in the slot `now`; A is such a name."""
    dummies = {full_mean: sympy.Dummy(real=True) for full_mean in e.atoms(OverVocabulary)}
    e = now(e.xreplace(dummies)).xreplace({now(x): value for x, value in (CRITIC | {A: A}).items()})
    e = e.replace(lambda x: isinstance(x, Summed), lambda x: simplify_sum(x) if x.args[0] != 0 else S.Zero)
    return e.xreplace({dummy: full_mean for full_mean, dummy in dummies.items()})
