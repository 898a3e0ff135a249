"""Variances of gradient estimates: what the noise of a loss adds and where, and which baseline is best.

Along a direction u the variance of a s is E_m[(a s)^2] - E_m[a s]^2, s standing for u.s.

Sources: WZ1, WZ2 = Wang & Zhang 2025 (two versions); TM = Tang & Munos 2025.
"""

import random

import mpmath
import sympy

from klsym.calculus import (
    KL,
    covariance,
    derive,
    expectation,
    k1,
    k3,
    log,
    mu,
    own,
    p,
    parameter,
    q,
    rho,
    s,
    sample,
    sample_gradient,
    variance_of_mean,
)
from klsym.derivations.batches import BATCH, SIZE, leave_one_out, m, n
from klsym.derivations.expansions import HYPOTHESES as NEAR
from klsym.derivations.expansions import rounded_up
from klsym.derivations.tools.remainder_order import check_order, mean
from klsym.derivations.tools.taylor import expand, expectation_bound, show_series
from klsym.language.convert import to_sympy
from klsym.notation.printers import LATEX
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

G1, G_STAR = rho * (k1 + 1), rho * k1  # per-sample gradients of the losses rho k1 and rho k3, over s
b, b_star, d = (parameter(name) for name in ("b", "b_star", "d"))


def average(a, under):
    return expectation(a * s, under=under)


def variance(a, under):
    return expectation((a * s) ** 2, under=under) - average(a, under) * average(a, under)


ALONG = (
    "s stands for u.s, the score function along any direction u; sums over the coordinates of theta give the"
    " total variance, the trace of the covariance",
)
WEIGHTS = (*ALONG, "q << mu: wherever q > 0, also mu > 0")
GRADIENTS = (
    *WEIGHTS,
    "g1 = rho (k1 + 1) s is the gradient of the loss rho k1 at a sample, g* = rho k1 s that of rho k3",
    "Var_mu a s is E_mu[(a s)^2] - E_mu[a s]^2, and E_mu[(rho s)^2] and E_mu[(rho k1 s)^2] are finite",
)


@claim("variance.difference", source="WZ1 Variance of the three; WZ2 6.2", reading=GRADIENTS)
def difference_of_the_variances():
    """The expectations agree, so the variances differ as the squares do: (k1 + 1)^2 - k1^2 = 2 k1 + 1."""
    return (
        derive(average(G1, mu)).equals(average(G_STAR, mu)),
        derive(variance(G1, mu) - variance(G_STAR, mu)).equals(
            expectation(rho**2 * (2 * k1 + 1) * s**2, under=mu)
        ),
    )


@claim("variance.noise-term", source="WZ1 Variance of the three; WZ2 6.2", reading=GRADIENTS[:3])
def noise_in_weighted_k1():
    """The gradient of rho k1 is that of rho k3 plus rho s, which has expectation zero for every p."""
    return (
        derive(sample_gradient(rho * k1) - sample_gradient(rho * k3)).differentiate().equals(sample(rho * s)),
        derive(average(rho, mu)).equals(0),
    )


@claim(
    "variance.sufficient-region",
    source="WZ1 Variance of the three; WZ2 6.2; exact region new",
    reading=(
        *GRADIENTS,
        "where r < exp(1/2), 2 k1 + 1 > 0, and the order is strict unless s = 0 wherever mu > 0",
    ),
)
def where_g_star_varies_less():
    """If r <= exp(1/2), each term of E_mu[rho^2 s^2 (2 k1 + 1)] is at least 0."""
    return derive(variance(G_STAR, mu)).at_most(
        variance(G1, mu),
        rows=[{"at": mu, "b": 1, "power": 1, "v": 2 * log(rho), "nonnegative": 2 * k1 + 1}],
    )


@claim(
    "variance.no-universal-order",
    verdict="refuted",
    source="WZ1 Variance of the three; WZ2 6.2",
    reading=GRADIENTS,
)
def no_order_of_the_variances_everywhere():
    """If samples with r > exp(1/2) have enough weight, g* has the larger variance."""
    return derive(variance(G_STAR, mu)).differs_from(variance(G1, mu), relation="<=")


# ---------------------------------------------------------------------------- the best baseline
BEST = ((expectation(b_star * s**2, under=q), expectation(k1 * s**2, under=q)),)


