"""Where training ends: rewards that hold no optimum, coefficients that are adapted, masses that are kept.

Sources: SH = Shah et al.; WZ1, WZ2 = Wang & Zhang 2025 (two versions); RE = the notes "Re-understanding KL
Approximation from an RL-for-LLM Lens".
"""

import mpmath
import sympy

from klsym.calculus import (
    KL,
    Function,
    derive,
    exp,
    expectation,
    grad,
    k1,
    k3,
    p,
    parameter,
    q,
    r,
    s,
    sample,
)
from klsym.derivations.optima import zero_where_constant
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

a, c = parameter("a"), parameter("c")
ROOT = Function("G")(k1)


# ---------------------------------------------------------------------------- k3 in the reward
@claim("beyond.k3-reward-unstable", source="SH, WZ2 ('k3 in the reward can collapse'), made a theorem")
def k3_in_the_reward_holds_nothing():
    """Its field is that of KL(q||p) - KL(p||q), which has no bound below and no minimum at p."""
    return (
        derive(expectation(k3 * s, under=q)).equals(grad(KL(q, p)) - grad(KL(p, q))),
        _has_no_bound(),
        _reference_is_no_minimum(),
    )


def _has_no_bound():
    """q_1 -> 0: KL(p||q) grows like -p_1 log q_1, and KL(q||p) stays below -log min p."""
    x, p1 = sympy.symbols("x p_1", positive=True)
    penalty = x * sympy.log(x / p1) + p1 * sympy.log(x / p1)  # what x = q_1 adds to KL(q||p) - KL(p||q)
    rate = sympy.limit(sympy.expand_log(penalty, force=True) / sympy.log(x), x, 0)

    def oracle():
        reference = (0.2, 0.3, 0.5)
        values = []
        for n in (10, 100, 1000):
            x = mpmath.mpf(10) ** -n
            policy = [x, *((1 - x) * y / 0.8 for y in reference[1:])]
            pairs = list(zip(policy, reference, strict=True))
            values.append(sum((q + p) * mpmath.log(q / p) for q, p in pairs))
        falls = values[0] > values[1] > values[2] and values[2] < -400
        return (
            falls,
            f"the penalty at q_1 = 1e-10, 1e-100, 1e-1000: {', '.join(mpmath.nstr(v, 5) for v in values)}",
        )

    return Evidence(
        "exact",
        "for all bounded R and beta > 0, E_q[R] - beta (KL(q||p) - KL(p||q)) is unbounded above: it grows"
        " like -beta p_1 log q_1 as q_1 -> 0",
        r"\mathbb{E}_q[R] - \beta\left(\mathrm{KL}(q \Vert p) - \mathrm{KL}(p \Vert q)\right)"
        r" \sim -\beta\, p_1 \log q_1 \quad (q_1 \to 0)",
        "sympy",
        ("finitely many outcomes, p positive at all of them; the other q_j stay away from 0",),
        oracle,
        (("an outcome's part of the penalty", r"(q_j + p_j) \log \frac{q_j}{p_j}"),
         ("as q_1 -> 0", r"(q_1 + p_1) \log \frac{q_1}{p_1} \sim p_1 \log q_1")),
        holds=sympy.simplify(rate - p1) == 0,
    )  # fmt: skip


def _reference_is_no_minimum():
    """q = p (1 + x) with E_p[x] = 0: the penalty is E_p[x^3]/6 - E_p[x^4]/6 to fourth order."""
    x, h = sympy.symbols("x h")
    series = sympy.series((2 + x) * sympy.log(1 + x), x, 0, 5).removeO()
    pair = sympy.series(
        sum((1 + y / 2) * sympy.log(1 + y) for y in (2 * h, -2 * h)),
        h, 0, 6,
    ).removeO()  # fmt: skip

    def oracle():
        found = []
        for reference, along in (((0.2, 0.8), (1, -0.25)), ((0.5, 0.5), (1, -1))):
            values = []
            for sign in (0.01, -0.01):
                policy = [p * (1 + sign * y) for p, y in zip(reference, along, strict=True)]
                pairs = list(zip(policy, reference, strict=True))
                values.append(sum((q + p) * mpmath.log(q / p) for q, p in pairs))
            found.append(min(values))
        return all(value < 0 for value in found), (
            f"below 0 near p = (0.2, 0.8) and (0.5, 0.5): {', '.join(mpmath.nstr(v, 3) for v in found)}"
        )

    return Evidence(
        "exact",
        "with R constant p is never a local minimum of KL(q||p) - KL(p||q): along q = p (1 + t x) it is"
        " t^3 E_p[x^3]/6 - t^4 E_p[x^4]/6 + O(t^5); for a uniform pair -8 h^4/3 at q = (1/2 + h, 1/2 - h)",
        r"\mathrm{KL}(q \Vert p) - \mathrm{KL}(p \Vert q)"
        r" = \tfrac{t^3}{6} \mathbb{E}_p[x^3] - \tfrac{t^4}{6} \mathbb{E}_p[x^4] + O(t^5)",
        "sympy",
        ("finitely many outcomes, at least two; E_p[x] = 0; p is positive at all of them",),
        oracle,
        (("an outcome's part, less 2 x, which has mean zero",
          r"(2 + x) \log(1 + x) = 2x + \tfrac{x^3}{6} - \tfrac{x^4}{6} + O(x^5)"),
         ("a cubic term has either sign; without one the fourth order is negative",
          r"\mathbb{E}_p[x^3] = 0 \implies -\tfrac{1}{6}\mathbb{E}_p[x^4] < 0")),
        holds=sympy.expand(series - (2 * x + x**3 / 6 - x**4 / 6)) == 0
        and sympy.expand(pair + sympy.Rational(8, 3) * h**4) == 0,
    )  # fmt: skip


