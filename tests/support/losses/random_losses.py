"""Random losses in the loss grammar, reproducible one by one from a seed and a number.

Loose expressions nearly always have a separable target, so most losses are built from pieces whose
role is known in their setting (reverse, forward, zero, reward, ratio), disguised and mixed, and some
of them are then spoiled.  The roles only shape the mixture: what a loss targets is for the judge to find out.

>>> generate(seed=0, number=3) == generate(seed=0, number=3)
True
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

SETTINGS = (
    ("on-policy", "loss"), ("on-policy", "reward"), ("off-policy", "loss"), ("off-policy", "reward"),
)  # fmt: skip
ATOMS = ("k1", "k2", "k3", "r", "rho", "log_q")
RARE = ("1/r", "1/rho", "log_p", "log_mu", "log(rho)", "sqrt(r)", "r**lam", "exp(k1/2)", "exp(R/3)", "k(lam)")
NUMBERS = ("2", "3", "5", "1/2", "1/3", "2/5", "3/4", "0.1", "1.5", "7/3")
SCALES = (*("1",) * 6, "-1", "-1", "2", "-3", "1/2", "-1/2", "2/3", "0.25", "lam", "-beta", "lam*beta")
MAX_DEGREE = 4  # of a loose expression: r**4 stays below about 10**4 on the models of the oracle

# Pieces by what their expected gradient is a multiple of ("ratio": another function of r alone);
# {x} is any loose expression.
PIECES: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("on-policy", "loss"): {
        "reverse": ("k2", "rho*k1", "rho*k3", "sg(rho)*k2", "sg(k1)*log_q", "k2 - sg(k2)", "sg(k1)*k1",
                    "rho*sg(k1)", "sg(k3) + k2 - sg(k2)", "rho*k(lam)-lam*sg(rho)*k3-lam*rho*sg(r)"),
        "forward": ("k3", "r", "sg(rho)*k3", "-sg(r)*log_q", "-sg(r)*k1", "rho*k3 - k2 + k3 - sg(k3)",
                    "k(1)", "-rho*sg(r)", "sg(k1) + k3", "k3 - sg(k3)"),
        "zero": ("k1", "log_q", "rho", "sg({x})", "log_p", "log_mu", "rho - sg(rho)", "rho*r", "1",
                 "sg(rho)*k1", "{x} - {x}", "log_p*R"),
        "reward": ("R*log_q", "rho*R", "rho*A", "A*k1", "R*A*log_q", "sg(A)*k1", "rho*R**2"),
        "ratio": ("rho*k2", "k2**2", "r**2", "r*k1", "k3**2", "k2*sg(r)"),
    },
    ("on-policy", "reward"): {
        "reverse": ("k1", "rho*k1", "log_q - log_p", "-log(r)", "k3 - r", "sg(k1)*rho", "log_mu - log_p"),
        "forward": ("-r", "1 - r", "-rho*r", "k1 - k3", "-sg(r)", "-r*rho**2"),
        "zero": ("1", "rho", "{x} - sg({x})", "sg(rho)*3", "rho - 1", "log_q - log_mu", "log(rho)", "beta"),
        "reward": ("R", "A", "rho*R", "A*R", "A - 1", "sg(rho)*A", "R**2"),
        "ratio": ("k2", "r*k1", "r**2", "1/r", "rho*k1**2", "k3*sg(r)"),
    },
    ("off-policy", "loss"): {
        "reverse": ("rho*k1", "rho*k3", "sg(rho)*k2", "sg(rho*k1)*log_q", "rho*k3 - sg(rho*k3)",
                    "rho*sg(k1)", "sg(rho)*k1*sg(k1)", "rho*sg(k3) - sg(rho)*k3 + rho*(1 - sg(r))"),
        "forward": ("sg(rho)*k3", "sg(rho)*r", "-rho*sg(r)", "-sg(rho*r)*k1", "rho*k1 + sg(rho)*(r - k2)",
                    "sg(rho)*k(1)", "sg(rho)*(k3 - sg(k3))"),
        "zero": ("rho", "sg(rho)*k1", "sg(rho)*log_q", "sg({x})", "log_p", "log_mu", "rho*r", "2",
                 "rho - sg(rho)", "{x} - {x}", "R*log_mu", "sg(rho)*(log_q - log_mu)"),
        "reward": ("rho*R", "rho*A", "sg(rho)*R*log_q", "rho*R*A", "sg(rho*A)*k1", "rho*A**2"),
        "ratio": ("rho*k2", "sg(rho)*k2**2", "rho*r**2", "sg(rho)*r*k1", "rho*sg(k3)**2", "sg(rho)*k3*k1"),
    },
    ("off-policy", "reward"): {
        "reverse": ("rho*k1", "rho*(log_q - log_p)", "rho*k3 - rho*r", "sg(rho)*k1", "-rho*log(r)"),
        "forward": ("-rho*r", "rho*(1 - r)", "rho*k1 - rho*k3", "-sg(rho)*r", "-exp(log_p - log_mu)"),
        "zero": ("rho", "sg(rho)", "{x} - sg({x})", "3*rho", "rho*r*exp(k1)", "beta*rho"),
        "reward": ("rho*R", "rho*A", "sg(rho)*R", "rho*R*A", "rho*(A - 1)", "rho*R**2"),
        "ratio": ("rho*k2", "rho*r*k1", "sg(rho)*r**2", "rho/r", "rho*k2**2", "rho*k3*sg(r)"),
    },
}  # fmt: skip
DISGUISES = {
    "k1": ("(log_q - log_p)", "(-log(r))", "(k3 + 1 - r)", "k1"),
    "k2": ("(k1**2/2)", "(0.5*k1*k1)", "((log_q - log_p)**2/2)", "k2"),
    "k3": ("(r - 1 + k1)", "(r - 1 - log(r))", "k(1)", "(exp(-k1) - 1 + k1)", "k3"),
    "r": ("exp(-k1)", "exp(log_p - log_q)", "1/exp(k1)", "r"),
    "rho": ("exp(log_q - log_mu)", "rho"),
}
NAMED = re.compile(rf"\b({'|'.join(DISGUISES)})\b")
SPOILS: tuple[Callable[[str, str], str], ...] = (
    lambda text, x: f"rho*({text})",
    lambda text, x: f"sg(rho)*({text})",
    lambda text, x: f"({text})*{x}",
    lambda text, x: f"{text} + {x}",
    lambda text, x: f"{text} + k1**3/6",
    lambda text, x: f"{text} - R*k1/2",
    lambda text, x: f"{text} + sg({x})*k1",
    lambda text, x: text.replace("rho", "1"),
    lambda text, x: text.replace("sg(", "("),
)


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


def generate(seed: int, number: int) -> Case:
    """Loss `number` of the sequence `seed`; the four settings take turns."""
    stream = random.Random(f"{seed}/{number}")
    setting = SETTINGS[number % len(SETTINGS)]
    kind = stream.random()
    if kind < 0.2:
        text = loose(stream, MAX_DEGREE)
    else:
        text = built(stream, PIECES[setting])
        if kind > 0.8:
            text = stream.choice(SPOILS)(text, loose(stream, 2))
    return Case(text, *setting)


def loose(stream: random.Random, degree: int, depth: int = 4) -> str:
    """Any expression, of a bounded degree in the atoms and a bounded depth."""
    shape = stream.choice(("leaf", "sum", "difference", "product", "square", "sg", "scaled"))
    if shape == "leaf" or depth == 0 or degree < 2:
        return _leaf(stream)
    if shape in ("sum", "difference"):
        sign = "+" if shape == "sum" else "-"
        return f"({loose(stream, degree, depth - 1)} {sign} {loose(stream, degree, depth - 1)})"
    if shape == "product":
        left = stream.randint(1, degree - 1)
        return f"{loose(stream, left, depth - 1)}*{loose(stream, degree - left, depth - 1)}"
    if shape == "square":
        return f"({loose(stream, degree // 2, depth - 1)})**2"
    if shape == "sg":
        return f"sg({loose(stream, degree, depth - 1)})"
    return f"{stream.choice(NUMBERS)}*{loose(stream, degree, depth - 1)}"


def _leaf(stream: random.Random) -> str:
    chance = stream.random()
    if chance < 0.12:
        return stream.choice(NUMBERS)
    if chance < 0.24:
        return stream.choice(("R", "A") if chance < 0.2 else RARE)
    return stream.choice(ATOMS)


def built(stream: random.Random, pieces: dict[str, tuple[str, ...]]) -> str:
    """Multiples of pieces with a known role, mean-zero noise and disguises."""
    roles = {"reverse": 0.6, "forward": 0.45, "reward": 0.2, "ratio": 0.1}
    chosen = [role for role, chance in roles.items() if stream.random() < chance]
    chosen += ["zero"] * stream.choice((0, 0, 1, 2) if chosen else (1, 2, 3))
    terms = [_term(stream, pieces[role]) for role in chosen]
    stream.shuffle(terms)
    return disguise(stream, " + ".join(terms))


def _term(stream: random.Random, pieces: tuple[str, ...]) -> str:
    piece = stream.choice(pieces)
    if "{x}" in piece:
        piece = piece.replace("{x}", f"({loose(stream, 2)})")
    scale = stream.choice(SCALES)
    return piece if scale == "1" else f"{scale}*({piece})"


def disguise(stream: random.Random, text: str) -> str:
    """Some names written out by their definitions."""

    def written(found: re.Match[str]) -> str:
        name = found[0]
        return stream.choice(DISGUISES[name]) if stream.random() < 0.15 else name

    return NAMED.sub(written, text)


# ---------------------------------------------------------------------------- all settings
WEIGHTS, AGGREGATES = ("token", "prefix", "sequence"), ("sum", "mean")
BATCHES, CREDITS = ("mean", "leave-one-out", "std"), ("to-go", "same-token", "total")
USES: dict[str, tuple[dict[str, str], ...]] = {  # by room, beside sampling and use
    "sample": ({},),
    "batch": tuple({"batch": b} for b in BATCHES),
    "sequence": tuple({"level": "sequence", "aggregate": a} for a in AGGREGATES),
    "batch of sequences": tuple(
        {"level": "sequence", "aggregate": a, "batch": b} for a in AGGREGATES for b in BATCHES
    ),
    "token": tuple({"level": "token", "weights": w, "aggregate": a} for w in WEIGHTS for a in AGGREGATES),
}
OUTSIDE = {"sample": 0.5, "sequence": 0.3}  # the share of losses outside the ring; elsewhere they are refused
SMOOTH = (
    "log(1 + r)", "1/(1 + r)", "sqrt(1 + k1**2)", "log(1 + k2)", "k1/(2 + r)", "exp(-k2)", "log(2 + k3)*rho",
    "sqrt(1 + r)*sg(k1)", "rho*k1/(1 + r)", "k2/(1 + beta) + sqrt(2)*k3", "rho*log(1 + exp(R))",
    "1/(lam + k2)",
)  # fmt: skip


def anywhere(seed: int, number: int) -> Case:
    """Loss `number` of the sequence `seed` in any room, inside the ring and outside it."""
    from support.losses.piecewise_losses import generate as kinked

    stream = random.Random(f"anywhere {seed}/{number}")
    room = stream.choice(("sample", "sample", "batch", "sequence", "batch of sequences", "token", "token"))
    sampling, use = stream.choice(SETTINGS)
    given = dict(stream.choice(USES[room]))
    if room == "token" and use == "reward":
        given["credit"] = stream.choice(CREDITS)
    like = SETTINGS.index((sampling, use)) + len(SETTINGS) * number  # a loss for this sampling and use
    if given.get("aggregate", "sum") == "sum" and stream.random() < OUTSIDE.get(room, 0):
        text = stream.choice(SMOOTH) if stream.random() < 0.25 else kinked(seed, like).text
        return Case(text, sampling, use, ring=False, **given)
    return Case(generate(seed, like).text, sampling, use, **given)


def room_of(case: Case) -> str:
    """Where a loss is used, for a tally."""
    level = case.level if case.batch == "none" else f"batch {case.batch}, {case.level}"
    return ", ".join(
        x for x in (level, case.use, case.sampling, case.credit, case.weights, case.aggregate) if x
    )
