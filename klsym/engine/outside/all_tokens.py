"""The mean over all tokens of a batch of n sequences: sum_i sum_t L_{i,t} over sum_i T_i.  Untrusted.

    F = E_m[sum_i G_i / sum_i T_i]        G_i the gradient of one sequence, summed over its tokens

On-policy the lengths of the other sequences move with theta.  At n = 2, where lengths are 1 and 2,
1/(x + y) = 11/12 - (x + y)/4 + x y/12, and independence takes half of F apart:

    E[(11/12 - T/4) G] - E[T] E[G]/4 + E[T] E[T G]/12

whose curl the kernel refutes to be 0 on a tree.  For large n (a limit) F is E[G]/E[T].  Off-policy mu does
not move: what is attached is its own objective, and so is a loss whose gradient a loss with nothing detached
has at every sample; of others, the curl of E_mu[(11/12 - T/4) G] + E_mu[T] E_mu[(T/12 - 1/4) G] is refuted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import islice
from operator import add
from typing import Any, NamedTuple

import sympy
from sympy import Rational

from klsym.engine.fields.field import collect_score_coefficients, reduce_loss
from klsym.engine.fields.position_sums import T, n
from klsym.engine.fields.primitives import find_primitive
from klsym.engine.fields.slot_loss import build_slot_loss
from klsym.engine.options.expand_options import expand_options
from klsym.engine.options.settings import Setting
from klsym.engine.outside.as_typed import substitute_policy
from klsym.engine.outside.vocabulary_means import keep_attached
from klsym.engine.proof.counterexamples import generate_tree_models
from klsym.engine.proof.derivation import Derivation, Proof, derive
from klsym.engine.proof.quantities import Quantity, expectation
from klsym.engine.proof.sequence_quantities import curl, mean_over_i, sum_over_t, token_gradient
from klsym.engine.proof.shown_counterexample import describe_counterexample
from klsym.engine.regions.in_steps import detaches_policy
from klsym.engine.targets.ring_notes import collect_assumptions
from klsym.engine.verdicts.lazy import ChainStep
from klsym.engine.verdicts.verdict import (
    AnalysedLoss,
    Counterexample,
    ExpectedGradient,
    ExpectedValue,
    Objective,
    Verdict,
    VerdictProof,
)
from klsym.engine.verdicts.warnings import DESCENT_WARNINGS
from klsym.errors import NotInRing, ProofError, UsageError
from klsym.kernel.derivatives import attach
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ONE, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.abbreviations import Indexed, Side
from klsym.language.convert import substitute_on_policy, to_ring, to_sympy
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
    remove_sg,
    rho,
    s,
    unfold,
)
from klsym.language.messages import Message
from klsym.language.recognition import name_exponentials
from klsym.language.sums import OfOthers, OverBatch, OverVocabulary, Whole
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT, Text
from klsym.notation.tree import Formula, Gradient, Product, Words
from klsym.notation.values import LazyFormula, add_brackets, divide_by_token_count, multiply_by_score

MAX_TREES = 40  # trees with sequences of one token and of two
ENTIRE = T + OfOthers(T)  # sum_i T_i
KEPT = Whole(M) + OfOthers(Whole(M))  # the tokens that a mask keeps
NOT_READ = (
    "divides by the lengths of other samples in a way that is not read: write n*LOSS/(T + others(T)),"
    " n*LOSS/(whole(M) + others(whole(M))), or choose aggregate batch"
)
CENTRED = "the mean over all tokens of a centred batch is not handled: choose batch none"
OF_SUM_ALONE = (*DESCENT_WARNINGS, "zero-gradient", "value-is-not-gradient", "truncated")  # of the sum alone


def split_batch_mean(expression: Any, setting: Setting) -> tuple[Any, Any] | None:
    """Return L and N of a loss n L/N, N the tokens of a batch, all or those kept; None for other losses.

    The option or the loss itself gives N; max(N, 1) is a third N.
    """
    if setting.divisor.over_batch:
        return expression, ENTIRE
    expression = expression.xreplace({Whole(sympy.S.One): T})
    inverted = {e for e in expression.atoms(sympy.Pow) if e.exp.could_extract_minus_sign()}
    bare = {e: name_exponentials(e.base) for e in inverted}
    over = [e for e, base in bare.items() if base.atoms(OverBatch) and base.has(T, Whole)]
    if not over:
        return None
    number = next((x for x in (ENTIRE, KEPT, sympy.Max(KEPT, 1)) for e in over if e.base == x), ENTIRE)
    mark = sympy.Dummy(positive=True)
    marked = expression.replace(lambda e: e.is_Pow and e.base == number, lambda e: mark**-e.exp)
    once = sympy.expand(marked)
    loss = once.coeff(mark, 1)
    if loss.has(OverBatch) or sympy.expand(once - loss * mark) != 0 or setting.is_centred:
        raise UsageError(f"{losses.show(expression, TEXT)[:60]!r} {NOT_READ}")
    return sympy.factor_terms(loss / n), number


def explain_all_tokens(
    written: Written, over: tuple[Any, Any], setting: Setting, explained: Callable[[Any, Setting], Verdict]
) -> Verdict:
    """Return the verdict; `explained` explains the loss of one sequence."""
    if setting.is_centred:
        raise UsageError(f"{written.text[:60]!r}: {CENTRED}")
    (typed, number), single_setting = over, replace(setting, aggregate="sum")
    loss = keep_attached(typed) if setting.is_differentiated else typed
    single = explained(loss or typed, single_setting)
    expansion = expand_options(written, setting) if setting.divisor.over_batch else single.loss.expansion
    analysed = AnalysedLoss(written.text, expansion)
    if not loss:
        return replace(single, setting=setting, loss=analysed, value=ExpectedValue())
    decided = _decide_target(loss, number, single_setting, single.gradient.is_nonzero)
    decided = decided._replace(is_exact=loss.has(OverVocabulary))
    under, has_objective = "q" if setting.on_policy else "mu", decided.target == "objective"
    any_n = derive(mean_over_i(own(H) * own(s), under)).equals(expectation(H * s, under))
    tokens = divide_by_token_count(_build_scored_coefficient(single), to_ring(n), _build_token_count(number))
    return Verdict(
        loss=analysed,
        setting=setting,
        gradient=ExpectedGradient(
            decided.target,
            score_coefficient=tokens,
            scores_named=(True, True),
            in_quantities=_name_gradient(single, decided) if has_objective else None,
            remarks=(*_list_remarks(single, decided), Message("any-size", proof=any_n)),
        ),
        objective=Objective(formula=_name_objective(single, decided) if has_objective else None),
        trust="kernel" if decided.proofs else "sympy",
        assumptions=tuple(dict.fromkeys(_list_assumptions(single, number, decided, any_n))),
        messages=(Message("weighed-by-lengths"), *(x for x in single.messages if x.code not in OF_SUM_ALONE)),
        proof=VerdictProof((*decided.proofs, any_n), (_build_first_step(single),)),
        counterexample=Counterexample(describe_counterexample(decided.proofs[0]) if decided.proofs else None),
    )


def _build_token_count(number: Any) -> Any:
    """Return the number of tokens of a batch, from the sums of a sequence and of the others."""
    return {ENTIRE: own(length) + others(length), KEPT: own(M) + others(M)}.get(
        number, sympy.Max(own(M) + others(M), 1)
    )


def _list_remarks(single: Verdict, decided: BatchTarget) -> Iterator[Message]:
    if decided.counted is not None:
        yield Message("same-number-at-tokens")
    elif decided.target in REMARKS:
        yield REMARKS[decided.target]
    elif decided.target is None and decided.is_exact:
        yield Message("open-vocabulary-in-batch")
    elif decided.target is None:
        yield Message("open-short-trees" if single.setting.on_policy else "open-detached")
    yield from (Message("taken-apart", proof=proof) for proof in decided.proofs[1:])
    yield Message("mean-length-limit", of=single)
    if decided.attached:
        yield Message("same-gradients")


def _list_assumptions(single: Verdict, number: Any, decided: BatchTarget, any_n: Proof) -> Iterator[Message]:
    """Yield what is assumed of the lengths, of the batch and of one sequence."""
    if number != ENTIRE:
        yield Message("kept-lengths", some=number == KEPT)
    yield Message("independent-sequences", every=number == ENTIRE)
    if decided.counted is not None:
        yield Message("exchange-in-lengths")
    yield from single.assumptions
    yield from collect_assumptions((*decided.proofs[1:], any_n))


REMARKS = {"no-objective": Message("turns-at-two-lengths"), "objective": Message("samples-fixed")}


def _build_scored_coefficient(single: Verdict) -> LazyFormula:
    """Return h, with its scores."""
    if single.gradient.scores_named[0] or not single.gradient.is_nonzero:
        return LazyFormula(add_brackets, (single.gradient.score_coefficient,))
    return multiply_by_score(
        single.gradient.score_coefficient, (now if single.setting.is_per_token else own)(s)
    )


def _find_constant_coefficient(loss: Any, setting: Setting) -> Any | None:
    """Return the coefficient of each score if it is the same number at every token, else None."""
    credited = setting.is_reward and setting.is_per_token and setting.credits_other_tokens
    loss = loss.xreplace({rho: setting.weighting.typed})
    if credited or loss.has(OverPositions):
        return None
    h = sympy.diff(loss, log_q) if setting.is_differentiated else loss
    c = sympy.expand(unfold(substitute_policy(remove_sg(h))))
    return None if c.has(*DENSITIES, *REWARDS, length, T) else c


MEAN_OF_COUNT = TEXT.expectation("q", "1/sum_i T_i"), LATEX.expectation("q", r"\frac{1}{\sum_i T_i}")


def _name_objective(single: Verdict, decided: BatchTarget) -> Words:
    """Return the objective, in text and in LaTeX."""
    counted = decided.counted
    if counted is None:
        return Words(*(_write_objective(single, spell, attached=decided.attached) for spell in (TEXT, LATEX)))
    if counted == 1:
        return Words(*MEAN_OF_COUNT)
    factors = (_show_bracketed(counted, spell) for spell in (TEXT, LATEX))
    return Words(
        *(f"{c}{sign}{mean}" for c, sign, mean in zip(factors, ("*", r"\,"), MEAN_OF_COUNT, strict=True))
    )


def _name_gradient(single: Verdict, decided: BatchTarget) -> Formula:
    """Return the gradient of the objective; for a constant coefficient, times grad E_q[1/sum_i T_i]."""
    counted = decided.counted
    if counted is None:
        return Gradient(_name_objective(single, decided))
    gradient = Gradient(Words(*MEAN_OF_COUNT))
    if counted == 1:
        return gradient
    return Product(
        (Words(*(_show_bracketed(counted, spell) for spell in (TEXT, LATEX))), gradient), loose=True
    )


def _show_bracketed(value: Any, spell: Text) -> str:
    return spell.bracket(losses.show(value, spell)) if value.is_Add else losses.show(value, spell)


def _build_first_step(single: Verdict) -> ChainStep:
    """Return the expected gradient as it was typed, as the first step."""
    under, with_gradient = "q" if single.setting.on_policy else "mu", single.setting.is_differentiated
    text, latex = (_write_objective(single, spell, under, with_gradient) for spell in (TEXT, LATEX))
    return "", text, latex


def _write_objective(
    single: Verdict,
    spell: Any,
    under: str = "mu",
    with_gradient: bool | None = None,
    attached: Attached | None = None,
) -> str:
    """Return E_m[sum_i sum_t L/sum_i T_i] as text.

    with_gradient: True: with the gradient of L; False: with the score that multiplies a reward.  attached: L,
    if it is not the typed one.
    """
    tokens, text = single.setting.is_per_token, spell is TEXT
    inner = single.loss.text if text else losses.show(single.loss.written, LATEX)
    if attached is not None:
        tokens = attached.of_token != 0
        inner = losses.show(attached.of_token if tokens else attached.of_sequence, spell)
    written = f"({inner})" if text else rf"\left({inner}\right)"
    if with_gradient is not None:
        before, after = ("grad" if text else r"\nabla"), ("*s" if text else r"\,s")
        written = before + written if with_gradient else written + after
    every = ("sum_t " if text else r"\sum_t ") * tokens + written
    if attached is not None and tokens and attached.of_sequence != 0:
        every = f"({losses.show(attached.of_sequence, spell)} + {every})"
    if text:
        return f"E_{under}[sum_i {every}/sum_i T_i]"
    every = r"\sum_i " + every
    return LATEX.expectation(under, rf"\frac{{{every}}}{{\sum_i T_i}}")


# ---------------------------------------------------------------------------- the target
class Attached(NamedTuple):
    """A loss with nothing detached: its part of each token, and that of the whole sequence."""

    of_token: Any = sympy.S.Zero
    of_sequence: Any = sympy.S.Zero

    def __add__(self, other: tuple[Any, ...]) -> Attached:
        return Attached(*map(sum, zip(self, other, strict=True)))


class BatchTarget(NamedTuple):
    """The target and its proofs.

    attached: off-policy, the loss whose mean is the objective, if it is not the typed one.  counted: the
    coefficient of each score, if it is the same number at every token.  is_exact: it has a sum over the
    vocabulary.
    """

    target: str | None
    proofs: tuple[Proof, ...] = ()
    attached: Attached | None = None
    counted: Any = None
    is_exact: bool = False


def _decide_target(loss: Any, number: Any, setting: Setting, is_nonzero: bool) -> BatchTarget:
    """Return the target, also of a loss that counts tokens; number: the tokens of a batch that divide it."""
    decided = _find_target(loss, setting, is_nonzero)
    if decided.target is not None or not setting.on_policy or number != ENTIRE:
        return decided
    counted = _find_constant_coefficient(loss, setting)
    return decided if counted is None else decided._replace(target="objective", counted=counted)


def _find_target(loss: Any, setting: Setting, is_nonzero: bool) -> BatchTarget:
    """Return the target of the mean over the tokens of a batch."""
    if not is_nonzero:
        return BatchTarget("zero")
    if not setting.on_policy and setting.is_differentiated and not detaches_policy(loss):
        return BatchTarget("objective")
    attached = None if setting.on_policy else _find_attached_loss(loss, setting)
    if attached is not None:
        return BatchTarget("objective", attached=attached)
    return BatchTarget(*_refute_objective(loss, setting))


def _find_attached_loss(loss: Any, setting: Setting) -> Attached | None:
    """Return a loss that detaches nothing and has the same gradient at every sample from mu, or None."""
    if (whole := _integrate_coefficient(loss, setting)) is not None or not loss.is_Add:
        return whole
    parts = [_integrate_coefficient(term, setting) for term in loss.args]
    return None if None in parts else reduce(add, parts, Attached())


def _integrate_coefficient(loss: Any, setting: Setting) -> Attached | None:
    """Return L with dL/dlog q = h, for h s at one token or of one sequence; None for other scores.

    None, too, where L has a region or a log: it may jump at the bound.
    """
    with suppress(NotInRing, UsageError):
        field = reduce_loss(build_slot_loss(Written("", loss), setting))
        if field.loss.measure != "mu" or field.loss.detached_q or field.loss.sums:
            return None
        pushes = {slot: attach(h) for slot, h in field.score_coefficients.items()}
        if field.sequence_coefficient is not None:  # sum_t h s_t = h s
            pushes = {"x": attach(to_ring(field.sequence_coefficient))}
        if not pushes:  # it does not depend on theta
            return Attached()
        [(slot, h), *others_pushed] = pushes.items()
        primitive = find_primitive(h, slot) if slot in ("x", "now") and not others_pushed else None
        defined = {parse_name(definition.name).base for definition in field.loss.defined.definitions}
        if primitive is not None and defined.isdisjoint(parse_name(name).base for name in primitive.names()):
            return Attached(**{"of_token" if slot == "now" else "of_sequence": to_sympy(primitive)})
    return None


def _refute_objective(loss: Any, setting: Setting) -> tuple[str | None, tuple[Proof, ...]]:
    """Return "no-objective" if the kernel proves that the curl is not 0 on a tree, for two sequences."""
    if setting.truncated:  # the samplers of the trees draw every word
        return None, ()
    with suppress(NotInRing, UsageError):
        start, slots = _build_curl(loss.xreplace({M: sympy.S.One}), setting)  # a mask that keeps all tokens
        under, on_policy = ("q" if setting.on_policy else "mu"), setting.on_policy
        for model in islice(_iterate_short_trees(tuple(start.context.parameters), on_policy), MAX_TREES):
            with suppress(ProofError):
                curl_proof = start.differs_from(0, model=model)
                return "no-objective", (curl_proof, *(_prove_split(slot, under) for slot in slots))
    return None, ()


def _prove_split(slot: str, under: str) -> Proof:
    """Prove what independence makes of 1/(T_1 + T_2), for n = 2 sequences and any H; slot x: of sequences.

    E_m[mean_i sum_t H s (11/12 - (T_i + T_j)/4 + T_i T_j/12)] = E_m[sum_t (11/12 - T/4) H s]
      + E_m[T] E_m[sum_t (T/12 - 1/4) H s],   j the other one
    """
    whole, score = slot == "x", s if slot == "x" else Slot(slot)(s)
    h, mine, push = (own(H), own(length), own(s)) if whole else (now(H), length, score)
    over = Rational(11, 12) - (mine + others(length)) / 4 + mine * others(length) / 12

    def build_mean(of: Any) -> Quantity:
        return expectation(H * of * s, under) if whole else sum_over_t(now(H) * of * score, under)

    right = build_mean(Rational(11, 12) - length / 4) + expectation(length, under) * (
        build_mean(length) / 12 - build_mean(1) / 4
    )
    field = mean_over_i(over * h * push, under, steps=not whole)
    return derive(field, premises=((n, 2),)).equals(right, using=[(0, None)])


def _iterate_short_trees(names: tuple[str, ...], on_policy: bool) -> Any:
    """Yield those of `generate_tree_models` with sequences of one token and of two."""
    for model in generate_tree_models(Context(parameters=names), on_policy=on_policy):
        first, *branches = model["tree"]["next"]
        if branches == [None] and first["next"] == [None, None]:
            yield model


def _build_curl(loss: Any, setting: Setting) -> tuple[Derivation, Iterable[str]]:
    """Return the curl of the expected gradient of two sequences, and the slots of its scores.

    On-policy it has one more part, `_build_wedge`, since E_q[T] moves with theta.
    """
    if setting.is_of_sequence and not setting.on_policy:
        raise NotInRing("a function of log q of one sample is a gradient")
    if setting.is_of_sequence:
        written = Written("", loss.xreplace({T: length, A: R}))
        whole = reduce_loss(build_slot_loss(written, setting))
        return derive(Quantity(_build_wedge({"x": whole.c}, whole=True)), defined=whole.loss.defined), ("x",)
    field = reduce_loss(build_slot_loss(Written("", loss.xreplace({A: R})), setting))
    if field.sequence_part or field.sequence_coefficient is not None:
        raise NotInRing("a loss of the whole sequence")
    on_policy = field.start.context.on_policy
    attached = field.attached_loss
    options = {"on_policy": on_policy, "defined": field.loss.defined}
    pushed = collect_score_coefficients(
        derive(token_gradient(attached, field.loss.measure), **options).differentiate()
    )
    pushed = {slot: substitute_on_policy(c) for slot, c in pushed.items()}
    mean_T = Side.from_atom(Indexed("t", field.loss.measure, ONE, ()))

    def build_weighted_curl(weight: Any) -> Quantity:
        return curl(attached * weight, field.loss.measure)

    constant_part = build_weighted_curl(Rational(11, 12) - length / 4)
    length_part = build_weighted_curl(length / 12 - Rational(1, 4))
    labels = {**constant_part.labels, **length_part.labels}
    side = constant_part.side + mean_T.multiply(length_part.side)
    side = side + _build_wedge(pushed) if setting.on_policy else side
    return derive(Quantity(side, constant_part.functions, labels), **options), pushed


def _build_wedge(pushed: dict[str, ExpPoly], whole: bool = False) -> Side:
    """Return d E[T] ^ (E[T G]/12 - E[G]/4), G = sum_t sum_z c_z s_z; whole: c is that of the sequence."""
    tokens = ExpPoly.from_variable("length")
    weight = tokens * Fraction(1, 12) - ONE * Fraction(1, 4)
    weight = weight * tokens.invert() if whole else weight
    total = Side()
    for slot, c in pushed.items():
        for sign, first, second in ((1, "x'", slot), (-1, "x", f"{slot}'")):
            pair = (Indexed("t", "q", ONE, (first,)), Indexed("t", "q", c * weight, (second,)))
            total = total + Side.combine((sign, pair))
    return total
