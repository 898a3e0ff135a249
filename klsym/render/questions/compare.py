"""A comparison of two losses as text, and regions such as 2*k1 + 1 >= 0, that is r <= exp(1/2).

>>> k1 = ExpPoly.from_variable("k1")
>>> region((k1, k1 + 1), ()), region((ONE,), (k1,))
('k1*(k1 + 1) >= 0', 'everywhere')
"""

from __future__ import annotations

from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.engine.questions.compare import Answer, Comparison
from klsym.engine.questions.variances import Spread, describe_outcome_model
from klsym.kernel.names import SAMPLE
from klsym.kernel.ring import ONE, ExpPoly
from klsym.language.abbreviations import Context
from klsym.notation import formulas
from klsym.notation.hypotheses import build_assumption, show_hypothesis
from klsym.notation.printers import TEXT, is_sum
from klsym.notation.text import show_interval, show_statement
from klsym.render.answer import WIDTH, add_label, add_trust
from klsym.render.details import drop_unused_definitions
from klsym.render.headline import TRUST, describe_use
from klsym.render.listing import format_list, list_model_lines
from klsym.render.printing import as_printed
from klsym.render.questions.sentences import READINGS
from klsym.render.sentences import write_sentence

MINUS_ONE = ExpPoly.from_number(-1)


def region(factors: tuple[ExpPoly, ...], free: tuple[ExpPoly, ...]) -> str:
    """Where the product of the factors is at least 0, or something free is 0; free: nowhere negative."""
    if any(not factor for factor in factors) or factors == (ONE,):
        return "everywhere"
    zero = " or ".join(f"{formulas.show_element(f)} = 0" for f in free)
    if factors == (MINUS_ONE,):
        return f"only where {zero}" if zero else "nowhere"
    if len(factors) == 1:
        shown = show_hypothesis(("nonnegative", SAMPLE, factors[0]), Context())
    else:
        shown = f"{'*'.join(_factor(factor) for factor in factors)} >= 0"
    return f"{shown} (or {zero})" if zero else shown


def _factor(value: ExpPoly) -> str:
    shown = formulas.show_element(value)
    return TEXT.bracket(shown) if is_sum(shown) else shown


class PrintedAnswer(Answer):
    """Is something the same for both losses, with the statement of its theorem."""

    @property
    def statement(self) -> str:
        """What is proved; empty where nothing is known."""
        return str(self.proof) if self.proof else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "same": self.same, "statement": self.statement, "trust": self.trust, "witness": self.witness,
        }  # fmt: skip


class PrintedSpread(Spread):
    """How two variances compare, with its formulas as text."""

    @property
    def measure(self) -> str:
        """The sampler, q or mu."""
        return self.pair.m

    @property
    def coefficients(self) -> tuple[str, str]:
        """a and b in print."""
        return formulas.show_element(self.pair.a), formulas.show_element(self.pair.b)

    @property
    def difference(self) -> str:
        """Of the variances; unless `exact`, of the second moments, from which `correction` is taken off."""
        return str(self.pair.gap)

    @property
    def correction(self) -> str:
        """E_m[a s]^2 - E_m[b s]^2; empty where the expected gradients agree."""
        if self.exact:
            return ""
        first, second = (f"{self.pair.build_mean(x)}^2" if x else "0" for x in (self.pair.a, self.pair.b))
        return f"({first} - {second})" if self.pair.b else first

    @property
    def region(self) -> str:
        """Where b^2 <= a^2."""
        return region(*self.pair.split.displayed_factors)

    @property
    def where(self) -> str:
        """The region of `regional`."""
        return show_hypothesis(self.assumed, Context()) if self.assumed else ""

    @property
    def where_at_a_sample(self) -> str:
        """The same, without the measure under which it holds."""
        return show_hypothesis(("nonnegative", SAMPLE, self.assumed[2]), Context()) if self.assumed else ""

    @property
    def finite(self) -> tuple[str, ...]:
        """The moments without which there are no variances."""
        times = " s^2" if self.pair.scored else ""
        given = (formulas.show_element(a) for a in dict.fromkeys((self.pair.a, self.pair.b)) if a)
        return tuple(f"E_{self.measure}[({a})^2{times}] is finite" for a in given)

    @staticmethod
    def witness(proof: Proof) -> dict[str, Any]:
        """The model behind a_less or b_less."""
        return describe_outcome_model(proof)

    def to_json(self) -> dict[str, Any]:
        in_region = self.regional and {
            "lower": self.regional_lower, "where": self.where, "statement": str(self.regional),
        }  # fmt: skip
        witnesses = [proof and describe_outcome_model(proof) for proof in (self.a_less, self.b_less)]
        return {
            "coefficients": list(self.coefficients), "under": self.measure, "exact": self.exact,
            "difference": self.difference, "correction": self.correction or None,
            "b_at_most_a_where": self.region, "lower": self.lower,
            "statement": str(self.order[-1]) if self.order else None,
            "in_region": in_region if self.exact else None,
            "second_moments_in_region": None if self.exact else in_region,
            "a_varies_less": witnesses[0], "b_varies_less": witnesses[1],
            "trust": "open" if self.lower == "open" else "kernel",
        }  # fmt: skip


