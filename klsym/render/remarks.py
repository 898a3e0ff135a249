"""What a reader should know of a whole loss beside its objective: the row "note" of an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sympy import Add, Heaviside, Max, Min, S, exp, expand

from klsym.engine.answers.dispatch import as_written, explain_written
from klsym.engine.divergences.mixtures import find_mixture
from klsym.engine.divergences.regressions import find_regression
from klsym.engine.regions.extremes import take_larger_losses
from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import UsageError, spell_command, spell_option
from klsym.language.expressions import (
    ATOMS,
    DENSITIES,
    PARAMETERS,
    A,
    OverPositions,
    R,
    clip,
    log_mu,
    log_q,
    remove_sg,
    rho,
    unfold,
)
from klsym.language.recognition import recognise
from klsym.language.sums import Centred, LeftOut, Normalised, Relative
from klsym.language.training_names import counts_steps
from klsym.notation.losses import show
from klsym.notation.printers import TEXT
from klsym.render.headline import (
    describe_next_tokens,
    find_update,
    name_trust,
)
from klsym.render.objective import (
    Aim,
    choose_sense,
)
from klsym.render.question import compares_with_old, describe_kind
from klsym.render.words import write_slope_of_counts

LENGTH = "T"  # of a sequence, which differs from sample to sample
WITH_SUM_0 = (Centred, LeftOut, Normalised, Relative)  # over the samples of a batch
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
OLD_REFERENCE = (
    "a penalty to the old policy slows each step; its minimum moves whenever the old policy is replaced, so"
    " that it does not hold the policy near a fixed one"
)


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
        describe_objective_of_counts,
        describe_log_ratio,
        describe_ratio_of_itself,
        describe_normalised_mean,
    )
    remark = next(filter(None, (write(verdict) for write in writers)), "")
    return "; ".join(filter(None, (describe_zero_value(verdict), remark)))


def describe_zero_value(verdict: Verdict) -> str:
    """Say that the values of a loss, or of its terms, add up to 0 in each batch; "" for other losses.

    At theta q/sg(q) = 1, and on-policy q/mu = 1: what is left of a term is then c*(h - mean(h)).
    """
    written, setting = verdict.loss.written, verdict.setting
    if written is None or setting.is_reward or setting.is_per_token or setting.truncated:
        return ""
    at_theta = remove_sg(unfold(written.expression))
    at_theta = expand(at_theta.xreplace({log_mu: log_q}) if setting.on_policy else at_theta)
    terms = Add.make_args(at_theta)
    zero = [term for term in terms if _is_centred(term)]
    if not zero or not written.expression.has(log_q, rho):
        return ""
    if len(zero) == len(terms):
        return "in each batch its values add up to 0, whatever its gradient does"
    rest = show(recognise(at_theta - Add(*zero)), TEXT)
    return f"in each batch the values of its terms with rewards add up to 0: what is logged is that of {rest}"


def _is_centred(term: Any) -> bool:
    """Is it a centred value times what is the same for all samples?"""
    factor, centred = term.as_independent(*WITH_SUM_0, as_Add=False)
    of_sample = {*ATOMS} - {*PARAMETERS} | {LENGTH}
    is_same = not factor.has(OverPositions) and not {x.name for x in factor.free_symbols} & of_sample
    return isinstance(centred, WITH_SUM_0) and is_same


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


def describe_ratio_of_itself(verdict: Verdict) -> str:
    """Say that a bounded ratio of q to its detached copy is 1; "" for other losses."""
    e = verdict.loss.written.expression if verdict.loss.written else S.Zero
    exponents = {unfold(x.args[0]) for bounded in e.atoms(Min, Max, Heaviside) for x in bounded.atoms(exp)}
    is_at_bound = any(1 in bounded.args for bounded in e.atoms(Min, Max, clip))
    is_at_bound |= any(remove_sg(unfold(step.args[0])) == 0 for step in e.atoms(Heaviside))
    is_ratio_to_itself = any(x.has(log_q) and expand(remove_sg(x)) == 0 for x in exponents)
    return OF_ITSELF if is_ratio_to_itself and not is_at_bound else ""


def describe_normalised_mean(verdict: Verdict) -> str:
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


def describe_objective_of_counts(verdict: Verdict) -> str:
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
