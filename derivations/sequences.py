"""Sequences of random length T: token-level and sequence-level KL losses (TM 4; WZ2 7 and 8).

now(.) speaks of step t, past(.) of the sum over u < t, future(.) of the sum over u > t; l_t = k1 of token t.
Without a slot k1, r, rho and s are those of the whole sequence.
"""

from klsym.calculus import (
    KL,
    A,
    beta,
    curl,
    derive,
    expectation,
    expected_gradient,
    future,
    grad,
    k1,
    k2,
    k3,
    length,
    mean_over_i,
    mu,
    now,
    own,
    p,
    past,
    q,
    r,
    rho,
    s,
    sample,
    sg,
    sum_over_t,
    token_gradient,
    token_KL,
    token_KL_gradient,
)
from klsym.derivations.batches import BATCH, leave_one_out
from klsym.study.ledger.registry import claim

SEQUENCES = (
    "T is random, and known only at the end: whether a step t is reached is known from its prefix y_<t",
    "KL(q||p) is that between the distributions of whole sequences, KL_seq; l_t is k1_now",
)
TO_GO = now(k1) + future(k1)  # sum_{u >= t} l_u
TO_DATE = past(s) + now(s)  # sum_{u <= t} s_u


# ---------------------------------------------------------------------------- the full gradient
@claim("sequence.chain-rule", source="TM 4", reading=SEQUENCES)
def chain_rule_of_the_divergence():
    """log q(y)/p(y) is the sum over its tokens.

    Given its prefix, a token has the KL of its step as expectation.
    """
    return derive(KL(q, p)).equals(token_KL(q, p))


@claim("sequence.vanilla", source="TM (7)", reading=SEQUENCES)
def score_function_estimate():
    """A whole sequence is one sample, for which E_q[k1 s] = grad KL(q||p)."""
    everywhere = past(k1) + now(k1) + future(k1)
    return (
        derive(expectation(k1 * s, under=q)).equals(grad(KL(q, p))),
        derive(sum_over_t(everywhere * now(s), under=q)).equals(grad(KL(q, p))),
    )


@claim(
    "sequence.causality",
    source="TM 4.2",
    reading=(*SEQUENCES, "V is any function of t and the prefix y_<t, such as l_u at one u < t"),
)
def causality():
    """Given its prefix, the score function of a token has expectation zero."""
    return (
        derive(sum_over_t(past(A) * now(s), under=q)).equals(0),
        derive(sum_over_t(past(k1) * now(s), under=q)).equals(0),
    )


@claim("sequence.cumulative", source="TM 4.2", reading=SEQUENCES)
def reward_to_go():
    """The terms l_u s_t with u < t vanish: sum_t (t - 1) = T(T - 1)/2 of T^2."""
    return (
        derive(sum_over_t(TO_GO * now(s), under=q)).equals(grad(KL(q, p))),
        derive(sum_over_t(past(length), under="sample")).equals(sample(length * (length - 1) / 2)),
    )


@claim("sequence.leave-one-out", source="TM 4.2", reading=(*BATCH, *SEQUENCES, "m stands for n - 1"))
def leave_one_out_of_sequences():
    """The other sequences are independent of every token of this sequence."""
    whole = past(k1) + now(k1) + future(k1)
    return (
        derive(mean_over_i((own(k1) - leave_one_out(k1)) * own(s), under=q)).equals(grad(KL(q, p))),
        derive(mean_over_i((whole - leave_one_out(k1)) * now(s), under=q, steps=True)).equals(grad(KL(q, p))),
        derive(mean_over_i((TO_GO - leave_one_out(k1)) * now(s), under=q, steps=True)).equals(grad(KL(q, p))),
    )


# ---------------------------------------------------------------------------- token-level losses
@claim("sequence.token-loss-partial", source="TM 4.1, app. D", reading=SEQUENCES)
def token_loss_is_partial():
    """The loss of token t has the score of token t alone; the effect of t on later tokens is missing."""
    return (
        derive(token_gradient(now(k2), under=q)).equals(
            grad(KL(q, p)) - sum_over_t(now(s) * future(k1), under=q)
        ),
        derive(token_gradient(now(k2), under=q)).equals(token_KL_gradient(q, p)),
        derive(token_gradient(now(k2), under=q)).differs_from(grad(KL(q, p))),
    )


@claim("sequence.token-k3", source="TM 4.1", reading=SEQUENCES)
def token_k3():
    """At each step it is the gradient of the forward divergence, at prefixes that are drawn and not
    differentiated."""
    return derive(token_gradient(now(k3), under=q)).equals(token_KL_gradient(p, q))


@claim("sequence.token-k3-not-forward", verdict="refuted", source="TM 4.1", reading=SEQUENCES)
def token_k3_is_not_forward():
    """The forward divergence draws its prefixes from p."""
    return derive(token_gradient(now(k3), under=q)).differs_from(grad(KL(p, q)))


@claim(
    "sequence.token-field-not-conservative",
    verdict="refuted",
    source="TM 4.1 (in words); new proof",
    reading=(
        *SEQUENCES,
        "curl F is d_v F.u - d_u F.v for two directions: 0 for the gradient of any function of theta, by the"
        " symmetry of second derivatives",
    ),
)
def token_fields_are_no_gradients():
    """The gradient of a token is weighted by the probability of its prefix, which depends on other
    parameters; the converse does not hold."""
    return (
        derive(curl(now(k2), under=q)).differs_from(0),
        derive(curl(now(k3), under=q)).differs_from(0),
    )


