"""The judge of klsym on losses over sequences: what its rules make of a loss, against plain enumeration.

`examine` lets klsym reduce the expected gradient of a loss to its canonical form by the rules of its kernel,
evaluates that form on trees of tokens, and returns one line for each disagreement with the oracle.
`compare` asks of many losses whether equal forms and equal gradients are the same thing.
"""

from __future__ import annotations

import ast
import copy
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import sympy

from klsym import calculus
from klsym.engine.proof.reduction import Strategy, reduce_side
from klsym.errors import KlsymError
from klsym.kernel import check, read
from klsym.language import expressions as language
from klsym.language.unfolding import expand_context
from support.losses import token_loss_oracle as oracle
from support.losses.random_losses import Quantity

AGREE = 1e-11  # relative to the sum of the absolute values of all that is added up
DIFFER = 1e-9  # a misfit between the two is no answer, and is complained about
CHANGE = Fraction(1, 100)  # of one coefficient, in the negative control
NOTHING = 1e-20  # what is smaller is the square of the complex step
CERTIFIED = 4  # one loss in so many
SEED, TREES = 20260, 4
Form = list[Any]  # a side of a statement as JSON


@cache
def trees(sampling: str) -> oracle.Trees:
    """The same trees for every loss; on-policy and off-policy they differ in mu alone."""
    return oracle.random_trees(SEED, TREES, on_policy=sampling == "on-policy")


# ---------------------------------------------------------------------------- into klsym
NAMES = {name: getattr(language, name) for name in ("log_q", "log_p", "log_mu", "k1", "k2", "k3", "r", "rho")}
NAMES |= {name: getattr(language, name) for name in ("R", "A", "length", "beta", "lam")}
NAMES |= {"w": language.log_q - language.log_mu}
CALLS = {"sg": language.sg, "past": language.past, "now": language.now, "future": language.future}
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}


def quantity(case: Quantity) -> calculus.Quantity:
    """The expected gradient of a loss, as klsym writes it."""
    loss = _written(ast.parse(case.text, mode="eval").body)
    if case.kind == "token":
        return calculus.token_gradient(loss, under=case.under)
    if case.kind == "reward":
        return calculus.sum_over_t(calculus.sg(loss) * calculus.now(calculus.s), under=case.under)
    return calculus.expected_gradient(loss, under=case.under)


