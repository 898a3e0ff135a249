"""A loss by its usual name, such as grpo: the loss in the grammar with its usual options.  Untrusted.

>>> read_question("grpo", (), {"sampling": None, "aggregate": None}).options["sampling"]
'off-policy'
>>> read_question("grpo", (), {"sampling": "on-policy"}).options["sampling"]
'on-policy'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from sympy import Max, Min, S

from klsym.engine.answers.dispatch import as_written, show_loss
from klsym.engine.divergences.usual_names import KL_NAMES, suggest_divergence, suggest_losses
from klsym.engine.options.choices import POSITIONS, find_meaning, is_reward
from klsym.engine.options.option_table import DEFAULTS, OPTIONS
from klsym.engine.options.synonyms import read_choice
from klsym.errors import UsageError, spell_option, suggest_nearest
from klsym.language.expressions import (
    ATOMS,
    DENSITIES,
    PARAMETERS,
    REWARDS,
    A,
    R,
    Weight,
    clip,
    log_mu,
    log_p,
    log_q,
    rho,
    unfold,
)
from klsym.language.messages import Message
from klsym.language.named_losses import (
    ASSIGNED,
    NamedLoss,
    drop_setting,
    expand_names,
    find_named_loss,
    is_like_a_name,
    list_names,
    normalise_name,
    refuse_sentence,
    split_place,
)
from klsym.language.parser import SHOWN
from klsym.language.pasted.text import is_statements
from klsym.language.recognition import recognise
from klsym.language.sums import Centred, LeftOut, Normalised
from klsym.language.training_names import ADVANTAGES, split_words
from klsym.language.training_names import find_meaning as find_name_meaning
from klsym.language.typeset.plain_text import (
    is_formula_of_papers,
    may_be_formula_of_papers,
    spell_means_as_code,
)
from klsym.language.typeset.tokens import is_latex, quote_part
from klsym.notation.decimals import choose_decimals
from klsym.notation.losses import Written

# The choices of the options that the row of a name leaves out.
DEFAULT_CHOICES = {
    option.name: option.choices[0] for option in OPTIONS if option.name not in ("credit", "weights")
}
REWARD_WORDS = {"reward", "rewards"}  # of the name of a value that is added to the reward
VALUES = {"entropy", "entropies"}
OF_NEGATIVE = "{0} is negative: type 'R + ({1})' --use reward where the code adds it, 'R - ({1})' where not"
OF_SAMPLER = {"log_q": "on-policy", "log_mu": "off-policy"}
Options = Mapping[str, str | None]
CENTRED = {
    "mean": Centred,
    "leave-one-out": LeftOut,
    "std": Normalised,
}  # what an option of the batch makes of a reward


@dataclass(frozen=True)
class Question:
    """A loss as it is written, the options (those of its name where none was typed), and the names used.

    says_level: the loss itself adds up tokens, and its options are those of that level.
    """

    written: Written
    options: dict[str, str | None]
    rows: tuple[NamedLoss, ...] = ()
    says_level: bool = False


def read_question(loss: object, parameters: Iterable[str], options: Options) -> Question:
    """Read a loss that may have a usual name, or names in its formula; raises UsageError."""
    return _note_weight(_note_batch(_read_question(loss, parameters, options)))


def _read_question(loss: object, parameters: Iterable[str], options: Options) -> Question:
    names = parameters if isinstance(parameters, str) else tuple(parameters)
    if isinstance(loss, str):
        loss, place = split_place(drop_setting(loss))
        if place:
            typed_use = read_choice("use", options.get("use") or "") if options.get("use") else ""
            options = {**options, "use": choose_place(place, typed_use)}
    if not isinstance(loss, str) or loss.strip() in {*ATOMS, *names}:
        return Question(as_written(loss, names), dict(options))
    if is_latex(loss):
        return _read_latex(loss, names, options)
    try:
        return _read_text(loss, names, options)
    except UsageError as error:
        if not (is_formula_of_papers(loss) or may_be_formula_of_papers(loss)):
            raise
        refusal = error
    try:
        return _read_latex(loss, names, options)
    except UsageError as error:
        of_code = _read_expectation_of_code(loss, names, options)
        if of_code is not None:
            return of_code
        of_formula = UsageError(str(error).replace(" in LaTeX", ""))
        is_of_papers = is_formula_of_papers(loss) or "cannot be read" in str(refusal)
        raise of_formula if is_of_papers else refusal from None


def _read_expectation_of_code(loss: str, names: Iterable[str], options: Options) -> Question | None:
    """Read -E[ratio*adv], whose insides are code, as a mean of it; None where they cannot be read either."""
    from klsym.language.typeset.own_samples import refuse_own_samples  # seldom needed

    spelled = spell_means_as_code(loss)
    try:
        question = _read_text(spelled, names, options) if spelled != loss else None
    except UsageError:
        question = None
    if question is None:
        return None
    refuse_own_samples(quote_part(loss), recognise(question.written.expression), "")
    as_mean, as_expectation = Message("averages-left-out", names=("mean",)), Message("expectation-left-out")
    notes = tuple(as_expectation if note == as_mean else note for note in question.written.notes)
    return replace(question, written=replace(question.written, typed=loss.strip(), notes=notes))


def _read_text(loss: str, names: Iterable[str], options: Options) -> Question:
    """Read a loss that is a name, a formula with names in it, or code."""
    rows: tuple[NamedLoss, ...]
    row = find_named_loss(loss)
    if row is not None:
        text, rows = row.loss, (row,)
    else:
        refuse_sentence(loss)
        values = VALUES if is_statements(loss) else set()  # in code `entropy` is a value, and no loss
        text, rows = expand_names(loss, {*ATOMS, *PARAMETERS, *names, *values})
        rows = tuple(replace(one, options={}) if one.in_formula else one for one in rows)  # H(q) is a value
    written = _read_formula(text, names, loss, rows)
    if not rows:
        question = _read_as_reward(Question(written, dict(options)), loss)
        return _assume_level(_assume_sampling(question))
    merged = merge_options(rows, options)
    notes = tuple(_describe_row(one, merged) for one in rows)
    named = Question(replace(written, typed=loss.strip(), notes=(*notes, *written.notes)), merged, rows)
    return named if row is not None else _assume_sampling(named)


def _read_latex(loss: str, parameters: Iterable[str], options: Options) -> Question:
    """Read a formula in LaTeX, or one of papers, as the text of the grammar that it is translated into.

    An option for the sampling goes before what an expectation says of the samples.
    """
    from klsym.language.typeset.own_samples import refuse_own_samples  # seldom needed, as the next
    from klsym.language.typeset.translating import translate

    formula = translate(loss)
    try:
        written = as_written(formula.text, parameters)
    except UsageError as error:
        raise UsageError(f"{error}; it is read as {formula.text[:SHOWN]}") from None
    expression = recognise(written.expression)
    refuse_own_samples(quote_part(loss), expression, formula.sampler)
    text = choose_decimals(loss)(show_loss(expression))
    notes = [Message("read-as", typed=quote_part(loss), loss=text), *formula.notes, *written.notes]
    options = dict(options)
    if formula.sampler in OF_SAMPLER and not options.get("sampling"):
        options["sampling"] = OF_SAMPLER[formula.sampler]
        notes.append(Message("sampling-of-expectation", sampling=OF_SAMPLER[formula.sampler]))
    question = Question(Written(text, expression, notes=tuple(notes)), options)
    return _assume_level(_assume_sampling(_read_as_reward(question, formula.text)))


def choose_place(place: str, typed_use: str) -> str:
    """Return where a loss is used: as the words beside it say, or as the option says; a loss by default.

    Raises UsageError: the two differ.
    """
    if place and typed_use and place != typed_use:
        said = spell_option("use", typed_use)
        raise UsageError(f"the loss says that it is in the {place}, and {said} says otherwise: leave one out")
    return place or typed_use or "loss"


def _read_formula(text: str, parameters: Iterable[str], typed: str, rows: tuple[NamedLoss, ...]) -> Written:
    """Read a formula whose names are written out; a word that is no formula is refused as a name."""
    try:
        return as_written(text, parameters)
    except UsageError as error:
        if not is_like_a_name(typed):
            raise
        objectives = {normalise_name(name): name for name in KL_NAMES}
        if objective := objectives.get(normalise_name(typed)):
            hint = f"{suggest_losses(objective)}; klsym recommend --target {objective} lists others"
            raise UsageError(f"{typed.strip()!r} is an objective, and no loss: {hint}") from None
        if divergence := suggest_divergence(typed):
            raise UsageError(f"{typed.strip()!r} is a divergence, and no loss{divergence}") from None
        expanded = f"; did you mean {rows[0].name}?" if rows else ""
        nearest = suggest_nearest(typed.strip(), list_names()) or expanded
        refusal = f"{typed.strip()[:60]!r} is no name of a loss{nearest}" if rows else str(error)
        raise UsageError(f"{refusal}; klsym examples lists the losses with names") from None


def _read_as_reward(question: Question, typed: str) -> Question:
    """Return a question on a reward with what its names say; other questions stay.

    A value named reward is added to the reward, whatever its sign.  An old policy beside the reference,
    without a newer one, is the policy that draws the samples.
    """
    use, written = question.options.get("use"), question.written
    options, notes = question.options, []
    e, level, assigned = written.expression, options.get("level"), ASSIGNED.findall(typed)
    if not use and find_assigned_reward(typed) and unfold(e).has(*DENSITIES):
        use, options = "reward", {**options, "use": "reward"}
        notes.append(Message("level-assumed", options={"use": "reward"}))
    if not use or not is_reward(read_choice("use", use)):
        return question
    if (
        assigned
        and "penalty" in split_words(assigned[-1])
        and not e.has(R, A)
        and e.could_extract_minus_sign()
    ):
        raise UsageError(OF_NEGATIVE.format(assigned[-1][:SHOWN], show_loss(e)))
    if assigned and {*split_words(assigned[-1])} & (REWARD_WORDS | ADVANTAGES) and not e.has(R, A):
        notes.append(Message("added-to-reward", name=assigned[-1]))
    if level and find_meaning(POSITIONS, "level", read_choice("level", level)).per_token:
        pairs = [pair for m in written.notes if m.code == "names-read" for pair in m.values["pairs"]]
        notes += [Message("added-at-each-token", name=name) for name, role in pairs if role == "R"][:1]
    if e.has(log_mu) and e.has(log_p) and not e.has(log_q, rho) and not options.get("sampling"):
        options = {**options, "sampling": "on-policy"}
        notes.append(Message("sampler-is-policy"))
        written = replace(written, expression=recognise(unfold(e).xreplace({log_mu: log_q})))
    written = replace(written, notes=(*written.notes, *notes))
    return replace(question, written=written, options=options)


def find_assigned_reward(text: str) -> str:
    """Return the name of the reward or the advantage that the last line assigns; "" for other lines.

    >>> [find_assigned_reward(x) for x in ("rewards = R - k1", "adv = -k1; -adv*logp", "reward_loss = k1")]
    ['rewards', '', '']
    """
    last = ASSIGNED.match(re.split(r"[;\n]", text.strip())[-1].strip())
    return last[1] if last is not None and find_name_meaning(last[1]) in ("R", "A") else ""


def _assume_sampling(question: Question) -> Question:
    """Return the question off-policy, with a note, where an older log-probability is read or typed.

    In the loss grammar rho beside an advantage says so, too; elsewhere rho is q/mu on-policy, where mu is q
    held fixed.
    """
    written = question.written
    pairs = [pair for m in written.notes if m.code == "names-read" for pair in m.values["pairs"]]
    names = [typed for typed, role in pairs if "log_mu" in role or "rho" in role]
    if written.expression.has(rho) and written.expression.has(A):
        names = names or ["rho"]
    elif written.expression.replace(_is_weight, lambda *args: S.One).has(log_mu):
        names = names or ["log_mu"]
    if not names or question.options.get("sampling") or not written.expression.has(log_mu, rho):
        return question
    note = Message("sampling-assumed", names=tuple(names))
    options = {**question.options, "sampling": "off-policy"}
    return replace(question, written=replace(written, notes=(*written.notes, note)), options=options)


def _is_weight(e: Any) -> bool:
    return isinstance(e, Weight)


def _note_batch(question: Question) -> Question:
    """Return the question with a note where a batch's mean or deviation is that of a weighted reward."""
    batch, use, loss = (*map(question.options.get, ("batch", "use")), question.written.expression)
    centre = CENTRED.get(read_choice("batch", batch)) if batch else None
    rewards = [x for x in REWARDS if loss.has(x)]
    if centre is None or len(rewards) != 1 or not loss.has(rho, log_mu) or _is_of_reward(use):
        return question
    instead = show_loss(loss.xreplace({rewards[0]: centre(rewards[0])}))
    note = Message("batch-of-weighted", of=str(rewards[0]), instead=instead)
    written = replace(question.written, notes=(*question.written.notes, note))
    return replace(question, written=written)


