"""The judge of clamped losses: enumeration, and points on their bounds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from klsym.language.parser import parse
from klsym.notation import losses
from klsym.notation.printers import TEXT
from support.judges.loss_judge import Outcome, examine
from support.judges.loss_witness import AGREE
from support.losses.random_losses import Case
from support.oracle.grammar import DERIVED, derived, evaluate, plain, sg
from support.oracle.losses import PARAMETERS, Jet


def examined(case: Case) -> Outcome:
    """The verdict on one loss, judged by enumeration, and at points on its bounds."""
    alone = case.batch == "none" and case.weights in ("", "token") and case.credit in ("", "same-token")
    return examine(case, more=(on_the_bounds,) if alone else ())


# ---------------------------------------------------------------------------- points on the bounds
class Turned(ast.NodeTransformer):
    """The arguments of min and max in another order: three that tie share the slope as pairs are taken."""

    def __init__(self, by: int) -> None:
        self.by = by

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max") and len(node.args) > 2:
            by = self.by % len(node.args)
            node.args = node.args[by:] + node.args[:by]
        return node


def orders(loss: str) -> list[str]:
    """
    >>> orders("min(rho, 1, 2)*A")
    ['min(rho, 1, 2) * A', 'min(1, 2, rho) * A', 'min(2, rho, 1) * A']
    """
    return list(dict.fromkeys(ast.unparse(Turned(by).visit(ast.parse(loss, mode="eval"))) for by in range(3)))


TIES = (0.0, 0.0, -0.5, 0.5)  # log ratios: rho is exactly 1 at half of the points, where many bounds are
EXACT = 64  # log q in such parts of 1: log ratios are met without rounding


def on_the_bounds(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """The printed gradient at one token, where many log ratios are exactly 0 and rewards are too."""
    kinks = any(line.startswith("no outcome lies exactly on a kink") for line in answer["hypotheses"])
    if kinks or answer["gradient"]["per_sample"] is None:
        return
    text = re.sub(r"\bT\b", "1", answer["gradient"]["per_sample"]).replace("_now", "")
    loss = re.sub(r"\bT\b", "1", case.text).replace("whole", "")
    stream = np.random.default_rng(len(text))
    size = 60
    log_q = np.round(stream.normal(size=size) * EXACT) / EXACT
    gaps = stream.choice(TIES, size=(3, size))
    gaps[2] = np.where(stream.random(size) < 0.5, gaps[1], gaps[2])
    moved = Jet(log_q, np.ones(size))
    known = {
        "log_q": moved, "log_p": log_q - gaps[0], "log_mu": log_q - gaps[1], "log_old": log_q - gaps[2],
        "R": stream.choice((-1.0, 0.0, 2.0), size=size), "A": stream.choice((-1.0, 0.0, 1.5), size=size),
        "M": stream.integers(2, size=size) * 1.0,
    }  # fmt: skip
    if case.sampling == "on-policy":
        known["log_mu"] = sg(moved)

    def find(name: str, slot: str | None = None) -> object:
        if name in DERIVED:
            return derived(name, find)
        return known[name] if name in known else PARAMETERS[name]

    def pushed(loss: str) -> np.ndarray:
        literal = evaluate(loss, find)
        return np.broadcast_to(plain(literal) if case.use == "reward" else getattr(literal, "a", 0.0), size)

    exact, *others = map(pushed, [*orders(loss), losses.show(parse(loss), TEXT)])  # decimals as fractions
    told = np.all(
        [np.abs(exact - other) <= AGREE * (1 + np.abs(exact)) for other in [exact, *others]], axis=0
    )
    printed = plain(evaluate(text, lambda name, slot=None: plain(find(name))))
    gap = told * np.abs(exact - np.broadcast_to(printed, size))
    if np.any(gap > AGREE * (1 + np.abs(exact))):
        where = int(np.argmax(gap))
        yield f"per_sample {text!r}: off by {gap[where]:.1e} on a bound, at {where} of {size}"
