"""The verdict in words for exact means over the vocabulary, old policies, and samplers that are cut off."""

from __future__ import annotations

from typing import Any

import pytest

from klsym.api import explain

OFF, TOKEN, CUT = {"sampling": "off-policy"}, {"level": "token"}, {"sampling": "truncated"}
SAID: list[tuple[str, dict[str, Any], str]] = [
    ("gkd", {}, "Descends js(q, p) of each next token, at prefixes of q"),
    ("js(q, p, 0.9)", TOKEN, "Descends js(q, p, 0.9) of each next token"),
    ("full(k2)", {**OFF, **TOKEN}, "minimises full(k2) of each next token, at prefixes of mu"),
    ("-clip(R, -1, 1)*log_q", {}, "A policy gradient: maximises E_q[where(R > 1, 1, 0) + R*"),
    ("clip(R, -1, 1)*log_q", {}, "The wrong sign for a policy gradient: minimises E_q[where(R > 1"),
    ("-rho*clip(A, -eps, eps)", OFF, "A policy gradient: maximises E_q[A*where(eps >= A"),
    ("rho*max(A, 0)", OFF, "The wrong sign for a policy gradient: minimises E_q[A*where(A > 0"),
    ("-min(R, 1)*log_q + 0.1*k2", {}, "A policy gradient with a penalty on KL(policy || reference)"),
    (
        "-rho*normalised(R)",
        OFF,
        "A policy gradient: minimises its own mean under mu, E_mu[-rho*normalised(R)]",
    ),
    (
        "-min(rho*normalised(R), clip(rho, 1 - eps, 1 + eps)*normalised(R))",
        OFF,
        "A policy gradient inside the clip range: normalised(R) times the score",
    ),
    ("-rho*normalised(R) + beta*k3", OFF, "A policy gradient; and a penalty that is not a KL"),
    ("rho*normalised(R)", OFF, "The wrong sign for a policy gradient: minimises its own mean under mu"),
    ("-rho*R*normalised(R)", OFF, "No objective with a name: minimises its own mean under mu"),
    ("masked_mean(k3, mask)", {}, "No objective: its expected gradient is not the gradient"),
    ("2*k2", TOKEN, "Descends 2 times the reverse KL of each next token"),
    ("k2/T", TOKEN, "No objective: its expected gradient is not the gradient"),
    (
        "full_kl(q, p)",
        TOKEN,
        "Descends the reverse KL of each next token, at prefixes of q; the sum has no objective",
    ),
    ("sg(rho - 1)*log_q", OFF, "A penalty on KL(old policy mu || policy): minimises KL(mu||q)"),
    ("0.1*(log_mu - log_q)", OFF, "A penalty on KL(old policy mu || policy)"),
    (
        "x = clip(log_q - log_mu, -20, 20); exp(x) - x - 1",
        OFF,
        "A penalty on KL(old policy mu || policy) inside the clip range: minimises KL(mu||q)",
    ),
    ("-clip(log_q - log_mu, -5, 5)/2", OFF, "inside the clip range: minimises 1/2*KL(mu||q)"),
    # signs that a parameter or n decides
    ("-R*log_q/(n - 1)", {}, "A policy gradient: maximises E_q[R/(n - 1)]"),
    ("R*log_q/(n - 1)", {}, "The wrong sign for a policy gradient"),
    ("-R*log_q/(beta + 1)", {}, "A policy gradient: maximises E_q[R/(beta + 1)]"),
    (
        "-(1 - beta)*R*log_q + beta*k2",
        {},
        "A policy gradient if 1 - beta > 0 with a penalty on KL(policy || ref",
    ),
    ("(1 - beta)*R*log_q", {}, "A policy gradient if beta - 1 > 0"),
    ("(1 - beta)*k2", {}, "A penalty on KL(policy || reference) if 1 - beta > 0"),
    ("-(1 - beta)*A*log_q - beta*R*log_q", {}, "A policy gradient: maximises E_q[A - beta*A + beta*R]"),
    ("A*log_q", {}, "The wrong sign for a policy gradient: minimises E_q[A]"),
    # a name says that the value is added to the reward; other values without R and A are subtracted
    (
        "rewards = -beta*(logp - ref_logp)",
        {"use": "reward"},
        "A penalty on KL(policy || reference): minimises",
    ),
    ("kl_reward = -c*(old_logp - ref_logp)", {"use": "reward"}, "A penalty on KL(policy || reference)"),
    (
        "rewards = 0.1*(logp - ref_logp)",
        {"use": "reward"},
        "The wrong sign for a penalty on KL(policy || ref",
    ),
    ("kl = -beta*(logp - ref_logp)", {"use": "reward"}, "The wrong sign for a penalty on KL(policy || ref"),
    ("kl = old_logp - ref_logp", {"use": "reward"}, "A penalty on KL(policy || reference): subtracted"),
    ("kl = old_logp - ref_logp", {"use": "reward", **OFF}, "a penalty that is not a KL"),
    ("rewards = 0.1*(logp - ref_logp)", {}, "The wrong sign for a penalty on KL(policy || reference)"),
    ("full_kl(old, q)", {}, "A penalty on KL(old policy || policy): minimises E_q[-log_q/rho_old]"),
    ("0.1*full_kl(old, q)", {}, "A penalty on KL(old policy || policy)"),
    ("beta*full_kl(q, old)", {}, "A penalty on KL(policy || old policy)"),
    ("-full_kl(old, q)", {}, "No objective with a name: minimises E_q[log_q/rho_old]"),
    ("rho - log(rho) - 1", OFF, "A penalty on KL(old policy mu || policy): minimises KL(mu||q)"),
    (
        "log_q - log_mu",
        OFF,
        "The wrong sign for a penalty on KL(old policy mu || policy): minimises -KL(mu||q)",
    ),
    ("log_q*sg(log_q)", {}, "An entropy bonus: minimises E_q[log_q], which keeps the policy random"),
    ("log_q*sg(log_q - A)", {}, "A policy gradient with an entropy bonus: minimises E_q[log_q - A]"),
    ("R - beta*log_q", {"use": "reward"}, "A policy gradient; and an entropy bonus"),
    (
        "R + beta*log_q",
        {"use": "reward"},
        "and the entropy, with the sign that makes the policy deterministic",
    ),
    ("sg(rho)*log_q*sg(log_q + A)", OFF, "The wrong sign for a policy gradient with an entropy bonus"),
    ("k1", CUT, "Not a KL penalty"),
    ("-R*log_q", CUT, "A policy gradient"),
]
LEFT_OUT_OF_TEXT: list[tuple[str, dict[str, Any], str]] = [
    ("log_q - log_mu", OFF, "A penalty on"),
    ("clip(log_q - log_mu, -5, 5)", OFF, "KL(mu||q)"),
    ("clip(log_q - log_mu, -5, 5)**2/2", OFF, "KL(mu||q)"),
    ("min(rho, 1)", {**OFF, "batch": "leave-one-out"}, "KL(mu||q)"),
    ("exp(clip(log_q - log_mu, -5, 5))", OFF, "penalty on"),
    ("log_q", OFF, "wrong sign"),
    ("log_q", OFF, "entropy"),
    ("A*log_q*sg(log_q)", {}, "entropy"),
    ("log_q*sg(log_p)", {}, "entropy"),
    ("M*rho*log_q", {}, "entropy"),
    ("k2", {}, "entropy"),
    ("log_q*sg(log_q)", TOKEN, "entropy"),
    ("k1", OFF, "wrong sign"),
    ("full(k2)", {}, "of each next token"),
    ("sg(full(k2))*log_q", TOKEN, "of each next token"),
    ("full(k2) + k2", TOKEN, "escends full(k2) + k2 of each"),
    ("k1", CUT, "policy gradient"),
    ("k1*full_kl(q, p)", {**OFF, **TOKEN}, "of each next token"),
    ("R*full_kl(q, p)", {**OFF, **TOKEN}, "of each next token"),
]


