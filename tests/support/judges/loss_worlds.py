"""The worlds in which verdicts are judged, and what answers are worth there."""

from __future__ import annotations

import ast
import re
from dataclasses import asdict, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from support.losses.random_losses import Case
from support.oracle.grammar import DERIVED, derived, evaluate, plain
from support.oracle.losses import PARAMETERS, Forest, Node, Setting, Tree, samples, trees
from support.oracle.slots import OF_SAMPLES, Slotted, holds

# The least size that errors are measured against: losses are of order one, and where they cancel
# altogether, what is left is rounding.
FLOOR = 1e-2
SEED = 20250
PLAIN = ("exp", "log", "sqrt", "abs", "min", "max", "clip", "sg")  # functions of one sample
DEEP, WIDE = ((), ((), ((), ()))), (((), (), ((), ())), ((), ()))  # 1, 2, 3, 3 tokens; 2, 2, 3, 3, 2, 2
REWARDS = ("R", "A", "R*A")  # with two values of each, all functions of one sample
FAR = 1.6  # of the logits, where wide bounds are met
MASK = re.compile(r"\bM\b")
DIVIDED = re.compile(r"/ *\(?(\d \+ )?whole\(M\)")
MASSES = re.compile(r"full\([^()]*\bM\b")
REWARDS_OF_SEQUENCES = (*REWARDS, "R**2", "R**2*A")


@cache
def worlds(level: str, rewards: str) -> tuple[Tree, ...]:
    """The same worlds for every loss: 16 single samples of sizes 2 to 5, 32 batches, 16 trees, 16 samples far
    out, and 4 of so many outcomes that some lie between bounds that are close to each other.

    A mask is 0 in many batches, where a fit could do as it likes, and nothing has a curl.
    """
    if level == "far":
        return tuple(tree for size in (3, 4) for tree in trees(SEED + size, ((),) * size, 8, rewards, FAR))
    if level == "many":
        return tuple(trees(SEED, ((),) * 60, 4, rewards, FAR))
    if level == "batch":
        return tuple(tree for size in (2, 3) for tree in trees(SEED + size, ((),) * size, 16, rewards))
    if level != "sample":
        return tuple(tree for shape in (DEEP, WIDE) for tree in trees(SEED, shape, 8, rewards))
    return tuple(samples(SEED, rewards=rewards))


@cache
def forest_of(level: str, rewards: str, sampling: str, second: bool, kept: str = "") -> Forest:
    """kept: "tokens", the mask is 1 at the first token of every sequence, so that whole(M) is not 0; "words",
    it is 1 at some words of each token and 0 at others, so that full(M) is neither 0 nor 1."""
    found = list(worlds(level, rewards))
    if kept == "words":
        found = [replace(tree, root=_mask_words(tree.root)) for tree in found]
    elif kept:
        roots = (replace(tree.root, M=np.ones(len(tree.root.logits))) for tree in found)
        found = [replace(tree, root=root) for tree, root in zip(found, roots, strict=True)]
    return Slotted(found, (sampling,), second)


def _mask_words(at: Node) -> Node:
    masked = np.array(at.M)
    masked[0], masked[-1] = 1, 0
    return replace(at, M=masked, after=tuple(x and _mask_words(x) for x in at.after))


def in_batch(case: Case) -> bool:
    """Does an option, or the loss itself, speak of a batch?"""
    return case.batch != "none" or holds(case.text, OF_SAMPLES)


def forest(case: Case, rewards: str = "generic", second: bool = False, level: str = "") -> Forest:
    batched = in_batch(case) and case.level == "sample"
    level = level or ("batch" if batched else case.level)
    return forest_of(level, rewards, case.sampling, second, which_are_kept(case.text))


def which_are_kept(text: str) -> str:
    return "words" if MASSES.search(text) else "tokens" if DIVIDED.search(text) else ""


def settings(case: Case) -> list[Setting]:
    """One for each size of a batch that is enumerated."""
    given = options(case)
    return [Setting(**given, n=n) for n in ((2, 3) if in_batch(case) else (2,))]


def options(case: Case) -> dict[str, str]:
    """How the loss is used, as `klsym.explain` takes it."""
    return {name: value for name, value in asdict(case).items() if name not in ("text", "ring") and value}


def rewards_of(case: Case) -> tuple[str, ...]:
    rewards = REWARDS if case.level == "sample" else REWARDS_OF_SEQUENCES
    masks = ("M", *(f"M*{reward}" for reward in rewards)) if MASK.search(case.text) else ()
    return (*rewards, *masks, *(() if case.level == "token" else _calls_of_rewards(case.text)))


def _calls_of_rewards(text: str) -> tuple[str, ...]:
    """Functions of R and A alone, such as log(1 + exp(R)) and R**2*R."""
    found = []
    for node in ast.walk(ast.parse(text, mode="eval")):
        named = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)} - {*PLAIN}
        composed = isinstance(node, ast.Call) or isinstance(getattr(node, "op", None), ast.Mult | ast.Pow)
        if composed and named and named <= {"R", "A"}:
            found.append(ast.unparse(node))
    return tuple(dict.fromkeys(found))


