"""Parts of a formula in LaTeX in the grammar of losses, but averages, which `averages` splits off.

>>> from klsym.language.typeset.parsing import parse_formula
>>> Writer().write(parse_formula(r"-\\min(r_t(\\theta) \\hat{A}_t, 1 - \\epsilon)").right)
'-min(rho*A, 1 - eps)'
"""

from __future__ import annotations

import re

from klsym.errors import UsageError
from klsym.language.typeset.names import find_index_group, find_log_density, name_value, write_indices
from klsym.language.typeset.sequence_ratios import is_one_over_length
from klsym.language.typeset.tokens import make_refusal, quote_part
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
    OverWords,
    Power,
    Product,
    Quotient,
    SequenceRatio,
    Sum,
    Symbol,
    walk,
)

OF_GRADIENT = (
    r"klsym explains losses, and finds the gradient itself: type the loss without \nabla; sg(A)*log_q has the"
    r" gradient A \nabla\log\pi_\theta"
)
OF_PROBABILITIES = (
    r"type a ratio or \log\pi_\theta; in the loss grammar exp(log_q) is the probability of the action drawn,"
    " and full(x) the mean of x over all actions"
)
POLICIES = {"log_q": "q", "log_p": "p", "log_mu": "mu"}
OF_SUMS = (
    r"type \frac{1}{T}\sum_t or \frac{1}{|y|}\sum_t for the mean over tokens, \sum_t for their sum and"
    r" \frac{1}{G}\sum_i for the mean over samples, around the whole formula"
)
SIZES = {"T", "G", "N", "K", "B", "n", "m", "M", "H", "L", "k"}


class Writer:
    """Writes a tree as a text of the grammar; is_of_tokens: is it of the tokens of a sequence?"""

    def __init__(self, is_of_tokens: bool = False) -> None:
        self.is_of_tokens = is_of_tokens
        self.is_of_sequences = False  # is a ratio of whole sequences in it?
        self.has_divergence = False
        self.has_mask = False  # of words that alone are summed?

    def write(self, node: Node) -> str:
        """Return a text; raises UsageError."""
        match node:
            case Number(text):
                return text
            case Symbol():
                return self.write_symbol(node)
            case Sum(terms, signs):
                return self.write_sum(terms, signs)
            case Product(factors):
                return "*".join(map(self.write_factor, factors))
            case Quotient(numerator, denominator):
                return self.write_quotient(numerator, denominator)
            case Power(base, exponent):
                return self.write_power(base, exponent)
            case Call(name, arguments, subscript):
                return self.write_call(name, arguments, subscript)
            case Comparison(sign, first, second):
                return f"{self.write(first)} {sign} {self.write(second)}"
            case OverWords(density, body, is_of_some):
                self.has_mask |= is_of_some
                weight = "" if density == "log_q" else f"exp({density} - log_q)*"
                return f"full({'M*' * is_of_some}{weight}{self.write(body)})"
            case SequenceRatio(first, second, is_root):
                self.is_of_sequences = True
                return f"exp(whole({first} - {second}){'/T' if is_root else ''})"
            case Divergence(first, second):
                self.has_divergence = True
                return f"full_kl({self.name_policy(first)}, {self.name_policy(second)})"
            case Entropy(policy):
                return f"H({self.name_policy(policy)})"
            case Gradient():
                raise make_refusal(r"\nabla", OF_GRADIENT)
            case Length(text):
                raise make_refusal(quote_part(f"|{text}|"), OF_SUMS)
            case Mean():
                raise make_refusal(
                    "an expectation inside a product, a function or a sum with other terms",
                    r"type \mathbb{E}[..] around the whole formula",
                )
        raise make_refusal(r"this \sum", OF_SUMS)

    def write_symbol(self, symbol: Symbol) -> str:
        density = find_log_density(symbol)
        if not density:
            if symbol.name in SIZES - {"G"} and not (symbol.subscript or symbol.arguments):
                raise make_refusal(f"the number {quote_part(symbol.name)}", OF_SUMS)
            return name_value(symbol, self.is_of_tokens)
        raise make_refusal(f"a probability alone, {quote_part(symbol.name)},", OF_PROBABILITIES)

    def write_factor(self, node: Node) -> str:
        """Return a text that may be multiplied."""
        text = self.write(node)
        return f"({text})" if isinstance(node, Sum | Comparison) or text.startswith("-") else text

    def write_sum(self, terms: tuple[Node, ...], signs: tuple[bool, ...]) -> str:
        text = "".join(
            f"{' - ' if sign else ' + '}{self.write_factor(term)}"
            for term, sign in zip(terms, signs, strict=True)
        )
        return f"-{text[3:]}" if signs[0] else text[3:]

    def write_quotient(self, numerator: Node, denominator: Node) -> str:
        densities = [find_log_density(x) if isinstance(x, Symbol) else "" for x in (numerator, denominator)]
        if all(densities):
            if densities[0] == densities[1]:
                raise make_refusal("a ratio of a policy to itself", r"type \pi_{old} or \pi_{ref} below")
            return "rho" if densities == ["log_q", "log_mu"] else f"exp({densities[0]} - {densities[1]})"
        if densities[1] and isinstance(numerator, Product):
            places = [
                i for i, x in enumerate(numerator.factors) if isinstance(x, Symbol) and find_log_density(x)
            ]
            if len(places) == 1:
                factors = [*numerator.factors]
                factors[places[0]] = Quotient(factors[places[0]], denominator)
                return self.write(Product(tuple(factors)))
        dividend = (
            f"({self.write(numerator)})"
            if isinstance(numerator, Sum | Product)
            else self.write_factor(numerator)
        )
        is_atom = isinstance(denominator, Number | Symbol | Call)
        return f"{dividend}/{self.write(denominator) if is_atom else '(' + self.write(denominator) + ')'}"

    def write_power(self, base: Node, exponent: Node) -> str:
        if is_one_over_length(exponent):
            raise make_refusal("the power 1/T of what is no ratio of policies", OF_SUMS)
        if any(isinstance(x, Symbol) and x.name in ("t", "l", "k", "i") for x in walk(exponent)):
            raise make_refusal(
                "a power that depends on the token", "type disc(gamma, R) for discounted rewards"
            )
        text = self.write(base)
        plain = text if isinstance(base, Number | Symbol | Call) else f"({text})"
        return (
            f"{plain}**{exponent.text}"
            if isinstance(exponent, Number)
            else f"{plain}**({self.write(exponent)})"
        )

    def write_call(self, name: str, arguments: tuple[Node, ...], subscript: str) -> str:
        if subscript:
            if (
                name == "min"
                and len(arguments) == 1
                and isinstance(arguments[0], Symbol)
                and arguments[0].name == "Q"
            ):
                return "Q"
            raise make_refusal(f"{name} with an index", f"type {name}(..) without it, and Q for a critic")
        match name, arguments:
            case "log", (Symbol() as symbol,) if find_log_density(symbol):
                return find_log_density(symbol)
            case "log", (Quotient(Symbol() as first, Symbol() as second),) if find_log_density(
                first
            ) and find_log_density(second):
                return f"({find_log_density(first)} - {find_log_density(second)})"
            case "where", (condition, first, second):
                return f"where({self.write(condition)}, {self.write(first)}, {self.write(second)})"
        if name in ("min", "max") and len(arguments) < 2:
            raise make_refusal(
                f"{name} of one value", f"type {name}(x, y); for an optimum type what is optimised"
            )
        return f"{name}({', '.join(map(self.write, arguments))})"

    def name_policy(self, symbol: Symbol) -> str:
        density = find_log_density(symbol)
        if not density:
            raise make_refusal(
                f"the policy {quote_part(symbol.name)}", r"type \pi_\theta, \pi_{ref} or \pi_{old}"
            )
        return POLICIES[density]


