"""explain for functions of exact means over one outcome, L(x, F) with F_i = full(x_i).  Untrusted.

F is the same at every outcome that is drawn, and moves with theta:

    E_m[grad L] = E_m[(grad L)(x, F held)] + sum_i E_m[dL/dF_i] grad F_i,    grad F_i = E_m[grad(rho x_i)]

At one theta the values F_i and E_m[dL/dF_i] are numbers h_j.  So it is the expected gradient of the sampled
loss L(x, h) + sum_i h_i rho x_i, which is explained for every value of the h_j, and so for these.  The mean
of dL/dF_i over the outcome drawn is an exact mean, too: E_m[c] = full(c/rho).

Along a sequence the h_j are functions of the prefix, which no parameter is: there this is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sympy

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
from klsym.engine.outside.means_counterexample import find_counterexample
from klsym.engine.outside.vocabulary_means import RANDOM, write_loss
from klsym.engine.verdicts.verdict import Counterexample, ExpectedValue, TargetReading, Verdict
from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import is_in_core, to_sympy
from klsym.language.expressions import M, log_mu, parameter, remove_sg, rho, s, sg
from klsym.language.messages import Message
from klsym.language.sums import OverBatch, OverVocabulary, is_mass
from klsym.notation import losses
from klsym.notation.coefficients import find_common_factor
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.values import collect_names

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
        if not value.atoms(OverVocabulary) or value in names.values():
            return next((h for h, exact_mean in names.items() if exact_mean == value), value)
        used_names = {x.name for x in loss.free_symbols} | {h.name for h in names}
        fresh = next(n for i in range(1, 1000) if (n := f"h{i}") not in used_names)
        names[parameter(fresh)] = value
        return parameter(fresh)

    moving, pushes = [], []
    for exact_mean, dummy in dummies.items() if use == "loss" else ():
        push = sympy.diff(opened, dummy)
        slope = _take_mean(push, back, on_policy).xreplace(back)
        if slope != 0:
            moving.append((name_number(slope), exact_mean.args[0]))
        if push != 0:
            value = remove_sg(push).xreplace(back)
            pushes.append((substitute_policy(value) if on_policy else value, exact_mean.args[0]))
    drawn = opened.free_symbols & DRAWN or use == "reward"
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
    sampled = means.build_sampled_loss(centred=setting.batch != "none")
    if not (is_in_core(sampled) or loss.atoms(OverBatch)):
        raise UsageError(f"{written.text[:60]!r}: {OUTSIDE}")
    inner = explained(write_loss(sampled), setting)
    if not _has_numbers(inner, means):
        return as_typed(
            inner,
            written,
            value=ExpectedValue(),
            assumptions=(_describe_reading(sampled, means), *inner.assumptions),
            remarks=(*inner.gradient.remarks, *([Message("one-number")] if setting.use == "reward" else [])),
        )
    if setting.batch != "none" or loss.atoms(OverBatch):
        raise UsageError(f"{written.text[:60]!r}: {IN_PRODUCT}")
    c = _substitute_numbers(inner.gradient.canonical_coefficient, means)
    steps, zero = add_first_step(written, setting, HELD_RULE, inner.proof.steps), inner.target == "zero"
    witness = find_counterexample(c, setting.on_policy, f"{steps[0][1]} = grad KL(q||p)")
    known = not zero and _is_gradient_of_mean(loss, means, setting) and witness is not None
    return as_typed(
        inner,
        written,
        score_coefficient=_build_per_sample(means, setting, explained),
        scores_named=(setting.use == "loss", False),
        canonical_coefficient=c,
        gradient=inner.gradient if zero else TargetReading("separable" if known else None),
        value=ExpectedValue(),
        in_quantities=f"grad {show_mean(loss, setting, TEXT)}" if known else "",
        formula=build_mean_formula(loss, setting) if known else None,
        assumptions=(_describe_reading(sampled, means), *inner.assumptions, *_list_hypotheses(loss)),
        trust=inner.trust if zero else "sympy",
        steps=steps,
        remarks=tuple(_list_remarks(means, known or zero)),
        theorems=inner.proof.theorems[:1],
        counterexample=Counterexample(witness), quantity=None, generator=None, convexity=None, penalty=None,
        inside_clamps=None, terms=(), messages=tuple(_list_messages(loss, zero, written, setting)),
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
    detached = setting.use == "reward" or loss.atoms(sg) or (setting.on_policy and loss.has(rho, log_mu))
    return not detached and (not setting.on_policy or means.loss == 0)


def _build_per_sample(means: FixedMeans, setting: Setting, explained: Explained) -> Any:
    """Return h: L(x, h) times the score of the outcome, and each exact mean with the scores of all."""
    total = sympy.S.Zero
    if means.loss != 0:
        sample_part = explained(write_loss(means.loss), setting).gradient.score_coefficient
        total += _substitute_numbers(sample_part, means) * (s if setting.use == "loss" else 1)
    for push, x in means.pushes:
        slope = build_slope(x)
        total += push * (OverVocabulary(slope * s) if slope.free_symbols & DRAWN else 0)  # full(s) = 0
    return total


def _describe_reading(sampled: Any, means: FixedMeans) -> Message:
    return Message("full-over-outcomes", of=sampled, numbers=tuple(means.names.items()))


def _list_hypotheses(loss: Any) -> Iterator[Message]:
    """Yield the hypotheses on exact means whose inverse or logarithm is taken."""
    divided = (e.base for e in loss.atoms(sympy.Pow) if e.exp.could_extract_minus_sign())
    for element in sorted({*divided, *(e.args[0] for e in loss.atoms(sympy.log))}, key=str):
        if element.atoms(OverVocabulary):
            yield Message("nonzero", of=losses.show(element, TEXT))
        if is_mass(element) and not isinstance(element, OverVocabulary):
            yield Message("mass", of=losses.show(1 - element, TEXT))


def _list_messages(loss: Any, zero: bool, written: Written, setting: Setting) -> Iterator[Message]:
    if zero:
        yield Message("zero-gradient", loss=written.text, setting=setting)
    if loss.has(M):
        in_a_bucket = any(_is_mass_of_rest(log.args[0]) for log in loss.atoms(sympy.log))
        yield Message("words-in-one-bucket" if in_a_bucket else "words-left-out")


def _is_mass_of_rest(x: Any) -> bool:
    """Is it the mass of all words with M = 0?"""
    if isinstance(x, OverVocabulary):
        return bool(x.args[0].xreplace({M: sympy.S.One}) == 0)
    return is_mass(x)
