"""What an audit assumes where the code does not say it: each assumption is a note, with the option that
changes it.

>>> choose_sampling(None, ["old_logps"])[0]
'off-policy'
>>> choose_sampling("on-policy", ["old_logps"]), choose_sampling(None, [])
(('on-policy', []), ('on-policy', []))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from sympy import Add, Mul, diff

from klsym.api import Verdict, ask
from klsym.audit.aggregation import Tokens
from klsym.audit.binding import Bindings, find_last_word
from klsym.audit.code import Code
from klsym.audit.compiled.running import Session
from klsym.audit.sequences import list_summed
from klsym.audit.terms import VOCABULARY, Total, every_log_mu, mask, sequence_mask, token
from klsym.audit.weights import find_data_symbols
from klsym.errors import UsageError, spell_option
from klsym.language import recognition
from klsym.language.expressions import DENSITIES, A, R, log_mu, log_q, unfold
from klsym.language.recognition import name_floors
from klsym.language.sums import Whole
from klsym.language.training_names import ADVANTAGES, REWARDS, split_words

SAME_REWARDS = "rewards are taken for the same at all tokens of a sequence"
OTHER_REWARDS = (
    f"{SAME_REWARDS}: with one number a token the code multiplies each by the log densities of all tokens,"
    " and klsym measure with --map NAME=token_rewards says what that is"
)
VERBS = {"compute", "calculate", "calc", "get", "estimate", "apply", "add", "shape", "normalize", "whiten"}
NO_REWARDS = {"loss", "losses", "objective", "gradient", "update", "step", "train", "model", "weighted"}
OF_TOKENS = {"token", "tok", "selected", "action"}  # in the name of a log density: one number for each token


class Choice(NamedTuple):
    """The options that a loss is explained with, and the notes on those that the user did not give."""

    options: dict[str, Any]
    notes: list[str]


def choose_sampling(asked: str | None, old: list[str]) -> tuple[str, list[str]]:
    """Return where samples come from, with a note unless the user said it; old: the names for log_mu."""
    if asked is not None or not old:
        return asked or "on-policy", []
    why = f"{' and '.join(old)} {'is' if len(old) == 1 else 'are'} read as log_mu"
    return "off-policy", [
        f"sampling off-policy: {why}; {spell_option('sampling', 'on-policy')} if q draws the samples"
    ]


def choose_use(asked: str | None, name: str, result: Any) -> tuple[str, list[str]]:
    """Return what the code gives, a loss or a reward, with a note unless the user said it.

    >>> choose_use(None, "compute_advantages", None)[0], choose_use(None, "advantage_loss", None)
    ('reward', ('loss', []))

    name: of the function; result: what of it is read.
    """
    named = name if result is None or str(result).isdigit() else str(result)
    words = split_words(named.rpartition(".")[2]) or [""]
    is_reward = bool({*words} & (ADVANTAGES | REWARDS)) and not {*words} & NO_REWARDS
    if asked or not (is_reward and (words[0] in VERBS or words[-1] in ADVANTAGES | REWARDS)):
        return asked or "loss", []
    return "reward", [
        f"use reward: {named} gives rewards by its name; {spell_option('use', 'loss')} if it gives a loss"
    ]


def describe_loss(name: str, is_number: bool) -> str:
    """Return the note on a loss whose name is that of a reward."""
    why = "it returns one number" if is_number else "it multiplies advantages with a ratio of the policy"
    return f"use loss: {why}, although {name} is named after rewards; {spell_option('use', 'reward')}"


def weighs_advantage(loss: Any) -> bool:
    """Is an advantage multiplied by what depends on the policy, as in a loss?  None: no loss was read."""
    return loss is not None and bool(unfold(diff(loss, A)).has(log_q))


def explain_tokens(tokens: Tokens, setting: dict[str, Any], typed_level: str | None) -> Verdict:
    """Return the verdict; if the level comes from the code, errors name the other level."""
    try:
        return ask(tokens.loss, **setting)
    except UsageError as error:
        if typed_level or setting["level"] == "sample":
            raise
        hint = "the code aggregates over tokens, so this is asked at level token"
        single = f"{spell_option('level', 'sample')} explains a single token"
        raise UsageError(f"{error} ({hint}; {single})") from None


def choose_setting(
    options: Mapping[str, Any], tokens: Tokens, find_unsized: Callable[[], list[str]]
) -> Choice:
    """Return the options that the user gave; for all others, what the code does.

    find_unsized: the log densities with which the code also runs if they have one number a sequence.
    """
    setting = {key: value for key, value in options.items() if value is not None}
    if tokens.weights == "sequence":
        setting.setdefault("level", "token")
        setting.setdefault("weights", "sequence")
        if setting["weights"] != "sequence":
            raise UsageError("weights: the code multiplies each token by the ratio of its whole sequence")
    if tokens.level == "sequence":
        setting.setdefault("level", "sequence")
    if tokens.loss.atoms(Whole):
        setting.setdefault("level", "token")
    setting.setdefault("level", "token" if tokens.aggregate else "sample")
    sized = options["level"] or setting["level"] != "token"
    notes = explain_level(setting["level"], options["level"], tokens, [] if sized else find_unsized())
    aggregate = tokens.aggregate if setting["level"] in ("token", tokens.level) else ""
    if aggregate and setting.setdefault("aggregate", aggregate) != aggregate:
        raise UsageError(f"aggregate {setting['aggregate']}: the loss is {tokens.words}")
    if aggregate and setting["use"] == "reward" and setting["level"] == "token":
        setting.setdefault("credit", "total")  # one number a sequence, which all its tokens get
    return Choice(setting, notes)


def find_old_densities(formula: Any, bindings: Bindings) -> list[str]:
    """Return the names that are of the old policy, of drawn words or of all, if the loss depends on it."""
    of_old = {log_mu, every_log_mu}
    if not of_old & unfold(formula).free_symbols:
        return []
    return [name for name, role in bindings.roles.items() if of_old & unfold(role).free_symbols]


def find_unsized(formula: Any, bindings: Bindings) -> list[str]:
    """Return the log densities that may have one number a token or one a sequence, by the sums."""
    sums = [e for e in formula.atoms(Total) if find_data_symbols(e)]
    roles = {n: e for n, e in bindings.roles.items() if unfold(e).free_symbols & {*DENSITIES}}
    named = any({*split_words(find_last_word(name))} & OF_TOKENS for name in roles)
    plain = not formula.free_symbols & {mask, token, *VOCABULARY}
    return list(roles) if sums and plain and not named and all(e.axes == "bt" for e in sums) else []


def explain_level(level: str, asked: str | None, tokens: Tokens, unsized: list[str]) -> list[str]:
    """Return the note on the level that is explained, and why, for code that aggregates over tokens.

    unsized: the log densities that may have one number a sequence as well.
    """
    if not tokens.aggregate or level == tokens.level == "sequence":
        return []
    if level != "token":
        return [f"level {level}, as asked: that the loss is {tokens.words} is left out"]
    if unsized and not asked:
        whole = spell_option("level", "sequence")
        statement = f"klsym takes {' and '.join(unsized)} for one number a token; {whole}: one a sequence"
        return [f"level token: {statement}; {spell_option('level', 'sample')}: a single token"]
    hint = "" if asked else f"; {spell_option('level', 'sample')} explains a single token"
    return [f"level token, since the loss is {tokens.words}{hint}"]


def describe_branches(code: Code, known_names: Collection[str], session: Session) -> Iterable[str]:
    """Name the default arguments and shapes that may choose a branch without a word of the user.

    known: the names that have a value or a role.
    """
    defaulted = [a for a in code.arguments if a.has_default and a.default and a.name in code.texts]
    defaults = ", ".join(f"{a.name}={a.default}" for a in defaulted if a.name not in known_names)
    if defaults:
        yield f"{defaults} by default; {spell_option('set')} changes it"
    for text, holds in session.shaped.items():
        yield f"{text} is {holds} with the shapes that klsym runs the code with"


def describe_assumptions(bindings: Bindings, traced: Any, verdict: Verdict) -> Iterable[str]:
    """Name arguments that are taken for the same thing, for one number a sequence, or for bounds in order."""
    layout, tokens = traced.layout, traced.tokens
    yield from describe_arguments(bindings, layout)
    rewarded = bool(unfold(tokens.loss).free_symbols & {R, A}) and not layout.by_rows
    ordered = [m.values["of"] for m in verdict.assumptions if m.code == "bounds-in-order"]
    if ordered:
        yield f"bounds of clips are taken to be in order: {', '.join(f'{e} > 0' for e in ordered)}"
    if rewarded and multiplies_sums(traced.formula):
        yield OTHER_REWARDS
    elif tokens.level == "sequence" and rewarded and not layout.constant:
        yield SAME_REWARDS


def describe_arguments(bindings: Bindings, layout: Any) -> Iterable[str]:
    """Name arguments that are taken for the same thing, or for one number a sequence."""
    masks, words = bindings.list_guessed(mask), bindings.list_guessed(token)
    if len(masks) > 1:
        yield f"{' and '.join(masks)} are taken for one and the same mask"
    if len(words) > 1 and any(" != " in name for name in masks):
        yield f"{' and '.join(words)} are taken for the same tokens, with the same mask"
    for name in [*list_summed(bindings), *(n for n, e in bindings.roles.items() if layout.is_token_sum(e))]:
        yield f"{name} has one number for each sequence: klsym takes it for the sum over its tokens"
    for name in (n for n, e in bindings.roles.items() if e == sequence_mask):
        yield f"{name} has one number for each sequence: klsym takes it for 1, as every sequence counts"
    if layout.flat:
        yield "klsym runs the code on the tokens of all sequences along one axis, as it needs them"
    if layout.constant:
        yield SAME_REWARDS


def multiplies_sums(formula: Any) -> bool:
    """Is a reward or an advantage of a token multiplied by a sum of log densities over all tokens?

    >>> from klsym.audit.terms import sum_over
    >>> multiplies_sums(sum_over(A * sum_over(log_q, "bt"), "bt")), multiplies_sums(sum_over(A * log_q, "bt"))
    (True, False)
    """
    terms = (x for total in formula.atoms(Total) if "t" in total.axes for x in Add.make_args(total.args[0]))
    return any(_has_reward_and_sum(Mul.make_args(term)) for term in terms)


def _has_reward_and_sum(factors: tuple[Any, ...]) -> bool:
    sums = [x for x in factors if isinstance(x, Total)]
    of_tokens = [x for x in factors if x not in sums and x.free_symbols & {A, R}]
    return bool(of_tokens) and any("t" in x.axes and x.has(log_q) for x in sums)


def leave_out_floors(tokens: Tokens) -> Tokens:
    """Return the loss without small lower bounds of probabilities, which it is assumed that none meets."""
    loss, floors = recognition.leave_out_floors(tokens.loss)
    return replace(tokens, loss=recognition.recognise(loss), floors=name_floors(floors)) if floors else tokens
