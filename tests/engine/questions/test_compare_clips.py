"""Losses that a clip alone tells apart: compare shows the gradient of each by regions."""

from __future__ import annotations

import pytest

from klsym import compare

DECOUPLED = (
    "-exp(log_old - log_mu)*min(exp(log_q - log_old)*A, clip(exp(log_q - log_old), 1 - eps, 1 + eps)*A)"
)
INSIDE = "-min(rho*A, clip(rho, (1 - eps)*exp(log_old - log_mu), (1 + eps)*exp(log_old - log_mu))*A)"


def test_a_positive_factor_goes_into_min_and_clip() -> None:
    """The bounds of the clip hold log densities, which are no parameters to be assumed positive."""
    found = compare(DECOUPLED, INSIDE, sampling="off-policy")
    assert found.per_sample.same and found.gradient.same and found.gradient.trust == "kernel"
    text = found.text(full=True)
    assert "eps > 0" in text and "log_mu > 0" not in text and "log_old > 0" not in text


def test_another_factor_is_another_loss() -> None:
    found = compare(DECOUPLED, INSIDE.replace("1 + eps", "1 + 2*eps"), sampling="off-policy")
    assert found.per_sample.same is not True


@pytest.mark.parametrize(
    ("one", "other", "regions"),
    [
        ("-sg(min(rho, 2))*A*log_q", "-min(rho, 2)*A", ("-2*A where rho > 2", "0 where rho > 2")),
        ("-clip(rho, 0.8, 1.2)*A", "-min(rho*A, clip(rho, 0.8, 1.2)*A)", ("0 otherwise", "A > 0")),
    ],
)
def test_what_differs_outside_of_the_clip_range_is_shown(
    one: str, other: str, regions: tuple[str, str]
) -> None:
    found = compare(one, other, sampling="off-policy")
    text = " ".join(found.text(full=True).split())
    assert text.count("regions ") == 2
    for region in regions:
        assert region in text
    assert len(str(found).splitlines()) <= 12


@pytest.mark.parametrize(
    ("one", "other"), [("k1", "k2"), ("-rho*A", "-min(rho, 2)*A"), ("-A*log_q", "-A*rho")]
)
def test_losses_of_other_kinds_need_no_regions(one: str, other: str) -> None:
    assert "regions " not in str(compare(one, other, sampling="off-policy"))
