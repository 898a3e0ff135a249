r"""Sentences with formulas in them, as readings and findings are written, in LaTeX.

What reads as a formula, such as E_q[k1 s] or r <= exp(1/2), is set as one; the rest is escaped.

>>> prose("p << q: wherever p > 0, also q > 0")
'$p \\ll q$: wherever $p \\brk> 0$, also $q \\brk> 0$'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from klsym.render.spelling import GREEK
from klsym.write_up.tex import escape, may_break

LETTERS = GREEK | {
    "theta": r"\theta", "k1": "k_1", "k2": "k_2", "k3": "k_3", "kl": r"\mathit{kl}", "chi2": r"\chi^2",
    "grad": r"\nabla", "kbar": r"\bar k", "KL_seq": r"\mathrm{KL}_{\mathrm{seq}}", "g1": "g_1",
    "lam_star": r"\lambda_\star", "b_star": r"b_\star", "d_v": r"\partial_v", "d_u": r"\partial_u",
    "pi": r"\pi", "chi": r"\chi", "phi": r"\phi",
}  # fmt: skip
ROMAN = ("sg", "std", "KL", "J", "Var", "Cov", "MSE", "bias", "curl", "others")
FUNCTIONS = {"exp": r"\exp", "log": r"\log", "sup": r"\sup", "N": r"\mathcal{N}"}
FUNCTIONS |= {name: rf"\mathrm{{{name}}}" for name in ROMAN}
OPERATORS = {"grad", *FUNCTIONS} - {"KL", "J", "MSE", "bias"}
SUMS = {"sum_t": r"\sum_t", "mean_i": r"\mathrm{mean}_i", "mean_j": r"\mathrm{mean}_j"}
SLOTS = {"past": "<t", "now": "t", "future": ">t", "self": "i", "star": r"\star"}
SIGNS = {
    "<<": r"\ll", "<=": r"\le", ">=": r"\ge", "!=": r"\ne", "**": "^", "*": r"\,", "||": r"\,\Vert\,",
    "->": r"\to", "..": r"\ldots",
}  # fmt: skip
NAMED = "|".join(map(re.escape, sorted((*LETTERS, *FUNCTIONS, *SUMS), key=len, reverse=True)))
INDEX = r"(?:_(?:-?[A-Za-z0-9]+|<[a-z]|\{[^{}]*\}))?"
TOKEN = re.compile(
    rf"(?P<name>(?:q|g|u|pi)\*(?:_[a-z]+)?(?![\w(])|(?:{NAMED})(?![A-Za-z0-9])'*{INDEX}"
    rf"|[A-Za-z](?![A-Za-z])'*{INDEX})|(?P<number>\d+(?:\.\d+)?(?:e-\d+)?)"
    r"|(?P<sign>_\+|<<|<=|>=|!=|\*\*|->|\|\||\.\.|[-+*/^=<>()\[\]|,.'])|(?P<space> +)"
)
STRONG = re.compile(
    r"[\[^=<>*]|\w\(|_|\d[a-z]|[a-z]\d|\|\||^-?[a-zA-Z]/|/[a-zA-Z]$|^[-+]$|^[a-zA-Z]\.\w$|e-\d|'$|^\|.*\|$"
)
WEAK = set("qprsnmuvtijxygfbdhRTW")
ALWAYS = {"grad", "k1", "k2", "k3", "kl", "kbar", "log", "sup", "theta", "pi"} | set(GREEK)
BARE_VARIANCE = re.compile(r"\bVar (k\d)\b")  # a variance of one letter needs its brackets to be set as one
JOINS = {"+", "-", "=", "<", ">", "<<", "<=", ">=", "!=", "->", "/"}


WORDS, CODE, FORMULA = "words", "code", "formula"
Piece = tuple[str, str]  # of which kind, and what it says


def prose(text: str) -> str:
    """A sentence with its formulas set as such."""
    shown = {
        WORDS: escape,
        CODE: lambda piece: rf"\texttt{{{escape(piece)}}}",
        FORMULA: lambda piece: f"${may_break(formula(piece))}$",
    }
    return "".join(shown[kind](piece) for kind, piece in pieces(text))


def pieces(text: str) -> Iterator[Piece]:
    """A sentence cut into words, names of quantities and formulas.

    >>> list(pieces("q > 0, here"))
    [('formula', 'q > 0'), ('words', ','), ('words', ' '), ('words', 'here')]
    """
    words, place = _words(BARE_VARIANCE.sub(r"Var(\1)", text)), 0
    while place < len(words):
        if place:
            yield WORDS, " "
        end = _formula(words, place)
        yield from _formula_pieces(" ".join(words[place:end])) if end > place else _plain(words[place])
        place = max(end, place + 1)


def _formula_pieces(run: str) -> Iterator[Piece]:
    """A formula without the brackets and stops round it."""
    body = run.rstrip(",;:.")
    tail = run[len(body) :]
    if body.startswith("(") and body.count("(") > body.count(")"):
        yield WORDS, "("
        body = body[1:]
    while body.endswith(")") and body.count(")") > body.count("("):
        body, tail = body[:-1], ")" + tail
    yield FORMULA, body
    yield from [(WORDS, tail)] if tail else []


def _plain(word: str) -> Iterator[Piece]:
    """A word; a minus sign is no hyphen."""
    if re.fullmatch(r"-\d[\d.]*[,;:]?", word):
        yield from _formula_pieces(word)
    else:
        yield CODE if re.search(r"\w[_\[]|[\]^]", word) else WORDS, word


def _words(text: str) -> list[str]:
    """The words of a sentence; what stands inside the brackets of a formula stays together."""
    words, split = [], text.split(" ")
    while split:
        size = next((n for n in range(1, len(split) + 1) if not _is_open(" ".join(split[:n]))), 1)
        whole = " ".join(split[:size])
        size = size if _is_formula(whole, partly=True) else 1
        words.append(" ".join(split[:size]))
        split = split[size:]
    return words


def _is_open(text: str) -> bool:
    bars = text.count("|") - 2 * text.count("||")
    return text.count("(") > text.count(")") or text.count("[") > text.count("]") or bars % 2 == 1


def _is_formula(word: str, partly: bool = False) -> bool:
    bare = word.rstrip(",;:.")
    place = 0
    while place < len(bare):
        found = TOKEN.match(bare, place)
        if found is None:
            return False
        place = found.end()
    return bool(bare) and (partly or bool(STRONG.search(bare)) or bare.strip("-()") in WEAK | ALWAYS)


def _formula(words: list[str], start: int) -> int:
    """Where the formula ends that starts at a word: formulas, and what signs join to them."""
    end, last = start, start
    while end < len(words):
        word = words[end]
        bare = word.rstrip(",;:.")
        number = bool(re.fullmatch(r"-?[\d.]+|[aeIJKC]|-J|KL|Var|chi2|MSE|phi|1/e", bare))
        joined = end > start and (words[end - 1] in JOINS or words[end - 1].isdigit())
        after = words[end + 1] if end + 1 < len(words) and word == bare else ""
        digit = bare.isdigit() and (bool(STRONG.search(after)) or after == "KL") and _words_are(after)
        follows = number and (after in JOINS or digit)
        sign = bare in JOINS and end > start and end + 1 < len(words)
        plain = _is_formula(word) and bare not in JOINS
        if not plain and not (number and (joined or follows)) and not sign:
            break
        end += 1
        last = end if not sign else last
        if word != bare:
            break
    return last if last - start > 1 or (last > start and _is_formula(words[start])) else start


def _words_are(word: str) -> bool:
    return _is_formula(word) or word == "KL"


def formula(text: str) -> str:
    r"""One formula in LaTeX.

    >>> formula("E_q[k1^2 s^2]"), formula("Var_q (k1 - b) s")
    ('\\mathbb{E}_{q}[k_1^{2}\\, s^{2}]', '\\mathrm{Var}_{q}\\, (k_1 - b)\\, s')
    """
    latex, place, raised, before = "", 0, False, ""
    given = " | " in text or ".|" in text
    while place < len(text):
        found = TOKEN.match(text, place)
        assert found is not None, text
        kind, piece = found.lastgroup, found.group()
        place = found.end()
        if raised and piece == "(":
            end = text.index(")", place)
            latex += "{" + formula(text[place:end]) + "}"
            place, raised, before = end + 1, False, "name"
            continue
        if piece in ("^", "**"):
            latex, raised = latex + "^", True
            continue
        if raised and piece == "-":
            found = TOKEN.match(text, place)
            assert found is not None
            piece, place, kind = piece + found.group(), found.end(), "number"
        if kind == "space":
            latex += r"\, " if _is_product(before, TOKEN.match(text, place)) else " "
            continue
        shown = {"name": _name, "number": _number}.get(kind or "", lambda sign: SIGNS.get(sign, sign))(piece)
        shown = r"\mid " if given and piece == "|" else shown
        latex += f"{{{shown}}}" if raised else shown
        if shown.startswith("\\") and shown[-1].isalpha() and text[place : place + 1].isalpha():
            latex += " "
        raised, before = False, "close" if piece in (")", "]") else "" if piece in OPERATORS else kind or ""
    return latex


def _is_product(before: str, after: re.Match[str] | None) -> bool:
    """Does a space between two tokens stand for a product?"""
    if after is None:
        return False
    factors = before in ("name", "number", "close") and after.lastgroup in ("name", "number")
    return factors or (before in ("name", "close") and after.group() in ("(", "["))


def _number(text: str) -> str:
    digits, _, power = text.partition("e")
    return rf"{digits}\cdot 10^{{{int(power)}}}" if power else text


def _name(name: str) -> str:
    prime = "'" * name.count("'")
    name = name.replace("'", "")
    if "*" in name:
        stem, _, index = name.partition("*")
        below = rf"_{{\mathrm{{{index[1:]}}}}}" if index else ""
        return rf"{LETTERS.get(stem, stem)}^\star{below}"
    if name in LETTERS:
        return LETTERS[name] + prime
    if name in SUMS:
        return SUMS[name]
    stem, _, index = name.partition("_")
    index = index.strip("{}")
    below = SLOTS.get(index) or GREEK.get(index) or (index if len(index) < 4 else rf"\mathrm{{{index}}}")
    if stem == "E":
        return rf"\mathbb{{E}}_{{{below}}}" if index else r"\mathbb{E}"
    shown = LETTERS.get(stem) or FUNCTIONS.get(stem) or stem
    if stem in ("k1", "k2", "k3") and index:
        return f"k_{{{stem[1]},{below}}}" + prime
    return (f"{shown}_{{{below}}}" if index else shown) + prime
