"""Reduce the expected gradient of a loss to coefficients of score functions under q.  Untrusted.

    index   expected gradient          canonical form
    ""      E_m[grad L]                E_q[c s]
    i       E_m[mean_i grad L_i]       E_q[c s] + sum_k E_q[a_k] E_q[b_k s], by independence of the samples
    t       E_m[sum_t grad L_t]        E_q[sum_t sum_z c_z s_z], z a slot

A detached loss h replaces grad L by h s.  A sum H over later tokens is first exchanged,
sum_t s_t sum_{u>t} H_u = sum_u H_u sum_{t<u} s_t.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from klsym.engine.fields.named_terms import (
    RandomNames,
    sort_random_names,
    split_terms,
)
from klsym.engine.fields.position_sums import PLAIN, T, is_summable, m, n, sum_over_slot
from klsym.engine.fields.primitives import depends_on_theta, find_primitive, substitute_detached_on_policy
from klsym.engine.fields.slot_loss import SlotLoss, build_slot_loss
from klsym.engine.fields.term_table import Slots, read_slot_coefficients
from klsym.engine.options.settings import Setting, checked_setting
from klsym.engine.proof.derivation import Derivation, derive
from klsym.engine.proof.quantities import Quantity, expected_gradient
from klsym.engine.proof.reduction import Strategy, reduce_side
from klsym.engine.proof.sequence_quantities import mean_over_i, sum_over_t, token_gradient
from klsym.errors import KlsymError, ProofError, Refused
from klsym.kernel.derivatives import attach, differentiate_loss
from klsym.kernel.names import HELD, LOG_RATIOS, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SEQUENCE, name_in_slot
from klsym.kernel.statements import Context, MeanGradient
from klsym.language.abbreviations import E, IndexedGradient, Side
from klsym.language.convert import find_generic_functions, rename, to_ring, to_sympy
from klsym.language.expressions import Slot, length, log_q, now, own, s, sg
from klsym.language.parser import parse
from klsym.language.unfolding import differentiate_in_log_q, expand_context
from klsym.notation.losses import Written

BATCH_SIZE = ((n, m + 1),)
N, M = ExpPoly.from_variable("n"), ExpPoly.from_variable("m")
SUMS = (*LOG_RATIOS, "R")  # of a whole sequence the sums of those of its tokens
OPPOSITE = {"future": "past", "now": "now", "past": "future"}
SCORE_SLOTS = {"future": ("past",), "now": ("now",), "past": ("future",), "x": SEQUENCE}


class NotCanonical(KlsymError):
    """Means that do not reduce to E_q[c s] and products of two means."""


@dataclass(frozen=True)
class ReducedGradient:
    """An expected gradient, reduced to coefficients of score functions.

    start: as it is written; exchanged: with the sums over later rewards exchanged; canonical_form: in
    canonical
    form, or None if independence does not suffice and only score_coefficients are known.
    score_coefficients: h of the scores at one position, after differentiation.
    index, coefficients, products: the canonical form; products are pairs a, b of E_q[a] E_q[b s].
    attached_loss: of tokens, a loss with this gradient, up to sequence_part, a loss of the whole sequence.
    sequence_coefficient: of tokens, h if the expected gradient is E_m[h s], the sequence as one sample.
    """

    loss: SlotLoss
    start: Derivation
    exchanged: Derivation
    canonical_form: Derivation | None
    score_coefficients: Slots
    index: str
    coefficients: Slots = field(default_factory=dict)
    products: tuple[tuple[ExpPoly, ExpPoly], ...] = ()
    attached_loss: Any = None
    sequence_part: Any = 0
    sequence_coefficient: Any = None

    @property
    def random_names(self) -> RandomNames:
        """The names of the regions and logs of the loss, by what they depend on."""
        return sort_random_names(self.loss.defined)

    @property
    def differentiated(self) -> Derivation:
        """The expected gradient after differentiation."""
        return _differentiate(self.start)

    @property
    def reduced_parameters(self) -> tuple[str, ...]:
        return self.exchanged.context.parameters

    @property
    def sample_coefficient(self) -> ExpPoly:
        """The coefficient h of one sample that is centred, with the value of H substituted."""
        sum_values = {x: to_ring(value) for x, value in self.loss.sums.items()}
        h = self.score_coefficients.get("self", ZERO)
        h = ExpPoly({k: v for k, v in h.terms.items() if "n" not in dict(k[0]) and "[others]" not in str(k)})
        without_slots = h.rename(lambda x: x.replace("[self]", ""))
        return without_slots.substitute(sum_values) if sum_values else without_slots

    @property
    def c(self) -> ExpPoly:
        """The canonical coefficient at one sample."""
        return self.coefficients.get("x", ZERO)


def reduce_loss(loss: SlotLoss) -> ReducedGradient:
    """Reduce the expected gradient of a loss; raises UsageError or Beyond for what is not handled."""
    sequence_part, token_part = split_sequence_part(loss)
    start = start_derivation(replace(loss, expression=token_part), sequence_part)
    exchanged = start
    if loss.sums and loss.index == "t":
        exchanged = _exchange_sums(start if loss.detached else _differentiate(start))
    differentiated = _differentiate(start_derivation(loss) if sequence_part else start)
    score_coefficients = collect_score_coefficients(differentiated)
    if loss.index == "i":
        score_coefficients = {
            slot: coefficient for slot, c in score_coefficients.items() if (coefficient := rewrite_in_n(c))
        }
    partly_reduced = ReducedGradient(
        loss,
        start,
        exchanged,
        None,
        score_coefficients=score_coefficients,
        index="t" if loss.index == "t" else "",
    )
    try:
        canonical_form = (exchanged if loss.index else differentiated).reduce()
        c, products = (ZERO, ()) if loss.index == "t" else _split_canonical_form(canonical_form)
    except (Refused, NotCanonical):
        return partly_reduced
    reduced = replace(partly_reduced, canonical_form=canonical_form)
    if loss.index != "t":
        return replace(reduced, index="", coefficients={"x": c} if c else {}, products=products)
    sequence_coefficient, attached_loss = _find_attached_loss(loss, start, token_part, sequence_part)
    return replace(
        reduced,
        coefficients=read_slot_coefficients(_expand_into_tokens(canonical_form)),
        attached_loss=attached_loss,
        sequence_part=sequence_part,
        sequence_coefficient=sequence_coefficient,
    )


@lru_cache(maxsize=64)
def reduce_typed_loss(written: Written, setting: Setting) -> ReducedGradient:
    """Reduce the expected gradient of a typed loss."""
    return reduce_loss(build_slot_loss(written, setting))


def split_sequence_part(loss: SlotLoss) -> tuple[Any, Any]:
    """Return the part of a loss of tokens that is one loss of the whole sequence, and the remainder."""
    if loss.index == "t" and not loss.detached:  # on-policy sg(rho) is 1 at every token
        attached_expression = (
            to_sympy(substitute_detached_on_policy(loss.element)) if loss.detached_q else loss.expression
        )
        sequence_part, token_part = split_sequence_loss(attached_expression, loss.defined, attached_only=True)
        return (sequence_part, token_part) if sequence_part else (0, loss.expression)
    return 0, loss.expression


def start_derivation(loss: SlotLoss, sequence_part: Any = 0) -> Derivation:
    """Start a derivation from E_m[grad L]; sequence_part: a loss of the whole sequence that is added."""
    premises = BATCH_SIZE if loss.index == "i" and "m" in loss.element.names() else ()
    start = build_quantity(loss, sequence_part)
    sum_values = dict(loss.sums)
    return derive(start, on_policy=loss.detached_q, given=sum_values, premises=premises, defined=loss.defined)


def loss_gradient(text: str, **options: str) -> Derivation:
    """Start a derivation from the expected gradient of a loss, as `klsym explain` reads it.

    >>> loss_gradient("sg(rho)*k2", sampling="off-policy").differentiate().change_measure(to="q")
    E_q[k1*s]

    options: those of `explain`.  Regions, such as those beyond a bound, have names: `region("high")`.
    Raises UsageError: what `explain` refuses; NotInRing: an exact mean over the next token.
    """
    return start_derivation(build_slot_loss(Written(text, parse(text)), checked_setting(**options)))


def build_quantity(loss: SlotLoss, sequence_part: Any = 0) -> Quantity:
    """Return E_m[grad L] at the index, or E_m[h s] of a detached loss."""
    e, measure, element = loss.expression, loss.measure, loss.element
    if loss.index == "i":
        side = Side.from_atom(IndexedGradient("i", measure, element))
        typed = e if loss.typed is None else loss.typed_label
        return mean_over_i(e * own(s), measure) if loss.detached else Quantity(side, {}, {element: typed})
    if loss.index == "t":
        start = sum_over_t(e * now(s), measure) if loss.detached else token_gradient(e, measure)
        if loss.typed is not None and not loss.sums and e == loss.expression:
            start = replace(start, labels={element: loss.typed_label})
        return start + expected_gradient(sequence_part, measure) if sequence_part else start
    labels = {element: _build_label(loss, e)}
    if loss.detached:
        return Quantity(Side.from_atom(E(measure, element, ("x",))), find_generic_functions(e), labels)
    return replace(expected_gradient(e, measure), labels=labels)


def _build_label(loss: SlotLoss, e: Any) -> Any:
    """Return the label of a loss: its typed text, with T for the length."""
    if loss.label is None:
        return rename(e, length, T)
    typed = loss.label.expression
    text = f"sg({loss.label.text})" if loss.detached and e != typed else loss.label.text
    return Written(text, rename(e if loss.detached else typed, length, T))


def _differentiate(start: Derivation) -> Derivation:
    has_gradient = any(isinstance(atom, MeanGradient) for _, atoms in start.left.terms for atom in atoms)
    return start.differentiate() if has_gradient else start.drop_stop_gradients()


def collect_score_coefficients(start: Derivation) -> Slots:
    """Return the coefficient of the score of each slot."""
    coefficients: Slots = {}
    for c, (atom,) in start.left.terms:
        [slot] = atom.score  # type: ignore[attr-defined]
        coefficients[slot] = coefficients.get(slot, ZERO) + atom.coefficient * c  # type: ignore[attr-defined]
    return {slot: c for slot, c in coefficients.items() if c}


# ---------------------------------------------------------------------------- the canonical form
def _split_canonical_form(form: Derivation) -> tuple[ExpPoly, tuple[tuple[ExpPoly, ExpPoly], ...]]:
    """Return c and the products of means of a canonical form, in n alone where that is possible."""
    c, products = ZERO, []
    for scale, atoms in form.left.terms:
        match atoms:
            case (E("q", a, ("x",)),):
                c = c + a * scale
            case (E("q", a, ()), E("q", b, ("x",))) | (E("q", b, ("x",)), E("q", a, ())):
                products.append((rewrite_in_n(a * scale), rewrite_in_n(b)))
            case _:
                raise NotCanonical(form.left_text)
    return rewrite_in_n(c), tuple(pair for pair in products if pair[0])


def split_own_share(element: ExpPoly) -> tuple[ExpPoly, ExpPoly]:
    """Return (1 - 1/n, a) for (1 - 1/n) a, as a mean that includes the sample gives it; (1, a) otherwise."""
    without_n = ExpPoly({k: v for k, v in element.terms.items() if not any(name == "n" for name, _ in k[0])})
    scale = ONE - ExpPoly.from_variable("n").invert()
    return (scale, without_n) if element and element == without_n * scale else (ONE, element)


def rewrite_in_n(element: ExpPoly) -> ExpPoly:
    """Write an element in one of n and m = n - 1, where none of its denominators forbids that.

    >>> rewrite_in_n(N * M.invert() - M.invert() + M) == N
    True
    >>> rewrite_in_n((N * M).invert()) == M.invert() - N.invert()
    True
    """
    if "m" not in element.names():
        return element
    total = ZERO
    for term in split_terms(element):
        [(monomial, _)] = term.terms
        powers = dict(monomial)
        of_n, of_m = powers.get("n", 0), powers.get("m", 0)
        if of_n < 0 and of_m < 0:  # 1/(n m) = 1/m - 1/n
            total = total + rewrite_in_n(term * N) - rewrite_in_n(term * M)
        elif of_m < 0:
            total = total + term.substitute({"n": M + 1})
        else:
            total = total + term.substitute({"m": N - 1})
    return total


def _expand_into_tokens(reduced: Derivation) -> Side:
    """Return the side with means of whole sequences as sums over t."""
    side = reduced.left
    for _, reached in reduce_side(side, expand_context(reduced.context), strategy=Strategy(stepwise=True)):
        side = reached
    return side


# ---------------------------------------------------------------------------- losses of whole sequences
def split_sequence_loss(loss: Any, defined: Context = PLAIN, attached_only: bool = False) -> tuple[Any, Any]:
    """Return C and D_t with L_t = C/T + D_t, C of the whole sequence: sum_t L_t = C + sum_t D_t.

    A loss that is the same at every token, and not over T, is C/T for C = T L.
    defined: the regions of the loss, which may differ between tokens.  attached_only: C has a gradient.

    >>> from klsym.language.expressions import length, log_q, now, rho
    >>> split_sequence_loss(rho / length + now(log_q) / length)
    (rho, log_q[now]/length)
    >>> split_sequence_loss(rho, attached_only=True)
    (length*rho, 0)
    """
    element = to_ring(loss)
    sequence_terms, times_T = ZERO, attached_only and is_same_at_each_token(element, defined)
    for term in split_terms(element):
        of_sequence = defined.collect_slots(term) <= {"x"}
        over_T = times_T or "length" in term.collect_divisors()
        if of_sequence and over_T and (not attached_only or any(map(depends_on_theta, term.names()))):
            sequence_terms = sequence_terms + term
    if not sequence_terms:
        return 0, loss
    return to_sympy(sequence_terms * ExpPoly.from_variable("length")), to_sympy(element - sequence_terms)


def is_same_at_each_token(element: ExpPoly, defined: Context) -> bool:
    """Is it one loss of the sequence, repeated at each token, and not a sum of terms over T?"""
    names = [parse_name(name) for name in element.names()]
    of_sequence = bool(names) and defined.collect_slots(element) <= {"x"}
    over_T = all(("length", -1) in monomial for monomial, _ in element.terms)
    return of_sequence and not over_T and any(name.base in LOG_RATIOS for name in names)


# ---------------------------------------------------------------------------- losses with a given gradient
def _find_attached_loss(
    loss: SlotLoss, start: Derivation, token_part: Any, sequence_part: Any
) -> tuple[Any, Any]:
    """Return h, if the expected gradient is E_m[h s] of the whole sequence, and a token loss with it."""
    if not loss.detached:
        if loss.sums:
            gradient = _differentiate(start_derivation(replace(loss, expression=token_part)))
            return None, _build_attached_loss(collect_score_coefficients(gradient), loss)
        return _find_sequence_coefficient(start, loss.expression), token_part
    element = loss.element
    if loss.sums:
        return None, _build_attached_loss({"now": element}, loss)
    sequence_coefficient = loss.expression if loss.defined.collect_slots(element) <= {"x"} else None
    integral = (
        find_primitive(element, "now") if loss.measure == "mu" and sequence_coefficient is None else None
    )
    return sequence_coefficient, sg(loss.expression) * now(log_q) if integral is None else to_sympy(integral)


def _find_sequence_coefficient(start: Derivation, loss: Any) -> Any:
    """Return h with E_m[sum_t grad L_t] = E_m[h s], if L_t sums to a loss of the sequence; else None."""
    element = sum(
        (term for term in split_terms(to_ring(loss)) if any(map(depends_on_theta, term.names()))), ZERO
    )
    sequence_bases = {parse_name(x).base for x in element.names() if parse_name(x).slot == "x"}
    if not sequence_bases & {*LOG_RATIOS}:
        return None
    if is_summable(element, "now", start.context):
        return to_sympy(attach(differentiate_in_log_q(sum_over_slot(element, "x"), start.context)))
    coefficients = {
        slot: attach(slope) for slot, slope in differentiate_loss(element, "t", start.context).items()
    }
    is_same = {*coefficients} == {"now"} and start.context.collect_slots(coefficients["now"]) <= {"x"}
    return to_sympy(coefficients["now"]) if is_same else None  # sum_t h s_t = h s


def _exchange_sums(start: Derivation) -> Derivation:
    """Exchange the sums over rewards of other tokens: sum_t s_t sum_{u>t} H_u = sum_u H_u sum_{t<u} s_t."""
    current = start
    for slot in ("future", "past"):
        for name in HELD:
            current = _exchange_one_sum(current, name, slot)
    return current


def _exchange_one_sum(start: Derivation, name: str, slot: str) -> Derivation:
    """Exchange the sum over one H; unchanged if another factor varies from token to token."""
    for number, (_, atoms) in enumerate(start.left.terms):
        exchanged_terms = ZERO
        for term in split_terms(atoms[0].coefficient):  # type: ignore[attr-defined]
            exchanged_terms = (
                exchanged_terms + term if name_in_slot(name, slot) in term.names() else exchanged_terms
            )
        if exchanged_terms:
            with suppress(ProofError):
                data: dict[str, Any] = {
                    "now": "s",
                    "other": name,
                    "slot": slot,
                    "part": exchanged_terms.to_json(),
                }
                return start.step("exchange of sums", number, **data)
    return start


def move_to_own_tokens(slots: Slots) -> Slots:
    """Move sums over other tokens from the score of `now` to the scores of those tokens.

    sum_t c x_future s_now = sum_t c x_now s_past, where c is the same at each token.
    """
    coefficients: Slots = {}
    for slot, c in slots.items():
        for term in split_terms(c):
            [(monomial, exponent)] = term.terms
            [sum_name, *other_names] = [name for name, _ in monomial if parse_name(name).base in SUMS] or [""]
            sum_slot = parse_name(sum_name).slot if sum_name else "now"
            is_movable = (
                slot == "now" and not exponent and not other_names and dict(monomial).get(sum_name) == 1
            )
            is_same = all(parse_name(name).slot == "x" for name, _ in monomial if name != sum_name)
            if not (is_movable and is_same):
                coefficients[slot] = coefficients.get(slot, ZERO) + term
                continue
            moved_term = term * ExpPoly.from_variable(sum_name).invert()
            moved_term = moved_term * ExpPoly.from_variable(name_in_slot(parse_name(sum_name).base, "now"))
            for score_slot in SCORE_SLOTS[sum_slot]:
                coefficients[score_slot] = coefficients.get(score_slot, ZERO) + moved_term
    return {slot: c for slot, c in coefficients.items() if c}


def _build_attached_loss(slots: Mapping[str, ExpPoly], loss: SlotLoss) -> Any | None:
    """Return a loss with the gradient sum_z c_z s_z; H_u at its own token: sum_u sg(h_u) sum_{t<u} log q_t.

    None where H multiplies something else that changes from token to token.
    """
    total: Any = 0
    for slot, c in slots.items():
        for term in split_terms(c):
            sum_names = [
                x
                for e in loss.defined.walk_definitions(term)
                for x in e.names()
                if parse_name(x).base in HELD
            ]
            if not sum_names:
                total = total + sg(to_sympy(term)) * _build_log_q(slot)
                continue
            factor, sum_name = term * ExpPoly.from_variable(sum_names[0]).invert(), parse_name(sum_names[0])
            is_same = loss.defined.collect_slots(factor) <= {"x"} and sum_names[0] in term.names()
            if len(sum_names) > 1 or slot != "now" or not is_same:
                return None
            value = loss.sums[name_in_slot(sum_name.base, "now")]
            total = total + sg(to_sympy(factor) * value) * _build_log_q(OPPOSITE[sum_name.slot])
    return total


def _build_log_q(slot: str) -> Any:
    return log_q if slot == "x" else Slot(slot)(log_q)
