"""The verdict on a loss: what it optimises, how far that is proved, under which hypotheses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sympy import Heaviside, expand, sign

from klsym.engine.divergences.f_divergence import Functional, Generated
from klsym.engine.divergences.nonconvex_effects import Effects, find_effects
from klsym.engine.fields.named_terms import NamedParts
from klsym.engine.options.settings import Setting as Setting
from klsym.engine.proof.derivation import Proof
from klsym.engine.proof.quantities import Quantity
from klsym.kernel.ring import ExpPoly
from klsym.language.expressions import A, R, s, unfold, without_sg
from klsym.language.messages import Message
from klsym.notation import formulas, losses
from klsym.notation.combination import mean_of, objective_rows
from klsym.notation.estimators import with_k3
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT, Text
from klsym.notation.ratios import in_r
from klsym.notation.text import Printed, printed_chain
from klsym.notation.tree import Formula, Mean, Number, Sum, negated, total
from klsym.notation.values import shown, tree_of

Cases = Sequence[tuple[tuple[Any, ...], Any]]  # conditions (x, signs) and what the coefficient is there
ChainStep = tuple[str, str, str]  # rule, text, LaTeX
UNNAMED = ("f-divergence", "separable", "none", None)  # targets whose objective no combination names


class LazyRows(Sequence[Any]):
    """A sequence whose rows are made when they are looked at; equal to any other with the same rows."""

    rows: Any

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Any) -> Any:
        return self.rows[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class Chain(LazyRows):
    """The steps of a proof, printed when they are looked at.

    Most verdicts are on the way to another one, or are asked for their target alone.
    objective: a second proof, which ends in the gradient of the objective and starts where the first one
    starts or ends.
    """

    def __init__(self, proof: Proof, objective: Proof | None = None) -> None:
        self.proof, self.objective = proof, objective

    @cached_property
    def printed(self) -> list[tuple[Printed, str]]:
        """The rows: two that look alike in LaTeX are one if they look alike in text too."""
        return [*printed_chain(self.proof, LATEX, TEXT), *self._to_objective]

    @cached_property
    def _to_objective(self) -> list[tuple[Printed, str]]:
        """The rows that follow, or one for all of them where they start at the first row."""
        if self.objective is None:
            return []
        others = printed_chain(self.objective, LATEX, TEXT)[1:]
        if not others or self.objective.theorem.statement.left == self.proof.theorem.statement.right:
            return others
        why = ", ".join(dict.fromkeys(reason for _, reason in others))
        return [(others[-1][0], f"from the first line: {why}")]

    @property
    def objective_row(self) -> tuple[ChainStep, ...]:
        """The last row, where it is the gradient of the objective."""
        return tuple((why, row(TEXT), row(LATEX)) for row, why in self._to_objective[-1:])

    @cached_property
    def rows(self) -> tuple[ChainStep, ...]:
        """In text and in LaTeX."""
        return tuple((why, row(TEXT), row(LATEX)) for row, why in self.printed)

    @property
    def in_latex(self) -> list[tuple[str, str]]:
        """Rules and formulas in LaTeX alone."""
        return [(why, row(LATEX)) for row, why in self.printed]


class LazyCases(LazyRows):
    """Cases, or steps that tell them, made when they are looked at: look(*of)."""

    def __init__(self, look: Callable[..., Sequence[Any]], *of: Any) -> None:
        self.look, self.of = look, of

    @cached_property
    def rows(self) -> Sequence[Any]:
        return tuple(self.look(*self.of))


class Search:
    """A model, or the assumptions of a value, looked for when they are asked for: look(*of)."""

    def __init__(self, look: Callable[..., Any], *of: Any) -> None:
        self.look, self.of = look, of

    @cached_property
    def found(self) -> Any:
        return self.look(*self.of)


@dataclass(frozen=True)
class TargetReading:
    """A target with the multiples of its named parts, and what fits no name; the target None is open.

    assumed: the assumptions of a value; those of a gradient are the verdict's.
    """

    target: str | None
    parts: Mapping[str, Any] = field(default_factory=dict)
    rest: Any = None
    assumed: Search | tuple[Message, ...] = field(default=(), compare=False, repr=False)

    @staticmethod
    def of(
        found: NamedParts, unnamed: ExpPoly | None = None, assumed: Search | tuple[Message, ...] = ()
    ) -> TargetReading:
        """unnamed: what is left beside the policy gradient of the rewards, where there is a rest."""
        if not found.remainder:
            return TargetReading(found.target, found.multiples, None, assumed)
        reward = {"reward": found.reward} if found.reward else {}
        return TargetReading(found.target, reward, found.unnamed if unnamed is None else unnamed, assumed)

    @property
    def assumptions(self) -> tuple[Message, ...]:
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
        return self.target in ("reverse-kl", "forward-kl") and not self.parts.get(self.target, 0) - 1

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

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target, "combination": self.complete or None}


def _in_grammar(value: Any) -> str:
    """A coefficient as text, with estimators by name; what a check writes in its place stays as it is."""
    return value if isinstance(value, str) else TEXT(with_k3(tree_of(value)))


@dataclass(frozen=True, repr=False)
class Verdict:
    """The answer of `explain`, as values: how it is said and printed stands in `klsym.render.verdict`.

    h and c are what multiplies the score, grad L = h s at a sample and E_q[c s] = E_m[h s], as values
    (`render.values`); each is None where it is not known.
    constant: what the value has beside its named parts; None where it is not known.
    gradient and value say what the expected gradient and the expected value are; `proofs` are the
    kernel's theorems behind them (empty when the loss lies outside the ring); `witness` is the finite
    model in which the expected gradient is not grad KL(q||p), or for the target "none" not the gradient
    of anything.  per_sample_cases and coefficient_cases: the two coefficients of the score by cases, for a
    loss with kinks.  implied: what the expected gradient is the gradient of, where the target itself does not
    say so; objective_formula: the same where it is no quantity of the kernel; generated: the same as
    E_q[f(r)], for a coefficient that is a function of r; functional: where a separable objective is convex;
    penalty: the coefficient c(r) behind it, without the reward beside it.
    instead: what to write in its place (`answers.suggestion`), for a loss that is no KL penalty.
    shown: the expected gradient in named quantities; remarks: what it keeps and drops; terms: what
    each term of a sum does.  messages: what an engineer should know before using the loss.
    expansion: the loss with its options written out in the grammar, where they say something.
    centred: the coefficient of a sample, H, from which the mean of a batch is subtracted.
    written, asked: the loss and its setting as they were asked, for an answer to a user.
    """

    loss: str
    loss_latex: str
    setting: Setting
    h: Any
    c: Any
    gradient: TargetReading
    value: TargetReading
    constant: Any
    trust: str
    assumptions: tuple[Message, ...]
    steps: Sequence[ChainStep]
    model: Search | dict[str, Any] | None
    inside_clamps: TargetReading | None
    messages: tuple[Message, ...] = ()
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
    objective_formula: Formula | None = None
    instead: Any = None
    shown: str = ""
    remarks: tuple[Message, ...] = ()
    terms: Sequence[Any] = ()
    expansion: str | None = None
    centred: Any = None
    written: Written | None = field(default=None, compare=False)
    asked: Setting | None = field(default=None, compare=False)

    @property
    def target(self) -> str | None:
        return self.gradient.target

    @property
    def truncated(self) -> bool:
        """Do samples come from a sampler that is cut off?"""
        return (self.asked or self.setting).truncated

    @property
    def read_as(self) -> str:
        """The loss in the grammar, where it was typed as PyTorch, JAX or NumPy."""
        return self.written.text if self.written is not None and self.written.typed else ""

    @cached_property
    def witness(self) -> dict[str, Any] | None:
        """The model that was given, or what the search for it finds."""
        return self.model.found if isinstance(self.model, Search) else self.model

    @cached_property
    def effects(self) -> Effects | None:
        """What descending f does where it is no divergence: looked for when it is asked for."""
        return None if self.penalty is None else find_effects(self.penalty)

    @property
    def objective(self) -> str | None:
        """LaTeX of the objective of which the expected gradient is the gradient, where it is known."""
        rows = self.objective_rows(LATEX)
        return LATEX(total(*rows)) if rows else None

    @property
    def ascends(self) -> bool:
        """Does the update ascend the objective, as it does a reward?"""
        return self.written is not None and is_ascended(self.written, self.setting)

    def objective_rows(self, spell: Text) -> list[Formula]:
        """The terms of the objective, a mean reward first; none where no objective is known."""
        if self.target in (None, "none"):
            return []
        if self.implied is not None:
            whole = self._implied_formula(spell)
            return list(whole.terms) if isinstance(whole, Sum) else [whole]
        if self.objective_formula is not None:
            return [self.objective_formula]
        if self.target == "zero":
            return [Number(0)]
        if self.target not in UNNAMED:
            return objective_rows(self.gradient.multiples)
        if self.generated is None or self.generated.f is None:
            return []
        f = Mean("q", in_r(self.generated.f, sums=spell.positions))
        reward = [negated(mean_of(tree_of(self.generated.reward)))] if self.generated.reward else []
        descended = [*reward, f]
        return [negated(row) for row in descended] if self.ascends else descended

    def implied_in(self, spell: Text) -> str:
        """The implied objective in one notation."""
        return spell(self._implied_formula(spell))

    def _implied_formula(self, spell: Text) -> Formula:
        """What holds regions as it was written, or in steps."""
        assert self.implied is not None
        told = self.implied.labels.items()
        labels = {of: label for of, label in told if isinstance(label, Written) or label.has(Heaviside, sign)}
        return with_k3(formulas.tree_of(self.implied.side, labels, spell.positions))

    @property
    def pushes(self) -> bool:
        """Is h other than 0 at some sample, or not known?"""
        if self.h is None:
            return True
        return any(self.h.values()) if isinstance(self.h, Mapping) else bool(self.h)

    @cached_property
    def per_sample(self) -> str:
        """h in the grammar; empty where it is not known."""
        return "" if self.h is None else _in_grammar(self.h)

    @cached_property
    def coefficient(self) -> str | None:
        """c in the grammar."""
        return None if self.c is None else _in_grammar(self.c)

    @property
    def value_constant(self) -> str:
        """The constant in the grammar."""
        return "" if self.constant is None else shown(self.constant)

    def unbiased_for(self, name: str) -> bool:
        """Is the value an unbiased estimate of this KL ("reverse-kl" or "forward-kl")?"""
        return (
            self.value.target == name
            and self.value.single
            and self.constant is not None
            and not self.constant
        )

    @property
    def steps_in_latex(self) -> list[tuple[str, str]]:
        """Rules and formulas in LaTeX."""
        found = self.steps
        return found.in_latex if isinstance(found, Chain) else [(rule, latex) for rule, _, latex in found]


def is_ascended(written: Written, setting: Setting) -> bool:
    """Does an update ascend it?  A reward is ascended; a penalty without R and A is taken off the reward."""
    if setting.use != "reward" or not written.expression.has(R, A):
        return False
    return bool(expand(unfold(without_sg(written.expression))).has(R, A))  # R - sg(R) is no reward


def undecided(written: Written, setting: Setting, why: Message, h: Any = None) -> Verdict:
    """Return the verdict on a loss whose target is open for this reason; h: the gradient at a sample."""
    return Verdict(
        loss=written.typed or written.text, loss_latex=losses.show(written, LATEX), setting=setting,
        h=h, c=None, gradient=TargetReading(None), value=TargetReading(None), constant=None, trust="open",
        assumptions=(), steps=(), model=None, inside_clamps=None, messages=(why,), written=written,
    )  # fmt: skip
