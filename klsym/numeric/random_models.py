"""The models that a statement is judged on, and what the hypotheses of a theorem allow of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.names import SAMPLE, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import SECOND
from klsym.kernel.statements import LOG
from klsym.language.abbreviations import (
    Context,
    Curl,
    Mean,
    MeanGradient,
    MeanVariance,
    Statement,
    TokenDivergence,
    atoms_of,
    elements,
)
from klsym.numeric.definitions import are_at_least_0, are_clear, are_positive
from klsym.numeric.evaluation import THETAS
from klsym.numeric.indices import STRUCTURES
from klsym.numeric.model_variables import Frame, Functions
from klsym.numeric.models import COUNTS, FiniteModel, random_model, random_tree
from klsym.numeric.number_systems import EXACT, FLOAT, Sized, System
from klsym.numeric.sides import instances, side_value

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


def needs_of(statement: Statement) -> Needs:
    """What the models of a statement must have.

    >>> from klsym.language.abbreviations import Side, TokenDivergence
    >>> needs_of(Statement(Side.atom(TokenDivergence("q", "q", "p")), Side()))
    Needs(sequences=True, batches=False)
    """
    context = statement.context
    sides = [statement.left, statement.right, *(side for pair in context.premises for side in pair)]
    atoms = [*atoms_of(*sides)]
    indexed = [STRUCTURES[atom.index] for atom in atoms if isinstance(atom, Mean | MeanGradient)]
    batches = any(i.others for i in indexed) or any(isinstance(a, MeanVariance) for a in atoms)
    second = any(entry.endswith(SECOND) for atom in atoms for entry in getattr(atom, "score", ()))
    named = any(isinstance(atom, TokenDivergence | Curl) for atom in atoms)
    written = [*(a for side in sides for a in elements(side)), *(value for _, value in context.given)]
    parts = [*context.within(*written)]
    names = {name for part in parts for name in part.names() if name not in context.parameters}
    lengths = any(parse_name(name).base == "length" for name in names)
    steps = any(i.steps for i in indexed) or any(parse_name(name).slot != "x" for name, _ in context.given)
    return Needs(named or second or lengths or steps, batches)


def models_for(statement: Statement, seeds: Iterable[int], exact: bool = False) -> list[FiniteModel]:
    """Random models that a statement can be evaluated on, one for each seed.

    Trees for what speaks of sequences; 2 or 3 outcomes and a batch size n of 2 or 3 for what speaks of
    batches, small trees for batches of sequences; 2 to 6 outcomes for the rest.

    >>> from klsym.language.abbreviations import Side, TokenDivergence
    >>> statement = Statement(Side.atom(TokenDivergence("q", "q", "p")), Side())
    >>> [max(model.lengths) for model in models_for(statement, range(3))]
    [3, 3, 3]
    """
    needs, context = needs_of(statement), statement.context
    return [_model(needs, context, seed, exact) for seed in seeds]


def _model(needs: Needs, context: Context, seed: int, exact: bool) -> FiniteModel:
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
    """The model with another value of a parameter."""
    return replace(model, parameters={**model.parameters, name: value})


# ---------------------------------------------------------------------------- what a theorem allows
def allowed(theorem: Theorem, model: FiniteModel, functions: Functions) -> FiniteModel:
    """The model in the region of the theorem, with parameters that the hypotheses allow: positive ones,
    and one for each premise, such as m where n = m + 1; the batch size n stays.  What is given makes the
    premises hold that name it.  Facts hold, and no sample lies on a bound that the hypotheses exclude.

    Raises UsageError: no such model is found.
    """
    context, bounds, inside = theorem.statement.context, bounds_of(theorem), logs_of(theorem)
    asked = bounds or inside
    model = with_first_kept(model) if any("M" in e.names() for e in inside) else model
    known = instances(context, functions) if asked else {}
    for attempt in range(ATTEMPTS if asked else 1):
        found = _with_premises(theorem, _with_facts(theorem, shifted(model, attempt, context)), functions)
        frame = Frame(found, _system(found), context, known)
        if not asked or (are_positive(inside, frame) and are_clear(bounds, frame)):
            return found
    raise UsageError("oracle: every model that was tried has samples where the theorem excludes them")


def bounds_of(theorem: Theorem) -> list[ExpPoly]:
    """What is 0 at no sample, by the hypotheses of the theorem."""
    return list(dict.fromkeys(h[2] for h in theorem.hypotheses if h[0] in ("away", "off", "apart")))


def logs_of(theorem: Theorem) -> list[ExpPoly]:
    """Return the elements that are positive at every sample: by a hypothesis, or as their log has a name."""
    statement = theorem.statement
    told = statement.context.within(*elements(statement.left), *elements(statement.right))
    logs = (statement.context.defined(name, LOG) for e in told for name in sorted(e.names()))
    named = [e for e in logs if e is not None and statement.context.speaks_of(e) <= {"x"}]
    return list(dict.fromkeys([*(h[2] for h in theorem.hypotheses if h[0] == "above"), *named]))


def _system(model: FiniteModel) -> System:
    return EXACT if model.exact else FLOAT


def shifted(model: FiniteModel, attempt: int, context: Context) -> FiniteModel:
    """The model with other parameters, rewards and densities p, mu and old; attempt 0 leaves it as it is."""
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
        n: _mixed(row, step / k, model) for k, (n, row) in enumerate(densities.items(), 1) if row
    }
    return replace(model, rewards=rewards, parameters=parameters, **mixed)


def _mixed(row: Sequence[Any], step: Fraction, model: FiniteModel) -> list[Any]:
    """At each node, a mixture with probabilities that rise from branch to branch."""
    found = list[Any]()
    for node in model.layout.nodes:
        values = row[node]
        total = len(values) * (len(values) + 1) // 2
        found += [(1 - step) * x + step * Fraction(k, total) for k, x in enumerate(values, 1)]
    return found


def _with_facts(theorem: Theorem, model: FiniteModel) -> FiniteModel:
    """The model moved towards the witness of the context, by halves, until the facts assumed hold."""
    context, facts = theorem.statement.context, [h[1] for h in theorem.hypotheses if h[0] == "fact"]
    goal = dict(context.witness)
    bases = {parse_name(name).base: value for name, value in goal.items()}
    for _ in range(HALVINGS):
        if are_at_least_0(facts, Frame(model, _system(model), context, instances(context, None))):
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
    model, fixed = drawn_into(replace(model, parameters=signed), regions_of(theorem)), {"n"}
    given = {parse_name(name).base for name, _ in context.given}
    for number, (left, right) in enumerate(context.premises):
        gap = left - right
        spoken = {n for e in elements(gap) for n in e.names()}
        if given & {parse_name(name).base for name in spoken}:
            continue
        names = spoken & set(context.parameters)
        unknown = sorted(names - fixed or names)
        plain = not any(True for _ in atoms_of(gap))
        if unknown and (plain or (number in used_here(theorem) and len(unknown) == 1)):
            model = rooted(model, unknown[-1], partial(side_value, gap), theorem, functions, plain)
            fixed |= {unknown[-1]}
    return model


def regions_of(theorem: Theorem) -> list[tuple[str, ExpPoly]]:
    """Where the theorem assumes that a function of k1 and w is at least 0."""
    return [(str(h[1]), h[2]) for h in theorem.hypotheses if h[0] == "nonnegative"]


def used_here(theorem: Theorem) -> list[int]:
    """The premises that are used at one theta, for their values."""
    return [h[1] for h in theorem.hypotheses if h[0] == "equal"]


def thetas_of(theorem: Theorem) -> tuple[float, ...]:
    everywhere = any(h[0] == "premise" for h in theorem.hypotheses)
    return THETAS if everywhere or not used_here(theorem) else THETAS[:1]


def rooted(
    model: FiniteModel,
    name: str,
    function: Callable[[Frame], Sized],
    theorem: Theorem,
    functions: Functions,
    plain: bool = False,
) -> FiniteModel:
    """The model with the root of a function that is affine in one parameter; as it was if there is none.

    plain: the function is one of parameters alone, so that rational ones have a rational root.
    """
    context = theorem.statement.context
    known, system = instances(context, functions), EXACT if plain and model.exact else FLOAT

    def value(at: int) -> Any:
        found = function(Frame(with_parameter(model, name, Fraction(at)), system, context, known)).value
        return found.value.lower if system is EXACT else float(np.real(found))

    one, two = value(1), value(2)
    return with_parameter(model, name, 1 - one / (two - one)) if two != one else model


# ---------------------------------------------------------------------------- other models
def turned(model: FiniteModel) -> list[Any]:
    """The probabilities q, changed everywhere but at the outcome."""
    path, found = model.layout.paths[model.outcome], list[Any]()
    for node in model.layout.nodes:
        q, kept = model.q[node], [branch - node.start for branch in path if node.start <= branch < node.stop]
        found += _turned(q, kept[0]) if kept else [*q[1:], q[0]]
    return found


def _turned(q: Any, x: int) -> list[Any]:
    rest = [value for y, value in enumerate(q) if y != x]
    rest = [*rest[1:], *rest[:1]]
    return [*rest[:x], q[x], *rest[x:]]


def with_first_kept(model: FiniteModel) -> FiniteModel:
    """The model with a mask that keeps the first token of every sequence."""
    pairs = zip(model.rewards["M"], model.layout.before, strict=True)
    return replace(
        model, rewards={**model.rewards, "M": [x if before else Fraction(1) for x, before in pairs]}
    )


def levelled(model: FiniteModel, R: float, A: float) -> FiniteModel:
    """The model with the same rewards for all; a sequence earns R with its first token."""
    first = [float(R) if not before else 0.0 for before in model.layout.before]
    return replace(model, rewards={**model.rewards, "R": first, "A": [A] * model.size})


# ---------------------------------------------------------------------------- regions
def inside(model: FiniteModel, region: ExpPoly, place: str) -> bool:
    """Is the function of k1 and w at least 0: at the sample, or at each outcome of a full-support model?

    >>> from klsym.language.convert import to_ring
    >>> from klsym.language.expressions import k1
    >>> model = FiniteModel(q=["1/2", "1/2"], p=["1/4", "3/4"], u=[1, 0])
    >>> inside(model, to_ring(2 * k1 + 1), "mu"), inside(model, to_ring(3 * k1 + 1), "mu")
    (True, False)
    """
    values = np.real(Frame(model, FLOAT, Context(), {}).whole.polynomial(region).value)
    return bool(values[model.outcome] >= 0 if place == SAMPLE else np.min(values) >= 0)


def drawn_into(model: FiniteModel, regions: Iterable[tuple[str, ExpPoly]]) -> FiniteModel:
    """The model with p and mu moved towards q, by halves, until it lies in every region.

    regions: pairs (place, function of k1 and w that is positive at q = p = mu).  Exact models stay exact.
    Raises UsageError: no such model is found.
    """
    regions = list(regions)
    for _ in range(HALVINGS):
        if all(inside(model, region, place) for place, region in regions):
            return model
        model = replace(model, p=_halfway(model.p, model.q), mu=_halfway(model.mu or model.q, model.q))
    raise UsageError("oracle: no model near q = p = mu lies in the region of the theorem")


def _halfway(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [(x + y) / 2 for x, y in zip(a, b, strict=True)]
