"""What print says of each choice of an option, one row for each; a choice without words is refused by name.

>>> find_words(LEVELS, "level", "token").title
' at each token'
>>> find_words(DIVISORS, "aggregate", "sqrt")
Traceback (most recent call last):
    ...
klsym.errors.UsageError: aggregate sqrt: there are no words for it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from klsym.errors import UsageError
from klsym.records import record

Words = TypeVar("Words")


@record
class LevelWords:
    """title: after "loss" in the title of an answer.  described: in a list of the options.  asked: in a
    recommendation.  names: what the names of a formula are of; empty where they are of one sample.
    """

    title: str = ""
    described: tuple[str, ...] = ()
    asked: str = ""
    names: str = ""


@record
class DivisorWords:
    """title, described: as those of LevelWords.

    of_token, of_sequence: what lengths do to the weights of sequences, where a loss is one of a token or of a
    whole sequence.
    """

    title: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    of_token: str = "the losses of all tokens are added, so that a sequence weighs as much as it has tokens"
    of_sequence: str = "the loss of a sequence is not divided by its length"


LEVELS = {
    "sample": LevelWords(),
    "token": LevelWords(
        title=" at each token",
        described=("per token",),
        asked=", per token",
        names="_now is of one token given its prefix, _past and _future are sums over the tokens before and"
        " after it; KL(q||p) is that of whole sequences",
    ),
    "sequence": LevelWords(
        title=" of whole sequences",
        described=("per sequence",),
        asked=", of whole sequences",
        names="k1, r, rho and s are those of a whole sequence; KL(q||p) is that of whole sequences",
    ),
}
DIVISORS = {
    "": DivisorWords(),
    "sum": DivisorWords(),
    "mean": DivisorWords(
        title=("divided by T",),
        described=("over T",),
        of_token="a token weighs 1/T, so that all sequences weigh the same",
        of_sequence="the loss of a sequence is divided by its length T",
    ),
    "batch": DivisorWords(
        title=("over all tokens of the batch",),
        described=("over all tokens of the batch",),
        of_token="a token weighs n/(T_1 + .. + T_n): a sequence weighs as much as it has tokens, and less in"
        " a batch of longer sequences",
        of_sequence="the loss of a sequence is divided by the mean length (T_1 + .. + T_n)/n of its batch",
    ),
}
# From which policy samples are drawn, in the title of an answer.
SAMPLED_FROM = {
    "on-policy": "on-policy",
    "off-policy": "samples from an older policy mu",
    "truncated": "samples from the policy without its least likely words",
}
# Of which tokens rho is the product.
WEIGHTS = {"": "", "token": "", "prefix": " of the tokens up to it", "sequence": " of the whole sequence"}


def find_words(words: Mapping[str, Words], option: str, choice: str) -> Words:
    """Return the words for a choice of an option.

    Raises UsageError: there are none.
    """
    if choice not in words:
        raise UsageError(f"{option} {choice}: there are no words for it")
    return words[choice]
