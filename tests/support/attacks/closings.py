"""Random closings other than equality: rows of inequalities, finite models, completeness, independence."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from klsym.errors import NotInRing, Refused
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.closings import read_rows
from klsym.kernel.models import Model, enclose
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.slots import SLOTS
from klsym.kernel.statements import Context, Mean, MeanGradient, Side, Statement

from .parts import Accepted, Chain, Pool, with_premises
from .terms import Maker, random_context, variable

K1 = variable("k1")


# ---------------------------------------------------------------------------- rows
def inequality(pool: Pool, rng: random.Random) -> Accepted | None:
    """left <= right by random rows; the right side is what left and the rows arrive at."""
    context = with_premises(random_context(rng), rng)
    maker = Maker(context, rng)
    left = Side() if maker.chance(0.5) else Side.from_atom(maker.atom()) * maker.constant()
    close = {"by": "equality", "rows": [row(maker) for _ in range(rng.choice((1, 1, 1, 2)))]}
    try:
        side = left
        for more, _ in read_rows(close, Statement(left, left, context, "<="), Assumptions(context)):
            side = side + more
    except (Refused, NotInRing):
        return None
    chain = Chain(context, maker, pool, side)
    chain.wander(3)
    return chain.certified(chain.part(left, chain.side, "<=", close), "inequality")


def row(maker: Maker) -> dict[str, Any]:
    rng, index = maker.rng, maker.any_index()
    kind = rng.choice(("tangent", "square", "variance"))
    slots = SLOTS[index]
    of = maker.element(slots, 2)
    if kind == "tangent" or maker.chance(0.5):
        of = plain(maker, slots)
    if maker.chance(0.2):  # what does not vanish where its parts do
        x = maker.exponent(slots)
        of = x.exp() + (-x).exp() * rng.choice((-1, 1)) + rng.choice((0, 0, 1)) if kind != "tangent" else x
    v = maker.exponent(slots) if maker.chance(0.4) and kind != "variance" else ZERO
    if kind == "tangent" and maker.chance(0.4):
        x = maker.exponent(slots)
        v, of = -x * rng.choice((1, 1, 2)), x + (plain(maker, slots) if maker.chance(0.5) else 0)
    scale, factor = (
        ExpPoly.from_number(Fraction(rng.choice((1, 1, 2, 3, 1, 1, 2, -1)), 2)),
        ExpPoly.from_number(1),
    )
    for name in maker.context.parameters:
        scale = scale * variable(name) ** rng.choice((0, 0, 0, 1, 2, -1))
    if maker.chance(0.4):
        factor = maker.constant() + (rng.choice((-1, 1, 2)) if maker.chance(0.6) else 0)
    score = () if kind == "tangent" else maker.score(index)
    found = {
        "kind": kind, "scale": scale.to_json(), "factor": factor.to_json(),
        "at": [index, maker.measure(index)], "v": v.to_json(), "of": of.to_json(), "score": list(score),
    }  # fmt: skip
    if kind == "square" and not index and maker.chance(0.3):
        found["nonnegative"] = region(maker).to_json()
    return found


def plain(maker: Maker, slots: tuple[str, ...]) -> ExpPoly:
    """A polynomial in a few log ratios and rewards, which often vanishes where q = p."""
    total = ZERO
    for _ in range(maker.rng.choice((1, 1, 2))):
        names = ("k1", "k1", "w", "o", "R", "H")
        total = total + variable(maker.name(slots, names)) * maker.rng.choice((1, -1, 2))
    return total + (maker.rng.choice((-1, 1)) if maker.chance(0.15) else 0)


def region(maker: Maker) -> ExpPoly:
    k1, w, one = K1, variable("w"), ExpPoly.from_number(1)
    choices = [one + k1, one * 2 - k1 * k1, one + w, k1.exp() * 2 - 1, one * 2 + k1 - w]
    choices += [(-k1).exp(), one - k1, (k1.exp() * 2 - 1) ** 2, (k1.exp() - 2) ** 2]
    return maker.rng.choice(choices)


# ---------------------------------------------------------------------------- finite models
def refutation(pool: Pool, rng: random.Random) -> Accepted | None:
    """A random statement, which a random tree refutes more often than not."""
    context = random_context(rng)
    maker = Maker(context, rng)
    index = rng.choice(("", "", "t", "i"))
    last = "parts of a sum" if index == "t" else "stop-gradient"
    rule = rng.choice(("chain rule", "linearity", "change of measure", last))
    start = Side.from_atom(maker.suited(rule, index))
    other = Side.from_atom(maker.mean(rng.choice(("", "t")))) if maker.chance(0.5) else Side()
    chain = Chain(context, maker, pool, start)
    for rule in ("chain rule", "independence"):
        for place in [(i, j) for i, (_, atoms) in enumerate(chain.side.terms) for j in range(len(atoms))][:1]:
            chain.take(chain.step(rule, place))
    chain.wander(2)
    relation = rng.choice(("=", "=", "<="))
    model = random_model(context, rng)
    close = {"by": "finite model", "model": model}
    try:
        read = Model.from_json(model, context)
        for name, side in (("left", chain.side), ("right", other)):
            interval = enclose(side, read)
            close[name] = [str(interval.lower), str(interval.upper)]
    except (Refused, NotInRing):
        return None
    return chain.certified(chain.part(start, other, relation, close), "finite model")


def random_model(context: Context, rng: random.Random) -> dict[str, Any]:
    parameters = {
        name: str(Fraction(rng.choice((-2, -1, 0, 1, 3)), rng.choice((1, 2)))) for name in context.parameters
    }
    if "n" in parameters:
        parameters["n"] = rng.choice(("2", "2", "3"))
    depth = rng.choice((1, 1, 2, 3))
    tree = random_node(depth, rng)
    path, node = [], tree
    while node is not None:
        path.append(rng.randrange(len(node["next"])))
        node = node["next"][path[-1]]
    return {"tree": tree, "path": path, "parameters": parameters}


def random_node(depth: int, rng: random.Random) -> dict[str, Any]:
    size = rng.choice((1, 2, 2, 3)) if depth > 1 else rng.choice((2, 3))

    def law() -> list[str]:
        weights = [rng.randint(1, 4) for _ in range(size)]
        return [str(Fraction(x, sum(weights))) for x in weights]

    def numbers() -> list[str]:
        return [str(Fraction(rng.randint(-3, 3), rng.choice((1, 2)))) for _ in range(size)]

    after = [random_node(depth - 1, rng) if depth > 1 and rng.random() < 0.6 else None for _ in range(size)]
    return {
        "q": law(), "p": law(), "mu": law(), "old": law(), "u": numbers(), "v": numbers(),
        "rewards": {name: numbers() for name in ("R", "A", "H", "M")}, "next": after,
    }  # fmt: skip


# ---------------------------------------------------------------------------- all densities at once
def unique(pool: Pool, rng: random.Random) -> Accepted | None:
    """E_q[(g^(n-1) - H(k1)) s] = 0 for one family of g; the family is at times a wrong one."""
    context = Context(("a", "lam", "b"), (("g", ("k1",)),))
    maker, order = Maker(context, rng), rng.choice((1, 1, 2))
    family, unit = antiderivative(maker), maker.constant() if maker.chance(0.3) else ExpPoly.from_number(1)
    unit = ExpPoly(
        {key: value for key, value in unit.terms.items() if not {"a", "b"} & {n for n, _ in key[0]}}
    )
    unit = unit if unit else ExpPoly.from_number(1)
    inner = family
    for _ in range(order - 1):
        inner = inner.derive(lambda name: ExpPoly.from_number(int(name == "k1")))
    c = (variable("g" + "'" * (order - 1)) - inner) * unit.invert() + (
        maker.constant() if maker.chance(0.2) else 0
    )
    free = variable("a") + (variable("b") * K1 if order == 2 else 0)
    wrong = maker.chance(0.3)
    family = family + free + (rng.choice((K1, K1 * K1, (-K1).exp())) if wrong else 0)
    start = Side.from_atom(Mean("", "q", c, ("x",)))
    chain = Chain(context, maker, pool, start)
    if order == 2 and maker.chance(0.5):
        loss = (variable("g") - antiderivative_once(inner)) * unit.invert()
        chain.side = start = Side.from_atom(MeanGradient("", "q", loss))
        chain.take({"rule": "chain rule", "side": "left", "term": 0, "factor": 0, "data": {}})
    claimed, free_ones = (rng.choice((order, order, order, 3 - order)) for _ in range(2))
    close = {
        "by": "completeness", "function": "g", "family": family.to_json(), "unit": unit.to_json(),
        "coordinate": rng.choice(("k1", "k1", "k1", "w", "log_q", "o")), "order": claimed,
        "constants": ["a", "b"][:free_ones],
    }  # fmt: skip
    return chain.certified(chain.part(start, Side(), "=", close), "completeness")


def antiderivative(maker: Maker) -> ExpPoly:
    """A function of k1 in the ring."""
    rng, total = maker.rng, ZERO
    for _ in range(rng.choice((1, 2))):
        number = ExpPoly.from_number(Fraction(rng.choice((1, -1, 2, 3)), rng.choice((1, 2))))
        power = rng.choice((-1, 1, 2))
        shape = rng.choice((K1, K1**2, K1**3, (K1 * power).exp(), K1 * (K1 * power).exp()))
        total = total + number * shape * (variable("lam") if maker.chance(0.2) else 1)
    return total


def antiderivative_once(element: ExpPoly) -> ExpPoly:
    """An antiderivative of the polynomial part."""
    total = ZERO
    for (monomial, exponent), value in element.terms.items():
        powers = dict(monomial)
        power = powers.get("k1", 0) + 1
        total = total + ExpPoly({(monomial, exponent): value}) * K1 * Fraction(1, power)
    return total


def foreign(pool: Pool, rng: random.Random) -> Accepted | None:
    """A field that is said to be no combination of the KL gradients."""
    names = tuple(name for name in ("lam", "beta") if rng.random() < 0.6)
    context = Context(names)
    maker = Maker(context, rng)
    c = ZERO
    for _ in range(rng.choice((1, 1, 2, 3))):
        shapes = [
            K1,
            (-K1).exp(),
            variable("R"),
            variable("A"),
            K1**2,
            variable("w"),
            variable("log_q"),
            variable("o"),
            ExpPoly.from_number(1),
        ]
        term = rng.choice(shapes) * maker.constant()
        if maker.chance(0.4):
            term = term * maker.exponent(("x",)).exp()
        if maker.chance(0.25):
            term = term * variable(maker.name(("x",), ("k1", "w", "o", "R", "H", "log_q")))
        c = c + term
    c = c.rename(lambda name: name.removeprefix("sg(").removesuffix(")"))
    if not c:
        return None
    start = Side.from_atom(Mean("", "q", c, ("x",)))
    key = rng.choice(sorted(c.terms))
    chain = Chain(context, maker, pool, start)
    close = {"by": "independence", "term": ExpPoly({key: c.terms[key]}).to_json()}
    return chain.certified(chain.part(start, Side(), "=", close), "independence")


KINDS = {
    "inequality": inequality,
    "finite model": refutation,
    "completeness": unique,
    "independence": foreign,
}
