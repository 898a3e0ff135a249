"""compare of losses with exact means over the vocabulary: by the sampled losses."""

from __future__ import annotations

import pytest

from klsym import compare
from klsym.errors import UsageError

OFF, REWARD, TOKEN = {"sampling": "off-policy"}, {"use": "reward"}, {"level": "token"}
YES, NO = True, False
# A, B, setting, same value?, same expected gradient?  None: not decided
EXACT: tuple[tuple[str, str, dict[str, str], bool | None, bool | None], ...] = (
    ("full(k1)", "rho*k3", OFF, YES, YES), ("full(k1)", "k3", {}, YES, NO),
    ("full_kl(q, p)", "k2", {}, NO, YES),
    ("full_kl(p, q)", "full_kl(q, p)", OFF, NO, NO), ("full(M*k1)", "full(k1)", {}, NO, NO),
    ("full_kl(q, p)", "full(k3)", TOKEN, YES, YES), ("full(k1)", "k1", {**TOKEN, **OFF}, NO, NO),
    ("full(k1)", "rho*k1", {**TOKEN, **OFF, "weights": "prefix"}, NO, NO),
    ("js(q, p)", "full(k3)", {}, NO, NO), ("full(k1)", "0", REWARD, None, YES),
)  # fmt: skip


@pytest.mark.parametrize(("a", "b", "setting", "value", "gradient"), EXACT)
def test_exact_means_are_compared_by_the_sampled_losses(
    a: str, b: str, setting: dict[str, str], value: bool | None, gradient: bool | None
) -> None:
    found = compare(a, b, **setting)
    assert (found.value.same, found.gradient.same) == (value, gradient)
    assert found.per_sample.same is None and found.variance is None
    assert any("scores of all outcomes" in line for line in found.undecided)
    assert "the theorems speak of" in found.hypotheses[0] and str(found)


@pytest.mark.parametrize("a", ["full(k1)**2", "R*full(k1)"])
def test_functions_of_exact_means_are_not_compared(a: str) -> None:
    with pytest.raises(UsageError, match="explain says what each does"):
        compare(a, "k2")
