"""Read formulas in text, as sentences and answers contain them, into trees.

A formula may also leave the sign of a product out and write ^ for a power, unlike the printed text.

>>> from klsym.notation.printers import LATEX, TEXT
>>> TEXT(read("E_q[k1^2 s] <= 2 KL(q||p)")), LATEX(read("-lam k1 <= exp(1/2)"))
('E_q[k1**2 s] <= 2 KL(q||p)', '-\\\\lambda\\\\,k_1 \\\\le \\\\exp(\\\\tfrac{1}{2})')
"""

from __future__ import annotations

import re
from fractions import Fraction

from klsym.errors import UsageError
from klsym.notation.printers import GREEK, NAMES
from klsym.notation.tree import (
    Along,
    Call,
    Covariance,
    Divergence,
    Formula,
    Gradient,
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
    Words,
    negate,
)

TOKEN = re.compile(
    r" *(?:(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)|(?P<star>[A-Za-z]+\*(?:_[a-z]+)?(?![\w(*]))"
    r"|(?P<name>[A-Za-z][A-Za-z0-9]*'*(?:_(?:[A-Za-z0-9]+|<[a-z]|-[a-z]|\{[^{}]*\}|\([a-z]\+1\)))*'*)"
    r"|(?P<sign>_\+|<<|<=|>=|!=|->|\*\*|\|\||\.\.|[-+*/^=<>()\[\]|,.]))"
)
RELATIONS = ("=", "!=", "<=", ">=", "<", ">", "<<", "->")
DIVERGENCES = ("KL", "chi2", "J")
OVER = {"sum_t": "t", "mean_i": "i"}  # what an averaged quantity begins with
PREFIXES = ("log", "exp", "sup")  # without brackets too
# What stands for itself where nothing follows that it would act on.
ALONE = {"sum_t": r"\sum_t", "mean_i": r"\mathrm{mean}_i", "mean_j": r"\mathrm{mean}_j", "grad": r"\nabla"}
ALONE |= {"d_v": r"\partial_v ", "d_u": r"\partial_u ", "KL_seq": r"\mathrm{KL}_{\mathrm{seq}}", "g1": "g_1"}
ALONE |= {"kbar": r"\bar k", "kbar_-i": r"\bar k_{-i}", "N": r"\mathcal{N}", "theta": r"\theta", "pi": r"\pi"}
ALONE |= {name: rf"\{name}" for name in PREFIXES}
ALONE |= {"phi": r"\phi", "chi2": r"\chi^2", "E": r"\mathbb{E}", "lambda": r"\lambda", "oo": r"\infty"}
UPRIGHT = ("KL", "Var", "Cov", "MSE", "bias", "std", "sg", "curl", "others")
KNOWN = {*NAMES, *ALONE, *UPRIGHT, "chi", "lam_star", "b_star", "sqrt", "sign"}
PARTS = ("is_", "sum_{")  # the indicator of a region, and a sum over some steps, begin with these


def read(text: str, any_name: bool = True) -> Formula:
    """Return the tree of a formula.

    any_name: else letters, with an index or not, and the names that klsym knows.
    Raises UsageError: what is no formula.
    """
    reader = _Reader(text.replace("chi^2", "chi2"), any_name)
    formula = reader.relation()
    if reader.kind:
        raise reader.make_error()
    return formula


