"""The gallery of trainers' losses: the stored answers are what klsym answers, and what enumeration says.

`make trainers` settles all of them again and judges each by the literal oracle; here a share of both.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import klsym
from klsym.language.parser import parse
from klsym.render.objective import write_objective_latex
from klsym.study.tables.trainers import Trainer, settled, stored, trainer, trainers
from klsym.study.write_up.gallery import list_cells
from support.judges.loss_judge import examine
from support.judges.loss_worlds import options
from support.losses.random_losses import Case

HERE = Path(__file__).parents[3]

SOURCE = re.compile(
    r"[\w.-]+/[\w.-]+@(?:[0-9a-f]{12}|v\d+\.\d+\.\d+) \S+: |arXiv:\d{4}\.\d{5}|TRL documentation, "
)
SETTLED = (  # a few seconds in all
    "deepspeed-chat-ppo", "trl-ppo-k3", "slime-reinforce-pp-baseline", "tinker-kl", "trl-rloo",
    "trl-rloo-later", "dr-grpo", "trl-dr-grpo", "verl-k3-plus", "gspo", "gspo-token",
    "verl-cispo", "prime-rl", "kimi", "gkd", "openrlhf-kd", "reinforce-pp",
)  # fmt: skip
JUDGED = ("gkd", "openrlhf-kd", "trl-rloo-clip", "gspo", "gspo-token", "prime-rl", "reinforce-pp")
WRITTEN_OUT = {  # for the oracle, which knows full(..) alone
    "full_kl(q, p)": "full(k1)", "full_kl(p, q)": "full(-r*k1)",
    "js(q, p)": "full(-log((1 + r)/2)*(1 + r)/2 - r*k1/2)",
}  # fmt: skip


def case_of(one: Trainer) -> Case:
    options = {"sampling": "on-policy", "use": "loss", **one.options}
    loss = one.loss
    for short, long in WRITTEN_OUT.items():
        loss = loss.replace(short, long)
    assert parse(loss) == parse(one.loss)
    return Case(loss, options.pop("sampling"), options.pop("use"), ring=False, **options)


@pytest.mark.parametrize("id", SETTLED)
@pytest.mark.share(3)
def test_the_stored_answer_is_what_klsym_answers(id: str) -> None:
    assert settled(trainer(id)) == stored()[id]


def test_no_answer_is_longer_than_a_screen() -> None:
    longest = max(stored().values(), key=lambda answer: answer["lines"])
    assert 10 < longest["lines"] <= 12  # a test that sees no long answer sees nothing


@pytest.mark.parametrize("id", JUDGED)
@pytest.mark.share(3)
def test_enumeration_agrees(id: str) -> None:
    outcome = examine(case_of(trainer(id)))
    assert not outcome.complaints, outcome


@pytest.mark.parametrize("id", [*JUDGED, "slime-reinforce-pp", "trl-rloo", "slime-tis"])
@pytest.mark.share(3)
def test_autograd_agrees(id: str) -> None:
    pytest.importorskip("torch")
    from support.judges.autograd_trees import AGREE, misfit

    case = case_of(trainer(id))
    answer = klsym.explain(case.text, **options(case)).to_json()
    assert misfit(case, answer) < AGREE
    wrong = {**answer, "gradient": {**answer["gradient"], "coefficient": "1.001*(k1_now*s_now)"}}
    assert misfit(case, wrong) > 1e-3 or case.level == "sequence"


def test_each_row_has_an_answer() -> None:
    answered = {one.id for one in trainers()}
    assert answered == {*stored()} and len(answered) == len(trainers()) >= 25
    assert all(SOURCE.search(one.source) for one in trainers())
    assert not [id for id, answer in stored().items() if answer["target"] == "open"]


@pytest.mark.parametrize(
    ("id", "right", "wrong"),
    [
        ("gspo-token", "-sg(exp(whole(log_q - log_mu)/T))", "-sg(exp(whole(log_q - log_mu)))"),
        ("prime-rl", "beta*(log_q - log_mu)", "beta*(log_mu - log_q)"),
        ("trl-rloo-later", "log_mu - log_p", "k1"),
        ("slime-reinforce-pp", "togo(R - beta*k1)", "(R - beta*k1)"),
        ("trl-ppo-k3", "k3", "k1"),
        ("verl-gpg", "-A*log_q", "-rho*A"),
    ],
)
def test_a_neighbour_has_another_answer(id: str, right: str, wrong: str) -> None:
    one = trainer(id)
    assert right in one.loss
    other = klsym.explain(one.loss.replace(right, wrong), **one.options)  # type: ignore[arg-type]
    found = klsym.explain(one.loss, **one.options)  # type: ignore[arg-type]
    assert (other.gradient.canonical_text, write_objective_latex(other)) != (
        found.gradient.canonical_text,
        write_objective_latex(found),
    )


@pytest.mark.parametrize("id", ["gspo", "gspo-token"])
def test_gspo_has_one_objective_where_no_bound_binds(id: str) -> None:
    """E_mu[-A rho^(1/T)]: of the sequence, and of each token with a detached ratio, over T."""
    told = klsym.explain("-exp(whole(log_q - log_mu)/T)*A", sampling="off-policy", level="sequence")
    one = klsym.explain(trainer(id).loss, **trainer(id).options)  # type: ignore[arg-type]
    if id == "gspo-token":
        assert one.objective.quantity is not None and told.objective.quantity is not None
        assert (one.objective.quantity.side, one.trust) == (told.objective.quantity.side, "kernel")
    else:
        assert one.gradient.inside_clamps is not None
        assert one.gradient.inside_clamps.complete == told.gradient.complete


def test_the_notebook_has_the_generated_cells() -> None:
    stored_cells = json.loads((HERE / "notebooks/17-losses-of-trainers.ipynb").read_text(encoding="utf-8"))[
        "cells"
    ]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in stored_cells] == list(list_cells())
