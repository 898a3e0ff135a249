"""explain for batches whose centred coefficients are divided by their standard deviation.  Untrusted.

    E_m[mean_i a_i s_i],  a_i = (h_i - mean h)/std,  std^2 = mean_i (h_i - mean h)^2

Samples from mu do not move.  For dh = b dlog q with a constant b:

    b = 0    E_mu[mean_i a_i s_i] = grad E_mu[mean_i a_i log q_i]
    b != 0   E_mu[mean_i a_i s_i] = grad E_mu[std]/b, as d std = mean_i a_i dh_i

On-policy at n = 2, a_1 = sign(h_1 - h_2), which does not move where the values of h differ.  On three
outcomes, R = 0, 1, 2 in the order of h, sign(d) = (7 d - d^3)/6 for d = R_1 - R_2: the expected gradient is

    grad E_q[7 R - R^3]/6 + (E_q[R] grad E_q[R^2] - E_q[R^2] grad E_q[R])/2

and has the curl d_u E_q[R] d_v E_q[R^2] - d_v E_q[R] d_u E_q[R^2].
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import sympy

from klsym.engine.fields.field import reduce_loss
from klsym.engine.fields.position_sums import n
from klsym.engine.fields.slot_loss import build_slot_loss
from klsym.engine.options.settings import Setting
from klsym.engine.outside.two_values import Push, add_two_values
from klsym.engine.proof.counterexamples import generate_models
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import Quantity, expectation, grad, sample
from klsym.engine.proof.sequence_quantities import mean_over_i
from klsym.engine.proof.shown_counterexample import describe_counterexample
from klsym.engine.targets.ring import build_partial_verdict, explain_centred, find_sample_h
from klsym.engine.targets.ring_notes import READING_NOTES, collect_assumptions
from klsym.engine.verdicts.verdict import Counterexample, TargetReading, Verdict
from klsym.errors import NotInRing, ProofError
from klsym.kernel.models import Model, enclose
from klsym.kernel.names import SAMPLE_BASES
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Indexed, Side
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import A, H, R, log_q, now, others, own, parameter, s
from klsym.language.messages import Message
from klsym.language.recognition import is_indicator
from klsym.language.sums import Normalised
from klsym.language.unfolding import differentiate_in_log_q, expand_context
from klsym.notation import formulas, losses
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.tree import Gradient, Words, divide
from klsym.notation.values import LazyFormula, show_value, subtract_mean

PUSHED = LazyFormula(divide, (subtract_mean(to_ring(own(H)), to_ring(others(H))), parameter("std")))
COEFFICIENT = show_value(PUSHED)
FIELD_LATEX = r"\tfrac1n\sum_i \frac{H_i - \frac1n\sum_j H_j}{\mathrm{std}}\,s_i"
MEAN_LATEX = r"\tfrac1n\sum_i \frac{H_i - \frac1n\sum_j H_j}{\mathrm{std}}\,\log q_i"


def explain_batch_std(written: Written, setting: Setting) -> Verdict:
    """Return the verdict on a loss with batch std; equal coefficients less their mean are 0, and 0/0 is 0."""
    loss = build_slot_loss(written, setting)
    if loss.defined.definitions:
        raise NotInRing("batch std takes exponential polynomials alone, without cases, logs and roots")
    single = reduce_loss(loss)
    h = find_sample_h(single, setting)
    if not h.names() & {*SAMPLE_BASES}:
        return explain_centred(written, setting, single)
    return _build_verdict(build_partial_verdict(written, setting, single), h)


def _build_verdict(single: Verdict, h: ExpPoly) -> Verdict:
    """Return the verdict for coefficients h that are no constants; `single` is that on one sample."""
    under = "q" if single.setting.on_policy else "mu"
    half, square = _prove_at_two()
    start = (f"E_{under}[mean_i {COEFFICIENT}*s_self]", LATEX.expectation(under, FIELD_LATEX))
    verdict = single.revise(
        score_coefficient=PUSHED,
        canonical_coefficient=None,
        gradient=TargetReading(None, {}),
        trust="numeric",
        assumptions=(READING_NOTES["mean"], Message("given-std", of=h)),
        steps=(("", *start),),
        theorems=(half, square),
        counterexample=Counterexample(),
        quantity=None,
        in_quantities=None,
        remarks=(
            Message("signs-alone", half=half, square=square),
            _describe_limit(h, single.setting.on_policy),
        ),
        messages=list_size_messages(h),
    )
    verdict = _add_binary_remarks(verdict, h) if single.setting.on_policy else verdict
    return _refute_on_policy(verdict, h) if single.setting.on_policy else _explain_fixed_samples(verdict, h)


# ---------------------------------------------------------------------------- what holds in any case
def _build_sample_mean(a: Any) -> Quantity:
    """Return the value at one sample of a batch."""
    return mean_over_i(a, under="sample")


@cache
def _prove_at_two() -> tuple[Proof, Proof]:
    """Prove that at n = 2 a centred value is half the difference, and std its size."""
    mean = (own(R) + others(R)) / n  # R may be any two numbers
    spread = ((own(R) - mean) ** 2 + (others(R) - mean) ** 2) / n
    pair = ((n, 2),)
    half = derive(_build_sample_mean(own(R) - mean), premises=pair).equals(
        _build_sample_mean((own(R) - others(R)) / 2), using=[(0, None)]
    )
    square = derive(_build_sample_mean((own(R) - mean) ** 2), premises=pair).equals(
        _build_sample_mean(spread), using=[(0, None)]
    )
    return half, square


def _describe_limit(h: ExpPoly, on_policy: bool) -> Message:
    """Return the limit for large n: E_m[h s] less E_m[h] E_m[s], over sd_m(h)."""
    b = None if on_policy else _find_constant_slope(h)
    return Message("std-limit", h=h, moves=on_policy, slope=b)


def list_size_messages(*of: ExpPoly) -> tuple[Message, ...]:
    """Return the warnings about dividing by the standard deviation of these elements."""
    return (Message("size-lost"), *((Message("own-scale"),) if any(map(_is_mixed, of)) else ()))


def _is_mixed(h: ExpPoly) -> bool:
    """Does anything but a reward differ from sample to sample?"""
    names = {name for name in h.names() if name in SAMPLE_BASES}
    return bool(names & {"R", "A"}) and not names <= {"R", "A"}


def _add_binary_remarks(verdict: Verdict, h: ExpPoly) -> Verdict:
    """Add the objective for two values of R at each n; beside a penalty, the effect of the division."""
    if is_indicator(to_sympy(h)) or is_indicator(to_sympy(-h)):
        return add_two_values(verdict, Push(sympy.S.One, Normalised(to_sympy(h))))
    if h not in (to_ring(R), to_ring(-R)):
        return (
            verdict.revise(remarks=(*verdict.gradient.remarks, Message("same-scale")))
            if _is_mixed(h)
            else verdict
        )
    proof = _prove_binary_objective()
    messages = (
        Message("binary-rewards", sign="" if h == to_ring(R) else "-"),
        Message("binary-ends", proof=proof),
    )
    return verdict.revise(
        remarks=(*verdict.gradient.remarks, *messages), theorems=(*verdict.proof.theorems, proof)
    )


@cache
def _prove_binary_objective() -> Proof:
    centred = own(R) - (own(R) + others(R)) / n
    return derive(mean_over_i(centred * own(s), under="q")).equals(grad(expectation(R, "q")) * (1 - 1 / n))


# ---------------------------------------------------------------------------- samples that do not move
@cache
def _prove_free_coefficient() -> Proof:
    return derive(expectation(A * s, "mu")).equals(grad(expectation(A * log_q, "mu")))


def _find_constant_slope(h: ExpPoly) -> ExpPoly | None:
    """Return dh/dlog q, if it is a constant."""
    context = derive(expectation(to_sympy(h), "mu")).context
    b = differentiate_in_log_q(h, context)
    return b if context.is_constant(b) else None


def _explain_fixed_samples(verdict: Verdict, h: ExpPoly) -> Verdict:
    """Return the verdict under mu, with the objective where there is one."""
    b, proofs = _find_constant_slope(h), verdict.proof.theorems
    if b is None:
        return _refute_by_numbers(verdict, h)
    if not b:  # a_i is free of theta, as any A is
        free = _prove_free_coefficient()
        text = TEXT.expectation("mu", f"mean_i {COEFFICIENT}*log_q_self")
        latex, proofs = LATEX.expectation("mu", MEAN_LATEX), (*proofs, free)
        note, assumed = Message("coefficient-free", proof=free), collect_assumptions((free,))
    else:
        text = losses.divide_text(TEXT.expectation("mu", "std"), b, TEXT)
        latex = losses.divide_text(LATEX.expectation("mu", r"\mathrm{std}"), b, LATEX)
        slope = formulas.show_element(b)
        note = Message("slope-of-std", coefficient=COEFFICIENT, slope=slope)
        assumed = (Message("samples-differ-in-h"), *([Message("nonzero", of=slope)] if b.names() else []))
    return verdict.revise(
        gradient=TargetReading("objective", {}),
        assumptions=(*verdict.assumptions, *assumed),
        theorems=proofs,
        formula=Words(text, latex),
        in_quantities=Gradient(Words(text, latex)),
        remarks=(note, *verdict.gradient.remarks),
    )


# ---------------------------------------------------------------------------- samples that move
def _refute_on_policy(verdict: Verdict, h: ExpPoly) -> Verdict:
    """Refute an objective at n = 2, where the values of h differ on three outcomes."""
    for model, where in _iterate_ordered_trees(h):
        try:
            twisted = derive(_build_curl()).differs_from(0, model=model)
        except ProofError:
            continue
        return verdict.revise(
            gradient=TargetReading("no-objective", {}),
            theorems=(*verdict.proof.theorems, twisted),
            counterexample=Counterexample(describe_counterexample(twisted)),
            remarks=(Message("signs-turn", **where), *verdict.gradient.remarks),
        )
    return _refute_by_numbers(verdict, h)


def _refute_by_numbers(verdict: Verdict, h: ExpPoly) -> Verdict:
    """Refute an objective by numbers, where a batch of three has a curl."""
    from klsym.engine.proof.numeric_curl import ScoreCoefficients, find_curl

    on_policy = verdict.setting.on_policy
    spread = {H.name: ScoreCoefficients({"self": h}, False, on_policy, word=Normalised.name)}
    pushes = ScoreCoefficients({"self": to_ring(own(H))}, False, on_policy, divided=spread)
    witness = find_curl(pushes, f"E_{'q' if on_policy else 'mu'}[mean_i {COEFFICIENT}*s_self]")
    if witness is None:
        return verdict
    return verdict.revise(
        gradient=TargetReading("no-objective", {}),
        counterexample=Counterexample(witness),
        remarks=(Message("turns-at-three"), *verdict.gradient.remarks),
    )


def _build_curl() -> Quantity:
    """d_u E_q[R] d_v E_q[R^2] - d_v E_q[R] d_u E_q[R^2] over sequences of one token, which are samples."""

    def build_mean(power: int, along: str) -> Indexed:
        return Indexed("t", "q", to_ring(now(R) ** power), (along,))

    across = (build_mean(1, "now"), build_mean(2, "now'")), (build_mean(1, "now'"), build_mean(2, "now"))
    return Quantity(Side.combine((1, across[0]), (-1, across[1])))


def _iterate_ordered_trees(h: ExpPoly) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield trees of three outcomes on which the values of h differ, with their ranks as rewards."""
    start = derive(sample(to_sympy(h)))
    context, side = expand_context(start.context), start.reduce().left
    for model in generate_models(context, on_policy=True):
        tree = model["tree"]
        if len(tree["q"]) != 3:
            continue
        try:
            reads = (Model.from_json({**model, "path": [x]}, context) for x in range(3))
            values = [enclose(side, read) for read in reads]
        except ProofError:  # a power beyond what is enclosed
            return
        order = sorted(range(3), key=lambda x: values[x].lower)
        if all(values[a].upper < values[b].lower for a, b in pairwise(order)):
            ranks = {"R": [str(order.index(x)) for x in range(3)]}
            rows = {**tree, "u": ["1", "0", "0"], "v": ["0", "1", "0"], "rewards": ranks}
            yield {"tree": rows, "path": [], "parameters": {}}, _describe_model(h, model)


def _describe_model(h: ExpPoly, model: dict[str, Any]) -> dict[str, Any]:
    """Return the rows and parameters of a model on which H depends."""
    rows = {"p": model["tree"]["p"]} if "k1" in h.names() else {}
    rows |= {name: row for name, row in model["tree"]["rewards"].items() if name in h.names()}
    return {"rows": rows, "parameters": model["parameters"]}