@claim(
    "variance.optimal-baseline",
    source="TM 3 (calls the true KL near-optimal); closed form new",
    reading=(
        *ALONG,
        "b_star is E_q[k1 s^2]/E_q[s^2] at the theta in question, d is KL(q||p): E_q[k1^2 s^2] is finite and"
        " E_q[s^2] is not 0",
        "Var_q (k1 - b) s is E_q[(k1 - b)^2 s^2] - E_q[(k1 - b) s]^2",
        "by the second part d is as good as b_star if and only if d = b_star, by the third if and only if"
        " Cov_q(k1, s^2) = E_q[k1 s^2] - E_q[k1] E_q[s^2] is 0",
    ),
)
def best_baseline():
    """The expectation does not depend on b; the second moment is a quadratic function of b, with its minimum
    at b_star."""
    gap, squares = b - b_star, expectation(s**2, under=q)
    covariance = expectation(k1 * s**2, under=q) - expectation(k1, under=q) * squares
    return (
        derive(variance(k1 - b, q) - variance(k1 - b_star, q), premises=BEST).equals(
            expectation(gap**2 * s**2, under=q), using=[(0, -2 * gap)]
        ),
        derive(variance(k1 - b_star, q), premises=BEST).at_most(
            variance(k1 - b, q),
            rows=[{"b": 1, "factor": gap, "at": q, "power": 1}],
            using=[(0, 2 * gap)],
        ),
        derive(covariance, premises=(*BEST, (KL(q, p), d))).equals(
            expectation((b_star - d) * s**2, under=q), using=[(0, 1), (1, squares)]
        ),
    )


@claim(
    "variance.true-kl-baseline",
    verdict="refuted",
    source="TM 3 (calls the true KL near-optimal)",
    reading=(
        *ALONG,
        "Var_q (k1 - d) s with d = KL(q||p), less Var_q k1 s, is d^2 E_q[s^2] - 2 d E_q[k1 s^2]",
    ),
)
def true_kl_is_no_safe_baseline():
    """Where the squared score is large and k1 small, the KL as a baseline adds noise."""
    divergence, squares = KL(q, p), expectation(s**2, under=q)
    return derive(divergence * divergence * squares).differs_from(
        2 * divergence * expectation(k1 * s**2, under=q), relation="<="
    )


@claim(
    "variance.true-kl-unbounded",
    verdict="exact",
    source="TM 3 (calls the true KL near-optimal)",
    reading=ALONG,
)
def true_kl_adds_noise_without_bound():
    """Two outcomes of q = (3/4, 1/4): k1 s^2 has mean 0 at a p near (1/80, 79/80), and k1 s is constant."""
    x = sympy.Symbol("x", positive=True)
    share = sympy.Rational(3, 4)
    first, second = sympy.log(share / (1 - x)), sympy.log((1 - share) / x)
    noise = sympy.simplify((1 - share) * first + share * second)  # E_q[k1 s^2]/E_q[s^2]

    def oracle():
        root = mpmath.findroot(sympy.lambdify(x, noise, "mpmath"), (0.98, 0.999), solver="anderson")
        k1, scores = (mpmath.log(0.75 / (1 - root)), mpmath.log(0.25 / root)), (0.25, -0.75)
        kl = 0.75 * k1[0] + 0.25 * k1[1]
        spreads = []
        for b in (0, kl):
            values = [(k - b) * t for k, t in zip(k1, scores, strict=True)]
            mean = 0.75 * values[0] + 0.25 * values[1]
            spreads.append(0.75 * (values[0] - mean) ** 2 + 0.25 * (values[1] - mean) ** 2)
        passes = abs(spreads[0]) < 1e-25 < 1 < spreads[1] and 0.9 < root < 1
        return (
            passes,
            f"x = {mpmath.nstr(root, 6)}: no noise without, {mpmath.nstr(spreads[1], 4)} with the KL",
        )

    ends = [noise.subs(x, value).evalf() for value in (sympy.Rational(9, 10), sympy.Rational(999, 1000))]
    return Evidence(
        "exact",
        "no multiple of the variance without a baseline bounds that with d = KL(q||p): at q = (3/4, 1/4)"
        " there is a p != q at which k1 s has no variance, and (k1 - d) s has some",
        r"\operatorname{Var}_q k_1 s = 0 < \operatorname{Var}_q (k_1 - d)\, s",
        "sympy",
        ("q = (3/4, 1/4), p = (1 - x, x) with x between 9/10 and 999/1000, s along the logit of the first"
         " outcome",),
        oracle,
        (("k1 s is constant where the mean of k1 weighted by s^2 is 0",
          rf"{sympy.latex(noise)} = 0"),
         ("it changes its sign", rf"x = 0.9: {ends[0]:.4f},\ x = 0.999: {ends[1]:.4f}")),
        holds=bool(ends[0] * ends[1] < 0),
    )  # fmt: skip


