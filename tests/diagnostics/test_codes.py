"""Each code: its example triggers it, its fix does not, its theorem is a claim; it is silent elsewhere."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.cli import main
from klsym.diagnostics.codes import Code, find_code, load_codes
from klsym.diagnostics.conditions import prove_reverse_kl_descent
from klsym.diagnostics.overflow import find_overflows
from klsym.engine.answers.dispatch import as_written
from klsym.engine.answers.objectives import read_objective
from klsym.engine.options.settings import Setting
from klsym.engine.questions.expectation import is_met
from klsym.errors import UsageError
from klsym.language.parser import parse
from support.losses.cases import options

pytestmark = pytest.mark.usefixtures("without_copies")

EVERY = [pytest.param(one, id=one.code) for one in load_codes()]


@cache
def found(loss: str, words: str = "") -> dict[str, str]:
    """The codes of a loss, with what they say of it."""
    answer = klsym.explain(loss, **options(words)).to_json()
    return {one["code"]: one["message"] for one in answer["diagnostics"]}


# ---------------------------------------------------------------------------- pages
@pytest.mark.parametrize("one", EVERY)
def test_the_example_triggers_the_code_and_the_fix_does_not(one: Code) -> None:
    of_example, of_fix = (
        {d["code"] for d in klsym.explain(e.loss, **e.options).to_json()["diagnostics"]}
        for e in (one.example, one.write)
    )
    assert one.code in of_example and one.code not in of_fix


@pytest.mark.parametrize("one", EVERY)
def test_a_page_is_whole_and_names_a_settled_claim(one: Code) -> None:
    assert all(text.endswith(".") for text in (one.means, one.matters)) and not one.says.endswith(".")
    assert not one.theorem or one.theorem in klsym.claims()
    assert len(one.says) <= 90


def test_codes_are_numbered_without_a_gap_and_have_one_name_each() -> None:
    assert [one.code for one in load_codes()] == [f"KL{n:03}" for n in range(1, 21)]
    assert len({one.name for one in load_codes()}) == len(load_codes())


@pytest.mark.parametrize("asked", ["KL004", "kl004", " missing-weight ", "Missing-Weight", "missing_weight"])
def test_a_code_is_found_by_number_and_name(asked: str) -> None:
    assert find_code(asked).code == "KL004"


@pytest.mark.parametrize("asked", ["KL4x", "KL099", "", "missing_", "KL004 KL005"])
def test_what_is_no_code_is_refused_with_the_known_ones(asked: str, capsys: Any) -> None:
    with pytest.raises(UsageError, match="KL001 zero-gradient"):
        find_code(asked)
    assert main(["rule", asked]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1


def test_the_commands(capsys: Any) -> None:
    assert main(["rule", "KL003"]) == 0
    page = capsys.readouterr().out
    for title in ("What it means", "Why it matters", "Example", "Write instead", "Theorem"):
        assert f"\n{title}\n" in page
    assert main(["rules"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(load_codes())
    assert main(["rules", "--json"]) == 0
    assert [one["code"] for one in json.loads(capsys.readouterr().out)] == [one.code for one in load_codes()]


# ---------------------------------------------------------------------------- conditions
SAID = [  # a loss, how it is used, a code, what it says of this loss
    ("k3 + k1", "", "KL002", "the value estimates 2*KL(q||p), the gradient is that of KL(p||q)"),
    ("2*k3", "", "KL002", "the value estimates 2*KL(q||p), the gradient is that of 2*KL(p||q)"),
    ("k3 - 1", "", "KL002", "the value estimates KL(q||p) - 1, the"), ("k3 + 1/2", "", "KL002", "+ 1/2, the"),
    ("k(lam)", "", "KL002", "estimates KL(q||p), the gradient is that of lam*KL(p||q)"),
    ("-A*log_q + beta*k3", "", "KL002", "the value of the penalty estimates beta*KL(q||p)"),
    ("min(k3, 5)", "", "KL002", "where k3 < 5, the value estimates KL(q||p)"),
    ("(log_q - log_mu)**2 + k3", "off", "KL004", "samples come from mu"),
    ("log_q - log_p", "off", "KL004", "no importance"),
    ("-A*log_q", "off", "KL004", "samples come from mu"),
    ("sg(rho - 1)*log_q + k2", "off", "KL004", "no importance"), ("sg(k3)", "", "KL001", "no penalty acts"),
    ("full(min(k1, 0.05))", "", "KL010", "min(1/20, k1)"),
    ("full(clip(k1, -1, 1))", "token", "KL010", "bound"),
    ("full(where(k1 > 0, k1, 0))", "", "KL010", "of each word"), ("full(max(k3, 1))", "", "KL010", "max("),
    ("full_kl(q, p) + full(min(k3, 1))", "", "KL010", "min("),
    ("A*full(min(k1, 1))", "token", "KL010", "each word"),
    ("exp(-k1) - 1 + k1", "", "KL014", "terms cancel"),
    ("clip(k3, -10, 10)", "", "KL014", "the gradient is not a"),
    ("exp(k1)*exp(-k1)", "", "KL014", "the value is inf and the gradient is not a number"),
    ("k3", "reward", "KL014", "the value is inf"),
    ("k1", "", "KL001", "no penalty acts"), ("log_q", "", "KL001", "nothing acts"),
    ("k2", "reward std", "KL007", "as numbers show"), ("k3", "", "KL002", "the gradient is that of KL(p||q)"),
    ("k3", "token", "KL002", "the forward KL of each next token"),
    ("clip(k3, 0, 10)", "", "KL002", "that of KL(p||q)"), ("-A*log_q + beta*k3", "", "KL002", "KL(p||q)"),
    ("sg(rho)*k3", "off", "KL003", "rho*k3 would minimise"),
    ("sg(rho)*k3 - A*rho", "off", "KL003", "would minimise"),
    ("-A*rho + beta*k3", "off", "KL004", "for beta*(1 - r)"),
    ("k2", "off token", "KL004", "sequences come from mu"),
    ("k2", "reward", "KL005", "only k1"), ("rho*k3", "off reward", "KL005", "only k1"),
    ("R - beta*k3", "off reward", "KL005", "only k1"),
    ("rho*k3", "off token", "KL006", "choose weights prefix"), ("k2", "token", "KL007", "Jacobian"),
    ("-k2", "", "KL008", "increases KL(q||p)"), ("A*log_q", "", "KL008", "lowers E_q[A]"),
    ("k1", "off", "KL009", "p does not appear"), ("beta*R + rho*k3", "off", "KL009", "R and beta do not"),
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", "off", "KL010", "b = rho*A"),
    ("max(k1, 0)", "", "KL010", "bias"), ("rho*k3", "off loo", "KL011", "E_mu[h] grad KL(mu||q)"),
    ("k1", "token /T", "KL012", "rewards long outputs"), ("1 + k2", "token reward", "KL012", "counts tokens"),
    ("rho*k2", "off", "KL013", "neither KL"), ("k1*log_q", "", "KL013", "not a KL"),
    ("rho*k2", "off", "KL015", "sg(rho)*k2 would minimise"),
    ("exp(k1) - 1 - k1", "", "KL016", "it would be k3"), ("k3/rho", "off", "KL016", "rho*k3"),
    ("-A/rho", "off", "KL016", "with q/mu it would be -rho*A"), ("-A/rho", "", "KL016", "-rho*A, a policy"),
    ("-R/rho + k2", "off", "KL016", "a policy gradient"),
    ("-A/rho", "off token", "KL016", "the weight is mu/q"),
    ("-min(A/rho, clip(1/rho, 0.8, 1.2)*A)", "off", "KL016", "clip(rho, 4/5, 6/5)"),
    ("k3", "reward", "KL017", "unbiased"), ("full(M*k1)", "token", "KL018", "leaves words out"),
    ("k1", "reward std", "KL019", "standard deviation"),
    ("-sg(min(rho, 2))*A*log_q", "off", "KL020", "multiplied by -2*A where rho > 2, not by -rho*A"),
    ("sg(min(rho, 2))*A*log_q", "off", "KL020", "multiplied by 2*A where rho > 2, not by rho*A"),
    ("-sg(clip(rho, 0.5, 2))*A*log_q", "off", "KL020", "and by -A/2 where rho <= 1/2, not by -rho*A"),
    ("-sg(clip(rho, 0.8, 1.2))*A*log_q", "off token", "KL020", "not by -rho_now*A"),
    ("-sg(clip(rho, 1 - eps, 1 + eps))*R*log_q", "off", "KL020", "where rho >= eps + 1"),
    ("-sg(min(rho, 2))*A*log_q + 0.1*rho*k3", "off", "KL020", "by -2*A where rho > 2, not by -rho*A"),
    ("-min(rho, 3)*R + sg(min(rho, 2))*k2", "off", "KL020", "2*k1 where rho > 2, not by rho*k1"),
    ("sg(min(rho, 2))*k2", "off", "KL020", "2*k1 where rho > 2"),
    ("sg(clip(k1, -1, 1))*log_q", "", "KL020", "not by k1"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "code", "said"), SAID)
@pytest.mark.share(3)
def test_what_a_code_says(loss: str, words: str, code: str, said: str) -> None:
    assert said in found(loss, words)[code]


SILENT = [  # a loss, how it is used, codes that do not apply
    ("k2", "", {"KL*"}), ("rho*k1", "", {"KL*"}), ("-A*log_q", "", {"KL*"}), ("k1", "reward", {"KL*"}),
    ("R - beta*k1", "reward", {"KL*"}), ("sg(rho)*k2", "off", {"KL*"}), ("rho*k1", "off", {"KL*"}),
    ("r", "", {"KL002", "KL013"}),  # the forward KL, and its value says nothing else
    ("rho*k3", "off", {"KL003", "KL004", "KL013", "KL015", "KL017"}),
    ("k1", "off reward", {"KL005"}),  # the weight is at fault, not the estimator
    ("R - beta*k1", "off reward", {"KL005"}), ("A - k1/2", "off reward", {"KL005"}),
    ("k2", "off", {"KL003", "KL006", "KL015"}), ("-rho*A", "off", {"KL009", "KL010", "KL013"}),
    ("abs(k1)", "", {"KL010"}),  # no gradient at one value of k1 alone
    ("where(k1 > 0.2, k1, 0) - R", "reward", {"KL003"}),
    ("beta*full_kl(q, p) + (1 - beta)*full_kl(p, q)", "", {"KL002"}), ("min(r, 2)", "", {"KL002"}),
    ("k2 + k3", "", {"KL002"}), ("k3 + log_q", "", {"KL002"}), ("k3 + H(q)", "", {"KL002"}),
    ("full_kl(p, q)", "", {"KL002"}), ("sg(k3)", "", {"KL002"}),
    ("(log_q - log_mu)**2", "off", {"KL004"}), ("sg(rho - 1)*log_q", "off", {"KL004"}),
    ("(log_q - log_mu)**2", "off token", {"KL004"}), ("log_q", "off", {"KL004"}),
    ("(log_q - log_mu)**2 - A*rho", "off", {"KL004"}), ("sg(rho - 1)*log_q + rho*k3", "off", {"KL004"}),
    ("R", "", {"KL001"}), ("A - R/2", "", {"KL001"}), ("R - V", "token", {"KL001"}),
    ("full(k1)", "", {"KL010"}), ("full(sg(min(k1, 0.05))*log_q)", "", {"KL010"}),
    ("full(abs(k1))", "", {"KL010"}), ("full(M*k1)", "token", {"KL010"}),
    ("full_kl(q, p)", "token", {"KL010"}),
    ("full(min(lam, 1)*k1)", "", {"KL010"}),
    ("k3 + k1", "", {"KL017"}), ("clip(k3, -10, 10)", "reward", {"KL014"}), ("min(k1, 2)", "", {"KL014"}),
    ("rho*A", "off", {"KL016"}), ("rho*A", "", {"KL016"}), ("A/rho", "off", {"KL016", "KL008"}),
    ("-A/rho", "off", {"KL008"}), ("-A/rho", "", {"KL008"}), ("-rho**2*A", "off", {"KL016"}),
    ("-A/sg(rho)*log_q", "off", {"KL016"}), ("-rho*A", "off", {"KL016"}),
    ("A/rho - A", "off reward", {"KL016"}),
    ("log_p - log_q", "", {"KL016"}), ("R", "reward std", {"KL019"}), ("k2", "sequence", {"KL007", "KL012"}),
    # the bound drops the gradient, is one of the reward, or has no effect on the gradient
    ("-min(rho, 2)*A", "off", {"KL020"}), ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", "off", {"KL020"}),
    ("clip(k3, 0, 10)", "", {"KL020"}), ("-rho*clip(A, -1, 1)", "off", {"KL020"}),
    ("-clip(R, -1, 1)*log_q", "", {"KL020"}), ("-sg(rho)*A*log_q", "off", {"KL020"}),
    ("abs(k1)", "", {"KL020"}), ("clip(k1, -1, 1)", "reward", {"KL020"}),
    ("-sg(min(rho, 2))*A", "off", {"KL020"}),
    ("-max(min(rho, 2), rho)*A", "off", {"KL020"}),
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A) + beta*k3", "off token", {"KL020"}),
    # the penalty of a sum without a name is right
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A) + beta*rho*k3", "off", {"KL013"}),
    ("-min(rho, 2)*A + rho*k1", "off", {"KL013"}), ("clip(R, -1, 1) - k1", "reward token", {"KL013"}),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "silent"), SILENT)
def test_where_a_code_says_nothing(loss: str, words: str, silent: set[str]) -> None:
    assert not (set(found(loss, words)) if silent == {"KL*"} else set(found(loss, words)) & silent)


@pytest.mark.parametrize(
    ("penalty", "is_fixed"),
    [("rho*k3", False), ("0.1*rho*k1", False), ("k3", True), ("rho*k2", True), ("-0.1*rho*k3", True)],
)
def test_a_fix_is_given_for_a_wrong_penalty_alone(penalty: str, is_fixed: bool) -> None:
    answer = klsym.explain(f"-min(rho*A, clip(rho, 0.8, 1.2)*A) + {penalty}", sampling="off-policy").text()
    assert ("in place of" in answer) == is_fixed


def test_what_is_not_proved_is_no_other_descent() -> None:
    proved, by_numbers = Setting("on-policy", "reward"), Setting("on-policy", "reward", batch="std")
    assert [prove_reverse_kl_descent(parse(x), proved) for x in ("k1", "k3")] == [True, False]
    assert prove_reverse_kl_descent(parse("k2"), by_numbers) is None


def test_the_most_important_stands_first() -> None:
    assert list(found("sg(rho)*k3", "off")) == ["KL003", "KL002", "KL014"]


# ---------------------------------------------------------------------------- overflow
TRIED = {  # losses, and what they are in numpy's float32, of d = log q - log p at rho = 1
    "k1": lambda d: d, "k2": lambda d: d * d / 2, "k3": lambda d: np.exp(-d) - 1 + d,
    "r": lambda d: np.exp(-d), "1/r": lambda d: 1 / np.exp(-d), "rho*k3": lambda d: np.exp(-d) - 1 + d,
    "exp(k1) - 1 - k1": lambda d: np.exp(d) - 1 - d, "sqrt(k3)": lambda d: np.sqrt(np.exp(-d) - 1 + d),
    "log(1 + r)": lambda d: np.log(1 + np.exp(-d)), "k2**16": lambda d: (d * d / 2) ** 16,
    "clip(k3, 0, 10)": lambda d: np.clip(np.exp(-d) - 1 + d, 0, 10), "abs(k1)": np.abs,
    "min(r, 2)": lambda d: np.minimum(np.exp(-d), 2), "max(k1, 0)": lambda d: np.maximum(d, 0),
    "r/(1 + r)": lambda d: np.exp(-d) / (1 + np.exp(-d)),
    "sg(r)*log_q": lambda d: np.exp(-d) * np.float32(-2),
    "where(k1 > 0, r, 1)": lambda d: np.where(d > 0, np.exp(-d), 1),
}  # fmt: skip


@pytest.mark.parametrize("loss", TRIED)
def test_overflow_of_values_is_that_of_float32(loss: str) -> None:
    told = {one.at for one in find_overflows(as_written(loss, ())) if one.what == "value"}
    with np.errstate(all="ignore"):
        finite = {at: bool(np.isfinite(TRIED[loss](np.float32(at)))) for at in (-100, 100)}
    assert told == {at for at, holds in finite.items() if not holds}


# ---------------------------------------------------------------------------- the answer
LONG = ["-min(rho*A, clip(rho, 1-eps, 1+eps)*A) + beta*k3 - lam*k1*log_q + rho*k2 + R*log_q",
        "clip(k3, -10, 10) + clip(k1, -5, 5) + clip(r, 0, 3)*k1 + abs(k1) + max(k2, 1)"]  # fmt: skip


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize("loss", [*LONG, "k3", "sg(rho)*k3"])
@pytest.mark.share(3)
def test_an_answer_has_few_lines_and_fits(loss: str, width: int) -> None:
    lines = klsym.explain(loss, sampling="off-policy").text(width=width).splitlines()
    assert len(lines) <= (12 if width == 100 else 16) or width < 60
    assert all(len(line) <= width or not re.search(r"\S\s+\S", line.strip()) for line in lines), lines
    assert re.search(r"minimises|maximises|descends", " ".join(lines[:8]))


# ---------------------------------------------------------------------------- words that are clamped
@pytest.mark.parametrize(
    ("loss", "term"),
    [("full(min(k1, 0.05))", lambda k: np.minimum(k, 0.05)),
     ("full(clip(k1, -5, 0.05))", lambda k: np.clip(k, -5, 0.05)),
     ("full(where(k1 < 0.05, k1, 0.05))", lambda k: np.where(k < 0.05, k, 0.05))],
)  # fmt: skip
def test_a_clamped_word_can_push_q_away_from_p(loss: str, term: Any) -> None:
    """Along the first logit, with p = (0.01, 0.99) and q = (0.2, 0.8): by differences of the literal sum."""
    p, step = np.log([0.01, 0.99]), 1e-6

    def slope(of: Any) -> float:
        def total(z: float) -> float:
            log_q = np.array([z, np.log(4)]) - np.log(np.exp(z) + 4)
            return float(np.exp(log_q) @ of(log_q - p))

        return (total(step) - total(-step)) / (2 * step)

    assert slope(lambda k: k) == pytest.approx(0.513, abs=1e-3)
    assert slope(term) < -0.1
    assert "KL010" in found(loss) and "KL010" not in found("full(k1)")


@pytest.mark.parametrize("level", ["sample", "token"])
@pytest.mark.parametrize("loss", ["full(min(k1, 0.05))", "full(clip(k1, -1, 1))", "full(min(k3, 10))"])
def test_inside_clamps_is_said_of_samples_and_not_of_words(loss: str, level: str) -> None:
    verdict = klsym.explain(loss, level=level)
    assert verdict.gradient.inside_clamps is None
    assert not any(
        is_met(verdict, read_objective(f"{kl} inside clamps")) for kl in ("reverse-kl", "forward-kl")
    )


@pytest.mark.parametrize("loss", ["min(k2, 10)", "clip(k2, -1, 1)", "full(k1)"])
def test_samples_inside_clamps_meet_the_expectation(loss: str) -> None:
    assert is_met(klsym.explain(loss), read_objective("reverse-kl inside clamps"))
