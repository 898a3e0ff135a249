"""The answer to one pair, as columns of values.

A value of the ring is stored as its canonical JSON.  Any other value has no canonical form: it is stored by
its values at fixed points (`points`), with its text for the reader alone.

>>> answer = answer_of("k3", {})
>>> answer["target"], answer["combination"]
('forward-kl', {'forward-kl': {'ring': [['1', {}]]}})
>>> answer_of("kk", {})
{'refusal': 'UsageError: unknown name character'}
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from klsym.api import explain
from klsym.engine.verdicts.verdict import UNNAMED, TargetReading, Verdict
from klsym.errors import NotInRing
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_ring
from klsym.notation.values import LazyFormula, build_tree, show_value
from klsym.render.objective import write_objective_latex

from .codes import code_of, counted
from .points import condition, digest

COLUMNS = (
    "refusal", "target", "trust", "combination", "objective", "value", "h", "c", "cases", "inside",
    "counterexample", "messages", "divergence", "terms", "instead",
)  # fmt: skip
BESIDE = ("form", "hypotheses")  # columns that tell how an answer was found, not what it is
LIMIT = 30  # seconds of a processor for one answer
TEXT_SHOWN = 60  # letters of a formula that are stored for the reader

Answer = dict[str, Any]


class TooSlow(Exception):
    """There was no answer within the limit."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooSlow in this block after so many seconds of a processor."""

    def stop(*_: Any) -> None:
        raise TooSlow(f"no answer within {LIMIT} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def answer_of(
    text: str, options: Mapping[str, str], parameters: Sequence[str] = (), limit: float = LIMIT
) -> Answer:
    """The columns of a verdict; of a refusal its kind alone."""
    try:
        with limited(limit):
            return columns(explain(text, parameters=tuple(parameters), **options))  # type: ignore[arg-type]
    except Exception as error:
        code = getattr(error, "code", "") or code_of(str(error))
        return {"refusal": f"{type(error).__name__}: {code}"}


def columns(verdict: Verdict) -> Answer:
    """All columns of a verdict; columns without content are left out."""
    on_policy = verdict.setting.on_policy
    found = {
        "target": verdict.target or "open",
        "trust": "open" if verdict.target is None else verdict.trust,
        "combination": parts_of(verdict.gradient, on_policy),
        "objective": objective_of(verdict),
        "value": {
            **meaning(verdict.value, on_policy),
            "constant": value_of(verdict.value.constant, on_policy),
        },
        "h": value_of(verdict.gradient.score_coefficient, on_policy),
        "c": value_of(verdict.gradient.canonical_coefficient, on_policy),
        "cases": cases_of(verdict),
        "inside": verdict.gradient.inside_clamps and meaning(verdict.gradient.inside_clamps, on_policy),
        "counterexample": verdict.counterexample.model is not None,
        "messages": counted(verdict.messages),
        "divergence": divergence_of(verdict),
        "terms": [term.target or "open" for term in verdict.gradient.terms],
        "instead": instead_of(verdict),
        "form": {
            "h": form(verdict.gradient.score_coefficient),
            "c": form(verdict.gradient.canonical_coefficient),
        },
        "hypotheses": {
            **counted(verdict.assumptions),
            **{f"value: {kind}": count for kind, count in counted(verdict.value.assumptions).items()},
        },
    }
    return {name: of for name, of in found.items() if of}


# ---------------------------------------------------------------------------- values
def value_of(value: Any, on_policy: bool = False) -> Any:
    """The canonical form of a value, or its values at fixed points."""
    if value is None or isinstance(value, str):
        return value and {"text": value}
    if isinstance(value, Mapping) and set(value) <= {"now"}:
        value = value.get("now", ExpPoly({}))  # the score of the token itself goes without saying
    if isinstance(value, Mapping):
        slots = {slot: value_of(of, on_policy) for slot, of in sorted(value.items())}
        if all("ring" in of for of in slots.values()):
            return {"slots": {slot: of["ring"] for slot, of in slots.items() if of["ring"]}}
    element = in_ring(value)
    if element is not None:
        return {"ring": element.to_json()}
    tree = build_tree(value)
    at, soft = (digest(tree, on_policy, of) for of in (False, True))
    return {"at": at, **({"soft": soft} if soft != at else {}), "text": show_value(value)[:TEXT_SHOWN]}


