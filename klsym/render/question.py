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

from sympy import Add, Basic, Function, Heaviside, Max, Min, S, exp, expand

from klsym.engine.answers.dispatch import as_written, explain_written
from klsym.engine.answers.is_correct import read_next_token_kl
from klsym.engine.divergences.mixtures import find_mixture
from klsym.engine.divergences.regressions import find_regression
from klsym.engine.regions.extremes import take_larger_losses
from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import UsageError, spell_command, spell_option
from klsym.kernel.statements import Mean
from klsym.language.convert import to_sympy
from klsym.language.expressions import (
    ATOMS,
    DENSITIES,
    A,
    R,
    V,
    V_next,
    clip,
    log_mu,
    log_old,
    log_p,
    log_q,
    remove_sg,
    rho,
    unfold,
)
from klsym.language.sums import Normalised, OverVocabulary
from klsym.language.training_names import counts_steps
from klsym.notation.losses import show
from klsym.notation.printers import TEXT
from klsym.notation.values import take_off_score
from klsym.render.headline import (
    KL,
    NAMED,
    Update,
    describe_next_tokens,
    find_named_inside,
    find_policy_gradient,
    find_update,
    list_option_words,
    name_trust,
)
from klsym.render.objective import (
    KL_OF,
    Aim,
    aim_at_sampler_kl,
    choose_sense,
    describe_objective,
    name_combination,
)
from klsym.render.option_words import SAMPLED_FROM, find_words
from klsym.render.words import describe_place, write_slope_of_counts

OF_ITSELF = "exp(log_q - sg(log_q)) is 1 at every sample: no bound around 1 is ever reached"
BASELINE = "the mean alone is a baseline, E[centred({0})*s] = (1 - 1/n)*grad E_q[{0}]; the division is not"
RATIO_OF_CUT = (
    "rho is the ratio to the policy before its words are cut off, 1 with a gradient; the ratio to the sampler"
    " is S*rho"
)
TOLD_BY_TERMS = (
    "one term compares the samples of a batch, and another {other}: each is explained by itself, and whether"
    " their sum has an objective is not decided"
)
MAX_TYPED = 60  # characters of a pasted loss in the title; a longer one is shown as it was read
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
OLD_REFERENCE = (
    "a penalty to the old policy slows each step; its minimum moves whenever the old policy is replaced, so"
    " that it does not hold the policy near a fixed one"
)
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


def describe_log_ratio(verdict: Verdict) -> str:
    """Say that single values of log m - log b may be negative, for samples of m; "" for other losses.

    E_m[log m - log b] = KL(m||b) >= 0, while b > m at some words unless b = m.
    """
    written, setting = verdict.loss.written, verdict.setting
    if written is None or verdict.is_truncated or setting.averaged or setting.divisor.over_batch:
        return ""
    e = expand(unfold(written.expression))
    sampler = log_q if verdict.setting.on_policy else log_mu
    e = e.xreplace({log_mu: sampler})
    for density in DENSITIES:
        constant = e.coeff(sampler)
        if density != sampler and constant.is_positive and expand(e - constant * (sampler - density)) == 0:
            return "single values may be negative: their mean is a KL, which is not"
    return ""


def describe_mixture(verdict: Verdict) -> str:
    """Say which divergences from a mixture of two policies a loss is, and how strong; "" for other losses."""
    written = verdict.loss.written
    addends = Add.make_args(written.expression) if written is not None else ()
    mixture = next(filter(None, map(find_mixture, addends)), None)
    if mixture is None:
        return ""
    p, w, a, b = mixture.other, mixture.weight, mixture.of_other, mixture.of_policy
    values = (a, b, w, 1 - w, mixture.strength / mixture.scale, a * b)
    of_p, of_q, of_m, remainder, strength, usual = (show(x, TEXT) for x in values)
    of = f"{of_p}*KL({p}||m) + {of_q}*KL(q||m) with m = {of_m}*{p} + {remainder}*q"
    near = f"near q = {p} it is"
    if mixture.is_jensen_shannon:
        name = f"js(q, {p})" if mixture.is_even else f"js(q, {p}, {of_m})"
        return f"{name} is {of}; {near} {strength} = w*(1 - w) times a KL, w = {of_m}"
    kind = "the weights are swapped" if mixture.is_swapped else "no Jensen-Shannon divergence"
    right = f"js(q, {p}, {of_p}) has m = {of_p}*{p} + {of_q}*q"
    return f"{kind}: {of}; {right}, and {near} {usual} times a KL, this loss {strength}"


def describe_smaller_loss(verdict: Verdict) -> str:
    """Say that a clipped loss takes the smaller of two losses, where PPO takes the larger; "" for others."""
    written = verdict.loss.written
    if written is None or not written.expression.has(clip) or "the wrong sign" in describe_kind(verdict):
        return ""
    ppo = take_larger_losses(written.expression)
    if ppo == written.expression:
        return ""
    return (
        f"PPO takes the larger of the two losses, {show(ppo, TEXT)}; this one has a gradient where rho has"
        " already moved beyond the clip range as A says, and none where it has moved against A"
    )


