"""What sampling a side of a statement averages: a polynomial in sample means, each under one measure.

Every atom becomes means E_m[a s..s] at its index, with the per-sample gradient written out symbolically,

    E_m[grad L]  ->  E_m[sum_z (dL/dlog q[z]) s_z]    z the slots; sg(.) held constant, then dropped
    grad E_q[a]  ->  E_q[(a + da/dlog q) s]           grad of a product by the product rule
    KL, chi2, J, Cov  ->  their definitions           count: E_count[a] = E_q[a / q]

This is how training code estimates them.  It is done by the kernel's own rules (chain rule, log-derivative,
curl) and by `unfolding`, as the proofs are; the exact oracle, which judges what is sampled, differentiates
literally and shares none of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import klsym.kernel.statements as statements
from klsym.errors import UsageError
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.densities import build_density_ratio
from klsym.kernel.derivatives import attach
from klsym.kernel.means import apply_chain_rule, apply_log_derivative
from klsym.kernel.names import SAMPLE
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import name_in_slot
from klsym.kernel.sums import apply_curl
from klsym.language.abbreviations import (
    Context,
    Curl,
    ExpectedGradient,
    Gradient,
    Mean,
    MeanGradient,
    Side,
    Statement,
    with_coefficient,
)
from klsym.language.unfolding import expand_context, unfold
from klsym.numeric.indices import STRUCTURES


class Deterministic(UsageError):
    """A side that speaks of one sample: there is nothing to average."""


Product = tuple[ExpPoly, tuple[Mean, ...]]  # a constant coefficient, and the means that it multiplies


def expand_side(side: Side, context: Context) -> tuple[Product, ...]:
    """A side as a sum of products of means.

    >>> from klsym.engine.proof.quantities import KL, grad
    >>> [(_, (mean,))] = expand_side(grad(KL("p", "q")).side, Context())
    >>> mean.measure, mean.score
    ('p', ('x',))

    Raises Deterministic: the side holds a quantity at one sample, or no mean at all.
    """
    products = tuple(_merge_means(_expand(unfold(side, context), expand_context(context))))
    if not any(means for _, means in products):
        raise Deterministic("nothing random: there is nothing to sample")
    return products


def disturb_mean(mean: Mean) -> Mean:
    """E_m[k1 s^j] beside E_m[a s^j]; at an index, k1 of the sample or step itself."""
    return with_coefficient(mean, ExpPoly.from_variable(name_in_slot("k1", STRUCTURES[mean.index].main)))


def _merge_means(products: Iterator[Product]) -> Iterator[Product]:
    """Lone means of one index, measure and score are one mean."""
    lone: dict[Mean, ExpPoly] = {}  # a mean without its coefficient -> the coefficients together
    for coefficient, means in products:
        if len(means) == 1:
            key = with_coefficient(means[0], ExpPoly({}))
            lone[key] = lone.get(key, ExpPoly({})) + coefficient * means[0].coefficient
        else:
            yield coefficient, means
    for mean, element in lone.items():
        if element:
            yield ExpPoly.from_number(1), (with_coefficient(mean, element),)


def _expand(side: Side, context: statements.Context) -> Iterator[Product]:
    for coefficient, atoms in side.terms:
        products: list[Product] = [(coefficient, ())]
        for atom in atoms:
            inner = list(_expand_atom(atom, context))
            products = [(c * d, means + inner_means) for c, means in products for d, inner_means in inner]
        yield from products


def _expand_atom(atom: statements.Atom, context: statements.Context) -> Iterator[Product]:
    match atom:
        case Gradient(of):
            yield from _expand_gradient(of, context)
        case Mean(index, measure, a, score) if measure != SAMPLE:
            if measure == "count":
                measure, a = "q", a * build_density_ratio("count", "q")
            yield ExpPoly.from_number(1), (Mean(index, measure, attach(a), score),)
        case MeanGradient(_, measure, _) if measure != SAMPLE:
            yield from _expand(apply_chain_rule(atom, {}, Assumptions(context)), context)
        case Curl():
            yield from _expand(apply_curl(atom, {}, Assumptions(context)), context)
        case _:
            raise Deterministic("a quantity at one sample: there is nothing to average")


def _expand_gradient(of: Side, context: statements.Context) -> Iterator[Product]:
    """The product rule over the means of a side; a detached quantity is a constant in it."""
    for coefficient, atoms in of.terms:
        for j, atom in enumerate(atoms):
            others: list[Product] = [(coefficient, ())]
            for factor in atoms[:j] + atoms[j + 1 :]:
                inner = list(_expand_atom(factor, context))
                others = [(c * d, means + inner_means) for c, means in others for d, inner_means in inner]
            if not isinstance(atom, Mean) or atom.score or atom.measure == SAMPLE:
                raise Deterministic(f"the gradient of {type(atom).__name__} is not sampled")
            differentiated = apply_log_derivative(Gradient(Side.from_atom(atom)), {}, Assumptions(context))
            for slope, means in _expand(differentiated, context):
                for coefficient_factor, constant_means in others:
                    yield coefficient_factor * slope, means + constant_means


def list_gradient_losses(statement: Statement) -> list[ExpectedGradient]:
    """The expected gradients of losses in a statement: what autograd can estimate as well."""
    sides = (statement.left, statement.right)
    atoms_of_sides = [a for side in sides for _, atoms in side.terms for a in atoms]
    return [atom for atom in dict.fromkeys(atoms_of_sides) if isinstance(atom, ExpectedGradient)]
