"""Ratios of whole sequences, which papers write as products over tokens, as roots, or inside exp.

>>> from klsym.language.typeset.parsing import parse_formula
>>> gather_sequence_ratios(parse_formula(r"\\prod_t r_t(\\theta)").right).is_root
False
>>> tree = gather_sequence_ratios(parse_formula(r"\\exp(\\frac{1}{T} \\sum_t \\log r_t(\\theta)) A").right)
>>> [type(factor).__name__ for factor in tree.factors]
['SequenceRatio', 'Symbol']
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

from klsym.language.typeset.names import find_log_density, is_ratio_to_old, write_indices
from klsym.language.typeset.parsing import LENGTH
from klsym.language.typeset.tokens import make_refusal
from klsym.language.typeset.tree import (
    Call,
    Length,
    Node,
    Number,
    Power,
    Product,
    Quotient,
    SequenceRatio,
    Series,
    Sum,
    Symbol,
    walk,
)

OF_PRODUCTS = r"type the sum of log-probabilities, \sum_t \log\pi_\theta(a_t|s_t)"


def gather_sequence_ratios(node: Node) -> Node:
    """Return the formula with one node for each ratio of whole sequences, prod_t q(a_t)/p(a_t)."""
    found = _find_sequence_ratio(node)
    if found is not None:
        return found
    parts = {field.name: _gather_inside(getattr(node, field.name)) for field in fields(node)}
    return replace(node, **parts)


def _gather_inside(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_gather_inside(x) for x in value)
    return gather_sequence_ratios(value) if isinstance(value, Node) else value


def _find_sequence_ratio(node: Node) -> Node | None:
    """Return what a formula is if it is a ratio of whole sequences, or the T-th root of one."""
    match node:
        case Power(Call("exp", (Series() as series,)), exponent) if is_one_over_length(exponent):
            return _read_log_ratios(series, is_root=True)
        case Power(base, exponent) if is_one_over_length(exponent):
            densities = _read_densities(base)
            return SequenceRatio(*densities, is_root=True) if densities else None
        case Call("exp", (Series(body=Call("log", (Product(factors),))) as series,)):
            return _read_product(series, factors)
        case Call("exp", (Series(body=body) as series,)):
            ratio = _read_log_ratios(series, is_root=False)
            if ratio is None and isinstance(body, Call) and body.name == "log":
                raise make_refusal("a product over tokens of what is no ratio of policies", OF_PRODUCTS)
            return ratio
        case Call("exp", (Product((factor, Series() as series)),)) if is_one_over_length(factor):
            return _read_log_ratios(series, is_root=True)
        case Call("exp", (Quotient(Series() as series, length),)) if _is_length(length):
            return _read_log_ratios(series, is_root=True)
    return None


def _read_product(series: Series, factors: tuple[Node, ...]) -> Node | None:
    """Return prod_t rho_t A as the ratio of the sequence times A, which is the same at all tokens."""
    ratios = [factor for factor in factors if _read_densities(factor)]
    others = tuple(factor for factor in factors if factor not in ratios)
    if len(ratios) != 1 or any(_has_index(factor, series.index) for factor in others):
        raise make_refusal("a product over tokens of more than one factor", r"type (\prod_t r_t(\theta)) A")
    ratio = _read_log_ratios(replace(series, body=Call("log", (ratios[0],))), is_root=False)
    return ratio and Product((ratio, *others))


def _has_index(node: Node, index: str) -> bool:
    """Does a letter of it carry an index?"""
    letters = (part for part in walk(node) if isinstance(part, Symbol))
    return any(re.search(rf"(?<![A-Za-z]){index}(?![A-Za-z])", write_indices(x)) for x in letters)


def _read_log_ratios(series: Series, is_root: bool) -> SequenceRatio | None:
    """Return the ratio whose logarithm is a sum over tokens; None for a sum of anything else."""
    if series.index != "t" and not LENGTH.fullmatch(series.upper.strip("|")):
        return None
    match series.body:
        case Call("log", (ratio,)):
            densities = _read_densities(ratio)
        case Sum((Call("log", (first,)), Call("log", (second,))), (False, True)):
            densities = _read_densities(Quotient(first, second))
        case _:
            densities = None
    return SequenceRatio(*densities, is_root=is_root) if densities else None


def _read_densities(ratio: Node) -> tuple[str, str] | None:
    """Return the log densities of a ratio of two policies; None for another node."""
    match ratio:
        case Quotient(Symbol() as first, Symbol() as second):
            densities = find_log_density(first), find_log_density(second)
            return densities if all(densities) and densities[0] != densities[1] else None
        case Symbol() if is_ratio_to_old(ratio):
            return "log_q", "log_mu"
    return None


def is_one_over_length(node: Node) -> bool:
    """Is it 1/T or 1/|y|?"""
    match node:
        case Quotient(Number("1"), length):
            return _is_length(length)
    return False


def _is_length(node: Node) -> bool:
    match node:
        case Length() | Symbol("T" | "L" | "H", arguments=None):
            return True
    return False
