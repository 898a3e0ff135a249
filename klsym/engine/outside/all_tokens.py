"""The mean over all tokens of a batch of n sequences: sum_i sum_t L_{i,t} over sum_i T_i.  Untrusted.

    F = E_m[sum_i G_i / sum_i T_i]        G_i the gradient of one sequence, summed over its tokens

On-policy the lengths of the other sequences move with theta.  At n = 2, where lengths are 1 and 2,
1/(x + y) = 11/12 - (x + y)/4 + x y/12, and independence takes half of F apart:

    E[(11/12 - T/4) G] - E[T] E[G]/4 + E[T] E[T G]/12

whose curl the kernel refutes to be 0 on a tree.  For large n (a limit) F is E[G]/E[T].  Off-policy mu does
not move, and what is attached is its own objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any

import sympy
from sympy import Rational

from klsym.engine.fields.field import collect_score_coefficients, reduce_loss
from klsym.engine.fields.position_sums import T, n
from klsym.engine.fields.primitives import substitute_on_policy
from klsym.engine.fields.slot_loss import build_slot_loss
from klsym.engine.options.expand_options import expansion, weight_of
from klsym.engine.options.settings import Setting
from klsym.engine.outside.as_typed import expression_at_policy
from klsym.engine.proof.counterexamples import tree_models
from klsym.engine.proof.derivation import Derivation, Proof, derive
from klsym.engine.proof.quantities import Quantity, expectation
from klsym.engine.proof.sequence_quantities import curl, mean_over_i, sum_over_t, token_gradient
from klsym.engine.proof.shown_counterexample import shown_witness
from klsym.engine.targets.ring_notes import assumed_by
from klsym.engine.verdicts.verdict import ChainStep, TargetReading, Verdict
from klsym.engine.verdicts.warnings import OF_DESCENT
from klsym.errors import NotInRing, ProofError, UsageError
from klsym.kernel.ring import ONE, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.abbreviations import Indexed, Side
from klsym.language.convert import to_ring
from klsym.language.expressions import (
    DENSITIES,
    REWARDS,
    A,
    H,
    M,
    OverPositions,
    R,
    Slot,
    length,
    log_q,
    now,
    others,
    own,
    rho,
    s,
    sg,
    unfold,
    without_sg,
)
from klsym.language.messages import Message
from klsym.language.sums import OfOthers, OverBatch, Whole
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT, Text
from klsym.notation.tree import Formula, Words, product, quotient
from klsym.notation.values import LazyFormula, bracketed, scored

MAX_TREES = 40  # trees with sequences of one token and of two
ENTIRE = T + OfOthers(T)  # sum_i T_i
KEPT = Whole(M) + OfOthers(Whole(M))  # the tokens that a mask keeps
NOT_READ = (
    "divides by the lengths of other samples in a way that is not read: write n*LOSS/(T + others(T)),"
    " n*LOSS/(whole(M) + others(whole(M))), or choose aggregate batch"
)
CENTRED = "the mean over all tokens of a centred batch is not handled: choose batch none"
UNSAID = (*OF_DESCENT, "zero-gradient", "value-is-not-gradient", "truncated")  # of the sum alone


def over_all_tokens(expression: Any, setting: Setting) -> tuple[Any, Any] | None:
    """L and N of a loss n L/N, N the tokens of a batch, all or those kept; None for any other loss.

    As the option says or the loss itself; max(N, 1) is a third N.
    """
    if setting.aggregate == "batch":
        return expression, ENTIRE
    expression = expression.xreplace({Whole(sympy.S.One): T})
    inverted = {e for e in expression.atoms(sympy.Pow) if e.exp.could_extract_minus_sign()}
    over = [e for e in inverted if e.base.atoms(OverBatch) and e.base.has(T, Whole)]
    if not over:
        return None
    number = next((x for x in (ENTIRE, KEPT, sympy.Max(KEPT, 1)) for e in over if e.base == x), ENTIRE)
    mark = sympy.Dummy(positive=True)
    marked = expression.replace(lambda e: e.is_Pow and e.base == number, lambda e: mark**-e.exp)
    once = sympy.expand(marked)
    loss = once.coeff(mark, 1)
    if loss.has(OverBatch) or sympy.expand(once - loss * mark) != 0 or setting.batch != "none":
        raise UsageError(f"{losses.show(expression, TEXT)[:60]!r} {NOT_READ}")
    return sympy.factor_terms(loss / n), number


def explain_all_tokens(
    written: Written, over: tuple[Any, Any], setting: Setting, explained: Callable[[Any, Setting], Verdict]
) -> Verdict:
    """The verdict; `explained` explains the loss of one sequence."""
    if setting.batch != "none":
        raise UsageError(f"{written.text[:60]!r}: {CENTRED}")
    (loss, number), one = over, replace(setting, aggregate="sum")
    single = explained(loss, one)
    target, proofs = _target(loss, one) if single.pushes else ("zero", ())
    all_of_them = target is None and setting.on_policy and number == ENTIRE
    counted = _counted(loss, setting) if all_of_them else None
    target = target if counted is None else "separable"
    any_n = derive(mean_over_i(own(H) * own(s), "q")).equals(expectation(H * s, "q"))
    named = _named(single, counted) if target == "separable" else None
    exchanged = [Message("exchange-in-lengths")] if counted is not None else []
    kept = () if number == ENTIRE else (Message("kept-lengths", some=number == KEPT),)
    presupposed = (*kept, Message("independent-sequences"), *exchanged, *single.assumptions)
    return Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=LazyFormula(_over_tokens, (_pushed(single), to_ring(n), _number(number))),
        c=None,
        gradient=TargetReading(target),
        value=TargetReading(None),
        constant=None,
        trust="kernel" if proofs else "sympy",
        assumptions=tuple(dict.fromkeys((*presupposed, *assumed_by((*proofs[1:], any_n))))),
        steps=(_start(single),),
        model=shown_witness(proofs[0]) if proofs else None,
        inside_clamps=None,
        scores_named=(True, True),
        proofs=(*proofs, any_n),
        objective_formula=named,
        shown=_shown(single, counted) if named else "",
        remarks=(*_remarks(single, target, counted, proofs[1:]), Message("any-size", proof=any_n)),
        expansion=single.expansion if setting.aggregate != "batch" else expansion(written, setting),
        messages=(Message("weighed-by-lengths"), *(x for x in single.messages if x.code not in UNSAID)),
    )


def _number(number: Any) -> Any:
    """The tokens of a batch, from the sums of a sequence and of the others."""
    return {ENTIRE: own(length) + others(length), KEPT: own(M) + others(M)}.get(
        number, sympy.Max(own(M) + others(M), 1)
    )


def _remarks(
    single: Verdict, target: str | None, counted: Any, apart: tuple[Proof, ...]
) -> Iterator[Message]:
    if counted is not None:
        yield Message("same-number-at-tokens")
    elif target in TOLD:
        yield TOLD[target]
    elif target is None:
        yield Message("open-short-trees" if single.setting.on_policy else "open-detached")
    yield from (Message("taken-apart", proof=proof) for proof in apart)
    yield Message("mean-length-limit", of=single)


TOLD = {"none": Message("turns-at-two-lengths"), "separable": Message("samples-fixed")}


def _pushed(single: Verdict) -> LazyFormula:
    """h, with its scores."""
    if single.scores_named[0] or not single.pushes:
        return LazyFormula(bracketed, (single.h,))
    return scored(single.h, (now if single.setting.level == "token" else own)(s))


def _over_tokens(pushed: Formula, number: Formula, tokens: Formula) -> Formula:
    return quotient(product(pushed, number), tokens)


def _counted(loss: Any, setting: Setting) -> Any | None:
    """What multiplies each score, if that is the same number at every token; what is credited adds up."""
    credited = setting.use == "reward" and setting.level == "token" and setting.credit != "same-token"
    loss = loss.xreplace({rho: weight_of(setting.weights)})
    if credited or loss.has(OverPositions):
        return None
    h = sympy.diff(loss, log_q) if setting.use == "loss" else loss
    c = sympy.expand(unfold(expression_at_policy(without_sg(h))))
    return None if c.has(*DENSITIES, *REWARDS, length, T) else c


MEAN_OF_COUNT = TEXT.expectation("q", "1/sum_i T_i"), LATEX.expectation("q", r"\frac{1}{\sum_i T_i}")


def _named(single: Verdict, counted: Any | None) -> Words:
    """The objective, in text and in LaTeX."""
    if counted is None:
        return Words(_objective(single, TEXT), _objective(single, LATEX))
    if counted == 1:
        return Words(*MEAN_OF_COUNT)
    factors = (_bracketed(counted, spell) for spell in (TEXT, LATEX))
    return Words(
        *(f"{c}{sign}{of}" for c, sign, of in zip(factors, ("*", r"\,"), MEAN_OF_COUNT, strict=True))
    )


def _shown(single: Verdict, counted: Any | None) -> str:
    """Its gradient, as text."""
    if counted is None:
        return f"grad {_objective(single, TEXT)}"
    return f"{_bracketed(counted, TEXT)} " * (counted != 1) + f"grad {MEAN_OF_COUNT[0]}"


def _bracketed(value: Any, spell: Text) -> str:
    return spell.bracket(losses.show(value, spell)) if value.is_Add else losses.show(value, spell)


def _start(single: Verdict) -> ChainStep:
    """The field, in the author's words."""
    under, moved = "q" if single.setting.on_policy else "mu", single.setting.use == "loss"
    texts = []
    for spell in (TEXT, LATEX):
        texts.append(_objective(single, spell, under, moved))
    return "", texts[0], texts[1]


