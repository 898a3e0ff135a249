"""The details of an answer: all facts, the derivation, the counterexample, the hypotheses.

`klsym explain LOSS --proof` prints the last three, `--full` all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from klsym.engine.options.choices import is_of_sequence
from klsym.engine.verdicts.verdict import WITHOUT_NAME, Verdict
from klsym.language.messages import Message
from klsym.notation.combination import format_combination, format_value
from klsym.notation.decimals import choose_decimals
from klsym.notation.printers import TEXT, is_sum
from klsym.notation.text import align_rows
from klsym.notation.values import collect_names
from klsym.render.divergences import describe_convexity_in_q, describe_effects, describe_generator
from klsym.render.listing import combine_hypotheses, format_list, list_model_lines
from klsym.render.objective import build_objective_formula
from klsym.render.option_words import LEVELS, find_words
from klsym.render.sentences import write_sentence
from klsym.render.words import CLIP_RANGE, describe_place, is_objective

if TYPE_CHECKING:
    from klsym.render.verdict import PrintedVerdict

EFFECTS = "What descending it does"

OLD_KLS = {"-log(rho)/rho": "KL(mu||q)", "log(rho)": "KL(q||mu)"}  # by their means under q
MAX_BIAS = 6  # regions whose bias is listed; h is there for each


def format_proof(verdict: PrintedVerdict) -> str:
    """Format the derivation, the counterexample and the hypotheses."""
    write = choose_decimals(verdict.loss.texts)
    lines = [
        *list_derivation_lines(verdict),
        *list_counterexample_lines(verdict.counterexample.model, verdict.setting.level, write),
    ]
    hypotheses = tuple(map(write, hypotheses_of(verdict)))
    return "\n".join(lines + format_list("Hypotheses", hypotheses))


def format_all_facts(verdict: PrintedVerdict) -> str:
    """Format all facts, the effects of descent, the parts, the notes and the proof."""
    rows = [f"  {name:<9} {text}" for name, text in list_gradient_rows(verdict)]
    lines = ["", "Gradient", *rows]
    lines += format_list(EFFECTS, tuple(describe_effects(verdict.objective.effects)))
    lines += format_list("Parts", verdict.notes)
    return "\n".join(map(choose_decimals(verdict.loss.texts), lines)) + "\n" + format_proof(verdict)


def name_old_kl(verdict: Verdict) -> str:
    """Return the KL between the policy and the older one that draws the samples, if it is the value; or "".

    E_mu[-log(rho)] = E_q[-log(rho)/rho] = KL(mu||q), and E_mu[rho*log(rho)] = E_q[log(rho)] = KL(q||mu).
    """
    value = verdict.value
    is_single = value.target == "objective" and [*value.complete] == ["rest"] and value.constant_text == "0"
    return OLD_KLS.get(str(value.complete["rest"]), "") if is_single else ""


def describe_value(verdict: Verdict) -> str:
    """Describe the expected value of the loss."""
    if of_old := name_old_kl(verdict):
        return f"unbiased for {of_old}"
    kl_names = {"reverse-kl": "KL(q||p)", "forward-kl": "KL(p||q)", "reward": ""}
    for name in ("reverse-kl", "forward-kl"):
        if verdict.value.is_unbiased_for(name):
            return f"unbiased for {kl_names[name]}"
    if verdict.value.target is None:
        return "open"
    if verdict.value.target == "zero":
        return verdict.value.constant_text
    if verdict.value.target in ("f-divergence", "objective"):
        return "not an unbiased estimate of either KL"
    return format_value(verdict.value.multiples, verdict.value.constant_text)


def list_gradient_rows(verdict: PrintedVerdict) -> list[tuple[str, str]]:
    """Return labelled rows on the score coefficient: under the sampler, under q, inside the clip range."""
    setting = verdict.setting
    tokens, batches = setting.is_per_token, setting.is_centred
    if verdict.gradient.score_coefficient is None:
        return []
    rows = [("gradient", f"{_multiply_by_score(verdict, tokens, batches)} at each {setting.level}")]
    if verdict.gradient.score_cases:
        lead = f"{'h' if verdict.gradient.scores_named[0] else 'h s'} at each {setting.level}, with h ="
        rows = _list_case_rows("gradient", lead, verdict.gradient.score_cases)
    rows += _list_rows_under_q(verdict, tokens)
    unnamed = verdict.gradient.target in (*WITHOUT_NAME, "no-objective", None) and not is_objective(verdict)
    if verdict.gradient.quantities_text and unnamed and not verdict.gradient.canonical_cases:
        rows.append(("equals", verdict.gradient.quantities_text))
    if verdict.objective.quantity is not None and not verdict.gradient.quantities_text:
        rows.append(("objective", TEXT(build_objective_formula(verdict, TEXT))))
    if verdict.objective.generator is not None and verdict.gradient.target not in (
        "reverse-kl",
        "forward-kl",
    ):
        rows.append(("that is", describe_generator(verdict.objective.generator)))
    if verdict.objective.convexity is not None and (
        convex := describe_convexity_in_q(verdict.objective.convexity)
    ):
        rows.append(("as such", convex))
    if verdict.loss.expansion:
        rows.append(("reads", verdict.loss.expansion))
    if meaning := find_words(LEVELS, "level", setting.level).names:
        rows.append(("level", meaning))
    return rows + _list_clamp_rows(verdict, tokens)


def _list_rows_under_q(verdict: PrintedVerdict, tokens: bool) -> list[tuple[str, str]]:
    """Return the rows on the canonical coefficient c, for samples from q."""
    mean = "E_q[sum_t c]" if verdict.gradient.scores_named[1] else "E_q[sum_t c s_now]"
    if verdict.gradient.canonical_cases and tokens:
        return [("in q", f"{mean} with c = {_divide_by_weights(verdict)}")]
    if verdict.gradient.canonical_cases:
        return _list_case_rows("in q", "E_q[c s] with c =", verdict.gradient.canonical_cases)
    if verdict.gradient.canonical_text is None:
        return []
    mean = mean if tokens or verdict.gradient.scores_named[1] else "E_q[c s]"
    return [("in q", f"{mean} with c = {verdict.gradient.canonical_text}")]


def _list_clamp_rows(verdict: PrintedVerdict, tokens: bool) -> list[tuple[str, str]]:
    """Return the rows on the loss inside the clip range, and on the bias outside it."""
    rows = []
    if verdict.gradient.inside_clamps:
        inside = verdict.gradient.inside_clamps
        remainder = inside.complete.get("rest", "") if tokens else ""
        known = format_combination({k: v for k, v in inside.complete.items() if k != "rest" or not remainder})
        mean = "E_q[sum_t c]" if inside.names_scores else "E_q[sum_t c s_now]"
        shown = f"{mean} with c = {remainder}" if remainder else known or str(inside.target)
        shown += f", beside {known}" if remainder and known != "0" else ""
        rows.append(("clamps", f"{describe_place(verdict)}: {shown}"))
    if verdict.gradient.bias_cases:
        under, over = "q" if verdict.setting.on_policy else "mu", "sum_t b s_now" if tokens else "b s"
        over = ("sum_t b" if tokens else "mean_i b") if verdict.gradient.scores_named[0] else over
        place = "outside the clip range" if describe_place(verdict) == CLIP_RANGE else "elsewhere"
        lead = f"{place}: E_{under}[{over}] with b "
        count_text = (
            f"{lead}what h is there less what it is inside, in {len(verdict.gradient.bias_cases)} regions"
        )
        few = len(verdict.gradient.bias_cases) <= MAX_BIAS
        rows += (
            _list_case_rows("bias", f"{lead}=", verdict.gradient.bias_cases)
            if few
            else [("bias", count_text)]
        )
    return rows


def _divide_by_weights(verdict: PrintedVerdict) -> str:
    """Return c at tokens as text: h over the importance weights."""
    if verdict.setting.on_policy:
        return "h"
    beyond = (
        "*rho_future" if "log_mu[future]" in collect_names(verdict.gradient.canonical_coefficient) else ""
    )
    return f"h/(rho_past*rho_now{beyond})"


def _list_case_rows(name: str, lead: str, cases: Any) -> list[tuple[str, str]]:
    from klsym.notation.values import format_lines

    return [(name, lead), *(("", f"  {line}") for line in format_lines(cases))]


def _multiply_by_score(verdict: PrintedVerdict, tokens: bool, batches: bool) -> str:
    """Return the per-sample coefficient times its score, unless it contains scores."""
    if not verdict.gradient.is_nonzero or verdict.gradient.scores_named[0]:
        return verdict.gradient.score_text
    slot = "_now" if tokens else "_self" if batches else ""
    return _format_product(verdict.gradient.score_text) + slot


def _format_product(coefficient: str) -> str:
    if coefficient == "1":
        return "s"
    return f"({coefficient}) s" if is_sum(coefficient) else f"{coefficient} s"


# ---------------------------------------------------------------------------- derivation and counterexample
def list_derivation_lines(verdict: PrintedVerdict) -> list[str]:
    if not verdict.proof.steps:
        return []
    write = choose_decimals(verdict.loss.texts)
    steps = [(rule, write(text)) for rule, text, _ in verdict.proof.steps]
    width, lines = max(len(text) for _, text in steps), ["", "Derivation"]
    for position, (rule, text) in enumerate(steps):
        sign = "  " if position == 0 else "= "
        lines.append(f"  {sign}{text:<{width}}  {rule}".rstrip())
    return lines


def derivation_latex(verdict: PrintedVerdict) -> str:
    """Return the derivation as one aligned block of LaTeX."""
    return align_rows([(latex, rule) for rule, _, latex in verdict.proof.steps])


def list_counterexample_lines(
    witness: dict[str, Any] | None, level: str = "sample", write: Callable[[str], str] = str
) -> list[str]:
    """Return what the model refutes, then the model; with directions u and v, its two sides are a curl.

    write: writes the numbers of a formula; those of the model stay exact.
    """
    if witness is None:
        return []
    of = "; each outcome is a whole sequence" * (is_of_sequence(level) and "tree" not in witness)
    of = ", which holds for gradients" * ("v" in witness.get("tree", witness)) + of
    return ["", f"Counterexample to {write(witness['refutes'])}{of}", *list_model_lines(witness)]


# ---------------------------------------------------------------------------- hypotheses
DEFINED = ("region", "log", "let")  # messages that define a name


def hypotheses_of(verdict: PrintedVerdict) -> tuple[str, ...]:
    """Return the hypotheses of the gradient, and the further ones of the value (JSON lists all regions)."""
    return (
        *combine_hypotheses(drop_unused_definitions(verdict.assumptions, _collect_lines(verdict))),
        *list_value_hypotheses(verdict),
    )


def _collect_lines(verdict: PrintedVerdict) -> list[str]:
    """Collect the printed lines, whose names need a definition."""
    rows = [text for _, text in list_gradient_rows(verdict)]
    return [
        *rows,
        *list_derivation_lines(verdict),
        *verdict.notes,
        *list_counterexample_lines(verdict.counterexample.model),
    ]


def drop_unused_definitions(assumptions: Iterable[Message], lines: Iterable[str]) -> list[Message]:
    """Drop definitions of names that occur neither in these lines nor in the other assumptions."""
    conditions = [x for x in assumptions if x.code not in DEFINED]
    text = "\n".join((*lines, *combine_hypotheses(conditions)))
    return [
        x for x in assumptions if x.code not in DEFINED or re.search(rf"\b{x.values['of']}(?![0-9a-z])", text)
    ]


def list_value_hypotheses(verdict: PrintedVerdict) -> tuple[str, ...]:
    """Return the hypotheses of the value that are not hypotheses of the gradient."""
    gradient_assumptions, existence_of_means = (
        verdict.assumptions,
        [x.values for x in verdict.assumptions if x.code == "means-exist"],
    )
    named = {pair for values in existence_of_means for pair in values["supports"]}

    def is_stated(message: Message) -> bool:
        if message.code == "means-exist":
            of = message.values
            is_covered = any(
                x["over_t"] == of["over_t"] and {*of["supports"]} <= {*x["supports"]}
                for x in existence_of_means
            )
            return is_covered or not (of["over_t"] or of["supports"])
        return message in gradient_assumptions or (
            message.code == "support" and tuple(message.values.values()) in named
        )

    return tuple(f"for the value: {write_sentence(x)}" for x in verdict.value.assumptions if not is_stated(x))
