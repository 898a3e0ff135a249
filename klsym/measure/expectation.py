"""An objective in words, such as "-E[R] + 0.04*reverse-kl", read as multiples of named gradients."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from fractions import Fraction

from klsym.errors import UsageError
from klsym.notation.decimals import write_objective as write_objective

SPELLED = {"E[R]": "policy-gradient", "E_q[R]": "policy-gradient", "E_mu[R*log_q]": "log-likelihood",
           "E_mu[R*rho]": "token-policy-gradient", "E_mu[rho*R]": "token-policy-gradient"}  # fmt: skip
NUMBER = r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+"
TERM = re.compile(
    rf"(?P<sign>[-+]?)(?:(?P<times>{NUMBER})(?:/(?P<over>{NUMBER}))?\*?)?#(?P<name>\d+)(?:/(?P<by>{NUMBER}))?"
)


def read_objective(text: str, names: Iterable[str]) -> dict[str, float]:
    """Return the multiples of named gradients; "0" is none.

    >>> read_objective("-E[R] + 0.04*reverse-kl", ["reverse-kl", "policy-gradient"])
    {'policy-gradient': -1.0, 'reverse-kl': 0.04}

    Raises UsageError: what is no sum of multiples of names, with the near ones.
    """
    known = list(names)
    replaced, plain = text.replace(" ", ""), {name.replace(" ", ""): name for name in [*SPELLED, *known]}
    if replaced == "0":
        return {}
    marked: list[str] = []
    for spelling in sorted(plain, key=len, reverse=True):
        if spelling in replaced:
            name = SPELLED.get(plain[spelling], plain[spelling])
            marked.append(name)
            pattern = rf"(?<![\w#]){re.escape(spelling)}(?!\w|/[A-Z])"
            replaced = re.sub(pattern, f"#{len(marked) - 1}", replaced)
    multiples: dict[str, float] = {}
    place = 0
    if not replaced:
        raise UsageError(_describe_unknown(text, known))
    while place < len(replaced):
        term = TERM.match(replaced, place)
        if term is None or (place and not term["sign"]):
            raise UsageError(_describe_unknown(text, known))
        try:
            value = Fraction(term["times"] or 1) / Fraction(term["over"] or 1) / Fraction(term["by"] or 1)
        except ZeroDivisionError:
            raise UsageError(f"{text[:60]!r}: a division by 0") from None
        name = marked[int(term["name"])]
        multiples[name] = multiples.get(name, 0.0) + float(-value if term["sign"] == "-" else value)
        place = term.end()
    return multiples


def _describe_unknown(text: str, known: list[str]) -> str:
    words = re.findall(r"[A-Za-z][\w-]*(?:/[TN])?", text)
    near = [match for word in words if word not in known for match in get_close_matches(word, known, 2, 0.5)]
    hint = f"; did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
    shown = ", ".join([name for name in known if "[" not in name][:14])
    return (
        f"{text[:60]!r} is no sum of multiples of named objectives{hint or ';'} Known: {shown}, and such as"
        " '-E[R] + 0.04*reverse-kl'"
    )
