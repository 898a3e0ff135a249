"""Random losses from the productions of one grammar, each known by a kind, a seed and a number.

Most are built from pieces whose role is known in their setting, disguised, mixed and sometimes spoiled.  The
roles only shape the mixture: what a loss targets is for the judge to find out.

>>> generate("core", seed=0, number=3) == generate("core", seed=0, number=3)
True
>>> sorted(KINDS)
['anywhere', 'clamped', 'core', 'detached', 'discounted', 'methods', 'shipped', 'sums', 'ties']
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.losses.productions import DISGUISES, RULES, SLIPS

SETTINGS = (
    ("on-policy", "loss"), ("on-policy", "reward"), ("off-policy", "loss"), ("off-policy", "reward"),
)  # fmt: skip
HOLE = re.compile(r"\{([^}#]+)(#?)\}")
NAMED = re.compile(rf"\b({'|'.join(DISGUISES)})\b")
OUTSIDE = re.compile(r"\b(min|max|clip|abs|where|log\([12]|sqrt\([12])|[<>]|/\(|exp\(-k2")  # not in the ring
DEEPEST = 6  # expansions within one another
WEIGHTS, AGGREGATES = ("token", "prefix", "sequence"), ("sum", "mean")
BATCHES, CREDITS = ("mean", "leave-one-out", "std"), ("to-go", "same-token", "total")


@dataclass(frozen=True)
class Case:
    """A loss and how it is used; what is empty means nothing beside the rest."""

    text: str
    sampling: str
    use: str
    level: str = "sample"
    batch: str = "none"
    credit: str = ""
    weights: str = ""
    aggregate: str = ""
    ring: bool = True  # is it an exponential polynomial?


@dataclass(frozen=True)
class Quantity:
    """Of the calculus: "token" (summed over t), "reward" (what stands before s_t) or "sequence"."""

    text: str
    kind: str
    sampling: str
    under: str


# ---------------------------------------------------------------------------- the grammar
def written(start: str, stream: random.Random, *places: str, depth: int = 0) -> str:
    """A text from a start symbol; places: what a symbol is looked up with, the first that is known."""
    choices = next(RULES[name] for name in (*(f"{start} {at}" for at in places), start) if name in RULES)
    if depth > DEEPEST:
        choices = tuple(text for text in choices if "{" not in text) or choices
    shared: dict[str, str] = {}

    def filled(hole: re.Match[str]) -> str:
        name, again = hole.groups()
        if again and name in shared:
            return shared[name]
        found = written(name, stream, *places, depth=depth + 1)
        return shared.setdefault(name, found) if again else found

    return HOLE.sub(filled, stream.choice(choices))


def disguised(text: str, stream: random.Random) -> str:
    """Some names written out by their definitions; rarely a slip."""

    def named(found: re.Match[str]) -> str:
        return stream.choice(DISGUISES[found[0]]) if stream.random() < 0.12 else found[0]

    text = NAMED.sub(named, text)
    return text.replace(*stream.choice(SLIPS)) if stream.random() < 0.03 else text


def _case(start: str, stream: random.Random, sampling: str, use: str, **options: str) -> Case:
    level = options.get("level", "sample")
    text = written(start, stream, f"{level} {use}", f"{sampling} {use}", level, use)
    return Case(text, sampling, use, ring=not OUTSIDE.search(text), **options)


# ---------------------------------------------------------------------------- kinds of losses
ROOMS: dict[str, tuple[dict[str, str], ...]] = {
    "sample": ({},),
    "batch": tuple({"batch": b} for b in BATCHES),
    "sequence": tuple({"level": "sequence", "aggregate": a} for a in AGGREGATES),
    "batch of sequences": tuple(
        {"level": "sequence", "aggregate": a, "batch": b} for a in AGGREGATES for b in BATCHES
    ),
    "token": tuple({"level": "token", "weights": w, "aggregate": a} for w in WEIGHTS for a in AGGREGATES),
}
CLAMPED: tuple[dict[str, str], ...] = (
    {}, {"level": "token"}, {"level": "token"}, {"level": "token", "aggregate": "mean"},
    {"batch": "mean"}, {"batch": "leave-one-out"}, {"level": "sequence"},
)  # fmt: skip


def _core(stream: random.Random, number: int) -> Case:
    """Of samples; the four settings take turns."""
    found = _case("core", stream, *SETTINGS[number % len(SETTINGS)])
    return Case(disguised(found.text, stream), found.sampling, found.use)


def _ties(stream: random.Random, number: int) -> Case:
    """Pieces, many of which meet a tie at every sample."""
    return Case(written("kinks", stream), *SETTINGS[number % len(SETTINGS)], ring=False)


def _anywhere(stream: random.Random, _: int) -> Case:
    """In any room, inside the ring and outside it."""
    room = stream.choice(("sample", "sample", "batch", "sequence", "batch of sequences", "token", "token"))
    sampling, use = stream.choice(SETTINGS)
    given = dict(stream.choice(ROOMS[room]))
    if room == "token" and use == "reward":
        given["credit"] = stream.choice(CREDITS)
    plain = given.get("batch") or given.get("aggregate") == "mean"
    found = _case("core" if plain else "anywhere", stream, sampling, use, **given)
    text = disguised(found.text, stream) if found.ring else found.text  # a tie is one to the last digit
    return Case(**{**vars(found), "text": text})


def _clamped(stream: random.Random, _: int) -> Case:
    """Clamps, masks, a third policy, sums over tokens and samples beside them."""
    sampling, use = stream.choice(SETTINGS)
    room = dict(stream.choice(CLAMPED))
    found = _case("clamped", stream, sampling, use, **room)
    text = found.text
    if "rho_old" not in text and stream.random() < 0.3:  # the third policy in some of its places
        text = re.sub(r"\brho\b", lambda _: stream.choice(("rho", "rho_old")), text)
    if room.get("level") == "token" and use == "reward":
        once = bool(re.search(r"\bA\b", text))  # credit to other tokens refuses A times a random quantity
        room["credit"] = "same-token" if once else stream.choice(("same-token", "to-go", "total"))
    if room.get("level") == "token" and sampling == "off-policy":
        room["weights"] = stream.choice(("token", "token", "prefix", "sequence"))
    return Case(text, sampling, use, ring=False, **room)


def _sums(stream: random.Random, number: int) -> Case:
    """Losses that name their sums: of tokens, of whole sequences or of batches, in turn."""
    sampling, use = stream.choice(SETTINGS)
    kind = ("token", "token", "batch", "sequence")[number % 4]
    level = stream.choice(("sample", "sequence")) if kind == "batch" else kind
    options = {"level": level}
    if level != "sample":
        options["aggregate"] = stream.choice(("sum", "sum", "mean")) if kind != "batch" else "sum"
    if level == "token":
        options["weights"] = "token"
    start = "sums batch" if kind == "batch" else "sums"
    text = written(start, stream, "sample" if kind == "batch" else level)
    return Case(text, sampling, use, **options)


def _discounted(stream: random.Random, _: int) -> Case:
    """Discounted sums over tokens, with and without the weight of their own token."""
    aggregate = stream.choice(("sum", "sum", "mean"))
    setting = stream.choice(SETTINGS)
    return _case("discounted", stream, *setting, level="token", aggregate=aggregate, weights="token")


def _shipped(stream: random.Random, number: int) -> Case:
    """Comparisons, masks, critics; every second sampler is cut off."""
    sampling = "truncated" if number % 2 else stream.choice(("on-policy", "off-policy"))
    if number % 4 < 2:
        return _case("shipped", stream, sampling, stream.choice(("loss", "reward")))
    weights = "token" if sampling == "truncated" else stream.choice(("token", "prefix"))
    return _case("shipped", stream, sampling, "loss", level="token", weights=weights)


METHODS: tuple[dict[str, str], ...] = (
    *({},) * 4, {"level": "token"}, {"level": "token"}, {"level": "token", "aggregate": "mean"},
    {"level": "sequence"}, {"batch": "mean"}, {"batch": "leave-one-out"},
)  # fmt: skip


def _methods(stream: random.Random, number: int) -> Case:
    """Gates, logs of 1 - q, functions of exact means, geometric means: as losses, and some in the reward."""
    options = dict(stream.choice(METHODS))
    use = stream.choice(("loss", "loss", "loss", "reward"))
    sampling = stream.choice(("on-policy", "off-policy"))
    if options.get("level") == "token":
        options |= (
            {"weights": stream.choice(("token", "token", "prefix"))} if sampling == "off-policy" else {}
        )
        options |= {"credit": "same-token"} if use == "reward" else {}
    place = "batch" if "batch" in options else options.get("level", "sample")
    text = written("methods", stream, f"{place} {use}", place, use)
    if "full(" in text:  # with aggregate mean a sum over the vocabulary is refused
        options.pop("aggregate", None)
    return Case(text, sampling, use, ring=False, **options)


def _detached(stream: random.Random, _: int) -> Case:
    """Detached quotients, logs and roots beside masks: only what is attached may be differentiated."""
    options = dict(stream.choice(METHODS))
    use = stream.choice(("loss", "loss", "loss", "reward"))
    sampling = stream.choice(("on-policy", "off-policy"))
    if options.get("level") == "token":
        options |= {"weights": "token"} if sampling == "off-policy" else {}
        options |= {"credit": "same-token"} if use == "reward" else {}
    return Case(written("detached", stream), sampling, use, ring=False, **options)


KINDS: dict[str, Callable[[random.Random, int], Case]] = {
    "core": _core, "ties": _ties, "anywhere": _anywhere, "clamped": _clamped, "sums": _sums,
    "discounted": _discounted, "shipped": _shipped, "methods": _methods,
    "detached": _detached,
}  # fmt: skip


def generate(kind: str, seed: int, number: int) -> Case:
    """Loss `number` of the sequence `seed` of a kind."""
    return KINDS[kind](random.Random(f"{kind} {seed}/{number}"), number)


UNDER = (("on-policy", "mu"), ("off-policy", "mu"), ("on-policy", "q"), ("off-policy", "q"))
QUANTITIES = ("token",) * 5 + ("reward",) * 3 + ("sequence",) * 2


def quantity(seed: int, number: int) -> Quantity:
    """A quantity of the calculus, for the rules on sums over tokens; the four settings take turns."""
    stream = random.Random(f"tokens {seed}/{number}")
    kind = stream.choice(QUANTITIES)
    return Quantity(written("tokens", stream, kind), kind, *UNDER[number % len(UNDER)])


def room_of(case: Any) -> str:
    """Where a loss is used, for a tally."""
    level = case.level if case.batch == "none" else f"batch {case.batch}, {case.level}"
    return ", ".join(
        x for x in (level, case.use, case.sampling, case.credit, case.weights, case.aggregate) if x
    )
