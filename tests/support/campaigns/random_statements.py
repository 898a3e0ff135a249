"""Random statements about random losses, half of them false: what the engine and the kernel say, and what
is so.

    E[grad L] = a grad KL(q||p) + b grad KL(p||q) + E_q[h s] + E_q[c s]        E[L] = a KL(q||p) + b
    KL(p||q) + constant

The losses are those of `random_losses` and `random_slot_losses`, in every setting.  The right side is what
a verdict names, or a false neighbour of it.  Which of the two it is, only the literal oracle says: nothing
here relies on it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from klsym.engine.answers.dispatch import as_written, explain_written
from klsym.engine.fields.slot_loss import choose_measure, needs_sampler
from klsym.engine.options.settings import checked_setting
from klsym.engine.proof.derivation import Derivation, Proof, derive
from klsym.engine.proof.quantities import KL, Quantity, expectation, grad, to_quantity
from klsym.errors import ProofError, Refused, UsageError
from klsym.kernel import check, read
from klsym.language.convert import to_ring
from klsym.language.expressions import length, parameter, s
from klsym.language.parser import parse
from support.judges.loss_fit import mean_of
from support.judges.loss_worlds import (
    combination,
    constants_of,
    flat,
    forest,
    in_batch,
    number,
    options,
    scales,
    settings,
)
from support.losses.random_losses import Case, generate, room_of

HOLDS, FAILS = (
    1e-9,
    1e-6,
)  # of the size of the two sides: below the one they agree, above the other they differ
FACTORS = ("2", "-1", "(1 + 1/1000)", "1/3", "(1 + beta)")
OFFSETS = {"reverse-kl": ("1/7", "-1", "lam"), "forward-kl": ("1/7", "-1", "lam"), "reward": ("R/50", "A")}
BESIDE = ("k1/1000", "r/100", "k1*r", "R/50", "k1**2/2")
Multiples = dict[str, str]


@dataclass(frozen=True)
class Statement:
    """A loss, and what its expected gradient (or its value) is said to be."""

    case: Case
    kind: str  # gradient, value
    multiples: Multiples


@dataclass
class Outcome:
    """What the engine and kernel decided, what the oracle measured, and all that is wrong.

    said: proved, refuted or open.  holds: None where the oracle cannot tell.
    """

    case: Case
    multiples: Multiples = field(default_factory=dict)
    kind: str = "gradient"
    said: str = "open"
    reason: str = ""
    holds: bool | None = None
    core: bool = False
    certificate: dict[str, Any] | None = None
    complaints: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For a log; the certificate is handed on beside it."""
        names = ("kind", "multiples", "said", "holds", "core", "reason", "complaints", "certificate")
        told = {name: getattr(self, name) for name in names}
        return {"text": self.case.text, "room": room_of(self.case), **told}


# ---------------------------------------------------------------------------- a statement
def case_of(seed: int, number: int) -> Case:
    """A loss in any setting: one in eight names its sums; outside the ring another is drawn, inside it."""
    if number % 8 == 7:
        return generate("sums", seed, number)
    case = generate("anywhere", seed, number)
    return case if case.ring else generate("core", seed, number)


def examine(seed: int, number: int) -> Outcome:
    """Statement `number` of the sequence `seed`, decided and judged; a crash is a complaint too."""
    case, stream = case_of(seed, number), random.Random(f"statement {seed}/{number}")
    found = Outcome(case, core=case.level == "sample" and not in_batch(case))
    try:
        _examine(found, stream)
    except UsageError as refusal:
        found.said, found.reason = "refused", str(refusal)
    except Exception as error:
        found.complaints.append(f"crashed: {type(error).__name__}: {error}"[:300])
    return found


def _examine(found: Outcome, stream: random.Random) -> None:
    case = found.case
    verdict = explain_written(as_written(case.text, ()), checked_setting(**options(case)))
    if found.core and stream.random() < 0.25:
        found.kind, start = "value", _start_of_value(case)
        named: Multiples = verdict.value.complete
        constant = verdict.value.target is not None and verdict.value.constant_text
        named |= {"constant": constant} if constant else {}
        named = {k: v for k, v in named.items() if k in ("reverse-kl", "forward-kl", "constant")}
    else:
        named = verdict.gradient.complete
        if verdict.target not in ("zero", "reverse-kl", "forward-kl", "combination"):
            named = _rest(case, verdict.gradient.canonical_text)
        if not verdict.proof.theorems:
            found.reason = "the verdict has no proof to start from"
            return
        stated = verdict.proof.theorems[0].theorem.statement
        start = Derivation(stated.context, stated.left, (), {})
    found.multiples = named if stream.random() < 0.75 else neighbour(named, found.kind, stream)
    found.holds = holds(Statement(case, found.kind, found.multiples))
    right = _quantity(found.multiples, found.kind, case)
    proof = decided(start, right)
    if isinstance(proof, str):
        found.reason = proof
    else:
        found.said = proof.theorem.kind
        found.certificate = _replayed(proof, found.complaints)
    found.complaints += list(_contradictions(found))


