"""Losses whose expected gradient is known by hand, in all settings; and some with a curl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# ruff: noqa: E501 (tables of losses)
torch = pytest.importorskip("torch")

from klsym.measure.measuring import measure  # noqa: E402

Loss = Callable[[Any], Any]


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
     OFF, 2, {"E_mu[R*whole(rho)**(1/T)]": -1}),
    ("k3 without weight", lambda b: 0.04 * k3(b).sum(), OFF, 1, {"E_mu[k3]": 0.04}),
    ("its mean over tokens", lambda b: (whole(k3(b)) / b.mask.sum(-1)).mean(), OFF, 1, {"E_mu[k3/T]": 1}),
    ("over all tokens", lambda b: k2(b).sum() / b.mask.sum(), OFF, 2, {"E_mu[k2/N]": 1}),
    ("absolute", lambda b: k1(b).abs().sum(), OFF, 1, {"E_mu[abs(k1)]": 1}),
    ("normalised rewards",
     lambda b: -(ratio(b) * (centred(b) / (b.rewards.std(correction=0) + 1e-4))[:, None]).sum(-1).mean(), OFF, 2,
     {"E_mu[(R - mean(R))/(std(R) + 1e-4)*rho]": -1}),
    ("with n - 1",
     lambda b: -(log_q(b) * centred(b) / (b.rewards.std() + 1e-6)).mean(), OFF, 3,
     {"E_mu[(R - mean(R))/(std_1(R) + 1e-6)*log_q]": -1}),
    ("token rewards to go",
     lambda b: -(ratio(b) * b.rewards[:, None] / b.mask.sum(-1, keepdim=True)).sum(), OFF, 1,
     {"token-policy-gradient/T": -1}),
    ("likelihood of a cut sampler", lambda b: -(log_q(b) * b.rewards).sum(), CUT, 1, {"log-likelihood": -1}),
    ("to the sampler", lambda b: ((b.logp - b.old_logp) ** 2 / 2 * b.mask).sum(), OFF, 1,
     {"E_mu[(log_q - log_mu)**2/2]": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "sampling", "group", "multiples"), [row[1:] for row in NAMED],
                         ids=[row[0] for row in NAMED])  # fmt: skip
def test_a_known_objective_is_named_with_its_multiples(
    loss: Loss, sampling: str, group: int, multiples: dict[str, float]
) -> None:
    answer = measure(loss, sampling=sampling, group=group)
    assert answer.kind == "named" and answer.residual < 1e-7
    assert answer.multiples == pytest.approx(multiples, rel=1e-6)


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
