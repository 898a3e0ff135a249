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

from klsym.engine.proof.completeness_data import foreign_term, solve
from klsym.engine.proof.counterexamples import find_model, speaks_of_steps
from klsym.engine.proof.inequalities import filled, inequality, premises
from klsym.engine.proof.lemmas import carried, lemmas
from klsym.engine.proof.quantities import Quantity, quantity
from klsym.engine.proof.reduction import Move, RuleStep, Strategy, make_step, reduction
from klsym.errors import ProofError, Refused, UsageError
from klsym.kernel import EQUATION, FORMAT, certify, digest
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.batches import SIZES
from klsym.kernel.closings import read_row
from klsym.kernel.meta import score_coefficient
from klsym.kernel.names import HELD, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import MeanGradient
from klsym.kernel.statements import Statement as Plain
from klsym.language.abbreviations import Context, Side, Statement, elements
from klsym.language.convert import to_ring
from klsym.language.defined import OF_LOGS
from klsym.language.expressions import OF_REGIONS
from klsym.language.unfolding import PLAIN, Theorem, check_setting, live_in, means_given, unfold, written_out
from klsym.notation.formulas import SidedLabels
from klsym.notation.proof_latex import ProofView
from klsym.notation.text import show_side

BATCH_SLOTS = (*SIZES, "self", "other")


class SidesDiffer(ProofError):
    """Two sides arrive at different forms, which are written out only where somebody reads it."""

    def __init__(self, left: Side, right: Side) -> None:
        super().__init__(left, right)

    def __str__(self) -> str:
        left, right = map(show_side, self.args)
        return f"the two sides differ: the left one is {left}, the right one {right}"


def derive(start: Quantity, **setting: Any) -> Derivation:
    """Start a derivation from its left side.

    setting: on_policy (the sampler mu is q, detached), given ({R: value at every sample}),
    premises (pairs of quantities equal for every theta), defined (a context: its definitions and facts).
    """
    if not isinstance(start, Quantity):
        expected = "a quantity such as expectation(...) or grad(KL(q, p))"
        raise UsageError(f"derive: {expected} expected, got {type(start).__name__}")
    given = tuple(sorted((str(n), to_ring(v)) for n, v in setting.pop("given", {}).items()))
    premises = tuple((quantity(a), quantity(b)) for a, b in setting.pop("premises", ()))
    on_policy, defined = bool(setting.pop("on_policy", False)), setting.pop("defined", PLAIN)
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
    context = _with_parameters(context, [e for item in named for e in elements(item.side)])
    check_setting(context)
    return Derivation(context, start.side, (), labels)


def _with_parameters(context: Context, found: Iterable[ExpPoly]) -> Context:
    """Declare as parameters all names that are neither sample variables nor generic functions.

    n, the size of a batch, is one wherever the slots of a batch are spoken of.
    """
    names = {n for element in found for n in element.names()}
    names |= {"n" for n in names if parse_name(n).slot in BATCH_SLOTS}
    told = (*(value for _, value in context.given), *(e for _, _, e in context.definitions), *context.facts)
    names |= {n for element in told for n in element.names()}
    known = (*SAMPLE_BASES, *context.function_arguments, *(name for name, _, _ in context.definitions))
    new = {n for n in names if parse_name(n).base not in known}
    lost = sorted(n for n in new if n.startswith((OF_REGIONS, OF_LOGS)))
    if lost:
        raise ProofError(f"derive: {lost[0]} is not defined here")
    return replace(context, parameters=tuple(sorted(new | set(context.parameters))))


