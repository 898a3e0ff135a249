r"""Printers of formula trees: text in the loss grammar, which the parser reads back, and LaTeX.

A notation is a table of templates, in which # stands for a part.  A printer knows how tightly each node
binds in its notation, and adds brackets where needed.

>>> TEXT(Power(Sum((Name("k1"), Number(1))), Number(2))), LATEX(Power(Name("r"), Number(2)))
('(k1 + 1)**2', 'r^{2}')
"""

from __future__ import annotations

import ast
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, ClassVar

from klsym.escaping import escape_inside
from klsym.language.estimators import TABLE
from klsym.language.expressions import OF_REGIONS
from klsym.notation.tree import (
    Along,
    Big,
    Bregman,
    Call,
    Cases,
    Covariance,
    Curl,
    Divergence,
    Formula,
    Gradient,
    Indicator,
    Mean,
    Minus,
    Name,
    Number,
    Over,
    Phrase,
    Power,
    Product,
    Quotient,
    Relation,
    Sum,
    Typed,
    Words,
    format_decimal,
    is_long_decimal,
    is_open,
    is_tall,
)

GREEK = {
    "lam": r"\lambda", "beta": r"\beta", "eps": r"\varepsilon", "alpha": r"\alpha", "nu": r"\nu",
    "sigma": r"\sigma", "gamma": r"\gamma", "mu": r"\mu", "rho": r"\rho",
}  # fmt: skip
NAMES = GREEK | {
    **{row.name: row.latex for row in TABLE}, "log_q": r"\log q", "log_p": r"\log p", "log_mu": r"\log\mu",
    "log_old": r"\log\pi_{\mathrm{old}}", "rho_old": r"\rho_{\mathrm{old}}",
    "length": "T",
}  # fmt: skip
LOGS = ("log_q", "log_p", "log_mu", "log_old")  # prefixes in LaTeX, names in the grammar
FUNCTIONS = {"exp": r"\exp", "log": r"\log", "min": r"\min", "max": r"\max"}
# How tightly a node binds; a place names the least that stands in it without brackets.
SUM, MINUS, BIG, PRODUCT, PREFIX, POWER, ATOM = range(7)
LEVELS: dict[type[Formula], int] = {
    Relation: SUM, Phrase: PREFIX, Sum: SUM, Minus: MINUS, Over: BIG, Product: PRODUCT,
    Quotient: PRODUCT, Big: PRODUCT, Gradient: PREFIX, Curl: PREFIX, Along: PREFIX, Power: POWER,
}  # fmt: skip
BINDING: dict[type[ast.AST], int] = {
    ast.Name: ATOM, ast.Constant: ATOM, ast.Call: ATOM, ast.Pow: POWER, ast.Mult: PRODUCT, ast.Div: PRODUCT,
    ast.Add: SUM, ast.Sub: SUM, ast.UnaryOp: MINUS,
}  # fmt: skip
IN_TEXT = {
    "bracket": "(#)", "tall": "(#)", "minus": "-#", "add": "# + #", "subtract": "# - #", "comma": "#, #",
    "times": "#*#", "times a sum": "#*#", "beside": "# #", "quotient": "#/#", "small quotient": "#/#",
    "power": "#**#", "mean": "E_#[#]", "E": "E[#]", "total": "sum_x[#]", "i": "mean_i #",
    "ij": "mean_{i!=j} #", "t": "sum_t #", "it": "mean_i sum_t #", "KL": "KL(#||#)", "chi2": "chi2(#||#)",
    "J": "J(#, #)",
    "grad": "grad #", "grad of": "grad(#)", "curl": "curl #", "u": "u.#", "v": "v.#", "Var": "Var_#(#)",
    "tall Var": "Var_#(#)", "Cov": "Cov_#(#, #)", "bregman": "D_phi(r, 1) with phi = #", "1": "1[#]",
    "if": "# if #", "otherwise": "# otherwise", "next case": "; ", "cases": "{#}",
}  # fmt: skip
IN_TEXT |= {sign: f"# {sign} #" for sign in ("=", "!=", "<=", ">=", "<", ">", "<<", "->", "not <=", "iff")}
IN_LATEX = {
    "bracket": r"\left(#\right)", "tall": r"\!\left(#\right)", "minus": "-#", "add": "# + #",
    "subtract": "# - #", "comma": "#, #", "times": r"#\,#", "times a sum": "# #", "beside": r"#\,#",
    "quotient": r"\frac{#}{#}", "small quotient": r"\tfrac{#}{#}", "power": "#^{#}",
    "mean": r"\mathbb{E}_{#}\!\left[#\right]", "E": r"\mathbb{E}\!\left[#\right]", "total": r"\sum_x #",
    "i": r"\tfrac1n\sum_i #", "ij": r"\tfrac1{n(n-1)}\sum_{i\ne j} #", "t": r"\sum_t #",
    "it": r"\tfrac1n\sum_i\sum_t #",
    "KL": r"\mathrm{KL}(#\,\Vert\,#)", "chi2": r"\chi^2(#\,\Vert\,#)", "J": "J(#,#)",
    "grad": r"\nabla #", "grad of": r"\nabla\!\left(#\right)", "curl": r"\operatorname{curl}\,#",
    # bold: u is the index of a sum over tokens too
    "u": r"\left(\mathbf{u}\cdot #\right)", "v": r"\left(\mathbf{v}\cdot #\right)",
    "Var": r"\mathrm{Var}_{#}(#)", "tall Var": r"\mathrm{Var}_{#}\!\left(#\right)",
    "Cov": r"\mathrm{Cov}_{#}(#,\,#)", "bregman": r"D_\phi(r, 1)\big|_{\phi = #}", "1": r"\mathbf{1}[#]",
    "if": r"# & \text{if }#", "otherwise": r"# & \text{otherwise}", "next case": r" \\ ",
    "cases": r"\begin{cases}#\end{cases}",
    "=": "# = #", "!=": r"# \ne #", "<=": r"# \le #", ">=": r"# \ge #", "<": "# < #", ">": "# > #",
    "<<": r"# \ll #", "->": r"# \to #", "not <=": r"# \not\le #", "iff": r"# \iff #",
}  # fmt: skip
Piece = Any  # what a printer puts together: strings; in MathML the items of a row


