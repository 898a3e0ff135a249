"""A formula in LaTeX, or of a paper in plain text, as a text of the loss grammar.

>>> translate(r"\\frac{\\pi_\\theta(a_t|s_t)}{\\pi_{\\theta_{old}}(a_t|s_t)} \\hat{A}_t").text
'rho*A'
>>> translate(r"\\log \\foo")  # doctest: +ELLIPSIS
Traceback (most recent call last):
klsym.errors.UsageError: \\log without brackets is not read in a formula in LaTeX: ...
"""

from __future__ import annotations

import re
from typing import NamedTuple

from klsym.errors import UsageError
from klsym.language.messages import Message
from klsym.language.typeset.averages import CODE, TOKENS, AverageReader, is_gradient, make_gradient_refusal
from klsym.language.typeset.cases import spell_cases
from klsym.language.typeset.parsing import parse_formula
from klsym.language.typeset.plain_text import name_clipped_ratios, spell_as_latex
from klsym.language.typeset.sequence_ratios import gather_sequence_ratios
from klsym.language.typeset.tokens import make_refusal, quote_part
from klsym.language.typeset.tree import Comparison
from klsym.language.typeset.vocabulary_sums import gather_vocabulary_sums
from klsym.language.typeset.writing import (
    Writer,
    refuse_bare_ratio,
    refuse_unlike_indices,
    refuse_whole_sequences,
)

LEFT = re.compile(r"[A-Za-z]+\d?((?:[_^](?:\{(?:[^{}]|\{[^{}]*\})*\}|\w+))*)([(\[].*[)\]])?")


NO_SAMPLES = "none"  # of a formula without an expectation
OF_PPO = re.compile(r"L\^\{?(CLIP|CPI|PG|KLPEN)\b")  # maximised by Schulman et al. 2017
OF_SAC = re.compile(r"J_\{?\\?(pi|Q|V|alpha)\b")


OF_CLIPPED_LETTER = "the letter r that is clipped is the ratio to the old policy"
OF_WEIGHT = "the formula is of a weight, and no loss: the loss is -A times it"
OF_SOME_WORDS = "the words that the sum is over are a mask M, which is held fixed"


class Translation(NamedTuple):
    """A formula as a text of the grammar.

    sampler: the log density of the samples, as its expectations say, "" where they do not; NO_SAMPLES where
    there are none.
    code: the same with its average over tokens, for `klsym measure`.  notes: how it was read.
    """

    text: str
    sampler: str = ""
    code: str = ""
    notes: tuple[Message, ...] = ()


def translate(text: str) -> Translation:
    """Return a formula in LaTeX in the grammar of losses; raises UsageError: a part that is not read."""
    try:
        return _translate(text)
    except (RecursionError, MemoryError):
        raise UsageError("the loss is nested too deeply to be read") from None


def _translate(text: str) -> Translation:
    spelled = text if "\\" in text and text.isascii() else spell_as_latex(text)
    formula = parse_formula(named := name_clipped_ratios(spelled := spell_cases(spelled)))
    if "nabla" in formula.left or is_gradient(formula.right):
        raise make_gradient_refusal(formula.right, of_loss=bool(re.search(r"\bL\b|loss", formula.left)))
    if isinstance(formula.right, Comparison):
        raise make_refusal("a comparison", r"type \mathbb{1}[A > 0] for what is 1 or 0")
    assigned, is_maximised = read_left_side(formula.left)
    reader = AverageReader()
    averaged = reader.split(gather_vocabulary_sums(gather_sequence_ratios(formula.right)))
    refuse_unlike_indices(averaged.node)
    refuse_bare_ratio(averaged.node)
    is_of_tokens = averaged.kind in TOKENS
    if is_of_tokens:
        refuse_whole_sequences(averaged.node, reader.index)
    writer = Writer(is_of_tokens)
    loss = writer.write(averaged.node)
    if writer.is_of_sequences and is_of_tokens:
        raise make_refusal("a ratio of whole sequences inside a sum over tokens", "type gspo, or gspo_token")
    is_of_weight = names_weight(formula.left) and not re.search(r"\b[AR]\b", loss)
    loss = f"-({loss})" if is_maximised else f"-A*{loss}" if is_of_weight else loss
    notes = [Message("expectation-left-out")] * reader.has_expectation
    notes += [Message("kl-is-exact")] * writer.has_divergence
    notes += [Message("objective-as-loss")] * is_maximised
    notes += [Message("tokens-added-up", aggregate=averaged.kind)] * is_of_tokens
    notes += [Message("over-tokens")] * writer.is_of_sequences
    assumed = (OF_CLIPPED_LETTER,) * (named != spelled) + (OF_SOME_WORDS,) * writer.has_mask
    assumed += (OF_WEIGHT,) * is_of_weight
    notes += [Message("settings-assumed", conditions=assumed)] * bool(assumed)
    code = CODE[averaged.kind].format(loss) if is_of_tokens else loss
    samples = reader.find_sampler() if reader.has_expectation else NO_SAMPLES
    return Translation(f"{assigned}{loss}", samples, f"{assigned}{code}", tuple(notes))


def names_weight(left: str) -> bool:
    """Is what stands before = the name of an importance weight?

    >>> [x for x in ("w_t", "r_t(theta)", "truncated_{ratio}", "r_t", "rho", "weird") if names_weight(x)]
    ['w_t', 'r_t(theta)', 'truncated_{ratio}', 'rho']
    """
    plain = re.sub(r"[{}]", "", left)
    return bool(re.match(r"(?:rho|w)(?![A-Za-z])|\w*(?:ratio|weight)|[rs](?:_[\w,]+)?\(theta\)", plain))


def read_left_side(left: str) -> tuple[str, bool]:
    """Return the assignment for what stands before =, "" for a loss, and whether it is an objective.

    J of SAC's policy, critics or temperature is a loss.

    >>> [read_left_side(x) for x in ("J(theta)", "J_{pi}(phi)", "L^{CLIP}", "R(x,y)", "")]
    [('', True), ('', False), ('', True), ('reward = ', False), ('', False)]
    """
    if not left:
        return "", False
    match = LEFT.fullmatch(left)
    name = re.match(r"[A-Za-z]+", left)
    if name is None or match is None:
        raise make_refusal(quote_part(left), "type what stands on the right of = alone")
    if name[0] in ("R", "r") and not re.fullmatch(r"\(theta\)", match[2] or ""):
        return "reward = ", False
    is_maximised = name[0] in ("J", "objective") and not OF_SAC.match(left)
    return ("advantages = " if name[0] == "A" else ""), is_maximised or bool(OF_PPO.match(left))
