"""The named terms of an expected gradient: one table at one sample, one for tokens.  Untrusted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from klsym.engine.fields.slot_loss import ADVANTAGE
from klsym.engine.proof.quantities import KL, Quantity, expectation, grad
from klsym.engine.proof.reduction import Strategy, reduce_side
from klsym.engine.proof.sequence_quantities import sum_over_t, token_KL, token_KL_gradient
from klsym.kernel.ring import ONE, ExpPoly
from klsym.kernel.statements import Context as Plain
from klsym.language.abbreviations import Context, Indexed, Side
from klsym.language.convert import to_ring
from klsym.language.expressions import A, R, k1, length, log_q, now, past, r, rho
from klsym.language.unfolding import PLAIN, unfold

Slots = dict[str, ExpPoly]  # the slot of the score function -> its coefficient, all under q


@dataclass(frozen=True)
class NamedTerm:
    """A named term: in its canonical form, `lead` is a coefficient of the score of `slot`.

    objective: what it is the gradient of, if anything; expected_gradient: the quantity, if it is no gradient.
    part: its name in the combination that a verdict prints; a reward is the multiple times h.
    defined: the regions in h.
    """

    name: str
    slot: str
    lead: ExpPoly
    objective: Quantity | None
    expected_gradient: Quantity | None = None
    part: str = ""
    h: ExpPoly = ONE
    defined: Plain = PLAIN

    @property
    def quantity(self) -> Quantity:
        if self.expected_gradient is not None:
            return self.expected_gradient
        assert self.objective is not None
        return grad(self.objective)

    @cached_property
    def canonical(self) -> Slots:
        if self.slot == "x":
            return {"x": self.lead}
        side = unfold(self.quantity.side, Context())
        for _, reached in reduce_side(side, self.defined, strategy=Strategy(stepwise=True)):
            side = reached
        return read_slot_coefficients(side)


def read_slot_coefficients(side: Side) -> Slots:
    """Return the coefficient of the score of each slot in a canonical side."""
    coefficients: Slots = {}
    for coefficient, atoms in side.terms:
        [atom] = atoms
        assert isinstance(atom, Indexed) and atom.measure == "q" and len(atom.score) == 1
        coefficients[atom.score[0]] = atom.coefficient * coefficient
    return coefficients


def _build_term(
    name: str, slot: str, lead: object, objective: Quantity, part: str = "", h: object = 1
) -> NamedTerm:
    return NamedTerm(name, slot, to_ring(lead), objective, part=part, h=to_ring(h))


def build_mean(integrand: object) -> Quantity:
    return expectation(integrand, under="q")


@cache
def list_sample_terms() -> tuple[NamedTerm, NamedTerm]:
    """Return the two divergences at one sample."""
    return (
        _build_term("reverse-kl", "x", k1, KL("q", "p"), part="reverse-kl"),
        _build_term("forward-kl", "x", -r, KL("p", "q"), part="forward-kl"),
    )


@cache
def list_token_terms() -> tuple[NamedTerm, ...]:
    """Return the table for tokens."""
    over_T, to_prefix_of_q = ADVANTAGE / length, past(rho) ** -1  # from q to mu, the tokens before t
    return (
        _build_term("reverse-kl", "past", now(k1), KL("q", "p"), part="reverse-kl"),
        _build_term("forward-kl", "now", -past(r) * now(r), KL("p", "q"), part="forward-kl"),
        _build_term("reward", "past", now(R), build_mean(R), part="reward", h=R),
        _build_term("log_q", "past", now(log_q), build_mean(log_q)),
        _build_term("k1/T", "past", now(k1) / length, build_mean((k1 - 1) / length)),
        _build_term("log_q/T", "past", now(log_q) / length, build_mean((log_q - 1) / length)),
        _build_term("R/T", "past", now(R) / length, build_mean(R / length)),
        _build_term("T", "past", 1, build_mean(length)),
        _build_term("1/T", "now", 1 / length, build_mean(1 / length)),
        _build_term("kl of mu", "now", to_prefix_of_q / now(rho), KL("mu", "q")),
        _build_term("reverse at mu", "now", now(k1) * to_prefix_of_q, token_KL("q", "p", prefixes="mu")),
        _build_term("forward at mu", "now", -now(r) * to_prefix_of_q, token_KL("p", "q", prefixes="mu")),
        _build_term(
            "advantages", "past", ADVANTAGE, sum_over_t(ADVANTAGE, under="q"), part="reward", h=A * length
        ),
        _build_term("advantage", "now", ADVANTAGE, build_mean(ADVANTAGE), part="reward", h=A),
        _build_term("advantage/T", "now", over_T, build_mean(over_T), part="reward", h=over_T),
        NamedTerm(
            "reverse at q", "now", to_ring(now(k1)), None, expected_gradient=token_KL_gradient("q", "p")
        ),
        NamedTerm(
            "forward at q", "now", to_ring(-now(r)), None, expected_gradient=token_KL_gradient("p", "q")
        ),
    )
