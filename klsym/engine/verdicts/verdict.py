"""The verdict on a loss: what it optimises, how far that is proved, under which hypotheses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from sympy import Max, Min, Mul, S, expand

from klsym.engine.divergences.f_divergence import Functional, Generated
from klsym.engine.fields.named_terms import NamedParts
from klsym.engine.options.settings import Setting as Setting
from klsym.engine.proof.derivation import Proof
from klsym.engine.proof.quantities import KL, Quantity
from klsym.engine.verdicts.lazy import Cases, Chain, ChainStep, Search
from klsym.kernel.ring import ExpPoly
from klsym.language.expressions import A, R, clip, remove_sg, s, unfold
from klsym.language.messages import Message
from klsym.language.recognition import is_indicator
from klsym.language.sums import Divided
from klsym.notation.estimators import with_k3
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.tree import Formula
from klsym.notation.values import build_tree, show_value

if TYPE_CHECKING:
    from klsym.engine.divergences.nonconvex_effects import Effects

WITHOUT_NAME = ("own-mean", "objective")  # targets with an objective that has no name
UNNAMED = ("f-divergence", *WITHOUT_NAME, "no-objective", None)  # whose objective no combination names


@dataclass(frozen=True)
class AnalysedLoss:
    """The loss as asked, as text.

    expansion: with its options written out in the grammar, where they say something.
    written, asked: the expression as typed, and its setting as asked.
    """

    text: str
    expansion: str | None = None
    written: Written | None = field(default=None, compare=False)
    asked: Setting | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def read_as(self) -> str:
        """The loss in the grammar, where it was typed as PyTorch, JAX or NumPy."""
        return self.written.text if self.written is not None and self.written.typed else ""

    @property
    def texts(self) -> str:
        """The loss as it was typed and as it was read: numbers of an answer are written as in one of them."""
        return f"{self.text} {self.read_as}".strip()


@dataclass(frozen=True)
class TargetReading:
    """A target with the multiples of its named parts, and the remainder; the target None is open."""

    target: str | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    rest: Any = None

    @staticmethod
    def read_parts(parts: NamedParts, unnamed: ExpPoly | None = None) -> TargetReading:
        """Return the target of named parts; unnamed: all but the rewards, if there is a remainder."""
        if not parts.remainder:
            return TargetReading(parts.target, parts.multiples)
        reward = {"reward": parts.reward} if parts.reward else {}
        return TargetReading(parts.target, reward, parts.unnamed if unnamed is None else unnamed)

    @property
    def reading(self) -> TargetReading:
        """The named parts alone."""
        return TargetReading(self.target, self.parts, self.rest)

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


AnyReading = TypeVar("AnyReading", bound=TargetReading)


@dataclass(frozen=True)
class ExpectedGradient(TargetReading):
    """E_m[grad L] = E_m[h s] = E_q[c s]: its named parts and its coefficients, as values (`notation.values`).

    score_coefficient, canonical_coefficient: h and c; None where not known.  scores_named: do they hold their
    scores?  score_cases, canonical_cases: h and c by cases, for a loss with kinks; bias_cases: h less what it
    is inside the clip range.  centred: the coefficient H of a sample, from which the mean of a batch is
    subtracted.  in_quantities: the expected gradient in named quantities; remarks: what it keeps and
    drops; inside_clamps: the target inside the clip range.  terms: what each term of a sum does.
    """

    score_coefficient: Any = None
    canonical_coefficient: Any = None
    scores_named: tuple[bool, bool] = (False, False)
    score_cases: Cases = field(default=(), compare=False)
    canonical_cases: Cases = field(default=(), compare=False)
    bias_cases: Cases = field(default=(), compare=False)
    centred: Any = None
    in_quantities: Formula | None = None
    remarks: tuple[Message, ...] = ()
    inside_clamps: TargetReading | None = None
    terms: Sequence[Any] = field(default=(), compare=False)

    @property
    def is_nonzero(self) -> bool:
        """Is h other than 0 at some sample, or not known?"""
        h = self.score_coefficient
        return h is None or (any(h.values()) if isinstance(h, Mapping) else bool(h))

    @cached_property
    def score_text(self) -> str:
        """h in the grammar; empty where it is not known."""
        return "" if self.score_coefficient is None else _format_coefficient(self.score_coefficient)

    @cached_property
    def canonical_text(self) -> str | None:
        """c in the grammar."""
        return None if self.canonical_coefficient is None else _format_coefficient(self.canonical_coefficient)

    @cached_property
    def quantities_text(self) -> str:
        """The expected gradient in named quantities, as text; empty where it has none to show."""
        return TEXT(self.in_quantities) if self.in_quantities is not None else ""

    @property
    def canonical_latex(self) -> str:
        """c in LaTeX; empty where it is not known."""
        return "" if self.canonical_coefficient is None else show_value(self.canonical_coefficient, LATEX)


def _format_coefficient(value: Any) -> str:
    """Return a coefficient as text, with estimators by name; text stays as it is."""
    return value if isinstance(value, str) else TEXT(with_k3(build_tree(value)))


@dataclass(frozen=True)
class ExpectedValue(TargetReading):
    """E_m[L]: its named parts, the constant added to them (None where not known), and its assumptions."""

    constant: Any = None
    assumed_messages: Search | tuple[Message, ...] = field(default=(), compare=False, repr=False)

    @property
    def assumptions(self) -> tuple[Message, ...]:
        """The assumptions of a value with a name."""
        if self.target in UNNAMED:
            return ()
        assumed = self.assumed_messages
        return assumed.result if isinstance(assumed, Search) else assumed

    @property
    def constant_text(self) -> str:
        """The constant in the grammar."""
        return "" if self.constant is None else show_value(self.constant)

    def is_unbiased_for(self, name: str) -> bool:
        """Is it this KL ("reverse-kl" or "forward-kl"), with no factor and no constant?"""
        return self.target == name and self.single and self.constant is not None and not self.constant


@dataclass(frozen=True)
class Objective:
    """What the expected gradient is the gradient of, where the target itself does not say so.

    quantity: as the kernel's theorem has it; formula: where it is no quantity of the kernel; generator: as
    E_q[f(r)], for a coefficient that is a function of r; convexity: in q, of an objective without a name;
    penalty: the coefficient c(r) behind it, without the reward in the same loss.  inside: the quantity inside
    the clip range.  sense: does an update descend the objective, so that it is "minimised", or ascend it, so
    that it is "maximised"?
    """

    quantity: Quantity | None = None
    formula: Formula | None = None
    generator: Generated | None = None
    convexity: Functional | None = None
    penalty: ExpPoly | None = None
    inside: Quantity | None = None
    sense: Literal["minimised", "maximised"] = "minimised"

    @property
    def is_sampler_kl(self) -> bool:
        """Is it a multiple of KL(mu||q), of whole sequences?"""
        return _is_sampler_kl(self.quantity)

    @property
    def is_sampler_kl_inside(self) -> bool:
        """Is it a multiple of KL(mu||q) inside the clip range?"""
        return _is_sampler_kl(self.inside)

    @cached_property
    def effects(self) -> Effects | None:
        """The effects of minimising f if it is no divergence."""
        from klsym.engine.divergences.nonconvex_effects import find_effects

        return None if self.penalty is None else find_effects(self.penalty)


def _is_sampler_kl(quantity: Quantity | None) -> bool:
    [(_, to_policy)] = KL("mu", "q").side.terms
    return quantity is not None and [atoms for _, atoms in quantity.side.terms] == [to_policy]


@dataclass(frozen=True)
class VerdictProof:
    """The kernel's theorems behind a verdict (none outside the ring), and the printed steps of the first.

    check: the outcome of a cross-check in numbers.
    """

    theorems: tuple[Proof, ...] = ()
    steps: Sequence[ChainStep] = field(default=(), compare=False)
    check: dict[str, Any] | None = field(default=None, compare=False)

    @property
    def steps_in_latex(self) -> list[tuple[str, str]]:
        """Rules and formulas in LaTeX."""
        steps = self.steps
        return steps.in_latex if isinstance(steps, Chain) else [(rule, latex) for rule, _, latex in steps]


@dataclass(frozen=True)
class Counterexample:
    """A finite model in which the expected gradient is not grad KL(q||p), or not the gradient of anything."""

    source: Search | dict[str, Any] | None = field(default=None, compare=False)

    @property
    def model(self) -> dict[str, Any] | None:
        """The model, searched for on first access; None if there is none."""
        return self.source.result if isinstance(self.source, Search) else self.source


@dataclass(frozen=True, repr=False)
class Verdict:
    """The answer of `explain`, as values; `klsym.render.verdict` prints it.

    trust: "kernel", "sympy", "numeric" or "open".  assumptions: the hypotheses; messages: what an engineer
    should know before using the loss; suggestion: the search for what to write in its place
    (`answers.suggestion`), for a loss that is no KL penalty.
    """

    loss: AnalysedLoss
    setting: Setting
    gradient: ExpectedGradient = ExpectedGradient()
    value: ExpectedValue = ExpectedValue()
    objective: Objective = Objective()
    trust: str = "open"
    assumptions: tuple[Message, ...] = ()
    messages: tuple[Message, ...] = ()
    proof: VerdictProof = VerdictProof()
    counterexample: Counterexample = field(default=Counterexample(), compare=False)
    suggestion: Search | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.loss.text, self.setting, self.target, self.trust))

    @property
    def target(self) -> str | None:
        return self.gradient.target

    @property
    def fix(self) -> Any:
        """What to write instead, searched for on first access; None if there is nothing."""
        return None if self.suggestion is None else self.suggestion.result

    @property
    def is_truncated(self) -> bool:
        """Do samples come from a truncated sampler?"""
        return (self.loss.asked or self.setting).truncated

    @property
    def is_ascended(self) -> bool:
        """Does the update ascend the objective, as it does a reward?"""
        return self.objective.sense == "maximised"

    def revise(self, **changes: Any) -> Self:
        """Return the verdict with other fields, or other fields of its parts, whose names are unique.

        Parts are loss, gradient, value, objective and proof.  A TargetReading for the gradient replaces its
        named parts.

        Raises TypeError: there is no such field.
        """
        revised: dict[str, Any] = {}
        if type(reading := changes.get("gradient")) is TargetReading:
            del changes["gradient"]
            changes |= {key: getattr(reading, key) for key in TargetReading.__match_args__}
        for name in ("loss", "gradient", "value", "objective", "proof"):
            part = getattr(self, name)
            inner = {key: changes.pop(key) for key in part.__match_args__ if key in changes}
            if inner:
                revised[name] = replace(changes.pop(name, part), **inner)
        return replace(self, **revised, **changes)


def is_ascended(written: Written, setting: Setting) -> bool:
    """Does an update maximise it?  It does for a reward; a penalty without R and A is subtracted from one.

    A value that the code names reward is added to it.  A value of 0 or 1, divided by a statistic of its
    batch, counts as a reward.
    """
    if setting.is_differentiated:
        return False
    if any(note.code == "added-to-reward" for note in written.notes):
        return True
    if any(is_indicator(divided.args[0]) for divided in written.expression.atoms(Divided)):
        return True
    return _depends_on_reward(written.expression)


def _depends_on_reward(loss: Any) -> bool:
    """Does the value depend on R or A?  That of R - sg(R), or of clip(x, 0, 0)*R, does not."""
    if not loss.has(R, A):
        return False
    value = unfold(remove_sg(loss)).replace(clip, lambda x, low, high: Min(Max(x, low), high))
    return bool(expand(value.replace(lambda e: e.is_Mul, _multiply_bounds)).has(R, A))


def _multiply_bounds(product: Any) -> Any:
    """Return a product with x*y for max(x, y)*min(x, y)."""
    pairs = [x for x in product.args if isinstance(x, Max) and Min(*x.args) in product.args]
    return product.xreplace({x: Mul(*x.args) for x in pairs} | {Min(*x.args): S.One for x in pairs})


def find_sense(written: Written, setting: Setting) -> Literal["minimised", "maximised"]:
    """Return what an update does to the objective."""
    return "maximised" if is_ascended(written, setting) else "minimised"


def build_open_verdict(written: Written, setting: Setting, reason: Message, h: Any = None) -> Verdict:
    """Return the verdict on a loss whose target is open for this reason; h: the gradient at a sample."""
    return Verdict(
        loss=AnalysedLoss(written.typed or written.text, written=written),
        setting=setting,
        gradient=ExpectedGradient(score_coefficient=h),
        messages=(reason,),
    )