@dataclass(frozen=True, repr=False)
class Derivation:
    """Where the left side starts, and the moves (step, side after it) that brought it on.

    labels: how losses were written; notes: (first move, last move, what the author says they do).
    """

    context: Context
    start: Side
    moves: tuple[Move, ...]
    labels: dict[ExpPoly, Any]
    notes: tuple[tuple[int, int, str], ...] = ()

    @property
    def left(self) -> Side:
        """The left side so far, every abbreviation written out."""
        return _after(unfold(self.start, self.context), self.moves)

    @property
    def steps(self) -> tuple[RuleStep, ...]:
        return tuple(step for step, _ in self.moves)

    # -- steps on the left side ------------------------------------------------------------
    def step(self, rule: str, term: int | None = 0, factor: int | None = 0, **data: Any) -> Derivation:
        """Apply one rule of the kernel to one atom."""
        known = lemmas().known
        move = make_step(self.left, written_out(self.context), "left", term, factor, rule, data, known)
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
        done = self._everywhere((MeanGradient,), "chain rule")
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

    def log_derivative(self, term: int = 0) -> Derivation:
        return self.step("log-derivative", term)

    def change_measure(self, to: str, term: int = 0, factor: int = 0, part: Any = None) -> Derivation:
        """E_m[a] = E_to[a m/to]."""
        return self.step("change of measure", term, factor, to=to, **_part(part))

    def drop_score_mean(self, part: Any = None, term: int = 0, slot: str = "x") -> Derivation:
        """E_q[c s] = 0 for a constant c."""
        return self.step("score mean zero", term, slot=slot, **_part(part))

    def normalise(self, part: Any = None, term: int = 0, factor: int = 0) -> Derivation:
        return self.step("normalisation", term, factor, **_part(part))

    def ratio_mean_one(
        self, of: str, part: Any = None, term: int = 0, factor: int = 0, slot: str = "x"
    ) -> Derivation:
        """E_m[c m'/m] = E_m[c]."""
        return self.step("ratio mean one", term, factor, of=of, slot=slot, **_part(part))

    def use_premise(self, number: int = 0, times: Any = 1, gradient: bool = False) -> Derivation:
        """Add times (G - F) for the premise F = G, or times (grad G - grad F)."""
        multiple = unfold(quantity(times).side, self.context).to_json()
        return self.step(EQUATION, None, None, of=number, times=multiple, gradient=int(gradient))

    def reduce(self) -> Derivation:
        """All remaining steps to the canonical form."""
        chain = self._with_given_means(self.left, strategy=Strategy(cited=lemmas()))
        moves = reduction(self.left, written_out(chain.context), strategy=Strategy(cited=lemmas()))
        return replace(chain, moves=(*self.moves, *moves))

    def _with_given_means(self, *sides: Side, strategy: Strategy) -> Derivation:
        """Premises for the means of H that the canonical forms of these sides hold, where H is given."""
        chain = self
        while any(parse_name(name).base in HELD for name, _ in chain.context.given):
            plain = written_out(chain.context)
            ends = ([side, *(s for _, s in reduction(side, plain, strategy=strategy))][-1] for side in sides)
            found = dict.fromkeys(pair for end in ends for pair in means_given(end, chain.context))
            if not (new := [pair for pair in found if pair not in chain.context.premises]):
                break
            chain = replace(chain, context=replace(chain.context, premises=(*chain.context.premises, *new)))
        return chain

    def to(self, waypoint: Any, by: str) -> Derivation:
        """Bring the left side to the waypoint; `by` says in the author's words how, and is printed there.

        Raises ProofError: the strategy does not pass through it.
        """
        target = unfold(quantity(waypoint).side, self.context)
        stepwise = speaks_of_steps(self.start, target)
        strategy = Strategy(stepwise=stepwise, cited=lemmas())
        moves = list(reduction(self.left, written_out(self.context), strategy=strategy))
        way = [self.left, *(side for _, side in moves)]
        if target not in way:
            reached = "; ".join(show_side(side, self.labels) for side in way)
            raise ProofError(f"to: {show_side(target, self.labels)} is not on the way: {reached}")
        done = replace(self, moves=(*self.moves, *moves[: way.index(target)]))
        return replace(done, notes=(*self.notes, (len(self.moves), len(done.moves), by)))

    def __repr__(self) -> str:
        return self.left_text

    @property
    def left_text(self) -> str:
        """The left side so far, as text."""
        return show_side(self.left if self.moves else self.start, self.labels)

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

        def proved(whole: bool) -> Proof:
            if using or evaluate:
                return self._compare(right, "=", [], using, whole)
            return self._end(right, "=", close, meet=True, whole=whole)

        try:
            return proved(whole=False)
        except ProofError:
            if not self.context.given:
                raise
            return proved(whole=True)  # a value over T is no sum over steps: sequences are not taken apart

    def at_most(self, right: Any, rows: Iterable[Any], using: Iterable[Any] = ()) -> Proof:
        """left <= right: right - left is a sum of rows, none of which is ever negative.

        rows: dicts that hold u (c E_m[exp(v) (exp(u) - 1 - u)]), b (c f^2 E_m[exp(v) (b s^k)^2]) or variance
        (c f^2 Var_m(b s^k)); c is scale, m is at (q, p, mu or "sample"), f is factor, k is power.
        A square may hold "nonnegative": a function of k1 and w that multiplies it, and that the theorem
        assumes to be at least 0 wherever m has mass: the region it speaks of.  using: as in `equals`.
        """
        return self._compare(right, "<=", inequality(rows), using)

    def _compare(
        self, right: Any, relation: str, rows: list[Any], using: Iterable[Any], whole: bool = False
    ) -> Proof:
        """Both sides evaluated, after what the rows and the premises add to the left one."""
        other, uses = quantity(right), premises(using, self.context)
        multiples = (e for _, times in uses if times for e in elements(times))
        chain = self._speaking_of(other, *_row_elements(rows), *multiples)
        plain = written_out(chain.context)
        start = unfold(self.start, chain.context)
        for row in rows:
            start = start + _refusing(lambda row=row: read_row(row, Assumptions(plain))[0])
        target = unfold(other.side, chain.context)
        stepwise = not whole and speaks_of_steps(self.start, other.side)
        strategy = Strategy(stepwise=stepwise, evaluate=True, cited=lemmas())
        chain = chain._with_given_means(start, target, strategy=strategy)
        plain = written_out(chain.context)
        moves: list[Move] = []
        known = filled(uses, start, target, plain, strategy)
        for number, times in known:
            data = {"of": number, "times": times.to_json(), "gradient": 0}
            moves.append(make_step(_after(start, tuple(moves)), plain, "left", None, None, EQUATION, data))
        moves += reduction(_after(start, tuple(moves)), plain, strategy=strategy)
        ups = tuple(reduction(target, plain, "right", strategy))
        left, arrived = _after(start, tuple(moves)), _after(target, ups)
        if left != arrived:
            raise SidesDiffer(left, arrived)
        close = {"by": "equality", "rows": rows}
        return replace(chain._certified(other, relation, tuple(moves), ups, close), brief=True)

    def differs_from(
        self, right: Any, relation: str = "=", model: dict[str, Any] | None = None, mu_is_q: bool = False
    ) -> Proof:
        """Refute left = right (or left <= right) by a finite model; mu_is_q: one in which mu is q."""
        steps = speaks_of_steps(self.start, quantity(right).side)

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            statement = Plain(left, other, written_out(context), relation)
            return find_model(statement, model, context.on_policy or mu_is_q, steps)

        return self._end(right, relation, close)

    def iff(self, function: str, is_: Any, constants: tuple[Any, ...], coordinate: str = "k1") -> Proof:
        """left = 0 for all q, p, mu if and only if the generic function is this family."""
        family = to_ring(is_)

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            c = score_coefficient(left, other)
            return solve(c, function, family, [str(a) for a in constants], coordinate, written_out(context))

        return self._end(0, "=", close, family, whole=True)

    def is_no_combination(self) -> Proof:
        """left is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)]."""

        def close(left: Side, other: Side, context: Context) -> dict[str, Any]:
            term = foreign_term(score_coefficient(left, other), written_out(context))
            return {"by": "independence", "term": term.to_json()}

        return self._end(0, "=", close, whole=True)

    def _speaking_of(self, other: Quantity, *more: ExpPoly) -> Derivation:
        """With the functions and parameters of the other side declared as well."""
        merged = dict(self.context.functions) | dict(other.functions)
        context = replace(self.context, functions=tuple(sorted(merged.items())))
        return replace(self, context=_with_parameters(context, [*elements(other.side), *more]))

    def _end(
        self, right: Any, relation: str, close: Any, *more: ExpPoly, meet: bool = False, whole: bool = False
    ) -> Proof:
        """Bring both sides into canonical form and close; whole: sequences are not taken apart into steps."""
        other = quantity(right)
        steps = not whole and speaks_of_steps(self.start, other.side)
        strategy = Strategy(stepwise=steps, cited=lemmas())
        chain = self._speaking_of(other, *more)
        target = unfold(other.side, chain.context)
        chain = chain._with_given_means(self.left, target, strategy=strategy)
        context, plain = chain.context, written_out(chain.context)
        left = (*self.moves, *reduction(self.left, plain, strategy=strategy))
        ups = tuple(reduction(target, plain, "right", strategy))
        start = unfold(self.start, context)
        if meet:  # a refutation evaluates both sides in canonical form
            left, ups = _meet(self, start, left, target, ups)
        closed = close(_after(start, left), _after(target, ups), context)
        return chain._certified(other, relation, left, ups, closed)

    def _certified(
        self,
        other: Quantity,
        relation: str,
        left: tuple[Move, ...],
        ups: tuple[Move, ...],
        close: dict[str, Any],
    ) -> Proof:
        moves = (*left, *ups)
        steps = [step for step, _ in moves]
        part = {
            "context": written_out(self.context).to_json(),
            "relation": relation,
            "left": unfold(self.start, self.context).to_json(),
            "right": unfold(other.side, self.context).to_json(),
            "steps": steps,
            "close": close,
        }
        cited = lemmas() if any(isinstance(step["data"].get("of"), list) for step in steps) else None
        try:
            complete, theorem = certify(part, cited.known if cited else {})
        except Refused as refusal:
            raise ProofError(f"the derivation does not hold: {refusal}") from None
        statement = Statement(self.start, other.side, self.context, relation)
        return Proof(complete, Theorem(statement, theorem), _written(self, other), moves, self.notes)


