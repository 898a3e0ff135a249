"""KL008 of policy losses against finite models: does a small step down the loss lower the expected advantage?

The samples come from mu, near q, so that each model has samples inside the bounds.  The loss of each row is
typed for klsym and written again in NumPy, of log q, its detached copy, log p, log mu and the advantage.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import klsym
from support.losses.cases import options
from support.scale import scaled

SMALL = 1e-3  # the weight of what stands beside the reward
Code = Callable[[Any, Any, Any, Any, Any], Any]


def rho(q: Any, mu: Any) -> Any:
    return np.exp(q - mu)


def surrogate(q: Any, mu: Any, a: Any) -> Any:
    return np.minimum(rho(q, mu) * a, np.clip(rho(q, mu), 0.8, 1.2) * a)


def k3(q: Any, p: Any) -> Any:
    return np.expm1(p - q) - (p - q)


SURROGATE = "min(rho*A, clip(rho, 0.8, 1.2)*A)"
LOWERS: dict[str, Code] = {  # of log q, sg(log q), log p, log mu, A
    SURROGATE: lambda q, d, p, mu, a: surrogate(q, mu, a),
    f"{SURROGATE} + beta*k3": lambda q, d, p, mu, a: surrogate(q, mu, a) + SMALL * k3(q, p),
    f"{SURROGATE} - beta*k3": lambda q, d, p, mu, a: surrogate(q, mu, a) - SMALL * k3(q, p),
    f"{SURROGATE} + beta*k2": lambda q, d, p, mu, a: surrogate(q, mu, a) + SMALL * (q - p) ** 2 / 2,
    f"2*{SURROGATE}": lambda q, d, p, mu, a: 2 * surrogate(q, mu, a),
    f"where(A < 0, max({SURROGATE}, 3*A), {SURROGATE})": lambda q, d, p, mu, a: np.where(
        a < 0, np.maximum(surrogate(q, mu, a), 3 * a), surrogate(q, mu, a)
    ),
    "max(rho*A, clip(rho, 0.8, 1.2)*A)": lambda q, d, p, mu, a: np.maximum(
        rho(q, mu) * a, np.clip(rho(q, mu), 0.8, 1.2) * a
    ),
    "clip(rho, 0.8, 1.2)*A": lambda q, d, p, mu, a: np.clip(rho(q, mu), 0.8, 1.2) * a,
    "min(rho, 2)*A": lambda q, d, p, mu, a: np.minimum(rho(q, mu), 2) * a,
    "where(rho < 2, rho*A, 0)": lambda q, d, p, mu, a: np.where(rho(q, mu) < 2, rho(q, mu) * a, 0),
    "sg(clip(rho, 0.8, 1.2))*A*log_q": lambda q, d, p, mu, a: np.clip(rho(d, mu), 0.8, 1.2) * a * q,
    "sg(min(rho, 2))*A*log_q": lambda q, d, p, mu, a: np.minimum(rho(d, mu), 2) * a * q,
    "rho*A": lambda q, d, p, mu, a: rho(q, mu) * a,
    "sg(rho)*A*log_q": lambda q, d, p, mu, a: rho(d, mu) * a * q,
    "rho*A + beta*rho*k3": lambda q, d, p, mu, a: rho(q, mu) * a + SMALL * rho(q, mu) * k3(q, p),
}
RAISES: dict[str, Code] = {
    f"-{SURROGATE}": lambda q, d, p, mu, a: -surrogate(q, mu, a),
    f"-{SURROGATE} + beta*k3": lambda q, d, p, mu, a: -surrogate(q, mu, a) + SMALL * k3(q, p),
    f"-{SURROGATE} + beta*k2": lambda q, d, p, mu, a: -surrogate(q, mu, a) + SMALL * (q - p) ** 2 / 2,
    f"beta*k3 - {SURROGATE}": lambda q, d, p, mu, a: SMALL * k3(q, p) - surrogate(q, mu, a),
    f"-2*{SURROGATE}": lambda q, d, p, mu, a: -2 * surrogate(q, mu, a),
    "max(-rho*A, -clip(rho, 0.8, 1.2)*A)": lambda q, d, p, mu, a: -surrogate(q, mu, a),
    "min(-rho*A, -clip(rho, 0.8, 1.2)*A)": lambda q, d, p, mu, a: np.minimum(
        -rho(q, mu) * a, -np.clip(rho(q, mu), 0.8, 1.2) * a
    ),
    f"-where(A < 0, max({SURROGATE}, 3*A), {SURROGATE})": lambda q, d, p, mu, a: (
        -np.where(a < 0, np.maximum(surrogate(q, mu, a), 3 * a), surrogate(q, mu, a))
    ),
    "-clip(rho, 0.8, 1.2)*A": lambda q, d, p, mu, a: -np.clip(rho(q, mu), 0.8, 1.2) * a,
    "-min(rho, 2)*A": lambda q, d, p, mu, a: -np.minimum(rho(q, mu), 2) * a,
    "-where(rho < 2, rho*A, 0)": lambda q, d, p, mu, a: -np.where(rho(q, mu) < 2, rho(q, mu) * a, 0),
    "-sg(clip(rho, 0.8, 1.2))*A*log_q": lambda q, d, p, mu, a: -np.clip(rho(d, mu), 0.8, 1.2) * a * q,
    "-sg(min(rho, 2))*A*log_q": lambda q, d, p, mu, a: -np.minimum(rho(d, mu), 2) * a * q,
    "-rho*A": lambda q, d, p, mu, a: -rho(q, mu) * a,
    "-sg(rho)*A*log_q": lambda q, d, p, mu, a: -rho(d, mu) * a * q,
    "-rho*A + beta*rho*k3": lambda q, d, p, mu, a: -rho(q, mu) * a + SMALL * rho(q, mu) * k3(q, p),
}


def log_softmax(logits: Any) -> Any:
    return logits - np.log(np.exp(logits).sum())


def change(code: Code, seed: int) -> float:
    """The change of E_q[A] per step down E_mu[L], by differences of the literal loss."""
    rng = np.random.default_rng(seed)
    logits, a, p = rng.normal(size=4), rng.normal(size=4), log_softmax(rng.normal(size=4))
    mu = log_softmax(logits + rng.uniform(-0.05, 0.05, size=4))
    detached, step = log_softmax(logits), 1e-6

    def loss(z: Any) -> float:
        return float(np.exp(mu) @ code(log_softmax(z), detached, p, mu, a))

    def advantage(z: Any) -> float:
        return float(np.exp(log_softmax(z)) @ a)

    ways = np.eye(4) * step
    slopes = np.array([(loss(logits + e) - loss(logits - e)) / (2 * step) for e in ways])
    rises = np.array([(advantage(logits + e) - advantage(logits - e)) / (2 * step) for e in ways])
    return float(-slopes @ rises)


@pytest.mark.parametrize("loss", [*LOWERS, *RAISES])
def test_the_tables_are_right(loss: str) -> None:
    changes = [change({**LOWERS, **RAISES}[loss], seed) for seed in range(12)]
    assert max(changes) < 0 if loss in LOWERS else min(changes) > 0


SETTINGS = ["off", "", "off token", "token", "off sequence", "sequence"]


def settled_in(table: dict[str, Code]) -> list[tuple[str, str]]:
    """Each loss in each setting; in `make test`, each in two, and each setting with a third of the losses."""
    cases = itertools.product(enumerate(table), enumerate(SETTINGS))
    return [(loss, words) for (n, loss), (m, words) in cases if (n + m) % scaled(1, 3) == 0]


def speaks_of(loss: str, words: str) -> set[str]:
    found = {one.code.code for one in klsym.explain(loss, **options(words)).diagnostics}
    return found & {"KL008"}


@pytest.mark.parametrize(("loss", "words"), settled_in(LOWERS))
def test_a_loss_that_lowers_the_advantage_is_told(loss: str, words: str) -> None:
    assert speaks_of(loss, words) == {"KL008"}


@pytest.mark.parametrize(("loss", "words"), settled_in(RAISES))
def test_a_loss_that_raises_it_is_not(loss: str, words: str) -> None:
    """A penalty without its weight may be told to push q from mu: no reward is then named."""
    told = [one for one in klsym.explain(loss, **options(words)).diagnostics if one.code.code == "KL008"]
    of_rewards = [m for one in told for m in one.messages if m.code == "against-reward" or _lowers(m)]
    assert not of_rewards


def _lowers(message: Any) -> bool:
    return any(kind.startswith("lowers") for (kind, _), _ in message.values.get("does", ()))


@pytest.mark.parametrize(
    ("loss", "words"),
    [("-min(rho*(R - A), clip(rho, 0.8, 1.2)*(R - A))", "token"), ("min(rho*(R - A), rho*2*(R - A))", "off"),
     ("-min(rho*(R - A), clip(rho, 0.8, 1.2)*(R - A))", "off"), ("-abs(A)*rho", "off"), ("A*k2", ""),
     ("(k1 - R)**2/2", ""), ("-A*min(rho, 2) + beta*min(k3, 10)", "off"), ("clip(k3, 0, 10)", "off"),
     ("min(A, 1)*k2", "off"), ("R - min(k3, 1)", "reward"), ("min(rho*A, 2*A)", "off reward")],
)  # fmt: skip
def test_where_nothing_is_said_of_rewards(loss: str, words: str) -> None:
    assert speaks_of(loss, words) == set()
