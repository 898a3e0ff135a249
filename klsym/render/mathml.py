r"""MathML, which browsers show without a script: of trees, and of the LaTeX that is written by hand.

The printer of trees reads each template of the LaTeX notation and puts the parts in; `mathml` reads whole
formulas.  Both know the few commands that klsym writes, and refuse all else.

>>> from klsym.notation.tree import Name, Power, Number
>>> MATHML(Power(Name("r"), Number(2))) == mathml("r^{2}")
True
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, reduce
from html import escape, unescape
from string import ascii_letters

from klsym.errors import UsageError
from klsym.escaping import SPECIAL
from klsym.notation.printers import Latex, Piece
from klsym.notation.tree import Formula

OPERAND, FENCED, SIGN, RELATION, OPEN, CLOSE, BAR, FUNCTION, LARGE, SPACE = range(10)
LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "nu": "ν", "lambda": "λ", "mu": "μ", "rho": "ρ", "phi": "ϕ",
    "sigma": "σ", "chi": "χ", "pi": "π", "theta": "θ", "varepsilon": "ε", "ell": "ℓ", "Phi": "Φ",
    "infty": "∞", "nabla": "∇", "partial": "∂", "star": "⋆", "ldots": "…", "forall": "∀", "#": "#",
}  # fmt: skip
RELATIONS = {
    "ne": "≠", "le": "≤", "ge": "≥", "ll": "≪", "in": "∈", "notin": "∉", "propto": "∝", "to": "→",
    "Rightarrow": "⇒", "iff": "⟺", "implies": "⟹", "nleq": "≰", "coloneqq": "≔", "mid": "∣",
}  # fmt: skip
SIGNS = {"cdot": "·", "Vert": "‖", "|": "‖", "{": "{", "}": "}"}
FUNCTIONS = {name: name for name in ("exp", "log", "min", "max", "sup", "inf", "lim")}
TABLES = (
    (LETTERS, OPERAND, "mi"), (RELATIONS, RELATION, "mo"), (SIGNS, SPACE, "mo"), (FUNCTIONS, FUNCTION, "mi"),
    ({"sum": "∑", "prod": "∏"}, LARGE, "mo"),
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
TALL = re.compile("<mfrac|<msqrt|<munder|<mtable|[∑∏]")
PRIMES = ("", "′", "″", "‴")
SHORT, LONG = 4, 40  # signs: what is shorter stays together, what is longer breaks in brackets too
TIGHT = ' lspace="0" rspace="0"'
THIN = '<mspace width="0.167em"/>'  # that TeX sets between a function's name and its argument


@dataclass(frozen=True)
class Item:
    """What stands in a row: a letter, a sign, a bracket with what is in it."""

    kind: int
    markup: str
    base: str = ""  # what an index stands below, and the index
    below: str = ""

    @property
    def size(self) -> int:
        """How many signs are seen."""
        return len(unescape(re.sub("<[^>]*>", "", self.markup)))


Row = tuple[Item, ...]


class Mathml(Latex):
    """The notation of LaTeX as MathML; the pieces are rows of items."""

    def __init__(self, display: bool = False, breaking: bool = False, slashed: bool = False) -> None:
        super().__init__(slashed)
        self.display, self.breaking = display, breaking

    def __call__(self, formula: Formula) -> str:
        return _element(self.inner(formula), self.display, self.breaking)

    def fill(self, template: str, *pieces: Piece) -> Row:
        return _Reader(template, pieces).whole()

    def leaf(self, shown: str) -> Row:
        return _Reader(shown).whole()


MATHML, DISPLAYED = Mathml(), Mathml(display=True, breaking=True)


@cache
def mathml(latex: str, display: bool = False, breaking: bool = False) -> str:
    r"""One formula, written in LaTeX, as a <math> element.

    >>> mathml(r"\log q")
    '<math><mi>log</mi><mspace width="0.167em"/><mi>q</mi></math>'
    >>> mathml("1000 = b", breaking=True)
    '<math><mn>1000</mn></math><wbr/><math><mo form="infix">=</mo><mi>b</mi></math>'

    latex: one formula: no alignment, no environment but cases.  display: large sums have their limits below.
    breaking: as several elements, between which a line may end: browsers break no line within one.
    Raises UsageError: an unknown command, brackets that do not match, a part that is missing.
    """
    return _element(_Reader(latex).whole(), display, breaking)


def _element(row: Row, display: bool, breaking: bool) -> str:
    start = "<math display='block'>" if display else "<math>"
    pieces = _pieces(row) if breaking else [list(row)]
    return "<wbr/>".join(f"{start}{_markup(piece)}</math>" for piece in pieces)


def _pieces(row: Row) -> list[list[Item]]:
    """A row cut before relations, sums and differences, and behind wide spaces."""
    pieces: list[list[Item]] = [[]]
    long = sum(item.size for item in row) > LONG
    depth, before = 0, Item(SPACE, "")
    for item in row:
        depth -= item.kind == CLOSE
        joins = item.kind == RELATION or (item.kind == SIGN and _ends(before))
        wide = before.markup == _space("1em")
        if (wide or joins) and (long or not depth) and sum(i.size for i in pieces[-1]) >= SHORT:
            pieces.append([])
            # at the start of a row it would lose its spaces
            item = replace(item, markup=item.markup.replace("<mo>", '<mo form="infix">')) if joins else item
        depth += item.kind == OPEN
        pieces[-1].append(item)
        before = item
    return pieces


def _markup(row: list[Item] | Row) -> str:
    """A row with the spaces round the names of functions, a minus before an operand close to it."""
    shown, before = "", Item(SPACE, "")
    for item in row:
        markup = item.markup
        if item.kind == FUNCTION and _ends(before):
            shown += THIN
        if before.kind == FUNCTION and item.kind in (OPERAND, FUNCTION, LARGE):
            shown += THIN
        if item.kind == SIGN and not _ends(before):
            markup = markup.replace("<mo>", '<mo form="prefix">')
        if item.kind == BAR:
            markup = f'<mo{TIGHT} form="{"postfix" if _ends(before) else "prefix"}">|</mo>'
            item = Item(CLOSE if _ends(before) else OPEN, markup)
        shown += markup
        before = item
    return shown


def _ends(item: Item) -> bool:
    """Is it an operand, so that a minus after it subtracts?"""
    return item.kind in (OPERAND, FENCED, CLOSE)


def _one(row: Row) -> str:
    """A row as one element."""
    return row[0].markup if len(row) == 1 and row[0].kind == OPERAND else f"<mrow>{_markup(row)}</mrow>"


def _space(width: str) -> str:
    return f'<mspace width="{width}"/>'


class _Reader:
    """A recursive descent over one formula; # stands for the next piece."""

    def __init__(self, latex: str, pieces: tuple[Row, ...] = ()) -> None:
        self.latex = reduce(lambda text, pair: text.replace(*pair), REWRITTEN, latex)
        self.pieces, self.place = list(pieces), 0

    def refused(self, reason: str) -> UsageError:
        return UsageError(f"formula {self.latex[:80]!r}: {reason}")

    def peek(self) -> str:
        """The next token, which stays; nothing at the end."""
        found = TOKEN.match(self.latex, self.place)
        return found[1] if found else ""

    def next(self) -> str:
        found = TOKEN.match(self.latex, self.place)
        self.place = found.end() if found else self.place
        return found[1] if found else ""

    def whole(self) -> Row:
        row = self.row("")
        if not row:
            raise self.refused("a part is missing")
        return row

    def row(self, *ends: str) -> Row:
        """Items up to one of the tokens, which stays."""
        items: list[Item] = []
        while self.peek() not in ends:
            items += self.scripted(self.item())
        return tuple(items)

    def group(self) -> Row:
        """What stands in braces, or a single sign."""
        token = self.next()
        if token[:1].isdigit():  # as TeX reads it, \frac12 is a half
            self.place -= len(token) - 1
            return (Item(OPERAND, f"<mn>{token[0]}</mn>"),)
        if token != "{":
            self.place -= len(token)
            return self.item()
        row = self.row("}")
        self.next()
        if not row:
            raise self.refused("a part is missing")
        return row

    def scripted(self, items: Row) -> Row:
        """The last of the items with its indices, exponents and primes."""
        scripts: dict[str, str] = {}
        while (token := self.peek()) and token[0] in "_^'":
            self.next()
            if not items or token in scripts:
                raise self.refused("two indices, or one of nothing")
            if token[0] == "'":
                prime = items[-1].markup + f'<mo{TIGHT} form="postfix">{PRIMES[len(token)]}</mo>'
                items = (*items[:-1], Item(OPERAND, f"<mrow>{prime}</mrow>"))
            else:
                scripts[token] = re.sub("<mo(?! lspace)", f"<mo{TIGHT}", _one(self.group()))
        if not scripts:
            return items
        last, base = items[-1], items[-1].base or items[-1].markup
        scripts = ({"_": last.below} if last.below else {}) | scripts
        tag = TAGS[last.kind == LARGE]["".join(sign for sign in "_^" if sign in scripts)]
        inner = base + "".join(scripts[sign] for sign in "_^" if sign in scripts)
        kind = last.kind if last.kind in (FUNCTION, LARGE) else OPERAND
        return (*items[:-1], Item(kind, f"<{tag}>{inner}</{tag}>", base, scripts.get("_", "")))

    def item(self) -> Row:
        token = self.next()
        if token == "#" and self.pieces:
            return self.pieces.pop(0)
        if token == "{":
            self.place -= 1
            return (Item(OPERAND, _one(self.group())),)
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[:1].isdigit():
            return (Item(OPERAND, f"<mn>{token}</mn>"),)
        if token.isascii() and token.isalpha():
            return (Item(OPERAND, f"<mi>{token}</mi>"),)
        if token in PLAIN:
            return (_sign(token),)
        raise self.refused(f"{token!r} is not expected" if token else "a part is missing")

    def command(self, name: str) -> Row:
        for table, kind, tag in TABLES:
            if name in table:
                return (Item(kind, f"<{tag}>{table[name]}</{tag}>"),)
        if name in SPACES:
            return (Item(SPACE, _space(SPACES[name])),)
        if name == "left":
            return self.fenced()
        if name in SIZES:
            sign = self.next()
            size = f'<mo minsize="{SIZES[name]}"{TIGHT}>{sign}</mo>'
            return (Item(PLAIN.get(sign, OPERAND) if sign != "|" else OPERAND, size),)
        if name in ("frac", "tfrac"):
            shown = f"<mfrac>{_one(self.group())}{_one(self.group())}</mfrac>"
            small = f'<mstyle displaystyle="false" scriptlevel="0">{shown}</mstyle>'
            return (Item(OPERAND, small if name == "tfrac" else shown),)
        if name == "sqrt":
            return (Item(OPERAND, f"<msqrt>{_markup(self.group())}</msqrt>"),)
        if name == "bar":
            return (Item(OPERAND, f"<mover>{_one(self.group())}<mo>¯</mo></mover>"),)
        if name == "begin":
            return self.cases()
        return () if name == "!" else self.lettered(name)

    def fenced(self) -> Row:
        opened = self.next()
        inner = self.row(r"\right")
        self.next()
        closed = self.next()
        if opened not in FENCES or closed not in FENCES or not inner:
            raise self.refused("matching brackets expected")
        markup = _markup(inner)
        stretchy = "" if TALL.search(markup) else ' stretchy="false"'  # some fonts have gaps round those
        first, last = (
            f'<mo fence="true" form="{form}"{stretchy}>{sign}</mo>' if sign != "." else ""
            for form, sign in (("prefix", opened), ("postfix", closed))
        )
        gap = THIN if first and markup.startswith(("<mfrac", "<mstyle")) else ""  # its line would touch
        return (Item(FENCED, f"<mrow>{first}{gap}{markup}{last}</mrow>"),)

    def cases(self) -> Row:
        r"""a & b \\ c & d, behind a brace."""
        if self.argument() != "cases":
            raise self.refused("no environment but cases is known")
        rows, cells, end = "", "", "&"
        while end != r"\end":
            cells += f"<mtd>{_markup(self.row('&', NEW_LINE, END))}</mtd>"
            end = self.next()
            if end != "&":
                rows, cells = f"{rows}<mtr>{cells}</mtr>", ""
        self.argument()
        brace = '<mo fence="true" form="prefix">{</mo>'
        return (Item(FENCED, f'<mrow>{brace}<mtable columnalign="left">{rows}</mtable></mrow>'),)

    def argument(self) -> str:
        """What stands in braces, as it is written."""
        found = ARGUMENT.match(self.latex, self.place)
        if found is None:
            raise self.refused("a part is missing")
        self.place = found.end()
        return found[1]

    def lettered(self, name: str) -> Row:
        """Words and letters in other fonts."""
        if name == "text":
            pieces = re.split(r"(?<!\\)\$", self.argument())
            rows = (_Reader(p).whole() if i % 2 else self.plain(p) for i, p in enumerate(pieces) if p)
            return tuple(item for row in rows for item in row)
        if name not in FONTS:
            raise self.refused(f"unknown command \\{name}")
        letters = self.argument()
        if not letters.isalnum():
            raise self.refused("letters expected")
        if FONTS[name]:
            return (Item(OPERAND, f"<mi>{chr(FONTS[name][letters])}</mi>"),)
        upright = ' mathvariant="normal"' if len(letters) == 1 else ""
        return (Item(FUNCTION if name == "operatorname" else OPERAND, f"<mi{upright}>{letters}</mi>"),)

    def plain(self, words: str) -> Row:
        """Words without their LaTeX escapes; no-break spaces, since MathML drops others at the ends."""
        for sign, command in SPECIAL.items():
            words = words.replace(command, NAMES[sign])
        if "\\" in words:
            raise self.refused("words with a command in them")
        shown = "".join(SIGN_OF.get(c, c) for c in words.replace(" ", "\N{NO-BREAK SPACE}"))
        return (Item(SPACE, f"<mtext>{escape(shown, quote=False)}</mtext>"),)


def _sign(token: str) -> Item:
    shown, kind = escape(token.replace("-", "−")), PLAIN[token]
    if kind in (OPEN, CLOSE):
        return Item(kind, f'<mo stretchy="false">{shown}</mo>')
    return Item(kind, f"<mo{TIGHT if token in '/*' else ''}>{shown}</mo>")
