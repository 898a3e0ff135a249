"""One tree of tokens under the literal oracle: fields, objectives and printed forms of token losses."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.oracle.grammar import evaluate, jet, parsed, sg
from support.oracle.losses import Forest, Setting, Tree, node
from support.oracle.numbers import Jet, exp
from support.oracle.slots import Slotted

Vector, Live = Any, Jet
NUMBERS = {"beta": 0.7, "lam": 1.3}
A = np.sin(3 * np.arange(6) + 1)  # an arbitrary table of the sequence


@dataclass(frozen=True)
class Node:
    """Where its logits start, p and mu on its branches, token rewards, and what follows each branch."""

    start: int
    p: tuple[float, ...]
    mu: tuple[float, ...]
    R: tuple[float, ...]
    following: tuple[Node | None, ...]


LAST = Node(5, (0.55, 0.45), (0.25, 0.75), (1.5, -1), (None, None))
TREE = Node(
    0, (0.2, 0.5, 0.3), (0.45, 0.25, 0.3), (1, 0, 2),
    (
        Node(3, (0.7, 0.3), (0.4, 0.6), (-1, 0.5), (LAST, None)),
        None,
        Node(7, (0.35, 0.65), (0.6, 0.4), (2, 0), (None, None)),
    ),
)  # fmt: skip
LOGITS = 9
THETA = np.array([0.3, -0.4, 0.1, 0.5, -0.2, 0.2, -0.1, -0.3, 0.6])


def forest(theta: Vector, on_policy: bool, second: bool = False) -> Forest:
    def grown(at: Node) -> Any:
        after = [then and grown(then) for then in at.following]
        return node(theta[at.start : at.start + len(at.p)], at.p, at.mu, at.R, after)

    return Slotted([Tree(grown(TREE), A, NUMBERS)], ("on-policy" if on_policy else "off-policy",), second)


def _setting(options: dict[str, str]) -> Setting:
    return Setting(**{"level": "token", **options})  # type: ignore[arg-type]


def _forest(theta: Vector, options: dict[str, str], second: bool = False) -> Forest:
    return forest(theta, options.get("sampling", "on-policy") == "on-policy", second)


def field(text: str, theta: Vector, options: dict[str, str]) -> Vector:
    """The expected gradient."""
    return np.broadcast_to(_forest(theta, options).field(text, _setting(options)).a, (LOGITS, 1, 1))[:, 0, 0]


def twist(text: str, options: dict[str, str]) -> float:
    """The largest entry of J - J^T for the Jacobian J of the field: 0 for the gradient of a function."""
    found = _forest(THETA, options, second=True).field(text, _setting(options)).ab
    jacobian = np.broadcast_to(found, (LOGITS, LOGITS, 1))[..., 0]
    return float(np.abs(jacobian - jacobian.T).max())


def of_slots(text: str, under: str, on_policy: bool) -> Vector:
    """E_m[sum_t c], a formula in slots such as k1_now*s_now + k1_now*s_past; without scores it is c s_now."""
    scored = any(isinstance(x, ast.Name) and x.id.split("_")[0] == "s" for x in ast.walk(parsed(text)))
    # a formula without slots is added up over t as well
    written = f"{text} + 0*s_now" if scored else f"({text})*s_now"
    return forest(THETA, on_policy).form(written, under).a[:, 0, 0]


# ---------------------------------------------------------------------------- objectives
@dataclass(frozen=True)
class Token:
    log_q: Jet
    log_p: Any
    log_mu: Any
    R: float
    A: float


Path = tuple[Token, ...]


def paths(theta: Vector, on_policy: bool) -> list[Path]:
    """All sequences."""
    here, found = forest(theta, on_policy), []
    for path, value in zip(here.paths, A, strict=True):
        steps = []
        for k in path:
            log_q = here.log_q.map(lambda part, k=k: part[..., k])
            p, mu, R = (here.fixed[name][k] for name in ("log_p", "log_mu", "R"))
            steps.append(Token(log_q, p, sg(log_q) if on_policy else mu, R, value))
        found.append(tuple(steps))
    return found


def total(tokens: Any, name: str) -> Jet:
    """The sum of a log density over tokens."""
    return sum((jet(getattr(token, name)) for token in tokens), jet(0.0))


def value(text: str, names: dict[str, Any]) -> Any:
    """The value of a formula in the grammar."""
    known = {**NUMBERS, **names}
    return evaluate(text, lambda name, slot=None: known[name])


def gradient(of: Callable[[Path], Any], under: str = "q") -> Vector:
    """grad E_q[of] or grad E_mu[of], mu fixed."""
    slope = sum((exp(total(y, f"log_{under}")) * of(y) for y in paths(THETA, False)), jet(0.0)).a
    return np.broadcast_to(slope, (LOGITS, 1))[:, 0]


def reverse(path: Path) -> Jet:
    return total(path, "log_q") - total(path, "log_p")
