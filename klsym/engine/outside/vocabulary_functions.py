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
    as_typed,
    expression_at_policy,
    mean_formula,
    mean_text,
    slope_of,
    steps_from,
)
from klsym.engine.outside.means_counterexample import shown_witness
from klsym.engine.outside.vocabulary_means import RANDOM, printed
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import in_core, to_sympy
from klsym.language.expressions import M, log_mu, parameter, rho, s, sg, without_sg
from klsym.language.messages import Message
from klsym.language.sums import OverBatch, OverVocabulary, is_mass
from klsym.notation import losses
from klsym.notation.coefficients import common_factor
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.values import names

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

    def sampled(self, centred: bool) -> Any:
        """The sampled loss; centred: without what is the same for all samples of a batch."""
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
    dummies, still = ({of: sympy.Dummy(real=True) for of in sums} for _ in range(2))
    back = {dummy: of for table in (dummies, still) for of, dummy in table.items()}
    opened = loss.replace(lambda e: isinstance(e, sg), lambda e: e.xreplace(still)).xreplace(dummies)
    names: dict[Any, Any] = {}

    def named(value: Any) -> Any:
        if not value.atoms(OverVocabulary) or value in names.values():
            return next((h for h, of in names.items() if of == value), value)
        taken = {x.name for x in loss.free_symbols} | {h.name for h in names}
        fresh = next(n for i in range(1, 1000) if (n := f"h{i}") not in taken)
        names[parameter(fresh)] = value
        return parameter(fresh)

    moving, pushes = [], []
    for of, dummy in dummies.items() if use == "loss" else ():
        push = sympy.diff(opened, dummy)
        slope = _mean_of(push, back, on_policy).xreplace(back)
        if slope != 0:
            moving.append((named(slope), of.args[0]))
        if push != 0:
            value = without_sg(push).xreplace(back)
            pushes.append((expression_at_policy(value) if on_policy else value, of.args[0]))
    drawn = opened.free_symbols & DRAWN or use == "reward"
    values = {d: named(of) for d, of in back.items() if drawn and opened.has(d)}
    return FixedMeans(opened.xreplace(values) if drawn else sympy.S.Zero, tuple(moving), names, tuple(pushes))


def _mean_of(c: Any, sums: dict[Any, Any], on_policy: bool) -> Any:
    """E_m[c], where the exact means in it are numbers."""
    total = sympy.S.Zero
    for term in sympy.Add.make_args(sympy.expand_mul(c)):
        drawn = sympy.Mul(*(f for f in sympy.Mul.make_args(term) if f.free_symbols & DRAWN))
        if drawn.free_symbols & {*sums}:
            raise UsageError(f"{losses.show(drawn.xreplace(sums), TEXT)[:60]!r}: {OUTSIDE}")
        of = without_sg(drawn if on_policy else drawn / rho)
        total += term / drawn * (OverVocabulary(of) if drawn != 1 else 1)
    return total


def explain_functions(written: Written, setting: Setting, explained: Explained) -> Verdict:
    """Return the verdict on the sampled loss, with the values of its numbers h put in."""
    loss = written.expression
    found = fix_means(loss, setting.on_policy, setting.use)
    sampled = found.sampled(centred=setting.batch != "none")
    if not (in_core(sampled) or loss.atoms(OverBatch)):
        raise UsageError(f"{written.text[:60]!r}: {OUTSIDE}")
    inner = explained(printed(sampled), setting)
    if not _mentions(inner, found):
        return as_typed(
            inner,
            written,
            value=TargetReading(None),
            assumptions=(_reading(sampled, found), *inner.assumptions),
            remarks=(*inner.remarks, *([Message("one-number")] if setting.use == "reward" else [])),
        )
    if setting.batch != "none" or loss.atoms(OverBatch):
        raise UsageError(f"{written.text[:60]!r}: {IN_PRODUCT}")
    c = _written_out(inner.c, found)
    steps, zero = steps_from(written, setting, HELD_RULE, inner.steps), inner.target == "zero"
    witness = shown_witness(c, setting.on_policy, f"{steps[0][1]} = grad KL(q||p)")
    known = not zero and _is_objective(loss, found, setting) and witness is not None
    return as_typed(
        inner,
        written,
        h=_pushed(found, setting, explained),
        scores_named=(setting.use == "loss", False),
        c=c,
        gradient=inner.gradient if zero else TargetReading("separable" if known else None),
        value=TargetReading(None),
        shown=f"grad {mean_text(loss, setting, TEXT)}" if known else "",
        objective_formula=mean_formula(loss, setting) if known else None,
        assumptions=(_reading(sampled, found), *inner.assumptions, *_defined(loss)),
        trust=inner.trust if zero else "sympy",
        steps=steps,
        remarks=tuple(_remarks(found, known or zero)),
        proofs=inner.proofs[:1],
        model=witness, implied=None, generated=None, functional=None, penalty=None,
        inside_clamps=None, terms=(), messages=tuple(_messages(loss, zero, written, setting)),
    )  # fmt: skip