def _is_of_reward(use: str | None) -> bool:
    """Is it a choice of use by which the loss is part of the reward?"""
    return use is not None and is_reward(read_choice("use", use))


def _note_weight(question: Question) -> Question:
    """Return the question with a note where the loss is an importance weight alone."""
    loss, use = question.written.expression, question.options.get("use")
    if not is_bounded_ratio(loss) or _is_of_reward(use):
        return question
    note = Message("weight-alone", instead=show_loss(-A * loss))
    return replace(question, written=replace(question.written, notes=(*question.written.notes, note)))


def is_bounded_ratio(value: Any) -> bool:
    """Is it rho = q/mu, or min, max or clip of it and numbers?

    >>> [is_bounded_ratio(x) for x in (rho, Min(rho, 2), rho * A, rho**2)]
    [True, True, False, False]
    """
    if value == rho:
        return True
    parts = [x for x in value.args if x.has(*DENSITIES)] if isinstance(value, Min | Max | clip) else []
    return len(parts) == 1 and is_bounded_ratio(parts[0])


def _assume_level(question: Question) -> Question:
    """Return the question at the level of the sums over tokens in the loss, with notes.

    Where another level was typed, or the loss is the reward of a token, nothing is assumed; where something
    typed differs, a note says what explains the loss as written.
    """
    implied = next(filter(None, map(_read_level, question.written.notes)), None)
    if implied is None:
        return question
    typed = {name: read_choice(name, value) for name in implied if (value := question.options.get(name))}
    use = question.options.get("use")
    is_of_tokens = find_meaning(POSITIONS, "level", implied["level"]).per_token
    is_used_otherwise = is_of_tokens and use is not None and is_reward(read_choice("use", use))
    is_used_otherwise |= typed.get("level", implied["level"]) != implied["level"]
    assumed = {} if is_used_otherwise else {k: value for k, value in implied.items() if k not in typed}
    differs = is_used_otherwise or any(typed[name] != implied[name] for name in typed)
    notes = [Message("level-assumed", options=assumed)] if assumed else []
    notes += [Message("level-unlike", options=implied)] if differs else []
    written = replace(question.written, notes=(*question.written.notes, *notes))
    options = {**question.options, **assumed}
    return replace(question, written=written, options=options, says_level=not is_used_otherwise)