def describe_regression(verdict: Verdict) -> str:
    """Say at which policy a regression is 0, and on which hypotheses; "" for other losses."""
    written, setting = verdict.loss.written, verdict.setting
    regression = None if written is None else find_regression(written.expression)
    if regression is None or setting.is_reward or setting.is_centred:
        return ""
    policy, exponent = regression.policy, show(regression.exponent, TEXT)
    if setting.is_per_token and regression.exponent.has(A):
        return (
            "a regression at each token on A, which depends on later tokens: in general no policy has loss 0"
            f" at every token; {spell_option('level', 'sequence')}: it is 0 at q = {policy}*exp({exponent}),"
            f" if E_{policy}[exp({exponent})] = 1"
        )
    place = " of each next token" * setting.is_per_token
    return (
        f"a regression: the loss is 0, its minimum, at q = {policy}*exp({exponent}){place}, if"
        f" E_{policy}[exp({exponent})] = 1; else no policy has loss 0 at every {setting.level}"
    )


def describe_repeated_division(verdict: Verdict) -> str:
    """Say that a loss is divided several times by the number of steps that are accumulated; "" for others."""
    written = verdict.loss.written
    e = S.Zero if written is None else written.expression
    for symbol in sorted((x for x in e.free_symbols if counts_steps(x.name)), key=str):
        powers = {-term.as_powers_dict().get(symbol, 0) for term in Add.make_args(expand(e))}
        if not all(power in range(10) for power in powers) or max(powers) < 2:
            continue
        if len(powers) > 1:
            return f"some terms are divided by {symbol} more often than others: it changes their weights"
        [count] = powers
        more = f"{symbol}{f'**{count - 1}' if count > 2 else ''}"
        of_once = f"its gradient is that of the loss divided once, times 1/{more}"
        return f"the loss is divided by {symbol} {count} times: {of_once}"
    return ""


def write_remark(verdict: Verdict) -> str:
    """Return what is to be known of a whole loss beside its objective; "" where nothing is."""
    if compares_with_old(verdict):
        return OLD_REFERENCE
    if verdict.is_truncated and verdict.loss.written is not None and verdict.loss.written.expression.has(rho):
        return RATIO_OF_CUT
    if told := describe_terms_apart(verdict):
        return told
    if verdict.target is None:
        runs = f"{spell_command('measure', 'FILE.py:FUNC')} runs code with such a loss on small worlds"
        return describe_sum_over_tokens(verdict) or runs
    writers = (
        describe_mixture,
        describe_smaller_loss,
        describe_regression,
        describe_repeated_division,
        describe_sum_over_tokens,
        describe_two_values,
        describe_log_ratio,
        describe_ratio_of_itself,
        describe_baseline,
    )
    return next(filter(None, (write(verdict) for write in writers)), "")


def describe_ratio_of_itself(verdict: Verdict) -> str:
    """Say that a bounded ratio of q to its detached copy is 1; "" for other losses."""
    e = verdict.loss.written.expression if verdict.loss.written else S.Zero
    exponents = {unfold(x.args[0]) for bounded in e.atoms(Min, Max, Heaviside) for x in bounded.atoms(exp)}
    return OF_ITSELF if any(x.has(log_q) and expand(remove_sg(x)) == 0 for x in exponents) else ""


def describe_baseline(verdict: Verdict) -> str:
    """Say what the mean in (R - mean)/std does without the division; "" for other losses."""
    e = verdict.loss.written.expression if verdict.loss.written else S.Zero
    rewards = {x.args[0].name for x in e.atoms(Normalised) if x.args[0] in (R, A)}
    is_of_samples = verdict.setting.on_policy and not verdict.setting.is_per_token
    return BASELINE.format(min(rewards)) if len(rewards) == 1 and is_of_samples else ""


def describe_terms_apart(verdict: Verdict) -> str:
    """Say why a loss is not decided as a whole though its terms are, one by one; "" for other losses."""
    apart = (m for m in verdict.messages if m.code == "open-terms-apart")
    return next((TOLD_BY_TERMS.format(**m.values) for m in apart), "")


def describe_sum_over_tokens(verdict: Verdict) -> str:
    """Say which KL of each next token a loss with no objective, or none known, descends if tokens are summed.

    The length T in a mean over tokens depends on later tokens, and hides this KL.
    """
    setting, written = verdict.setting, verdict.loss.written
    is_mean = setting.averaged or setting.divisor.over_batch
    if written is None or not is_mean or verdict.target not in (None, "no-objective"):
        return ""
    said = []
    for name, part in [("it", written), *((x.loss, as_written(x.loss, ())) for x in verdict.gradient.terms)]:
        try:
            summed = explain_written(part, replace(setting, aggregate="sum"))
        except UsageError:  # a sum that is differentiated is open over T, and refused without it
            continue
        if describe_next_tokens(summed):
            said.append(f"{name} {find_update(summed, verdict.is_ascended).write()} ({name_trust(summed)})")
            if name == "it":
                break
    return f"summed over tokens ({spell_option('aggregate', 'sum')}), {'; '.join(said)}" if said else ""


def describe_two_values(verdict: Verdict) -> str:
    """Say what a reward over the mean of its batch optimises, if it is 0 or 1, and what its series is."""
    remarks = {message.code: message.values for message in verdict.gradient.remarks}
    if series := remarks.get("series-of-log"):
        of, last = f"-log E_q[{series['of']}]", series["last"]
        return (
            f"the sum is the series of {of} to the order {last}, n the batch size (claim {series['claim']})"
        )
    if counts := remarks.get("slope-of-counts"):
        return write_slope_of_counts(counts["of"], counts["slope"], counts["sign"], counts["same_length"])
    if binary := remarks.get("binary-over-mean"):
        aim = Aim(*choose_sense([binary["of"]], verdict.is_ascended, rewards=False))
        return f"for rewards 0 and 1, and batches of any size n, it {aim} (claim {binary['claim']})"
    return ""


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
