"""Everything a derivation is written with, in one namespace.

>>> from klsym.calculus import *
>>> derive(expected_gradient(k2, under=q)).differentiate().equals(grad(KL(q, p)))
E_q[grad k2] = grad KL(q||p)
"""

from sympy import Function, exp, log

from klsym.engine.derivation import Derivation, Proof, derive
from klsym.engine.quantities import (
    KL,
    Quantity,
    bregman,
    chi2,
    count,
    covariance,
    expectation,
    expected_gradient,
    grad,
    jeffreys,
    mu,
    p,
    q,
    sample,
    sample_gradient,
)
from klsym.engine.witness import finite_model
from klsym.language import (
    A,
    R,
    alpha,
    beta,
    clip,
    eps,
    k,
    k1,
    k2,
    k3,
    lam,
    log_mu,
    log_p,
    log_q,
    parameter,
    r,
    rho,
    s,
    sg,
)
from klsym.ledger import claim

__all__ = [
    "KL", "A", "Derivation", "Function", "Proof", "Quantity", "R", "alpha", "beta", "bregman", "chi2",
    "claim", "clip", "count", "covariance", "derive", "eps", "exp", "expectation", "expected_gradient",
    "finite_model", "grad", "jeffreys", "k", "k1", "k2", "k3", "lam", "log", "log_mu", "log_p", "log_q", "mu",
    "p", "parameter", "q", "r", "rho", "s", "sample", "sample_gradient", "sg",
]  # fmt: skip
