"""Divergences of the next word: a clamp on each word's term, the KL of two outcomes, both directions."""

import mpmath
import sympy

from klsym.calculus import (
    KL,
    A,
    count,
    derive,
    exp,
    expectation,
    finite_model,
    grad,
    k1,
    log,
    log_mu,
    log_q,
    mu,
    p,
    parameter,
    q,
    r,
    region,
    sample,
)
from klsym.kernel.definitions import REGION, Definition
from klsym.kernel.statements import Context
from klsym.language.convert import to_ring
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

a, b, c, d = map(parameter, "abcd")


def define_region(name, positive, *parameters):
    """Return the setting in which is_name is 1 where an element is positive, and 0 elsewhere."""
    return Context(
        parameters=tuple(map(str, parameters)),
        definitions=(Definition(str(region(name)), REGION, to_ring(positive)),),
    )


# ---------------------------------------------------------------------------- a clamp on each word
TERM = exp(log_q) * k1  # q(v) log(q(v)/p(v))


@claim(
    "methods.clamped-words",
    verdict="refuted",
    source="new (OPSD: each word's term of the exact KL clamped from above, then summed; TRL pull 5990)",
    reading=(
        "the loss is sum_x min(q k1, c) over the words; is_low is 1 where q k1 < c",
        "to first order, descent of a loss changes KL(q||p) by minus the product of the two gradients, which"
        " is negative in the model: two words, q = (1/2, 1/2), p = (1/4, 3/4), c = 1/10, the clamp acts on"
        " the first word, and descent makes it more likely, though q is above p there",
    ),
)
def a_clamp_on_each_word():
    """Of two words, the clamped one has no gradient, and the other's term falls with its probability."""
    low = region("low")
    loss = expectation(low * TERM + (1 - low) * c, under=count)
    model = finite_model(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/2", "1/2"], u=[1, 0], c="1/10")
    return derive(sample(0), defined=define_region("low", c - TERM, c)).differs_from(
        grad(loss) * grad(KL(q, p)), relation="<=", model=model
    )


# ---------------------------------------------------------------------------- this word or another
@claim(
    "methods.binary-kl",
    source="new (DPPO: the KL of 'this word or another')",
    reading=(
        "mu is the old policy; is_word is 1 at the word y, here where A > 0, and 0 at all others:"
        " a = mu(y) = E_mu[is_word] and b = q(y) = E_q[is_word]",
        "0 < a < 1 and 0 < b < 1; c is log(a/b) and d is log((1 - a)/(1 - b)), so that by the first two parts"
        " the expectations of the exponentials are b exp(c) + (1 - b) exp(d) = 1 and"
        " a exp(-c) + (1 - a) exp(-d) = 1",
        "then the last two parts say 0 <= a c + (1 - a) d <= KL(mu||q), with the KL of 'this word or another'"
        " in the middle",
    ),
)
def this_word_or_another():
    """exp(u) >= 1 + u at u = log(q/mu) + g and at u = -g, where g is the log ratio of the two outcomes."""
    word, is_word = define_region("word", A, c, d), region("word")
    ratio = is_word * c + (1 - is_word) * d

    def of_two_outcomes(sign, under):
        """E[exp(+-g)] by the value of g in both regions, times a constant."""
        chain, value = derive(expectation(exp(sign * ratio), under=under), defined=word), exp(sign * ratio)
        for inside, at in ((1, c), (0, d)):
            data = {"of": to_ring(value - exp(sign * at)).to_json(), "times": to_ring(1).to_json()}
            chain = chain.step("region", cell={str(is_word): inside}, apart=[], rows=[], **data)
        return chain.equals(expectation(is_word * exp(sign * c) + (1 - is_word) * exp(sign * d), under=under))

    mean = expectation(ratio, under=mu)
    return (
        of_two_outcomes(1, q),
        of_two_outcomes(-1, mu),
        derive(1 - expectation(exp(-ratio), under=mu), defined=word).at_most(
            mean, rows=[{"u": -ratio, "at": mu}]
        ),
        derive(mean + 1 - expectation(exp(ratio), under=q), defined=word).at_most(
            KL(mu, q), rows=[{"u": log_q - log_mu + ratio, "at": mu}]
        ),
    )


# ---------------------------------------------------------------------------- both directions
@claim(
    "methods.two-directions",
    source="new (beta KL + (1 - beta) FKL over the vocabulary; EasyDeL pull 275)",
    reading=(
        "the second part, at c = 1 - b, says that f is at least its tangent at any r = exp(a), so that it is"
        " convex for 0 < b < 1; at b = 0 and b = 1 it is r log r and -log r, which are convex, too",
    ),
)
def both_directions_over_the_vocabulary():
    """Each direction is an f-divergence with f''(1) = 1, and so is their weighted mean."""
    tangent = c * (r * log(r) - a * exp(a) - (a + 1) * (r - exp(a)))
    tangent -= b * (log(r) - a - exp(-a) * (r - exp(a)))
    return (
        derive(b * KL(q, p) + (1 - b) * KL(p, q)).equals(
            expectation((1 - b) * r * log(r) - b * log(r), under=q)
        ),
        derive(sample(0)).at_most(
            sample(tangent),
            rows=[
                {"u": a + k1, "v": -k1, "scale": c, "at": "sample"},
                {"u": -k1 - a, "scale": b, "at": "sample"},
            ],
        ),
        _second_derivative(),
    )


def _second_derivative():
    share, x = sympy.symbols("b r", positive=True)
    f = (1 - share) * x * sympy.log(x) - share * sympy.log(x)
    bend = sympy.diff(f, x, 2)

    def oracle():
        """Both KLs of two policies that are near each other, over half their chi-squared distance."""
        reference, along = (0.2, 0.3, 0.5), (1.0, -2.0, 0.8)
        worst = mpmath.mpf(0)
        with mpmath.workdps(40):
            for b in (0.0, 0.3, 0.8, 1.0):
                policy = [y * (1 + mpmath.mpf("1e-6") * z) for y, z in zip(reference, along, strict=True)]
                pairs = list(zip(policy, reference, strict=True))
                value = sum((b * q - (1 - b) * p) * mpmath.log(q / p) for q, p in pairs)
                worst = max(worst, abs(2 * value / sum((q - p) ** 2 / p for q, p in pairs) - 1))
        return worst < 1e-5, f"b = 0, 0.3, 0.8, 1 near p: over half of chi^2 within {mpmath.nstr(worst, 2)}"

    return Evidence(
        "exact",
        "f'' = (1 - b)/r + b/r^2, which is positive for 0 <= b <= 1, and 1 at r = 1 for every b",
        r"f''(r) = \frac{1 - b}{r} + \frac{b}{r^2}, \quad f''(1) = 1",
        "sympy",
        oracle=oracle,
        steps=(("f = (1 - b) r log r - b log r", r"f'(r) = (1 - b)(\log r + 1) - \frac{b}{r}"),),
        holds=sympy.simplify(bend - (1 - share) / x - share / x**2) == 0 and bend.subs(x, 1) == 1,
    )