def get_binding(text: str) -> int:
    """Return how tightly typed text binds, from its syntax.

    >>> get_binding("k1 + 1") == SUM, get_binding("sg(rho)*k2") == PRODUCT, get_binding("sum_t R_t") == SUM
    (True, True, True)
    """
    try:
        whole = ast.parse(text, mode="eval").body
    except SyntaxError:
        return SUM
    return BINDING.get(type(whole.op if isinstance(whole, ast.BinOp) else whole), SUM)


def is_sum(text: str) -> bool:
    """Does typed text need brackets as a factor?"""
    return get_binding(text) == SUM


def _is_multiple(formula: Formula) -> bool:
    """Is it a multiple of one mean, such as 1/2 Var_q(k1), which needs no brackets after grad?"""
    match formula:
        case Product((scale, Mean() | Covariance() | Divergence()), loose=True):
            return not isinstance(scale, Mean | Covariance | Divergence)
    return False


@lru_cache(maxsize=1024)
def _split_template(template: str) -> tuple[str, ...]:
    return tuple(template.split("#"))


class Text:
    """The loss grammar."""

    templates: ClassVar = IN_TEXT
    positions = False  # are sums over positions written as sums?  Otherwise each slot has a name, k1_past
    gradient_level = ATOM  # what grad stands before without brackets
    product_sign, score = "*", "s"

    def __call__(self, formula: Formula) -> str:
        return str(self.inner(formula))

    def show(self, formula: Formula, least: int) -> Piece:
        """Print the formula, in brackets if it binds less tightly than `least`."""
        shown = self.inner(formula)
        return shown if self.level(formula) >= least else self.bracket(shown)

    def put(self, key: str, *pieces: Piece) -> Piece:
        return self.fill(self.templates[key], *pieces)

    def fill(self, template: str, *pieces: Piece) -> Piece:
        """Fill a piece into each # of a template."""
        first, *rest = _split_template(template)
        for piece, after in zip(pieces, rest, strict=True):
            first += piece + after
        return first

    def leaf(self, shown: str) -> Piece:
        """Print a letter or a number."""
        return shown

    def level(self, formula: Formula) -> int:
        match formula:
            case Number(value):
                return ATOM if value.denominator == 1 else PRODUCT
            case Name(_, _, primes):
                return PREFIX if primes else ATOM
            case Typed(text):
                return get_binding(text)
        return LEVELS.get(type(formula), ATOM)

    def inner(self, formula: Formula) -> Piece:
        """Print the formula without brackets around it."""
        match formula:
            case Number(value):
                return self.leaf(self.number(value))
            case Name(name, below, primes):
                return self.leaf(self.variable(name, below, primes))
            case Sum(terms):
                return reduce(self._add_term, terms[1:], self.inner(terms[0]))
            case Minus(of):
                return self.put("minus", self.show(of, BIG))
            case Product(factors, loose):
                return self.product(factors, loose)
            case Quotient(over, under, small):
                return self.quotient(over, under, "small quotient" if small else "quotient")
            case Power(base, exponent):
                return self.put("power", self.show(base, ATOM), self.raised(exponent))
            case Call(function, arguments, primes):
                shown = reduce(lambda a, b: self.put("comma", a, b), map(self.inner, arguments))
                return self.call(function + "'" * primes, shown, any(map(is_tall, arguments)))
            case Typed(text, loss):
                return self.typed(text, loss)
            case Relation() | Cases() | Indicator() | Words() | Phrase():
                return self._show_phrase(formula)
        return self._show_mean(formula)

    def _add_term(self, before: Piece, term: Formula) -> Piece:
        if isinstance(term, Minus):
            return self.put("subtract", before, self.show(term.of, BIG))
        return self.put("add", before, self.show(term, BIG))

    def _show_mean(self, formula: Formula) -> Piece:
        """Print means, gradients, variances and divergences."""
        match formula:
            case Mean("count", of):
                return self.put("total", self.show(of, MINUS if self.positions else SUM))
            case Mean("", of):
                return self.put("E", self.inner(of))
            case Mean(measure, of):
                return self.expectation(measure, self.inner(of))
            case Over(index, of):
                return self.put(index, self.show(of, BIG))
            case Big(sign, below, of):
                below = f"{{{below}}}" if len(below) > 1 else below
                return self.fill(rf"\{sign}_{below} #", self.show(of, PREFIX))
            case Gradient(of):
                simple = self.level(of) >= self.gradient_level or _is_multiple(of)
                return self.gradient_of(self.inner(of), simple)
            case Curl(of):
                return self.put("curl", self.inner(of))
            case Along(direction, of):
                return self.put(direction, self.show(of, PRODUCT if self.positions else ATOM))
            case Covariance(measure, first, second):
                return self.covariance(measure, self.inner(first), self.inner(second), is_tall(first))
            case Divergence(kind, first, second):
                return self.put(kind, self.inner(first), self.inner(second))
            case Bregman(phi):
                return self.put("bregman", self.inner(phi))
        raise TypeError(f"{type(formula).__name__} is no formula")

    def _show_phrase(self, formula: Formula) -> Piece:
        match formula:
            case Relation(left, sign, right):
                return self.put(sign, self.inner(left), self.inner(right))
            case Indicator(when):
                return self.put("1", self.inner(when))
            case Words(text, latex):
                return self.words(text, latex)
            case Phrase((first, *rest)):
                return reduce(
                    lambda shown, part: self.fill("##", shown, self.inner(part)), rest, self.inner(first)
                )
            case Cases(rows):
                shown = self.templates["next case"].join(
                    self.templates["if" if when else "otherwise"] for _, when in rows
                )
                pieces = (self.inner(part) for row in rows for part in row if part)
                return self.fill(self.templates["cases"].replace("#", shown), *pieces)
        raise TypeError(f"{type(formula).__name__} is no phrase")

    # -- what the notations do differently ----------------------------------------------
    def number(self, value: Fraction | int) -> str:
        """Print a number exactly: 2/3, or 1.0000001 where a fraction would be long."""
        return format_decimal(value) if is_long_decimal(value) else str(value)

    def name(self, name: str) -> str:
        return "T" if name == "length" else name

    measure = name

    def variable(self, name: str, below: str, primes: int) -> str:
        return self.name(name) + "'" * primes + (f"_{below}" if below else "")

    def product(self, factors: tuple[Formula, ...], loose: bool) -> Piece:
        """Print a product; quotients before means get brackets: 1/beta KL would read as 1/(beta KL)."""
        least = [PREFIX if loose and isinstance(factor, Quotient) else PRODUCT for factor in factors]
        sign = "beside" if loose else "times"
        return reduce(lambda a, b: self.put(sign, a, b), map(self.show, factors, least))

    def quotient(self, over: Formula, under: Formula, key: str) -> Piece:
        return self.put(key, self.show(over, PRODUCT), self.show(under, PREFIX))

    def raised(self, exponent: Formula) -> Piece:
        return self.show(exponent, ATOM)

    def call(self, function: str, argument: Piece, tall: bool) -> Piece:
        return self.fill(f"{function}(#)", argument)

    def typed(self, text: str, loss: Formula) -> Piece:
        return text

    def words(self, text: str, latex: str) -> Piece:
        return text

    # -- of pieces that others have written ---------------------------------------------
    def bracket(self, inner: Piece) -> Piece:
        return self.put("bracket", inner)

    def expectation(self, measure: str, inner: Piece) -> Piece:
        return self.put("mean", self.leaf(self.measure(measure)), inner)

    def divergence(self, kind: str, a: str, b: str) -> Piece:
        """Print the divergence between two measures, from their names."""
        return self.put(kind, self.leaf(self.measure(a)), self.leaf(self.measure(b)))

    def gradient_of(self, inner: Piece, simple: bool) -> Piece:
        return self.put("grad" if simple else "grad of", inner)

    def covariance(self, measure: str, a: Piece, b: Piece, tall: bool = False) -> Piece:
        of = self.leaf(self.measure(measure))
        return self.put("tall Var" if tall else "Var", of, a) if a == b else self.put("Cov", of, a, b)


