"""Two spellings of the same formulas: the loss grammar (plain text) and LaTeX.

A printer walks a formula once and asks a spelling how to write each piece.

>>> TEXT.power("r", "2"), LATEX.power("r", "2")
('r**2', 'r^{2}')
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

GREEK = {
    "lam": r"\lambda", "beta": r"\beta", "eps": r"\varepsilon", "alpha": r"\alpha", "nu": r"\nu",
    "gamma": r"\gamma", "mu": r"\mu", "rho": r"\rho",
}  # fmt: skip
NAMES = {
    "k1": "k_1", "k2": "k_2", "k3": "k_3", "log_q": r"\log q", "log_p": r"\log p", "log_mu": r"\log\mu",
}  # fmt: skip


SLOT_ORDER = ("past", "now", "future", "self", "other", "others", "rest")
# slot -> how its sum begins, the index of what is summed, and that of a product over the slot
POSITIONS = {
    "now": ("", "t", "t"),
    "past": (r"\sum_{u<t} ", "u", "<t"),
    "future": (r"\sum_{u>t} ", "u", ">t"),
    "upto": (r"\sum_{u\le t} ", "u", r"\le t"),
    "from": (r"\sum_{u\ge t} ", "u", r"\ge t"),
    "all": (r"\sum_u ", "u", ""),
    "self": ("", "i", "i"),
    "other": ("", "j", "j"),
    "others": (r"\sum_{j\ne i} ", "j", r"\ne i"),
    "both": (r"\sum_j ", "j", ""),
    "rest": (r"\sum_{l\ne i,j} ", "l", r"\ne i,j"),
    "batch": (r"\sum_l ", "l", ""),
}
POSITIONS |= {
    f"i_{slot}": (lead, f"i,{index}", f"i,{beyond}" if beyond else "i")
    for slot, (lead, index, beyond) in POSITIONS.items()
    if index in ("t", "u")
}
POSITIONS["i_x"] = ("", "i", "i")
STEPS = {"past": "(t-1)", "now": "1", "upto": "t", "future": "(T-t)", "from": "(T-t+1)", "all": "T"}
KNOWN = {"now": r"\le t", "future": r"\le T"}  # what is known once a token, or everything, is drawn


def trails(text: str) -> bool:
    r"""Does a formula end in a sum or product over positions, so that what follows would join it?

    >>> trails(r"s_t \sum_{u<t} k_{1,u}"), trails(r"\left(\sum_{u<t} k_{1,u}\right)\,s_t")
    (True, False)
    """
    return max(text.rfind(r"\sum"), text.rfind(r"\prod")) > text.rfind(r"\right")


INDEXED = re.compile(r"(?:[A-Za-z]|\\[a-z]+)_(?:\{[^{}]*\}|[A-Za-z0-9])")  # k_{1,t}, \rho_{<t}, b_{\star}


def unbracketed(text: str) -> str:
    r"""What stands over or under a fraction's bar needs no brackets round the whole.

    >>> unbracketed(r"\left(1 - r\right)"), unbracketed(r"\left(a\right)\,\left(b\right)")
    ('1 - r', '\\left(a\\right)\\,\\left(b\\right)')
    """
    inner = text.removeprefix(r"\left(").removesuffix(r"\right)")
    if len(text) - len(inner) != len(r"\left(\right)"):
        return text
    depth = 0
    for sign in re.findall(r"\\(left|right)\b", inner):
        depth += 1 if sign == "left" else -1
        if depth < 0:
            return text
    return inner


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
        return "T" if name == "length" else name

    def in_slot(self, name: str, slot: str, primes: int = 0, ratio: bool = False) -> str:
        """A variable of a slot, k1_now; that of a single sample has no slot."""
        shown = self.name(name) + "'" * primes
        return shown if slot == "x" else f"{shown}_{slot}"

    def token_divergence(self, a: str, b: str) -> str:
        return f"KL({a}||{b})"

    def product(self, factors: list[str]) -> str:
        """Factors side by side."""
        return self.product_sign.join(factors)

    def power(self, base: str, exponent: str) -> str:
        base = base if is_atomic(base) or is_call(base) else f"({base})"
        return f"{base}**{exponent if is_atomic(exponent) else f'({exponent})'}"

    def call(self, function: str, argument: str) -> str:
        return f"{function}({argument})"

    def bracket(self, inner: str) -> str:
        return f"({inner})"

    def fraction(self, numerator: str, denominator: str) -> str:
        return f"{numerator}/{denominator}"

    def small_fraction(self, numerator: str, denominator: str) -> str:
        """A number or a parameter that stands before a sum."""
        return self.fraction(numerator, denominator)

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
        if name == "length":
            return "T"
        stem, _, index = name.partition("_")
        letter = GREEK.get(stem, stem if len(stem) == 1 else rf"\mathit{{{stem}}}")
        plain = r"\star" if index == "star" else index.replace("_", ",")
        return f"{letter}_{{{plain}}}" if plain else letter

    def power(self, base: str, exponent: str) -> str:
        simple = is_atomic(base) or (base.startswith("\\") and base[1:].isalpha()) or is_call(base)
        simple = simple or bool(INDEXED.fullmatch(base))
        return f"{base if simple else self.bracket(base)}^{{{exponent}}}"

    def call(self, function: str, argument: str) -> str:
        known = {"exp": r"\exp", "log": r"\log", "min": r"\min", "max": r"\max"}
        if function == "sqrt":
            return rf"\sqrt{{{argument}}}"
        if function == "abs":
            return rf"\left|{argument}\right|"
        plain = function if len(function) == 1 else rf"\mathrm{{{function}}}"
        return known.get(function, plain) + self._brackets(argument)

    def bracket(self, inner: str) -> str:
        return rf"\left({inner}\right)"

    def _brackets(self, argument: str) -> str:
        """Round a function's argument: large enough for a sum over positions."""
        return (
            rf"\!{self.bracket(argument)}" if r"\sum" in argument or r"\prod" in argument else f"({argument})"
        )

    def product(self, factors: list[str]) -> str:
        """A factor that ends in a sum over positions goes last, others of its kind in brackets."""
        sums = [factor for factor in factors if trails(factor)]
        if not sums or len(factors) == 1:
            return self.product_sign.join(factors)
        before = [factor for factor in factors if not trails(factor)] + [self.bracket(f) for f in sums[:-1]]
        sign = " " if sums[-1].startswith((r"\sum", r"\prod")) else self.product_sign
        return sign.join([self.product_sign.join(before), sums[-1]])

    def fraction(self, numerator: str, denominator: str) -> str:
        if trails(numerator):
            whole = self.bracket(numerator) if is_sum(numerator) else numerator
            return rf"{self.small_fraction('1', denominator)} {whole}"
        return rf"\frac{{{unbracketed(numerator)}}}{{{unbracketed(denominator)}}}"

    def small_fraction(self, numerator: str, denominator: str) -> str:
        return rf"\tfrac{{{numerator}}}{{{denominator}}}"

    def in_slot(self, name: str, slot: str, primes: int = 0, ratio: bool = False) -> str:
        """k_{1,t}, a sum such as \\sum_{u<t} k_{1,u}, or a product of ratios r_{<t}."""
        if slot == "x":
            return self.name(name) + "'" * primes
        of_one = slot.removeprefix("i_")  # of a sequence of a batch
        if name == "length" and of_one in STEPS:
            return STEPS[of_one].replace("T", "T_i") if of_one != slot else STEPS[slot]
        lead, index, beyond = POSITIONS[slot]
        if name == "A":
            beyond = ("i," if of_one != slot else "") + KNOWN[of_one] if of_one in KNOWN else beyond
        elif ratio and index in ("j", "l"):  # of other samples
            lead, beyond, ratio = lead.replace("sum", "prod"), index, False
        stem, _, below = self.name(name).partition("_")
        below = below.strip("{}")
        index = beyond if ratio or name == "A" else index
        joined = ",".join(part for part in (below, index) if part)
        shown = (
            stem + "'" * primes + (f"_{{{joined}}}" if len(joined) > 1 else f"_{joined}" if joined else "")
        )
        return shown if ratio or name == "A" else lead + shown

    def token_divergence(self, a: str, b: str) -> str:
        return rf"\mathrm{{KL}}({a}\,\Vert\,{b})"

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
            return rf"\mathrm{{Var}}_{{{m}}}{self._brackets(a)}"
        return rf"\mathrm{{Cov}}_{{{m}}}({a},\,{b})"

    def bregman(self, phi: str) -> str:
        return rf"D_\phi(r, 1)\big|_{{\phi = {phi}}}"


TEXT = Text()
LATEX = Latex()
