"""What `klsym check` says: the whole theorem in one notation of its own.  Trusted; standard library only.

The notation is plain and injective: names are those of the data, with slots in brackets, k1[now], and no name
may be a word of this printer (names.RESERVED), so that two theorems that differ are printed differently.

    E_q[k1*s]   E_mu[sum_t k1[now]*s[past]]   value[..] at one sample   total[..] the sum over all outcomes
"""

from __future__ import annotations

import json

from klsym.kernel.assumptions import Hypothesis
from klsym.kernel.closings import Zero
from klsym.kernel.definitions import LOG, MEANS, REGION, Definition
from klsym.kernel.names import SAMPLE
from klsym.kernel.replay import Theorem
from klsym.kernel.ring import ONE, ExpPoly, Monomial, Number
from klsym.kernel.slots import find_slot, is_second
from klsym.kernel.statements import Atom, Context, Curl, Field, Gradient, Mean, Score, Side

OVER = {"": "", "i": "mean_i ", "ij": "mean_ij ", "t": "sum_t ", "it": "mean_i sum_t "}
PLACES = {"count": "total", SAMPLE: "value"}
CONVENTIONS = (
    "Every mean that the statement names exists, over t with the sum of absolute values.",
    "k1 = log q/p, w = log q/mu, o = log q/old, s = grad log q. grad holds sg(..) constant.",
    "q alone moves with theta; R, A, H and M are any theta-free variables (M need not be 0 or 1).",
    "A mean is taken at a fixed theta: neither theta nor a density depends on the samples.",
    "Where a density is 0, a product that holds a positive power of it is 0.",
    "A value is taken where q, p, mu and old are positive; at index i it is that at one i of a batch.",
    "V[slot] is the sum of V over the positions in it, for f too; A[slot] is any function of all up to them,",
    "the same one at each sample of a batch.",
    "Of a sequence k1, w, o, log_q, R, H, M, s and length are sums over its steps, each of the tokens up",
    "to it; A and f are of the sequence as a whole.",
    "Of sequences, a << b is said of each token after any prefix.",
)
MOVES = " and it moves with theta"
OF_REGIONS = "grad(..) of a loss holds constant what is 1 where something is positive, as autograd does."
OF_MEANS = "grad(..) moves what is defined as an expectation, the same number at each sample, with theta."


# ---------------------------------------------------------------------------- formulas
def show_element(a: ExpPoly) -> str:
    """Return an exponential polynomial, its terms in canonical order.

    >>> show_element((-ExpPoly.from_variable("k1")).exp() * 2 - 1)
    '-1 + 2*exp(-k1)'
    """
    rows = sorted(a.terms.items())
    return _show_sum([(value, monomial, _show_exp(exponent)) for (monomial, exponent), value in rows])


def _show_exp(exponent: tuple[tuple[Monomial, Number], ...]) -> list[str]:
    return [f"exp({_show_sum([(v, m, []) for m, v in exponent])})"] if exponent else []


def _show_sum(terms: list[tuple[Number, Monomial, list[str]]]) -> str:
    text = ""
    for value, monomial, exponentials in terms:
        factors = [name if power == 1 else f"{name}^{power}" for name, power in monomial] + exponentials
        size = [str(abs(value))] if abs(value) != 1 or not factors else []
        text += (" - " if value < 0 else " + ") + "*".join(size + factors)
    sign = "-" if text.startswith(" - ") else ""
    return sign + text[3:] if text else "0"


def show_scored(a: ExpPoly, score: Score) -> str:
    """Return a s..s; along two directions u and v, (u.s) and (v.s)."""
    two = any(is_second(entry) for entry in score)
    scores = []
    for entry in score:
        slot = find_slot(entry)
        score_text = "s" if slot == "x" else f"s[{slot}]"
        scores.append(f"({'v' if is_second(entry) else 'u'}.{score_text})" if two else score_text)
    inner = show_element(a)
    bracketed = f"({inner})" if len(a.terms) > 1 and score else inner
    return "*".join([bracketed, *scores])


def show_atom(atom: Atom) -> str:
    if isinstance(atom, Gradient):
        return f"grad({show_side(atom.of)})"
    if isinstance(atom, Mean):
        return show_mean(atom)
    assert isinstance(atom, Field)
    return f"{'curl ' * isinstance(atom, Curl)}{_show_place(atom)}grad({show_element(atom.loss)})]"


def show_mean(mean: Mean, absolute: bool = False) -> str:
    """Return a mean, or that of absolute values, |v| the length of a vector v."""
    text, bar = show_scored(mean.coefficient, mean.score), "|" * absolute
    return f"{_show_place(mean)}{bar}{text}{bar}]"


def _show_place(atom: Mean | Field) -> str:
    return f"{PLACES.get(atom.measure, f'E_{atom.measure}')}[{OVER[atom.index]}"


def show_side(side: Side) -> str:
    """Return a side, its terms in canonical order."""
    terms = []
    for coefficient, atoms in side.terms:
        factors = [show_atom(atom) for atom in atoms]
        if coefficient != ExpPoly.from_number(1) or not atoms:
            factors.insert(0, f"({show_element(coefficient)})")
        terms.append(" * ".join(factors))
    return " + ".join(terms) or "0"


