"""explain at level token: targets, objectives and parts, judged by enumeration of a tree (token_judge.py)."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klsym.api import Verdict, explain
from klsym.engine.fields.primitives import primitive
from klsym.errors import UsageError
from klsym.kernel import check, read
from klsym.language.convert import to_ring
from klsym.language.parser import parse
from klsym.notation.formulas import element
from klsym.numeric.checks.cross_check import with_check
from klsym.render.verdict import value_line
from support.labels import labelled
from support.losses import loss_oracle as oracle
from support.losses import token_judge as judge

OFF = {"sampling": "off-policy"}
REWARD = {"use": "reward"}
SAME, TOTAL = {**REWARD, "credit": "same-token"}, {**REWARD, "credit": "total"}
PREFIX, WHOLE = {"weights": "prefix"}, {"weights": "sequence"}
OVER_T = {"aggregate": "mean"}


def kl() -> Any:
    return judge.gradient(judge.reverse)


def reward() -> Any:
    return judge.gradient(judge.rewards)


def length(power: int) -> Any:
    return judge.gradient(lambda path: len(path) ** power)


def advantages(of_R: int, of_A: int, over: int = 0) -> Any:
    """grad E_q[R**a A**b/T**c]."""
    return judge.gradient(
        lambda y: judge.rewards(y) ** of_R * judge.advantage(y) ** of_A * (1 / len(y) ** over)
    )


def per_length(scale: float) -> Any:
    """grad E_q[scale (k1 - 1)/T]."""
    return judge.gradient(lambda path: (judge.reverse(path) - 1) * (scale / len(path)))


def log_q_of_all(number: int) -> Any:
    """A multiple of grad E_q[log q]."""

    def value(path: judge.Path) -> Any:
        each = (judge.loss_of_token("log_q", path, t, "token") for t in range(len(path)))
        return sum(each, judge.Live(0)) * number

    return judge.gradient(value)


def log_q_per_length() -> Any:
    """grad E_q[(log q - 1)/T]."""

    def value(path: judge.Path) -> Any:
        each = (judge.loss_of_token("log_q", path, t, "token") for t in range(len(path)))
        return (sum(each, judge.Live(0)) - 1) * (1 / len(path))

    return judge.gradient(value)


def surrogate(text: str, weights: str = "token") -> Any:
    """grad E_mu[sum_t L_t]."""

    def loss(path: judge.Path) -> Any:
        return sum((judge.loss_of_token(text, path, t, weights) for t in range(len(path))), judge.Live(0))

    return judge.gradient(loss, under="mu")


def surrogate_over_t(text: str) -> Any:
    """grad E_mu[sum_t L_t/T]."""

    def loss(path: judge.Path) -> Any:
        each = (judge.loss_of_token(text, path, t, "token") for t in range(len(path)))
        return sum(each, judge.Live(0)) * (1 / len(path))

    return judge.gradient(loss, under="mu")


def from_mu() -> Any:
    """grad E_mu[sum_t KL(q_t||p_t)]."""
    return judge.gradient(judge.token_kl, under="mu")


def forward_from_mu() -> Any:
    return judge.gradient(judge.token_forward, under="mu")


ZERO = np.zeros(judge.LOGITS)
SLOTS = ("past", "now", "future")
BETA = judge.NUMBERS["beta"]
# loss, options, target, what the field is (None: that it is a gradient, or not, is all that is said)
ROWS: list[tuple[str, dict[str, str], str, Any]] = [
    ("k1", {}, "zero", lambda: ZERO),
    ("log_q", {}, "zero", lambda: ZERO),
    ("R", {}, "zero", lambda: ZERO),
    ("sg(k1)", {}, "zero", lambda: ZERO),
    ("k2", {}, "none", None),
    ("k3", {}, "none", None),
    ("k(lam)", {}, "none", None),
    ("r", {}, "none", None),
    ("k1**2", {}, "none", None),
    ("beta*k2 - lam*k3", {}, "none", None),
    ("rho*k1", {}, "none", None),
    ("rho*k3", {}, "none", None),
    ("rho*k1", PREFIX, "reverse-kl", kl),
    ("rho*k3", PREFIX, "reverse-kl", kl),
    ("beta*rho*k3", WHOLE, "reverse-kl", lambda: BETA * kl()),
    ("sg(rho)*k2", PREFIX, "none", None),
    ("-rho*A", {}, "combination", lambda: -judge.gradient(judge.advantage)),
    ("-rho*A + beta*k3", {}, "none", None),
    ("-rho*R", WHOLE, "combination", lambda: -reward()),
    # over T
    ("k1", OVER_T, "separable", lambda: length(-1)),
    ("-beta*k1", OVER_T, "separable", lambda: -BETA * length(-1)),
    ("rho + R", {**WHOLE, **OVER_T}, "zero", lambda: ZERO),
    ("rho + R", {**OFF, **WHOLE, **OVER_T}, "zero", lambda: ZERO),
    ("rho + k1", {**WHOLE, **OVER_T}, "separable", lambda: length(-1)),
    ("rho + k1", {**OFF, **WHOLE, **OVER_T}, "separable", lambda: surrogate_over_t("k1")),
    ("rho + k3", {**WHOLE, **OVER_T}, "none", None),
    ("rho + R", WHOLE, "separable", lambda: length(1)),
    ("rho*A + k1", {**WHOLE, **OVER_T}, "separable",
     lambda: judge.gradient(lambda path: judge.advantage(path) + 1 / len(path))),
    ("k2", OVER_T, "none", None),
    ("k3", OVER_T, "none", None),
    ("1", {**SAME, **OVER_T}, "separable", lambda: length(-1)),
    ("1", {**TOTAL, **OVER_T}, "zero", lambda: ZERO),
    ("1", {**REWARD, **OVER_T}, "none", None),
    ("k1", {**REWARD, **OVER_T}, "none", None),
    ("k1", {**TOTAL, **OVER_T}, "separable", lambda: per_length(1)),
    ("-beta*k1", {**TOTAL, **OVER_T}, "separable", lambda: per_length(-BETA)),
    ("log_q", {**TOTAL, **OVER_T}, "separable", log_q_per_length),
    ("-3*log_mu", REWARD, "separable", lambda: log_q_of_all(-3)),  # on-policy mu is q, detached
    ("2*log_q", TOTAL, "separable", lambda: log_q_of_all(2)),
    *(("rho", {**TOTAL, **weights, **OVER_T}, "zero", lambda: ZERO) for weights in ({}, PREFIX, WHOLE)),
    *(("rho*log_q", {**TOTAL, **weights, **OVER_T}, "separable", log_q_per_length)
      for weights in ({}, PREFIX, WHOLE)),
    ("rho", {**SAME, **OVER_T}, "separable", lambda: length(-1)),
    # rewards
    ("k1", REWARD, "reverse-kl", kl),
    ("k1", TOTAL, "reverse-kl", kl),
    ("k1", SAME, "none", None),
    ("rho*k1", REWARD, "reverse-kl", kl),
    ("R - beta*k1", REWARD, "combination", lambda: reward() - BETA * kl()),
    ("R - beta*k1", TOTAL, "combination", lambda: reward() - BETA * kl()),
    ("R - beta*k1", SAME, "none", None),
    ("A - beta*k1", REWARD, "combination", lambda: judge.gradient(judge.advantage) - BETA * kl()),
    ("A", SAME, "combination", lambda: judge.gradient(judge.advantage)),
    ("A - beta*k1", SAME, "none", None),
    ("k3", REWARD, "none", None),
    ("R - beta*k3", TOTAL, "none", None),
    ("1", REWARD, "separable", lambda: length(1)),
    ("1", SAME, "zero", lambda: ZERO),
    ("k1 + 1", REWARD, "separable", lambda: kl() + length(1)),
    # off-policy
    ("k1", OFF, "separable", lambda: surrogate("k1")),
    ("k2", OFF, "separable", lambda: surrogate("k2")),
    ("rho*k1", OFF, "separable", from_mu),
    ("rho*k3", OFF, "separable", from_mu),
    ("sg(rho)*k2", OFF, "separable", from_mu),
    ("sg(rho)*k3", OFF, "separable", forward_from_mu),
    ("rho*k2", OFF, "separable", lambda: surrogate("rho*k2")),
    ("rho*k2", {**OFF, **PREFIX}, "separable", lambda: surrogate("rho*k2", "prefix")),
    ("-rho*A", OFF, "separable", lambda: surrogate("-rho*A")),
    ("rho*R", {**OFF, **PREFIX}, "combination", reward),
    ("rho*k1", {**OFF, **PREFIX}, "reverse-kl", kl),
    ("rho*k3", {**OFF, **PREFIX}, "reverse-kl", kl),
    ("rho*k3", {**OFF, **WHOLE}, "reverse-kl", kl),
    ("sg(rho)*k2", {**OFF, **PREFIX}, "none", None),
    ("sg(rho)*k2", {**OFF, **WHOLE}, "none", None),
    ("rho*k1", {**OFF, **REWARD}, "none", None),
    ("rho*k1", {**OFF, **REWARD, **PREFIX}, "reverse-kl", kl),
    ("rho*k1", {**OFF, **REWARD, **WHOLE}, "reverse-kl", kl),
    ("rho*k1", {**OFF, **TOTAL, **WHOLE}, "reverse-kl", kl),
    ("rho*k1", {**OFF, **TOTAL, **PREFIX}, "none", None),
    ("rho*(R - beta*k1)", {**OFF, **REWARD, **PREFIX}, "combination", lambda: reward() - BETA * kl()),
    ("rho*(A - beta*k1)", {**OFF, **REWARD, **WHOLE}, "combination",
     lambda: judge.gradient(judge.advantage) - BETA * kl()),
    ("rho*(R - beta*k3)", {**OFF, **REWARD, **PREFIX}, "none", None),
    ("rho*k1", {**OFF, **SAME}, "separable", from_mu),
    ("rho*k1", {**OFF, **SAME, **PREFIX}, "none", None),
    ("rho*A", {**OFF, **SAME}, "separable", None),
    ("k1", {**OFF, **REWARD}, "none", None),
    ("k1", {**OFF, **TOTAL}, "separable", lambda: judge.gradient(lambda y: judge.reverse(y) ** 2 / 2, "mu")),
    ("rho*k1", {**OFF, **OVER_T, **WHOLE}, "separable", None),
    # h(R, A) of the whole sequence
    ("rho*k3 - beta*rho*R*A", {**OFF, **WHOLE}, "combination", lambda: kl() - BETA * advantages(1, 1)),
    ("rho*R*A", WHOLE, "combination", lambda: advantages(1, 1)),
    ("rho*R*A**2", {**WHOLE, **OVER_T}, "combination", lambda: advantages(1, 2, over=1)),
    ("(1/2*sg(rho*A))**2", {**SAME, **OVER_T}, "combination", lambda: advantages(0, 2, over=1) / 4),
    ("A**2", SAME, "combination", lambda: advantages(0, 2)),
    ("A**2", REWARD, "combination", lambda: advantages(0, 2)),
    ("rho + rho**2", {**OFF, **REWARD, **WHOLE}, "none", None),
    ("k1 + rho*k1", {**OFF, **REWARD, **WHOLE}, "none", None),
    ("log(rho)*rho", {**OFF, **REWARD, **WHOLE}, "none", None),
    ("R*A", SAME, "none", None),
]  # fmt: skip
IDS = [" ".join([row[0], *row[1].values()]) for row in ROWS]
rows = pytest.mark.parametrize(("loss", "options", "target", "field"), ROWS, ids=IDS)
CLOSE = 1e-9


@cache
def _ask(loss: str, options: tuple[tuple[str, str], ...]) -> Verdict:
    return explain(loss, level="token", **dict(options))


def ask(loss: str, options: dict[str, str]) -> Verdict:
    return _ask(loss, tuple(sorted(options.items())))


@cache
def _literal(loss: str, options: tuple[tuple[str, str], ...]) -> Any:
    return judge.field(plain(loss), judge.THETA, dict(options))


def literal_field(loss: str, options: dict[str, str]) -> Any:
    return _literal(loss, tuple(sorted(options.items())))


def plain(text: str) -> str:
    """The judge writes k(lam) out."""
    return text.replace("k(lam)", "(k1 + lam*(r - 1))")


def test_what_is_the_same_at_each_token_counts_once_over_t() -> None:
    """sum_t 1/T = 1: E_q[sum_t s/T] = E_q[s] = 0, and the value of 1 over T is 1; 1 itself counts tokens."""
    assert (value_line(ask("1", OVER_T)), value_line(ask("1", {}))) == (
        "1",
        "not an unbiased estimate of either KL",
    )
    assert judge.mean_value("1", OVER_T) == pytest.approx(1)
    for loss in ("rho + R", "rho + k1"):
        assert any("sum_t 1/T = 1" in line for line in ask(loss, {**WHOLE, **OVER_T}).hypotheses)
        assert not any("sum_t 1/T = 1" in line for line in ask(loss, WHOLE).hypotheses)


def the_table_itself_holds(loss: str, options: dict[str, str], target: str, field: Any) -> None:
    """No klsym here: the field is what the table says, and has a potential or has none."""
    found = literal_field(loss, options)
    if field is not None:
        assert np.abs(found - field()).max() < CLOSE
    twist = judge.twist(plain(loss), options)
    assert twist > 1e-3 if target == "none" else twist < 1e-6
    named = {"zero": ZERO, "reverse-kl": kl()}
    for name, gradient in named.items():
        multiple = np.dot(found, gradient) / max(np.dot(gradient, gradient), 1e-300)
        assert (np.abs(found - multiple * gradient).max() < CLOSE) == (target == name or target == "zero")


def has_the_target(loss: str, options: dict[str, str], target: str, field: Any) -> None:
    verdict = ask(loss, options)
    assert (verdict.target, verdict.trust) == (target, "kernel")


def the_coefficients_have_the_field_for_their_mean(
    loss: str, options: dict[str, str], target: str, field: Any
) -> None:
    verdict, found = ask(loss, options), literal_field(loss, options)
    on_policy = verdict.setting.on_policy
    assert verdict.coefficient is not None
    assert np.abs(judge.of_slots(verdict.coefficient, "q", False) - found).max() < CLOSE
    if "H" not in verdict.per_sample:
        under = "q" if on_policy else "mu"
        assert np.abs(judge.of_slots(verdict.per_sample, under, on_policy) - found).max() < CLOSE


def combination_and_witness(loss: str, options: dict[str, str], target: str, field: Any) -> None:
    verdict = ask(loss, options)
    if target in ("reverse-kl", "combination"):
        assert verdict.witness is None
        named = verdict.gradient.multiples
        total = kl() * judge.value(named.get("reverse-kl", "0"), {})
        if "reward" in named:
            total = total + judge.gradient(lambda y: judge.value(named["reward"], of_sequence(y)))
        assert np.abs(literal_field(loss, options) - total).max() < CLOSE
    elif "A" not in loss or target == "none":  # trees hold no values of A
        assert verdict.witness is not None
        start = "curl " if target == "none" else r"(E_mu\[grad rho\] \+ )?-?E_(q|mu)\[sum_t|0 = "
        assert re.match(start, verdict.witness["refutes"])
        ends = [float_of(end) for side in ("left", "right") for end in verdict.witness[side]]
        assert ends[1] < ends[2] or ends[3] < ends[0]


def of_sequence(path: judge.Path) -> dict[str, float]:
    return {"R": judge.rewards(path), "A": judge.advantage(path), "T": len(path)}


def float_of(text: str) -> float:
    above, _, below = text.partition("/")
    return int(above) / int(below or 1)


def every_proof_replays(loss: str, options: dict[str, str], target: str, field: Any) -> None:
    verdict = ask(loss, options)
    assert verdict.proofs
    for proof in verdict.proofs:
        assert check(proof.certificate()) == (proof.theorem.proved,)
    kinds = {proof.theorem.kind for proof in verdict.proofs}
    assert ("refuted" in kinds) or target != "none"
    assert verdict.proofs[0].theorem.kind == "proved"


SEVERAL_WEIGHTS = ("rho + rho**2", "k1 + rho*k1", "log(rho)*rho")
CHECKED = [(row, name) for row, name in zip(ROWS, IDS, strict=True) if row[0] not in SEVERAL_WEIGHTS][::8]


@pytest.mark.parametrize("loss", SEVERAL_WEIGHTS)
def test_the_cross_check_refuses_several_powers_of_the_whole_weight(loss: str) -> None:
    with pytest.raises(UsageError, match="several powers of rho"):
        with_check(ask(loss, {**OFF, **REWARD, **WHOLE}), parse(loss))


@pytest.mark.parametrize(
    ("loss", "options", "target", "field"), [x for x, _ in CHECKED], ids=[x for _, x in CHECKED]
)
def test_the_cross_check_agrees(loss: str, options: dict[str, str], target: str, field: Any) -> None:
    checked = with_check(ask(loss, options), parse(loss))
    assert checked.check is not None and checked.check["passed"], checked.check


ATOMS = st.sampled_from(["k1", "k2", "k3", "r", "R", "sg(k1)", "sg(r)", "1"])
TERMS = st.tuples(st.sampled_from(["", "rho*", "sg(rho)*"]), ATOMS, ATOMS).map(
    lambda t: f"{t[0]}{t[1]}*{t[2]}"
)
LOSSES = st.lists(TERMS, min_size=1, max_size=2).map(" - beta*".join)
SETTINGS = st.fixed_dictionaries(
    {
        "sampling": st.sampled_from(["on-policy", "off-policy"]),
        "weights": st.sampled_from(["token", "prefix", "sequence"]),
        "aggregate": st.sampled_from(["sum", "mean"]),
    }
)
CREDITS = st.sampled_from([{}, SAME, REWARD, TOTAL])


@settings(max_examples=8)
@given(LOSSES, SETTINGS, CREDITS)
def test_random_losses(loss: str, setting: dict[str, str], credit: dict[str, str]) -> None:
    """The printed coefficient has the field for its mean, and what is called a gradient has no twist."""
    options = {**setting, **credit}
    try:
        verdict = ask(loss, options)
    except UsageError as error:
        assert re.search("one power of rho", str(error))
        return
    found = judge.field(loss, judge.THETA, options)
    assert verdict.coefficient is not None
    scale = max(1.0, np.abs(found).max())
    assert np.abs(judge.of_slots(verdict.coefficient, "q", False) - found).max() < CLOSE * scale
    if verdict.target == "zero":
        assert np.abs(found).max() < CLOSE
    if verdict.target == "reverse-kl":
        assert np.abs(found - judge.value(verdict.gradient.multiples["reverse-kl"], {}) * kl()).max() < CLOSE
    twist = judge.twist(loss, options)
    if verdict.target not in ("none", None):
        assert twist < 1e-5 * scale
    elif verdict.target is None:
        assert "open" in str(verdict).splitlines()[0]


# ---------------------------------------------------------------------------- values
VALUES: list[tuple[str, dict[str, str], str, bool]] = [
    ("k1", {}, "reverse-kl", True),
    ("k3", {}, "reverse-kl", True),
    ("2*k1", {}, "reverse-kl", False),
    ("k2", {}, "separable", False),
    ("R - beta*k1", {}, "combination", False),
    ("r - 1", {}, "zero", False),
    ("k1 + 1", {}, "separable", False),
    ("k1*exp(seqmean(1)/5)", {}, "reverse-kl", False),  # a constant exponent
    ("k1*exp(k1/5)", {}, "separable", False),
    ("k1", OVER_T, "separable", False),
    ("k1", OFF, "separable", False),
    ("rho*k1", OFF, "separable", False),
    ("rho*k1", {**OFF, **PREFIX}, "reverse-kl", True),
    ("rho*k3", {**OFF, **PREFIX}, "reverse-kl", True),
    ("rho*k3", {**OFF, **WHOLE}, "reverse-kl", True),
    ("rho*k1", REWARD, "reverse-kl", True),
]


@pytest.mark.parametrize(("loss", "options", "target", "unbiased"), VALUES, ids=labelled)
def test_value(loss: str, options: dict[str, str], target: str, unbiased: bool) -> None:
    answer = ask(loss, options).to_json()["value"]
    assert (answer["target"], answer["unbiased_for_reverse_kl"]) == (target, unbiased)
    assert answer["unbiased_for_forward_kl"] is False
    exact = sum(
        np.exp(judge.total(path, "log_q").value) * judge.reverse(path).value
        for path in judge.paths(judge.THETA, False)
    )
    assert (abs(judge.mean_value(loss, options) - exact) < 1e-12) == unbiased


# ---------------------------------------------------------------------------- words
NOTES: list[tuple[str, dict[str, str], list[str]]] = [
    ("k2", {}, ["= grad KL(q||p) - E_q[sum_t k1_future*s_now]"]),
    ("k3", {}, ["E_q[sum_t grad KL(p_t||q_t)] != grad KL(p||q) in general"]),
    ("rho*k3", OFF, ["E_mu[sum_t grad KL(q_t||p_t)] != grad KL(q||p) in general"]),
    ("sg(rho)*k3", OFF, ["E_mu[sum_t grad KL(p_t||q_t)] != grad KL(p||q) in general"]),
    ("R - beta*k1", SAME, ["= grad KL(q||p) - E_q", "= grad E_q[R] - E_q[sum_t R_future*s_now]"]),
    ("k1", REWARD, []),
]


@pytest.mark.parametrize(("loss", "options", "words"), NOTES, ids=labelled)
def test_what_is_kept_and_dropped_is_said_with_its_proof(
    loss: str, options: dict[str, str], words: list[str]
) -> None:
    verdict = ask(loss, options)
    assert len(verdict.notes) == len(words)
    for expected in words:
        assert any(expected in note for note in verdict.notes), verdict.notes
    assert all(note in str(verdict) for note in verdict.notes)


WARNINGS: list[tuple[str, dict[str, str], list[str]]] = [
    ("k1", {}, ["zero expected gradient", "value is unbiased"]),
    ("k2", {}, ["what a token does to later ones is dropped"]),
    ("k1", SAME, ["a token is not credited with the rewards after it", "value is unbiased"]),
    ("k1", REWARD, []),
    ("k1", OVER_T, ["1/T depends on the tokens to come.*lowers E_q.1/T.*longer sequences"]),
    ("-k1", OVER_T, ["1/T depends on the tokens to come.*raises E_q.1/T.*shorter sequences"]),
    ("(beta - 2)*k1", OVER_T, ["where beta - 2 < 0 it raises E_q.1/T.*shorter sequences"]),
    ("beta*k1", OVER_T, ["lowers E_q.1/T.*longer sequences"]),
    ("lam - 1", REWARD, ["it lengthens sequences .but where lam - 1 < 0 it shortens sequences"]),
    ("1", REWARD, ["a constant at each token counts tokens: ascending it lengthens sequences"]),
    ("k1", {**OFF, **REWARD}, ["no importance weight: sequences come from mu"]),
    ("R", {**OFF, **REWARD}, ["no importance weight: sequences come from mu"]),
    ("k1", OFF, ["no importance weight"]),
    ("rho*k1", {**OFF, **REWARD}, ["leaves the prefix of t distributed as mu: choose weights prefix"]),
    ("rho*k3", {**OFF, **PREFIX}, []),
    ("rho", {}, ["zero expected gradient"]),
    ("rho", OVER_T, ["on-policy rho has the value 1", "1/T depends on the tokens to come"]),
    (
        "rho*k3 + beta*k1",
        {**OFF, **PREFIX},
        ["no importance weight at beta in the gradient: sequences come from mu"],
    ),
    ("rho*k2", {}, ["on-policy rho has the value 1", "what a token does to later ones is dropped"]),
    (
        "rho*k3",
        OFF,
        ["leaves the prefix of t distributed as mu", "what a token does to later ones is dropped"],
    ),
]


@pytest.mark.parametrize(("loss", "options", "words"), WARNINGS, ids=labelled)
def test_warnings(loss: str, options: dict[str, str], words: list[str]) -> None:
    lines = ask(loss, options).warnings
    for expected in words:
        assert any(re.search(expected, line) for line in lines), lines
    assert len(lines) == len(words), lines


@pytest.mark.parametrize(
    ("loss", "options", "line"),
    [
        ("k3", {}, "k3  (on-policy, as a loss, per token) targets no objective"),
        ("k1", OVER_T, "targets grad E_q[1/T]"),
        ("rho*k3", OFF, "targets grad E_mu[sum_t KL(q_t||p_t)]"),
        ("rho*k3", {**OFF, **PREFIX}, "prefix weights) targets the reverse KL, KL(q||p)"),
        ("R - beta*k1", REWARD, "credit to-go) targets grad E_q[R] - beta grad KL(q||p)"),
    ],
    ids=labelled,
)
def test_headline(loss: str, options: dict[str, str], line: str) -> None:
    assert line in str(ask(loss, options)).splitlines()[0]


def rewards_of_later(path: judge.Path) -> Any:
    """sum_t R_t sum_{u<=t} log q_u."""
    each = [judge.loss_of_token("log_q", path, t, "token") for t in range(len(path))]
    reward = [judge.loss_of_token("R", path, t, "token") for t in range(len(path))]
    return sum((reward[t] * each[u] for t in range(len(path)) for u in range(t + 1)), judge.Live(0))


OF_MU = [  # loss, options, the tokens' part of an objective E_mu[..], as it is written
    ("k1", {**OFF, **SAME}, surrogate("k1**2/2"), "k1_now**2/2"),
    ("k1*R", {**OFF, **SAME}, surrogate("R*k1**2/2"), "R_now*k1_now**2/2"),
    ("rho*R", {**OFF, **SAME}, surrogate("rho*R"), "rho_now*R_now"),
    ("rho*k2", {**OFF, **SAME}, surrogate("rho*(k1**2/2 - k1 + 1)"), "rho_now*(k1_now**2/2 - k1_now + 1)"),
    ("R", {**OFF, **REWARD}, judge.gradient(rewards_of_later, under="mu"),
     "(R_now*log_q_now + R_future*log_q_now)"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "options", "field", "words"), OF_MU, ids=labelled)
def test_objectives_under_mu_of_detached_rewards(
    loss: str, options: dict[str, str], field: Any, words: str
) -> None:
    """mu does not move: E_mu[sum_t h s] = grad E_mu[sum_t L] where dL = h dlog q."""
    verdict = ask(loss, options)
    assert np.abs(judge.field(loss, judge.THETA, options) - field).max() < CLOSE
    assert (verdict.target, verdict.trust) == ("separable", "kernel") and verdict.objective
    assert str(verdict).splitlines()[0].endswith(f"targets grad E_mu[sum_t {words}]")
    for proof in verdict.proofs:
        assert check(read(json.dumps(proof.certificate())))


MOVED = [("k1", True), ("k2", True), ("rho*k1", True), ("rho*r", True), ("rho*k1**2 - R*r", True),
         ("k1*log_q", True), ("rho*r*k1**3", True), ("r**lam", True)]  # fmt: skip


@pytest.mark.parametrize(("h", "found"), MOVED)
def test_a_primitive_has_h_for_its_slope(h: str, found: bool) -> None:
    """dL/dlog q by central differences, at random values of log q, log p, log mu and R."""
    text = primitive(to_ring(parse(h)), "x")
    assert (text is not None) == found
    for log_q, log_p, log_mu, reward in np.random.default_rng(4).normal(size=(5, 4)) if text else ():

        def at(formula: str, x: float, rest: Any = (log_p, log_mu, reward)) -> float:
            return float(oracle.evaluate(formula, oracle.names(x, rest[0], rest[1], rest[2], 0.0)))

        shown = element(text)
        slope = (at(shown, log_q + 1e-5) - at(shown, log_q - 1e-5)) / 2e-5
        assert slope == pytest.approx(at(h, log_q), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize("credit", ["same-token", "to-go", "total"])
@pytest.mark.parametrize("weights", ["token", "prefix", "sequence"])
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_a_mean_that_holds_scores_is_never_called_a_target(
    sampling: str, credit: str, weights: str, aggregate: str
) -> None:
    options = {"sampling": sampling, "credit": credit, "weights": weights, "aggregate": aggregate}
    turn = len(sampling) + len(credit) + len(weights) + len(aggregate)
    for loss in ("k1", "rho*R") if turn % 2 else ("R", "log_q"):  # each in half of the settings
        try:
            verdict = ask(loss, {**REWARD, **options})
        except UsageError:
            continue
        lines = str(verdict).splitlines()
        assert not re.search(r"(\bs|s_now|s_past|s_future)\b", lines[0].partition("targets")[2])
        if verdict.target == "separable" and verdict.objective is None:
            assert any(line.startswith("  equals    E_q[sum_t ") for line in lines)


@pytest.mark.parametrize(
    ("loss", "options", "objective"),
    [
        ("k1", OVER_T, r"\mathbb{E}_{q}\!\left[\frac{1}{T}\right]"),
        ("1", REWARD, r"\mathbb{E}_{q}\!\left[T\right]"),
        ("k1", REWARD, r"\mathrm{KL}(q\,\Vert\,p)"),
        ("k3", {}, None),
        ("-rho*A", {}, r"\mathbb{E}_{q}\!\left[-A\right]"),
        ("k1", {}, "0"),
    ],
    ids=labelled,
)
def test_objective(loss: str, options: dict[str, str], objective: str | None) -> None:
    assert ask(loss, options).objective == objective


def test_the_value_of_h_is_a_hypothesis() -> None:
    verdict = ask("rho*k1", {**OFF, **REWARD, **PREFIX})
    assert verdict.per_sample == "H_future + rho_past*rho_now*k1_now"
    assert "at every step H_now = rho_past*rho_now*k1_now" in verdict.hypotheses


def test_a_weight_of_the_whole_sequence_stands_in_front_of_the_sum() -> None:
    verdict = ask("rho*k3", {**OFF, **REWARD, **WHOLE})
    assert verdict.per_sample == "rho*(future(k1 + r - 1) + k1_now + r_now - 1)"
    assert any(line.startswith("at every step H_now = k1_now") for line in verdict.hypotheses)


KEYS = {"loss", "sampling", "use", "level", "batch", "credit", "weights", "aggregate", "gradient", "value",
        "trust", "hypotheses", "steps", "witness", "warnings", "names", "expansion"}  # fmt: skip


def has_the_keys(loss: str, options: dict[str, str], target: str, field: Any) -> None:
    answer = ask(loss, options).to_json()
    assert set(answer) == KEYS
    setting = {"sampling": "on-policy", "use": "loss", "weights": "token", "aggregate": "sum", **options}
    assert {name: answer[name] for name in setting if name != "credit"} == {
        name: value for name, value in setting.items() if name != "credit"
    }
    rewarded = options.get("use") == "reward"
    assert answer["credit"] == (options.get("credit", "to-go") if rewarded else None)
    for name in ("hypotheses", "warnings"):
        assert len(set(answer[name])) == len(answer[name])
        assert all(line.isprintable() for line in answer[name])
    slotted = {
        n for n in re.findall(r"\w+", answer["gradient"]["coefficient"]) if n.rpartition("_")[2] in SLOTS
    }
    assert slotted <= set(answer["names"]) and all(answer["names"].values())
    tree = answer["witness"] and answer["witness"].get("tree")
    assert tree is None or {"q", "u", "next"} <= set(tree)


PARTS = (the_table_itself_holds, has_the_target, the_coefficients_have_the_field_for_their_mean,
         combination_and_witness, every_proof_replays, has_the_keys)  # fmt: skip


@rows
def test_what_is_said_of_a_loss(loss: str, options: dict[str, str], target: str, field: Any) -> None:
    for part in PARTS:
        part(loss, options, target, field)


# ---------------------------------------------------------------------------- refusals
REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("1/k1", {}, "divi"),
    ("1/R", REWARD, "divi"),
    ("k1/(k1 - k1)", {}, "division by zero"),
    ("rho*A", {**OFF, **REWARD}, "A times something random .* choose credit same-token"),
    ("rho*A", {**OFF, **REWARD, **PREFIX}, "A times something random"),
    ("A*k1", REWARD, "A times something random"),
    ("A**2*k1", REWARD, "A times something random"),
    ("(rho + rho**2)*A*k1", {**OFF, **REWARD, **WHOLE}, "A times something random"),
    ("k1", {"credit": "to-go"}, "credit: a differentiated loss pushes on its own token"),
    ("k1", {"batch": "mean"}, "batch: samples are centred whole"),
    ("k1", {"batch": "std"}, "batch: samples are centred whole"),
    ("k1", {"weights": "tokens"}, "weights='tokens': one of token, prefix, sequence expected"),
    ("k1", {**REWARD, "credit": "later"}, "credit='later': one of to-go, same-token, total"),
    ("k1", {"aggregate": "max"}, "aggregate='max': one of sum, mean"),
    ("k9", {}, "unknown name 'k9'"),
]


@pytest.mark.parametrize(("loss", "options", "words"), REFUSED, ids=labelled)
def test_refused(loss: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(loss, level="token", **options)
    message = str(caught.value)
    assert re.search(words, message) and message.isprintable() and len(message) < 400


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"credit": "total", "use": "reward"}, "credit: this is said of tokens"),
        ({"weights": "prefix"}, "weights: this is said of tokens"),
        ({"aggregate": "mean"}, "aggregate: a single sample has no length"),
        ({"level": "sequence", "weights": "token"}, "weights: this is said of tokens"),
        ({"level": "sequence", "credit": "total", "use": "reward"}, "credit: this is said of tokens"),
        ({"level": "batch"}, "level='batch': one of sample, token, sequence expected"),
    ],
    ids=labelled,
)
def test_options_without_effect_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        explain("k1", **options)
