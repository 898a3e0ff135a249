"""The verdict on a loss: what it optimises, how far that is proved, under which hypotheses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from klsym.engine.divergences.f_divergence import Functional, Generated
from klsym.engine.divergences.nonconvex_effects import Effects, effects
from klsym.engine.fields.named_terms import Target
from klsym.engine.options.settings import Setting as Setting
from klsym.engine.proof.derivation import Proof
from klsym.engine.proof.quantities import Quantity
from klsym.language import s
from klsym.notation import formulas
from klsym.notation.combination import combination_latex
from klsym.notation.spelling import LATEX, TEXT
from klsym.notation.text import Printed, printed_chain
from klsym.notation.values import names as names_in
from klsym.notation.values import shown
from klsym.render.declared import declared
from klsym.render.divergences import generated_json
from klsym.render.verdict import VerdictView
from klsym.ring import ExpPoly

Cases = tuple[tuple[tuple[Any, ...], Any], ...]  # conditions (x, signs) and what the coefficient is there
Step = tuple[str, str, str]  # rule, text, LaTeX
UNNAMED = ("f-divergence", "separable", "none", None)  # targets whose objective no combination names


class Chain(Sequence[Step]):
    """The steps of a proof, printed when they are looked at.

    Most verdicts are on the way to another one, or are asked for their target alone.
    """

    def __init__(self, proof: Proof) -> None:
        self.proof = proof

    @cached_property
    def printed(self) -> list[tuple[Printed, str]]:
        """The rows: two that look alike in LaTeX are one if they look alike in text too."""
        return printed_chain(self.proof, LATEX, TEXT)

    @cached_property
    def rows(self) -> tuple[Step, ...]:
        """In text and in LaTeX."""
        return tuple((why, row(TEXT), row(LATEX)) for row, why in self.printed)

    @property
    def in_latex(self) -> list[tuple[str, str]]:
        """Rules and formulas in LaTeX alone."""
        return [(why, row(LATEX)) for row, why in self.printed]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Any) -> Any:
        return self.rows[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class Search:
    """A model, or the hypotheses of a value, looked for when they are asked for: look(*of)."""

    def __init__(self, look: Callable[..., Any], *of: Any) -> None:
        self.look, self.of = look, of

    @cached_property
    def found(self) -> Any:
        return self.look(*self.of)


@dataclass(frozen=True)
class Meaning:
    """A target with the multiples of its named parts, and what fits no name; the target None is open.

    assumed: the hypotheses of a value; those of a gradient are the verdict's.
    """

    target: str | None
    parts: Mapping[str, Any] = field(default_factory=dict)
    rest: Any = None
    assumed: Search | tuple[str, ...] = field(default=(), compare=False, repr=False)

    @staticmethod
    def of(found: Target, unnamed: ExpPoly | None = None, assumed: Search | tuple[str, ...] = ()) -> Meaning:
        """unnamed: what is left beside the policy gradient of the rewards, where there is a rest."""
        if not found.rest:
            return Meaning(found.target, found.multiples, None, assumed)
        reward = {"reward": found.reward} if found.reward else {}
        return Meaning(found.target, reward, found.unnamed if unnamed is None else unnamed, assumed)

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """What a value that has a name assumes."""
        if self.target in UNNAMED:
            return ()
        return self.assumed.found if isinstance(self.assumed, Search) else self.assumed

    @cached_property
    def multiples(self) -> dict[str, str]:
        """The named parts, as grammar strings."""
        return {name: shown(value) for name, value in self.parts.items()}

    @property
    def single(self) -> bool:
        """Is it one of the KL divergences, once?"""
        return self.target in ("reverse-kl", "forward-kl") and not self.parts[self.target] - 1

    @property
    def complete(self) -> dict[str, str]:
        """All parts: they add up to the coefficient, up to a constant."""
        return {**self.multiples, **({"rest": shown(self.rest)} if self.rest else {})}

    @property
    def names_scores(self) -> bool:
        """Does the rest hold the scores of its slots?  That of the token itself alone goes without saying."""
        if isinstance(self.rest, Mapping):
            return not set(self.rest) <= {"now"}
        return any(x.name.partition("[")[0] == s.name for x in getattr(self.rest, "free_symbols", ()))

    @property
    def latex(self) -> str:
        """The combination, as an objective."""
        return combination_latex(self.multiples)

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target, "combination": self.complete or None}


@dataclass(frozen=True, repr=False)
class Verdict(VerdictView):
    """The answer of `explain`; it prints as text and shows itself in Jupyter.

    h and c are what multiplies the score, grad L = h s at a sample and E_q[c s] = E_m[h s], as values
    (`render.values`); c is None where it is not known.
    constant: what the value has beside its named parts; None where it is not known.
    gradient and value say what the expected gradient and the expected value are; `proofs` are the
    kernel's theorems behind them (empty when the loss lies outside the ring); `witness` is the finite
    model in which the expected gradient is not grad KL(q||p), or for the target "none" not the gradient
    of anything.  per_sample_cases and coefficient_cases: the two coefficients of the score by cases, for a
    loss with kinks.  implied: what the expected gradient is the gradient of, where the target itself does not
    say so; objective_latex: the same in other words; generated: the same as
    E_q[f(r)], for a coefficient that is a function of r; functional: where a separable objective is convex;
    penalty: the coefficient c(r) behind it, without the reward beside it.
    instead: what to write in its place (`engine.instead`), for a loss that is no KL penalty.
    shown: the expected gradient in words of named quantities; notes: what it keeps and drops; terms: what
    each term of a sum does.
    expansion: the loss with its options written out in the grammar, where they say something.
    """

    loss: str
    loss_latex: str
    setting: Setting
    h: Any
    c: Any
    gradient: Meaning
    value: Meaning
    constant: Any
    trust: str
    hypotheses: tuple[str, ...]
    steps: Sequence[Step]
    model: Search | dict[str, Any] | None
    inside_clamps: Meaning | None
    warnings: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()
    check: dict[str, Any] | None = field(default=None)
    per_sample_cases: Cases = ()  # bias_cases: h less what it is where no bound binds
    coefficient_cases: Cases = ()
    bias_cases: Cases = ()
    scores_named: tuple[bool, bool] = (False, False)  # do h and c hold their scores?
    implied: Quantity | None = None
    generated: Generated | None = None
    functional: Functional | None = None
    penalty: ExpPoly | None = None
    objective_latex: str | None = None
    instead: Any = None
    shown: str = ""
    notes: tuple[str, ...] = ()
    terms: tuple[Any, ...] = ()
    expansion: str | None = None

    @property
    def target(self) -> str | None:
        return self.gradient.target

    @cached_property
    def witness(self) -> dict[str, Any] | None:
        """The model that was given, or what the search for it finds."""
        return self.model.found if isinstance(self.model, Search) else self.model

    @cached_property
    def effects(self) -> Effects | None:
        """What descending f does where it is no divergence: looked for when it is asked for."""
        return None if self.penalty is None else effects(self.penalty)

    @property
    def objective(self) -> str | None:
        """LaTeX of the implied objective, where it is known."""
        if self.implied is not None:
            return formulas.side(self.implied.side, None, LATEX)
        if self.objective_latex or self.target in UNNAMED:
            return self.objective_latex
        return self.gradient.latex or None

    @property
    def names(self) -> dict[str, str]:
        """What the names of slots and of given quantities in the answer stand for."""
        inside = self.inside_clamps.complete.values() if self.inside_clamps else ()
        parts = (
            *self.gradient.complete.values(),
            *self.value.complete.values(),
            self.value_constant,
            *inside,
        )
        cases = (row[of] for row in self.cases_json() or () for of in ("per_sample", "coefficient"))
        in_batch = self.setting.batch != "none" or any(x.endswith("[self]") for x in names_in(self.h))
        level = "batch" if in_batch else self.setting.level
        own = (self.per_sample, self.coefficient or "", self.value_constant, self.expansion or "")
        return declared((*own, *parts, *cases), self.hypotheses, level, self.loss)

    @property
    def steps_in_latex(self) -> list[tuple[str, str]]:
        """Rules and formulas in LaTeX."""
        found = self.steps
        return found.in_latex if isinstance(found, Chain) else [(rule, latex) for rule, _, latex in found]

    def to_json(self) -> dict[str, Any]:
        """The object of the command-line contract."""
        gradient = {
            "per_sample": self.per_sample, "coefficient": self.coefficient,
            "target": self.target or "open",
            "combination": self.gradient.complete or None, "objective": self.objective,
            **generated_json(self.generated),
            "cases": self.cases_json(),
            "inside_clamps": self.inside_clamps.to_json() if self.inside_clamps else None,
            "terms": [term.to_json() for term in self.terms] or None,
        }  # fmt: skip
        value = {
            "target": self.value.target or "open",
            "combination": self.value.complete or None,
            "constant": None if self.value.target is None else self.value_constant,
            "unbiased_for_reverse_kl": self.unbiased_for("reverse-kl"),
            "unbiased_for_forward_kl": self.unbiased_for("forward-kl"),
            "hypotheses": list(self.value.hypotheses),
        }
        answer = {
            "loss": self.loss, **self.setting.to_json(), "gradient": gradient, "value": value,
            "trust": "open" if self.target is None else self.trust, "hypotheses": list(self.hypotheses),
            "steps": [{"rule": rule or "statement", "latex": latex} for rule, latex in self.steps_in_latex],
            "witness": self.witness, "warnings": [*self.warnings, *self.advice], "names": self.names,
            "expansion": self.expansion,
        }  # fmt: skip
        return answer if self.check is None else {**answer, "check": self.check}
