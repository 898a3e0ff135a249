"""Two Gaussians: Schulman's table in closed form, where k3 stops helping, and heavy tails.

q = N(0, 1) throughout; expectations by completing the square.
"""

import math

import sympy

from klsym.calculus import (
    covariance,
    expectation,
    k1,
    k2,
    k3,
    q,
)
from klsym.derivations.tools.gaussian_quadrature import ESTIMATORS, mean, mean_and_sd
from klsym.experiments.gaussians.schulman import PRINTED, agrees
from klsym.notation.printers import LATEX
from klsym.study.gaussian.exact import GaussianModel
from klsym.study.gaussian.models import (
    Divergent,
    Gaussian,
    build_table,
    compute_expectation,
    compute_log_ratio,
    compute_variance,
    x,
)
from klsym.study.ledger.evidence import Estimate, Evidence
from klsym.study.ledger.registry import claim

STANDARD = Gaussian(0, 1)
NAMES = {"k1": "k_1", "k2": "k_2", "k3": "k_3"}
MEAN = {name: LATEX.expectation("q", latex) for name, latex in NAMES.items()}
VAR = {name: LATEX.covariance("q", latex, latex) for name, latex in NAMES.items()}
HALF = sympy.Rational(1, 2)


# ---------------------------------------------------------------------------- Schulman's table
@claim("value.gaussian-table-near", verdict="exact", source="WZ1 Bias and variance for KL values; WZ2 3.1")
def table_near():
    """A small KL: the bias of k2 is 0.0025 of it, half a unit in the last digit from the printed 0.002."""
    return _table(sympy.Rational(1, 10), PRINTED["near"])


@claim("value.gaussian-table-far", verdict="exact", source="WZ1 Bias and variance for KL values; WZ2 3.1")
def table_far():
    """A large KL: the bias of k2 is a quarter of it."""
    return _table(sympy.Integer(1), PRINTED["far"])


def _table(at, printed):
    rows = build_table(STANDARD, Gaussian(at, 1))
    true = rows["k1"].mean
    columns = {
        "bias/true": [row.bias_over_true for row in rows.values()],
        "sd/true": [row.sd_over_true for row in rows.values()],
    }
    text = "; ".join(f"{name} {', '.join(map(_decimal, values))}" for name, values in columns.items())
    cells = {name: r",\ ".join(map(_decimal_latex, values)) for name, values in columns.items()}
    latex = r";\quad ".join(rf"\text{{{name}: }} {cell}" for name, cell in cells.items())
    shown = dict(zip(columns, zip(*printed.values(), strict=True), strict=True))
    right = all(agrees(*pair) for name in columns for pair in zip(shown[name], columns[name], strict=True))
    printed_latex = r";\quad ".join(map(r",\ ".join, shown.values()))
    return Evidence(
        "exact",
        f"q = N(0,1), p = N({at},1), KL = {true}: {text} (k1, k2, k3); the printed "
        f"{'; '.join(map(', '.join, shown.values()))} agree to the digits given",
        rf"q = \mathcal{{N}}(0, 1),\ p = \mathcal{{N}}({sympy.latex(at)}, 1):\quad "
        rf"\mathrm{{KL}} = {sympy.latex(true)};\quad {latex};\quad \text{{the printed }} "
        rf"{printed_latex} \text{{ agree to the digits given}}",
        "sympy",
        holds=right,
        oracle=lambda: _table_oracle(float(at), columns),
        estimates=tuple(
            estimate for loss, row in zip((k1, k2, k3), rows.values(), strict=True)
            for estimate in _estimates(loss, row.mean, row.sd**2, at, 1)
        ),
        steps=(
            ("log q - log p", rf"k_1 = {sympy.latex(compute_log_ratio(STANDARD, Gaussian(at, 1)))}"),
            *(
                (f"{name} under q", rf"{MEAN[name]} = {sympy.latex(row.mean)},\quad "
                 f"{VAR[name]} = {sympy.latex(row.sd**2)}")
                for name, row in rows.items()
            ),
        ),
    )  # fmt: skip


