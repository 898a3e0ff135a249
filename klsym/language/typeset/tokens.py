"""A formula in LaTeX as tokens, without what changes no meaning: spaces, sizes of brackets, fonts, hats.

>>> [token.text for token in split_tokens(r"\\hat{A}_t \\left[\\mathrm{clip}(x)\\right]")]
['A', '_', 't', '[', 'clip', '(', 'x', ')', ']']
"""

from __future__ import annotations

import re
from typing import NamedTuple

from klsym.errors import UsageError
from klsym.language.pasted.text import QUOTED_OR_COMMENT

MAX_LENGTH, MAX_TOKENS = 20_000, 4_000
SHOWN = 30  # characters of the formula in a message
OF_LATEX = re.compile(r"\\[A-Za-z]{2}|\\[,;!:|{}\[(]|[_^]\{|^\s*\$.*\$\s*$", re.DOTALL)
TOKEN = re.compile(
    r"\\\\(?:\[[^\]]*\])?|\\[A-Za-z]+\*?|\\.|log_(?:q|p|mu|old)(?![A-Za-z])|k[123](?!\w)|[A-Za-z]+"
    r"|\d+(?:\.\d+)?|\.\d+|\s+|.",
    re.DOTALL,
)
SPACES = {
    r"\,", r"\;", r"\!", r"\:", r"\ ", r"\>", r"\(", r"\)", r"\[", r"\]", r"\quad", r"\qquad", "$", "&", "~",
    r"\displaystyle", r"\textstyle", r"\nonumber", r"\notag", r"\limits", r"\nolimits", r"\left", r"\right",
    r"\middle", r"\hat", r"\widehat", r"\mathop", r"\rm", r"\bf", r"\it", r"\mathopen", r"\mathclose",
    *(rf"\{size}{side}" for size in ("big", "Big", "bigg", "Bigg") for side in ("", "l", "r", "m")),
}  # fmt: skip
HATS = {r"\hat", r"\widehat"}
OF_HATS = r"type what it is, as \text{clip}(r_t(\theta), 1 - \epsilon, 1 + \epsilon), or r_t(\theta)"
FONTS = {
    r"\mathbb", r"\mathcal", r"\mathrm", r"\text", r"\operatorname", r"\operatorname*", r"\mathbf",
    r"\boldsymbol", r"\bm", r"\textrm", r"\textbf", r"\textit", r"\mathsf", r"\mathit", r"\mathscr",
    r"\mathds", r"\textsc", r"\mathtt", r"\texttt", r"\mathfrak", r"\textsf", r"\mbox",
}  # fmt: skip
ENVIRONMENTS = {"equation", "align", "aligned", "split", "gather", "gathered", "multline", "displaymath"}
OPENING, CLOSING = {"(", "[", "{", r"\{", r"\lvert"}, {")", "]", "}", r"\}", r"\rvert"}
ALIASES = {
    r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]", r"\Vert": r"\|",
    r"\parallel": r"\|", r"\vert": "|", r"\mid": "|", r"\ast": "*", r"\leq": r"\le", r"\geq": r"\ge",
    r"\lt": "<", r"\gt": ">", r"\varepsilon": r"\epsilon", r"\varphi": r"\phi", r"\ln": r"\log",
    r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\E": "E", r"\KL": "KL",
    r"\coloneqq": "=", r"\triangleq": "=", r"\colon": ":",
}  # fmt: skip


class Token(NamedTuple):
    """A token; is_word: is it a name that a font command holds together, as in \\text{clip}?"""

    text: str
    is_word: bool = False

    @property
    def plain(self) -> str:
        """The name without a backslash."""
        return self.text.lstrip("\\")


def is_latex(text: str) -> bool:
    """Is it a formula in LaTeX, and neither code nor a formula of the grammar?

    >>> [is_latex(x) for x in (r"\\log \\pi", "$k1$", r"x = 'a\\new'", "rho*A", "x = [1,\\\\\\n 2]")]
    [True, True, False, False, False]
    """
    return bool(OF_LATEX.search(QUOTED_OR_COMMENT.sub("", text)))


def quote_part(text: str) -> str:
    """Return the beginning of a text, for a message.

    >>> quote_part("x" * 40)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxx...'"
    """
    line = " ".join(text.split())
    return repr(line if len(line) <= SHOWN else line[: SHOWN - 3] + "...").replace("\\\\", "\\")


def make_refusal(what: str, instead: str) -> UsageError:
    """Return the error for a part of a formula that is not read."""
    return UsageError(f"{what} is not read in a formula in LaTeX: {instead}")


