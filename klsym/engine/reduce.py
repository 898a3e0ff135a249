"""The strategy: which rule brings a side one step closer to its canonical form.  Untrusted.

The canonical form holds expectations under q alone, E_q[c s] with the constant of c dropped and
E_q[v] with constants, multiples of r and of 1/rho evaluated.  The kernel replays what is proposed.

>>> from klsym.normal_form import ExpPoly
>>> from klsym.statements import Divergence, Gradient
>>> side = Side.atom(Gradient(Side.atom(Divergence("KL", "q", "p"))))
>>> [step["rule"] for step, _ in reduction(side, Context())]
['definition', 'log-derivative', 'chain rule', 'score mean zero']
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.engine.reduce_indexed import into_steps, rule_at_index
from klsym.errors import ProofError
from klsym.kernel import apply_step
from klsym.kernel.derivatives import density_ratio
from klsym.names import parse_name
from klsym.normal_form import ExpPoly
from klsym.statements import (
    Atom,
    Bregman,
    Context,
    Covariance,
    Curl,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Indexed,
    IndexedGradient,
    MeanVariance,
    Point,
    PointGradient,
    Side,
    TokenDivergence,
)

MAX_STEPS = 500
UNFOLDED = {TokenDivergence: "tower", Curl: "curl", MeanVariance: "variance of a mean"}
Step = dict[str, Any]
Move = tuple[Step, Side]


def reduction(side: Side, context: Context, which: str = "left", stepwise: bool = False) -> Iterator[Move]:
    """The steps that bring `side` into canonical form, each with the side that it gives.

    stepwise: whole-sequence quantities become sums over t, to be compared with such sums.
    """
    for _ in range(MAX_STEPS):
        proposal = propose(side, context, stepwise)
        if proposal is None:
            return
        term, factor, rule, data = proposal
        step, side = make_step(side, context, which, term, factor, rule, data)
        yield step, side
    raise ProofError(f"no canonical form after {MAX_STEPS} steps: is a gradient of a gradient meant?")


def make_step(
    side: Side, context: Context, which: str, term: int, factor: int, rule: str, data: Step
) -> Move:
    """One step, its result computed by the kernel's own rule."""
    step: Step = {"rule": rule, "side": which, "term": term, "factor": factor, "data": data}
    result, _ = apply_step({which: side}, step, context)
    return {**step, "result": result.to_json()}, result


def propose(side: Side, context: Context, stepwise: bool = False) -> tuple[int, int, str, Step] | None:
    for term, (_, atoms) in enumerate(side.terms):
        for factor, atom in enumerate(atoms):
            found = _rule_for(atom, context) or (into_steps(atom) if stepwise else None)
            if found:
                return term, factor, *found
    return None


def _rule_for(atom: Atom, context: Context) -> tuple[str, Step] | None:
    match atom:
        case Divergence() | Covariance() | Bregman():
            return "definition", {}
        case ExpectedGradient() | PointGradient() | IndexedGradient():
            return "chain rule", {}
        case TokenDivergence() | Curl() | MeanVariance():
            return UNFOLDED[type(atom)], {}
        case Indexed():
            return _rule_for_values(atom.coefficient, context) or rule_at_index(atom, context)
        case Gradient(of):
            return _rule_for_gradient(atom, of, context)
        case E(_, a, _) | Point(a, _):
            return _rule_for_values(a, context) or (
                _rule_for_expectation(atom, context) if isinstance(atom, E) else None
            )
    return None


def _rule_for_gradient(atom: Gradient, of: Side, context: Context) -> tuple[str, Step]:
    for number, (left, _) in enumerate(context.premises):
        if left == of:
            return "premise", {"number": number}
    atoms = [atom for _, factors in of.terms for atom in factors]
    if atoms and all(isinstance(a, Divergence) for a in atoms):
        return "definition", {}
    single = len(of.terms) == 1 and len(atoms) == 1 and isinstance(atoms[0], E | Indexed | TokenDivergence)
    if single and isinstance(atoms[0], TokenDivergence):
        return "tower", {}
    return ("log-derivative" if single else "linearity"), {}


def _rule_for_values(a: ExpPoly, context: Context) -> tuple[str, Step] | None:
    names = a.names()
    if any(context.is_sample(name) and parse_name(name).detached for name in names):
        return "stop-gradient", {}
    if names & {name for name, _ in context.given}:
        return "given", {}
    weighted = any(context.is_sample(name) and parse_name(name).base == "w" for name in names)
    return ("on-policy", {}) if context.on_policy and weighted else None


def _rule_for_expectation(atom: E, context: Context) -> tuple[str, Step] | None:
    if context.on_policy and atom.measure == "mu":
        return "on-policy", {}
    if len(atom.score) > 1:
        return None
    if not atom.score:
        return _evaluate(atom, context)
    if atom.measure != "q":
        return "change of measure", {"to": "q"}
    constant = part_of(atom.coefficient, context, ExpPoly.number(1))
    return ("score mean zero", _part(constant, atom)) if constant else None


def _evaluate(atom: E, context: Context) -> tuple[str, Step] | None:
    """E_m[c] = c, E_m[c m'/m] = c, and the rest under q."""
    if atom.measure != "count":
        constant = part_of(atom.coefficient, context, ExpPoly.number(1))
        if constant:
            return "normalisation", _part(constant, atom)
        for other in ("q", "p", "mu"):
            if other != atom.measure and not (context.on_policy and other == "mu"):
                part = part_of(atom.coefficient, context, density_ratio(other, atom.measure))
                if part:
                    return "ratio mean one", {"of": other, **_part(part, atom)}
    return ("change of measure", {"to": "q"}) if atom.measure != "q" else None


def _part(part: ExpPoly, atom: E) -> Step:
    return {} if part == atom.coefficient else {"part": part.to_json()}


def part_of(a: ExpPoly, context: Context, pattern: ExpPoly) -> ExpPoly:
    """The terms of `a` that are a constant times the single term `pattern`."""
    back = pattern.inverse()
    terms = {}
    for key, value in a.terms.items():
        if context.is_constant(ExpPoly({key: value}) * back):
            terms[key] = value
    return ExpPoly(terms)