def _estimates(loss, mean, spread, centre, variance_):
    """The mean and the variance of an estimator, to be sampled with q = N(0, 1), p = N(centre, variance)."""
    model = GaussianModel((0.0, 1.0), (float(centre), float(variance_)))
    where = f"p = N({float(centre):.4g}, {float(variance_):.4g})"
    return (
        Estimate(f"E_q {loss} at {where}", expectation(loss, under=q).side, model, float(mean)),
        Estimate(f"Var_q {loss} at {where}", covariance(loss, loss, under=q).side, model, float(spread)),
    )


# ---------------------------------------------------------------------------- where k3 stops helping
@claim("value.gaussian-crossover", verdict="exact", source="WZ1 Intuition; WZ2 3.1; closed form new")
def crossover():
    """As a function of u = d^2, the difference of the variances starts at 0, decreases, and is strictly
    convex: one root."""
    d, u = sympy.Symbol("d", real=True), sympy.Symbol("u", positive=True)
    p = Gaussian(d, 1)
    kl, var1, var3 = (
        found.value.subs(d, sympy.sqrt(u))
        for found in (
            compute_expectation(k1, STANDARD, p),
            compute_variance(k1, STANDARD, p),
            compute_variance(k3, STANDARD, p),
        )
    )
    gap = var3 - var1
    start, slope, curvature = gap.subs(u, 0), sympy.diff(gap, u).subs(u, 0), sympy.diff(gap, u, 2)
    root, is_root = _lambert_root(gap, u)
    edge = [_digits(value, 6) for value in (root, kl.subs(u, root))]
    return Evidence(
        "exact",
        f"q = N(0,1), p = N(d,1): Var k3 < Var k1 iff 0 < d^2 < u*, u* = {edge[0]}... the positive root of"
        f" {gap}, that is 0 < KL < {edge[1]}...",
        rf"{VAR['k3']} < {VAR['k1']} \iff 0 < d^2 < u^*,\quad "
        rf"u^* = {sympy.latex(root)} = {edge[0]}\ldots,\quad 0 < \mathrm{{KL}} < {edge[1]}\ldots",
        "sympy",
        oracle=lambda: _crossover_oracle(float(root), float(kl.subs(u, root))),
        estimates=tuple(
            estimate
            for loss, spread in ((k1, var1), (k3, var3))
            for estimate in _estimates(loss, kl.subs(u, HALF), spread.subs(u, HALF), sympy.sqrt(HALF), 1)
        ),
        steps=(
            ("u = d^2", rf"{VAR['k1']} = {sympy.latex(var1)},\quad {VAR['k3']} = {sympy.latex(var3)}"),
            ("the gap", rf"g(u) = {sympy.latex(gap)},\quad g(0) = {start},\quad g'(0) = {slope}"),
            ("strictly convex: one positive root", rf"g''(u) = {sympy.latex(curvature)} > 0"),
            ("w = -u - 1/2, w e^w = z", rf"g(u^*) = 0,\quad u^* = {sympy.latex(root)}"),
        ),
        holds=bool(start == 0 and slope < 0 and curvature.is_positive and is_root),
    )  # fmt: skip


def _lambert_root(gap, u):
    """The positive root of e^u - 1 - 2u, u = -1/2 - w with w e^w = z: the branch w < -1 has u > 1/2."""
    z, w = -sympy.exp(-HALF) / 2, sympy.Symbol("w", negative=True)
    residual = sympy.expand(gap.subs(u, -HALF - w)).subs(sympy.exp(-w), w / z)  # e^w = z/w
    root = -HALF - sympy.LambertW(z, -1)
    return root, sympy.expand(residual) == 0 and sympy.N(root) > HALF


