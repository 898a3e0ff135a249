"""Small KL divergences: r = p/q = 1 + eps with E_q[eps] = 0, and power series in eps.

Far from q = p the generator (log r)^2/2 of k2 stops being convex.
"""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import sympy

from klsym.calculus import k1, k2, k3, r
from klsym.derivations.tools.remainder_order import check_order, mean, moments
from klsym.derivations.tools.taylor import (
    covariance_bound,
    expand,
    expanded_covariance,
    expectation_bound,
    expected_expansion,
    show_series,
    variance,
)
from klsym.kernel.intervals import Interval, enclose_log
from klsym.language.convert import to_sympy
from klsym.notation.printers import LATEX
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

K2_MEAN = LATEX.expectation("q", "k_2")
HYPOTHESES = ("p << q: wherever p > 0, also q > 0", "e = sup |p/q - 1| is at most 1/2")
ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
OF_RATIO = {  # the same as functions of the number r, for the checks
    "k1": lambda ratio: -mpmath.log(ratio),
    "k2": lambda ratio: mpmath.log(ratio) ** 2 / 2,
    "k3": lambda ratio: ratio - 1 - mpmath.log(ratio),
}


@claim("value.k2-bias-order", verdict="exact", source="WZ1 Three estimators; WZ2 3.1; RE; quantified new")
def k2_bias_is_of_third_order():
    """k2 and k1 + (r - 1) = k3 agree to second order in eps; their third orders differ."""
    bias = expected_expansion(k2 - k1, 4)
    return (
        _expanded(
            "E_q[k2] - KL(q||p)",
            f"{LATEX.expectation('q', 'k_2')} - {LATEX.divergence('KL', 'q', 'p')}",
            bias,
            expectation_bound(k2 - k1, 4),
            lambda q, ratios: _mean("k2", q, ratios) - _mean("k1", q, ratios),
            _series("k2", "k3"),
        ),
        _curvatures(),
        _every_smooth_f(),
    )


@claim("value.variance-small-kl", verdict="exact", source="WZ1 Intuition; WZ2 3.1; RE; quantified new")
def variances_near_p():
    """k1 is of first order in eps; k2 and k3 are of second order, both with the leading term eps^2/2."""
    return (_variance("k1", 3), _leading("k2"), _leading("k3"))


@claim("implied.third-order", verdict="exact", source="TM 5.1 (the regime of small KL); new")
def the_two_divergences_part_at_third_order():
    """k1 + r k1 has mean KL(q||p) - KL(p||q); its first order has mean 0, its second is 0."""
    difference = k1 + r * k1
    reverse, forward = (LATEX.divergence("KL", *pair) for pair in (("q", "p"), ("p", "q")))
    return _expanded(
        "KL(q||p) - KL(p||q)",
        f"{reverse} - {forward}",
        expected_expansion(difference, 4),
        expectation_bound(difference, 4),
        lambda q, ratios: mean(q, [-(1 + ratio) * mpmath.log(ratio) for ratio in ratios]),
        (*_series("k1"), ("", rf"k_1 + r\,k_1 = {show_series(difference, 5)}")),
    )


def _leading(name):
    """Var k2 and Var k3 as multiples of Var(eps^2) = E[eps^4] - E[eps^2]^2."""
    found, square = variance(ESTIMATORS[name], 5), variance((r - 1) ** 2, 5)
    factor = found.coefficient(4)
    of = sympy.Symbol("V")
    text = str(to_sympy(factor) * of).replace("V", "Var(eps^2)")
    latex = sympy.latex(to_sympy(factor) * of).replace("V", _variance_latex(r"\varepsilon^2"))
    plain = _variance(name, 5)
    return replace(
        plain,
        text=plain.text.replace(str(found), f"{text} + O(eps^5)"),
        latex=plain.latex.replace(found.latex, rf"{latex} + O(\varepsilon^5)"),
        steps=(*plain.steps, ("E[eps] = 0", f"{_variance_latex(f'k_{name[1]}')} = {found.latex}")),
        holds=found.polynomial == square.polynomial * factor,
    )


