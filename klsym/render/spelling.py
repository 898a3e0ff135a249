r"""Printers of formula trees: text in the loss grammar, which the parser reads back, and LaTeX.

A printer knows how tightly each node binds in its notation, and puts brackets where a place asks for more.

>>> TEXT(Power(Sum((Name("k1"), Number(1))), Number(2))), LATEX(Power(Name("r"), Number(2)))
('(k1 + 1)**2', 'r^{2}')
"""

from __future__ import annotations

import ast
from fractions import Fraction
from typing import ClassVar

from klsym.escaping import escape_inside
from klsym.render.tree import (
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
    is_open,
    is_tall,
)

GREEK = {
    "lam": r"\lambda", "beta": r"\beta", "eps": r"\varepsilon", "alpha": r"\alpha", "nu": r"\nu",
    "gamma": r"\gamma", "mu": r"\mu", "rho": r"\rho",
}  # fmt: skip
NAMES = GREEK | {
    "k1": "k_1", "k2": "k_2", "k3": "k_3", "log_q": r"\log q", "log_p": r"\log p", "log_mu": r"\log\mu",
    "length": "T",
}  # fmt: skip
LOGS = ("log_q", "log_p", "log_mu")  # prefixes in LaTeX, names in the grammar
# How tightly a node binds; a place names the least that stands in it without brackets.
SUM, MINUS, BIG, PRODUCT, PREFIX, POWER, ATOM = range(7)
LEVELS: dict[type[Formula], int] = {
    Relation: SUM, Phrase: SUM, Words: SUM, Sum: SUM, Minus: MINUS, Over: BIG, Product: PRODUCT,
    Quotient: PRODUCT, Big: PRODUCT, Gradient: PREFIX, Curl: PREFIX, Along: PREFIX, Power: POWER,
}  # fmt: skip
BINDING: dict[type[ast.AST], int] = {
    ast.Name: ATOM, ast.Constant: ATOM, ast.Call: ATOM, ast.Pow: POWER, ast.Mult: PRODUCT, ast.Div: PRODUCT,
    ast.Add: SUM, ast.Sub: SUM, ast.UnaryOp: MINUS,
}  # fmt: skip


def binding(text: str) -> int:
    """How tightly typed text binds, from its syntax.

    >>> binding("k1 + 1") == SUM, binding("sg(rho)*k2") == PRODUCT, binding("sum_t R_t") == SUM
    (True, True, True)
    """
    try:
        whole = ast.parse(text, mode="eval").body
    except SyntaxError:
        return SUM
    return BINDING.get(type(whole.op if isinstance(whole, ast.BinOp) else whole), SUM)


def _is_multiple(formula: Formula) -> bool:
    """Of one mean, as 1/2 Var_q(k1), which stands behind grad as it is."""
    match formula:
        case Product((scale, _), loose=True):
            return not isinstance(scale, Mean | Covariance | Divergence)
    return False


def is_sum(text: str) -> bool:
    """Does typed text need brackets as a factor?"""
    return binding(text) == SUM


