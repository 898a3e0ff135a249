"""Find what an expected gradient of samples is the gradient of, where the target does not say so.  Untrusted.

    E_q[c s] = a grad KL(q||p) + b grad KL(p||q) + grad E_q[h] + grad E_q[F]
    E_mu[h s] - E_mu[h] E_mu[s] = grad Cov_mu(h, log q), with weights for what moves in h

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
from klsym.language.unfolding import PLAIN, d_log_q


@lru_cache(maxsize=64)  # asked for its name, its proof and its shape
def objective(found: NamedParts) -> Quantity | None:
    """Return a KL(q||p) + b KL(p||q) + E_q[h] + E_m[F], F for the rest; None where no F is known.

    Beside a rest that is not over T everything is one expectation, up to a constant.

    >>> from klsym.language.convert import to_ring
    >>> from klsym.engine.fields.named_terms import recognise
    >>> from klsym.language.expressions import k1, rho
    >>> objective(recognise(to_ring(k1 / rho + k1))), objective(recognise(to_ring(1 / rho)))
    (E_mu[k1**2/2] + E_q[k1], -KL(mu||q))
    """
    if found.remainder and "length" not in found.remainder.names():
        return _of_rest(found.reverse * K1 - found.forward * R_RATIO + found.reward + found.remainder)
    rest = _of_rest(found.remainder)
    if rest is None:
        return None
    total = KL("q", "p") * to_sympy(found.reverse) + KL("p", "q") * to_sympy(found.forward)
    return total + (expectation(to_sympy(found.reward), "q") if found.reward else 0) + rest


def _of_rest(rest: ExpPoly) -> Quantity | None:
    """Terms that hold 1/rho are means under mu, the others under q."""
    under_mu = ExpPoly({k: v for k, v in rest.terms.items() if dict(k[1]).get((("w", 1),)) == -1})
    if len(rest.terms) > MAX_PRIMITIVE_TERMS:
        return None
    total = Quantity(Side())
    for measure, c in (("mu", under_mu * WEIGHT), ("q", rest - under_mu)):
        found = find_objective_under(c, measure)
        if found is None:
            return None
        if measure == "mu":  # E_mu[log q] is -KL(mu||q), up to what does not move
            rest, share = _less_multiple(found, "log_q")
            total = total - (KL("mu", "q") * to_sympy(share) if share else 0)
        else:  # E_q[log rho] is KL(q||mu), and then E_q[k1] is said to be KL(q||p)
            rest, share = _less_multiple(found - select_constant_terms(found), "w")
            rest, of_k1 = _less_multiple(rest, "k1") if share else (rest, ZERO)
            for other, times in (("p", of_k1), ("mu", share)):
                total = total + (KL("q", other) * to_sympy(times) if times else 0)
        total = total + (expectation(to_sympy(rest), measure) if rest else 0)
    return total


def _less_multiple(element: ExpPoly, name: str) -> tuple[ExpPoly, ExpPoly]:
    """(e, a) with e + a x the element, a a constant and x the quantity of this name."""
    alone = ((key, value) for key, value in element.terms.items() if is_multiple(key, name))
    found = sum((ExpPoly({key: value}) for key, value in alone), ZERO)
    return element - found, found * ExpPoly.variable(name).inverse()


def gradient_of(total: Quantity) -> Quantity:
    """grad of each term, such as 3 grad KL(q||p) + grad E_q[R]."""
    parts = (grad(Quantity(Side.of((1, atoms)))) * to_sympy(c) for c, atoms in total.side.terms)
    return sum(parts, Quantity(Side()))


def covariances(h: ExpPoly, defined: Context = PLAIN) -> tuple[Quantity, Quantity] | None:
    """Cov_mu(h, log q) and its gradient E_mu[h s] - E_mu[h] E_mu[s], for h = sum_x a_x x + b.

    a_x: constants, x: k1, log q or log q - log mu.  b: what is free of theta.

        sum_x a_x (grad E_mu[x^2]/2 - E_mu[x] grad E_mu[x]) + grad E_mu[b log q] - E_mu[b] grad E_mu[log q]
    """
    context = derive(expectation(to_sympy(h), "mu"), defined=defined).context
    rewards = sort_random_names(defined).rewards
    aim, gradient, free = Quantity(Side()), Quantity(Side()), h
    for name in LOG_RATIOS:
        x = ExpPoly.variable(name)
        a = sum((term for term in split_terms(h) if dict(next(iter(term.terms))[0]).get(name) == 1), ZERO)
        free, a, of = free - a, a * x.inverse(), to_sympy(x)
        if a.names() & {*SAMPLE_BASES}:
            return None
        turned = grad(expectation(of**2 / 2, "mu")) - expectation(of, "mu") * grad(expectation(of, "mu"))
        aim = aim + covariance(of, of, "mu") * (to_sympy(a) / 2)
        gradient = gradient + turned * to_sympy(a)
    if d_log_q(free, context):
        return None
    if free.names() & {*SAMPLE_BASES, *rewards}:
        b = to_sympy(free)
        aim = aim + covariance(b, log_q, "mu")
        gradient = gradient + grad(expectation(b * log_q, "mu"))
        gradient = gradient - expectation(b, "mu") * grad(expectation(log_q, "mu"))
    return aim, gradient
