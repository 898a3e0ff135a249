"""The answer of `compare`: what is proved of two losses, each part with its theorem or model.  Untrusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Proof
from klsym.engine.proof.quantities import Quantity
from klsym.engine.questions.variances import Spread
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Side
from klsym.language.messages import Message
from klsym.notation.losses import Written

WrittenPair = tuple[Written, Written]


@dataclass(frozen=True)
class Instance:
    """An equation for all advantages and critics, and the values for which a model refutes it."""

    equation: tuple[Quantity, Quantity]
    values: Mapping[str, ExpPoly]


@dataclass(frozen=True)
class Answer:
    """Is something the same for both losses?  None: open.

    instance: the equation, where the proof is about an instance of it, or about the difference of its sides.
    """

    same: bool | None = None
    trust: str = "open"
    proof: Proof | None = None
    witness: dict[str, Any] | None = None
    instance: Instance | None = None

    @property
    def is_off_bounds(self) -> bool:
        """Is it the same by a theorem that assumes that no sample lies where two regions meet?"""
        hypotheses = self.proof.theorem.hypotheses if self.same and self.proof is not None else ()
        return any(hypothesis[0] == "away" for hypothesis in hypotheses)


OPEN_ANSWER = Answer()


@dataclass(frozen=True)
class NoiseAtOptimum:
    """The gradient of a loss where its expectation is 0.

    reward: R there, a function of k1.  quiet: the theorem that the gradient is 0 at every batch; noisy: that
    its variance is not 0 in general, with a model.
    """

    reward: ExpPoly
    quiet: Proof | None = None
    noisy: Proof | None = None

    @property
    def proof(self) -> Proof | None:
        """The theorem that decides it."""
        return self.quiet or self.noisy

    @property
    def is_noiseless(self) -> bool | None:
        """None: not decided."""
        return True if self.quiet else False if self.noisy else None


@dataclass(frozen=True)
class Multiple:
    """The expected gradient of the second loss is a constant times that of the first.

    factor: a number, or a product with parameters.  gradient: the theorem that says so.
    """

    factor: Any
    gradient: Answer


@dataclass(frozen=True)
class Comparison:
    """Compare two losses; `klsym.render.questions.compare` prints it.

    value, per_sample and gradient say whether both losses have the same value E[L], gradient at each
    sample and expected gradient; `variance` is None where nothing is decided about it.  trust: the weakest
    of the answers, "open" where a question that was asked has none.  open_questions: those without an
    answer, and those that are not asked.  readings: how the losses are read.  written: the losses.
    at_optimum: of losses over a batch, the noise of each where training ends.  settings: how each loss is
    used, where their names bring different options; `setting` is then that of the theorems, if there are any.
    multiple: the constant factor by which alone the expected gradients differ, if there is one.
    """

    losses: tuple[str, str]
    setting: Setting
    value: Answer
    per_sample: Answer
    gradient: Answer
    variance: Spread | None
    trust: str
    open_questions: tuple[Message, ...] = ()
    readings: tuple[Message, ...] = ()
    written: tuple[Written, ...] = ()
    at_optimum: tuple[NoiseAtOptimum | None, ...] = ()
    settings: tuple[Setting, ...] = ()
    multiple: Multiple | None = None

    @property
    def proofs(self) -> tuple[Proof, ...]:
        """The kernel's theorems."""
        multiple = [self.multiple.gradient] if self.multiple else []
        answers = (self.value, self.per_sample, self.gradient, *multiple)
        own = tuple(answer.proof for answer in answers if answer.proof)
        own += tuple(end.proof for end in self.at_optimum if end and end.proof)
        return own + (self.variance.proofs if self.variance else ())


def list_open_questions(value: Answer, per_sample: Answer | None, gradient: Answer) -> tuple[Message, ...]:
    """The questions that were asked and left open."""
    named = (("value", value), ("gradient", per_sample), ("expected gradient", gradient))
    return tuple(
        Message("neither-proof-nor-model", of=name)
        for name, answer in named
        if answer is not None and answer.same is None
    )


def put_under_measure(quantity: Quantity, measure: str) -> Quantity:
    """Return the expectations of a quantity, written under another measure, as if it had been the sampler.

    The integrands stay as they are: no importance weight is added.  measure: "q", "mu", or SAMPLE for the
    integrand at one sample.
    """

    def replace_measure(atom: Any) -> Any:
        return replace(atom, measure=measure)

    terms = ((c, tuple(map(replace_measure, atoms))) for c, atoms in quantity.side.terms)
    return replace(quantity, side=Side.combine(*terms))
