"""The verdict on clamps that hold sums over other tokens or samples: togo(R), loo(R), prefix weights.

    E_m[sum_t grad L_t] = E_m[sum_t sum_z h_z s_z]       z: now, past, future; in a batch self, others

Off-policy mu does not move: E_mu[grad L] = grad E_mu[L], whatever L is, where nothing in it is detached; and
h s_now, with nothing else in h that moves, has a primitive.  On-policy ratios are 1, where most clamps do not
bind: what is left is an exponential polynomial with its own proof.  Otherwise the curl decides, or nothing
does, and the answer is open.  Rests on SymPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import sympy

from klsym.convert import to_ring, to_sympy
from klsym.engine.options.expand_options import expansion
from klsym.engine.options.settings import Setting
from klsym.engine.outside import sympy_target
from klsym.engine.outside.numeric_curl import twisted
from klsym.engine.outside.position_sums import Standing
from klsym.engine.outside.read_sums import Pushes, pushes_of, standing
from klsym.engine.outside.samples import (
    branch_hypotheses,
    kink_warnings,
    presupposed,
    unclamped,
    undefined,
)
from klsym.engine.outside.tokens import NOT_PROVED
from klsym.engine.proof import supports
from klsym.engine.regions import subgradients
from klsym.engine.regions.case_split import cases
from klsym.engine.regions.piecewise import Regions, is_piecewise
from klsym.engine.targets.ring_notes import OPEN as OF_A_BATCH
from klsym.engine.targets.ring_notes import READINGS
from klsym.engine.targets.ring_notes import READINGS as OF_BATCHES
from klsym.engine.verdicts.verdict import Cases, Meaning, Step, Verdict
from klsym.engine.verdicts.warnings import OF_DESCENT, facts_outside, token_warnings, warnings_for
from klsym.errors import NotInRing, UsageError
from klsym.language import A, R, Slot, future, length, log_mu, log_q, past, rho, s, sg
from klsym.render import losses
from klsym.render.cases import latex as in_cases
from klsym.render.losses import Written
from klsym.render.spelling import LATEX, TEXT, Text
from klsym.render.told import about
from klsym.render.tree import Call, Formula, Gradient, Mean, Name, Over, Words, product, quotient
from klsym.slots import SEQUENCE
from klsym.sums import After, Before, Normalised, OfOthers, Summed

OPEN = (
    "open: no tree that was tried gives the expected gradient a curl, and that it has none is not proved, nor"
    " is an objective known"
)
W = log_q - log_mu
WEIGHTED = {"prefix": ("past",), "sequence": ("past", "future")}
SUMS = {"past": Before, "future": After, "others": OfOthers}
SCORES = {z: sympy.Symbol(f"score_{z}", real=True) for z in ("past", "now", "future", "self", "others")}

Explained = Callable[[Any, Setting], Verdict]


def explain_outside_slots(written: Written, setting: Setting, explained: Explained) -> Verdict:
    """The verdict; `explained` explains another loss that is used so, or refuses it."""
    at = standing(written, setting)
    pushes = pushes_of(at, written.text)
    loss = pushes.part.loss
    tied = subgradients.conventions(loss, setting.on_policy) if setting.use == "loss" else set()
    told = (*branch_hypotheses(setting, tied, pushes.part), *_readings(pushes, at))
    smooth = _without_kinks(pushes, at)
    if smooth is not None:
        with suppress(UsageError):  # such as 1/T of each sample of a batch
            return _renamed(explained(*smooth), written, at, told)
    verdict = _verdict(written, at, pushes)
    free = _unbound(pushes, at)
    inside = None if free is None else replace(at, expression=free)
    verdict = replace(
        verdict,
        hypotheses=(*told, *presupposed(verdict, loss), *_supports(pushes, at)),
        inside_clamps=None if inside is None else _inside(inside, explained),
        bias_cases=() if inside is None else _bias(pushes, inside, written.text),
    )
    facts = facts_outside(loss, _own(pushes, at), at.placed)
    facts = replace(facts, alone=not any(stand.of.has(log_mu) for stand in at.stands))
    said = token_warnings(verdict, facts) if at.tokens else warnings_for(verdict, facts)
    said += kink_warnings(pushes.part.typed, setting, tied) + undefined(loss, _own(pushes, at))
    return replace(verdict, warnings=said)


def _supports(pushes: Pushes, at: Standing) -> tuple[str, ...]:
    """What bringing each h_z s_z from mu to q asks, slot by slot; a batch is left under mu."""
    if at.setting.on_policy or not at.tokens:
        return ()
    found: set[str] = set()
    for z, h in pushes.of.items():
        for slot in SEQUENCE:
            moved = {x.symbol: subgradients.sampled(x.of, False) for x in at.stands if slot in x.slots}
            mapping = None if slot == at.own else moved
            found |= {*supports.change_of_measure(h, scored=slot == z, moved=mapping)}
    return tuple(sorted(found))


def _own(pushes: Pushes, at: Standing) -> Any:
    return pushes.of.get(at.own, sympy.S.Zero)


def _inside(at: Standing, explained: Explained) -> Meaning:
    """What the loss targets where no bound binds."""
    try:
        return explained(*_in_grammar(at)).gradient
    except UsageError:
        return Meaning(None)


def _unbound(pushes: Pushes, at: Standing) -> Any | None:
    """The loss where no bound binds, with its sums as they move; None if no bound binds at some samples only.

    On-policy the sum of log q - log mu over others is m (log q - sg(log q)): 0, with a mark m to find it by.
    """
    zero = log_q - sg(log_q)
    marks = {x.symbol: sympy.Dummy(real=True) for x in at.stands if x.vanishes}
    typed = at.expression.xreplace({x: mark * zero for x, mark in marks.items()})
    typed = typed.xreplace(pushes.part.bounds)
    free = unclamped(typed, subgradients.chosen(typed, at.setting.on_policy))
    return None if free is None else free.xreplace({mark: x / zero for x, mark in marks.items()})


def _in_grammar(at: Standing) -> tuple[Any, Setting]:
    """The loss as it may be typed: rho for the weights that it stands for, or those written out."""
    weight = next(
        (x.symbol for x in at.stands if x.slots == WEIGHTED.get(at.setting.weights) and x.of == W), None
    )
    if weight is not None:
        typed = _with_rho(at.expression, weight, at.setting.weights)
        if not typed.has(weight):
            return at.back(typed), at.setting
    weights = "token" if at.setting.weights else ""
    return at.back(at.expression), replace(at.setting, weights=weights)


def _with_rho(e: Any, past: Any, weights: str) -> Any:
    """The inverse of `weight_of`: rho for exp(past)*rho, or for exp(log q - log mu + past) of a sequence."""
    if weights == "prefix":
        return e.xreplace({rho: rho * sympy.exp(-past)})

    def of_sequence(x: Any) -> Any:
        power = sympy.expand(x.args[0]).coeff(past)
        return rho**power * sympy.exp(sympy.expand(x.args[0] - power * (W + past)))

    return e.replace(lambda x: isinstance(x, sympy.exp) and x.has(past), of_sequence)


def _readings(pushes: Pushes, at: Standing) -> tuple[str, ...]:
    if not at.tokens:
        return (OF_BATCHES["mean"],)
    held = [*pushes.of.values(), *(stand.of for stand in at.stands)]
    return tuple(READINGS[x.name] for x in (R, A) if any(e.has(x) for e in held))


# ---------------------------------------------------------------------------- where no clamp is left
def _without_kinks(pushes: Pushes, at: Standing) -> tuple[Any, Setting] | None:
    """A loss in the ring with the same gradient, where all branches and kinks cancel; None for others."""
    try:
        plain = {slot: _in_ring(h) for slot, h in pushes.of.items()}
    except NotInRing:
        return None
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


def _as_reward(typed: Mapping[str, Any], at: Standing) -> tuple[Any, Setting] | None:
    """c normalised(h) and more as what multiplies the score: normalised(-h) for c = -1."""
    if set(typed) != {at.own} or at.setting.use == "reward":
        return None
    terms = sympy.Add.make_args(sympy.expand(typed[at.own]))
    return sympy.Add(*map(_negated, terms)), replace(at.setting, use="reward")


def _negated(term: Any) -> Any:
    """-normalised(h) = normalised(-h)."""
    return Normalised(-(-term).args[0]) if isinstance(-term, Normalised) else term


def _renamed(verdict: Verdict, written: Written, at: Standing, told: tuple[str, ...]) -> Verdict:
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
        value=Meaning(None),
        constant=None,
        hypotheses=tuple(dict.fromkeys((*told, *verdict.hypotheses))),
        steps=steps,
        expansion=expansion(written, at.setting),
        warnings=(
            NOT_PROVED,
            *(x for x in verdict.warnings if of_same_use or about(x) not in OF_DESCENT),
        ),
    )


# ---------------------------------------------------------------------------- the verdict
def _verdict(written: Written, at: Standing, pushes: Pushes) -> Verdict:
    setting, over = at.setting, 1 / length if at.setting.averaged else sympy.S.One
    start, pushed = _start(written, at), _scored(pushes.of)
    target, witness = _target(pushes, at, start[1])
    c = at.placed(sympy_target.under_q(pushed, setting.on_policy) * over)
    c = c if setting.on_policy else c / (past(rho) * future(rho))
    rows = _placed(cases(pushed), at, over)
    pieces = tuple((on, sympy.expand(_under_q(value, at))) for on, value in rows)
    verdict = Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=_with_scores(at.placed(pushed * over)),
        c=_with_scores(c) if at.tokens else None,
        per_sample_cases=rows,
        coefficient_cases=pieces if at.tokens and is_piecewise(pushed) else (),
        gradient=Meaning(target, {}, _with_scores(c) if target and at.tokens else None),
        value=Meaning(None),
        constant=None,
        trust="sympy",
        hypotheses=(),
        steps=(start, _chain(pushed * over, rows, at)),
        model=witness,
        inside_clamps=None,
        scores_named=(True, True),
        notes=() if target else (OPEN if at.tokens else OF_A_BATCH,),
        expansion=expansion(written, setting),
    )
    if target != "separable" or setting.use != "loss" or pushes.part.loss.has(sg):
        return verdict
    shown, latex = (spell(_objective(at, spell)) for spell in (TEXT, LATEX))
    return replace(verdict, shown=f"grad {shown}", objective_latex=latex)


def _target(pushes: Pushes, at: Standing, start: str) -> tuple[str | None, dict[str, Any] | None]:
    """separable off-policy where nothing is detached, or h moves with its own token alone."""
    if not pushes.of:
        return "zero", None
    if not at.setting.on_policy:
        attached = at.setting.use == "loss" and not at.expression.has(sg)
        held = {x for h in pushes.of.values() for x in h.free_symbols}
        moving = any(stand.of.has(log_q) and stand.symbol in held for stand in at.stands)
        if attached or (not moving and set(pushes.of) <= {at.own}):
            return "separable", None
    witness = twisted(pushes.of, at, start)
    return ("none" if witness else None), witness


def _scored(h: Mapping[str, Any]) -> Any:
    """The sum of h s over the slots, equal ones together."""
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
    return _scored(kept) if rest == 0 else e


def _shown(e: Any, spell: Text = TEXT) -> str:
    return losses.show(_with_scores(e), spell)


def _placed(rows: Any, at: Standing, over: Any) -> Cases:
    """Cases spoken of token t, or of sample i."""
    return tuple(
        (
            tuple(replace(c, x=at.placed(c.x)) for c in case.conditions),
            _with_scores(at.placed(_gathered(case.coefficient) * over)),
        )
        for case in rows
    )


def _under_q(value: Any, at: Standing) -> Any:
    return value if at.setting.on_policy else value / (past(rho) * Slot("now")(rho) * future(rho))


def _bias(pushes: Pushes, inside: Standing, text: str) -> Cases:
    """What bounds change: the push less what it is where none binds, by regions."""
    free = _scored(pushes_of(inside, text).of)
    gap = _scored(pushes.of) - free
    rows = [replace(case, coefficient=sympy.expand(case.coefficient)) for case in cases(gap)]
    if all(case.coefficient == 0 for case in rows):
        return ()
    over = 1 / length if inside.setting.averaged else sympy.S.One
    elsewhere = any(case.coefficient != 0 and not case.conditions for case in rows)
    kept = [case for case in rows if case.coefficient != 0 or elsewhere]
    return _placed(kept, inside, over)


# ---------------------------------------------------------------------------- as it is shown
def _tree(at: Standing, spell: Text) -> Formula:
    shown = losses.tree_of(at.placed(at.expression), spell.positions)
    return quotient(shown, Name("length")) if at.setting.averaged else shown


def _mean(at: Standing, of: Formula) -> Formula:
    return Mean("q" if at.setting.on_policy else "mu", Over("t" if at.tokens else "i", of))


def _objective(at: Standing, spell: Text) -> Formula:
    """E_mu[sum_t L_t]."""
    return _mean(at, _tree(at, spell))


def _start(written: Written, at: Standing) -> Step:
    """E_m[sum_t grad L_t], or E_m[sum_t h_t s_t] for a reward."""
    shown = []
    for spell in (TEXT, LATEX):
        loss = _tree(at, spell)
        score = losses.tree_of(Slot(at.own)(s), spell.positions)
        reward = product(Call("sg", (loss,)), score)
        shown.append(spell(_mean(at, Gradient(loss) if at.setting.use == "loss" else reward)))
    return "", shown[0], shown[1]


def _chain(pushed: Any, rows: Cases, at: Standing) -> Step:
    rule = "chain rule" if at.setting.use == "loss" else "stop-gradient"
    text, latex = (
        spell(
            _mean(
                at,
                Words("h", in_cases(rows))
                if rows
                else losses.tree_of(_with_scores(at.placed(pushed)), spell.positions),
            )
        )
        for spell in (TEXT, LATEX)
    )
    return rule, text, latex
