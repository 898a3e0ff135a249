"""Sums over the vocabulary, sum_v q(v) x(v), which papers write out where the loss grammar has full(x).

>>> from klsym.language.typeset.parsing import parse_formula
>>> gather_vocabulary_sums(parse_formula(r"\\sum_{i \\in T} p_i \\log q_i").right).is_of_some
True
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

from klsym.language.typeset.names import LETTERS, find_log_density
from klsym.language.typeset.tokens import make_refusal
from klsym.language.typeset.tree import Node, OverWords, Product, Series, Symbol, walk

WHOLE = re.compile(r"\\?(?:mathcal)?\s*(?:A|V|Y|X|vocab|Vocab)?(?:\(\w\))?")  # sets of all words
SIZES = ("", "V", "|V|", "|A|", "C")  # the last word that a sum over all counts
OF_TOKENS = "t"
VALUES = {"A", "R", "Q", "G"}
OF_ADVANTAGES = (
    r"type -A\log\pi_\theta(a|s), whose expected gradient is that of -\sum_a \pi_\theta(a|s) A(s,a)"
)


def gather_vocabulary_sums(node: Node) -> Node:
    """Return the formula with one node for each mean over all words; raises UsageError."""
    found = _read_sum(node) if isinstance(node, Series) else None
    if found is not None:
        return found
    return replace(node, **{field.name: _gather_inside(getattr(node, field.name)) for field in fields(node)})


def _gather_inside(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_gather_inside(x) for x in value)
    return gather_vocabulary_sums(value) if isinstance(value, Node) else value


def _read_sum(series: Series) -> Node | None:
    """Return a sum of a probability of each word times a value as a mean; None for another sum."""
    factors = series.body.factors if isinstance(series.body, Product) else (series.body,)
    probabilities = [factor for factor in factors if _is_probability(factor, series.index)]
    if series.index == OF_TOKENS or series.upper not in SIZES or len(probabilities) != 1:
        return None
    others = tuple(_drop_index(x, series.index) for x in factors if x is not probabilities[0])
    if not others:
        return None
    if any(isinstance(x, Symbol) and x.name in VALUES for other in others for x in walk(other)):
        raise make_refusal("a mean of rewards or advantages over all actions", OF_ADVANTAGES)
    density = find_log_density(_drop_index(probabilities[0], series.index))
    return OverWords(density, Product(others), is_of_some=not WHOLE.fullmatch(series.domain))


def _is_probability(node: Node, index: str) -> bool:
    """Is it the probability of the word that the index counts, as p_i, q(v|s) or pi_theta(a|s)?"""
    if not isinstance(node, Symbol) or node.name not in ("pi", *LETTERS):
        return False
    indices = re.split(r"[{},\s]+", node.subscript)
    action = re.split(r"[|,;]", node.arguments or "")[0]
    return index in indices or action.strip() == index


def _drop_index(node: Any, index: str) -> Any:
    """Return a part without the indices of words and tokens, and without what policies are conditioned on."""
    if isinstance(node, tuple):
        return tuple(_drop_index(x, index) for x in node)
    if not isinstance(node, Node):
        return node
    if isinstance(node, Symbol) and node.name in ("pi", *LETTERS):
        kept = [part for part in re.split(r"[{},\s]+", node.subscript) if part not in (index, OF_TOKENS)]
        return replace(node, subscript=" ".join(kept).strip(), arguments=None)
    return replace(
        node, **{field.name: _drop_index(getattr(node, field.name), index) for field in fields(node)}
    )