def refuse_unlike_indices(node: Node) -> None:
    """Refuse values of two samples or two tokens, such as y_w and y_l, which would be read as one."""
    seen: dict[str, str] = {}
    for part in walk(node):
        group = find_index_group(part) if isinstance(part, Symbol) else ""
        indices = write_indices(part) if isinstance(part, Symbol) and group else ""
        if not group or indices in ("", "cdot"):
            continue
        if seen.setdefault(group, indices) != indices:
            both = f"{quote_part(seen[group])} and {quote_part(indices)}"
            raise make_refusal(
                f"{group} of {both}", "klsym reads the loss of one sample, whose indices agree"
            )


def refuse_bare_ratio(node: Node) -> None:
    """Refuse the letter r, which is p/q, beside a reward or an advantage."""
    names = {part.name for part in walk(node) if isinstance(part, Symbol)}
    is_bare = any(part == Symbol("r") for part in walk(node))
    clips = any(isinstance(part, Call) and part.name == "clip" for part in walk(node))
    if is_bare and (clips or names & {"A", "R", "Q", "G"}):
        raise make_refusal(
            "the letter r beside an advantage or clip",
            r"type r_t(\theta) for the ratio to the old policy, \frac{\pi_{ref}}{\pi_\theta} for p/q, or R",
        )


def refuse_whole_sequences(node: Node, index: str) -> None:
    """Refuse policies of whole responses inside a sum over tokens."""
    for part in walk(node):
        if isinstance(part, Symbol) and find_log_density(part):
            action = write_indices(part)
            has_index = re.search(rf"_(?:\{{[^}}]*)?{index}(?![a-z])", action)
            if action not in ("", "cdot") and not has_index:
                raise UsageError(
                    f"{quote_part(action)} has no index {index} inside the sum over tokens in LaTeX:"
                    r" type \pi_\theta(y_t|x, y_{<t})"
                )
