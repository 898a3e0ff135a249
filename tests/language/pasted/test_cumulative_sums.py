"""Rewards-to-go of pasted code: its NumPy arrays against sums over tokens in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import klsym

Arrays = dict[str, np.ndarray]
Sum = Callable[[list[float], int], float]  # of the values of all tokens, and the number of one

TO_GO: Sum = lambda x, t: sum(x[t:])  # noqa: E731
SO_FAR: Sum = lambda x, t: sum(x[: t + 1])  # noqa: E731
CODE: dict[str, tuple[Sum, str]] = {  # what is computed of rewards and kl; which sum; of what
    "rewards.flip(-1).cumsum(-1).flip(-1)": (TO_GO, "R"),
    "torch.flip(torch.cumsum(torch.flip(rewards, [1]), dim=1), dims=[1])": (TO_GO, "R"),
    "(rewards - kl).flip(1).cumsum(1).flip(1)": (TO_GO, "R - k1"),
    "torch.cumsum(rewards, dim=-1)": (SO_FAR, "R"),
    "rewards.flip(-1).flip(-1).cumsum(dim=1)": (SO_FAR, "R"),
}
TYPED = {TO_GO: "(now({x}) + future({x}))", SO_FAR: "(now({x}) + past({x}))"}


class Array(np.ndarray):
    """An array with the methods of PyTorch."""

    def flip(self, axis: int) -> np.ndarray:
        return np.flip(self, axis)


class Torch:
    """Two functions of PyTorch, of arrays."""

    @staticmethod
    def flip(x: np.ndarray, dims: list[int]) -> np.ndarray:
        return np.flip(x, dims)

    @staticmethod
    def cumsum(x: np.ndarray, dim: int) -> np.ndarray:
        return np.cumsum(x, axis=dim)


RUN: dict[str, Callable[[Array, Array], np.ndarray]] = {
    "rewards.flip(-1).cumsum(-1).flip(-1)": lambda rewards, kl: rewards.flip(-1).cumsum(-1).flip(-1),
    "torch.flip(torch.cumsum(torch.flip(rewards, [1]), dim=1), dims=[1])": lambda rewards, kl: Torch.flip(
        Torch.cumsum(Torch.flip(rewards, [1]), dim=1), dims=[1]
    ),
    "(rewards - kl).flip(1).cumsum(1).flip(1)": lambda rewards, kl: (rewards - kl).flip(1).cumsum(1).flip(1),
    "torch.cumsum(rewards, dim=-1)": lambda rewards, kl: Torch.cumsum(rewards, dim=-1),
    "rewards.flip(-1).flip(-1).cumsum(dim=1)": lambda rewards, kl: rewards.flip(-1).flip(-1).cumsum(1),
}


@pytest.mark.parametrize("code", CODE)
def test_the_code_computes_that_sum(code: str) -> None:
    rng = np.random.default_rng(7)
    rewards, kl = (rng.normal(size=(2, 4)).view(Array) for _ in range(2))
    add_up, x = CODE[code]
    of_tokens = rewards - kl if x == "R - k1" else rewards
    sums = [[add_up(list(map(float, row)), t) for t in range(4)] for row in of_tokens]
    assert np.allclose(RUN[code](rewards, kl), sums)


@pytest.mark.parametrize("code", CODE)
def test_and_is_read_as_it(code: str) -> None:
    add_up, x = CODE[code]
    text = f"kl = logp - ref_logp; returns = {code}; loss = -(returns.detach()*logp*mask).sum()"
    read = klsym.explain(text)
    typed = klsym.explain(f"-sg{TYPED[add_up].format(x=x)}*log_q", level="token")
    assert (read.loss.written.expression - typed.loss.written.expression).expand() == 0
    assert (read.target, read.setting.level, read.setting.aggregate) == (typed.target, "token", "sum")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("rewards.flip(-1)", "turned round once"),
        ("rewards.cumsum(-1).flip(-1)", "along their axis"),
        ("rewards.flip(-1)*rewards", "turned round once"),
        ("rewards.cumsum(2 - 1)", "along their axis"),
        ("rewards.flip(0).cumsum(-1).flip(0)", "along their axis"),
        ("rewards.flip(-1).cumsum(-1).flip(0)", "along their axis"),
        ("rewards.cumsum(3)", "along their axis"),
        ("rewards.cumsum(-1).cumsum(-1)", "along their axis"),
        ("rewards.mean(-1).cumsum(-1)", "along their axis"),
        ("torch.cumsum(rewards)", "without its argument axis"),
        ("rewards.flip(0, 1)", "at most"),
    ],
)
def test_other_uses_are_refused(code: str, says: str) -> None:
    with pytest.raises(klsym.KlsymError, match=says):
        klsym.explain(f"returns = {code}; loss = -(returns.detach()*logp*mask).sum()")


def test_the_axis_of_one_episode_is_said() -> None:
    read = klsym.explain("loss = -(rewards.flip(0).cumsum(0).flip(0)*logp).sum()")
    assert "maximises E_q[R]" in str(read)
    assert "axis 0 of cumsum(..) is that of the steps of one episode" in " ".join(str(read).split())
