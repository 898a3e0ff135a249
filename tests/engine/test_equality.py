"""Verdicts are equal by value, and may stand in sets."""

from __future__ import annotations

from typing import Any

import pytest

from klsym.engine.explain import explain
from klsym.engine.verdicts.verdict import TargetReading

OFF = {"sampling": "off-policy"}
ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("k3", {}), ("rho*k3", OFF), ("clip(k1, -1, 1)", {}), ("k2", {"level": "token"}),
    ("R - beta*k1", {"use": "reward", "batch": "leave-one-out"}), ("R", {"use": "reward", "batch": "std"}),
    ("normalised(R) - beta*k1", {"use": "reward"}), ("full_kl(q, p)", {"level": "token"}),
    ("k2", {"level": "token", "aggregate": "batch", **OFF}), ("k3", {"sampling": "truncated"}),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "options"), ROUTES, ids=str)
def test_a_verdict_equals_itself_asked_again(loss: str, options: dict[str, Any]) -> None:
    one, two = explain(loss, **options), explain(loss, **options)
    assert one == two and hash(one) == hash(two) and len({one, two}) == 1
    for other in (
        one.revise(trust="guess"),
        one.revise(gradient=TargetReading("turned")),
        one.revise(text="another loss"),
        one.revise(constant=7),
    ):
        assert other != one


def test_a_field_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError):
        explain("k3").revise(coefficient=1)
