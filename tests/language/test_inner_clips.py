"""GMPO: a clip of each token's ratio inside a mean over tokens, against differences of the loss itself."""

from __future__ import annotations

import numpy as np
import pytest

from klsym import explain
from klsym.errors import UsageError
from klsym.language.expressions import clip
from support.judges.loss_judge import examine
from support.losses.cases import case as written

SEQUENCES = ([0], [1, 0], [1, 1])  # of words; logits: two at the first token, two at the second
A = np.array([0.9, -0.5, 0.4])
THETA = np.array([0.3, -0.2, 0.1, 0.5])


def log_densities(theta: np.ndarray) -> list[np.ndarray]:
    log_q = theta.reshape(2, 2) - np.log(np.exp(theta.reshape(2, 2)).sum(1, keepdims=True))
    return [np.array([log_q[t, word] for t, word in enumerate(words)]) for words in SEQUENCES]


def loss(theta: np.ndarray, low: float, high: float) -> float:
    """-E_mu[exp(mean_t clip(log rho_t, low, high)) A], mu = q at THETA, held."""
    sampler = log_densities(THETA)
    return -sum(
        np.exp(mu.sum()) * np.exp(np.clip(now - mu, low, high).mean()) * a
        for mu, now, a in zip(sampler, log_densities(theta), A, strict=True)
    )


def objective(theta: np.ndarray) -> float:
    """-E_q[A/T]."""
    return -sum(np.exp(x.sum()) * a / len(x) for x, a in zip(log_densities(theta), A, strict=True))


def slope(function, *more: float) -> np.ndarray:
    steps = 1e-6 * np.eye(4)
    return np.array([(function(THETA + e, *more) - function(THETA - e, *more)) / 2e-6 for e in steps])


@pytest.mark.parametrize(("low", "high"), [(-0.4, 0.4), (-0.01, 2.0)])
def test_on_policy_the_bounds_never_act(low: float, high: float) -> None:
    text = f"-exp(seqmean(clip(log(rho), {low}, {high})))*A"
    answer = explain(text, sampling="on-policy", level="sequence")
    assert slope(loss, low, high) == pytest.approx(slope(objective), abs=1e-8)
    assert answer.gradient.score_text == "-A/T" and answer.trust == "sympy"
    assert answer.loss.written.expression.has(clip)  # which a check with numbers runs
    assert "does nothing near theta" in str(answer).replace("\n           ", " ")


def test_parameters_in_bounds_are_positive_and_the_answer_says_so() -> None:
    answer = explain("-exp(seqmean(clip(log(rho), -eps, eps)))*A", sampling="on-policy", level="sequence")
    assert answer.gradient.score_text == "-A/T" and "parameters are positive" in answer.text(full=True)


@pytest.mark.parametrize(
    "bounds",
    ["0, 0.2", "-0.2, 0", "0.1, 0.2", "eps, 1", "-1, -eps", "-A, A", "-R, R", "-log_q, log_q", "-k3, k3"],
)
def test_a_bound_that_the_ratio_meets_is_kept(bounds: str) -> None:
    try:
        answer = explain(f"-exp(seqmean(clip(log(rho), {bounds})))*A", sampling="on-policy", level="sequence")
    except UsageError:
        return
    assert "does nothing near theta" not in answer.text(full=True)


def test_terms_and_fixes_with_such_a_clip_are_not_called_proved() -> None:
    clipped = "exp(seqmean(clip(log(rho), -eps, eps)))*A"
    text = str(explain(f"-{clipped} + beta*k2", sampling="on-policy", level="sequence"))
    assert "policy gradient                                         by SymPy alone" in text
    rewritten = explain(f"-{clipped} + whole(k3)", sampling="on-policy", level="sequence")
    assert rewritten.trust == "sympy" and rewritten.loss.written.expression.has(clip)
    fix = str(explain(clipped, sampling="on-policy", level="sequence")).split("fix")[1]
    assert "by SymPy alone" in fix and "proved" not in fix


# ---------------------------------------------------------------------------- off-policy
MU = np.array([-0.2, 0.1, 0.4, -0.3])


def sampled_loss(theta: np.ndarray, of, n: int = 4) -> float:
    """E_mu[L] of L(log rho_t, A), mu the policy at MU."""
    return sum(
        np.exp(mu.sum()) * of(now - mu, now, a)
        for mu, now, a in zip(log_densities(MU), log_densities(theta), A, strict=True)
    )


def scores(theta: np.ndarray) -> list[list[np.ndarray]]:
    """The score of each token of each sequence, by differences."""
    steps = 1e-6 * np.eye(4)
    pairs = [(log_densities(theta + e), log_densities(theta - e)) for e in steps]
    return [
        [np.array([(up[y][t] - down[y][t]) / 2e-6 for up, down in pairs]) for t in range(len(words))]
        for y, words in enumerate(SEQUENCES)
    ]


def differentiate(of) -> np.ndarray:
    steps = 1e-6 * np.eye(4)
    return np.array([(sampled_loss(THETA + e, of) - sampled_loss(THETA - e, of)) / 2e-6 for e in steps])


