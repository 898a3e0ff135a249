"""log_old, rho_old and M in every reader: verdicts judged by the literal oracle, certificates, autograd."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import sympy

import klsym
from klsym.api import where_training_ends
from klsym.calculus import KL, derive, expected_gradient, grad, k1, mu, p, q
from klsym.errors import Refused, UsageError
from klsym.kernel import check
from klsym.kernel.replay import digest
from klsym.language.expressions import now, rho_old, sg
from klsym.language.parser import parse
from klsym.notation import losses
from klsym.notation.spelling import LATEX
from support.losses.loss_judge import examine
from support.losses.random_losses import Case

LOSSES = (  # a loss, and what it targets on-policy and off-policy for one sample
    ("rho_old*A", "separable", "separable"),
    ("sg(rho/rho_old)*rho_old*k3", "reverse-kl", "reverse-kl"),  # decoupled: the two ratios make rho
    ("exp(log_old - log_mu)*rho_old*k1", "reverse-kl", "reverse-kl"),
    ("rho*log_old", "separable", "separable"),
    ("sg(log_old)*3 - log_old", "zero", "zero"),
    ("M*rho*A", "combination", "combination"),  # a mask free of theta is part of the reward
    ("M*rho*k1", "separable", "separable"),
    ("rho_old*k3 + M*rho*k1", "separable", "separable"),
)
ROOMS: tuple[dict[str, str], ...] = (
    {}, {"level": "token"}, {"batch": "leave-one-out"}, {"level": "sequence", "aggregate": "mean"},
)  # fmt: skip


@pytest.mark.parametrize(("loss", "on", "off"), LOSSES)
def test_verdicts_with_a_third_policy(loss: str, on: str, off: str) -> None:
    """Of samples in both settings; in the other rooms by turns."""
    turn = [row[0] for row in LOSSES].index(loss)
    for sampling, target in (("on-policy", on), ("off-policy", off)):
        turn += 1
        for room in (ROOMS[0], ROOMS[1 + turn % 3]):
            outcome = examine(Case(loss, sampling, "loss", **room))
            assert not outcome.complaints, outcome
            assert room or outcome.target == target


@pytest.mark.parametrize("use", ["loss", "reward"])
def test_the_numeric_readers_know_it(use: str) -> None:
    """The exact oracle has a third row, and the literal loss a third density."""
    from klsym.numeric.checks.cross_check import with_check

    for loss in ("rho_old*k3", "M*rho*k3 - rho_old*R", "-min(rho_old*A, clip(rho_old, 0.8, 1.2)*A)"):
        verdict = klsym.explain(loss, sampling="off-policy", use=use)
        checked = with_check(verdict, parse(loss)).check
        assert checked is not None and checked["passed"], checked


def test_a_model_says_what_old_is() -> None:
    """A certificate whose model has no row for it, or no distribution there, is refused."""
    verdict = klsym.explain("rho_old*k1", sampling="off-policy")
    field = derive(expected_gradient(rho_old * k1, under=mu))
    refutation = field.differs_from(grad(KL(q, p)))
    certificate = refutation.certificate()
    assert [t.kind for t in check(certificate)] == ["refuted"]
    assert verdict.witness is not None and "old" in verdict.witness
    for row in (None, ["1/2", "1/3"], ["1", "0"], ["1/2"]):
        wrong = copy.deepcopy(certificate)
        node = _tree(wrong)
        node.pop("old") if row is None else node.update(old=row)
        with pytest.raises(Refused, match=r"no row old|no full-support|differ in length"):
            check(_signed(wrong))


def _tree(certificate: Any) -> dict[str, Any]:
    [part] = certificate["parts"]
    return part["close"]["model"]["tree"]  # type: ignore[no-any-return]


def _signed(certificate: Any) -> Any:
    return {**certificate, "digest": digest(certificate["parts"])}


def test_it_is_no_parameter_and_no_sampler() -> None:
    for name in ("log_old", "rho_old", "M", "o"):
        with pytest.raises(UsageError, match="a new plain name expected"):
            parse("k1", [name])
    with pytest.raises(UsageError, match=r"write log_old"):
        parse("k1*log_prox")
    with pytest.raises(UsageError, match="third policy"):
        where_training_ends("rho_old*k1", 1, [0, 1])  # it moves in training


def test_it_is_printed() -> None:
    assert sympy.latex(sg(rho_old) ** 2) == r"\mathrm{sg}(\rho_{\mathrm{old}})^{2}"
    assert losses.show(now(rho_old), LATEX) == r"\rho_{\mathrm{old},t}"
    assert losses.show(parse("k1*log_old"), LATEX) == r"k_1\,\log\pi_{\mathrm{old}}"


def test_autograd_agrees() -> None:
    torch = pytest.importorskip("torch")
    from klsym.sampling.autograd import per_sample_gradient

    assert torch.__version__
    values = {"log_p": [0.0, -1.0], "log_mu": [-1.0, -2.0], "log_old": [-0.5, -2.5], "A": [1.0, -1.0]}
    found = per_sample_gradient(
        parse("-min(rho_old*A, clip(rho_old, 0.8, 1.2)*A)"), [-0.6, -0.4], values, sampling="off-policy"
    )
    np.testing.assert_allclose(found, [-np.exp(-0.1), np.exp(2.1)])  # for A < 0 no upper bound binds
