"""Derivations: chains that read like the proof on paper and end as certificates.  Untrusted.

>>> from klsym.engine.quantities import KL, expected_gradient, grad, mu, p, q
>>> from klsym.language import k3, rho
>>> proof = expected_gradient(rho * k3, under=mu)
>>> proof = derive(proof).differentiate().change_measure(to=q).equals(grad(KL(q, p)))
>>> proof.theorem.kind, proof.trust
('proved', 'kernel')
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from klsym.convert import to_ring
from klsym.engine.inequalities import data_elements, filled, inequality, positive_terms, premises
from klsym.engine.quantities import Quantity, quantity
from klsym.engine.reduce import Move, Step, make_step, reduction
from klsym.engine.witness import find_model, speaks_of_steps
from klsym.errors import NotInRing, ProofError, Refused, UsageError
from klsym.kernel import Theorem, certify
from klsym.kernel.batches import SIZES
from klsym.kernel.closing import CLOSINGS, is_foreign, partial, score_coefficient
from klsym.names import SAMPLE_BASES, parse_name
from klsym.normal_form import ExpPoly
from klsym.render.formulas import SidedLabels
from klsym.render.latex import ProofView
from klsym.render.text import show_side
from klsym.statements import (
    Context,
    ExpectedGradient,
    IndexedGradient,
    PointGradient,
    Side,
    Statement,
    elements,
)

BATCH_SLOTS = (*SIZES, "self", "other")


def derive(start: Quantity, **setting: Any) -> Derivation:
    """Start a derivation from its left side.

    setting: on_policy (the sampler mu is q, detached), given ({R: value at every sample}),
    premises (pairs of quantities equal for every theta), parameters (names that must count as
    parameters though the left side does not hold them).
    """
    if not isinstance(start, Quantity):
        kind = type(start).__name__
        raise UsageError(
            f"derive: a quantity such as expectation(...) or grad(KL(q, p)) expected, got {kind}"
        )
    given = tuple(sorted((str(n), to_ring(v)) for n, v in setting.pop("given", {}).items()))
    premises = tuple((quantity(a), quantity(b)) for a, b in setting.pop("premises", ()))
    on_policy = bool(setting.pop("on_policy", False))
    if setting:
        raise ProofError(f"derive: unknown setting {sorted(setting)}")
    context = Context(
        functions=_functions(start, *(item for pair in premises for item in pair)),
        on_policy=on_policy,
        given=given,
        premises=tuple((a.side, b.side) for a, b in premises),
    )
    labels = {
        k: v for item in (start, *(i for pair in premises for i in pair)) for k, v in item.labels.items()
    }
    sides = (start.side, *(side for pair in context.premises for side in pair))
    context = _with_parameters(context, [e for side in sides for e in elements(side)])
    return Derivation(context, start.side, (), labels)


def _functions(*quantities: Quantity) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(sorted({n: a for item in quantities for n, a in item.functions.items()}.items()))


def _with_parameters(context: Context, found: Iterable[ExpPoly]) -> Context:
    """Declare as parameters all names that are neither sample variables nor generic functions.

    n, the size of a batch, is one wherever the slots of a batch are spoken of.
    """
    names = {n for element in found for n in element.names()}
    names |= {"n" for n in names if parse_name(n).slot in BATCH_SLOTS}
    names |= {n for _, value in context.given for n in value.names()}
    known = (*SAMPLE_BASES, *context.function_arguments)
    new = {n for n in names if parse_name(n).base not in known}
    return replace(context, parameters=tuple(sorted(new | set(context.parameters))))


@dataclass(frozen=True, repr=False)
class Derivation:
    """Where the left side starts, and the moves (step, side after it) that brought it on."""

    context: Context
    start: Side
    moves: tuple[Move, ...]
    labels: dict[ExpPoly, Any]

    @property
    def left(self) -> Side:
        """The left side so far."""
        return _after(self.start, self.moves)

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for step, _ in self.moves)

    # -- steps on the left side ------------------------------------------------------------
    def step(self, rule: str, term: int = 0, factor: int = 0, **data: Any) -> Derivation:
        """Apply one rule of the kernel to one atom."""
        move = make_step(self.left, self.context, "left", term, factor, rule, data)
        return replace(self, moves=(*self.moves, move))

    def _everywhere(self, kinds: tuple[type, ...], rule: str) -> Derivation:
        current = self
        for _ in range(len(self.left.terms) + 8):
            places = [
                (i, j)
                for i, (_, atoms) in enumerate(current.left.terms)
                for j, atom in enumerate(atoms)
                if isinstance(atom, kinds)
            ]
            if not places:
                return current
            current = current.step(rule, *places[0])
        return current

    def differentiate(self) -> Derivation:
        """grad L = (dL/dlog q) s with sg(.) held constant, then sg dropped."""
        done = self._everywhere((ExpectedGradient, PointGradient, IndexedGradient), "chain rule")
        if done is self:
            raise ProofError(f"differentiate: no gradient of a loss in {self.left_text}")
        return done.drop_stop_gradients()

    def drop_stop_gradients(self) -> Derivation:
        current = self
        for i, (_, atoms) in enumerate(self.left.terms):
            for j, atom in enumerate(atoms):
                names = {n for e in elements(Side.atom(atom)) for n in e.names()}
                if any(parse_name(n).detached for n in names if self.context.is_sample(n)):
                    current = current.step("stop-gradient", i, j)
        return current

    def unfold(self, term: int = 0, factor: int = 0) -> Derivation:
        return self.step("definition", term, factor)

    def log_derivative(self, term: int = 0) -> Derivation:
        return self.step("log-derivative", term)

    def change_measure(self, to: str, term: int = 0, factor: int = 0, part: Any = None) -> Derivation:
        """E_m[a] = E_to[a m/to]."""
        return self.step("change of measure", term, factor, to=to, **_part(part))

    def drop_score_mean(self, part: Any = None, term: int = 0) -> Derivation:
        """E_q[c s] = 0 for a constant c."""
        return self.step("score mean zero", term, **_part(part))

    def normalise(self, part: Any = None, term: int = 0, factor: int = 0) -> Derivation:
        return self.step("normalisation", term, factor, **_part(part))

    def ratio_mean_one(self, of: str, part: Any = None, term: int = 0, factor: int = 0) -> Derivation:
        return self.step("ratio mean one", term, factor, of=of, **_part(part))

    def on_policy(self, term: int = 0) -> Derivation:
        return self.step("on-policy", term)

    def put_in_given(self, term: int = 0) -> Derivation:
        return self.step("given", term)

    def use_premise(self, number: int = 0, term: int = 0) -> Derivation:
        return self.step("premise", term, number=number)

    def reduce(self) -> Derivation:
        """All remaining steps to the canonical form."""
        return replace(self, moves=(*self.moves, *reduction(self.left, self.context)))

    def __repr__(self) -> str:
        return self.left_text

    @property
    def left_text(self) -> str:
        """The left side so far, as text."""
        return _text(self.left, self.labels)

    # -- endings ---------------------------------------------------------------------------
    def equals(self, right: Any, by: str = "ring equality", using: Iterable[Any] = ()) -> Proof:
        """The left side equals the right one; what is left to do is filled in on both.

        by="evaluation" leaves it to the kernel to put in definitions, constants and ratio means.
        using: pairs (number of a premise F = G, multiple m) where right - left is a sum of m (F - G); for
        a premise between parameters, such as n = m + 1, None stands for the multiple that it takes.
        """
        if by == "evaluation" or using:
            return self._compare(right, "=", {"by": "evaluation", "premises": premises(using)})
        if by != "ring equality":
            raise UsageError(f"equals by={by!r}: known are ring equality and evaluation")

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            if left != other:
                raise ProofError(f"the two sides differ: {_both(left, other)}")
            return {"by": "ring equality"}

        return self._end(right, "=", close, meet=True)

    def at_most(self, right: Any, by: str, **data: Any) -> Proof:
        """left <= right, for right - left is a positive sum of what is never negative.

        by="tangent": terms (c, place, v, u) are c E_m[exp(v) (exp(u) - 1 - u)].
        by="sum of squares": terms (c, place, v, b, f, k) are c f^2 E_m[exp(v) (b s^k)^2]; f = 1, k = 0.
        by="square": b, measure, power k and scale c stand for c (E_m[(b s^k)^2] - E_m[b s^k]^2).
        The place is q, p, mu or "sample"; a term may be a dict.  using: premises, as in `equals`.
        A square given as a dict may hold "nonnegative": a function of k1 and w that multiplies it, and
        that the theorem assumes to be at least 0 wherever the place has mass: the region it speaks of.
        """
        return self._compare(right, "<=", inequality(by, data))

    def at_most_iff(self, right: Any, parameter: Any, is_: Any, terms: Iterable[Any]) -> Proof:
        """left <= right at one sample for every r > 0 if and only if the parameter has this value.

        terms: dicts with u (a tangent) or b (a square), of which right - left is then a sum.
        """
        value = to_ring(is_).to_json()
        written = {"parameter": str(parameter), "value": value, "terms": positive_terms(terms)}
        return self._compare(right, "<=", {"by": "contact", **written})

    def _compare(self, right: Any, relation: str, written: dict[str, Any]) -> Proof:
        """Close with data that the author gave, on the sides as they are or in canonical form."""

        def refusal(left: Side, other: Side, context: Context) -> str:
            try:
                CLOSINGS[written["by"]].verify(
                    left,
                    other,
                    filled(written, left, other, context),
                    Statement(left, other, context, relation),
                )
            except (Refused, NotInRing) as error:
                return str(error)
            return ""

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            reason = refusal(left, other, context)
            if reason:
                differ = "the two sides differ" in reason or "[[" in reason
                shown = f"the two sides differ by no such {written['by']}: {_both(left, other)}"
                raise ProofError(shown if differ else f"{written['by']}: {reason}")
            return filled(written, left, other, context)

        def done(left: Side, other: Side, context: Context) -> bool:
            return not refusal(left, other, context)

        return self._end(right, relation, close, *data_elements(written), done=done)

    def differs_from(self, right: Any, relation: str = "=", model: dict[str, Any] | None = None) -> Proof:
        """Refute left = right (or left <= right) by an explicit finite model."""

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            return find_model(Statement(left, other, context, relation), model)

        return self._end(right, relation, close)

    def iff(self, function: str, is_: Any, constants: tuple[Any, ...], coordinate: str = "k1") -> Proof:
        """left = 0 for all q, p, mu if and only if the generic function is this family."""
        family = to_ring(is_)

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            c = score_coefficient(left, other)
            return solve(c, function, family, [str(a) for a in constants], coordinate, context)

        return self._end(0, "=", close, family, whole=True)

    def is_no_combination(self) -> Proof:
        """left is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)]."""

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            return {
                "by": "independence",
                "term": foreign_term(score_coefficient(left, other), context).to_json(),
            }

        return self._end(0, "=", close, whole=True)

    def _end(
        self,
        right: Any,
        relation: str,
        close: Any,
        *more: ExpPoly,
        meet: bool = False,
        done: Any = None,
        whole: bool = False,
    ) -> Proof:
        """Bring both sides into canonical form and close; whole: sequences are not taken apart into steps."""
        other = quantity(right)
        merged = dict(self.context.functions) | dict(other.functions)
        context = replace(self.context, functions=tuple(sorted(merged.items())))
        context = _with_parameters(context, [*elements(other.side), *more])
        left, right_moves = self.moves, tuple[Move, ...]()
        if done is None or not done(self.left, other.side, context):
            steps = not whole and speaks_of_steps(self.start, other.side)
            left = (*self.moves, *reduction(self.left, context, stepwise=steps))
            right_moves = tuple(reduction(other.side, context, "right", steps))
        if meet:  # a refutation evaluates both sides in canonical form
            left, right_moves = _meet(self, left, other.side, right_moves)
        part = {
            "context": context.to_json(),
            "relation": relation,
            "left": self.start.to_json(),
            "right": other.side.to_json(),
            "steps": [step for step, _ in (*left, *right_moves)],
            "close": close(_after(self.start, left), _after(other.side, right_moves), context),
        }
        try:
            return Proof(*certify(part), _written(self, other))
        except Refused as refusal:
            raise ProofError(f"the derivation does not hold: {refusal}") from None


def _written(chain: Derivation, right: Quantity) -> dict[ExpPoly, Any]:
    """How losses were written: by the right side, unless the left side is the same function."""
    labels = {**chain.labels, **right.labels}
    if chain.start != right.side or not chain.labels:
        return labels
    return SidedLabels({**right.labels, **chain.labels}, labels)


def _meet(
    chain: Derivation, left: tuple[Move, ...], start: Side, right: tuple[Move, ...]
) -> tuple[tuple[Move, ...], tuple[Move, ...]]:
    """Leave out the filled-in moves beyond the first place where the two sides agree."""
    ups = [start, *(side for _, side in right)]
    downs = [chain.start, *(side for _, side in left)]
    for i in range(len(chain.moves), len(downs)):
        if downs[i] in ups:
            return left[:i], right[: ups.index(downs[i])]
    return left, right


def _after(start: Side, moves: tuple[Move, ...]) -> Side:
    return moves[-1][1] if moves else start


def _text(side: Side, labels: dict[ExpPoly, Any] | None = None) -> str:
    return show_side(side, labels)


def _both(left: Side, right: Side) -> str:
    return f"the left one is {_text(left)}, the right one {_text(right)}"


def _part(part: Any) -> dict[str, Any]:
    return {} if part is None else {"part": to_ring(part).to_json()}


def solve(
    c: ExpPoly,
    function: str,
    family: ExpPoly,
    constants: list[str],
    coordinate: str,
    context: Context,
) -> dict[str, Any]:
    """The data of a completeness step: the unit that turns dc/dv = 0 into g^(n) = h."""
    order = len(constants)
    top = function + "'" * order
    condition = partial(c, coordinate, context)
    leading = [ExpPoly({key: value}) for key, value in condition.terms.items() if top in dict(key[0])]
    if len(leading) != 1:
        raise ProofError(f"iff: dc/d{coordinate} holds no single term in {top}")
    unit = leading[0].inverse() * ExpPoly.variable(top)
    close = {"by": "completeness", "function": function, "family": family.to_json(), "order": order}
    return {**close, "unit": unit.to_json(), "coordinate": coordinate, "constants": constants}


def foreign_term(c: ExpPoly, context: Context) -> ExpPoly:
    """A term of c that is neither a reward nor a multiple of k1 or r; raises ProofError if there is none."""
    for key, value in sorted(c.terms.items()):
        term = ExpPoly({key: value})
        if is_foreign(term, context):
            return term
    raise ProofError("the coefficient is a combination of k1, r and rewards")


@dataclass(frozen=True, repr=False)
class Proof(ProofView):
    """A finished derivation: its certificate part, and the theorem that the kernel's replay gave."""

    part: dict[str, Any]
    theorem: Theorem
    labels: dict[ExpPoly, Any]

    @property
    def trust(self) -> str:
        """kernel: a proof exists only once the kernel has replayed it."""
        return "kernel"
