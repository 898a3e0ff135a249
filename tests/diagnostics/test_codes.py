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
from klsym.diagnostics.codes import Code, code, codes
from klsym.diagnostics.conditions import proved_descent
from klsym.diagnostics.overflow import overflows
from klsym.engine.options.settings import Setting
from klsym.errors import UsageError
from klsym.language.parser import parse
from support.losses.cases import options

EVERY = [pytest.param(one, id=one.code) for one in codes()]


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
    assert not one.theorem or one.theorem in klsym.load()
    assert len(one.says) <= 90


def test_codes_are_numbered_without_a_gap_and_have_one_name_each() -> None:
    assert [one.code for one in codes()] == [f"KL{n:03}" for n in range(1, 20)]
    assert len({one.name for one in codes()}) == len(codes())


@pytest.mark.parametrize("asked", ["KL004", "kl004", " missing-weight ", "Missing-Weight"])
def test_a_code_is_found_by_number_and_name(asked: str) -> None:
    assert code(asked).code == "KL004"


@pytest.mark.parametrize("asked", ["KL4", "KL099", "", "missing_weight", "KL004 KL005"])
def test_what_is_no_code_is_refused_with_the_known_ones(asked: str, capsys: Any) -> None:
    with pytest.raises(UsageError, match="KL001 zero-gradient"):
        code(asked)
    assert main(["rule", asked]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1


def test_the_commands(capsys: Any) -> None:
    assert main(["rule", "KL003"]) == 0
    page = capsys.readouterr().out
    for title in ("What it means", "Why it matters", "Example", "Write instead", "Theorem"):
        assert f"\n{title}\n" in page
    assert main(["rules"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(codes())
    assert main(["rules", "--json"]) == 0
    assert [one["code"] for one in json.loads(capsys.readouterr().out)] == [one.code for one in codes()]


# ---------------------------------------------------------------------------- conditions
SAID = [  # a loss, how it is used, a code, what it says of this loss
    ("k1", "", "KL001", "no penalty acts"), ("log_q", "", "KL001", "nothing acts"),
    ("k2", "reward std", "KL007", "as numbers show"), ("k3", "", "KL002", "the gradient is that of KL(p||q)"),
    ("k3", "token", "KL002", "the forward KL of each next token"),
    ("clip(k3, 0, 10)", "", "KL002", "that of KL(p||q)"), ("-A*log_q + beta*k3", "", "KL002", "KL(p||q)"),
    ("sg(rho)*k3", "off", "KL003", "rho*k3 would minimise"),
    ("sg(rho)*k3 - A*rho", "off", "KL003", "would minimise"),
    ("-A*rho + beta*k3", "off", "KL004", "at beta*(1 - r)"),
    ("k2", "off token", "KL004", "sequences come from mu"),
    ("k2", "reward", "KL005", "only k1"), ("rho*k3", "off reward", "KL005", "only k1"),
    ("R - beta*k3", "off reward", "KL005", "only k1"),
    ("rho*k3", "off token", "KL006", "choose weights prefix"), ("k2", "token", "KL007", "curl"),
    ("-k2", "", "KL008", "increases KL(q||p)"), ("A*log_q", "", "KL008", "lowers E_q[A]"),
    ("k1", "off", "KL009", "p does not appear"), ("beta*R + rho*k3", "off", "KL009", "R and beta do not"),
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", "off", "KL010", "b = rho*A"),
    ("max(k1, 0)", "", "KL010", "bias"), ("rho*k3", "off loo", "KL011", "E_mu[h] grad KL(mu||q)"),
    ("k1", "token /T", "KL012", "longer sequences"), ("1 + k2", "token reward", "KL012", "counts tokens"),
    ("rho*k2", "off", "KL013", "neither KL"), ("k1*log_q", "", "KL013", "not a KL"),
    ("rho*k2", "off", "KL015", "sg(rho)*k2 would minimise"),
    ("exp(k1) - 1 - k1", "", "KL016", "it would be k3"), ("k3/rho", "off", "KL016", "rho*k3"),
    ("k3", "reward", "KL017", "unbiased"), ("full(M*k1)", "token", "KL018", "leaves words out"),
    ("k1", "reward std", "KL019", "standard deviation"),
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
    ("log_p - log_q", "", {"KL016"}), ("R", "reward std", {"KL019"}), ("k2", "sequence", {"KL007", "KL012"}),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "silent"), SILENT)
def test_where_a_code_says_nothing(loss: str, words: str, silent: set[str]) -> None:
    assert not (set(found(loss, words)) if silent == {"KL*"} else set(found(loss, words)) & silent)


def test_what_is_not_proved_is_no_other_descent() -> None:
    proved, by_numbers = Setting("on-policy", "reward"), Setting("on-policy", "reward", batch="std")
    assert [proved_descent(parse(x), proved) for x in ("k1", "k3")] == [True, False]
    assert proved_descent(parse("k2"), by_numbers) is None


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
    told = {one.at for one in overflows(parse(loss)) if one.what == "value"}
    with np.errstate(all="ignore"):
        finite = {at: bool(np.isfinite(TRIED[loss](np.float32(at)))) for at in (-100, 100)}
    assert told == {at for at, holds in finite.items() if not holds}


@pytest.mark.parametrize("loss", ["past(r)", "loo(r)*k1", "full(k3)"])
def test_sums_are_left_alone(loss: str) -> None:
    assert overflows(parse(loss)) == ()


# ---------------------------------------------------------------------------- the answer
LONG = ["-min(rho*A, clip(rho, 1-eps, 1+eps)*A) + beta*k3 - lam*k1*log_q + rho*k2 + R*log_q",
        "clip(k3, -10, 10) + clip(k1, -5, 5) + clip(r, 0, 3)*k1 + abs(k1) + max(k2, 1)"]  # fmt: skip


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize("loss", [*LONG, "k3", "sg(rho)*k3"])
@pytest.mark.share(3)
def test_an_answer_has_25_lines_at_most_and_fits(loss: str, width: int) -> None:
    lines = klsym.explain(loss, sampling="off-policy").text(width=width).splitlines()
    assert len(lines) <= 25 or width < 60
    assert all(len(line) <= width or not re.search(r"\S\s+\S", line.strip()) for line in lines), lines
    assert re.search(r"minimises|maximises|descends", " ".join(lines[:4]))
