"""Random steps: a rule with data taken from the atom that it is to work on."""

from __future__ import annotations

from typing import Any

from klsym.kernel import EQUATION, RULES
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SLOTS, UPSTREAM
from klsym.kernel.statements import Atom, Context, Gradient, Mean, Side

from .defined import comparison, divided
from .terms import LOGS, PROBABILITIES, Maker

SUMS = (*LOGS, "R", "H", "length", "s")
ON_MEANS = (
    "stop-gradient", "linearity", "change of measure", "score mean zero", "ratio mean one", "normalisation",
    "sum over t", "parts of a sum", "exchange of sums", "independence", "region", "definition",
)  # fmt: skip
AT = {
    "normalisation": ("", "i", "ij"), "sum over t": ("",), "parts of a sum": ("t", "it"),
    "exchange of sums": ("t", "it"), "independence": ("i", "ij", "it"),
}  # fmt: skip
PAIRS = [(rule, index) for rule in RULES for index in AT.get(rule, ("", "i", "ij", "t", "it"))]


def data_for(rule: str, atom: Atom, maker: Maker) -> dict[str, Any]:
    """Plausible data for a rule on an atom."""
    rng, data = maker.rng, dict[str, Any]()
    index = "" if isinstance(atom, Gradient) else atom.index
    slots = list(UPSTREAM[index])
    if rule == "linearity":
        data["constant"] = maker.constant().to_json()
    elif rule == "change of measure":
        data["to"] = rng.choice((*PROBABILITIES, *PROBABILITIES, "count"))
    elif rule == "score mean zero":
        own = (
            [z.removesuffix("'") for z in atom.score if z.removesuffix("'") in slots]
            if isinstance(atom, Mean)
            else []
        )
        data["slot"] = rng.choice(own or slots)
    elif rule == "ratio mean one":
        data |= {"of": rng.choice(PROBABILITIES), "slot": rng.choice(slots)}
    elif rule == "sum over t":
        data["of"] = rng.choice(_summed(atom) or SUMS)
    elif rule == "parts of a sum":
        data["of"] = [name for name in SUMS if maker.chance(0.4)]
    elif rule == "exchange of sums":
        data |= _exchange_data(atom, maker)
    elif rule == "region":
        data |= comparison(index, maker)
    elif rule == "definition":
        data |= divided(index, maker)
    elif rule == "log-derivative" and maker.context.definitions and maker.chance(0.5):
        data |= _jumps(atom, maker)
    if isinstance(atom, Mean) and rule in ON_MEANS and maker.chance(0.35):
        data["part"] = maker.part(atom.coefficient, SLOTS[index]).to_json()
    return data


def _summed(atom: Atom) -> list[str]:
    """What stands in each term of a coefficient, or s."""
    if not isinstance(atom, Mean):
        return []
    names = [{n for n, _ in monomial} for monomial, _ in atom.coefficient.terms]
    common = set.intersection(*names) & set(SUMS) if names else set()
    return sorted(common) + ["s"] * ("x" in atom.score)


def _jumps(atom: Atom, maker: Maker) -> dict[str, Any]:
    """What a mean changes by where one of its regions does, if that is a multiple of e by a simple factor."""
    found: dict[str, Any] = {}
    means = [a for _, atoms in atom.of.terms for a in atoms] if isinstance(atom, Gradient) else []
    for mean in (a for a in means if isinstance(a, Mean)):
        for name in sorted(mean.coefficient.names()):
            e = maker.context.find_definition(name, "region")
            if e is None or name.startswith("sg("):
                continue
            up, down = (mean.coefficient.substitute({name: ExpPoly.from_number(x)}) for x in (1, 0))
            fitting = [g for g in (ZERO, ONE, -ONE, maker.constant()) if up - down == g * e]
            found |= {name: fitting[0].to_json()} if fitting else {}
    return {"jumps": found} if found else {}


def _exchange_data(atom: Atom, maker: Maker) -> dict[str, Any]:
    slot, rng = maker.rng.choice(("past", "future")), maker.rng
    if not isinstance(atom, Mean):
        return {"now": "s", "other": "s", "slot": slot}
    if slot not in " ".join([*atom.coefficient.names(), *atom.score]):
        slot = "past" if slot == "future" else "future"
    common: set[str] | None = None
    for monomial, _ in atom.coefficient.terms:
        names = {n for n, _ in monomial}
        common = names if common is None else common & names
    found = {}
    for key, at in (("now", "now"), ("other", slot)):
        choices = [n.removesuffix(f"[{at}]") for n in sorted(common or ()) if n.endswith(f"[{at}]")]
        choices += ["s"] * (at in atom.score)
        found[key] = rng.choice(choices or ["length"])
    return {**found, "slot": slot}


def random_step(
    side: Side, name: str, maker: Maker, rule: str = "", at: tuple[int, int] | None = None
) -> Any:
    """A step on a random atom of a side (or on the one given), or nothing where there is none."""
    rng, terms = maker.rng, side.terms
    choices = [(i, j) for i, (_, atoms) in enumerate(terms) for j in range(len(atoms))]
    if not choices:
        return None
    i, j = at or rng.choice(choices)
    atom = terms[i][1][j]
    if not rule:
        rule = rng.choice([known for known in RULES if isinstance(atom, RULES[known].on)])
    return {"rule": rule, "side": name, "term": i, "factor": j, "data": data_for(rule, atom, maker)}


def equation_step(context: Context, name: str, cited: list[list[Any]], maker: Maker) -> Any:
    """Add a multiple of a premise or of a cited theorem to a side."""
    choices: list[Any] = [*range(len(context.premises)), *cited]
    if not choices:
        return None
    times = Side.from_constant(maker.constant())
    if maker.chance(0.4):
        times = times.multiply(Side.from_atom(maker.mean(maker.any_index())))
    data = {"of": maker.rng.choice(choices), "times": times.to_json(), "gradient": int(maker.chance(0.3))}
    return {"rule": EQUATION, "side": name, "term": None, "factor": None, "data": data}
