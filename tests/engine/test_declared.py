"""Names in answers are declared in the answer: those of the grammar and of the loss go without saying."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import klsym
from klsym.language.expressions import ATOMS
from klsym.language.parser import FUNCTIONS, OF_DENSITIES
from klsym.study.tables.trainers import Trainer, trainers
from support.losses.random_losses import generate
from support.scale import scaled

NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")  # not the e of 1e9
GRAMMAR = {*ATOMS, *FUNCTIONS, *OF_DENSITIES, "where", "s", "u", "v"}
SYMBOL = re.compile(r"[RAMHT]|std|\w+_(now|past|future|self|others)")  # what hypotheses, in words, speak of
LOSSES = ["R", "A - beta*k1", "k3", "rho*k2", "abs(k1)", "M*k1", "min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)"]
SETTINGS: list[dict[str, str]] = [
    {"use": "reward", "batch": "std", "sampling": "off-policy"},
    {"use": "reward", "batch": "std"},
    {"use": "reward", "batch": "leave-one-out"},
    {"batch": "mean", "sampling": "off-policy"},
    {"level": "token", "sampling": "off-policy"},
    {"level": "token", "aggregate": "mean"},
    {"level": "token", "use": "reward", "credit": "to-go"},
    {"level": "sequence", "aggregate": "mean", "sampling": "off-policy"},
    {"sampling": "truncated"},
]


def formulas(answer: dict[str, Any]) -> Iterator[str]:
    """All that is a formula in the loss grammar."""
    gradient, value = answer["gradient"], answer["value"]
    inside = gradient["inside_clamps"] or {}
    for part in (gradient, value, inside):
        yield from (part.get("combination") or {}).values()
    for row in gradient["cases"] or ():
        yield from (row["per_sample"], row["coefficient"])
    for text in (gradient["per_sample"], gradient["coefficient"], value["constant"], answer["expansion"]):
        yield text or ""


def undeclared(loss: str, **options: str) -> set[str]:
    answer = klsym.explain(loss, **options).to_json()  # type: ignore[arg-type]
    known = GRAMMAR | {*answer["names"], *NAME.findall(loss)}
    used = {name for text in formulas(answer) for name in NAME.findall(text) if text != "no value"}
    told = {name for line in answer["hypotheses"] for name in NAME.findall(line) if SYMBOL.fullmatch(name)}
    return (used | told) - known


@pytest.mark.parametrize("options", SETTINGS, ids=lambda options: " ".join(options.values()))
@pytest.mark.share(3)
def test_names_of_settings(options: dict[str, str]) -> None:
    for loss in LOSSES[: 4 if options.get("batch") == "std" else None]:  # clamps have no batch std
        assert not undeclared(loss, **options), loss


def test_a_sampler_that_is_cut_off_says_what_M_and_S_are() -> None:
    names = klsym.explain("k3", sampling="truncated").to_json()["names"]
    assert names == {
        "M": "1 on what the sampler keeps, 0 elsewhere; 1 at each word that is drawn",
        "S": "E_q[M], the mass of what the sampler keeps",
        "mu": "q, held as it is at theta; samples come from M*mu/S", "rho": "q/mu, 1 with the gradient s",
    }  # fmt: skip
    assert "S" not in klsym.explain("M*k3").to_json()["names"]


@pytest.mark.parametrize("one", trainers(), ids=lambda one: one.id)
@pytest.mark.share(8)
def test_names_of_trainers(one: Trainer) -> None:
    assert not one.loss or not undeclared(one.loss, **one.options)
    assert not one.kl or not undeclared(one.kl, **(one.kl_options or one.options))


@pytest.mark.parametrize("number", range(scaled(60, 15)))
def test_names_of_random_losses(number: int) -> None:
    case = generate("core", 12, number)
    assert not undeclared(case.text, sampling=case.sampling, use=case.use)


def test_the_code_of_a_message_decides() -> None:
    """normalised(R) + r: the warning on r = p/q begins with the name of the term, and is none about it."""
    verdict = klsym.explain("normalised(R) + r", use="reward", level="sequence")
    assert "heavy-tail" in [message.code for message in verdict.messages]
    assert "zero-gradient" in [message.code for message in klsym.explain("rho", "off-policy").messages]


def test_a_sign_that_is_written_out_is_declared() -> None:
    """Beside the regions in which a loss has one form."""
    regions = {"is_up", "is_down"}
    names = klsym.explain("abs(k1)").to_json()["names"]
    assert names.keys() == regions
    assert klsym.explain("full(abs(k1))").to_json()["names"].keys() == {"full", *regions}
    assert not klsym.explain("k3").to_json()["names"]
