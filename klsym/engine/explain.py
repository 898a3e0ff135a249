"""explain: from a loss to a verdict.  Untrusted; the kernel replays every theorem in the verdict.

>>> verdict = explain("rho*k3", sampling="off-policy")
>>> verdict.target, verdict.trust, verdict.coefficient
('reverse-kl', 'kernel', 'k1')
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from klsym.convert import to_ring, to_sympy
from klsym.engine.advice import facts_of, warnings_for
from klsym.engine.derivation import Derivation, Proof, derive
from klsym.engine.explain_outside import explain_outside
from klsym.engine.quantities import KL, Quantity, expectation, expected_gradient, grad
from klsym.engine.targets import Target, recognise, recognise_value
from klsym.engine.verdict import Meaning, Setting, Step, Verdict
from klsym.engine.witness import shown_model
from klsym.errors import NotInRing, UsageError
from klsym.kernel.closing import score_coefficient
from klsym.language import as_loss, s, sg
from klsym.normal_form import ZERO, ExpPoly
from klsym.parser import MAX_EXP, MAX_POWER, parse
from klsym.render import formulas, losses
from klsym.render.losses import Written
from klsym.render.spelling import LATEX, TEXT
from klsym.render.text import chain, show_theorem
from klsym.statements import SAMPLE_BASES, E, Side, Statement, elements, measures, parse_name

CHOICES = {
    "sampling": ("on-policy", "off-policy"),
    "use": ("loss", "reward"),
    "level": ("sample",),
    "batch": ("none",),
}


def explain(
    loss: Any,
    sampling: str = "on-policy",
    use: str = "loss",
    level: str = "sample",
    batch: str = "none",
    parameters: Iterable[str] = (),
) -> Verdict:
    """Derive what a loss targets.

    loss: text in the loss grammar, or a SymPy expression in the atoms of `klsym.language`.
    sampling: "on-policy" (samples from q itself) or "off-policy" (from mu).
    use: "loss" (differentiated), or "reward" (detached; the loss is all that multiplies the score).
    parameters: names declared beside lam, beta, eps, alpha, n, T (for text).
    Raises UsageError for text that cannot be read and for unknown options.
    """
    setting = checked_setting(sampling, use, level, batch)
    written = as_written(loss, parameters)
    try:
        return _in_ring(written, setting)
    except NotInRing as error:
        if "division by zero" in str(error):
            raise UsageError(f"division by zero in {written.text!r}") from None
        return explain_outside(written, setting, lambda e: explain(e, sampling, use).gradient)


def checked_setting(*choices: str) -> Setting:
    """How a loss is used; raises UsageError for what is not among CHOICES."""
    setting = Setting(*choices)
    for name, allowed in CHOICES.items():
        if getattr(setting, name) not in allowed:
            raise UsageError(f"{name}={getattr(setting, name)!r}: one of {', '.join(allowed)} expected")
    return setting


def as_written(loss: Any, parameters: Iterable[str]) -> Written:
    """A loss with the text that stands for it, typed or printed."""
    if isinstance(loss, str):
        return Written(loss, parse(loss, parameters))
    expression = as_loss(loss)
    return Written(losses.show(expression, TEXT), expression)


# ---------------------------------------------------------------------------- in the ring
@dataclass(frozen=True)
class Canonical:
    """A derivation brought to canonical form, and its score coefficient."""

    derivation: Derivation
    coefficient: ExpPoly
    found: Target


def _in_ring(written: Written, setting: Setting) -> Verdict:
    element = to_ring(written.expression)
    refuse_unless_moderate(element, written)
    start = _start(written, setting, element)
    reduced = derive(start, on_policy=_uses_sampler(element, setting)).reduce()
    c = score_coefficient(reduced.left, Side())
    form = Canonical(reduced, c, recognise(c))
    proofs = _prove(form)
    value, constant = _value(written, setting, element)
    witness = _witness(form)
    main = proofs[0]
    per_sample = _per_sample(form)
    verdict = Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        per_sample=formulas.element(per_sample),
        coefficient=formulas.element(c),
        coefficient_latex=formulas.element(c, LATEX),
        gradient=Meaning.of(form.found),
        value=Meaning.of(value),
        value_constant=formulas.element(constant),
        trust="kernel",
        hypotheses=tuple(dict.fromkeys(line for proof in proofs for line in proof.hypotheses)),
        steps=_steps(main),
        witness=witness,
        inside_clamps=None,
        proofs=proofs,
    )
    facts = facts_of(element, per_sample, c, setting.on_policy)
    return replace(verdict, warnings=warnings_for(verdict, facts))


def refuse_unless_moderate(element: ExpPoly, written: Written) -> None:
    """Random variables do not divide, and powers stay within what the grammar can write."""
    random = {n for n in element.inverted() if parse_name(n).base in SAMPLE_BASES}
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


def _uses_sampler(element: ExpPoly, setting: Setting) -> bool:
    """On-policy a loss without rho or log mu needs no sampler beside q."""
    return setting.on_policy and bool({"w", "sg(w)"} & element.names())


def _start(written: Written, setting: Setting, element: ExpPoly) -> Quantity:
    under = "q" if setting.on_policy and not _uses_sampler(element, setting) else "mu"
    if setting.use == "loss":
        quantity = expected_gradient(written.expression, under)
        return replace(quantity, labels={element: written})
    detached = sg(written.expression)
    quantity = expectation(detached * s, under)
    text = written.text if detached == written.expression else f"sg({written.text})"
    return replace(quantity, labels={to_ring(detached): Written(text, detached)})


def _per_sample(form: Canonical) -> ExpPoly:
    """The coefficient of s at one sample: after differentiation, before any change of measure."""
    for step in reversed(form.derivation.steps):
        if step["rule"] not in ("score mean zero", "change of measure"):
            return _first_coefficient(Side.from_json(step["result"]))
    return _first_coefficient(form.derivation.start)


def _first_coefficient(side: Side) -> ExpPoly:
    for _, atoms in side.terms:
        if isinstance(atoms[0], E):
            return atoms[0].coefficient
    return ZERO


def _prove(form: Canonical) -> tuple[Proof, ...]:
    """The theorem that names the target; for an unnamed one: the canonical form, and that it is none."""
    if not form.found.rest:
        return (form.derivation.equals(target_quantity(form.found)),)
    canonical = form.derivation.equals(Quantity(form.derivation.left))
    return canonical, form.derivation.is_no_combination()


def target_quantity(found: Target) -> Quantity:
    """a grad KL(q||p) + b grad KL(p||q) + grad E_q[h]."""
    total = Quantity(Side())
    total = total + grad(KL("q", "p")) * to_sympy(found.reverse)
    total = total + grad(KL("p", "q")) * to_sympy(found.forward)
    if found.reward:
        total = total + grad(Quantity(Side.atom(E("q", found.reward))))
    return total


def _value(written: Written, setting: Setting, element: ExpPoly) -> tuple[Target, ExpPoly]:
    uses = _uses_sampler(element, setting)
    under = "q" if setting.on_policy and not uses else "mu"
    reduced = derive(expectation(written.expression, under), on_policy=uses).reduce().left
    constant, v = ZERO, ZERO
    for coefficient, atoms in reduced.terms:
        match atoms:
            case ():
                constant = constant + coefficient
            case (E(_, a, ()),):
                v = v + a
    return recognise_value(v), constant


def _witness(form: Canonical) -> dict[str, Any] | None:
    """A model in which the expected gradient is not grad KL(q||p) (beside the policy gradient of rewards)."""
    found = form.found
    if found.target == "reverse-kl" or (found.target == "combination" and not found.forward):
        return None
    right = grad(KL("q", "p"))
    if found.reward:
        right = right + grad(Quantity(Side.atom(E("q", found.reward))))
    proof = form.derivation.differs_from(right)
    close = proof.part["close"]
    refuted = show_theorem(proof.theorem, proof.labels).removesuffix(" in general").replace("!=", "=")
    used = used_names(proof.theorem.statement)
    return shown_model(refuted, close["model"], close["left"], close["right"], used)


def used_names(statement: Statement) -> set[str]:
    """What a model must say for both sides to have values."""
    names = {n for side in (statement.left, statement.right) for e in elements(side) for n in e.names()}
    sampled = "mu" in measures(statement.left) | measures(statement.right)
    return {parse_name(n).base for n in names} | ({"w"} if sampled else set())


def _steps(proof: Proof) -> tuple[Step, ...]:
    text, latex = (chain(proof.part, proof.labels, spell) for spell in (TEXT, LATEX))
    return tuple((why, a, b) for (a, why), (b, _) in zip(text, latex, strict=True))
