"""Suggest the option to type if a command has no --target or no --expect.

>>> suggest_target(["--target", "jsd"], {"expect": None})
'; type --expect OBJECTIVE; for jsd write E_mu[js(q, p)], the Jensen-Shannon divergence of each next token'
>>> suggest_target(["--proof"], {})
''
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from klsym.engine.divergences.usual_names import KL_NAMES, name_kls, suggest_divergence, suggest_objective
from klsym.language.named_losses import normalise_name

WORDS = {"target", "expect", "expected", "objective", "divergence"}


def suggest_target(unknown: Sequence[str], options: Collection[str]) -> str:
    """Return "; type .." for an objective that a command does not take as it was typed; else "".

    unknown: the words that no option takes.  options: the names of the options that the command has.
    """
    name, equals, value = unknown[0].partition("=")
    if not name.startswith("--") or normalise_name(name) not in WORDS:
        return ""
    target = (value if equals else unknown[1] if len(unknown) > 1 else "").strip()
    word = name_kls(target)
    if "expect" in options:
        written = suggest_objective(target)
        example = word if word in KL_NAMES else "reverse-kl"
        more = f"; for {target} {written}" if written else f", as in --expect {example}"
        return f"; type --expect OBJECTIVE{more}"
    if word not in KL_NAMES and (losses := suggest_divergence(target)):
        return losses
    wanted = word if word in KL_NAMES else "reverse-kl"
    return (
        f"; klsym explain says what a loss minimises, klsym recommend --target {wanted} says which loss to"
        " write, klsym audit CODE --expect checks code"
    )
