"""The verdict on losses with sums over other tokens or samples that are beyond the theorems.

    E_m[sum_t grad L_t] = E_m[sum_t sum_z h_z s_z]       z: now, past, future; in a batch self, others

Off-policy mu does not move: E_mu[grad L] = grad E_mu[L], whatever L is, where nothing in it is detached; and
h s_now, with nothing else in h that moves, has a primitive.  On-policy ratios are 1, where most clamps do not
bind: what is left is an exponential polynomial with its own proof.  Otherwise the curl decides, or nothing
does, and the answer is open.  Rests on SymPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import sympy

from klsym.convert import to_ring, to_sympy
from klsym.engine.options.expand_options import expansion
from klsym.engine.options.settings import Setting
from klsym.engine.outside.differentiate import (
    kink_messages,
    presupposed,
    slopes_taken,
    unclamped,
)
from klsym.engine.outside.numbers import under_q
from klsym.engine.outside.numeric_curl import twisted
from klsym.engine.outside.position_sums import LossWithSums
from klsym.engine.outside.read_sums import (
    FieldCoefficients,
    in_grammar,
    pushes_of,
    standing,
    without_empty_branches,
)
from klsym.engine.proof import supports
from klsym.engine.regions import subgradients
from klsym.engine.regions.case_split import cases
from klsym.engine.regions.piecewise import Regions, is_piecewise
from klsym.engine.targets.clamps import undefined
from klsym.engine.targets.ring_notes import OPEN_SAMPLES, OPEN_TOKENS, READINGS
from klsym.engine.verdicts.verdict import Cases, ChainStep, TargetReading, Verdict
from klsym.engine.verdicts.warnings import OF_DESCENT, facts_outside, token_warnings, warnings_for
from klsym.errors import NotInRing, UsageError
from klsym.language import A, R, Slot, future, length, log_mu, log_q, past, rho, s, sg
from klsym.messages import Message
from klsym.notation import losses
from klsym.notation.cases import latex as in_cases
from klsym.notation.losses import Written
from klsym.notation.spelling import LATEX, TEXT, Text
from klsym.notation.tree import Call, Formula, Gradient, Mean, Name, Over, Words, product, quotient
from klsym.slots import SEQUENCE
from klsym.sums import After, Before, Normalised, OfOthers, Summed

SUMS = {"past": Before, "future": After, "others": OfOthers}
SCORES = {z: sympy.Symbol(f"score_{z}", real=True) for z in ("past", "now", "future", "self", "others")}

ExplainUse = Callable[[Any, Setting], Verdict]


def explain_outside_slots(written: Written, setting: Setting, explained: ExplainUse) -> Verdict:
    """The verdict; `explained` explains another loss that is used so, or refuses it."""
    at = standing(written, setting)
    pushes = pushes_of(at, written.text)
    loss = pushes.part.loss
    tied = subgradients.conventions(loss, setting.on_policy) if setting.use == "loss" else set()
    told = (*slopes_taken(setting, tied, pushes.part), *_readings(pushes, at))
    smooth = _without_kinks(pushes, at)
    if smooth is not None:
        with suppress(UsageError):  # such as 1/T of each sample of a batch
            return _renamed(explained(*smooth), written, at, told)
    pushes = without_empty_branches(pushes)
    verdict = _verdict(written, at, pushes)
    free = _unbound(pushes, at)
    inside = None if free is None else replace(at, expression=free)
    verdict = replace(
        verdict,
        assumptions=(*told, *presupposed(verdict, loss), *_supports(pushes, at)),
        inside_clamps=None if inside is None else _inside(inside, explained),
        bias_cases=() if inside is None else _bias(pushes, inside, written.text),
    )
    facts = facts_outside(loss, _own(pushes, at), at.placed)
    beside = any(stand.of.has(log_mu) for stand in at.stands)
    facts = replace(facts, alone=not beside, typed=written.expression.has(rho))
    said = token_warnings(verdict, facts) if at.tokens else warnings_for(verdict, facts)
    said += kink_messages(pushes.part.typed, setting, tied) + undefined(loss, _own(pushes, at))
    return replace(verdict, messages=said)


def _supports(pushes: FieldCoefficients, at: LossWithSums) -> tuple[Message, ...]:
    """The supports that bringing each h_z s_z from mu to q needs, slot by slot; a batch stays under mu."""
    if at.setting.on_policy or not at.tokens:
        return ()
    found: set[Message] = set()
    for z, h in pushes.of.items():
        for slot in SEQUENCE:
            moved = {x.symbol: subgradients.at_sampling(x.of, False) for x in at.stands if slot in x.slots}
            mapping = None if slot == at.own else moved
            found |= {*supports.change_of_measure(h, scored=slot == z, moved=mapping)}
    return supports.in_order(found)


def _own(pushes: FieldCoefficients, at: LossWithSums) -> Any:
    return pushes.of.get(at.own, sympy.S.Zero)


def _inside(at: LossWithSums, explained: ExplainUse) -> TargetReading:
    """What the loss targets where no bound binds."""
    try:
        return explained(*in_grammar(at)).gradient
    except UsageError:
        return TargetReading(None)


def _unbound(pushes: FieldCoefficients, at: LossWithSums) -> Any | None:
    """The loss where no bound binds, with its sums as they move; None if no bound binds at some samples only.

    On-policy the sum of log q - log mu over others is m (log q - sg(log q)): 0, with a mark m to find it by.
    """
    zero = log_q - sg(log_q)
    marks = {x.symbol: sympy.Dummy(real=True) for x in at.stands if x.vanishes}
    typed = at.expression.xreplace({x: mark * zero for x, mark in marks.items()})
    typed = typed.xreplace(pushes.part.bounds)
    free = unclamped(typed, subgradients.chosen(typed, at.setting.on_policy))
    return None if free is None else free.xreplace({mark: x / zero for x, mark in marks.items()})


def _readings(pushes: FieldCoefficients, at: LossWithSums) -> tuple[Message, ...]:
    if not at.tokens:
        return (READINGS["mean"],)
    held = [*pushes.of.values(), *(stand.of for stand in at.stands)]
    return tuple(READINGS[x.name] for x in (R, A) if any(e.has(x) for e in held))


# ---------------------------------------------------------------------------- where no clamp is left
def _without_kinks(pushes: FieldCoefficients, at: LossWithSums) -> tuple[Any, Setting] | None:
    """A loss in the ring with the same gradient, where all branches and kinks cancel; None for others."""
    try:
        plain = {slot: _in_ring(h) for slot, h in pushes.of.items()}
    except NotInRing:
        return None
    plain = plain or {at.own: sympy.S.Zero}
    typed = {slot: at.back(h) for slot, h in plain.items()}
    if any(h.has(Normalised) for h in typed.values()):
        return _as_reward(typed, at)
    setting = replace(at.setting, weights="token" if at.setting.weights else "")
    if setting.use == "reward" and set(typed) == {at.own}:
        credit = "same-token" if at.tokens and not typed[at.own].has(Summed) else ""
        return typed[at.own], replace(setting, credit=credit)
    setting = replace(setting, use="loss", credit="")
    terms = [sg(h) * (SUMS[slot](log_q) if slot in SUMS else log_q) for slot, h in typed.items()]
    return sum(terms, sympy.S.Zero), setting


def _in_ring(h: Any) -> Any:
    regions = Regions()
    element = regions.reduced(to_ring(sympy.expand(regions.polynomial(h))))
    if {symbol.name for symbol in regions.table} & element.names():
        raise NotInRing("a region is left")
    return to_sympy(element)


def _as_reward(typed: Mapping[str, Any], at: LossWithSums) -> tuple[Any, Setting] | None:
    """c normalised(h) and more as what multiplies the score: normalised(-h) for c = -1."""
    if set(typed) != {at.own} or at.setting.use == "reward":
        return None
    terms = sympy.Add.make_args(sympy.expand(typed[at.own]))
    return sympy.Add(*map(_negated, terms)), replace(at.setting, use="reward")


def _negated(term: Any) -> Any:
    """-normalised(h) = normalised(-h)."""
    return Normalised(-(-term).args[0]) if isinstance(-term, Normalised) else term


def _renamed(verdict: Verdict, written: Written, at: LossWithSums, told: tuple[Message, ...]) -> Verdict:
    """The verdict on a loss in the ring, said of the one that was written: SymPy found them equal."""
    steps, of_same_use = verdict.steps, verdict.setting.use == at.setting.use
    if steps:
        (_, text, latex), *rest = steps
        steps = (_start(written, at), ("no other branch", text, latex), *rest)
    return replace(
        verdict,
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=at.setting,
        trust="sympy" if verdict.trust == "kernel" else verdict.trust,
        value=TargetReading(None),
        constant=None,
        assumptions=tuple(dict.fromkeys((*told, *verdict.assumptions))),
        steps=steps,
        expansion=expansion(written, at.setting),
        messages=(
            Message("outside-the-core", trust="sympy"),
            *(x for x in verdict.messages if of_same_use or x.code not in OF_DESCENT),
        ),
    )


# ---------------------------------------------------------------------------- the verdict
def _verdict(written: Written, at: LossWithSums, pushes: FieldCoefficients) -> Verdict:
    setting, over = at.setting, _over(at)
    start, pushed = _start(written, at), _sum_of_scores(pushes.of)
    target, witness = _target(pushes, at, start[1])
    c = _under_q(pushed, at)
    plain = cases(pushed)
    rows = _placed(plain, at, over)
    pieces = tuple((on, _piece(case.coefficient, at)) for (on, _), case in zip(rows, plain, strict=True))
    pieces = pieces if at.tokens and is_piecewise(pushed) else ()
    verdict = Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=_with_scores(at.placed(pushed * over)),
        c=c if at.tokens else None,
        per_sample_cases=rows,
        coefficient_cases=pieces,
        gradient=TargetReading(target, {}, c if at.tokens and target not in (None, "zero") else None),
        value=TargetReading(None),
        constant=None,
        trust="sympy",
        assumptions=(),
        steps=(start, *_chain(pushed * over, rows, at)),
        model=witness,
        inside_clamps=None,
        scores_named=(True, True),
        remarks=() if target else (OPEN_TOKENS if at.tokens else OPEN_SAMPLES,),
        expansion=expansion(written, setting),
    )
    if target != "separable" or setting.use != "loss" or pushes.part.loss.has(sg):
        return verdict
    shown, latex = (spell(_objective(at, spell)) for spell in (TEXT, LATEX))
    return replace(verdict, shown=f"grad {shown}", objective_latex=latex)


def _target(
    pushes: FieldCoefficients, at: LossWithSums, start: str
) -> tuple[str | None, dict[str, Any] | None]:
    """The target, and a counterexample; off-policy a gradient where nothing is detached, or h moves with its
    own token alone."""
    if not pushes.of:
        return "zero", None
    if not at.setting.on_policy:
        attached = at.setting.use == "loss" and not pushes.part.loss.has(sg)
        held = {x for h in pushes.of.values() for x in h.free_symbols}
        moving = any(stand.of.has(log_q) and stand.symbol in held for stand in at.stands)
        if attached or (not moving and set(pushes.of) <= {at.own}):
            return "separable", None
    witness = twisted(pushes.of, at, start)
    return ("none" if witness else None), witness


def _sum_of_scores(h: Mapping[str, Any]) -> Any:
    together: dict[Any, list[str]] = {}
    for slot, value in h.items():
        together.setdefault(value, []).append(slot)
    return sum((v * sum(SCORES[z] for z in slots) for v, slots in together.items()), sympy.S.Zero)


def _with_scores(e: Any) -> Any:
    return e.xreplace({mark: Slot(slot)(s) for slot, mark in SCORES.items()})


def _gathered(e: Any) -> Any:
    """A sum of c_z s_z as c (s_a + s_b) + .., where it is linear in the scores."""
    expanded = sympy.expand(e)
    found = {slot: expanded.coeff(mark) for slot, mark in SCORES.items()}
    rest = sympy.expand(expanded - sum(found[z] * mark for z, mark in SCORES.items()))
    kept = {z: sympy.factor_terms(c) for z, c in found.items() if c != 0}
    return _sum_of_scores(kept) if rest == 0 else e


def _shown(e: Any, spell: Text = TEXT) -> str:
    return losses.show(_with_scores(e), spell)


def _placed(rows: Any, at: LossWithSums, over: Any) -> Cases:
    """Cases spoken of token t, or of sample i."""
    return tuple(
        (
            tuple(replace(c, x=at.placed(c.x)) for c in case.conditions),
            _with_scores(at.placed(_gathered(case.coefficient) * over)),
        )
        for case in rows
    )


def _over(at: LossWithSums) -> Any:
    return 1 / length if at.setting.averaged else sympy.S.One


def _under_q(e: Any, at: LossWithSums) -> Any:
    """The coefficient under q: h/(rho_past rho_now rho_future), without the ratios that are free to drop.

    The ratio of the future has mean one, where nothing else depends on the future.
    """
    c = _with_scores(at.placed(under_q(e, at.setting.on_policy) * _over(at)))
    if at.setting.on_policy:
        return c
    return c / (past(rho) * future(rho))


def _piece(value: Any, at: LossWithSums) -> Any:
    """The coefficient under q in one region."""
    return sympy.expand(_under_q(_gathered(value), at))


def _bias(pushes: FieldCoefficients, inside: LossWithSums, text: str) -> Cases:
    """What bounds change: the push less what it is where none binds, by regions."""
    gap = _sum_of_scores(pushes.of) - _sum_of_scores(pushes_of(inside, text).of)
    rows = [replace(case, coefficient=sympy.expand(case.coefficient)) for case in cases(gap)]
    if all(case.coefficient == 0 for case in rows):
        return ()
    elsewhere = any(case.coefficient != 0 and not case.conditions for case in rows)
    kept = [case for case in rows if case.coefficient != 0 or elsewhere]
    return _placed(kept, inside, _over(inside))


# ---------------------------------------------------------------------------- as it is shown
def _tree(at: LossWithSums, spell: Text) -> Formula:
    shown = losses.tree_of(at.placed(at.expression), spell.positions)
    return quotient(shown, Name("length")) if at.setting.averaged else shown


def _mean(at: LossWithSums, of: Formula) -> Formula:
    return Mean("q" if at.setting.on_policy else "mu", Over("t" if at.tokens else "i", of))


def _objective(at: LossWithSums, spell: Text) -> Formula:
    """E_mu[sum_t L_t]."""
    return _mean(at, _tree(at, spell))


def _start(written: Written, at: LossWithSums) -> ChainStep:
    """E_m[sum_t grad L_t], or E_m[sum_t h_t s_t] for a reward."""
    shown = []
    for spell in (TEXT, LATEX):
        loss = _tree(at, spell)
        score = losses.tree_of(Slot(at.own)(s), spell.positions)
        reward = product(Call("sg", (loss,)), score)
        shown.append(spell(_mean(at, Gradient(loss) if at.setting.use == "loss" else reward)))
    return "", shown[0], shown[1]


def _chain(pushed: Any, rows: Cases, at: LossWithSums) -> Iterator[ChainStep]:
    """h s under the sampler."""
    h = _with_scores(at.placed(pushed))
    text, latex = (
        spell(_mean(at, Words("h", in_cases(rows)) if rows else losses.tree_of(h, spell.positions)))
        for spell in (TEXT, LATEX)
    )
    yield "chain rule" if at.setting.use == "loss" else "stop-gradient", text, latex