# ---------------------------------------------------------------------------- leave-one-out
CENTRED = variance_of_mean((own(k1) - leave_one_out(k1)) * own(s), under=q)
PLAIN = variance_of_mean(own(k1 * s), under=q)
G, SQUARES = average(k1, q), expectation(s**2, under=q)
SPREAD = covariance(k1, k1, under=q) * SQUARES + G * G  # Var(k1) E[s^2] + g^2
CROSS = 2 * KL(q, p) * expectation(k1 * s**2, under=q) - KL(q, p) * KL(q, p) * SQUARES
LEAVE_ONE_OUT = (
    *ALONG,
    *BATCH,
    "m is n - 1, n at least 2; kbar_-i is the mean of k1 over the n - 1 others, g = E_q[k1 s]",
)


@claim("variance.loo", source="TM 3, WZ2 8 (in words); closed form new", reading=LEAVE_ONE_OUT)
def variance_of_leave_one_out():
    """A known mean would give (E[(k1 - KL)^2 s^2] - g^2)/n; the other terms come from estimating KL by the
    others."""
    second_moment = expectation(k1**2 * s**2, under=q) - CROSS  # E[(k1 - KL)^2 s^2]
    return derive(CENTRED, premises=SIZE).equals(
        (second_moment - G * G) / n + SPREAD / (n * m), using=[(0, None)]
    )


@claim(
    "variance.loo-not-always-better",
    verdict="corrected",
    source="WZ2 8",
    words="centring by leave-one-out reduces the variance",
    reading=(
        *LEAVE_ONE_OUT,
        "n > 0, so by the first part leave-one-out lowers the variance if and only if"
        " 2 KL E[k1 s^2] - KL^2 E[s^2] > (Var(k1) E[s^2] + g^2)/(n - 1)",
        "the model that refutes it has n = 2",
    ),
)
def leave_one_out_may_cost_more():
    """Centring lowers the second moment, and estimating the baseline adds a variance."""
    return (
        derive(n * (PLAIN - CENTRED), premises=SIZE).equals(CROSS - SPREAD / m, using=[(0, None)]),
        derive(CENTRED, premises=SIZE).differs_from(PLAIN, relation="<="),
    )


# ---------------------------------------------------------------------------- near p = q
@claim("variance.orders", verdict="exact", source="WZ1 Variance of the three; WZ2 6.2; quantified new")
def orders_of_the_variances():
    """As p -> q, g1 keeps the noise rho s, and the variance of g* vanishes like eps^2.

    Var_mu(rho a s) = E_mu[rho^2 s^2 a^2] - E_q[a s]^2 with a = k1 + 1 or k1, whose series in eps = r - 1
    are inserted; E_q[s] = 0, so the expectation is E_q[k1 s] for both.
    """
    return _expanded("g1", k1 + 1, 2), _expanded("g*", k1, 3)


def _expanded(name, a, order):
    """Everything below eps^order, which is 2 or 3, and a bound on the rest."""
    squares = [(to_sympy(c), i) for i, c in enumerate(expand(a**2, order)) if c]
    slope = to_sympy(expand(k1, 2)[1]) if order == 3 else 0  # of the mean, whose square has order 2
    constant, (text, latex) = rounded_up(_bound(a, order)), _shown(squares, slope)
    return Evidence(
        "exact",
        f"Var_mu {name} = {text} + O(eps^{order}),"
        f" the remainder at most {constant} e^{order} E_mu[rho^2 s^2]",
        rf"{LATEX.covariance('mu', SHOWN[name], SHOWN[name])} = {latex} + O(\varepsilon^{order}),\quad"
        rf" |O(\varepsilon^{order})| \le {constant}\, e^{order}\, {SECOND}",
        "sympy",
        (*NEAR, "E_mu[rho^2 s^2] is finite", *WEIGHTS),
        lambda: check_order(
            lambda q, ratios: _literal(name, q, ratios),
            lambda q, ratios: _leading(squares, slope, q, ratios),
            order,
            lambda q, ratios: mpmath.mpf(constant) * max(abs(r - 1) for r in ratios) ** order * _noise(q),
        ),
        (
            ("the square", f"({sympy.latex(a)})^2 = {show_series(a**2, order)}"),
            ("the mean, as E[s] = 0", _same_mean(name)),
            ("Cauchy, Schwarz", CAUCHY_SCHWARZ),
        ),
    )


