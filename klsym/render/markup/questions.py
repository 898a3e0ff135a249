"""Comparisons, recommendations and diagnostic codes as HTML, with formulas as MathML.

>>> from klsym.api import compare
>>> "the same" in format_comparison_html(compare("k1", "k3"))
True
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from klsym.diagnostics.codes import Code
from klsym.render.answer import describe_verdict
from klsym.render.headline import name_trust
from klsym.render.markup.parts import (
    TRUST,
    Link,
    format_badge,
    format_code,
    format_folded,
    format_items,
    format_rows,
    format_table,
    typeset_latex,
    typeset_loss,
    write_formula_alone,
)
from klsym.render.questions.comparison_text import (
    describe_training,
    list_noise,
    list_noise_at_optimum,
    list_proof_lines,
    list_uses,
)

if TYPE_CHECKING:
    from klsym.render.questions.compare import PrintedAnswer, PrintedComparison
    from klsym.render.questions.recommend import PrintedRecommendation

SAME = {True: "the same", False: "different", None: "not decided"}


def format_comparison_html(comparison: PrintedComparison) -> str:
    """Both losses as formulas, what each minimises, and in what they agree; the proof can be unfolded."""
    first, second = map(typeset_loss, comparison.losses)
    trust = TRUST.get(comparison.gradient.trust, "open")
    verdict_line = f"<b>{escape(describe_training(comparison))}</b> {format_badge(trust)}"
    letters = {"A": "A", "B": "B"}
    rows = [
        (name, f"{escape(describe_verdict(verdict))} {format_badge(name_trust(verdict))}")
        for name, verdict in zip(letters, comparison.verdicts, strict=bool(comparison.verdicts))
    ]
    rows += [(name, escape(text)) for name, text in list_uses(comparison, ("A", "B"))]
    rows += [(name, _format_answer(answer)) for name, answer in comparison.named_answers]
    rows += [(name, escape(text)) for name, text in list_noise(comparison, letters)]
    rows += [(name, escape(text)) for name, text in list_noise_at_optimum(comparison, ("A", "B"))]
    undecided = f"<p>Not decided:</p>{format_items(comparison.undecided)}" if comparison.undecided else ""
    behind = "\n".join(list_proof_lines(comparison)).strip("\n")
    return (
        f'<header><p class="loss">A = {first}, &ensp;B = {second}</p>'
        f'<p class="does">{verdict_line}</p></header>'
        f"{format_rows(rows)}{undecided}{format_folded('Proof', format_code(behind))}"
    )


def _format_answer(answer: PrintedAnswer) -> str:
    statement = typeset_latex(answer.statement_latex) if answer.proof else ""
    return f"{SAME[answer.same]}{': ' * bool(statement)}{statement}"


def format_recommendation_html(
    recommendation: PrintedRecommendation, framework: str = "torch", link: Link = write_formula_alone
) -> str:
    """The code of the first choice, the other choices, and losses that look right and are not."""
    rows, options = recommendation.to_json(), _list_options(recommendation)
    title = recommendation.text(framework).splitlines()[0]
    code = format_code(recommendation.snippet(framework)) if recommendation.choices else ""
    choices = (
        (
            _format_choice(row, options, link), format_badge(TRUST[row["trust"]]),
            escape(row["value"]), escape("; ".join(row["needs"])),
        )
        for row in rows["choices"]
    )  # fmt: skip
    wrong = ((_format_choice(row, options, link), escape(row["reason"])) for row in rows["not"])
    table = format_table(("write", "", "its value is", "it needs"), choices)
    tempting = format_table(("loss", "its target"), wrong)
    return f'<header><p class="does"><b>{escape(title)}</b></p></header>{code}{table}' + (
        f"<p><b>Losses that look right and are not</b></p>{tempting}" if tempting else ""
    )


def _list_options(recommendation: PrintedRecommendation) -> dict[str, str]:
    use = {} if recommendation.use == "value" else {"use": recommendation.use}
    return {"sampling": recommendation.setting.sampling, "level": recommendation.setting.level, **use}


def _format_choice(row: Mapping[str, Any], options: Mapping[str, str], link: Link) -> str:
    options_of_row = {name: row[name] for name in ("credit", "weights") if row.get(name)}
    words = "".join(f" <small>{escape(f'{name} {value}')}</small>" for name, value in options_of_row.items())
    return link(row["loss"], {**options, **options_of_row}, typeset_loss(row["loss"])) + words


def format_code_html(code: Code, link: Link = write_formula_alone) -> str:
    """The page of a diagnostic code, with its examples."""
    example, instead = (
        link(one.loss, one.options, f"<code>{escape(one.words)}</code>") for one in (code.example, code.write)
    )
    return format_rows(
        [
            ("means", escape(code.means)), ("matters", escape(code.matters)),
            ("example", example), ("write", instead),
        ]
    )  # fmt: skip
