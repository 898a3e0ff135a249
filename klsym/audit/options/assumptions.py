"""What an audit assumes where the code does not say it: each assumption is a note, with the option that
changes it.

>>> sampling_of(None, ["old_logps"])[0]
'off-policy'
>>> sampling_of("on-policy", ["old_logps"]), sampling_of(None, [])
(('on-policy', []), ('on-policy', []))
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from klsym.api import Verdict
from klsym.audit.aggregation import Tokens
from klsym.audit.binding import Bindings, last_word
from klsym.audit.code import Code
from klsym.audit.compiled.running import Session
from klsym.audit.sequences import summed
from klsym.audit.terms import VOCABULARY, Total, mask, token
from klsym.audit.weights import data_of
from klsym.language.expressions import DENSITIES, A, R, log_mu, unfold
from klsym.language.training_names import words_of

OF_TOKENS = {"token", "tok", "selected", "action"}  # in the name of a log density: one number for each token


def sampling_of(asked: str | None, old: list[str]) -> tuple[str, list[str]]:
    """Where samples come from, and a note if nobody has said it; old: the names that stand for log_mu."""
    if asked is not None or not old:
        return asked or "on-policy", []
    why = f"{' and '.join(old)} {'is' if len(old) == 1 else 'are'} read as log_mu"
    return "off-policy", [f"sampling off-policy: {why}; --sampling on-policy if q draws the samples"]


def old_densities(formula: Any, bindings: Bindings) -> list[str]:
    """The names whose log density is that of the old policy, if the loss depends on it."""
    if log_mu not in unfold(formula).free_symbols:
        return []
    return [name for name, role in bindings.roles.items() if log_mu in unfold(role).free_symbols]


def without_size(formula: Any, bindings: Bindings) -> list[str]:
    """The log densities that may have one number a token or one a sequence, as far as the sums tell."""
    sums = [e for e in formula.atoms(Total) if data_of(e)]
    roles = {n: e for n, e in bindings.roles.items() if unfold(e).free_symbols & {*DENSITIES}}
    named = any({*words_of(last_word(name))} & OF_TOKENS for name in roles)
    plain = not formula.free_symbols & {mask, token, *VOCABULARY}
    return list(roles) if sums and plain and not named and all(e.axes == "bt" for e in sums) else []


def on_level(level: str, asked: str | None, tokens: Tokens, unsized: list[str]) -> list[str]:
    """Where the code aggregates over tokens: the level that is explained, and why.

    unsized: the log densities that may have one number a sequence as well.
    """
    if not tokens.aggregate or level == tokens.level == "sequence":
        return []
    if level != "token":
        return [f"level {level}, as asked: that the loss is {tokens.words} is left out"]
    if unsized and not asked:
        said = f"klsym takes {' and '.join(unsized)} for one number a token; --level sequence: one a sequence"
        return [f"level token: {said}; --level sample: a single token"]
    more = "" if asked else "; --level sample explains a single token"
    return [f"level token, since the loss is {tokens.words}{more}"]


def branches_of(code: Code, known: Collection[str], session: Session) -> Iterable[str]:
    """Name the default arguments and shapes that may choose a branch without a word of the user.

    known: the names that have a value or a role.
    """
    left = [a for a in code.arguments if a.has_default and a.default and a.name in code.texts]
    told = ", ".join(f"{a.name}={a.default}" for a in left if a.name not in known)
    if told:
        yield f"{told} by default; --set changes it"
    for text, holds in session.shaped.items():
        yield f"{text} is {holds} with the shapes that klsym runs the code with"


def notes_of(bindings: Bindings, layout: Any, tokens: Tokens, verdict: Verdict) -> Iterable[str]:
    """Arguments that are taken for the same thing, for one number a sequence, or for bounds in order."""
    masks, words = bindings.guessed_as(mask), bindings.guessed_as(token)
    if len(masks) > 1:
        yield f"{' and '.join(masks)} are taken for one and the same mask"
    if len(words) > 1 and any(" != " in name for name in masks):
        yield f"{' and '.join(words)} are taken for the same tokens, with the same mask"
    for name in [*summed(bindings), *(n for n, e in bindings.roles.items() if layout.sums(e))]:
        yield f"{name} has one number for each sequence: klsym takes it for the sum over its tokens"
    if layout.flat:
        yield "klsym runs the code on the tokens of all sequences along one axis, as it needs them"
    rewarded = bool(unfold(tokens.loss).free_symbols & {R, A}) and not layout.by_rows
    ordered = [m.values["of"] for m in verdict.assumptions if m.code == "bounds-in-order"]
    if ordered:
        yield f"bounds of clips are taken to be in order: {', '.join(f'{e} > 0' for e in ordered)}"
    if layout.constant or (tokens.level == "sequence" and rewarded):
        yield "rewards are taken for the same at all tokens of a sequence"