def in_ring(value: Any) -> ExpPoly | None:
    """The value as an element of the ring, where it is one."""
    if isinstance(value, ExpPoly):
        return value
    if isinstance(value, Mapping | LazyFormula):
        return None
    try:
        return to_ring(value)
    except NotInRing:
        return None


def form(value: Any) -> str:
    """How a verdict holds a value."""
    if isinstance(value, ExpPoly):
        return "ring"
    return "slots" if isinstance(value, Mapping) else "" if value is None else "outside the ring"


def read_back(stored: Mapping[str, Any]) -> Any:
    """The value of a canonical form."""
    if "ring" in stored:
        return ExpPoly.from_json(stored["ring"])
    return {slot: ExpPoly.from_json(of) for slot, of in stored["slots"].items()}


def at_points(stored: Mapping[str, Any], on_policy: bool) -> str:
    """The values at fixed points of whatever form is stored."""
    if "at" in stored:
        return str(stored["at"])
    return digest(build_tree(read_back(stored)), on_policy)


def parts_of(of: TargetReading, on_policy: bool) -> dict[str, Any]:
    """The multiples of the named parts, and the rest."""
    parts = {name: value_of(value, on_policy) for name, value in sorted(of.parts.items())}
    return {**parts, "rest": value_of(of.rest, on_policy)} if of.rest else parts


def meaning(of: TargetReading, on_policy: bool) -> dict[str, Any]:
    """A target with its parts."""
    return {"target": of.target or "open", "parts": parts_of(of, on_policy)}


# ---------------------------------------------------------------------------- the other columns
def objective_of(verdict: Verdict) -> Any:
    """The quantity whose gradient is meant; its LaTeX where a verdict holds no quantity.

    None where the combination says it.
    """
    if verdict.objective.quantity is not None:
        return {"side": verdict.objective.quantity.side.to_json()}
    return (
        {"latex": write_objective_latex(verdict)}
        if verdict.target in UNNAMED and write_objective_latex(verdict)
        else None
    )


def cases_of(verdict: Verdict) -> Any:
    """The number of regions and, whatever their order, their conditions with the values there."""
    rows = []
    for on, value in verdict.gradient.score_cases:
        where_ = sorted(condition(build_tree(one.x), one.signs) for one in on)
        rows.append(f"{digest(build_tree(value), verdict.setting.on_policy)} {where_}")
    rows.sort()
    return rows and {"regions": len(rows), "each": {"at": sha256(" ".join(rows).encode()).hexdigest()[:12]}}


def divergence_of(verdict: Verdict) -> Any:
    """The generator f as a value with its strength, and where f or the functional is convex."""
    found: dict[str, Any] = {}
    if (of := verdict.objective.generator) is not None:
        found = {
            "f": value_of(of.f), "strength": value_of(of.strength), "unbounded": of.unbounded,
            "divergence": of.is_divergence, "beside": value_of(of.reward), "where": where(of.where),
            "otherwise": [[name, str(at), value_of(f)] for name, at, f in of.cases],
            "pieces": len(of.pieces),
        }  # fmt: skip
    if verdict.objective.convexity is not None:
        found |= {"of": verdict.objective.convexity.of, "convex": where(verdict.objective.convexity.where)}
    return found


def where(of: Any) -> Any:
    """The stretches of k1, with six digits of their ends, or the condition."""
    if of is None:
        return "open"
    if hasattr(of, "element"):
        always = None if of.always is None else sorted(str(e.to_json()) for e in of.always)
        return {"condition": of.element.to_json(), "always": always}
    return [
        [end and f"{float(sum(end)) / 2:.6g}" for end in (stretch.lower, stretch.upper)] for stretch in of
    ]


def instead_of(verdict: Verdict) -> Any:
    """The loss that is suggested, with its setting."""
    of = verdict.fix
    if of is None:
        return None
    setting = [f"{name} {value}" for name, value in of.setting.to_json().items() if value]
    return [of.loss, ", ".join(setting), "||".join(of.kl)]
