"""The first two lines of an answer in words: what was asked, and which kind of update the loss gives.

>>> from klsym.engine.explain import explain
>>> describe_question(explain("k3", sampling="off-policy"), is_unweighted=True)
'k3 in the loss, samples from an older policy mu, no importance weight'
>>> [describe_kind(explain(loss)) for loss in ("k2", "k3", "k1", "-A*log_q", "-H(q)")]
['a penalty on KL(policy || reference)', 'a penalty on KL(reference || policy)', 'no effect', 'a policy \
gradient', 'an entropy bonus']
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sympy import Basic, Function, Heaviside, S, expand

from klsym.engine.answers.is_correct import read_next_token_kl
from klsym.engine.verdicts.verdict import Verdict
from klsym.kernel.statements import Mean
from klsym.language.convert import to_sympy
from klsym.language.expressions import (
    ATOMS,
    A,
    R,
    V,
    V_next,
    log_mu,
    log_old,
    log_p,
    log_q,
)
from klsym.language.sums import OverVocabulary
from klsym.notation.printers import TEXT
from klsym.notation.values import take_off_score
from klsym.render.headline import (
    KL,
    NAMED,
    Update,
    find_named_inside,
    find_policy_gradient,
    find_update,
    list_option_words,
)
from klsym.render.objective import (
    KL_OF,
    aim_at_sampler_kl,
    describe_objective,
    name_combination,
)
from klsym.render.option_words import SAMPLED_FROM, find_words
from klsym.render.words import describe_place

MAX_TYPED = 60  # characters of a pasted loss in the title; a longer one is shown as it was read
MAX_READ = 200  # characters of a loss as it was read, in the title; a longer one is only in the row below
POLICY_OF = {"q": "policy", "p": "reference", "mu": "old policy mu", "old": "old policy"}
NOT_A_KL, OTHER, NO_OBJECTIVE = "not a KL penalty", "no objective with a name", "no objective"
ENTROPY, BONUS = "the entropy of the policy", "an entropy bonus"
ENTROPIES = (ENTROPY, BONUS)
IN_A_SUM = {
    NOT_A_KL: "a penalty that is not a KL",
    "no effect": "a term without effect",
    "neither KL": "a penalty that is neither KL",
    NO_OBJECTIVE: "a term without an objective",
    "not decided": "a term that is not decided",
    ENTROPY: "the entropy, with the sign that makes the policy deterministic",
}
OF_REFERENCE = re.compile(r"\b(k[1-9]|r|log_p)\b|\bk\(|\bref")
FROM_OLD = re.compile(r"minimises (?:[\w./]+(?:\*| ))?KL\(mu\|\|q\)")
FACTOR = r"(?:[\w./]+\*)?"
OLD_PENALTIES = {  # by the mean that is minimised; KL(old||q) = E_q[-log_q/rho_old] less the entropy of old
    rf"E_q\[{FACTOR}log\(rho_old\)(?:/\d+)?\]|KL\(q\|\|mu\)": "KL(policy || old policy)",
    rf"E_q\[-{FACTOR}log_q/(?:rho_old|\(\d+\*rho_old\))\]": "KL(old policy || policy)",
}


def write_kl(first: str, second: str) -> str:
    """Write a divergence with the words for its policies.

    >>> write_kl("q", "mu")
    'KL(policy || old policy mu)'
    """
    return f"KL({POLICY_OF[first]} || {POLICY_OF[second]})"


def describe_question(verdict: Verdict, is_unweighted: bool = False) -> str:
    """Return the loss as it was typed, where it is used, and where its samples come from."""
    loss, setting = verdict.loss, verdict.loss.asked or verdict.setting
    text = loss.read_as if loss.read_as and len(loss.text) > MAX_TYPED else loss.text
    text = "the text" if loss.read_as and len(text) > MAX_READ else text
    e = loss.written.expression if loss.written is not None else None
    is_penalty = e is not None and e.has(log_p, log_mu, log_old) and not e.has(R, A)
    place = f" {'in' if is_penalty else 'as'} the {setting.use}"
    options = [find_words(SAMPLED_FROM, "sampling", setting.sampling), *list_option_words(setting)[1:]]
    options += ["no importance weight"] * is_unweighted
    level = list_option_words(setting)[0]
    return ", ".join([f"{text}{place}{level}", *options])


def describe_kind(verdict: Verdict, ascends: bool | None = None) -> str:
    """Say in words what kind of update the loss gives; ascends: that of the reward of which it is a term."""
    ascends = verdict.is_ascended if ascends is None else ascends
    simple = {None: "not decided", "zero": "no effect"}
    if verdict.target in simple:
        return simple[verdict.target]
    if entropy := describe_entropy(verdict, ascends):
        return entropy
    if verdict.target in NAMED:
        return name_combination(verdict.gradient, ascends) if _is_of_kl_or_reward(verdict) else NOT_A_KL
    if (inside := find_named_inside(verdict)) is not None:
        return f"{name_combination(inside, ascends)} {describe_place(verdict)}"
    for sign, start in ((ascends, ""), (not ascends, "the wrong sign for ")):
        if find_policy_gradient(verdict, sign):
            return f"{start}a policy gradient" + f" {describe_place(verdict)}" * has_clip(verdict)
    if counted := _describe_success(verdict, ascends):
        return counted
    if divergence := find_old_penalty(verdict, ascends):
        return f"a penalty on {divergence}"
    if penalty := name_sampler_penalty(verdict, ascends):
        return penalty
    if aim_at_sampler_kl(verdict, ascends):
        return f"a penalty on KL(old policy mu || policy) {describe_place(verdict)}"
    if verdict.target == "no-objective":
        return NO_OBJECTIVE
    if verdict.target == "f-divergence":
        return "neither KL"
    written = verdict.loss.written
    is_of_reference = written.expression.has(log_p) if written else OF_REFERENCE.search(verdict.loss.text)
    return NOT_A_KL if is_of_reference else OTHER


def _describe_success(verdict: Verdict, ascends: bool) -> str:
    """Say whether an objective of the success rate alone raises it."""
    counts = next((x.values for x in verdict.gradient.remarks if x.code == "slope-of-counts"), {})
    if not counts.get("sign") or not counts["rises"] or counts["same_length"]:
        return ""
    rises = (counts["sign"] == "+") == ascends
    return "a policy gradient" if rises else "the wrong sign for a policy gradient"


def _is_of_kl_or_reward(verdict: Verdict) -> bool:
    """Has the loss a reward, or its objective a KL?  What a cut sampler leaves out may stand as a reward."""
    written = verdict.loss.written
    named = set(verdict.gradient.multiples) & {*KL_OF} or written is None
    return bool(named) or (written is not None and written.expression.has(R, A, V, V_next))


def has_clip(verdict: Verdict) -> bool:
    """Is the gradient 0 in a region, but not everywhere?"""
    h, cases = take_off_score(verdict.gradient.score_coefficient), verdict.gradient.score_cases
    return any(value == 0 for _, value in cases) if cases else isinstance(h, Basic) and h.has(Heaviside)


def describe_kinds(kinds: Sequence[str]) -> str:
    """Join the kinds of the terms of a sum."""
    return "; and ".join(dict.fromkeys(IN_A_SUM.get(kind, kind) for kind in kinds))


def describe_term(verdict: Verdict, ascends: bool) -> str:
    """Say in a few words what kind of term of a sum it is."""
    next_token_kl = read_next_token_kl(verdict) if verdict.target == "no-objective" else None
    if next_token_kl is not None:
        multiple = f"{TEXT(next_token_kl.multiple)} times " if next_token_kl.multiple is not None else ""
        return f"{'ascends' if ascends else 'descends'} {multiple}{KL[next_token_kl.name]} of each next token"
    kind = describe_kind(verdict, ascends)
    without = " without an objective" * (verdict.target == "no-objective" and kind != NO_OBJECTIVE)
    return describe_kinds([kind]) + without


def describe_entropy(verdict: Verdict, ascends: bool) -> str:
    """Say which side of the entropy H(q) an update follows, and which of a reward beside it.

    Empty if the objective is not a multiple of E_q[log_q] with or without a reward.
    """
    written = verdict.loss.written
    if written is None or verdict.target is None:
        return ""
    scale, entropy = written.expression.as_independent(OverVocabulary, as_Add=False)
    if entropy == OverVocabulary(log_q) and not scale.free_symbols & {A, R}:
        return BONUS if scale.could_extract_minus_sign() == ascends else ENTROPY
    scale, reward = _split_entropy(verdict)
    if not scale:
        return ""
    kind = BONUS if scale.could_extract_minus_sign() == ascends else ENTROPY
    if not reward:
        return kind
    rises = reward.could_extract_minus_sign() != ascends
    gradient = "a policy gradient" if rises else "the wrong sign for a policy gradient"
    return f"{gradient} with {IN_A_SUM.get(kind, kind)}"


def _split_entropy(verdict: Verdict) -> tuple[Any, Any]:
    """Return the number before log_q, and the reward, of an objective E_q[c*log_q + reward]; else 0, 0.

    A constant is left out.
    """
    quantity, neither = verdict.objective.quantity, (S.Zero, S.Zero)
    terms = quantity.side.terms if quantity is not None else ()
    if len(terms) != 1 or len(terms[0][1]) != 1 or not isinstance(mean := terms[0][1][0], Mean):
        return neither
    if mean.measure != "q" or mean.index or mean.score:
        return neither
    e = expand(to_sympy(terms[0][0]) * to_sympy(mean.coefficient))
    scale, random = e.coeff(log_q), {*ATOMS.values()}
    reward = expand(e - scale * log_q).as_independent(*random, as_Add=True)[1]
    is_constant = not scale.free_symbols & random and not e.has(Function)
    is_reward = not reward.free_symbols & (random - {R, A}) and not reward.is_Add
    return (scale, reward) if is_constant and is_reward else neither


def find_old_penalty(verdict: Verdict, ascends: bool) -> str:
    """Return the KL between the policy and an old one that is minimised; "" if none is."""
    objective = describe_objective(verdict, ascends)
    names = (
        kl
        for mean, kl in OLD_PENALTIES.items()
        if re.fullmatch(rf"minimises (?:\S+ ?\*? ?)?(?:{mean})", objective)
    )
    return next(names, "")


def name_sampler_penalty(verdict: Verdict, ascends: bool) -> str:
    """Name a loss whose objective is a multiple of KL(mu||q); a negative one has to compare q with mu."""
    penalty, written = "a penalty on KL(old policy mu || policy)", verdict.loss.written
    if FROM_OLD.fullmatch(describe_objective(verdict, ascends)):
        return penalty
    compares = written is not None and written.expression.has(log_mu) and not written.expression.has(log_p)
    return f"the wrong sign for {penalty}" if compares and verdict.objective.is_sampler_kl else ""


def compares_with_old(verdict: Verdict) -> bool:
    """Is the policy compared with none but an older one, which moves?"""
    written = verdict.loss.written
    names = {x.name for x in written.expression.free_symbols} if written is not None else set()
    only_old = log_old.name in names and names <= {log_q.name, log_old.name}
    return only_old or bool(find_old_penalty(verdict, verdict.is_ascended))


def describe_answer(verdict: Verdict, ascends: bool | None = None, most: int | None = None) -> str:
    """Return the verdict in words, then in symbols; most: characters of an objective that is written out."""
    ascends = verdict.is_ascended if ascends is None else ascends
    kind, update = describe_kind(verdict, ascends), find_update(verdict, ascends)
    if kind in ENTROPIES and verdict.target != "no-objective":
        update = _describe_effect_on_entropy(update, kind)
    text = update.write_after_kind(most)
    text = text if update.is_objectless and kind == NO_OBJECTIVE else f"{kind}: {text}"
    return f"{text[0].upper()}{text[1:]}"


def _describe_effect_on_entropy(update: Update, kind: str) -> Update:
    """Say what an entropy bonus, or the entropy as a loss, does to the policy."""
    if kind != ENTROPY:
        return replace(update, note=", which keeps the policy random")
    verb = update.verb.removesuffix("es") + "ing"
    return replace(update, verb=verb, note=" makes the policy deterministic")
