"""Gates by a sigmoid, logs of 1 - q and functions of exact means, judged by an oracle that shares no code."""

from __future__ import annotations

import pytest

from klsym import explain
from klsym.errors import UsageError
from klsym.language.expressions import sg
from klsym.language.parser import parse
from support.judges.loss_judge import examine
from support.losses.cases import case as written

# what each answer says of its target
JUDGED = [
    (written("-4/5*sigmoid(5*(rho - 1))*A", "off"), "own-mean"),
    (written("-where(A > 0, 4*sigmoid(rho - 1), 2*sigmoid(2*(rho - 1)))*A", "off token"), "own-mean"),
    (written("-where(A > 0, 4*sigmoid(rho - 1), 2*sigmoid(2*(rho - 1)))*k1", "token"), "no-objective"),
    (written("A*log(1 - exp(log_q))", "off"), "own-mean"),
    (written("-R*log_q - (1 - R)*log(1 - exp(log_q))"), "objective"),
    (written("M*log(1 - exp(log_q))", "token"), "no-objective"),
    (written("log(1.01 - exp(log_q))*exp(log_q)", "sequence"), "objective"),
    (written("-1/3*(full(k1**2)*full(M*k1))*rho*A"), "open"),  # A in an exact mean, in a counterexample
    (written("full(rho*k1)*full(rho*M)"), "open"),  # on-policy rho has the value 1
    (written("beta*sg(exp(full(k1**2)/5))*log_q"), "zero"),
    (written("sg(full(M))*log_q*R", "token"), "no-objective"),  # full(M) depends on theta, so that sg stays
    (written("sg(log(1 - full(M)))*log_q + beta*rho*k3", "token"), "no-objective"),
    # functions of exact means at each prefix
    (written("full(k1)**2", "token"), "no-objective"),
    (written("min(full(k1), 1)", "token"), "no-objective"),
    (written("full(k1)*A", "token"), "no-objective"),
    (written("exp(-full(k1))*k1", "token"), "no-objective"),
    (written("full(k1)**2", "off token"), "own-mean"),
    (written("sg(full(k1))*k1", "token"), "open"),  # whose expected gradient is 0
    (written("sg(full(k1))*k2", "off token"), "open"),  # no curl where each node has two outcomes
    (written("2*exp(full(R)/5) + beta*rho_old*k2", "off"), "own-mean"),  # old in a counterexample
    (written("beta*sigmoid(lam*(rho - 1))*sigmoid(A)*A", "token reward"), "combination"),
    (written("-exp(A/beta)*log_q", "token"), "combination"),
    (written("-exp(A/T)*log_q", "token"), "combination"),
    (written("-exp(A)*whole(R)*log_q", "token"), "combination"),
    (written("-exp(A)*k2", "token"), "no-objective"),
    (written("-exp(R)*log_q", "token"), "no-objective"),
    # what is held within a region depends on theta
    (written("-1/3*sg(where(rho > 2, 2, rho)*A)*log_q", "off token"), "objective"),
    (written("-sg(where(rho > 2, 2, rho))*k2", "off"), "objective"),
    (written("-sg(where(rho > 2, 2, 1)*A)*log_q", "off token"), "own-mean"),
    # a bias on both sides of a bound, and at it
    (written("max(log_q - log_mu, 0)*min(log_q - log_mu, 0)*A + min(log_q - log_mu, 0)*k1", "off"),
     "own-mean"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "target"), JUDGED, ids=str)
def test_the_oracle_agrees(case, target: str) -> None:
    outcome = examine(case)
    assert (outcome.target, outcome.complaints) == (target, ())


@pytest.mark.parametrize("kept", ["full(M)", "full(R)*M", "log(1 - full(M))", "full(exp(log_p))"])
def test_an_exact_mean_of_what_does_not_move_is_detached(kept: str) -> None:
    assert parse(f"sg({kept})").has(sg)
    assert not parse("sg(M*R)").has(sg)


@pytest.mark.parametrize(
    ("loss", "gradient"),
    [
        ("sg(full(M*k1)/full(M))*k1", "full(M*k1)*s/full(M)"),
        ("sg(full(rho*k1))*k1", "full(k1)*s"),
        ("log(full(M*r))", "0"),
    ],
)
def test_a_gradient_names_its_exact_means(loss: str, gradient: str) -> None:
    answer = explain(loss, sampling="on-policy")
    assert answer.to_json()["gradient"]["per_sample"] == gradient
    assert "h1*s" not in str(answer)


def test_weights_of_the_prefix_in_an_exact_mean_are_refused() -> None:
    loss = "exp(full(rho*k1)/5)*M*log_q"
    with pytest.raises(UsageError, match="the next token alone"):
        explain(loss, level="token", sampling="off-policy", weights="prefix")
    answer = explain(loss, level="token", sampling="off-policy", weights="token")
    assert answer.to_json()["target"] == "own-mean"


