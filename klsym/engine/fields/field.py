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

from klsym.engine.fields.named_terms import Further, Slots, further, slots_of, terms_of
from klsym.engine.fields.position_sums import PLAIN, T, adds_up, m, n, summed
from klsym.engine.fields.primitives import depends_on_theta, held_at_policy, primitive
from klsym.engine.fields.slot_loss import SlotLoss, slot_loss
from klsym.engine.options.settings import Setting, checked_setting
from klsym.engine.proof.derivation import Derivation, derive
from klsym.engine.proof.quantities import Quantity, expected_gradient
from klsym.engine.proof.reduction import Strategy, reduction
from klsym.engine.proof.sequence_quantities import mean_over_i, sum_over_t, token_gradient
from klsym.errors import KlsymError, ProofError, Refused
from klsym.kernel.derivatives import attach, slopes
from klsym.kernel.names import HELD, LOG_RATIOS, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SEQUENCE, at_slot
from klsym.kernel.statements import Context, MeanGradient
from klsym.language.abbreviations import E, IndexedGradient, Side
from klsym.language.convert import generic_functions, to_ring, to_sympy
from klsym.language.expressions import Slot, length, log_q, now, own, s, sg
from klsym.language.parser import parse
from klsym.language.unfolding import d_log_q, written_out
from klsym.notation.losses import Written

BATCH_SIZE = ((n, m + 1),)
N, M = ExpPoly.variable("n"), ExpPoly.variable("m")
SUMS = (*LOG_RATIOS, "R")  # of a whole sequence the sums of those of its tokens
OPPOSITE = {"future": "past", "now": "now", "past": "future"}
MEETS = {"future": ("past",), "now": ("now",), "past": ("future",), "x": SEQUENCE}


class NotCanonical(KlsymError):
    """Means that are not brought to E_q[c s] and products of two means."""


@dataclass(frozen=True)
class Field:
    """An expected gradient.

    start: as it is written; exchanged: with later rewards summed where they arise; form: in canonical
    form; None where independence does not bring it there, and only pushes are known.
    pushes: the coefficients of the scores at one position, after differentiation.
    index, coefficients, products: the canonical form; products are pairs a, b of E_q[a] E_q[b s].
    attached: of tokens, a loss with this gradient, but for `constant`, a loss of the whole sequence.
    whole: of tokens, h where the field is E_m[h s] for the whole sequence as one sample.
    """

    loss: SlotLoss
    start: Derivation
    exchanged: Derivation
    form: Derivation | None
    pushes: Slots
    index: str
    coefficients: Slots = field(default_factory=dict)
    products: tuple[tuple[ExpPoly, ExpPoly], ...] = ()
    attached: Any = None
    constant: Any = 0
    whole: Any = None

    @property
    def names(self) -> Further:
        """What the regions of the loss are."""
        return further(self.loss.defined)

    @property
    def differentiated(self) -> Derivation:
        """The expected gradient with its scores written out."""
        return _moved(self.start)

    @property
    def reduced_parameters(self) -> tuple[str, ...]:
        return self.exchanged.context.parameters

    @property
    def h_of_sample(self) -> ExpPoly:
        """Return the coefficient h of one sample that is centred, with the value of H put in."""
        own = {x: to_ring(value) for x, value in self.loss.sums.items()}
        h = self.pushes.get("self", ZERO)
        h = ExpPoly({k: v for k, v in h.terms.items() if "n" not in dict(k[0]) and "[others]" not in str(k)})
        bare = h.rename(lambda x: x.replace("[self]", ""))
        return bare.substitute(own) if own else bare

    @property
    def c(self) -> ExpPoly:
        """The coefficient at one sample."""
        return self.coefficients.get("x", ZERO)


def field_of(loss: SlotLoss) -> Field:
    """Reduce the expected gradient of a loss; raises UsageError or Beyond for what is not handled."""
    constant, rest = parts_of(loss)
    start = start_of(replace(loss, expression=rest), constant)
    exchanged = (
        _exchanged(_moved(start) if not loss.detached else start)
        if loss.sums and loss.index == "t"
        else start
    )
    pushes = scores_of(_moved(start_of(loss) if constant else start))
    if loss.index == "i":
        pushes = {slot: size for slot, c in pushes.items() if (size := in_n(c))}
    try:
        form = exchanged.reduce()
        c, products = (ZERO, ()) if loss.index == "t" else _sorted(form)
    except (Refused, NotCanonical):
        return Field(loss, start, exchanged, None, pushes, "t" if loss.index == "t" else "")
    if loss.index != "t":
        return Field(loss, start, exchanged, form, pushes, "", {"x": c} if c else {}, products)
    whole, attached = _attached(loss, start, rest, constant)
    return Field(
        loss, start, exchanged, form, pushes, "t", slots_of(_in_steps(form)), (), attached, constant, whole
    )


