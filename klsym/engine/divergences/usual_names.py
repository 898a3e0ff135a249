"""Divergences by the names that people type, and two policies that are named in KL(a || b).

>>> find_divergence("JSD"), find_divergence("Hellinger"), find_divergence("reverse-k")
('jensen-shannon', 'squared-hellinger', None)
>>> name_kl("policy", "ref"), name_kl("p", "q"), name_kl("mu", "pi_theta"), name_kl("q", "q")
('reverse-kl', 'forward-kl', 'sampler-kl', None)
"""

from __future__ import annotations

import re

from klsym.language.named_losses import normalise_name
from klsym.language.training_names import BEHAVIOUR, REFERENCE, TRAINED, split_words

KL_NAMES = ("reverse-kl", "forward-kl", "next-token-reverse-kl", "next-token-forward-kl")
# Words without - _ and spaces -> the name in `klsym divergence`.
USUAL = {
    **dict.fromkeys(("reversekl", "reverse"), "reverse-kl"),
    **dict.fromkeys(("forwardkl", "forward"), "forward-kl"),
    **dict.fromkeys(("js", "jsd", "jensenshannon", "gjs", "gjsd"), "jensen-shannon"),
    **dict.fromkeys(("jeffreys", "jeffrey", "symmetrickl", "symmetrised", "symmetric"), "jeffreys"),
    **dict.fromkeys(("hellinger", "squaredhellinger", "hellinger2"), "squared-hellinger"),
    **dict.fromkeys(("chi2", "chisquare", "chisquared", "pearson", "pearsonchi2"), "pearson-chi2"),
    **dict.fromkeys(("neyman", "neymanchi2"), "neyman-chi2"),
    **dict.fromkeys(("alpha", "alphadivergence", "amari"), "alpha=1/2"),
    **dict.fromkeys(("tsallis", "renyi"), "tsallis=2"),
}
LOSSES = dict(zip(KL_NAMES, ("k2", "k3", "full_kl(q, p)", "full_kl(p, q)"), strict=True))
TOTAL_VARIATION = {"tv", "totalvariation", "tvd", "tvdistance"}
AS_OBJECTIVE = {  # how a divergence is written in the words for objectives, and what that is
    "jensen-shannon": "write E_mu[js(q, p)], the Jensen-Shannon divergence of each next token",
    "jeffreys": "write reverse-kl + forward-kl",
}
POLICIES = {"q": TRAINED | {"q"}, "p": REFERENCE | {"p"}, "mu": BEHAVIOUR | {"mu"}}
KLS = {("q", "p"): "reverse-kl", ("p", "q"): "forward-kl", ("mu", "q"): "sampler-kl",
       ("q", "mu"): "sampler-reverse-kl"}  # fmt: skip
KL_OF_TWO = re.compile(r"(?<!\w)(?:D_?)?KL\s*[(\[]\s*(\w+)\s*(?:\|\|?|,|:)\s*(\w+)\s*[)\]]", re.IGNORECASE)


def _drop_kind(text: str) -> str:
    return re.sub(r"divergence$", "", normalise_name(text))


def find_divergence(text: str) -> str | None:
    """Return the name of a divergence in `klsym divergence`."""
    return USUAL.get(_drop_kind(text))


def suggest_losses(objective: str) -> str:
    """Return a loss with this objective, and one with the KL in the other direction.

    >>> suggest_losses("forward-kl")
    'type k3; for reverse-kl type k2'
    """
    words = {"reverse": "forward", "forward": "reverse"}
    opposite = re.sub("reverse|forward", lambda word: words[word[0]], objective)
    return f"type {LOSSES[objective]}; for {opposite} type {LOSSES[opposite]}"


def suggest_divergence(text: str) -> str:
    """Return "; for .. type klsym .." for a divergence that is typed by a usual name, else "".

    >>> suggest_divergence("tv")
    '; E_q[abs(r - 1)] is twice the total variation: type klsym explain abs'
    """
    if _drop_kind(text) in TOTAL_VARIATION:
        return "; E_q[abs(r - 1)] is twice the total variation: type klsym explain abs"
    name = find_divergence(text)
    return f"; for its losses type klsym divergence {name}" if name else ""


def suggest_objective(text: str) -> str:
    """Return how a divergence without a word of its own is written as an objective; "" for no divergence.

    >>> suggest_objective("jeffreys"), suggest_objective("reverse-kl")
    ('write reverse-kl + forward-kl', '')
    """
    if _drop_kind(text) in TOTAL_VARIATION:
        return "write E_mu[full(abs(1 - r))], twice the total variation of each next token"
    name = find_divergence(text)
    if name is None or name in KLS.values():
        return ""
    of_any = "write f-divergence, which is any E_q[f(r)] but a KL, and choose level sample"
    return AS_OBJECTIVE.get(name, f"{of_any}; for its losses type klsym divergence {name}")


def name_kl(first: str, second: str) -> str | None:
    """Return the name of KL(first || second), two policies by usual names; None if they are not read."""
    pair = tuple(_find_policy(name) for name in (first, second))
    return KLS.get(pair)  # type: ignore[arg-type]


def _find_policy(name: str) -> str | None:
    """Return q, p or mu: pi_ref is the reference, pi_theta the policy."""
    words = {*split_words(name)}
    return next((letter for letter in ("p", "mu", "q") if words & POLICIES[letter]), None)


def name_kls(text: str) -> str:
    """Replace each KL(a || b) of two policies by its name.

    >>> name_kls("-E[R] + 0.04*KL(policy || ref)"), name_kls("KL(x||y)")
    ('-E[R] + 0.04*reverse-kl', 'KL(x||y)')
    """
    return KL_OF_TWO.sub(lambda match: name_kl(match[1], match[2]) or match[0], text)