class PrintedComparison(Comparison):
    """The answer of `compare`; it prints as text and shows itself in Jupyter."""

    value: PrintedAnswer
    per_sample: PrintedAnswer
    gradient: PrintedAnswer
    variance: PrintedSpread | None

    @property
    def undecided(self) -> tuple[str, ...]:
        """What is left open."""
        return tuple(map(write_sentence, self.open_questions))

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """What the theorems rest on; a region is named with the theorem that speaks of it."""
        found, moments = self.variance, self.variance.finite if self.variance else ()
        of_region = build_assumption(found.assumed, Context()) if found and found.assumed else None
        told = [x for proof in self.proofs for x in proof.assumptions if x != of_region]
        readings = (x for x in self.readings if x.code not in READINGS)
        told = drop_unused_definitions(
            (*readings, *told), [answer.statement for _, answer in self.named_answers]
        )
        return tuple(dict.fromkeys((*map(write_sentence, told), *moments)))

    @property
    def named_answers(self) -> list[tuple[str, PrintedAnswer]]:
        """The answers, and what they are about."""
        named = [("value", self.value), ("sample", self.per_sample)]
        return [*named, ("gradient", self.gradient)]

    def to_json(self) -> dict[str, Any]:
        """The object that `klsym compare --json` prints."""
        return {
            "losses": list(self.losses), **self.setting.to_json(),
            "value": self.value.to_json(), "per_sample": self.per_sample.to_json(),
            "expected_gradient": self.gradient.to_json(),
            "variance": self.variance.to_json() if self.variance else None,
            "trust": self.trust, "hypotheses": list(self.hypotheses), "undecided": list(self.undecided),
        }  # fmt: skip

    def text(self, proof: bool = False, full: bool = False, width: int = WIDTH) -> str:
        """The answer for a terminal, with what stands behind it if asked."""
        return comparison_text(self, proof, full, width)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from klsym.render.markup.parts import format_for_notebook
        from klsym.render.markup.questions import format_comparison_html

        return format_for_notebook(format_comparison_html(self))

    @property
    def summary(self) -> str:
        """What matters most: do both train the same policy, and which one is less noisy?"""
        return _sentence(self)

    def describe_variance(self) -> str:
        """Which of the two has the lower variance, and where."""
        spread = self.variance
        lower = spread.lower if spread else "equal" if self.per_sample.same else None
        if lower is None:
            return WORDS[None]
        where = f"; B is less noisy at a sample where {spread.region}" if spread and lower not in SAME else ""
        return f"{LOWER[lower]}{where}"


def printed(found: Comparison) -> PrintedComparison:
    """The comparison in the class that prints it, and so its answers and its variances."""
    names = ("value", "per_sample", "gradient")
    answers = {name: as_printed(PrintedAnswer, getattr(found, name)) for name in names}
    return as_printed(PrintedComparison, found, **answers, variance=printed_spread(found.variance))


def printed_spread(found: Spread | None) -> PrintedSpread | None:
    return as_printed(PrintedSpread, found) if found else None


WORDS = {True: "the same", False: "different", None: "not decided"}
SAME = ("A", "B", "equal")  # orders that hold in every model
LOWER = {
    "A": "A varies no more than B in any model",
    "B": "B varies no more than A in any model",
    "equal": "the same in every model",
    "depends": "neither is lower in every model",
    "open": "open: no order is proved, and no models were found both ways",
}


