"""Which of two gradient estimates a s and b s varies less, and where.  Untrusted.

    Var_m a s - Var_m b s = E_m[(a^2 - b^2) s^2] - (E_m[a s]^2 - E_m[b s]^2)

The last bracket is 0 where the expected gradients agree, so at each sample (a - b)(a + b) says which one
adds more.  An order for all models is proved by squares and tangents; models show that there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from fractions import Fraction
from functools import cached_property, partial
from itertools import chain
from typing import Any

from klsym.engine.proof.counterexamples import describe_model, generate_models
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.float_screen import is_plainly_at_most
from klsym.engine.proof.quantities import Quantity
from klsym.engine.proof.shown_counterexample import collect_used_names, is_at_one_sample
from klsym.engine.regions.positivity import (
    Rows,
    SignSplit,
    find_multiple,
    find_positive_sum,
    split_difference_of_squares,
)
from klsym.errors import NotInRing, ProofError
from klsym.kernel.assumptions import Hypothesis
from klsym.kernel.closings import REGION
from klsym.kernel.models import Model, enclose
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context
from klsym.language.abbreviations import E, Point, Side
from klsym.language.convert import to_sympy
from klsym.language.expressions import COUNTS
from klsym.language.unfolding import expand_context
from klsym.notation.text import show_statement
from klsym.records import record
from klsym.worlds.draw import list_uneven_models

TWICE = ("x", "x")


@record
class Estimate:
    """The gradient a s of a loss at a sample, and the theorem grad L = a s."""

    coefficient: ExpPoly
    proof: Proof


@record
class Pair:
    """The coefficients of two estimates under the sampler m.

    exact: the kernel proved that the means agree.  scored: of a s and b s; otherwise of values a and b.
    """

    a: ExpPoly
    b: ExpPoly
    m: str
    exact: bool
    scored: bool = True

    @property
    def score_power(self) -> int:
        """The power of the score: 1 if gradients a s are compared, 0 if values a are."""
        return int(self.scored)

    @cached_property
    def split(self) -> SignSplit:
        """a^2 - b^2 in factors, whose signs say where b^2 <= a^2."""
        return split_difference_of_squares(self.a, self.b)

    @property
    def gap(self) -> Quantity:
        """E_m[(a^2 - b^2) s^2]."""
        return Quantity(
            Side.from_atom(E(self.m, self.a * self.a - self.b * self.b, TWICE * self.score_power))
        )

    def build_mean(self, a: ExpPoly) -> Quantity:
        return Quantity(Side.from_atom(E(self.m, a, ("x",) * self.score_power)))

    def build_second_moment(self, a: ExpPoly) -> Quantity:
        return Quantity(Side.from_atom(E(self.m, a * a, TWICE * self.score_power)))

    def build_variance(self, a: ExpPoly) -> Quantity:
        return self.build_second_moment(a) - self.build_mean(a) * self.build_mean(a)

    def build_compared(self, a: ExpPoly) -> Quantity:
        """What an order at each sample speaks of: variances where the means agree."""
        return self.build_variance(a) if self.exact else self.build_second_moment(a)

    def prove_identity(self) -> Proof:
        """The difference of the variances."""
        right = self.gap
        if not self.exact:
            squares = [self.build_mean(x) * self.build_mean(x) for x in (self.a, self.b)]
            right = right - (squares[0] - squares[1])
        return derive(self.build_variance(self.a) - self.build_variance(self.b)).equals(right)


@record
class Spread:
    """How the variances of a s (loss A) and b s (loss B) compare.

    lower: the loss with the lower variance in every model ("A", "B"), "equal", "depends" (both happen), or
    "open".  regional: what is proved in a region, where `regional_lower` has the lower variance (or, unless
    the means agree, the lower second moment).  signs: factors of a^2 - b^2 that are nowhere negative.
    a_less, b_less: models in which one varies less.
    """

    pair: Pair
    lower: str
    order: tuple[Proof, ...]
    regional: Proof | None
    regional_lower: str
    signs: tuple[Proof, ...]
    a_less: Proof | None
    b_less: Proof | None
    base: tuple[Proof, ...]

    @property
    def exact(self) -> bool:
        """Do the expected gradients agree?  Then the order of the second moments is that of the variances."""
        return self.pair.exact

    @property
    def assumed(self) -> Hypothesis | None:
        """The region of `regional`, a hypothesis of nothing else: ("nonnegative", m, element)."""
        known = self.regional.theorem.hypotheses if self.regional else ()
        return next((row for row in known if row[0] == REGION), None)

    @property
    def proofs(self) -> tuple[Proof, ...]:
        found = (*self.base, *self.order, *self.signs, self.regional, self.a_less, self.b_less)
        return tuple(proof for proof in found if proof)


def compare_variances(a: Estimate, b: Estimate, m: str, exact: bool, scored: bool = True) -> Spread:
    """How the variances compare; m, exact, scored: as of a `Pair`."""
    pair = Pair(a.coefficient, b=b.coefficient, m=m, exact=exact, scored=scored)
    lower, order = _prove_order(pair)
    regional, regional_lower = (None, "") if order else _prove_in_region(pair)
    signs = () if order else _prove_signs(pair)
    a_less, b_less = (None, None) if lower != "open" else _find_models(pair)
    if a_less and b_less:
        lower = "depends"
    base = (a.proof, b.proof, pair.prove_identity())
    return Spread(
        pair,
        lower,
        order,
        regional,
        regional_lower=regional_lower,
        signs=signs,
        a_less=a_less,
        b_less=b_less,
        base=base,
    )


# ---------------------------------------------------------------------------- an order for all models
def _prove_order(pair: Pair) -> tuple[str, tuple[Proof, ...]]:
    """The loss with the lower variance in every model, and the theorems that say so."""
    equal = _try_proof(lambda: derive(pair.build_variance(pair.a)).equals(pair.build_variance(pair.b)))
    if equal:
        return "equal", equal
    for name, low, high in (("A", pair.a, pair.b), ("B", pair.b, pair.a)):
        proofs = _prove_proportional(pair, low, high)
        if not proofs and pair.exact:
            proofs = _prove_by_sum(pair, low, high)
        if proofs:
            return name, proofs
    return "open", ()


def _try_proof(build: Any) -> tuple[Proof, ...]:
    try:
        proofs = build()
    except (ProofError, NotInRing):
        return ()
    return proofs if isinstance(proofs, tuple) else (proofs,)


def _prove_proportional(pair: Pair, low: ExpPoly, high: ExpPoly) -> tuple[Proof, ...]:
    """low = c high with a number |c| < 1: the variances differ by (1 - c^2) Var_m."""
    c = find_multiple(low, high)
    if not high or high * c != low or c * c >= 1:
        return ()
    row = {
        "at": pair.m, "variance": to_sympy(high), "power": pair.score_power,
        "scale": to_sympy(ExpPoly.from_number(1 - c * c)),
    }  # fmt: skip
    return _try_proof(lambda: derive(pair.build_variance(low)).at_most(pair.build_variance(high), rows=[row]))


def _prove_by_sum(pair: Pair, low: ExpPoly, high: ExpPoly) -> tuple[Proof, ...]:
    """high^2 - low^2 as squares alone, in the mean; with tangents, at each sample."""
    rows = find_positive_sum(high * high - low * low)
    if rows is None:
        return ()
    if not rows.tangents:
        terms = [{**row, "at": pair.m, "power": pair.score_power} for row in rows.squares]
        return _try_proof(
            partial(_prove_by_squares, pair.build_compared(low), pair.build_compared(high), terms)
        )
    return _try_proof(lambda: _prove_at_sample(high * high - low * low, rows))


def _prove_at_sample(gap: ExpPoly, rows: Rows) -> tuple[Proof, ...]:
    """0 <= gap, the sum of the rows."""
    shown = [{**row, "at": "sample"} for row in (*rows.squares, *rows.tangents)]
    return (derive(Quantity(Side())).at_most(Quantity(Side.from_atom(Point(gap))), rows=shown),)


# ---------------------------------------------------------------------------- where
def _prove_in_region(pair: Pair) -> tuple[Proof | None, str]:
    """The order in the region that the sign of a^2 - b^2 at each sample names, if it holds q = p = mu."""
    split = pair.split
    for name, remainder, low, high in (
        ("B", split.remainder, pair.b, pair.a),
        ("A", -split.remainder, pair.a, pair.b),
    ):
        row = {
            "at": pair.m, "power": pair.score_power, "b": to_sympy(split.root),
            "nonnegative": to_sympy(remainder),
            "scale": to_sympy(ExpPoly.from_number(split.scale)), "v": to_sympy(_take_logarithm(split.unit)),
        }  # fmt: skip
        proofs = _try_proof(
            partial(_prove_by_squares, pair.build_compared(low), pair.build_compared(high), [row])
        )
        if proofs:
            return proofs[0], name
    return None, ""


def _prove_by_squares(low: Quantity, high: Quantity, terms: list[Any]) -> Proof:
    return derive(low).at_most(high, rows=terms)


def _prove_signs(pair: Pair) -> tuple[Proof, ...]:
    """The order of the second moments for all models; else 0 <= f for the factors that the region drops."""
    for low, high in ((pair.a, pair.b), (pair.b, pair.a)):
        proofs = _prove_by_sum(pair, low, high)
        if proofs:
            return proofs
    for factor in pair.split.signed_factors:
        rows = find_positive_sum(factor)
        proofs += _prove_at_sample(factor, rows) if rows else ()
    return proofs


def _take_logarithm(unit: ExpPoly) -> ExpPoly:
    [(_, exponent)] = unit.terms
    return ExpPoly({(monomial, ()): value for monomial, value in exponent})


# ---------------------------------------------------------------------------- models
def _find_models(pair: Pair) -> tuple[Proof | None, Proof | None]:
    """Models in which A, and in which B, varies less; the first that is found of each."""
    a, b = (derive(pair.build_variance(x)) for x in (pair.a, pair.b))
    context = expand_context(derive(pair.build_variance(pair.a) - pair.build_variance(pair.b)).context)
    ends = (a.reduce().left, b.reduce().left)
    known = {"A": ends, "B": (ends[1], ends[0])}  # floats tell where the order is one that has been found
    refutations: dict[str, Proof] = {}
    for model in _iterate_models(context, {"R", "A"} & (pair.a.names() | pair.b.names())):
        read = Model.from_json(model, context)
        if any(is_plainly_at_most(*known[name], read) for name in refutations):
            continue
        try:
            left, right = (enclose(end, read) for end in ends)
        except ProofError:  # a power beyond what is enclosed
            break
        if left.upper < right.lower and "A" not in refutations:
            refutations["A"] = b.differs_from(pair.build_variance(pair.a), relation="<=", model=model)
        if right.upper < left.lower and "B" not in refutations:
            refutations["B"] = a.differs_from(pair.build_variance(pair.b), relation="<=", model=model)
        if len(refutations) == 2:
            break
    return refutations.get("A"), refutations.get("B")


def _iterate_models(context: Context, rewards: Set[str]) -> Iterator[dict[str, Any]]:
    """Yield models on which an order of the two variances may fail.

    Batch sizes and lengths are whole numbers.  An order can depend on the sign of rewards: both are tried.
    """
    tried = chain(
        generate_models(context),
        list_uneven_models(context.parameters),
        map(_negate_rewards, generate_models(context)) if rewards else (),
    )
    for number, model in enumerate(tried):
        counts = {name: str(2 + number % 3) for name in context.parameters if name in COUNTS}
        yield {**model, "parameters": {**model["parameters"], **counts}}


def _negate_rewards(model: dict[str, Any]) -> dict[str, Any]:
    """The same model with every reward times -1."""
    tree = model["tree"]
    rewards = {name: [str(-Fraction(x)) for x in row] for name, row in tree["rewards"].items()}
    return {**model, "tree": {**tree, "rewards": rewards}}


def describe_outcome_model(proof: Proof) -> dict[str, Any]:
    """The model of a refutation, less what the statement does not mention."""
    close, statement = proof.theorem.close, proof.theorem.statement
    refuted = show_statement(statement, proof.labels)
    shown = describe_model(
        refuted, close["model"], close["left"], right=close["right"], used=collect_used_names(statement)
    )
    return {**shown, "outcome": close["model"]["outcome"]} if is_at_one_sample(statement) else shown
