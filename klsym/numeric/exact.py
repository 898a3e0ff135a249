"""The exact oracle: what theorems say, judged on models, from what statements literally mean.

It shares nothing with the rules that prove statements: `evaluation` says how they are evaluated, and
`random_models` on which models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.intervals import Interval
from klsym.kernel.names import SAMPLE, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Divergence, Gradient, Side, Statement, as_side, walk_elements
from klsym.numeric.evaluation import (
    THETAS,
    TOLERANCE,
    Agreement,
    check_premises,
    compute_gap,
    enclose,
    evaluate,
    evaluate_sides,
    measure_agreement,
)
from klsym.numeric.model_variables import Frame, Functions
from klsym.numeric.models import COUNTS, FiniteModel, from_certificate
from klsym.numeric.number_systems import FLOAT, Sized, refuse_unless
from klsym.numeric.random_models import (
    change_probabilities,
    choose_thetas,
    draw_models,
    find_allowed_model,
    find_needs,
    list_regions,
    with_equal_rewards,
    with_parameter,
    with_root,
)
from klsym.numeric.sides import build_default_function, choose_instances, evaluate_side

if TYPE_CHECKING:  # a theorem is data here
    from klsym.language.unfolding import Theorem

WIDTH = Fraction(1, 10**15)  # of the enclosure of left - right
SEPARATION = 1e-6  # relative difference of sides that are not

__all__ = [
    "THETAS", "Agreement", "Check", "build_default_function", "check_premises", "check_theorem",
    "choose_thetas", "draw_models", "enclose", "evaluate", "find_allowed_model", "list_regions",
    "measure_agreement",
]  # fmt: skip


@dataclass(frozen=True)
class Check:
    """What a check of a theorem found: did it pass, what was measured, and one line of text."""

    passed: bool
    kind: str
    measured: Mapping[str, float]
    text: str


def check_theorem(
    theorem: Theorem, seeds: Iterable[int] = range(8), functions: Functions | None = None
) -> Check:
    """Judge what a theorem says by this oracle, on random models (`draw_models`).

    proved       the relation holds to 1e-10, and in enclosures 1e-15 wide, on models in its region; an
                 inequality is an equality exactly where the terms of its proof vanish
    refuted      its own model separates the sides, in enclosures
    unique       equality for the family, and for no other function that is tried
    independent  least squares on grad KL(q||p) and grad KL(p||q) leaves a residual

    >>> from klsym.engine.proof.derivation import derive
    >>> from klsym.engine.proof.quantities import KL, expected_gradient, grad
    >>> from klsym.language.expressions import k3
    >>> proof = derive(expected_gradient(k3, under="q")).equals(grad(KL("p", "q")))
    >>> check_theorem(proof.theorem).passed
    True

    seeds: one random model each.  functions: as in `evaluate`; others than the theorem's are left out.
    Raises UsageError: premises that the functions do not satisfy; never for a claim that fails.
    """
    seeds, declared = list(seeds), theorem.statement.context.function_arguments
    functions = {n: instance for n, instance in (functions or {}).items() if n in declared}
    match theorem.kind:
        case "proved":
            return _check_proved(theorem, seeds, functions)
        case "refuted":
            return _check_refuted(theorem)
        case "unique":
            return _check_unique(theorem, seeds)
        case "independent":
            return _check_independent(theorem, seeds)
    raise UsageError(f"oracle: unknown kind of theorem {theorem.kind!r}")


def _check_proved(theorem: Theorem, seeds: list[int], functions: Functions) -> Check:
    statement, equal = theorem.statement, theorem.statement.relation == "="
    models = [find_allowed_model(theorem, m, functions) for m in draw_models(statement, seeds)]
    agreement = measure_agreement(statement, models, functions, choose_thetas(theorem))
    measured = agreement.difference if equal else max(agreement.excess, 0.0)
    passed, width, enclosed = measured <= TOLERANCE, 0.0, 0
    exact = all(isinstance(functions.get(name), ExpPoly) for name, _ in statement.context.functions)
    for model in draw_models(statement, (1, 3) if exact else (), exact=True):
        model = find_allowed_model(theorem, model, functions)
        if not model.exact:
            continue
        holds, wide = _check_enclosure(statement, model, functions)
        passed, width, enclosed = passed and holds, max(width, wide), enclosed + 1
    quantity = "difference" if equal else "excess"
    text = f"largest relative {quantity} {measured:.1e} over {agreement.models} models"
    text += f", enclosures {width:.1e} wide on {enclosed}" if enclosed else ""
    if theorem.zeros:
        special = _list_special_models(theorem, models, functions)
        wrong = sum(not _is_equal_where_claimed(theorem, m, functions) for m in special)
        passed, text = passed and not wrong, text + f", equality misjudged on {wrong}"
    return Check(passed, "proved", {"difference": measured, "width": width}, text)


def _list_special_models(
    theorem: Theorem, models: list[FiniteModel], functions: Functions
) -> Iterator[FiniteModel]:
    """Yield the models, those in which densities or parameters agree, and those in which a factor is zero."""
    context = theorem.statement.context
    premises = [element for pair in context.premises for side in pair for element in walk_elements(side)]
    bound = {name for element in premises for name in element.names()}
    bound |= {"n"} if find_needs(theorem.statement).batches else set()
    free = sorted(set(context.parameters) - bound)
    for model in models:
        yield model
        mu = model.mu if not context.on_policy else model.q
        for p, sampler in (
            (model.q, mu),
            (model.p, model.q),
            (model.q, model.q),
            (change_probabilities(model), mu),
        ):
            yield find_allowed_model(theorem, replace(model, p=p, mu=sampler), functions)
        for name in free:
            for value in {1, *model.parameters.values()}:
                yield find_allowed_model(theorem, with_parameter(model, name, value), functions)
        for zero in theorem.zeros:
            for name in sorted(zero.factor.names() & set(free)):
                yield with_root(
                    model, name, partial(_evaluate_constant, zero.factor), theorem, functions=functions
                )


def _evaluate_constant(a: ExpPoly, at: Frame) -> Sized:
    return at.whole.evaluate_element(a).select(0)


def _is_equal_where_claimed(theorem: Theorem, model: FiniteModel, functions: Functions) -> bool:
    """Are the sides equal on this model if and only if every row of the inequality vanishes there?"""
    statement = theorem.statement
    at = Frame(model, FLOAT, statement.context, choose_instances(statement.context, functions))
    gap = -compute_gap(
        *evaluate_sides(statement, model, functions, system=FLOAT, thetas=choose_thetas(theorem))
    )
    return abs(gap) <= TOLERANCE if all(_is_row_zero(zero, at) for zero in theorem.zeros) else gap > TOLERANCE


def _is_row_zero(zero: Any, at: Frame) -> bool:
    """Is f = 0, or the element times scores 0 at the sample or at each outcome, or constant?"""
    values = at.whole.evaluate_element(zero.element)
    for _ in zero.score:
        values = values * at.whole.get_score()
    numbers = np.real(values.value)
    if zero.measure == SAMPLE:
        numbers = numbers[at.model.outcome]
    elif zero.constant:
        numbers = numbers - numbers[0]
    factor = at.whole.evaluate_element(zero.factor).select(0).value
    return bool(np.max(np.abs(numbers)) * abs(factor) <= TOLERANCE)


def _check_enclosure(
    statement: Statement, model: FiniteModel, functions: Functions | None
) -> tuple[bool, float]:
    """Does the enclosure of left - right allow the relation, and how wide is it, relatively?"""
    left, right = enclose(statement, model, functions)
    gap = left + right * Interval.from_number(-1)
    scale = max(Fraction(1), abs(left.lower), abs(right.lower))
    wide = (gap.upper - gap.lower) / scale
    allowed = gap.lower <= 0 and (gap.upper >= 0 or statement.relation == "<=")
    return allowed and wide < WIDTH, float(wide)


def _check_refuted(theorem: Theorem) -> Check:
    statement = theorem.statement
    sides = (statement.left, statement.right)
    named = {parse_name(name) for side in sides for part in walk_elements(side) for name in part.names()}
    unknown = any(name.base == "A" and name.slot in ("others", "rest") for name in named)
    refuse_unless(not unknown, "no model records the A of several samples of a batch")
    left, right = enclose(statement, from_certificate(theorem.close["model"]))
    above, below = left.lower > right.upper, left.upper < right.lower
    gap = float(max(left.lower - right.upper, right.lower - left.upper))
    text = f"the sides are {gap:.3g} apart on the recorded model"
    return Check(above or (below and statement.relation == "="), "refuted", {"gap": gap}, text)


def _check_unique(theorem: Theorem, seeds: list[int]) -> Check:
    """Check that other functions fail for every value of the parameters that the hypotheses allow."""
    statement, name = theorem.statement, theorem.close["function"]
    family = ExpPoly.from_json(theorem.close["family"])
    models = draw_models(statement, seeds)
    family_gap = measure_agreement(statement, models, {name: family}).difference
    settings = {"": models}
    for parameter in sorted(_list_possible_zeros(theorem) - family.collect_divisors()):
        settings[f" when {parameter} = 0"] = [with_parameter(m, parameter, 0) for m in models]
    apart, where = min(
        (measure_agreement(statement, values, {name: function}).difference, label)
        for label, values in settings.items()
        for function in _list_other_functions(family, int(theorem.close["order"]))
    )
    text = f"family: largest relative difference {family_gap:.1e}; others: at least {apart:.1e}{where}"
    passed = family_gap <= TOLERANCE and apart >= SEPARATION
    return Check(passed, "unique", {"difference": family_gap, "others": apart}, text)


def _list_possible_zeros(theorem: Theorem) -> set[str]:
    """Return the parameters of the equation that no hypothesis makes nonzero."""
    nonzero = {item[1] for item in theorem.hypotheses if item[0] == "nonzero"}
    free = {*theorem.close["constants"], *COUNTS}
    return set(theorem.statement.context.parameters) - nonzero - free


def _list_other_functions(family: ExpPoly, order: int) -> list[ExpPoly]:
    """Return functions that are not the family plus a combination of 1, ..., k1^(order - 1)."""
    k1 = ExpPoly.from_variable("k1")
    changes = [
        k1 ** max(order, 3) * Fraction(3, 10), k1**order * Fraction(1, 2),
        (k1 * Fraction(1, 2)).exp() * Fraction(1, 3), (-k1).exp() * Fraction(1, 5),
    ]  # fmt: skip
    combination = all(
        dict(monomial).get("k1", 0) < order and not any("k1" in dict(m) for m, _ in exponent)
        for monomial, exponent in family.terms
    )
    return [family + change for change in changes] + ([] if combination else [ExpPoly({})])


def _check_independent(theorem: Theorem, seeds: list[int]) -> Check:
    """Check that one pair (a, b) for all models, with the same parameters, leaves a residual.

    Rewards are constant over outcomes, so that E_q[h(R) s] = 0, but differ between models, so that
    R k1 is no multiple of k1.
    """
    statement, rows, sizes = theorem.statement, [], []
    targets = [Side.from_atom(Gradient(as_side(Divergence("KL", a, b)))) for a, b in ("qp", "pq")]
    models = draw_models(statement, seeds)
    for number, model in enumerate(models):
        level = with_equal_rewards(model, R=1 + number / 3, A=2 - number / 5)
        for shift in range(3):
            u = [*level.u[shift:], *level.u[:shift]]
            shifted = replace(level, u=u, parameters=models[0].parameters)
            left, right = evaluate_sides(statement, shifted, None, FLOAT)
            at = Frame(shifted, FLOAT, statement.context, {})
            both = (evaluate_side(target, at) for target in targets)
            rows.append([left.value - right.value, *(side.value for side in both)])
            sizes.append(left.size + right.size)
    table, scale = np.real(rows), float(np.linalg.norm(sizes))
    fit = np.linalg.lstsq(table[:, 1:], table[:, 0], rcond=None)[0]
    residual_norm = float(np.linalg.norm(table[:, 0] - table[:, 1:] @ fit))
    residual = residual_norm / scale if scale else 0.0
    text = f"relative residual {residual:.1e} of a fit by both KL gradients on {len(rows)} rows"
    return Check(residual >= SEPARATION, "independent", {"residual": residual}, text)
