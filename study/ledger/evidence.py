"""What settles a claim, or a part of it, when it is no kernel proof: a calculation or an experiment.

A calculation uses SymPy or exact arithmetic (trust `sympy`), an experiment uses numbers (trust `numeric`).
Each brings its own check, which shares no code with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klsym.escaping import escape_inside
from klsym.language.abbreviations import Side
from klsym.study.ledger.experiment_result import Finding, count_outcomes

if TYPE_CHECKING:  # NumPy is not needed to hold a calculation
    from klsym.study.gaussian.exact import GaussianModel


@dataclass(frozen=True)
class Estimate:
    """An estimator under Gaussians whose exact mean or variance a calculation gives, to be sampled.

    text: its name.  side: what it estimates, such as a covariance.  value: the exact one, a float; of a
    gradient two, along the mean and along the log scale of q.
    """

    text: str
    side: Side
    model: GaussianModel
    value: float | tuple[float, float]


KINDS = ("exact", "refuted", "computed")
TRUSTS = ("sympy", "numeric")


@dataclass(frozen=True, repr=False)
class Evidence:
    """One statement with what it rests on.

    >>> Evidence("exact", "Var k1 = d^2", r"\\operatorname{Var} k_1 = d^2", "sympy")
    Var k1 = d^2

    kind: "exact" (a calculation), "refuted" (a calculation that shows `text`, a printed form, false)
    or "computed" (an experiment).
    text, latex: the statement, its numbers formatted from computed values.
    oracle: an independent numeric check, () -> (passed, one line with the measured difference).
    steps: (reason, LaTeX) lines of the calculation.  holds: is the statement what was computed?
    source_says: for an experiment, what its source says and whether that was found.
    outcome: of an experiment that has one, of `OUTCOMES`.  advice: of a cell of a crib sheet, is it right?
    estimates: what of it `klsym verify` samples.
    Raises ValueError: an unknown kind or trust.
    """

    kind: str
    text: str
    latex: str
    trust: str
    hypotheses: tuple[str, ...] = ()
    oracle: Callable[[], tuple[bool, str]] | None = None
    steps: tuple[tuple[str, str], ...] = ()
    holds: bool = True
    source_says: str = ""
    outcome: str = ""
    advice: bool | None = None
    estimates: tuple[Estimate, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.trust not in TRUSTS:
            raise ValueError(f"evidence: kind {self.kind!r}, trust {self.trust!r}: {KINDS}, {TRUSTS}")

    def __repr__(self) -> str:
        return self.text

    def _repr_latex_(self) -> str:
        lines = [rf"&{latex} && \text{{{escape_inside(reason)}}}" for reason, latex in self.steps]
        return "$$\n\\begin{aligned}\n" + " \\\\\n".join([f"&{self.latex}", *lines]) + "\n\\end{aligned}\n$$"


def build_evidence(findings: Iterable[Finding], setup: str) -> tuple[Evidence, ...]:
    """The findings of an experiment as evidence.

    >>> build_evidence([Finding("it falls", True, "it rises", False)], "10 arms")[0].source_says
    'it rises (not what the paper says)'

    setup: what was run, one line; it stands among the hypotheses.
    """
    return tuple(
        Evidence(
            "computed", finding.text, latex=rf"\text{{{escape_inside(finding.text)}}}",
            trust="numeric", hypotheses=(setup,), holds=finding.holds,
            source_says=f"{finding.paper} ({finding.mark})" if finding.paper else "",
            outcome=finding.outcome,
        )
        for finding in findings
    )  # fmt: skip


def count_evidence(parts: Iterable[object]) -> dict[str, int]:
    """Count the findings of each outcome, and the cells of crib sheets that are right and wrong.

    >>> findings = [Finding("a", True, "b", False), Finding("c", True, "c", True), Finding("d", True)]
    >>> count_evidence(build_evidence(findings, "10 arms"))
    {'agrees': 1, 'exception': 0, 'otherwise': 1, 'undecided': 0, 'advice-right': 0, 'advice-wrong': 0}
    """
    known = [part for part in parts if isinstance(part, Evidence)]
    advice = [part.advice for part in known]
    cells = {"advice-right": advice.count(True), "advice-wrong": advice.count(False)}
    return count_outcomes(part.outcome for part in known) | cells
