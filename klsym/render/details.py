"""What stands behind a short answer: all facts, the derivation, the counterexample, the hypotheses.

`klsym explain LOSS --proof` prints the last three, `--full` all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from klsym.diagnostics.conditions import select_notes
from klsym.engine.verdicts.verdict import Verdict
from klsym.language.messages import Message
from klsym.notation.combination import combination_text, value_text
from klsym.notation.printers import TEXT, is_sum
from klsym.notation.proof_latex import aligned
from klsym.notation.values import names
from klsym.render.divergences import functional_text, generated_text
from klsym.render.effects import effects_lines
from klsym.render.listing import in_short, listed, model_lines
from klsym.render.sentences import sentence, sentences
from klsym.render.words import is_objective

EFFECTS = "What descending it does"
LEVELS = {
    "token": (
        "_now is of one token given its prefix, _past and _future are sums over the tokens before and after"
        " it; KL(q||p) is that of whole sequences"
    ),
    "sequence": "k1, r, rho and s are those of a whole sequence; KL(q||p) is that of whole sequences",
}

MAX_BIAS = 6  # regions whose bias is listed; h is there for each


def proof_text(verdict: Any) -> str:
    """The derivation, the counterexample and the hypotheses."""
    lines = [*derivation_lines(verdict), *counterexample_lines(verdict.witness, verdict.setting.level)]
    return "\n".join(lines + listed("Hypotheses", hypotheses_of(verdict)))


def full_text(verdict: Any) -> str:
    """All facts, what descending it does, the parts, the notes, the proof."""
    rows = [f"  {name:<9} {text}" for name, text in gradient_rows(verdict)]
    lines = ["", "Gradient", *rows]
    lines += listed(EFFECTS, tuple(effects_lines(verdict.effects))) + listed("Parts", verdict.notes)
    lines += listed("Notes", sentences(select_notes(verdict.messages)))
    return "\n".join(lines) + "\n" + proof_text(verdict)


def value_line(verdict: Verdict) -> str:
    """What the expected value of the loss is."""
    names = {"reverse-kl": "KL(q||p)", "forward-kl": "KL(p||q)", "reward": ""}
    for name in ("reverse-kl", "forward-kl"):
        if verdict.unbiased_for(name):
            return f"unbiased for {names[name]}"
    if verdict.value.target is None:
        return "open"
    if verdict.value.target == "zero":
        return verdict.value_constant
    if verdict.value.target in ("f-divergence", "separable"):
        return "not an unbiased estimate of either KL"
    return value_text(verdict.value.multiples, verdict.value_constant)


def gradient_rows(verdict: Any) -> list[tuple[str, str]]:
    """What multiplies the score: where samples are drawn, under q, and what the letters stand for."""
    setting = verdict.setting
    tokens, batches = setting.level == "token", setting.batch != "none"
    place = "token" if tokens else "sequence" if setting.level == "sequence" else "sample"
    if verdict.h is None:
        return []
    rows = [("gradient", f"{_scored(verdict, tokens, batches)} at each {place}")]
    if verdict.per_sample_cases:
        lead = f"{'h' if verdict.scores_named[0] else 'h s'} at each {place}, with h ="
        rows = _case_rows("gradient", lead, verdict.per_sample_cases)
    rows += _under_q_rows(verdict, tokens)
    unnamed = verdict.gradient.target in ("separable", "none", None) and not is_objective(verdict)
    if verdict.shown and unnamed and not verdict.coefficient_cases:
        rows.append(("equals", verdict.shown))
    if verdict.implied is not None and not verdict.shown:
        rows.append(("objective", verdict.format_implied(TEXT)))
    if verdict.generated is not None and verdict.gradient.target not in ("reverse-kl", "forward-kl"):
        rows.append(("that is", generated_text(verdict.generated)))
    if verdict.functional is not None and (convex := functional_text(verdict.functional)):
        rows.append(("as such", convex))
    if verdict.expansion:
        rows.append(("reads", verdict.expansion))
    if setting.level in LEVELS:
        rows.append(("level", LEVELS[setting.level]))
    return rows + _clamp_rows(verdict, tokens)


def _under_q_rows(verdict: Any, tokens: bool) -> list[tuple[str, str]]:
    """The coefficient c of the score, for samples from q."""
    mean = "E_q[sum_t c]" if verdict.scores_named[1] else "E_q[sum_t c s_now]"
    if verdict.coefficient_cases and tokens:
        return [("in q", f"{mean} with c = {_over_weights(verdict)}")]
    if verdict.coefficient_cases:
        return _case_rows("in q", "E_q[c s] with c =", verdict.coefficient_cases)
    if verdict.coefficient is None:
        return []
    mean = mean if tokens or verdict.scores_named[1] else "E_q[c s]"
    return [("in q", f"{mean} with c = {verdict.coefficient}")]


def _clamp_rows(verdict: Any, tokens: bool) -> list[tuple[str, str]]:
    """What is minimised where no bound binds, and what the bounds change elsewhere."""
    rows = []
    if verdict.inside_clamps:
        inside = verdict.inside_clamps
        rest = inside.complete.get("rest", "") if tokens else ""
        known = combination_text({k: v for k, v in inside.complete.items() if k != "rest" or not rest})
        mean = "E_q[sum_t c]" if inside.names_scores else "E_q[sum_t c s_now]"
        shown = f"{mean} with c = {rest}" if rest else known or str(inside.target)
        shown += f", beside {known}" if rest and known != "0" else ""
        rows.append(("clamps", f"where no bound binds: {shown}"))
    if verdict.bias_cases:
        under, over = "q" if verdict.setting.on_policy else "mu", "sum_t b s_now" if tokens else "b s"
        over = ("sum_t b" if tokens else "mean_i b") if verdict.scores_named[0] else over
        told = f"outside the clamps: E_{under}[{over}] with b "
        many = f"{told}what h is there less what it is inside, in {len(verdict.bias_cases)} regions"
        few = len(verdict.bias_cases) <= MAX_BIAS
        rows += _case_rows("bias", f"{told}=", verdict.bias_cases) if few else [("bias", many)]
    return rows


def _over_weights(verdict: Any) -> str:
    """c of tokens from h of the cases: h, over the weights that bring what is drawn from q to mu."""
    if verdict.setting.on_policy:
        return "h"
    beyond = "*rho_future" if "log_mu[future]" in names(verdict.c) else ""
    return f"h/(rho_past*rho_now{beyond})"


def _case_rows(name: str, lead: str, cases: Any) -> list[tuple[str, str]]:
    from klsym.notation.cases import lines

    return [(name, lead), *(("", f"  {line}") for line in lines(cases))]


def _scored(verdict: Any, tokens: bool, batches: bool) -> str:
    """The per-sample coefficient times its score, unless it names its scores itself."""
    if not verdict.pushes or verdict.scores_named[0]:
        return verdict.per_sample
    slot = "_now" if tokens else "_self" if batches else ""
    return _product(verdict.per_sample) + slot


def _product(coefficient: str) -> str:
    if coefficient == "1":
        return "s"
    return f"({coefficient}) s" if is_sum(coefficient) else f"{coefficient} s"


# ---------------------------------------------------------------------------- derivation and counterexample
def derivation_lines(verdict: Any) -> list[str]:
    if not verdict.steps:
        return []
    width, lines = max(len(text) for _, text, _ in verdict.steps), ["", "Derivation"]
    for position, (rule, text, _) in enumerate(verdict.steps):
        sign = "  " if position == 0 else "= "
        lines.append(f"  {sign}{text:<{width}}  {rule}".rstrip())
    return lines


def derivation_latex(verdict: Any) -> str:
    """The derivation as one aligned block."""
    return aligned([(latex, rule) for rule, _, latex in verdict.steps])


def counterexample_lines(witness: dict[str, Any] | None, level: str = "sample") -> list[str]:
    if witness is None:
        return []
    of = "; each outcome is a whole sequence" * (level == "sequence" and "tree" not in witness)
    of = ", which holds for gradients" * ("v" in witness.get("tree", witness)) + of
    return ["", f"Counterexample to {witness['refutes']}{of}", *model_lines(witness)]


# ---------------------------------------------------------------------------- hypotheses
DEFINED = ("region", "log", "let")  # what names stand for


def hypotheses_of(verdict: Any) -> tuple[str, ...]:
    """Of the gradient, and of the value what those do not say; regions that a reader meets (JSON has all)."""
    return (*in_short(met(verdict.assumptions, _told(verdict))), *hypotheses_of_value(verdict))


def _told(verdict: Any) -> list[str]:
    """The lines whose names need a definition."""
    rows = [text for _, text in gradient_rows(verdict)]
    return [*rows, *derivation_lines(verdict), *verdict.notes, *counterexample_lines(verdict.witness)]


def met(assumptions: Iterable[Message], lines: Iterable[str]) -> list[Message]:
    """Without the names that stand neither in these lines nor in the other assumptions."""
    others = [x for x in assumptions if x.code not in DEFINED]
    told = "\n".join((*lines, *in_short(others)))
    return [
        x for x in assumptions if x.code not in DEFINED or re.search(rf"\b{x.values['of']}(?![0-9a-z])", told)
    ]


def hypotheses_of_value(verdict: Any) -> tuple[str, ...]:
    """What the value assumes beside the gradient; a divergence that both name brings its support once."""
    own, standing = verdict.assumptions, [x.values for x in verdict.assumptions if x.code == "means-exist"]
    named = {pair for values in standing for pair in values["supports"]}

    def is_said(message: Message) -> bool:
        if message.code == "means-exist":
            of = message.values
            more = any(
                x["over_t"] == of["over_t"] and {*of["supports"]} <= {*x["supports"]} for x in standing
            )
            return more or not (of["over_t"] or of["supports"])
        return message in own or (message.code == "support" and tuple(message.values.values()) in named)

    return tuple(f"for the value: {sentence(x)}" for x in verdict.value.assumptions if not is_said(x))