def _read_level(note: Message) -> dict[str, str] | None:
    """Return the level, and how tokens are added up, that a note on the reading of a loss implies."""
    if note.code in ("tokens-added-up", "of-each-token"):
        return {"level": "token", **{name: value for name, value in note.values.items() if value}}
    return {"level": "sequence"} if note.code == "over-tokens" else None


def merge_options(rows: Iterable[NamedLoss], options: Options) -> dict[str, str | None]:
    """Return the usual options of the named losses of a formula, with typed options in their place.

    An option that a name brings and that has no effect beside the typed ones is left out.
    Raises UsageError: two names bring different choices of an option that was not typed.
    """
    typed = {name: read_choice(name, value) for name, value in options.items() if value and name in DEFAULTS}
    usual = {row.name: row.options for row in rows}
    _refuse_conflicting_options(usual, typed)
    of_names = {name: value for values in usual.values() for name, value in values.items()}
    merged: dict[str, str | None] = {**options, **of_names, **typed}
    for name in _list_without_effect(merged):
        if name in of_names and name not in typed:
            merged[name] = None
    return merged


def complete_options(question: Question) -> dict[str, str] | None:
    """Return the options of a loss that brings some, with the defaults of those it leaves out.

    None: neither a name in the loss nor a sum over tokens brings options: it can be used like another loss.

    >>> [complete_options(read_question(name, (), {})) is None for name in ("ppo", "k3")]
    [False, True]
    """
    if not question.says_level and not any(row.options for row in question.rows):
        return None
    chosen = {name: value for name, value in question.options.items() if value}
    without_effect = _list_without_effect({**DEFAULT_CHOICES, **chosen}) - chosen.keys()
    return {name: x for name, x in {**DEFAULT_CHOICES, **chosen}.items() if name not in without_effect}


