"""The models that a statement is judged on, and what the hypotheses of a theorem allow of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.definitions import LOG
from klsym.kernel.names import SAMPLE, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import SECOND
from klsym.language.abbreviations import (
    Context,
    Curl,
    Mean,
    MeanGradient,
    MeanVariance,
    Statement,
    TokenDivergence,
    walk_atoms,
    walk_elements,
)
from klsym.numeric.definitions import are_at_least_0, are_clear, are_positive
from klsym.numeric.evaluation import THETAS
from klsym.numeric.indices import STRUCTURES
from klsym.numeric.model_variables import Frame, Functions
from klsym.numeric.models import COUNTS, FiniteModel, random_model, random_tree
from klsym.numeric.number_systems import EXACT, FLOAT, Sized, System
from klsym.numeric.sides import choose_instances, evaluate_side

if TYPE_CHECKING:  # a theorem is data here
    from klsym.language.unfolding import Theorem

HALVINGS = 60
ATTEMPTS = 20  # to keep samples off bounds


# ---------------------------------------------------------------------------- what a statement needs
@dataclass(frozen=True)
class Needs:
    """Does a statement speak of sequences, of batches?"""

    sequences: bool
    batches: bool


def find_needs(statement: Statement) -> Needs:
    """Return what the models of a statement must have.

    >>> from klsym.language.abbreviations import Side, TokenDivergence
    >>> find_needs(Statement(Side.from_atom(TokenDivergence("q", "q", "p")), Side()))
    Needs(sequences=True, batches=False)
    """
    context = statement.context
    sides = [statement.left, statement.right, *(side for pair in context.premises for side in pair)]
    atoms = [*walk_atoms(*sides)]
    indexed = [STRUCTURES[atom.index] for atom in atoms if isinstance(atom, Mean | MeanGradient)]
    batches = any(i.others for i in indexed) or any(isinstance(a, MeanVariance) for a in atoms)
    second = any(entry.endswith(SECOND) for atom in atoms for entry in getattr(atom, "score", ()))
    named = any(isinstance(atom, TokenDivergence | Curl) for atom in atoms)
    written = [*(a for side in sides for a in walk_elements(side)), *(value for _, value in context.given)]
    parts = [*context.walk_definitions(*written)]
    names = {name for part in parts for name in part.names() if name not in context.parameters}
    lengths = any(parse_name(name).base == "length" for name in names)
    steps = any(i.steps for i in indexed) or any(parse_name(name).slot != "x" for name, _ in context.given)
    return Needs(named or second or lengths or steps, batches)


def draw_models(statement: Statement, seeds: Iterable[int], exact: bool = False) -> list[FiniteModel]:
    """Return random models that a statement can be evaluated on, one for each seed.

    Trees for what speaks of sequences; 2 or 3 outcomes and a batch size n of 2 or 3 for what speaks of
    batches, small trees for batches of sequences; 2 to 6 outcomes for the rest.

    >>> from klsym.language.abbreviations import Side, TokenDivergence
    >>> statement = Statement(Side.from_atom(TokenDivergence("q", "q", "p")), Side())
    >>> [max(model.lengths) for model in draw_models(statement, range(3))]
    [3, 3, 3]
    """
    needs, context = find_needs(statement), statement.context
    return [_draw_model(needs, context, seed, exact) for seed in seeds]


def _draw_model(needs: Needs, context: Context, seed: int, exact: bool) -> FiniteModel:
    if not needs.batches:
        if needs.sequences:
            return random_tree(seed, context, exact, tokens=3 - seed % 2)
        return random_model(seed, 2 + seed % 5, context, exact)
    if needs.sequences:
        model = random_tree(seed, context, exact, tokens=2, depth=2 if exact else 2 + seed % 2)
    else:
        model = random_model(seed, 2 + seed % 2, context, exact)
    return with_parameter(model, "n", Fraction(2 + seed // 2 % 2))


def with_parameter(model: FiniteModel, name: str, value: Any) -> FiniteModel:
    """Return the model with another value of a parameter."""
    return replace(model, parameters={**model.parameters, name: value})


# ---------------------------------------------------------------------------- what a theorem allows
def find_allowed_model(theorem: Theorem, model: FiniteModel, functions: Functions) -> FiniteModel:
    """Return the model in the region of the theorem, with parameters that the hypotheses allow.

    They are positive where asked, and one is solved for each premise, such as m where n = m + 1; the batch
    size n stays.  What is given makes the premises hold that name it.  Facts hold, and no sample lies on a
    bound that the hypotheses exclude.

    Raises UsageError: no such model is found.
    """
    context, bounds, inside = theorem.statement.context, list_bounds(theorem), list_logs(theorem)
    asked = bounds or inside
    model = with_first_kept(model) if any("M" in e.names() for e in inside) else model
    functions_by_name = choose_instances(context, functions) if asked else {}
    for attempt in range(ATTEMPTS if asked else 1):
        candidate = _with_premises(
            theorem, _with_facts(theorem, shift_model(model, attempt, context)), functions
        )
        frame = Frame(candidate, _choose_system(candidate), context, functions_by_name)
        if not asked or (are_positive(inside, frame) and are_clear(bounds, frame)):
            return candidate
    raise UsageError("oracle: every model that was tried has samples where the theorem excludes them")


def list_bounds(theorem: Theorem) -> list[ExpPoly]:
    """Return what is 0 at no sample, by the hypotheses of the theorem."""
    return list(dict.fromkeys(h[2] for h in theorem.hypotheses if h[0] in ("away", "off", "apart")))


def list_logs(theorem: Theorem) -> list[ExpPoly]:
    """Return the elements that are positive at every sample: by a hypothesis, or as their log has a name."""
    statement = theorem.statement
    elements_within = statement.context.walk_definitions(
        *walk_elements(statement.left), *walk_elements(statement.right)
    )
    logs = (
        statement.context.find_definition(name, LOG) for e in elements_within for name in sorted(e.names())
    )
    named = [e for e in logs if e is not None and statement.context.collect_slots(e) <= {"x"}]
    return list(dict.fromkeys([*(h[2] for h in theorem.hypotheses if h[0] == "above"), *named]))


def _choose_system(model: FiniteModel) -> System:
    return EXACT if model.exact else FLOAT


def shift_model(model: FiniteModel, attempt: int, context: Context) -> FiniteModel:
    """Return the model with other parameters, rewards and densities p, mu and old; attempt 0 leaves it as it
    is.
    """
    if not attempt:
        return model
    step = Fraction(attempt, 7 * attempt + 11)
    rewards = {n: row if n == "M" else [x + step for x in row] for n, row in model.rewards.items()}
    near = attempt > ATTEMPTS // 2  # between 0 and 1, as the weights of a mixture are
    parameters = {
        n: x if n in COUNTS else Fraction(1, 2) + x / 8 if near else x + step / 3
        for n, x in model.parameters.items()
    }
    densities = {"p": model.p, "mu": model.mu, "old": model.old}
    if context.on_policy:
        del densities["mu"]
    mixed: dict[str, Any] = {
        n: _combine_with_rising(row, step / k, model)
        for k, (n, row) in enumerate(densities.items(), 1)
        if row
    }
    return replace(model, rewards=rewards, parameters=parameters, **mixed)


def _combine_with_rising(row: Sequence[Any], step: Fraction, model: FiniteModel) -> list[Any]:
    """Return, at each node, a mixture with probabilities that rise from branch to branch."""
    mixture = list[Any]()
    for node in model.layout.nodes:
        values = row[node]
        total = len(values) * (len(values) + 1) // 2
        mixture += [(1 - step) * x + step * Fraction(k, total) for k, x in enumerate(values, 1)]
    return mixture


def _with_facts(theorem: Theorem, model: FiniteModel) -> FiniteModel:
    """Return the model moved towards the witness of the context, by halves, until the facts assumed hold."""
    context, facts = theorem.statement.context, [h[1] for h in theorem.hypotheses if h[0] == "fact"]
    goal = dict(context.witness)
    bases = {parse_name(name).base: value for name, value in goal.items()}
    for _ in range(HALVINGS):
        if are_at_least_0(
            facts, Frame(model, _choose_system(model), context, choose_instances(context, None))
        ):
            return model
        parameters = {n: (x + goal[n]) / 2 if n in goal else x for n, x in model.parameters.items()}
        rewards = {
            n: [(x + bases[n]) / 2 for x in row] if n in bases else row for n, row in model.rewards.items()
        }
        model = replace(model, parameters=parameters, rewards=rewards)
    raise UsageError("oracle: no model found on which the facts hold that the theorem assumes")


def _with_premises(theorem: Theorem, model: FiniteModel, functions: Functions) -> FiniteModel:
    context = theorem.statement.context
    positive = {h[1] for h in theorem.hypotheses if h[0] == "positive"}
    signed = {name: abs(v) if name in positive else v for name, v in model.parameters.items()}
    model, fixed = move_into_regions(replace(model, parameters=signed), list_regions(theorem)), {"n"}
    given_names = {parse_name(name).base for name, _ in context.given}
    for number, (left, right) in enumerate(context.premises):
        gap = left - right
        spoken = {n for e in walk_elements(gap) for n in e.names()}
        if given_names & {parse_name(name).base for name in spoken}:
            continue
        names = spoken & set(context.parameters)
        unknown = sorted(names - fixed or names)
        plain = not any(True for _ in walk_atoms(gap))
        if unknown and (plain or (number in list_used_premises(theorem) and len(unknown) == 1)):
            model = with_root(
                model, unknown[-1], partial(evaluate_side, gap), theorem, functions=functions, plain=plain
            )
            fixed |= {unknown[-1]}
    return model


def list_regions(theorem: Theorem) -> list[tuple[str, ExpPoly]]:
    """Return where the theorem assumes that a function of k1 and w is at least 0."""
    return [(str(h[1]), h[2]) for h in theorem.hypotheses if h[0] == "nonnegative"]


def list_used_premises(theorem: Theorem) -> list[int]:
    """Return the premises that are used at one theta, for their values."""
    return [h[1] for h in theorem.hypotheses if h[0] == "equal"]


def choose_thetas(theorem: Theorem) -> tuple[float, ...]:
    everywhere = any(h[0] == "premise" for h in theorem.hypotheses)
    return THETAS if everywhere or not list_used_premises(theorem) else THETAS[:1]


def with_root(
    model: FiniteModel,
    name: str,
    function: Callable[[Frame], Sized],
    theorem: Theorem,
    functions: Functions,
    plain: bool = False,
) -> FiniteModel:
    """Return the model with the root of a function that is affine in one parameter; as it was if there is
    none.

    plain: the function is one of parameters alone, so that rational ones have a rational root.
    """
    context = theorem.statement.context
    functions_by_name, system = (
        choose_instances(context, functions),
        EXACT if plain and model.exact else FLOAT,
    )

    def evaluate_at(at: int) -> Any:
        number = function(
            Frame(with_parameter(model, name, Fraction(at)), system, context, functions_by_name)
        ).value
        return number.value.lower if system is EXACT else float(np.real(number))

    value_at_1, value_at_2 = evaluate_at(1), evaluate_at(2)
    return (
        with_parameter(model, name, 1 - value_at_1 / (value_at_2 - value_at_1))
        if value_at_2 != value_at_1
        else model
    )


# ---------------------------------------------------------------------------- other models
def change_probabilities(model: FiniteModel) -> list[Any]:
    """Return the probabilities q, changed everywhere but at the outcome."""
    path, probabilities = model.layout.paths[model.outcome], list[Any]()
    for node in model.layout.nodes:
        q, places_on_path = (
            model.q[node],
            [branch - node.start for branch in path if node.start <= branch < node.stop],
        )
        probabilities += _shift_row(q, places_on_path[0]) if places_on_path else [*q[1:], q[0]]
    return probabilities


def _shift_row(q: Any, x: int) -> list[Any]:
    remaining = [value for y, value in enumerate(q) if y != x]
    remaining = [*remaining[1:], *remaining[:1]]
    return [*remaining[:x], q[x], *remaining[x:]]


def with_first_kept(model: FiniteModel) -> FiniteModel:
    """Return the model with a mask that keeps the first token of every sequence."""
    pairs = zip(model.rewards["M"], model.layout.before, strict=True)
    return replace(
        model, rewards={**model.rewards, "M": [x if before else Fraction(1) for x, before in pairs]}
    )


def with_equal_rewards(model: FiniteModel, R: float, A: float) -> FiniteModel:
    """Return the model with the same rewards for all; a sequence earns R with its first token."""
    first = [float(R) if not before else 0.0 for before in model.layout.before]
    return replace(model, rewards={**model.rewards, "R": first, "A": [A] * model.size})


# ---------------------------------------------------------------------------- regions
def is_inside(model: FiniteModel, region: ExpPoly, place: str) -> bool:
    """Is the function of k1 and w at least 0: at the sample, or at each outcome of a full-support model?

    >>> from klsym.language.convert import to_ring
    >>> from klsym.language.expressions import k1
    >>> model = FiniteModel(q=["1/2", "1/2"], p=["1/4", "3/4"], u=[1, 0])
    >>> is_inside(model, to_ring(2 * k1 + 1), "mu"), is_inside(model, to_ring(3 * k1 + 1), "mu")
    (True, False)
    """
    values = np.real(Frame(model, FLOAT, Context(), {}).whole.evaluate_element(region).value)
    return bool(values[model.outcome] >= 0 if place == SAMPLE else np.min(values) >= 0)


def move_into_regions(model: FiniteModel, regions: Iterable[tuple[str, ExpPoly]]) -> FiniteModel:
    """Return the model with p and mu moved towards q, by halves, until it lies in every region.

    regions: pairs (place, function of k1 and w that is positive at q = p = mu).  Exact models stay exact.
    Raises UsageError: no such model is found.
    """
    regions = list(regions)
    for _ in range(HALVINGS):
        if all(is_inside(model, region, place) for place, region in regions):
            return model
        model = replace(
            model, p=_compute_midpoint(model.p, model.q), mu=_compute_midpoint(model.mu or model.q, model.q)
        )
    raise UsageError("oracle: no model near q = p = mu lies in the region of the theorem")


def _compute_midpoint(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [(x + y) / 2 for x, y in zip(a, b, strict=True)]
