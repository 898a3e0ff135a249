"""The verdict on a loss: what it optimises, how far that is proved, under which hypotheses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from klsym.engine.derivation import Proof
from klsym.engine.explain_setting import Setting as Setting
from klsym.engine.quantities import Quantity
from klsym.engine.targets import Target
from klsym.render import formulas
from klsym.render.combination import combination_latex
from klsym.render.spelling import LATEX
from klsym.render.verdict import VerdictView

Step = tuple[str, str, str]  # rule, text, LaTeX
UNNAMED = ("f-divergence", "separable", "none", None)  # targets whose objective no combination names


@dataclass(frozen=True)
class Meaning:
    """A target with its multiples, as grammar strings; the target None is open."""

    target: str | None
    multiples: dict[str, str]
    latex: str = ""  # of the combination, as an objective

    @staticmethod
    def of(found: Target) -> Meaning:
        named = found.multiples
        if found.rest:  # beside a rest, only the policy gradient of the rewards is worth naming
            named = {name: value for name, value in named.items() if name == "reward"}
        return Meaning.named(found.target, named)

    @staticmethod
    def named(target: str | None, multiples: dict[str, Any]) -> Meaning:
        """From multiples that are exponential polynomials."""
        text = {name: formulas.element(value) for name, value in multiples.items()}
        return Meaning(target, text, combination_latex(text))

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target, "combination": self.multiples or None}


@dataclass(frozen=True, repr=False)
class Verdict(VerdictView):
    """The answer of `explain`; it prints as text and shows itself in Jupyter.

    gradient and value say what the expected gradient and the expected value are; `proofs` are the
    kernel's theorems behind them (empty when the loss lies outside the ring); `witness` is a finite
    model in which the expected gradient is not grad KL(q||p), or for the target "none" not the gradient
    of anything.  implied: what the expected gradient is the gradient of, `implied_proof` that it is, where
    the target itself does not say so; objective_latex: the same in other words.
    shown: the expected gradient in words of named quantities; notes: what it keeps and drops.
    """

    loss: str
    loss_latex: str
    setting: Setting
    per_sample: str
    coefficient: str | None
    coefficient_latex: str
    gradient: Meaning
    value: Meaning
    value_constant: str
    trust: str
    hypotheses: tuple[str, ...]
    steps: tuple[Step, ...]
    witness: dict[str, Any] | None
    inside_clamps: Meaning | None
    warnings: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()
    check: dict[str, Any] | None = field(default=None)
    implied: Quantity | None = None
    implied_proof: Proof | None = None
    objective_latex: str | None = None
    shown: str = ""
    notes: tuple[str, ...] = ()

    @property
    def target(self) -> str | None:
        return self.gradient.target

    @property
    def objective(self) -> str | None:
        """LaTeX of the implied objective, where it is known."""
        if self.implied is not None:
            return formulas.side(self.implied.side, None, LATEX)
        if self.objective_latex or self.target in UNNAMED:
            return self.objective_latex
        return self.gradient.latex or None

    def to_json(self) -> dict[str, Any]:
        """The object of the command-line contract."""
        gradient = {
            "per_sample": self.per_sample, "coefficient": self.coefficient,
            "target": self.target or "open",
            "combination": self.gradient.multiples or None, "objective": self.objective, "f": None,
            "genuine_divergence": None, "fisher_strength": None,
            "inside_clamps": self.inside_clamps.to_json() if self.inside_clamps else None,
        }  # fmt: skip
        value = {
            "target": self.value.target or "open",
            "combination": self.value.multiples or None,
            "constant": None if self.value.target is None else self.value_constant,
            "unbiased_for_reverse_kl": self.unbiased_for("reverse-kl"),
            "unbiased_for_forward_kl": self.unbiased_for("forward-kl"),
        }
        answer = {
            "loss": self.loss, **self.setting.to_json(), "gradient": gradient, "value": value,
            "trust": "open" if self.target is None else self.trust, "hypotheses": list(self.hypotheses),
            "steps": [{"rule": rule or "statement", "latex": latex} for rule, _, latex in self.steps],
            "witness": self.witness, "warnings": list(self.warnings),
        }  # fmt: skip
        return answer if self.check is None else {**answer, "check": self.check}