@pytest.mark.parametrize("bound", [0.05, 0.2, 0.4])
def test_off_policy_the_weight_is_that_of_the_clipped_ratios(bound: float) -> None:
    """The printed h: -A*exp(mean_t clip(log rho_t))/T where log rho_now is inside the bounds."""

    def gmpo(log_ratio: np.ndarray, now: np.ndarray, a: float) -> float:
        return -np.exp(np.clip(log_ratio, -bound, bound).mean()) * a

    promised = np.zeros(4)
    rows = zip(log_densities(MU), log_densities(THETA), A, scores(THETA), strict=True)
    outside = 0
    for mu, now, a, of_tokens in rows:
        log_ratio = now - mu
        weight = np.exp(np.clip(log_ratio, -bound, bound).mean()) / len(now)
        for t, score in enumerate(of_tokens):
            outside += abs(log_ratio[t]) > bound
            promised += np.exp(mu.sum()) * -a * weight * score * (abs(log_ratio[t]) <= bound)
    assert differentiate(gmpo) == pytest.approx(promised, abs=1e-8)
    assert outside > 0 or bound > 0.3
    loss = f"-exp(seqmean(clip(log(rho), -{bound}, {bound})))*A"
    answer = explain(loss, sampling="off-policy", level="sequence")
    assert (answer.target, answer.trust) == ("own-mean", "sympy")
    said = " ".join(answer.text(full=True).split())
    clipped = f"exp(whole(clip(log(rho), -{bound}, {bound}))/T)/T"
    assert f"A policy gradient inside the clip range: A times the score, with the weight {clipped}" in said
    assert f"h = -A*{clipped} where log(rho_now) >= -{bound} and log(rho_now) <= {bound}; 0 otherwise" in said
    assert "missing-weight" not in said and "wrong sign" not in said


def test_a_bound_that_depends_on_the_sign_of_the_advantage() -> None:
    """As published: the upper bound for A > 0, the lower one for A < 0."""
    loss = "-exp(seqmean(where(A > 0, min(log(rho), 0.4), max(log(rho), -0.4))))*A"
    said = " ".join(str(explain(loss, sampling="off-policy", level="sequence")).split())
    assert "no gradient where log(rho_now) > 0.4 and A > 0, or where log(rho_now) < -0.4 and A <= 0" in said


def test_the_first_order_of_a_square_has_its_gradient() -> None:
    """2 sg(sum_t k2_t) k2 at each token, for q against the policy at MU in place of the reference."""

    def square(log_ratio: np.ndarray, now: np.ndarray, a: float) -> float:
        return (log_ratio**2 / 2).sum() ** 2

    promised = np.zeros(4)
    for mu, now, of_tokens in zip(log_densities(MU), log_densities(THETA), scores(THETA), strict=True):
        x = now - mu
        for t, score in enumerate(of_tokens):
            promised += np.exp(mu.sum()) * 2 * (x**2 / 2).sum() * x[t] * score
    assert differentiate(square) == pytest.approx(promised, abs=1e-8)
    answer = explain("whole(k2)**2", sampling="off-policy", level="sequence")
    assert answer.loss.written.text == "k2*sg(2*whole(k2))"
    assert answer.to_json()["objective"]["text"] == "E_mu[whole(k2)**2]"
    assert answer.value.target is None  # which is that of another loss


def test_what_is_detached_or_drawn_from_the_policy_is_not_its_own_objective() -> None:
    inner = "exp(seqmean(clip(log(rho), -eps, eps)))"
    detached = explain(f"-sg({inner})*A*{inner}", sampling="off-policy", level="sequence")
    assert detached.target is None
    assert explain("whole(k2)**2", sampling="on-policy", level="sequence").target == "no-objective"


def test_terms_are_those_that_were_typed() -> None:
    loss = "-exp(seqmean(clip(log(rho), -eps, eps)))*A + beta*whole(k3)"
    answer = explain(loss, sampling="off-policy", level="sequence")
    assert [x.loss for x in answer.gradient.terms] == loss.split(" + ")
    assert [x.target for x in answer.gradient.terms] == ["own-mean", "own-mean"]


JUDGED = [  # by enumeration
    (written("whole(M*k3)*whole(M*k2)/whole(M)", "off sequence"), "own-mean"),
    (written("exp(whole(M*clip(log_q - log_mu, -1/5, 1/5))/whole(M))*A", "sequence"), "no-objective"),
    (written("rho*whole(k2)**2*A", "off sequence"), "own-mean"),
    (written("sg(whole(k2))*whole(k3)**2", "off sequence"), "no-objective"),
    (written("log(1 + exp(whole(min(k1, 1))))", "sequence"), "no-objective"),
]


@pytest.mark.parametrize(("case", "target"), JUDGED, ids=str)
def test_the_oracle_agrees(case, target: str) -> None:
    outcome = examine(case)
    assert (outcome.target, outcome.complaints) == (target, ())


REFUSED = [
    ("-exp(seqmean(clip(log(rho), -0.2, 0.2)))*A", "token"),
    ("-min(exp(seqmean(clip(log(rho), -0.2, 0.2)))*A, 2)", "sequence"),
    ("-clip(exp(seqmean(clip(log(rho), -0.2, 0.2))), 0.8, 1.2)*A", "sequence"),
    ("-exp(past(clip(log(rho), -0.2, 0.2)))*A", "sequence"),
    ("-exp(past(clip(log(rho), -0.2, 0.2)))*A", "token"),
    ("-exp(seqmean(clip(log(rho), -0.2, 0.2)))*sg(loo(R))", "sequence"),
]


@pytest.mark.parametrize(("text", "level"), REFUSED)
def test_other_functions_of_such_sums_are_refused(text: str, level: str) -> None:
    with pytest.raises(UsageError, match=r"is no sum of k1|sums over other tokens|is a sum|choose l"):
        explain(text, sampling="off-policy", level=level)
