"""Certificates with a mistake: a `Draft` records honest steps, and what a mistaken author believes.

The shorthand below is shared by the kernel's tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from klsym.kernel import FORMAT, apply_step, certify, check, digest
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.closings import read_rows
from klsym.kernel.names import detach_name
from klsym.kernel.replay import write_hypotheses
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import (
    Context,
    Curl,
    Gradient,
    Mean,
    MeanGradient,
    Side,
    Statement,
    walk_elements,
)

__all__ = [
    "ANY_F",
    "CLOSE",
    "DIFFER",
    "GOT",
    "KL",
    "LOG",
    "NOTHING",
    "ONE",
    "ONE_SAMPLE",
    "PARAMETERS",
    "PART",
    "PQ",
    "QP",
    "QUOTIENT",
    "REVERSE",
    "STEP1",
    "STEP2",
    "STEP3",
    "TWO",
    "WHOLE",
    "ZERO",
    "A",
    "Bad",
    "Draft",
    "Eg",
    "Em",
    "G",
    "H",
    "R",
    "T",
    "V",
    "a",
    "b",
    "beta",
    "chi2",
    "constant",
    "cov",
    "curl",
    "f",
    "g",
    "g1",
    "given_values",
    "grad",
    "jeffreys",
    "k1",
    "k2",
    "k3",
    "lam",
    "log_q",
    "mean",
    "mean_grad",
    "nu",
    "number",
    "on_policy",
    "plain",
    "point",
    "r",
    "rho",
    "sg",
    "w",
]  # fmt: skip

V, number = ExpPoly.from_variable, ExpPoly.from_number
ONE, ZERO = number(1), number(0)
k1, w, log_q, R, A, H, T, g, g1, f = (
    V(n) for n in ("k1", "w", "log_q", "R", "A", "H", "length", "g", "g'", "f")
)
a, b, beta, lam, nu = (V(n) for n in ("a", "b", "beta", "lam", "nu"))
r, rho, k2 = (-k1).exp(), w.exp(), k1 * k1 * Fraction(1, 2)
k3 = r - 1 + k1
PARAMETERS = ("a", "b", "beta", "lam", "nu", "n")
LOG = {"q": log_q, "p": log_q - k1, "mu": log_q - w}
NOTHING = Side()


# ---------------------------------------------------------------------------- sides
def sg(x: ExpPoly) -> ExpPoly:
    """A detached copy; parameters have none."""
    return x.rename(lambda name: name if name in PARAMETERS else detach_name(name))


def mean(index: str, measure: str, of: ExpPoly, *score: str) -> Side:
    return Side.from_atom(Mean(index, measure, of, tuple(sorted(score))))


def mean_grad(index: str, measure: str, loss: ExpPoly) -> Side:
    return Side.from_atom(MeanGradient(index, measure, loss))


def curl(index: str, measure: str, loss: ExpPoly) -> Side:
    return Side.from_atom(Curl(index, measure, loss))


def grad(side: Side) -> Side:
    return Side.from_atom(Gradient(side))


def constant(value: ExpPoly | int | Fraction) -> Side:
    return Side.from_constant(value)


def Em(measure: str, of: ExpPoly, power: int = 0) -> Side:
    """E_m[a s..s] of one sample."""
    return mean("", measure, of, *["x"] * power)


def Eg(measure: str, loss: ExpPoly) -> Side:
    return mean_grad("", measure, loss)


def point(of: ExpPoly, power: int = 0) -> Side:
    """The value at one sample."""
    return Em("sample", of, power)


def KL(first: str, second: str) -> Side:
    return Em(first, LOG[first] - LOG[second])


def chi2(first: str, second: str) -> Side:
    return Em(second, ((LOG[first] - LOG[second]).exp() - 1) ** 2)


def jeffreys(first: str, second: str) -> Side:
    return KL(first, second) + KL(second, first)


def cov(measure: str, x: ExpPoly, y: ExpPoly) -> Side:
    return Em(measure, x * y) - Em(measure, x).multiply(Em(measure, y))


def on_policy(x: ExpPoly) -> ExpPoly:
    """What an author writes for a sampler that is a detached copy of q."""
    return x.substitute({"w": log_q - sg(log_q), "sg(w)": ZERO})


def given_values(x: ExpPoly, **values: ExpPoly) -> ExpPoly:
    """Rewards that are given values: detached copies."""
    return x.substitute({name: sg(value) for name, value in values.items()})


# ---------------------------------------------------------------------------- derivations
def plain(data: Any) -> Any:
    """Data as JSON."""
    if hasattr(data, "to_json"):
        return data.to_json()
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    return [plain(item) for item in data] if isinstance(data, list | tuple) else data


class Draft:
    """A derivation being written down, right or wrong; `cites` are drafts whose theorems it may use."""

    def __init__(
        self, left: Side, right: Side, relation: str = "=", cites: tuple[Draft, ...] = (), **context: Any
    ) -> None:
        self.context, self.cites = Context(**context), cites
        self.statement = Statement(left, right, self.context, relation)
        self.sides = {"left": left, "right": right}
        self.hypotheses: set[Any] = self._nonzero(left) | self._nonzero(right)
        self.forgotten: list[tuple[Any, ...]] = []
        self.believed: set[Any] = set()
        self.part: dict[str, Any] = {
            "context": self.context.to_json(),
            "relation": relation,
            "left": left.to_json(),
            "right": right.to_json(),
            "steps": [],
            "close": {"by": "equality", "rows": []},
        }

    def rows(self, *rows: dict[str, Any]) -> Draft:
        """The rows of an inequality, from which its left side starts."""
        close = self.part["close"] = {"by": "equality", "rows": plain(rows)}
        assumed = Assumptions(self.context)
        for row, _ in _attempt(lambda: read_rows(close, self.statement, assumed)) or ():
            self.sides["left"] = self.sides["left"] + row
            self.hypotheses |= assumed.found
        return self

    def step(
        self, rule: str, believed: Side | None = None, term: int | None = 0, side: str = "left", **data: Any
    ) -> Draft:
        """One step: computed by the kernel, or `believed` by the author."""
        factor = data.pop("factor", None if term is None else 0)
        step = {"rule": rule, "side": side, "term": term, "factor": factor, "data": plain(data), "result": []}

        def apply() -> tuple[Side, set[Any]]:
            return apply_step(self.sides, step, self.context, self._known())

        result, added = apply() if believed is None else (believed, (_attempt(apply) or (None, set()))[1])
        self.hypotheses |= added | self._nonzero(result)
        self.sides[side] = result
        self.part["steps"].append({**step, "result": result.to_json()})
        return self

    def right(self, rule: str, believed: Side | None = None, term: int | None = 0, **data: Any) -> Draft:
        """A step on the right side."""
        return self.step(rule, believed, term, "right", **data)

    def equation(self, of: int, believed: Side | None = None, **data: Any) -> Draft:
        """Add a multiple of a premise (by number), or of a theorem (of=0, cited=number of the draft)."""
        if "cited" in data:
            of = [digest(self.cites[data.pop("cited")].parts()), of]
        data = {"of": of, "times": constant(1), "gradient": 0} | data
        return self.step("equation", believed, None, data.pop("side", "left"), **data)

    def close(self, by: str, **data: Any) -> Draft:
        self.part["close"] = {"by": by, **plain(data)}
        return self

    def without(self, *start: Any) -> Draft:
        """The same derivation, silent about the hypotheses that begin like this."""
        self.forgotten.append(tuple(plain(start)))
        return self

    def assuming(self, *hypothesis: Any) -> Draft:
        """The draft, with a hypothesis that its author believes to suffice."""
        self.believed.add(hypothesis)
        return self

    def parts(self) -> list[Any]:
        found = _attempt(lambda: certify(self.part, self._known())[0]["hypotheses"])
        used = write_hypotheses(tuple(self.hypotheses)) if found is None else found
        for start in self.forgotten:
            kept = [h for h in used if h[: len(start)] != list(start)]
            assert kept != used, f"{start} is not used"
            used = kept
        more = write_hypotheses(tuple(self.believed))
        return [{**self.part, "hypotheses": sorted([*used, *more], key=json.dumps)}]

    def bodies(self) -> list[Any]:
        """The parts of all that is cited, each before what cites it."""
        found: list[Any] = []
        for cited in self.cites:
            found += [body for body in (*cited.bodies(), cited.parts()) if body not in found]
        return found

    def certificate(self) -> dict[str, Any]:
        parts = self.parts()
        return {"format": FORMAT, "cites": self.bodies(), "parts": parts, "digest": digest(parts)}

    def _known(self) -> dict[str, Any]:
        return {
            digest(cited.parts()): found
            for cited in self.cites
            if (found := _attempt(lambda c=cited: check(c.certificate())))
        }

    def _nonzero(self, side: Side) -> set[Any]:
        names = {name for element in walk_elements(side) for name in element.collect_divisors()}
        return {("nonzero", name) for name in names if name in self.context.parameters}


def _attempt(compute: Callable[[], Any]) -> Any:
    """What is computed, or None where it is refused."""
    try:
        return compute()
    except Exception:  # whatever a wrong derivation leads to
        return None


class Bad(NamedTuple):
    """One false derivation: the rule or closing, the mistake, where and how it is refused."""

    rule: str
    mistake: str
    where: str
    message: str
    build: Callable[[], Draft | dict[str, Any] | str]

    @property
    def file_name(self) -> str:
        return f"{re.sub(' ', '-', self.rule)}--{re.sub('[^a-z0-9]+', '-', self.mistake.lower())}.json"

    def text(self) -> str:
        """What the file holds: a draft, a certificate that was tampered with, or a text that was."""
        built = self.build()
        if isinstance(built, str):
            return built
        whole = built.certificate() if isinstance(built, Draft) else built
        return json.dumps(whole, sort_keys=True) + "\n"


STEP1, STEP2, STEP3, CLOSE, PART, WHOLE = (
    "part 1, step 1", "part 1, step 2", "part 1, step 3", "part 1, close", "part 1", "",
)  # fmt: skip
REVERSE = Em("q", k1, 1)  # grad KL(q||p), reduced
QUOTIENT = Em("q", k1 * beta.invert())
QP, PQ = KL("q", "p"), KL("p", "q")
TWO = constant(2)
GOT = "got .* recorded"
DIFFER = "equality: the two sides differ"
G = (("g", ("k1",)),)
ANY_F = (("f", ("k1", "log_q", "w")),)
ONE_SAMPLE = {"path": [0]}
