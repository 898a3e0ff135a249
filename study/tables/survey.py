"""What released packages do with a KL: what `make survey` has read, and what their documentation says of it.

The rows are stored data: `benchmarks/survey.py` downloads the releases, audits their own code, and writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from klsym.language.convert import is_in_core
from klsym.language.parser import parse
from klsym.notation.combination import format_combination, format_objective_latex
from klsym.study.tables.losses import OFF, ON, build_gradient, cite_quote
from klsym.study.tables.writing.ledger_lookup import find_equation
from klsym.study.tables.writing.table import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    build_text,
    join_cells,
    math,
    words,
)

STORED = Path(__file__).with_name("survey.json")
CAPTION = build_text(
    "What the code of released packages targets at one token, and what its documentation says. Their own"
    r" lines were traced and confirmed by autograd; $r = p/q$, $\rho = q/\mu$ off-policy,"
    r" $q/\mathrm{sg}(q)$ on-policy. Inside: inside the clip range. Said: what the documentation says, in our"
    " words, and whether it is so; silent: nothing on gradients or bias. On and off:"
    r" with samples of $q$ and of $\mu$; weighted: with samples of $\mu$ and the ratio $\rho$ by which the"
    " policy loss multiplies the whole reward."
)
COLUMNS = (
    Column("code", words("lines, options"), 0.11),
    Column("formula", words("formula"), 0.18),
    Column("loss", words("as a loss"), 0.142),
    Column("reward", words("in the reward"), 0.142),
    Column("said", words("said"), 0.1995),
    Column("claim", words("claim"), 0.108),
)
LONGEST = 90  # characters of the LaTeX of an objective that is kept
WIDEST = 60  # of one mean in it, which is not broken over lines
OTHERS = {
    "zero": "nothing",
    "f-divergence": "neither KL",
    "own-mean": "neither KL",
    "objective": "neither KL",
    "no-objective": "no objective",
    "open": "open",
}
TIMES = re.compile(r"(?<!\*)\*(?!\*)|(?<=\))/(?=\w)")  # where a formula may be broken
KNOWN = ("reverse-kl", "forward-kl", "combination")
SHOWN = {  # off: with samples of mu; weighted: and with the ratio of the policy loss
    "loss": {"on": ON, "off": OFF},
    "reward": {"on": ON, "off": OFF, "weighted": f"{OFF} weighted"},
}
HOLDS = {"yes": "so it is", "inside the bounds": "inside the bounds only", "no": "not so"}


@cache
def stored() -> tuple[dict[str, Any], ...]:
    """The rows as they were written.

    >>> {row["package"] for row in stored()} >= {"verl", "openrlhf", "trl"}
    True
    """
    return tuple(json.loads(STORED.read_text(encoding="utf-8")))


def table() -> Table:
    """One row for each code and choice of options.

    >>> len(table().rows) == len(stored())
    True
    """
    return Table("survey", CAPTION, COLUMNS, tuple(map(_build_row, stored())), size="scriptsize")


def _build_row(row: Mapping[str, Any]) -> Row:
    group = f"{row['package']} {row['version']}, {row['file'].rpartition('/')[2]}, in the {row['place']}"
    if "refused" in row:
        refused = words(f"not read: {row['refused'].partition(': ')[2].rstrip(' :')}")
        cells = (_place(row), refused, NONE, NONE, _show_statements(row), NONE)
        return Row(cells, (row["package"], "not read"), group)
    loss = parse(row["expression"], list_parameters(row))
    quoted = find_equation(build_gradient(loss, ON, "loss")) if is_in_core(loss) else None
    aims = (
        _show_targets({name: row["verdicts"].get(f"{use} {key}") for name, key in shown.items()})
        for use, shown in SHOWN.items()
    )
    tags = (row["package"], f"{row['package']}-{row['version']}")
    return Row(
        (
            _place(row),
            words(TIMES.sub(r" \g<0> ", row["expression"])),
            *aims,
            _show_statements(row),
            cite_quote(quoted),
        ),
        tags,
        group,
    )


def list_parameters(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The parameters of its formula."""
    return tuple(row["free"].values())


def _place(row: Mapping[str, Any]) -> Cell:
    first, last = row.get("lines", (0, 0))
    lines = f"{first}-{last}" if last > first else str(first or row["code"])
    return words(", ".join([lines, *(_write_option(name, v) for name, v in row["options"].items())]))


def _write_option(name: str, value: Any) -> str:
    """A word by itself; anything else with the name of its option.

    >>> _write_option("kl_penalty", "k3+"), _write_option('getattr(self, "use_clamp", False)', True)
    ('k3+', 'use clamp: True')
    """
    last = name.split('"')[1] if '"' in name else name.rpartition(".")[2]
    return value if isinstance(value, str) else f"{last.replace('_', ' ')}: {value}"


def _show_targets(verdicts: Mapping[str, Any]) -> Cell:
    """What a term minimises with each kind of samples; what agrees with the first kind is left out."""
    if None in verdicts.values():
        return NONE
    (first, on), *others = ((name, _show_target(verdict)) for name, verdict in verdicts.items())
    differing = [words(f"; {name} ") + cell for name, cell in others if cell != on]
    return join_cells([words(f"{first} ") + on, *differing], "") if differing else on


def _show_target(verdict: Mapping[str, Any]) -> Cell:
    inside = verdict["inside"]
    if inside is None or _take_target(inside) == _take_target(verdict):
        return _show_objective(verdict)
    return words("inside: ") + _show_objective(inside)


def _take_target(verdict: Mapping[str, Any]) -> tuple[Any, ...]:
    return verdict["target"], verdict["combination"] if verdict["target"] in KNOWN else None


def _show_objective(verdict: Mapping[str, Any]) -> Cell:
    """The implied objective."""
    if verdict["target"] in KNOWN:
        objective_latex = format_objective_latex(verdict["combination"])
        return (
            math(objective_latex)
            if len(objective_latex) <= LONGEST
            else words(format_combination(verdict["combination"]))
        )
    objective_text = verdict["objective"] or ""
    if (
        verdict["target"] != "zero"
        and objective_text
        and max(map(len, objective_text.split(r"\right]"))) <= WIDEST
    ):
        return math(objective_text)
    return build_text(OTHERS[verdict["target"]])


def _show_statements(row: Mapping[str, Any]) -> Cell:
    if not row["says"]:
        return words("silent")
    return join_cells(list(_list_statements(row["says"])))


def _list_statements(says: list[dict[str, str]]) -> Iterator[Cell]:
    for statement in says:
        place = statement["where"].rpartition("/")[2].replace(".py:", ".py, ")
        judged = f"; {HOLDS.get(statement['holds'], statement['holds'])}" if statement["holds"] else ""
        yield words(f"{statement['text']} ({place}){judged}")
