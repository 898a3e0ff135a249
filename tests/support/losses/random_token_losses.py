"""Random losses over sequences, reproducible one by one from a seed and a number.

Most are built from pieces whose role is known (a KL gradient, none, a reward), weighted, normalised by the
length, disguised and mixed; the rest are loose products of what a slot may hold.  The roles only shape the
mixture: what a loss is worth is for the oracle to find out.

>>> generate(seed=0, number=3) == generate(seed=0, number=3)
True
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

SETTINGS = (("on-policy", "mu"), ("off-policy", "mu"), ("on-policy", "q"), ("off-policy", "q"))
KINDS = ("token",) * 5 + ("reward",) * 3 + ("sequence",) * 2
ATOMS = ("k1", "k2", "k3", "r", "rho", "log_q", "w")
RARE = ("k1**3", "r**2", "rho**2", "1/r", "1/rho", "log_p", "log_mu")
FIXED = ("R", "now(R)", "past(R)", "future(R)", "A", "now(A)", "past(A)")
NUMBERS = ("2", "3", "1/2", "1/3", "3/4", "7/3")
SCALES = (*("1",) * 6, "-1", "-1", "2", "-3", "1/2", "-1/2", "2/3", "beta", "-lam", "lam*beta")
WEIGHTS = (
    *("1",) * 5, "now(rho)", "sg(now(rho))", "past(rho)*now(rho)", "sg(past(rho)*now(rho))", "past(sg(rho))",
    "past(sg(rho))*now(rho)", "past(rho)*sg(now(rho))", "rho", "sg(rho)",
)  # fmt: skip
LENGTHS = (*("1",) * 7, "1/length", "1/length", "length", "past(length)", "future(length)/length")

# Pieces for a token loss, for what stands before the score of a token, and for a loss of whole sequences;
# {x} is a loose expression of one slot.
PIECES: dict[str, tuple[str, ...]] = {
    "token": (
        "now(k1)", "now(k2)", "now(k3)", "now(r)", "now(sg(k1)*k1)", "now(sg(k1)*log_q)", "now(-sg(r)*log_q)",
        "now(rho*k3)", "now(rho*k1)", "now(sg(rho)*k2)", "past(rho)*now(rho)*now(k3)", "rho*now(k3)",
        "sg(rho)*now(k2)", "past(k1)*now(log_q)", "sg(now(k1) + future(k1))*now(log_q)", "sg(k1)*now(k1)",
        "past(A)*now(k1)", "R*now(log_q)", "(now(R) + future(R))*now(log_q)", "now(rho*r)", "sg({x})",
        "sg(past({x}))*now(log_q)", "now({x}) - now({x})", "k1", "sg(k1)*log_q", "past(k1)*now(k1)",
        "now(k1)*past(log_q)", "past(r)*now(k3)", "future(k1)*now(rho)",
    ),
    "reward": (
        "now(k1)", "-now(r)", "k1", "now({y}) + future({y})", "past({y}) + now({y}) + future({y})", "{y}",
        "past({y})", "past(A)", "future({y})", "now({x})", "past(r)*now(k1)", "now(w) + past(w)", "now(R)",
        "past(length) + 1", "future(k1)*now({x})",
    ),
    "sequence": (
        "k1", "k2", "k3", "r", "rho*k1", "rho*k3", "sg(rho)*k2", "sg(rho)*k3", "rho", "sg(k1)*log_q",
        "-sg(r)*log_q", "R*log_q", "rho*R", "rho*A", "A*k1", "sg(k1)*k1", "rho*r", "{x} - {x}", "sg({x})",
    ),
}  # fmt: skip
DISGUISES = {
    "k1": ("(log_q - log_p)", "(k3 + 1 - r)"),
    "k2": ("(k1**2/2)", "(k1*(log_q - log_p)/2)"),
    "k3": ("(r - 1 + k1)", "(r - 1 + log_q - log_p)"),
    "w": ("(log_q - log_mu)",),
}
NAMED = re.compile(rf"\b({'|'.join(DISGUISES)})\b")
SPOILS: tuple[Callable[[str, str], str], ...] = (
    lambda text, x: f"rho*({text})",
    lambda text, x: f"({text})*{x}",
    lambda text, x: f"({text})/length",
    lambda text, x: f"{text} + {x}",
    lambda text, x: text.replace("rho", "1"),
    lambda text, x: text.replace("sg(", "("),
)


@dataclass(frozen=True)
class Case:
    """A loss; kind: "token" (summed over t), "reward" (what stands before s_t) or "sequence"."""

    text: str
    kind: str
    sampling: str
    under: str


def generate(seed: int, number: int) -> Case:
    """Loss `number` of the sequence `seed`; the four settings take turns."""
    stream = random.Random(f"{seed}/{number}")
    setting = SETTINGS[number % len(SETTINGS)]
    kind = stream.choice(KINDS)
    chance = stream.random()
    if chance < 0.3:
        text = " + ".join(loose(stream, kind) for _ in range(stream.choice((1, 1, 2))))
    else:
        text = " + ".join(_built(stream, kind) for _ in range(stream.choice((1, 1, 2, 3))))
        if chance > 0.85:
            text = stream.choice(SPOILS)(text, _factor(stream, kind))
    return Case(_disguised(stream, text), kind, *setting)


def _built(stream: random.Random, kind: str) -> str:
    """A piece with a known role, in a random weight."""
    piece = stream.choice(PIECES[kind])
    piece = piece.replace("{x}", f"({expression(stream, 2)})").replace("{y}", stream.choice(("k1", "w", "R")))
    weights = WEIGHTS if kind != "sequence" else ("1",)
    factors = (stream.choice(SCALES), stream.choice(weights), f"({piece})", _length(stream, kind))
    return "*".join(factor for factor in factors if factor != "1")


def loose(stream: random.Random, kind: str) -> str:
    """A product of one to three factors, each of any slot."""
    factors = [_factor(stream, kind) for _ in range(stream.choice((1, 2, 2, 3)))]
    factors += [stream.choice(SCALES), _length(stream, kind)]
    return "*".join(factor for factor in factors if factor != "1") or "1"


def _length(stream: random.Random, kind: str) -> str:
    factor = stream.choice(LENGTHS)
    return "1/length" if kind == "sequence" and "(" in factor else f"({factor})" if "/" in factor else factor


def _factor(stream: random.Random, kind: str) -> str:
    chance = stream.random()
    if chance < 0.12:
        return stream.choice([name for name in FIXED if kind != "sequence" or "(" not in name])
    if chance < 0.2:
        return f"({stream.choice(NUMBERS)})"
    inner = expression(stream, 1 if chance < 0.8 else 2)
    slot = "" if kind == "sequence" else stream.choice(("now",) * 5 + ("past", "past", "future", ""))
    written = f"{slot}({inner})"
    written = f"sg({written})" if stream.random() < 0.25 else written
    return f"{written}**2" if chance > 0.95 and "+" not in inner else written


def expression(stream: random.Random, degree: int) -> str:
    """Any expression in the atoms of one slot, of a bounded degree."""
    shape = stream.choice(("leaf", "leaf", "sum", "product", "sg", "square"))
    if shape == "sum":
        return f"{expression(stream, degree)} + {stream.choice(NUMBERS)}*{expression(stream, degree)}"
    if shape == "product" and degree > 1:
        return f"({expression(stream, degree - 1)})*({expression(stream, 1)})"
    if shape == "square" and degree > 1:
        return f"({expression(stream, degree // 2)})**2"
    if shape == "sg":
        return f"sg({expression(stream, degree)})"
    return stream.choice(RARE if stream.random() < 0.08 else ATOMS)


def _disguised(stream: random.Random, text: str) -> str:
    """Some names written out by their definitions."""

    def written(found: re.Match[str]) -> str:
        return stream.choice(DISGUISES[found[0]]) if stream.random() < 0.1 else found[0]

    return NAMED.sub(written, text)