# ---------------------------------------------------------------------------- adaptive coefficients
@claim(
    "beyond.adaptive-beta",
    source="RE, WZ1 (adaptive coefficients)",
    reading=(
        "a is any number; at a = log E_q[1/r] the mean of 1/r - exp(a) is 0, and the first part is"
        " Cov_q(q/p, log(q/p)) >= 0",
        "by the third part KL(q_beta||p) with the forward penalty falls in beta, by the second with the"
        " reverse penalty, strictly unless R is constant: a controller that holds the KL at a target has"
        " at most one fixed point; with k1 as a loss the stationary points do not depend on beta"
        " (optimum.k1-loss)",
    ),
)
def the_kl_falls_with_its_coefficient():
    """Covariances of what rises together are not negative: u exp(u) - u >= 0 from exp(u) >= 1 + u twice."""
    rows = [{"u": a - k1, "v": k1, "at": q}, {"u": k1 - a, "v": a, "at": q}]
    return (
        derive(sample(0)).at_most(expectation((1 / r - exp(a)) * (k1 - a), under=q), rows=rows),
        _reverse_penalty(),
        _forward_penalty(),
    )


def _reverse_penalty():
    """With tau = 1/beta and K = log E_p[exp(tau R)]: KL = tau K' - K, and K'' is the variance of R."""
    tau = sympy.Symbol("tau", positive=True)
    cumulant = sympy.Function("K")(tau)
    kl = tau * sympy.diff(cumulant, tau) - cumulant
    slope = sympy.diff(kl, tau)

    def oracle():
        reference, rewards = (mpmath.mpf(1) / 5, mpmath.mpf(3) / 10, mpmath.mpf(1) / 2), (1, -1, 0.5)

        def policy(beta):
            weights = [p * mpmath.exp(R / beta) for p, R in zip(reference, rewards, strict=True)]
            return [weight / sum(weights) for weight in weights]

        def divergence(beta):
            return sum(x * mpmath.log(x / p) for x, p in zip(policy(beta), reference, strict=True))

        at = mpmath.mpf(7) / 10
        mean = sum(x * R for x, R in zip(policy(at), rewards, strict=True))
        variance = sum(x * (R - mean) ** 2 for x, R in zip(policy(at), rewards, strict=True))
        gap = abs(mpmath.diff(divergence, at) + variance / at**3)
        return (
            gap < 1e-9,
            f"three outcomes, beta = 0.7: slope {mpmath.nstr(-variance / at**3, 8)}, within 1e-9",
        )

    return Evidence(
        "exact",
        "at q_beta = p exp(R/beta)/Z: d KL(q_beta||p)/d beta = -Var_{q_beta}(R)/beta^3",
        r"\frac{d}{d\beta} \mathrm{KL}(q_\beta \Vert p) = -\frac{\operatorname{Var}_{q_\beta}(R)}{\beta^3}",
        "sympy",
        ("E_p[exp(R/beta)] is finite near beta, and may be differentiated twice under the mean",),
        oracle,
        (("tau = 1/beta, K = log E_p[exp(tau R)]", r"\mathrm{KL}(q_\beta \Vert p) = \tau K'(\tau) - K(\tau)"),
         ("its slope", r"\frac{d}{d\tau}(\tau K' - K) = \tau K'' = \tau \operatorname{Var}_{q_\beta}(R)"),
         ("d tau/d beta = -1/beta^2", r"-\tfrac{1}{\beta^3} \operatorname{Var}_{q_\beta}(R)")),
        holds=sympy.simplify(slope - tau * sympy.diff(cumulant, tau, 2)) == 0,
    )  # fmt: skip


