"""The verdict on token losses outside the ring: clip, min, max, abs, sqrt at each token of a sequence.

    E_m[sum_t grad L_t] = E_m[sum_t h_t s_t]        h = dL/dlog q at the token, by cases

h speaks of the token and of what is free of theta (A, the length).  Off-policy mu does not move, and h_t is a
function of log q_t: with a primitive L of it, E_mu[sum_t h_t s_t] = grad E_mu[sum_t L_t], whatever h is.
On-policy the prefixes move, and the curl decides.  For sequences of one token the field is that of one
sample: what is neither KL there is neither KL here.  Rests on SymPy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any

import mpmath
import sympy

from klsym.convert import to_ring, to_sympy
from klsym.engine.fields.slot_loss import ADVANTAGE
from klsym.engine.options.expand_options import expansion
from klsym.engine.options.settings import Setting
from klsym.engine.outside import sympy_target
from klsym.engine.outside.samples import (
    bias,
    branch_hypotheses,
    differentiated,
    found_target,
    kink_warnings,
    presupposed,
    unclamped,
    undefined,
    witness_against_kl,
)
from klsym.engine.proof import supports
from klsym.engine.proof.counterexamples import completed, tree_models
from klsym.engine.regions import subgradients
from klsym.engine.regions.case_split import cases
from klsym.engine.regions.piecewise import Regions, is_piecewise
from klsym.engine.targets.ring_notes import READINGS
from klsym.engine.verdicts.verdict import Cases, Meaning, Step, Verdict
from klsym.engine.verdicts.warnings import facts_outside, token_warnings
from klsym.errors import NotInRing
from klsym.language import (
    REWARDS,
    A,
    M,
    R,
    future,
    length,
    log_mu,
    log_old,
    log_p,
    log_q,
    now,
    past,
    rho,
    sg,
)
from klsym.render import losses
from klsym.render.cases import latex as in_cases
from klsym.render.losses import Written
from klsym.render.positions import in_slot
from klsym.render.spelling import LATEX, TEXT, Text
from klsym.render.tree import Call, Formula, Gradient, Mean, Name, Over, Words, product, quotient
from klsym.statements import Context

TREES = 24  # on which a curl is looked for
TWISTED = 1e-9
ROWS = {log_q: "q", log_p: "p", log_mu: "mu", log_old: "old"}
UNDECIDED = (
    f"open: it has no name, and on none of {TREES} trees was it found to be no gradient (on-policy), or to"
    " differ from what numbers say it is (off-policy)"
)
AT_BOUNDS = "where a bound is met exactly the slope is another one: the mean leaves out samples that do so"
NOT_PROVED = "outside the decidable core: this verdict is not proved, it rests on SymPy"


def explain_outside_tokens(
    written: Written, setting: Setting, explained: Callable[[Any], Verdict]
) -> Verdict:
    """The verdict; `explained` explains another loss that is used so."""
    part, on_policy = differentiated(written, setting), setting.on_policy
    typed, loss, h = part.typed, part.loss, part.h
    tied = subgradients.conventions(loss, on_policy) if setting.use == "loss" else set()
    told = (*branch_hypotheses(setting, tied, part), *_readings(h))
    smooth = _without_kinks(loss, h, setting)
    if smooth is not None:
        return _on_bounds(_renamed(explained(smooth), written, setting, told), h)
    h = _settled(h)
    verdict = _verdict(written, setting, loss, h)
    inside = unclamped(typed, loss)
    plain = tuple((case.conditions, case.coefficient) for case in cases(h))
    over = 1 / length if setting.averaged else sympy.S.One
    verdict = replace(
        verdict,
        hypotheses=(*told, *presupposed(verdict, loss), *_supports(h, setting)),
        inside_clamps=None if inside is None else explained(inside).gradient,
        bias_cases=_placed(bias(plain, inside, setting), lambda value: _at_token(value) * over),
    )
    facts = facts_outside(loss, h, _at_token)
    said = (*token_warnings(verdict, facts), *([UNDECIDED] if verdict.target is None else []))
    return replace(verdict, warnings=said + kink_warnings(typed, setting, tied) + undefined(loss, h))


def _supports(h: Any, setting: Setting) -> tuple[str, ...]:
    """Of the token that is drawn now, and of the tokens before it, whose prefix h leaves as mu draws it."""
    if setting.on_policy:
        return ()
    found = {*supports.change_of_measure(h), *supports.change_of_measure(h, scored=False, moved={})}
    return tuple(sorted(found))


def _without_kinks(loss: Any, h: Any, setting: Setting) -> Any | None:
    """A loss in the ring with the same gradient, where all branches and kinks cancel; None for others."""
    with suppress(NotInRing):
        to_ring(loss)
        return loss
    regions = Regions()
    with suppress(NotInRing):
        element = regions.reduced(to_ring(sympy.expand(regions.polynomial(h))))
        if not {symbol.name for symbol in regions.table} & element.names():
            same = to_sympy(element)
            return same if setting.use == "reward" else sg(same) * log_q
    return None


def _renamed(verdict: Verdict, written: Written, setting: Setting, told: tuple[str, ...]) -> Verdict:
    """The verdict on a loss in the ring, said of the one that was written: SymPy found them equal."""
    (_, text, latex), *rest = verdict.steps
    return replace(
        verdict,
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        trust="sympy",
        value=Meaning(None),
        constant=None,
        hypotheses=(*told, *verdict.hypotheses),
        expansion=expansion(written, setting),
        steps=(_start(written, setting), ("no other branch", text, latex), *rest),
        warnings=(NOT_PROVED, *verdict.warnings),
    )


def _settled(h: Any) -> Any:
    """Without the branches that are never taken."""
    rows = cases(h)
    return rows[0].coefficient if len(rows) == 1 else h


def _on_bounds(verdict: Verdict, h: Any) -> Verdict:
    """With the slope of samples that stand on a bound, where it is another one."""
    rows = tuple((case.conditions, case.coefficient) for case in cases(h))
    if len(rows) < 2:
        return verdict
    over = length if verdict.setting.averaged else sympy.S.One
    told = _placed(rows, _at_token)
    return replace(
        verdict,
        h=_at_token(h) / over,
        per_sample_cases=_placed(told, lambda value: value / over, conditions=False),
        scores_named=(False, verdict.scores_named[1]),
        hypotheses=(*verdict.hypotheses, AT_BOUNDS),
    )


# ---------------------------------------------------------------------------- the verdict
def _verdict(written: Written, setting: Setting, loss: Any, h: Any) -> Verdict:
    on_policy = setting.on_policy
    under_q = sympy_target.under_q(h, on_policy)
    found = found_target(under_q)
    per_sample, c = _at_token(h), _in_q(under_q, h, setting)
    rows = tuple((case.conditions, case.coefficient) for case in cases(h))
    told = _placed(rows, _at_token)
    pieces = _placed(
        tuple((on, sympy.expand(sympy_target.under_q(value, on_policy))) for on, value in rows),
        lambda value: _in_q(value, h, setting),
    )
    over = 1 / length if setting.averaged else sympy.S.One
    told = _placed(told, lambda value: value * over, conditions=False)
    steps = _steps(written, setting, per_sample * over, c, (told, pieces))
    attached = setting.use == "loss" and not loss.has(sg)
    target, witness = _target(found, under_q, h, setting, steps[0][1], attached)
    value = found_target(sympy_target.under_q(subgradients.sampled(loss, on_policy), on_policy), value=True)
    verdict = Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=per_sample * over,
        c=c,
        per_sample_cases=told,
        coefficient_cases=pieces if is_piecewise(c) else (),
        gradient=_meaning(target, c),
        value=Meaning("separable" if value.target in sympy_target.UNNAMED else None),
        constant=sympy.S.Zero,
        trust="sympy" if target == "none" else found.trust,
        hypotheses=(),
        steps=steps,
        model=witness,
        inside_clamps=None,
    )
    if target != "separable" or not attached:
        return verdict
    shown, latex = (spell(_objective(written, setting, spell)) for spell in (TEXT, LATEX))
    return replace(verdict, shown=f"grad {shown}", objective_latex=latex)


def _meaning(target: str | None, c: Any) -> Meaning:
    if target == "combination":
        return Meaning(target, {"reward": c})
    return Meaning(target, {}, None if target in (None, "zero") else c)


def _target(
    found: sympy_target.Found, under_q: Any, h: Any, setting: Setting, start: str, attached: bool
) -> tuple[str | None, dict[str, Any] | None]:
    """separable off-policy, none on-policy where a curl is found; what numbers alone name stays open, unless
    nothing is detached: then E_mu[grad L] is grad E_mu[L]."""
    if not under_q.has(*ROWS, *REWARDS) and not setting.averaged:
        return "zero", None  # the score of each token has mean zero after any prefix
    if setting.on_policy and found.target is not None:
        if not h.has(*ROWS, R, M):  # free of theta, the same at each token: grad E_q[h]
            return "combination", None
        witness = _twisted(h, setting, start)
        return ("none" if witness else None), witness
    if found.target not in sympy_target.UNNAMED and not attached:
        return None, None
    unnamed = replace(found, multiples={})
    return "separable", witness_against_kl(under_q, unnamed, setting, start)


def _objective(written: Written, setting: Setting, spell: Text) -> Formula:
    """E_mu[sum_t L_t]."""
    return Mean("mu", Over("t", _tree(written.expression, setting, spell)))


# ---------------------------------------------------------------------------- places
def _at_token(e: Any) -> Any:
    """Spoken of token t; A is that of the whole sequence."""
    return now(e).xreplace({now(A): ADVANTAGE})


def _in_q(under_q: Any, h: Any, setting: Setting) -> Any:
    """h/(rho_past rho_now rho_future); the future drops where nothing else speaks of it (ratio mean one)."""
    c = _at_token(under_q) / (length if setting.averaged else 1)
    if setting.on_policy:
        return c
    return c / (past(rho) * future(rho) if h.has(A) or setting.averaged else past(rho))


def _placed(rows: Cases, place: Callable[[Any], Any], conditions: bool = True) -> Cases:
    """Cases spoken of token t."""

    def at(where: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(condition, x=_at_token(condition.x)) for condition in where)

    return tuple((at(where) if conditions else where, place(value)) for where, value in rows)


def _readings(h: Any) -> tuple[str, ...]:
    return tuple(READINGS[symbol.name] for symbol in (R, A) if h.has(symbol))


def _tree(e: Any, setting: Setting, spell: Text) -> Formula:
    shown = losses.tree_of(_at_token(e), spell.positions)
    return quotient(shown, Name("length")) if setting.averaged else shown


def _start(written: Written, setting: Setting) -> Step:
    """E_m[sum_t grad L_t], or E_m[sum_t h_t s_t] for a reward."""
    under, shown = "q" if setting.on_policy else "mu", []
    for spell in (TEXT, LATEX):
        loss = _tree(written.expression, setting, spell)
        reward = product(Call("sg", (loss,)), _score(spell))
        shown.append(spell(Mean(under, Over("t", Gradient(loss) if setting.use == "loss" else reward))))
    return "", shown[0], shown[1]


def _score(spell: Text) -> Formula:
    return in_slot("s", "now", spell.positions)


def _steps(
    written: Written, setting: Setting, per_sample: Any, c: Any, pieces: tuple[Cases, Cases]
) -> tuple[Step, ...]:
    under = "q" if setting.on_policy else "mu"

    def scored(a: Any, rows: Cases, letter: str, measure: str, spell: Text) -> str:
        by_cases = rows and is_piecewise(c)
        shown = Words(letter, in_cases(rows)) if by_cases else losses.tree_of(a, spell.positions)
        return spell(Mean(measure, Over("t", product(shown, _score(spell)))))

    rule = "chain rule" if setting.use == "loss" else "stop-gradient"
    steps = [_start(written, setting)]
    for why, a, rows, letter, measure in (
        (rule, per_sample, pieces[0], "h", under),
        ("change of measure", c, pieces[1], "c", "q"),
    ):
        text, latex = (scored(a, rows, letter, measure, spell) for spell in (TEXT, LATEX))
        if not setting.on_policy or why == rule:
            steps.append((why, text, latex))
    return tuple(steps)


# ---------------------------------------------------------------------------- the curl on-policy
def _twisted(h: Any, setting: Setting, start: str) -> dict[str, Any] | None:
    """A tree on which d_v F.u - d_u F.v = E_q[sum_t h_t (s.v s_t.u - s.u s_t.v)] is not 0.

    The slope of h_t and the Hessian of log q_t are symmetric in u and v, as h_t moves with log q_t alone.
    """
    names = tuple(sorted(str(x) for x in h.free_symbols - {*ROWS, *REWARDS}))
    used = {"o", "M"} & {"o" if h.has(log_old) else "", *(str(x) for x in h.free_symbols)}
    for model in islice(tree_models(Context(parameters=names), on_policy=True), TREES):
        model = completed(model, used)
        with mpmath.workdps(sympy_target.DIGITS):
            found = _curl(h, model, setting)
        if found is not None and abs(found) > TWISTED:
            left = mpmath.nstr(found, 15)
            return {
                "refutes": f"curl {start} = 0",
                "tree": _shown(model["tree"], h),
                **({"parameters": model["parameters"]} if names else {}),
                "left": [left, left],
                "right": ["0", "0"],
            }
    return None


def _curl(h: Any, model: dict[str, Any], setting: Setting) -> Any | None:
    fixed = {
        x: sympy.Rational(model["parameters"][x.name])
        for x in h.free_symbols
        if x.name in model["parameters"]
    }
    total = mpmath.mpf(0)
    for path in _paths(model["tree"], ()):
        gained = sum(step["R"] for step in path)
        su, sv = (sum(step[d] for step in path) for d in "uv")
        for step in path:
            logs = {symbol: sympy.log(step[row]) for symbol, row in ROWS.items() if row in step}
            at = logs | fixed | {A: gained} | {x: step[x.name] for x in REWARDS if x != A and x.name in step}
            weight = (sv * step["u"] - su * step["v"]) * sympy.prod(s["q"] for s in path)
            weight = weight / (len(path) if setting.averaged else 1)
            value = sympy_target.number(h, at) if weight else 0
            if value is None:
                return None
            total += value * mpmath.mpf(int(weight.p)) / int(weight.q) if weight else 0
    return total


def _paths(node: dict[str, Any], before: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Each sequence as its steps: probabilities, rewards, and scores along u and v."""
    rows = {name: [sympy.Rational(x) for x in row] for name, row in _flat(node).items()}
    for along in "uv":
        mean = sum(a * b for a, b in zip(rows["q"], rows[along], strict=True))
        rows[along] = [x - mean for x in rows[along]]
    found = []
    for k, after in enumerate(node["next"]):
        here = (*before, {name: row[k] for name, row in rows.items()})
        found += [here] if after is None else _paths(after, here)
    return found


def _flat(node: dict[str, Any]) -> dict[str, Any]:
    return {name: row for name, row in {**node, **node["rewards"]}.items() if name not in ("next", "rewards")}


def _shown(node: dict[str, Any], h: Any) -> dict[str, Any]:
    """The rows that h speaks of; R stands in for A, of which it is the sum."""
    rows = {"q", "u", "v"} | {row for symbol, row in ROWS.items() if h.has(symbol) and row != "mu"}
    rows |= {"R"} if h.has(A, R) else set()
    rows |= {"M"} if "M" in map(str, h.free_symbols) else set()
    following = [after and _shown(after, h) for after in node["next"]]
    return {name: [str(Fraction(x)) for x in row] for name, row in _flat(node).items() if name in rows} | {
        "next": following
    }
