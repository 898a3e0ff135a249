"""Find the objective of an expected gradient of samples that is no combination of named terms.  Untrusted.

    E_q[c s] = a grad KL(q||p) + b grad KL(p||q) + grad E_q[h] + grad E_q[F]
    E_mu[h s] - E_mu[h] E_mu[s] = grad Cov_mu(h, log q), with other weights for what depends on theta in h

`fields.primitives` holds the primitives F of single coefficients.
"""

from __future__ import annotations

from functools import lru_cache

from klsym.engine.fields.named_terms import K1, R_RATIO, NamedParts, sort_random_names, split_terms
from klsym.engine.fields.primitives import (
    MAX_PRIMITIVE_TERMS,
    WEIGHT,
    find_objective_under,
    is_multiple,
    select_constant_terms,
)
from klsym.engine.proof.derivation import derive
from klsym.engine.proof.quantities import KL, Quantity, covariance, expectation, grad
from klsym.kernel.names import LOG_RATIOS, SAMPLE_BASES
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.abbreviations import Side
from klsym.language.convert import to_sympy
from klsym.language.expressions import log_q
from klsym.language.unfolding import PLAIN, differentiate_in_log_q


@lru_cache(maxsize=64)  # asked for its name, its proof and its shape
def build_objective(parts: NamedParts) -> Quantity | None:
    """Return a KL(q||p) + b KL(p||q) + E_q[h] + E_m[F], F for the remainder; None where no F is known.

    With a remainder that is not divided by T, everything is one expectation, up to a constant.

    >>> from klsym.language.convert import to_ring
    >>> from klsym.engine.fields.named_terms import recognise_coefficient
    >>> from klsym.language.expressions import k1, rho
    >>> [build_objective(recognise_coefficient(to_ring(c))) for c in (k1 / rho + k1, 1 / rho)]
    [E_mu[k1**2/2] + E_q[k1], -KL(mu||q)]
    """
    if parts.remainder and "length" not in parts.remainder.names():
        return _build_remainder_objective(
            parts.reverse * K1 - parts.forward * R_RATIO + parts.reward + parts.remainder
        )
    remainder = _build_remainder_objective(parts.remainder)
    if remainder is None:
        return None
    total = KL("q", "p") * to_sympy(parts.reverse) + KL("p", "q") * to_sympy(parts.forward)
    return total + (expectation(to_sympy(parts.reward), "q") if parts.reward else 0) + remainder


def _build_remainder_objective(remainder: ExpPoly) -> Quantity | None:
    """Return the objective of terms without a name: terms with 1/rho are means under mu, others under q."""
    under_mu = ExpPoly({k: v for k, v in remainder.terms.items() if dict(k[1]).get((("w", 1),)) == -1})
    if len(remainder.terms) > MAX_PRIMITIVE_TERMS:
        return None
    total = Quantity(Side())
    for measure, c in (("mu", under_mu * WEIGHT), ("q", remainder - under_mu)):
        integrand = find_objective_under(c, measure)
        if integrand is None:
            return None
        if measure == "mu":  # E_mu[log q] is -KL(mu||q), up to a term independent of theta
            remainder, multiple = _split_off_multiple(integrand, "log_q")
            total = total - (KL("mu", "q") * to_sympy(multiple) if multiple else 0)
        else:  # E_q[log rho] is KL(q||mu), and then E_q[k1] is named KL(q||p)
            remainder, multiple = _split_off_multiple(integrand - select_constant_terms(integrand), "w")
            remainder, k1_multiple = _split_off_multiple(remainder, "k1") if multiple else (remainder, ZERO)
            for policy, factor in (("p", k1_multiple), ("mu", multiple)):
                total = total + (KL("q", policy) * to_sympy(factor) if factor else 0)
        total = total + (expectation(to_sympy(remainder), measure) if remainder else 0)
    return total


def _split_off_multiple(element: ExpPoly, name: str) -> tuple[ExpPoly, ExpPoly]:
    """Return (e, a) with e + a x the element, a a constant and x the variable of this name."""
    matching = ((key, value) for key, value in element.terms.items() if is_multiple(key, name))
    multiples = sum((ExpPoly({key: value}) for key, value in matching), ZERO)
    return element - multiples, multiples * ExpPoly.from_variable(name).invert()


def differentiate_terms(total: Quantity) -> Quantity:
    """Return grad of each term, such as 3 grad KL(q||p) + grad E_q[R]."""
    parts = (grad(Quantity(Side.combine((1, atoms)))) * to_sympy(c) for c, atoms in total.side.terms)
    return sum(parts, Quantity(Side()))


def build_covariances(h: ExpPoly, defined: Context = PLAIN) -> tuple[Quantity, Quantity] | None:
    """Return Cov_mu(h, log q) and its gradient E_mu[h s] - E_mu[h] E_mu[s], for h = sum_x a_x x + b.

    a_x: constants, x: k1, log q or log q - log mu.  b: independent of theta.

        sum_x a_x (grad E_mu[x^2]/2 - E_mu[x] grad E_mu[x]) + grad E_mu[b log q] - E_mu[b] grad E_mu[log q]
    """
    context = derive(expectation(to_sympy(h), "mu"), defined=defined).context
    rewards = sort_random_names(defined).rewards
    objective, gradient, reward_part = Quantity(Side()), Quantity(Side()), h
    for name in LOG_RATIOS:
        x = ExpPoly.from_variable(name)
        a = sum((term for term in split_terms(h) if dict(next(iter(term.terms))[0]).get(name) == 1), ZERO)
        reward_part, a, x_expression = reward_part - a, a * x.invert(), to_sympy(x)
        if a.names() & {*SAMPLE_BASES}:
            return None
        x_gradient = grad(expectation(x_expression**2 / 2, "mu")) - expectation(x_expression, "mu") * grad(
            expectation(x_expression, "mu")
        )
        objective = objective + covariance(x_expression, x_expression, "mu") * (to_sympy(a) / 2)
        gradient = gradient + x_gradient * to_sympy(a)
    if differentiate_in_log_q(reward_part, context):
        return None
    if reward_part.names() & {*SAMPLE_BASES, *rewards}:
        b = to_sympy(reward_part)
        objective = objective + covariance(b, log_q, "mu")
        gradient = gradient + grad(expectation(b * log_q, "mu"))
        gradient = gradient - expectation(b, "mu") * grad(expectation(log_q, "mu"))
    return objective, gradient
