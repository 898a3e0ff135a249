"""Losses whose expected gradient is known by hand, in all settings; and some with a curl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# ruff: noqa: E501 (tables of losses)
torch = pytest.importorskip("torch")

from klsym.measure.expectation import write_objective  # noqa: E402
from klsym.measure.measurement import Measurement  # noqa: E402
from klsym.measure.measuring import measure  # noqa: E402

Loss = Callable[[Any], Any]
SMALL = {"words": 2, "worlds": 2}
EXACT = 1e-7  # of the gradient with the multiples by hand, as all is in float64
PRINTED = 5e-7  # multiples are printed with seven digits


def k1(b: Any) -> Any:
    return (b.logp - b.ref_logp) * b.mask


def k2(b: Any) -> Any:
    return k1(b) ** 2 / 2


def k3(b: Any) -> Any:
    return ((b.ref_logp - b.logp).exp() - 1 + b.logp - b.ref_logp) * b.mask


def ratio(b: Any) -> Any:
    return (b.logp - b.old_logp).exp() * b.mask


def whole(x: Any) -> Any:
    return x.sum(-1)


def log_q(b: Any) -> Any:
    return whole(b.logp * b.mask)


def whole_ratio(b: Any) -> Any:
    return whole((b.logp - b.old_logp) * b.mask).exp()


def centred(b: Any) -> Any:
    return b.rewards - b.rewards.mean()


def left_out(x: Any) -> Any:
    return x - (x.sum() - x) / (len(x) - 1)


def next_words(b: Any, term: Callable[[Any, Any], Any]) -> Any:
    return (term(b.logits, b.ref_logits).sum(-1) * b.mask).sum()


def per_word(b: Any, term: Callable[[Any, Any], Any]) -> Any:
    """Of each sequence: the sum over its tokens of a sum over all words."""
    return whole(term(b.logits, b.ref_logits).sum(-1) * b.mask)


def reverse(q: Any, p: Any) -> Any:
    return q.exp() * (q - p)


def forward(q: Any, p: Any) -> Any:
    return p.exp() * (p - q)


def entropy(q: Any, p: Any) -> Any:
    return -q.exp() * q


def jensen_shannon(q: Any, p: Any) -> Any:
    middle = ((q.exp() + p.exp()) / 2).log()
    return (q.exp() * (q - middle) + p.exp() * (p - middle)) / 2


ON, OFF, CUT = "on-policy", "off-policy", "truncated"
# loss, sampling, group, multiples; the derivation is one line of the score-function identity
NAMED: list[tuple[str, Loss, str, int, dict[str, float]]] = [
    ("reinforce", lambda b: -(log_q(b) * b.rewards).sum(), ON, 1, {"policy-gradient": -1}),
    ("reinforce of a group", lambda b: -(log_q(b) * b.rewards).mean(), ON, 3, {"policy-gradient": -1}),
    ("its sum", lambda b: -(log_q(b) * b.rewards).sum(), ON, 3, {"policy-gradient": -3}),
    ("the mean subtracted", lambda b: -(log_q(b) * centred(b)).mean(), ON, 2, {"policy-gradient": -1 / 2}),
    ("of four", lambda b: -(log_q(b) * centred(b)).mean(), ON, 4, {"policy-gradient": -3 / 4}),
    ("leave-one-out", lambda b: -(log_q(b) * left_out(b.rewards)).mean(), ON, 3, {"policy-gradient": -1}),
    ("ratio of sequences", lambda b: -(whole_ratio(b) * b.rewards).mean(), OFF, 2, {"policy-gradient": -1}),
    ("ratio of tokens", lambda b: -(ratio(b) * b.rewards[:, None]).sum(), OFF, 1, {"token-policy-gradient": -1}),
    ("weighted likelihood", lambda b: -(log_q(b) * b.rewards).sum(), OFF, 1, {"log-likelihood": -1}),
    ("likelihood", lambda b: -log_q(b).sum(), OFF, 1, {"sampler-kl": 1}),
    ("k2 of sequences", lambda b: (whole(k1(b)) ** 2 / 2).mean(), ON, 2, {"reverse-kl": 1}),
    ("k1 as a reward", lambda b: (log_q(b) * whole(k1(b)).detach()).mean(), ON, 1, {"reverse-kl": 1}),
    ("k1 as a reward, off-policy", lambda b: (whole_ratio(b) * whole(k1(b))).mean(), OFF, 1, {"reverse-kl": 1}),
    ("k3 of sequences", lambda b: ((-whole(k1(b))).exp() - 1 + whole(k1(b))).mean(), ON, 1, {"forward-kl": 1}),
    ("k3 of sequences, weighted",
     lambda b: (whole_ratio(b) * ((-whole(k1(b))).exp() - 1 + whole(k1(b)))).mean(), OFF, 1, {"reverse-kl": 1}),
    ("rho*k3 of tokens", lambda b: 0.04 * (ratio(b) * k3(b)).sum(), OFF, 1, {"next-token-reverse-kl": 0.04}),
    ("sg(rho)*k2 of tokens", lambda b: (ratio(b).detach() * k2(b)).sum(), OFF, 1, {"next-token-reverse-kl": 1}),
    ("sg(rho)*k3 of tokens", lambda b: (ratio(b).detach() * k3(b)).sum(), OFF, 1, {"next-token-forward-kl": 1}),
    ("exact reverse KL", lambda b: next_words(b, lambda q, p: q.exp() * (q - p)), OFF, 1,
     {"next-token-reverse-kl": 1}),
    ("exact forward KL", lambda b: next_words(b, lambda q, p: p.exp() * (p - q)), OFF, 1,
     {"next-token-forward-kl": 1}),
    ("exact entropy", lambda b: -0.01 * next_words(b, lambda q, p: -q.exp() * q), OFF, 1,
     {"next-token-entropy": -0.01}),
    ("entropy as a reward", lambda b: (log_q(b) * log_q(b).detach()).mean(), ON, 1, {"entropy": -1}),
    ("length", lambda b: (log_q(b) * b.mask.sum(-1)).mean(), ON, 1, {"length": 1}),
    ("one over the length", lambda b: (log_q(b) / b.mask.sum(-1)).mean(), ON, 1, {"inverse-length": 1}),
    ("reward over length", lambda b: (log_q(b) * b.rewards / b.mask.sum(-1)).mean(), ON, 1,
     {"policy-gradient/T": 1}),
    ("a reward and a penalty", lambda b: (-whole_ratio(b) * b.rewards + 0.1 * whole_ratio(b) * whole(k1(b))).mean(),
     OFF, 2, {"policy-gradient": -1, "reverse-kl": 0.1}),
    ("three terms", lambda b: (-log_q(b) * b.rewards + 0.1 * whole(k1(b)) ** 2 / 2
     + 0.01 * log_q(b) * log_q(b).detach()).mean(), ON, 1,
     {"policy-gradient": -1, "reverse-kl": 0.1, "entropy": -0.01}),
    ("clipped, on-policy", lambda b: -torch.min(
        ratio(b) * b.rewards[:, None], ratio(b).clamp(0.8, 1.2) * b.rewards[:, None] * b.mask).sum(), ON, 1,
     {"policy-gradient": -1}),
    ("GSPO's ratio", lambda b: -((whole((b.logp - b.old_logp) * b.mask) / b.mask.sum(-1)).exp() * b.rewards).mean(),
     OFF, 2, {"E_mu[R*exp(seqmean(log_q - log_mu))]": -1}),
    ("k3 without weight", lambda b: 0.04 * k3(b).sum(), OFF, 1, {"E_mu[k3]": 0.04}),
    ("its mean over tokens", lambda b: (whole(k3(b)) / b.mask.sum(-1)).mean(), OFF, 1, {"E_mu[k3/T]": 1}),
    ("over all tokens", lambda b: k2(b).sum() / b.mask.sum(), OFF, 2, {"E_mu[k2/N]": 1}),
    ("absolute", lambda b: k1(b).abs().sum(), OFF, 1, {"E_mu[abs(k1)]": 1}),
    ("normalised rewards",
     lambda b: -(ratio(b) * (centred(b) / (b.rewards.std(correction=0) + 1e-4))[:, None]).sum(-1).mean(), OFF, 2,
     {"E_mu[centred(R)/(std(R) + 1e-4)*rho]": -1}),
    ("with n - 1",
     lambda b: -(log_q(b) * centred(b) / (b.rewards.std() + 1e-6)).mean(), OFF, 3,
     {"E_mu[centred(R)/(std_1(R) + 1e-6)*log_q]": -1}),
    ("token rewards to go",
     lambda b: -(ratio(b) * b.rewards[:, None] / b.mask.sum(-1, keepdim=True)).sum(), OFF, 1,
     {"token-policy-gradient/T": -1}),
    ("likelihood of a cut sampler", lambda b: -(log_q(b) * b.rewards).sum(), CUT, 1, {"log-likelihood": -1}),
    ("to the sampler", lambda b: ((b.logp - b.old_logp) ** 2 / 2 * b.mask).sum(), OFF, 1,
     {"E_mu[(log_q - log_mu)**2/2]": 1}),
]  # fmt: skip


def check_named(answer: Measurement, multiples: dict[str, float]) -> None:
    assert answer.kind == "named" and answer.residual < EXACT
    assert answer.multiples == pytest.approx(multiples, rel=PRINTED)
    assert answer.compare(write_objective(multiples, digits=17)).error < EXACT


@pytest.mark.parametrize(("loss", "sampling", "group", "multiples"), [row[1:] for row in NAMED],
                         ids=[row[0] for row in NAMED])  # fmt: skip
def test_a_known_objective_is_named_with_its_multiples(
    loss: Loss, sampling: str, group: int, multiples: dict[str, float]
) -> None:
    small = {"words": 2} if group > 2 else {}
    check_named(measure(loss, sampling=sampling, group=group, **small), multiples)


# loss, options, multiples, in worlds of two words; the reason is above each.  s: the score of the sequence
FURTHER: list[tuple[str, Loss, dict[str, Any], dict[str, float]]] = [
    # E[s b] = 0 for a constant b, and for one of the other samples
    ("a constant baseline", lambda b: -(log_q(b) * (b.rewards - 0.7)).mean(), {}, {"policy-gradient": -1}),
    ("RLOO of four", lambda b: -(log_q(b) * left_out(b.rewards)).mean(), {"group": 4}, {"policy-gradient": -1}),
    # E_mu[w s b] = E_q[s] E_mu[b] = 0
    ("RLOO, weighted", lambda b: -(whole_ratio(b) * left_out(b.rewards)).mean(), {"sampling": OFF, "group": 2},
     {"policy-gradient": -1}),
    # R_1 - mean(R) = (1 - 1/G) (R_1 - mean of the others), and the mean of rho_t s_t after a prefix is E_q[s_t] = 0
    ("GRPO without std", lambda b: -whole(ratio(b) * centred(b)[:, None]).mean(), {"sampling": OFF, "group": 2},
     {"token-policy-gradient": -1 / 2}),
    # the same on-policy, where rho = 1, over a constant of 4 tokens
    ("Dr. GRPO", lambda b: -whole(ratio(b) * centred(b)[:, None]).mean() / 4, {"group": 3},
     {"policy-gradient": -(2 / 3) / 4}),
    # by definition, each weight of a sample held fixed; R - mean(R) is half of R - loo(R) for two
    ("GRPO with KL", lambda b: (whole(0.04 * k3(b) - ratio(b) * (centred(b) / (b.rewards.std(correction=0) + 1e-4))
     [:, None]) / b.mask.sum(-1)).mean(), {"sampling": OFF, "group": 2},
     {"E_mu[centred(R)/(std(R) + 1e-4)*rho/T]": -1, "E_mu[k3/T]": 0.04}),
    ("GSPO of a group", lambda b: -((whole((b.logp - b.old_logp) * b.mask) / b.mask.sum(-1)).exp() * centred(b)
     ).mean(), {"sampling": OFF, "group": 2, "words": 3}, {"E_mu[loo(R)*exp(seqmean(log_q - log_mu))]": -1 / 2}),
    # the geometric mean g of the ratios has the gradient g (sum_t s_t)/T, and here each token brings g s_t
    ("GSPO-token", lambda b: -whole((whole((b.logp - b.old_logp) * b.mask) / b.mask.sum(-1)).exp().detach()[:, None]
     * (b.logp - b.logp.detach()).exp() * b.mask * b.rewards[:, None]).mean(), {"sampling": OFF, "words": 3},
     {"E_mu[R*T*exp(seqmean(log_q - log_mu))]": -1}),
    # grad rho = rho s: a detached ratio times log q has the gradient of the ratio
    ("CISPO without a cut", lambda b: -(ratio(b).detach() * b.logp * b.rewards[:, None]).sum(), {"sampling": OFF},
     {"token-policy-gradient": -1}),
    ("sg(whole ratio)*log_q", lambda b: -(whole_ratio(b).detach() * log_q(b) * b.rewards).sum(), {"sampling": OFF},
     {"policy-gradient": -1}),
    # E_mu[rho_(<=t) k1_t] = E_q[k1_t], whose sum over t is the KL of sequences
    ("prefix weights", lambda b: (((b.logp - b.old_logp) * b.mask).cumsum(-1).exp() * k1(b)).sum(), {"sampling": OFF},
     {"reverse-kl": 1}),
    # the mean of rho_t k1_t after a prefix is the KL of the next token
    ("token weights", lambda b: 0.2 * (ratio(b) * k1(b)).sum(), {"sampling": OFF}, {"next-token-reverse-kl": 0.2}),
    # but T depends on the token: no KL of a prefix is left
    ("token weights over T", lambda b: (whole(ratio(b) * k1(b)) / b.mask.sum(-1)).sum(), {"sampling": OFF, "words": 3},
     {"E_mu[rho*k1/T]": 1}),
    # KL in the reward, k1 detached: E_q[k1 s] = grad KL, as E_q[s] = 0
    ("k1 in the reward", lambda b: -(log_q(b) * (b.rewards - 0.1 * whole(k1(b)).detach())).mean(), {},
     {"policy-gradient": -1, "reverse-kl": 0.1}),
    # what came before a token has no mean with its score
    ("k1 in the reward to go", lambda b: (b.logp * b.mask * k1(b).detach().flip(-1).cumsum(-1).flip(-1)).sum(), {},
     {"reverse-kl": 1}),
    # the product rule for E_q[sum_t KL_t], the KL of sequences by the chain rule
    ("distillation with its score", lambda b: (per_word(b, reverse) + log_q(b) * per_word(b, reverse).detach()).sum(),
     {}, {"reverse-kl": 1}),
    ("entropy with its score", lambda b: -(per_word(b, entropy) + log_q(b) * per_word(b, entropy).detach()).sum(), {},
     {"entropy": -1}),
    # E_mu[w (-log q)] = H(q)
    ("entropy bonus, weighted", lambda b: 0.01 * (whole_ratio(b) * log_q(b)).sum(), {"sampling": OFF},
     {"entropy": -0.01}),
    # a sum over all words at prefixes of fixed samples is its own name
    ("entropy bonus over T", lambda b: -0.01 * (per_word(b, entropy) / b.mask.sum(-1)).mean(),
     {"sampling": OFF, "words": 3}, {"next-token-entropy/T": -0.01}),
    ("exact reverse KL over N", lambda b: per_word(b, reverse).sum() / b.mask.sum(), {"sampling": OFF, "group": 2},
     {"next-token-reverse-kl/N": 1}),
    ("exact forward KL over T", lambda b: (per_word(b, forward) / b.mask.sum(-1)).mean(),
     {"sampling": OFF, "words": 3}, {"next-token-forward-kl/T": 1}),
    ("JSD", lambda b: 0.5 * per_word(b, jensen_shannon).sum(), {"sampling": OFF}, {"E_mu[js(q, p)]": 0.5}),
    ("total variation", lambda b: 0.5 * per_word(b, lambda q, p: (q.exp() - p.exp()).abs()).sum(), {"sampling": OFF},
     {"E_mu[full(abs(1 - r))]": 0.5}),
    ("k3 over N", lambda b: 0.04 * k3(b).sum() / b.mask.sum(), {"sampling": OFF, "group": 2}, {"E_mu[k3/N]": 0.04}),
    # k2: E_q[k1 s] = grad KL(q||p); k3: E_q[(1 - p/q) s] = -E_p[s] = grad KL(p||q)
    ("Jeffreys", lambda b: (whole(k1(b)) ** 2 / 2 + (-whole(k1(b))).exp() - 1 + whole(k1(b))).mean(), {},
     {"reverse-kl": 1, "forward-kl": 1}),
    ("a fine on length", lambda b: -(log_q(b) * (b.rewards - 0.1 * b.mask.sum(-1))).mean(), {"words": 3},
     {"policy-gradient": -1, "length": 0.1}),
    # each prompt with its own weight, in the loss and in the name
    ("two prompts", lambda b: -(log_q(b) * b.rewards).mean(), {"prompts": 2, "group": 2}, {"policy-gradient": -1}),
    ("three prompts", lambda b: (whole(k1(b)) ** 2 / 2).mean(), {"prompts": 3, "words": 3}, {"reverse-kl": 1}),
    ("prompts, exact KL", lambda b: per_word(b, reverse).sum(), {"prompts": 2, "sampling": OFF},
     {"next-token-reverse-kl": 1}),
    # (old/mu) (q/old) = q/mu
    ("a third policy, decoupled", lambda b: -((b.old_logp - b.sampler_logp).exp() * ratio(b) * b.rewards[:, None]).sum(),
     {"sampling": OFF, "third": True}, {"token-policy-gradient": -1}),
    # the samples of a cut sampler, held fixed
    ("likelihood, cut", lambda b: -log_q(b).sum(), {"sampling": CUT, "words": 3}, {"sampler-kl": 1}),
    ("exact KL, cut", lambda b: per_word(b, reverse).sum(), {"sampling": CUT, "words": 3}, {"next-token-reverse-kl": 1}),
    # with one token the KL of tokens is that of sequences
    ("k2, one token", lambda b: k2(b).sum(), {"length": 1, "words": 3}, {"reverse-kl": 1}),
    ("binary rewards", lambda b: -(log_q(b) * b.rewards).sum(), {"binary": True, "words": 3}, {"policy-gradient": -1}),
]  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize(("loss", "options", "multiples"), [row[1:] for row in FURTHER],
                         ids=[row[0] for row in FURTHER])  # fmt: skip
def test_further_known_objectives_in_small_worlds(
    loss: Loss, options: dict[str, Any], multiples: dict[str, float]
) -> None:
    check_named(measure(loss, **{**SMALL, **options}), multiples)


def test_there_are_fifty_known_and_thirty_without() -> None:
    assert len(NAMED) + len(FURTHER) >= 50 and len(TURNING) + len(STILL_TURNING) >= 30


def in_jax(name: str) -> Loss:
    jnp = pytest.importorskip("jax").numpy

    def ratio_of(b: Any) -> Any:
        return jnp.exp(b.logp - b.old_logp) * b.mask

    losses: dict[str, Loss] = {
        "reinforce": lambda b: -(log_q(b) * b.rewards).mean(),
        "k3 of sequences": lambda b: (jnp.exp(-whole(k1(b))) - 1 + whole(k1(b))).mean(),
        "token ratio": lambda b: -(ratio_of(b) * b.rewards[:, None]).sum(),
        "exact KL": lambda b: ((jnp.exp(b.logits) * (b.logits - b.ref_logits)).sum(-1) * b.mask).sum(),
    }
    return losses[name]


@pytest.mark.share(3)
@pytest.mark.parametrize(("name", "sampling", "multiples"), [
    ("reinforce", ON, {"policy-gradient": -1}),
    ("k3 of sequences", ON, {"forward-kl": 1}),
    ("token ratio", OFF, {"token-policy-gradient": -1}),
    ("exact KL", OFF, {"next-token-reverse-kl": 1}),
])  # fmt: skip
def test_known_objectives_in_jax(name: str, sampling: str, multiples: dict[str, float]) -> None:
    check_named(measure(in_jax(name), sampling=sampling, framework="jax", **SMALL), multiples)


# loss, sampling, group: the field of one step is no gradient
TURNING: list[tuple[str, Loss, str, int]] = [
    ("k2 of tokens", lambda b: k2(b).sum(), ON, 1),
    ("k3 of tokens", lambda b: k3(b).sum(), ON, 1),
    ("mean of k2 over tokens", lambda b: (whole(k2(b)) / b.mask.sum(-1)).mean(), ON, 1),
    ("over all tokens", lambda b: k3(b).sum() / b.mask.sum(), ON, 2),
    ("all tokens, ratio", lambda b: -(ratio(b) * b.rewards[:, None]).sum() / b.mask.sum(), ON, 2),
    ("normalised rewards", lambda b: -(log_q(b) * centred(b) / (b.rewards.std() + 1e-4)).mean(), ON, 2),
    ("normalised, three", lambda b: -(log_q(b) * centred(b) / (b.rewards.std() + 1e-4)).mean(), ON, 3),
    ("the rest of a batch", lambda b: (log_q(b) * (log_q(b).detach().flip(0) * b.rewards)).sum(), ON, 2),
    ("detached ratio times k2 of sequences, off-policy",
     lambda b: (whole_ratio(b).detach() * whole(k2(b)) * b.rewards).sum(), OFF, 1),
    ("the loss of one token at the ratio of another",
     lambda b: (ratio(b)[:, :1].detach() * k2(b)[:, 1:]).sum(), OFF, 1),
    ("entropy of each word", lambda b: next_words(b, lambda q, p: -q.exp() * q), ON, 1),
    ("exact KL of each word", lambda b: next_words(b, lambda q, p: q.exp() * (q - p)), ON, 1),
    ("exact forward KL of each word", lambda b: next_words(b, lambda q, p: p.exp() * (p - q)), ON, 1),
    ("absolute", lambda b: k1(b).abs().sum(), ON, 1),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "sampling", "group"), [row[1:] for row in TURNING],
                         ids=[row[0] for row in TURNING])  # fmt: skip
def test_what_has_no_objective_has_a_curl(loss: Loss, sampling: str, group: int) -> None:
    answer = measure(loss, sampling=sampling, group=group)
    assert answer.has_objective is False and answer.curl > 1e-4
    assert "no objective" in answer.summary


# Sums over tokens under q lack the score of the prefix, by which the curl differs from 0; so do weights that
# change from token to token, and a factor of E[R] or of a spread that moves with theta.
STILL_TURNING: list[tuple[str, Loss, dict[str, Any]]] = [
    ("rho*k1 of tokens", lambda b: (ratio(b) * k1(b)).sum(), {}),
    ("rho*k3 of tokens", lambda b: (ratio(b) * k3(b)).sum(), {}),
    ("sg(rho)*k2 of tokens", lambda b: (ratio(b).detach() * k2(b)).sum(), {}),
    ("JSD", lambda b: per_word(b, jensen_shannon).sum(), {}),
    ("total variation", lambda b: per_word(b, lambda q, p: (q.exp() - p.exp()).abs()).sum(), {}),
    ("entropy bonus over T", lambda b: (per_word(b, entropy) / b.mask.sum(-1)).mean(), {}),
    ("exact reverse KL over T", lambda b: (per_word(b, reverse) / b.mask.sum(-1)).mean(), {}),
    ("exact forward KL over N", lambda b: per_word(b, forward).sum() / b.mask.sum(), {"group": 2}),
    ("k2 over N", lambda b: k2(b).sum() / b.mask.sum(), {"group": 2}),
    ("k3 over T", lambda b: (whole(k3(b)) / b.mask.sum(-1)).mean(), {}),
    ("k1 as the reward of its token alone", lambda b: (b.logp * b.mask * k1(b).detach()).sum(), {}),
    ("the whole weight detached, k3 of tokens", lambda b: (whole_ratio(b).detach() * whole(k3(b))).sum(),
     {"sampling": OFF}),
    ("prefix weights detached, k2 of tokens",
     lambda b: (((b.logp - b.old_logp) * b.mask).cumsum(-1).exp().detach() * k2(b)).sum(), {"sampling": OFF}),
    ("a discount of scores", lambda b: -(b.logp * b.mask * b.rewards[:, None]
     * torch.tensor(0.9) ** torch.arange(b.mask.shape[1])).sum(), {}),
    ("the first token alone", lambda b: -(b.logp[:, 0] * b.rewards).sum(), {}),
    ("GRPO without std over T", lambda b: -(whole(ratio(b) * centred(b)[:, None]) / b.mask.sum(-1)).mean(),
     {"group": 2}),
    ("std of two", lambda b: -(log_q(b) * centred(b) / (b.rewards.std(correction=0) + 0.1)).mean(), {"group": 2}),
    ("reinforce, cut", lambda b: -(log_q(b) * b.rewards).sum(), {"sampling": CUT, "words": 3}),
    ("tokens to a third policy", lambda b: -(ratio(b) * b.rewards[:, None]).sum(), {"third": True}),
    ("k2 of tokens, two prompts", lambda b: k2(b).sum(), {"prompts": 2}),
    ("k3 of tokens and a reward", lambda b: (0.1 * k3(b) - ratio(b) * b.rewards[:, None]).sum(), {}),
]  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize(("loss", "options"), [row[1:] for row in STILL_TURNING],
                         ids=[row[0] for row in STILL_TURNING])  # fmt: skip
def test_what_has_no_objective_has_a_curl_in_small_worlds(loss: Loss, options: dict[str, Any]) -> None:
    answer = measure(loss, **{**SMALL, **options})
    assert answer.has_objective is False and answer.curl > 1e-4
    assert "no objective" in answer.summary


OTHER: list[tuple[str, Loss, str, int, str]] = [
    ("detached", lambda b: (b.logp.detach() * b.mask).sum(), ON, 1, "zero"),
    ("a constant", lambda b: 3.0, ON, 1, "zero"),
    ("the score alone", lambda b: log_q(b).sum(), ON, 2, "zero"),
    ("a ratio", lambda b: whole_ratio(b).mean(), OFF, 1, "zero"),
    ("a function of its own", lambda b: (0.3 * k1(b)).tanh().sum(), OFF, 1, "own-mean"),
    ("clipped, off-policy", lambda b: -torch.min(
        ratio(b) * b.rewards[:, None], ratio(b).clamp(0.8, 1.2) * b.rewards[:, None]).sum(), OFF, 1, "own-mean"),
    ("a detached cube", lambda b: (log_q(b) * whole(k1(b)).detach() ** 3 * b.rewards).sum(), ON, 1, "objective"),
    ("the other sample", lambda b: (log_q(b) * log_q(b).detach().flip(0)).sum(), OFF, 2, "objective"),
    ("a function of one sample", lambda b: (log_q(b) * (log_q(b).detach() * 0.3).tanh()).sum(), OFF, 1, "objective"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "sampling", "group", "kind"), [row[1:] for row in OTHER],
                         ids=[row[0] for row in OTHER])  # fmt: skip
def test_other_kinds(loss: Loss, sampling: str, group: int, kind: str) -> None:
    answer = measure(loss, sampling=sampling, group=group)
    assert (answer.kind, answer.multiples) == (kind, {})
