"""Distillation: which KL of the next token each recipe descends, with all words, some words, or two buckets.

At one step q is the student's distribution of the next word and p the teacher's; M is 1 at the words that are
kept, and free of theta.  Over the steps of a sequence q_t and p_t are those after the prefix y_<t.
"""

import math
from fractions import Fraction

import numpy as np
import sympy

from klsym.calculus import (
    KL,
    A,
    Function,
    M,
    curl,
    derive,
    expectation,
    finite_model,
    future,
    grad,
    k1,
    k2,
    k3,
    now,
    p,
    parameter,
    past,
    q,
    s,
    sg,
    sum_over_t,
    token_gradient,
    token_KL,
    token_KL_gradient,
)
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

a, b = parameter("a"), parameter("b")
g = Function("g")(k1)  # any differentiable function of k1, hence of r = exp(-k1)
TOLERANCE = 1e-9
EQUAL = {"q": ["1/2", "1/4", "1/4"], "p": ["1/2", "1/4", "1/4"], "mu": ["1/2", "1/4", "1/4"]}


# ---------------------------------------------------------------------------- all words
@claim(
    "distill.jsd-strength",
    verdict="exact",
    source="GKD (arXiv 2306.13649), generalised JSD; ms-swift issue 10078, TRL issue 6780",
    reading=("JSD_b = b KL(p||m) + (1 - b) KL(q||m) with m = b p + (1 - b) q and 0 < b < 1",),
)
def strength_of_the_jsd():
    """The strength tends to 0 at both ends: b KL(p||q) near b = 0, and (1 - b) KL(q||p) near b = 1."""
    share, x = sympy.symbols("b r", positive=True)
    mixed = share * x + 1 - share
    f = share * x * sympy.log(x / mixed) - (1 - share) * sympy.log(mixed)
    bend = sympy.simplify(sympy.diff(f, x, 2) - share * (1 - share) / (x * mixed))
    starts = sympy.simplify(sympy.diff(f, share).subs(share, 0) - (x * sympy.log(x) - x + 1))
    ends = sympy.simplify(-sympy.diff(f, share).subs(share, 1) - (x - 1 - sympy.log(x)))
    return Evidence(
        "exact",
        "JSD_b = E_q[f(r)] with f''(r) = b(1 - b)/(r (b r + 1 - b)), so f''(1) = b(1 - b);"
        " JSD_b/b -> KL(p||q) for b -> 0, and JSD_b/(1 - b) -> KL(q||p) for b -> 1",
        r"f''(1) = b(1-b), \quad \tfrac{1}{b} \mathrm{JSD}_b \to \mathrm{KL}(p\,\Vert\,q)\ (b \to 0), \quad"
        r"\tfrac{1}{1-b} \mathrm{JSD}_b \to \mathrm{KL}(q\,\Vert\,p)\ (b \to 1)",
        "sympy",
        ("finitely many words, each with q > 0 and p > 0, so that limits pass the sum",),
        _strengths,
        (
            ("f is b r log(r/m) - (1 - b) log m, m = b r + 1 - b", r"f'' = \tfrac{b(1-b)}{r(br+1-b)}"),
            ("in b, at b = 0", r"\partial_b f = r\log r - r + 1"),
            ("in 1 - b, at b = 1", r"\partial_{1-b} f = r - 1 - \log r"),
        ),
        holds=bend == starts == ends == 0,
    )


def _kl(x, y):
    return float(np.sum(x * np.log(x / y)))


def _jsd(share, x, y):
    mixed = share * y + (1 - share) * x
    return share * _kl(y, mixed) + (1 - share) * _kl(x, mixed)


def _strengths():
    """JSD by its two KLs: far towards both ends, and with p near q."""
    rng = np.random.default_rng(0)
    x, y = rng.dirichlet([2] * 5, size=2)
    small = 1e-6
    gaps = [
        abs(_jsd(small, x, y) / small - _kl(y, x)) / _kl(y, x),
        abs(_jsd(1 - small, x, y) / small - _kl(x, y)) / _kl(x, y),
    ]
    move = rng.normal(size=5)
    move = 1e-3 * x * (move - x @ move)
    size = float(np.sum(move**2 / x))
    gaps += [
        abs(2 * _jsd(share, x, x + move) / size / (share * (1 - share)) - 1) for share in (0.1, 0.5, 0.9)
    ]
    return max(gaps) < 5e-3, f"two random distributions of 5 words: largest relative gap {max(gaps):.1e}"