def split_tokens(text: str) -> list[Token]:
    """Return the tokens of a formula; raises UsageError: a character or a command that is not read."""
    if len(text) > MAX_LENGTH:
        raise UsageError(f"the loss has {len(text)} characters, the limit is {MAX_LENGTH}")
    parts: list[str] = []
    for part in TOKEN.findall(text):
        if part.isspace() or part.startswith("\\\\"):
            continue
        if not part.isascii() or not part.isprintable() or part in '#;"`@%!?\\':
            raise UsageError(f"unexpected {part[:1]!a} in a formula in LaTeX: type its LaTeX command")
        parts.append(ALIASES.get(part, part))
    if len(parts) > MAX_TOKENS:
        raise UsageError(f"a formula in LaTeX of more than {MAX_TOKENS} symbols: explain each term by itself")
    return _Cleaner(parts).clean()


class _Cleaner:
    """One pass over the parts of a formula, which drops fonts and spaces."""

    def __init__(self, parts: list[str]) -> None:
        self.parts, self.position, self.tokens = parts, 0, list[Token]()

    def clean(self) -> list[Token]:
        while self.position < len(self.parts):
            part = self.parts[self.position]
            self.position += 1
            following = self.parts[self.position] if self.position < len(self.parts) else ""
            if part in (r"\left", r"\right") and following in (".", "|"):
                self.position += 1
                bars = {r"\left": r"\lvert", r"\right": r"\rvert"}
                self.tokens += [Token(bars[part])] if following == "|" else []
            elif part in HATS and self.names_ratio():
                raise make_refusal(rf"{part}{{r}}, a ratio with a hat,", OF_HATS)
            elif part in (r"\hat", r"\widehat", r"\mathop") and following == "{":
                self.parts[self.position : self.find_end()] = self.parts[
                    self.position + 1 : self.find_end() - 1
                ]
            elif part in (r"\begin", r"\end"):
                self.drop_environment()
            elif part in (r"\label", r"\tag"):
                self.read_group()
            elif part in FONTS:
                self.tokens.append(Token(self.read_word(part), is_word=True))
            elif part == r"\underset":
                below = self.read_group()
                self.parts[self.position : self.find_end()] = [*self.read_ahead(), "_", "{", *below, "}"]
            elif part not in SPACES:
                self.tokens.append(Token(part))
        return self.tokens

    def names_ratio(self) -> bool:
        """Is it a letter of the ratio to the old policy, as rho or r_t(theta)?"""
        behind = "".join(self.parts[self.find_end() :])
        is_of_theta = re.match(r"\s*(?:_(?:\{[^{}]*\}|\w))?\s*\(\s*\\theta\s*\)", behind) is not None
        return self.read_ahead() in ([r"\rho"], ["w"]) or (self.read_ahead() == ["r"] and is_of_theta)

    def find_end(self) -> int:
        """Return the position behind the group, or the token, that begins here."""
        depth = 0
        for position in range(self.position, len(self.parts)):
            depth += (self.parts[position] == "{") - (self.parts[position] == "}")
            if depth <= 0:
                return position + 1
        raise UsageError("a formula in LaTeX with { and without its }: close each bracket")

    def read_ahead(self) -> list[str]:
        group = self.parts[self.position : self.find_end()]
        return group[1:-1] if group[0] == "{" else group

    def read_group(self) -> list[str]:
        """Return the parts of the group, or the one part, that begins here, and pass over it."""
        if self.position == len(self.parts):
            raise UsageError("a formula in LaTeX that ends with a command: type its argument in braces")
        group = self.read_ahead()
        self.position = self.find_end()
        return group

    def read_word(self, font: str) -> str:
        group = self.read_group()
        inner = [part for part in group if part not in FONTS and part not in SPACES and part not in "{}"]
        word = "".join(part.lstrip("\\") for part in inner)
        if not re.fullmatch(r"[A-Za-z0-9_-]+", word):
            raise make_refusal(f"{font}{{{word[:SHOWN]}}}", "type a name such as clip, sg or old in it")
        return word.replace("-", "_")

    def drop_environment(self) -> None:
        name = "".join(self.read_group()).rstrip("*")
        if name == "cases":
            raise make_refusal(r"\begin{cases}", "type where(A > 0, x, y) in the loss grammar")
        if name not in ENVIRONMENTS:
            raise make_refusal(rf"\begin{{{name[:SHOWN]}}}", "type one formula")


def flatten_tokens(tokens: list[Token]) -> str:
    """Return tokens as a text, as of an index or of what a policy is conditioned on.

    >>> flatten_tokens(split_tokens(r"\\theta_{\\text{old}}")), flatten_tokens(split_tokens(r"a_{t+1}|s"))
    ('theta_{old}', 'a_{t+1}|s')
    """
    words = ""
    for token in tokens:
        both_names = words[-1:].isalnum() and token.plain[:1].isalnum()
        words += f" {token.plain}" if both_names else token.plain
    return words


def count_open(parts: list[str]) -> int:
    """Return how many brackets are open behind some parts of a formula."""
    return sum((part in OPENING) - (part in CLOSING) for part in parts)


def split_at_commas(tokens: list[Token]) -> list[list[Token]]:
    """Return the tokens between the commas that stand in no bracket."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