@lru_cache(maxsize=64)
def field_of_loss(written: Written, setting: Setting) -> Field:
    """The field of a loss as it is written."""
    return field_of(slot_loss(written, setting))


def parts_of(loss: SlotLoss) -> tuple[Any, Any]:
    """Return the part of a loss of tokens that is one loss of the whole sequence, and the rest."""
    if loss.index == "t" and not loss.detached:  # on-policy sg(rho) is 1 at every token
        of = to_sympy(held_at_policy(loss.element)) if loss.copied else loss.expression
        constant, rest = same_at_every_token(of, loss.defined, moving=True)
        return (constant, rest) if constant else (0, loss.expression)
    return 0, loss.expression


def start_of(loss: SlotLoss, constant: Any = 0) -> Derivation:
    """Where a derivation starts; constant: a loss of the whole sequence beside that of each token."""
    premises = BATCH_SIZE if loss.index == "i" and "m" in loss.element.names() else ()
    start = quantity_of(loss, constant)
    given = dict(loss.sums)
    return derive(start, on_policy=loss.copied, given=given, premises=premises, defined=loss.defined)


def loss_gradient(text: str, **options: str) -> Derivation:
    """Start a derivation from the expected gradient of a loss, as `klsym explain` reads it.

    >>> loss_gradient("sg(rho)*k2", sampling="off-policy").differentiate().change_measure(to="q")
    E_q[k1*s]

    options: those of `explain`.  Regions, such as where a bound binds, have names: `region("high")`.
    Raises UsageError: what `explain` refuses; NotInRing: an exact mean over the next token.
    """
    return start_of(slot_loss(Written(text, parse(text)), checked_setting(**options)))


def quantity_of(loss: SlotLoss, constant: Any = 0) -> Quantity:
    """E_m[grad L], or E_m[h s] of what is detached, at the index."""
    e, under, element = loss.expression, loss.under, loss.element
    if loss.index == "i":
        side = Side.atom(IndexedGradient("i", under, element))
        typed = e if loss.typed is None else loss.typed_label
        return mean_over_i(e * own(s), under) if loss.detached else Quantity(side, {}, {element: typed})
    if loss.index == "t":
        start = sum_over_t(e * now(s), under) if loss.detached else token_gradient(e, under)
        if loss.typed is not None and not loss.sums and e == loss.expression:
            start = replace(start, labels={element: loss.typed_label})
        return start + expected_gradient(constant, under) if constant else start
    labels = {element: _label(loss, e)}
    if loss.detached:
        return Quantity(Side.atom(E(under, element, ("x",))), generic_functions(e), labels)
    return replace(expected_gradient(e, under), labels=labels)


def _label(loss: SlotLoss, e: Any) -> Any:
    """As it was written; T is printed for its length."""
    if loss.label is None:
        return e.xreplace({length: T})
    typed = loss.label.expression
    text = f"sg({loss.label.text})" if loss.detached and e != typed else loss.label.text
    return Written(text, (e if loss.detached else typed).xreplace({length: T}))


def _moved(start: Derivation) -> Derivation:
    differentiated = any(isinstance(atom, MeanGradient) for _, atoms in start.left.terms for atom in atoms)
    return start.differentiate() if differentiated else start.drop_stop_gradients()


def scores_of(start: Derivation) -> Slots:
    """The coefficient of the score of each slot."""
    found: Slots = {}
    for c, (atom,) in start.left.terms:
        [slot] = atom.score  # type: ignore[attr-defined]
        found[slot] = found.get(slot, ZERO) + atom.coefficient * c  # type: ignore[attr-defined]
    return {slot: c for slot, c in found.items() if c}


