"""From a divergence to its losses, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from klsym.engine.divergences.f_divergence import list_divergence_messages
from klsym.notation.combination import format_combination
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.ratios import rewrite_in_r
from klsym.notation.text import show_interval
from klsym.render.divergences import build_generator_json, describe_at_reference, describe_convexity
from klsym.render.listing import align_columns, format_list
from klsym.render.objective import build_objective_formula
from klsym.render.sentences import write_sentence
from klsym.study.questions.divergence_losses import Descents, DivergenceLoss, WrongEstimate

TITLES = {
    "reverse-kl": "KL(q||p)",
    "forward-kl": "KL(p||q)",
    "jeffreys": "KL(q||p) + KL(p||q)",
    "pearson-chi2": "chi2(p||q) = E_q[(r - 1)^2]",
    "neyman-chi2": "chi2(q||p) = E_p[(1/r - 1)^2]",
    "squared-hellinger": "the sum of (sqrt(p) - sqrt(q))^2",
    "alpha": "alpha*(alpha - 1) times the alpha divergence",
    "jensen-shannon": "KL(q||m)/2 + KL(p||m)/2 with m = (p + q)/2",
}
TRUST = {"kernel": "proved", "sympy": "SymPy", "open": "open"}
MAX_WRONG = 3  # in a short answer
MORE = "more  --proof (hypotheses, a counterexample, all that looks right)"
USES = {"loss": "as a loss", "reward": "as a detached reward", "value": "as a value"}


def write_title(name: str | None, multiple: str) -> str:
    """jeffreys, KL(q||p) + KL(p||q)."""
    if name is None:
        return "E_q[f(r)]"
    times = "" if multiple == "1" else f"{multiple} times "
    title_text = TITLES.get(name)
    return f"{times}{name}" + (f", {title_text}" if title_text else "")


def describe_divergence(verdict: Any) -> str:
    """What a loss descends: a combination of named gradients, some E_q[f(r)], or another objective."""
    gradient, generator = verdict.gradient, verdict.objective.generator
    if gradient.target == "zero":
        return "nothing: the expected gradient is zero"
    if gradient.target in ("reverse-kl", "forward-kl", "combination"):
        return format_combination(gradient.multiples).replace("grad ", "")
    if generator is not None and generator.f is not None:
        return f"E_q[f(r)] with f = {TEXT(rewrite_in_r(generator.f))}"
    return (
        TEXT(build_objective_formula(verdict, TEXT))
        if verdict.objective.quantity is not None
        else "another objective"
    )


class PrintedDescents(Descents):
    """The answer of `klsym.divergence`; it prints as text and shows itself in Jupyter."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What descending it does that no divergence does."""
        return tuple(map(write_sentence, (*self.messages, *list_divergence_messages(self.shape))))

    @property
    def missing(self) -> tuple[str, ...]:
        """What has no formula in the loss grammar."""
        return tuple(map(write_sentence, self.no_formula))

    def to_json(self) -> dict[str, Any]:
        """All of it, with formulas as grammar strings."""
        return build_json(self)

    def text(self, proof: bool = False, full: bool = False) -> str:
        """The answer for a terminal, with hypotheses and all that is wrong if asked."""
        return format_descents(self, proof, full)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from klsym.render.markup.parts import format_for_notebook
        from klsym.study.render.html import format_divergence_html

        return format_for_notebook(format_divergence_html(self))


def list_hypotheses(row: DivergenceLoss) -> tuple[str, ...]:
    """Of a choice: for its gradient, and what its value assumes beside them."""
    gradient_hypotheses = row.proof.hypotheses
    value_hypotheses = row.value.proof.hypotheses if row.value.proof else ()
    return (
        *gradient_hypotheses,
        *(f"for the value: {line}" for line in value_hypotheses if line not in gradient_hypotheses),
    )


