"""Describe a model that refutes an equation, without rows that the equation does not use.  Untrusted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from klsym.engine.proof.counterexamples import describe_model
from klsym.engine.proof.derivation import Proof
from klsym.kernel.names import SAMPLE, parse_name
from klsym.kernel.slots import is_second
from klsym.language.abbreviations import (
    Curl,
    Mean,
    Side,
    Statement,
    collect_measures,
    walk_atoms,
    walk_elements,
)
from klsym.notation.text import show_statement


def describe_counterexample(proof: Proof) -> dict[str, Any]:
    """Return the model of a refutation, without rows that the equation does not use."""
    close = proof.theorem.close
    refuted = show_statement(proof.theorem.statement, proof.labels)
    used = collect_used_names(proof.theorem.statement)
    if "tree" not in close["model"]:
        return describe_model(
            refuted, model=close["model"], left=close["left"], right=close["right"], used=used
        )
    rows = {"q", "u", "next", "p", "mu", "old", "R", "M", "v"} - _list_unused_rows(
        proof.theorem.statement, used
    )
    numbers = close["model"]["parameters"]
    return {
        "refutes": refuted,
        "tree": _prune_tree(close["model"]["tree"], rows),
        **({"path": close["model"]["path"]} if is_at_one_sample(proof.theorem.statement) else {}),
        **({"parameters": numbers} if numbers else {}),
        "left": close["left"],
        "right": close["right"],
    }


def describe_counterexample_of_samples(proof: Proof) -> dict[str, Any]:
    """Return the model of a refutation about sequences of one token, as a model of samples.

    The kernel takes gradients in two directions for tokens only, and a sample is a sequence of one token.
    """
    counterexample, statement = describe_counterexample(proof), proof.theorem.statement
    tree = counterexample.pop("tree")
    if any(tree.pop("next")):
        return describe_counterexample(proof)
    sides = (_rewrite_as_samples(statement.left), _rewrite_as_samples(statement.right))
    refuted = show_statement(replace(statement, left=sides[0], right=sides[1]), None)
    rewards = {name: tree.pop(name) for name in ("R", "M") if name in tree}
    return {**counterexample, "refutes": refuted, **tree, **({"rewards": rewards} if rewards else {})}


def _rewrite_as_samples(side: Side) -> Side:
    """Rewrite sum_t a_t s_t as a s, for sequences of one token."""

    def rewrite_atom(atom: Any) -> Any:
        coefficient = atom.coefficient.rename(lambda name: name.removesuffix("[now]"))
        return Mean("", atom.measure, coefficient, tuple(entry.replace("now", "x") for entry in atom.score))

    return Side.combine(*((scale, tuple(map(rewrite_atom, atoms))) for scale, atoms in side.terms))


def is_at_one_sample(statement: Statement) -> bool:
    """Does the statement contain a value at one sample or sequence?"""
    sides = (statement.left, statement.right)
    return any(getattr(atom, "measure", "") == SAMPLE for atom in walk_atoms(*sides))


def _list_unused_rows(statement: Statement, used: set[str]) -> set[str]:
    atoms = {a for side in (statement.left, statement.right) for _, factors in side.terms for a in factors}
    named = {m for side in (statement.left, statement.right) for m in collect_measures(side)}
    is_needed = {
        "p": "k1" in used or "p" in named,
        "mu": "w" in used,
        "old": "o" in used,
        "R": "R" in used,
        "M": "M" in used,
        "v": any(isinstance(a, Curl) or any(map(is_second, getattr(a, "score", ()))) for a in atoms),
    }
    return {name for name, needed in is_needed.items() if not needed}


def _prune_tree(node: dict[str, Any], rows: set[str]) -> dict[str, Any]:
    following = [after and _prune_tree(after, rows) for after in node["next"]]
    return {name: following if name == "next" else row for name, row in node.items() if name in rows}


def collect_used_names(statement: Statement) -> set[str]:
    """Return the names that need values in a model of the statement."""
    all_elements = statement.context.walk_definitions(
        *walk_elements(statement.left), *walk_elements(statement.right)
    )
    names = {n for e in all_elements for n in e.names()}
    sampled = "mu" in collect_measures(statement.left) | collect_measures(statement.right)
    return {parse_name(n).base for n in names} | ({"w"} if sampled else set())
