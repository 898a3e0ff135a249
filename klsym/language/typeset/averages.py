"""Averages around a formula in LaTeX: expectations, and sums over tokens and samples.

>>> from klsym.language.typeset.parsing import parse_formula
>>> AverageReader().split(parse_formula(r"\\mathbb{E}[\\frac{1}{T} \\sum_{t=1}^T A_t]").right).kind
'mean'
"""

from __future__ import annotations

import re
from dataclasses import replace
from shlex import quote
from typing import NamedTuple

from klsym.errors import UsageError
from klsym.language.typeset.names import COEFFICIENTS, find_log_density
from klsym.language.typeset.parsing import LENGTH
from klsym.language.typeset.tokens import make_refusal
from klsym.language.typeset.tree import (
    Call,
    Divergence,
    Entropy,
    Gradient,
    Length,
    Mean,
    Node,
    Number,
    OverWords,
    Product,
    Quotient,
    Series,
    Sum,
    Symbol,
    walk,
)
from klsym.language.typeset.writing import OF_GRADIENT, OF_SUMS, SIZES, Writer

SAMPLES, TOKENS = "samples", ("sum", "mean", "batch")
OF_TOKENS = "t"
POLICY = re.compile(
    r"(?<![A-Za-z])(pi|p|q|mu)(?![A-Za-z])(?:_(\{(?:[^{}]|\{[^{}]*\})*\}|\w+))?(?:\^(\{[^{}]*\}|\w+))?"
)
BARE = re.compile(
    r"(q|p|mu|beta|b)\s*(?:_(\{[^{}]*\}|\w+))?\s*(?:\(.*\))?"
)  # the policy alone, as in E_q[..]
DATA = re.compile(r"([^;]*?)\bsim\s*D\b(?!_?\{?pi)")
ACTIONS = re.compile(r"\b(a|y|o|tau)\b|\b(a|y|o)_")
CODE = {
    "sum": "(({})*mask).sum(-1).mean()", "mean": "((({})*mask).sum(-1)/mask.sum(-1)).mean()",
    "batch": "(({})*mask).sum()/mask.sum()",
}  # fmt: skip


class Averaged(NamedTuple):
    """A formula without what averages it; kind: over samples, or how tokens are added up; "" for none."""

    node: Node
    kind: str = ""


class AverageReader:
    """Splits off averages; index: of the tokens.  sampled_from: what the expectations say of the samples."""

    def __init__(self) -> None:
        self.sampled_from: list[str] = []
        self.index = ""
        self.has_expectation = False

    def split(self, node: Node) -> Averaged:
        """Return a formula and what averages it; raises UsageError."""
        match node:
            case Mean(sampled_from, body):
                self.sampled_from.append(sampled_from)
                self.has_expectation = True
                inner = self.split(body)
                return Averaged(inner.node, inner.kind or SAMPLES)
            case Series():
                return self.split_series(node, [])
            case Product(factors):
                return self.split_product(factors)
            case Sum(terms, signs):
                return self.split_sum(terms, signs)
            case Quotient(numerator, denominator) if is_constant(denominator):
                inner = self.split(numerator)
                return Averaged(replace(node, numerator=inner.node), inner.kind)
        return Averaged(node)

    def split_product(self, factors: tuple[Node, ...]) -> Averaged:
        places = [i for i, x in enumerate(factors) if has_average(x) and not is_count_of_tokens(x)]
        if not places:
            return Averaged(Product(factors))
        if len(places) > 1:
            raise make_refusal("a product of two averages", OF_SUMS)
        place = places[0]
        others = [*factors[:place], *factors[place + 1 :]]
        averaged = factors[place]
        inner = self.split_series(averaged, others) if isinstance(averaged, Series) else self.split(averaged)
        if not inner.kind:  # inside a function
            return Averaged(Product(factors))
        is_fixed = all(is_constant(x) or (inner.kind in TOKENS and is_response_reward(x)) for x in others)
        if not is_fixed:
            raise make_refusal("a factor outside an average that differs between samples", "type it inside")
        if others:
            inner = inner._replace(node=Product((*others, inner.node)))
        return inner

    def split_series(self, series: Series, factors: list[Node]) -> Averaged:
        """Return what is summed; the divisor that belongs to the sum is taken from the factors."""
        is_of_tokens = series.index == OF_TOKENS or bool(LENGTH.fullmatch(series.upper.strip("|")))
        divisor = next((x for x in factors if self.divides(x, series, is_of_tokens)), None)
        total = next((x for x in factors if is_count_of_tokens(x)), None)
        inner = self.split(series.body)
        if is_of_tokens:
            if inner.kind:
                raise make_refusal("an average inside a sum over tokens", OF_SUMS)
            self.index = series.index
            if divisor is not None:
                factors.remove(divisor)
            return Averaged(inner.node, "sum" if divisor is None else "mean")
        if total is not None and inner.kind == "sum":
            factors.remove(total)
            return Averaged(inner.node, "batch")
        if series.index in ("a", "y", "x", "v", "w"):
            raise make_refusal("a sum over actions", "type full(x) for \\sum_a \\pi_\\theta(a|s) x")
        if divisor is None or not re.fullmatch(r"[ijkn]", series.index):
            raise make_refusal(rf"\sum_{series.index[:8]} without the number of samples before it", OF_SUMS)
        factors.remove(divisor)
        return Averaged(inner.node, inner.kind or SAMPLES)

    @staticmethod
    def divides(node: Node, series: Series, is_of_tokens: bool) -> bool:
        """Is it 1 over the number of the terms of a sum?"""
        match node:
            case Quotient(Number("1"), Length(text)):
                return is_of_tokens and series.upper in ("", f"|{text}|")
            case Quotient(Number("1"), Symbol(name, subscript, superscript, None)):
                sizes = {"T", "L", "H"} if is_of_tokens else SIZES - {"T", "H", "L"}
                full = f"{name}_{subscript}" if subscript else name
                return name in sizes and not superscript and series.upper in ("", full)
        return False

    def split_sum(self, terms: tuple[Node, ...], signs: tuple[bool, ...]) -> Averaged:
        split = [self.split(term) for term in terms]
        kinds = {part.kind for part in split if part.kind}
        if not kinds:
            return Averaged(Sum(terms, signs))
        if len(kinds) > 1:
            raise make_refusal("terms with different averages", "explain each term by itself")
        kind = kinds.pop()
        for part in split:
            is_mean = kind == SAMPLES and all(is_exact(x) for x in list_factors(part.node))
            if not part.kind and not (is_constant(part.node) or is_mean):
                raise make_refusal(
                    "a term outside an average beside one inside", "type it inside, or explain each by itself"
                )
        return Averaged(Sum(tuple(part.node for part in split), signs), kind)

    def find_sampler(self) -> str:
        """Return the log density of the samples, as the expectations say; "" where they do not."""
        samplers = set()
        for text in self.sampled_from:
            if bare := BARE.fullmatch(text.strip()):
                letter, subscript = bare.groups()
                is_behaviour = letter in ("beta", "b")
                samplers |= {
                    "log_mu" if is_behaviour else find_log_density(Symbol(letter, subscript or "", "", "a|s"))
                }
                continue
            for match in POLICY.finditer(text):
                name, subscript, superscript = match[1], match[2] or "", match[3] or ""
                if name == "pi" or text[: match.start()].rstrip().endswith("sim"):
                    samplers |= {find_log_density(Symbol(name, subscript, superscript, "a|s"))}
            before = DATA.match(text)
            samplers |= {"log_mu"} if before and ACTIONS.search(before[1]) else set()
        if len(samplers) > 1:
            raise make_refusal("an expectation under two policies", "explain each by itself")
        if "log_p" in samplers:
            raise make_refusal(
                "an expectation under the reference", "type full_kl(p, q) for KL(reference || policy)"
            )
        return samplers.pop() if samplers else ""


