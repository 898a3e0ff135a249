"""Derivations: chains that read like the proof on paper and end as certificates.  Untrusted.

>>> from klsym.engine.proof.quantities import KL, expected_gradient, grad, mu, p, q
>>> from klsym.language.expressions import k3, rho
>>> proof = expected_gradient(rho * k3, under=mu)
>>> proof = derive(proof).differentiate().change_measure(to=q).equals(grad(KL(q, p)))
>>> proof.theorem.kind, proof.trust
('proved', 'kernel')
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from klsym.engine.proof import inequalities
from klsym.engine.proof.completeness_data import find_foreign_term, solve_for_family
from klsym.engine.proof.lemmas import collect_cited_parts, prove_lemmas
from klsym.engine.proof.quantities import Quantity, choose_labels, to_quantity
from klsym.engine.proof.reduction import Move, RuleStep, Strategy, make_step, reduce_side
from klsym.engine.proof.sequence_quantities import has_steps
from klsym.errors import ProofError, Refused, UsageError
from klsym.kernel import EQUATION, FORMAT, certify, digest
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.batches import SIZES
from klsym.kernel.closings import read_row
from klsym.kernel.meta import read_score_coefficient
from klsym.kernel.names import HELD, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import MeanGradient
from klsym.kernel.statements import Statement as Plain
from klsym.language.abbreviations import Context, Side, Statement, walk_elements
from klsym.language.convert import to_ring
from klsym.language.defined import OF_LOGS
from klsym.language.expressions import OF_REGIONS
from klsym.language.unfolding import (
    PLAIN,
    Theorem,
    check_setting,
    expand_context,
    list_given_means,
    unfold,
)
from klsym.notation.text import ProofView, show_side

BATCH_SLOTS = (*SIZES, "self", "other")


class SidesDiffer(ProofError):
    """Two sides reach different forms, which are printed only on demand."""

    def __init__(self, left: Side, right: Side) -> None:
        super().__init__(left, right)

    def __str__(self) -> str:
        left, right = map(show_side, self.args)
        return f"the two sides differ: the left one is {left}, the right one {right}"


def derive(start: Quantity, **setting: Any) -> Derivation:
    """Start a derivation from its left side.

    setting: on_policy (the sampler mu is q, detached), given ({R: value at every sample}),
    premises (pairs of quantities equal for every theta), defined (a context), apart (no sample is on a tie).
    """
    if not isinstance(start, Quantity):
        expected = "a quantity such as expectation(...) or grad(KL(q, p))"
        raise UsageError(f"derive: {expected} expected, got {type(start).__name__}")
    given = tuple(sorted((str(n), to_ring(v)) for n, v in setting.pop("given", {}).items()))
    premises = tuple((to_quantity(a), to_quantity(b)) for a, b in setting.pop("premises", ()))
    on_policy, defined = bool(setting.pop("on_policy", False)), setting.pop("defined", PLAIN)
    apart = setting.pop("apart", False)
    if setting:
        raise ProofError(f"derive: unknown setting {sorted(setting)}")
    named = (start, *(item for pair in premises for item in pair))
    context = Context(
        functions=tuple(sorted({n: a for item in named for n, a in item.functions.items()}.items())),
        on_policy=on_policy,
        given=given,
        premises=tuple((a.side, b.side) for a, b in premises),
        definitions=defined.definitions,
        facts=defined.facts,
        witness=defined.witness,
    )
    labels = {k: v for item in named for k, v in item.labels.items()}
    context = _add_parameters(context, [e for item in named for e in walk_elements(item.side)])
    check_setting(context)
    return Derivation(context, start.side, (), labels, apart=apart)


def _add_parameters(context: Context, elements: Iterable[ExpPoly]) -> Context:
    """Declare as parameters all names that are neither sample variables nor generic functions nor defined.

    n, the size of a batch, is a parameter if there are slots of a batch.
    """
    names = {n for element in elements for n in element.names()}
    names |= {"n" for n in names if parse_name(n).slot in BATCH_SLOTS}
    values = (*(value for _, value in context.given), *(e for _, _, e in context.definitions), *context.facts)
    names |= {n for element in values for n in element.names()}
    known_names = (*SAMPLE_BASES, *context.function_arguments, *(name for name, _, _ in context.definitions))
    new = {n for n in names if parse_name(n).base not in known_names}
    undefined_names = sorted(n for n in new if n.startswith((OF_REGIONS, OF_LOGS)))
    if undefined_names:
        raise ProofError(f"derive: {undefined_names[0]} is not defined here")
    return replace(context, parameters=tuple(sorted(new | set(context.parameters))))


@dataclass(frozen=True, repr=False)
class Derivation:
    """A left side, and the moves (step, side after it) from it.

    labels: how losses were written; notes: (first move, last move, what the author says they do).
    """

    context: Context
    start: Side
    moves: tuple[Move, ...]
    labels: dict[ExpPoly, Any]
    notes: tuple[tuple[int, int, str], ...] = ()
    apart: bool = False

    @property
    def left(self) -> Side:
        """The current left side, with every abbreviation expanded."""
        return _find_last_side(unfold(self.start, self.context), self.moves)

    @property
    def steps(self) -> tuple[RuleStep, ...]:
        return tuple(step for step, _ in self.moves)

    # -- steps on the left side ------------------------------------------------------------
    def step(self, rule: str, term: int | None = 0, factor: int | None = 0, **data: Any) -> Derivation:
        """Apply one rule of the kernel to one atom."""
        context, known = expand_context(self.context), prove_lemmas().known
        move = make_step(self.left, context, "left", term, factor=factor, rule=rule, data=data, known=known)
        return replace(self, moves=(*self.moves, move))

    def _apply_everywhere(self, kinds: tuple[type, ...], rule: str) -> Derivation:
        current = self
        for _ in range(len(self.left.terms) + 8):
            positions = [
                (i, j)
                for i, (_, atoms) in enumerate(current.left.terms)
                for j, atom in enumerate(atoms)
                if isinstance(atom, kinds)
            ]
            if not positions:
                return current
            current = current.step(rule, *positions[0])
        return current

    def differentiate(self) -> Derivation:
        """grad L = (dL/dlog q) s with sg(.) held constant, then sg dropped."""
        derivation = self._apply_everywhere((MeanGradient,), "chain rule")
        if derivation is self:
            raise ProofError(f"differentiate: no gradient of a loss in {self.left_text}")
        return derivation.drop_stop_gradients()

    def drop_stop_gradients(self) -> Derivation:
        current = self
        for i, (_, atoms) in enumerate(self.left.terms):
            for j, atom in enumerate(atoms):
                names = {n for e in walk_elements(Side.from_atom(atom)) for n in e.names()}
                if any(parse_name(n).detached for n in names if self.context.is_sample(n)):
                    current = current.step("stop-gradient", i, j)
        return current

    def log_derivative(self, term: int = 0) -> Derivation:
        return self.step("log-derivative", term)

    def change_measure(self, to: str, term: int = 0, factor: int = 0, part: Any = None) -> Derivation:
        """E_m[a] = E_to[a m/to]."""
        return self.step("change of measure", term, factor, to=to, **_as_part_data(part))

    def drop_score_mean(self, part: Any = None, term: int = 0, slot: str = "x") -> Derivation:
        """E_q[c s] = 0 for a constant c."""
        return self.step("score mean zero", term, slot=slot, **_as_part_data(part))

    def normalise(self, part: Any = None, term: int = 0, factor: int = 0) -> Derivation:
        return self.step("normalisation", term, factor, **_as_part_data(part))

    def ratio_mean_one(
        self, of: str, part: Any = None, term: int = 0, factor: int = 0, slot: str = "x"
    ) -> Derivation:
        """E_m[c m'/m] = E_m[c]."""
        return self.step("ratio mean one", term, factor, of=of, slot=slot, **_as_part_data(part))

    def use_premise(self, number: int = 0, times: Any = 1, gradient: bool = False) -> Derivation:
        """Add times (G - F) for the premise F = G, or times (grad G - grad F)."""
        multiple = unfold(to_quantity(times).side, self.context).to_json()
        return self.step(EQUATION, None, None, of=number, times=multiple, gradient=int(gradient))

    def reduce(self) -> Derivation:
        """All remaining steps to the canonical form."""
        chain = self._add_given_means(self.left, strategy=Strategy(cited=prove_lemmas()))
        moves = reduce_side(self.left, expand_context(chain.context), strategy=Strategy(cited=prove_lemmas()))
        return replace(chain, moves=(*self.moves, *moves))

    def _add_given_means(self, *sides: Side, strategy: Strategy) -> Derivation:
        """Add premises for the means of H in the canonical forms of these sides, if H is given."""
        chain = self
        while any(parse_name(name).base in HELD for name, _ in chain.context.given):
            plain = expand_context(chain.context)
            moves = (tuple(reduce_side(side, plain, strategy=strategy)) for side in sides)
            ends = map(_find_last_side, sides, moves)
            premises = dict.fromkeys(pair for end in ends for pair in list_given_means(end, chain.context))
            if not (new := [pair for pair in premises if pair not in chain.context.premises]):
                break
            chain = replace(chain, context=replace(chain.context, premises=(*chain.context.premises, *new)))
        return chain

    def to(self, waypoint: Any, by: str) -> Derivation:
        """Bring the left side to the waypoint; `by` says in the author's words how, and is printed there.

        Raises ProofError: the strategy does not pass through it.
        """
        target = unfold(to_quantity(waypoint).side, self.context)
        strategy = Strategy(stepwise=has_steps(self.start, target), cited=prove_lemmas())
        moves = list(reduce_side(self.left, expand_context(self.context), strategy=strategy))
        sides = [self.left, *(side for _, side in moves)]
        if target not in sides:
            side_texts = "; ".join(show_side(side, self.labels) for side in sides)
            raise ProofError(f"to: {show_side(target, self.labels)} is not on the way: {side_texts}")
        derivation = replace(self, moves=(*self.moves, *moves[: sides.index(target)]))
        return replace(derivation, notes=(*self.notes, (len(self.moves), len(derivation.moves), by)))

    @property
    def left_text(self) -> str:
        return show_side(self.left if self.moves else self.start, self.labels)

    def __repr__(self) -> str:
        return self.left_text

    # -- endings ---------------------------------------------------------------------------
    def equals(self, right: Any, using: Iterable[Any] = (), evaluate: bool = False) -> Proof:
        """The left side equals the right one; what is left to do is filled in on both.

        using: pairs (number of a premise F = G, multiple m) where right - left is a sum of m (F - G); for
        a premise between parameters, such as n = m + 1, None stands for the multiple that it takes.
        evaluate: products of means are multiplied out, as they are where premises are used.
        """
        using = list(using)

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            if left != other:
                raise SidesDiffer(left, other)
            return {"by": "equality", "rows": []}

        def prove(whole: bool) -> Proof:
            if using or evaluate:
                return self._compare(right, relation="=", rows=[], using=using, whole=whole)
            return self._close(right, "=", close, meet=True, whole=whole)

        try:
            return prove(whole=False)
        except ProofError:
            if not self.context.given:
                raise
            return prove(whole=True)  # a value over T is no sum over steps: sequences are not taken apart

    def at_most(self, right: Any, rows: Iterable[Any], using: Iterable[Any] = ()) -> Proof:
        """left <= right: right - left is a sum of rows, none of which is ever negative.

        rows: dicts that hold u (c E_m[exp(v) (exp(u) - 1 - u)]), b (c f^2 E_m[exp(v) (b s^k)^2]) or variance
        (c f^2 Var_m(b s^k)); c is scale, m is at (q, p, mu or "sample"), f is factor, k is power.
        A square may hold "nonnegative": a function of k1 and w that multiplies it, and that the theorem
        assumes to be at least 0 wherever m has mass: the region it speaks of.  using: as in `equals`.
        """
        return self._compare(right, "<=", inequalities.read_rows(rows), using)

    def _compare(
        self, right: Any, relation: str, rows: list[Any], using: Iterable[Any], whole: bool = False
    ) -> Proof:
        """Prove a relation: evaluate both sides, after adding the rows and the premises to the left one."""
        right_quantity, uses = to_quantity(right), inequalities.read_premise_multiples(using, self.context)
        multiples = (e for _, times in uses if times for e in walk_elements(times))
        chain = self._declare_names(right_quantity, *inequalities.collect_row_elements(rows), *multiples)
        plain = expand_context(chain.context)
        start = unfold(self.start, chain.context)
        for row in rows:
            start = start + _raise_proof_error(lambda row=row: read_row(row, Assumptions(plain))[0])
        target = unfold(right_quantity.side, chain.context)
        stepwise = not whole and has_steps(self.start, right_quantity.side)
        strategy = Strategy(stepwise=stepwise, evaluate=True, cited=prove_lemmas())
        chain = chain._add_given_means(start, target, strategy=strategy)
        plain, moves = expand_context(chain.context), list[Move]()
        for number, times in inequalities.fill_multiples(
            uses, start, target, context=plain, strategy=strategy
        ):
            data = {"of": number, "times": times.to_json(), "gradient": 0}
            left = _find_last_side(start, tuple(moves))
            moves.append(make_step(left, plain, "left", None, factor=None, rule=EQUATION, data=data))
        moves += reduce_side(_find_last_side(start, tuple(moves)), plain, strategy=strategy)
        right_moves = tuple(reduce_side(target, plain, "right", strategy))
        left, right_side = _find_last_side(start, tuple(moves)), _find_last_side(target, right_moves)
        if left != right_side:
            raise SidesDiffer(left, right_side)
        close = {"by": "equality", "rows": rows}
        proof = chain._certify(right_quantity, relation, tuple(moves), right_moves, close=close)
        return replace(proof, brief=True)

    def differs_from(
        self, right: Any, relation: str = "=", model: dict[str, Any] | None = None, mu_is_q: bool = False
    ) -> Proof:
        """Refute left = right (or left <= right) by a finite model; mu_is_q: one in which mu is q."""
        from klsym.engine.proof.counterexamples import find_model

        steps = has_steps(self.start, to_quantity(right).side)

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            statement = Plain(left, other, expand_context(context), relation)
            return find_model(statement, model, context.on_policy or mu_is_q, steps)

        return self._close(right, relation, close)

    def iff(self, function: str, is_: Any, constants: tuple[Any, ...], coordinate: str = "k1") -> Proof:
        """left = 0 for all q, p, mu if and only if the generic function is this family."""
        family = to_ring(is_)

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            c = read_score_coefficient(left, other)
            names, plain = [str(a) for a in constants], expand_context(context)
            return solve_for_family(c, function, family, names, coordinate=coordinate, context=plain)

        return self._close(0, "=", close, family, whole=True)

    def is_no_combination(self) -> Proof:
        """left is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)]."""

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            """Return a term of c, of E_q[c s], that is neither a reward nor a multiple of k1 or r."""
            term = find_foreign_term(read_score_coefficient(left, other), expand_context(context))
            return {"by": "independence", "term": term.to_json()}

        return self._close(0, "=", close, whole=True)

    def _declare_names(self, other: Quantity, *elements_of_data: ExpPoly) -> Derivation:
        """Declare the functions and parameters of the other side as well."""
        merged = dict(self.context.functions) | dict(other.functions)
        context = replace(self.context, functions=tuple(sorted(merged.items())))
        return replace(
            self, context=_add_parameters(context, [*walk_elements(other.side), *elements_of_data])
        )

    def _close(
        self, right: Any, relation: str, close: Any, *added: ExpPoly, meet: bool = False, whole: bool = False
    ) -> Proof:
        """Bring both sides into canonical form and close; whole: sequences are not taken apart into steps."""
        right_quantity = to_quantity(right)
        stepwise = not whole and has_steps(self.start, right_quantity.side)
        strategy = Strategy(stepwise=stepwise, apart=self.apart, cited=prove_lemmas())
        chain = self._declare_names(right_quantity, *added)
        target = unfold(right_quantity.side, chain.context)
        chain = chain._add_given_means(self.left, target, strategy=strategy)
        context, plain = chain.context, expand_context(chain.context)
        left_moves = (*self.moves, *reduce_side(self.left, plain, strategy=strategy))
        right_moves = tuple(reduce_side(target, plain, "right", strategy))
        start = unfold(self.start, context)
        if meet:  # a refutation evaluates both sides in canonical form
            left_moves, right_moves = _drop_common_moves(self, start, left_moves, target, right=right_moves)
        close_data = close(_find_last_side(start, left_moves), _find_last_side(target, right_moves), context)
        return chain._certify(right_quantity, relation, left_moves, right_moves, close=close_data)

    def _certify(
        self,
        other: Quantity,
        relation: str,
        left_moves: tuple[Move, ...],
        right_moves: tuple[Move, ...],
        close: dict[str, Any],
    ) -> Proof:
        moves = (*left_moves, *right_moves)
        steps = [step for step, _ in moves]
        part = {
            "context": expand_context(self.context).to_json(),
            "relation": relation,
            "left": unfold(self.start, self.context).to_json(),
            "right": unfold(other.side, self.context).to_json(),
            "steps": steps,
            "close": close,
        }
        cited = prove_lemmas() if any(isinstance(step["data"].get("of"), list) for step in steps) else None
        try:
            complete, theorem = certify(part, cited.known if cited else {})
        except Refused as refusal:
            raise ProofError(f"the derivation does not hold: {refusal}") from None
        statement = Statement(self.start, other.side, self.context, relation)
        return Proof(
            complete,
            theorem=Theorem(statement, theorem),
            labels=choose_labels(self.start, self.labels, other, self.context),
            moves=moves,
            notes=self.notes,
        )


def _raise_proof_error(make: Any) -> Any:
    try:
        return make()
    except Refused as refusal:
        raise ProofError(str(refusal)) from None


def _drop_common_moves(
    chain: Derivation, start: Side, left: tuple[Move, ...], target: Side, right: tuple[Move, ...]
) -> tuple[tuple[Move, ...], tuple[Move, ...]]:
    """Drop the automatic moves after the first side on which both derivations agree."""
    right_sides = [target, *(side for _, side in right)]
    left_sides = [start, *(side for _, side in left)]
    for i in range(len(chain.moves), len(left_sides)):
        if left_sides[i] in right_sides:
            return left[:i], right[: right_sides.index(left_sides[i])]
    return left, right


def _find_last_side(start: Side, moves: tuple[Move, ...]) -> Side:
    return moves[-1][1] if moves else start


def _as_part_data(part: Any) -> dict[str, Any]:
    return {} if part is None else {"part": to_ring(part).to_json()}


@dataclass(frozen=True, repr=False)
class Proof(ProofView):
    """A finished derivation: its certificate part, and the theorem that the kernel's replay gave."""

    part: dict[str, Any]
    theorem: Theorem
    labels: dict[ExpPoly, Any]
    moves: tuple[Move, ...]  # its steps, with the sides that they gave
    notes: tuple[tuple[int, int, str], ...] = ()
    brief: bool = False  # both sides evaluated: the chain shows where it starts and ends

    @property
    def trust(self) -> str:
        """kernel: a proof exists only once the kernel has replayed it."""
        return "kernel"

    @cached_property
    def cites(self) -> list[list[Any]]:
        """The parts of the theorems that it cites."""
        return collect_cited_parts([self.part])

    def certificate(self) -> dict[str, Any]:
        """Return the certificate that `klsym check` replays."""
        return {"format": FORMAT, "cites": self.cites, "parts": [self.part], "digest": digest([self.part])}
