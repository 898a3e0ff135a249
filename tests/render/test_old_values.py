"""The KL to the older policy that the value of a loss estimates: judged by its mean on drawn policies."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import klsym

Values = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of q and mu, at each outcome
# The loss, its values, and the KL whose unbiased estimate they are; "" where they are of neither.
ROWS: list[tuple[str, Values, str]] = [
    ("log_mu - log_q", lambda q, mu: np.log(mu / q), "KL(mu||q)"),
    ("rho - 1 - (log_q - log_mu)", lambda q, mu: q / mu - 1 - np.log(q / mu), "KL(mu||q)"),
    ("rho*(log_q - log_mu)", lambda q, mu: q / mu * np.log(q / mu), "KL(q||mu)"),
    ("rho*(log_q - log_mu) + 1 - rho", lambda q, mu: q / mu * np.log(q / mu) + 1 - q / mu, "KL(q||mu)"),
    ("2*(log_mu - log_q)", lambda q, mu: 2 * np.log(mu / q), ""),
    ("(log_q - log_mu)**2/2", lambda q, mu: np.log(q / mu) ** 2 / 2, ""),
    ("log_q - log_mu", lambda q, mu: np.log(q / mu), ""),
    ("rho*(log_q - log_mu) + 1", lambda q, mu: q / mu * np.log(q / mu) + 1, ""),
]


@pytest.mark.parametrize(("loss", "values", "divergence"), ROWS, ids=[row[0] for row in ROWS])
def test_the_kl_that_is_named_is_the_mean_of_the_values(loss: str, values: Values, divergence: str) -> None:
    said = " ".join(klsym.explain(loss, sampling="off-policy").text().split())
    named = re.findall(r"value unbiased for (KL\(\w+\|\|\w+\))", said)
    assert named == [divergence] * bool(divergence)
    q, mu = (draw / draw.sum() for draw in np.random.default_rng(3).uniform(0.2, 1, (2, 5)))
    kls = {"KL(mu||q)": mu @ np.log(mu / q), "KL(q||mu)": q @ np.log(q / mu)}
    mean = mu @ values(q, mu)
    assert [name for name, kl in kls.items() if mean == pytest.approx(kl)] == named


@pytest.mark.parametrize("sampling", ["on-policy", "truncated"])
def test_none_is_named_where_another_policy_draws(sampling: str) -> None:
    assert "unbiased" not in klsym.explain("log_mu - log_q", sampling=sampling).text()