def _objective(single: Verdict, spell: Any, under: str = "mu", moved: bool | None = None) -> str:
    """E_m[sum_i sum_t L/sum_i T_i]; moved: with its gradient; False: with the score that a reward meets."""
    tokens, text = single.setting.level == "token", spell is TEXT
    of = f"({single.loss})" if text else rf"\left({single.loss_latex}\right)"
    if moved is not None:
        before, after = ("grad" if text else r"\nabla"), ("*s" if text else r"\,s")
        of = before + of if moved else of + after
    if text:
        return f"E_{under}[sum_i {'sum_t ' * tokens}{of}/sum_i T_i]"
    every = r"\sum_i " + r"\sum_t " * tokens + of
    return LATEX.expectation(under, rf"\frac{{{every}}}{{\sum_i T_i}}")


# ---------------------------------------------------------------------------- the target
def _target(loss: Any, setting: Setting) -> tuple[str | None, tuple[Proof, ...]]:
    """separable off-policy where nothing is detached; none on-policy where the kernel finds a curl."""
    if not setting.on_policy:
        return ("separable" if setting.use == "loss" and not loss.has(sg) else None), ()
    with suppress(NotInRing, UsageError):
        start, slots = _turning(loss.xreplace({M: sympy.S.One}), setting)  # a mask that keeps all tokens
        for model in islice(_short_trees(tuple(start.context.parameters)), MAX_TREES):
            with suppress(ProofError):
                return "none", (start.differs_from(0, model=model), *map(_apart, slots))
    return None, ()