# ---------------------------------------------------------------------------- heavy tails
@claim("value.heavy-tail", verdict="exact", source="WZ1 Intuition, trap 3; WZ2 3.1; closed form new")
def heavy_tail():
    """r^2 q grows or falls like exp((1/2 - 1/v) x^2); no other term of k3^2 q grows as fast."""
    v = sympy.Symbol("v", positive=True)
    p = Gaussian(0, v)
    first, third = compute_variance(k1, STANDARD, p), compute_variance(k3, STANDARD, p)
    [need] = third.conditions  # that of E_q[r^2]: the other terms of k3^2 need none
    [edge] = sympy.solve(need.holds.lhs - need.holds.rhs, v)
    rate = sympy.expand(compute_log_ratio(p, STANDARD) * 2 - x**2 / 2).coeff(x, 2)
    values = {"k1": sympy.factor(first.value), "k3": third.value}
    return (
        _heavy(
            f"Var k1 = {values['k1']}, finite for every v > 0".replace("**", "^"),
            rf"{VAR['k1']} = {sympy.latex(values['k1'])} < \infty \text{{ for every }} v > 0",
            lambda: _variance_oracle("k1", values["k1"], v, (0.25, 1.5, 2.0, 9.0)),
            (("a quadratic in x", rf"k_1 = {sympy.latex(compute_log_ratio(STANDARD, p))}"),),
            first.finite is sympy.true,
        ),
        _heavy(
            f"Var k3 is finite iff v < {edge}, and is then {values['k3']}".replace("**", "^"),
            rf"{VAR['k3']} < \infty \iff v < {edge},\quad {VAR['k3']} = {sympy.latex(values['k3'])}",
            lambda: _tail_oracle(values["k3"], v, rate),
            (
                (
                    "up to a factor",
                    rf"r^2 q(x) \propto \exp\left(\left({sympy.latex(rate)}\right) x^2\right)",
                ),
                ("integrable iff the exponent is negative", rf"{sympy.latex(rate)} < 0 \iff v < {edge}"),
            ),
            sympy.diff(rate, v).is_positive
            and rate.subs(v, edge) == 0
            and not any(_finite(k3, edge + more) for more in (0, 1)),
            tuple(
                _estimates(k3, 0, third.value.subs(v, at), 0, at)[1]
                for at in (sympy.Rational(11, 10), sympy.Rational(13, 10), sympy.Rational(3, 2))
            ),
        ),
        _condition_on_tails(rate, v),
    )


TAILS = (1.5, 0.8)  # powers with which P_p(r > t) falls: one above 1, one below


def _condition_on_tails(rate, v):
    """k3 = r + (k1 - 1), so Var k3 is finite if and only if E_q[r^2] = E_p[r] is: the tail of r decides."""
    a, t = sympy.symbols("a t", positive=True)
    tail = sympy.integrate(t**-a, (t, 1, sympy.oo), conds="none")
    growth = (rate + sympy.Rational(1, 2)) / 2  # log r is this times x^2, up to a constant
    decay = sympy.simplify(1 / (2 * v) / growth)  # P_p(r > t) falls like t^-decay

    def oracle():
        """Ratios 2^j with P_p(r >= 2^j) = 2^(-a j): sums of E_q[k3^2] over more and more outcomes."""
        sums = []
        for power in TAILS:
            masses = [2.0 ** (-power * j) * (1 - 2.0**-power) for j in range(160)]
            terms = [p / 2.0**j * (2.0**j - 1 - j * math.log(2)) ** 2 for j, p in enumerate(masses)]
            sums.append([sum(terms[:count]) for count in (40, 80, 160)])
        (_, before, last), (start, middle, end) = sums
        settles, grows = abs(last - before) < 1e-5, middle > 100 * start and end > 100 * middle
        light, heavy = TAILS
        return settles and grows, f"ratios 2^j: E_q[k3^2] settles at a = {light}, and grows at a = {heavy}"

    return Evidence(
        "exact",
        "for all q and p with E_q[k1^2] finite: Var k3 is finite iff E_q[r^2], the integral of P_p(r > t)"
        " over t > 0, is; where P_p(r > t) falls like t^-a, iff a > 1; these Gaussians have"
        f" a = {decay} for v > 1".replace("**", "^"),
        r"\operatorname{Var} k_3 < \infty \iff \mathbb{E}_q[r^2] = \int_0^\infty P_p(r > t)\,dt < \infty,"
        rf"\quad P_p(r > t) \sim t^{{-a}} \Rightarrow a > 1,\quad a = {sympy.latex(decay)}",
        "sympy",
        ("E_q[k1^2] is finite, p << q; the last is for q = N(0,1), p = N(0,v), up to powers of log t",),
        oracle,
        (("k1 - 1 has a finite second moment", r"k_3 = r + (k_1 - 1)"),
         ("the mean of a positive variable",
          r"\mathbb{E}_q[r^2] = \mathbb{E}_p[r] = \int_0^\infty P_p(r > t)\,dt"),
         ("a power", rf"\int_1^\infty t^{{-a}} dt = {sympy.latex(tail)}\ (a > 1)")),
        holds=sympy.simplify(tail - 1 / (a - 1)) == 0 and sympy.simplify(decay - 1 / (v - 1)) == 0,
    )  # fmt: skip


