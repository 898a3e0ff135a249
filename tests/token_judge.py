"""A judge for token losses, written by hand: a tree of sequences is enumerated, derivatives carried along.

A number is (value, gradient with respect to all logits).  The field is what autograd would average: mu and
sg(.) are held at their values, on-policy mu is q itself, detached.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

Vector = Any
NUMBERS = {"beta": 0.7, "lam": 1.3}
STEP = 1e-4


class Live:
    """A value with its gradient."""

    def __init__(self, value: float, slope: Vector = 0.0) -> None:
        self.value, self.slope = float(value), np.zeros(LOGITS) + slope

    def __add__(self, other: Any) -> Live:
        other = live(other)
        return Live(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other: Any) -> Live:
        other = live(other)
        return Live(self.value * other.value, self.slope * other.value + self.value * other.slope)

    def __neg__(self) -> Live:
        return self * -1

    def __sub__(self, other: Any) -> Live:
        return self + -live(other)

    def __rsub__(self, other: Any) -> Live:
        return live(other) - self

    def __pow__(self, power: float) -> Live:
        return Live(self.value**power, power * self.value ** (power - 1) * self.slope)

    def __truediv__(self, other: Any) -> Live:
        return self * live(other) ** -1

    def exp(self) -> Live:
        return Live(math.exp(self.value), math.exp(self.value) * self.slope)

    def log(self) -> Live:
        return Live(math.log(self.value), self.slope / self.value)

    __radd__, __rmul__ = __add__, __mul__


def live(value: Any) -> Live:
    return value if isinstance(value, Live) else Live(value)


def sg(x: Any) -> Live:
    return Live(live(x).value)


# ---------------------------------------------------------------------------- the tree
@dataclass(frozen=True)
class Node:
    """Where its logits start, p and mu on its branches, token rewards, and what follows each branch."""

    start: int
    p: tuple[float, ...]
    mu: tuple[float, ...]
    R: tuple[float, ...]
    following: tuple[Node | None, ...]


LAST = Node(7, (0.55, 0.45), (0.25, 0.75), (1.5, -1), (None, None))
TREE = Node(
    0, (0.2, 0.5, 0.3), (0.45, 0.25, 0.3), (1, 0, 2),
    (
        Node(3, (0.7, 0.3), (0.4, 0.6), (-1, 0.5), (LAST, None)),
        None,
        Node(5, (0.35, 0.65), (0.6, 0.4), (2, 0), (None, None)),
    ),
)  # fmt: skip
LOGITS = 9
THETA = np.array([0.3, -0.4, 0.1, 0.5, -0.2, -0.3, 0.6, 0.2, -0.1])


@dataclass(frozen=True)
class Token:
    log_q: Live
    log_p: Live
    log_mu: Live
    R: float
    A: float


Path = tuple[Token, ...]


def paths(theta: Vector, on_policy: bool) -> list[Path]:
    """All sequences; A is an arbitrary table of the sequence."""
    found = [list(steps) for steps in _walk(TREE, theta, on_policy)]
    return [
        tuple(Token(*step, A=math.sin(3 * number + 1)) for step in steps)
        for number, steps in enumerate(found)
    ]


def _walk(node: Node, theta: Vector, on_policy: bool) -> Iterator[list[tuple[Any, ...]]]:
    size = len(node.p)
    logits = theta[node.start : node.start + size]
    weights = np.exp(logits - logits.max())
    q = weights / weights.sum()
    for branch, after in enumerate(node.following):
        slope = np.zeros(LOGITS)
        slope[node.start : node.start + size] = -q
        slope[node.start + branch] += 1
        log_q = Live(math.log(q[branch]), slope)
        log_mu = sg(log_q) if on_policy else Live(math.log(node.mu[branch]))
        step = (log_q, Live(math.log(node.p[branch])), log_mu, node.R[branch])
        if after is None:
            yield [step]
        else:
            yield from ([step, *rest] for rest in _walk(after, theta, on_policy))


def total(tokens: Any, name: str) -> Live:
    """The sum of a log density over tokens."""
    return sum((getattr(token, name) for token in tokens), Live(0))


# ---------------------------------------------------------------------------- losses
@cache
def parsed(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


CALLS: dict[str, Callable[[Any], Any]] = {
    "sg": sg,
    "exp": lambda x: x.exp() if isinstance(x, Live) else math.exp(x),
    "log": lambda x: x.log() if isinstance(x, Live) else math.log(x),
}


def value(text: str, names: dict[str, Any]) -> Any:
    """The value of a formula in the grammar."""
    return _value(parsed(text), {**NUMBERS, **names})


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(number):
            return number
        case ast.Name(name):
            return names[name]
        case ast.UnaryOp(ast.USub(), inner):
            return -_value(inner, names)
        case ast.BinOp(a, operator, b):
            x, y = _value(a, names), _value(b, names)
            return {
                ast.Add: lambda: x + y, ast.Sub: lambda: x - y, ast.Mult: lambda: x * y,
                ast.Div: lambda: x / y, ast.Pow: lambda: x**y,
            }[type(operator)]()  # fmt: skip
        case ast.Call(ast.Name(name), [argument]):
            return CALLS[name](_value(argument, names))
    raise AssertionError(ast.dump(node))


def loss_of_token(text: str, path: Path, t: int, weights: str, advantage: float = 1) -> Live:
    """LOSS at token t, A times `advantage` being that of the sequence."""
    token = path[t]
    weighted = {"token": path[t : t + 1], "prefix": path[: t + 1], "sequence": path}[weights]
    k1 = token.log_q - token.log_p
    names = {
        "log_q": token.log_q, "log_p": token.log_p, "log_mu": token.log_mu, "k1": k1, "k2": k1 * k1 / 2,
        "r": (-k1).exp(), "k3": (-k1).exp() - 1 + k1, "R": token.R, "A": advantage * token.A,
        "rho": (total(weighted, "log_q") - total(weighted, "log_mu")).exp(),
    }  # fmt: skip
    return live(value(text, names))


CREDIT = {
    "same-token": lambda t, size: (t,),
    "to-go": lambda t, size: range(t, size),
    "total": lambda t, size: range(size),
}


def field(text: str, theta: Vector, setting: dict[str, str]) -> Vector:
    """The expected gradient."""
    on_policy = setting.get("sampling", "on-policy") == "on-policy"
    weights, rewarded = setting.get("weights", "token"), setting.get("use") == "reward"
    credit = CREDIT[setting.get("credit", "to-go")]
    answer = np.zeros(LOGITS)
    for path in paths(theta, on_policy):
        chance = math.exp(total(path, "log_q" if on_policy else "log_mu").value)
        chance /= len(path) if setting.get("aggregate") == "mean" else 1
        losses = [loss_of_token(text, path, t, weights) for t in range(len(path))]
        for t, token in enumerate(path):
            if rewarded:  # A meets each score once, the rest is credited
                plain = [loss_of_token(text, path, u, weights, 0).value for u in range(len(path))]
                met = losses[t].value - plain[t] + sum(plain[u] for u in credit(t, len(path)))
                answer += chance * token.log_q.slope * met
            else:
                answer += chance * losses[t].slope
    return answer


def mean_value(text: str, setting: dict[str, str]) -> float:
    """E_m[sum_t L_t]."""
    on_policy = setting.get("sampling", "on-policy") == "on-policy"
    return sum(
        math.exp(total(path, "log_q" if on_policy else "log_mu").value)
        * sum(loss_of_token(text, path, t, setting.get("weights", "token")).value for t in range(len(path)))
        / (len(path) if setting.get("aggregate") == "mean" else 1)
        for path in paths(THETA, on_policy)
    )


def twist(text: str, setting: dict[str, str]) -> float:
    """The largest entry of J - J^T for the Jacobian J of the field: 0 for the gradient of a function."""
    columns = []
    for direction in np.eye(LOGITS):
        ahead, behind = (field(text, THETA + sign * STEP * direction, setting) for sign in (1, -1))
        columns.append((ahead - behind) / (2 * STEP))
    jacobian = np.array(columns)
    return float(np.abs(jacobian - jacobian.T).max())


# ---------------------------------------------------------------------------- objectives
def gradient(of: Callable[[Path], Any], under: str = "q") -> Vector:
    """grad E_q[of] or grad E_mu[of], mu fixed."""
    return sum((total(path, f"log_{under}").exp() * of(path) for path in paths(THETA, False)), Live(0)).slope


def reverse(path: Path) -> Live:
    return total(path, "log_q") - total(path, "log_p")


def rewards(path: Path) -> float:
    return sum(token.R for token in path)


def token_kl(path: Path) -> Live:
    """sum_t rho_t k1_t, of mean sum_t KL(q_t||p_t) along prefixes from mu."""
    ratios = ((token.log_q - token.log_mu).exp() * (token.log_q - token.log_p) for token in path)
    return sum(ratios, Live(0))


def token_forward(path: Path) -> Live:
    """sum_t (p/mu)_t (log p - log q)_t."""
    ratios = ((token.log_p - token.log_mu).exp() * (token.log_p - token.log_q) for token in path)
    return sum(ratios, Live(0))


def advantage(path: Path) -> float:
    return path[0].A


def of_slots(text: str, under: str, on_policy: bool) -> Vector:
    """E_m[sum_t c], a formula in slots such as k1_now*s_now + k1_now*s_past; without scores it is c s_now."""
    answer = np.zeros(LOGITS)
    for path in paths(THETA, on_policy):
        chance = math.exp(total(path, f"log_{under}").value)
        for t in range(len(path)):
            places = {"past": path[:t], "now": path[t : t + 1], "future": path[t + 1 :], "x": path}
            names: dict[str, Any] = {"T": len(path), "A": advantage(path)}
            for slot, tokens in places.items():
                tail = "" if slot == "x" else f"_{slot}"
                k1, w = (total(tokens, "log_q") - total(tokens, f"log_{m}") for m in ("p", "mu"))
                names |= {f"k1{tail}": k1.value, f"r{tail}": math.exp(-k1.value), f"T{tail}": len(tokens)}
                names |= {f"rho{tail}": math.exp(w.value), f"R{tail}": sum(token.R for token in tokens)}
                log_q = total(tokens, "log_q")
                names |= {f"log_q{tail}": log_q.value, f"s{tail}": log_q.slope}
            found = {node.id for node in ast.walk(parsed(text)) if isinstance(node, ast.Name)}
            scored = any(name.split("_")[0] == "s" for name in found)
            answer += chance * value(text, names) * (1 if scored else names["s_now"])
    return answer
