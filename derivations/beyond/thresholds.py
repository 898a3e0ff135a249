"""Where a small KL promises nothing, and what a second step on the same batch changes.

Sources: WZ1, WZ2 = Wang & Zhang 2025 (two versions).
"""

from itertools import pairwise

import mpmath
import sympy

from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

e, h = sympy.symbols("e h", positive=True)
CROSSING = 3.512862417252339  # r - 1 = 2 log r, checked below


# ---------------------------------------------------------------------------- no threshold of the KL
@claim("beyond.no-kl-threshold", verdict="refuted", source="WZ1, WZ2 ('in the small-KL regime')")
def no_threshold_of_the_kl():
    """A rare outcome that the reference makes less rare leaves both KLs small, and r there large."""
    return _reversed_orders(), _bounds_are_the_best()


def _reversed_orders():
    """p = (e, 1 - e), q = mu = (e^4, 1 - e^4): r = e^-3 at the first outcome."""
    kl, value_gap, gradient_gap = _compute_family(e, sympy.log)

    def oracle():
        lines = [_compute_family(mpmath.mpf(10) ** -n, mpmath.log) for n in (2, 3, 4)]
        falls = all(abs(after[0]) < abs(before[0]) for before, after in pairwise(lines))
        kls, values, gradients = (", ".join(mpmath.nstr(line[i], 4) for line in lines) for i in range(3))
        return falls and all(v > 0 > g for _, v, g in lines), (
            f"e = 1/100, 1/1000, 1/10000: KL {kls}; Var k3 - Var k1 {values};"
            f" Var (k1 + 1) s - Var k1 s {gradients}"
        )

    limits = (
        sympy.limit(kl, e, 0), sympy.limit(value_gap * e**2, e, 0),
        sympy.limit(gradient_gap / (e**4 * sympy.log(e)), e, 0),
    )  # fmt: skip
    return Evidence(
        "refuted",
        "there is an eps > 0 such that KL(q||p) < eps, with mu = q, implies Var k3 <= Var k1 and"
        " Var(rho k1 s) <= Var(rho (k1 + 1) s)",
        r"\mathrm{KL}(q \Vert p) < \varepsilon \implies"
        r" \operatorname{Var} k_3 \le \operatorname{Var} k_1,\ "
        r"\operatorname{Var} \rho k_1 s \le \operatorname{Var} \rho (k_1 + 1) s",
        "sympy",
        ("p = (e, 1 - e), q = mu = (e^4, 1 - e^4), s along the logit of the first outcome, e -> 0",),
        oracle,
        (("the KL vanishes", rf"\mathrm{{KL}}(q \Vert p) \to {limits[0]}"),
         ("the order of the values is turned",
          rf"e^2 (\operatorname{{Var}} k_3 - \operatorname{{Var}} k_1) \to {limits[1]}"),
         ("that of the gradients, too: log e is negative",
          r"\operatorname{Var} (k_1 + 1) s - \operatorname{Var} k_1 s"
          rf" \sim {limits[2]}\, e^4 \log e")),
        holds=limits[0] == 0 and limits[1] > 0 and limits[2] > 0,
    )  # fmt: skip


def _compute_family(x, log):
    """KL(q||p), Var k3 - Var k1, and Var (k1 + 1) s - Var k1 s along the first logit."""
    outcomes = ((x**4, x, 1 - x**4), (1 - x**4, 1 - x, -(x**4)))  # q, p, and the score of the first logit
    rows = [(q, log(q / p), p / q - 1 + log(q / p), score) for q, p, score in outcomes]
    kl = sum(q * k1 for q, k1, _, _ in rows)
    values = sum(q * (k3**2 - k1**2) for q, k1, k3, _ in rows)
    return kl, values, sum(q * s**2 * (2 * k1 + 1) for q, k1, _, s in rows)


