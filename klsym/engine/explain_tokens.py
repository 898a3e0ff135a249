"""explain for token losses: the loss of each token, summed over a sequence of random length T.  Untrusted.

The expected gradient (explain_fields.py) is brought under q and sorted into named pieces (explain_pieces.py).
Where a piece is no gradient, the whole is refuted to be one by its curl on an explicit tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from klsym.abbreviations import Indexed, Side
from klsym.convert import to_ring, to_sympy
from klsym.engine.advice import (
    Facts,
    all_proximal,
    is_attached,
    needs_its_gradient,
    token_warnings,
    without_weight,
)
from klsym.engine.derivation import Derivation, Proof, derive
from klsym.engine.explain_fields import Field, field_of, is_the_same, same_at_every_token
from klsym.engine.explain_pieces import Decomposition, Slots, decompose, slots_of
from klsym.engine.explain_samples import (
    assumed_of_value,
    hypotheses_of,
    refuse_unless_moderate,
    sampled_from,
    shown_witness,
    uses_sampler,
    witness_against_reverse_kl,
)
from klsym.engine.explain_setting import Setting
from klsym.engine.explain_slots import ADVANTAGE, TokenLoss, at_token
from klsym.engine.indexed import curl, sum_over_t, token_gradient, token_KL_gradient
from klsym.engine.objectives import at_policy, objective_under
from klsym.engine.quantities import KL, Quantity, expectation, expected_gradient, grad
from klsym.engine.reduce import Strategy, reduction
from klsym.engine.tails import is_zero, tail_of
from klsym.engine.verdict import Chain, Meaning, Search, Verdict
from klsym.errors import ProofError
from klsym.language import R, future, k1, now, past, r, s, without_sg
from klsym.names import SAMPLE_BASES, parse_name
from klsym.render import formulas, losses
from klsym.render.losses import Written
from klsym.render.spelling import LATEX
from klsym.ring import ZERO, ExpPoly
from klsym.unfolding import written_out

KLS = ("reverse-kl", "forward-kl")
FORWARD = to_ring(-past(r) * now(r) * now(k1))


@dataclass(frozen=True)
class Answer:
    """A target, the proofs of it beside the main equation, and the objective where it has a name."""

    target: str | None
    proofs: tuple[Proof, ...] = ()
    objective: Quantity | None = None


def explain_tokens(written: Written, setting: Setting) -> Verdict:
    """The verdict; raises NotInRing outside the ring."""
    token = at_token(written.expression, setting)
    loss = token.expression
    refuse_unless_moderate(to_ring(loss), written, allowed={"length"})
    field = field_of(token, setting)
    reduced = field.exchanged.reduce()
    slots = slots_of(_in_steps(reduced))
    found = decompose(slots, reduced.context.parameters)
    answer = _answer(field, found, loss, setting)
    main, notes = field.exchanged.equals(found.whole), tuple(_notes(found))
    proofs = (main, *answer.proofs, *(proof for _, proof in notes))
    value, constant = (Meaning(None), None) if token.given else _value(loss, setting)
    pushes = per_token(_written(loss, field))
    verdict = Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=pushes,
        c=slots,
        gradient=_meaning(answer, found, slots),
        value=value,
        constant=constant,
        trust="kernel",
        hypotheses=(*_readings(loss, setting), *_counted(loss, field), *hypotheses_of(proofs)),
        steps=Chain(main),
        model=Search(_witness, field, answer, found),
        inside_clamps=None,
        proofs=proofs,
        scores_named=(not {*pushes} <= {"now"}, not {*slots} <= {"now"}),
        implied=answer.objective,
        shown=formulas.side((grad(answer.objective) if answer.objective else found.whole).side),
        notes=(*(f"{words}: {proof}" for words, proof in notes), *([UNDECIDED] if not answer.target else [])),
    )
    facts = _facts(token, pushes, slots, found, setting)
    return replace(verdict, warnings=token_warnings(verdict, facts))


def _in_steps(reduced: Derivation) -> Side:
    """Means of whole sequences as sums over t."""
    side = reduced.left
    plain = written_out(reduced.context)
    for _, reached in reduction(side, plain, strategy=Strategy(stepwise=True)):
        side = reached
    return side


def _written(loss: Any, field: Field) -> Derivation:
    """The field with every part at each token."""
    if not field.constant:
        return field.start
    return derive(token_gradient(loss, field.under), on_policy=field.start.context.on_policy)


# ---------------------------------------------------------------------------- the target
def _answer(field: Field, found: Decomposition, loss: Any, setting: Setting) -> Answer:
    """Named pieces that are gradients name the target; what else there is, the curl decides."""
    names = set(found.multiples)
    if not found.rest and not names & {"reverse at q", "forward at q"}:
        if not names:
            return Answer("zero")
        if all(piece.part for piece in found.found):
            return Answer(names.pop() if len(names) == 1 and names <= {*KLS} else "combination")
        return Answer("separable", (), found.objective)
    surrogate = None if setting.on_policy else _surrogate(field)
    if surrogate is not None:
        return Answer("separable", (field.exchanged.equals(grad(surrogate)),), surrogate)
    if field.whole is not None and (found_whole := _of_the_whole(field)):
        return found_whole
    return _by_curl(field)


def _of_the_whole(field: Field) -> Answer | None:
    """A whole sequence is one sample, of which every E_m[h s] is a gradient."""
    try:
        same = field.start.equals(expectation(field.whole * s, field.under))
    except ProofError:
        return None
    h = at_policy(to_ring(field.whole)) if field.start.context.on_policy else to_ring(field.whole)
    under = "q" if field.start.context.on_policy else field.under
    aim = objective_under(h, under)
    objective = None if aim is None else expectation(to_sympy(aim), under)
    told = (field.start.equals(grad(objective)),) if objective else ()
    return Answer("separable", (same, *told), objective)


def _surrogate(field: Field) -> Quantity | None:
    """E_mu[L] with grad L as attached: mu does not move, so that E_mu[grad L] = grad E_mu[L]."""
    if field.whole is not None or _detached(field.attached) or _detached(field.constant):
        return None
    constant = expectation(field.constant, "mu") if field.constant else Quantity(Side())
    return sum_over_t(field.attached, "mu") + constant


def _detached(loss: Any) -> bool:
    return any(parse_name(name).detached for name in to_ring(loss).names())


def _by_curl(field: Field) -> Answer:
    """separable where the curl is 0, none where it is not on some tree, and open otherwise."""
    on_policy = field.start.context.on_policy
    try:
        flat = derive(curl(field.attached, field.under), on_policy=on_policy).equals(0)  # the constant's is 0
        return Answer("separable", (flat,))
    except ProofError:
        pass
    attached = field.attached.xreplace({ADVANTAGE: R})  # one A: the sum of the token rewards
    try:
        twisted = derive(curl(attached, field.under), on_policy=on_policy).differs_from(0)
    except ProofError:
        return Answer(None)
    same = token_gradient(field.attached, field.under)
    if field.constant:
        same = same + expected_gradient(field.constant, field.under)
    proof = field.exchanged.equals(same)
    return Answer(
        "none", (twisted, *((proof,) if field.start.start != proof.theorem.statement.right else ()))
    )


def _meaning(answer: Answer, found: Decomposition, slots: Slots) -> Meaning:
    """The multiples of the contract; beside other pieces only those of rewards are worth naming."""
    if answer.target in (*KLS, "combination"):
        return Meaning(answer.target, found.combination)
    reward = {name: value for name, value in found.combination.items() if name == "reward"}
    return Meaning(answer.target, reward, found.without_rewards(slots))


def _witness(field: Field, answer: Answer, found: Decomposition) -> dict[str, Any] | None:
    """A tree on which the field is not grad KL(q||p), or has a curl."""
    if answer.target in ("reverse-kl", "combination"):
        return None
    if answer.target == "none":
        return shown_witness(answer.proofs[0])
    start = field.exchanged
    if start.context.given:  # what is given are premises, which a model need not satisfy
        start = derive(token_gradient(field.attached, field.under), on_policy=start.context.on_policy)
    return witness_against_reverse_kl(start, found.combination.get("reward", ZERO))


# ---------------------------------------------------------------------------- what is kept and what is not
KEPT = {
    "reverse at q": "keeps the KL of each next token at the prefix drawn, drops what a token does to later"
    " ones",
    "forward at q": "a forward KL of each next token, at prefixes drawn from q where KL(p||q) draws them from"
    " p",
    "reverse at mu": "the KL of each next token, at prefixes drawn from mu where KL(q||p) draws them from q",
    "forward at mu": "a forward KL of each next token, at prefixes drawn from mu where KL(p||q) draws them"
    " from p",
    "same token": "keeps the reward of the same token, drops that of later ones",
}


def _notes(found: Decomposition) -> Iterator[tuple[str, Proof]]:
    """What a piece at one token keeps and drops of a full gradient, with the identity or a counterexample."""
    alone = to_ring(now(R)).terms.keys() <= found.rest.get("now", ZERO).terms.keys()
    names = {*found.multiples, *(["same token"] if alone else [])}
    yield from ((words, _note(piece)) for piece, words in KEPT.items() if piece in names)


@cache
def _note(piece: str) -> Proof:
    """It speaks of no loss, so that it is proved once."""
    full, forward = grad(KL("q", "p")), grad(KL("p", "q"))
    match piece:
        case "reverse at q":
            return derive(token_KL_gradient("q", "p")).equals(full - sum_over_t(now(s) * future(k1), "q"))
        case "forward at q":
            return derive(token_KL_gradient("p", "q")).differs_from(forward)
        case "reverse at mu":
            return derive(token_KL_gradient("q", "p", prefixes="mu")).differs_from(full)
        case "forward at mu":
            return derive(token_KL_gradient("p", "q", prefixes="mu")).differs_from(forward)
    alone, later = (sum_over_t(of * now(s), "q") for of in (now(R), future(R)))
    return derive(alone).equals(grad(expectation(R, "q")) - later)


# ---------------------------------------------------------------------------- gradient and value of tokens
def per_token(start: Derivation) -> Slots:
    """The coefficients of scores at one token: after differentiation, before any change of measure."""
    current = start
    if any(not isinstance(atom, Indexed) for _, atoms in start.left.terms for atom in atoms):
        current = start.differentiate()
    return {atom.score[0]: atom.coefficient * c for c, (atom,) in current.left.terms}  # type: ignore[attr-defined]


def _value(loss: Any, setting: Setting) -> tuple[Meaning, ExpPoly]:
    """E_m[sum_t L_t] = E_q[sum_t v_t] and a constant: k1_now gives KL(q||p), R_now the mean reward.

    KL(p||q) = E_q[sum_t -r_past r_now k1_now], since the tokens to come average to 1.
    """
    parts, number, start = _value_parts(loss, setting)
    rest = parts.pop("rest")
    multiples: dict[str, Any] = {name: value for name, value in parts.items() if value}
    names = tuple(multiples) or ("zero",)
    target = names[0] if names[0] in ("zero", *KLS) and len(names) == 1 else "combination"
    if rest:
        return Meaning("separable"), number
    return Meaning(target, multiples, None, Search(assumed_of_value, start, names)), number


def _value_parts(loss: Any, setting: Setting) -> tuple[dict[str, ExpPoly], ExpPoly, Derivation]:
    """What v_t is made of, the constant, and where both come from.

    What is the same at each token counts once, over T.
    """
    loss = to_sympy(at_policy(to_ring(loss))) if setting.on_policy else loss
    element = to_ring(loss)
    constant, each = same_at_every_token(loss)
    under = sampled_from(element, setting)
    mean = sum_over_t(each, under) + (expectation(constant, under) if constant else 0)
    start = derive(mean, on_policy=uses_sampler(element, setting))
    parts, number = dict.fromkeys((*KLS, "reward", "rest"), ZERO), ZERO
    for scale, atoms in start.reduce().left.terms:
        if not atoms:
            number = number + scale
            continue
        for key, value in (atoms[0].coefficient * scale).terms.items():  # type: ignore[attr-defined]
            term = ExpPoly({key: value})
            name, term = _value_part(term, atoms[0].index)  # type: ignore[attr-defined]
            parts[name] = parts[name] + term
    return parts, number, start


def _value_part(term: ExpPoly, index: str) -> tuple[str, ExpPoly]:
    """sum_t k1_t is k1, and sum_t R_t A is R A: A is the same at each token."""
    names = {name for name in term.names() if parse_name(name).slot != "x" or name in SAMPLE_BASES}
    [(monomial, exponent)] = term.terms
    fixed = not names & {name for part, _ in exponent for name, _ in part}  # exp(lam) is a constant
    of_kl = "k1[now]" if index == "t" else "k1"
    if names == {of_kl} and (of_kl, 1) in monomial and fixed:
        return "reverse-kl", term * ExpPoly.variable(of_kl).inverse()
    forward = term * FORWARD.inverse()
    if index == "t" and not forward.names():
        return "forward-kl", forward
    once = any(names - {"A"} == {of} and (of, 1) in monomial for of in ("R[now]", "M[now]"))
    if fixed and (once if index == "t" else names and names <= {"R", "A", "M"}):
        return "reward", term.rename(lambda name: name.removesuffix("[now]"))
    return "rest", term


UNDECIDED = (
    "open: no tree that was tried gives the expected gradient a curl, and that it has none is not proved, nor"
    " is an objective known"
)
ONCE = (
    "a sequence has at least one token: what is the same at each of them, over T, counts once, sum_t 1/T = 1"
)
OFTEN = "a sequence has at least one token: what is the same at each of its T tokens counts T times"
READINGS = {
    "R": "R_now is the reward of token t, R that of the whole sequence, their sum",
    "A": "A is any function of the whole sequence that is free of theta: the same at each of its tokens,"
    " whose scores it meets once",
    "w": "on-policy rho is 1 at every token, and a reward is detached",
}


def _counted(loss: Any, field: Field) -> tuple[str, ...]:
    """How often what is the same at every token counts."""
    if not field.constant:
        return ()
    return (OFTEN if is_the_same(to_ring(loss)) else ONCE,)


def _readings(loss: Any, setting: Setting) -> tuple[str, ...]:
    bases = {parse_name(name).base for name in to_ring(loss).names()}
    if not (setting.on_policy and setting.use == "reward"):
        bases -= {"w"}
    return tuple(words for base, words in READINGS.items() if base in bases)


def _facts(token: TokenLoss, per_token: Slots, slots: Slots, found: Decomposition, setting: Setting) -> Facts:
    """A reward itself multiplies scores, those of other tokens too."""
    loss, on_policy = to_ring(token.expression), setting.on_policy
    held = [to_ring(without_sg(value)) for value in dict(token.given).values()]
    factors = [loss] if setting.use == "reward" else list(per_token.values())
    bare = {part: formulas.element(part) for part in map(without_weight, factors) if part}
    ratios = {parse_name(n) for c in factors for _, exponent in c.terms for m, _ in exponent for n, _ in m}
    weights = {name.slot for name in ratios if name.base == "w"}
    return Facts(
        vanishes=is_zero(per_token.values(), on_policy),
        weighted=any(without_weight(c) != c for c in factors),
        bare=f"{' and '.join(bare.values())} in the gradient" if bare else "",
        proximal=bool(bare) and all(map(all_proximal, bare)),
        attached=is_attached(loss),
        literal=needs_its_gradient(loss),
        heavy=tail_of([*factors, *held], slots.values(), on_policy),
        pieces=found.multiples,
        alone="now" in weights and "past" not in weights,
    )
