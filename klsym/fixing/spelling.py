"""Losses in the user's own names: how a statement would write k2, rho*k1 or sg(rho)*k3."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from klsym.fixing.traced import TracedCode
from klsym.language.pasted.text import parse_python

SIMPLE = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant)
ALIASES = {"torch": "torch", "jax": "jax.numpy", "numpy": "numpy"}
CHOICES = ("k2", "k1", "k3", "rho*k1", "sg(rho)*k2", "rho*k3")  # what an estimator may become


def add_brackets(text: str) -> str:
    """Return text that may be a factor.

    >>> add_brackets("a - b"), add_brackets("f(a - b)")
    ('(a - b)', 'f(a - b)')
    """
    return text if isinstance(parse_python(text, mode="eval").body, SIMPLE) else f"({text})"


@dataclass(frozen=True)
class Speller:
    """Writes losses at one statement, with names near an expression of it first."""

    traced: TracedCode
    statement: ast.stmt
    near: ast.AST | None = None

    def find(self, role: str) -> str:
        return self.traced.find_text(role, self.statement, self.near)

    # -- functions of the library ---------------------------------------------------------------
    def call(self, function: str, text: str) -> str:
        """Return f(text) as the file writes it: torch.exp(d), or (d).exp() where torch is not imported."""
        module = find_alias(self.traced.source.tree, ALIASES[self.traced.framework])
        if module:
            return f"{module}.{function}({text})"
        return f"{add_brackets(text)}.{function}()" if self.traced.framework == "torch" else ""

    def detach(self, text: str) -> str:
        if self.traced.framework == "torch":
            return f"{add_brackets(text)}.detach()"
        tree = self.traced.source.tree
        lax = find_alias(tree, "jax.lax") or (f"{jax}.lax" if (jax := find_alias(tree, "jax")) else "")
        return f"{lax}.stop_gradient({text})" if lax else ""

    # -- losses ---------------------------------------------------------------------------------
    def write_difference(self, first: str, second: str) -> str:
        a, b = self.find(first), self.find(second)
        return f"{a} - {b}" if a and b else ""

    def write_k1(self) -> str:
        if text := self.find("k1"):
            return text
        return self.write_difference("q", "p") or (f"-{text}" if (text := self.find("-k1")) else "")

    def write_k2(self) -> str:
        text = self.find("k1") or self.find("-k1") or self.write_difference("q", "p")
        return f"0.5 * {add_brackets(text)} ** 2" if text else ""

    def write_k3(self) -> str:
        text = self.find("-k1") or self.write_difference("p", "q")
        surplus = self.call("expm1", text) if text else ""
        return f"{surplus} - {add_brackets(text)}" if surplus else ""

    def write_weight(self) -> str:
        """Return rho, as a name or as exp of a difference; "" for samples of q, which need none."""
        if text := self.find("rho"):
            return text
        difference = self.find("w") or self.write_difference("q", "mu")
        return self.call("exp", difference) if difference else ""

    def list_weights(self) -> list[str]:
        """Return the ways to write rho and sg(rho) here."""
        rho, detached = self.write_weight(), self.find("sg(rho)")
        written = [rho, detached, self.detach(rho) if rho and not detached else ""]
        return [text for text in written if text]

    def write(self, loss: str) -> str:
        """Return one of CHOICES as code; "" where a name is missing."""
        *weights, estimator = loss.split("*")
        text = {"k1": self.write_k1, "k2": self.write_k2, "k3": self.write_k3}[estimator]()
        if not weights or not text:
            return text
        rho = self.write_weight()
        if weights == ["sg(rho)"]:
            rho = self.find("sg(rho)") or (self.detach(rho) if rho else "")
        return f"{rho} * {_as_factor(text)}" if rho else ""

    def list_losses(self, scale: str) -> Iterator[str]:
        """Yield CHOICES as code, times a number."""
        for loss in CHOICES:
            if text := self.write(loss):
                yield f"{scale}{_as_factor(text)}" if scale else text


def _as_factor(text: str) -> str:
    """Return what may stand behind `x *`: a product stays, a sum gets brackets."""
    node: Any = parse_python(text, mode="eval").body
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return text if is_product else add_brackets(text)


def find_alias(tree: ast.Module, module: str) -> str:
    """Return what a file calls a module; "" where it does not import it.

    >>> find_alias(ast.parse("from jax import numpy as jnp"), "jax.numpy")
    'jnp'
    """
    package, _, last = module.rpartition(".")
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.Import) else []:
            if alias.name == module and (alias.asname or not package):
                return alias.asname or alias.name
        for alias in node.names if isinstance(node, ast.ImportFrom) and node.module == package else []:
            if alias.name == last:
                return alias.asname or alias.name
    return ""
