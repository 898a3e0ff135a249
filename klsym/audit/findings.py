"""What only code shows, beside the verdict on its formula.  Each finding is a condition and a sentence.

A finding says what the code does, and the line of the user's file where that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import sympy

from klsym.api import Verdict
from klsym.audit.aggregation import Tokens
from klsym.audit.confirm import Outcome, Point, make_duals
from klsym.audit.duals import evaluate
from klsym.audit.terms import VOCABULARY, Top, Total, is_theta_dependent, mask, name_estimators
from klsym.audit.tracing.torch_trace import Entry
from klsym.diagnostics.overflow import AT
from klsym.language.expressions import A, R, clip, log_mu, log_old, log_p, log_q, remove_sg, sg, unfold
from klsym.notation import losses
from klsym.notation.printers import TEXT

SAMPLED = {log_q, log_p, log_mu, log_old, A, R}


@dataclass(frozen=True)
class Finding:
    """A sentence, and the line of the user's file that it is about."""

    text: str
    line: int | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


Overflow = tuple[str, str, str, int | None]  # type of the floats, where, what is not finite, line


def add_code_facts(verdict: Verdict, overflows: list[Overflow] | None, is_guess: bool) -> Verdict:
    """Return the verdict with what only code shows.

    That is: where it is not finite in float32, if it was run in it, and whether it is a guess that the value
    is a loss.
    """
    if verdict.loss.written is None:
        return verdict
    far, seen = {f"log q - log p = {at:+g}": at for at in AT}, None
    if overflows is not None:
        rows = ((far[at], problem) for dtype, at, problem, _ in overflows if dtype == "float32" and at in far)
        seen = tuple(rows)
    return verdict.revise(written=replace(verdict.loss.written, in_float32=seen, is_guess=is_guess))


@dataclass(frozen=True)
class Facts:
    """What the findings look at."""

    tokens: Tokens
    formula: Any
    verdict: Verdict
    options: dict[str, Any]
    outcome: Outcome
    points: tuple[Point, ...]
    journal: list[Entry]
    roles: dict[str, Any]
    overflows: list[Overflow] | None

    @property
    def loss(self) -> Any:
        return self.tokens.loss

    def find_line(self, names: Iterable[str], formula: Any = None) -> int | None:
        """Return the line of the last operation of such a name, with this formula if one is given."""
        lines = [
            line
            for name, line, result in self.journal
            if name in names and (formula is None or unfold(formula) in (result, unfold(result)))
        ]
        return lines[-1] if lines else None


def collect_findings(facts: Facts) -> tuple[Finding, ...]:
    """Return all findings that apply."""
    return tuple(finding for check in CHECKS for finding in check(facts))


def show(e: Any) -> str:
    return str(losses.show(e, TEXT))


def find_straight_through(facts: Facts) -> list[Finding]:
    """Find terms that are detached as a whole: they change the value and leave the gradient as it is."""
    terms = sympy.Add.make_args(sympy.expand_mul(facts.loss))
    detached = [t for t in terms if t.has(sg) and t.has(log_q) and not is_theta_dependent(t)]
    live = sympy.Add(*(t for t in terms if t not in detached))
    value = name_estimators(sympy.expand(remove_sg(unfold(facts.loss)), power_exp=False))
    if not detached or sympy.expand(unfold(value - remove_sg(live))) == 0:
        return []
    statement = f"the value is that of {show(value)}, the gradient that of {show(name_estimators(live))}"
    line = facts.find_line(("detach",))
    return [Finding(f"{statement}: what is logged is not what is descended", line)]


def find_unit_weights(facts: Facts) -> list[Finding]:
    """Find exp(log q - sg(log q)), which has the value 1."""
    findings = []
    for e in unfold(facts.loss).atoms(sympy.exp):
        if is_theta_dependent(e) and sympy.expand(remove_sg(e.args[0])) == 0:
            text = f"{show(e)} has the value 1 and carries a gradient only"
            if facts.options["sampling"] == "off-policy":
                text += ": off-policy it is no importance weight"
            findings.append(Finding(text, facts.find_line(("exp",), e)))
    return findings


# ---------------------------------------------------------------------------- clamps
def find_lost_gradients(facts: Facts) -> list[Finding]:
    """Report whether a token keeps a gradient beyond a bound."""
    if facts.options["use"] == "reward" or facts.tokens.over_vocabulary:
        return []
    findings = []
    for e in _list_bounds(facts.loss):
        line = facts.find_line(
            ("clamp", "clip", "clamp_min", "clamp_max", "relu", "minimum", "maximum", "min", "max"), e
        )
        if not is_theta_dependent(e):
            continue
        has_gradient = _has_gradient_where_bound(facts, e)
        if has_gradient is None:
            findings.append(Finding(f"{show(e)} never binds at the points that were tried", line))
        else:
            consequence = (
                "tokens there keep a gradient from other terms"
                if has_gradient
                else "tokens there get no gradient at all"
            )
            findings.append(Finding(f"where {show(e)} binds, its gradient is lost: {consequence}", line))
    return findings