# ---------------------------------------------------------------------------- the canonical form
def _sorted(form: Derivation) -> tuple[ExpPoly, tuple[tuple[ExpPoly, ExpPoly], ...]]:
    """c and the products of means, in terms of n alone where that is possible."""
    c, products = ZERO, []
    for scale, atoms in form.left.terms:
        match atoms:
            case (E("q", a, ("x",)),):
                c = c + a * scale
            case (E("q", a, ()), E("q", b, ("x",))) | (E("q", b, ("x",)), E("q", a, ())):
                products.append((in_n(a * scale), in_n(b)))
            case _:
                raise NotCanonical(form.left_text)
    return in_n(c), tuple(pair for pair in products if pair[0])


def less_own_share(element: ExpPoly) -> tuple[ExpPoly, ExpPoly]:
    """(1 - 1/n, a) for (1 - 1/n) a, where a sample stands in its own mean; (1, a) for any other a."""
    bare = ExpPoly({k: v for k, v in element.terms.items() if not any(name == "n" for name, _ in k[0])})
    scale = ONE - ExpPoly.variable("n").inverse()
    return (scale, bare) if element and element == bare * scale else (ONE, element)


def in_n(element: ExpPoly) -> ExpPoly:
    """Write an element in one of n and m = n - 1, where none of its denominators forbids that.

    >>> in_n(N * M.inverse() - M.inverse() + M) == N, in_n((N * M).inverse()) == M.inverse() - N.inverse()
    (True, True)
    """
    if "m" not in element.names():
        return element
    total = ZERO
    for term in terms_of(element):
        [(monomial, _)] = term.terms
        powers = dict(monomial)
        of_n, of_m = powers.get("n", 0), powers.get("m", 0)
        if of_n < 0 and of_m < 0:  # 1/(n m) = 1/m - 1/n
            total = total + in_n(term * N) - in_n(term * M)
        elif of_m < 0:
            total = total + term.substitute({"n": M + 1})
        else:
            total = total + term.substitute({"m": N - 1})
    return total


def _in_steps(reduced: Derivation) -> Side:
    """Means of whole sequences as sums over t."""
    side = reduced.left
    for _, reached in reduction(side, written_out(reduced.context), strategy=Strategy(stepwise=True)):
        side = reached
    return side


# ---------------------------------------------------------------------------- what is the same at every token
def same_at_every_token(loss: Any, defined: Context = PLAIN, moving: bool = False) -> tuple[Any, Any]:
    """C and D_t with L_t = C/T + D_t, C of the whole sequence: as sum_t 1/T = 1, sum_t L_t = C + sum_t D_t.

    A loss that is the same at every token, and not over T, is C/T for C = T L.
    defined: the regions of the loss, which may differ from token to token.  moving: only what has a gradient.

    >>> from klsym.language.expressions import length, log_q, now, rho
    >>> same_at_every_token(rho / length + now(log_q) / length)
    (rho, log_q[now]/length)
    >>> same_at_every_token(rho, moving=True)
    (length*rho, 0)
    """
    element = to_ring(loss)
    constant, times_T = ZERO, moving and is_the_same(element, defined)
    for term in terms_of(element):
        whole = defined.speaks_of(term) <= {"x"}
        over_T = times_T or "length" in term.inverted()
        if whole and over_T and (not moving or any(map(depends_on_theta, term.names()))):
            constant = constant + term
    if not constant:
        return 0, loss
    return to_sympy(constant * ExpPoly.variable("length")), to_sympy(element - constant)


def is_the_same(element: ExpPoly, defined: Context) -> bool:
    """Is a loss of tokens that of the sequence at each token, and no sum of terms over T?"""
    names = [parse_name(name) for name in element.names()]
    of_sequence = bool(names) and defined.speaks_of(element) <= {"x"}
    over_T = all(("length", -1) in monomial for monomial, _ in element.terms)
    return of_sequence and not over_T and any(name.base in LOG_RATIOS for name in names)


# ---------------------------------------------------------------------------- a loss with this gradient
def _attached(loss: SlotLoss, start: Derivation, rest: Any, constant: Any) -> tuple[Any, Any]:
    """h of the whole sequence, if the field is E_m[h s]; and a token loss whose gradient the field is."""
    if not loss.detached:
        if loss.sums:
            moved = _moved(start_of(replace(loss, expression=rest)))
            return None, _detached(scores_of(moved), loss)
        return _of_the_whole(start, loss.expression), rest
    element = loss.element
    if loss.sums:
        return None, _detached({"now": element}, loss)
    whole = loss.expression if loss.defined.speaks_of(element) <= {"x"} else None
    found = primitive(element, "now") if loss.under == "mu" and whole is None else None
    return whole, sg(loss.expression) * now(log_q) if found is None else to_sympy(found)