SHOWN = {"g1": "g_1", "g*": r"g_\star"}
SECOND = LATEX.expectation("mu", r"\rho^2\,s^2")
A_S, RHO_A_S = LATEX.expectation("q", r"a\,s"), LATEX.expectation("mu", r"\rho\,a\,s")
CAUCHY_SCHWARZ = rf"{A_S}^2 = {RHO_A_S}^2 \le \sup|a|^2\, {SECOND}"


def _same_mean(name):
    means = LATEX.expectation("mu", SHOWN[name]), LATEX.expectation("q", r"k_1\,s")
    return rf"{means[0]} = {means[1]},\quad k_1 = {show_series(k1, 3)}"


def _bound(a, order):
    """C with |remainder| <= C e^order E_mu[rho^2 s^2], for e = sup|eps| <= 1/2.

    |a^2 - its terms| <= C2 e^order.  Of the squared mean, order 2 leaves out all of E_q[k1 s]^2, at most
    sup k1^2; order 3 leaves out E_q[k1 s]^2 - E_q[eps s]^2, at most 2 e C1 e^2 + (C1 e^2)^2 by
    |k1 + eps| <= C1 e^2.
    """
    above, near = expectation_bound(a**2, order), expectation_bound(k1, 2)
    return above + (expectation_bound(k1**2, 2) if order == 2 else 2 * near + near**2 / 2)


def _shown(squares, slope):
    """sum_i c_i E_mu[rho^2 s^2 eps^i] - slope^2 E_q[s eps]^2, as text and as LaTeX."""
    powers = ["", " eps", " eps^2"]
    raised = ["", r"\,\varepsilon", r"\,\varepsilon^2"]
    terms = [
        (c, f"E_mu[rho^2 s^2{powers[i]}]", LATEX.expectation("mu", rf"\rho^2\,s^2{raised[i]}"))
        for c, i in squares
    ]
    centre = LATEX.expectation("q", r"\varepsilon\,s")
    terms += [(-(slope**2), "E_q[s eps]^2", f"{centre}^2")] if slope else []
    text, latex = (_sum((term[0], term[place]) for term in terms) for place in (1, 2))
    return text, latex


def _sum(terms):
    signs = {1: "", -1: "-"}
    return " + ".join(f"{signs.get(c, f'{c} ')}{name}" for c, name in terms).replace("+ -", "- ")


# ---------------------------------------------------------------------------- and its check
def _setting(q):
    """A sampler mu, and scores s = u - E_q[u], for a model with these weights q."""
    rng = random.Random(len(q))
    weights, u = ([mpmath.mpf(rng.randint(1, 50)) for _ in q] for _ in range(2))
    return [w / sum(weights) for w in weights], [x - mean(q, u) for x in u]


def _literal(name, q, ratios):
    """E_mu[g^2] - E_mu[g]^2, from the densities."""
    mu, scores = _setting(q)
    g = [
        w / m * (-mpmath.log(ratio) + (name == "g1")) * score
        for w, m, ratio, score in zip(q, mu, ratios, scores, strict=True)
    ]
    return mean(mu, [x**2 for x in g]) - mean(mu, g) ** 2


def _noise(q, power=0, ratios=None):
    """E_mu[rho^2 s^2 eps^power]."""
    mu, scores = _setting(q)
    eps = [ratio - 1 for ratio in ratios or q]
    rows = zip(q, mu, scores, eps, strict=True)
    return sum((w**2 / m * score**2 * e**power for w, m, score, e in rows), mpmath.mpf(0))


def _leading(squares, slope, q, ratios):
    _, scores = _setting(q)
    line = mean(q, [score * (ratio - 1) for score, ratio in zip(scores, ratios, strict=True)])
    return sum(int(c) * _noise(q, i, ratios) for c, i in squares) - int(slope) ** 2 * line**2
