"""The hypotheses of a theorem: a message for each hypothesis of the kernel, and its sentence.

>>> message = build_assumption(("support", "q", "p"), Context())
>>> message, write_hypothesis(message)
(Message('support', first='q', second='p'), 'q << p: wherever q > 0, also p > 0')
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from klsym.kernel.assumptions import Hypothesis
from klsym.kernel.names import LOG_RATIOS, SAMPLE, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Atom, Mean
from klsym.language.abbreviations import Bregman, Context, Divergence, Gradient, TokenDivergence, walk_atoms
from klsym.language.defined import OF_LOGS
from klsym.language.messages import Message
from klsym.language.unfolding import Theorem
from klsym.notation import formulas
from klsym.notation.formulas import Labels
from klsym.notation.printers import TEXT

STANDING = "every mean that the statement names exists"
EXISTS = ("exists", "exists with absolute values inside the sum")  # over t
EXIST = ("exist", "exist with absolute values inside the sum")
OVER_T = ", over t with absolute values inside the sum"


def list_assumptions(theorem: Theorem, labels: Labels | None = None) -> tuple[Message, ...]:
    """List the hypotheses of a theorem; "is not 0" is left out for positive parameters."""
    positive = {("nonzero", h[1]) for h in theorem.hypotheses if h[0] == "positive"}
    shown = [h for h in theorem.hypotheses if h not in positive]
    standing = [_build_means_exist(theorem)] if has_means(theorem) else []
    if samples_old_policy(theorem):
        standing.append(Message("new-samples", of="mu"))
    return (*standing, *(build_assumption(h, theorem.statement.context, labels) for h in shown))


def build_assumption(hypothesis: Hypothesis, context: Context, labels: Labels | None = None) -> Message:
    """Build the message of one hypothesis, with its formulas as text."""
    match hypothesis:
        case ("support", a, b):
            return Message("support", first=a, second=b)
        case ("exchange", Mean() as mean):
            return Message("exchange", under=mean.measure, of=formulas.show_atom(mean, labels or {}, TEXT))
        case ("lipschitz", Mean() as mean):
            return Message("lipschitz", under=mean.measure, of=formulas.show_atom(mean, labels or {}, TEXT))
        case ("away" | "off" | "apart" as kind, at, ExpPoly() as element):
            return Message(kind, at=str(at), element=_normalise_multiple(element))
        case ("above", at, ExpPoly() as element):
            return Message("above", at=str(at), element=_normalise_multiple(element, keeps_sign=True))
        case ("fact", ExpPoly() as element):
            return Message("fact", element=element)
        case ("exists", atom):
            return Message("exists", of=formulas.show_atom(atom, labels or {}, TEXT), over_t=_is_over_t(atom))
        case ("nonnegative", at, ExpPoly() as element):
            return Message("nonnegative", at=str(at), element=element)
        case ("on-policy",):
            return Message("on-policy")
        case ("given",):
            rows = tuple(
                (formulas.show_variable(n, TEXT), formulas.show_element(v)) for n, v in context.given
            )
            return Message("given", place=name_place(context), rows=rows)
        case ("premise" | "equal" as use, number):
            left, right = (formulas.show_side(side, labels, TEXT) for side in context.premises[number])
            return Message(use, left=left, right=right)
        case ("batch" | "ends" | "nonzero" | "positive" | "generic" as kind, of):
            return Message(kind, of=of)
    raise ValueError(f"unknown hypothesis {hypothesis!r}")


def name_place(context: Context) -> str:
    """Name what a given value belongs to: a step or a sample."""
    return "step" if "[" in context.given[0][0] else "sample"


def _is_over_t(atom: Atom) -> bool:
    return "t" in getattr(atom, "index", "")


def describe_existence(atom: Atom) -> str:
    """Say how a mean must exist: over t, with absolute values inside the sum."""
    return EXISTS[_is_over_t(atom)]


def _build_means_exist(theorem: Theorem) -> Message:
    """Build the hypothesis of every theorem, that its means exist."""
    over_t = any(map(_is_over_t, walk_atoms(theorem.statement.left, theorem.statement.right)))
    return Message("means-exist", over_t=over_t, supports=list_supports(theorem))


def has_means(theorem: Theorem) -> bool:
    """Does the statement name a mean, which must exist?  A finite model has all of them."""
    statement = theorem.statement
    sides = [statement.left, statement.right, *(side for pair in statement.context.premises for side in pair)]
    means = (atom for atom in walk_atoms(*sides) if not isinstance(atom, Gradient | Bregman))
    return theorem.kind != "refuted" and any(getattr(atom, "measure", "") != SAMPLE for atom in means)


def samples_old_policy(theorem: Theorem) -> bool:
    """Does the statement name a mean over samples of mu, at a theta that they have not moved?"""
    statement = theorem.statement
    of_mu = (getattr(a, "measure", "") == "mu" for a in walk_atoms(statement.left, statement.right))
    return has_means(theorem) and ("on-policy",) not in theorem.hypotheses and any(of_mu)


def list_supports(theorem: Theorem) -> tuple[tuple[str, str], ...]:
    """List the supports without which a divergence in the statement is infinite."""
    supports = []
    for atom in walk_atoms(theorem.statement.left, theorem.statement.right):
        if isinstance(atom, Divergence | TokenDivergence):
            pairs = [(atom.first, atom.second), (atom.second, atom.first)]
            supports += pairs[: 2 if getattr(atom, "kind", "") == "J" else 1]
    return tuple(dict.fromkeys(supports))


# ---------------------------------------------------------------------------- in words
def _describe_means_exist(over_t: bool, supports: tuple[tuple[str, str], ...]) -> str:
    shown = " and ".join(f"{a} << {b} (wherever {a} > 0, also {b} > 0)" for a, b in supports)
    return STANDING + OVER_T * over_t + (f", so that {shown}" if shown else "")


def _describe_existence(of: str | tuple[str, ...], over_t: bool) -> str:
    shown = of if isinstance(of, str) else " and ".join(of)
    return f"{shown} {EXISTS[over_t] if isinstance(of, str) else EXIST[over_t]}"


def _describe_support(first: str, second: str) -> str:
    if first == "count":
        return f"{second} > 0 at every outcome"
    return f"{first} << {second}: wherever {first} > 0, also {second} > 0"


def _describe_region(at: str, element: ExpPoly) -> str:
    """2*k1 + 1 >= 0 wherever mu > 0, that is r <= exp(1/2); for d > 0, c + d k1 >= 0 means log r <= c/d."""
    place = " at every outcome" if at == "count" else "" if at == SAMPLE else f" wherever {at} > 0"
    shown = f"{formulas.show_element(element)} >= 0{place}"
    for name, ratio, sign in (("k1", "r", 1), ("w", "rho", -1)):
        slope, constant = element.terms.get((((name, 1),), ()), 0), element.terms.get(((), ()), 0)
        if slope and element == ExpPoly.from_variable(name) * slope + constant:
            edge = formulas.show_element(ExpPoly.from_number(Fraction(constant) / slope * sign).exp())
            shown += f", that is {ratio} {'<=' if slope * sign > 0 else '>='} {edge}"
    return shown


def _normalise_multiple(element: ExpPoly, keeps_sign: bool = False) -> ExpPoly:
    """Scale e, which keeps its zeros, so that a random term has the coefficient 1, or 1 or -1."""
    random = [key for key in element.terms if _list_bases(ExpPoly({key: 1})) & {*SAMPLE_BASES}]
    scale = 1 / Fraction(element.terms[max(random or element.terms)])
    return element * (abs(scale) if keeps_sign else scale)


def _list_bases(element: ExpPoly) -> set[str]:
    return {parse_name(name).base for name in element.names()}


def _format_bound(element: ExpPoly) -> str:
    """Return e = 0 with the terms that depend on theta on the left: rho = 1 - eps."""
    moving = [key for key in element.terms if _list_bases(ExpPoly({key: 1})) & {*LOG_RATIOS}]
    moving_part = ExpPoly({key: element.terms[key] for key in moving})
    if (
        not moving_part
        or moving_part == element
        or _list_bases(moving_part) & _list_bases(element - moving_part)
    ):
        return TEXT(formulas.build_equation(element))
    return f"{formulas.show_element(moving_part)} = {formulas.show_element(moving_part - element)}"


def _describe_no_sample(at: str, element: ExpPoly | tuple[ExpPoly, ...]) -> str:
    """Say that no sample lies on one of the bounds."""
    return f"{_describe_absence(at)} where {' or '.join(map(_format_bound, _as_tuple(element)))}"


def _describe_absence(at: str) -> str:
    known = {"count": "no outcome lies", SAMPLE: "the sample does not lie"}
    return known.get(at, f"no sample from {at} lies")


def _as_tuple(element: ExpPoly | tuple[ExpPoly, ...]) -> tuple[ExpPoly, ...]:
    return element if isinstance(element, tuple) else (element,)


def _describe_above(at: str, element: ExpPoly | tuple[ExpPoly, ...]) -> str:
    several = _as_tuple(element)
    if all(e == ExpPoly.from_variable("M") for e in several):
        return f"a sequence from {at} has at least one token with M_now = 1, almost surely: M > 0"
    if not any(_list_bases(e) & {*SAMPLE_BASES} or any(map(_names_log, e.names())) for e in several):
        return " and ".join(f"{formulas.show_element(e)} > 0" for e in several)
    return f"{_describe_absence(at)} where {' or '.join(map(_format_not_positive, several))}"


def _names_log(name: str) -> bool:
    """Is it the name of a log of what differs from sample to sample?"""
    return parse_name(name).base.startswith(OF_LOGS)


def _format_not_positive(element: ExpPoly) -> str:
    return f"{formulas.show_element(element)} <= 0"


WRITTEN: dict[str, str | Callable[..., str]] = {
    "means-exist": _describe_means_exist,
    "new-samples": (
        "neither theta nor {of} depends on the samples; after the first step on a batch theta does"
    ),
    "support": _describe_support,
    "exchange": "grad and E_{under} may be exchanged in {of} (dominated derivative near theta)",
    "lipschitz": "grad and E_{under} may be exchanged in {of} (near theta its terms are Lipschitz,"
    " with constants that have a sum)",
    "away": _describe_no_sample,
    "off": lambda at, element: f"{_describe_no_sample(at, element)}, and it moves with theta",
    "apart": lambda at, element: (
        f"{_describe_no_sample(at, element)}, at any theta nearby: there the loss jumps"
    ),
    "above": _describe_above,
    "fact": lambda element: f"{formulas.show_element(element)} >= 0",
    "exists": _describe_existence,
    "nonnegative": _describe_region,
    "on-policy": "on-policy: samples come from q itself, and the sampler is not differentiated (mu = sg(q))",
    "given": lambda place, rows: f"at every {place} {', '.join(f'{name} = {value}' for name, value in rows)}",
    "premise": "for every theta {left} = {right}",
    "equal": "{left} = {right}",
    "batch": "the n samples of a batch are independent draws from {of}",
    "ends": "after any prefix, sequences from {of} end with probability 1",
    "nonzero": "{of} is not 0",
    "positive": "{of} > 0",
    "generic": "{of} takes none of the isolated values at which terms merge or vanish",
}


def fill_sentence(sentence: str | Callable[..., Any], values: dict[str, Any]) -> str:
    """Fill the values into a sentence."""
    return sentence.format(**values) if isinstance(sentence, str) else str(sentence(**values))


def write_hypothesis(message: Message) -> str:
    """Return the sentence of a hypothesis of the kernel."""
    return fill_sentence(WRITTEN[message.code], message.values)


def show_hypothesis(hypothesis: Hypothesis, context: Context, labels: Labels | None = None) -> str:
    """Return the sentence of a hypothesis, from the hypothesis itself."""
    return write_hypothesis(build_assumption(hypothesis, context, labels))
