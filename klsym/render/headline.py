"""What an update does, in a sentence.

>>> from klsym.engine.explain import explain
>>> describe_update(explain("k1", sampling="off-policy"))
'minimises -KL(mu||q), which pushes the policy away from mu'
>>> describe_update(explain("k3")), describe_update(explain("-A*log_q + beta*k2"))
('minimises KL(p||q), the forward KL', 'maximises E_q[A] - beta*KL(q||p)')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import sympy

from klsym.diagnostics.reward_signs import divide_by_scores
from klsym.engine.answers.is_correct import read_next_token_kl
from klsym.engine.answers.term_analysis import find_zero_regions
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_sympy
from klsym.language.expressions import SLOTTED, A, R, V, V_next, Weight, length
from klsym.notation.printers import TEXT
from klsym.notation.steps import iterate_values
from klsym.notation.values import LazyFormula, show_value, take_off_score
from klsym.render.divergences import describe_generator
from klsym.render.objective import VERB, describe_multiples, describe_objective
from klsym.render.option_words import DIVISORS, LEVELS, find_words
from klsym.render.sentences import write_sentence

NAMED = ("reverse-kl", "forward-kl", "combination")
KL = {"reverse-kl": "the reverse KL", "forward-kl": "the forward KL"}
KL_NAMES = {"KL(q||p)": KL["reverse-kl"], "KL(p||q)": KL["forward-kl"]}
HELD = "with M and S held as they are at theta, "
# Codes that say why a target is open.
REASONS = ("open-", "adds-a-curl", "time-is-up", "too-many-regions", "outside-the-core")
TRUST = {"kernel": "proved", "sympy": "rests on SymPy", "numeric": "supported by numbers only"}


def name_trust(verdict: Verdict) -> str:
    """Return one or two words for how the target is known: proved, open, .."""
    return "open" if verdict.target is None else TRUST[verdict.trust]


def describe_use(setting: Any) -> str:
    """Return text such as "off-policy loss at each token, weights prefix"."""
    level, *options = list_option_words(setting)
    return ", ".join([f"{setting.sampling} {setting.use}{level}", *options])


def list_option_words(setting: Any) -> list[str]:
    """Return the words for the level, and then those for each further option."""
    options = [f"credit {setting.credit}"] if setting.credit else []
    options += [f"weights {setting.weights}"] if setting.weighs_by_other_tokens else []
    options += find_words(DIVISORS, "aggregate", setting.aggregate).title
    options += [f"batch {setting.batch}"] if setting.is_centred else []
    return [find_words(LEVELS, "level", setting.level).title, *options]


def describe_update(verdict: Verdict, ascends: bool | None = None, regions: bool = True) -> str:
    """Describe what an update does: it descends a loss or a penalty, and ascends a reward.

    ascends: that of the reward of which the loss is a term.  regions: say where a clip drops the gradient.
    """
    ascends = verdict.is_ascended if ascends is None else ascends
    if verdict.target is None:
        return f"open: {_explain_open_target(verdict)}"
    if verdict.target == "zero":
        noise = "has zero expected gradient: it only adds noise"
        return "has zero gradient at every sample" if not verdict.gradient.is_nonzero else noise
    penalty = verdict.setting.is_reward and not ascends and verdict.target != "no-objective"
    lead = f"{'subtracted from the reward, ' * penalty}{HELD * verdict.setting.truncated}"
    inside = find_named_inside(verdict)
    if inside is not None:
        text = describe_combination(inside, ascends)
        text = f"{text}{',' * (', ' in text)} inside the clip range"
    else:
        text = _describe_target_update(verdict, ascends)
    beyond = "" if verdict.target in NAMED or not regions else describe_zero_regions(verdict)
    return f"{lead}{text}{beyond}"


def find_named_inside(verdict: Verdict) -> TargetReading | None:
    """Return the target inside the clip range, if it is a combination of the KLs and rewards."""
    inside = verdict.gradient.inside_clamps
    is_named = inside is not None and inside.target in NAMED and inside.multiples and not inside.rest
    return inside if is_named and verdict.target not in NAMED else None


def _describe_target_update(verdict: Verdict, ascends: bool) -> str:
    if verdict.target in NAMED:
        return describe_combination(verdict.gradient, ascends)
    return _describe_other_objective(verdict, ascends)


def describe_target(verdict: Verdict, ascends: bool) -> str:
    """Describe what an update does as a clause after its kind, without the regions of a clip."""
    if verdict.target is None:
        return _explain_open_target(verdict)
    if verdict.target == "zero":
        noise = "its expected gradient is zero, it only adds noise"
        return "the gradient is zero at every sample" if not verdict.gradient.is_nonzero else noise
    text = describe_update(verdict, ascends, regions=False).replace("subtracted from the reward, ", "")
    text = text.replace(" (a policy gradient)", "").removesuffix(" inside the clip range").removesuffix(",")
    text = text.removeprefix("a policy gradient: ").removeprefix("has no objective: ")
    inside = find_named_inside(verdict)
    text = text.removesuffix("; it has no objective")
    if verdict.target == "own-mean":
        text = re.sub(r"^(m\w+imises) (E_mu\[.*\])$", r"\1 its own mean under mu, \2", text)
        if re.match(r"minimises E_q\[.*rho", text) and not verdict.setting.is_per_token and inside is None:
            text = f"minimises its own mean under mu, E_mu[{verdict.loss.read_as or verdict.loss.text}]"
    penalty = verdict.setting.is_reward and not ascends and verdict.target != "no-objective"
    held = HELD * text.startswith(HELD)
    return f"{held}{'subtracted from the reward, it ' * penalty}{text.removeprefix(HELD)}"


def describe_combination(reading: TargetReading, ascends: bool) -> str:
    """Describe a sum of multiples of the two KLs and of rewards, with the sign that reads best."""
    text = describe_multiples(reading.multiples, ascends)
    single = KL_NAMES.get(text.partition(" ")[2])
    policy_gradient = set(reading.multiples) == {"reward"} and text.startswith("maximises")
    return f"{text}, {single}" if single else text + " (a policy gradient)" * policy_gradient


def describe_zero_regions(verdict: Verdict) -> str:
    """List the regions outside the clip range where the gradient is zero."""
    if verdict.setting.is_reward:
        return ""
    return "".join(f"; {write_sentence(message)}" for message in find_zero_regions(verdict))


def _describe_other_objective(verdict: Verdict, ascends: bool) -> str:
    """Describe an objective that is not a combination of the KLs, or say that there is none."""
    next_token_text = describe_next_tokens(verdict)
    if verdict.target == "no-objective":
        none = "has no objective: its expected gradient is not the gradient of any function"
        return (
            f"{'ascends' if ascends else 'descends'} {next_token_text}; it has no objective"
            if next_token_text
            else none
        )
    if (verdict.gradient.score_cases or not ascends) and (
        gradient := describe_policy_gradient(verdict, ascends)
    ):
        return gradient  # between bounds an antiderivative of a reward says less
    if next_token_text:
        return f"{VERB[ascends]} {next_token_text}"
    is_reversed = ascends != verdict.is_ascended  # a term that alone would be used the other way
    of_r = verdict.objective.generator
    if of_r is not None and of_r.f is not None and not (of_r.reward and is_reversed):
        return _format_generator(of_r) if of_r.reward else f"{VERB[is_reversed]} {_format_generator(of_r)}"
    if objective_text := describe_objective(verdict, ascends):
        pushes = any(map(says_push, verdict.messages))
        return f"{objective_text}{', which pushes the policy away from mu' * pushes}"
    if verdict.gradient.quantities_text:
        return f"has the expected gradient {verdict.gradient.quantities_text}"
    if verdict.target == "f-divergence":
        return f"{VERB[ascends]} E_q[f(r)] with an f that has no formula here"
    return f"{VERB[ascends]} an objective that is no KL and has no name here"


def says_push(message: Any) -> bool:
    """Is it said of the whole objective or of its last term that it pushes q away from mu, and no more?"""
    pushes = message.code in ("pushes-from-mu", "wrong-sign")
    return pushes and all(
        kind == "pushes" and sign.where is None for (kind, _), sign in message.values["does"]
    )


def describe_next_tokens(verdict: Verdict) -> str:
    """Describe the KL of each next token, if the expected gradient is a multiple of its gradient."""
    next_token_kl = read_next_token_kl(verdict)
    if next_token_kl is None:
        return ""
    multiple = f"{TEXT(next_token_kl.multiple)} " if next_token_kl.multiple is not None else ""
    return f"{multiple}{KL[next_token_kl.name]} of each next token, at prefixes of {next_token_kl.under}"


def _format_generator(generated: Any) -> str:
    """Return f as a formula, or the number of its pieces if the formula is long."""
    whole = describe_generator(generated)
    pieces = len(generated.pieces)
    return (
        f"E_q[f(r)] with an f of {pieces} pieces (--full shows it)"
        if pieces > 1 and len(whole) > 90
        else whole
    )


def _explain_open_target(verdict: Verdict) -> str:
    """Say why the target is open."""
    reasons = [m for m in (*verdict.gradient.remarks, *verdict.messages) if m.code.startswith(REASONS)]
    return (
        write_sentence(reasons[0]).removeprefix("open: ")
        if reasons
        else "neither a named objective nor shown to be none"
    )


def describe_policy_gradient(verdict: Verdict, ascends: bool) -> str:
    """Describe a policy gradient of a reward or advantage, and its importance weight; else empty."""
    sign = 1 if ascends else -1
    cases = [h for on, h in verdict.gradient.score_cases if h != 0]
    whole = bool(cases) and all(divide_by_scores(h) is not None for h in cases)
    values = [divide_by_scores(h) for h in cases] if whole else cases
    values = values or _list_own_coefficients(verdict.gradient.score_coefficient)
    for reward in (A, R):
        weights = [sign * h / reward for h in values if h is not None and h.has(reward)]
        if not weights or len(weights) < len(values) or any(not _is_weight(w) for w in weights):
            continue
        of_prefixes = verdict.setting.is_per_token and not verdict.setting.on_policy
        of_prefixes = of_prefixes and not isinstance(verdict.gradient.score_coefficient, LazyFormula)
        if len(set(weights)) == 1 and of_prefixes and show_value(weights[0]) == "rho_now":
            return f"maximises E[{reward}] of each token, at prefixes of mu"
        weighed = " or ".join(dict.fromkeys(map(show_value, weights)))
        weighed += "*n/sum_i T_i" * isinstance(verdict.gradient.score_coefficient, LazyFormula)
        of = " of the whole sequence" * whole
        return f"a policy gradient: {reward} times the score{of}, with the weight {weighed}"
    return ""


def _list_own_coefficients(h: Any) -> list[Any]:
    """Return the coefficient of the sample's or token's own score in each region where it is not 0."""
    coefficient = _get_own_coefficient(take_off_score(h))
    values = [] if coefficient is None else [value for value in iterate_values(coefficient) if value != 0]
    return list(dict.fromkeys(values)) or [coefficient]


def _get_own_coefficient(h: Any) -> Any:
    """Return the coefficient of the sample's or token's own score; None if others occur as well."""
    if isinstance(h, Mapping):
        h = h["now"] if set(h) == {"now"} else None
    return to_sympy(h) if isinstance(h, ExpPoly) else h if isinstance(h, sympy.Expr) else None


def _is_weight(w: Any) -> bool:
    """Is it a positive factor that depends only on the ratio, the length and parameters?"""
    plain = w.replace(lambda e: isinstance(e, Weight), lambda e: sympy.Dummy("ratio", positive=True))
    bases = {x.name.partition("[")[0] for x in plain.free_symbols}
    varying = {x.name for x in (*SLOTTED, A, V, V_next) if x != length}
    return not bases & varying and not w.could_extract_minus_sign()
