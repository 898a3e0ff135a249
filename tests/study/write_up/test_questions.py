"""The answers to questions of public threads: what is said is what klsym answers, word for word."""

import json
import re
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path

import pytest

from klsym.study.write_up.questions import find_question, list_cells, load_questions, write_page

HERE = Path(__file__).parents[3]
THREAD = re.compile(r"[\w-]+/[\w.-]+#\d+")
ALL = [question.id for question in load_questions()]


@pytest.mark.parametrize("id", ALL)
@pytest.mark.share(3)
def test_the_verdict_is_what_the_answer_rests_on(id):
    question = find_question(id)
    told = question.verdict.to_json()["gradient"]
    assert told["target"] == question.target
    assert question.combination is None or told["combination"] == question.combination


@pytest.mark.parametrize("id", [id for id in ALL if find_question(id).against])
def test_what_is_refuted_by_another_command_has_another_answer(id):
    question = find_question(id)
    other = question.against.verdict
    assert other.to_json()["gradient"] != question.verdict.to_json()["gradient"]
    assert other.trust == "kernel" and other.counterexample.model is not None


@pytest.mark.parametrize("id", ALL)
def test_an_answer_is_three_sentences_under_its_threads(id):
    question = find_question(id)
    assert len(re.findall(r"[.](?:\s|$)", question.answer)) == 3
    assert question.threads and all(THREAD.fullmatch(thread) for thread in question.threads)
    assert question.asks.endswith("?") and not question.wrong.endswith(".")


def test_ids_are_unique_and_threads_many():
    assert len(set(ALL)) == len(ALL)
    assert len({thread for question in load_questions() for thread in question.threads}) >= 12


def test_an_unknown_question_is_refused():
    with pytest.raises(KeyError):
        find_question("k4")


def test_the_page_is_generated():
    assert (HERE / "docs" / "questions.md").read_text(encoding="utf-8") == write_page()


def test_the_notebook_has_the_generated_cells():
    stored = json.loads((HERE / "notebooks/14-questions-people-asked.ipynb").read_text(encoding="utf-8"))
    shown = [(cell["cell_type"], "".join(cell["source"])) for cell in stored["cells"]]
    assert shown == list(list_cells())


def list_groups(n, p):
    """Each outcome of n rewards of 0 or 1, its probability, and mean((h - mean h)*s) with s = d log q/dp."""
    for rewards in product((0, 1), repeat=n):
        ones = Fraction(sum(rewards))
        chance = p**ones.numerator * (1 - p) ** (n - ones.numerator)
        update = sum((h - ones / n) * (1 / p if h else -1 / (1 - p)) for h in rewards) / n
        yield ones, chance, update


@pytest.mark.parametrize(("n", "groups", "p"), [(2, 3, "1/3"), (3, 2, "2/5"), (4, 2, "3/4"), (2, 4, "1/2")])
def test_the_share_of_informative_groups_multiplies_the_expected_update(n, groups, p):
    """What docs/questions.md says of GPG, by enumeration; without the power it is wrong."""
    rows = list(list_groups(n, Fraction(p)))
    informative = sum(chance for ones, chance, _ in rows if 0 < ones < n)
    alone = sum(chance * update for _, chance, update in rows)
    total = Fraction(0)
    for batch in product(rows, repeat=groups):
        kept = sum(0 < ones < n for ones, _, _ in batch)
        share = Fraction(groups, max(kept, 1))
        total += prod(chance for _, chance, _ in batch) * share * sum(u for _, _, u in batch) / groups
    assert total == (1 - (1 - informative) ** groups) / informative * alone
    assert total != alone / informative and "(1 - (1 - u)^N)/u" in find_question("gpg-alpha").answer


@pytest.mark.parametrize(("n", "p"), [(2, "1/3"), (3, "2/5"), (5, "3/4")])
def test_counting_rewards_in_one_group_is_the_loss_of_maxrl(n, p):
    """bsz/count_nonzero(scores) is 1/mean(h): the update is the slope of -sum_k (1 - p)**k/k to n - 1."""
    p = Fraction(p)
    total = sum(chance * update * n / ones for ones, chance, update in list_groups(n, p) if ones)
    assert total == sum((1 - p) ** (k - 1) for k in range(1, n))
