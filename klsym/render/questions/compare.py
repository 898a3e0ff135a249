"""A comparison of two losses as text, and regions such as 2*k1 + 1 >= 0, that is r <= exp(1/2).

>>> k1 = ExpPoly.from_variable("k1")
>>> region((k1, k1 + 1), ()), region((ONE,), (k1,))
('k1*(k1 + 1) >= 0', 'everywhere')
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from klsym.engine.explain import explain_in_setting
from klsym.engine.proof.derivation import Proof
from klsym.engine.questions.comparison import Answer, Comparison, Multiple, NoiseAtOptimum
from klsym.engine.questions.variances import Spread, describe_outcome_model
from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import KlsymError
from klsym.kernel.names import SAMPLE
from klsym.kernel.ring import ONE, ExpPoly
from klsym.language.abbreviations import Context
from klsym.language.messages import Message
from klsym.notation import formulas
from klsym.notation.hypotheses import build_assumption, show_hypothesis
from klsym.notation.losses import show
from klsym.notation.printers import LATEX, TEXT, is_sum
from klsym.notation.text import show_theorem_latex
from klsym.render.answer import WIDTH
from klsym.render.details import drop_unused_definitions
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
        if self.instance is not None:
            left, right = self.instance.equation
            return f"{left} = {right}" if self.same else f"{left} != {right} in general"
        return str(self.proof) if self.proof else ""

    @property
    def statement_latex(self) -> str:
        """The same in LaTeX; empty where nothing is known."""
        if self.instance is not None:
            relation = " = " if self.same else r" \neq "
            return relation.join(formulas.show_side(x.side, x.labels, LATEX) for x in self.instance.equation)
        return show_theorem_latex(self.proof) if self.proof else ""

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
        """Of the variances; unless `exact`, of the second moments, minus `correction`."""
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
        instances = (answer.instance for _, answer in self.named_answers)
        values = (
            Message("values-in-model", values=tuple(one.values.items()))
            for one in instances
            if one and one.values
        )
        readings = (*values, *(x for x in self.readings if x.code not in READINGS))
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
            "losses": list(self.losses), **self._list_options(),
            "value": self.value.to_json(), "per_sample": self.per_sample.to_json(),
            "expected_gradient": self.gradient.to_json(),
            "multiple": self.multiple and _write_multiple(self.multiple),
            "variance": self.variance.to_json() if self.variance else None,
            "at_optimum": [_write_noise(end) for end in self.at_optimum if end] or None,
            "trust": self.trust, "hypotheses": list(self.hypotheses), "undecided": list(self.undecided),
        }  # fmt: skip

    def _list_options(self) -> dict[str, Any]:
        """The options of both losses; one that differs is None, and `settings` has all of each."""
        every = [setting.to_json() for setting in self.settings or (self.setting,)]
        shared = {name: x if all(one[name] == x for one in every) else None for name, x in every[0].items()}
        return {**shared, "settings": every} if self.settings else shared

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What each of the losses does; empty where one of them alone has no verdict."""
        try:
            settings = self.settings or (self.setting,) * len(self.written)
            return tuple(map(explain_in_setting, self.written, settings))
        except KlsymError:
            return ()

    def text(self, proof: bool = False, full: bool = False, width: int = WIDTH) -> str:
        """Format the answer for a terminal; with the proofs, or with all that is known, on request."""
        from klsym.render.questions.comparison_text import format_comparison, list_proof_lines

        behind = list_proof_lines(self) if proof or full else []
        return "\n".join([format_comparison(self, width, whole=full), *behind])

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from klsym.render.markup.parts import format_for_notebook
        from klsym.render.markup.questions import format_comparison_html

        return format_for_notebook(format_comparison_html(self))


def _write_multiple(multiple: Multiple) -> dict[str, Any]:
    """The constant by which alone the second expected gradient differs from the first, and its theorem."""
    proof = multiple.gradient.proof
    return {"factor": show(multiple.factor, TEXT), "statement": str(proof), "trust": multiple.gradient.trust}


def _write_noise(end: NoiseAtOptimum) -> dict[str, Any]:
    """The reward at the optimum of one loss, and whether its gradient is noisy there."""
    proof = end.proof
    return {
        "reward": formulas.show_element(end.reward), "noiseless": end.is_noiseless,
        "statement": str(proof) if proof else "", "trust": "kernel" if proof else "open",
        "witness": describe_outcome_model(end.noisy) if end.noisy else None,
    }  # fmt: skip


def printed(found: Comparison) -> PrintedComparison:
    """The comparison in the class that prints it, and so its answers and its variances."""
    names = ("value", "per_sample", "gradient")
    answers = {name: as_printed(PrintedAnswer, getattr(found, name)) for name in names}
    return as_printed(PrintedComparison, found, **answers, variance=printed_spread(found.variance))


def printed_spread(found: Spread | None) -> PrintedSpread | None:
    return as_printed(PrintedSpread, found) if found else None
