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
from klsym.audit.confirm import Outcome, Point, duals
from klsym.audit.duals import evaluate
from klsym.audit.terms import VOCABULARY, Top, Total, depends, folded, mask
from klsym.audit.tracing.torch_trace import Entry
from klsym.diagnostics.overflow import AT
from klsym.language.expressions import A, R, clip, log_mu, log_old, log_p, log_q, sg, unfold, without_sg
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


def of_code(verdict: Verdict, overflows: list[Overflow] | None, is_guess: bool) -> Verdict:
    """The verdict with what only code shows: where it is not finite in float32, if it was run in it, and
    whether it is a guess that the value is a loss."""
    if verdict.loss.written is None:
        return verdict
    far, seen = {f"log q - log p = {at:+g}": at for at in AT}, None
    if overflows is not None:
        rows = ((far[at], what) for dtype, at, what, _ in overflows if dtype == "float32" and at in far)
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

    def line_of(self, names: Iterable[str], formula: Any = None) -> int | None:
        """Where the last operation of such a name stands, with this formula if one is given."""
        found = [
            line
            for name, line, made in self.journal
            if name in names and (formula is None or unfold(formula) in (made, unfold(made)))
        ]
        return found[-1] if found else None


def findings_of(facts: Facts) -> tuple[Finding, ...]:
    """All findings that apply."""
    return tuple(finding for check in CHECKS for finding in check(facts))


def show(e: Any) -> str:
    return str(losses.show(e, TEXT))


def straight_through(facts: Facts) -> list[Finding]:
    """Terms that are detached as a whole: they change the value and leave the gradient as it is."""
    terms = sympy.Add.make_args(sympy.expand_mul(facts.loss))
    detached = [t for t in terms if t.has(sg) and t.has(log_q) and not depends(t)]
    live = sympy.Add(*(t for t in terms if t not in detached))
    value = folded(sympy.expand(without_sg(unfold(facts.loss)), power_exp=False))
    if not detached or sympy.expand(unfold(value - without_sg(live))) == 0:
        return []
    said = f"the value is that of {show(value)}, the gradient that of {show(folded(live))}"
    line = facts.line_of(("detach",))
    return [Finding(f"{said}: what is logged is not what is descended", line)]


def weight_of_value_one(facts: Facts) -> list[Finding]:
    """exp(log q - sg(log q))."""
    found = []
    for e in unfold(facts.loss).atoms(sympy.exp):
        if depends(e) and sympy.simplify(without_sg(e)) == 1:
            text = f"{show(e)} has the value 1 and carries a gradient only"
            if facts.options["sampling"] == "off-policy":
                text += ": off-policy it is no importance weight"
            found.append(Finding(text, facts.line_of(("exp",), e)))
    return found


# ---------------------------------------------------------------------------- clamps
def clamps(facts: Facts) -> list[Finding]:
    """What becomes of the gradient where a bound binds."""
    if facts.options["use"] == "reward" or facts.tokens.over_vocabulary:
        return []
    found = []
    for e in _bounds(facts.loss):
        line = facts.line_of(
            ("clamp", "clip", "clamp_min", "clamp_max", "relu", "minimum", "maximum", "min", "max"), e
        )
        if not depends(e):
            continue
        kept = _kept_where_it_binds(facts, e)
        if kept is None:
            found.append(Finding(f"{show(e)} never binds at the points that were tried", line))
        else:
            said = (
                "tokens there keep a gradient from other terms"
                if kept
                else "tokens there get no gradient at all"
            )
            found.append(Finding(f"where {show(e)} binds, its gradient is lost: {said}", line))
    return found


def _bounds(loss: Any) -> list[Any]:
    kinds = (clip, sympy.Max, sympy.Min)
    found = [e for e in sympy.preorder_traversal(loss) if isinstance(e, kinds)]
    return [e for e in dict.fromkeys(found) if any(not a.free_symbols & SAMPLED for a in e.args)]


def _kept_where_it_binds(facts: Facts, e: Any) -> bool | None:
    """Is there a gradient where the bound binds?  None if it never does."""
    kept: bool | None = None
    for point in facts.points:
        numbers = duals(point, vocabulary=False)
        bound, whole = evaluate(unfold(e), numbers), evaluate(unfold(facts.loss), numbers)
        if bound.slope is None or whole.slope is None:
            continue
        binds = ~bound.slope.any(axis=-1)
        if binds.any():
            kept = bool(kept) or bool((whole.slope.any(axis=-1) & binds).any())
    return kept


def never_met(facts: Facts) -> list[Finding]:
    """Branches that were not confirmed on both sides."""
    missed = [e for e in facts.outcome.unmet if not isinstance(e, clip) or depends(e)]
    shown = "; ".join(
        dict.fromkeys(show(folded(e.xreplace({mask: sympy.S.One})))[:60] for e in missed if _plain(e))
    )
    return [Finding(f"confirmed on one side of the bound only: {shown}")] if shown else []


def _plain(e: Any) -> bool:
    return not e.free_symbols & {mask, *VOCABULARY} and bool(e.free_symbols & {log_q, log_p, log_mu})


# ---------------------------------------------------------------------------- masks, sums, numbers
def padding(facts: Facts) -> list[Finding]:
    if not facts.outcome.padding or mask not in facts.roles.values() or not _is_masked(facts.formula):
        return []
    return [Finding("padding counts: tokens that the mask leaves out get a gradient")]


def _is_masked(formula: Any) -> bool:
    """Is the mask that of the loss: in its sums over tokens, or a factor of a term?"""
    terms = sympy.Add.make_args(sympy.expand_mul(formula))
    return any(e.has(mask) for e in formula.atoms(Total)) or any(mask in e.args for e in terms)


def vocabulary(facts: Facts) -> list[Finding]:
    if not facts.tokens.over_vocabulary:
        return []
    text = "sums over the vocabulary: an exact expectation over the next word, which full(..) is below"
    return [Finding(text, facts.line_of(("sum", "kl_div", "mean"))), *_choices(facts)]


def _choices(facts: Facts) -> Iterator[Finding]:
    """The words that topk takes."""
    for words in facts.formula.atoms(Top):
        x, k = words.args
        text = f"M marks the {k} words where {x} is largest, for any such number; the others are left out"
        if depends(x):
            text += (
                ". Which words they are moves with theta and no gradient passes through it: what is said"
                " holds between the points where two words change places, and the loss jumps there"
            )
        yield Finding(text, facts.line_of(("topk",)))


def overflow(facts: Facts) -> list[Finding]:
    """NaN and overflow, each operation once; nothing of code that was not run in short floats."""
    if facts.overflows is None:
        return []
    if not facts.overflows:
        return [Finding("finite in float32 and bfloat16 at log ratios of +-100, value and gradient")]
    found: dict[tuple[str, int | None], list[str]] = {}
    for dtype, where, what, line in facts.overflows:
        found.setdefault((what, line), []).append(f"{where} in {dtype}")
    return [Finding(f"{what}, at {'; '.join(places)}", line) for (what, line), places in found.items()]


CHECKS: tuple[Callable[[Facts], list[Finding]], ...] = (
    vocabulary, straight_through, weight_of_value_one, clamps, never_met, padding, overflow,
)  # fmt: skip


def on_the_bound(e: Any) -> str:
    """Slopes on a bound are conventions, and on-policy a ratio is 1 at every sample."""
    if e is None:
        return ""
    where = f"samples stand on the bound of {show(folded(e))}"
    return (
        f"; {where}: klsym's slope there is 1/2, that of torch.clamp 1 and of relu 0; clip(x, lo, hi) has 1"
    )
