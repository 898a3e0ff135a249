"""Two spellings of the same formulas: the loss grammar (plain text) and LaTeX.

A printer walks a formula once and asks a spelling how to write each piece.

>>> TEXT.power("r", "2"), LATEX.power("r", "2")
('r**2', 'r^{2}')
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

GREEK = {
    "lam": r"\lambda", "beta": r"\beta", "eps": r"\varepsilon", "alpha": r"\alpha", "nu": r"\nu",
    "gamma": r"\gamma", "mu": r"\mu", "rho": r"\rho",
}  # fmt: skip
NAMES = {
    "k1": "k_1", "k2": "k_2", "k3": "k_3", "log_q": r"\log q", "log_p": r"\log p", "log_mu": r"\log\mu",
}  # fmt: skip


def is_atomic(text: str) -> bool:
    """Does a piece need no brackets before a power?"""
    return text.replace("_", "").isalnum()


def is_sum(text: str) -> bool:
    """Is there a + or - outside all brackets?

    >>> is_sum("1 - r"), is_sum("rho*(k1 + 1)"), is_sum("-r")
    (True, False, False)
    """
    depth = 0
    for i, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and character in "+-" and i > 0 and text[i - 1] == " ":
            return True
    return False


def is_quotient(text: str) -> bool:
    """A quotient other than a plain number: 1/beta KL would read as 1/(beta KL)."""
    return "/" in text and not text.replace("/", "").lstrip("-").isdigit()


def is_call(text: str) -> bool:
    """One call or bracket, such as sg(rho): its last bracket closes the first.

    >>> is_call("sg(rho)"), is_call("k1 + sg(k2)"), is_call("(a)*(b)")
    (True, False, False)
    """
    head, opened, _ = text.partition("(")
    if (
        not opened
        or not text.endswith(")")
        or not head.lstrip("\\").replace("{", "").replace("}", "").isalnum()
    ):
        return False
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and character == ")" and i < len(text) - 1:
            return False
    return True


class Text:
    """The loss grammar, as the parser reads it."""

    product_sign, exp_sign, gradient, relation = (
        "*",
        "exp",
        "grad",
        {"=": "=", "<=": "<=", "!=": "!="},
    )
    score = "s"

    def is_single(self, text: str) -> bool:
        """One name or call, such as k3 or sg(rho): grad needs no bracket before it."""
        return not is_sum(text) and not any(sign in text for sign in ("*", "/", " ", r"\,", r"\frac", "-"))

    def number(self, value: Fraction | int) -> str:
        return str(value)

    def name(self, name: str) -> str:
        return name

    def power(self, base: str, exponent: str) -> str:
        base = base if is_atomic(base) or is_call(base) else f"({base})"
        return f"{base}**{exponent if is_atomic(exponent) else f'({exponent})'}"

    def call(self, function: str, argument: str) -> str:
        return f"{function}({argument})"

    def bracket(self, inner: str) -> str:
        return f"({inner})"

    def fraction(self, numerator: str, denominator: str) -> str:
        return f"{numerator}/{denominator}"

    def expectation(self, measure: str, inner: str) -> str:
        return f"sum_x[{inner}]" if measure == "count" else f"E_{measure}[{inner}]"

    def divergence(self, kind: str, a: str, b: str) -> str:
        return f"J({a}, {b})" if kind == "J" else f"{kind}({a}||{b})"

    def gradient_of(self, inner: str, simple: bool) -> str:
        return f"grad {inner}" if simple else f"grad({inner})"

    def covariance(self, measure: str, a: str, b: str) -> str:
        return f"Var_{measure}({a})" if a == b else f"Cov_{measure}({a}, {b})"

    def bregman(self, phi: str) -> str:
        return f"D_phi(r, 1) with phi = {phi}"


@dataclass
class Latex(Text):
    """LaTeX for amsmath."""

    def __post_init__(self) -> None:
        self.product_sign, self.exp_sign, self.score = r"\,", r"\exp", "s"
        self.relation = {"=": "=", "<=": r"\le", "!=": r"\ne", "not <=": r"\not\le"}

    def number(self, value: Fraction | int) -> str:
        if value.denominator == 1:
            return str(value)
        sign = "-" if value < 0 else ""
        return rf"{sign}\tfrac{{{abs(value.numerator)}}}{{{value.denominator}}}"

    def name(self, name: str) -> str:
        if name in NAMES:
            return NAMES[name]
        if name in GREEK:
            return GREEK[name]
        stem, _, index = name.partition("_")
        letter = GREEK.get(stem, stem if len(stem) == 1 else rf"\mathit{{{stem}}}")
        plain = r"\star" if index == "star" else index.replace("_", ",")
        return f"{letter}_{{{plain}}}" if plain else letter

    def power(self, base: str, exponent: str) -> str:
        simple = is_atomic(base) or (base.startswith("\\") and base[1:].isalpha()) or is_call(base)
        simple = simple or (base.startswith("k_") and len(base) == 3)
        return f"{base if simple else self.bracket(base)}^{{{exponent}}}"

    def call(self, function: str, argument: str) -> str:
        known = {"exp": r"\exp", "log": r"\log", "min": r"\min", "max": r"\max"}
        if function == "sqrt":
            return rf"\sqrt{{{argument}}}"
        if function == "abs":
            return rf"\left|{argument}\right|"
        plain = function if len(function) == 1 else rf"\mathrm{{{function}}}"
        return known.get(function, plain) + f"({argument})"

    def bracket(self, inner: str) -> str:
        return rf"\left({inner}\right)"

    def fraction(self, numerator: str, denominator: str) -> str:
        return rf"\frac{{{numerator}}}{{{denominator}}}"

    def measure(self, name: str) -> str:
        return {"mu": r"\mu", "count": r"\#"}.get(name, name)

    def expectation(self, measure: str, inner: str) -> str:
        if measure == "count":
            return rf"\sum_x {self.bracket(inner) if is_sum(inner) else inner}"
        return rf"\mathbb{{E}}_{{{self.measure(measure)}}}\!\left[{inner}\right]"

    def divergence(self, kind: str, a: str, b: str) -> str:
        a, b = self.measure(a), self.measure(b)
        if kind == "J":
            return rf"J({a},{b})"
        symbol = r"\chi^2" if kind == "chi2" else r"\mathrm{KL}"
        return rf"{symbol}({a}\,\Vert\,{b})"

    def gradient_of(self, inner: str, simple: bool) -> str:
        return rf"\nabla {inner}" if simple else rf"\nabla\!\left({inner}\right)"

    def covariance(self, measure: str, a: str, b: str) -> str:
        m = self.measure(measure)
        if a == b:
            return rf"\mathrm{{Var}}_{{{m}}}({a})"
        return rf"\mathrm{{Cov}}_{{{m}}}({a},\,{b})"

    def bregman(self, phi: str) -> str:
        return rf"D_\phi(r, 1)\big|_{{\phi = {phi}}}"


TEXT = Text()
LATEX = Latex()