def _remarks(found: FixedMeans, decided: bool) -> Iterator[Message]:
    if found.loss == 0:
        yield Message("no-variance")
    if not decided:
        yield Message("open-held-means")


def _mentions(inner: Verdict, found: FixedMeans) -> bool:
    """Does the expected gradient of the sampled loss depend on the numbers h?"""
    said = (inner.c, inner.gradient.parts, inner.gradient.rest)
    return not {h.name for h in found.names}.isdisjoint(name for value in said for name in names(value))


def _written_out(value: Any, found: FixedMeans) -> Any:
    """Replace the numbers h by their values; a common factor of all terms is kept in front."""
    if isinstance(value, ExpPoly):
        shared, rest = common_factor(value) or (((), ()), value)
        value = to_sympy(ExpPoly({shared: 1})) * to_sympy(rest)
    return value.xreplace(found.names)


def _is_objective(loss: Any, found: FixedMeans, setting: Setting) -> bool:
    """Is it the gradient of E_m[L]?  Yes if nothing is detached, and off-policy or if nothing is drawn."""
    detached = setting.use == "reward" or loss.atoms(sg) or (setting.on_policy and loss.has(rho, log_mu))
    return not detached and (not setting.on_policy or found.loss == 0)


def _pushed(found: FixedMeans, setting: Setting, explained: Explained) -> Any:
    """Return h: L(x, h) times the score of the outcome, and each exact mean with the scores of all."""
    total = sympy.S.Zero
    if found.loss != 0:
        own = explained(printed(found.loss), setting).h
        total += _written_out(own, found) * (s if setting.use == "loss" else 1)
    for push, x in found.pushes:
        slope = slope_of(x)
        total += push * (OverVocabulary(slope * s) if slope.free_symbols & DRAWN else 0)  # full(s) = 0
    return total


def _reading(sampled: Any, found: FixedMeans) -> Message:
    return Message("full-over-outcomes", of=sampled, numbers=tuple(found.names.items()))


def _defined(loss: Any) -> Iterator[Message]:
    """Yield the hypotheses on exact means whose inverse or logarithm is taken."""
    divided = (e.base for e in loss.atoms(sympy.Pow) if e.exp.could_extract_minus_sign())
    for of in sorted({*divided, *(e.args[0] for e in loss.atoms(sympy.log))}, key=str):
        if of.atoms(OverVocabulary):
            yield Message("nonzero", of=losses.show(of, TEXT))
        if is_mass(of) and not isinstance(of, OverVocabulary):
            yield Message("mass", of=losses.show(1 - of, TEXT))


def _messages(loss: Any, zero: bool, written: Written, setting: Setting) -> Iterator[Message]:
    if zero:
        yield Message("zero-gradient", loss=written.text, setting=setting)
    if loss.has(M):
        in_a_bucket = any(_of_the_rest(log.args[0]) for log in loss.atoms(sympy.log))
        yield Message("words-in-one-bucket" if in_a_bucket else "words-left-out")


def _of_the_rest(x: Any) -> bool:
    """Is it the mass of all words with M = 0?"""
    if isinstance(x, OverVocabulary):
        return bool(x.args[0].xreplace({M: sympy.S.One}) == 0)
    return is_mass(x)