def optimal_lambda_limit():
    """The best coefficient lam* = -Cov(k1, r - 1)/Var(r - 1) of the control variate tends to 1 as p -> q."""
    jeffreys, chi2 = expanded_covariance(k1, 1 - r, 4), variance(r - 1, 4)
    best = jeffreys / chi2
    limit = to_sympy(best.coefficient())
    plain = _expanded(
        "lam*",
        r"\lambda_{\star}",
        best,
        expectation_bound(k1 * (1 - r), 4),  # E[eps^4] <= e^2 E[eps^2]
        lambda q, ratios: (
            mean(q, [(ratio - 1) * mpmath.log(ratio) for ratio in ratios])
            / mean(q, [(ratio - 1) ** 2 for ratio in ratios])
        ),
        (
            ("numerator", f"{LATEX.divergence('J', 'p', 'q')} = {jeffreys.latex}"),
            ("denominator", f"{LATEX.divergence('chi2', 'p', 'q')} = {chi2.latex}"),
        ),
    )
    return replace(
        plain,
        text=f"{plain.text}, so lam* -> {limit} as p -> q",
        latex=rf"{plain.latex},\quad \lambda_{{\star}} \to {limit} \text{{ as }} p \to q",
        hypotheses=(*HYPOTHESES, "p is not q"),
    )


# ---------------------------------------------------------------------------- far from q = p
x = sympy.Symbol("x", positive=True)
GENERATOR = sympy.log(x) ** 2 / 2
# Outcomes 0 and 1 have ratios r = 4 and 16, both beyond e; merged their ratio is 10.
Q = (Fraction(1, 40), Fraction(1, 40), Fraction(19, 20))
P = (Fraction(1, 10), Fraction(2, 5), Fraction(1, 2))
SEPARATE, MERGED = ((0,), (1,), (2,)), ((0, 1), (2,))


@claim(
    "value.k2-not-csiszar",
    verdict="corrected",
    source="WZ1 Three estimators",
    words="the mean of k2 is an f-divergence",
    later="WZ2 3 calls it a local surrogate instead",
)
def k2_is_no_csiszar_divergence():
    """A Csiszar divergence E_q[f(p/q)], f convex, never increases when outcomes are merged: Jensen."""
    return (_where_convex(), _divergence_up_to_e(), _merging_increases_k2())


def _where_convex():
    second = sympy.expand(sympy.diff(GENERATOR, x, 2) * x**2) / x**2
    [edge] = sympy.solve(second, x)
    falling = sympy.diff(second * x**2, x)  # so f'' changes its sign once, from + to -
    name = str(edge).replace("E", "e")

    def oracle():
        places = (0.1, 1, 2.7, 2.75, 5, 50)
        found = [mpmath.diff(OF_RATIO["k2"], place, 2) for place in places]
        worst = max(abs(f - second.subs(x, place)) for f, place in zip(found, places, strict=True))
        signs = [f > 0 for f in found] == [place < math.e for place in places]
        return signs and worst < 1e-4, f"numeric second derivatives: largest difference {float(worst):.1e}"

    return Evidence(
        "exact",
        f"f(x) = (log x)^2/2 has f'' = {str(second).replace('**', '^')}: it is convex for x <= {name} only",
        rf"f(x) = \tfrac{{1}}{{2}}(\log x)^2,\quad f''(x) = {sympy.latex(second)} \ge 0 \iff x \le {name}",
        "sympy",
        oracle=oracle,
        steps=(
            ("the only root of f''", f"x = {name}"),
            ("x^2 f'' falls", rf"(x^2 f'')' = {sympy.latex(falling)} < 0"),
        ),
        holds=bool(falling.is_negative) and second.subs(x, 1) > 0,
    )


def _divergence_up_to_e():
    """Beyond e the generator may be replaced by its tangent there, which no ratio r <= e sees."""
    slope = sympy.diff(GENERATOR, x)
    height, rise = (value.subs(x, sympy.E) for value in (GENERATOR, slope))
    tangent = sympy.expand(height + rise * (x - sympy.E))

    def oracle():
        def g(place):
            inside = math.log(place) ** 2 / 2
            return inside if place <= math.e else float(height) + float(rise) * (place - math.e)

        places = [i / 16 for i in range(1, 160)]
        least = min(g(a) + g(b) - 2 * g((a + b) / 2) for a in places for b in places[::5])
        return least > -1e-14, f"g(a) + g(b) - 2 g((a+b)/2) is at least {least:.1e} on a grid up to 10"

    text = str(tangent).replace("*exp(-1)", "/e")
    same = f"{K2_MEAN} = {LATEX.expectation('q', 'g(r)')}"
    return Evidence(
        "exact",
        f"where p <= e q, E_q[k2] = E_q[g(r)] with g convex: g = (log x)^2/2 for x <= e, g = {text} beyond",
        rf"p \le e\,q \implies {same},\quad g(x) = {sympy.latex(tangent)} \text{{ for }} x > e",
        "sympy",
        oracle=oracle,
        steps=(
            ("g' rises to f'(e) and stays there", rf"f'(x) = {sympy.latex(slope)},\quad f'(e) = e^{{-1}}"),
        ),
        holds=sympy.diff(tangent, x) == rise and tangent.subs(x, sympy.E) == height,
    )


