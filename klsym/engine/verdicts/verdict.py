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
from klsym.notation.combination import build_mean, build_objective_terms
from klsym.notation.estimators import with_k3
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT, Text
from klsym.notation.ratios import rewrite_in_r
from klsym.notation.text import PrintedSide, build_printed_chain
from klsym.notation.tree import Formula, Mean, Number, Sum, add_terms, negate
from klsym.notation.values import build_tree, show_value

Cases = Sequence[tuple[tuple[Any, ...], Any]]  # conditions (x, signs) and what the coefficient is there
ChainStep = tuple[str, str, str]  # rule, text, LaTeX
UNNAMED = ("f-divergence", "separable", "none", None)  # targets whose objective no combination names


class LazyRows(Sequence[Any]):
    """A sequence whose rows are computed on first access; equal to any other with the same rows."""

    rows: Any

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class Chain(LazyRows):
    """The steps of a proof, printed on first access.

    Most verdicts are intermediate, or only their target is used.
    objective: a second proof, which ends in the gradient of the objective and starts where the first one
    starts or ends.
    """

    def __init__(self, proof: Proof, objective: Proof | None = None) -> None:
        self.proof, self.objective = proof, objective

    @cached_property
    def printed(self) -> list[tuple[PrintedSide, str]]:
        """The rows; two that are equal in LaTeX and in text are merged."""
        return [*build_printed_chain(self.proof, LATEX, TEXT), *self.objective_steps]

    @cached_property
    def objective_steps(self) -> list[tuple[PrintedSide, str]]:
        """The rows of the second proof, or one for all of them if it starts at the first row."""
        if self.objective is None:
            return []
        rows = build_printed_chain(self.objective, LATEX, TEXT)[1:]
        if not rows or self.objective.theorem.statement.left == self.proof.theorem.statement.right:
            return rows
        reasons = ", ".join(dict.fromkeys(reason for _, reason in rows))
        return [(rows[-1][0], f"from the first line: {reasons}")]

    @property
    def objective_row(self) -> tuple[ChainStep, ...]:
        """The last row, where it is the gradient of the objective."""
        return tuple((why, row(TEXT), row(LATEX)) for row, why in self.objective_steps[-1:])

    @cached_property
    def rows(self) -> tuple[ChainStep, ...]:
        """In text and in LaTeX."""
        return tuple((why, row(TEXT), row(LATEX)) for row, why in self.printed)

    @property
    def in_latex(self) -> list[tuple[str, str]]:
        """Rules and formulas in LaTeX alone."""
        return [(why, row(LATEX)) for row, why in self.printed]


class LazyCases(LazyRows):
    """Cases, or steps with cases, computed on first access: build(*arguments)."""

    def __init__(self, build: Callable[..., Sequence[Any]], *arguments: Any) -> None:
        self.build, self.arguments = build, arguments

    @cached_property
    def rows(self) -> Sequence[Any]:
        return tuple(self.build(*self.arguments))


class Search:
    """A model, or the assumptions of a value, computed on first access: search(*arguments)."""

    def __init__(self, search: Callable[..., Any], *arguments: Any) -> None:
        self.search, self.arguments = search, arguments

    @cached_property
    def result(self) -> Any:
        return self.search(*self.arguments)


@dataclass(frozen=True)
class TargetReading:
    """A target with the multiples of its named parts, and the remainder; the target None is open.

    assumed_messages: the assumptions of a value; those of a gradient are the verdict's.
    """

    target: str | None
    parts: Mapping[str, Any] = field(default_factory=dict)
    rest: Any = None
    assumed_messages: Search | tuple[Message, ...] = field(default=(), compare=False, repr=False)

    @staticmethod
    def read_parts(
        parts: NamedParts, unnamed: ExpPoly | None = None, assumed_messages: Search | tuple[Message, ...] = ()
    ) -> TargetReading:
        """Return the target of named parts; unnamed: all but the rewards, if there is a remainder."""
        if not parts.remainder:
            return TargetReading(parts.target, parts.multiples, None, assumed_messages)
        reward = {"reward": parts.reward} if parts.reward else {}
        return TargetReading(
            parts.target, reward, parts.unnamed if unnamed is None else unnamed, assumed_messages
        )

    @property
    def assumptions(self) -> tuple[Message, ...]:
        """The assumptions of a value with a name."""
        if self.target in UNNAMED:
            return ()
        return (
            self.assumed_messages.result
            if isinstance(self.assumed_messages, Search)
            else self.assumed_messages
        )

    @cached_property
    def multiples(self) -> dict[str, str]:
        """The named parts, as grammar strings."""
        return {name: show_value(value) for name, value in self.parts.items()}

    @property
    def single(self) -> bool:
        """Is it one of the KL divergences, once?"""
        return self.target in ("reverse-kl", "forward-kl") and not self.parts.get(self.target, 0) - 1

    @property
    def complete(self) -> dict[str, str]:
        """All parts: they add up to the coefficient, up to a constant."""
        return {**self.multiples, **({"rest": show_value(self.rest)} if self.rest else {})}

    @property
    def names_scores(self) -> bool:
        """Does the remainder contain scores of slots other than the token itself?"""
        if isinstance(self.rest, Mapping):
            return not set(self.rest) <= {"now"}
        return any(x.name.partition("[")[0] == s.name for x in getattr(self.rest, "free_symbols", ()))

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target, "combination": self.complete or None}


