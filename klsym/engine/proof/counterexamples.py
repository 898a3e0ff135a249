"""Counterexamples: explicit finite models in which the two sides of a false statement differ.  Untrusted.

Models are tried from the simplest on; by completeness (three outcomes suffice) one is found for
every false equation between score forms.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy, deepcopy
from fractions import Fraction
from functools import lru_cache
from itertools import chain, tee
from typing import Any

from klsym.engine.proof.float_screen import is_plainly_at_most
from klsym.engine.regions.piecewise import is_token_count
from klsym.engine.regions.root_isolation import find_joint_signs
from klsym.errors import ProofError, Refused, UsageError
from klsym.kernel.derivatives import move_to_slot
from klsym.kernel.intervals import Interval
from klsym.kernel.models import Model, enclose
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import PARTS
from klsym.kernel.statements import LET, LOG, REGION, Context
from klsym.kernel.statements import Statement as Plain
from klsym.language.abbreviations import (
    Curl,
    Gradient,
    Indexed,
    IndexedGradient,
    Side,
    TokenDivergence,
    pair_elements_with_slots,
    walk_elements,
)

MODELS_TRIED = 200
# q, p, mu, u: small and readable first
SIMPLE = (
    ("1/2 1/2", "1/4 3/4", "1/3 2/3", "1 0"),
    ("1/3 2/3", "3/4 1/4", "1/2 1/2", "1 0"),
    ("1/2 1/4 1/4", "1/4 1/4 1/2", "1/3 1/3 1/3", "1 0 0"),
    ("1/2 1/4 1/4", "1/8 3/8 1/2", "2/5 2/5 1/5", "0 1 0"),
    ("1/2 1/2", "1/1000 999/1000", "1/100 99/100", "1 0"),  # beyond the usual clamps
)

FAR_RATIOS = (6, 10, 20, 50)  # log10 of the ratios beyond larger clamps: exp(13) to exp(115)
MAX_LOG_RATIO = 600  # of a log ratio in a model
FAR_FROM = 8  # the random model before which they come

PARAMETER_VALUES = ("1/3", "2", "1/2", "3")  # of parameters, in every order
KEEPS_FIRST_TOKEN = "kept"  # M is 1 at the first token
MASS = "S"  # of what a sampler keeps that is cut off
DENOMINATORS = {"k1": "p", "w": "mu", "o": "old"}  # q over this
BATCH_SLOTS = {*PARTS["i"], *PARTS["ij"]}
BOUNDED_REWARDS = ("R", "A")  # that bounds are met on
RATIOS = ("1/2", "2", "1/5", "5", "4/5", "5/4", "1/20", "20", "1/400", "400")


def generate_models(
    context: Context, on_policy: bool = False, values_to_meet: Iterable[tuple[str, Fraction]] = ()
) -> Iterator[dict[str, Any]]:
    """Yield candidate models of one sample in JSON form, deterministic; on-policy the row mu repeats q.

    values_to_meet: ("p", k1), ("mu", w), ("old", o), ("R", x) or ("A", x), a log ratio or a reward that some
    sample must have.
    """
    for rows in SIMPLE:
        q, p, mu, u = (row.split() for row in rows)
        yield _build_model(context, q, p, q if on_policy else mu, u, step=0)
    stream = random.Random(20250)
    for step in range(1, MODELS_TRIED):
        if step == FAR_FROM:
            yield from _generate_boundary_models(context, on_policy, values_to_meet)
            yield from _generate_far_models(context, on_policy)
        size = 3 + step % 2
        q, p, mu = (_sample_distribution(stream, size) for _ in range(3))
        u = [str(int(i == step % size)) for i in range(size)]
        yield _build_model(context, q, p, q if on_policy else mu, u, step)


def _generate_boundary_models(
    context: Context, on_policy: bool, values_to_meet: Iterable[tuple[str, Fraction]]
) -> Iterator[dict[str, Any]]:
    """Yield models of two outcomes, the first with about the given log ratio, or with the given reward.

    The larger of the two densities of a log ratio is 1/2 there.
    """
    for name, ratio in values_to_meet:  # q over the density of this name
        if name in BOUNDED_REWARDS:
            q, p, mu, u = (row.split() for row in SIMPLE[1])
            yield _build_model(context, q, p, q if on_policy else mu, u, step=0, at_first={name: str(ratio)})
            continue
        times = math.exp(min(abs(float(ratio)), MAX_LOG_RATIO))
        half, small = Fraction(1, 2), Fraction(1, 2) / Fraction(f"{times:.2e}")
        rows = dict.fromkeys(("q", "p", "mu", "old"), small if ratio < 0 else half)
        rows[name] = half if ratio < 0 else small
        q, p, mu, old = ([str(x), str(1 - x)] for x in rows.values())
        model = _build_model(context, q, p, q if on_policy else mu, ["1", "0"], step=0)
        yield {**model, "tree": {**model["tree"], "old": old}} if name == "old" else model


def _generate_far_models(context: Context, on_policy: bool) -> Iterator[dict[str, Any]]:
    """Yield models with q = 1/2 where p, or mu, or both are tiny at one outcome: above all clip bounds."""
    for power in FAR_RATIOS:
        tiny, half = Fraction(1, 10**power), Fraction(1, 2)
        for p, mu in ((tiny, half), *(() if on_policy else ((half, tiny), (tiny, tiny)))):
            q, p_row, mu_row = ([str(x), str(1 - x)] for x in (half, p, mu))
            yield _build_model(context, q, p_row, q if on_policy else mu_row, ["1", "0"], step=0)


def generate_uneven_models(context: Context) -> Iterator[dict[str, Any]]:
    """Yield models of two outcomes, one rare under q, with log ratios from about -6 to 6.

    Along u = (1, 0) the rare outcome outweighs the other one in E_q[a s^2], so any sign that `a` takes
    in that range shows in the mean.
    """
    number = 0
    for rare in ("1/10", "1/1000", "1/1000000"):
        for times_p in RATIOS:
            for times_mu in RATIOS:
                rows = [Fraction(rare) * Fraction(ratio) for ratio in ("1", times_p, times_mu)]
                if max(rows) < 1:
                    q, p, mu = ([str(x), str(1 - x)] for x in rows)
                    model = _build_model(context, q, p, mu, ["1", "0"], number)
                    values = {
                        name: PARAMETER_VALUES[(number + i * (1 + number // 4)) % 4]
                        for i, name in enumerate(context.parameters)
                    }
                    yield {**model, "parameters": values}
                    number += 1


def _sample_distribution(stream: random.Random, size: int) -> list[str]:
    weights = [stream.randint(1, 9) for _ in range(size)]
    return [str(Fraction(w, sum(weights))) for w in weights]


def _choose_parameters(context: Context, step: int) -> dict[str, str]:
    """Return simple values, an integer batch size, and values that satisfy the premises on parameters."""
    values = {name: Fraction(2 + i + step % 3, 3) for i, name in enumerate(context.parameters)}
    if step % 2:  # on the other side of a bound
        bound = {name for _, kind, e in context.definitions if kind == REGION for name in e.names()}
        fact_names = {name for fact in context.facts for name in fact.names()}
        values |= {name: -values[name] for name in bound & set(values) - fact_names - {"n"}}
    goal = dict(context.witness)
    for share in (*[Fraction(1, 2)] * 20, Fraction(1)):  # ever nearer to the witness, at last there
        if all(_compute_fact(fact, values) >= 0 for fact in context.facts if fact.names() <= set(values)):
            break
        values |= {x: values[x] + share * (goal[x] - values[x]) for x in goal if x in values}
    if "n" in values:
        values["n"] = Fraction(2 + step % 3)
    for left, right in context.premises:
        difference = left - right
        free = sorted(
            {n for element in walk_elements(difference) for n in element.names()} & set(values) - {"n"}
        )
        if free and all(not atoms for _, atoms in difference.terms):
            at = [_compute_parameter_value(difference, {**values, free[0]: Fraction(x)}) for x in (0, 1)]
            if at[0] != at[1]:
                values[free[0]] = at[0] / (at[0] - at[1])
    return {name: str(value) for name, value in values.items()}


def _compute_fact(fact: ExpPoly, values: dict[str, Fraction]) -> Fraction:
    value = fact.substitute({name: ExpPoly.from_number(values[name]) for name in fact.names()})
    return Fraction(value.terms.get(((), ()), 0))


def _compute_parameter_value(difference: Side, values: dict[str, Fraction]) -> Fraction:
    return enclose(difference, Model((), (), values)).lower


def _build_model(
    context: Context, q: list[str], p: list[str], mu: list[str], u: list[str], step: int,
    at_first: Mapping[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Build a model of single samples; at_first: rewards of the first outcome."""
    rewards = {"R": [str((3 * x + step) % 4) for x in range(len(q))]}
    rewards["A"] = [str((2 * x + step) % 3 - 1) for x in range(len(q))]
    for name, value in (at_first or {}).items():
        rewards[name][0] = value
    return build_one_node({"q": q, "p": p, "mu": mu, "u": u}, rewards, _choose_parameters(context, step))