@claim(
    "distill.reward-f",
    source="arXiv 2606.01039 (stop-gradient in the f-divergence reward), made exact",
    reading=("g is f(r) as a function of k1 = -log r, so that a k1 + b is f = -a log r + b",),
)
def divergence_as_a_reward():
    """A detached f(r) as the coefficient of the score has the objective E_q[f(r)] only if f = a log r + b."""
    gap = expectation(s * sg(g), under=q) - grad(expectation(g, under=q))
    return derive(gap).iff("g", is_=a * k1 + b, constants=(b, a))


@claim(
    "distill.four-cells",
    source="arXiv 2605.16826 (prefixes of teacher or student, forward or reverse), made exact",
    reading=(
        "now(.) is of one step; the prefixes are drawn and held fixed, except where grad stands outside",
    ),
)
def prefixes_and_directions():
    """With prefixes of the teacher, both directions have an objective; with those of the student, neither has
    one."""
    return (
        derive(token_KL_gradient(p, q, prefixes=p)).equals(grad(KL(p, q))),
        derive(token_KL_gradient(q, p, prefixes=p)).equals(grad(token_KL(q, p, prefixes=p))),
        derive(token_KL_gradient(q, p, prefixes=q)).equals(token_gradient(now(k2), under=q)),
        derive(token_KL_gradient(p, q, prefixes=q)).equals(token_gradient(now(k3), under=q)),
        derive(curl(now(k2), under=q)).differs_from(0),
        derive(curl(now(k3), under=q)).differs_from(0),
    )


@claim(
    "distill.own-token-baseline",
    source="arXiv 2605.07865 (control variate for distillation)",
    reading=("V is any function of the tokens before one, such as the exact KL of its step",),
)
def baselines_of_a_token():
    """A baseline that depends on the prefix changes no expectation; the sum of later steps is missing."""
    less = now(k1) - past(A)
    return (
        derive(sum_over_t(less * now(s), under=q)).equals(sum_over_t(now(k1) * now(s), under=q)),
        derive(sum_over_t((less + future(k1)) * now(s), under=q)).equals(grad(KL(q, p))),
        derive(sum_over_t(now(k1) * now(s), under=q)).equals(token_gradient(now(k2), under=q)),
        derive(curl(now(k2), under=q)).differs_from(0),
    )


# ---------------------------------------------------------------------------- some words
@claim(
    "distill.top-k-reward",
    source="new (miles issue 2362)",
    reading=("V is the detached full(M k1) of the token's own prefix, or any function of the prefix",),
)
def top_k_in_the_reward():
    """A detached sum over words has expected gradient zero at its own token; differentiated in the loss it
    does not."""
    return (
        derive(sum_over_t(past(A) * now(s), under=q)).equals(0),
        derive(grad(expectation(M * k1, under=q))).equals(expectation(M * (k1 + 1) * s, under=q)),
    )


@claim(
    "distill.top-k-not-stationary",
    verdict="refuted",
    source="new (truncated reverse KL; verl issues 7425, 7806)",
    reading=("the model has q = p, where k1 is 0 and the gradient of E_q[M k1] is that of the mass E_q[M]",),
)
def truncated_reverse_kl():
    """At q = p, descent of the truncated reverse KL lowers the probability of the kept words."""
    model = finite_model(**EQUAL, u=[1, 0, 0], M=[1, 1, 0])
    return (
        derive(grad(expectation(M * k1, under=q))).differs_from(0, model=model),
        derive(grad(expectation(M, under=q))).differs_from(0, model=model),
    )


@claim(
    "distill.top-k-tail",
    verdict="exact",
    source="new (a bucket for the rest; verl issues 7855, 7856)",
    reading=(
        "a is E_q[M], the student's mass of the words kept, and b = E_p[M] the teacher's, both below 1",
        "KL_M is E_q[M k1] + (1 - a) log((1 - a)/(1 - b))",
    ),
)
def tail_bucket():
    """With one bucket for the other words it is the KL of a coarser distribution, between 0 and KL(q||p)."""
    student, teacher, slope = sympy.symbols("a b D")
    rest = (1 - student) * sympy.log((1 - student) / (1 - teacher))
    slopes = sympy.simplify(sympy.diff(rest, student) + sympy.log((1 - student) / (1 - teacher)) + 1)
    at_equal = sympy.diff(rest, student).subs(teacher, student) * slope + slope  # E_q[M (k1 + 1) s] at k1 = 0
    return Evidence(
        "exact",
        "0 <= KL_M <= KL(q||p), and grad KL_M = E_q[M (k1 + 1) s] - (log((1 - a)/(1 - b)) + 1) grad a, which"
        " is 0 at q = p",
        r"0 \le \mathbb{E}_q[M k_1] + (1-a)\log\tfrac{1-a}{1-b} \le \mathrm{KL}(q\Vert p)",
        "sympy",
        ("0 < a < 1 and 0 < b < 1; M is 0 or 1",),
        _bucket,
        (
            ("KL of the words kept and one more word of chance 1 - a", r"\mathrm{KL}_M \ge 0"),
            ("u - 1 >= log u at u = r (1 - a)/(1 - b), where M = 0",
             r"\mathbb{E}_q[(1-M)(k_1 - \log\tfrac{1-a}{1-b})] \ge (1-a) - \tfrac{1-a}{1-b}(1-b) = 0"),
            ("at q = p", r"\nabla\mathrm{KL}_M = \nabla a - \nabla a = 0"),
        ),
        holds=slopes == 0 and sympy.simplify(at_equal) == 0,
    )  # fmt: skip


