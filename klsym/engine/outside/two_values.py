"""The objective where a batch's coefficients are functions of a reward that is 0 or 1.  Untrusted.

Let h be 0 or 1 and independent of theta, P = E_q[h], and K the number of ones in a batch of n.  If a sample
with h = 1 has the coefficient a_1(K), and one with h = 0 has a_0(K), then for independent samples

    E_q[mean_i a_i s_i] = E[a_1(1 + K') - a_0(K')] grad P,    K' binomial(n - 1, P),

since E_q[h s] = grad P = -E_q[(1 - h) s].  So there is an objective Phi(P), with Phi'(P) the expectation:

    scaled(h)        n/(1 + K')                                1 + (1-P) + .. + (1-P)^(n-1)
    relative(h)      n/(1 + K') where K' > 0, else n - 1       1 + (1-P) + .. + (1-P)^(n-2)
    normalised(h)    one over the standard deviation           E[sqrt(K (n - K))]/(n P (1 - P))

>>> from klsym.language.expressions import M
>>> write_objective(Scaled, M).text, write_objective(Relative, M).text
('sum_(k=1..n) (1 - E_q[M])**k/k', 'sum_(k=1..n - 1) (1 - E_q[M])**k/k')
"""

from __future__ import annotations

from typing import Any, NamedTuple

from klsym.engine.verdicts.verdict import Counterexample, TargetReading, Verdict
from klsym.language.expressions import A, R, log_q, remove_sg, unfold
from klsym.language.messages import Message
from klsym.language.recognition import is_indicator
from klsym.language.sums import Divided, Normalised, Relative, Scaled
from klsym.notation import losses
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.tree import Formula, Gradient, Words, multiply, negate

LAST = {Scaled: "n", Relative: "n - 1"}  # the order at which the series of -log P ends
CLAIMS = {Scaled: "methods.maxrl-order", Relative: "methods.maxrl-centred"}


class Push(NamedTuple):
    """The factor of a sample's score: a scale times a reward that is divided by a statistic of its batch."""

    scale: Any
    divided: Divided

    @property
    def reward(self) -> Any:
        return remove_sg(self.divided.args[0])


def write_objective(kind: type[Divided], h: Any) -> Words:
    """Return -Phi(P), which falls as P rises."""
    text, latex = (spell.expectation("q", losses.show(h, spell)) for spell in (TEXT, LATEX))
    if kind is Normalised:
        return Words(f"Phi(1 - {text})", rf"\Phi(1 - {latex})")
    last = LAST[kind]
    series = rf"\sum_{{k=1}}^{{{last}}} \frac{{(1 - {latex})^k}}{{k}}"
    return Words(f"sum_(k=1..{last}) (1 - {text})**k/k", series)


def build_objective(push: Push) -> Formula:
    """Return the objective whose gradient a push has."""
    constant, falling = push.scale, write_objective(type(push.divided), push.reward)
    if constant in (1, -1):
        return negate(falling) if constant == 1 else falling
    return multiply(losses.build_tree(-constant), falling)


def add_two_values(verdict: Verdict, push: Push) -> Verdict:
    """Add the objective of a reward that is 0 or 1, on-policy; of another one, what would hold of 0 and 1."""
    kind, h = type(push.divided), push.reward
    if unfold(h).has(log_q) or verdict.target not in (None, "no-objective"):
        return _add_limit(verdict, push)
    if kind is Normalised and is_indicator(-h):  # normalised(-h) = -normalised(h)
        return _add_objective(verdict, Push(-push.scale, Normalised(-h)))
    if _is_two_valued(push):
        return _add_objective(verdict, push)
    if kind is Normalised or h not in (R, A):
        return _add_limit(verdict, push)
    note = Message("binary-over-mean", of=build_objective(push), claim=CLAIMS[kind])
    return _add_limit(verdict.revise(remarks=(*verdict.gradient.remarks, note)), push)


def add_gradient(verdict: Verdict, push: Push, added: Verdict) -> Verdict:
    """Add that there is an objective, if a reward is 0 or 1 and what is added to it has an objective, too."""
    is_gradient = added.target not in (None, "no-objective")
    if verdict.target is not None or not is_gradient or not _is_two_valued(push):
        return verdict
    two_valued = _add_objective(verdict, push)
    theorems = (*verdict.proof.theorems, *added.proof.theorems)
    return two_valued.revise(formula=None, in_quantities=None, theorems=theorems)


def _is_two_valued(push: Push) -> bool:
    """Is it 0 at some samples and 1 at others, whatever theta is?"""
    h = push.reward
    return is_indicator(h) and bool(h.free_symbols) and not unfold(h).has(log_q)


def _add_objective(verdict: Verdict, push: Push) -> Verdict:
    kind, formula, name = type(push.divided), build_objective(push), losses.show(push.reward, TEXT)
    remark = (
        Message("slope-of-objective", of=name)
        if kind is Normalised
        else Message("series-of-log", of=name, last=LAST[kind], claim=CLAIMS[kind])
    )
    return _add_limit(give_objective(verdict, formula, remark, name), push)


def give_objective(verdict: Verdict, formula: Formula, remark: Message, name: str) -> Verdict:
    """Return the verdict with an objective that SymPy found for a value of 0 or 1.

    formula: of the objective.  remark: on its slope, or on its series.  name: of the value.
    """
    return verdict.revise(
        gradient=TargetReading("objective"),
        trust="sympy",
        formula=formula,
        quantity=None,
        in_quantities=Gradient(formula),
        counterexample=Counterexample(),
        remarks=(remark, *(x for x in verdict.gradient.remarks if not x.code.startswith("open-"))),
        messages=(Message("outside-the-core", trust="sympy"), *verdict.messages),
        assumptions=(*verdict.assumptions, Message("mean-is-zero-or-one", of=name)),
    )


def _add_limit(verdict: Verdict, push: Push) -> Verdict:
    """Add the limit for large n of a value over the mean of its batch."""
    if isinstance(push.divided, Normalised):
        return verdict
    h = push.reward
    moves = bool(unfold(h).has(log_q))
    limit = Message("mean-limit", scale=push.scale, of=losses.show(h, TEXT), moves=moves)
    zero = Message("zero-over-zero", of=losses.show(h, TEXT))
    return verdict.revise(
        remarks=(*verdict.gradient.remarks, limit), assumptions=(*verdict.assumptions, zero)
    )