def _merging_increases_k2():
    """An explicit model in rationals, both values enclosed."""
    before, after = (_k2_enclosed(blocks) for blocks in (SEPARATE, MERGED))
    low, high = (f"{float(value.lower):.6f}" for value in (before, after))

    def oracle():
        gap = _k2_in_floats(MERGED) - _k2_in_floats(SEPARATE)
        return gap > 0, f"in floats the merged value is larger by {gap:.6f}"

    q, p = (", ".join(map(str, weights)) for weights in (Q, P))
    return Evidence(
        "refuted",
        "E_q[k2] is a Csiszar f-divergence, with f(x) = (log x)^2/2",
        rf"{K2_MEAN} = D_f(p\,\Vert\,q),\quad f(x) = \tfrac{{1}}{{2}}(\log x)^2",
        "sympy",
        oracle=oracle,
        steps=(
            ("three outcomes", rf"q = ({q}),\quad p = ({p})"),
            ("their value, enclosed", rf"{K2_MEAN} = {low}\ldots"),
            ("the first two merged", rf"{K2_MEAN} = {high}\ldots"),
            ("no Csiszar divergence increases when outcomes are merged", f"{high} > {low}"),
        ),
        holds=after.lower > before.upper,
    )


def _merged(blocks):
    return [(sum(Q[i] for i in block), sum(P[i] for i in block)) for block in blocks]


def _k2_enclosed(blocks):
    """E_q[(log r)^2/2] of the model whose outcomes are these blocks."""
    total = Interval.from_number(0)
    for q, p in _merged(blocks):
        total += Interval.from_number(q / 2) * enclose_log(p / q) ** 2
    return total


def _k2_in_floats(blocks):
    return sum(float(q) * math.log(p / q) ** 2 / 2 for q, p in _merged(blocks))


# ---------------------------------------------------------------------------- the evidence
def _expanded(text, latex, expansion, constant, exact, steps):
    """An expansion with a bound on its remainder, checked on finite models as p -> q."""
    order, constant = expansion.order, rounded_up(constant)
    return Evidence(
        "exact",
        f"{text} = {expansion}, the remainder at most {constant} e^{order}",
        rf"{latex} = {expansion.latex},\quad |O(\varepsilon^{order})| \le {constant}\, e^{order}",
        "sympy",
        HYPOTHESES,
        lambda: check_order(
            exact,
            lambda q, ratios: expansion.evaluate(moments(q, ratios, order + 2)),
            order,
            lambda q, ratios: mpmath.mpf(constant) * max(abs(ratio - 1) for ratio in ratios) ** order,
        ),
        steps,
    )


def _variance_latex(of):
    return LATEX.covariance("q", of, of)


def _variance(name, order):
    estimator, function = ESTIMATORS[name], OF_RATIO[name]

    def exact(q, ratios):
        values = [function(ratio) for ratio in ratios]
        centre = mean(q, values)
        return mean(q, [(value - centre) ** 2 for value in values])

    constant = covariance_bound(estimator, estimator, order)
    latex = _variance_latex(f"k_{name[1]}")
    return _expanded(f"Var {name}", latex, variance(estimator, order), constant, exact, _series(name))


def _curvatures():
    """f''(1) is twice the second coefficient of f(1 + eps)."""
    generators = {
        "(log x)^2/2": (k2, "k2", r"\tfrac{1}{2}(\log x)^2"),
        "-log x": (k1, "k1", r"-\log x"),
    }
    found = {name: to_sympy(expand(k, 3)[2] * 2) for name, (k, _, _) in generators.items()}

    def oracle():
        pairs = [(OF_RATIO[k], found[name]) for name, (_, k, _) in generators.items()]
        worst = max(abs(mpmath.diff(f, 1, 2) - int(value)) for f, value in pairs)
        return worst < 1e-6, f"numeric second derivatives: largest difference {mpmath.nstr(worst, 2)}"

    return Evidence(
        "exact",
        " and ".join(f"f''(1) = {value} for f = {name}" for name, value in found.items()),
        r",\quad ".join(rf"f''(1) = {found[n]} \text{{ for }} f = {g[2]}" for n, g in generators.items()),
        "sympy",
        oracle=oracle,
        holds=len(set(found.values())) == 1,
    )


