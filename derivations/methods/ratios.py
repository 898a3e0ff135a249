"""Policy losses that replace PPO's clip by another function of the ratio: SAPO, GMPO, LUSPO, VESPO."""

import math

import sympy

from klsym.calculus import (
    A,
    R,
    alpha,
    derive,
    exp,
    expectation,
    expected_gradient,
    grad,
    lam,
    length,
    log_mu,
    log_q,
    mu,
    now,
    q,
    rho,
    s,
    sample,
    sample_gradient,
    sum_over_t,
    token_gradient,
)
from klsym.engine.fields.field import start_derivation
from klsym.engine.fields.slot_loss import build_slot_loss
from klsym.engine.options.settings import checked_setting
from klsym.language.expressions import Region
from klsym.language.parser import parse
from klsym.notation.losses import Written
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

ADVANTAGE = grad(expectation(A, under=q))
PER_LENGTH = grad(expectation(A / length, under=q))
WHOLE = (
    "rho is the ratio of whole sequences, A any function of the sequence that does not depend on theta",
    "T is the number of tokens of a sequence",
)


def read_loss(text, **options):
    """Return a typed loss, with the definitions of its regions and logs."""
    return build_slot_loss(Written(text, parse(text)), checked_setting(**options))


# ---------------------------------------------------------------------------- SAPO
SAPO = "-(4/alpha)*A/(1 + exp(-alpha*(rho - 1)))"


@claim(
    "methods.sapo-temperature",
    source="new (SAPO, arXiv 2511.20347, with the temperature that is shipped)",
    reading=(
        "alpha is the temperature tau, which is positive; the gate S is 1/(1 + exp(-tau (rho - 1)))",
        "the first part is on-policy, the others are at one sample, for any old policy mu",
        "two temperatures, one for A > 0 and one for A <= 0, are two losses, each with an A that is 0 where"
        " the other counts: their gradients add up to that of -E_q[A]",
        "w = 4 S (1 - S) rho is the weight of the second part; w = 0 if and only if S = 0, which is never so,"
        " and w = rho if and only if S = 1/2, that is rho = 1",
    ),
)
def the_temperature_of_a_smooth_gate():
    """dS/drho = tau S (1 - S), so that tau cancels; 1 - 4 S (1 - S) is the square of 1 - 2 S."""
    loss = read_loss(SAPO, sampling="off-policy")
    gate = read_loss("1/(1 + exp(-alpha*(rho - 1)))", sampling="off-policy").expression
    weight = 4 * gate * (1 - gate) * rho
    exponent = alpha + _find_definition(loss)  # -alpha (rho - 1)
    log_ratio = log_q - log_mu
    return (
        start_derivation(read_loss(SAPO, sampling="on-policy")).equals(-ADVANTAGE),
        derive(sample_gradient(loss.expression), defined=loss.defined)
        .differentiate()
        .equals(sample(-weight * A * s)),
        derive(sample(0), defined=loss.defined).at_most(
            sample(weight),
            rows=[{"b": gate, "scale": 4, "v": exponent + log_ratio, "at": "sample"}],
        ),
        derive(sample(weight), defined=loss.defined).at_most(
            sample(rho), rows=[{"b": 1 - 2 * gate, "v": log_ratio, "at": "sample"}]
        ),
    )


# ---------------------------------------------------------------------------- GMPO
@claim(
    "methods.gmpo-geometric",
    source="new (GMPO, arXiv 2507.20673; TRL pull 6095)",
    reading=(
        *WHOLE,
        "the loss is exp(mean_t clip(log rho_t, lo, hi)) A, lo = -eps and hi = lam; eps and lam are positive",
        "its gradient is that of mean_t clip(log rho_t, lo, hi) with exp(mean_t ..) A, detached, in place of"
        " A: the first part, in which is_high is 1 where log rho_t > hi, and is_low where log rho_t < lo",
        "on-policy log rho_t is 0 at every token, and so strictly between the bounds: near theta the loss is"
        " rho^(1/T) A, as in the other parts",
    ),
)
def geometric_mean_of_clipped_ratios():
    """At rho_t = 1 no bound acts; log rho^(1/T) has the gradient s/T, so that long sequences weigh less."""
    clipped = read_loss("clip(log_q - log_mu, -eps, lam)*A/T", sampling="off-policy", level="token")
    inside = 1 - Region("is_high[now]") - Region("is_low[now]")
    mean = derive(expected_gradient(rho ** (1 / length) * A, under=q), on_policy=True)
    rewards = derive(expected_gradient(rho ** (1 / length) * R, under=q), on_policy=True)
    return (
        start_derivation(clipped).equals(sum_over_t(inside * A * now(s) / length, under=mu)),
        mean.equals(expectation(A * s / length, under=q)),
        mean.equals(PER_LENGTH),
        rewards.differs_from(grad(expectation(R, under=q))),
    )


