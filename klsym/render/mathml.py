r"""LaTeX as klsym writes it, turned into MathML, which browsers show without a script.

The package latex2mathml does the parsing.  It takes much that is no formula and knows little of spacing,
so what goes in is checked first, words are kept apart from it, and the tree that comes out is mended.
"""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from typing import Any
from xml.etree import ElementTree

from klsym.errors import UsageError

# MathML has no negative space, and a struck-out sign is a sign of its own.
REWRITTEN = ((r"\!", ""), (r"\not\le", r"\nleq"), (":=", r"\coloneqq "))
UPRIGHT = re.compile(r"\\mathrm\{([A-Za-z])\}")  # a single letter, which would come back in italics
NO_FORMULA = re.compile(r"(?<!\\)[&%#$~]|\\\\|\\begin\b|\\end\b")
ARITY = {
    "msqrt": 1, "mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "mroot": 2, "msubsup": 3,
    "munderover": 3,
}  # fmt: skip
SCRIPTED = ("msub", "msup", "msubsup", "munder", "mover", "munderover")
ARROWS = "⟺⟹⟸"  # relations, which latex2mathml takes for letters
SUMS = ("∑", "∏")
FUNCTIONS = ("exp", "log", "min", "max", "sup", "inf", "lim")
RELATIONS = frozenset("=<>≠≤≥≪≰∉∈≔∝→⇒" + ARROWS)
SHORT, LONG = 4, 40  # signs: what is shorter stays together, what is longer breaks in brackets too
PRIMES = ("\N{PRIME}", "\N{DOUBLE PRIME}")
THIN = "0.167em"  # the space that TeX sets between a function's name and its argument


@cache
def mathml(latex: str, display: bool = False, breaking: bool = False) -> str:
    r"""One formula as a <math> element.

    >>> mathml(r"\log q")
    '<math><mi>log</mi><mspace width="0.167em" /><mi>q</mi></math>'
    >>> mathml("1000 = b", breaking=True)
    '<math><mn>1000</mn></math><wbr/><math><mo form="infix">=</mo><mi>b</mi></math>'

    latex: one formula: no alignment, no environments.  display: large sums have their limits below.
    breaking: as several elements, between which a line may end: browsers break no line within one.
    Raises UsageError: an unknown command, brackets that do not match, words with a formula in them that is
    wrong, no latex2mathml.
    """
    written, words = _words_apart(UPRIGHT.sub(r"\\text{\1}", latex))
    if not written.strip() or NO_FORMULA.search(written) or _depth(written):
        raise _refused(latex, "a single formula with matching braces expected")
    for old, new in REWRITTEN:
        written = written.replace(old, new)
    root = _parsed(written, latex, display)
    for element in root.iter():
        element.text = unescape(element.text) if element.text else element.text
    _put_back(root, words)
    _mend(root)
    _refuse_leftovers(root, latex)
    inner = list(root[0]) if len(root) == 1 and root[0].tag == "mrow" else list(root)
    start = "<math display='block'>" if display else "<math>"
    pieces = _pieces(inner) if breaking else [inner]
    return "<wbr/>".join(f"{start}{_written(piece)}</math>" for piece in pieces)


def _written(elements: list[Any]) -> str:
    return "".join(ElementTree.tostring(element, encoding="unicode") for element in elements)


def _pieces(row: list[Any]) -> list[list[Any]]:
    """A row cut before relations, sums and differences, and behind wide spaces."""
    pieces: list[list[Any]] = [[]]
    inside = _signs(row) > LONG
    depth, before = 0, None
    for element in row:
        sign = _sign(element)
        depth -= sign in (")", "]")
        wide = before is not None and before.tag == "mspace" and before.get("width") == "1em"
        joins = sign in RELATIONS or (sign in ("+", "\N{MINUS SIGN}") and element.get("form") != "prefix")
        if (wide or joins) and (inside or not depth) and _signs(pieces[-1]) >= SHORT:
            pieces.append([])
            if joins and element.tag == "mo":
                element.set("form", "infix")  # at the start of a row it would lose its spaces
        depth += sign in ("(", "[")
        pieces[-1].append(element)
        before = element
    return pieces