def _bucketed(x, y, kept):
    """KL of the distributions with all words that are not kept as one."""
    return _kl(np.append(x[kept], x[~kept].sum()), np.append(y[kept], y[~kept].sum()))


def _bucket():
    """Between 0 and the KL of all words, and flat at q = p, on random distributions of 6 words."""
    rng, worst, flat = np.random.default_rng(1), math.inf, 0.0
    for _ in range(50):
        x, y = rng.dirichlet([1] * 6, size=2)
        kept = np.arange(6) < rng.integers(1, 6)
        found = _bucketed(x, y, kept)
        worst = min(worst, found, _kl(x, y) - found)
        for i in range(6):
            ends = [_bucketed(_moved(y, i, h), y, kept) for h in (1e-4, -1e-4)]
            flat = max(flat, abs(ends[0] - ends[1]) / 2e-4)
    return worst > -1e-12 and flat < 1e-6, f"50 pairs: least gap {worst:.1e}, slope at q = p below {flat:.0e}"


def _moved(x, i, step):
    """x with its logit i moved."""
    z = x * np.exp(step * (np.arange(len(x)) == i))
    return z / z.sum()


@claim(
    "distill.top-one",
    verdict="corrected",
    source="arXiv 2604.13016, eq. 5 (issue 15 of its repository)",
    reading=(
        "the KL of the words kept, both distributions divided by their mass there",
        "printed: the loss for every k >= 1",
    ),
)
def renormalised_over_one_word():
    """Divided by its own mass, a single word has probability 1 in both, so the loss is zero at k = 1."""
    chances = (
        [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)],
        [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)],
    )
    one = [_renormalised(*chances, 1), _renormalised(*chances, 2)]
    return (
        Evidence(
            "exact",
            "a KL renormalised over the k words kept is identically 0 at k = 1",
            r"\tfrac{q(w)}{q(w)} \log \tfrac{q(w)/q(w)}{p(w)/p(w)} = 0",
            "sympy",
            ("q(w) > 0 and p(w) > 0 at the word kept",),
            _one_word_in_floats,
            holds=one[0] == 0 and one[1] != 0,
        ),
        Evidence(
            "refuted",
            "the loss pushes on the student for every k >= 1",
            r"\nabla \mathrm{KL}_k \ne 0\quad\text{for some } q, p,\ \text{for every } k \ge 1",
            "sympy",
            ("at k = 1 it is 0 for all q and p",),
            steps=(("the word kept has chance q(w)/q(w) = 1", r"\mathrm{KL}_1 = 1 \cdot \log 1 = 0"),),
            holds=one[0] == 0,
        ),
    )


def _renormalised(x, y, kept):
    """sum of q'(w) log q'(w)/p'(w) over the first words, exactly."""
    total_x, total_y = sum(x[:kept]), sum(y[:kept])
    ratios = [(u / total_x, u / total_x / (v / total_y)) for u, v in zip(x[:kept], y[:kept], strict=True)]
    return sympy.simplify(
        sum(
            sympy.Rational(w.numerator, w.denominator) * sympy.log(sympy.Rational(z.numerator, z.denominator))
            for w, z in ratios
        )
    )


def _one_word_in_floats():
    """In floats, with the word kept moved by its logit."""
    rng, worst = np.random.default_rng(2), 0.0
    for _ in range(20):
        x, y = rng.dirichlet([1] * 4, size=2)
        for step in (0.0, 0.5, -0.5):
            moved = _moved(x, 0, step)
            worst = max(worst, abs(_kl(moved[:1] / moved[:1].sum(), y[:1] / y[:1].sum())))
    return worst < TOLERANCE, f"20 pairs, the logit of the word moved: largest value {worst:.0e}"