def _forward_penalty():
    """w = q/p = beta/(nu - R): dw/d beta = (w - nu' w^2)/beta, and nu' makes its mean under p zero."""
    level, slope, reward, coefficient = sympy.symbols("nu nu' R beta", positive=True)
    moving = sympy.Function("nu")(coefficient)
    derivative = sympy.diff(coefficient / (moving - reward), coefficient)
    derivative = derivative.subs(sympy.Derivative(moving, coefficient), slope).subs(moving, level)
    w = coefficient / (level - reward)
    mean_w, mean_k, mean_wk = sympy.symbols("E_w E_k E_wk")  # E_q[w], E_q[log w], E_q[w log w]
    # E_p[(1 + log w) dw/d beta], where E_p[w f] = E_q[f], and nu' = 1/E_q[w] from E_p[dw/d beta] = 0
    kl_slope = (mean_k - mean_wk / mean_w) / coefficient

    def oracle():
        reference, rewards = (mpmath.mpf(1) / 5, mpmath.mpf(3) / 10, mpmath.mpf(1) / 2), (1, -1, 0.5)

        def policy(beta):
            normaliser = mpmath.findroot(
                lambda nu: sum(p * beta / (nu - R) for p, R in zip(reference, rewards, strict=True)) - 1,
                (1 + beta / 5, 1 + beta), solver="anderson",
            )  # fmt: skip
            return [p * beta / (normaliser - R) for p, R in zip(reference, rewards, strict=True)]

        def divergence(beta):
            return sum(x * mpmath.log(x / p) for x, p in zip(policy(beta), reference, strict=True))

        at = mpmath.mpf(7) / 10
        rows = [(x, x / p) for x, p in zip(policy(at), reference, strict=True)]
        ratio, logs = sum(x * w for x, w in rows), sum(x * mpmath.log(w) for x, w in rows)
        shared = sum(x * w * mpmath.log(w) for x, w in rows) - ratio * logs
        gap = abs(mpmath.diff(divergence, at) + shared / (at * ratio))
        return gap < 1e-8 and shared > 0, f"three outcomes, beta = 0.7: slope within {mpmath.nstr(gap, 2)}"

    return Evidence(
        "exact",
        "at q_beta = beta p/(nu - R), the optimum with the forward penalty: d KL(q_beta||p)/d beta ="
        " -Cov_q(q/p, log q/p)/(beta E_q[q/p])",
        r"\frac{d}{d\beta} \mathrm{KL}(q_\beta \Vert p)"
        r" = -\frac{\operatorname{Cov}_{q_\beta}(q/p,\, \log q/p)}{\beta\, \mathbb{E}_{q_\beta}[q/p]} \le 0",
        "sympy",
        ("finitely many outcomes, p positive at all of them; nu(beta) gives q_beta the mass one",),
        oracle,
        (("w = q/p = beta/(nu - R)", r"\frac{dw}{d\beta} = \frac{w - \nu' w^2}{\beta}"),
         ("the mass stays one",
          r"\mathbb{E}_p\frac{dw}{d\beta} = 0 \implies \nu' = \frac{1}{\mathbb{E}_q[w]}"),
         ("the slope of E_p[w log w]",
          r"\mathbb{E}_p\left[\log w \tfrac{dw}{d\beta}\right]"
          r" = \tfrac{1}{\beta}\left(\mathbb{E}_q[\log w]"
          r" - \tfrac{\mathbb{E}_q[w \log w]}{\mathbb{E}_q[w]}\right)")),
        holds=sympy.simplify(derivative - (w - slope * w**2) / coefficient) == 0
        and sympy.simplify(kl_slope + (mean_wk - mean_w * mean_k) / (coefficient * mean_w)) == 0,
    )  # fmt: skip


# ---------------------------------------------------------------------------- which masses are kept
@claim(
    "beyond.mass-covering",
    source="WZ1, WZ2 (mode-seeking, mass-covering), made precise",
    reading=(
        "with the forward penalty, R = nu - beta r at the optimum (optimum.forward)",
        "c is the least value of r, where R is largest",
        "G stands for the square root of r - c, which is at least 0",
        "c <= 1 is r <= 1 + (max R - R)/beta, that is q >= p beta/(beta + max R - R)",
    ),
)
def the_forward_penalty_keeps_mass():
    """E_q[r] = 1, so the least r is at most 1; the reverse one leaves exp(-x) where R is lower by x beta."""
    return (
        derive(expectation(c, under=q), premises=((expectation(r - ROOT**2, under=q), c),)).at_most(
            1, rows=[{"b": ROOT, "at": q}], using=[(0, 1)]
        ),
        zero_where_constant(-r),
        _reverse_falls_below(),
    )


def _reverse_falls_below():
    """Two outcomes of chance 1/2 under p, the second with a reward lower by x beta."""
    x = sympy.Symbol("x", positive=True)
    mass, bound = 1 / (1 + sympy.exp(x)), 1 / (2 * (1 + x))  # q of the second, and p beta/(beta + x beta)

    def oracle():
        ratios = [float((1 / (1 + mpmath.exp(y))) * 2 * (1 + y)) for y in (1, 5, 20)]
        return ratios[0] > ratios[1] > ratios[2] and ratios[2] < 1e-6, f"mass over bound: {ratios}"

    return Evidence(
        "exact",
        "with the reverse penalty q = p exp(R/beta)/Z falls below every multiple of p beta/(beta + max R -"
        " R): their quotient tends to 0 as a reward falls",
        r"\frac{1}{1 + e^{x}} \,/\, \frac{1}{2 (1 + x)} \to 0 \quad (x \to \infty)",
        "sympy",
        ("p = (1/2, 1/2), R = (0, -x beta)",),
        oracle,
        (("an exponential beside a linear function", r"\frac{2 (1 + x)}{1 + e^x} \to 0"),),
        holds=sympy.limit(mass / bound, x, sympy.oo) == 0,
    )  # fmt: skip
