"""log_old, rho_old and M in every reader: cross-checks, certificates, printers, autograd."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import sympy

import klsym
from klsym.calculus import KL, derive, expected_gradient, grad, k1, mu, p, q
from klsym.errors import Refused, UsageError
from klsym.kernel import check
from klsym.kernel.replay import digest
from klsym.language.expressions import now, rho_old, sg
from klsym.language.parser import parse
from klsym.notation import losses
from klsym.notation.printers import LATEX
from klsym.numeric.checks.cross_check import with_check
from klsym.study.api import optimum


@pytest.mark.parametrize("use", ["loss", "reward"])
def test_the_numeric_readers_know_it(use: str) -> None:
    """The exact oracle has a third row, and the literal loss a third density."""
    for loss in ("rho_old*k3", "M*rho*k3 - rho_old*R"):
        checked = with_check(klsym.explain(loss, sampling="off-policy", use=use), parse(loss)).proof.check
        assert checked is not None and checked["passed"], checked


def test_a_model_says_what_old_is() -> None:
    """A certificate whose model has no row for it, or no distribution there, is refused."""
    verdict = klsym.explain("rho_old*k1", sampling="off-policy")
    field = derive(expected_gradient(rho_old * k1, under=mu))
    refutation = field.differs_from(grad(KL(q, p)))
    certificate = refutation.certificate()
    assert [t.kind for t in check(certificate)] == ["refuted"]
    assert verdict.counterexample.model is not None and "old" in verdict.counterexample.model
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
        optimum("rho_old*k1", 1, [0, 1])  # it moves in training


def test_it_is_printed() -> None:
    assert sympy.latex(sg(rho_old) ** 2) == r"\mathrm{sg}(\rho_{\mathrm{old}})^{2}"
    assert losses.show(now(rho_old), LATEX) == r"\rho_{\mathrm{old},t}"
    assert losses.show(parse("k1*log_old"), LATEX) == r"k_1\,\log\pi_{\mathrm{old}}"


def test_autograd_agrees() -> None:
    torch = pytest.importorskip("torch")
    from klsym.study.sampling.autograd import differentiate_samples

    assert torch.__version__
    values = {"log_p": [0.0, -1.0], "log_mu": [-1.0, -2.0], "log_old": [-0.5, -2.5], "A": [1.0, -1.0]}
    found = differentiate_samples(
        parse("-min(rho_old*A, clip(rho_old, 0.8, 1.2)*A)"), [-0.6, -0.4], values, sampling="off-policy"
    )
    np.testing.assert_allclose(found, [-np.exp(-0.1), np.exp(2.1)])  # for A < 0 there is no upper bound
