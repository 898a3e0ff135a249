r"""Sentences with formulas in them, as readings and findings are written, in LaTeX.

What reads as a formula, such as E_q[k1 s] or r <= exp(1/2), is set as one; the rest is escaped.

>>> render_prose("p << q: wherever p > 0, also q > 0")
'$p \\ll q$: wherever $p \\brk> 0$, also $q \\brk> 0$'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from klsym.errors import UsageError
from klsym.notation.printers import GREEK, Latex
from klsym.notation.reading import read
from klsym.study.write_up.tex import allow_breaks, escape

STRONG = re.compile(
    r"[\[^=<>*]|[\w']\(|_|\d[a-z]|[a-z]\d|\|\||^-?[a-zA-Z]/|/[a-zA-Z]$|^[-+]$|^[a-zA-Z]\.\w$|e-\d|'$|^\|.*\|$"
    r"|^-?\d+/[a-zA-Z(]|^\(.* [-+] .*\)$|^\(-?[\w/]+(, -?[\w/]+)+\)$"
)
WEAK = set("qprsnmuvtijxygfbdhRTW")
ALWAYS = {"grad", "k1", "k2", "k3", "kbar", "log", "sup", "theta", "pi", "lambda"} | set(GREEK)
PANEL = re.compile(r"\([a-d]\)")  # (b) of a caption
NUMBER = re.compile(r"-?[\d.]+(?:/\d+)?|-oo|[A-Za-z]|-J|KL|Var|chi2|MSE|phi|1/e")
BARE_VARIANCE = re.compile(r"\bVar (k\d)\b")  # a variance of one letter needs its brackets to be set as one
NEGATIVE = re.compile(r"-\d[\d.]*[,;:]?")
JOINS = {"+", "-", "=", "<", ">", "<<", "<=", ">=", "!=", "->", "/"}


INLINE = Latex(slashed=True)
WORDS, CODE, FORMULA = "words", "code", "formula"
Piece = tuple[str, str]  # of which kind, and what it says


def render_prose(text: str) -> str:
    """A sentence with its formulas set as such."""
    rendered_kinds = {
        WORDS: escape,
        CODE: lambda piece: rf"\texttt{{{escape(piece)}}}",
        FORMULA: lambda piece: f"${allow_breaks(INLINE(read(piece)))}$",
    }
    return "".join(rendered_kinds[kind](piece) for kind, piece in split_pieces(text))


def split_pieces(text: str) -> Iterator[Piece]:
    """A sentence cut into words, names of quantities and formulas.

    >>> list(split_pieces("q > 0, here"))
    [('formula', 'q > 0'), ('words', ','), ('words', ' '), ('words', 'here')]
    """
    words, place = _split_words(BARE_VARIANCE.sub(r"Var(\1)", text)), 0
    while place < len(words):
        if place:
            yield WORDS, " "
        runs = (
            (end, _split_core(" ".join(words[place:end]))) for end in range(_end(words, place), place, -1)
        )
        readable = ((end, core) for end, core in runs if _is_readable(core.formula))
        end, core = next(readable, (place, Core("", "", "")))
        if end > place:
            yield from (
                (kind, piece)
                for kind, piece in zip((WORDS, FORMULA, WORDS), _keep_brackets(core), strict=True)
                if piece
            )
        else:
            yield _mark_plain(words[place])
        place = max(end, place + 1)


class Core(NamedTuple):
    """A formula between the brackets and stops round it."""

    lead: str
    formula: str
    tail: str


def _split_core(run: str) -> Core:
    body = run.rstrip(",;:.")
    lead, tail = "", run[len(body) :]
    if body.startswith("(") and body.count("(") > body.count(")"):
        lead, body = "(", body[1:]
    while body.endswith(")") and body.count(")") > body.count("("):
        body, tail = body[:-1], ")" + tail
    return Core(lead, body, tail)


def _keep_brackets(core: Core) -> Core:
    """Take the brackets round a whole formula, which reading would drop, as words; a pair keeps its own."""
    inner = core.formula[1:-1]
    if f"({inner})" != core.formula or not _is_readable(inner):
        return core
    return Core(core.lead + "(", inner, ")" + core.tail)


def _is_readable(text: str) -> bool:
    try:
        read(text, any_name=False)
    except UsageError:
        return False
    return True


def _mark_plain(word: str) -> Piece:
    return CODE if re.search(r"\w[_\[]|[\]^]", word) else WORDS, word


def _split_words(text: str) -> list[str]:
    """The words of a sentence; what stands inside the brackets of a formula stays together."""
    words, split = [], text.split(" ")
    while split:
        size = next((n for n in range(1, len(split) + 1) if not _is_open(" ".join(split[:n]))), 1)
        size = size if _is_readable(_split_core(" ".join(split[:size])).formula) else 1
        words.append(" ".join(split[:size]))
        split = split[size:]
    return words


def _is_open(text: str) -> bool:
    bars = text.count("|") - 2 * text.count("||") - text.count(" | ") - text.count(".|")
    return bars % 2 == 1 or any(text.count(a) > text.count(b) for a, b in ("()", "[]", "{}"))


def _is_formula(word: str) -> bool:
    core = _split_core(word).formula
    return (bool(STRONG.search(core)) or core.strip("-()") in WEAK | ALWAYS) and _is_readable(core)


def _end(words: list[str], start: int) -> int:
    """Where the formula ends that starts at a word: formulas, and what signs join to them."""
    if NEGATIVE.fullmatch(words[start]):  # a minus sign, no hyphen
        return start + 1
    if PANEL.fullmatch(words[start]):
        return start
    end, last = start, start
    while end < len(words):
        word = words[end]
        bare = _split_core(word).formula
        number = bool(NUMBER.fullmatch(bare))
        joined = end > start and (words[end - 1] in {*JOINS, "log"} or words[end - 1].isdigit())
        after = words[end + 1] if end + 1 < len(words) and word == bare else ""
        digit = bare.isdigit() and (bool(STRONG.search(after)) or after == "KL") and _is_words(after)
        follows = number and (after in JOINS or digit)
        sign = bare in JOINS and end > start and end + 1 < len(words)
        plain = _is_formula(word) and bare not in JOINS
        if not plain and not (number and (joined or follows)) and not sign:
            break
        end += 1
        last = end if not sign else last
        if word.endswith((",", ";", ":", ".")) or (word.endswith(")") and word != bare):
            break
    if words[start:last] == ["log"]:  # the word of a log ratio
        return start
    return last if last - start > 1 or (last > start and _is_formula(words[start])) else start


def _is_words(word: str) -> bool:
    return _is_formula(word) or word == "KL"
