"""Losses whose expected gradients differ by a constant: the constant is measured by enumeration."""

from __future__ import annotations

import pytest

from klsym.api import compare
from klsym.language.expressions import parameter
from support.compare_models import MODELS, moments, near
from support.float_sheet import PARAMETERS
from support.losses.cases import options

MULTIPLES = [
    (
        "k2",
        "k1**2",
        "",
        "2",
        "The same up to a constant: the expected gradient of k1**2 is 2 times that of k2",
    ),
    ("-A*log_q", "-2*A*log_q", "", "2", "The same up to a constant"),
    ("-A*log_q", "A*log_q", "", "-1", "Opposite directions: the expected gradient of A*log_q is -1 times"),
    ("k2 - k3", "3*k3 - 3*k2", "off", "-3", "Opposite directions"),
    ("lam*rho*k1", "rho*k1/3", "off", "1/(3*lam)", "The same up to a constant"),
    ("k2", "beta**2*k2/4", "", "beta**2/4", "The same up to a constant"),
    ("abs(k1)", "5*abs(k1)", "off", "5", "The same up to a constant"),
]


@pytest.mark.parametrize(("a", "b", "words", "factor", "says"), MULTIPLES, ids=str)
def test_the_factor_is_that_of_the_gradients(a: str, b: str, words: str, factor: str, says: str) -> None:
    found = compare(a, b, **options(words))
    assert found.multiple is not None and found.multiple.gradient.trust == "kernel"
    assert str(found.multiple.factor) == factor == found.to_json()["multiple"]["factor"]
    assert says in found.text() and says in found._repr_html_()
    ratio = float(found.multiple.factor.subs({parameter(name): x for name, x in PARAMETERS.items()}))
    for model in MODELS:
        first, second = (moments(loss, model, options(words))[1] for loss in (a, b))
        assert near(second, ratio * first)


OTHERS = [
    ("k2", "k3", {}),
    ("k1", "-k1", {}),  # both are 0: they are the same
    ("-A*log_q", "-A*log_q/T", {"level": "token"}),  # T is the length of the sample
    ("-A*log_q", "-A*log_q*M", {}),
    ("-A*log_q", "-R*A*log_q", {}),
    ("k2", "T*k2", {"level": "sequence"}),
    ("k2", "2*k2 + k3", {}),
    ("rho*k1", "2*rho*k3 + k2", {"sampling": "off-policy"}),
]


@pytest.mark.parametrize(("a", "b", "setting"), OTHERS, ids=str)
def test_what_is_no_constant_is_no_factor(a: str, b: str, setting: dict[str, str]) -> None:
    found = compare(a, b, **setting)
    assert found.multiple is None and found.to_json()["multiple"] is None
    assert "up to a constant" not in found.text() and "Opposite" not in found.text()


@pytest.mark.parametrize(
    ("a", "b", "setting"),
    [
        ("-centred(R)*log_q", "-3*centred(R)*log_q", {}),
        ("full(k1)", "2*full(k1)", {"level": "token"}),
        ("-rho*A", "-2*rho*A", {"level": "token", "sampling": "off-policy"}),
        ("k2", "2*k2", {"level": "sequence"}),
    ],
)
def test_batches_tokens_and_exact_means(a: str, b: str, setting: dict[str, str]) -> None:
    found = compare(a, b, **setting)
    assert found.multiple is not None and str(found.multiple.factor) in ("2", "3")
    assert found.multiple.gradient.proof in found.proofs
