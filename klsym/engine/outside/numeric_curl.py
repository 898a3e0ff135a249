"""The curl of a field of losses outside the ring, enumerated on small trees and batches.  Untrusted.

    F.u = E_m[sum_t sum_z h_z s_z.u]        curl = d_v F.u - d_u F.v

A batch is a row of n samples, each with the slots self and others, as a sequence is one of tokens with the
slots past, now and future; the mean over its samples is that of the first, since all are drawn alike.  What h
holds is put in word for word; d_v is a difference in forty digits, along logits that move by v.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import islice, product
from typing import Any

import mpmath
import sympy

from klsym.engine.fields.slot_loss import n
from klsym.engine.outside.numbers import number_at
from klsym.engine.outside.position_sums import LossWithSums, PositionSum
from klsym.engine.proof.counterexamples import completed, models, tree_models
from klsym.engine.regions.piecewise import DENSITIES
from klsym.engine.regions.subgradients import expression_at_policy
from klsym.language import REWARDS, A, M, R, length, log_mu, log_old, log_p, log_q, without_sg
from klsym.statements import Context
from klsym.sums import Normalised

DIFFERENCE_STEPS = tuple(mpmath.mpf(10) ** -power for power in (12, 14))  # both give a slope
CURL_DIGITS = 60
TWISTED = 1e-9
MAX_MODELS = 24
ROWS = {log_q: "q", log_p: "p", log_mu: "mu", log_old: "old"}


@dataclass(frozen=True)
class Place:
    """One token, or one sample of a batch: what its names are worth, and its scores."""

    at: Mapping[Any, Any]
    scores: Mapping[str, Any]
    mass: Any  # under the sampler


Branch = list[Place]


def twisted(h: Mapping[str, Any], at: LossWithSums, start: str) -> dict[str, Any] | None:
    """A model on which the field has a curl; None where none was found."""
    expressions = (*h.values(), *(stand.of for stand in at.stands))
    symbols = {x for e in expressions for x in e.free_symbols}
    names = tuple(sorted(str(x) for x in symbols - _known(at)))
    used = {"o", "M"} & {"o" if log_old in symbols else "", *map(str, symbols)}
    on_policy = at.setting.on_policy
    found = tree_models if at.tokens else models
    for model in islice((m for m in found(Context(parameters=names), on_policy) if _wide(m, at)), MAX_MODELS):
        model = completed(model, used)
        if not at.tokens:
            model["tree"]["v"] = _across(model["tree"]["u"])
        with mpmath.workdps(CURL_DIGITS):
            value = curl_on_model(h, at, model)
        if value is not None and abs(value) > TWISTED:
            return _shown(model, names, symbols, at, start, mpmath.nstr(value, 15))
    return None


def _across(u: list[str]) -> list[str]:
    """One logit, and not the one that u moves: along u twice every curl is 0."""
    rest = ["0"] * (len(u) - 2)
    second = ["0", "1", *rest]
    return second if u != second else ["1", "0", *rest]


def _known(at: LossWithSums) -> set[Any]:
    return {*DENSITIES, *REWARDS, length, n, *(stand.symbol for stand in at.stands)}


def _wide(model: dict[str, Any], at: LossWithSums) -> bool:
    """Two logits of one node have a curl where there are three outcomes."""
    return at.tokens or len(model["tree"]["q"]) > 2


def curl_on_model(h: Mapping[str, Any], at: LossWithSums, model: dict[str, Any]) -> Any | None:
    """d_v F.u - d_u F.v; None where h has a kink or jumps: where differences differ."""
    total = mpmath.mpf(0)
    for move, along, sign in (("v", "u", 1), ("u", "v", -1)):
        here, slopes = _field(h, at, model, move, 0, along), []
        for step in DIFFERENCE_STEPS:
            before, after = (_field(h, at, model, move, side * step, along) for side in (-1, 1))
            if before is None or here is None or after is None:
                return None
            if abs(after - 2 * here + before) > TWISTED * step:
                return None
            slopes.append((after - before) / (2 * step))
        if abs(slopes[0] - slopes[1]) > TWISTED:
            return None
        total += sign * slopes[-1]
    return total


def _field(
    h: Mapping[str, Any], at: LossWithSums, model: dict[str, Any], move: str, step: Any, along: str
) -> Any | None:
    """F along a direction, where the logits have moved."""
    given = model["parameters"]
    spoken = {x for e in (*h.values(), *(stand.of for stand in at.stands)) for x in e.free_symbols}
    fixed = {x: _exact(given[x.name]) for x in spoken if x.name in given} | {n: sympy.Integer(_size(at))}
    root, on_policy = model["tree"], at.setting.on_policy
    total = mpmath.mpf(0)
    worth: dict[Any, Any] = {}
    rows = _sequences(root, move, step, on_policy) if at.tokens else _batches(root, move, step, at)
    for row in rows:
        mass = mpmath.fprod(place.mass for place in row)
        mass = mass / len(row) if at.tokens and at.setting.averaged else mass
        whole = {A: sum(place.at[R] for place in row), length: sympy.Integer(len(row))} if at.tokens else {}
        for t, place in enumerate(row if at.tokens else row[:1]):
            known = {**place.at, **fixed, **whole}
            known |= {
                stand.symbol: _summed(stand, row, t, at, {**fixed, **whole}, worth) for stand in at.stands
            }
            over = place.at[length] if at.setting.averaged and not at.tokens else 1
            for slot, coefficient in h.items():
                score = sum(row[k].scores[along] for k in _positions(slot, t, len(row)))
                value = _value(coefficient, known, worth) if score else 0
                if value is None:
                    return None
                total += mass * value * score / over
    return total


def _value(coefficient: Any, known: Mapping[Any, Any], worth: dict[Any, Any]) -> Any | None:
    """A coefficient at a place; tokens after the same prefix often have the same value."""
    key = coefficient, *(known.get(x) for x in _symbols(coefficient))
    if key not in worth:
        worth[key] = number_at(coefficient, dict(known))
    return worth[key]


@lru_cache(maxsize=64)
def _symbols(e: Any) -> tuple[Any, ...]:
    return tuple(e.free_symbols)


def _positions(slot: str, t: int, size: int) -> list[int]:
    match slot:
        case "now" | "self":
            return [t]
        case "past":
            return [*range(t)]
        case "future":
            return [*range(t + 1, size)]
    return [u for u in range(size) if u != t]


def _size(at: LossWithSums) -> int:
    """Of a batch: what is divided by its standard deviation is at n = 2 a sign, which does not move."""
    return 3 if any(isinstance(stand.atom, Normalised) for stand in at.stands) else 2


def _summed(
    stand: PositionSum, row: Branch, t: int, at: LossWithSums, more: Mapping[Any, Any], worth: dict[Any, Any]
) -> Any:
    """What a symbol stands for; worth: what is summed, at each sample of a batch."""
    of = _attached(stand.of, at.setting.on_policy)

    def value(u: int) -> Any:
        key = stand.symbol, id(row[u])
        if at.tokens or key not in worth:
            found = number_at(of, {**row[u].at, **more})
            worth[key] = mpmath.nan if found is None else found
        return worth[key]

    if stand.slots:
        places = [u for slot in stand.slots for u in _positions(slot, t, len(row))]
        return _float(mpmath.fsum(value(u) for u in places))
    values = [value(u) for u in range(len(row))]
    if not isinstance(stand.atom, Normalised):
        rest = mpmath.fsum(values) - values[t]
        return _float(number_at(stand.atom.of(_float(values[t]), _float(rest)), {n: len(row)}))
    mean = mpmath.fsum(values) / len(row)
    spread = mpmath.sqrt(mpmath.fsum((x - mean) ** 2 for x in values) / len(row))
    return _float((values[t] - mean) / spread) if spread > TWISTED**2 else sympy.S.Zero


@lru_cache(maxsize=64)
def _attached(of: Any, on_policy: bool) -> Any:
    return expression_at_policy(without_sg(of)) if on_policy else without_sg(of)


def _float(x: Any) -> Any:
    return sympy.Float(x, CURL_DIGITS)


def _exact(x: Any) -> Any:
    return sympy.Rational(str(x))


# ---------------------------------------------------------------------------- rows of places
def _places(node: dict[str, Any], move: str, step: Any, on_policy: bool) -> Branch:
    """The branches of a node whose logits have moved by so much along a direction."""
    q, *directions = ([_mp(x) for x in node[name]] for name in ("q", "u", "v"))
    rows = dict(zip("uv", directions, strict=True))
    weights = [a * mpmath.exp(step * b) for a, b in zip(q, rows[move], strict=True)]
    q = [w / mpmath.fsum(weights) for w in weights]
    means = {d: mpmath.fsum(a * b for a, b in zip(q, row, strict=True)) for d, row in rows.items()}
    found = []
    for k, chance in enumerate(q):
        logs = {x: sympy.log(_exact(node[name][k])) for x, name in ROWS.items() if name in node}
        logs[log_q] = _float(mpmath.log(chance)) if step else sympy.log(_exact(node["q"][k]))
        logs |= {log_mu: logs[log_q]} if on_policy else {}
        paid = {x: _exact(node["rewards"].get(x.name, [0] * len(q))[k]) for x in (R, M)}
        own_A = _exact(node["rewards"].get("A", node["rewards"]["R"])[k])
        mass = chance if on_policy else _mp(node["mu"][k])
        scores = {d: row[k] - means[d] for d, row in rows.items()}
        found.append(Place({**logs, **paid, A: own_A, length: sympy.Integer(k + 1)}, scores, mass))
    return found


def _mp(x: str) -> Any:
    of = Fraction(x)
    return mpmath.mpf(of.numerator) / of.denominator


def _sequences(node: dict[str, Any], move: str, step: Any, on_policy: bool) -> Iterator[Branch]:
    for place, after in zip(_places(node, move, step, on_policy), node["next"], strict=True):
        for row in _sequences(after, move, step, on_policy) if after else [[]]:
            yield [place, *row]


def _batches(node: dict[str, Any], move: str, step: Any, at: LossWithSums) -> Iterator[Branch]:
    return map(list, product(_places(node, move, step, at.setting.on_policy), repeat=_size(at)))


# ---------------------------------------------------------------------------- as it is shown
def _shown(
    model: dict[str, Any], names: tuple[str, ...], symbols: set[Any], at: LossWithSums, start: str, left: str
) -> dict[str, Any]:
    """The rows that are spoken of; R stands in for the A of a sequence, of which it is the sum."""
    rows = {"q", "u", "v"} | {row for x, row in ROWS.items() if x in symbols and row != "mu"}
    rows |= {"mu"} - ({"mu"} if at.setting.on_policy else set())
    rows |= {"R"} if {R, A} & symbols else set()
    rows |= {"M"} if M in symbols else set()

    def tree(node: dict[str, Any]) -> dict[str, Any]:
        flat = {**node, **node["rewards"]}
        if not at.tokens:
            flat["A"] = flat.get("A", flat["R"])
        kept = rows | ({"A"} if A in symbols and not at.tokens else set())
        kept |= {"T"} if (length in symbols or at.setting.averaged) and not at.tokens else set()
        flat |= {"T": [str(k + 1) for k in range(len(node["q"]))]}
        return {name: [str(Fraction(x)) for x in flat[name]] for name in flat if name in kept} | {
            "next": [after and tree(after) for after in node.get("next", [None] * len(node["q"]))]
        }

    parameters = {name: str(model["parameters"][name]) for name in names}
    parameters |= {} if at.tokens else {"n": str(_size(at))}
    return {
        "refutes": f"curl {start} = 0",
        "tree": tree(model["tree"]),
        **({"parameters": parameters} if parameters else {}),
        "left": [left, left],
        "right": ["0", "0"],
    }
