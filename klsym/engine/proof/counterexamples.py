"""Counterexamples: explicit finite models in which the two sides of a false statement differ.  Untrusted.

Models are tried from the simplest on (`klsym.worlds.draw`); by completeness (three outcomes suffice) one is
found for every false equation between score forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy, deepcopy
from fractions import Fraction
from functools import lru_cache, partial
from itertools import chain, tee
from typing import Any

from klsym.engine.proof.float_screen import is_plainly_at_most
from klsym.engine.regions.piecewise import is_token_count
from klsym.engine.regions.root_isolation import find_joint_signs
from klsym.errors import ProofError, Refused
from klsym.kernel.definitions import LET, LOG, REGION
from klsym.kernel.derivatives import move_to_slot
from klsym.kernel.intervals import Interval
from klsym.kernel.models import Model, enclose
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import PARTS
from klsym.kernel.statements import Context
from klsym.kernel.statements import Statement as Plain
from klsym.language.abbreviations import (
    Side,
    walk_elements,
)
from klsym.worlds.draw import (
    KEEPS_FIRST_TOKEN,
    MASS,
    add_rows,
    draw_sample_models,
    draw_tree_models,
)

DENOMINATORS = {"k1": "p", "w": "mu", "o": "old"}  # q over this
BATCH_SLOTS = {*PARTS["i"], *PARTS["ij"]}


def generate_models(
    context: Context, on_policy: bool = False, values_to_meet: Iterable[tuple[str, Fraction]] = ()
) -> Iterator[dict[str, Any]]:
    """Yield candidate models of one sample in JSON form; see `draw_sample_models`."""
    return draw_sample_models(partial(_choose_parameters, context), on_policy, values_to_meet)


def generate_tree_models(context: Context, on_policy: bool = False) -> Iterator[dict[str, Any]]:
    """Yield candidate trees in JSON form; see `draw_tree_models`."""
    return draw_tree_models(partial(_choose_parameters, context), on_policy)


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


def choose_rows(names: Iterable[str], context: Context) -> frozenset[str]:
    """Return the optional rows of a model; KEEPS_FIRST_TOKEN: M is 1 there, MASS: M is of whole samples."""
    names = {*names, *(("M",) if MASS in context.parameters else ())}
    denominators = (e for _, kind, e in context.definitions if kind == LOG and not e.terms.get(((), ())))
    first_token_masks = {KEEPS_FIRST_TOKEN} if any(map(is_token_count, denominators)) else set()
    return frozenset({"o", "M"} & {*names} | first_token_masks | ({MASS} & {*context.parameters}))


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