def _written(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value):
            return sympy.Integer(value)
        case ast.Name(name):
            return NAMES[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -_written(operand)
        case ast.BinOp(left, operator, right):
            return BINARY[type(operator)](_written(left), _written(right))
        case ast.Call(ast.Name(function), [argument]):
            return CALLS[function](_written(argument))
    raise ValueError(f"not in the loss grammar: {ast.dump(node)}")


def derivation(case: Quantity) -> calculus.Derivation:
    return calculus.derive(quantity(case), on_policy=case.sampling == "on-policy")


def in_steps(reduced: calculus.Derivation) -> Form:
    """The canonical form, what it holds of whole sequences as sums over t: to be compared with such sums."""
    left = reduced.left
    for _, side in reduce_side(left, expand_context(reduced.context), strategy=Strategy(stepwise=True)):
        left = side
    return left.to_json()


# ---------------------------------------------------------------------------- one loss
@dataclass(frozen=True)
class Outcome:
    """A loss, its exact gradient, its canonical form in steps, and all that is wrong with it."""

    case: Quantity
    gradient: oracle.Vector
    form: Form | None = None  # None: klsym refuses the loss
    complaints: tuple[str, ...] = ()
    errors: dict[str, float] = field(default_factory=dict)  # of the form, in steps, and of a changed one


def examine(case: Quantity, certified: bool = False) -> Outcome:
    """Let klsym reduce a loss and judge the result; a refusal and a crash are complaints too."""
    exact = oracle.expected_gradient(case.kind, case.text, trees(case.sampling), case.under)
    try:
        reduced = derivation(case).reduce()
        form, steps = reduced.left.to_json(), in_steps(reduced)
        errors = {
            name: distance(oracle.score_form(side, trees(case.sampling)), exact)
            for name, side in (("form", form), ("in steps", steps), ("changed", changed(form, case)))
        }
        replay = list(_certificate(case, reduced)) if certified else []
    except KlsymError as error:
        return Outcome(case, exact, complaints=(f"refused: {type(error).__name__}: {error}",))
    except Exception as error:
        return Outcome(case, exact, complaints=(f"crashed: {type(error).__name__}: {error}",))
    return Outcome(case, exact, steps, (*_misfits(errors), *replay), errors)


def distance(one: oracle.Vector, other: oracle.Vector) -> float:
    """The largest difference on any tree, relative to what is added up there."""
    size = (one.size + other.size).max(axis=-1, keepdims=True)
    return float((np.abs(one.value - other.value) / (size + NOTHING)).max())


def _misfits(errors: dict[str, float]) -> Iterator[str]:
    for name, error in errors.items():
        if name == "changed":
            if not error > DIFFER:
                yield f"changed: a wrong coefficient is off by {error:.1e} only"
        elif not error < AGREE:
            yield f"{name}: off by {error:.1e} of the terms"


def changed(form: Form, case: Quantity) -> Form:
    """One coefficient of the form off by a hundredth; of nothing, a hundredth of sum_t k1 s_t."""
    if not form:
        return [[[["1", {}]], [["Mean", "t", "q", [[str(CHANGE), {"k1[now]": 1}]], ["now"]]]]]
    form, stream = copy.deepcopy(form), random.Random(case.text)
    _, [atom] = stream.choice(form)
    term = stream.choice(atom[-2])
    term[0] = str(Fraction(term[0]) * (1 + CHANGE))
    return form


def _certificate(case: Quantity, reduced: calculus.Derivation) -> Iterator[str]:
    """Gradient = canonical form is a certificate, which replays from its JSON text alone."""
    proof = derivation(case).equals(calculus.Quantity(reduced.left))
    [kind] = [theorem.kind for theorem in check(read(json.dumps(proof.certificate())))]
    if kind != "proved":
        yield f"certificate: {kind}"


# ---------------------------------------------------------------------------- many losses
@dataclass(frozen=True)
class Comparison:
    """How far the canonical form is complete: equal forms if and only if equal gradients.

    forms, gradients: how many different ones.  worst: the largest distance under one form.
    missed: pairs of losses with equal gradients and different forms, one for each form too many.
    undecided: pairs whose distance lies between the bounds.
    """

    forms: int
    gradients: int
    worst: float
    missed: tuple[tuple[Outcome, Outcome], ...]
    undecided: tuple[tuple[Outcome, Outcome], ...]


def compare(outcomes: Sequence[Outcome]) -> Comparison:
    """Every pair of losses, on-policy and off-policy alike: a form under q holds all that matters."""
    families: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.form is not None:
            families[json.dumps(outcome.form, sort_keys=True)].append(outcome)
    worst = max((distance(o.gradient, f[0].gradient) for f in families.values() for o in f), default=0.0)
    firsts = [family[0] for family in families.values()]
    missed, undecided, later = [], [], set[int]()
    for i, j in _near(firsts):
        error = distance(firsts[i].gradient, firsts[j].gradient)
        if AGREE < error < DIFFER:
            undecided.append((firsts[i], firsts[j]))
        elif error <= AGREE and j not in later:
            later.add(j)
            missed.append((firsts[i], firsts[j]))
    return Comparison(len(firsts), len(firsts) - len(missed), worst, tuple(missed), tuple(undecided))


def _near(outcomes: Sequence[Outcome]) -> Iterator[tuple[int, int]]:
    """The pairs i < j that are close along one random direction."""
    if not outcomes:
        return
    shape = outcomes[0].gradient.value.shape
    along = np.random.default_rng(SEED).uniform(-1, 1, size=shape)
    places = np.array([(o.gradient.value * along).sum() for o in outcomes])
    reach = np.array([o.gradient.size.max(axis=-1).sum() for o in outcomes]) * DIFFER * shape[1]
    for i in range(len(outcomes)):
        gap = np.abs(places[i + 1 :] - places[i])
        yield from ((i, i + 1 + int(j)) for j in np.nonzero(gap <= reach[i + 1 :] + reach[i])[0])
