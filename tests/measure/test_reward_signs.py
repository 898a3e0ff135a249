"""Of several terms with the reward, the sum says whether it is a policy gradient, and not one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from klsym.measure.fit import Basis, find_reward_cosine  # noqa: E402
from klsym.measure.measurement import describe_multiples  # noqa: E402
from klsym.measure.measuring import measure  # noqa: E402


def by_others(b: Any, eps: float = 1e-6) -> Any:
    """The advantage over the mean of the others, divided by their standard deviation."""
    others = [torch.cat([b.rewards[:i], b.rewards[i + 1 :]]) for i in range(len(b.rewards))]
    means, stds = torch.stack([x.mean() for x in others]), torch.stack([x.std() for x in others])
    return (b.rewards - means) / (stds + eps)


def loss(b: Any) -> Any:
    return -(b.logp * by_others(b)[:, None] * b.mask).sum(-1).mean()


@pytest.mark.parametrize(("sign", "kind"), [(1, "A policy gradient"), (-1, "The wrong sign for a policy")])
def test_multiples_that_cancel_do_not_say_the_sign(sign: int, kind: str) -> None:
    answer = measure(lambda b: sign * loss(b), group=4, words=2, binary=True)
    assert answer.kind == "named" and answer.multiples["policy-gradient"] * sign > 0
    assert answer.reward_cosine is not None and answer.reward_cosine * sign < -0.8
    assert answer.headline.startswith(kind) and "together" in answer.text()
    assert answer.compare("-E[R]").cosine * sign > 0.8


def test_one_reward_says_its_own_sign() -> None:
    answer = measure(lambda b: (b.logp * b.rewards[:, None] * b.mask).sum(-1).mean())
    assert answer.reward_cosine is None and "together" not in answer.text()
    assert answer.headline.startswith("The wrong sign for a policy gradient")


def test_where_no_sign_is_clear_none_is_named() -> None:
    columns = {"policy-gradient": np.array([1.0, 0.0]), "E_mu[centred(R)*log_q]": np.array([1.0, 0.1])}
    multiples = {"policy-gradient": 1.0, "E_mu[centred(R)*log_q]": -1.0}
    cosine = find_reward_cosine(multiples, columns)
    assert cosine == pytest.approx(0)
    assert describe_multiples(multiples, reward_cosine=cosine) == "A sum of rewards without a clear sign"
    assert find_reward_cosine({"policy-gradient": 1.0, "reverse-kl": 1.0}, columns) is None
    assert describe_multiples(multiples, True, 0.9) == "A policy gradient with its own weights"


def test_of_fits_of_one_size_one_that_does_not_cancel_comes_first() -> None:
    x, y = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    basis = Basis.build_from(["a", "bb", "longer"], np.array([x, x + 0.01 * y, y]).T)
    fits = basis.find_fits(x + y, lambda fit: fit.residual < 1e-9)
    assert [*fits[0].multiples] == ["a", "longer"] and fits[0].largest < 1
    assert [*fits[-1].multiples] == ["a", "bb"] and fits[-1].largest > 50