class Text:
    """The loss grammar."""

    product_sign, score = "*", "s"
    positions = False  # are sums over positions written as sums?  Otherwise each slot has a name, k1_past
    gradient_level = ATOM  # what grad stands before without brackets
    signs: ClassVar = {sign: sign for sign in ("=", "!=", "<=", ">=", "<", ">", "not <=", "iff")}
    averages: ClassVar = {"i": "mean_i ", "ij": "mean_{i!=j} ", "t": "sum_t ", "it": "mean_i sum_t "}

    def __call__(self, formula: Formula) -> str:
        return self.show(formula, SUM)

    def show(self, formula: Formula, least: int) -> str:
        """The formula where something that binds less than `least` needs brackets."""
        shown = self.inner(formula)
        return shown if self.level(formula) >= least else self.bracket(shown)

    def level(self, formula: Formula) -> int:
        match formula:
            case Number(value):
                return ATOM if value.denominator == 1 else PRODUCT
            case Name(_, _, primes):
                return PREFIX if primes else ATOM
            case Typed(text):
                return binding(text)
        return LEVELS.get(type(formula), ATOM)

    def inner(self, formula: Formula) -> str:
        """The formula without brackets round it."""
        match formula:
            case Number(value):
                return self.number(value)
            case Name(name, below, primes):
                return self.variable(name, below, primes)
            case Sum(terms):
                first, *rest = terms
                return self(first) + "".join(map(self._term, rest))
            case Minus(of):
                return "-" + self.show(of, BIG)
            case Product(factors, loose):
                return self.product(factors, loose)
            case Quotient(over, under, small):
                return self.quotient(over, under, small)
            case Power(base, exponent):
                return self.power(base, exponent)
            case Call(function, arguments, primes):
                shown, tall = ", ".join(map(self, arguments)), any(map(is_tall, arguments))
                return self.call(function, shown, primes, tall)
            case Typed(text, loss):
                return self.typed(text, loss)
            case Relation() | Cases() | Indicator() | Words() | Phrase():
                return self._said(formula)
        return self._named(formula)

    def _named(self, formula: Formula) -> str:
        """Means and what is made of them."""
        match formula:
            case Mean(measure, of):
                return self.mean(measure, of)
            case Over(index, of):
                return self.averages[index] + self.show(of, BIG)
            case Big(sign, below, of):
                return self.big(sign, below, self.show(of, PREFIX))
            case Gradient(of):
                simple = self.level(of) >= self.gradient_level or _is_multiple(of)
                return self.gradient_of(self(of), simple)
            case Curl(of):
                return self.curl(self(of))
            case Along(direction, of):
                return self.along(direction, of)
            case Covariance(measure, first, second):
                return self.covariance(measure, self(first), self(second), is_tall(first))
            case Divergence(kind, first, second):
                return self.between(kind, self(first), self(second))
            case Bregman(phi):
                return self.bregman(self(phi))
        raise TypeError(f"{type(formula).__name__} is no formula")

    def _said(self, formula: Formula) -> str:
        match formula:
            case Relation(left, sign, right):
                return f"{self(left)} {self.signs[sign]} {self(right)}"
            case Cases(rows):
                return self.cases([(self(value), self(when) if when else "") for value, when in rows])
            case Indicator(when):
                return self.indicator(self(when))
            case Words(text, latex):
                return self.words(text, latex)
            case Phrase(parts):
                return "".join(map(self, parts))
        raise TypeError(f"{type(formula).__name__} is no phrase")

    def _term(self, term: Formula) -> str:
        if isinstance(term, Minus):
            return " - " + self.show(term.of, BIG)
        return " + " + self.show(term, BIG)

    # -- how each node is written -------------------------------------------------------
    def number(self, value: Fraction | int) -> str:
        return str(value)

    def name(self, name: str) -> str:
        return "T" if name == "length" else name

    def variable(self, name: str, below: str, primes: int) -> str:
        return self.name(name) + "'" * primes + (f"_{below}" if below else "")

    def product(self, factors: tuple[Formula, ...], loose: bool) -> str:
        """A quotient in front of means is bracketed: 1/beta KL would read as 1/(beta KL)."""
        if not loose:
            return "*".join(self.show(factor, PRODUCT) for factor in factors)
        least = (PREFIX if isinstance(factor, Quotient) else PRODUCT for factor in factors)
        return " ".join(map(self.show, factors, least))

    def quotient(self, over: Formula, under: Formula, small: bool) -> str:
        return f"{self.show(over, PRODUCT)}/{self.show(under, PREFIX)}"

    def power(self, base: Formula, exponent: Formula) -> str:
        return f"{self.show(base, ATOM)}**{self.show(exponent, ATOM)}"

    def call(self, function: str, argument: str, primes: int = 0, tall: bool = False) -> str:
        return f"{function}{chr(39) * primes}({argument})"

    def typed(self, text: str, loss: Formula) -> str:
        return text

    def bracket(self, inner: str) -> str:
        return f"({inner})"

    def mean(self, measure: str, of: Formula) -> str:
        return f"sum_x[{self(of)}]" if measure == "count" else self.expectation(measure, self(of))

    def expectation(self, measure: str, inner: str) -> str:
        return f"E_{measure}[{inner}]"

    def big(self, sign: str, below: str, inner: str) -> str:
        return f"{sign}_{{{below}}} {inner}"

    def divergence(self, kind: str, a: str, b: str) -> str:
        """Between two measures by their names."""
        return self.between(kind, self.name(a), self.name(b))

    def between(self, kind: str, a: str, b: str) -> str:
        return f"J({a}, {b})" if kind == "J" else f"{kind}({a}||{b})"

    def gradient_of(self, inner: str, simple: bool) -> str:
        return f"grad {inner}" if simple else f"grad({inner})"

    def curl(self, inner: str) -> str:
        return f"curl {inner}"

    def along(self, direction: str, score: Formula) -> str:
        return f"{direction}.{self.show(score, ATOM)}"

    def covariance(self, measure: str, a: str, b: str, tall: bool = False) -> str:
        return f"Var_{measure}({a})" if a == b else f"Cov_{measure}({a}, {b})"

    def bregman(self, phi: str) -> str:
        return f"D_phi(r, 1) with phi = {phi}"

    def cases(self, rows: list[tuple[str, str]]) -> str:
        return "{" + "; ".join(f"{a} if {when}" if when else f"{a} otherwise" for a, when in rows) + "}"

    def indicator(self, when: str) -> str:
        return f"1[{when}]"

    def words(self, text: str, latex: str) -> str:
        return text


