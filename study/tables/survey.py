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
from klsym.study.tables.losses import OFF, ON, claims, field
from klsym.study.tables.writing.ledger_lookup import about
from klsym.study.tables.writing.table import NONE, Cell, Column, Row, Table, listed, math, text, words

STORED = Path(__file__).with_name("survey.json")
CAPTION = text(
    "What the code of released packages targets at one token, and what its documentation says. Their own"
    r" lines were traced and confirmed by autograd; $r = p/q$, $\rho = q/\mu$ off-policy,"
    r" $q/\mathrm{sg}(q)$ on-policy. Inside: where no bound binds. Said: what the documentation says, in our"
    " words, and whether it is so; silent: nothing on gradients or bias. On and off:"
    r" with samples of $q$ and of $\mu$."
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
    "separable": "neither KL",
    "none": "no objective",
    "open": "open",
}
TIMES = re.compile(r"(?<!\*)\*(?!\*)|(?<=\))/(?=\w)")  # where a formula may be broken
KNOWN = ("reverse-kl", "forward-kl", "combination")
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
    return Table("survey", CAPTION, COLUMNS, tuple(map(_row, stored())), size="scriptsize")


def _row(row: Mapping[str, Any]) -> Row:
    group = f"{row['package']} {row['version']}, {row['file'].rpartition('/')[2]}, in the {row['place']}"
    if "refused" in row:
        refused = words(f"not read: {row['refused'].partition(': ')[2].rstrip(' :')}")
        cells = (_place(row), refused, NONE, NONE, _said(row), NONE)
        return Row(cells, (row["package"], "not read"), group)
    loss = parse(row["expression"], parameters(row))
    found = about(field(loss, ON, "loss")) if is_in_core(loss) else None
    aims = (_aims([row["verdicts"].get(f"{use} {w}") for w in (ON, OFF)]) for use in ("loss", "reward"))
    tags = (row["package"], f"{row['package']}-{row['version']}")
    return Row(
        (_place(row), words(TIMES.sub(r" \g<0> ", row["expression"])), *aims, _said(row), claims(found)),
        tags,
        group,
    )


def parameters(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The parameters of its formula."""
    return tuple(row["free"].values())


def _place(row: Mapping[str, Any]) -> Cell:
    first, last = row.get("lines", (0, 0))
    lines = f"{first}-{last}" if last > first else str(first or row["code"])
    return words(", ".join([lines, *(_option(name, v) for name, v in row["options"].items())]))


def _option(name: str, value: Any) -> str:
    """A word by itself; anything else with the name of its option.

    >>> _option("kl_penalty", "k3+"), _option('getattr(self, "use_clamp", False)', True)
    ('k3+', 'use clamp: True')
    """
    last = name.split('"')[1] if '"' in name else name.rpartition(".")[2]
    return value if isinstance(value, str) else f"{last.replace('_', ' ')}: {value}"


def _aims(verdicts: list[Any]) -> Cell:
    """On-policy, then off-policy."""
    if None in verdicts:
        return NONE
    on, off = map(_aim, verdicts)
    return on if on == off else words("on ") + on + words("; off ") + off


def _aim(verdict: Mapping[str, Any]) -> Cell:
    inside = verdict["inside"]
    if inside is None or _named(inside) == _named(verdict):
        return _objective(verdict)
    return words("inside: ") + _objective(inside)


def _named(verdict: Mapping[str, Any]) -> tuple[Any, ...]:
    return verdict["target"], verdict["combination"] if verdict["target"] in KNOWN else None


def _objective(verdict: Mapping[str, Any]) -> Cell:
    """The implied objective."""
    if verdict["target"] in KNOWN:
        shown = format_objective_latex(verdict["combination"])
        return math(shown) if len(shown) <= LONGEST else words(format_combination(verdict["combination"]))
    aim = verdict["objective"] or ""
    if verdict["target"] != "zero" and aim and max(map(len, aim.split(r"\right]"))) <= WIDEST:
        return math(aim)
    return text(OTHERS[verdict["target"]])


def _said(row: Mapping[str, Any]) -> Cell:
    if not row["says"]:
        return words("silent")
    return listed(list(_statements(row["says"])))


def _statements(says: list[dict[str, str]]) -> Iterator[Cell]:
    for one in says:
        place = one["where"].rpartition("/")[2].replace(".py:", ".py, ")
        judged = f"; {HOLDS.get(one['holds'], one['holds'])}" if one["holds"] else ""
        yield words(f"{one['text']} ({place}){judged}")