def build_one_node(
    rows: dict[str, list[str]], rewards: dict[str, list[str]], parameters: dict[str, str]
) -> dict[str, Any]:
    """Build a model of single samples: a tree of one node, whose first outcome is the sample of "sample"."""
    ends = [None] * len(rows["q"])
    node = {**rows, "v": ["0"] * len(ends), "rewards": rewards, "next": ends}
    return {"tree": node, "path": [0], "parameters": parameters}


def finite_model(
    q: list[Any],
    p: list[Any],
    mu: list[Any],
    u: list[Any],
    old: list[Any] | None = None,
    M: list[Any] | None = None,
    **parameters: Any,
) -> dict[str, Any]:
    """Return a model in JSON form, for a counterexample chosen by hand.

    q, p, mu, old: exact probabilities of the outcomes; u: a direction of the softmax logits; M: a mask.
    """
    rows = {"q": q, "p": p, "mu": mu, "u": u} | ({"old": old} if old else {})
    exact = {name: [_to_exact(x) for x in row] for name, row in rows.items()}
    masks = {"M": [_to_exact(x) for x in M]} if M else {}
    return build_one_node(exact, masks, {name: _to_exact(value) for name, value in parameters.items()})


# ---------------------------------------------------------------------------- sequences
def has_steps(*sides: Side) -> bool:
    """Do sides contain a sum over the tokens of sequences, or their length?"""
    for side in sides:
        atoms = [atom for _, factors in side.terms for atom in factors]
        if any("t" in a.index for a in atoms if isinstance(a, Indexed | IndexedGradient)):
            return True
        if any(isinstance(a, TokenDivergence | Curl) for a in atoms):
            return True
        if has_steps(*(a.of for a in atoms if isinstance(a, Gradient))):
            return True
    return any("length" in element.names() for side in sides for element, _ in pair_elements_with_slots(side))