# ---------------------------------------------------------------------------- sentences
def show_hypothesis(hypothesis: Hypothesis) -> str:
    """Return one hypothesis as a sentence."""
    match hypothesis:
        case ("support", "count", b):
            return f"{b} > 0 at every outcome"
        case ("support", a, b):
            return f"{a} << {b}: wherever {a} > 0, also {b} > 0"
        case ("exchange", Mean() as mean):
            return f"{_describe_exchange(mean)}: its sum has a dominated derivative near theta"
        case ("lipschitz", Mean() as mean):
            lipschitz = "near theta its terms are Lipschitz, with constants that have a sum"
            return f"{_describe_exchange(mean)}: {lipschitz}"
        case ("away" | "off" | "apart" as kind, place, ExpPoly() as e):
            text = f"{_describe_exclusion(place)} where {show_element(e)} = 0" + MOVES * (kind != "away")
            return f"at every theta' near theta, {text}" if kind == "apart" else text
        case ("above", place, ExpPoly() as e):
            return f"{_describe_exclusion(place)} where {show_element(e)} <= 0"
        case ("fact", ExpPoly() as e):
            return f"{show_element(e)} >= 0"
        case ("exists", Mean() as mean) if "t" in mean.index:
            return f"{show_mean(mean, absolute=True)} is finite"
        case ("exists", Atom() as atom):
            return f"{show_atom(atom)} exists"
        case ("ends", m):
            return f"after any prefix, sequences from {m} end with probability 1"
        case ("batch", m):
            return f"a batch holds n independent samples from {m}, n a whole number, at least 2"
        case ("nonzero", name):
            return f"{name} is not 0"
        case ("positive", name):
            return f"{name} > 0"
        case ("generic", name):
            return f"{name} takes none of the isolated values at which terms merge or vanish"
        case ("nonnegative", place, ExpPoly() as a):
            return f"{show_element(a)} >= 0{_describe_place(place, ONE)}"
        case ("equal", Side() as left, Side() as right):
            return f"{show_side(left)} = {show_side(right)}"
        case ("premise", Side() as left, Side() as right):
            return f"for every theta, {show_side(left)} = {show_side(right)}"
    raise ValueError(f"unknown hypothesis {hypothesis!r}")


def _describe_exchange(mean: Mean) -> str:
    return f"grad may be taken inside {show_atom(mean)}"


def _describe_exclusion(place: str) -> str:
    return {"count": "no outcome lies", SAMPLE: "the sample does not lie"}.get(
        place, f"no sample from {place} lies"
    )


def _describe_place(place: str, weight: ExpPoly) -> str:
    """Return where a place and a weight have mass."""
    mass = [] if place in PLACES else [place]
    text = show_element(weight)
    mass += [f"({text})" if len(weight.terms) > 1 else text] if weight != ONE else []
    if mass:
        return f" wherever {'*'.join(mass)} > 0"
    return " at every outcome" if place == "count" else ""


def show_zero(zero: Zero) -> str:
    """Return when one row of an inequality is 0."""
    condition = show_scored(zero.element, zero.score)
    condition += " is constant" if zero.constant else " = 0"
    condition += _describe_place(zero.measure, zero.weight) + (
        f", at each {zero.index}" if zero.index else ""
    )
    return f"{show_element(zero.factor)} = 0 or {condition}" if zero.factor.names() else condition


def show_statement(theorem: Theorem) -> str:
    """Return what is established, in one line."""
    statement, close = theorem.statement, theorem.close
    left, right = show_side(statement.left), show_side(statement.right)
    text = f"{left} {statement.relation} {right}"
    if theorem.kind == "unique":
        family = show_element(ExpPoly.from_json(close["family"]))
        free = ", ".join(close["constants"])
        return f"{text} for all q, p, mu if and only if {close['function']} = {family}, for any {free}"
    if theorem.kind == "independent":
        return f"{left} is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)]"
    if theorem.kind == "refuted":
        return f"not in general: {text}"
    return text


def show(theorem: Theorem, full: bool = False) -> str:
    """Return a theorem with its hypotheses, one a line; with `full` also what it quantifies over, the model
    of a
    refutation and the conventions of every theorem."""
    context = theorem.statement.context
    lines = [show_statement(theorem)]
    if theorem.zeros:
        lines.append(f"  equality if and only if {' and '.join(show_zero(zero) for zero in theorem.zeros)}")
    lines += [f"  where {_show_definition(definition)}" for definition in context.definitions]
    lines += [f"  under the premise {show_side(a)} = {show_side(b)}" for a, b in context.premises]
    lines += [f"  given that {show_element(e)} >= 0 at every sample or step" for e in context.facts]
    assumed = [f"  if {show_hypothesis(hypothesis)}" for hypothesis in theorem.hypotheses]
    if not full:
        return "\n".join([*lines, *assumed])
    if theorem.kind == "refuted":
        model, ends = json.dumps(theorem.close["model"], sort_keys=True), theorem.close
        within = f"the left side is within {ends['left']}, the right side within {ends['right']}"
        lines.append(f"  in the model {model} {within}")
    lines += [f"  for every {line}" for line in _list_quantified(context)]
    conventions = (
        *CONVENTIONS,
        *[OF_REGIONS] * bool(context.definitions),
        *[OF_MEANS] * bool(context.named_means),
    )
    return "\n".join([*lines, *assumed, *(f"  {line}" for line in conventions)])


def _show_definition(definition: Definition) -> str:
    text = show_element(definition.e)
    values = {kind: f"{kind}[{text}]" for kind in MEANS}
    values |= {LOG: f"log({text})", REGION: f"1 if {text} > 0, else 0"}
    return f"{definition.name} = {values.get(definition.kind, text)}"


def _list_quantified(context: Context) -> list[str]:
    functions = [f"{name}({', '.join(arguments)})" for name, arguments in context.functions]
    lines = [f"number {', '.join(context.parameters)}"] if context.parameters else []
    return lines + ([f"differentiable function {', '.join(functions)}"] if functions else [])
