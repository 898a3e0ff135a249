"""Coefficients and values that the ring gives without a derivation are those that a derivation ends in."""

from __future__ import annotations

import pytest

from klsym.engine.answers.dispatch import as_written
from klsym.engine.fields.field import loss_gradient, reduce_typed_loss
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import derive
from klsym.engine.proof.quantities import expectation
from klsym.engine.targets.expected_value import _reduce_sample_mean
from klsym.engine.targets.ring import _find_sample_coefficient, find_named_parts
from klsym.kernel.ring import ONE
from klsym.language.abbreviations import E
from klsym.language.convert import to_ring

LOSSES = (
    "k1", "k2", "k3 - lam*k1**2", "rho*k3", "sg(rho)*k3 + 2*R*log_q", "rho*(k1 + A)", "sg(k1)*log_q + 3",
    "k1*r + beta/rho", "rho*r - 2*r", "rho_old*A", "M*k2", "exp(2*k1)*rho",
)  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize("use", ["loss", "reward"])
def test_the_coefficient_differs_from_that_of_the_derivation_by_a_constant(loss, sampling, use):
    written, setting = as_written(loss, ()), Setting(sampling, use)
    c, reduced = _find_sample_coefficient(written, setting), reduce_typed_loss(written, setting).c
    assert c is not None and not (c - reduced).names() & {"k1", "w", "o", "log_q", "R", "A", "M"}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
def test_the_value_is_that_of_the_derivation(loss, sampling):
    e, setting = as_written(loss, ()).expression, Setting(sampling)
    start = derive(expectation(e, "mu"), on_policy=setting.on_policy)
    assert _reduce_sample_mean(to_ring(e), setting) == start.reduce().left


@pytest.mark.parametrize(
    ("loss", "setting"),
    [
        ("clip(k1, -1, 1)", Setting()),
        ("k3", Setting(level="token")),
        ("k3", Setting(batch="mean", use="reward")),
        ("k3", Setting(level="sequence", aggregate="mean")),
        ("loo(R)*log_q", Setting()),
        ("log(1 + rho)", Setting("off-policy")),
    ],
)
def test_bounds_and_other_positions_take_a_derivation(loss, setting):
    assert _find_sample_coefficient(as_written(loss, ()), setting) is None


def test_only_the_loss_with_the_right_weight_is_named():
    off_policy = Setting("off-policy")
    named = {loss: find_named_parts(as_written(loss, ()), off_policy) for loss in ("rho*k2", "k2", "rho*k3")}
    assert named == {"rho*k2": None, "k2": None, "rho*k3": {"reverse-kl": ONE}}
    [(_, (mean,))] = loss_gradient("rho*k3", sampling="off-policy").reduce().left.terms
    assert isinstance(mean, E) and mean.coefficient.names() == {"k1"}