# ---------------------------------------------------------------------------- JSON
def build_json(found: PrintedDescents) -> dict[str, Any]:
    """What `klsym divergence --json` prints."""
    return {
        "divergence": found.name,
        "multiple": found.multiple,
        **build_generator_json(found.shape),
        "latex": LATEX(rewrite_in_r(found.shape.f)),
        "coefficient": found.coefficient,
        "values": [_choice_to_json(row) for row in found.values],
        "gradients": [_choice_to_json(row) for row in found.gradients],
        "wrong": [
            {"loss": w.loss, "sampling": w.sampling, "use": w.use, "descends": describe_divergence(w.verdict),
             "trust": w.trust, "witness": w.witness}
            for w in found.wrong
        ],
        "missing": list(found.missing),
        "warnings": list(found.warnings),
    }  # fmt: skip


def _choice_to_json(row: DivergenceLoss) -> dict[str, Any]:
    return {
        "loss": row.loss, "sampling": row.sampling, "use": row.use, "statement": row.equal,
        "trust": row.trust,
        "unbiased_value": row.unbiased, "hypotheses": list(list_hypotheses(row)),
    }  # fmt: skip


# ---------------------------------------------------------------------------- text
def format_descents(found: PrintedDescents, proof: bool = False, full: bool = False) -> str:
    """For a terminal: f, what estimates it, what descends it, what does not; hypotheses with `proof`."""
    shape, show_hypotheses = found.shape, proof or full
    convex = describe_convexity(shape.where, shape.is_divergence) or "whether it is convex is open"
    lines = [
        ": ".join(
            [
                *([write_title(found.name, found.multiple)] if found.name else []),
                f"E_q[f(r)] with f = {TEXT(rewrite_in_r(shape.f))}",
            ]
        ),
        f"  f         {convex}; {describe_at_reference(shape)}",
        f"  gradient  grad E_q[f(r)] = E_q[c s] with c = f - r f' = {found.coefficient}",
    ]
    lines += ["", "To estimate its value, with any number before r - 1 (0: never negative where f is convex)"]
    lines += _format_table([(row.sampling, "", row.loss, TRUST[row.trust]) for row in found.values])
    lines += [
        "",
        "To descend it (each is c s at a sample of q, rho c s at one of mu; on-policy rho is q/sg(q))",
    ]
    lines += _format_table(
        [(r.sampling, USES[r.use], r.loss, TRUST[r.trust], _describe_value(r)) for r in found.gradients]
    )
    lines += [f"  {line}" for line in found.missing]
    lines += ["", "What looks right and is not"] if found.wrong else []
    wrong = found.wrong if show_hypotheses else found.wrong[:MAX_WRONG]
    lines += _format_table([(w.sampling, USES[w.use], w.loss, _describe_refutation(w)) for w in wrong])
    if not show_hypotheses:
        return "\n".join([*lines, *format_list("Warnings", found.warnings[:1]), "", MORE])
    if found.wrong and found.wrong[0].witness:
        lines += ["", *_describe_model(found.wrong[0].witness)]
    lines += format_list(
        "Hypotheses", _join_rows(list_hypotheses(row) for row in (*found.values, *found.gradients))
    )
    return "\n".join(lines + format_list("Warnings", found.warnings))


def _describe_value(row: DivergenceLoss) -> str:
    return "its value is unbiased, too" if row.unbiased else ""


def _describe_refutation(wrong: WrongEstimate) -> str:
    word = {"kernel": "descends", "sympy": "descends"}.get(wrong.trust, "not shown to be wrong; descends")
    return f"{word} {describe_divergence(wrong.verdict)}"


def _format_table(rows: list[tuple[str, ...]]) -> list[str]:
    return [f"  {line}" for line in align_columns(rows)]


def _describe_model(model: dict[str, Any]) -> list[str]:
    rows = [f"  {name:<3} = ({', '.join(model[name])})" for name in ("q", "p", "mu", "u") if name in model]
    rows += [f"  {name} = {value}" for name, value in model.get("parameters", {}).items()]
    sides = (show_interval(model[side]) for side in ("left", "right"))
    return [f"Counterexample to {model['refutes']}", *rows, "  left side {}, right side {}".format(*sides)]


def _join_rows(rows: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line for row in rows for line in row))
