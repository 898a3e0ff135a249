"""Choices of options in the words that people type: any case, and the usual synonyms.

>>> read_choice("sampling", "OffPolicy"), read_choice("sampling", "top-p"), read_choice("batch", "loo")
('off-policy', 'truncated', 'leave-one-out')
"""

from __future__ import annotations

from collections.abc import Collection

from klsym.engine.options.option_table import CHOICES

# Words without - _ and spaces -> the choice.  The choices themselves need no row.
SYNONYMS: dict[str, dict[str, str]] = {
    "sampling": {
        "on": "on-policy", "off": "off-policy", "topp": "truncated", "topk": "truncated",
        "nucleus": "truncated",
    },
    "use": {"inloss": "loss", "inreward": "reward", "rewards": "reward"},
    "level": {
        "samples": "sample", "tok": "token", "tokens": "token", "seq": "sequence", "sequences": "sequence",
    },
    "batch": {"loo": "leave-one-out", "rloo": "leave-one-out", "normalised": "std", "normalized": "std",
              "average": "mean", "no": "none"},
    "credit": {"rewardtogo": "to-go", "same": "same-token", "own": "same-token",
               "all": "total"},
    "weights": {"tokens": "token", "seq": "sequence", "prefixes": "prefix"},
    "aggregate": {"average": "mean", "total": "sum"},
}  # fmt: skip


def _normalise(text: str) -> str:
    return text.strip().lower().replace("-", "").replace("_", "").replace(" ", "")


def suggest_option(typed: str, options: Collection[str]) -> str:
    """Return "; did you mean --sampling off-policy?" for a choice that is typed as an option, else "".

    >>> suggest_option("--off-policy", CHOICES), suggest_option("--x", CHOICES)
    ('; did you mean --sampling off-policy?', '')
    >>> suggest_option("--mean", CHOICES)
    '; did you mean --batch mean or --aggregate mean?'
    """
    word = typed.strip().removeprefix("--")
    choices = {name: read_choice(name, word) for name in CHOICES if name in options}
    meant = [f"--{name} {choice}" for name, choice in choices.items() if choice in CHOICES[name]]
    return f"; did you mean {' or '.join(meant)}?" if meant and typed.strip().startswith("--") else ""


def read_choice(option: str, typed: str) -> str:
    """Return the choice that a word means; an unknown word as it is."""
    words = {_normalise(choice): choice for choice in CHOICES[option]} | SYNONYMS.get(option, {})
    return words.get(_normalise(typed), typed)
