"""Everything a derivation is written with, in one namespace.

>>> from klsym.calculus import *
>>> derive(expected_gradient(k2, under=q)).differentiate().equals(grad(KL(q, p)))
E_q[grad k2] = grad KL(q||p)
"""

from sympy import Function, exp, log

from klsym.engine.fields.field import loss_gradient
from klsym.engine.proof.derivation import Derivation, Proof, derive
from klsym.engine.proof.quantities import (
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
from klsym.engine.proof.refusals import refuses
from klsym.engine.proof.sequence_quantities import (
    curl,
    mean_over_i,
    sum_over_t,
    token_gradient,
    token_KL,
    token_KL_gradient,
    variance_of_mean,
)
from klsym.language.estimators import NAMES
from klsym.language.expressions import (
    OF_TABLE,
    A,
    M,
    R,
    alpha,
    beta,
    clip,
    eps,
    future,
    k,
    k1,
    k2,
    k3,
    lam,
    length,
    log_mu,
    log_old,
    log_p,
    log_q,
    now,
    others,
    own,
    parameter,
    past,
    r,
    region,
    rho,
    rho_old,
    s,
    sg,
)
from klsym.language.parser import parse
from klsym.worlds.draw import finite_model

__all__ = [
    "KL", "A", "Derivation", "Function", "M", "Proof", "Quantity", "R", "alpha", "beta", "bregman", "chi2",
    "clip", "count", "covariance", "curl", "derive", "eps", "exp", "expectation",
    "expected_gradient", "finite_model", "future", "grad", "jeffreys", "k", "k1", "k2", "k3", "lam", "length",
    "log", "log_mu", "log_old", "log_p", "log_q", "loss_gradient", "mean_over_i", "mu", "now", "others",
    "own", "p", "parameter", "parse", "past", "q", "r", "refuses", "region", "rho", "rho_old", "s", "sample",
    "sample_gradient", "sg", "sum_over_t", "token_KL", "token_KL_gradient", "token_gradient",
    "variance_of_mean",
]  # fmt: skip
__all__ += [name for name in NAMES if name not in __all__]  # rows of the table beside k1, k2, k3
globals().update(OF_TABLE)