# ---------------------------------------------------------------------------- LUSPO
@claim(
    "methods.luspo-length",
    source="new (LUSPO, as shipped)",
    reading=(
        *WHOLE,
        "summed over the T tokens, each with the ratio rho^(1/T) of the whole sequence, the loss is"
        " T rho^(1/T) A; in the second part s is the score of the whole sequence, so that the sum is A s",
    ),
)
def length_times_a_geometric_mean():
    """The factor T makes up for the gradient s/T of rho^(1/T) at rho = 1."""
    mean = rho ** (1 / length) * A
    return (
        derive(expected_gradient(length * mean, under=q), on_policy=True).equals(ADVANTAGE),
        derive(token_gradient(mean, under=q), on_policy=True).equals(sum_over_t(A * s / length, under=q)),
        derive(expected_gradient(mean, under=q), on_policy=True).equals(PER_LENGTH),
    )


# ---------------------------------------------------------------------------- VESPO
VESPO = "-sg(rho**alpha*exp(lam*(1 - rho)))*A*log_q"


@claim(
    "methods.vespo-weight",
    source="new (VESPO, as shipped)",
    reading=(
        "alpha and lam are the two constants k and l of the weight rho^k exp(l (1 - rho))",
        "the first part is on-policy; in the second and third the samples come from any mu",
    ),
)
def detached_gamma_weight():
    """On-policy the weight is 1; off-policy it replaces rho, and equals it for one choice alone."""
    loss = read_loss(VESPO, sampling="off-policy")
    exponent = lam + _find_definition(loss)  # lam (1 - rho)
    off_policy = start_derivation(loss)
    return (
        start_derivation(read_loss(VESPO, sampling="on-policy")).equals(-ADVANTAGE),
        off_policy.differentiate().equals(-expectation(rho ** (alpha - 1) * exp(exponent) * A * s, under=q)),
        off_policy.differs_from(-ADVANTAGE),
        _weight_is_one(),
    )


def _find_definition(loss):
    """Return the symbol of the first element that a loss names."""
    return sympy.Symbol(loss.defined.definitions[0].name, real=True)


def _weight_is_one():
    """The log of the weight at rho = 2 and rho = 1/2 alone leaves one pair of constants."""
    power, rate, ratio = sympy.symbols("k l rho", real=True)
    log_weight = (power - 1) * sympy.log(ratio) + rate * (1 - ratio)
    solved = sympy.solve([log_weight.subs(ratio, x) for x in (2, sympy.Rational(1, 2))], [power, rate])

    def oracle():
        rows = [(0.5, 2.0), (1.0, 2.0), (2.0, 1.0), (1.0, 0.5), (0.5, -1.0), (3.0, 2.885), (1.0, 0.0)]
        gaps = [
            max(abs(x ** (power - 1) * math.exp(rate * (1 - x)) - 1) for x in (0.25, 0.5, 2.0, 4.0))
            for power, rate in rows
        ]
        return gaps[-1] == 0 and min(gaps[:-1]) > 0.1, (
            f"six other pairs: the weight at rho = 1/4, 1/2, 2, 4 is off by at least {min(gaps[:-1]):.2f}"
        )

    return Evidence(
        "exact",
        "the weight rho^(k-1) exp(l (1 - rho)) is 1 for all rho if and only if k = 1 and l = 0; rho = 2 and"
        " rho = 1/2 are enough",
        r"\rho^{k-1} e^{l (1 - \rho)} = 1 \text{ for all } \rho > 0 \iff k = 1,\ l = 0",
        "sympy",
        oracle=oracle,
        steps=(
            ("at rho = 2", r"(k - 1) \log 2 - l = 0"),
            ("at rho = 1/2", r"-(k - 1) \log 2 + \tfrac{l}{2} = 0"),
            ("their sum", r"-\tfrac{l}{2} = 0"),
        ),
        holds=solved == {power: 1, rate: 0},
    )
