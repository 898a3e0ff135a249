"""What a score coefficient descends: E_q[c s] = grad E_q[f], and how that acts near q = p.

With k1 = -log r, log q moves k1 alone: a function g of k1 has the slope g' = dg/dlog q = -r dg/dr.
"""

import numpy as np
import sympy

from klsym.calculus import (
    KL,
    Function,
    derive,
    expectation,
    expected_gradient,
    grad,
    k,
    k1,
    k2,
    k3,
    lam,
    log_mu,
    log_p,
    log_q,
    mu,
    parameter,
    q,
    r,
    rho,
    s,
    sample,
    sample_gradient,
)
from klsym.engine.divergences.f_divergence import generator, strength
from klsym.kernel.meta import read_score_coefficient
from klsym.language.abbreviations import Side
from klsym.language.convert import to_ring, to_sympy
from klsym.notation.formulas import show_element
from klsym.notation.losses import Written, show
from klsym.notation.printers import LATEX
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

g = Function("g")(k1)  # any differentiable function of k1
f = Function("f")(log_q, log_p, log_mu)  # any differentiable function of the sample and theta
slope = g.diff(log_q)
a = parameter("a")
zero = sample(0)


@claim(
    "implied.score-form-unique",
    source="new",
    reading=("c1 - c2 is constant where q > 0; the uniqueness is stated for functions of one log ratio",),
)
def score_form_is_unique():
    """Constants vanish, since E_q[s] = 0. Along the logit of outcome j, E_q[c s] is q_j (c_j - E_q[c])."""
    return (
        derive(expectation((g + a) * s, under=q)).drop_score_mean(part=a).equals(expectation(g * s, under=q)),
        derive(expectation(g * s, under=q)).iff("g", is_=a, constants=(a,)),
    )


@claim("implied.potential", source="new")
def objective_of_a_coefficient():
    """c = f - r f', so c' = -r f'': f is convex if and only if c does not increase in r, and f''(1) = -c'(1).
    Along log q, c = g + dg/dlog q and r^2 f'' = dc/dlog q."""

    coefficients = (k1, -r, k2, k3, r**2, k1 + k2)
    return (
        derive(grad(expectation(g, under=q))).log_derivative().differentiate().equals(
            expectation((g + slope) * s, under=q)
        ),
        *(
            derive(expectation(c * s, under=q)).equals(grad(expectation(potential(c), under=q)))
            for c in coefficients
        ),
        *(
            derive(sample_gradient(c)).differentiate().equals(sample(curvature(potential(c)) * s))
            for c in coefficients
        ),
        derive(expectation(k2 * s, under=q)).differs_from(grad(expectation(k2, under=q))),
        derive(zero).differs_from(expectation(potential(k3), under=q), relation="<="),
    )  # fmt: skip


def potential(c):
    """f with f(1) = f'(1) = 0, written in k1 and r."""
    return to_sympy(generator(to_ring(c)))


def curvature(f):
    """r^2 f''(r) of what is written in k1 and r."""
    x = sympy.Symbol("x", positive=True)
    twice = x**2 * sympy.diff(f.subs({k1: -sympy.log(x), r: x}), x, 2)
    return sympy.expand(sympy.expand(twice).subs(sympy.log(x), -k1).subs(x, r))


@claim("implied.potential-general", source="new")
def objective_of_any_coefficient():
    """Phi = q f has dPhi/dq = f + df/dlog q, and each c has such an antiderivative: Phi = int c dq."""

    def separable(c, f):
        return derive(expectation(c * s, under=q)).equals(grad(expectation(f, under=q)))

    return (
        derive(grad(expectation(f, under=q))).equals(
            expected_gradient(f, under=q) + expectation(f * s, under=q)
        ),
        separable(rho * k1, rho * (2 * k1 - 1) / 4),
        separable(k1 / rho, k1**2 / (2 * rho)),
        separable(log_q, log_q - 1),
        derive(expectation(rho * k1 * s, under=q)).differs_from(grad(KL(q, mu))),
    )


# ---------------------------------------------------------------------------- strength at q = p
# the placement, where its samples come from, and what it pushes along s
LOSSES = {"k1": (k1, q), "k2": (k2, q), "k3": (k3, q), "k(lam)": (k(lam), q)}
WEIGHTED = {"rho*k1": (rho * k1, mu), "rho*k2": (rho * k2, mu), "rho*k3": (rho * k3, mu)}
REWARDS = {"k1": k1, "k2": k2, "k3": k3, "k(lam)": k(lam)}


@claim("implied.fisher-table", verdict="exact", source="new")
def strength_of_each_placement():
    """To first order at q = p, E_q[c s] is -c'(1) times the gradient of the reverse KL."""
    rows = [(f"{name} in the loss", expected_gradient(of, under=m)) for name, (of, m) in LOSSES.items()]
    rows += [(f"{name} in the loss", expected_gradient(of, under=m)) for name, (of, m) in WEIGHTED.items()]
    rows += [(f"{name} in the reward", expectation(of * s, under=q)) for name, of in REWARDS.items()]
    return tuple(_strength(name, start) for name, start in rows)


def _strength(name, start):
    coefficient = read_score_coefficient(derive(start).reduce().left, Side())
    found = strength(coefficient)
    placed, _, where = name.partition(" ")
    latex = show(Written(placed, _placed(placed)), LATEX)

    def oracle():
        """The field at q_t = p exp(t u)/Z along u, for small t: t times strength times Var_p(u)."""
        lam_value, t = 0.3, 1e-6
        worst = 0.0
        for seed in range(5):
            stream = np.random.default_rng(seed)
            p, mu, u = (stream.normal(size=4) for _ in range(3))
            p, mu = (np.exp(logits) / np.exp(logits).sum() for logits in (p, mu))
            fields = [_field(placed, where, p, mu, u, way * t, lam_value) for way in (1, -1)]
            spread = (p * u**2).sum() - (p * u).sum() ** 2
            stated = float(to_sympy(found).subs(lam, lam_value))
            worst = max(worst, abs((fields[0] - fields[1]) / (2 * t * spread) - stated))
        return worst < 1e-7, f"difference quotients of the field in 5 models: within {worst:.1e}"

    return Evidence(
        "exact",
        f"{name}: f''(1) = {show_element(found)}",
        rf"{latex} \text{{ {where}}}:\quad f''(1) = {show_element(found, LATEX)}",
        "sympy",
        oracle=oracle,
        holds=not found.names() & {"k1", "w", "log_q"},
    )


def _placed(name):
    return LOSSES[name][0] if name in LOSSES else WEIGHTED[name][0]


def _field(name, where, p, mu, u, t, lam):
    """E_m[grad L . u] or E_q[h s . u] at q = p exp(t u)/Z, from the definitions of the estimators."""

    def estimator(log_q):
        ratio, log_ratio, weight = p / np.exp(log_q), log_q - np.log(p), np.exp(log_q) / mu
        values = {
            "k1": log_ratio,
            "k2": log_ratio**2 / 2,
            "k3": ratio - 1 + log_ratio,
            "k(lam)": log_ratio + lam * (ratio - 1),
        }
        plain = name.removeprefix("rho*")
        return values[plain] * (weight if plain != name else 1)

    q = p * np.exp(t * u)
    q = q / q.sum()
    score = u - (q * u).sum()
    if where == "in the reward":
        return (q * estimator(np.log(q)) * score).sum()
    slope = np.imag(estimator(np.log(q) + 1e-30j)) / 1e-30
    return ((mu if name.startswith("rho*") else q) * slope * score).sum()
