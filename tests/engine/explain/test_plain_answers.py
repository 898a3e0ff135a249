"""Plain answers: objectives of attached losses, zero means, curls, sums of equal terms."""

from __future__ import annotations

import pytest

import klsym
from klsym.errors import UsageError
from support.losses.loss_judge import examine
from support.losses.random_losses import Case

OFF, REWARD, TOKEN = {"sampling": "off-policy"}, {"use": "reward"}, {"level": "token"}


def judged(loss: str, **options: str) -> str:
    """The target, with nothing that the oracle holds against the verdict."""
    given = {"sampling": "on-policy", "use": "loss", "level": "sample"} | options
    outcome = examine(Case(loss, ring=False, **given))
    assert outcome.complaints == (), outcome
    return outcome.target


# ---------------------------------------------------------------------------- nothing is detached
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
@pytest.mark.parametrize(
    ("loss", "attached"),
    [
        ("clip(R, -1, 1)*M*rho", True),
        ("clip(R, -1, 1)*rho", True),
        ("min(R, A)*rho", True),
        ("max(R, 0)*k1", True),
        ("clip(R, -1, 1)*M*rho*k3", True),
        ("abs(A)*rho*k1", True),
        ("sg(clip(R, -1, 1)*rho)*log_q", False),
        ("sg(rho)*max(A, 0)*k1", False),
    ],
)
def test_a_token_loss_that_is_attached_is_its_own_objective(
    loss: str, attached: bool, aggregate: str
) -> None:
    """E_mu[sum_t grad L_t] = grad E_mu[sum_t L_t]; what is detached is not said to be."""
    options = {**OFF, **TOKEN, "aggregate": aggregate}
    verdict = klsym.explain(loss, **options)
    assert verdict.shown.startswith("grad E_mu[sum_t ") == attached
    if attached:
        assert judged(loss, **options) == "separable"


# ---------------------------------------------------------------------------- means of what is centred
@pytest.mark.parametrize(
    ("loss", "options", "value"),
    [
        ("loo(M*R)", {}, "0"),
        ("centred(M*R)", {}, "0"),
        ("normalised(R)", {}, "0"),
        ("2*normalised(R)/beta", {}, "0"),
        ("-loo(M*R)", OFF, "0"),
        ("loo(A*R)", {"level": "sequence"}, "0"),
        ("loo(M*R)", {"level": "sequence", "aggregate": "mean"}, "open"),
        ("loo(M*R)*k1", {}, "open"),
        ("M*normalised(R)", {}, "open"),
        ("1 + normalised(R)", {}, "open"),
    ],
)
def test_what_is_centred_has_mean_zero(loss: str, options: dict[str, str], value: str) -> None:
    """Over T, or times what is drawn, it need not."""
    answer = klsym.explain(loss, **options).to_json()["value"]
    found = answer["constant"] if answer["target"] == "zero" else answer["target"]
    assert found in (value, *(["separable", "combination"] if value == "open" else []))


# ---------------------------------------------------------------------------- curls
@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("clip(k1, -1, 1)", {**TOKEN, **REWARD, "credit": "total"}),
        ("clip(k1, 0.3, 0.9)", {**TOKEN, **REWARD, "credit": "to-go"}),
    ],
)
def test_a_curl_is_found_on_trees_that_meet_the_bounds(loss: str, options: dict[str, str]) -> None:
    assert judged(loss, **options) == "none"


@pytest.mark.parametrize("loss", ["sg(loo(R))*rho_old", "sg(loo(A))*rho_old", "sg(centred(k2))*rho_old"])
@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
def test_a_curl_is_found_where_old_is_not_q(loss: str, sampling: str) -> None:
    """The two models that were tried have old = q, where rho_old is 1."""
    expected = "separable" if sampling == "off-policy" and "k2" not in loss else "none"
    assert judged(loss, sampling=sampling) == expected


# ---------------------------------------------------------------------------- sums of equal terms
@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize(
    ("loss", "options", "plain"),
    [
        ("exp(whole(log_q - sg(log_q))/T)*A", {}, "exp(whole(log_q - sg(log_q))/T)*A*T"),
        ("whole(k1)*A", {}, "k1*A*T"),
        ("rho", {"weights": "sequence"}, "rho*T"),
        ("-rho*A", {"weights": "sequence"}, "-rho*A*T"),
        ("sg(rho)", {"weights": "sequence"}, "sg(rho)*T"),
        ("rho*A/T", {"weights": "sequence"}, "rho*A"),
    ],
)
def test_what_is_the_same_at_every_token_counts_as_often_as_there_are(
    loss: str, options: dict[str, str], plain: str, sampling: str
) -> None:
    """The loss of the sequence, T times, has the same expected gradient, and the same value."""
    one = klsym.explain(loss, level="token", sampling=sampling, **options)
    other = klsym.explain(plain, level="sequence", sampling=sampling)
    assert judged(loss, level="token", sampling=sampling, **options) in (other.target, "combination")
    if one.implied is not None and other.implied is not None:
        assert one.implied.side == other.implied.side or "sum_t" in one.shown
    often = "what is the same at each of its T tokens counts T times"
    assert (sum(often in line for line in one.hypotheses) == 1) == (
        "/T" not in loss[-3:] and one.target != "zero"
    )


# ---------------------------------------------------------------------------- exact means at each prefix
MEAN = "full(log(1 + r))"


@pytest.mark.parametrize(
    ("loss", "options", "shown"),
    [
        (f"{MEAN} + sg(future({MEAN}))*log_q", {}, True),
        (f"2*{MEAN} + sg(future(2*{MEAN}))*log_q", {}, True),
        (f"{MEAN} + sg(togo({MEAN}))*log_q", {}, True),
        (f"full(abs(k1)) + sg(future({MEAN}))*log_q", {}, False),
        (f"{MEAN} + 2*sg(future({MEAN}))*log_q", {}, False),
        (f"{MEAN} + sg(past({MEAN}))*log_q", {}, False),
        (f"{MEAN} + sg(future({MEAN}))*k1**2", {}, False),
        (f"{MEAN} + sg(future({MEAN}))*log_q", OFF, False),
        (MEAN, {}, False),
    ],
)
def test_exact_means_and_what_comes_later_are_one_objective(
    loss: str, options: dict[str, str], shown: bool
) -> None:
    """The Jacobian of the enumerated field is symmetric where an objective is named."""
    try:
        verdict = klsym.explain(loss, level="token", **options)
    except UsageError:
        assert not shown
        return
    assert verdict.shown.startswith("grad E_q[sum_t ") == shown
    if shown:
        assert judged(loss, level="token", **options) == "separable"
        assert verdict.trust == "sympy" and not any("open" in line for line in verdict.notes)
