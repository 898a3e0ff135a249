"""Questions that people asked of trainers in public threads, each answered by one command.

`questions.toml` holds what was asked, the threads, the command, what its verdict must be and three sentences.
Beside a wrong claim of a thread, or of an option's documentation, is the command whose answer refutes it.
docs/questions.md (`write_page`) and the notebook (`list_cells`) are made from the same rows:

    python -m klsym.study.write_up.questions docs/questions.md notebooks/14-questions-people-asked.ipynb

>>> find_question("k3-in-the-reward").verdict.target
'combination'
"""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klsym.errors import speak_of_flags
from klsym.files import write_whole

if TYPE_CHECKING:
    from klsym.api import Verdict

THREAD = "https://github.com/{}/issues/{}"  # opens pull requests too
TITLE = "What do people ask about KL penalties?"
FIRST = (
    """import klsym

klsym.notebook.draw_picture("questions")""",
    'klsym.claim("gradient.k3-loss")',
)
LAST = """## What to do in code

Write the line of a trainer as a loss, with its sampling and the place of the penalty:

```console
$ klsym explain "rho*k3" --level token --sampling off-policy
```

**Next.** [Notebook 15](15-a-real-network.ipynb) tests the theorems on a transformer."""
RESULT = (
    "**Result.** Few of the losses that people ask about have the gradient of the reverse KL. The bars count"
    " targets."
)
LEAD = r"""Users asked or discussed each of these questions in a public thread of a trainer. One command
answers it, and three sentences explain the answer. If a thread, or the documentation of an option, makes a
claim that klsym refutes, the answer shows it. Threads are summarised in our own words. $q$ is the trained
policy, $p$ the reference, $\mu$ the policy that sampled, $r = p/q$ and $\rho = q/\mu$."""


@dataclass(frozen=True)
class Ask:
    """A loss and its setting, as the keywords of `explain`."""

    loss: str
    options: Mapping[str, str]

    @cached_property
    def verdict(self) -> Verdict:
        from klsym.api import explain

        return explain(self.loss, **self.options)  # type: ignore[arg-type]

    @property
    def command(self) -> str:
        loss = self.loss if shlex.quote(self.loss) == self.loss else f'"{self.loss}"'
        options = (f"--{name} {value}" for name, value in self.options.items())
        return " ".join(["klsym explain", loss, *options])

    @property
    def call(self) -> str:
        options = (f', {name}="{value}"' for name, value in self.options.items())
        return f'klsym.explain("{self.loss}"{"".join(options)})'


@dataclass(frozen=True)
class Question(Ask):
    """One question, and what its verdict must be, in the words of `klsym explain --json`.

    wrong: what somebody said, which the verdict of `against` refutes (if None, the question's own).
    """

    id: str
    asks: str
    threads: tuple[str, ...]
    target: str
    answer: str
    combination: Mapping[str, str] | None
    wrong: str
    against: Ask | None


@cache
def load_questions() -> tuple[Question, ...]:
    """All of them, in the order of the page."""
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["question"]
    return tuple(_build_question(row) for row in rows)


def _build_question(row: dict[str, Any]) -> Question:
    against = row.pop("against", None)
    question_fields = {
        "options": {},
        "combination": None,
        "wrong": "",
        **row,
        "threads": tuple(row["threads"]),
    }
    return Question(**question_fields, against=Ask(against["loss"], against["options"]) if against else None)


def find_question(id: str) -> Question:
    """The question of this id; raises KeyError where there is none."""
    return {question.id: question for question in load_questions()}[id]


def write_page() -> str:
    """docs/questions.md: every question with its threads, its answer, its command and what that prints."""
    lines = [f"# {TITLE}", "", LEAD, ""]
    lines += [f"- [{q.asks}](#{q.id})" for q in load_questions()]
    for q in load_questions():
        lines += [
            "",
            f'<a id="{q.id}"></a>',
            "",
            f"## {q.asks}",
            "",
            _list_threads(q),
            "",
            q.answer,
            "",
            *_write_console(q),
        ]
        if q.wrong:
            place = "below" if q.against else "above"
            lines += ["", f"**A claim that the answer {place} refutes:** {q.wrong}."]
        if q.against:
            lines += ["", *_write_console(q.against)]
    return "\n".join(lines) + "\n"


def _write_console(ask: Ask) -> list[str]:
    with speak_of_flags():
        return ["```text", f"$ {ask.command}", str(ask.verdict), "```"]


def _list_threads(q: Question) -> str:
    links = (f"[{thread}]({THREAD.format(*thread.split('#'))})" for thread in q.threads)
    return f"Asked in {', '.join(links)}."


def list_cells() -> Iterator[tuple[str, str]]:
    """The cells of the notebook: "markdown" or "code", and the source."""
    yield "markdown", f"# 14. {TITLE}\n\n{RESULT}\n\n{LEAD}"
    for source in FIRST:
        yield "code", source
    for q in load_questions():
        refuted_text = f"\n\n**A claim that the answer below refutes:** {q.wrong}." if q.wrong else ""
        yield "markdown", f"## {q.asks}\n\n{_list_threads(q)}\n\n{q.answer}{refuted_text}"
        yield "code", "\n".join(_write_code(q))
    yield "markdown", LAST


def _write_code(q: Question) -> Iterator[str]:
    yield f"answer = {q.call}"
    yield f'assert (answer.target, answer.trust) == ("{q.target}", "{q.verdict.trust}")'
    if q.combination is not None:
        yield f"assert answer.gradient.multiples == {dict(q.combination)}".replace("'", '"')
    yield "print(answer)"
    if q.against is not None:
        yield f"\nother = {q.against.call}"
        yield f'assert other.target == "{q.against.verdict.target}" != answer.target'
        yield "print(other)"


def make_notebook(cells: Iterator[tuple[str, str]]) -> Any:
    """A notebook of these cells, without outputs: `notebooks/regenerate.py` runs it."""
    from nbformat import v4

    make = {"markdown": v4.new_markdown_cell, "code": v4.new_code_cell}
    return v4.new_notebook(
        cells=[make[kind](source, id=f"cell-{n}") for n, (kind, source) in enumerate(cells, start=1)]
    )


if __name__ == "__main__":
    import nbformat

    write_whole(Path(sys.argv[1]), write_page())
    write_whole(Path(sys.argv[2]), nbformat.writes(make_notebook(list_cells())) + "\n")
