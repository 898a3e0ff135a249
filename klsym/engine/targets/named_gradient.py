"""Write an expected gradient in named quantities, and prove that it is equal to them.  Untrusted."""

from __future__ import annotations

from klsym.engine.fields.field import ReducedGradient, split_own_share
from klsym.engine.fields.named_terms import Decomposition, decompose
from klsym.engine.fields.primitives import WEIGHT, select_constant_terms
from klsym.engine.fields.slot_loss import collect_random_names
from klsym.engine.proof.derivation import Proof
from klsym.engine.proof.quantities import KL, Quantity, expectation, grad
from klsym.errors import ProofError
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.abbreviations import E, Side
from klsym.language.convert import to_sympy
from klsym.records import record


def prove_gradient(field: ReducedGradient, gradient: Quantity) -> Proof:
    """Prove this expected gradient; (n - 1)/m is 1 by the premise, off-policy means are multiplied out."""
    left = field.exchanged if field.loss.index or field.canonical_form is None else field.canonical_form
    if left.context.premises:
        return left.equals(gradient, using=[(0, None)])
    try:
        return left.equals(gradient)
    except ProofError:
        if field.loss.index != "i":
            raise
        return left.equals(gradient, evaluate=True)


def build_named_gradient(field: ReducedGradient, decomposition: Decomposition) -> Quantity:
    """Return the expected gradient in named quantities; E_q[a] E_q[s/rho] is -E_mu[a rho] grad KL(mu||q)."""
    if field.index == "t" or (not decomposition.remainder and not field.products):
        return decomposition.whole_quantity
    centred_form = find_centred_form(field)
    if centred_form is None:
        total = Quantity(Side.from_atom(E("q", field.c, ("x",))))
        pairs = (Side.combine((1, (E("q", a), E("q", b, ("x",))))) for a, b in field.products)
        return sum(map(Quantity, pairs), total)
    named = decompose("", {"x": centred_form.c}, field.reduced_parameters, field.loss.defined)
    total = (
        named.whole_quantity
        if not named.remainder
        else Quantity(Side.from_atom(E("q", centred_form.c, ("x",))))
    )
    return total + centred_form.mean * grad(KL("mu", "q")) * to_sympy(centred_form.share)


@record
class CentredForm:
    """The expected gradient E_q[c s] - share E_mu[h] E_mu[s]; share is 1, or 1 - 1/n."""

    share: ExpPoly
    h: ExpPoly
    c: ExpPoly

    @property
    def mean(self) -> Quantity:
        """E_mu[h]."""
        return expectation(to_sympy(self.h), "mu")


def find_centred_form(field: ReducedGradient, reduced: bool = False) -> CentredForm | None:
    """Return h and c of an expected gradient of that form; None for any other.

    reduced: h in canonical form, without the part whose mean is a number, and not as the option centres it.
    """
    total = ZERO
    for a, b in field.products:
        scale = b * WEIGHT
        if collect_random_names(scale, field.loss.defined):
            return None
        total = total - a * WEIGHT * scale
    share, h = split_own_share(total)
    if field.loss.centred_coefficient is None or reduced or not total:
        return CentredForm(share, h, field.c) if total else None
    centred_coefficient = field.loss.centred_coefficient * share * WEIGHT.invert()
    return CentredForm(
        share,
        field.loss.centred_coefficient,
        centred_coefficient - select_constant_terms(centred_coefficient, field.random_names.all),
    )
