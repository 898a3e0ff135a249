"""Does the code use an argument as the role that was guessed from its name is used?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy

from klsym.audit.binding import DENSITIES, Bindings, find_last_word
from klsym.audit.terms import VOCABULARY, AskedRole, Misfit, Refused, Step, Total, mask, replace_totals, token
from klsym.errors import spell_option
from klsym.language import expressions as language
from klsym.language.recognition import join_probabilities
from klsym.language.training_names import split_words

SHIFT = sympy.Dummy("shift", real=True)


def refuse_misread(formula: Any, journal: Iterable[Any], bindings: Bindings) -> None:
    """Raise Refused where the code uses an argument in a way that its guessed role does not fit."""
    refuse_twice(bindings)
    if not formula.free_symbols:
        hint = (
            f"name the loss with {spell_option('result')}, or bind what it reads with {spell_option('map')}"
        )
        raise Refused(f"what is returned depends on nothing of the sample: {hint}")
    if token in formula.free_symbols:
        raise Misfit("a formula on the numbers of tokens, which are names of words", token)
    if bindings.list_guessed(mask) and all(map(_is_multiplied_by_mask, sympy.Add.make_args(formula))):
        raise Misfit("a sum over the batch times a mask", mask)
    symbols, why = _find_distributions(formula, journal)
    clear = {
        n
        for n in bindings.guessed
        if {*split_words(find_last_word(n))} & {"token", "tok", "selected", "action"}
    }
    names = [
        n
        for n in bindings.guessed
        if n not in clear and language.unfold(bindings.roles[n]).free_symbols & symbols
    ]
    if names:
        choices = "; ".join(
            " or ".join(spell_option("map", f"{n}={bindings.texts[n]}{words}") for words in ("[v]", ""))
            for n in names
        )
        raise AskedRole(
            f"{why}, as of a whole vocabulary, so names are no guide: {choices}",
            _find_line(journal),
        )


def refuse_shifted(cuts: Mapping[str, int], roles: Mapping[str, Any]) -> None:
    """Raise Refused if densities of one token are cut differently; logits come before their token."""
    for of_words in (False, True):
        names = {start: name for name, start in cuts.items() if roles[name].has(*VOCABULARY) == of_words}
        if len(names) > 1:
            raise Refused(f"{names[0]} and {names[1]} are cut differently: neighbouring tokens are combined")


def refuse_twice(bindings: Bindings) -> None:
    """Raise AskedRole for two names of one quantity, which are more likely two; not for masks and tokens."""
    for name in bindings.guessed:
        text = bindings.texts[name]
        others = [o for o in bindings.texts if o != name and not _is_one(o, name, bindings)]
        if others and text not in ("mask", "token"):
            statement = f"{' and '.join([*others, name])} would all be {text} by their names"
            raise AskedRole(f"{statement}: {spell_option('map')} says what each of them is")


def _is_one(first_name: str, second_name: str, bindings: Bindings) -> bool:
    """Do two names say different things, or is one a variable that the code keeps the other in?

    logp and batch['logp'] may be those of two policies, a['ref_logp'] and b['ref_logp'] of two batches.
    """
    text, other_text = (bindings.texts[name] for name in (first_name, second_name))
    if find_last_word(first_name) != find_last_word(second_name):
        return text != other_text
    of_policy = "log_q" in text and "log_q" in other_text  # one of them without gradient, perhaps
    plain = first_name.isidentifier() or second_name.isidentifier()
    return not of_policy and (plain or text != other_text)


def _is_multiplied_by_mask(product: Any) -> bool:
    """Is it a mask times what has been summed over the batch?  Then the mask is a number."""
    factors = sympy.Mul.make_args(product)
    sums = [e for e in factors if any("b" in t.axes for t in e.atoms(Total)) and _has_data(e)]
    return mask in factors and any(not _has_data(replace_totals(e)) for e in sums)


def _has_data(e: Any) -> bool:
    return bool(_find_densities(e))


def _find_distributions(formula: Any, journal: Iterable[Any]) -> tuple[set[Any], str]:
    """Return the log densities of a formula with a probability as a factor, or of kl_div; and which.

    The log of a probability is none.
    """
    plain = formula.replace(lambda part: isinstance(part, Step), lambda part: sympy.S.One)
    plain = plain.replace(_is_log_of_word, lambda part: sympy.Dummy(real=True) * sum(part.free_symbols))
    plain = plain.replace(lambda part: part.is_Mul, join_probabilities)
    plain = plain.xreplace({mask: sympy.S.One})  # at padding the code may fill in anything
    used = any(map(is_probability, plain.atoms(sympy.exp, sympy.Pow)))
    why = "kl_div" if any(name == "kl_div" for name, _, _ in journal) else "exp of a log-probability"
    return _find_densities(plain) if used else set(), why


def _is_log_of_word(e: Any) -> bool:
    return isinstance(e, sympy.log) and not e.has(Total)


def is_probability(power: Any) -> bool:
    """Does its exponent change when all log densities are shifted alike?  That of a ratio does not.

    >>> from klsym.language.expressions import log_p, log_q
    >>> is_probability(sympy.exp(log_q - log_p)), is_probability(sympy.exp(2 * log_q - log_p))
    (False, True)

    A sum over tokens is no log density of a word.
    """
    exponent = power.args[0] if isinstance(power, sympy.exp) else power.exp
    exponent = language.remove_sg(language.unfold(replace_totals(exponent)))
    shifted = exponent.xreplace({x: x + SHIFT for x in _find_densities(exponent)})
    return bool(sympy.expand(shifted - exponent) != 0)


def _find_densities(e: Any) -> set[Any]:
    return {x for x in e.free_symbols if x.name in DENSITIES}


def _find_line(journal: Iterable[Any]) -> int | None:
    for names in (("kl_div", "sum", "mean", "reduce_sum"), ("exp", "pow", "softmax")):
        lines: list[int] = [line for name, line, _ in journal if name in names and line]
        if lines:
            return lines[-1]
    return None