def read(loss: str, options: dict[str, Any]) -> str:
    return " ".join(" ".join(explain(loss, **options).text().split("\n")[1:3]).split())


@pytest.mark.parametrize(("loss", "options", "words"), SAID, ids=str)
def test_what_is_said(loss: str, options: dict[str, Any], words: str) -> None:
    assert words in read(loss, options)


@pytest.mark.parametrize(("loss", "options", "words"), LEFT_OUT_OF_TEXT, ids=str)
def test_what_is_not_said(loss: str, options: dict[str, Any], words: str) -> None:
    assert words not in read(loss, options)


@pytest.mark.parametrize(
    ("typed", "options", "notes"),
    [
        ("rewards = -beta*k1", {}, ["added to the reward, as its name says"]),
        ("rewards = R - beta*k1", {}, []),
        ("score = R - beta*k1", {"level": "sequence"}, []),
        ("x = reward_score - beta*k1", {"level": "token"}, ["reward_score is added at each token"]),
        ("kl = old_logp - ref_logp", {}, ["the old log-probability is that of the policy"]),
        ("kl = logp - ref_logp + 0*old_logp", {}, []),
    ],
)
def test_a_reward_says_how_it_was_read(typed: str, options: dict[str, str], notes: list[str]) -> None:
    answer = " ".join(explain(typed, use="reward", **options).text(full=True).split())
    every = ["as its name says", "is added at each token", "is that of the policy"]
    assert all(note in answer for note in notes)
    assert sum(note in answer for note in every) == len(notes)
