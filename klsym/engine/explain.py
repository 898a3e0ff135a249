"""explain: from a loss to a verdict.  Untrusted; the kernel replays every theorem in the verdict.

>>> verdict = explain("rho*k3", sampling="off-policy")
>>> verdict.target, verdict.trust, verdict.coefficient
('reverse-kl', 'kernel', 'k1')
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import sympy

from klsym.convert import to_ring, to_sympy
from klsym.engine import outside
from klsym.engine.advice import warnings_for
from klsym.engine.derivation import Derivation, Proof, derive
from klsym.engine.quantities import KL, Quantity, expectation, expected_gradient, grad
from klsym.engine.targets import Target, recognise, recognise_value
from klsym.engine.verdict import Meaning, Setting, Step, Verdict
from klsym.engine.witness import models
from klsym.errors import NotInRing, UsageError
from klsym.kernel.closing import score_coefficient
from klsym.language import ATOMS, as_expression, s, sg
from klsym.normal_form import ZERO, ExpPoly
from klsym.parser import parse
from klsym.render import formulas, losses
from klsym.render.losses import Written
from klsym.render.spelling import LATEX, TEXT, Text, is_sum
from klsym.render.text import chain, show_theorem
from klsym.statements import Context, E, Side, Statement, elements, parse_name

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
    setting = Setting(sampling, use, level, batch)
    for name, allowed in CHOICES.items():
        if getattr(setting, name) not in allowed:
            raise UsageError(f"{name}={getattr(setting, name)!r}: one of {', '.join(allowed)} expected")
    written = _written(loss, parameters)
    try:
        return _in_ring(written, setting)
    except NotInRing as error:
        if "division by zero" in str(error):
            raise UsageError(f"division by zero in {written.text!r}") from None
        return _outside_ring(written, setting)


def _written(loss: Any, parameters: Iterable[str]) -> Written:
    if isinstance(loss, str):
        return Written(loss, parse(loss, parameters))
    expression = as_expression(loss)
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
    start = _start(written, setting, element)
    reduced = derive(start, on_policy=_uses_sampler(element, setting)).reduce()
    c = score_coefficient(reduced.left, Side())
    form = Canonical(reduced, c, recognise(c))
    proofs = _prove(form, start)
    value, constant = _value(written, setting, element)
    witness = _witness(form, start)
    main = proofs[0]
    per_sample = _per_sample(form)
    clamped = Verdict(
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
    return replace(clamped, warnings=warnings_for(clamped, element, per_sample, c))


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


def _prove(form: Canonical, start: Quantity) -> tuple[Proof, ...]:
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


def _witness(form: Canonical, start: Quantity) -> dict[str, Any] | None:
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
    used = _used_names(proof.theorem.statement)
    return _witness_json(refuted, close["model"], close["left"], close["right"], used)


def _used_names(statement: Statement) -> set[str]:
    names = {n for side in (statement.left, statement.right) for e in elements(side) for n in e.names()}
    measures = {item[1] for item in statement.left.to_json()[0][1] if len(item) > 2}
    return {parse_name(n).base for n in names} | ({"w"} if "mu" in measures else set())


def _witness_json(refuted: str, model: Any, left: Any, right: Any, used: set[str]) -> dict[str, Any]:
    """The model, less what the equation does not mention."""
    shown = {name: model[name] for name in ("q", "p", "mu", "u") if name != "mu" or "w" in used}
    rewards = {name: values for name, values in model["rewards"].items() if name in used}
    extra = {"parameters": model["parameters"], "rewards": rewards}
    return {
        "refutes": refuted,
        **shown,
        **{k: v for k, v in extra.items() if v},
        "left": left,
        "right": right,
    }


def _steps(proof: Proof) -> tuple[Step, ...]:
    text, latex = (chain(proof.part, proof.labels, spell) for spell in (TEXT, LATEX))
    return tuple((why, a, b) for (a, why), (b, _) in zip(text, latex, strict=True))


# ---------------------------------------------------------------------------- outside it
def _outside_ring(written: Written, setting: Setting) -> Verdict:
    loss = written.expression
    per_sample = outside.drop_sg(loss) if setting.use == "reward" else outside.gradient_coefficient(loss)
    if setting.on_policy:
        per_sample = outside.at_policy(per_sample)
    c = outside.score_coefficient(per_sample, setting.on_policy)
    found, trust = _recognise_outside(c)
    value = outside.drop_sg(loss) if not setting.on_policy else outside.at_policy(outside.drop_sg(loss))
    inside = outside.inside_clamps(loss)
    clamps = None
    if inside is not None:
        clamps = explain(inside, setting.sampling, setting.use).gradient
    steps = _outside_steps(written, setting, per_sample, c)
    return Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        per_sample=losses.show(per_sample, TEXT),
        coefficient=losses.show(c, TEXT),
        coefficient_latex=losses.show(c, LATEX),
        gradient=found,
        value=_value_outside(value, setting),
        value_constant="0",
        trust=trust,
        hypotheses=("the loss is differentiable at every sample (no tie at a bound)",
                    "grad and E may be exchanged (dominated derivative near theta)",
                    *(() if setting.on_policy else ("mu << q: wherever mu > 0, also q > 0",))),
        steps=steps,
        witness=_witness_outside(c, found, setting, steps[0][1]),
        inside_clamps=clamps,
        warnings=("outside the decidable core: this verdict rests on SymPy, not on the kernel",),
    )  # fmt: skip


def _outside_steps(written: Written, setting: Setting, per_sample: Any, c: Any) -> tuple[Step, ...]:
    under = "q" if setting.on_policy else "mu"

    def scored(a: Any, measure: str, spell: Text) -> str:
        shown = losses.show(a, spell)
        inner = spell.bracket(shown) if is_sum(shown) else shown
        return spell.expectation(measure, inner + spell.product_sign + spell.score)

    def first(spell: Text) -> str:
        shown = losses.show(written, spell)
        if setting.use == "loss":
            return spell.expectation(under, spell.gradient_of(shown, spell.is_single(shown)))
        return spell.expectation(under, spell.call("sg", shown) + spell.product_sign + spell.score)

    steps = [("", first(TEXT), first(LATEX))]
    first_rule = "chain rule" if setting.use == "loss" else "stop-gradient"
    for rule, measure, a in ((first_rule, under, per_sample), ("change of measure", "q", c)):
        text, latex = scored(a, measure, TEXT), scored(a, measure, LATEX)
        if steps[-1][1] != text:
            steps.append((rule, text, latex))
    return tuple(steps)


def _outside_hypotheses(setting: Setting) -> tuple[str, ...]:
    differentiable = ("the loss is differentiable at every sample (no tie at a bound)",)
    support = ("mu << q: wherever mu > 0, also q > 0",)
    exchange = ("grad and E_q may be exchanged (dominated derivative near theta)",)
    return (
        *(differentiable if setting.use == "loss" else ()),
        *exchange,
        *(() if setting.on_policy else support),
    )


def _witness_outside(c: Any, found: Meaning, setting: Setting, left: str) -> dict[str, Any] | None:
    if found.target in ("reverse-kl", "combination"):
        return None
    names = tuple(sorted(str(x) for x in c.free_symbols if str(x) not in ATOMS))
    context = Context(parameters=names, on_policy=setting.on_policy)
    model = outside.witness(c, models(context))
    if model is None:
        return None
    used = {str(x) for x in c.free_symbols} | (set() if setting.on_policy else {"w"})
    return _witness_json(f"{left} = grad KL(q||p)", model, model["left"], model["right"], used)


def _recognise_outside(c: Any) -> tuple[Meaning, str]:
    element = outside.as_ring(c)
    if element is not None:
        return Meaning.of(recognise(element)), "sympy"
    fitted = outside.fit(c)
    if fitted.multiples is None:
        only_r = not outside.depends_beyond_r(c)
        return Meaning("f-divergence" if only_r else "separable", {}), fitted.trust
    reverse, forward, reward, advantage, _ = (to_ring(m) for m in fitted.multiples)
    rewards = reward * ExpPoly.variable("R") + advantage * ExpPoly.variable("A")
    return Meaning.of(Target(reverse, forward, rewards, ZERO, ZERO)), fitted.trust


def _value_outside(value: Any, setting: Setting) -> Meaning:
    element = outside.as_ring(value if setting.on_policy else sympy.powsimp(value / outside.rho))
    if element is not None:
        return Meaning.of(recognise_value(element))
    return Meaning("separable" if outside.depends_beyond_r(value) else "f-divergence", {})