@pytest.mark.parametrize(
    ("loss", "value"),
    [
        ("where(A > 0, 2, 1)*k1", "objective"),  # A of the sequence and its KL are dependent
        ("where(whole(k1) > 0, 2, 1)*k1", "objective"),
        ("where(whole(k1) > 0, 2, 1)*R", "objective"),
        ("where(A > 0, 2, 1)*R", "combination"),
        ("beta*k1", "reverse-kl"),
    ],
)
def test_a_region_of_the_sequence_is_no_constant_of_its_value(loss: str, value: str) -> None:
    answer = explain(loss, level="token", sampling="on-policy").to_json()
    assert answer["value"]["target"] == value


@pytest.mark.parametrize("x", ["log_q", "log_p", "log_mu", "log_old"])
def test_the_log_of_the_probability_of_all_other_words(x: str) -> None:
    assert explain(f"log(1 - exp({x}))*A*log_q").trust == "kernel"
    assert "1 - exp(log_q) <= 0" in explain("A*log(1 - exp(log_q))").text(full=True)
    typed = explain("-advantages*torch.log1p(-logp.exp())")
    assert typed.loss.written.expression == parse("-A*log(1 - exp(log_q))")


@pytest.mark.parametrize(
    "x", ["1 - exp(2*log_q)", "1/2 - exp(log_q)", "1 - r", "1 - rho", "1 - exp(past(log_q))", "1 - exp(k1)"]
)
def test_a_log_of_what_may_be_negative_is_refused(x: str) -> None:
    with pytest.raises(UsageError, match="need not be positive"):
        explain(f"log({x})*A", level="token")


# ---------------------------------------------------------------------------- what answers say of new losses
def said(loss: str, **options: str) -> str:
    return " ".join(explain(loss, **options).text(full=True).split())


@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize(
    ("loss", "level", "note"),
    [
        (
            "(beta*k1 - A)**2",
            "token",
            "depends on later tokens: in general no policy has loss 0 at every token",
        ),
        ("(beta*k1 - R)**2", "token", "q = p*exp(R/beta) of each next token, if E_p[exp(R/beta)] = 1"),
        ("(beta*k1 - A)**2", "sequence", "at q = p*exp(A/beta), if E_p[exp(A/beta)] = 1"),
        ("(beta*k1 - M*A)**2", "token", ""),
        ("(beta*k1 - A)**2*rho", "token", ""),
        ("-(beta*k1 - A)**2", "token", ""),
    ],
)
def test_a_regression_on_rewards(loss: str, level: str, note: str, sampling: str) -> None:
    text = said(loss, level=level, sampling=sampling)
    assert note in text if note else "a regression" not in text


STEPS, USUAL = "accumulation_steps", "its gradient is that of the loss divided once, times"


@pytest.mark.parametrize(
    ("loss", "note"),
    [
        (f"l = -ratio*A/{STEPS}; l/{STEPS}", f"divided by {STEPS} 2 times: {USUAL} 1/{STEPS}"),
        (f"-ratio*A/{STEPS}**3", f"divided by {STEPS} 3 times: {USUAL} 1/{STEPS}**2"),
        (f"-ratio*A/{STEPS} + k3/{STEPS}**2", f"some terms are divided by {STEPS} more often than others"),
        (f"-ratio*A/{STEPS}", ""),
        (f"-ratio*A/{STEPS}/world_size", ""),
        ("-ratio*A/beta**2", ""),
    ],
)  # fmt: skip
def test_a_loss_that_is_divided_several_times(loss: str, note: str) -> None:
    text = said(loss, sampling="off-policy")
    assert note in text if note else ("divided by" not in text and "are divided" not in text)


@pytest.mark.parametrize(
    ("loss", "hint"),
    [
        ("-A_token*ratio - A*ratio", "type `A_token = R; ...`: R is a number at each token"),
        ("token_advantages*ratio + seq_advantages*ratio", "type `token_advantages = R; ...`"),
        ("opsm_mask*ratio*A", "such as `opsm_mask = M; ...`"),
        ("entropy_mask*ratio*A", "such as `entropy_mask = M; ...`"),
        ("accum_loss*3", "such as `accum_loss = -A*logp; ...`"),
    ],
)
def test_names_of_masks_and_of_token_advantages_are_asked_for(loss: str, hint: str) -> None:
    with pytest.raises(UsageError) as refusal:
        explain(loss, level="token", sampling="off-policy")
    assert hint in str(refusal.value) and "did you mean gspo" not in str(refusal.value)


def test_advantages_of_tokens_beside_those_of_sequences() -> None:
    answer = explain("A_token = R; -M*A_token*rho - A*rho", level="token", sampling="off-policy")
    summaries = {term["summary"] for term in answer.to_json()["gradient"]["terms"]}
    means = {"minimises -E_mu[sum_t rho_now*M_now*R_now]", "maximises E[A] of each token, at prefixes of mu"}
    assert summaries == means


@pytest.mark.parametrize("grain", ["whole(log_mu - log_q)/T > 0.1", "whole(log_mu - log_q) > 2"])
def test_two_masks_of_different_grain(grain: str) -> None:
    """OPSM: a mask of the sequence beside one of each token."""
    case = written(f"-M*where({grain} and A < 0, 0, 1)*rho*A", "off token")
    outcome = examine(case)
    assert (outcome.target, outcome.complaints) == ("own-mean", ())