def _signs(elements: list[Any]) -> int:
    return sum(len("".join(element.itertext())) for element in elements)


def _sign(element: Any) -> str:
    return (element.text or "") if element.tag == "mo" else ""


def _refused(latex: str, reason: str) -> UsageError:
    return UsageError(f"formula {latex[:80]!r}: {reason}")


def _depth(text: str) -> int:
    """How many braces are left open; -1 where one closes what none opened."""
    depth = 0
    for sign in re.findall(r"\\.|[{}]", text):
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            return -1
    return depth


def _parsed(written: str, latex: str, display: bool) -> Any:
    try:
        from latex2mathml.converter import convert_to_element
    except ImportError:
        raise UsageError("MathML needs the package latex2mathml: pip install latex2mathml") from None
    try:
        return convert_to_element(written, display="block" if display else "inline")
    except Exception as error:  # its errors share no base class
        raise _refused(latex, f"it cannot be read ({type(error).__name__})") from None


# ---------------------------------------------------------------------------- words
def _words_apart(latex: str) -> tuple[str, list[str]]:
    r"""\text{a 5\% b} -> \text{0} and its words, which latex2mathml would neither unescape nor escape.

    >>> _words_apart(r"x\text{if}\text{5\% of $r$}")[0]
    'x\\text{0}\\text{1}r'
    """
    written, words, rest = "", list[str](), latex
    while r"\text{" in rest:
        before, _, rest = rest.partition(r"\text{")
        end = _closing_brace(rest)
        if end is None:
            raise _refused(latex, "words without their closing brace")
        written += before
        for position, piece in enumerate(re.split(r"(?<!\\)\$", rest[:end])):
            if position % 2:
                written += piece
            elif piece:
                written += rf"\text{{{len(words)}}}"
                words.append(_plain(piece, latex))
        rest = rest[end + 1 :]
    return written + rest, words


def _closing_brace(text: str) -> int | None:
    depth = 0
    for found in re.finditer(r"\\.|[{}]", text):
        depth += (found[0] == "{") - (found[0] == "}")
        if depth < 0:
            return found.start()
    return None


def _plain(words: str, latex: str) -> str:
    """Words without their LaTeX escapes; no-break spaces, since MathML drops others at the ends."""
    for command, sign in (
        (r"\textbackslash{}", "\0"),
        (r"\textasciicircum{}", "^"),
        (r"\textasciitilde{}", "~"),
    ):
        words = words.replace(command, sign)
    words = re.sub(r"\\([%#&_${} ])", r"\1", words)
    if "\\" in words:
        raise _refused(latex, "words with a command in them")
    return words.replace("\0", "\\").replace(" ", "\N{NO-BREAK SPACE}")


def _put_back(root: Any, words: list[str]) -> None:
    for element in root.iter("mtext"):
        if element.text and element.text.isdigit():
            element.text = words[int(element.text)]


# ---------------------------------------------------------------------------- mending the tree
def _mend(row: Any) -> None:
    """Letters of one word together, functions and signs with the spaces that TeX gives them."""
    for element in row:
        _mend(element)
        _mend_leaf(element)
        if element.tag in SCRIPTED:
            for sign in (o for script in element[1:] for o in script.iter("mo")):
                sign.attrib |= {"lspace": "0", "rspace": "0"}
            if element.tag == "msub" and element[0].text in SUMS:
                element.tag = "munder"  # set below in display style, beside the sign elsewhere
    if row.tag in ("math", "mrow", "mstyle", "msqrt"):
        _set_primes(row)
        _set_signs(row)
        _set_functions(row)
    if row.tag == "mrow" and len(row) and all(_is_upright(letter) for letter in row):
        word = "".join(letter.text or "" for letter in row)
        row.clear()
        row.tag, row.text = "mi", word
    if _is_fenced(row) and row[1].tag in ("mfrac", "mstyle"):
        row.insert(1, _thin())  # its line would touch the bracket
    if _is_fenced(row) and not any(_is_tall(element) for element in row.iter() if element is not row):
        for fence in (row[0], row[-1]):
            fence.set("stretchy", "false")  # some fonts have gaps round brackets that stretch


def _is_upright(element: Any) -> bool:
    return bool(element.tag == "mi" and element.get("mathvariant") == "normal")