Node = dict[str, Any]


def generate_tree_models(context: Context, on_policy: bool = False) -> Iterator[dict[str, Any]]:
    """Yield candidate trees: one token, then stop or another one, from simple numbers on; deterministic."""
    stream = random.Random(20251)
    for step in range(MODELS_TRIED):
        last_nodes = [_sample_node(stream, on_policy, step, [None, None]) for _ in range(2)]
        following = [last_nodes[0], last_nodes[1] if step % 2 else None]
        if step % 4 == 3:
            following = [_sample_node(stream, on_policy, step, [last_nodes[0], None]), last_nodes[1]]
        tree, path = _sample_node(stream, on_policy, step, following), [0]
        while _follow_path(tree, path) is not None:
            path = [*path, 0]
        yield {"tree": tree, "path": path, "parameters": _choose_parameters(context, step)}


def _follow_path(node: Node | None, path: list[int]) -> Node | None:
    """Return the node after a path of branches; None where the sequence ends."""
    for branch in path:
        node = node and node["next"][branch]
    return node


def _sample_node(stream: random.Random, on_policy: bool, step: int, following: list[Node | None]) -> Node:
    size, largest_weight = len(following), 2 + step // 4
    rows = {name: _sample_weights(stream, size, largest_weight) for name in ("q", "p", "mu")}
    while rows["p"] == rows["q"]:  # where they agree k1 is 0, and much is equal by accident
        rows["p"] = _sample_weights(stream, size, largest_weight)
    along, across = (stream.choice([("1", "0"), ("0", "1"), ("1", "-1")]) for _ in range(2))
    rewards = [str(stream.randint(0, 2)) for _ in range(size)]
    return {
        "q": rows["q"], "p": rows["p"], "mu": rows["q"] if on_policy else rows["mu"],
        "u": list(along), "v": list(across), "rewards": {"R": rewards}, "next": following,
    }  # fmt: skip