def _of_the_whole(start: Derivation, loss: Any) -> Any:
    """h with E_m[sum_t grad L_t] = E_m[h s], where L_t adds up to a loss of the sequence."""
    element = sum(
        (term for term in terms_of(to_ring(loss)) if any(map(depends_on_theta, term.names()))), ZERO
    )
    of_sequence = {parse_name(x).base for x in element.names() if parse_name(x).slot == "x"}
    if not of_sequence & {*LOG_RATIOS}:
        return None
    if adds_up(element, "now", start.context):
        return to_sympy(attach(d_log_q(summed(element, "x"), start.context)))
    moved = {slot: attach(slope) for slot, slope in slopes(element, "t", start.context).items()}
    same = {*moved} == {"now"} and start.context.speaks_of(moved["now"]) <= {"x"}
    return to_sympy(moved["now"]) if same else None  # sum_t h s_t = h s


def _exchanged(start: Derivation) -> Derivation:
    """The rewards of other tokens, summed where they arise."""
    current = start
    for slot in ("future", "past"):
        for name in HELD:
            current = _exchanged_one(current, name, slot)
    return current


def _exchanged_one(start: Derivation, name: str, slot: str) -> Derivation:
    """The sum H moved to its own token; unchanged where another factor varies from token to token."""
    for number, (_, atoms) in enumerate(start.left.terms):
        held = ZERO
        for term in terms_of(atoms[0].coefficient):  # type: ignore[attr-defined]
            held = held + term if at_slot(name, slot) in term.names() else held
        if held:
            with suppress(ProofError):
                data: dict[str, Any] = {"now": "s", "other": name, "slot": slot, "part": held.to_json()}
                return start.step("exchange of sums", number, **data)
    return start


def at_own_tokens(slots: Slots) -> Slots:
    """Sums over other tokens beside the score of one, as tokens beside the scores of others.

    sum_t c x_future s_now = sum_t c x_now s_past, where c is the same at each token.
    """
    found: Slots = {}
    for slot, c in slots.items():
        for term in terms_of(c):
            [(monomial, exponent)] = term.terms
            [summed, *others] = [name for name, _ in monomial if parse_name(name).base in SUMS] or [""]
            place = parse_name(summed).slot if summed else "now"
            moves = slot == "now" and not exponent and not others and dict(monomial).get(summed) == 1
            same = all(parse_name(name).slot == "x" for name, _ in monomial if name != summed)
            if not (moves and same):
                found[slot] = found.get(slot, ZERO) + term
                continue
            own = term * ExpPoly.variable(summed).inverse()
            own = own * ExpPoly.variable(at_slot(parse_name(summed).base, "now"))
            for meets in MEETS[place]:
                found[meets] = found.get(meets, ZERO) + own
    return {slot: c for slot, c in found.items() if c}


def _detached(slots: Mapping[str, ExpPoly], loss: SlotLoss) -> Any | None:
    """A loss with the gradient sum_z c_z s_z, H_u put where it arises: sum_u sg(h_u) sum_{t<u} log q_t.

    None where H multiplies something else that changes from token to token.
    """
    total: Any = 0
    for slot, c in slots.items():
        for term in terms_of(c):
            held = [x for e in loss.defined.within(term) for x in e.names() if parse_name(x).base in HELD]
            if not held:
                total = total + sg(to_sympy(term)) * _log_q(slot)
                continue
            factor, of = term * ExpPoly.variable(held[0]).inverse(), parse_name(held[0])
            same = loss.defined.speaks_of(factor) <= {"x"} and held[0] in term.names()
            if len(held) > 1 or slot != "now" or not same:
                return None
            value = loss.sums[at_slot(of.base, "now")]
            total = total + sg(to_sympy(factor) * value) * _log_q(OPPOSITE[of.slot])
    return total


def _log_q(slot: str) -> Any:
    return log_q if slot == "x" else Slot(slot)(log_q)