class Latex(Text):
    """LaTeX for amsmath; slashed: for running text, where fractions are written with a slash."""

    templates = IN_LATEX
    positions = True
    gradient_level = POWER
    product_sign = r"\,"

    def __init__(self, slashed: bool = False) -> None:
        self.slashed = slashed

    def level(self, formula: Formula) -> int:
        match formula:
            case Typed(_, loss):
                return self.level(loss)
            case Name(name) if name in LOGS:
                return PREFIX
            case Call("sqrt"):
                return PREFIX
        return super().level(formula)

    def number(self, value: Fraction | int) -> str:
        if value.denominator == 1 or self.slashed:
            return str(value)
        sign = "-" if value < 0 else ""
        return rf"{sign}\tfrac{{{abs(value.numerator)}}}{{{value.denominator}}}"

    def name(self, name: str) -> str:
        if name in NAMES:
            return NAMES[name]
        stem, _, index = name.partition("_")
        if name.startswith(OF_REGIONS):
            return rf"\mathbf{{1}}_{{\mathrm{{{index}}}}}"
        letter = GREEK.get(stem, stem if len(stem) == 1 else rf"\mathit{{{stem}}}")
        plain = r"\star" if index == "star" else index.replace("_", ",")
        return f"{letter}_{{{plain}}}" if plain else letter

    def measure(self, name: str) -> str:
        return {"mu": r"\mu", "count": r"\#"}.get(name, name)

    def variable(self, name: str, below: str, primes: int) -> str:
        """Print f'_t, or k_{1,t} for a letter that has an index of its own."""
        shown = self.name(name)
        if not below:
            return shown + "'" * primes
        stem, _, index = shown.partition("_")
        inner = index[1:-1] if index.startswith("{") else index
        index = f"{inner},{below}" if index else below
        return stem + "'" * primes + (f"_{{{index}}}" if len(index) > 1 else f"_{index}")

    def product(self, factors: tuple[Formula, ...], loose: bool) -> Piece:
        """Print a product; a sum over positions that is not its last factor gets brackets."""
        *before, last = factors
        shown = (self.show(factor, ATOM if is_open(factor) else PRODUCT) for factor in before)
        lead = reduce(lambda a, b: self.put("times", a, b), shown)
        return self.put("times a sum" if isinstance(last, Big) else "times", lead, self.show(last, PRODUCT))

    def quotient(self, over: Formula, under: Formula, key: str) -> Piece:
        if self.slashed:
            return self.fill("#/#", self.show(over, PRODUCT), self.show(under, PREFIX))
        return self.put(key, self.inner(over), self.inner(under))

    def raised(self, exponent: Formula) -> Piece:
        return self.inner(exponent)

    def call(self, function: str, argument: Piece, tall: bool) -> Piece:
        if function == "sqrt":
            return self.fill(r"\sqrt{#}", argument)
        if function == "abs":
            return self.fill(r"\left|#\right|", argument)
        stem = function.rstrip("'")
        shown = FUNCTIONS.get(stem) or (stem if len(stem) < 2 else rf"\mathrm{{{stem}}}")
        return self.fill(shown + function[len(stem) :] + (r"\!\left(#\right)" if tall else "(#)"), argument)

    def typed(self, text: str, loss: Formula) -> Piece:
        return self.inner(loss)

    def words(self, text: str, latex: str) -> Piece:
        return self.leaf(latex or rf"\text{{{escape_inside(text)}}}")


TEXT = Text()
LATEX = Latex()
