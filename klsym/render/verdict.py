"""The verdict as text, Markdown, LaTeX and HTML: the answer first, then the derivation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from klsym.notation import formulas
from klsym.notation.combination import combination_text, value_text
from klsym.notation.latex import aligned
from klsym.notation.spelling import LATEX, is_sum
from klsym.notation.text import STANDING
from klsym.notation.values import names, shown
from klsym.render.divergences import functional_text, generated_text, generated_warnings
from klsym.render.effects import effects_lines
from klsym.render.listing import in_short, listed, model_lines

TARGETS = {
    "zero": "nothing: the expected gradient is zero",
    "reverse-kl": "the reverse KL, KL(q||p)",
    "forward-kl": "the forward KL, KL(p||q)",
    "combination": "a combination",
    "f-divergence": "neither KL nor a combination of the two: some E_q[f(r)]",
    "separable": "neither KL nor a combination of the two, and it depends on more than r = p/q",
    "none": "no objective: the expected gradient is the gradient of no function",
    None: "open: neither a named objective nor shown to be none",
}
TRUST = {
    "kernel": "proved, replayed by the kernel",
    "sympy": "rests on SymPy (outside the decidable core)",
    "numeric": "supported by numbers only, not proved",
}
EFFECTS = "What descending it does"
LEVELS = {
    "token": (
        "_now is of one token given its prefix, _past and _future are sums over the tokens before and after"
        " it; KL(q||p) is that of whole sequences"
    ),
    "sequence": "k1, r, rho and s are those of a whole sequence; KL(q||p) is that of whole sequences",
}


class VerdictView:
    """What a verdict shows, and how it shows itself: as text, and in Jupyter."""

    loss: str
    setting: Any
    h: Any
    c: Any
    gradient: Any
    value: Any
    constant: Any
    trust: str
    hypotheses: tuple[str, ...]
    proofs: tuple[Any, ...]
    steps: Sequence[tuple[str, str, str]]
    inside_clamps: Any
    warnings: tuple[str, ...]
    check: dict[str, Any] | None
    per_sample_cases: Any
    coefficient_cases: Any
    bias_cases: Any
    implied: Any
    generated: Any
    functional: Any
    effects: Any
    scores_named: tuple[bool, bool]
    instead: Any
    shown: str
    notes: tuple[str, ...]
    terms: tuple[Any, ...]
    expansion: str | None

    @property
    def witness(self) -> dict[str, Any] | None:
        """A finite model that refutes the target a reader may expect."""
        return None

    @property
    def objective(self) -> str | None:
        """LaTeX of the implied objective, where it has a name."""
        return None

    @property
    def pushes(self) -> bool:
        """Is h other than 0 at some sample?"""
        return any(self.h.values()) if isinstance(self.h, Mapping) else bool(self.h)

    @cached_property
    def per_sample(self) -> str:
        """h in print."""
        return shown(self.h)

    @cached_property
    def coefficient(self) -> str | None:
        """c in print."""
        return None if self.c is None else shown(self.c)

    @property
    def coefficient_latex(self) -> str:
        return "" if self.c is None else shown(self.c, LATEX)

    @property
    def value_constant(self) -> str:
        """The constant in print."""
        return "" if self.constant is None else shown(self.constant)

    def unbiased_for(self, name: str) -> bool:
        """Is the value an unbiased estimate of this KL ("reverse-kl" or "forward-kl")?"""
        return (
            self.value.target == name
            and self.value.single
            and self.constant is not None
            and not self.constant
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """What to write in place of a loss that is no KL penalty."""
        return (f"instead: {self.instead}",) if self.instead else ()

    def cases_json(self) -> list[dict[str, str]] | None:
        """What multiplies the score where, as text; None for a coefficient that has no cases."""
        from klsym.notation.cases import value, where

        both = zip(self.per_sample_cases, self.coefficient_cases, strict=False)
        rows = [
            {"where": where(on), "per_sample": value(h), "coefficient": value(c)} for (on, h), (_, c) in both
        ]
        return rows or None

    def __str__(self) -> str:
        return verdict_text(self)

    __repr__ = __str__

    @property
    def brief(self) -> str:
        """The answer without its derivation and hypotheses: the target, a counterexample, the warnings."""
        lines = [*_facts(self), *listed("Terms", term_lines(self)), *listed("Parts", self.notes)]
        lines += _witness_lines(self.witness, self.setting.level) + listed("Warnings", unsaid(self))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return verdict_html(self)

    def _repr_latex_(self) -> str | None:
        return f"$$\n{derivation_latex(self)}\n$$" if self.steps else None


def headline(verdict: VerdictView) -> str:
    """The verdict in one line."""
    verb = "is" if verdict.gradient.target is None else "targets"
    return f"{verdict.loss}  ({', '.join(setting_words(verdict.setting))}) {verb} {target_words(verdict)}"


def setting_words(setting: Any, of: tuple[str, str] = ("as a loss", "as a detached reward")) -> list[str]:
    """How a loss is used, in words; of: how one that is differentiated and one that is detached is called."""
    words = [setting.sampling, of[setting.use == "reward"]]
    words += {"token": ["per token"], "sequence": ["per sequence"]}.get(setting.level, [])
    words += [f"credit {setting.credit}"] if setting.credit else []
    words += [f"{setting.weights} weights"] if setting.weights not in ("", "token") else []
    words += {"mean": ["over T"], "batch": ["over all tokens of the batch"]}.get(setting.aggregate, [])
    return words + ([f"batch {setting.batch}"] if setting.batch != "none" else [])


def target_words(verdict: VerdictView, of: Any = None) -> str:
    """What is targeted, in words; of: the meaning of another gradient, such as that inside the clamps."""
    gradient = verdict.gradient if of is None else of
    if of is None and _is_objective(verdict):
        return verdict.shown
    if gradient.target not in ("reverse-kl", "forward-kl", "combination"):
        return TARGETS[gradient.target]
    return TARGETS[gradient.target] if gradient.single else combination_text(gradient.multiples)


def reason(verdict: VerdictView) -> str:
    """What the target is, in words and as a formula: why a loss is not what was asked for."""
    if verdict.gradient.target == "f-divergence" and verdict.generated is not None:
        return generated_text(verdict.generated)
    if verdict.gradient.target == "separable" and verdict.implied is not None:
        return formulas.side(verdict.implied.side)
    if verdict.coefficient_cases:
        from klsym.notation.cases import lines

        cases = (" ".join(line.split()) for line in lines(verdict.coefficient_cases))
        return f"no KL: pushes with c = {'; '.join(cases)}"
    return target_words(verdict)


def _is_objective(verdict: VerdictView) -> bool:
    """Is what is shown the gradient of something named?  A mean that holds scores is the gradient itself."""
    named = verdict.gradient.target == "combination" or verdict.objective is not None
    return bool(verdict.shown) and verdict.gradient.target in ("combination", "separable") and named


def proof_word(verdict: VerdictView) -> str:
    if verdict.gradient.target is None:
        return "open: the target is neither proved nor refuted"
    return TRUST[verdict.trust]


def value_line(verdict: VerdictView) -> str:
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


def verdict_text(verdict: VerdictView) -> str:
    """For a terminal."""
    lines = [*_facts(verdict), *_derivation_lines(verdict), *listed("Terms", term_lines(verdict))]
    lines += listed("Parts", verdict.notes)
    lines += _witness_lines(verdict.witness, verdict.setting.level)
    lines += listed("Hypotheses", _hypotheses(verdict)) + listed("Warnings", unsaid(verdict))
    lines += ["", f"Instead  {verdict.instead}"] if verdict.instead else []
    if verdict.check:
        lines += ["", f"Check  {verdict.check['text']}"]
    return "\n".join(lines)


def _hypotheses(verdict: VerdictView) -> tuple[str, ...]:
    """Of the gradient, and of the value what those do not say."""
    return (*in_short(verdict.hypotheses, verdict.proofs), *_of_value(verdict))


def _of_value(verdict: VerdictView) -> tuple[str, ...]:
    """What the value assumes beside the gradient; a divergence that both name brings its support once."""
    named = [line for line in verdict.hypotheses if line.startswith(STANDING)]
    lines = [line for line in verdict.value.hypotheses if line not in (*verdict.hypotheses, STANDING)]
    return tuple(f"for the value: {x}" for x in lines if not any(x.partition(":")[0] in y for y in named))


def unsaid(verdict: VerdictView) -> tuple[str, ...]:
    """The warnings that the lines on what descending it does have not given in more words."""
    both = verdict.effects is not None and verdict.generated is not None
    said = generated_warnings(verdict.generated) if both else []
    return tuple(text for text in verdict.warnings if text not in said)


def _facts(verdict: VerdictView) -> list[str]:
    rows = [("trust", proof_word(verdict)), ("value", value_line(verdict)), *_gradient_rows(verdict)]
    effects = listed(EFFECTS, tuple(effects_lines(verdict.effects)))
    return [headline(verdict), "", *(f"  {name:<9} {text}" for name, text in rows), *effects]


def _gradient_rows(verdict: VerdictView) -> list[tuple[str, str]]:
    """What multiplies the score: where samples are drawn, under q, and what the letters stand for."""
    setting = verdict.setting
    tokens, batches = setting.level == "token", setting.batch != "none"
    place = "token" if tokens else "sequence" if setting.level == "sequence" else "sample"
    rows = [("gradient", f"{_scored(verdict, tokens, batches)} at each {place}")]
    named = verdict.scores_named[0]
    if verdict.per_sample_cases:
        lead = f"{'h' if named else 'h s'} at each {place}, with h ="
        rows = _case_rows("gradient", lead, verdict.per_sample_cases)
    if verdict.coefficient_cases and tokens:
        mean = "E_q[sum_t c]" if verdict.scores_named[1] else "E_q[sum_t c s_now]"
        rows.append(("in q", f"{mean} with c = {_over_weights(verdict)}"))
    elif verdict.coefficient_cases:
        rows += _case_rows("in q", "E_q[c s] with c =", verdict.coefficient_cases)
    elif verdict.coefficient is not None:
        mean = "E_q[sum_t c]" if verdict.scores_named[1] else "E_q[sum_t c s_now]" if tokens else "E_q[c s]"
        rows.append(("in q", f"{mean} with c = {verdict.coefficient}"))
    if (
        verdict.shown
        and verdict.gradient.target in ("separable", "none", None)
        and not _is_objective(verdict)
    ):
        rows.append(("equals", verdict.shown))
    if verdict.implied is not None and not verdict.shown:
        rows.append(("objective", formulas.side(verdict.implied.side)))
    if verdict.generated is not None and verdict.gradient.target not in ("reverse-kl", "forward-kl"):
        rows.append(("that is", generated_text(verdict.generated)))
    if verdict.functional is not None and (convex := functional_text(verdict.functional)):
        rows.append(("as such", convex))
    if verdict.expansion:
        rows.append(("reads", verdict.expansion))
    if setting.level in LEVELS:
        rows.append(("level", LEVELS[setting.level]))
    if verdict.inside_clamps:
        inside = verdict.inside_clamps
        rest = inside.complete.get("rest", "") if tokens else ""
        known = combination_text({k: v for k, v in inside.complete.items() if k != "rest" or not rest})
        mean = "E_q[sum_t c]" if inside.names_scores else "E_q[sum_t c s_now]"
        shown = f"{mean} with c = {rest}" if rest else known or inside.target
        shown += f", beside {known}" if rest and known != "0" else ""
        rows.append(("clamps", f"where no bound binds: {shown}"))
    if verdict.bias_cases:
        under, over = "q" if setting.on_policy else "mu", "sum_t b s_now" if tokens else "b s"
        over = ("sum_t b" if tokens else "mean_i b") if named else over
        rows += _case_rows("bias", f"outside the clamps: E_{under}[{over}] with b =", verdict.bias_cases)
    return rows


def _over_weights(verdict: VerdictView) -> str:
    """c of tokens from h of the cases: h, over the weights that bring what is drawn from q to mu."""
    if verdict.setting.on_policy:
        return "h"
    beyond = "*rho_future" if "log_mu[future]" in names(verdict.c) else ""
    return f"h/(rho_past*rho_now{beyond})"


def _case_rows(name: str, lead: str, cases: Any) -> list[tuple[str, str]]:
    from klsym.notation.cases import lines

    return [(name, lead), *(("", f"  {line}") for line in lines(cases))]


def _scored(verdict: VerdictView, tokens: bool, batches: bool) -> str:
    """The per-sample coefficient times its score, unless it names its scores itself."""
    if not verdict.pushes or verdict.scores_named[0]:
        return verdict.per_sample
    slot = "_now" if tokens else "_self" if batches else ""
    return _product(verdict.per_sample) + slot


def _derivation_lines(verdict: VerdictView) -> list[str]:
    if not verdict.steps:
        return []
    width, lines = max(len(text) for _, text, _ in verdict.steps), ["", "Derivation"]
    for position, (rule, text, _) in enumerate(verdict.steps):
        sign = "  " if position == 0 else "= "
        lines.append(f"  {sign}{text:<{width}}  {rule}".rstrip())
    return lines


def _product(coefficient: str) -> str:
    if coefficient == "1":
        return "s"
    return f"({coefficient}) s" if is_sum(coefficient) else f"{coefficient} s"


def _witness_lines(witness: dict[str, Any] | None, level: str = "sample") -> list[str]:
    if witness is None:
        return []
    of = "; each outcome is a whole sequence" if level == "sequence" else ""
    if "tree" in witness:
        of = ", which holds for gradients" if "v" in witness["tree"] else ""
    return ["", f"Counterexample to {witness['refutes']}{of}", *model_lines(witness)]


def term_lines(verdict: VerdictView) -> tuple[str, ...]:
    """What each term of a sum does."""
    return tuple(f"{term.loss}: {term.says}" for term in verdict.terms)


def derivation_latex(verdict: VerdictView) -> str:
    """The derivation as one aligned block."""
    return aligned([(latex, rule) for rule, _, latex in verdict.steps])


def verdict_markdown(verdict: VerdictView) -> str:
    """For a page or an issue."""
    lines = [f"**{_markdown(headline(verdict))}**", ""]
    lines += [f"- trust: {proof_word(verdict)}", f"- value: {_markdown(value_line(verdict))}"]
    rows = _gradient_rows(verdict)
    lines += [f"- {name}: `{text}`" if name else f"  - `{text.strip()}`" for name, text in rows]
    if verdict.steps:
        lines += ["", "$$", derivation_latex(verdict), "$$"]
    if verdict.witness:
        lines += ["", "```", *_witness_lines(verdict.witness, verdict.setting.level)[1:], "```"]
    titled = (
        (EFFECTS, tuple(effects_lines(verdict.effects))),
        ("Terms", term_lines(verdict)),
        ("Parts", verdict.notes),
        ("Hypotheses", _hypotheses(verdict)),
        ("Warnings", unsaid(verdict)),
    )
    for title, items in titled:
        if items:
            lines += ["", f"{title}:", "", *(f"- {_markdown(item)}" for item in items)]
    lines += ["", f"Instead: {_markdown(str(verdict.instead))}"] if verdict.instead else []
    return "\n".join(lines)


def _markdown(text: str) -> str:
    for sign in ("*", "_", "|", "<"):
        text = text.replace(sign, "\\" + sign)
    return text


def verdict_html(verdict: VerdictView) -> str:
    """For Jupyter: the headline, the facts, the derivation, the counterexample, the warnings."""
    from html import escape

    facts = [
        ("trust", proof_word(verdict)),
        ("value", value_line(verdict)),
        *_gradient_rows(verdict),
        *(("effect", line) for line in effects_lines(verdict.effects)),
        *(("term", line) for line in term_lines(verdict)),
        *(("", note) for note in verdict.notes),
    ]
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in facts
    )
    notes = "".join(f"<li>{escape(w)}</li>" for w in (*verdict.warnings, *verdict.advice))
    hypotheses = "".join(f"<li>{escape(h)}</li>" for h in (*verdict.hypotheses, *_of_value(verdict)))
    model = "\n".join(_witness_lines(verdict.witness, verdict.setting.level)[1:])
    return (
        f"<p><b>{escape(headline(verdict))}</b></p><table>{rows}</table>"
        + (f"<div>$$\n{escape(derivation_latex(verdict))}\n$$</div>" if verdict.steps else "")
        + (f"<pre>{escape(model)}</pre>" if model else "")
        + f"<details><summary>hypotheses</summary><ul>{hypotheses}</ul></details>"
        + (f"<p>warnings</p><ul>{notes}</ul>" if notes else "")
    )
