"""From a divergence to its losses, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from klsym.engine.divergences.f_divergence import list_divergence_messages
from klsym.errors import spell_switch
from klsym.notation.combination import format_combination
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.ratios import rewrite_in_r
from klsym.notation.text import show_interval
from klsym.render.answer import WIDTH
from klsym.render.divergences import build_generator_json, describe_at_reference, describe_convexity
from klsym.render.listing import align_columns, format_list
from klsym.render.objective import build_objective_formula
from klsym.render.questions.layout import format_rows
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
MARK = " (its value is unbiased, too)"
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

    def text(self, proof: bool = False, full: bool = False, width: int = WIDTH) -> str:
        """Format the answer for a terminal, with hypotheses and all that is wrong if asked."""
        return format_descents(self) if proof or full else format_short(self, width)

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
def format_short(found: PrintedDescents, width: int = WIDTH) -> str:
    """Format the divergence, the losses that descend and estimate it, and those that do not."""
    shape = found.shape
    samplers = dict.fromkeys(row.sampling for row in found.gradients)
    title = f"losses that minimise {write_title(found.name, found.multiple)}, {' and '.join(samplers)}"
    convex = describe_convexity(shape.where, shape.is_divergence) or "whether it is convex is open"
    update = f"E_q[f(r)] with f = {TEXT(rewrite_in_r(shape.f))}, {convex}; {describe_at_reference(shape)}"
    rows: list[tuple[str, str]] = []
    for use in ("loss", "reward"):
        rows += _list_by_sampling(use, [row for row in found.gradients if row.use == use], samplers)
    rows += [("note", text) for text in found.missing]
    rows += _list_by_sampling("value", found.values, samplers)
    wrong = [f"{w.loss} ({w.sampling} {USES[w.use]}: {describe_divergence(w.verdict)})" for w in found.wrong]
    rows += [("not", text) for text in wrong[:1]]
    rows += [("note", text) for text in found.warnings[:1]]
    trust = max((row.trust for row in found.gradients), key=[*TRUST].index, default="open")
    details, more = spell_switch("proof"), spell_switch("full")
    return format_rows(title, update, TRUST[trust], rows, details=details, more=more, width=width)


def _list_by_sampling(
    label: str, found: Sequence[DivergenceLoss], samplers: Iterable[str]
) -> list[tuple[str, str]]:
    """Return a row for each sampler; losses whose value is unbiased, too, are marked."""
    rows: list[tuple[str, str]] = []
    for sampling in samplers:
        losses = [f"{row.loss}{MARK * _is_marked(row)}" for row in found if row.sampling == sampling]
        if losses:
            rows.append(("" if rows else label, f"{sampling}: {', or '.join(losses)}"))
    return rows


def _is_marked(row: DivergenceLoss) -> bool:
    return row.use != "value" and bool(row.unbiased)


def format_descents(found: PrintedDescents) -> str:
    """Format all of it in tables: f, what estimates it, what descends it, what does not; the hypotheses."""
    shape = found.shape
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
    lines += _format_table([(w.sampling, USES[w.use], w.loss, _describe_refutation(w)) for w in found.wrong])
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