def _heavy(text, latex, oracle, steps, holds, estimates=()):
    condition = "q = N(0,1), p = N(0,v), v > 0"
    return Evidence(
        "exact", text, latex, "sympy", (condition,), oracle, steps, bool(holds), estimates=estimates
    )


def _finite(loss, value):
    try:
        compute_variance(loss, STANDARD, Gaussian(0, value))
    except Divergent:
        return False
    return True


# ---------------------------------------------------------------------------- numbers, and the checks
def _digits(value, places):
    """Decimals cut off, not rounded: the digits that an ellipsis continues."""
    return f"{math.floor(sympy.N(value, 20) * 10**places) / 10**places:.{places}f}"


def _decimal(value):
    return str(value) if value.is_rational else f"{value} = {_digits(value, 5)}..."


def _decimal_latex(value):
    return sympy.latex(value) + ("" if value.is_rational else rf" = {_digits(value, 5)}\ldots")


def _measured(at):
    """Bias and standard deviation over the true KL, by quadrature; KL = at^2/2."""
    true = at**2 / 2
    found = [mean_and_sd(value, (0.0, 1.0), (at, 1.0)) for value in ESTIMATORS.values()]
    return {"bias/true": [(m - true) / true for m, _ in found], "sd/true": [sd / true for _, sd in found]}


def _table_oracle(at, columns):
    measured = _measured(at)
    pairs = [(m, float(e)) for name in columns for m, e in zip(measured[name], columns[name], strict=True)]
    worst = max(abs(m - e) for m, e in pairs)
    return worst < 1e-8, f"quadrature: largest difference of the {len(pairs)} entries {worst:.1e}"


def _gap(squared):
    """Var k3 - Var k1 at p = N(d, 1), d^2 = squared, by quadrature."""
    sds = [mean_and_sd(ESTIMATORS[k], (0.0, 1.0), (math.sqrt(squared), 1.0))[1] for k in ("k3", "k1")]
    return sds[0] ** 2 - sds[1] ** 2


def _crossover_oracle(root, kl):
    measured = mean(ESTIMATORS["k1"], (0.0, 1.0), (math.sqrt(root), 1.0))
    below, at, above = (_gap(root * scale) for scale in (0.999, 1, 1.001))
    signs = all(_gap(root * scale) < 0 for scale in (0.01, 0.3, 0.9)) and _gap(2 * root) > 0
    return (
        signs and below < 0 < above and abs(at) < 1e-9 and abs(measured - kl) < 1e-12,
        f"quadrature: Var k3 - Var k1 is {below:.1e}, {at:.1e}, {above:.1e} around u*; there "
        f"KL = {measured:.12f}",
    )


def _variance_oracle(name, closed, v, places):
    found = [mean_and_sd(ESTIMATORS[name], (0.0, 1.0), (0.0, place))[1] ** 2 for place in places]
    worst = max(abs(f / float(closed.subs(v, place)) - 1) for f, place in zip(found, places, strict=True))
    return worst < 1e-8, f"quadrature at v = {', '.join(map(str, places))}: relative difference {worst:.1e}"


def _tail_oracle(closed, v, rate):
    """Inside, the closed form; at the edge the cut-off integral of r^2 q doubles with its range, beyond
    it grows like exp(rate B^2)/B."""

    def cut_off(variance, reach):
        return mean(lambda k: math.e ** (-2 * k), (0.0, 1.0), (0.0, variance), reach)

    inside, text = _variance_oracle("k3", closed, v, (0.25, 1.2, 1.5))
    doubling = cut_off(2.0, 24.0) / cut_off(2.0, 12.0)
    growth = math.log(2 * cut_off(3.0, 24.0) / cut_off(3.0, 12.0)) / (24**2 - 12**2)
    beyond = abs(growth - float(rate.subs(v, 3)))
    text += f"; at v = 2 E_q[r^2] grows {doubling:.6f}-fold as its range doubles, at v = 3 like "
    return inside and abs(doubling - 2) < 0.01 and beyond < 1e-3, text + f"exp({growth:.4f} x^2)"