SMOOTH = {  # f with f(1) = 0
    "-log x": lambda x: -mpmath.log(x),
    "x log x": lambda x: x * mpmath.log(x),
    "(x - 1)^2": lambda x: (x - 1) ** 2,
    "2 (1 - sqrt x)": lambda x: 2 * (1 - mpmath.sqrt(x)),
    "1/x - 1": lambda x: 1 / x - 1,
    "Jensen-Shannon": lambda x: x * mpmath.log(x) / 2 - (1 + x) * mpmath.log((1 + x) / 2) / 2,
    "sin(x - 1)": lambda x: mpmath.sin(x - 1),
}


def _every_smooth_f():
    """Taylor's theorem at r = 1, where E_q[eps] = 0 removes the first order."""
    h = sympy.Symbol("h", real=True)
    f = sympy.Function("f")
    slopes = [f(x).diff(x, i).subs(x, 1) if i else f(1) for i in range(3)]
    remainder = f(1 + h) - sum(slope * h**i / math.factorial(i) for i, slope in enumerate(slopes))
    at_zero = [remainder.diff(h, i).subs(h, 0).doit() for i in range(3)]
    third = sympy.simplify(remainder.diff(h, 3).doit() - f(1 + h).diff(h, 3).doit())

    def oracle():
        worst = mpmath.mpf(-1)
        for function in SMOOTH.values():
            second = mpmath.diff(function, 1, 2)
            for q, ratios in (((0.5, 0.3, 0.2), (1.2, 0.8, 0.8)), ((0.25, 0.75), (0.7, 1.1))):
                e = max(abs(ratio - 1) for ratio in ratios)
                square = mean(q, [(ratio - 1) ** 2 for ratio in ratios])
                gap = abs(mean(q, [function(ratio) for ratio in ratios]) - second / 2 * square)
                steepest = max(abs(mpmath.diff(function, 1 + e * i / 20, 3)) for i in range(-20, 21))
                worst = max(worst, gap - steepest * e * square / 6)
        return worst < 1e-9, f"{len(SMOOTH)} functions, two models: no gap exceeds the bound by 1e-9"

    return Evidence(
        "exact",
        "for every f with a continuous third derivative and f(1) = 0: E_q[f(r)] = f''(1)/2 E_q[eps^2] +"
        " O(eps^3), the remainder at most sup |f'''| e E_q[eps^2]/6, so that f with one f''(1) agree to"
        " second order",
        r"\mathbb{E}_q[f(r)] = \tfrac{1}{2} f''(1)\, \mathbb{E}_q[\varepsilon^2] + O(\varepsilon^3),\quad"
        r" |O(\varepsilon^3)| \le \tfrac{1}{6} \sup_{|x - 1| \le e} |f^{(3)}(x)|\, e\,"
        r" \mathbb{E}_q[\varepsilon^2]",
        "sympy",
        (HYPOTHESES[0], "e = sup |p/q - 1| is finite; f has three continuous derivatives on [1 - e, 1 + e]"),
        oracle,
        (("Taylor at 1, the remainder 0 at h = 0 with two derivatives",
          r"f(1 + h) = f(1) + f'(1) h + \tfrac{1}{2} f''(1) h^2"
          r" + \int_0^h \tfrac{(h - t)^2}{2} f^{(3)}(1 + t)\,dt"),
         ("f(1) = 0 and E_q[eps] = 0", r"\mathbb{E}_q[f(1) + f'(1)\, \varepsilon] = 0")),
        holds=not any(at_zero) and third == 0,
    )  # fmt: skip


def _series(*names):
    return tuple((f"series of {n}", f"k_{n[1]} = {show_series(ESTIMATORS[n], 5)}") for n in names)


def _mean(name, q, ratios):
    return mean(q, [OF_RATIO[name](ratio) for ratio in ratios])


def rounded_up(constant):
    """Three decimals, upwards: a bound stays a bound."""
    return f"{math.ceil(constant * 1000) / 1000:.3f}"
