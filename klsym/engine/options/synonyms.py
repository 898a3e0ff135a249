"""Choices of options in the words that people type: any case, and the usual synonyms.

>>> read_choice("sampling", "OffPolicy"), read_choice("sampling", "top-p"), read_choice("batch", "loo")
('off-policy', 'truncated', 'leave-one-out')
"""

from __future__ import annotations

from collections.abc import Collection

from klsym.engine.options.option_table import CHOICES
from klsym.language.named_losses import normalise_name

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


# Options of trainers -> what to type.
PLACES = "type --use loss or --use reward"
COEFFICIENTS = (
    "type the number in the formula, as in 0.04*k3, or js(q, p, 0.9) for gkd; as a coefficient in front, the"
    " proofs hold for every beta"
)
CLIPS = (
    "type the bounds in the formula: klsym explain '-min(rho*A, clip(rho, 0.8, 1.28)*A)'; the proofs of ppo"
    " and dapo hold for every eps"
)
OF_TRAINERS = {
    **dict.fromkeys(("beta", "klcoef", "kllosscoef", "klbeta", "entropycoef", "lmbda"), COEFFICIENTS),
    **dict.fromkeys(("in", "position", "placement", "place", "where"), PLACES),
    **dict.fromkeys(
        ("clip", "clipeps", "cliprange", "clipratio", "eps", "epsilon", "epsilonhigh", "epsilonlow",
         "cliphigh", "cliphigher", "cliplow", "cliplower", "clipratiohigh", "clipratiolow"),
        CLIPS,
    ),
    **dict.fromkeys(
        ("klestimator", "estimator", "kltype", "kllosstype", "klpenalty", "kl"),
        "type the estimator as the loss: klsym explain k3, or klsym explain k3 --use reward",
    ),
    **dict.fromkeys(
        ("usekl", "useklloss", "useklinreward"),
        "type the term alone: klsym explain k3, or klsym explain k1 --use reward",
    ),
    "importancesamplinglevel": "type klsym explain gspo, or --level sequence",
    **dict.fromkeys(
        ("numiterations", "mu", "ppoepochs", "epochs", "numepochs"),
        "type --sampling on-policy for the first step on a batch, off-policy for later ones",
    ),
    **dict.fromkeys(
        ("vllmimportancesamplingcorrection", "tis", "rolloutis", "tisimpratiocap"),
        "type the weight into the loss: klsym explain '-sg(min(rho, 2))*A*log_q' --sampling off-policy",
    ),
    **dict.fromkeys(
        ("numgenerations", "groupsize", "group", "baseline", "scalerewards"),
        "type --batch mean, leave-one-out or std",
    ),
    **dict.fromkeys(("lossaggmode", "reduction"), "type --aggregate sum, mean or batch"),
    "losstype": "type the name as the loss: klsym explain dr_grpo, or another one of klsym examples",
}  # fmt: skip


def suggest_option(typed: str, options: Collection[str]) -> str:
    """Return "; did you mean --sampling off-policy?" for a choice that is typed as an option.

    Of an option of trainers return what to type in its place; else "".

    >>> suggest_option("--off-policy", CHOICES), suggest_option("--x", CHOICES)
    ('; did you mean --sampling off-policy?', '')
    >>> suggest_option("--mean", CHOICES)
    '; did you mean --batch mean or --aggregate mean?'
    >>> suggest_option("--position", CHOICES)
    '; type --use loss or --use reward'
    """
    word = typed.strip().removeprefix("--")
    choices = {name: read_choice(name, word) for name in CHOICES if name in options}
    meant = [f"--{name} {choice}" for name, choice in choices.items() if choice in CHOICES[name]]
    if not typed.strip().startswith("--"):
        return ""
    if meant:
        return f"; did you mean {' or '.join(meant)}?"
    hint = OF_TRAINERS.get(normalise_name(word.partition("=")[0]))
    return f"; {hint}" if hint and options else ""


def read_choice(option: str, typed: str) -> str:
    """Return the choice that a word means; an unknown word as it is."""
    words = {normalise_name(choice): choice for choice in CHOICES[option]} | SYNONYMS.get(option, {})
    return words.get(normalise_name(typed), typed)
