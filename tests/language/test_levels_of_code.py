"""Sums over tokens in code say the level of a loss, and how tokens are added up, unless one was typed."""

from __future__ import annotations

import pytest

from klsym import compare, explain
from klsym.errors import UsageError
from klsym.language.spellings import read_loss

LEVEL_OF_CODE = pytest.mark.parametrize(
    ("typed", "aggregate"),
    [
        ("(k3*mask).sum()/mask.sum()", "batch"),
        ("masked_mean(k3, mask)", "batch"),
        ("((k3*mask).sum(1)/mask.sum(1)).mean()", "mean"),
        ("masked_mean(k3, mask, axis=1).mean()", "mean"),
        ("(k3*mask).sum(1).mean()", "sum"),
        ("(k3*mask).sum()", "sum"),
        ("(k3*mask).sum()/mask.sum(-1).sum()", "batch"),
        ("(k3*mask).sum(-1)/mask.sum(-1).mean()", "batch"),
        ("(k3*mask).sum()/mask.sum(0).sum()", "batch"),
        ("(k3*mask).mean()/mask.mean()", "batch"),
        ("(k3*mask).mean(-1)/mask.mean(-1)", "mean"),
        ("((k3*mask).sum()/mask.sum(-1)).mean()", ""),  # neither
        ("((k3*mask).sum(0)/mask.sum(0)).mean()", ""),  # over the samples at each position
        ("k3.mean()", ""),
        ("k3.sum(1).mean()", ""),
    ],
)


@LEVEL_OF_CODE
def test_a_masked_sum_says_the_level_and_how_tokens_are_added_up(typed: str, aggregate: str) -> None:
    notes = [note for note in read_loss(typed).notes if note.code == "tokens-added-up"]
    assert [note.values["aggregate"] for note in notes] == ([aggregate] if aggregate else [])
    answer, level = explain(typed), "token" if aggregate else "sample"
    assert (answer.setting.level, answer.setting.aggregate or "") == (level, aggregate)
    assumed = f"assumed: level='token' aggregate='{aggregate}'"
    assert (assumed in answer.text(full=True)) == bool(aggregate)
    for choice in ("sum", "mean", "batch") * bool(aggregate):
        other = explain(typed, level="token", aggregate=choice)
        assert (other.setting.level, other.setting.aggregate) == ("token", choice)
        assert ("explains what that changes" in other.text(full=True)) == (choice != aggregate)
        assert explain(typed, aggregate=choice).setting == other.setting  # the level is that of the code


@pytest.mark.parametrize("options", [{"level": "sequence"}, {"level": "sample"}, {"use": "reward"}])
@LEVEL_OF_CODE
def test_another_level_that_was_typed_stays(typed: str, aggregate: str, options: dict[str, str]) -> None:
    answer = explain(typed, **options)
    assert answer.setting.level == options.get("level", "sample")
    explained = f"level='token' aggregate='{aggregate}' explains what that changes"
    assert (explained in answer.text(full=True)) == bool(aggregate)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("masked_mean(ratio*k3, mask)", "(rho*k3*mask).sum()/mask.sum()", True),
        ("masked_mean(ratio*k3, mask)", "(rho*k3*mask).sum(-1).mean()", False),
        ("masked_mean(k3, mask)", "masked_mean(ratio*k3, mask)", True),
        ("masked_mean(k3, mask)", "k2", True),
    ],
)
def test_losses_of_code_are_compared_at_their_own_levels(one: str, other: str, together: bool) -> None:
    compared = compare(one, other)
    assert bool(compared.settings) != together
    if together:
        assert (compared.setting.level, compared.setting.aggregate) == ("token", "batch")
    assert compared.setting.sampling == ("off-policy" if "ratio" in one + other else "on-policy")


# ---------------------------------------------------------------------------- two levels in one loss
KEPT_TOKENS = "mean() without the mask is over the tokens that the mask keeps"


@pytest.mark.parametrize(
    ("code", "aggregate"),
    [
        ("(k3*mask).sum()/mask.sum() + k2.mean()", "batch"),
        ("masked_mean(k3, mask) + k2.mean()", "batch"),
        ("per = (k3*mask).sum(-1)/mask.sum(-1); (per + k2.mean(-1)).mean()", "mean"),
    ],
)
def test_a_mean_without_the_mask_is_said_to_be_over_the_kept_tokens(code: str, aggregate: str) -> None:
    notes = {note.code: note.values for note in read_loss(code).notes}
    assert notes["settings-assumed"]["conditions"] == (KEPT_TOKENS,)
    assert notes["tokens-added-up"]["aggregate"] == aggregate
    assert f"assumed: {KEPT_TOKENS}" in " ".join(str(explain(code)).split())


@pytest.mark.parametrize(
    "code",
    [
        "k3.mean() + k2.mean()",
        "((k3*mask).sum(-1)/mask.sum(-1)).mean()",
        "(k3*mask).sum()/mask.sum() - R.mean()",
        "lengths = mask.sum(-1); (k3*mask).sum()/lengths.sum()",
    ],
)
def test_means_of_one_level_assume_nothing(code: str) -> None:
    assert "settings-assumed" not in [note.code for note in read_loss(code).notes]


@pytest.mark.parametrize(
    "code",
    [
        "((k3*mask).sum(-1)/mask.sum(-1)).mean() + k2.mean()",
        "(k3*mask).sum()/mask.sum() + ((k2*mask).sum(-1)/mask.sum(-1)).mean()",
        "masked_mean(k3, mask) + masked_mean(k2, mask, -1).mean()",
    ],
)
def test_means_over_a_sequence_and_over_all_tokens_are_refused(code: str) -> None:
    with pytest.raises(UsageError, match="each sequence beside one over all tokens"):
        read_loss(code)