def _sample_weights(stream: random.Random, size: int, largest_weight: int) -> list[str]:
    weights = [stream.randint(1, largest_weight) for _ in range(size)]
    return [str(Fraction(w, sum(weights))) for w in weights]


def _to_exact(value: Any) -> str:
    if isinstance(value, int | Fraction | str):
        try:
            return str(Fraction(value))
        except (ValueError, ZeroDivisionError):
            pass
    raise UsageError(
        f"finite_model: an exact number such as 1/3 (text, int or Fraction) expected, got {value!r}"
    )


def choose_rows(names: Iterable[str], context: Context) -> frozenset[str]:
    """Return the optional rows of a model; KEEPS_FIRST_TOKEN: M is 1 there, MASS: M is of whole samples."""
    names = {*names, *(("M",) if MASS in context.parameters else ())}
    denominators = (e for _, kind, e in context.definitions if kind == LOG and not e.terms.get(((), ())))
    first_token_masks = {KEEPS_FIRST_TOKEN} if any(map(is_token_count, denominators)) else set()
    return frozenset({"o", "M"} & {*names} | first_token_masks | ({MASS} & {*context.parameters}))


def add_rows(model: dict[str, Any], row_names: Collection[str]) -> dict[str, Any]:
    """Add the rows old and M to a model if they are needed: old = (q + 2 p')/3, p' is p rotated by one."""
    if not row_names:
        return model
    tree, parameters = _add_rows_to_node(model["tree"], row_names, 0), model["parameters"]
    if MASS in row_names:  # E_q[M]
        masses = zip(tree["q"], tree["rewards"]["M"], strict=True)
        parameters = {**parameters, MASS: str(sum(Fraction(q) * Fraction(m) for q, m in masses))}
    return {**model, "tree": tree, "parameters": parameters}


def _add_rows_to_node(node: Node, row_names: Collection[str], depth: int) -> Node:
    q, p = ([Fraction(x) for x in node[name]] for name in ("q", "p"))
    old = [str((a + 2 * b) / 3) for a, b in zip(q, [*p[1:], p[0]], strict=True)]
    mask = [1 if KEEPS_FIRST_TOKEN in row_names and not depth else (x + depth + 1) % 2 for x in range(len(q))]
    mask = [0 for _ in q] if MASS in row_names and depth else mask  # the sum over tokens is 0 or 1
    masks = {"M": list(map(str, mask))} if "M" in row_names else {}
    following = [
        next_node and _add_rows_to_node(next_node, row_names, depth + 1) for next_node in node["next"]
    ]
    rows = {**node, "rewards": {**node["rewards"], **masks}, "next": following}
    return {"old": old, **rows} if "o" in row_names else rows


