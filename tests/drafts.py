"""Certificates with a mistake: a `Draft` records honest steps, and what a mistaken author believes.

The shorthand below is shared by the kernel's tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from klsym.kernel import FORMAT, apply_step, digest
from klsym.kernel.replay import hypotheses_to_json
from klsym.names import detach_name
from klsym.normal_form import ExpPoly
from klsym.statements import Context, Divergence, E, ExpectedGradient, Gradient, Point, Side

V, number = ExpPoly.variable, ExpPoly.number
SELF = V("k1[self]")
ONE, ZERO = number(1), number(0)
k1, w, log_q, R, A, g, g1, f = (V(n) for n in ("k1", "w", "log_q", "R", "A", "g", "g'", "f"))
a, b, beta, lam, nu = (V(n) for n in ("a", "b", "beta", "lam", "nu"))
r, rho, k2 = (-k1).exp(), w.exp(), k1 * k1 * Fraction(1, 2)
k3 = r - 1 + k1


def sg(x: ExpPoly) -> ExpPoly:
    return x.rename(detach_name)


def Em(measure: str, of: ExpPoly, power: int = 0) -> Side:
    return Side.atom(E(measure, of, ("x",) * power))


def Eg(measure: str, loss: ExpPoly) -> Side:
    return Side.atom(ExpectedGradient(measure, loss))


def KL(first: str, second: str, kind: str = "KL") -> Side:
    return Side.atom(Divergence(kind, first, second))


def grad(side: Side) -> Side:
    return Side.atom(Gradient(side))


def point(of: ExpPoly, power: int = 0) -> Side:
    return Side.atom(Point(of, ("x",) * power))


NOTHING = Side()


class Draft:
    """A derivation being written down, right or wrong."""

    def __init__(self, left: Side, right: Side, relation: str = "=", **context: Any) -> None:
        self.context = Context(**context)
        self.sides = {"left": left, "right": right}
        self.hypotheses: set[Any] = set()
        self.part: dict[str, Any] = {
            "context": self.context.to_json(),
            "relation": relation,
            "left": left.to_json(),
            "right": right.to_json(),
            "steps": [],
            "close": {"by": "ring equality"},
        }

    def step(self, rule: str, believed: Side | None = None, term: int = 0, **data: Any) -> Draft:
        """One step: computed by the kernel, or `believed` by the author."""
        data = {key: v.to_json() if isinstance(v, ExpPoly) else v for key, v in data.items()}
        step = {"rule": rule, "side": "left", "term": term, "factor": 0, "data": data}
        if believed is None:
            believed, added = apply_step(self.sides, step, self.context)
            self.hypotheses |= added
        self.sides["left"] = believed
        self.part["steps"].append({**step, "result": believed.to_json()})
        return self

    def close(self, by: str, **data: Any) -> Draft:
        data = {key: v.to_json() if isinstance(v, ExpPoly) else v for key, v in data.items()}
        self.part["close"] = {"by": by, **data}
        return self

    def without(self, *start: str) -> Draft:
        """The same derivation, silent about the hypotheses that begin like this."""
        left = {h for h in self.hypotheses if h[: len(start)] != start}
        assert left != self.hypotheses, f"{start} is not used"
        self.hypotheses = left
        return self

    def certificate(self, claim: str) -> dict[str, Any]:
        part = {**self.part, "hypotheses": hypotheses_to_json(self.hypotheses)}
        whole = {"format": FORMAT, "claim": claim, "parts": [part]}
        return {**whole, "digest": digest(whole)}


class Bad(NamedTuple):
    """One false derivation: the rule or closing, the mistake, where and how it is refused."""

    rule: str
    mistake: str
    where: str
    message: str
    build: Callable[[], Draft]

    @property
    def file_name(self) -> str:
        return f"{re.sub(' ', '-', self.rule)}--{re.sub('[^a-z0-9]+', '-', self.mistake)}.json"

    def certificate(self) -> dict[str, Any]:
        return self.build().certificate(f"false: {self.rule}, {self.mistake}")


STEP1, STEP2, CLOSE, PART = "part 1, step 1", "part 1, step 2", "part 1, close", "part 1"
REVERSE = Em("q", k1, 1)  # grad KL(q||p), reduced
QUOTIENT = Em("q", k1 * beta.inverse())
QP, PQ = KL("q", "p"), KL("p", "q")
TWO = Side.constant(2)
GOT = "got .* recorded"
G = (("g", ("k1",)),)
OPTIMUM = {"given": (("R", nu + beta * k1),), "parameters": ("beta", "nu")}
ANY_F = (("f", ("k1", "log_q", "w")),)
