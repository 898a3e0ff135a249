"""The map of KL penalties: estimator x placement x weight x sampling, and the target of each cell.

>>> first = next(cells())
>>> first.command, str(first.verdict.target)
('klsym explain k1', 'zero')
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from klsym.api import Verdict, explain
from klsym.engine.options.choices import is_reward

ESTIMATORS = ("k1", "k2", "k3", "abs(k1)")
ON, OFF = "on-policy", "off-policy"
ROWS = (
    (ON, "loss", ""), (ON, "loss", "rho"), (ON, "reward", ""),
    (OFF, "loss", ""), (OFF, "loss", "rho"), (OFF, "loss", "sg(rho)"),
    (OFF, "reward", ""), (OFF, "reward", "rho"),
)  # fmt: skip
SAMPLES = {ON: "samples from q", OFF: "samples from mu"}
WEIGHTS = {"": "no weight", "rho": "times rho", "sg(rho)": "times sg(rho)"}
TARGETS = {  # of a verdict -> colour, words
    "reverse-kl": ("reverse", "reverse KL"), "forward-kl": ("forward", "forward KL"),
    "zero": ("zero", "zero"),
    "f-divergence": ("divergence", "other f"), "combination": ("combination", "KL difference"),
    "own-mean": ("sampler", "under mu"), "objective": ("sampler", "under mu"),
}  # fmt: skip


class Cell(NamedTuple):
    """A loss in its setting."""

    estimator: str
    sampling: str
    use: str
    weight: str

    @property
    def loss(self) -> str:
        return f"{self.weight}*{self.estimator}" if self.weight else self.estimator

    @property
    def name(self) -> str:
        words = (self.loss.replace("*", "-").replace("(", "-").replace(")", ""), self.sampling, self.use)
        return "-".join(words)

    @property
    def command(self) -> str:
        loss = f'"{self.loss}"' if set("*(") & set(self.loss) else self.loss
        sampling = f" --sampling {OFF}" if self.sampling == OFF else ""
        return f"klsym explain {loss}{sampling}{f' --use {self.use}' if is_reward(self.use) else ''}"

    @property
    def verdict(self) -> Verdict:
        return answer(self.loss, self.sampling, self.use)


@cache
def answer(loss: str, sampling: Any, use: Any) -> Verdict:
    return explain(loss, sampling, use)


def cells() -> Iterator[Cell]:
    return (Cell(estimator, *row) for row in ROWS for estimator in ESTIMATORS)


# ---------------------------------------------------------------------------- LaTeX
NAMES = {"k1": "k_1", "k2": "k_2", "k3": "k_3", "abs(k1)": "|k_1|"}
FACTORS = {"": "", "rho": r"\rho\,", "sg(rho)": r"\mathrm{sg}(\rho)\,"}
PRINTED = {ON: "samples from $q$", OFF: r"samples from $\mu$"}
MEANT = {
    "reverse": r"$\mathrm{KL}(q\,\Vert\,p)$", "forward": r"$\mathrm{KL}(p\,\Vert\,q)$", "zero": "zero",
    "divergence": r"other $f$", "combination": "KL difference", "sampler": r"under $\mu$",
}  # fmt: skip


def write_latex() -> Iterator[str]:
    r"""Yield the map as a tabular, each cell in the colour klmap-NAME of its target.

    >>> print(list(write_latex())[2])  # doctest: +ELLIPSIS
    samples from $q$ & in the loss & \cellcolor{klmap-zero}zero & ... \\
    """
    yield r"\begin{tabular}{@{}ll" + "c" * len(ESTIMATORS) + r"} \toprule"
    yield " & & " + " & ".join(f"${NAMES[name]}$" for name in ESTIMATORS) + r" \\ \midrule"
    for sampling in (ON, OFF):
        rows = [row for row in ROWS if row[0] == sampling]
        for number, (_, use, weight) in enumerate(rows):
            map_cells = (Cell(name, sampling, use, weight) for name in ESTIMATORS)
            colours = [TARGETS[str(cell.verdict.target)][0] for cell in map_cells]
            coloured_cells = " & ".join(rf"\cellcolor{{klmap-{colour}}}{MEANT[colour]}" for colour in colours)
            group = PRINTED[sampling] if number == 0 else ""
            factor = f", times ${FACTORS[weight].removesuffix(chr(92) + ',')}$" if weight else ""
            yield rf"{group} & in the {use}{factor} & {coloured_cells} \\"
        yield r"\midrule" if sampling == ON else r"\bottomrule"
    yield r"\end{tabular}"
