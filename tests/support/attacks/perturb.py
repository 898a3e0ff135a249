"""Perturbed certificates: an accepted part with something changed, which must be refused or be true."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

from klsym.errors import KlsymError, NotInRing, Refused
from klsym.kernel import apply_step, certify, check, check_part, read, show
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.closings import read_rows
from klsym.kernel.statements import Context, Side, Statement

from .parts import Accepted, Pool

SWAPS = [
    ("mu", "p"), ("mu", "q"), ("p", "q"), ("past", "future"), ("past", "now"), ("self", "others"),
    ("other", "rest"),
    ("self", "other"), ("now", "future"), ("x", "now"), ("k1", "w"), ("k1", "log_q"), ("R", "A"), ("R", "k1"),
    ("length", "R"), ("i", "ij"), ("t", "it"), ("", "t"), ("lam", "n"), ("f", "g"), ("lam", "k1"),
]  # fmt: skip


def perturbed(accepted: Accepted, pool: Pool, rng: random.Random) -> Accepted | None:
    """A perturbed part that the kernel accepts nevertheless."""
    part = copy.deepcopy(accepted.part)
    change = rng.choice(
        (swap_names, swap_names, swap_once, swap_once, change_number, drop_step, other_relation)
    )
    try:
        change(part, rng)
        statement = [part[key] for key in ("context", "relation", "left", "right", "close")]
        same = statement == [accepted.part[key] for key in ("context", "relation", "left", "right", "close")]
        if same and part["steps"] == accepted.part["steps"]:
            return None
        part["steps"] = replayed(part, pool)
        full, theorem = certify(part, pool.known)
    except (KlsymError, KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None
    return Accepted(full, accepted.cites, theorem, accepted.used, "perturbed")


def replayed(part: dict[str, Any], pool: Pool) -> list[Any]:
    """The steps with the results that they have now."""
    sides = {name: Side.from_json(part[name]) for name in ("left", "right")}
    context, steps = Context.from_json(part["context"]), []
    for name in sides:
        part[name] = sides[name].to_json()
    statement = Statement(sides["left"], sides["right"], context, part["relation"])
    for row, _ in read_rows(part["close"], statement, Assumptions(context)):
        sides["left"] = sides["left"] + row
    for step in part["steps"]:
        result, _ = apply_step(sides, {**step, "result": None}, context, pool.known)
        sides[step["side"]] = result
        steps.append({**step, "result": result.to_json()})
    return steps


def accepts_without(accepted: Accepted, pool: Pool, rng: random.Random) -> bool:
    """Does the kernel accept the part without one of its hypotheses, or with one that it does not use?"""
    part = copy.deepcopy(accepted.part)
    if part["hypotheses"] and rng.random() < 0.7:
        part["hypotheses"].pop(rng.randrange(len(part["hypotheses"])))
    else:
        part["hypotheses"].append(["nonzero", "zeta"])
    try:
        check_part(part, pool.known, "part 1")
    except (Refused, NotInRing):
        return False
    return True


def differs_when_read(accepted: Accepted, pool: Pool, rng: random.Random) -> bool:
    """Does the certificate, written and read, establish anything but the same theorem?"""
    theorems = check(read(json.dumps(accepted.certificate())))
    return [show(x, full=True) for x in theorems] != [show(accepted.theorem, full=True)]


# ---------------------------------------------------------------------------- changes
def swap_names(part: dict[str, Any], rng: random.Random) -> None:
    """Exchange two words in the statement and the data of the steps."""
    a, b = rng.choice(SWAPS)
    for name in ("left", "right", "steps", "close"):
        part[name] = json.loads(_swapped(json.dumps(part[name]), a, b))


def swap_once(part: dict[str, Any], rng: random.Random) -> None:
    """Exchange two words in one of these places alone."""
    a, b = rng.choice(SWAPS)
    name = rng.choice(("left", "right", "data", "close"))
    if name != "data":
        part[name] = json.loads(_swapped(json.dumps(part[name]), a, b))
    elif part["steps"]:
        step = rng.choice(part["steps"])
        step["data"] = json.loads(_swapped(json.dumps(step["data"]), a, b))


def _swapped(text: str, a: str, b: str) -> str:
    """Two words exchanged wherever they stand alone, in quotes, brackets or primes."""
    if not a:
        return text.replace('"Mean", ""', f'"Mean", "{b}"')
    names = {a: b, b: a}
    return re.sub(rf"(?<![A-Za-z_0-9])({a}|{b})(?![A-Za-z_0-9])", lambda found: names[found[1]], text)


def change_number(part: dict[str, Any], rng: random.Random) -> None:
    """Another sign or size of one number of the statement."""
    name = rng.choice(("left", "right", "close"))
    text = json.dumps(part[name])
    found = list(re.finditer(r'"(-?\d+(?:/\d+)?)"', text))
    spot = rng.choice(found)
    new = spot[1].removeprefix("-") if spot[1].startswith("-") else "-" + spot[1]
    part[name] = json.loads(text[: spot.start(1)] + new + text[spot.end(1) :])


def drop_step(part: dict[str, Any], rng: random.Random) -> None:
    part["steps"].pop(rng.randrange(len(part["steps"])))


def other_relation(part: dict[str, Any], rng: random.Random) -> None:
    part["relation"] = "<=" if part["relation"] == "=" else "="
