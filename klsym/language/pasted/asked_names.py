"""Names of pasted code whose values have to be asked for, and what to type for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from klsym.errors import UsageError, spell_option
from klsym.language.training_names import (
    ADVANTAGES,
    LOGS,
    OF_NUMBERS,
    PROBABILITIES,
    REFERENCE,
    REWARDS,
    VARYING,
    is_coefficient,
    names_critic,
    names_temperature,
    split_words,
)

OF_KL = "logp - ref_logp"
EXAMPLE_OF_RATIO, EXAMPLE_OF_SECOND_RATIO = "exp(logp - old_logp)", "exp(old_logp - rollout_logp)"
OF_SECOND_RATIO = {"is", "tis", "mis", "sampling", "importance", "correction", "rollout", "weight", "weights"}
SECOND_READING = {"log_q": "log_mu", "log_p": "log_q"}  # what one of two names for the same density may be
# Words of values that may depend on the sample -> an example of what such a name may be; the first row with
# a word of the name is taken.
KINDS_OF_VALUES: tuple[tuple[set[str], str], ...] = (
    ({"mask", "masks"}, "M"),
    ({"entropy", "entropies", "ent"}, "H(q)"),
    ({"kl", "kld", "kls", "klds", "divergence", "div", "distill", "distil", "distillation"},
     OF_KL),
    ({"diff", "difference"}, "ref_logp - logp"),
    ({"logratio", "logr", "logrho"}, "logp - old_logp"),
    ({"tis", "mis"}, EXAMPLE_OF_SECOND_RATIO),
    ({"ratio", "ratios", "rho", "rhos", "weight", "weights", "importance", "imp", "iw", "is"},
     EXAMPLE_OF_RATIO),
    ({*ADVANTAGES}, "A"),
    ({"ce", "nll", "sft", "xent"}, "-logp"),
    ({*REWARDS, "return", "score", "gt"}, "R"),
    ({"deltas"}, "A"), ({"baseline", "baselines", "b", "bl"}, "R.mean()"), ({"cost", "costs"}, "-R"),
    ({"loss", "losses", "objective", "surrogate", "surr"}, "-A*logp"),
    ({"prob", "probs", "likelihood", "pdf"}, "exp(logp)"),
    (LOGS - {"log"}, "log_q"), (REFERENCE, "ref_logp"), ({"old", "behavior", "behaviour"}, "old_logp"),
)  # fmt: skip

WRITE, COMMAND = "write what it is", "klsym explain"  # in what is said of a name
OF_REWARD_MODELS = {"theta", "phi", "psi", "rm", "model"}  # words after r, as in r_theta
MOST_ASKED = 8  # unknown names that a text is asked for at once

STATISTICS = {"mean": "mean", "avg": "mean", "std": "std", "stdev": "std", "stddev": "std"}
AVERAGED = {"R", "A"}  # whose mean and standard deviation code names

OF_TEMPERATURE = "the loss of SAC's temperature trains no policy: out of scope"

OF_PAIRS = {"chosen", "rejected", "winner", "loser", "preferred", "dispreferred"}

PAIRS_OUT_OF_SCOPE = (
    "a loss of pairs, chosen and rejected (DPO, IPO, ..), is out of scope: klsym reads losses of samples from"
    " a policy; its beta is that of `R - beta*k1` in the reward"
)

OUT_OF_SCOPE = (
    "a critic's loss is out of scope: leave the term out, or write A for a detached advantage; the value of"
    " an action is read in a loss of the policy, as in alpha*logp - q_pi"
)


def find_example(name: str) -> str:
    """Return an example of the value of a name that may depend on the sample; "" if it looks like a number.

    >>> find_example("reverse_kl"), find_example("iw"), find_example("pg_loss"), find_example("tis")
    ('logp - ref_logp', 'exp(logp - old_logp)', '-A*logp', 'exp(old_logp - rollout_logp)')
    >>> find_example("mean_grouped_rewards"), find_example("reward_std"), find_example("avg_kl")
    ('R.mean()', 'R.std()', '(logp - ref_logp).mean().detach()')
    >>> [find_example(name) for name in ("kl_tau", "reward_scale", "kl_loss_weight", "har", "REWARD_SUM")]
    ['', '', '', '', '']
    """
    words = split_words(name)
    if looks_like_number(name):
        return ""
    if {*words} & {"clipped", "clamped"} and {*words} & {"ratio", "ratios", "weight", "weights"}:
        return "clip(exp(logp - old_logp), 1 - eps, 1 + eps)"
    if {*words} <= {"clipped", "clamped", "unclipped", "surrogate", "surr", "objective", "obj"}:
        is_free = {*words} & {"unclipped", "surrogate", "surr"} and not {*words} & {"clipped", "clamped"}
        return "exp(logp - old_logp)*A" if is_free else "clip(exp(logp - old_logp), 1 - eps, 1 + eps)*A"
    if "log" in words and {*words} & {"ratio", "ratios", "rho", "weight", "weights", "iw"}:
        words = ["logratio"]
    if (
        words[:1] == ["log"]
        and {*words[1:2]} & {"pi", "likelihood"}
        and not {*words} & (REFERENCE | {"old", "behavior", "behaviour"})
    ):
        return "log_q"
    if words[:1] in (["negative"], ["neg"]) and "kl" in words:  # as verl names it
        return "logp - old_logp"
    if words[:1] == ["p"] and {*words[1:]} & (REFERENCE | {"old", "behavior", "behaviour"}):
        return "exp(ref_logp)" if {*words} & REFERENCE else "exp(old_logp)"
    if words[:1] == ["p"] and len(words) > 1:
        return "exp(logp)"
    if words[:1] == ["r"] and {*words[1:]} & OF_REWARD_MODELS:
        return "R"
    example = next((example for kind, example in KINDS_OF_VALUES if kind & {*words}), "")
    statistic = next((method for word, method in STATISTICS.items() if word in words), "")
    if example == "R" and {*words} & {"sum", "running", "moving", "ema"}:  # of an episode, or of a run
        return ""
    if statistic == "mean" and example == OF_KL:
        return f"({example}).mean().detach()"
    return f"{example}.{statistic}()" if statistic and example in AVERAGED else example


def ask_for_negated(hint: str, name: str, source: str) -> str:
    """Return what to write for a loss of the policy: without its sign where the code negates it.

    >>> ask_for_negated("such as `pg = -A*logp; ...`", "pg", "loss = -pg.mean()")
    'such as `pg = A*logp; ...`'
    """
    is_negated = re.search(rf"-\s*{re.escape(name)}\b", source) is not None
    return hint.replace(f"`{name} = -A*", f"`{name} = A*") if is_negated else hint


def ask_beside_ratio(hint: str, ratio: str) -> str:
    """Return what to write for a name beside a ratio to the old policy: its clip, or a second one, old/mu.

    >>> [ask_beside_ratio(hint, "w") for hint in ("clip(exp(logp - old_logp), 1, 2)", "exp(logp - old_logp)")]
    ['clip(w, 1, 2)', 'exp(old_logp - rollout_logp)']
    """
    of_clip = hint.replace(f"clip({EXAMPLE_OF_RATIO},", f"clip({ratio[:60]},")
    return of_clip.replace(EXAMPLE_OF_RATIO, EXAMPLE_OF_SECOND_RATIO)


def suggest_for_function(name: str) -> str:
    """Return what to type for a function that is not known, if it is a usual one; "" for others.

    >>> suggest_for_function("tau"), suggest_for_function("sigma"), suggest_for_function("har")
    (': for a product type tau*(..)', ': the logistic function is sigmoid(..)', '')
    """
    if name == "sigma":
        return ": the logistic function is sigmoid(..)"
    words = {*split_words(name)}
    if words & {"crossentropy", "xent", "ce", "nll"} or {"cross", "entropy"} <= words:
        of_data = spell_option("sampling", "off-policy")
        return (
            ": for the drawn word or action type -logp, and -A*logp where an advantage multiplies it; for the"
            f" labels of a data set -logp with {of_data}, where mu is the data"
        )
    if words & {"clip", "clipped", "clamp"}:
        return ": type clip(x, low, high)"
    return f": for a product type {name[:60]}*(..)" if is_coefficient(name) else ""


def looks_like_number(name: str) -> bool:
    """Does a name look like that of a number that is the same for all samples?

    >>> [looks_like_number(name) for name in ("lambda_kl", "reward_scale", "greedy_rewards", "reverse_kl")]
    [True, True, True, False]
    """
    words = split_words(name)
    if "greedy" in words:  # the reward of a response that was not drawn
        return True
    is_bound = {*words[:1]} <= {"lambda", "target", "max", "min"} and not {*words} & (VARYING | LOGS)
    return is_coefficient(name) or bool({*words[-1:]} & OF_NUMBERS) or is_bound


def ask_for_all_unknown(
    error: UsageError,
    text: str,
    names: Sequence[str],
    read: Callable[[str, Sequence[str]], UsageError | None],
    spell: Callable[[str], str],
) -> UsageError:
    """Return an error that asks for all unknown names of a text at once; other errors as they are.

    names: those that are declared.  read: what is wrong with the text where further names are declared.
    spell: a formula with the names that the text has for log-probabilities.
    A name that is out of scope is what the error is about, whatever the others are.
    """
    unknown: list[str] = []
    reserved = ""
    later: UsageError | None = error
    while later and later.unknown and later.unknown not in unknown and len(unknown) < MOST_ASKED:
        hint = ask_for_value(later.unknown)
        if COMMAND in str(later) or (hint and not hint.startswith(WRITE)):
            return later
        unknown.append(later.unknown)
        try:
            later = read(text, (*names, *unknown))
        except UsageError:
            reserved = unknown[-1]  # a name that no parameter can have
            break
    if len(unknown) < 2:
        return error
    shown = ", ".join(repr(name[:60]) for name in unknown)
    return UsageError(
        f"unknown names {shown} in {text[:60]!r}: {'; '.join(_suggest_values(unknown, spell, reserved))}"
    )


def _suggest_values(names: Sequence[str], spell: Callable[[str], str], reserved: str) -> Iterator[str]:
    """Yield what to type for names, those with a usual value first, then numbers, then the others.

    reserved: a name that klsym's answers use already; "" for none.
    """
    examples = {name: spell(find_example(name)) for name in names}
    if written := "".join(f"{name[:60]} = {example}; " for name, example in examples.items() if example):
        yield f"write what they are, such as `{written}...`"
    numbers = [name[:60] for name in names if looks_like_number(name)]
    if numbers:
        yield f"for a number write {' '.join(spell_option('param', name) for name in numbers)}"
    unsettled = [name[:60] for name in names if not examples[name] and not looks_like_number(name)]
    if unsettled:
        number = spell_option("param", f"{unsettled[0]}1" if unsettled[0] == reserved else unsettled[0])
        kinds = f"R, A, logp, ref_logp, H(q), a mask M, as in `{unsettled[0]} = R; ...`"
        yield f"{', '.join(unsettled)} may be {kinds}, or a number, {number}"
    if reserved:
        yield f"answers use {reserved}: for a number type {reserved}1 in its place"


def suggest_for_top_words(name: str) -> str:
    """Return what to type for log-probabilities of the top k words; "" for other names.

    >>> suggest_for_top_words("topk"), suggest_for_top_words("teacher_logps")
    ('', '')
    """
    words = {*split_words(name)}
    if not words & {"topk", "top"} or not words & (LOGS | PROBABILITIES | {"logits"}):
        return ""
    return (
        "of the top k words: for their sum type klsym explain 'full(M*k1)' --level token (reverse) or"
        " 'full(M*r*log(r))' (forward), or audit the function that takes them from logits with torch.topk"
    )


def ask_for_value(name: str) -> str:
    """Return "write what it is, .." for a name that may depend on the sample; "" for other names.

    >>> ask_for_value("diff"), ask_for_value("beta")
    ('write what it is, such as `diff = ref_logp - logp; ...`', '')
    >>> ask_for_value("current_q1a") == OUT_OF_SCOPE
    True
    """
    if of_top_words := suggest_for_top_words(name):
        return of_top_words
    if {*split_words(name)} & OF_PAIRS:
        return PAIRS_OUT_OF_SCOPE
    if names_critic(name):
        return OUT_OF_SCOPE
    if names_temperature(name):
        return OF_TEMPERATURE
    if names_token_advantage(name):
        return suggest_for_token_advantage(name)
    example = find_example(name)
    if {*split_words(name)} <= {"weight", "weights"} and example:
        return f"{WRITE}, such as `{name} = R; ...` for returns or `{name} = {example}; ...` for ratios"
    return f"{WRITE}, such as `{name[:60]} = {example}; ...`" if example else ""


def suggest_distinct_values(first: str, second: str, symbol: str) -> str:
    """Return what to type for two names that would be read as one symbol.

    >>> suggest_distinct_values("ratio", "tis", "rho")
    'say of both what they are, as in `ratio = exp(logp - old_logp); tis = exp(old_logp - rollout_logp); ...`'
    >>> suggest_distinct_values("logp", "logq", "log_q")
    'assign one of them first, as in `logp = log_p; ...`'
    """
    if of_token := suggest_for_token_advantage(first, second):
        return of_token
    pair = {"rho": (EXAMPLE_OF_RATIO, EXAMPLE_OF_SECOND_RATIO)}.get(symbol)
    if symbol.startswith("exp("):  # probabilities
        pair = ("exp(log_q)", "exp(log_p)")
    if pair:
        return f"say of both what they are, as in `{first[:60]} = {pair[0]}; {second[:60]} = {pair[1]}; ...`"
    typed, instead = first, SECOND_READING.get(symbol, "...")
    if (letters := {name[-1:]: name for name in (first, second)}).keys() == {"p", "q"}:
        typed, instead = letters["p"], "log_p"  # as in the grammar
    if typed.endswith(")"):
        return f"type {instead} for one of them"
    return f"assign one of them first, as in `{typed.split('.')[-1][:60]} = {instead}; ...`"


def names_token_advantage(name: str) -> bool:
    """Is it an advantage of each token, in code that also has one of the whole sequence?

    >>> [names_token_advantage(x) for x in ("A_token", "token_advantages", "token_level_adv", "advantages")]
    [True, True, True, False]
    """
    words = {*split_words(name)}
    return "token" in words and bool(words & (ADVANTAGES | {"a"}))


def suggest_for_token_advantage(*names: str) -> str:
    """Return what to type for the first of the names that is an advantage of each token; "" for others."""
    name = next(filter(names_token_advantage, names), "")
    typed = f"type `{name[:60]} = R; ...`: R is a number at each token, A one of the whole sequence"
    return typed if name else ""
