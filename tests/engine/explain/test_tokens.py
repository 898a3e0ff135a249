"""explain at level token: parts that are kept and dropped, proofs, the cross-check, primitives."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from klsym.api import explain
from klsym.engine.fields.primitives import find_primitive
from klsym.language.convert import to_ring
from klsym.language.parser import parse
from klsym.notation.formulas import show_element
from klsym.numeric.checks.cross_check import with_check
from klsym.render.details import describe_value
from klsym.render.objective import write_objective_latex
from support.judges.loss_judge import complaints
from support.judges.loss_worlds import at_points
from support.losses.cases import options
from support.losses.random_losses import Case

CHECKED = [  # a loss, how it is used: each kind of field that the cross-check knows
    ("k1", "token"), ("k3", "token"), ("-rho*A + beta*k3", "token"), ("k1", "token /T"), ("A",
    "token reward same"),
    ("-beta*k1", "token reward total /T"), ("R - beta*k1", "token reward"), ("1", "token reward same"),
    ("rho*k3", "off token"), ("rho*k3", "off token prefix"), ("rho*R", "off token prefix"),
    ("rho*(R - beta*k1)", "off token reward prefix"), ("rho*R*A", "token whole"),
    # clamps: on sequences of one token nothing is past, sums are 0 there, ratios 1
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A) + k3", "off token prefix"),
    ("-min(rho*R, clip(rho, 0.8, 1.2)*R) + k3", "off token reward to-go"),
    ("-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A) + beta*k3", "off token"),
]  # fmt: skip
SEVERAL_WEIGHTS = ("rho + rho**2", "k1 + rho*k1", "log(rho)*rho")


@pytest.mark.parametrize(("loss", "words"), CHECKED)
@pytest.mark.share(3)
def test_the_cross_check_agrees(loss: str, words: str) -> None:
    checked = with_check(explain(loss, **options(words)), parse(loss))
    assert checked.proof.check is not None and checked.proof.check["passed"], checked.proof.check


@pytest.mark.parametrize("loss", SEVERAL_WEIGHTS)
def test_several_powers_of_the_whole_weight_are_checked(loss: str) -> None:
    verdict = explain(loss, **options("off token reward whole"))
    for found, right in (
        (verdict, True),
        (verdict.revise(canonical_coefficient=f"{verdict.gradient.canonical_text} + 1/9"), False),
    ):
        check = with_check(found, parse(loss)).proof.check
        assert check is not None and check["passed"] is right, check


def test_what_is_the_same_at_each_token_counts_once_over_t() -> None:
    """sum_t 1/T = 1: the value of 1 over T is 1; 1 itself counts tokens."""
    shown = [describe_value(explain("1", **options(words))) for words in ("token /T", "token")]
    assert shown == ["1", "not an unbiased estimate of either KL"]


NOTES: list[tuple[str, str, list[str]]] = [
    ("k2", "token", ["= grad KL(q||p) - E_q[sum_t k1_future*s_now]"]),
    ("k3", "token", ["E_q[sum_t grad KL(p_t||q_t)] != grad KL(p||q) in general"]),
    ("rho*k3", "off token", ["E_mu[sum_t grad KL(q_t||p_t)] != grad KL(q||p) in general"]),
    ("sg(rho)*k3", "off token", ["E_mu[sum_t grad KL(p_t||q_t)] != grad KL(p||q) in general"]),
    ("R - beta*k1", "token reward same",
     ["= grad KL(q||p) - E_q", "= grad E_q[R] - E_q[sum_t R_future*s_now]"]),
    ("k1", "token reward", []),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "notes"), NOTES)
def test_what_is_kept_and_dropped_is_said_with_its_proof(loss: str, words: str, notes: list[str]) -> None:
    verdict = explain(loss, **options(words))
    assert len(verdict.notes) == len(notes)
    for expected in notes:
        assert any(expected in note for note in verdict.notes), verdict.notes
    assert all(note in verdict.text(full=True) for note in verdict.notes)


MOVED = ("k1", "k2", "rho*k1", "rho*r", "rho*k1**2 - R*r", "k1*log_q", "rho*r*k1**3", "r**lam")


@pytest.mark.parametrize("h", MOVED)
def test_a_primitive_has_h_for_its_slope(h: str) -> None:
    """dL/dlog q by central differences, at random values of log q, log p, log mu and R."""
    text = find_primitive(to_ring(parse(h)), "x")
    assert text is not None
    log_q, *rest = np.random.default_rng(4).normal(size=(4, 5))
    others = dict(zip(("log_p", "log_mu", "R"), rest, strict=True))
    up, down = (at_points(show_element(text), log_q=log_q + step, **others) for step in (1e-5, -1e-5))
    np.testing.assert_allclose((up - down) / 2e-5, at_points(h, log_q=log_q, **others), rtol=1e-6, atol=1e-7)


SETTINGS = [*product(("", "off"), ("same", "to-go", "total"), ("own", "prefix", "whole"), ("", "/T"))]


@pytest.mark.parametrize("setting", SETTINGS[::2] + SETTINGS[1::4], ids=" ".join)
@pytest.mark.share(3)
def test_a_mean_that_holds_scores_is_never_called_a_target(setting: tuple[str, ...]) -> None:
    for loss in ("k1", "rho*R") if len("".join(setting)) % 2 else ("R", "log_q"):
        verdict = explain(loss, **options("token reward " + " ".join(setting)))
        lines = str(verdict).splitlines()
        assert not re.search(r"(\bs|s_now|s_past|s_future)\b", lines[0].partition("targets")[2])
        if verdict.target == "objective" and write_objective_latex(verdict) is None:
            assert any(line.startswith("  equals    E_q[sum_t ") for line in lines)


# ---------------------------------------------------------------------------- discounts
OF_DISCOUNT = {"level": "token", "use": "reward"}


def test_a_discounted_sum_is_written_out() -> None:
    assert parse("disc(9/10, R)") == parse("(9/10)**(-past(1))*togo((9/10)**past(1)*R)") != parse("togo(R)")
    assert parse("(9/10)**past(1)*disc(9/10, k1)") == parse("togo((9/10)**past(1)*k1)")


@pytest.mark.parametrize("of", ["R", "k1", "R - beta*k1"])
def test_a_discount_has_an_objective_with_its_weight_alone(of: str) -> None:
    """Sutton et al. 1999 with the weight g^(t-1), Nota and Thomas 2020 without."""
    weighted, bare = (explain(f"{w}disc(9/10, {of})", **OF_DISCOUNT) for w in ("(9/10)**past(1)*", ""))
    assert (weighted.target, weighted.trust) == ("objective", "kernel")
    assert "E_q[sum_t" in weighted.summary and "T_past" in weighted.summary
    assert (bare.target, bare.trust) == ("no-objective", "numeric")


def test_the_check_adds_a_discounted_sum_up() -> None:
    verdict = explain("disc(9/10, R - beta*k1)", **OF_DISCOUNT)
    done = with_check(verdict, parse("disc(9/10, R - beta*k1)"))
    assert done.proof.check is not None and done.proof.check["passed"]
    wrong = with_check(verdict, parse("disc(8/10, R - beta*k1)"))
    assert wrong.proof.check is not None and not wrong.proof.check["passed"]


def test_a_discounted_penalty_keeps_its_objective_beside_an_advantage() -> None:
    found = explain("(9/10)**past(1)*disc(9/10, k1) + A", **OF_DISCOUNT)
    assert (found.target, found.trust) == ("objective", "kernel")
    case = Case("(9/10)**past(1)*disc(9/10, k1) + A", "on-policy", weights="token", **OF_DISCOUNT)
    assert not complaints(case, found)
    assert explain("disc(9/10, k1) + A", **OF_DISCOUNT).target == "no-objective"


def test_sums_that_are_held_fixed_are_no_objective() -> None:
    found = explain("disc(9/10, sg(k1))*rho", level="token", sampling="off-policy", weights="prefix")
    assert (found.target, found.trust) == ("no-objective", "numeric")


@pytest.mark.parametrize(
    ("loss", "use", "objective"),
    [
        ("disc(1/2, R)", "reward", "R_now*log_q_now + exp(log(2)*T_past)*H_future*log_q_now"),
        ("disc(1/2, A)*k1", "reward", "A*k1_now**2/2"),
        ("sg(disc(1/2, 1))*sg(rho_old)*k2 + k1", "loss", "rho_old_now*"),
        ("sg(disc(1/2, R))*log_q + sg(r)", "loss", "log_q_now"),
        ("disc(1/2, sg(k1))", "reward", ""),
        ("disc(1/2, rho_old*A)", "reward", ""),
    ],
)
def test_sums_without_theta_have_an_objective_under_mu(loss: str, use: str, objective: str) -> None:
    """E_mu[sum_t H_t s_t] = grad E_mu[sum_t H_t log q_t], since neither mu nor H depends on theta."""
    case = Case(loss, "off-policy", use, level="token", weights="token")
    found = explain(loss, sampling="off-policy", use=use, level="token")
    assert not complaints(case, found)
    assert (found.target == "objective") == bool(objective)
    assert objective in " ".join(found.text(full=True).split())