def comparison_text(
    found: PrintedComparison, proof: bool = False, full: bool = False, width: int = WIDTH
) -> str:
    """For a terminal: the answer; the models, counterexamples and hypotheses with `proof` or `full`."""
    rows, spread = found.named_answers, found.variance
    decided = spread or any(answer.same is not None for _, answer in rows)
    trust = (TRUST | {"open": "partly open"})[found.trust] if decided else "open"
    lines = [f"A = {found.losses[0]},  B = {found.losses[1]}: {_losses(found.setting)}"]
    lines += add_trust(_sentence(found), trust, width)
    read = [write_sentence(message) for message in found.readings if message.code in READINGS]
    labelled = [("read as", text) for text in read]
    for name, answer in rows:
        statement = f": {answer.statement}" if answer.statement else ""
        labelled.append((name, f"{WORDS[answer.same]}{statement}"))
    labelled.append(("variance", found.describe_variance()))
    if not (proof or full):
        labelled.append(("details", "--proof; --full"))
    lines += [line for name, text in labelled for line in add_label(name, text, width)]
    if not (proof or full):
        return "\n".join([*lines, *format_list("Not decided", found.undecided)])
    if spread:
        lines += _spread_lines(spread)
    for name, answer in rows:
        if answer.witness:
            lines += [
                "",
                f"Counterexample: {name}, {answer.witness['refutes']}",
                *list_model_lines(answer.witness),
            ]
    lines += format_list("Not decided", found.undecided) + format_list("Hypotheses", found.hypotheses)
    return "\n".join(lines)


def _losses(setting: Any) -> str:
    """on-policy losses at each token."""
    first, _, rest = describe_use(setting).partition(f" {setting.use}")
    return f"{first} {'losses' if setting.is_differentiated else 'rewards'}{rest}"


def _sentence(found: PrintedComparison) -> str:
    """What matters most: do both train the same policy, and which one is less noisy?"""
    start = {
        True: "The same expected gradient: training goes to the same policy",
        False: "Different expected gradients: training goes to different policies in general",
        None: "Not decided: whether the expected gradients agree is open",
    }[found.gradient.same]
    known = found.variance.lower if found.variance else None
    less = {
        "A": "; A is never noisier",
        "B": "; B is never noisier",
        "depends": "; neither is always less noisy",
    }
    return f"{start}{less.get(str(known), '') if found.gradient.same else ''}"


def _spread_lines(spread: PrintedSpread) -> list[str]:
    """The difference of the variances, where it is positive, and what is proved about its sign."""
    lines = ["", "Variance of the gradient at a sample (s stands for u.s, along any direction u)"]
    lines += [f"  grad {name} = {_times_s(c)}" for name, c in zip("AB", spread.coefficients, strict=True)]
    minus = f" - {spread.correction}" if spread.correction else ""
    lines += [f"  Var A - Var B = {spread.difference}{minus}"]
    if not spread.exact:
        lines += ["  where the first term is the difference of the second moments"]
    lines += [f"  B adds no more than A to the second moment at a sample: {spread.region}"]
    if spread.lower in ("A", "B"):
        lines += [f"  proved: {_ordered('Var', spread.lower)}"]
    lines += [f"  proved: {_theorem(proof)}" for proof in (*spread.signs, *spread.order) if _told(proof)]
    if spread.regional:
        what = "Var" if spread.exact else "E[(grad {})^2]"
        lines += [f"  proved: {_ordered(what, spread.regional_lower)} if {spread.where}"]
    for name, proof in (("A", spread.a_less), ("B", spread.b_less)):
        if proof:
            lines += _variance_lines(name, spread.witness(proof))
    return lines


def _ordered(what: str, lower: str) -> str:
    pair = ("A", "B") if lower == "A" else ("B", "A")
    return " <= ".join(what.format(name) if "{}" in what else f"{what} {name}" for name in pair)


def _told(proof: Any) -> bool:
    """Var A = Var B with one and the same formula on both sides says nothing."""
    statement = proof.theorem.statement
    return bool(statement.left != statement.right)


def _theorem(proof: Any) -> str:
    """Where a number would have to be 0 for both sides to be equal, they never are."""
    never = any(_is_never(zero) for zero in proof.theorem.zeros)
    return show_statement(proof.theorem.statement, proof.labels) if never else str(proof)


def _is_never(zero: Any) -> bool:
    varies = zero.constant or zero.score or zero.element.names() or zero.factor.names()
    return bool(not varies and zero.weight == ONE and zero.element)


def _times_s(coefficient: str) -> str:
    if coefficient in ("0", "1", "-1"):
        return {"0": "0", "1": "s", "-1": "-s"}[coefficient]
    return f"({coefficient})*s" if is_sum(coefficient) else f"{coefficient}*s"


def _variance_lines(name: str, witness: dict[str, Any]) -> list[str]:
    """A model; the left side of what it refutes is the larger variance."""
    high, low = show_interval(witness["left"]), show_interval(witness["right"])
    a, b = (low, high) if name == "A" else (high, low)
    return ["", f"{name} varies less here", *list_model_lines(witness)[:-1], f"  Var A = {a}, Var B = {b}"]