def flat(part: Any, where: Forest) -> np.ndarray:
    """A gradient as an array (logits, worlds)."""
    return np.broadcast_to(np.asarray(part, float), (where.logits, 1, len(where.worlds)))[:, 0]


def slope(text: str, where: Forest, measure: str = "q") -> np.ndarray:
    return flat(where.slope(text, measure).a, where)


def constants_of(case: Case, setting: Setting) -> dict[str, Any]:
    """n is the size of the batch; T is a parameter of single samples alone."""
    return ({"n": float(setting.n), "m": setting.n - 1.0} if in_batch(case) else {}) | (
        {"T": 11.0} if case.level == "sample" else {}
    )


def scales(case: Case, where: Forest, setting: Setting) -> np.ndarray:
    """What rounding is measured against in each world."""
    return np.broadcast_to(where.size(case.text, setting), len(where.worlds)) + FLOOR


def combination(multiples: dict[str, str], where: Forest, constants: dict[str, Any]) -> np.ndarray:
    """a grad KL(q||p) + b grad KL(p||q) + grad E_q[h] + E_q[rest s], from the strings."""
    total = np.zeros((where.logits, len(where.worlds)))
    for name, along in (
        ("reverse-kl", lambda: slope("k1", where)),
        ("forward-kl", lambda: slope("-k1", where, "p")),
    ):
        if name in multiples:
            total = total + number(multiples[name], constants) * along()
    if "reward" in multiples:
        total = total + flat(where.form(f"({multiples['reward']})", **constants).a, where)
    if "rest" in multiples:
        total = total + flat(where.form(multiples["rest"], **constants).a, where)
    return total


def number(text: str, constants: dict[str, Any] | None = None) -> float:
    """A multiple, from its text."""
    known = {**PARAMETERS, **(constants or {})}
    return float(evaluate(text, lambda name, slot=None: known[name]))


def at_points(text: str, **values: Any) -> np.ndarray:
    """A formula at points given by log densities and rewards."""
    known = {**PARAMETERS, **values}

    def find(name: str, slot: str | None = None) -> Any:
        return derived(name, find) if name in DERIVED else known[name]

    return np.broadcast_to(plain(evaluate(text, find)), np.shape(values["log_q"]))


def reward_slopes(text: str, of: str, constants: dict[str, Any]) -> np.ndarray:
    """The slope of a reward in R or A at random samples, by differences; those across a jump are left out."""
    stream = np.random.default_rng(SEED)
    names = ("log_q", "log_p", "log_mu", "log_old", "R", "A", "M")
    values = dict(zip(names, 2 * stream.normal(size=(len(names), 4000)), strict=True))
    above, below = (at_points(text, **constants, **{**values, of: values[of] + e}) for e in (1e-6, -1e-6))
    slopes = (above - below) / 2e-6
    return slopes[np.abs(slopes) < 1e4]


def reward_jumps(text: str, of: str, constants: dict[str, Any]) -> list[float]:
    """By how much a reward jumps at the numbers that R or A is compared with, at random samples."""
    stream = np.random.default_rng(SEED)
    names = ("log_q", "log_p", "log_mu", "log_old", "R", "A", "M")
    values = dict(zip(names, 2 * stream.normal(size=(len(names), 400)), strict=True))
    bounds = re.findall(rf"\b{of} (?:[<>]=?) ([\d./]+)", text)
    at = [float(Fraction(bound)) for bound in bounds]
    sides = [[at_points(text, **constants, **{**values, of: x + e + 0 * values[of]}) for e in (1e-9, -1e-9)]
             for x in at]  # fmt: skip
    return [0.0, *(float(y) for above, below in sides for y in (above - below).flat)]


BESIDE = {"log_q": -0.3, "log_p": -0.7, "log_mu": -1.1, "log_old": -0.9, "R": 0.4, "A": 0.6, "M": 1.0}


def on_bounds(formula: str) -> str:
    """The formula at a tie of every comparison: each where(..) with < or > takes its second value."""
    return re.sub(r"where\([^,]* [<>] [^,]*,", "where(0.0,", formula)


def on_bounds_alone(answer: dict[str, Any]) -> bool:
    """Is the gradient 0 but where two sides of a bound are equal, as that of clip(x, 0, 0)?"""
    if rows := answer["gradient"]["cases"]:
        moving = [row["where"] for row in rows if row["per_sample"] != "0"]
        return bool(moving) and all(re.search(r"(?<![<>!])= ", where) for where in moving)
    beside = answer["gradient"]["coefficient"]
    off, on = (float(at_points(text, **BESIDE, mean_h=0.0, n=2.0)) for text in (beside, on_bounds(beside)))
    return abs(off) < 1e-12 < abs(on)


def function_of_rewards(part: dict[str, Any]) -> tuple[str, ...]:
    """The reward term that a gradient or a value prints, if it depends on rewards and parameters alone."""
    said = (part["combination"] or {}).get("reward", "")
    return (said,) if said and not re.search(r"k\d|\br\b|rho|log_|mean_h", said) else ()