class Latex(Text):
    """LaTeX for amsmath."""

    product_sign = r"\,"
    positions = True
    gradient_level = POWER
    signs: ClassVar = {
        "=": "=", "<=": r"\le", ">=": r"\ge", "<": "<", ">": ">", "!=": r"\ne", "not <=": r"\not\le",
        "iff": r"\iff",
    }  # fmt: skip
    averages: ClassVar = {
        "i": r"\tfrac1n\sum_i ", "ij": r"\tfrac1{n(n-1)}\sum_{i\ne j} ", "t": r"\sum_t ",
        "it": r"\tfrac1n\sum_i\sum_t ",
    }  # fmt: skip
    functions: ClassVar = {"exp": r"\exp", "log": r"\log", "min": r"\min", "max": r"\max"}

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
        if value.denominator == 1:
            return str(value)
        sign = "-" if value < 0 else ""
        return rf"{sign}\tfrac{{{abs(value.numerator)}}}{{{value.denominator}}}"

    def name(self, name: str) -> str:
        if name in NAMES:
            return NAMES[name]
        stem, _, index = name.partition("_")
        letter = GREEK.get(stem, stem if len(stem) == 1 else rf"\mathit{{{stem}}}")
        plain = r"\star" if index == "star" else index.replace("_", ",")
        return f"{letter}_{{{plain}}}" if plain else letter

    def variable(self, name: str, below: str, primes: int) -> str:
        """f'_t, or k_{1,t} for a letter that has an index of its own."""
        shown = self.name(name)
        if not below:
            return shown + "'" * primes
        stem, _, index = shown.partition("_")
        index = f"{index.strip('{}')},{below}" if index else below
        return stem + "'" * primes + (f"_{{{index}}}" if len(index) > 1 else f"_{index}")

    def product(self, factors: tuple[Formula, ...], loose: bool) -> str:
        """A sum over positions that is not the last factor needs brackets."""
        *before, last = factors
        shown = [
            self.bracket(self(factor)) if is_open(factor) else self.show(factor, PRODUCT) for factor in before
        ]
        sign = " " if isinstance(last, Big) else r"\,"
        return r"\,".join(shown) + sign + self.show(last, PRODUCT)

    def quotient(self, over: Formula, under: Formula, small: bool) -> str:
        command = r"\tfrac" if small else r"\frac"
        return f"{command}{{{self(over)}}}{{{self(under)}}}"

    def power(self, base: Formula, exponent: Formula) -> str:
        return f"{self.show(base, ATOM)}^{{{self(exponent)}}}"

    def call(self, function: str, argument: str, primes: int = 0, tall: bool = False) -> str:
        if function == "sqrt":
            return rf"\sqrt{{{argument}}}"
        if function == "abs":
            return rf"\left|{argument}\right|"
        plain = function if len(function) == 1 else rf"\mathrm{{{function}}}"
        return self.functions.get(function, plain) + "'" * primes + self._round(argument, tall)

    def typed(self, text: str, loss: Formula) -> str:
        return self.inner(loss)

    def bracket(self, inner: str) -> str:
        return rf"\left({inner}\right)"

    def _round(self, argument: str, tall: bool) -> str:
        return rf"\!{self.bracket(argument)}" if tall else f"({argument})"

    def mean(self, measure: str, of: Formula) -> str:
        if measure == "count":
            return rf"\sum_x {self.show(of, MINUS)}"
        return self.expectation(measure, self(of))

    def expectation(self, measure: str, inner: str) -> str:
        return rf"\mathbb{{E}}_{{{self.measure(measure)}}}\!\left[{inner}\right]"

    def measure(self, name: str) -> str:
        return {"mu": r"\mu", "count": r"\#"}.get(name, name)

    def big(self, sign: str, below: str, inner: str) -> str:
        return rf"\{sign}_{{{below}}} {inner}" if len(below) > 1 else rf"\{sign}_{below} {inner}"

    def between(self, kind: str, a: str, b: str) -> str:
        if kind == "J":
            return rf"J({a},{b})"
        symbol = r"\chi^2" if kind == "chi2" else r"\mathrm{KL}"
        return rf"{symbol}({a}\,\Vert\,{b})"

    def gradient_of(self, inner: str, simple: bool) -> str:
        return rf"\nabla {inner}" if simple else rf"\nabla\!\left({inner}\right)"

    def curl(self, inner: str) -> str:
        return rf"\operatorname{{curl}}\,{inner}"

    def along(self, direction: str, score: Formula) -> str:
        """Bold: u is the index of a sum over tokens too."""
        return self.bracket(rf"\mathbf{{{direction}}}\cdot {self(score)}")

    def covariance(self, measure: str, a: str, b: str, tall: bool = False) -> str:
        m = self.measure(measure)
        if a == b:
            return rf"\mathrm{{Var}}_{{{m}}}{self._round(a, tall)}"
        return rf"\mathrm{{Cov}}_{{{m}}}({a},\,{b})"

    def bregman(self, phi: str) -> str:
        return rf"D_\phi(r, 1)\big|_{{\phi = {phi}}}"

    def cases(self, rows: list[tuple[str, str]]) -> str:
        lines = (rf"{a} & \text{{if }}{when}" if when else rf"{a} & \text{{otherwise}}" for a, when in rows)
        return r"\begin{cases}" + r" \\ ".join(lines) + r"\end{cases}"

    def indicator(self, when: str) -> str:
        return rf"\mathbf{{1}}[{when}]"

    def words(self, text: str, latex: str) -> str:
        return latex or rf"\text{{{escape_inside(text)}}}"


TEXT = Text()
LATEX = Latex()
