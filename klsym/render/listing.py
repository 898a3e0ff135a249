"""Lists under a heading, tables and counterexamples as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import Any, NamedTuple

from klsym.language.messages import Message
from klsym.notation.hypotheses import OVER_T
from klsym.notation.text import show_interval
from klsym.render.sentences import write_sentence

MAX_LISTED = 4  # hypotheses of one kind that are listed one by one in text; JSON has them all
JOINED = {
    "means-exist": "over_t",
    "ends": "",
    "exists": "over_t",
    "away": "at",
    "off": "at",
    "apart": "at",
}  # what they share
MANY = {
    "exchange": "grad and E may be exchanged in the {} means whose gradient a step takes (dominated"
    " derivative near theta; JSON names each)",
    "exists": f"the {{}} other means that steps name exist{OVER_T} (JSON names each)",
}


def format_list(title: str, items: tuple[str, ...]) -> list[str]:
    return ["", title, *(f"  - {item}" for item in items)] if items else []


def combine_hypotheses(assumptions: Sequence[Message]) -> tuple[str, ...]:
    """Return the hypotheses as sentences; many of one kind become one sentence.

    That sentence assumes all of those that it replaces: that means exist, or that grad may pass into them.
    """
    counts = Counter(message.code for message in dict.fromkeys(assumptions))
    joint_sentences = {
        code: template.format(counts[code]) for code, template in MANY.items() if counts[code] > MAX_LISTED
    }
    return tuple(
        dict.fromkeys(
            joint_sentences.get(x.code) or write_sentence(x) for x in _combine_messages(assumptions)
        )
    )


def _combine_messages(assumptions: Sequence[Message]) -> Iterator[Message]:
    """Combine messages of one kind; drop supports that the existence of means already includes."""
    groups: dict[Any, list[Message]] = {}
    for message in dict.fromkeys(assumptions):
        shared = message.values.get(JOINED.get(message.code, ""))
        key = (message.code, shared) if message.code in JOINED else message
        groups.setdefault(key, []).append(message)
    required_pairs = {pair for x in assumptions for pair in x.values.get("supports", ())}
    for group in groups.values():
        first, values = group[0], group[0].values
        if len(group) > 1:
            yield Message(first.code, **_combine_values(group))
        elif first.code != "support" or (values["first"], values["second"]) not in required_pairs:
            yield first


def _combine_values(group: Sequence[Message]) -> dict[str, Any]:
    """Return the values of one message in place of several of one code, such as: E_q[a], E_q[b] exist."""
    code, values = group[0].code, [message.values for message in group]
    if code == "means-exist":
        return {**values[0], "supports": tuple(dict.fromkeys(pair for x in values for pair in x["supports"]))}
    if code == "ends":
        return {"of": " and ".join(x["of"] for x in values)}
    name = "of" if code == "exists" else "element"
    return {**values[0], name: tuple(x[name] for x in values)}


def align_columns(rows: Sequence[Sequence[str]], left: int | None = None) -> Iterator[str]:
    """Iterate over the lines of a table without its empty columns; the first `left` columns flush left.

    >>> list(align_columns([["a", "", "1"], ["bb", "", "10"]], left=1))
    ['a    1', 'bb  10']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            text.ljust(width) if left is None or i < left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
            if width
        ]
        yield "  ".join(cells).rstrip()


def list_model_lines(witness: dict[str, Any]) -> list[str]:
    """Return the lines of a counterexample, and the values of the two sides in it."""
    if "tree" in witness:
        at = "".join(ascii_lowercase[branch] for branch in witness.get("path", ()))
        lines = [*_list_tree_lines(witness["tree"]), *([f"  at the sequence {at}"] if at else [])]
    else:
        lines = [f"  {n:<3} = ({', '.join(witness[n])})" for n in ("q", "p", "mu", "old") if n in witness]
        along = [f"{n} = ({', '.join(witness[n])})" for n in ("u", "v") if n in witness]
        lines += [f"  along the logit direction{'s' * (len(along) - 1)} {' and '.join(along)}"]
        lines += [f"  {n:<3} = ({', '.join(v)})" for n, v in witness.get("rewards", {}).items()]
    parameters = ", ".join(f"{n} = {v}" for n, v in witness.get("parameters", {}).items())
    lines += [f"  {parameters}"] if parameters else []
    if "outcome" in witness:
        lines += [f"  at outcome {witness['outcome']} (of 0 to {len(witness['q']) - 1})"]
    left, right = show_interval(witness["left"]), show_interval(witness["right"])
    return [*lines, f"  left side {left}, right side {right}"]


def _list_tree_lines(tree: dict[str, Any]) -> list[str]:
    """Return the lines of a tree, after a line on how to read it."""
    table = list_tree_rows(tree)
    return [f"  {table.caption}", *(f"  {line}" for line in align_columns([table.head, *table.rows]))]


class ModelTable(NamedTuple):
    """The probabilities of a counterexample; caption: how to read them, or empty."""

    head: list[str]
    rows: list[list[str]]
    caption: str


def list_tree_rows(tree: dict[str, Any]) -> ModelTable:
    """Return the table of a tree, with one row for each prefix after which a token is drawn.

    >>> leaf = {"q": ["1/2", "1/2"], "u": ["1", "0"], "next": [None, None]}
    >>> list_tree_rows({**leaf, "next": [leaf, None]})[:2]
    (['after', 'q', 'u'], [['start', '1/2, 1/2', '1, 0'], ['a', '1/2, 1/2', '1, 0']])
    """
    names = [name for name in ("q", "p", "mu", "old", "R", "A", "M", "T", "u", "v") if name in tree]
    rows: list[list[str]] = []

    def walk(prefix: str, node: dict[str, Any]) -> None:
        rows.append([prefix or "start", *(", ".join(node[name]) for name in names)])
        for token, after in zip(ascii_lowercase, node["next"], strict=False):
            if after is not None:
                walk(prefix + token, after)

    walk("", tree)
    tokens = ", ".join(ascii_lowercase[: len(tree["q"])])
    caption = f"next token {tokens}; a sequence ends after a prefix that is not listed"
    return ModelTable(["after", *names], rows, caption)