def _format_coefficient(value: Any) -> str:
    """Return a coefficient as text, with estimators by name; text stays as it is."""
    return value if isinstance(value, str) else TEXT(with_k3(build_tree(value)))


@dataclass(frozen=True, repr=False)
class Verdict:
    """The answer of `explain`, as values; `klsym.render.verdict` prints it.

    h and c are the coefficients of the score, grad L = h s at a sample and E_q[c s] = E_m[h s], as values
    (`notation.values`); each is None if it is not known.
    constant: the constant added to the named parts of the value; None if it is not known.
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
        """Do samples come from a truncated sampler?"""
        return (self.asked or self.setting).truncated

    @property
    def read_as(self) -> str:
        """The loss in the grammar, where it was typed as PyTorch, JAX or NumPy."""
        return self.written.text if self.written is not None and self.written.typed else ""

    @cached_property
    def witness(self) -> dict[str, Any] | None:
        """The counterexample, searched for on first access; None if there is none."""
        return self.model.result if isinstance(self.model, Search) else self.model

    @cached_property
    def effects(self) -> Effects | None:
        """The effects of minimising f if it is no divergence, computed on first access."""
        return None if self.penalty is None else find_effects(self.penalty)

    @property
    def objective(self) -> str | None:
        """LaTeX of the objective of which the expected gradient is the gradient, where it is known."""
        rows = self.list_objective_terms(LATEX)
        return LATEX(add_terms(*rows)) if rows else None

    @property
    def ascends(self) -> bool:
        """Does the update ascend the objective, as it does a reward?"""
        return self.written is not None and is_ascended(self.written, self.setting)

    def list_objective_terms(self, spell: Text) -> list[Formula]:
        """Return the terms of the objective, a mean reward first; none if no objective is known."""
        if self.target in (None, "none"):
            return []
        if self.implied is not None:
            objective = self._build_implied_formula(spell)
            return list(objective.terms) if isinstance(objective, Sum) else [objective]
        if self.objective_formula is not None:
            return [self.objective_formula]
        if self.target == "zero":
            return [Number(0)]
        if self.target not in UNNAMED:
            return build_objective_terms(self.gradient.multiples)
        if self.generated is None or self.generated.f is None:
            return []
        f = Mean("q", rewrite_in_r(self.generated.f, sums=spell.positions))
        reward = [negate(build_mean(build_tree(self.generated.reward)))] if self.generated.reward else []
        terms = [*reward, f]
        return [negate(row) for row in terms] if self.ascends else terms

    def format_implied(self, spell: Text) -> str:
        """Return the implied objective in one notation."""
        return spell(self._build_implied_formula(spell))

    def _build_implied_formula(self, spell: Text) -> Formula:
        """Build the implied objective; elements with regions are written as typed, or in steps."""
        assert self.implied is not None
        labelled = self.implied.labels.items()
        labels = {
            of: label for of, label in labelled if isinstance(label, Written) or label.has(Heaviside, sign)
        }
        return with_k3(formulas.build_tree(self.implied.side, labels, spell.positions))

    @property
    def pushes(self) -> bool:
        """Is h other than 0 at some sample, or not known?"""
        if self.h is None:
            return True
        return any(self.h.values()) if isinstance(self.h, Mapping) else bool(self.h)

    @cached_property
    def per_sample(self) -> str:
        """h in the grammar; empty where it is not known."""
        return "" if self.h is None else _format_coefficient(self.h)

    @cached_property
    def coefficient(self) -> str | None:
        """c in the grammar."""
        return None if self.c is None else _format_coefficient(self.c)

    @property
    def value_constant(self) -> str:
        """The constant in the grammar."""
        return "" if self.constant is None else show_value(self.constant)

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
        steps = self.steps
        return steps.in_latex if isinstance(steps, Chain) else [(rule, latex) for rule, _, latex in steps]


def is_ascended(written: Written, setting: Setting) -> bool:
    """Does an update maximise it?  It does for a reward; a penalty without R and A is subtracted from one."""
    if setting.use != "reward" or not written.expression.has(R, A):
        return False
    return bool(expand(unfold(without_sg(written.expression))).has(R, A))  # R - sg(R) is no reward


def build_open_verdict(written: Written, setting: Setting, reason: Message, h: Any = None) -> Verdict:
    """Return the verdict on a loss whose target is open for this reason; h: the gradient at a sample."""
    return Verdict(
        loss=written.typed or written.text, loss_latex=losses.show(written, LATEX), setting=setting,
        h=h, c=None, gradient=TargetReading(None), value=TargetReading(None), constant=None, trust="open",
        assumptions=(), steps=(), model=None, inside_clamps=None, messages=(reason,), written=written,
    )  # fmt: skip
