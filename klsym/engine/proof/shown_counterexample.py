"""How a model that refutes an equation is shown: less what the equation does not mention.  Untrusted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from klsym.engine.proof.counterexamples import shown_model
from klsym.engine.proof.derivation import Proof
from klsym.kernel.names import SAMPLE, parse_name
from klsym.kernel.slots import is_second
from klsym.language.abbreviations import Curl, Mean, Side, Statement, atoms_of, elements, measures
from klsym.notation.text import show_statement


def shown_witness(proof: Proof) -> dict[str, Any]:
    """The model of a refutation, less what the equation does not mention."""
    close = proof.theorem.close
    refuted = show_statement(proof.theorem.statement, proof.labels)
    used = used_names(proof.theorem.statement)
    if "tree" not in close["model"]:
        return shown_model(refuted, close["model"], close["left"], close["right"], used)
    rows = {"q", "u", "next", "p", "mu", "old", "R", "M", "v"} - _unused_rows(proof.theorem.statement, used)
    numbers = close["model"]["parameters"]
    return {
        "refutes": refuted,
        "tree": _pruned(close["model"]["tree"], rows),
        **({"path": close["model"]["path"]} if at_one_sample(proof.theorem.statement) else {}),
        **({"parameters": numbers} if numbers else {}),
        "left": close["left"],
        "right": close["right"],
    }


def shown_as_samples(proof: Proof) -> dict[str, Any]:
    """The model of a refutation about sequences of one token, said of samples.

    The kernel has two directions of a gradient for tokens alone, and a sample is a sequence of one token.
    """
    witness, statement = shown_witness(proof), proof.theorem.statement
    tree = witness.pop("tree")
    if any(tree.pop("next")):
        return shown_witness(proof)
    sides = (_as_samples(statement.left), _as_samples(statement.right))
    told = show_statement(replace(statement, left=sides[0], right=sides[1]), None)
    rewards = {name: tree.pop(name) for name in ("R", "M") if name in tree}
    return {**witness, "refutes": told, **tree, **({"rewards": rewards} if rewards else {})}


def _as_samples(side: Side) -> Side:
    """sum_t a_t s_t as a s, where there is one token."""

    def at_sample(atom: Any) -> Any:
        bare = atom.coefficient.rename(lambda name: name.removesuffix("[now]"))
        return Mean("", atom.measure, bare, tuple(entry.replace("now", "x") for entry in atom.score))

    return Side.of(*((scale, tuple(map(at_sample, atoms))) for scale, atoms in side.terms))


def at_one_sample(statement: Statement) -> bool:
    """Does the statement speak of a value at one sample or sequence?"""
    sides = (statement.left, statement.right)
    return any(getattr(atom, "measure", "") == SAMPLE for atom in atoms_of(*sides))


def _unused_rows(statement: Statement, used: set[str]) -> set[str]:
    atoms = {a for side in (statement.left, statement.right) for _, factors in side.terms for a in factors}
    named = {m for side in (statement.left, statement.right) for m in measures(side)}
    wanted = {
        "p": "k1" in used or "p" in named,
        "mu": "w" in used,
        "old": "o" in used,
        "R": "R" in used,
        "M": "M" in used,
        "v": any(isinstance(a, Curl) or any(map(is_second, getattr(a, "score", ()))) for a in atoms),
    }
    return {name for name, needed in wanted.items() if not needed}


def _pruned(node: dict[str, Any], rows: set[str]) -> dict[str, Any]:
    following = [after and _pruned(after, rows) for after in node["next"]]
    return {name: following if name == "next" else row for name, row in node.items() if name in rows}


def used_names(statement: Statement) -> set[str]:
    """What a model must say for both sides to have values."""
    within = statement.context.within(*elements(statement.left), *elements(statement.right))
    names = {n for e in within for n in e.names()}
    sampled = "mu" in measures(statement.left) | measures(statement.right)
    return {parse_name(n).base for n in names} | ({"w"} if sampled else set())
