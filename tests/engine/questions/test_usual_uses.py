"""compare of two losses that their names use with different options."""

from __future__ import annotations

import json
import shlex

import pytest

from klsym.engine.answers.named_losses import read_question
from klsym.engine.explain import explain_in_setting
from klsym.engine.questions.usual_uses import read_uses
from support.commands import Out, run

pytestmark = pytest.mark.usefixtures("without_copies")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            "compare dapo dr_grpo",
            ("No theorem compares losses with such different options", "a token weighs n/(T_1 + .. + T_n)",
             "dr_grpo: loss of whole sequences, on-policy; the loss of a sequence is not divided by its"),
        ),
        ("compare grpo dr_grpo", ("1/T, so that all sequences weigh the same", "divided by T")),
        ("compare grpo ppo", ("Different objectives", "proved", "gradient different on average and at")),
        ("compare ppo reinforce", ("reinforce: loss of whole sequences, on-policy", "maximises E_q[R]")),
    ],
)  # fmt: skip
def test_losses_that_their_names_use_differently_are_shown_with_the_options_of_each(
    words: str, shown: tuple[str, ...], capsys: Out
) -> None:
    code, out, err = run(capsys, *shlex.split(words))
    text = " ".join(out.split())
    assert (code, err) == (0, "") and all(part in text for part in shown)
    assert len(out.splitlines()) <= 12


def test_the_quotient_by_the_length_has_the_gradient_of_the_mean_over_tokens(capsys: Out) -> None:
    """What theorems compare for grpo is the loss that summed over tokens is the mean of it over them."""
    for names in (("grpo", "ppo"), ("gspo_token", "cispo")):
        uses = read_uses([read_question(name, (), {}) for name in names], {}, ["loss", "loss"])
        assert uses is not None and uses.together is not None
        settings = (uses.settings[0], uses.together)
        named = [read_question(names[0], (), {}).written, uses.pair[0]]
        first, second = map(explain_in_setting, named, settings)
        assert first.gradient.canonical_text == second.gradient.canonical_text
        assert first.gradient.target == second.gradient.target


@pytest.mark.parametrize("words", ["gpg ppo", "k1 grpo", "ppo cispo --aggregate mean"])
def test_losses_that_are_used_alike_are_compared_with_the_same_options(words: str, capsys: Out) -> None:
    code, out, _ = run(capsys, "compare", *shlex.split(words), "--json")
    assert code == 0 and "settings" not in json.loads(out)


def test_options_that_differ_are_null_and_stored_for_each_loss(capsys: Out) -> None:
    code, out, _ = run(capsys, "compare", "dapo", "grpo", "--json")
    found = json.loads(out)
    assert (code, found["aggregate"], found["level"], found["trust"]) == (0, None, "token", "open")
    assert [one["aggregate"] for one in found["settings"]] == ["batch", "mean"]
    assert found["expected_gradient"]["same"] is None
