r"""LaTeX for a column of text: plain words escaped, and formulas that TeX may break between two lines.

>>> allow_breaks(r"\mathbb{E}_{q}\!\left[k_1\,s\right] = 0")
'\\mathbb{E}_{q}[k_1\\,s] \\brk= 0'
"""

from __future__ import annotations

import re

from klsym.escaping import escape as escape  # the words of the same page

BRACKETS = re.compile(r"(\\!)?\\left([(\[|.])|\\right([)\]|.])")
PLAIN, BIG, LARGE = 0, 1, 2
SIZES = {PLAIN: ("", ""), BIG: (r"\bigl", r"\bigr"), LARGE: (r"\Bigl", r"\Bigr")}
# Signs of a sum or a relation, before which a line may end; those of a product come second.
SIGNS = re.compile(r" (?=[+\-] )| (?==|\\ne |\\le |\\not\\le |\\iff|\\implies|\\notin |\\ge |<|>)")
FACTORS = re.compile(
    r"\\,(?=\\mathbb\{E\}|\\mathrm\{(?:Var|KL)\}|\\nabla|\(|\\[bB]igl)|(?<=\])\\,"
    r"|(?<=[^\\][,;:])(?:\\ | |\\quad ?)"
)


def allow_breaks(latex: str) -> str:
    r"""A formula whose lines may end before a sign, also inside its brackets.

    TeX breaks no line between \left and \right, so each pair becomes brackets of the size that its
    content needs: the height of a fraction or of a sum sign, else of a letter.
    """
    return mark_breaks(_choose_sizes(latex)[0])


def _choose_sizes(latex: str) -> tuple[str, int]:
    r"""A formula without \left and \right, and the size of its tallest bracket."""
    bracket, start = BRACKETS.search(latex), 0
    text, tallest = "", PLAIN
    while bracket:
        if bracket.group(2) is None:
            raise ValueError(f"a closing bracket without an opening one: {latex}")
        end = _find_closing(latex, bracket.end())
        closing = BRACKETS.match(latex, end)
        assert closing is not None
        inner, size = _choose_sizes(latex[bracket.end() : end])
        size = max(size, _choose_height(inner, bracket.group(2)))
        before, after = SIZES[size]
        opened, closed = (f"{lead}{sign}" if sign != "." else "" for lead, sign in
                          ((before, bracket.group(2)), (after, closing.group(3))))  # fmt: skip
        text += latex[start : bracket.start()] + opened + inner.strip() + closed
        tallest, start = max(tallest, size), closing.end()
        bracket = BRACKETS.search(latex, start)
    return text + latex[start:], tallest


def _find_closing(latex: str, start: int) -> int:
    r"""Where the \right of a \left stands."""
    depth = 1
    for bracket in BRACKETS.finditer(latex, start):
        depth += 1 if bracket.group(2) else -1
        if depth == 0:
            return bracket.start()
    raise ValueError(f"an opening bracket without a closing one: {latex}")


def _choose_height(inner: str, sign: str) -> int:
    if re.search(r"\\(?:sum|prod|frac)(?![A-Za-z])", inner):
        return LARGE
    return BIG if sign == "|" or re.search(r"\\(?:tfrac|sqrt)(?![A-Za-z])|[\])]\^", inner) else PLAIN


def mark_breaks(latex: str) -> str:
    r"""\brk before each sign (\sbrk within brackets), \cut between factors; none inside of braces."""
    text, depth, brackets, place = "", 0, 0, 0
    while place < len(latex):
        sign, factor = SIGNS.match(latex, place), FACTORS.match(latex, place)
        if depth == 0 and sign and place:
            text += r" \sbrk" if brackets else r" \brk"
            place = sign.end()
        elif depth == 0 and factor and place:
            text += factor.group() + r"\cut "
            place = factor.end()
        else:
            character = latex[place : place + 2] if latex[place] == "\\" else latex[place]
            depth += (character == "{") - (character == "}")
            brackets += 0 if depth else (character in "([") - (character in ")]")
            text += character
            place += len(character)
    return text.replace(r"\quad\text{", r"\cut\quad\text{")