class _Reader:
    """A recursive descent: each method reads one kind of formula."""

    def __init__(self, text: str, any_name: bool) -> None:
        self.text, self.place, self.any_name = text, 0, any_name
        self.kind, self.token, self.spaced = "", "", False
        self.advance()

    def advance(self) -> str:
        """Go to the next token, and return the current one."""
        before, token_match = self.token, TOKEN.match(self.text, self.place)
        if token_match is None and self.text[self.place :].strip():
            raise self.make_error()
        self.kind, self.token = (
            (token_match.lastgroup or "", token_match[0].strip()) if token_match else ("", "")
        )
        self.spaced = bool(token_match) and self.text[self.place : self.place + 1] == " "
        self.place = token_match.end() if token_match else len(self.text)
        return before

    def make_error(self) -> UsageError:
        return UsageError(f"no formula: {self.text[:60]!r} at character {self.place}")

    def take(self, *signs: str) -> str:
        """Take the next token if it is one of these signs, else return an empty text."""
        return self.advance() if self.kind == "sign" and self.token in signs else ""

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise self.make_error()

    def relation(self) -> Formula:
        """Read a = b <= c, or a | b: a given b."""
        left = self.sum()
        while sign := self.take(*RELATIONS):
            left = Relation(left, sign, self.sum())
        return Phrase((left, GIVEN, self.relation())) if self.take("|") else left

    def sum(self) -> Formula:
        self.take("+")
        terms = [Minus(self.product()) if self.take("-") else self.product()]
        while sign := self.take("+", "-"):
            terms.append(Minus(self.product()) if sign == "-" else self.product())
        return Sum(tuple(terms)) if len(terms) > 1 else terms[0]

    def product(self) -> Formula:
        """Read factors with * or without; a quotient divides the whole product before it."""
        if self.token in OVER:
            name = self.advance()
            return Over(OVER[name], self.product()) if self.has_operand() else _build_letter(name)
        factors, loose = [self.power()], False
        while True:
            if self.take("/"):
                over = factors[0] if len(factors) == 1 else Product(tuple(factors), loose)
                factors, loose = [_build_ratio(over, self.power())], False
            elif self.take("*"):
                factors.append(self.power())
            elif self.kind in ("name", "number", "star") or self.token in ("(", "["):
                factors, loose = [*factors, self.power()], True
            else:
                return Product(tuple(factors), loose) if len(factors) > 1 else factors[0]

    def power(self) -> Formula:
        base = self.atom()
        if self.take("_+"):
            base = Call("max", (Number(0), base))
        if self.take("**", "^"):
            base = Power(base, negate(self.atom()) if self.take("-") else self.atom())
        if sign := self.take("..", "."):
            base = Call("", (base,)) if isinstance(base, Sum | Product) else base
            return Phrase((base, Words(sign, r"\ldots " if sign == ".." else r"\cdot "), self.power()))
        return base

    def atom(self) -> Formula:
        if self.kind == "number":
            return _build_number(self.advance())
        if self.kind == "star":
            stem, _, below = self.advance().partition("*")
            letter = (GREEK | ALONE).get(stem, stem)
            return Words(stem, rf"{letter}^\star" + (rf"_{{\mathrm{{{below[1:]}}}}}" if below else ""))
        if self.kind == "name":
            return self.named(self.advance())
        if self.take("|"):
            inner = self.sum()
            self.need("|")
            return Call("abs", (inner,))
        if self.take("."):
            return Words(".", r"\cdot ")
        if self.take("("):
            inside = self.arguments()
            plain = len(inside) == 1 and not isinstance(inside[0], Relation)
            return inside[0] if plain else Call("", inside)
        self.need("[")
        return self.closed()

    def closed(self) -> Formula:
        inner = self.relation()
        self.need("]")
        return inner

    def has_operand(self) -> bool:
        """Does an operand follow, on which an operator before it acts?"""
        return self.kind in ("name", "number", "star") or self.token in ("(", "[", "|")

    def named(self, name: str) -> Formula:
        """Read a letter, or a function with its arguments."""
        stem, _, below = name.partition("_")
        bare = stem.rstrip("'")
        strange = (len(bare) > 1 or "_" in below) and not {name, bare} & KNOWN and bare not in INDEXED
        if not self.any_name and strange and not name.startswith(PARTS):
            raise self.make_error()
        if stem == "E" and self.take("["):
            return Mean(below, self.closed())
        if name == "grad" and self.has_operand():
            return Gradient(self.power())
        if name in ("u", "v") and self.take("."):
            return Along(name, self.power())
        if stem in ("Var", "Cov") and below and self.has_operand():
            operands = self.arguments() if self.take("(") else (self.power(),)
            return Covariance(below, operands[0], operands[-1])
        if name in PREFIXES and self.token != "(" and self.has_operand():
            return Phrase((Words(f"{name} ", rf"\{name} "), self.power()))
        if self.spaced or not self.take("("):
            return _build_letter(name)
        arguments = self.arguments()
        if stem in DIVERGENCES and len(arguments) == 2:
            return Divergence(stem, *arguments)
        if below or (name in ALONE and name not in PREFIXES) or name in NAMES:
            return Phrase((_build_letter(name), Call("", arguments)))
        return Call(name.rstrip("'"), arguments, name.count("'"))

    def arguments(self) -> tuple[Formula, ...]:
        items = [self.relation()]
        while self.take(",", "||"):
            items.append(self.relation())
        self.need(")")
        return tuple(items)


def _build_ratio(over: Formula, under: Formula) -> Formula:
    if isinstance(over, Number) and isinstance(under, Number) and under.value:
        return Number(Fraction(over.value) / under.value)
    return Quotient(over, under)


def _build_number(text: str) -> Formula:
    digits, _, power = text.partition("e")
    if text.isdigit():
        return Number(int(text))
    return Words(text, rf"{digits}\cdot 10^{{{int(power)}}}" if power else text)


def _build_letter(name: str) -> Formula:
    bare, primes = name.replace("'", ""), name.count("'")
    stem, _, below = bare.partition("_")
    if bare.startswith("is_"):
        return Words(name, rf"\mathbf{{1}}_{{\mathrm{{{below}}}}}")
    if bare.startswith("sum_{"):
        return Words(name, rf"\sum_{below} ".replace("<=", r"\le "))
    if bare in INDEXED:
        return Words(name, f"{bare[0]}_{bare[1]}" + "'" * primes)
    if bare in ALONE:
        return Words(name, ALONE[bare] + "'" * primes)
    if stem in UPRIGHT or stem == "E":
        shown = r"\mathbb{E}" if stem == "E" else rf"\mathrm{{{stem}}}"
        return Words(name, shown + "'" * primes + (f"_{{{GREEK.get(below, below)}}}" if below else ""))
    if below in SHOWN or not below.isalnum():
        return Name(stem, below and SHOWN.get(below, below.strip("{}")), primes)
    return Name(bare, "", primes)


INDEXED = {f"{letter}{digit}" for letter in "cRV" for digit in "12"}  # c1 is a letter with an index
SHOWN = {"past": "<t", "now": "t", "future": ">t", "self": "i", "star": r"\star"}
GIVEN = Words(" | ", r"\mid ")
