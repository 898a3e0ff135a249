"""All losses with the reverse KL's gradient: one family at a sample, ordered by one number.

Each of them has the gradient rho (k1 + b) s at a sample, b any constant.  With b_star the mean of -k1 that
rho^2 s^2 weighs, the variance is (b - b_star)^2 E_mu[rho^2 s^2] above the least one: b = 0, the gradient of
rho k3, is best where b_star is near 0, and rho k(lam), whose value and gradient are right for every lam,
has b = 1 - lam.  On-policy mu is q and rho is 1.

Sources: TM = Tang & Munos 2025; the rest is new.
"""

from fractions import Fraction

from klsym.calculus import (
    KL,
    Function,
    alpha,
    derive,
    expectation,
    expected_gradient,
    grad,
    k,
    k1,
    k2,
    k3,
    lam,
    log,
    mu,
    now,
    p,
    parameter,
    past,
    q,
    r,
    rho,
    s,
    sample,
    sample_gradient,
    sg,
    sum_over_t,
    token_gradient,
)
from klsym.derivations.tools.modular_count import counts_by_hand
from klsym.engine.questions.candidates import load_catalogue
from klsym.language.parser import parse
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim
from klsym.study.questions.catalogue import COUNTED_KINDS, catalogue
from klsym.study.questions.loss_enumeration import levels

g = Function("g")(k1)  # any differentiable function of k1
a, b, c, b_star = (parameter(name) for name in ("a", "b", "c", "b_star"))
TARGET, FORWARD = grad(KL(q, p)), grad(KL(p, q))
NEW = "new"


def noise(of):
    """Var_mu rho c s = E_mu[rho^2 c^2 s^2] - E_mu[rho c s]^2 for a coefficient c."""
    mean = expectation(rho * of * s, under=mu)
    return expectation((rho * of * s) ** 2, under=mu) - mean * mean


SQUARES = expectation(rho**2 * s**2, under=mu)


def weighed(of):
    """The premise that b_star is -E_mu[rho^2 c s^2]/E_mu[rho^2 s^2], c = k1 or -r."""
    return expectation(b_star * rho**2 * s**2, under=mu), expectation(-(rho**2) * of * s**2, under=mu)


ALONG = (
    "s stands for u.s, the score function along any direction u; sums over the coordinates of theta give the"
    " total variance, with b_star from the sums",
    "on-policy mu is q and rho is 1",
)
MEANS = (
    *ALONG,
    "Var_mu a s is E_mu[(a s)^2] - E_mu[a s]^2, and E_mu[(rho s)^2], E_mu[(rho k1 s)^2] are finite",
)
WEIGHED = (
    *MEANS,
    "b_star is -E_mu[rho^2 k1 s^2]/E_mu[rho^2 s^2] at the theta in question, in the last three parts"
    " E_mu[rho^2 r s^2]/E_mu[rho^2 s^2], and the divisor is not 0",
)


# ---------------------------------------------------------------------------- one family
@claim(
    "catalogue.one-family",
    source=NEW,
    reading=("the uniqueness is stated for functions of k1; g is any, b and a are any constants",),
)
def one_family():
    """E_mu[rho g s] is E_q[g s], so g - k1 is constant. Each b is realised by a loss, rho (k3 + b)."""
    return (
        derive(expectation(rho * g * s, under=mu) - TARGET).iff("g", is_=k1 + b, constants=(b,)),
        derive(expected_gradient(sg(rho) * g, under=mu) - TARGET).iff(
            "g", is_=k2 + b * k1 + a, constants=(a, b)
        ),
        derive(sample_gradient(rho * (k3 + b))).differentiate().equals(sample(rho * (k1 + b) * s)),
        derive(expected_gradient(rho * (k3 + b), under=mu)).equals(TARGET),
    )


@claim("catalogue.weighted-k-lambda", source="TM 3 (k(lam) unweighted); new")
def weighted_k_lambda():
    """rho k(lam) has the value and the gradient of the reverse KL for every lam, with b = 1 - lam."""
    return (
        derive(expectation(rho * k(lam), under=mu)).equals(KL(q, p)),
        derive(expected_gradient(rho * k(lam), under=mu)).equals(TARGET),
        derive(sample_gradient(rho * k(lam))).differentiate().equals(sample(rho * (k1 + 1 - lam) * s)),
    )


