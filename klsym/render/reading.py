"""Formulas in text, as they stand in sentences and in answers, read into trees.

Beside what the printer of text writes, a formula may leave the sign of a product out and write ^ for a power.

>>> from klsym.render.spelling import LATEX, TEXT
>>> TEXT(read("E_q[k1^2 s] <= 2 KL(q||p)")), LATEX(read("-lam k1 <= exp(1/2)"))
('E_q[k1**2 s] <= 2 KL(q||p)', '-\\\\lambda\\\\,k_1 \\\\le \\\\exp(\\\\tfrac{1}{2})')
"""

from __future__ import annotations

import re
from fractions import Fraction

from klsym.errors import UsageError
from klsym.render.positions import POSITIONS
from klsym.render.tree import (
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
    Power,
    Product,
    Quotient,
    Relation,
    Sum,
)

TOKEN = re.compile(
    r" *(?:(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)|(?P<name>[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*'*)"
    r"|(?P<sign><<|<=|>=|!=|->|\*\*|\|\||[-+*/^=<>()\[\]|,]))"
)
RELATIONS = ("=", "!=", "<=", ">=", "<", ">", "<<", "->")
DIVERGENCES = ("KL", "chi2", "J")
"""What an averaged quantity begins with."""
OVER = {"sum_t": "t", "mean_i": "i"}


def read(text: str) -> Formula:
    """The tree of a formula.

    Raises UsageError: what is no formula.
    """
    reader = _Reader(text)
    found = reader.relation()
    if reader.kind:
        raise reader.refused()
    return found


class _Reader:
    """A recursive descent: each method reads one kind of formula."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0
        self.kind, self.token = "", ""
        self.advance()

    def advance(self) -> str:
        """Go to the next token; the one that was read."""
        before, found = self.token, TOKEN.match(self.text, self.place)
        if found is None and self.text[self.place :].strip():
            raise self.refused()
        self.kind, self.token = (found.lastgroup or "", found[0].strip()) if found else ("", "")
        self.place = found.end() if found else len(self.text)
        return before

    def refused(self) -> UsageError:
        return UsageError(f"no formula: {self.text[:60]!r} at character {self.place}")

    def take(self, *signs: str) -> str:
        """The next token if it is one of these signs, else nothing."""
        return self.advance() if self.kind == "sign" and self.token in signs else ""

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise self.refused()

    def relation(self) -> Formula:
        left = self.sum()
        while sign := self.take(*RELATIONS):
            left = Relation(left, sign, self.sum())
        return left

    def sum(self) -> Formula:
        self.take("+")
        terms = [Minus(self.product()) if self.take("-") else self.product()]
        while sign := self.take("+", "-"):
            terms.append(Minus(self.product()) if sign == "-" else self.product())
        return Sum(tuple(terms)) if len(terms) > 1 else terms[0]

    def product(self) -> Formula:
        """Factors with * or without; what is divided is the product before the bar."""
        if self.token in OVER:
            return Over(OVER[self.advance()], self.product())
        factors, loose = [self.power()], False
        while True:
            if self.take("/"):
                over = factors[0] if len(factors) == 1 else Product(tuple(factors), loose)
                factors, loose = [_ratio(over, self.power())], False
            elif self.take("*"):
                factors.append(self.power())
            elif self.kind in ("name", "number") or self.token in ("(", "["):
                factors, loose = [*factors, self.power()], True
            else:
                return Product(tuple(factors), loose) if len(factors) > 1 else factors[0]

    def power(self) -> Formula:
        base = self.atom()
        if self.take("**", "^"):
            exponent = Minus(self.atom()) if self.take("-") else self.atom()
            return Power(base, exponent)
        return base

    def atom(self) -> Formula:
        if self.kind == "number":
            return Number(Fraction(self.advance()))
        if self.kind == "name":
            return self.named(self.advance())
        if self.take("|"):
            inner = self.sum()
            self.need("|")
            return Call("abs", (inner,))
        for opened, closed in (("(", ")"), ("[", "]")):
            if self.take(opened):
                inner = self.sum()
                self.need(closed)
                return inner
        raise self.refused()

    def named(self, name: str) -> Formula:
        """A letter, or what its name says of what follows."""
        stem, _, below = name.partition("_")
        if stem == "E" and below and self.take("["):
            inner = self.sum()
            self.need("]")
            return Mean(below, inner)
        if name == "grad":
            return Gradient(self.power())
        if self.token != "(":
            return _letter(name)
        self.advance()
        arguments = self.arguments()
        if stem in DIVERGENCES and len(arguments) == 2:
            return Divergence(stem, *arguments)
        if stem in ("Var", "Cov") and below:
            return Covariance(below, arguments[0], arguments[-1])
        return Call(name.rstrip("'"), arguments, name.count("'"))

    def arguments(self) -> tuple[Formula, ...]:
        found = [self.relation()]
        while self.take(",", "||"):
            found.append(self.relation())
        self.need(")")
        return tuple(found)


def _ratio(over: Formula, under: Formula) -> Formula:
    if isinstance(over, Number) and isinstance(under, Number) and under.value:
        return Number(Fraction(over.value) / under.value)
    return Quotient(over, under)


def _letter(name: str) -> Formula:
    stem, _, slot = name.rstrip("'").rpartition("_")
    primes = name.count("'")
    return Name(stem, slot, primes) if stem and slot in POSITIONS else Name(name.rstrip("'"), "", primes)
