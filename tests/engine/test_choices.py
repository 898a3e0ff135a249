"""Each choice of an option has one row that says what it means; one without is refused by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from klsym import calculus
from klsym.engine.answers.dispatch import as_written, explain_written
from klsym.engine.explain import explain
from klsym.engine.options import settings
from klsym.engine.options.choices import CENTRINGS, ROWS, find_meaning
from klsym.engine.options.option_table import CHOICES, OPTIONS
from klsym.engine.options.settings import Setting, checked_setting
from klsym.errors import UsageError
from klsym.numeric.checks.field_check import Literal
from klsym.render.headline import describe_use
from klsym.render.words import describe_setting


def test_each_choice_has_a_row_and_each_row_a_choice() -> None:
    assert {name: {*rows} for name, rows in ROWS.items()} == {
        name: {*choices} - {"none"} for name, choices in CHOICES.items()
    }


WORDED = ("level", "aggregate")  # options of which each choice has words of its own in print
NEW: list[tuple[str, str, str, dict[str, Any]]] = [  # an option, a new choice, a loss, its other options
    ("sampling", "replay", "k1", {}),
    ("use", "bonus", "k1", {}),
    ("level", "turn", "k2", {}),
    ("batch", "median", "R", {"use": "reward"}),
    ("credit", "next", "R", {"level": "token", "use": "reward"}),
    ("weights", "geometric", "rho*k1", {"level": "token", "sampling": "off-policy"}),
    ("aggregate", "sqrt", "k2", {"level": "token"}),
]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An option that offers one choice more, of which nothing says what it means."""

    def offer(option: str, choice: str) -> None:
        rows = [
            replace(row, choices=(*row.choices, choice)) if row.name == option else row for row in OPTIONS
        ]
        monkeypatch.setattr(settings, "OPTIONS", tuple(rows))

    return offer


@pytest.mark.parametrize(("option", "choice", "loss", "others"), NEW, ids=[row[0] for row in NEW])
def test_a_choice_without_a_row_is_refused_by_name(
    offered: Any, option: str, choice: str, loss: str, others: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=rf"^{option}='{choice}': one of"):
        explain(loss, **{**others, option: choice})
    offered(option, choice)
    with pytest.raises(UsageError, match=rf"^{option} {choice}: no row"):
        explain(loss, **{**others, option: choice})


def test_a_new_batch_choice_is_never_taken_for_the_mean(
    offered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row decides, whatever its name is; the check, which reads no row, does not know it."""
    offered("batch", "median")
    monkeypatch.setitem(CENTRINGS, "median", replace(CENTRINGS["leave-one-out"], word="median"))
    ours, loo = (explain("R", use="reward", batch=batch) for batch in ("median", "leave-one-out"))
    assert (
        ours.gradient.canonical_text
        == loo.gradient.canonical_text
        != explain("R", use="reward", batch="mean").gradient.canonical_text
    )
    literal = Literal(calculus.parse("R"), ours.setting)
    with pytest.raises(UsageError, match="check does not know batch median"):
        literal.list_gradient_terms(literal.build_world(0, {}), (0, 1))


ROWS_OF_NEW = [  # an option, a choice that is new, one with the same row, and a loss with its other options
    ("sampling", "replay", "off-policy", "rho*k1", {}),
    ("use", "bonus", "reward", "k1", {}),
    ("level", "turn", "token", "k2", {}),
    ("level", "turn", "sequence", "k2", {}),
    ("credit", "next", "to-go", "R", {"level": "token", "use": "reward"}),
    ("weights", "geometric", "prefix", "rho*k1", {"level": "token", "sampling": "off-policy"}),
    ("aggregate", "sqrt", "mean", "k2", {"level": "sequence"}),
]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The setting with a new choice, and that with the choice whose row it has."""

    def make(option: str, choice: str, alike: str, others: dict[str, Any]) -> tuple[Setting, Setting]:
        rows: Any = ROWS[option]
        monkeypatch.setitem(rows, choice, rows[alike])
        expected = checked_setting(**{**others, option: alike})
        return replace(expected, **{option: choice}), expected

    return make


@pytest.mark.parametrize(("option", "choice", "alike", "loss", "others"), ROWS_OF_NEW)
def test_a_row_alone_decides_what_a_new_choice_does(
    known: Any, option: str, choice: str, alike: str, loss: str, others: dict[str, Any]
) -> None:
    """With the row of another choice it has the answers of that one; the check, with no row, refuses it."""
    setting, expected = known(option, choice, alike, others)
    found, right = (explain_written(as_written(loss, ()), one) for one in (setting, expected))
    assert (found.target, found.gradient.target) == (right.target, right.gradient.target)
    assert found.gradient.canonical_text == right.gradient.canonical_text
    assert [message.code for message in found.messages] == [message.code for message in right.messages]
    if option != "sampling":  # of which the check reads the row
        literal = Literal(calculus.parse(loss), setting)
        with pytest.raises(UsageError, match=rf"^check does not know {option} {choice}$"):
            literal.list_gradient_terms(literal.build_world(0, {}), (0, 1))


@pytest.mark.parametrize(("option", "choice", "alike"), [row[:3] for row in ROWS_OF_NEW if row[0] in WORDED])
def test_a_choice_without_words_is_refused_by_name(known: Any, option: str, choice: str, alike: str) -> None:
    setting, _ = known(option, choice, alike, {"level": "sequence"})
    for describe in (describe_use, describe_setting):
        with pytest.raises(UsageError, match=rf"^{option} {choice}: there are no words for it$"):
            describe(setting)


def test_a_setting_is_never_made_of_an_unknown_choice() -> None:
    with pytest.raises(UsageError, match=r"^credit later: no row"):
        Setting(level="token", use="reward", credit="later")
    with pytest.raises(UsageError, match=r"^weights none: no row"):
        find_meaning(ROWS["weights"], "weights", "none")
