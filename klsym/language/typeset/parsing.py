"""Recursive descent over the tokens of a formula in LaTeX.

>>> parse_formula(r"\\frac12").right
Quotient(numerator=Number(text='1'), denominator=Number(text='2'))
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from klsym.errors import UsageError
from klsym.language.typeset.names import VALUES
from klsym.language.typeset.tokens import (
    CLOSING,
    OPENING,
    Token,
    count_open,
    flatten_tokens,
    make_refusal,
    quote_part,
    split_at_commas,
    split_tokens,
)
from klsym.language.typeset.tree import (
    Call,
    Comparison,
    Divergence,
    Entropy,
    Gradient,
    Length,
    Mean,
    Node,
    Number,
    Power,
    Product,
    Quotient,
    Series,
    Sum,
    Symbol,
    is_argument,
    is_policy_symbol,
)

MAX_DEPTH = 40  # nested brackets and functions
FUNCTIONS = {
    "log": "log", "exp": "exp", "min": "min", "max": "max", "sqrt": "sqrt", "clip": "clip", "sg": "sg",
    "stop_gradient": "sg", "stopgrad": "sg", "StopGrad": "sg", "stopgradient": "sg", "detach": "sg",
    "sigma": "sigmoid", "sigmoid": "sigmoid", "abs": "abs", "clamp": "clip", "Clip": "clip", "where": "where",
}  # fmt: skip
CLOSER = {"(": ")", "[": "]", "{": "}", r"\{": r"\}", r"\lvert": r"\rvert"}
SIGNS = {"<": "<", ">": ">", r"\le": "<=", r"\ge": ">="}
MEANS, DIVERGENCES = {"E"}, {"KL", "kl", "D"}
ENTROPIES, INDICATORS = {"H", "S", "Entropy", "entropy"}, {"1", "I", "indicator"}
WITH_ARGUMENTS = {
    "pi", "p", "q", "mu", "beta", "A", "Q", "V", "R", "r", "b", "G", "rho", "J", "L", "w", "s", "U", "delta",
    "loss", "objective", "P",
}  # fmt: skip
ARGUMENT = re.compile(r"(?:\b(?:[saxyzoqhtiv]|tau|theta|phi|psi|cdot|prompt|pi|tilde|bar)\b|[,|;<'.:\s])+")
INDEX = re.compile(r"[_^](?:\{(?:[^{}]|\{[^{}]*\})*\}|[A-Za-z]+|\d)")
LENGTH = re.compile(r"(?:o|y|tau)(?:_\w|_\{\w\}|\^\{\(\w\)\})?")
INDEX_WORD = re.compile(
    r"old|new|ref|sft|SFT|theta|phi|init|base|KL|kl|low|high|min|max|teacher|student|mu|RL|\d+"
)
OF_OPTIMA = r"klsym explains losses, which training minimises: leave \min out, and type - for \max"
UNKNOWN = "type what it stands for, as the loss grammar has it (klsym examples)"


class Formula(NamedTuple):
    """A formula: the tree on the right of =; left: what stands on the left, "" without =."""

    right: Node
    left: str = ""


def parse_formula(text: str) -> Formula:
    """Return the tree of a formula; raises UsageError."""
    tokens = split_tokens(text)
    depth, places = 0, []
    for place, token in enumerate(tokens):
        depth += (token.text in OPENING) - (token.text in CLOSING)
        places += [place] if token.text in ("=", r"\approx") and depth == 0 else []
    while tokens and tokens[-1].text in (".", ","):
        tokens = tokens[:-1]
    if len(places) > 1:
        raise make_refusal("a formula with two signs =", "type the last one alone")
    if not places:
        return Formula(_Parser(tokens).parse())
    left = [token for token in tokens[: places[0]] if token.text != ":"]
    return Formula(_Parser(tokens[places[0] + 1 :]).parse(), flatten_tokens(left))


class _Parser:
    """One pass over tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.position, self.depth = tokens, 0, 0
        self.ended_with_bare_function = False  # was the last factor a function without brackets?

    # ------------------------------------------------------------------------ tokens
    @property
    def next_token(self) -> Token:
        return self.tokens[self.position] if self.position < len(self.tokens) else Token("")

    def take(self) -> Token:
        token = self.next_token
        if not token.text:
            raise UsageError("a formula in LaTeX that ends too early: type the whole formula")
        self.position += 1
        return token

    def accept(self, *texts: str) -> bool:
        matches = self.next_token.text in texts and bool(self.next_token.text)
        self.position += matches
        return matches

    def expect(self, text: str) -> None:
        if not self.accept(text):
            shown = quote_part(self.next_token.text) if self.next_token.text else "the end"
            raise UsageError(f"{text} expected before {shown} in a formula in LaTeX: close each bracket")

    def take_group(self) -> list[Token]:
        """Return the tokens of a bracket, or the one token, that begins here; without the bracket."""
        start = self.position
        opening = self.take().text
        if opening not in CLOSER:
            return self.tokens[start : self.position]
        stack = [CLOSER[opening]]
        while stack:
            text = self.take().text
            if text == stack[-1]:
                stack.pop()
            elif text in CLOSER:
                stack.append(CLOSER[text])
            elif text in CLOSING:
                raise make_refusal(f"{text} where {stack[-1]} is expected", "close each bracket")
        return self.tokens[start + 1 : self.position - 1]

    def take_argument(self) -> list[Token]:
        """Return the tokens of the braces, or the one digit, letter or command, that begins here."""
        text, is_word = self.next_token
        if len(text) > 1 and text.isalnum() and not is_word:
            self.tokens[self.position : self.position + 1] = [Token(text[0]), Token(text[1:])]
        return self.take_group()

    def take_index(self) -> list[Token]:
        """Return an index; the letters of a bare `old` are one index."""
        return self.take_group() if INDEX_WORD.fullmatch(self.next_token.text) else self.take_argument()

    def parse_inner(self, tokens: list[Token]) -> Node:
        """Return the tree of the tokens of a bracket."""
        parser = _Parser(tokens)
        parser.depth = self.depth + 1
        if parser.depth > MAX_DEPTH:
            raise UsageError(
                f"a formula in LaTeX nested more than {MAX_DEPTH} deep: explain each term by itself"
            )
        return parser.parse()

    # ------------------------------------------------------------------------ expressions
    def parse(self) -> Node:
        """Return the tree of all tokens."""
        node = self.parse_comparison()
        if self.next_token.text:
            raise make_refusal(quote_part(self.next_token.text), UNKNOWN)
        return node

    def parse_comparison(self) -> Node:
        node = self.parse_sum()
        if self.next_token.text in SIGNS:
            return Comparison(SIGNS[self.take().text], node, self.parse_sum())
        return node

    def parse_sum(self) -> Node:
        terms, signs = [], []
        is_minus = self.accept("-") or (self.accept("+") and False)
        while True:
            terms.append(self.parse_product())
            signs.append(is_minus)
            if self.next_token.text not in ("+", "-"):
                break
            is_minus = self.take().text == "-"
        return terms[0] if len(terms) == 1 and not signs[0] else Sum(tuple(terms), tuple(signs))

    def parse_product(self) -> Node:
        factors = [self.parse_factor()]
        is_divided, divisions = False, 0
        while self.next_token.text not in ("", "+", "-", ",", "=", *SIGNS, *CLOSING):
            if self.accept("/"):
                factors[-1] = self.divide(factors[-1], self.ended_with_bare_function, self.parse_factor())
                is_divided, divisions = True, divisions + 1
                if divisions > MAX_DEPTH:
                    raise make_refusal(f"more than {MAX_DEPTH} signs / in a product", r"type \frac{..}{..}")
                continue
            is_typed = self.accept("*", r"\cdot", r"\times", r"\odot")
            if is_divided and not is_typed and not self.may_precede_factor(factors[-1], self.next_token.text):
                raise make_refusal("a product behind /", r"type \frac{..}{..}")
            factors.append(self.parse_factor())
            is_divided = False
        return factors[0] if len(factors) == 1 else Product(tuple(factors))

    @staticmethod
    def divide(numerator: Node, ended_with_bare_function: bool, denominator: Node) -> Node:
        """Return a quotient; ended_with_bare_function: the numerator is a function without brackets.

        log q(x)/p(x), of two policies, is the logarithm of their ratio; nothing else is guessed.
        """
        if isinstance(numerator, Call) and ended_with_bare_function:
            inside = numerator.arguments[0]
            if numerator.name == "log" and is_policy_symbol(inside) and is_policy_symbol(denominator):
                return Call("log", (Quotient(inside, denominator),))
            raise make_refusal(
                rf"\{numerator.name} x / y", rf"type \{numerator.name}\frac{{x}}{{y}} or brackets"
            )
        return Quotient(numerator, denominator)

    @staticmethod
    def may_precede_factor(node: Node, following: str) -> bool:
        """May a factor follow x/y without brackets?  Behind numbers only a bracket or a logarithm may."""
        parts = (node.numerator, node.denominator) if isinstance(node, Quotient) else (node,)
        is_number = all(isinstance(x, Number) for x in parts) and following in (*OPENING, r"\log")
        return is_number or all(isinstance(x, Symbol) and x.name in ("pi", "mu", "p", "q") for x in parts)

    def parse_factor(self) -> Node:
        """Return a part with its powers."""
        self.ended_with_bare_function = False
        is_log = self.next_token.text in (r"\log", "log")
        node = self.parse_atom()
        if self.accept("_"):
            raise make_refusal("an index of a bracket or a function", "leave it out, or type a name for it")
        if self.accept("^"):
            exponent = self.take_argument()
            if is_log:
                raise make_refusal(
                    "log(..) with a power behind it", r"type \left(\log x\right)^2 or \log^2 x"
                )
            if flatten_tokens(exponent) in ("T", "top", "prime", "*", "+", "-"):
                raise make_refusal(f"the power {flatten_tokens(exponent)}", "type what it stands for")
            node = Power(node, self.parse_inner(exponent))
        if self.next_token.text in ("^", "_"):
            raise make_refusal("a second power or index", "use brackets")
        return node

    def parse_atom(self) -> Node:
        text, is_word = self.next_token
        if text in ("(", "[", "{", r"\{"):
            return self.parse_inner(self.take_group())
        if text == r"\lvert":
            return self.read_bars(self.take_group())
        if text == "|":
            return self.read_bars(self.take_until_bar())
        token = self.take()
        if (token.text[0].isdigit() and not is_word) or token.text[0] == ".":
            return Number(token.text)
        reader = self.find_reader(token)
        if reader is not None:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise UsageError(
                    f"a formula in LaTeX nested more than {MAX_DEPTH} deep: explain each term by itself"
                )
            node = reader(token)
            self.depth -= 1
            return node
        if not re.fullmatch(r"\\?\w+", token.text):
            raise make_refusal(quote_part(token.text), UNKNOWN)
        return self.read_symbol(token)

    def find_reader(self, token: Token) -> Callable[[Token], Node] | None:
        """Return the method that reads what this token begins; None for a symbol."""
        name, is_command = token.plain, token.text.startswith("\\")
        if token.text == r"\frac":
            return self.read_fraction
        if token.text == r"\nabla":
            return self.read_gradient
        if token.text in (r"\sum", r"\prod", r"\int"):
            return self.read_series
        if name == "e" and self.next_token.text == "^":
            return self.read_exponential
        if name in MEANS and self.next_token.text in ("_", *OPENING):
            return self.read_mean
        if name in DIVERGENCES and self.names_divergence(name):
            return self.read_divergence
        if name in ENTROPIES and self.next_token.text in ("[", "(", r"\{"):
            return self.read_entropy
        if name in INDICATORS and token.is_word and self.next_token.text in OPENING:
            return self.read_indicator
        is_function = name in FUNCTIONS and (is_command or name not in ("sigma", "abs"))
        if is_function and (name != "sigma" or self.next_token.text in OPENING):
            return self.read_function
        return None

    # ------------------------------------------------------------------------ parts
    def read_fraction(self, token: Token) -> Node:
        return Quotient(self.parse_inner(self.take_argument()), self.parse_inner(self.take_argument()))

    def read_gradient(self, token: Token) -> Node:
        if self.accept("_"):
            self.take_group()
        return Gradient(self.parse_factor())

    def read_series(self, token: Token) -> Node:
        if token.text == r"\int":
            raise make_refusal(token.text, "type the loss of one sample: the mean over samples is understood")
        lower = upper = ""
        while self.next_token.text in ("_", "^"):
            if self.take().text == "_":
                lower = flatten_tokens(self.take_group())
            else:
                upper = flatten_tokens(self.take_group())
        index, *bounds = (part.strip() for part in re.split(r"=|\bin\b", lower, maxsplit=1))
        domain = "".join(bounds) if "=" not in lower else ""
        body = self.parse_product()
        if token.text == r"\prod":  # prod_t x = exp(sum_t log x)
            body = Call("log", (body,))
        series = Series(index, upper, body, domain)
        return Call("exp", (series,)) if token.text == r"\prod" else series

    def read_exponential(self, token: Token) -> Node:
        self.take()
        return Call("exp", (self.parse_inner(self.take_group()),))

    def read_mean(self, token: Token) -> Node:
        sampled_from = flatten_tokens(self.take_argument()) if self.accept("_") else ""
        if self.next_token.text in (r"\frac", r"\sum") and sampled_from:
            return Mean(sampled_from, self.parse_product())
        if self.next_token.text not in ("[", "(", r"\{", "{"):
            raise make_refusal("an expectation without brackets", r"type \mathbb{E}[..]")
        inner = self.take_group()
        if Token(r"\sim") in inner and not sampled_from:  # E[q ~ P, o ~ pi_old] x
            return Mean(flatten_tokens(inner), self.parse_product())
        return Mean(sampled_from, self.parse_inner(inner))

    def names_divergence(self, name: str) -> bool:
        """Is it KL(..), or D with the index KL?"""
        if name != "D":
            return self.next_token.text in ("[", "(", r"\{", "{")
        group = flatten_tokens(self.tokens[self.position : self.position + 4])
        return bool(re.match(r"_\{?\s*(?:KL|kl)\b", group))

    def read_divergence(self, token: Token) -> Node:
        if self.accept("_"):
            self.take_group()
        inner = self.take_group()
        text = [x.text for x in inner]
        bars = [i for i, x in enumerate(text) if x == r"\|" or text[i : i + 2] == ["|", "|"]]
        bars = bars or [i for i, x in enumerate(text) if x == "|" and not count_open(text[:i])]
        place = bars[0] if bars else text.index(",") if text.count(",") == 1 else -1
        if place < 0:
            raise make_refusal("KL(..) without ||", r"type D_{KL}(\pi_\theta \| \pi_{ref})")
        behind = place + (2 if text[place : place + 2] == ["|", "|"] else 1)
        return Divergence(self.read_policy(inner[:place]), self.read_policy(inner[behind:]))

    def read_policy(self, tokens: list[Token]) -> Symbol:
        node = self.parse_inner(tokens)
        if not isinstance(node, Symbol):
            raise make_refusal("KL or entropy of what is no policy", r"type a policy, such as \pi_\theta")
        return node

    def read_entropy(self, token: Token) -> Node:
        policy = self.read_policy(self.take_group())
        if self.next_token.text == "(":
            self.take_group()
        return Entropy(policy)

    def read_indicator(self, token: Token) -> Node:
        inner = self.parse_inner(self.take_group())
        if not isinstance(inner, Comparison):
            raise make_refusal("an indicator without one comparison", r"type \mathbb{1}[A > 0]")
        return Call("where", (inner, Number("1"), Number("0")))

    def read_function(self, token: Token) -> Node:
        name, subscript = FUNCTIONS[token.plain], ""
        power: list[Token] = []
        if name == "sqrt" and self.next_token.text == "[":
            raise make_refusal("a root with an index", "type a power, such as x^{1/3}")
        if self.accept("_"):
            subscript = flatten_tokens(self.take_group())
        if self.accept("^"):
            power = self.take_group()
        if self.next_token.text in ("(", "[", r"\{", "{"):
            arguments = tuple(map(self.parse_inner, split_at_commas(self.take_group())))
            self.ended_with_bare_function = False
        else:
            if name in ("min", "max") and not re.search(r"=|in\b|,", subscript):
                raise make_refusal(rf"\{name} over a policy", OF_OPTIMA)
            arguments = (self.parse_factor(),)
            self.ended_with_bare_function = True
            if not isinstance(arguments[0], Quotient) and not is_argument(name, arguments[0]):
                raise make_refusal(rf"\{name} without brackets", f"type {name}(..)")
        call = Call(name, arguments, subscript)
        return Power(call, self.parse_inner(power)) if power else call

    def take_until_bar(self) -> list[Token]:
        self.take()
        start = self.position
        while self.next_token.text not in ("|", ""):
            self.take_group()
        self.expect("|")
        return self.tokens[start : self.position - 1]

    def read_bars(self, inner: list[Token]) -> Node:
        text = flatten_tokens(inner)
        if LENGTH.fullmatch(text):
            return Length(text)
        return Call("abs", (self.parse_inner(inner),))

    def read_symbol(self, token: Token) -> Node:
        name, subscript, superscript = VALUES.get(token.plain, token.plain), "", ""
        while self.next_token.text in ("_", "^"):
            start = self.position
            if self.take().text == "_":
                subscript += flatten_tokens(self.take_index())
                continue
            group = self.take_argument()
            if self.is_power(name, group):
                self.position = start
                break
            superscript += flatten_tokens(group)
        arguments = None
        if self.next_token.text in ("(", "[") and name in WITH_ARGUMENTS:
            start = self.position
            text = flatten_tokens(self.take_group())
            if ARGUMENT.fullmatch(INDEX.sub("", text)):
                arguments = text
            else:
                self.position = start
        return Symbol(name, subscript, superscript, arguments)

    @staticmethod
    def is_power(name: str, group: list[Token]) -> bool:
        """Is it a power, and no index above a letter?"""
        text = flatten_tokens(group)
        if re.fullmatch(r"[\d.]+", text) or any(x.text in ("/", r"\frac", "-") for x in group):
            return True
        names_index = bool(re.fullmatch(r"\(?\w\)?", text)) and name in ("A", "R", "r", "Q", "V")
        is_word = len(group) == 1 and (group[0].is_word or bool(re.fullmatch(r"[A-Z]{2,}", text)))
        is_policy = bool(re.fullmatch(r"pi|mu|pi_\{?\w+(_\{\w+\})?\}?", text))
        return not (names_index or is_word or is_policy or name == "pi")