def _is_tall(element: Any) -> bool:
    return element.tag in ("mfrac", "msqrt", "munder", "munderover") or element.text in SUMS


def _mend_leaf(element: Any) -> None:
    text = element.text or ""
    if element.tag == "mi" and text and text in ARROWS:
        element.tag = "mo"
    if element.tag == "mo" and len(text) > 1 and text.isalpha():
        element.tag = "mi"  # as an operator it would stand far from its argument
        element.attrib = {"class": "function"}
    if element.tag == "mo" and text == "/":
        element.attrib |= {"lspace": "0", "rspace": "0"}
    variant = element.get("mathvariant")
    if variant == "bold" and len(text) == 1 and text.isascii() and text.isalpha():
        start = 0x1D41A - ord("a") if text.islower() else 0x1D400 - ord("A")
        element.text = chr(start + ord(text))
    if variant not in (None, "normal"):
        del element.attrib["mathvariant"]  # browsers know the letters, not the attribute


def _set_primes(row: Any) -> None:
    """A prime is drawn raised; as an exponent it would stand too high, and too small to be seen."""
    for place, element in enumerate(list(row)):
        if element.tag == "msup" and element[1].text in PRIMES:
            prime = ElementTree.Element("mo", {"lspace": "0", "rspace": "0", "form": "postfix"})
            prime.text = element[1].text
            whole = ElementTree.Element("mrow")
            whole.extend([element[0], prime])
            row[place] = whole


def _set_signs(row: Any) -> None:
    """A minus before a single operand, and bars that open and close: neither stands between two operands."""
    before: Any = None
    for element in row:
        sign = element[0] if element.tag in SCRIPTED else element
        follows = before is not None and _ends(before) and not _is_function(before)
        if sign.tag == "mo" and sign.text in ("−", "+") and not follows:
            sign.set("form", "prefix")
        if sign.tag == "mo" and sign.text == "|" and not sign.get("form"):
            sign.attrib |= {"form": "postfix" if follows else "prefix", "lspace": "0", "rspace": "0"}
        before = element


def _set_functions(row: Any) -> None:
    """Thin spaces round the names of functions, none before a bracket."""
    children = list(row)
    around = zip([None, *children], children, [*children[1:], None], strict=False)
    for before, element, after in around:
        if not _is_function(element):
            continue
        if before is not None and _is_operand(before):
            row.insert(list(row).index(element), _thin())
        if after is not None and _is_operand(after) and not _is_fenced(after):
            row.insert(list(row).index(element) + 1, _thin())
    for element in row.iter("mi"):
        element.attrib.pop("class", None)


def _is_function(element: Any) -> bool:
    base = element[0] if element.tag in SCRIPTED else element
    return base.tag == "mi" and (base.get("class") == "function" or base.text in FUNCTIONS)


def _is_operand(element: Any) -> bool:
    """A letter, number, fraction or bracket that closes: what needs a space before the name of a function."""
    return element.tag not in ("mo", "mspace", "mtext") or element.text in (")", "]", "}")


def _is_fenced(element: Any) -> bool:
    return element.tag == "mrow" and len(element) > 1 and element[0].get("fence") == "true"


def _ends(element: Any) -> bool:
    """Is it an operand, so that a minus after it subtracts?"""
    return _is_operand(element) or (element.tag == "mo" and element.get("form") == "postfix")


def _thin() -> Any:
    return ElementTree.Element("mspace", {"width": THIN})


# ---------------------------------------------------------------------------- what came out
def _refuse_leftovers(root: Any, latex: str) -> None:
    """latex2mathml passes on what it does not know, and leaves out what is missing."""
    for element in root.iter():
        text = element.text or ""
        if element.tag != "mtext" and ("\\" in text or (text in ("}", "&") and element.tag == "mi")):
            raise _refused(latex, f"unknown command {text[:30]}")
        needed = ARITY.get(element.tag)
        empty = needed is not None and any(_is_empty(child) for child in element)
        if empty or len(element) != (needed or len(element)):
            raise _refused(latex, "a part is missing")


def _is_empty(element: Any) -> bool:
    return len(element) == 0 and not (element.text or "").strip()
