"""Replay: a certificate is checked line by line.  Trusted; standard library only; no search.

A certificate is a JSON object {format, cites, parts, digest}.  Each part holds a statement, the steps that
rewrite its sides, how it closes, and the hypotheses it used.  Every recorded result is recomputed and
compared; the first difference is refused with the step that made it.  `cites` carries the parts of other
certificates, each before those that cite it; a step `equation` names them by the digest of their content.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from klsym.errors import NotInRing, Refused
from klsym.kernel import batches, means, regions, sums
from klsym.kernel.assumptions import (
    BRIEF,
    Assumptions,
    Data,
    Hypothesis,
    refuse_unless,
    show_brief,
    write_hypothesis,
)
from klsym.kernel.closings import Zero, check_equality, read_rows
from klsym.kernel.meta import check_completeness, check_independence
from klsym.kernel.models import check_finite_model
from klsym.kernel.names import HELD, parse_name
from klsym.kernel.ring import set_budget
from klsym.kernel.slots import SLOTS
from klsym.kernel.statements import (
    Atom,
    Context,
    Curl,
    Gradient,
    Mean,
    MeanGradient,
    Side,
    Statement,
    canonical,
    pair_elements_with_slots,
    walk_atoms,
    walk_elements,
)

FORMAT = "klsym-certificate/2"
BUDGET = 1_000_000  # units of work for one certificate, what it cites included
MAX_SIZE = 1_000_000  # characters of a file
MAX_DEPTH = 200  # of its lists and objects; the recursion limit depends on the version of Python
CERTIFICATE_KEYS = {"format", "cites", "parts", "digest"}
PART_KEYS = {"context", "relation", "left", "right", "steps", "close", "hypotheses"}
STEP_KEYS = {"rule", "side", "term", "factor", "data", "result"}


@dataclass(frozen=True)
class Theorem:
    """What one part establishes: `kind` is proved, refuted, unique or independent."""

    kind: str
    statement: Statement
    rules: tuple[str, ...]
    hypotheses: tuple[Hypothesis, ...]
    close: dict[str, Any]
    zeros: tuple[Zero, ...] = ()  # an inequality is an equality exactly where all of these are 0
    masses: frozenset[str] = frozenset()  # measures whose mass is 1: along sequences, they end


Cited = Mapping[str, tuple[Theorem, ...]]  # by digest


class Rule(NamedTuple):
    """The atom that a rule replaces, what it does, and the keys of its data; some may be left out."""

    on: type[Atom]
    apply: Callable[[Any, Data, Assumptions], Side]
    keys: frozenset[str] = frozenset()
    more: frozenset[str] = frozenset()


RULES: dict[str, Rule] = {
    "chain rule": Rule(MeanGradient, means.apply_chain_rule),
    "stop-gradient": Rule(Mean, means.apply_stop_gradient),
    "log-derivative": Rule(Gradient, means.apply_log_derivative, more=frozenset({"jumps"})),
    "product rule": Rule(Gradient, means.apply_product_rule),
    "linearity": Rule(Mean, means.apply_linearity, frozenset({"constant"})),
    "change of measure": Rule(Mean, means.apply_change_of_measure, frozenset({"to"})),
    "score mean zero": Rule(Mean, means.apply_score_mean_zero, frozenset({"slot"})),
    "ratio mean one": Rule(Mean, means.apply_ratio_mean_one, frozenset({"of", "slot"})),
    "normalisation": Rule(Mean, means.apply_normalisation),
    "sum over t": Rule(Mean, sums.apply_sum_over_t, frozenset({"of"})),
    "parts of a sum": Rule(Mean, sums.apply_parts_of_a_sum, frozenset({"of"})),
    "exchange of sums": Rule(Mean, sums.apply_exchange_of_sums, frozenset({"now", "other", "slot"})),
    "curl": Rule(Curl, sums.apply_curl),
    "independence": Rule(Mean, batches.apply_independence),
    "region": Rule(Mean, regions.apply_region, frozenset({"cell", "apart", "of", "times", "rows"})),
    "definition": Rule(Mean, regions.apply_definition, frozenset({"name", "times"})),
}
EQUATION = "equation"  # the one rule on a whole side


class Closing(NamedTuple):
    """The kind of theorem that a closing ends, what it asks, and the keys of its data."""

    kind: str
    end: Callable[[Side, Side, Data, Statement, Assumptions], None]
    keys: frozenset[str]


FAMILY = frozenset({"function", "family", "unit", "coordinate", "order", "constants"})
CLOSINGS: dict[str, Closing] = {
    "equality": Closing("proved", check_equality, frozenset({"rows"})),
    "finite model": Closing("refuted", check_finite_model, frozenset({"model", "left", "right"})),
    "completeness": Closing("unique", check_completeness, FAMILY),
    "independence": Closing("independent", check_independence, frozenset({"term"})),
}
_FOREIGN = re.compile(r"[\[:,](true|false|NaN|-?Infinity|-?[0-9]+[.e])")  # what == takes for an integer


# ---------------------------------------------------------------------------- certificates
def read(text: str) -> Any:
    """Return JSON without repeated keys, floats or long integers; raises Refused."""
    if len(text) > MAX_SIZE:
        raise Refused(f"more than {MAX_SIZE} characters")

    def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        refuse_unless(len(members) == len(pairs), "an object has a key twice")
        return members

    def refuse_number(digits: str) -> Any:
        raise Refused(f"{digits[:20]} is no exact number: write it as a text")

    def read_integer(digits: str) -> int:
        return int(digits) if len(digits) < 20 else refuse_number(digits)

    try:
        return json.loads(
            text,
            object_pairs_hook=build_object,
            parse_float=refuse_number,
            parse_constant=refuse_number,
            parse_int=read_integer,
        )
    except (ValueError, RecursionError) as error:
        raise Refused(f"no JSON: {str(error)[:80] or 'nested too deeply'}") from None


def digest(parts: Any) -> str:
    """Return SHA-256 of the parts of a certificate, in canonical JSON."""
    return _compute_digest(canonical(parts))


def _compute_digest(text: str) -> str:
    return hashlib.sha256(f'["{FORMAT}",{text}]'.encode()).hexdigest()


_CHECKED: dict[tuple[str, ...], tuple[Theorem, ...]] = {}  # digests, the last of what was checked beside them


def check(certificate: Any) -> tuple[Theorem, ...]:
    """Replay a certificate; the theorem of each part, or `Refused` with the step and the reason."""
    if not isinstance(certificate, dict) or set(certificate) != CERTIFICATE_KEYS:
        raise Refused(f"a certificate has the keys {sorted(CERTIFICATE_KEYS)}")
    bodies, named = certificate["cites"], certificate["format"]
    format_name = named[:40] if isinstance(named, str) else type(named).__name__
    refuse_unless(format_name == FORMAT, f"format {format_name!r}: this kernel reads {FORMAT!r}")
    refuse_unless(isinstance(bodies, list), "cites: a list expected")
    try:
        texts = [canonical(parts) for parts in (*bodies, certificate["parts"])]
    except (RecursionError, TypeError, ValueError):
        raise Refused("digest: no JSON, or nested too deeply") from None
    refuse_unless(_measure_depth([*bodies, certificate["parts"]]) <= MAX_DEPTH, "nested too deeply")
    plain = not any(map(_FOREIGN.search, texts))
    refuse_unless(plain, "a text or an integer expected, no truth value or decimal")
    names = tuple(map(_compute_digest, texts))
    refuse_unless(certificate["digest"] == names[-1], "digest: the content was changed after it was written")
    theorems_by_digest: dict[str, tuple[Theorem, ...]] = {}
    with set_budget(BUDGET):
        for number, parts in enumerate(bodies, start=1):
            before = names[:number]
            if before not in _CHECKED:
                _CHECKED[before] = check_parts(parts, theorems_by_digest, f"cited {number}, ")
            theorems_by_digest[before[-1]] = _CHECKED[before]
        return check_parts(certificate["parts"], theorems_by_digest)


def _measure_depth(data: Any) -> int:
    """Return the nesting depth of lists and objects in JSON."""
    depth, level = 0, [data]
    while level := [x for x in level if isinstance(x, list | dict)]:
        level = [y for x in level for y in (x.values() if isinstance(x, dict) else x)]
        depth += 1
    return depth


def check_parts(parts: Any, known: Cited, where: str = "") -> tuple[Theorem, ...]:
    refuse_unless(isinstance(parts, list) and bool(parts), f"{where}parts: a nonempty list expected")
    return tuple(check_part(part, known, f"{where}part {i + 1}") for i, part in enumerate(parts))


def check_part(part: Any, known: Cited, where: str) -> Theorem:
    """Replay one part."""
    with _report_place(where):
        theorem = _replay(part, known, where)
        used, recorded = write_hypotheses(theorem.hypotheses), part["hypotheses"]
        refuse_unless(isinstance(recorded, list), "hypotheses: a list expected")
        if recorded != used:
            pairs = ((used, recorded), (recorded, used))
            differences = (str([h for h in first if h not in second][:3])[:BRIEF] for first, second in pairs)
            raise Refused("hypotheses: the proof uses {}, recorded {}".format(*differences))
    return theorem


@contextmanager
def _report_place(where: str, what: str = "") -> Iterator[None]:
    """Refuse whatever goes wrong, with the place, and with the closing."""
    try:
        yield
    except Refused as error:
        raise error if error.where else Refused(what + error.reason, where) from None
    except NotInRing as error:
        raise Refused(f"{what}{error}", where) from None
    except RecursionError:
        raise Refused("nested too deeply", where) from None
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, IndexError) as error:
        raise Refused(f"malformed ({type(error).__name__}: {str(error)[:80]})", where) from None


def certify(part: dict[str, Any], known: Cited) -> tuple[dict[str, Any], Theorem]:
    """Replay a part that lacks its hypotheses: the complete part, and its theorem."""
    with set_budget(BUDGET):
        theorem = _replay({**part, "hypotheses": []}, known, "derivation")
    return {**part, "hypotheses": write_hypotheses(theorem.hypotheses)}, theorem


def _replay(part: Any, known: Cited, where: str) -> Theorem:
    """Return what a part establishes, and under which hypotheses; those it records are not looked at."""
    refuse_unless(set(part) == PART_KEYS, f"a part has the keys {sorted(PART_KEYS)}")
    statement, close = read_statement(part), part["close"]
    by = close.get("by") if isinstance(close, dict) else None
    if by not in CLOSINGS:
        raise Refused(f"one of {sorted(CLOSINGS)} expected", f"{where}, close")
    kind, end, keys = CLOSINGS[by]
    refuse_unless(set(close) == keys | {"by"}, f"close: the keys {sorted(keys)} expected")
    sides, assumed = {"left": statement.left, "right": statement.right}, Assumptions(statement.context)
    refuse_unless(isinstance(part["steps"], list), "steps: a list expected")
    assumed.use(*sides.values(), *(side for pair in statement.context.premises for side in pair))
    defined = [definition.e for definition in statement.context.definitions]
    assumed.use(Side(tuple((e, ()) for e in (*defined, *statement.context.facts))))
    for mean in statement.context.named_means:
        assumed.draw("", mean.measure)
        assumed.assume_existence(mean)
    zeros = []
    for row, zero in read_rows(close, statement, assumed):
        assumed.use(row)
        sides["left"] += row
        zeros.append(zero)
    for number, step in enumerate(part["steps"], start=1):
        with _report_place(f"{where}, step {number}"):
            result, recorded = take_step(sides, step, assumed, known), canonical(step["result"])
            if recorded != result.text:
                raise Refused(f"{step['rule']}: got {show_brief(result)}, recorded {recorded[:BRIEF]}")
        sides[step["side"]] = result
    with _report_place(f"{where}, close", f"{by}: "):
        end(sides["left"], sides["right"], close, statement, assumed)
    rules = (*dict.fromkeys(step["rule"] for step in part["steps"]), by)
    hypotheses = assumed.complete()
    return Theorem(
        kind, statement, rules, hypotheses, close=close, zeros=tuple(zeros), masses=frozenset(assumed.masses)
    )


def read_statement(part: dict[str, Any]) -> Statement:
    """Return the statement of a part, with every name declared and every outer coefficient constant."""
    context = Context.from_json(part["context"])
    refuse_unless(part["relation"] in ("=", "<="), "relation: '=' or '<=' expected")
    left, right = Side.from_json(part["left"]), Side.from_json(part["right"])
    for side in (left, right, *(side for pair in context.premises for side in pair)):
        _refuse_malformed(side, context)
    for name, side in (("left", left), ("right", right)):
        if canonical(part[name]) != side.text:
            raise Refused(f"{name} side is not in normal form: expected {show_brief(side)}")
    return Statement(left, right, context, part["relation"])


def _refuse_malformed(side: Side, context: Context) -> None:
    for element, slots in pair_elements_with_slots(side):
        context.check(element, slots)
    for inner in (side, *(atom.of for atom in walk_atoms(side) if isinstance(atom, Gradient))):
        constant = all(context.is_constant(coefficient) for coefficient, _ in inner.terms)
        refuse_unless(constant, "a random coefficient stands outside its mean")


# ---------------------------------------------------------------------------- steps
def apply_step(
    sides: dict[str, Side], step: Any, context: Context, known: Cited
) -> tuple[Side, set[Hypothesis]]:
    """Return the side that a step produces (its recorded result is not looked at), and what it assumes."""
    assumed = Assumptions(context)
    return take_step(sides, step, assumed, known), assumed.found


def take_step(sides: dict[str, Side], step: Any, assumed: Assumptions, known: Cited) -> Side:
    """Return the side that a step produces."""
    refuse_unless(set(step) == STEP_KEYS, f"a step has the keys {sorted(STEP_KEYS)}")
    name, data = step["rule"], step["data"]
    refuse_unless(step["side"] in sides, "side: 'left' or 'right' expected")
    refuse_unless(isinstance(data, dict), "data: an object expected")
    side = sides[step["side"]]
    if name == EQUATION:
        refuse_unless(step["term"] is None is step["factor"], "equation: term and factor: null expected")
        return apply_equation(side, data, assumed, known)
    rule = RULES.get(name) if isinstance(name, str) else None
    if rule is None:
        raise Refused(f"unknown rule {str(name)[:40]!r}")
    coefficient, atoms = _choose_item(side.terms, step["term"], "term")
    atom = _choose_item(atoms, step["factor"], "factor")
    refuse_unless(isinstance(atom, rule.on), f"{rule.on.__name__} expected, got {type(atom).__name__}")
    keys = set(data) - rule.more - ({"part"} if rule.on is Mean else set())
    refuse_unless(keys == rule.keys, f"data: expected {sorted(rule.keys)}, got {sorted(data)}")
    chosen, remainder = _split(atom, data, assumed)
    replacement = rule.apply(chosen, data, assumed)
    assumed.use(replacement, remainder)
    if remainder.terms and not _is_implied(chosen, replacement, name, assumed):
        assumed.assume_existence(chosen)
    others = atoms[: step["factor"]] + atoms[step["factor"] + 1 :]
    apart = side.terms[: step["term"]] + side.terms[step["term"] + 1 :]
    changed = ((coefficient * c, others + new) for c, new in (*replacement.terms, *remainder.terms))
    return Side.combine(*apart, *changed)


def _split(atom: Any, data: Data, assumed: Assumptions) -> tuple[Any, Side]:
    """Return the part that a rule on means works on, and the rest: E_m[a] = E_m[part] + E_m[a - part]."""
    if "part" not in data:
        return atom, Side()
    part = assumed.read(data["part"], SLOTS[atom.index])
    return replace(atom, coefficient=part), Side.from_atom(replace(atom, coefficient=atom.coefficient - part))


def _is_implied(chosen: Mean, replacement: Side, rule: str, assumed: Assumptions) -> bool:
    """Does what a rule assumes imply that the mean it was given exists?

    A dominated derivative of the mass of q gives E_q[c s] at one sample, where c is constant, and a ratio is
    positive and has mean one.
    """
    if rule == "score mean zero":
        return not chosen.index
    means = (atom for _, atoms in replacement.terms for atom in atoms)
    return rule == "ratio mean one" and all(map(assumed.is_finite, means))


def apply_equation(side: Side, data: Data, assumed: Assumptions, known: Cited) -> Side:
    """Return side + m (G - F), or side + m (grad G - grad F), for a premise or a cited theorem F = G."""
    refuse_unless(set(data) == {"of", "times", "gradient"}, "data: expected ['gradient', 'of', 'times']")
    times, source, gradient = Side.as_written(data["times"]), data["of"], data["gradient"]
    _refuse_malformed(times, assumed.context)
    plain = all(isinstance(atom, Mean) for atom in walk_atoms(times))
    refuse_unless(plain and gradient in (0, 1), "times: constants and means expected; gradient: 0 or 1")
    assumed.use(times)
    assumed.assume_existence(*walk_atoms(times))
    if isinstance(source, list):
        theorem = _find_cited(source, assumed.context, known)
        left, right = theorem.statement.left, theorem.statement.right
        refuse_unless(not gradient, "a theorem may hold at one theta alone: it has no gradient")
        assumed.use(left, right)
        assumed.cite(theorem.hypotheses, theorem.masses)
        assumed.assume_existence(*(set(walk_atoms(left, right)) - set(walk_atoms(side))))
    else:
        left, right = _choose_item(assumed.context.premises, source, "premise")
        assumed.add("premise" if gradient else "equal", left, right)
    if gradient:
        _refuse_detached(left, right, assumed.context)
        left, right = Side.from_atom(Gradient(left)), Side.from_atom(Gradient(right))
    return side + right.multiply(times) - left.multiply(times)


def _refuse_detached(left: Side, right: Side, context: Context) -> None:
    """Refuse gradients of a premise that holds something constant, or known at one theta."""
    elements = *walk_elements(left, right), *(mean.coefficient for mean in context.named_means)
    names = [parse_name(name) for e in context.walk_definitions(*elements) for name in e.names()]
    attached = not any(name.detached or name.base in HELD for name in names)
    refuse_unless(attached, "premise: it holds a detached quantity, whose gradient its value does not tell")


def _find_cited(of: list[Any], context: Context, known: Cited) -> Theorem:
    """Return the theorem of a digest and a number, if it is an equation about what this one speaks of."""
    refuse_unless(len(of) == 2 and isinstance(of[0], str), "of: a digest and the number of a part expected")
    refuse_unless(of[0] in known, f"of: no theorem {str(of[0])[:12]} is carried before this one")
    theorem: Theorem = _choose_item(known[of[0]], of[1], "part")
    cited_context = theorem.statement.context
    equal = (theorem.kind, theorem.statement.relation) == ("proved", "=")
    refuse_unless(equal, "only equations that are proved may be used")
    spoken_of = ("parameters", "functions", "premises", "definitions", "facts")
    within = all(set(getattr(cited_context, key)) <= set(getattr(context, key)) for key in spoken_of)
    refuse_unless(within, "it speaks of names or premises not declared")
    return theorem


def _choose_item(items: Any, index: Any, name: str) -> Any:
    if type(index) is not int or not 0 <= index < len(items):
        raise Refused(f"{name} {str(index)[:20]}: there are {len(items)}")
    return items[index]


def write_hypotheses(hypotheses: tuple[Hypothesis, ...]) -> list[Any]:
    return [write_hypothesis(hypothesis) for hypothesis in hypotheses]