def _contradictions(found: Outcome) -> Iterator[str]:
    if found.said == "proved" and found.holds is False:
        yield "UNSOUND: proved, and the oracle's two sides differ"
    if found.said == "refuted" and found.holds is True:
        yield "UNSOUND: refuted, and the oracle's two sides agree in every world"
    if found.core and found.said == "open":
        yield f"INCOMPLETE: in the core and undecided ({found.reason})"


def _rest(case: Case, c: str | None) -> Multiples:
    """What has no name is at least E_q[c s], where c can be written without slots."""
    return {"rest": c} if case.level != "token" and c and "mean_h" not in c and "_" not in c else {}


def neighbour(named: Multiples, kind: str, stream: random.Random) -> Multiples:
    """What is said with one thing changed: nearly always false."""
    changed = dict(named)
    shape = stream.choice(("factor", "other", "swapped", "dropped", "beside"))
    pair = [name for name in ("reverse-kl", "forward-kl") if name in changed]
    if shape == "swapped" and pair:
        other = {"reverse-kl": "forward-kl", "forward-kl": "reverse-kl"}
        return {other.get(name, name): value for name, value in changed.items()}
    if shape == "dropped" and changed:
        del changed[stream.choice(sorted(changed))]
        return changed
    if shape == "factor" and changed:
        name = stream.choice(sorted(changed))
        return changed | {name: f"{stream.choice(FACTORS)}*({changed[name]})"}
    if shape == "beside" and kind == "gradient":
        rest = f"({changed['rest']}) + " if "rest" in changed else ""
        return changed | {"rest": rest + stream.choice(BESIDE)}
    name = stream.choice(("reverse-kl", "forward-kl"))
    before = f"({changed[name]}) + " if name in changed else ""
    return changed | {name: before + stream.choice(OFFSETS[name])}


# ---------------------------------------------------------------------------- what klsym says
def _start_of_value(case: Case) -> Derivation:
    written, setting = as_written(case.text, ()), checked_setting(**options(case))
    element = to_ring(written.expression)
    start = expectation(written.expression, choose_measure(element, setting))
    return derive(start, on_policy=needs_sampler(element, setting))


def _quantity(multiples: Multiples, kind: str, case: Case) -> Quantity:
    """The right side in the engine's words."""
    total = to_quantity(0)
    for name, text in multiples.items():
        expression = parse(text, ())
        if case.level != "sample":
            expression = expression.subs(parameter("T"), length)
        if name in ("reverse-kl", "forward-kl"):
            of = KL("q", "p") if name == "reverse-kl" else KL("p", "q")
            total = total + (of if kind == "value" else grad(of)) * expression
        elif name == "constant":
            total = total + to_quantity(expression)
        else:
            total = total + expectation(expression * s, "q")
    return total


def decided(start: Derivation, right: Quantity) -> Proof | str:
    """A proof, a refutation, or why there is neither; premises of a batch say that n = m + 1."""
    using = [(0, None)] if start.context.premises and not start.context.given else []
    tries: list[Callable[[], Proof]] = [
        lambda: start.equals(right, using=using),
        lambda: start.equals(right, evaluate=True),
        lambda: start.differs_from(right),
    ]
    why = ""
    for attempt in tries:
        try:
            return attempt()
        except ProofError as error:
            why = str(error)
    return why


def _replayed(proof: Proof, complaints: list[str]) -> dict[str, Any] | None:
    """The certificate, replayed from its text alone."""
    certificate = proof.certificate()
    try:
        [theorem] = check(read(json.dumps(certificate)))
    except Refused as refusal:
        complaints.append(f"the kernel refuses what the engine proved: {refusal}")
        return None
    if theorem != proof.theorem.proved:
        complaints.append("the theorem that is replayed is another one")
    return certificate


# ---------------------------------------------------------------------------- what is so
def holds(statement: Statement) -> bool | None:
    """Do both sides agree in all worlds of the literal oracle?"""
    case = statement.case
    worst = 0.0
    for setting in settings(case):
        where, constants = forest(case), constants_of(case, setting)
        if statement.kind == "value":
            exact, scale = mean_of(where, case, setting)
            stated = _value(statement.multiples, where, constants)
        else:
            exact, scale = flat(where.field(case.text, setting).a, where), scales(case, where, setting)
            stated = combination(statement.multiples, where, constants)
        size = np.abs(stated).max(axis=0) if stated.ndim > 1 else np.abs(stated)
        worst = max(worst, float((np.abs(exact - stated) / (scale + size)).max()))
    return True if worst < HOLDS else False if worst > FAILS else None


def _value(multiples: Multiples, where: Any, constants: dict[str, Any]) -> Any:
    kl = {"reverse-kl": where.slope("k1").value, "forward-kl": where.slope("-k1", "p").value}
    total = 0 * kl["reverse-kl"]
    for name, text in multiples.items():
        total = total + number(text, constants) * kl.get(name, 1.0)
    return total


def timed(seed: int, number: int) -> tuple[int, dict[str, Any]]:
    """For a campaign."""
    start = time.perf_counter()
    found = examine(seed, number).to_json()
    return number, found | {"seconds": round(time.perf_counter() - start, 3)}
