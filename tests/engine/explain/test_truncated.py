"""A sampler that is cut off to where M = 1: printed gradients against sums over what it draws."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.api import where_training_ends
from klsym.errors import UsageError
from support.oracle.grammar import derived, evaluate, plain
from support.oracle.losses import Node, Setting, trees
from support.oracle.numbers import Jet
from support.oracle.slots import Slotted
from support.scale import scaled

WORDS, KEPT = 6, np.array([1.0, 1, 0, 1, 0, 1])


def world(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    q, p = rng.dirichlet([1.0] * WORDS, size=2)
    return {"log_q": np.log(q), "log_p": np.log(p), "R": rng.normal(size=WORDS), "A": rng.normal(size=WORDS)}


def drawn(known: dict[str, np.ndarray]) -> np.ndarray:
    """The chances of the sampler: q where M = 1, over its mass there."""
    weights = np.exp(known["log_q"]) * KEPT
    return weights / weights.sum()


def names(known: dict[str, Any], moved: bool) -> Any:
    def find(name: str, slot: str | None = None) -> Any:
        if name == "log_q" and moved:
            return Jet(known["log_q"], np.ones(WORDS))
        if name == "log_mu":  # on-policy: a copy of q that does not move
            return known["log_q"]
        if name in ("M", "S", "beta"):
            return {"M": KEPT, "S": float(np.exp(known["log_q"]) @ KEPT), "beta": 0.3}[name]
        return known[name] if name in known else derived(name, find)

    return find


def literal(loss: str, use: str, known: dict[str, np.ndarray]) -> np.ndarray:
    """Along each logit: the mean of grad L, or of L s, over what is drawn."""
    value = evaluate(loss, names(known, moved=use == "loss"))
    pushes = np.broadcast_to(getattr(value, "a", 0.0) if use == "loss" else plain(value), WORDS) * drawn(
        known
    )
    return pushes - np.exp(known["log_q"]) * pushes.sum()  # s_i = e_i - q


def printed(coefficient: str, known: dict[str, np.ndarray]) -> np.ndarray:
    """E_q[c s]"""
    q = np.exp(known["log_q"])
    c = np.broadcast_to(plain(evaluate(coefficient, names(known, moved=False))), WORDS)
    return q * (c - q @ c)


def agree(loss: str, use: str, coefficient: str) -> bool:
    return all(
        np.allclose(literal(loss, use, w), printed(coefficient, w), rtol=1e-9, atol=1e-12)
        for w in map(world, range(4))
    )


PARTS = ("k1", "k2", "k3", "-A", "R*log_q", "sg(k1)*log_q", "rho*k1", "-rho*A", "S*rho*k3", "r", "k1*k2",
         "sg(r)*k1", "M*k2", "1", "beta*k1", "S*sg(k3)*log_q", "exp(k1/2)")  # fmt: skip
SUMS = [f"{a} + {b}" for a, b in product(PARTS, repeat=2)]


@pytest.mark.parametrize("use", ["loss", "reward"])
def test_the_printed_gradient_is_the_mean_over_what_is_drawn(use: str) -> None:
    for loss in [*PARTS, *SUMS[:: scaled(1, 12)]]:
        answer = klsym.explain(loss, use=use, sampling="truncated").to_json()
        coefficient = answer["gradient"]["coefficient"] or "0"
        assert agree(loss, use, coefficient), (loss, coefficient)


BOUNDED = ("min(k3, 1)", "max(k1, -1/5)", "clip(rho, 4/5, 6/5)", "abs(k1)", "clip(r, 1/2, 2)", "min(R, A)")
WHERE = ("r > 1/2", "k1 < 1/5", "k3 < 1", "A > 0", "R < 1/3", "k1 > -1 and r > 1/4", "not k2 > 1")
SMOOTH = ("k1", "k2", "k3", "r", "A", "R", "log_q", "rho", "1", "M", "S")
NUMBERS = ("", "-", "2*", "beta*", "-1/3*")


def random_loss(number: int) -> str:
    """A sum of one to three products of what moves, bounds, comparisons, masks and what is held fixed."""
    draw = random.Random(number).choice

    def factor() -> str:
        one = draw(draw((SMOOTH, SMOOTH, SMOOTH, BOUNDED)))
        return draw((one, one, f"sg({one})", f"where({draw(WHERE)}, {one}, {draw(SMOOTH)})"))

    sizes = [draw((1, 1, 2)) for _ in range(draw((1, 1, 2, 3)))]
    return " + ".join(draw(NUMBERS) + "*".join(factor() for _ in range(size)) for size in sizes)


def test_random_losses_with_bounds_comparisons_and_masks() -> None:
    """Full size: 5,000; what is refused is said, and rare."""
    count, refused = scaled(5000, 24), 0
    for number in range(count):
        loss, use = random_loss(number), ("loss", "reward")[number % 2]
        try:
            answer = klsym.explain(loss, use=use, sampling="truncated").to_json()
        except UsageError:
            refused += 1
            continue
        coefficient = answer["gradient"]["coefficient"] or "0"
        assert agree(loss, use, coefficient), (number, use, loss, coefficient)
    assert refused <= count // 20, refused


@pytest.mark.parametrize("loss", ["k2", "k1 + k3", "-A*log_q"])
def test_the_gradient_of_all_samples_is_another(loss: str) -> None:
    whole = klsym.explain(loss).to_json()["gradient"]["coefficient"]
    assert agree(loss, "loss", klsym.explain(loss, sampling="truncated").to_json()["gradient"]["coefficient"])
    assert not agree(loss, "loss", whole)


def test_what_is_lost_makes_up_the_gradient_of_all_samples() -> None:
    """S times what is drawn and E_q[(1 - M) c s] add up to E_q[c s]."""
    known = world(9)
    mass = float(np.exp(known["log_q"]) @ KEPT)
    assert "E_q[(1 - M)*k1*s]" in str(klsym.explain("k2", sampling="truncated"))
    whole = printed("k1", known)
    assert np.allclose(mass * literal("k2", "loss", known) + printed("(1 - M)*k1", known), whole)
    assert not np.allclose(mass * literal("k2", "loss", known), whole)


def test_no_objective_is_told_without_saying_what_is_held() -> None:
    for loss, use in (("k2", "loss"), ("R - beta*k1", "reward"), ("-A*log_q", "loss"), ("k1", "reward")):
        text = str(klsym.explain(loss, use=use, sampling="truncated"))
        assert "with M and S held as they are at theta, " in text.splitlines()[1]
        assert "KL(q||p)" not in text.splitlines()[1]


@pytest.mark.parametrize(
    ("loss", "options"),
    [("k1", {"use": "reward", "batch": "leave-one-out"}), ("loo(k1)*log_q", {}), ("k2", {"batch": "mean"})],
)
def test_batches_are_refused(loss: str, options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"sampling truncated: .* not handled"):
        klsym.explain(loss, sampling="truncated", **options)


@pytest.mark.parametrize("loss", ["full(k1)", "full_kl(q, p) - A*log_q", "js(q, p)"])
def test_exact_means_are_asked_for_without_it(loss: str) -> None:
    with pytest.raises(UsageError, match="needs no sample and is not cut off"):
        klsym.explain(loss, sampling="truncated")


def test_what_ranks_losses_says_what_to_write_instead() -> None:
    with pytest.raises(UsageError, match=r"S\*k2 has the rest"):
        klsym.recommend("reverse-kl", sampling="truncated")
    with pytest.raises(UsageError, match="optimum has no model"):
        where_training_ends("k2", "1/2", [1, 0], sampling="truncated")
    with pytest.raises(UsageError, match=r"compare M\*LOSS"):
        klsym.compare("k2", "k3", sampling="truncated")


def test_s_is_a_name_of_this_sampler_alone() -> None:
    assert klsym.explain("S*k2", sampling="truncated").target == "separable"
    with pytest.raises(UsageError, match="unknown name 'S'"):
        klsym.explain("S*k2")


# ---------------------------------------------------------------------------- sums over tokens
OF_TOKENS = [  # use, a loss, its target: the same for every sampler that is cut off
    *(("loss", loss, "separable") for loss in (
        "k1", "k2", "k3", "-A*log_q + 0.1*k2", "sg(k1)*log_q", "M*k3 - R*log_q", "rho*k3", "min(k3, 1)",
        "whole(k3)/T",
    )),
    ("reward", "R", "separable"), ("reward", "A*k1", "separable"), ("reward", "R - beta*k1", "open"),
]  # fmt: skip


def cut_trees(seed: int, keeps_all: bool = False) -> Slotted:
    """Trees of tokens, sampled from q where M = 1, over its mass there, at each prefix."""

    def cut(at: Node) -> Node:
        kept = np.ones(len(at.logits)) if keeps_all else (np.arange(len(at.logits)) % 2 == 0) * 1.0
        weights = np.exp(at.logits) * np.where(kept > 0, 1.0, 1e-300)
        after = tuple(None if node is None else cut(node) for node in at.after)
        return replace(at, M=kept, log_mu=np.log(weights / weights.sum()), after=after)

    found = trees(seed, (((), (), ((), ())), (), ()), 4)
    return Slotted([replace(tree, root=cut(tree.root)) for tree in found], ("off-policy",), second=True)


@pytest.mark.parametrize(("use", "loss", "target"), OF_TOKENS)
def test_sums_over_tokens_of_a_sampler_that_is_cut_off(use: str, loss: str, target: str) -> None:
    """The printed gradient is that of the loss under M q/S, and it has no curl where it has an objective."""
    credit = {"credit": "same-token" if "A" in loss else "to-go"} if use == "reward" else {}
    verdict = klsym.explain(loss, sampling="truncated", level="token", use=use, **credit)
    answer = verdict.to_json()
    assert answer["gradient"]["target"] == target and verdict.instead is None
    assert "mu is the sampler that is cut off at each token" in " ".join(str(verdict).split())
    assert not [line for line in verdict.hypotheses if line.startswith("q << mu")]
    where = cut_trees(7)
    literal = loss.replace("rho", "exp(log_q - sg(log_q))")
    field = where.field(literal, Setting(level="token", use=use, sampling="off-policy", **credit))
    text = answer["gradient"]["per_sample"]
    text = text if "s_now" in text else f"({text})*s_now"
    assert np.allclose(field.a, where.form(text, "m").a, rtol=1e-8, atol=1e-10)
    turned = np.abs(field.ab - field.ab.transpose(1, 0, 2)).max()
    assert (turned < 1e-9) == (target == "separable")


def test_a_curl_is_shown_where_all_words_are_kept() -> None:
    found = klsym.explain("rho*k3", sampling="truncated", level="token", weights="prefix")
    assert (found.target, found.trust) == ("none", "kernel") and found.has_model
    field = cut_trees(3, keeps_all=True).field(
        "exp(log_q - sg(log_q))*exp(past(log_q - sg(log_q)))*k3",
        Setting(level="token", sampling="off-policy"),
    )
    assert np.abs(field.ab - field.ab.transpose(1, 0, 2)).max() > 1e-3


@pytest.mark.parametrize("loss", ["disc(9/10, sg(k1))", "disc(9/10, R)"])
def test_what_asks_for_words_that_are_not_drawn_is_refused(loss: str) -> None:
    with pytest.raises(UsageError, match=r"rests on q << mu, and no word with M = 0 is drawn: choose level"):
        klsym.explain(loss, sampling="truncated", level="token", use="reward")
