"""The note on a ratio to itself, and that on the mean of a normalised reward."""

from __future__ import annotations

import numpy as np
import pytest

import klsym

RATIO, MEAN = "is 1 at every sample", "the mean alone is a baseline"


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ("-min(exp(log_q - sg(log_q))*A, clip(exp(log_q - sg(log_q)), 0.8, 1.2)*A)", RATIO),
        ("-where(exp(sg(log_q) - log_q) < 2, A*log_q, 0)", RATIO),
        ("-normalised(R)*log_q", MEAN),
        ("-normalised(A)*log_q + beta*k3", MEAN),
    ],
)
def test_it_is_said(loss: str, says: str) -> None:
    assert says in " ".join(str(klsym.explain(loss)).split())


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("-exp(log_q - sg(log_q))*A", {}),
        ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", {"sampling": "off-policy"}),
        ("-min(exp(log_q - sg(log_p)), 2)*A", {}),
        ("-centred(R)*log_q", {}),
        ("-normalised(R)*rho", {"sampling": "off-policy"}),
        ("-normalised(R - sg(k1))*log_q", {}),
    ],
)
def test_it_is_not_said_of_others(loss: str, options: dict[str, str]) -> None:
    text = " ".join(str(klsym.explain(loss, **options)).split())
    assert RATIO not in text and MEAN not in text


def test_the_mean_alone_is_a_baseline() -> None:
    """E[(R_1 - mean)*s_1] = (1 - 1/n)*grad E_q[R] over all batches of n = 3 from three outcomes."""
    q, rewards = np.array([0.5, 0.3, 0.2]), np.array([1.0, -0.5, 2.0])
    total = np.zeros(3)
    for batch in np.ndindex(3, 3, 3):
        chance, values = np.prod(q[list(batch)]), rewards[list(batch)]
        total += chance * (values[0] - values.mean()) * (np.eye(3)[batch[0]] - q)
    assert np.allclose(total, (1 - 1 / 3) * q * (rewards - q @ rewards))