@claim("catalogue.shortest", source=NEW)
def shortest_losses():
    """For each constant b, the shortest loss of up to 5 leaves and operations with this constant."""
    chosen = [c for c in load_catalogue().of("off-policy", "loss").choices["reverse-kl"] if c.size <= 5]
    return tuple(derive(expected_gradient(parse(c.loss), under=mu)).equals(TARGET) for c in chosen) + tuple(
        derive(sample_gradient(parse(c.loss))).equals(sample(rho * (k1 + Fraction(c.constant)) * s))
        for c in chosen
    )


@claim("catalogue.unweighted-none", source=NEW)
def no_unweighted_loss():
    """Without a weight, no gradient g(k1) s at a sample of mu, and no loss f(r) + a (r - 1), is right for
    every mu. At mu = q it has to be (k1 + b) s, or (b - r) s for the forward KL; for another mu these have
    the gradient of neither KL, nor of a combination."""
    return (
        derive(expectation(g * s, under=q) - TARGET).iff("g", is_=k1 + b, constants=(b,)),
        derive(expectation((k1 + b) * s, under=mu)).is_no_combination(),
        derive(expectation(g * s, under=q) - FORWARD).iff("g", is_=b - r, constants=(b,)),
        derive(expectation((b - r) * s, under=mu)).is_no_combination(),
    )


TWIN = rho * (1 - r - r * k1)  # rho f for the f of the forward KL, as rho k3 is for the reverse KL


@claim(
    "catalogue.forward-family",
    source=NEW,
    reading=("the uniqueness is stated for functions of k1; g is any, b is any constant",),
)
def forward_family():
    """For the forward KL, g must be b - r. The counterpart of rho k3 has b = 1 and is unbiased as well."""
    return (
        derive(expectation(rho * g * s, under=mu) - FORWARD).iff("g", is_=b - r, constants=(b,)),
        derive(expectation(TWIN, under=mu)).equals(KL(p, q)),
        derive(expected_gradient(TWIN, under=mu)).equals(FORWARD),
        derive(sample_gradient(TWIN)).differentiate().equals(sample(rho * (1 - r) * s)),
        derive(expectation(-sg(rho * r) * k1, under=mu)).drop_stop_gradients().equals(KL(p, q)),
        derive(expected_gradient(-sg(rho * r) * k1, under=mu)).equals(FORWARD),
    )


@claim("catalogue.value-beside", source=NEW)
def a_value_beside_the_gradient():
    """On-policy, a term inside sg corrects the values of k2 and k3 without changing a gradient."""
    reverse, forward = k2 + sg(k1 - k2), k3 - sg(k1 + k1 * r)
    return (
        derive(expectation(reverse, under=q)).drop_stop_gradients().equals(KL(q, p)),
        derive(expected_gradient(reverse, under=q)).equals(TARGET),
        derive(expectation(forward, under=q)).drop_stop_gradients().equals(KL(p, q)),
        derive(expected_gradient(forward, under=q)).equals(FORWARD),
    )


@claim("catalogue.forward-tokens", source=NEW)
def forward_kl_of_tokens():
    """grad KL(p||q) weights each token by the ratio r of the earlier tokens, and does not depend on later
    ones."""
    before = past(r)
    return (
        derive(token_gradient(sg(before) * now(k3), under=q)).equals(FORWARD),
        derive(token_gradient(sg(past(rho) * now(rho) * before) * now(k3), under=mu)).equals(FORWARD),
        derive(sum_over_t(before * (1 - now(r)) * now(s), under=q)).equals(FORWARD),
        derive(sum_over_t(before * (1 - now(r) - now(r) * now(k1)), under=q)).equals(KL(p, q)),
    )


