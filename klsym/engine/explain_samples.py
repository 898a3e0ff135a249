"""explain for one sample, and for a whole sequence, which is one sample with a random length T.

    E_m[grad L] = E_q[c s]        c modulo constants decides the target (targets.py)

What has no name still has an objective, E_q[c s] = grad E_q[F] (objectives.py).  With 1/T in front (aggregate
mean) c holds the length, and the objective is the answer.  Untrusted; the kernel replays every theorem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from klsym.abbreviations import Curl, E, Side, Statement, atoms_of, elements, measures
from klsym.convert import generic_functions, to_ring
from klsym.engine import supports
from klsym.engine.advice import facts_of, is_paid, warnings_for
from klsym.engine.derivation import Derivation, Proof, derive
from klsym.engine.explain_setting import Setting
from klsym.engine.generators import Generated, functional, generated
from klsym.engine.objectives import gradient_of, objective
from klsym.engine.quantities import KL, Quantity, expectation, expected_gradient, grad
from klsym.engine.targets import Target, recognise, recognise_value
from klsym.engine.verdict import Chain, Meaning, Search, Verdict
from klsym.engine.witness import shown_model
from klsym.errors import ProofError, Refused, UsageError
from klsym.kernel.meta import score_coefficient
from klsym.language import length, parameter, sg
from klsym.names import SAMPLE, SAMPLE_BASES, parse_name
from klsym.parser import MAX_EXP, MAX_POWER
from klsym.render import formulas, losses
from klsym.render.divergences import functional_warning, generated_warnings
from klsym.render.losses import Written
from klsym.render.spelling import LATEX, TEXT
from klsym.render.text import show_statement
from klsym.render.tree import Name, quotient
from klsym.ring import ZERO, ExpPoly
from klsym.slots import is_second


@dataclass(frozen=True)
class Canonical:
    """A derivation brought to canonical form, its score coefficient, and what that is."""

    derivation: Derivation
    coefficient: ExpPoly
    found: Target

    @property
    def per_sample(self) -> ExpPoly:
        """The coefficient of s at one sample: after differentiation, before any change of measure."""
        for step in reversed(self.derivation.steps):
            if step["rule"] not in ("score mean zero", "change of measure"):
                return _first_coefficient(Side.from_json(step["result"]))
        return _first_coefficient(self.derivation.start)


def _first_coefficient(side: Side) -> ExpPoly:
    for _, atoms in side.terms:
        if isinstance(atoms[0], E):
            return atoms[0].coefficient
    return ZERO


def explain_sample(written: Written, setting: Setting) -> Verdict:
    """The verdict; raises NotInRing outside the ring."""
    whole = aggregated(written, setting)
    form = canonical_form(whole, setting)
    proofs, told = _prove(form), unproved(written, whole, form, setting)
    verdict = replace(
        told,
        trust="kernel",
        hypotheses=hypotheses_of(proofs),
        steps=Chain(proofs[0]),
        model=Search(_witness, form),
        proofs=proofs,
    )
    verdict = with_objective(verdict, form.found, form.derivation)
    element = to_ring(whole.expression)
    facts = facts_of(element, form.per_sample, form.coefficient, setting.on_policy)
    verdict = replace(verdict, warnings=warnings_for(verdict, facts))
    return with_shape(verdict, form.coefficient, form.found)


def unproved(written: Written, whole: Written, form: Canonical, setting: Setting) -> Verdict:
    """What a verdict says, before the theorems that it rests on."""
    value, constant, assumed = value_of(whole, setting)
    return Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=form.per_sample,
        c=form.coefficient,
        gradient=Meaning.of(form.found),
        value=Meaning.of(value, value.unnamed_value, assumed),
        constant=constant,
        trust="open",
        hypotheses=(),
        steps=(),
        model=None,
        inside_clamps=None,
        implied=objective(form.found) if form.found.rest else None,
    )


def with_shape(verdict: Verdict, c: ExpPoly, found: Target) -> Verdict:
    """The verdict, with f or the convexity in q of what c(k1, w, log q) descends, beside a mean reward."""
    ascended = verdict.setting.use == "reward" and is_paid(found.reward)
    penalty = (c - found.reward) * (-1 if ascended else 1)
    of_r = generated(penalty) or _at_powers(penalty)
    if of_r is not None:
        of_r = replace(of_r, beside=found.reward if ascended else -found.reward)
        said = (*verdict.warnings, *generated_warnings(of_r))
        return replace(verdict, generated=of_r, penalty=penalty, warnings=said)
    if found.target != "separable" or verdict.implied is None:
        return verdict
    of_q = functional(penalty)
    return replace(verdict, functional=of_q, warnings=(*verdict.warnings, *functional_warning(of_q)))


def _at_powers(c: ExpPoly) -> Generated | None:
    """f of r**alpha and its like, for which the ring has none."""
    if c.names() <= {*SAMPLE_BASES}:
        return None
    from klsym.engine.generators_outside import generated_at_powers

    return generated_at_powers(c)


def with_objective(verdict: Verdict, found: Target, start: Derivation) -> Verdict:
    """The verdict, with what the rest is the gradient of, where that is known; start: in canonical form."""
    aim = objective(found) if found.rest else None
    if aim is None:
        return verdict
    stated = gradient_of(aim)
    if named_gradient(found) is not None:
        return replace(verdict, implied=aim, shown=formulas.side(stated.side))
    proof = derive(Quantity(start.left), on_policy=start.context.on_policy).equals(stated)
    lines = dict.fromkeys((*verdict.hypotheses, *proof.hypotheses))
    return replace(verdict, implied=aim, proofs=(*verdict.proofs, proof), hypotheses=tuple(lines))


def canonical_form(written: Written, setting: Setting) -> Canonical:
    """E_m[grad L], or E_m[sg(L) s], as E_q[c s]."""
    element = to_ring(written.expression)
    refuse_unless_moderate(element, written, allowed={"length"})
    start = expected_field(written, sampled_from(element, setting), setting.use)
    reduced = derive(start, on_policy=uses_sampler(element, setting)).reduce()
    c = score_coefficient(reduced.left, Side())
    return Canonical(reduced, c, recognise(c))


def aggregated(written: Written, setting: Setting) -> Written:
    """The loss, over T where a sequence is averaged; T is written for the random length."""
    refuse_unless_moderate(to_ring(written.expression), written, allowed={"length"})
    if not setting.averaged:
        return written
    return Written(TEXT(quotient(losses.tree_of(written), Name("T"))), written.expression / length)


def refuse_unless_moderate(element: ExpPoly, written: Written, allowed: set[str] | None = None) -> None:
    """Random variables do not divide, and powers stay within what the grammar can write."""
    random = {n for n in element.inverted() if parse_name(n).base in SAMPLE_BASES} - (allowed or set())
    if random:
        name = formulas.variable(min(random), TEXT)
        raise UsageError(f"division by {name} in {written.text[:60]!r}: it is 0 at some samples")
    exponents = [(m, v) for _, e in element.terms for m, v in e]
    powers = [Fraction(p) for m, _ in element.terms for _, p in m]
    powers += [Fraction(v) for m, v in exponents if m]
    if any(abs(p) > MAX_POWER for p in powers):
        raise UsageError(f"a power beyond {MAX_POWER} in {written.text[:60]!r}")
    if any(abs(Fraction(v)) > MAX_EXP for m, v in exponents if not m):
        raise UsageError(f"exp of a number beyond {MAX_EXP} in {written.text[:60]!r}")


def uses_sampler(element: ExpPoly, setting: Setting) -> bool:
    """On-policy a loss without rho or log mu needs no sampler beside q."""
    return setting.on_policy and any(parse_name(n).base == "w" for n in element.names())


def sampled_from(element: ExpPoly, setting: Setting) -> str:
    """The measure under which the mean is taken."""
    return "q" if setting.on_policy and not uses_sampler(element, setting) else "mu"


def expected_field(written: Written, under: str, use: str) -> Quantity:
    """E_m[grad L], or E_m[sg(L) s] of a reward."""
    shown = Written(written.text, written.expression.xreplace({length: parameter("T")}))
    if use == "loss":
        quantity = expected_gradient(written.expression, under)
        return replace(quantity, labels={to_ring(written.expression): shown})
    detached = sg(written.expression)
    element = to_ring(detached)
    text = written.text if detached == written.expression else f"sg({written.text})"
    side = Side.atom(E(under, element, ("x",)))
    return Quantity(side, generic_functions(detached), {element: Written(text, sg(shown.expression))})


# ---------------------------------------------------------------------------- what is proved
def _prove(form: Canonical) -> tuple[Proof, ...]:
    """The theorem that names the target; for an unnamed one: the canonical form, and that it is none."""
    named = named_gradient(form.found)
    if named is not None:
        return (form.derivation.equals(named),)
    canonical = form.derivation.equals(Quantity(form.derivation.left))
    return canonical, form.derivation.is_no_combination()


def named_gradient(found: Target) -> Quantity | None:
    """grad of the objective, where there is one that has a name: all is named, or the rest is over T."""
    if found.rest and "length" not in found.rest.names():
        return None
    aim = objective(found)
    return None if aim is None else gradient_of(aim)


def value_of(written: Written, setting: Setting) -> tuple[Target, ExpPoly, Search]:
    """What E_m[L] is: a target, a constant beside it, and what that assumes."""
    element = to_ring(written.expression)
    mean = expectation(written.expression, sampled_from(element, setting))
    start = derive(mean, on_policy=uses_sampler(element, setting))
    constant, v = ZERO, ZERO
    for coefficient, atoms in start.reduce().left.terms:
        match atoms:
            case ():
                constant = constant + coefficient
            case (E(_, a, ()),):
                v = v + a
    found = recognise_value(v)
    return found, constant, Search(assumed_of_value, start, tuple(found.multiples))


def assumed_of_value(start: Derivation, names: tuple[str, ...]) -> tuple[str, ...]:
    """The hypotheses of a mean in canonical form; names: the divergences that stand for terms of it."""
    proof = start.equals(Quantity(start.reduce().left))
    return tuple(dict.fromkeys((*proof.hypotheses, *supports.named(names))))


def _witness(form: Canonical) -> dict[str, Any] | None:
    """A model in which the expected gradient is not grad KL(q||p) (beside the policy gradient of rewards)."""
    found = form.found
    if found.target == "reverse-kl" or (found.target == "combination" and not found.forward):
        return None
    return witness_against_reverse_kl(form.derivation, found.reward)


def witness_against_reverse_kl(derivation: Derivation, reward: ExpPoly) -> dict[str, Any] | None:
    """A model in which the left side is not grad KL(q||p) + grad E_q[reward]; no tree holds values of A."""
    right = grad(KL("q", "p"))
    if reward:
        right = right + grad(Quantity(Side.atom(E("q", reward))))
    try:
        return shown_witness(derivation.differs_from(right))
    except (ProofError, Refused):
        return None


def shown_witness(proof: Proof) -> dict[str, Any]:
    """The model of a refutation, less what the equation does not mention."""
    close = proof.theorem.close
    refuted = show_statement(proof.theorem.statement, proof.labels)
    used = used_names(proof.theorem.statement)
    if "tree" not in close["model"]:
        return shown_model(refuted, close["model"], close["left"], close["right"], used)
    rows = {"q", "u", "next", "p", "mu", "old", "R", "M", "v"} - _unused_rows(proof.theorem.statement, used)
    numbers = close["model"]["parameters"]
    return {
        "refutes": refuted,
        "tree": _pruned(close["model"]["tree"], rows),
        **({"path": close["model"]["path"]} if at_one_sample(proof.theorem.statement) else {}),
        **({"parameters": numbers} if numbers else {}),
        "left": close["left"],
        "right": close["right"],
    }


def at_one_sample(statement: Statement) -> bool:
    """Does the statement speak of a value at one sample or sequence?"""
    sides = (statement.left, statement.right)
    return any(getattr(atom, "measure", "") == SAMPLE for atom in atoms_of(*sides))


def _unused_rows(statement: Statement, used: set[str]) -> set[str]:
    atoms = {a for side in (statement.left, statement.right) for _, factors in side.terms for a in factors}
    named = {m for side in (statement.left, statement.right) for m in measures(side)}
    wanted = {
        "p": "k1" in used or "p" in named,
        "mu": "w" in used,
        "old": "o" in used,
        "R": "R" in used,
        "M": "M" in used,
        "v": any(isinstance(a, Curl) or any(map(is_second, getattr(a, "score", ()))) for a in atoms),
    }
    return {name for name, needed in wanted.items() if not needed}


def _pruned(node: dict[str, Any], rows: set[str]) -> dict[str, Any]:
    following = [after and _pruned(after, rows) for after in node["next"]]
    return {name: following if name == "next" else row for name, row in node.items() if name in rows}


def used_names(statement: Statement) -> set[str]:
    """What a model must say for both sides to have values."""
    names = {n for side in (statement.left, statement.right) for e in elements(side) for n in e.names()}
    sampled = "mu" in measures(statement.left) | measures(statement.right)
    return {parse_name(n).base for n in names} | ({"w"} if sampled else set())


def hypotheses_of(proofs: tuple[Proof, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line for proof in proofs for line in proof.hypotheses))