def _bounds_are_the_best():
    """Two outcomes, the rare one with any r0 beyond a bound: the gap is h times its sign, to first order."""
    r0 = sympy.Symbol("r_0", positive=True)
    other = (1 - h * r0) / (1 - h)
    gaps = {}
    for name, at in (
        ("values", lambda r: (r - 1 - sympy.log(r)) ** 2 - sympy.log(r) ** 2),
        ("gradients", lambda r: 2 * sympy.log(r) - 1),
    ):
        weight = (1 - h) ** 2 if name == "gradients" else 1
        rest = h**2 if name == "gradients" else 1
        total = h * weight * at(r0) + (1 - h) * rest * at(other)
        gaps[name] = sympy.simplify(sympy.limit(total / h, h, 0) - at(r0))
    crossing = mpmath.findroot(lambda r: r - 1 - 2 * mpmath.log(r), 3.5)

    def oracle():
        signs = []
        for bound, at in ((crossing, 1.001 * crossing), (mpmath.exp(0.5), 1.001 * mpmath.exp(0.5))):
            assert at > bound
            x = mpmath.mpf(10) ** -9
            q, p = (x, 1 - x), (x * at, 1 - x * at)
            k1 = [mpmath.log(u / v) for u, v in zip(q, p, strict=True)]
            k3 = [v / u - 1 + k for u, v, k in zip(q, p, k1, strict=True)]
            s = (1 - x, -x)
            mean = sum(u * k for u, k in zip(q, k1, strict=True))
            variances = [sum(u * (z - mean) ** 2 for u, z in zip(q, row, strict=True)) for row in (k1, k3)]
            squares = [sum(u * (k + i) ** 2 * t**2 for u, k, t in zip(q, k1, s, strict=True)) for i in (0, 1)]
            signs.append(variances[1] > variances[0] if bound is crossing else squares[0] > squares[1])
        return all(signs), "just beyond either bound, an outcome of chance 1e-9: both orders are turned"

    return Evidence(
        "refuted",
        f"a bound on r above {CROSSING:.4f} (values) or exp(1/2) (gradients, mu = q) is enough for the"
        " orders",
        r"r \le r_0 \implies \operatorname{Var} k_3 \le \operatorname{Var} k_1"
        r"\ \text{for some } r_0 > 3.5128..,"
        r"\quad r \le r_0 \implies \operatorname{Var} k_1 s \le \operatorname{Var} (k_1 + 1) s"
        r"\ \text{for some } r_0 > \sqrt{e}",
        "sympy",
        ("q = mu = (h, 1 - h), p = (h r0, 1 - h r0), h -> 0; s along the logit of the first outcome",),
        oracle,
        (("the gap is h times that of the rare outcome, to first order",
          r"h\left[(r_0 - 1 - \log r_0)^2 - \log^2 r_0\right] + O(h^2)"),
         ("which is positive beyond the root", r"r_0 - 1 = 2 \log r_0,\ r_0 = 3.5128.."),
         ("of the gradients, as k1 = -log r", r"h (2 \log r_0 - 1) + O(h^2)")),
        holds=gaps["values"] == gaps["gradients"] == 0 and abs(crossing - CROSSING) < 1e-12,
    )  # fmt: skip


# ---------------------------------------------------------------------------- a batch that was used
@claim("beyond.batch-reuse", verdict="refuted", source="new (every PPO epoch after the first)")
def a_second_step_on_the_same_batch():
    """After a step the parameters depend on the sample, and the mean over samples at one theta is no more."""
    bias = _compute_bias()

    def oracle():
        found = [float(_step(mpmath.mpf(10) ** -n)) for n in (3, 4, 5)]
        near = abs(found[-1] - float(bias)) < 1e-5
        return near, f"bias over step size at steps 1e-3, 1e-4, 1e-5: {', '.join(f'{x:.6f}' for x in found)}"

    return Evidence(
        "refuted",
        "after a step on a batch, the expected gradient of rho k3 on the same batch is grad KL(q||p) at"
        " the new theta",
        r"\mathbb{E}_{y \sim \mu}[\nabla(\rho k_3)(y; \theta_1(y))]"
        r" = \mathbb{E}_y[\nabla \mathrm{KL}(q_{\theta_1(y)} \Vert p)]",
        "sympy",
        ("n = 1, q = mu = (3/10, 7/10), p = (3/5, 2/5), theta_1(y) = theta - eta grad(rho k3)(y), eta -> 0:"
         f" the two sides differ by eta times {float(bias):.4f} along the first logit",),
        oracle,
        (("to first order in eta", r"-\mathbb{E}_y\left[(\nabla^2 (\rho k_3)(y)"
          r" - \nabla^2 \mathrm{KL})\, \nabla(\rho k_3)(y)\right] \ne 0"),),
        holds=bool(sympy.N(bias, 30) > sympy.Rational(1, 100)),
    )  # fmt: skip


REFERENCE = (sympy.Rational(3, 5), sympy.Rational(2, 5))
START = (sympy.Rational(3, 10), sympy.Rational(7, 10))


def _compute_bias():
    """The derivative of the bias at eta = 0; z is the difference of the two logits, which moves twice."""
    z = sympy.Symbol("z", real=True)
    policy = (sympy.exp(z) / (1 + sympy.exp(z)), 1 / (1 + sympy.exp(z)))
    start = {z: sympy.log(START[0] / START[1])}
    kl = sum(q * sympy.log(q / p) for q, p in zip(policy, REFERENCE, strict=True))
    total = 0
    for q, p, chance in zip(policy, REFERENCE, START, strict=True):
        slope = sympy.diff(q / chance * (p / q - 1 + sympy.log(q / p)), z)
        total -= chance * 2 * slope.subs(start) * (sympy.diff(slope, z) - sympy.diff(kl, z, 2)).subs(start)
    return sympy.simplify(total)


def _step(eta):
    """The bias over eta, from the two samples, each with its own step."""
    mu, p = ([mpmath.mpf(x.p) / x.q for x in row] for row in (START, REFERENCE))

    def slope(q, y):
        ratio, k1 = q[y] / mu[y], mpmath.log(q[y] / p[y])
        return [ratio * k1 * ((y == j) - q[j]) for j in (0, 1)]  # rho k1 s

    total = mpmath.mpf(0)
    for y in (0, 1):
        z = [mpmath.log(x) - eta * g for x, g in zip(mu, slope(mu, y), strict=True)]
        size = sum(map(mpmath.exp, z))
        q = [mpmath.exp(x) / size for x in z]
        k1 = [mpmath.log(u / v) for u, v in zip(q, p, strict=True)]
        kl = sum(u * k for u, k in zip(q, k1, strict=True))
        total += mu[y] * (slope(q, y)[0] - q[0] * (k1[0] - kl))
    return total / eta