def _apart(slot: str) -> Proof:
    """What independence makes of E_q[mean_i sum_t H s_z n/(T_1 + T_2)]/2; the slot x: of whole sequences."""
    whole, score = slot == "x", s if slot == "x" else Slot(slot)(s)
    h, mine, push = (own(H), own(length), own(s)) if whole else (now(H), length, score)
    over = Rational(11, 12) - (mine + others(length)) / 4 + mine * others(length) / 12

    def mean(of: Any) -> Quantity:
        return expectation(H * of * s, "q") if whole else sum_over_t(now(H) * of * score, "q")

    right = mean(Rational(11, 12) - length / 4) + expectation(length, "q") * (mean(length) / 12 - mean(1) / 4)
    field = mean_over_i(over * h * push, "q", steps=not whole)
    return derive(field, premises=((n, 2),)).equals(right, using=[(0, None)])


def _short_trees(names: tuple[str, ...]) -> Any:
    """Those of `tree_models` with sequences of one token and of two."""
    for model in tree_models(Context(parameters=names), on_policy=True):
        first, *rest = model["tree"]["next"]
        if rest == [None] and first["next"] == [None, None]:
            yield model


def _turning(loss: Any, setting: Setting) -> tuple[Derivation, Iterable[str]]:
    """The curl of the field of two sequences, in a derivation, and the slots whose scores it meets."""
    if setting.level == "sequence":
        written = Written("", loss.xreplace({T: length, A: R}))
        whole = reduce_loss(build_slot_loss(written, setting))
        return derive(Quantity(_wedge({"x": whole.c}, whole=True)), defined=whole.loss.defined), ("x",)
    field = reduce_loss(build_slot_loss(Written("", loss.xreplace({A: R})), setting))
    if field.sequence_part or field.sequence_coefficient is not None:
        raise NotInRing("a loss of the whole sequence")
    on_policy = field.start.context.on_policy
    attached = field.attached_loss
    known = {"on_policy": on_policy, "defined": field.loss.defined}
    pushed = collect_score_coefficients(
        derive(token_gradient(attached, field.loss.measure), **known).differentiate()
    )
    pushed = {slot: substitute_on_policy(c) for slot, c in pushed.items()}
    mean_T = Side.atom(Indexed("t", "q", ONE, ()))

    def turned(weight: Any) -> Quantity:
        return curl(attached * weight, field.loss.measure)

    alone = turned(Rational(11, 12) - length / 4)
    beside = turned(length / 12 - Rational(1, 4))
    labels = {**alone.labels, **beside.labels}
    side = alone.side + mean_T.times(beside.side) + _wedge(pushed)
    return derive(Quantity(side, alone.functions, labels), **known), pushed


def _wedge(pushed: dict[str, ExpPoly], whole: bool = False) -> Side:
    """d E[T] ^ (E[T G]/12 - E[G]/4), G = sum_t sum_z c_z s_z; whole: c is that of the sequence."""
    tokens = ExpPoly.variable("length")
    weight = tokens * Fraction(1, 12) - ONE * Fraction(1, 4)
    weight = weight * tokens.inverse() if whole else weight
    total = Side()
    for slot, c in pushed.items():
        for sign, first, second in ((1, "x'", slot), (-1, "x", f"{slot}'")):
            pair = (Indexed("t", "q", ONE, (first,)), Indexed("t", "q", c * weight, (second,)))
            total = total + Side.of((sign, pair))
    return total
