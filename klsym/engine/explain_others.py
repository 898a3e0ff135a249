"""explain for losses that sum over the other samples of a batch: others(x), loo(h), centred(h).  Untrusted.

    E_m[mean_i grad L_i]    or, of a detached reward,    E_m[mean_i L_i s_i]

A bare name is that of sample i, others(x) = sum_{j != i} x_j.  Independence takes the mean apart,

    E_q[c s] + sum_k E_q[a_k] E_q[b_k s]

and E_q[s] = 0 often leaves the first term alone, of which c decides the target.  A product of means has the
curl d_u E_q[a] E_q[b s].v - d_v E_q[a] E_q[b s].u.  What is no sum of k1, log q, R and constants is summed as
H, whose value at each sample is given, where nothing differentiates it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import sympy

from klsym.abbreviations import E, Indexed, IndexedGradient, Side, elements
from klsym.convert import to_ring, to_sympy
from klsym.engine.advice import OF_LOSS, facts_of, warnings_for
from klsym.engine.derivation import Derivation, Proof, derive
from klsym.engine.explain_batches import READINGS, SIZE, explain_batch, m, n
from klsym.engine.explain_samples import (
    assumed_of_value,
    explain_sample,
    named_gradient,
    refuse_unless_moderate,
    sampled_from,
    uses_sampler,
    with_objective,
    witness_against_reverse_kl,
)
from klsym.engine.explain_setting import Setting
from klsym.engine.explain_slots import Beyond
from klsym.engine.indexed import mean_over_i
from klsym.engine.objectives import at_policy, moves
from klsym.engine.products import curl, of_batch, turning
from klsym.engine.quantities import Quantity
from klsym.engine.tails import is_zero
from klsym.engine.targets import Target, recognise, recognise_value
from klsym.engine.verdict import Chain, Meaning, Search, Verdict
from klsym.errors import NotInRing, Refused, UsageError
from klsym.kernel.derivatives import in_slot
from klsym.language import H, R, length, others, own, parameter, rho, s, sg, without_sg
from klsym.names import SAMPLE_BASES, parse_name
from klsym.render import formulas, losses
from klsym.render.losses import Written
from klsym.render.spelling import LATEX, TEXT
from klsym.render.told import about
from klsym.render.tree import total
from klsym.render.values import Made, scored
from klsym.render.verdict import target_words
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.sums import Centred, LeftOut, Normalised, OverBatch
from klsym.unfolding import d_log_q

MOVES = (
    "is differentiated here, and is no sum of k1, log q, R and constants: not handled; sg(..) around it makes"
    " it another loss, which is"
)
TWO = "two different functions of a batch that are no sums of k1, log q, R and constants are not handled"
SCALED = (
    "large n (a limit): normalised(h) weighs h by 1/sd(h) and what is added to it by 1, so that against h it"
    " weighs sd(h) times what is written: a penalty fades as the rewards agree"
)
SUCCESS = (
    "rewards 0 or 1, large n (a limit), batches of an old policy with the success probability P, {beta} > 0:"
    " the policy that is best against them has the success P' with logit P' = logit P_p + {step}, P_p"
    " that of p (neighbour.grpo-success-recurrence)"
)
ATTACHED = (
    "the sum over other samples is differentiated, and meets their scores: put sg(..) around a baseline, as"
    " trainers detach it"
)
UNDECIDED = (
    "open: no model that was tried gives the expected gradient a curl, and that it has none is not proved"
)
SUMMED = ("k1", "w", "o", "log_q", "R", "M")


Product = tuple[ExpPoly, ExpPoly, ExpPoly]  # scale, a, b: scale E_q[a] E_q[b s]


@dataclass(frozen=True)
class Batch:
    """A loss at sample i in the slots self and others; given: the value of H at a sample."""

    expression: Any
    given: dict[str, Any]


@dataclass(frozen=True)
class Found:
    """What the expected gradient comes to: E_q[c s] and products of means, the theorem, and what c is."""

    c: ExpPoly
    products: list[Product]
    named: Target
    right: Quantity
    proof: Proof
    target: str | None
    more: tuple[Proof, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.target else (UNDECIDED,)

    @property
    def gradient(self) -> Meaning:
        return Meaning(self.target) if self.products else Meaning.of(self.named)

    @property
    def reversed(self) -> bool:
        """Is it grad KL(q||p), perhaps with a policy gradient beside it?"""
        both = self.named.target == "combination" and not self.named.forward
        return not self.products and (self.named.target == "reverse-kl" or both)


def explain_others(written: Written, setting: Setting) -> Verdict:
    """The verdict; raises NotInRing outside the ring, and for normalised(h) that is multiplied."""
    if written.expression.has(Normalised):
        return _normalised(written, setting)
    if setting.use == "reward" and isinstance(written.expression, LeftOut | Centred):
        return _by_option(written, setting)
    batch = _in_batch(written, setting)
    element = _checked(batch, written)
    start, under = _start(batch, element, setting)
    found = _found(start, written)
    per_sample = _per_sample(start)
    value, constant = _value(batch, setting, under)
    verdict = Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=per_sample if {*per_sample} - {"self"} else _of_self(per_sample),
        c=None if found.products else found.c,
        gradient=found.gradient,
        value=value,
        constant=constant,
        trust="kernel",
        hypotheses=(READINGS["leave-one-out" if start.context.premises else "mean"], *found.proof.hypotheses),
        steps=Chain(found.proof),
        model=None if found.reversed else Search(_witness, start, found),
        inside_clamps=None,
        proofs=(found.proof, *found.more),
        scores_named=(True, False),
        shown=formulas.side(found.right.side) if found.products else "",
        notes=found.notes,
    )
    if not found.products:
        verdict = with_objective(verdict, found.named, derive(found.right))
    facts = facts_of(element, per_sample.get("self", ZERO), found.c, setting.on_policy)
    sized = [of.substitute({"n": to_ring(m + 1)}) if "m" in of.names() else of for of in per_sample.values()]
    facts = replace(facts, vanishes=is_zero(sized, setting.on_policy), noisy=False)
    attached = (ATTACHED,) if "others" in per_sample else ()
    return replace(verdict, warnings=(*warnings_for(verdict, facts), *attached))


def _checked(batch: Batch, written: Written) -> ExpPoly:
    element = to_ring(batch.expression)
    if any(parse_name(name).base == "length" for name in element.names()):
        raise Beyond(f"T in {written.text[:60]!r}: 1/T of a sample is handled within loo(..) or centred(..)")
    refuse_unless_moderate(element, written)
    return element


def _found(start: Derivation, written: Written) -> Found:
    try:
        form = start.reduce()
    except Refused as refusal:
        raise Beyond(f"{written.text[:60]!r}: {refusal}, which is not handled") from None
    c, products = _terms(form, start)
    named = recognise(c)
    quantity = None if products else named_gradient(named)
    right, proof = _equation(start, form, quantity)
    target, more = _turning(products) if products else (named.target, ())
    if not products and quantity is None:
        more = (derive(right).is_no_combination(),)
    return Found(c, products, named, right, proof, target, more)


# ---------------------------------------------------------------------------- the loss at a sample
def _in_batch(written: Written, setting: Setting) -> Batch:
    expression = written.expression / length if setting.averaged else written.expression
    given: dict[str, Any] = {}
    detached = setting.use == "reward"

    def walk(e: Any, still: bool) -> Any:
        if isinstance(e, OverBatch):
            return _over_batch(e, still, given)
        if e.is_Pow and e.exp.is_negative and e.base == n - 1:
            return m**e.exp
        if not e.args or not e.has(OverBatch, n - 1):
            return own(e)
        return e.func(*(walk(part, still or isinstance(e, sg)) for part in e.args))

    found = walk(expression, detached)
    if detached:
        found = without_sg(found)
        found = to_sympy(at_policy(to_ring(found))) if setting.on_policy else found
    if setting.on_policy:  # what is given is detached: its value alone counts
        given = {name: to_sympy(at_policy(to_ring(value))) for name, value in given.items()}
    return Batch(found, given)


def _over_batch(of: Any, still: bool, given: dict[str, Any]) -> Any:
    element = to_ring(of.args[0])
    if is_summed(element):
        rest = summed_over_others(element)
        return of.of(own(of.args[0]), to_sympy(rest)).subs(1 / (n - 1), 1 / m)
    if not still and any(map(moves, element.names())):
        raise UsageError(f"{of} {MOVES}")
    value = to_sympy(to_ring(without_sg(of.args[0])))
    if given.setdefault("H", value) != value:
        raise Beyond(TWO)
    return of.of(own(H), others(H)).subs(1 / (n - 1), 1 / m)


def is_summed(element: ExpPoly) -> bool:
    """Constants, and constants times one variable that is summed over samples."""
    for monomial, exponent in element.terms:
        inside = [name for inner, _ in exponent for name, _ in inner if parse_name(name).base in SAMPLE_BASES]
        random = [(parse_name(name).base, p) for name, p in monomial if parse_name(name).base in SAMPLE_BASES]
        if inside or len(random) > 1 or any(base not in SUMMED or power != 1 for base, power in random):
            return False
    return True


def summed_over_others(element: ExpPoly) -> ExpPoly:
    """The sum over the other samples; that of a constant is n - 1 times it."""
    total, count = ZERO, to_ring(n) - 1
    for key, value in element.terms.items():
        term = ExpPoly({key: value})
        random = any(parse_name(name).base in SAMPLE_BASES for name in term.names())
        total = total + (to_ring(others(to_sympy(term))) if random else term * count)
    return total


def _start(batch: Batch, element: ExpPoly, setting: Setting) -> tuple[Derivation, str]:
    under, on_policy = sampled_from(element, setting), uses_sampler(element, setting)
    if setting.use == "reward":
        quantity = mean_over_i(batch.expression * own(s), under)
    else:
        quantity = Quantity(Side.atom(IndexedGradient("i", under, element)), {}, {element: batch.expression})
    premises = SIZE if "m" in element.names() else ()
    return derive(quantity, on_policy=on_policy, given=batch.given, premises=premises), under


# ---------------------------------------------------------------------------- what it comes to
def _terms(form: Derivation, start: Derivation) -> tuple[ExpPoly, list[Product]]:
    """c and the products of means, in terms of n alone where that is possible."""
    c, products = ZERO, []
    for scale, atoms in form.left.terms:
        match atoms:
            case (E("q", a, ("x",)),):
                c = c + a * scale
            case (E("q", a, ()), E("q", b, ("x",))) | (E("q", b, ("x",)), E("q", a, ())):
                products.append((ONE, _in_n(a * scale, start), _in_n(b, start)))
            case _:
                raise Beyond(f"this batch comes to {form.left_text[:80]}, which is not handled")
    return _in_n(c, start), [product for product in products if product[1]]


def _in_n(element: ExpPoly, start: Derivation) -> ExpPoly:
    """By n = m + 1."""
    if not start.context.premises:
        return element
    found = element.substitute({"n": to_ring(m + 1)})
    return found if "m" in found.inverted() else found.substitute({"m": to_ring(n - 1)})


def _equation(start: Derivation, form: Derivation, named: Quantity | None) -> tuple[Quantity, Proof]:
    if named is None:
        c, products = _terms(form, start)
        side = Side.of(
            (1, (E("q", c, ("x",)),)), *((k, (E("q", a), E("q", b, ("x",)))) for k, a, b in products)
        )
        named = Quantity(side)
    return named, of_batch(start, named)


def _witness(start: Derivation, found: Found) -> dict[str, Any] | None:
    held = start.context.given or start.context.premises
    holds_m = any("m" in element.names() for element in elements(found.right.side))
    worth = derive(found.right, premises=SIZE if holds_m else ())
    reward = ZERO if found.products else found.named.reward
    return witness_against_reverse_kl(worth if held else start, reward)


def _turning(products: list[Product]) -> tuple[str | None, tuple[Proof, ...]]:
    """Are the products of means a gradient together?"""
    total = Quantity(Side())
    for scale, a, b in products:
        total = total + _curl(a, b) * to_sympy(scale)
    one_A = Side.of(*((k, tuple(map(_as_R, atoms))) for k, atoms in total.side.terms))
    spoken = {parse_name(name).base for of in elements(one_A) for name in of.names()}
    return turning(total, Quantity(one_A), spoken, evaluate=True)


def _as_R(atom: Any) -> Any:
    return replace(atom, coefficient=atom.coefficient.substitute({"A[now]": ExpPoly.variable("R[now]")}))


def _curl(a: ExpPoly, b: ExpPoly) -> Quantity:
    """d_u E_q[a] E_q[b s].v - d_v E_q[a] E_q[b s].u."""
    context = derive(Quantity(Side.atom(E("q", a * b)))).context
    slope, other = (in_slot(x, "now", context) for x in (a + d_log_q(a, context), b))
    return curl(slope, other, "q")


# ---------------------------------------------------------------------------- at a sample, and the value
def _per_sample(start: Derivation) -> dict[str, ExpPoly]:
    if not start.left.terms:  # such as centred(1)
        return {}
    current = start if isinstance(start.left.terms[0][1][0], Indexed) else start.differentiate()
    found: dict[str, ExpPoly] = {}
    for c, (atom,) in current.left.terms:
        [slot] = atom.score  # type: ignore[attr-defined]
        found[slot] = found.get(slot, ZERO) + atom.coefficient * c  # type: ignore[attr-defined]
    return {slot: c for slot, c in found.items() if c}


def _of_self(per_sample: dict[str, ExpPoly]) -> ExpPoly:
    """With its score."""
    return per_sample.get("self", ZERO) * ExpPoly.variable("s[self]")


def _value(batch: Batch, setting: Setting, under: str) -> tuple[Meaning, ExpPoly | None]:
    """E_m[mean_i L_i], where it is one mean under q."""
    if batch.given:
        return Meaning(None), None
    on_policy = uses_sampler(to_ring(batch.expression), setting)
    start = derive(mean_over_i(batch.expression, under), on_policy=on_policy)
    constant, v = ZERO, ZERO
    for scale, atoms in start.reduce().left.terms:
        match atoms:
            case ():
                constant = constant + scale
            case (E("q", a, ()),):
                v = v + a * scale
            case _:
                return Meaning("separable"), ZERO
    if "m" in (constant + v).names():
        constant, v = (x.substitute({"n": to_ring(m + 1)}) for x in (constant, v))
    found = recognise_value(v)
    assumed = Search(assumed_of_value, start, tuple(found.multiples))
    return Meaning.of(found, found.unnamed_value, assumed), constant


# ---------------------------------------------------------------------------- over the standard deviation
def _normalised(written: Written, setting: Setting) -> Verdict:
    """normalised(h) as a reward is batch std of h; what is added to it is explained by itself."""
    expression = written.expression.xreplace({rho: 1}) if setting.on_policy else written.expression
    if isinstance(expression, Normalised) and setting.use == "reward":
        return _by_option(Written(written.text, expression), setting)
    terms = sympy.Add.make_args(written.expression.xreplace({rho: 1}) if setting.on_policy else expression)
    main = [term for term in terms if isinstance(term, Normalised)]
    rest = sympy.Add(*(term for term in terms if term not in main))
    if len(main) != 1 or rest == 0 or rest.has(Normalised) or setting.use != "reward":
        raise NotInRing("normalised(h) is no reward by itself, with terms added to it")
    kept = sympy.Add(*(t for t in sympy.Add.make_args(written.expression) if not t.has(Normalised)))
    spread, added = (Written(losses.show(e, TEXT), e) for e in (main[0], kept))
    return _beside(written, spread, added, setting)


def _beside(written: Written, main: Written, rest: Written, setting: Setting) -> Verdict:
    """normalised(h) + rest: fields add up, and so do curls; where one has none, the other decides."""
    spread = _by_option(main, setting)
    explained = explain_others if rest.expression.atoms(OverBatch) else explain_sample
    other = explained(rest, setting)
    gradient = other.target not in ("none", None)
    pushes = other.h if other.scores_named[0] else scored(_own(rest.expression, setting), own(s))
    said = [line for line in other.warnings if about(line) not in OF_LOSS]
    return replace(
        spread,
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        h=Made(total, (spread.h, pushes)),
        gradient=Meaning(spread.target if gradient else None, {}),
        value=other.value,
        constant=other.constant,
        hypotheses=tuple(dict.fromkeys((*spread.hypotheses, *other.hypotheses))),
        proofs=(*spread.proofs, *other.proofs),
        model=spread.model if gradient else None,
        objective_latex=None,
        shown="",
        steps=(),
        notes=(_adds(rest, other, gradient), *spread.notes, SCALED, *_recurrence(main, other)),
        warnings=tuple(dict.fromkeys((*spread.warnings, *said))),
    )


def _recurrence(main: Written, other: Verdict) -> tuple[str, ...]:
    """What normalised(R) - beta KL(q||p) makes of rewards 0 and 1, from one policy to the next."""
    if main.expression not in (Normalised(R), Normalised(-R)) or other.target != "reverse-kl":
        return ()
    sign = (
        -1 if main.expression == Normalised(R) else 1
    )  # descended, R less the KL stands with its sign turned
    beta, P = sign * to_sympy(other.gradient.parts["reverse-kl"]), parameter("P")
    if beta.has(n) or beta.is_negative:
        return ()
    step = losses.show(1 / (beta * sympy.sqrt(P * (1 - P))), TEXT)
    said = SUCCESS if beta.free_symbols else SUCCESS.replace(", {beta} > 0", "")
    return (said.format(beta=losses.show(beta, TEXT), step=step),)


def _own(rest: Any, setting: Setting) -> ExpPoly:
    """What a detached reward is at sample i."""
    element = to_ring(rest.replace(lambda e: isinstance(e, sg), lambda e: e.args[0]))
    return to_ring(own(to_sympy(at_policy(element) if setting.on_policy else element)))


def _adds(rest: Written, other: Verdict, gradient: bool) -> str:
    if gradient:
        return f"{rest.text} by itself targets {target_words(other)}: a gradient, which adds no curl"
    return f"{UNDECIDED}: {rest.text} has a curl of its own"


SHORT = {LeftOut: "leave-one-out", Centred: "mean", Normalised: "std"}


def _by_option(written: Written, setting: Setting) -> Verdict:
    """A detached reward that is centred as a whole is one with the option batch."""
    of = written.expression
    single = Written(written.text, of.args[0])
    verdict = explain_batch(single, replace(setting, batch=SHORT[type(of)]))
    h = scored(verdict.h, own(s)) if verdict.pushes else ZERO
    latex = losses.show(written, LATEX)
    return replace(
        verdict,
        loss_latex=latex,
        setting=setting,
        h=h,
        scores_named=(True, False),
        value=Meaning("zero"),  # what is centred has mean 0
        constant=ZERO,
        warnings=tuple(line for line in verdict.warnings if about(line) != "value_is_not_gradient"),
    )