def _refusing(make: Any) -> Any:
    try:
        return make()
    except Refused as refusal:
        raise ProofError(str(refusal)) from None


def _row_elements(rows: list[Any]) -> Iterable[ExpPoly]:
    names = ("scale", "factor", "v", "of", "nonnegative")
    return [ExpPoly.from_json(row[name]) for row in rows for name in names if name in row]


def _written(chain: Derivation, right: Quantity) -> dict[ExpPoly, Any]:
    """How losses were written: by the right side, unless the left side is the same function."""
    labels = _unfolded_labels({**chain.labels, **right.labels}, chain.context)
    if chain.start != right.side or not chain.labels:
        return labels
    return SidedLabels(_unfolded_labels({**right.labels, **chain.labels}, chain.context), labels)


def _unfolded_labels(labels: dict[ExpPoly, Any], context: Context) -> dict[ExpPoly, Any]:
    """A loss is written in the same way where the setting has been put in."""
    if not (context.on_policy or context.given):
        return labels
    put_in = ((live_in(loss, index, context), shown) for loss, shown in labels.items() for index in ("", "t"))
    return dict(put_in) | labels


def _meet(
    chain: Derivation, start: Side, left: tuple[Move, ...], target: Side, right: tuple[Move, ...]
) -> tuple[tuple[Move, ...], tuple[Move, ...]]:
    """Leave out the filled-in moves beyond the first place where the two sides agree."""
    ups = [target, *(side for _, side in right)]
    downs = [start, *(side for _, side in left)]
    for i in range(len(chain.moves), len(downs)):
        if downs[i] in ups:
            return left[:i], right[: ups.index(downs[i])]
    return left, right


def _after(start: Side, moves: tuple[Move, ...]) -> Side:
    return moves[-1][1] if moves else start


def _part(part: Any) -> dict[str, Any]:
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
        return carried([self.part])

    def certificate(self) -> dict[str, Any]:
        """What `klsym check` replays."""
        return {"format": FORMAT, "cites": self.cites, "parts": [self.part], "digest": digest([self.part])}
