"""What the expected gradient of token losses is made of: named pieces, and what is left of it.  Untrusted.

The canonical form (reduce.py) is a sum of E_q[sum_t c s_now] and E_q[sum_t c s_past], such as

    grad KL(q||p) = E_q[sum_t k1_now (s_now + s_past)]        grad E_q[T] = E_q[sum_t s_past]

Each piece has a term that no later piece has; its multiple is read off there.  The kernel checks the sum.
Any h(R, A) and h(R, A)/T of the whole sequence has a piece of its own, grad E_q[h], made where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from klsym.abbreviations import Context, Indexed, Side
from klsym.convert import to_ring, to_sympy
from klsym.engine.explain_slots import ADVANTAGE
from klsym.engine.indexed import sum_over_t, token_KL, token_KL_gradient
from klsym.engine.quantities import KL, Quantity, expectation, grad
from klsym.engine.reduce import Strategy, reduction
from klsym.kernel.derivatives import sample_part
from klsym.language import A, R, k1, length, log_q, now, past, r, rho
from klsym.names import parse_name
from klsym.render import formulas
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.statements import Context as Plain
from klsym.unfolding import unfold

Slots = dict[str, ExpPoly]  # the slot of the score function -> its coefficient, all under q


@dataclass(frozen=True)
class Piece:
    """A named quantity: its canonical form holds the term `lead` beside the score of `slot`.

    objective: what it is the gradient of, if anything; field: the quantity itself, where it is no gradient.
    part: what the multiple counts among the combination of the contract, times h where that is a reward.
    """

    name: str
    slot: str
    lead: ExpPoly
    objective: Quantity | None
    field: Quantity | None = None
    part: str = ""
    h: ExpPoly = ONE

    @property
    def quantity(self) -> Quantity:
        if self.field is not None:
            return self.field
        assert self.objective is not None
        return grad(self.objective)

    @cached_property
    def canonical(self) -> Slots:
        side = unfold(self.quantity.side, Context())
        for _, reached in reduction(side, Plain(), strategy=Strategy(stepwise=True)):
            side = reached
        return slots_of(side)


def slots_of(side: Side) -> Slots:
    """A canonical side as coefficients of the scores of slots."""
    found: Slots = {}
    for coefficient, atoms in side.terms:
        [atom] = atoms
        assert isinstance(atom, Indexed) and atom.measure == "q" and len(atom.score) == 1
        found[atom.score[0]] = atom.coefficient * coefficient
    return found


def _objective(
    name: str, slot: str, lead: object, objective: Quantity, part: str = "", h: object = 1
) -> Piece:
    return Piece(name, slot, to_ring(lead), objective, None, part, to_ring(h))


def _field(name: str, slot: str, lead: object, field: Quantity) -> Piece:
    return Piece(name, slot, to_ring(lead), None, field)


def _mean(of: object) -> Quantity:
    return expectation(of, under="q")


OVER_T = ADVANTAGE / length
BEFORE = past(rho) ** -1  # brings the tokens before t from q to mu
PIECES = (
    _objective("reverse-kl", "past", now(k1), KL("q", "p"), "reverse-kl"),
    _objective("forward-kl", "now", -past(r) * now(r), KL("p", "q"), "forward-kl"),
    _objective("reward", "past", now(R), _mean(R), "reward", R),
    _objective("k1/T", "past", now(k1) / length, _mean((k1 - 1) / length)),
    _objective("log_q/T", "past", now(log_q) / length, _mean((log_q - 1) / length)),
    _objective("R/T", "past", now(R) / length, _mean(R / length)),
    _objective("T", "past", 1, _mean(length)),
    _objective("1/T", "now", 1 / length, _mean(1 / length)),
    _objective("kl of mu", "now", BEFORE / now(rho), KL("mu", "q")),
    _objective("reverse at mu", "now", now(k1) * BEFORE, token_KL("q", "p", prefixes="mu")),
    _objective("forward at mu", "now", -now(r) * BEFORE, token_KL("p", "q", prefixes="mu")),
    _objective("advantages", "past", ADVANTAGE, sum_over_t(ADVANTAGE, under="q"), "reward", A * length),
    _objective("advantage", "now", ADVANTAGE, _mean(ADVANTAGE), "reward", A),
    _objective("advantage/T", "now", OVER_T, _mean(OVER_T), "reward", OVER_T),
    _field("reverse at q", "now", now(k1), token_KL_gradient("q", "p")),
    _field("forward at q", "now", -now(r), token_KL_gradient("p", "q")),
)


@dataclass(frozen=True)
class Decomposition:
    """The multiples of pieces, by name, and the rest."""

    multiples: dict[str, ExpPoly]
    rest: Slots
    pieces: tuple[Piece, ...] = PIECES

    def quantity(
        self, of: Callable[[Piece], Quantity | None] = lambda piece: piece.quantity
    ) -> Quantity | None:
        """The sum of multiples of pieces, or of their objectives; None if one of them has none."""
        total = Quantity(Side())
        for piece in self.found:
            value = of(piece)
            if value is None:
                return None
            total = total + value * to_sympy(self.multiples[piece.name])
        return total

    @property
    def found(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if piece.name in self.multiples)

    @property
    def whole(self) -> Quantity:
        """Everything, the rest included."""
        named = self.quantity()
        assert named is not None
        atoms = (Side.atom(Indexed("t", "q", c, (slot,))) for slot, c in self.rest.items())
        return sum((Quantity(side) for side in atoms), named)

    @property
    def objective(self) -> Quantity | None:
        """What the pieces are the gradient of; None where one is no gradient, or something is left."""
        return None if self.rest else self.quantity(lambda piece: piece.objective)

    @property
    def combination(self) -> dict[str, ExpPoly]:
        """The multiples of the contract, rewards as functions of the whole sample."""
        found: dict[str, ExpPoly] = {}
        for piece in self.found:
            if piece.part:
                value = self.multiples[piece.name] * piece.h
                found[piece.part] = found.get(piece.part, ZERO) + value
        return found

    def without_rewards(self, slots: Slots) -> Slots:
        """The coefficients of the scores less the policy gradient of the rewards."""
        for piece in self.found:
            if piece.part == "reward":
                slots = _less(slots, piece, self.multiples[piece.name])
        return {slot: c for slot, c in slots.items() if c}


def _less(slots: Slots, piece: Piece, multiple: ExpPoly) -> Slots:
    taken = {slot: c * multiple for slot, c in piece.canonical.items()}
    return {slot: slots.get(slot, ZERO) - taken.get(slot, ZERO) for slot in {*slots, *taken}}


def decompose(field: Slots, parameters: tuple[str, ...]) -> Decomposition:
    """Take off multiples of the pieces, one after the other."""
    context, multiples = Context(parameters=parameters), {}
    made = tuple(_made(field, context))
    for piece in (*made, *PIECES):
        multiple = _multiple(field.get(piece.slot, ZERO), piece.lead, context)
        less = _less(field, piece, multiple) if multiple else field
        if multiple and (piece in PIECES or _size(field) - _size(less) >= _size(piece.canonical)):
            multiples[piece.name], field = multiple, less
    return Decomposition(multiples, {slot: c for slot, c in sorted(field.items()) if c}, (*made, *PIECES))


def _size(slots: Slots) -> int:
    return sum(len(c.terms) for c in slots.values())


def _made(field: Slots, context: Context) -> Iterator[Piece]:
    """Pieces grad E_q[h] for what the field may hold of them, h beyond those of PIECES."""
    known = {piece.lead for piece in PIECES if piece.objective is not None}
    for slot in ("past", "now"):
        for monomial, exponent in field.get(slot, ZERO).terms:
            lead = sample_part(monomial, exponent, context)
            h = _of_the_whole(lead, slot)
            if h is None or lead in known:
                continue
            known = known | {lead}
            yield Piece(f"advantage {formulas.element(h)}", slot, lead, _mean(to_sympy(h)), None, "reward", h)


def _of_the_whole(lead: ExpPoly, slot: str) -> ExpPoly | None:
    """h(R, A), perhaps over T, with the term `lead` in grad E_q[h] = E_q[sum_t h s_t].

    R = R_past + R_now + R_future, and sum_t R_future s_t = sum_t R_t s_past.
    """
    [(monomial, exponent)] = lead.terms
    powers = dict(monomial)
    rewards = {name: powers.pop(name) for name in [*powers] if parse_name(name).base == "R"}
    whole = powers.keys() <= {"A", "length"} and powers.get("length", -1) == -1
    once = slot == "past" and rewards == {"R[now]": 1}
    often = slot == "now" and (not rewards or (rewards.keys() == {"R[future]"} and rewards["R[future]"] > 1))
    if exponent or not whole or not (once or often):
        return None
    return ExpPoly(
        {(tuple(sorted({**powers, "R": sum(rewards.values())}.items())), ()): 1} if rewards else lead.terms
    )


def _multiple(a: ExpPoly, lead: ExpPoly, context: Context) -> ExpPoly:
    """The constant c of the terms c * lead of a."""
    back, total = lead.inverse(), ZERO
    for key, value in a.terms.items():
        factor = ExpPoly({key: value}) * back
        if context.is_constant(factor):
            total = total + factor
    return total