@claim(
    "sequence.length-normalised-k1",
    source="new",
    reading=(
        *SEQUENCES,
        "descending lowers E_q[1/T], whose inverse is the harmonic mean of the length; E_q[T] need not rise"
        " at every step",
        "the loss is k1 of a token over T, summed",
    ),
)
def length_normalised_k1():
    """1/T depends on later tokens, so the score function divided by T need not have expectation zero."""
    field = token_gradient(now(k1) / length, under=q)
    return (
        derive(field).equals(sum_over_t(now(s) / length, under=q)),
        derive(field).equals(grad(expectation(1 / length, under=q))),
        derive(token_gradient(now(k1), under=q)).equals(0),
        derive(field).differs_from(0),
    )


# ---------------------------------------------------------------------------- sequence-level losses
@claim("sequence.whole-k3", source="new", reading=SEQUENCES)
def k3_of_the_whole_sequence():
    """A whole sequence is one sample, for which the k3 loss has the forward gradient."""
    return derive(expected_gradient(k3, under=q)).equals(grad(KL(p, q)))


@claim(
    "sequence.reward-to-go",
    source="WZ2 8 (in words); new",
    reading=(*SEQUENCES, "token rewards -beta l_t; the loss is beta k2(l_t), of the same sign as beta KL"),
)
def rewards_to_go_and_the_token_loss():
    """Loss and reward agree term by term at equal times; only the reward-to-go contains the later ones."""
    loss = beta * now(k2)
    return (
        derive(sum_over_t(sg(-beta * TO_GO) * now(s), under=q)).equals(-beta * grad(KL(q, p))),
        derive(token_gradient(loss, under="sample")).equals(
            sum_over_t(sg(beta * now(k1)) * now(s), under="sample")
        ),
        derive(grad(beta * KL(q, p)) - token_gradient(loss, under=q)).equals(
            sum_over_t(beta * future(k1) * now(s), under=q)
        ),
        derive(token_gradient(loss, under=q)).differs_from(beta * grad(KL(q, p))),
    )


# ---------------------------------------------------------------------------- off-policy
@claim("sequence.prefix-weights", source="WZ2 7 (note); new", reading=SEQUENCES)
def prefix_weights():
    """rho_{1:u} changes the measure of the tokens up to u from mu to q; l_u and its scores depend on no other
    tokens."""
    weight = past(rho) * now(rho)
    return (
        derive(sum_over_t(weight * now(k1) * TO_DATE, under=mu))
        .to(sum_over_t(now(k1) * TO_DATE / future(rho), under=q), by="change of measure, slot by slot")
        .to(sum_over_t(now(k1) * TO_DATE, under=q), by="later ratios have mean one")
        .equals(grad(KL(q, p)))
    )


@claim("sequence.token-weight-only", verdict="refuted", source="WZ2 7 (note)", reading=SEQUENCES)
def token_weights_alone():
    """The ratio of one token leaves the distribution of its prefix under mu."""
    return derive(sum_over_t(now(rho * k1 * s), under=mu)).differs_from(sum_over_t(now(k1 * s), under=q))


# ---------------------------------------------------------------------------- neighbouring papers
@claim(
    "neighbour.offpolicy-sequence-k3",
    source="SH (unbiased off-policy sequence gradient left open); new",
    reading=SEQUENCES,
)
def prefix_weighted_estimators():
    """Attached, the prefix weight multiplies l_u by the scores of the past; r has expectation one given the
    prefix."""
    weight, slope = past(rho) * now(rho), now(k1) + now(r) - 1
    on_q = sum_over_t((now(k1) * now(s) + slope * past(s)) / future(rho), under=q)
    return (
        derive(token_gradient(weight * now(k3), under=mu))
        .differentiate()
        .to(on_q, by="change of measure, slot by slot")
        .to(sum_over_t(now(k1) * TO_DATE, under=q), by="r of this step and later ratios have mean one")
        .equals(grad(KL(q, p))),
        derive(token_gradient(weight * now(k1), under=mu)).equals(grad(KL(q, p))),
    )


@claim(
    "neighbour.offpolicy-sequence-whole",
    source="new",
    reading=(*SEQUENCES, "rho is W, the ratio of whole sequences"),
)
def whole_sequence_weights():
    """Three losses with the ratio of whole sequences."""
    return (
        derive(expected_gradient(rho * k3, under=mu)).equals(grad(KL(q, p))),
        derive(expected_gradient(sg(rho) * k2, under=mu)).equals(grad(KL(q, p))),
        derive(token_gradient(rho * now(k3), under=mu)).equals(grad(KL(q, p))),
    )


@claim(
    "neighbour.token-rho-k3-partial",
    source="new (the per-token form of the unbiased KL estimate)",
    reading=SEQUENCES,
)
def token_weighted_estimators():
    """At each token both have the gradient rho_t l_t s_t: that of the KL of the step, at prefixes from mu."""
    weighted, detached = now(rho * k3), now(sg(rho) * k2)
    return (
        derive(token_gradient(weighted, under="sample")).equals(token_gradient(detached, under="sample")),
        derive(token_gradient(weighted, under="sample")).equals(
            sum_over_t(now(rho * k1 * s), under="sample")
        ),
        derive(token_gradient(weighted, under=mu)).equals(token_KL_gradient(q, p, prefixes=mu)),
    )


@claim(
    "neighbour.gspo-ratio",
    verdict="refuted",
    source="new (length-normalised sequence ratio)",
    reading=(*SEQUENCES, "rho is W; f = 1 and f = k1 are enough"),
)
def length_normalised_ratio():
    """W^(1/T) is not a density ratio: its expectation is not one."""
    weight = rho ** (1 / length)
    return (
        derive(expectation(weight, under=mu)).differs_from(expectation(1, under=q)),
        derive(expectation(weight * k1, under=mu)).differs_from(expectation(k1, under=q)),
    )
