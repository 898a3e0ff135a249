"""The cheat sheet: which way to write a KL penalty minimises what, on one page, as HTML and as PDF.

Estimator x placement x weight x sampling x level; every cell is asked of `klsym explain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import klsym
from generate.sources import write

ESTIMATORS = ("k1", "k2", "k3")
NEXT_TOKEN = re.compile(r"(reverse|forward) KL of each next token, at prefixes of (q|mu)")
SHOWN = {
    "reverse-kl": ("reverse", "KL(q‖p)"), "forward-kl": ("forward", "KL(p‖q)"), "zero": ("zero", "nothing"),
    "f-divergence": ("divergence", "another f(r)"), "combination": ("combination", "KL(q‖p) − KL(p‖q)"),
    "own-mean": ("sampler", "a mean under mu"), "objective": ("sampler", "a mean under mu"),
    "no-objective": ("sampler", "no objective"),
}  # fmt: skip
PLAIN = {
    "reverse": "#cdeadd", "forward": "#cfe2f6", "zero": "#e4e4e0", "divergence": "#f5e6b8",
    "combination": "#f6d9c4", "sampler": "#f3cfcf", "tokens": "#e3e9c8",
}  # fmt: skip
LEGEND = (
    ("reverse", "KL(q‖p), the reverse KL of policy and reference: the usual aim"),
    ("tokens", "KLs of each next token, prefixes held fixed: no objective, or one under mu"),
    ("forward", "KL(p‖q), the forward KL"),
    ("zero", "its expected gradient is zero: noise alone"),
    ("divergence", "E_q[f(r)] with another f"),
    ("combination", "a difference of the two KLs"),
    ("sampler", "a mean under mu, no KL of q and p, or no objective at all"),
)  # fmt: skip


class Row(NamedTuple):
    """One way to use an estimator.  says: the words in front of the row."""

    says: str
    weight: str = ""
    options: Mapping[str, Any] = MappingProxyType({})


OFF = {"sampling": "off-policy"}
TOKEN = {"level": "token"}
REWARD = {"use": "reward"}
BLOCKS: tuple[tuple[str, tuple[Row, ...]], ...] = (
    ("Whole responses, samples from the policy q", (
        Row("in the loss"), Row("in the loss, times rho (1 in value)", "rho"),
        Row("in the reward", "", REWARD),
    )),
    ("Whole responses, samples from an older policy mu; rho = q/mu", (
        Row("in the loss", "", OFF), Row("in the loss, times rho", "rho", OFF),
        Row("in the loss, times rho.detach()", "sg(rho)", OFF),
        Row("in the reward, no weight anywhere", "", OFF | REWARD),
        Row("in the reward, weighted once by rho", "rho", OFF | REWARD),
    )),
    ("Each token, samples from q", (
        Row("in the loss", "", TOKEN),
        Row("in the reward of its own token", "", TOKEN | REWARD | {"credit": "same-token"}),
        Row("in the returns to go", "", TOKEN | REWARD | {"credit": "to-go"}),
    )),
    ("Each token, samples from mu", (
        Row("in the loss, times the token's rho", "rho", TOKEN | OFF),
        Row("in the loss, times rho of the prefix", "rho", TOKEN | OFF | {"weights": "prefix"}),
        Row("in the returns to go, times rho of the prefix", "rho",
            TOKEN | OFF | REWARD | {"credit": "to-go", "weights": "prefix"}),
    )),
)  # fmt: skip


class Cell(NamedTuple):
    colour: str
    words: str
    command: str
    summary: str


@cache
def _sheet() -> tuple[tuple[str, tuple[tuple[str, tuple[Cell, ...]], ...]], ...]:
    """The blocks, their rows, and the cells of these."""
    return tuple(
        (title, tuple((row.says, tuple(_ask(name, row) for name in ESTIMATORS)) for row in rows))
        for title, rows in BLOCKS
    )


def _ask(estimator: str, row: Row) -> Cell:
    loss = f"{row.weight}*{estimator}" if row.weight else estimator
    verdict = klsym.explain(loss, **row.options)
    if verdict.trust != "kernel":
        raise ValueError(f"{loss} {row.options}: the sheet holds proved answers alone")
    typed = f"'{loss}'" if row.weight else loss
    command = " ".join(
        ["klsym explain", typed, *(f"--{name} {value}" for name, value in row.options.items())]
    )
    if of_tokens := NEXT_TOKEN.search(verdict.summary):
        kl = {"reverse": "KL(q‖p)", "forward": "KL(p‖q)"}[of_tokens[1]]
        return Cell("tokens", f"next-token {kl}, prefixes of {of_tokens[2]}", command, verdict.summary)
    return Cell(*SHOWN[str(verdict.target)], command, verdict.summary)


def write_cheat_sheet(into: Path, extra: Path) -> None:
    """Write the page, and the PDF among the files that are copied as they are."""
    write(into / "cheat-sheet.md", "\n".join(_page()))
    draw(extra / "klsym-cheat-sheet.pdf")


def _page() -> Iterator[str]:
    yield from ("# Cheat sheet: what a KL penalty minimises", "")
    yield (
        "q is the policy that is trained, p the reference, mu the policy that the samples come from;"
        " k1 = log q − log p, k2 = k1²/2, k3 = r − 1 − log r with r = p/q. ✓ marks the reverse KL. Each cell"
        " is proved, and shows its command where the pointer rests."
        ' <a href="klsym-cheat-sheet.pdf">The page as PDF</a>.'
    )
    yield from ("", re.sub(r"(\S*\bk[123])", r"`\1`", recommended()) + ".")
    yield from ("", "`````{raw} html", '<div class="cheat-sheet">', '<table class="map">')
    head = "".join(f'<th scope="col"><code>{name}</code></th>' for name in ESTIMATORS)
    yield f"<thead><tr><th></th>{head}</tr></thead>"
    for title, rows in _sheet():
        yield f'<tbody><tr><th scope="rowgroup" colspan="{len(ESTIMATORS) + 1}">{escape(title)}</th></tr>'
        for says, cells in rows:
            yield f'<tr><th scope="row">{escape(says)}</th>{"".join(map(_cell, cells))}</tr>'
        yield "</tbody>"
    keys = (f'<li><span class="{colour}">&nbsp;</span> {escape(words)}</li>' for colour, words in LEGEND)
    yield from ("</table>", f'<ul class="map-legend">{"".join(keys)}</ul>', "</div>", "`````")


def _cell(cell: Cell) -> str:
    mark = "✓ " if cell.colour == "reverse" else ""
    title = escape(f"{cell.command}: {cell.summary}")
    return f'<td class="{cell.colour}" title="{title}">{mark}{escape(cell.words)}</td>'


def draw(path: Path) -> None:
    """Draw the sheet on a page of A4, upright."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.27, 11.69))
    axes = figure.add_axes((0.05, 0.03, 0.9, 0.94))
    axes.set_axis_off()
    lines = sum(1 + len(rows) for _, rows in _sheet())
    axes.set(xlim=(0, 10), ylim=(lines + 10, -2.4))
    axes.text(0, -1.7, "What a KL penalty minimises", size=17, weight="bold", va="center")
    axes.text(
        0,
        -0.9,
        "q: policy, p: reference, mu: sampler; r = p/q, rho = q/mu; k1 = −log r, k2 = k1²/2, k3 = r−1−log r",
        size=8.5,
        va="center",
        color="#444",
    )
    for column, name in enumerate(ESTIMATORS):
        axes.text(
            4.6 + 1.9 * column,
            -0.1,
            name,
            size=11,
            weight="bold",
            ha="center",
            va="center",
            family="monospace",
        )
    y = 0.0
    for title, rows in _sheet():
        axes.text(0, y + 0.65, title, size=9.5, weight="bold", va="center")
        y += 1
        for says, cells in rows:
            axes.text(0.1, y + 0.5, says, size=7.8, va="center")
            for column, cell in enumerate(cells):
                _draw_cell(axes, 3.7 + 1.9 * column, y, cell)
            y += 1
    for number, (colour, words) in enumerate(LEGEND):
        axes.add_patch(_box(0, y + 0.9 + 0.75 * number, 0.5, 0.5, colour))
        axes.text(0.7, y + 1.15 + 0.75 * number, words, size=8, va="center")
    axes.text(0, y + 6.8, recommended(), size=8.5, weight="bold", va="center")
    axes.text(
        0,
        y + 7.6,
        f"Each cell is proved: klsym {klsym.__version__}, klsym explain LOSS --proof",
        size=8,
        va="center",
        color="#444",
    )
    figure.savefig(path, metadata={"CreationDate": None, "Title": "What a KL penalty minimises"})


def recommended() -> str:
    """Say what to write for the reverse KL.

    >>> recommended()
    'For KL(q‖p) write on-policy k2 in the loss or k1 in the reward; off-policy rho*k3 in the loss or rho*k1 in the reward'
    """  # noqa: E501
    parts = []
    for sampling in ("on-policy", "off-policy"):
        losses = (
            f"{klsym.recommend('reverse-kl', sampling, use).choices[0].loss} in the {use}"
            for use in ("loss", "reward")
        )
        parts.append(f"{sampling} {' or '.join(losses)}")
    return f"For KL(q‖p) write {'; '.join(parts)}"


def _draw_cell(axes: Any, x: float, y: float, cell: Cell) -> None:
    axes.add_patch(_box(x + 0.03, y + 0.05, 1.84, 0.9, cell.colour))
    is_right = cell.colour == "reverse"
    words = ("✓ " if is_right else "") + cell.words.replace(", prefixes", ",\nprefixes")
    size = 6.6 if len(cell.words) > 20 else 8.5
    axes.text(
        x + 0.95, y + 0.5, words, size=size, ha="center", va="center", weight="bold" if is_right else "normal"
    )


def _box(x: float, y: float, width: float, height: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=PLAIN[colour], edgecolor="none")
