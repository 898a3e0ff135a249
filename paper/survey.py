r"""What released code does with a KL: counts for the text of the paper, and a table of objectives.

>>> counts()["survey-read"] <= len(stored())
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from klsym.study.tables.survey import stored

COLUMNS = ("reverse-kl", "forward-kl", "combination", "zero")  # targets; the rest is "other"
ROWS = (  # placement, sampling, words
    ("loss", "on-policy", "samples of $q$"), ("loss", "off-policy", r"samples of $\mu$"),
    ("reward", "on-policy", "samples of $q$"), ("reward", "off-policy", r"samples of $\mu$"),
    ("reward", "off-policy weighted", r"samples of $\mu$, weighted"),
)  # fmt: skip
HEADS = ("terms", "reverse", "forward", "combination", "zero", "other")


def counts() -> dict[str, int]:
    """How many KL terms of released code are read, and what their documentation says."""
    rows = [row for row in stored() if "refused" not in row]
    said = Counter(one["holds"] for row in rows for one in row["says"])
    on = _targets("loss", "on-policy")
    return {
        "survey-read": len(rows),
        "survey-packages": len({row["package"] for row in rows}),
        "survey-releases": len({(row["package"], row["version"]) for row in rows}),
        "survey-loss": on.total(), "survey-loss-reverse": on["reverse-kl"],
        "survey-loss-forward": on["forward-kl"], "survey-loss-zero": on["zero"],
        "survey-off-reverse": _targets("loss", "off-policy")["reverse-kl"],
        "survey-reward": _targets("reward", "off-policy").total(),
        "survey-reward-bare": _targets("reward", "off-policy")["reverse-kl"],
        "survey-reward-weighted": _targets("reward", "off-policy weighted")["reverse-kl"],
        "survey-silent": sum(not row["says"] for row in rows),
        "survey-says": said.total(), "survey-yes": said["yes"], "survey-inside": said["inside the bounds"],
        "survey-no": said["no"],
    }  # fmt: skip


def _targets(use: str, sampling: str) -> Counter[str]:
    """The targets of the terms that a package uses in the loss or in the reward, inside the clip range."""
    rows = (row for row in stored() if "refused" not in row and use in row["place"])
    found = (row["verdicts"].get(f"{use} {sampling}") for row in rows)
    return Counter(str((verdict["inside"] or verdict)["target"]) for verdict in found if verdict)


def latex() -> Iterator[str]:
    r"""Yield a tabular: one row a placement and sampling, one column a target.

    >>> print(list(latex())[2])  # doctest: +ELLIPSIS
    in the loss, samples of $q$ & ... \\
    """
    yield r"\begin{tabular}{@{}l" + "r" * len(HEADS) + r"@{}} \toprule"
    yield " & " + " & ".join(HEADS) + r" \\ \midrule"
    for use, sampling, samples in ROWS:
        found = _targets(use, sampling)
        named = [found[target] for target in COLUMNS]
        cells = (found.total(), *named, found.total() - sum(named))
        shown = " & ".join(str(count or "") for count in cells)
        yield rf"in the {use}, {samples} & {shown} \\"
    yield r"\bottomrule \end{tabular}"
