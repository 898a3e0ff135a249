"""Replay: a certificate is checked line by line.  Trusted; standard library only; no search.

A certificate is a JSON object {format, claim, parts, digest}.  Each part holds a statement, the
steps that rewrite its sides, how it closes, and the hypotheses it used.  Every recorded result is
recomputed and compared; the first difference is refused with the step that made it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from klsym.errors import NotInRing, Refused
from klsym.kernel.closing import CLOSINGS
from klsym.kernel.derivatives import Hypothesis, given_bases
from klsym.kernel.rules import RULES
from klsym.names import REWARDS, WHOLE, parse_name
from klsym.statements import Context, Gradient, Point, Side, Statement, elements, measures, slotted

FORMAT = "klsym-certificate/1"
CERTIFICATE_KEYS = {"format", "claim", "parts", "digest"}
PART_KEYS = {"context", "relation", "left", "right", "steps", "close", "hypotheses"}
STEP_KEYS = {"rule", "side", "term", "factor", "data", "result"}


@dataclass(frozen=True)
class Theorem:
    """What one part establishes: `kind` is proved, refuted, unique, independent or iff."""

    kind: str
    statement: Statement
    rules: tuple[str, ...]
    hypotheses: tuple[Hypothesis, ...]
    close: dict[str, Any]


def digest(certificate: dict[str, Any]) -> str:
    """SHA-256 of the certificate without its digest, in canonical JSON."""
    body = {key: value for key, value in certificate.items() if key != "digest"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def check(certificate: Any) -> tuple[Theorem, ...]:
    """Replay a certificate; the theorem of each part, or `Refused` with the step and the reason."""
    if not isinstance(certificate, dict) or set(certificate) != CERTIFICATE_KEYS:
        raise Refused(f"a certificate has the keys {sorted(CERTIFICATE_KEYS)}")
    if not all(_is_plain(certificate[key]) for key in ("claim", "format")):
        raise Refused("format and claim: plain texts of at most 200 characters expected")
    if certificate["format"] != FORMAT:
        raise Refused(f"format {certificate['format'][:40]!r}: this kernel reads {FORMAT!r}")
    parts = certificate["parts"]
    if not isinstance(parts, list) or not parts:
        raise Refused("parts: a nonempty list expected")
    try:
        intact = certificate["digest"] == digest(certificate)
    except (RecursionError, TypeError, ValueError):
        raise Refused("digest: no JSON, or nested too deeply") from None
    if not intact:
        raise Refused("digest: the content was changed after it was written")
    return tuple(check_part(part, f"part {i + 1}") for i, part in enumerate(parts))


def _is_plain(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= 200 and text.isascii() and text.isprintable()


def check_part(part: Any, where: str = "part 1") -> Theorem:
    """Replay one part."""
    try:
        statement, kind, hypotheses = _replay(part, where)
        recorded = hypotheses_to_json(hypotheses)
        if part["hypotheses"] != recorded:
            raise Refused(f"hypotheses: the proof uses {recorded}, recorded {part['hypotheses']}")
    except Refused as error:
        raise error if error.where else Refused(error.reason, where) from None
    except NotInRing as error:
        raise Refused(str(error), where) from None
    except RecursionError:
        raise Refused("nested too deeply", where) from None
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise Refused(f"malformed ({type(error).__name__}: {str(error)[:80]})", where) from None
    return _theorem(part, statement, kind, hypotheses)


def certify(part: dict[str, Any]) -> tuple[dict[str, Any], Theorem]:
    """Replay a part that lacks its hypotheses: the complete part, and its theorem."""
    statement, kind, hypotheses = _replay({**part, "hypotheses": []}, "derivation")
    complete = {**part, "hypotheses": hypotheses_to_json(hypotheses)}
    return complete, _theorem(complete, statement, kind, hypotheses)


def _theorem(part: dict[str, Any], statement: Statement, kind: str, hypotheses: set[Hypothesis]) -> Theorem:
    rules = (*dict.fromkeys(step["rule"] for step in part["steps"]), part["close"]["by"])
    ordered = tuple(sorted(hypotheses, key=_hypothesis_key))
    return Theorem(kind, statement, rules, ordered, part["close"])


def _replay(part: Any, where: str) -> tuple[Statement, str, set[Hypothesis]]:
    """The statement, what is established about it, and under which hypotheses."""
    if not isinstance(part, dict) or set(part) != PART_KEYS:
        raise Refused(f"a part has the keys {sorted(PART_KEYS)}")
    for key in ("left", "right", "steps", "close", "hypotheses"):
        _refuse_foreign_leaves(part[key])
    statement = read_statement(part)
    sides = {"left": statement.left, "right": statement.right}
    hypotheses = _nonzero(statement.context, *sides.values(), *_assumed_sides(statement.context))
    for number, step in enumerate(part["steps"]):
        sides, added = _replay_step(sides, step, statement.context, f"{where}, step {number + 1}")
        hypotheses |= added
    kind, added = _close(sides, part["close"], statement, f"{where}, close")
    return statement, kind, hypotheses | added


def read_statement(part: dict[str, Any]) -> Statement:
    """The statement of a part, with every name declared and every outer coefficient constant."""
    context = Context.from_json(part["context"])
    if part["relation"] not in ("=", "<="):
        raise Refused(f"relation {str(part['relation'])[:20]!r}: '=' or '<=' expected")
    left, right = Side.from_json(part["left"]), Side.from_json(part["right"])
    premises = [side for pair in context.premises for side in pair]
    for side in (left, right, *premises):
        _well_formed(side, context)
    for side in premises:
        _moves_with_theta(side, context)
    for name, value in context.given:
        parsed = parse_name(name)
        if name not in (parsed.base, f"{parsed.base}[now]") or parsed.base not in REWARDS:
            raise Refused(f"given: only {REWARDS}, and at a step t, can be given a value, not {name!r}")
        context.check(value, KNOWN_AT_A_STEP if parsed.slot == "now" else WHOLE)
        if len(given_bases(context)) < len(context.given):
            raise Refused(f"given: {parsed.base} is given two values")
        if {parse_name(n).base for n in value.names()} & given_bases(context):
            raise Refused(f"given: the value of {name} mentions a given name")
    for name, side in (("left", left), ("right", right)):
        if side.to_json() != part[name]:
            raise Refused(f"{name} side is not in normal form: expected {side.to_json()}, got {part[name]}")
    return Statement(left, right, context, part["relation"])


KNOWN_AT_A_STEP = ("past", "now")


def _moves_with_theta(side: Side, context: Context) -> None:
    """Premises carry over to gradients only if nothing in them is held constant."""
    names = {name for element in elements(side) for name in element.names() if context.is_sample(name)}
    if any(parse_name(name).detached for name in names):
        raise Refused("premise: it holds a detached quantity, whose gradient its value does not tell")
    if {parse_name(name).base for name in names} & given_bases(context):
        raise Refused("premise: it mentions a reward whose value is given at one theta only")
    bases = {parse_name(name).base for name in names}
    hidden = any("w" in context.function_arguments.get(base, ()) for base in bases)
    if context.on_policy and (hidden or "w" in bases or "mu" in measures(side)):
        raise Refused("premise: on-policy, mu is a detached copy of q: its value does not tell a gradient")


def _well_formed(side: Side, context: Context) -> None:
    for element, slots in slotted(side):
        context.check(element, slots)
    for coefficient, atoms in side.terms:
        if not context.is_constant(coefficient):
            raise Refused("a random coefficient stands outside its expectation")
        for atom in atoms:
            if isinstance(atom, Gradient):
                _well_formed(atom.of, context)


def _replay_step(
    sides: dict[str, Side], step: Any, context: Context, where: str
) -> tuple[dict[str, Side], set[Hypothesis]]:
    try:
        if not isinstance(step, dict) or set(step) != STEP_KEYS:
            raise Refused(f"a step has the keys {sorted(STEP_KEYS)}")
        result, added = apply_step(sides, step, context)
        if step["result"] != result.to_json():
            raise Refused(f"{step['rule']}: got {result.to_json()}, recorded {step['result']}")
    except (Refused, NotInRing) as error:
        raise Refused(str(error), where) from None
    return {**sides, step["side"]: result}, added | _nonzero(context, result)


def apply_step(
    sides: dict[str, Side], step: dict[str, Any], context: Context
) -> tuple[Side, set[Hypothesis]]:
    """The side that a step produces (its recorded result is not looked at), and what it assumes."""
    rule = RULES.get(step["rule"]) if isinstance(step["rule"], str) else None
    if rule is None:
        raise Refused(f"unknown rule {str(step['rule'])[:40]!r}")
    if step["side"] not in sides:
        raise Refused("side: 'left' or 'right' expected")
    terms = sides[step["side"]].terms
    coefficient, atoms = _pick(terms, step["term"], "term")
    atom = _pick(atoms, step["factor"], "factor")
    if not isinstance(step["data"], dict):
        raise Refused("data: an object expected")
    replacement, added = rule.apply(atom, step["data"], context)
    others = atoms[: step["factor"]] + atoms[step["factor"] + 1 :]
    rest = terms[: step["term"]] + terms[step["term"] + 1 :]
    changed = ((coefficient * c, others + new) for c, new in replacement.terms)
    return Side.of(*rest, *changed), added


def _refuse_foreign_leaves(data: Any) -> None:
    """Texts, integers and null only: with ==, 1.0 and true would pass for 1."""
    if type(data) is list:
        for item in data:
            _refuse_foreign_leaves(item)
    elif type(data) is dict:
        for item in data.values():
            _refuse_foreign_leaves(item)
    elif type(data) not in (str, int, type(None)):
        raise Refused(f"a text or an integer expected, got {str(data)[:40]}")


def _pick(items: Any, index: Any, name: str) -> Any:
    if type(index) is not int or not 0 <= index < len(items):
        raise Refused(f"{name} {str(index)[:20]}: there are {len(items)}")
    return items[index]


def _close(
    sides: dict[str, Side], close: Any, statement: Statement, where: str
) -> tuple[str, set[Hypothesis]]:
    entry = CLOSINGS.get(str(close.get("by"))) if isinstance(close, dict) else None
    if entry is None:
        raise Refused(f"one of {sorted(CLOSINGS)} expected", where)
    if set(close) != entry.keys | {"by"}:
        raise Refused(f"{close['by']}: the keys {sorted(entry.keys)} expected", where)
    try:
        return entry.kind, entry.verify(sides["left"], sides["right"], close, statement)
    except (Refused, NotInRing) as error:
        reason = str(error).removeprefix(f"{close['by']}: ")
        raise Refused(f"{close['by']}: {reason}", where) from None


def _assumed_sides(context: Context) -> Iterator[Side]:
    """What the context brings in: premises, and the given values."""
    for pair in context.premises:
        yield from pair
    for _, value in context.given:
        yield Side.atom(Point(value))


def _nonzero(context: Context, *sides: Side) -> set[Hypothesis]:
    inverted: set[str] = set()
    for side in sides:
        for element in elements(side):
            inverted |= element.inverted()
    return {("nonzero", name) for name in inverted if name in context.parameters}


def hypotheses_to_json(hypotheses: set[Hypothesis]) -> list[Any]:
    return sorted((_one_to_json(h) for h in hypotheses), key=json.dumps)


def _one_to_json(hypothesis: Hypothesis) -> list[Any]:
    return [item if isinstance(item, str | int) else item.to_json() for item in hypothesis]


def _hypothesis_key(hypothesis: Hypothesis) -> str:
    return json.dumps(_one_to_json(hypothesis))