def _list_bounds(loss: Any) -> list[Any]:
    kinds = (clip, sympy.Max, sympy.Min)
    bounds = [e for e in sympy.preorder_traversal(loss) if isinstance(e, kinds)]
    return [e for e in dict.fromkeys(bounds) if any(not a.free_symbols & SAMPLED for a in e.args)]


def _has_gradient_where_bound(facts: Facts, e: Any) -> bool | None:
    """Is there a gradient beyond the bound?  None if it never does."""
    has_gradient: bool | None = None
    for point in facts.points:
        numbers = make_duals(point, vocabulary=False)
        bound, whole = evaluate(unfold(e), numbers), evaluate(unfold(facts.loss), numbers)
        if bound.slope is None or whole.slope is None:
            continue
        binds = ~bound.slope.any(axis=-1)
        if binds.any():
            has_gradient = bool(has_gradient) or bool((whole.slope.any(axis=-1) & binds).any())
    return has_gradient


def find_one_sided(facts: Facts) -> list[Finding]:
    """Report bounds that were not confirmed on both sides."""
    missed = [e for e in facts.outcome.one_sided if not isinstance(e, clip) or is_theta_dependent(e)]
    formulas = "; ".join(
        dict.fromkeys(
            show(name_estimators(e.xreplace({mask: sympy.S.One})))[:60] for e in missed if _is_printable(e)
        )
    )
    return [Finding(f"confirmed on one side of the bound only: {formulas}")] if formulas else []


def _is_printable(e: Any) -> bool:
    return not e.free_symbols & {mask, *VOCABULARY} and bool(e.free_symbols & {log_q, log_p, log_mu})


# ---------------------------------------------------------------------------- masks, sums, numbers
def find_padding_gradient(facts: Facts) -> list[Finding]:
    if not facts.outcome.padding or mask not in facts.roles.values() or not _is_masked(facts.formula):
        return []
    return [Finding("padding counts: tokens that the mask leaves out get a gradient")]


def _is_masked(formula: Any) -> bool:
    """Is the mask that of the loss: in its sums over tokens, or a factor of a term?"""
    terms = sympy.Add.make_args(sympy.expand_mul(formula))
    return any(e.has(mask) for e in formula.atoms(Total)) or any(mask in e.args for e in terms)


def find_vocabulary_sums(facts: Facts) -> list[Finding]:
    if not facts.tokens.over_vocabulary:
        return []
    text = "sums over the vocabulary: an exact expectation over the next word, which full(..) is below"
    return [Finding(text, facts.find_line(("sum", "kl_div", "mean"))), *_describe_topk(facts)]


def _describe_topk(facts: Facts) -> Iterator[Finding]:
    """Yield a finding for the words that topk takes."""
    for words in facts.formula.atoms(Top):
        x, k = words.args
        text = f"M marks the {k} words where {x} is largest, for any such number; the others are left out"
        if is_theta_dependent(x):
            text += (
                ". Which words they are moves with theta and no gradient passes through it: what is said"
                " holds between the points where two words change places, and the loss jumps there"
            )
        yield Finding(text, facts.find_line(("topk",)))


def describe_overflows(facts: Facts) -> list[Finding]:
    """Report NaN and overflow, each operation once; nothing for code that was not run in short floats."""
    if facts.overflows is None:
        return []
    if not facts.overflows:
        return [Finding("finite in float32 and bfloat16 at log ratios of +-100, value and gradient")]
    places_by_problem: dict[tuple[str, int | None], list[str]] = {}
    for dtype, where, problem, line in facts.overflows:
        places_by_problem.setdefault((problem, line), []).append(f"{where} in {dtype}")
    return [
        Finding(f"{problem}, at {'; '.join(places)}", line)
        for (problem, line), places in places_by_problem.items()
    ]


CHECKS: tuple[Callable[[Facts], list[Finding]], ...] = (
    find_vocabulary_sums, find_straight_through, find_unit_weights, find_lost_gradients, find_one_sided,
    find_padding_gradient, describe_overflows,
)  # fmt: skip


def describe_bound(e: Any) -> str:
    """Return the hint for samples on a bound: slopes are conventions there, on-policy all ratios are 1."""
    if e is None:
        return ""
    where = f"samples stand on the bound of {show(name_estimators(e))}"
    return (
        f"; {where}: klsym's slope there is 1/2, that of torch.clamp 1 and of relu 0; clip(x, lo, hi) has 1"
    )