def has_average(node: Node) -> bool:
    """Is there an average in it, outside functions?"""
    return isinstance(node, Mean | Series) or any(
        has_average(x) for x in node.children if isinstance(node, Sum | Product | Quotient)
    )


def is_constant(node: Node) -> bool:
    """Does it depend on neither the sample nor theta?"""
    parts = list(walk(node))
    letters = [part for part in parts if isinstance(part, Symbol)]
    of_samples = any(
        isinstance(part, Mean | Series | Divergence | Entropy | Length | OverWords) for part in parts
    )
    return not of_samples and all(x.name in COEFFICIENTS and x.arguments is None for x in letters)


def is_response_reward(node: Node) -> bool:
    """Is it the reward of a whole response?"""
    return isinstance(node, Symbol) and (
        node.name == "R" or (node.name == "r" and "y" in (node.arguments or ""))
    )


def is_exact(node: Node) -> bool:
    """Is it a number, or an exact mean over actions?"""
    return is_constant(node) or isinstance(node, Divergence | Entropy | OverWords)


def list_factors(node: Node) -> tuple[Node, ...]:
    return node.factors if isinstance(node, Product) else (node,)


def is_count_of_tokens(node: Node) -> bool:
    """Is it 1 over the sum of the lengths?"""
    match node:
        case Quotient(Number("1"), Series(_, _, Length())):
            return True
    return False


def is_gradient(node: Node) -> bool:
    return any(isinstance(part, Gradient) for part in walk(node))


def make_gradient_refusal(node: Node, of_loss: bool) -> UsageError:
    """Return the error for a gradient, with the loss that has it where that is plain."""
    try:
        averaged = AverageReader().split(node)
        factors = list_factors(averaged.node)
        scores = [x for x in factors if _is_score(x)]
        others = [x for x in factors if not _is_score(x)]
        if len(scores) == 1 and not any(map(is_gradient, others)):
            of_tokens = averaged.kind in TOKENS
            factor = Writer(of_tokens).write(Product(tuple(others))) if others else "1"
            options = f"--level token --aggregate {averaged.kind} " if of_tokens else ""
            loss = quote(f"{'' if of_loss else '-'}sg({factor})*log_q")
            return make_refusal(
                r"the gradient \nabla\log\pi_\theta", f"klsym explain {options}-- {loss} has it"
            )
    except UsageError:
        pass
    return make_refusal(r"\nabla", OF_GRADIENT)


def _is_score(node: Node) -> bool:
    match node:
        case Gradient(Call("log", (Symbol() as symbol,))):
            return find_log_density(symbol) == "log_q"
    return False
