"""Random definitions and facts, and comparisons of regions that may well hold."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from klsym.kernel.definitions import Definition
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SINGLE, SLOTS, name_in_slot
from klsym.kernel.statements import Context, Mean

V, N = ExpPoly.from_variable, ExpPoly.from_number
K1, W, A, R, M, LAM = (V(name) for name in ("k1", "w", "A", "R", "M", "lam"))
R_, RHO = (-K1).exp(), W.exp()
PREFIX = (V("w[past]") + V("w[now]")).exp()
# name, kind, e; each needs the names of those above that it speaks of
MENU: tuple[tuple[str, str, ExpPoly], ...] = (
    ("up", "region", K1), ("down", "region", -K1), ("pos", "region", A), ("neg", "region", -A),
    ("high", "region", RHO - 1 - LAM), ("low", "region", 1 - LAM - RHO), ("far", "region", RHO - 2),
    ("below", "region", 1 - R_ - K1), ("rich", "region", R - 1), ("poor", "region", 1 - R),
    ("kept", "region", M - 1), ("sure", "region", R * R + 1), ("wide", "region", LAM - 1),
    ("still", "region", K1 - W), ("odd", "region", V("o") * 2 - W + R), ("over", "region", PREFIX - LAM),
    ("win", "region", V("R[self]") - V("R[others]")), ("beats", "region", V("k1[self]") - V("k1[other]")),
    ("late", "region", V("length[past]") - 1), ("flip", "region", V("up") * 2 - 1),
    ("both", "region", V("up") * V("pos") + V("R") - 1),
    ("made", "region", V("f")), ("unmade", "region", -V("f")),
    ("per_step", "region", W * V("length").invert()), ("back", "region", -W * V("length").invert()),
    ("sigma", "log", R_ + 1), ("half", "log", V("up") + 1), ("pole", "log", K1),
    ("price", "log", R), ("share", "log", LAM), ("steep", "region", V("pole")),
    ("odds", "log", W + R), ("size", "log", K1 * K1 + R_),
    ("ratio", "let", R_), ("gap", "let", V("up") * R - W),
    ("mass", "E_q", M), ("masses", "E_q", M * R_ + W), ("theirs", "E_p", M * K1), ("cost", "E_mu", K1 * R),
    ("gone", "E_q", V("up") * R), ("both_of", "E_q", V("mass") * K1 + LAM), ("spare", "log", V("mass") + 1),
    ("owed", "log", 2 - V("theirs")), ("part", "let", V("mass") * R - V("theirs")),
    ("curved", "log", R_ + V("mass")),
)  # fmt: skip
FACTS = (M, 1 - M, LAM, R + 2, V("M[now]"), V("length") - 1, 2 - R)
PARTNERS = {
    "up": ("down", "flip", "half"), "high": ("low", "far"), "pos": ("neg",), "rich": ("poor",),
    "mass": ("spare", "part", "curved", "both_of"),
}  # fmt: skip
BY_NAME = {name: e for name, _, e in MENU}


def with_definitions(context: Context, rng: random.Random, most: int = 7) -> Context:
    """Some names of the menu, and those that they speak of; some facts, and values at which they hold."""
    wanted = {name for name, _, _ in rng.sample(MENU, rng.randint(2, most))}
    wanted |= {other for name in PARTNERS for other in PARTNERS[name] if name in wanted}
    known = {*context.parameters, *(name for name, _ in context.functions)}
    found: list[Definition] = []
    for name, kind, e in MENU:
        names = {n for n in e.names() if n in BY_NAME or n in ("lam", "f")}
        if name in wanted and names <= known:
            found.append(Definition(name, kind, e))
            known.add(name)
    facts = [fact for fact in FACTS if rng.random() < 0.3 and ("lam" in known or "lam" not in fact.names())]
    names = sorted({name for fact in facts for name in fact.names()})
    return Context(
        context.parameters, context.functions, context.premises, tuple(found), tuple(facts),
        tuple((name, 1) for name in names),
    )  # fmt: skip


def names_in(context: Context, slots: tuple[str, ...]) -> list[str]:
    """The defined names that may stand beside these slots, at times detached."""
    found = []
    for name, _, _ in context.definitions:
        own = context.find_slots(name)
        places = [z for z in slots if z in SINGLE] if own == {"x"} else ["x"]
        found += [
            name_in_slot(name, z) for z in places if context.find_slots(name_in_slot(name, z)) <= set(slots)
        ]
    return found + [f"sg({name})" for name in found]


# ---------------------------------------------------------------------------- comparisons
def row(*factors: Any, weight: Any = ONE, square: Any = ONE, tangent: Any = ZERO) -> dict[str, Any]:
    """What is at least 0 in a cell."""
    elements = {"weight": weight, "square": square, "tangent": tangent}
    return {"factors": list(factors), **{key: value.to_json() for key, value in elements.items()}}


# what is defined: (cell, rows, x, apart), in the names of one sample
KNOWN: tuple[tuple[dict[str, int], list[Any], ExpPoly, list[str]], ...] = (
    ({"up": 1, "down": 1}, [row("up"), row("down")], ONE, []),
    ({"up": 0, "down": 0}, [row("up", "down")], K1, []),
    ({"up": 0, "down": 0}, [row("up"), row("down")], ONE, ["up"]),
    ({"pos": 1, "neg": 1}, [row("pos", weight=RHO), row("neg", weight=RHO)], ONE, []),
    ({"pos": 0, "neg": 0}, [row("pos", "neg")], A, []),
    ({"rich": 0, "poor": 0}, [row("rich", "poor")], R - 1, []),
    ({"rich": 1, "poor": 1}, [row("rich"), row("poor")], ONE, []),
    ({"high": 1, "low": 1}, [row("high"), row("low"), row(LAM, weight=N(2))], ONE, []),
    ({"below": 1}, [row("below"), row(tangent=-K1)], ONE, []),
    ({"sure": 0}, [row("sure"), row(square=R), row()], ONE, []),
    ({"flip": 1, "up": 0}, [row("flip"), row()], ONE, []),
    ({"flip": 0, "up": 1}, [row("flip"), row()], ONE, []),
    ({"kept": 1}, [row("kept"), row(1 - M)], ONE, []),
    ({"made": 1, "unmade": 1}, [row("made"), row("unmade")], ONE, []),
    ({"per_step": 1, "back": 1}, [row("per_step"), row("back")], ONE, []),
    ({"per_step": 0, "back": 0}, [row("per_step", "back", weight=V("length") ** 2)], W, []),
    ({"per_step": 0, "back": 0}, [row("per_step"), row("back")], ONE, ["back"]),
)  # fmt: skip


def comparison(index: str, maker: Any) -> dict[str, Any]:
    """The data of the rule `region`: what holds in a slot, with something changed at times."""
    rng, context = maker.rng, maker.context
    defined = {name for name, _, _ in context.definitions}
    usable = [entry for entry in KNOWN if set(entry[0]) <= defined]
    cell, rows, x, apart = rng.choice(usable) if usable and rng.random() < 0.9 else ({}, [], ZERO, [])
    slot = rng.choice([z for z in SLOTS[index] if z in SINGLE])
    rows = [{**one, "factors": [_fact(f, context, rng) for f in one["factors"]]} for one in rows]
    if rng.random() < 0.1 and rows:
        rows.pop(rng.randrange(len(rows)))
    if rng.random() < 0.1 and cell:
        name = rng.choice(sorted(cell))
        cell = {**cell, name: 1 - cell[name]}
    if rng.random() < 0.2 and cell:  # rows that add up to 0, as no positive ones do
        name = rng.choice(sorted(cell))
        rows, x = [row(name, weight=c) for c in (ONE, -ONE)], ONE
    if rng.random() < 0.15 and rows:
        scale = rng.choice((maker.constant(), V("length"), R_))
        rows = [{**one, "weight": (ExpPoly.from_json(one["weight"]) * scale).to_json()} for one in rows]
        x = x if x in (ONE, ZERO) else x * scale
    data = {"cell": cell, "rows": rows, "of": x.to_json(), "apart": apart}
    return {**_at(slot, data, defined), "times": maker.element(SLOTS[index], 1).to_json() if cell else []}


def _fact(factor: Any, context: Context, rng: random.Random) -> Any:
    """The number of a fact, or of another one."""
    if isinstance(factor, str):
        return factor
    wrong = factor not in context.facts or rng.random() < 0.1
    return rng.randint(0, 2) if wrong else context.facts.index(factor)


def _at(slot: str, data: Any, defined: set[str]) -> Any:
    """What is said of one sample, said of a slot."""
    if isinstance(data, dict):
        return {_at(slot, key, defined): _at(slot, value, defined) for key, value in data.items()}
    if isinstance(data, list):
        return [_at(slot, item, defined) for item in data]
    return name_in_slot(data, slot) if data in {*defined, "k1", "w", "R", "A"} else data


def compared(index: str, maker: Any) -> tuple[Mean, dict[str, Any]]:
    """A mean that holds a product of regions that a comparison takes off."""
    data, mean = comparison(index, maker), maker.mean(index)
    product = ExpPoly.from_json(data["of"]) * ExpPoly.from_json(data["times"])
    for name, value in data["cell"].items():
        product = product * (V(name) if value else 1 - V(name))
    return Mean(index, mean.measure, mean.coefficient + product, mean.score), data


def divided(index: str, maker: Any) -> dict[str, Any]:
    """The data of the rule `definition`."""
    names = names_in(maker.context, SLOTS[index]) or ["k1"]
    times = Fraction(maker.rng.choice((1, -1, 2)))
    b = maker.element(SLOTS[index], 1) if maker.chance(0.6) else N(times)
    context = maker.context
    logs = [
        name
        for name in names
        if context.find_definition(name, "log", "let") is not None or context.find_mean(name) is not None
    ]
    return {"name": maker.rng.choice(logs or names), "times": b.to_json()}
