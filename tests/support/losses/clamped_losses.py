"""Random piecewise losses with a third policy and masks, in every room, and points on their bounds.

>>> generate(seed=0, number=3) == generate(seed=0, number=3)
True
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from klsym.language.parser import parse
from klsym.notation import losses
from klsym.notation.printers import TEXT
from support.losses.loss_judge import AGREE, Outcome, examine
from support.losses.piecewise_losses import generate as kinked
from support.losses.random_losses import SETTINGS, Case
from support.oracle.grammar import DERIVED, derived, evaluate, plain, sg
from support.oracle.losses import PARAMETERS, Jet

ROOMS: tuple[dict[str, str], ...] = (
    {}, {"level": "token"}, {"level": "token"}, {"level": "token", "aggregate": "mean"},
    {"batch": "mean"}, {"batch": "leave-one-out"}, {"level": "sequence"},
)  # fmt: skip
RELEASED = (  # a surrogate of a trainer, and a penalty beside it
    "-min(rho*A, clip(rho, 0.8, 1.2)*A)", "-min(rho_old*A, clip(rho_old, 0.8, 1.28)*A)",
    "-max(min(rho*A, clip(rho, 0.8, 1.2)*A), 3*A)", "-sg(min(rho, 1.3))*A*log_q",
    "-min(exp(log_old - log_mu), 1.5)*min(rho_old*A, clip(rho_old, 0.8, 1.2)*A)", "-M*min(rho, 1.4)*A",
    "-min(rho*(A - beta*sg(k1)), clip(rho, 0.8, 1.2)*(A - beta*sg(k1)))",
)  # fmt: skip
PENALTIES = (
    "", "beta*k3", "beta*rho*k3", "0.1*clip(k3, 0, 0.4)", "beta*rho_old*k2", "0.2*M*k3", "beta*sg(rho)*k2",
    "0.1*abs(k1)", "beta*min(rho_old, 1.2)*k3", "0.3*sg(min(rho, 1.1))*k2",
)  # fmt: skip
OF_SEQUENCES = (  # with the random length, and the ratio of GSPO
    "-min(exp(whole(log_q - log_mu)/T)*A, clip(exp(whole(log_q - log_mu)/T), 0.8, 1.2)*A)",
    "clip(k1/T, -0.2, 0.2)*rho",
    "T*max(rho, 1.1)*A",
    "max(T - 1, 0)*A*rho",
    "min(T, 2)*rho*k2",
    "abs(k1)/T + max(A*T, 0)*log_q",
)
MASKED = (  # masks times quantities that are summed over tokens
    "where(rho > 1, k1, 0)", "where(rho < 1.2, R, beta*k1)", "M*where(r > 1, k1, 0)",
    "where(rho > 0.9, 1, 0)*R", "where(k1 > 0.2, k1, 0) - R",
    "clip(rho, 0.8, 1.2)*R + where(rho > 1.2, k1, 0)",
)  # fmt: skip
RHO = re.compile(r"\brho\b")


def generate(seed: int, number: int) -> Case:
    """Loss `number` of the sequence `seed`."""
    stream = random.Random(f"clamped {seed}/{number}")
    sampling, use = SETTINGS[stream.randrange(4)]
    room = dict(stream.choice(ROOMS))
    if room.get("level") == "sequence" and stream.random() < 0.5:
        text = stream.choice(OF_SEQUENCES)
    elif stream.random() < 0.35:
        text, use = stream.choice(RELEASED), "loss"
        penalty = stream.choice(PENALTIES)
        text += f" + {penalty}" if penalty else ""
    elif stream.random() < (0.5 if use == "reward" and room.get("level") == "token" else 0.1):
        text = stream.choice(MASKED)
    else:
        like = SETTINGS.index((sampling, use)) + len(SETTINGS) * number
        text = kinked(seed, like).text
        if stream.random() < 0.5:  # the ratio to the third policy in the place of some of the weights
            text = RHO.sub(lambda _: stream.choice(("rho", "rho_old")), text)
        if stream.random() < 0.2:
            text = f"M*({text})"
    if room.get("level") == "token":
        if use == "reward":
            once = bool(re.search(r"\bA\b", text))  # credit to other tokens refuses A times a random quantity
            room["credit"] = "same-token" if once else stream.choice(("same-token", "to-go", "total"))
        if sampling == "off-policy":
            room["weights"] = stream.choice(("token", "token", "prefix", "sequence"))
    return Case(text, sampling, use, ring=False, **room)


def judge(seed: int, number: int) -> Outcome:
    """The verdict on one loss, judged by enumeration, and at points on its bounds."""
    return examined(generate(seed, number))


def examined(case: Case) -> Outcome:
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
    if any(line.startswith("no outcome lies exactly on a kink") for line in answer["hypotheses"]):
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
