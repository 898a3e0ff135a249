r"""MathML, which browsers show without a script: of trees, and of the LaTeX that is written by hand.

The printer of trees reads each template of the LaTeX notation and puts the parts in; `mathml` reads whole
formulas.  Both know the few commands that klsym writes, and refuse all else.

>>> from klsym.notation.tree import Name, Power, Number
>>> MATHML(Power(Name("r"), Number(2))) == mathml("r^{2}")
True
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, reduce
from html import escape, unescape
from string import ascii_letters

from klsym.errors import UsageError
from klsym.escaping import SPECIAL
from klsym.notation.printers import Latex, Piece
from klsym.notation.tree import Formula
from klsym.records import record

OPERAND, FENCED, SIGN, RELATION, OPEN, CLOSE, BAR, FUNCTION, LARGE, SPACE = range(10)
LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "nu": "ν", "lambda": "λ", "mu": "μ", "rho": "ρ", "phi": "ϕ",
    "sigma": "σ", "chi": "χ", "pi": "π", "tau": "τ", "theta": "θ", "varepsilon": "ε", "ell": "ℓ", "Phi": "Φ",
    "infty": "∞", "nabla": "∇", "partial": "∂", "star": "⋆", "ldots": "…", "forall": "∀", "#": "#",
}  # fmt: skip
RELATIONS = {
    "ne": "≠", "le": "≤", "ge": "≥", "ll": "≪", "in": "∈", "notin": "∉", "propto": "∝", "sim": "∼", "to": "→",
    "Rightarrow": "⇒", "iff": "⟺", "implies": "⟹", "nleq": "≰", "coloneqq": "≔", "mid": "∣",
}  # fmt: skip
SIGNS = {"cdot": "·", "Vert": "‖", "|": "‖", "{": "{", "}": "}"}
FUNCTIONS = {name: name for name in ("exp", "log", "min", "max", "sup", "inf", "lim")}
TABLES = (
    (LETTERS, OPERAND, "mi"), (RELATIONS, RELATION, "mo"), (SIGNS, SPACE, "mo"), (FUNCTIONS, FUNCTION, "mi"),
    ({"sum": "∑", "prod": "∏", "int": "∫"}, LARGE, "mo"),
)  # fmt: skip
SPACES = {",": "0.167em", " ": "0.333em", "quad": "1em"}
SIZES = {"bigl": "1.2em", "bigr": "1.2em", "big": "1.2em", "Bigl": "1.623em", "Bigr": "1.623em"}
BOLD = {c: 0x1D400 + (ord(c) - ord("A") if c < "a" else ord(c) - ord("a") + 26) for c in ascii_letters}
FONTS: dict[str, dict[str, int]] = {
    "mathrm": {}, "mathit": {}, "operatorname": {}, "mathbb": {"E": 0x1D53C, "R": 0x211D},
    "mathcal": {"N": 0x1D4A9}, "mathbf": BOLD | {"1": 0x1D7CF},
}  # fmt: skip
PLAIN = dict.fromkeys("=<>:", RELATION) | dict.fromkeys("+-", SIGN) | dict.fromkeys("([", OPEN)
PLAIN |= dict.fromkeys(")]", CLOSE) | dict.fromkeys(",;/*.", SPACE) | {"|": BAR, "!": FENCED}
FENCES = "()[]|."
NEW_LINE, END = r"\\", r"\end"
TAGS = ({"_": "msub", "^": "msup", "_^": "msubsup"}, {"_": "munder", "^": "mover", "_^": "munderover"})
TOKEN = re.compile(r"\s*(\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|'+|\S)")
ARGUMENT = re.compile(r"\s*\{((?:[^{}\\]|\\.|\{\})*)\}")
REWRITTEN = ((r"\not\le", r"\nleq "), (":=", r"\coloneqq "))
NAMES = {sign: chr(0xE000 + ord(sign)) for sign in SPECIAL}  # stand for the signs while commands are left
SIGN_OF = {name: sign for sign, name in NAMES.items()}
TALL = re.compile("<mfrac|<msqrt|<munder|<mtable|[∑∏∫]")
PRIMES = ("", "′", "″", "‴")
SHORT, LONG = 4, 40  # signs: what is shorter stays together, what is longer breaks in brackets too
TIGHT = ' lspace="0" rspace="0"'
THIN = '<mspace width="0.167em"/>'  # that TeX sets between a function's name and its argument


@record
class Item:
    """An element of a row: a letter, a sign, or a bracket with its content."""

    kind: int
    markup: str
    base: str = ""  # the element that has an index, and the index
    below: str = ""

    @property
    def size(self) -> int:
        """The number of visible signs."""
        return len(unescape(re.sub("<[^>]*>", "", self.markup)))


Row = tuple[Item, ...]


class Mathml(Latex):
    """The notation of LaTeX as MathML; the pieces are rows of items."""

    def __init__(self, display: bool = False, breaking: bool = False, slashed: bool = False) -> None:
        super().__init__(slashed)
        self.display, self.breaking = display, breaking

    def __call__(self, formula: Formula) -> str:
        return _format_element(self.inner(formula), self.display, self.breaking)

    def fill(self, template: str, *pieces: Piece) -> Row:
        r"""Read a template in LaTeX, such as \frac{#}{#}, with a piece for each #."""
        return _Reader(template, pieces).read_formula()

    def leaf(self, shown: str) -> Row:
        return _Reader(shown).read_formula()


MATHML, DISPLAYED = Mathml(), Mathml(display=True, breaking=True)


@cache
def mathml(latex: str, display: bool = False, breaking: bool = False) -> str:
    r"""Return one formula, written in LaTeX, as a <math> element.

    >>> mathml(r"\log q")
    '<math><mi>log</mi><mspace width="0.167em"/><mi>q</mi></math>'
    >>> mathml("1000 = b", breaking=True)
    '<math><mn>1000</mn></math><wbr/><math><mo form="infix">=</mo><mi>b</mi></math>'

    latex: one formula: no alignment, no environment but cases.  display: large sums have their limits below.
    breaking: as several elements, between which a line may end: browsers break no line within one.
    Raises UsageError: an unknown command, brackets that do not match, a part that is missing.
    """
    return _format_element(_Reader(latex).read_formula(), display, breaking)


def _format_element(row: Row, display: bool, breaking: bool) -> str:
    block = "<math displaystyle='true'>" if breaking else "<math display='block'>"  # a block ends its line
    start = block if display else "<math>"
    pieces = _split_row(row) if breaking else [list(row)]
    return "<wbr/>".join(f"{start}{_format_row(piece)}</math>" for piece in pieces)


def _split_row(row: Row) -> list[list[Item]]:
    """Split a row before relations, sums and differences, and after wide spaces."""
    pieces: list[list[Item]] = [[]]
    long = sum(item.size for item in row) > LONG
    depth, previous = 0, Item(SPACE, "")
    for item in row:
        depth -= item.kind == CLOSE
        joins = item.kind == RELATION or (item.kind == SIGN and _is_operand(previous))
        wide = previous.markup == _format_space("1em")
        if (wide or joins) and (long or not depth) and sum(i.size for i in pieces[-1]) >= SHORT:
            pieces.append([])
            # at the start of a row it would lose its spaces
            item = replace(item, markup=item.markup.replace("<mo>", '<mo form="infix">')) if joins else item
        depth += item.kind == OPEN
        pieces[-1].append(item)
        previous = item
    return pieces


def _format_row(row: list[Item] | Row) -> str:
    """Join the markup of a row, with space around names of functions and none after a prefix minus."""
    joined, previous = "", Item(SPACE, "")
    for item in row:
        markup = item.markup
        if item.kind == FUNCTION and _is_operand(previous):
            joined += THIN
        if previous.kind == FUNCTION and item.kind in (OPERAND, FUNCTION, LARGE):
            joined += THIN
        if item.kind == SIGN and not _is_operand(previous):
            markup = markup.replace("<mo>", '<mo form="prefix">')
        if item.kind == BAR:
            markup = f'<mo{TIGHT} form="{"postfix" if _is_operand(previous) else "prefix"}">|</mo>'
            item = Item(CLOSE if _is_operand(previous) else OPEN, markup)
        joined += markup
        previous = item
    return joined


def _is_operand(item: Item) -> bool:
    """Is it an operand, so that a minus after it subtracts?"""
    return item.kind in (OPERAND, FENCED, CLOSE)


def _wrap_row(row: Row) -> str:
    """Wrap a row into one element."""
    return row[0].markup if len(row) == 1 and row[0].kind == OPERAND else f"<mrow>{_format_row(row)}</mrow>"


def _format_space(width: str) -> str:
    return f'<mspace width="{width}"/>'


class _Reader:
    """A recursive descent over one formula; # stands for the next piece."""

    def __init__(self, latex: str, pieces: tuple[Row, ...] = ()) -> None:
        self.latex = reduce(lambda text, pair: text.replace(*pair), REWRITTEN, latex)
        self.pieces, self.place = list(pieces), 0

    def make_error(self, reason: str) -> UsageError:
        return UsageError(f"formula {self.latex[:80]!r}: {reason}")

    def peek(self) -> str:
        """Return the next token without taking it; empty at the end."""
        token_match = TOKEN.match(self.latex, self.place)
        return token_match[1] if token_match else ""

    def take_token(self) -> str:
        token_match = TOKEN.match(self.latex, self.place)
        self.place = token_match.end() if token_match else self.place
        return token_match[1] if token_match else ""

    def read_formula(self) -> Row:
        row = self.read_row("")
        if not row:
            raise self.make_error("a part is missing")
        return row

    def read_row(self, *ends: str) -> Row:
        """Read items up to one of the tokens, which is not taken."""
        items: list[Item] = []
        while self.peek() not in ends:
            items += self.read_scripts(self.item())
        return tuple(items)

    def read_group(self) -> Row:
        """Read a group in braces, or a single sign."""
        token = self.take_token()
        if token[:1].isdigit():  # as TeX reads it, \frac12 is a half
            self.place -= len(token) - 1
            return (Item(OPERAND, f"<mn>{token[0]}</mn>"),)
        if token != "{":
            self.place -= len(token)
            return self.item()
        row = self.read_row("}")
        self.take_token()
        if not row:
            raise self.make_error("a part is missing")
        return row

    def read_scripts(self, items: Row) -> Row:
        """Read indices, exponents and primes, and attach them to the last item."""
        scripts: dict[str, str] = {}
        while (token := self.peek()) and token[0] in "_^'":
            self.take_token()
            if not items or token in scripts:
                raise self.make_error("two indices, or one of nothing")
            if token[0] == "'":
                prime = items[-1].markup + f'<mo{TIGHT} form="postfix">{PRIMES[len(token)]}</mo>'
                items = (*items[:-1], Item(OPERAND, f"<mrow>{prime}</mrow>"))
            else:
                scripts[token] = re.sub("<mo(?! lspace)", f"<mo{TIGHT}", _wrap_row(self.read_group()))
        if not scripts:
            return items
        base_item, base = items[-1], items[-1].base or items[-1].markup
        scripts = ({"_": base_item.below} if base_item.below else {}) | scripts
        tag = TAGS[base_item.kind == LARGE]["".join(sign for sign in "_^" if sign in scripts)]
        inner = base + "".join(scripts[sign] for sign in "_^" if sign in scripts)
        kind = base_item.kind if base_item.kind in (FUNCTION, LARGE) else OPERAND
        return (*items[:-1], Item(kind, f"<{tag}>{inner}</{tag}>", base, scripts.get("_", "")))

    def item(self) -> Row:
        token = self.take_token()
        if token == "#" and self.pieces:
            return self.pieces.pop(0)
        if token == "{":
            self.place -= 1
            return (Item(OPERAND, _wrap_row(self.read_group())),)
        if token.startswith("\\"):
            return self.read_command(token[1:])
        if token[:1].isdigit():
            return (Item(OPERAND, f"<mn>{token}</mn>"),)
        if token.isascii() and token.isalpha():
            return (Item(OPERAND, f"<mi>{token}</mi>"),)
        if token in PLAIN:
            return (_make_sign(token),)
        raise self.make_error(f"{token!r} is not expected" if token else "a part is missing")

    def read_command(self, name: str) -> Row:
        for table, kind, tag in TABLES:
            if name in table:
                return (Item(kind, f"<{tag}>{table[name]}</{tag}>"),)
        if name in SPACES:
            return (Item(SPACE, _format_space(SPACES[name])),)
        if name == "left":
            return self.read_fenced()
        if name in SIZES:
            sign = self.take_token()
            size = f'<mo minsize="{SIZES[name]}"{TIGHT}>{sign}</mo>'
            return (Item(PLAIN.get(sign, OPERAND) if sign != "|" else OPERAND, size),)
        if name in ("frac", "tfrac"):
            fraction = f"<mfrac>{_wrap_row(self.read_group())}{_wrap_row(self.read_group())}</mfrac>"
            small = f'<mstyle displaystyle="false" scriptlevel="0">{fraction}</mstyle>'
            return (Item(OPERAND, small if name == "tfrac" else fraction),)
        if name == "sqrt":
            return (Item(OPERAND, f"<msqrt>{_format_row(self.read_group())}</msqrt>"),)
        if name == "bar":
            return (Item(OPERAND, f"<mover>{_wrap_row(self.read_group())}<mo>¯</mo></mover>"),)
        if name == "begin":
            return self.read_cases()
        return () if name == "!" else self.read_letters(name)

    def read_fenced(self) -> Row:
        opened = self.take_token()
        inner = self.read_row(r"\right")
        self.take_token()
        closed = self.take_token()
        if opened not in FENCES or closed not in FENCES or not inner:
            raise self.make_error("matching brackets expected")
        markup = _format_row(inner)
        stretchy = "" if TALL.search(markup) else ' stretchy="false"'  # some fonts have gaps round those
        opening, closing = (
            f'<mo fence="true" form="{form}"{stretchy}>{sign}</mo>' if sign != "." else ""
            for form, sign in (("prefix", opened), ("postfix", closed))
        )
        gap = THIN if opening and markup.startswith(("<mfrac", "<mstyle")) else ""  # its line would touch
        return (Item(FENCED, f"<mrow>{opening}{gap}{markup}{closing}</mrow>"),)

    def read_cases(self) -> Row:
        r"""Read a & b \\ c & d, behind a brace."""
        if self.read_argument() != "cases":
            raise self.make_error("no environment but cases is known")
        rows, cells, end = "", "", "&"
        while end != r"\end":
            cells += f"<mtd>{_format_row(self.read_row('&', NEW_LINE, END))}</mtd>"
            end = self.take_token()
            if end != "&":
                rows, cells = f"{rows}<mtr>{cells}</mtr>", ""
        self.read_argument()
        brace = '<mo fence="true" form="prefix">{</mo>'
        return (Item(FENCED, f'<mrow>{brace}<mtable columnalign="left">{rows}</mtable></mrow>'),)

    def read_argument(self) -> str:
        """Return the text in braces, unread."""
        braces_match = ARGUMENT.match(self.latex, self.place)
        if braces_match is None:
            raise self.make_error("a part is missing")
        self.place = braces_match.end()
        return braces_match[1]

    def read_letters(self, name: str) -> Row:
        """Read words and letters in other fonts."""
        if name == "text":
            pieces = re.split(r"(?<!\\)\$", self.read_argument())
            rows = (
                _Reader(p).read_formula() if i % 2 else self.read_words(p) for i, p in enumerate(pieces) if p
            )
            return tuple(item for row in rows for item in row)
        if name not in FONTS:
            raise self.make_error(f"unknown command \\{name}")
        letters = self.read_argument()
        if not letters.isalnum():
            raise self.make_error("letters expected")
        if FONTS[name]:
            return (Item(OPERAND, f"<mi>{chr(FONTS[name][letters])}</mi>"),)
        upright = ' mathvariant="normal"' if len(letters) == 1 else ""
        return (Item(FUNCTION if name == "operatorname" else OPERAND, f"<mi{upright}>{letters}</mi>"),)

    def read_words(self, words: str) -> Row:
        """Read words with LaTeX escapes; no-break spaces, since MathML drops others at the ends."""
        for sign, command in SPECIAL.items():
            words = words.replace(command, NAMES[sign])
        if "\\" in words:
            raise self.make_error("words with a command in them")
        spaced = "".join(SIGN_OF.get(c, c) for c in words.replace(" ", "\N{NO-BREAK SPACE}"))
        return (Item(SPACE, f"<mtext>{escape(spaced, quote=False)}</mtext>"),)


def _make_sign(token: str) -> Item:
    shown, kind = escape(token.replace("-", "−")), PLAIN[token]
    if kind in (OPEN, CLOSE):
        return Item(kind, f'<mo stretchy="false">{shown}</mo>')
    return Item(kind, f"<mo{TIGHT if token in '/*' else ''}>{shown}</mo>")
