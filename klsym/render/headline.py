"""What an update does, in a sentence.

>>> from klsym.engine.explain import explain
>>> describe_update(explain("k1", sampling="off-policy"))
'minimises -KL(mu||q), which pushes the policy away from mu'
>>> describe_update(explain("k3")), describe_update(explain("-A*log_q + beta*k2"))
('minimises KL(p||q), the forward KL', 'maximises E_q[A] - beta*KL(q||p)')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy

from klsym.diagnostics.reward_signs import divide_by_scores, find_divided_reward
from klsym.engine.answers.is_correct import read_next_token_kl
from klsym.engine.answers.term_analysis import find_zero_regions
from klsym.engine.explain import SELECTION
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.errors import spell_switch
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_sympy
from klsym.language.expressions import ATOMS, SLOTTED, A, H, R, V, V_next, Weight, length, sg
from klsym.language.recognition import is_indicator
from klsym.language.sums import Divided, OverVocabulary
from klsym.notation.printers import TEXT
from klsym.notation.steps import iterate_values
from klsym.notation.tree import Words
from klsym.notation.values import LazyFormula, show_value, take_off_score
from klsym.render.divergences import describe_generator
from klsym.render.objective import (
    VERB,
    Aim,
    aim_at_multiples,
    aim_at_sampler_kl,
    find_aim,
    orient_multiples,
)
from klsym.render.option_words import DIVISORS, LEVELS, find_words
from klsym.render.sentences import write_sentence
from klsym.render.words import describe_place

NAMED = ("reverse-kl", "forward-kl", "combination")
KL = {"reverse-kl": "the reverse KL", "forward-kl": "the forward KL"}
KL_NAMES = {"KL(q||p)": KL["reverse-kl"], "KL(p||q)": KL["forward-kl"]}
HELD = "with M and S held as they are at theta, "
SELECTED = "with M held, "  # a selection that depends on the batch
NO_WHOLE = "; the sum has no objective"  # of the objectives of each next token
# Codes that say why a target is open.
REASONS = ("open-", "adds-a-curl", "time-is-up", "too-many-regions", "outside-the-core")
UNNAMED = "an objective that is no KL and has no name here"
NO_FUNCTION = "not the gradient of any function"
TRUST = {"kernel": "proved", "sympy": "by SymPy alone", "numeric": "supported by numbers only"}


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


@dataclass(frozen=True)
class Update:
    """What an update does: the parts of one sentence, which `write` and `write_after_kind` join.

    verb, formula: "minimises", "KL(q||p)"; text: what is said where there is no such objective.
    note: what follows of the objective.  kind: what kind of update it is, where the objective does not say
    it; remark: the same, said at the end.  headline: the text after a kind, where it is another one.
    own_mean: the objective as the mean of the loss itself under an older policy, if it is that.  sampler: the
    policy under which the objective is an expectation.  place: where this is so, if not everywhere; beyond:
    where there is no gradient.  is_objectless: is the formula no objective?  held: what is held at theta.
    is_subtracted: is the loss subtracted from the reward?
    """

    verb: str = ""
    formula: str = ""
    text: str = ""
    note: str = ""
    kind: str = ""
    remark: str = ""
    headline: str = ""
    own_mean: str = ""
    sampler: str = ""
    place: str = ""
    beyond: str = ""
    is_objectless: bool = False
    held: str = ""
    is_subtracted: bool = False

    def write(self) -> str:
        """Return the whole sentence."""
        main = f"{self.text or f'{self.verb} {self.formula}'}{self.note}{self.remark}"
        main += NO_WHOLE * self.is_objectless
        kind = f"{self.kind}: " if self.kind else ""
        place = f"{',' * (', ' in main)} {self.place}" if self.place else ""
        lead = f"{'subtracted from the reward, ' * self.is_subtracted}{self.held}"
        return f"{lead}{kind}{main}{place}{self.beyond}"

    def write_as_clause(self) -> str:
        """Return the sentence with a subject: "it minimises KL(q||p)"."""
        is_kind = self.kind and not self.kind.startswith("has")
        return self.write() if is_kind else f"it {self.write()}"

    def write_after_kind(self, most: int | None = None) -> str:
        """Return the sentence for a headline, whose first words name the kind and the place.

        most: characters of the objective; in place of a longer one there are the words for it, if any.
        """
        formula = f"its own mean under mu, {self.own_mean}" if self.own_mean else self.formula
        if most is not None and len(f"{self.verb} {formula}") > most:
            formula = self.words or formula
        lead = f"{self.held}{'subtracted from the reward, it ' * self.is_subtracted}"
        whole = NO_WHOLE * self.is_objectless
        return f"{lead}{self.headline or self.text or f'{self.verb} {formula}'}{self.note}{whole}"

    @property
    def words(self) -> str:
        """The objective in words, if it is an expectation; else empty."""
        of = "its own mean under mu" if self.own_mean else f"an expectation under {self.sampler}"
        return f"{of} (its formula: {spell_switch('full')})" if self.own_mean or self.sampler else ""


ADDS_NOISE = Update(
    kind="has zero expected gradient",
    text="it only adds noise",
    headline="its expected gradient is zero, it only adds noise",
)
NO_GRADIENT = Update(
    text="has zero gradient at every sample", headline="the gradient is zero at every sample"
)


def describe_update(verdict: Verdict, ascends: bool | None = None, regions: bool = True) -> str:
    """Describe what an update does: it descends a loss or a penalty, and ascends a reward.

    ascends: that of the reward of which the loss is a term.  regions: say where a clip drops the gradient.
    """
    update = find_update(verdict, verdict.is_ascended if ascends is None else ascends)
    return (update if regions else replace(update, beyond="")).write()


def find_update(verdict: Verdict, ascends: bool) -> Update:
    """Return what an update does."""
    if verdict.target is None:
        return Update(kind="open", text=_explain_open_target(verdict))
    if verdict.target == "zero":
        return ADDS_NOISE if verdict.gradient.is_nonzero else NO_GRADIENT
    inside = find_named_inside(verdict)
    if inside is not None:
        update = replace(_combine(inside, ascends), place=describe_place(verdict))
    elif verdict.target in NAMED:
        update = _combine(verdict.gradient, ascends)
    elif aim := aim_at_sampler_kl(verdict, ascends):
        update = Update(aim.verb, TEXT(aim.formula), place=describe_place(verdict))
    else:
        update = _find_other_objective(verdict, ascends)
    return replace(
        update,
        beyond="" if verdict.target in NAMED else describe_zero_regions(verdict),
        held=HELD if verdict.setting.truncated else SELECTED if is_selection_held(verdict) else "",
        is_subtracted=verdict.setting.is_reward and not ascends and verdict.target != "no-objective",
    )


def is_selection_held(verdict: Verdict) -> bool:
    """Is a selection by a quantile of the batch read as the mask M?"""
    written = verdict.loss.written
    return written is not None and any(note.code == SELECTION for note in written.notes)


def find_named_inside(verdict: Verdict) -> TargetReading | None:
    """Return the target inside the clip range, if it is a combination of the KLs and rewards."""
    inside = verdict.gradient.inside_clamps
    is_named = inside is not None and inside.target in NAMED and inside.multiples and not inside.rest
    return inside if is_named and verdict.target not in NAMED else None


def _combine(reading: TargetReading, ascends: bool) -> Update:
    """Return the update of a sum of multiples of the KLs and of rewards, with the sign that reads best."""
    aim = aim_at_multiples(orient_multiples(reading, ascends), ascends)
    formula = TEXT(aim.formula)
    note = f", {KL_NAMES[formula]}" if formula in KL_NAMES else ""
    policy_gradient = set(reading.multiples) == {"reward"} and aim.is_maximised
    return Update(aim.verb, formula, note=note, remark=" (a policy gradient)" * policy_gradient)


def describe_zero_regions(verdict: Verdict) -> str:
    """List the regions outside the clip range where the gradient is zero."""
    if verdict.setting.is_reward:
        return ""
    return "".join(f"; {write_sentence(message)}" for message in find_zero_regions(verdict))


def _find_other_objective(verdict: Verdict, ascends: bool) -> Update:
    """Return the update of an objective that is not a combination of the KLs, or say that there is none."""
    next_tokens = describe_next_tokens(verdict)
    if verdict.target == "no-objective":
        verb, none = "ascends" if ascends else "descends", NO_FUNCTION
        if next_tokens:
            return Update(verb, next_tokens, is_objectless=True)
        return Update(kind="has no objective", text=f"its expected gradient is {none}")
    is_named = verdict.gradient.score_cases or not (ascends or _list_given(verdict))
    if is_named and (update := find_policy_gradient(verdict, ascends)):
        return update  # between bounds an antiderivative of a reward says less
    if next_tokens:
        return Update(VERB[ascends], next_tokens)
    is_reversed = ascends != verdict.is_ascended  # a term that alone would be used the other way
    of_r = verdict.objective.generator
    if of_r is not None and of_r.f is not None and not (of_r.reward and is_reversed):
        verb = "" if of_r.reward else f"{VERB[is_reversed]} "
        return Update(text=f"{verb}{_format_generator(of_r)}")
    if aim := find_aim(verdict, ascends):
        return _describe_aim(verdict, aim, ascends)
    if verdict.gradient.quantities_text:
        return Update(text=f"has the expected gradient {verdict.gradient.quantities_text}")
    of = "E_q[f(r)] with an f that has no formula here" if verdict.target == "f-divergence" else UNNAMED
    return Update(text=f"{VERB[ascends]} {of}")


def _describe_aim(verdict: Verdict, aim: Aim, ascends: bool) -> Update:
    """Return the update of a known objective.

    Of the mean of the loss under mu it is said that it is this; as E_q[..] that would be a formula with rho.
    """
    update = Update(aim.verb, TEXT(aim.formula), sampler=aim.sampler)
    if any(says_push(message) and message.values["alone"] for message in verdict.messages):
        return replace(update, note=", which pushes the policy away from mu")
    if verdict.target != "own-mean" or aim.is_maximised != ascends:
        return update
    if aim.sampler == "q" and "rho" in update.formula and not verdict.setting.is_per_token:
        return replace(update, own_mean=f"E_mu[{verdict.loss.read_as or verdict.loss.text}]")
    is_mean = aim.sampler == "mu" or isinstance(aim.formula, Words)
    return replace(update, own_mean=update.formula if is_mean else "")


def says_push(message: Any) -> bool:
    """Is it said of the objective, or of a term of it, that it pushes q away from mu, and no more?"""
    pushes = message.code in ("pushes-from-mu", "wrong-sign")
    return pushes and all(
        kind == "pushes" and sign.where is None for (kind, _), sign in message.values["does"]
    )


def describe_next_tokens(verdict: Verdict) -> str:
    """Describe the KL of each next token, if the expected gradient is a multiple of its gradient."""
    next_token_kl = read_next_token_kl(verdict)
    if next_token_kl is None:
        return _describe_exact_mean(verdict)
    multiple = f"{TEXT(next_token_kl.multiple)} times " if next_token_kl.multiple is not None else ""
    return f"{multiple}{KL[next_token_kl.name]} of each next token, at prefixes of {next_token_kl.under}"


def _describe_exact_mean(verdict: Verdict) -> str:
    """Name a loss that is an exact mean over the vocabulary: its gradient after each prefix is its own."""
    setting, written = verdict.setting, verdict.loss.written
    if written is None or not (setting.is_per_token and setting.is_differentiated) or setting.averaged:
        return ""
    if verdict.objective.is_sampler_kl:  # of sequences, which says more
        return ""
    outside = written.expression.replace(lambda e: isinstance(e, OverVocabulary), lambda e: sympy.S.One)
    names = {x.name for x in outside.free_symbols}
    drawn = names & {*ATOMS} or outside.atoms(sympy.Function)
    if written.expression.has(sg) or not written.expression.has(OverVocabulary) or drawn:
        return ""
    under = "q" if setting.on_policy else "mu"
    return f"{verdict.loss.read_as or verdict.loss.text} of each next token, at prefixes of {under}"


def _format_generator(generated: Any) -> str:
    """Return f as a formula, or the number of its pieces if the formula is long."""
    whole = describe_generator(generated)
    pieces = len(generated.pieces)
    return (
        f"E_q[f(r)] with an f of {pieces} pieces ({spell_switch('full')} shows it)"
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


def find_policy_gradient(verdict: Verdict, ascends: bool) -> Update | None:
    """Return the update of a policy gradient of a reward or advantage, with its importance weight."""
    sign = 1 if ascends else -1
    cases = [h for on, h in verdict.gradient.score_cases if h != 0]
    whole = bool(cases) and all(divide_by_scores(h) is not None for h in cases)
    values = [divide_by_scores(h) for h in cases] if whole else cases
    values = values or _list_own_coefficients(verdict.gradient.score_coefficient)
    for reward, name in _list_rewards(verdict):
        weights = [sign * h / reward for h in values if h is not None and h.has(reward)]
        if not weights or len(weights) < len(values) or any(not _is_weight(w) for w in weights):
            continue
        of_prefixes = verdict.setting.is_per_token and not verdict.setting.on_policy
        of_prefixes = of_prefixes and not isinstance(verdict.gradient.score_coefficient, LazyFormula)
        if len(set(weights)) == 1 and of_prefixes and show_value(weights[0]) == "rho_now":
            return Update("maximises", f"E[{name}] of each token, at prefixes of mu")
        weighed = " or ".join(dict.fromkeys(map(show_value, weights)))
        weighed += "*n/sum_i T_i" * isinstance(verdict.gradient.score_coefficient, LazyFormula)
        of = " of the whole sequence" * whole
        text = f"{name} times the score{of}, with the weight {weighed}"
        return Update(kind="a policy gradient", text=text)
    return None


def _list_rewards(verdict: Verdict) -> list[tuple[Any, str]]:
    """Return the symbols of rewards in coefficients, with their names: H is given, as normalised(R) is."""
    written = verdict.loss.written
    divided = set() if written is None else written.expression.atoms(Divided)
    of_rewards = find_divided_reward(verdict) or all(is_indicator(x.args[0]) for x in divided)
    given = _list_given(verdict) if of_rewards else []
    return [(A, "A"), (R, "R"), *((H, text) for name, text in given if name == H.name)]


def _list_given(verdict: Verdict) -> list[tuple[str, str]]:
    """Return the names to which an assumption gives values, and the values: H, and normalised(R)."""
    return [row for m in verdict.assumptions if m.code == "given" for row in m.values["rows"]]


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
    varying = {x.name for x in (*SLOTTED, A, V, V_next, H) if x != length}
    return not bases & varying and not w.could_extract_minus_sign()