def find_model(
    statement: Plain,
    model: dict[str, Any] | None = None,
    on_policy: bool = False,
    steps: bool = False,
) -> dict[str, Any]:
    """Return the close data of a refutation; raises ProofError if the sides agree on all models.

    steps: the sides are about sequences, so trees are tried; on_policy: the row mu of a model repeats q.
    """
    sides = (statement.left, statement.right)
    defined_elements = [d.e for d in statement.context.definitions]
    all_elements = [*(a for side in sides for a in walk_elements(side)), *defined_elements]
    slotted_names = {name for a in all_elements for name in a.names()}
    names, defined = {parse_name(name).base for name in slotted_names}, statement.context.find_definition
    defining = {parse_name(name).slot for e in defined_elements for name in e.names()}
    if defining & BATCH_SLOTS:
        raise ProofError("a finite model is one of single samples or sequences, not of batches")
    at_steps = steps and any(defined(x) is not None and parse_name(x).slot == "now" for x in slotted_names)
    candidates = (
        [(model, Model.from_json(model, statement.context))]
        if model
        else copy(_read_models(statement.context, on_policy, steps, choose_rows(names, statement.context)))
    )
    for candidate, instance in candidates:
        if statement.relation == "<=" and not model and is_plainly_at_most(*sides, instance):
            continue
        if not _is_off_bounds(instance, at_steps):
            continue
        left, right = enclose(statement.left, instance), enclose(statement.right, instance)
        is_above, is_below = left.lower > right.upper, left.upper < right.lower
        if is_above or (is_below and statement.relation == "="):
            return {
                "by": "finite model",
                "model": deepcopy(candidate),
                "left": _format_ends(left),
                "right": _format_ends(right),
            }
    raise ProofError("no finite model tells the two sides apart")


def _generate_values_to_meet(context: Context) -> Iterator[tuple[str, Fraction]]:
    """Yield names with values that some sample must take, so that both sides of each bound occur."""
    for _, _, e in context.definitions:
        bases = {parse_name(name).base for name in e.names()}
        if bases in ({"R"}, {"A"}) and (root := _find_root(e)) is not None:
            yield from ((min(bases), root + side) for side in (-1, 1))
        joint_signs = find_joint_signs((e,)) if len(bases) == 1 and bases <= DENOMINATORS.keys() else None
        for values in (joint_signs or {}).values():
            yield from ((DENOMINATORS[min(bases)], place) for place in values)


def _find_root(e: ExpPoly) -> Fraction | None:
    """Return -b/a for a x + b; None for any other element."""
    [name, *other_names] = e.names()
    a, b = e.terms.get((((name, 1),), ()), 0), e.terms.get(((), ()), 0)
    return -Fraction(b) / a if a and not other_names and len(e.terms) == 1 + bool(b) else None


def _is_off_bounds(model: Model, steps: bool) -> bool:
    """Is no sample (steps: and no token) on a bound that depends on theta, or where a log is undefined?"""
    context = model.context
    definitions = [(d.kind, d.e) for d in context.definitions if d.kind != LET]
    definitions += [
        (k, move_to_slot(e, "now", context))
        for k, e in definitions
        if steps and context.collect_slots(e) == {"x"}
    ]
    try:
        return all(
            v.lower > 0 or (kind == REGION and v.upper < 0)
            for kind, e in definitions
            for v in model.enclose_values(e, moving=kind == REGION)
        )
    except Refused:  # a log of what is not positive, in another
        return False


@lru_cache(maxsize=32)
def _read_models(context: Context, on_policy: bool, steps: bool, names: frozenset[str]) -> Any:
    """Return an iterator of models, built lazily and only once; `copy` it."""
    bare_models = (
        generate_tree_models(context, on_policy)
        if steps
        else generate_models(context, on_policy, _generate_values_to_meet(context))
    )
    candidates = (add_rows(model, names) for model in bare_models)
    models_at_context = ((model, Model.from_json(model, context)) for model in candidates)
    return tee(chain([next(models_at_context)], models_at_context), 1)[0]


def describe_model(refuted: str, model: Any, left: Any, right: Any, used: set[str]) -> dict[str, Any]:
    """Return a model without the rows that the equation does not use."""
    unused = {row for row, name in (("mu", "w"), ("old", "o")) if name not in used}
    rows = {name: model[name] for name in ("q", "p", "mu", "old", "u") if name in model.keys() - unused}
    rewards = {name: values for name, values in model["rewards"].items() if name in used}
    extra = {"parameters": model["parameters"], "rewards": rewards}
    return {
        "refutes": refuted,
        **rows,
        **{k: v for k, v in extra.items() if v},
        "left": left,
        "right": right,
    }


def _format_ends(interval: Interval) -> list[str]:
    return [str(interval.lower), str(interval.upper)]