def _list_without_effect(options: Options) -> set[str]:
    whole = DEFAULTS | {name: value for name, value in options.items() if value is not None}
    return {option.name for option in OPTIONS if option.explain_no_effect(whole)}


def _refuse_conflicting_options(usual: Mapping[str, Mapping[str, str]], typed: dict[str, str]) -> None:
    """Raise UsageError where two names bring different choices of an option that was not typed.

    usual: the options of each name.
    """
    values = {name: {one[name] for one in usual.values() if name in one} for name in DEFAULTS}
    of_all = {name: min(found) for name, found in values.items() if len(found) == 1}
    without_effect = _list_without_effect({**of_all, **typed})
    differing = {name for name, found in values.items() if len(found) > 1 and name not in typed}
    if not differing - without_effect:
        return
    said = [f"{row} is used with {spell_options(options, differing)}" for row, options in usual.items()]
    raise UsageError(f"{'; '.join(said)}: add the options of one of them")


def spell_options(options: Mapping[str, str], names: Set[str]) -> str:
    """Return those of the options that are named, as the caller writes them."""
    return " ".join(spell_option(name, options[name]) for name in DEFAULTS if name in names & options.keys())


def _describe_row(row: NamedLoss, options: Options) -> Message:
    setting = ", ".join(f"{name} {value}" for name in DEFAULTS if (value := options.get(name)))
    return Message("named-loss", name=row.name, whose=row.whose, says=row.says, setting=setting)
