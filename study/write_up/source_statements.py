"""docs/sources.md: each statement of the five sources, and the claim or table that settles it.

    python -m klsym.study.write_up.source_statements docs/sources.md

`source_statements.toml` holds the statements in our own words; the ledger holds the claims.

>>> next(row.settled_by for row in load_statements() if row.answer == "refuted")
('beyond.sign-probability',)
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from klsym.files import write_whole
from klsym.study.ledger.stored import entries
from klsym.study.tables.catalogue import NAMES
from klsym.study.write_up.bibliography import SOURCES, describe_source

STATEMENTS = Path(__file__).with_suffix(".toml")
FIVE = ("RE", "SH", "TM", "WZ1", "WZ2")
HOWS = {"general": "in general", "family": "on a family", "model": "on a model", "none": "not at all"}
ANSWERS = ("holds", "in part", "refuted", "answered", "not reproduced", "open")
TABLE = "table:"  # begins the name of a table in settled_by
LEAD = """# What the sources say, and what settles it

klsym started from five texts. This page lists {count} of their statements in our own words, each with the
claims and tables that prove, refute or test it. For {open} of them klsym has no answer. `klsym claims ID`
shows a claim with its hypotheses, and `klsym tables NAME` makes a table.

`q` is the trained policy, `p` the reference, `mu` the policy of the off-policy samples, `r = p/q`,
`rho = q/mu`, and `s` is the gradient of `log q`. The reverse KL is `KL(q||p)`, whatever a source calls it.
"Loss" means that the penalty is differentiated at each sample, "in the reward" that it is detached and
multiplies the score.

| word | meaning |
| --- | --- |
| holds | the statement is right |
| in part | it is right under a condition, or a part of it is settled; the note names which |
| refuted | it is false as printed, or as we read it |
| answered | the source asks, and the claim answers |
| not reproduced | a published experiment, run again on a small model, has another result |
| open | no claim settles it |
| in general | by a claim for all policies that meet its hypotheses, as proved by the kernel or by SymPy |
| on a family | by a claim for a family of policies, such as Gaussians |
| on a model | by a counterexample, a computed experiment or the releases that were read |
| not at all | by nothing |

A counterexample proves "is not equal" completely. If a claim is marked (refuted), klsym refutes its formula,
for example that two gradients are equal. (corrected) means that klsym refutes the printed form and proves the
correct one. Statements about language models remain open, because klsym trains none. Of SH, we read the
abstract and the public reviews, but not the paper.
"""


@dataclass(frozen=True)
class Statement:
    """One statement of a source.  settled_by: ids of claims, and names of tables after `table:`."""

    source: str
    section: str
    says: str
    answer: str
    how: str
    settled_by: tuple[str, ...] = ()
    note: str = ""

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(name for name in self.settled_by if not name.startswith(TABLE))

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(name.removeprefix(TABLE) for name in self.settled_by if name.startswith(TABLE))


def load_statements(path: Path = STATEMENTS) -> tuple[Statement, ...]:
    """All statements, in the order of the file.  Raises ValueError: a row that its claims do not support."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["statement"]
    statements = tuple(Statement(**{**row, "settled_by": tuple(row.get("settled_by", ()))}) for row in rows)
    for statement in statements:
        for fault in find_faults(statement):
            raise ValueError(
                f"{path.name}: {statement.source} {statement.section}, {statement.says!r}: {fault}"
            )
    return statements


def find_faults(statement: Statement) -> Iterator[str]:
    """Yield what is wrong with a statement: unknown words and names, or more than its claims support."""
    allowed: dict[str, tuple[str, ...]] = {"source": FIVE, "how": (*HOWS,), "answer": ANSWERS}
    for field, words in allowed.items():
        if (word := getattr(statement, field)) not in words:
            yield f"{field} {word!r} is not one of {', '.join(words)}"
    yield from (f"the ledger has no claim {id!r}" for id in statement.claims if id not in entries())
    yield from (f"klsym has no table {name!r}" for name in statement.tables if name not in NAMES)
    if (statement.how == "none") != (statement.answer == "open"):
        yield "'open' and 'none' belong together"
    if (statement.how == "none") == bool(statement.settled_by):
        yield "a claim or table is needed, unless how is 'none', which takes none"
    answers = [_read_answer(id) for id in statement.claims if id in entries()]
    if statement.how == "general" and not any(map(_is_general, answers)):
        yield "'general' needs a claim that the kernel or SymPy proves"
    refuted = ("refuted", "corrected")
    if statement.answer == "refuted" and not any(answer["verdict"] in refuted for answer in answers):
        yield "'refuted' needs a claim that is refuted or corrected"


def _is_general(answer: Mapping[str, Any]) -> bool:
    """Is this a theorem?  A refutation is a counterexample, and a computed claim an experiment."""
    return answer["trust"] in ("kernel", "sympy") and answer["verdict"] in ("proved", "corrected", "exact")


def _read_answer(id: str) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = entries()[id]["answer"]
    return answer


# ---------------------------------------------------------------------------- the page
def write_page() -> str:
    """All of docs/sources.md."""
    statements = load_statements()
    lines = [LEAD.format(count=len(statements), open=sum(row.how == "none" for row in statements))]
    lines += ["## Counts", "", *_write_counts(statements)]
    for tag, of_source in groupby(statements, key=lambda row: row.source):
        lines += ["", f"## {tag}", "", describe_source(SOURCES[tag]), ""]
        lines += _write_table(list(of_source))
    return "\n".join(lines) + "\n"


def count_statements(statements: tuple[Statement, ...], field: str) -> Counter[tuple[str, str]]:
    """Source and word of the field -> number of statements."""
    return Counter((row.source, getattr(row, field)) for row in statements)


def _write_counts(statements: tuple[Statement, ...]) -> Iterator[str]:
    """Yield a table of the sources by how a statement is settled and by its answer."""
    columns = [("how", word) for word in HOWS] + [("answer", word) for word in ANSWERS]
    counts = {field: count_statements(statements, field) for field in ("how", "answer")}
    heads = [HOWS.get(word, word) for _, word in columns]
    yield from _write_rows(["source", "statements", *heads], [])
    for tag in FIVE:
        numbers = [counts[field][tag, word] for field, word in columns]
        yield _write_row([tag, sum(numbers) // len(counts), *numbers])
    totals = [sum(counts[field][tag, word] for tag in FIVE) for field, word in columns]
    yield _write_row(["all", len(statements), *totals])


def _write_table(statements: list[Statement]) -> Iterator[str]:
    rows = [
        [row.section, _show_words(row), row.answer, _show_names(row), HOWS[row.how]] for row in statements
    ]
    yield from _write_rows(["section", "statement", "answer", "settled by", "how"], rows)


def _show_words(statement: Statement) -> str:
    return f"{statement.says} *Note: {statement.note}.*" if statement.note else statement.says


def _show_names(statement: Statement) -> str:
    shown = [f"`{id}`{_mark_refuted(id)}" for id in statement.claims]
    shown += [f"table `{name}`" for name in statement.tables]
    return ", ".join(shown) or "–"


def _mark_refuted(id: str) -> str:
    verdict = _read_answer(id)["verdict"]
    return f" ({verdict})" if verdict in ("refuted", "corrected") else ""


def _write_rows(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield from map(_write_row, (heads, ["---"] * len(heads), *rows))


def _write_row(cells: list[Any]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


if __name__ == "__main__":
    write_whole(Path(sys.argv[1]), write_page())
