"""Distillation: which KL of the next token each recipe descends, with all words, some words, or two buckets.

At one step q is the student's distribution of the next word and p the teacher's; M is 1 at the words that are
kept, and free of theta.  Over the steps of a sequence q_t and p_t are those after the prefix y_<t.
"""

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
    exp,
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
    r,
    region,
    s,
    sg,
    sum_over_t,
    token_gradient,
    token_KL,
    token_KL_gradient,
)
from klsym.kernel.definitions import LOG, REGION, Definition
from klsym.kernel.statements import Context
from klsym.language.convert import to_ring
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


STUDENT, TEACHER = ("a", "c", a, parameter("c")), ("b", "d", b, parameter("d"))  # mass, log(1 - mass)
KEPT = region("kept")
BUCKET = Context(
    definitions=(
        Definition(str(KEPT), REGION, to_ring(M)),
        Definition("a", "E_q", to_ring(KEPT)),
        Definition("b", "E_p", to_ring(KEPT)),
        Definition("c", LOG, to_ring(1 - a)),
        Definition("d", LOG, to_ring(1 - b)),
    )
)


@claim(
    "distill.top-k-tail",
    source="new (a bucket for the rest; verl issues 7855, 7856)",
    reading=(
        "is_kept is 1 at the words kept, here where M > 0; a = E_q[is_kept] is the student's mass of them,"
        " b = E_p[is_kept] the teacher's, both below 1; c is log(1 - a) and d is log(1 - b)",
        "by the first part E_q[is_kept k1] + (1 - a)(c - d), the KL of the words kept and of one bucket for"
        " the rest, is E_q[g], with g the log ratio of the bucket where a word is not kept",
        "its gradient is E_q[is_kept (k1 - c + d) s], which is 0 at q = p, as k1 is 0 and c is d there",
        "as E_q[exp(-g)] = 1 and E_q[exp(g - k1)] = 1, the last two parts say 0 <= E_q[g] <= KL(q||p)",
    ),
)
def tail_bucket():
    """exp(u) >= 1 + u at u = -g and at u = g - k1, where g is the log ratio of a word, or of the bucket."""
    rest = STUDENT[3] - TEACHER[3]
    loss, g = KEPT * k1 + (1 - a) * rest, KEPT * k1 + (1 - KEPT) * rest
    named = derive(expectation(loss, under=q), defined=BUCKET)
    ratio, opposite = (
        _mean_by_cell(exp(-g), inside=r, outside=exp(-rest)),
        _mean_by_cell(exp(g - k1), inside=1, outside=r * exp(rest)),
    )
    opposite = opposite.step("change of measure", to=p, part=_to_json((1 - KEPT) * r * exp(rest)))
    ratio = _mean_of_bucket(ratio, own=STUDENT, other=TEACHER).step(
        "change of measure", to=p, part=_to_json(KEPT * r)
    )
    return (
        named.step("definition", name="a", times=_to_json(-rest)).equals(expectation(g, under=q)),
        derive(grad(expectation(loss, under=q)), defined=BUCKET).equals(
            expectation(KEPT * (k1 - rest) * s, under=q)
        ),
        _name_mass(ratio, under="q", name="b").equals(1),
        _name_mass(_mean_of_bucket(opposite, own=TEACHER, other=STUDENT), under="p", name="a").equals(1),
        derive(1 - expectation(exp(-g), under=q), defined=BUCKET).at_most(
            expectation(g, under=q), rows=[{"u": -g, "at": q}]
        ),
        derive(expectation(g + 1 - exp(g - k1), under=q), defined=BUCKET).at_most(
            KL(q, p), rows=[{"u": g - k1, "at": q}]
        ),
    )


def _to_json(x):
    return to_ring(x).to_json()


def _mean_by_cell(value, inside, outside):
    """Return E_q[value], by its values where words are kept and where they are not."""
    chain = derive(expectation(value, under=q), defined=BUCKET)
    for cell, at in ((1, inside), (0, outside)):
        data = {"of": _to_json(value - at), "times": _to_json(1)}
        chain = chain.step("region", cell={str(KEPT): cell}, apart=[], rows=[], **data)
    return chain


def _mean_of_bucket(chain, own, other):
    """Return 1 - y for E_m[(1 - is_kept) (1 - y)/(1 - x)], where x = E_m[is_kept] is the mass of m itself.

    own, other: the names of x and of log(1 - x), of y and of log(1 - y), then both as values.
    """
    (own_mass, own_log, x, own_rest), (_, other_log, y, other_rest) = own, other
    bucket, of_each = (1 - KEPT) * exp(other_rest - own_rest), (1 - y) * exp(-own_rest)
    start = _find_mean(chain, bucket)
    chain = chain.step("definition", start, name=other_log, times=_to_json(-bucket))
    chain = chain.step("definition", start, name=own_mass, times=_to_json(of_each))
    term, factor = next(
        (i, j)
        for i, (_, atoms) in enumerate(chain.left.terms)
        for j, atom in enumerate(atoms)
        if len(atoms) == 2 and atom.coefficient == to_ring(of_each)
    )
    chain = chain.step("normalisation", term, factor)
    start = _find_mean(chain, (1 - x) * of_each)
    return chain.step("definition", start, name=own_log, times=_to_json(1 - y))


def _name_mass(chain, under, name):
    """Write -1 times the name of an expectation as that expectation."""
    term = next(i for i, (_, atoms) in enumerate(chain.left.terms) if atoms[0].measure == under)
    return chain.step("definition", term, name=name, times=_to_json(-1))


def _find_mean(chain, part):
    """Return the number of the term whose coefficient holds these summands."""
    terms = to_ring(part).terms.items()
    return next(
        i
        for i, (_, atoms) in enumerate(chain.left.terms)
        if len(atoms) == 1 and terms <= atoms[0].coefficient.terms.items()
    )


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