# ---------------------------------------------------------------------------- their order
@claim("catalogue.order", source="TM 3 (on-policy, in words); new", reading=WEIGHED)
def order_of_the_constants():
    """Of two constants, the one nearer to b_star has the lower variance, so b = b_star has the lowest.

    In the second part, b_star lies beyond the midpoint of both constants. In the last three, -r replaces
    k1, for the forward KL.
    """
    return tuple(part for of in (k1, -r) for part in _ordered(of))


def _ordered(of):
    mean, gap = weighed(of), (b - a) * (a + b - 2 * b_star)
    beyond = (2 * b_star, 2 * a + c * (1 + alpha))  # b_star lies beyond the middle of a and a + c
    return (
        derive(noise(of + b) - noise(of + a), premises=(mean,)).equals(
            expectation(gap * rho**2 * s**2, under=mu), using=[(0, 2 * (a - b))]
        ),
        derive(noise(of + a + c), premises=(mean, beyond)).at_most(
            noise(of + a),
            rows=[{"b": rho, "scale": c**2 * alpha, "at": mu, "power": 1}],
            using=[(0, -2 * c), (1, c * SQUARES)],
        ),
        derive(noise(of + b_star), premises=(mean,)).at_most(
            noise(of + b),
            rows=[{"b": rho, "factor": b - b_star, "at": mu, "power": 1}],
            using=[(0, 2 * (b - b_star))],
        ),
    )


CONSTANTS = (Fraction(1, 2), Fraction(-1, 2))  # of the shortest losses beside rho k3 and rho k1


@claim("catalogue.no-best-constant", verdict="refuted", source=NEW, reading=MEANS)
def no_constant_is_best_everywhere():
    """Of rho k3 and rho (k3 + 1/2), neither has the lower variance in all models, and the same holds for rho
    k3 and rho (k3 - 1/2)."""
    return tuple(
        derive(noise(one)).differs_from(noise(other), relation="<=")
        for number in CONSTANTS
        for one, other in ((k1, k1 + number), (k1 + number, k1))
    )


@claim("catalogue.near-the-reference", source=NEW, reading=MEANS)
def rho_k3_near_the_reference():
    """For b > 0, b (2 k1 + b) >= 0 if r <= exp(b/2); for b < 0, if r >= exp(b/2).

    So if exp(-1/4) <= r <= exp(1/4), no b with |b| >= 1/2 has a lower variance than rho k3.
    """
    return tuple(
        derive(noise(k1)).at_most(
            noise(k1 + number),
            rows=[
                {"at": mu, "b": 1, "power": 1, "v": 2 * log(rho), "scale": abs(number),
                 "nonnegative": (2 * k1 + number) * (number / abs(number))}
            ],
        )
        for number in CONSTANTS
    )  # fmt: skip


# ---------------------------------------------------------------------------- how many
COUNTED = 5


@claim(
    "catalogue.counts",
    verdict="exact",
    source=NEW,
    reading=("expressions in k1, k2, k3, r, rho, log_q, 1/2, 1, 2 with sg, +, -, *",),
)
def how_many_losses():
    """Every expression of up to 5 leaves and operations is counted once for each normal form.

    Expectations of values are counted modulo E_q[r] = E_q[1/rho] = 1, expected gradients modulo E_q[s] =
    0.
    """
    found = catalogue(levels(COUNTED))
    return tuple(_counted(found, setting.sampling, setting.use) for setting in found.settings)


def _counted(found, sampling, use):
    counts = found.of(sampling, use).counts
    numbers = (found.spellings[-1], *(counts[kind][-1] for kind in COUNTED_KINDS))
    names = ("expressions", "losses", "values", "values in the mean", "gradients", "expected gradients")
    where, losses = f"{sampling}, in the {use}:", list(zip(numbers, names, strict=True))
    text = f"{where} {', '.join(f'{n} {name}' for n, name in losses)}"
    latex = ",\\ ".join(rf"{n}\text{{ {name}}}" for n, name in losses)

    def oracle():
        counted = counts_by_hand(COUNTED, sampling == "on-policy", use == "reward")
        return counted == numbers, f"every expression at random points modulo a prime: {counted}"

    return Evidence("exact", text, rf"\text{{{where}}}\ {latex}", "sympy", oracle=oracle)
