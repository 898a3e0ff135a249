"""Losses whose values add up to 0 in each batch, and what is then logged: judged with numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import klsym

ALL, SOME = (
    "in each batch its values add up to 0",
    "in each batch the values of its terms with rewards add up to 0",
)
Loss = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
ITSELF = "exp(log_q - sg(log_q))"


def centre(rewards: np.ndarray) -> np.ndarray:
    return rewards - rewards.mean()


# The values at theta of rewards, log q and log p of one batch: q/sg(q) and, on-policy, q/mu are 1 there.
ZERO: list[tuple[str, Loss]] = [
    (f"-centred(R)*{ITSELF}", lambda r, q, p: -centre(r)),
    ("-rho*centred(R)", lambda r, q, p: -centre(r)),
    ("-beta*rho*centred(A)", lambda r, q, p: -0.3 * centre(r)),
    (f"-normalised(R)*{ITSELF}", lambda r, q, p: -centre(r) / r.std()),
    ("-rho*loo(R)", lambda r, q, p: -centre(r) * len(r) / (len(r) - 1)),
    ("-rho*relative(R)", lambda r, q, p: -centre(r) / r.mean()),
    ("-rho*centred(R - sg(k1))", lambda r, q, p: -centre(r - (q - p))),
]
OTHERS: list[tuple[str, Loss]] = [
    ("-centred(R)*log_q", lambda r, q, p: -centre(r) * q),
    ("-R*rho", lambda r, q, p: -r),
    ("-scaled(R)*rho", lambda r, q, p: -r / r.mean()),
    ("-M*rho*centred(R)", lambda r, q, p: -1.0 * (r > 1) * centre(r)),
    ("-rho*A*centred(R)", lambda r, q, p: -r * centre(r)),
]


def draw() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.uniform(0.5, 2, 6), -rng.uniform(0.1, 3, 6), -rng.uniform(0.1, 3, 6)]


@pytest.mark.parametrize(("loss", "value"), ZERO, ids=[row[0] for row in ZERO])
def test_values_that_add_up_to_0_are_named(loss: str, value: Loss) -> None:
    assert value(*draw()).sum() == pytest.approx(0, abs=1e-12)
    assert ALL in " ".join(klsym.explain(loss, sampling="on-policy").text().split())


@pytest.mark.parametrize(("loss", "value"), OTHERS, ids=[row[0] for row in OTHERS])
def test_other_values_are_not(loss: str, value: Loss) -> None:
    assert abs(value(*draw()).sum()) > 1e-3
    assert "add up to 0" not in " ".join(klsym.explain(loss, sampling="on-policy").text().split())


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("-rho*centred(R)", {"sampling": "off-policy"}),
        ("centred(R)*rho", {"use": "reward"}),
        ("-centred(R)*exp(log_q - sg(log_q))/T", {"level": "sequence"}),
        ("-centred(R)", {}),
        ("-exp(log_q - sg(log_q))*centred(whole(R))", {"level": "token"}),
    ],
)
def test_nothing_is_said_elsewhere(loss: str, options: dict[str, str]) -> None:
    assert "add up to 0" not in " ".join(klsym.explain(loss, **options).text().split())


def test_what_is_logged_is_the_rest() -> None:
    said = " ".join(klsym.explain("-rho*centred(R) + 0.04*k3", sampling="on-policy").text().split())
    assert f"{SOME}: what is logged is that of 0.04*k3" in said
    rewards, q, p = draw()
    k3 = np.exp(p - q) - (p - q) - 1
    assert (-centre(rewards) + 0.04 * k3).mean() == pytest.approx((0.04 * k3).mean())


@pytest.mark.parametrize("loss", ["1/k(0.5)", "full(log_q/k(0.5))", "clip(n/(k(0.5)*log_old), eps, -2)"])
def test_a_note_on_a_quotient_by_0_is_printed(loss: str) -> None:
    """Such a loss has no value where q = p; with decimals each quotient in a note was written as one."""
    assert "klsym fails" not in klsym.explain(loss).text(full=True)
