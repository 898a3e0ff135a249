"""The answers to questions of public threads: what is said is what klsym answers, word for word."""

import json
import re
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
