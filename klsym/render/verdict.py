"""The verdict as text, Markdown, LaTeX and HTML: the answer first, then the derivation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from klsym.engine.answers.suggestion import Suggestion
from klsym.engine.divergences.shape_messages import generated_messages
from klsym.engine.verdicts.verdict import Verdict
from klsym.language.messages import Message
from klsym.notation.combination import combination_text, value_text
from klsym.notation.latex import aligned
from klsym.notation.spelling import LATEX, TEXT, is_sum
from klsym.notation.values import names, shown
from klsym.render.declared import declared
from klsym.render.divergences import functional_text, generated_json, generated_text
from klsym.render.effects import effects_lines
from klsym.render.listing import in_short, listed, model_lines
from klsym.render.messages import sentence, sentences, suggested
from klsym.render.printing import as_printed
from klsym.render.words import is_objective, setting_words, target_words

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

MAX_TYPED = 60  # characters of a pasted loss in the headline
MAX_BIAS = 6  # regions whose bias is listed; h is there for each


class PrintedSuggestion(Suggestion):
    """What to write instead, which prints itself."""

    def __str__(self) -> str:
        return suggested(self)


class PrintedVerdict(Verdict):
    """A verdict that prints itself as text, shows itself in Jupyter, and has a JSON form."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an engineer should know before using the loss."""
        return sentences(self.messages)

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """What the answer assumes."""
        return tuple(dict.fromkeys(sentences(self.assumptions)))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the expected gradient keeps and drops."""
        return sentences(self.remarks)

    @property
    def coefficient_latex(self) -> str:
        return "" if self.c is None else shown(self.c, LATEX)

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

    @property
    def names(self) -> dict[str, str]:
        """What the names of slots and of given quantities in the answer stand for."""
        inside = self.inside_clamps.complete.values() if self.inside_clamps else ()
        parts = (
            *self.gradient.complete.values(),
            *self.value.complete.values(),
            self.value_constant,
            *inside,
        )
        cases = (row[of] for row in self.cases_json() or () for of in ("per_sample", "coefficient"))
        in_batch = self.setting.batch != "none" or any(x.endswith("[self]") for x in names(self.h))
        level = "batch" if in_batch else self.setting.level
        own = (self.per_sample, self.coefficient or "", self.value_constant, self.expansion or "")
        given = next((sentence(x) for x in self.assumptions if x.code in ("given", "given-std")), "")
        return declared((*own, *parts, *cases), self.hypotheses, level, self.read_as or self.loss, given)

    def to_json(self) -> dict[str, Any]:
        """The object of the command-line contract."""
        gradient = {
            "per_sample": self.per_sample, "coefficient": self.coefficient,
            "target": self.target or "open",
            "combination": self.gradient.complete or None, "objective": self.objective,
            **generated_json(self.generated),
            "cases": self.cases_json(),
            "inside_clamps": self.inside_clamps.to_json() if self.inside_clamps else None,
            "terms": [_term_json(term) for term in self.terms] or None,
        }  # fmt: skip
        value = {
            "target": self.value.target or "open",
            "combination": self.value.complete or None,
            "constant": None if self.value.target is None else self.value_constant,
            "unbiased_for_reverse_kl": self.unbiased_for("reverse-kl"),
            "unbiased_for_forward_kl": self.unbiased_for("forward-kl"),
            "hypotheses": list(sentences(self.value.assumptions)),
        }
        answer = {
            "loss": self.loss, **self.setting.to_json(), "gradient": gradient, "value": value,
            "trust": "open" if self.target is None else self.trust, "hypotheses": list(self.hypotheses),
            "steps": [{"rule": rule or "statement", "latex": latex} for rule, latex in self.steps_in_latex],
            "witness": self.witness, "warnings": [*self.warnings, *self.advice], "names": self.names,
            "expansion": self.expansion, "read_as": self.read_as or None,
        }  # fmt: skip
        return answer if self.check is None else {**answer, "check": self.check}

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


def headline(verdict: PrintedVerdict) -> str:
    """The verdict in one line."""
    verb = "is" if verdict.gradient.target is None else "targets"
    loss = verdict.loss if len(verdict.loss) <= MAX_TYPED or not verdict.read_as else verdict.read_as
    return f"{loss}  ({', '.join(setting_words(verdict.setting))}) {verb} {target_words(verdict)}"


def proof_word(verdict: PrintedVerdict) -> str:
    if verdict.gradient.target is None:
        return "open: the target is neither proved nor refuted"
    return TRUST[verdict.trust]


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


def verdict_text(verdict: PrintedVerdict) -> str:
    """For a terminal."""
    lines = _answer_lines(verdict)
    lines += listed("Hypotheses", _hypotheses(verdict)) + listed("Warnings", unsaid(verdict))
    lines += ["", f"Instead  {verdict.instead}"] if verdict.instead else []
    if verdict.check:
        lines += ["", f"Check  {verdict.check['text']}"]
    return "\n".join(lines)


def _answer_lines(verdict: PrintedVerdict) -> list[str]:
    """What stands above the hypotheses."""
    lines = [*_facts(verdict), *_derivation_lines(verdict), *listed("Terms", term_lines(verdict))]
    lines += listed("Parts", verdict.notes)
    return lines + _witness_lines(verdict.witness, verdict.setting.level)


DEFINED = ("region", "log", "let")  # what names stand for


def _hypotheses(verdict: PrintedVerdict) -> tuple[str, ...]:
    """Of the gradient, and of the value what those do not say; regions that a reader meets (JSON has all)."""
    return (*in_short(met(verdict.assumptions, _answer_lines(verdict))), *_of_value(verdict))


def met(assumptions: Iterable[Message], lines: Iterable[str]) -> list[Message]:
    """Without the names that stand neither in these lines nor in the other assumptions."""
    others = [x for x in assumptions if x.code not in DEFINED]
    told = "\n".join((*lines, *in_short(others)))
    return [
        x for x in assumptions if x.code not in DEFINED or re.search(rf"\b{x.values['of']}(?![0-9a-z])", told)
    ]


def _of_value(verdict: PrintedVerdict) -> tuple[str, ...]:
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


def unsaid(verdict: PrintedVerdict) -> tuple[str, ...]:
    """The warnings that the lines on what descending it does have not given in more words."""
    generated = verdict.generated
    said = generated_messages(generated) if verdict.effects is not None and generated is not None else ()
    return tuple(sentence(message) for message in verdict.messages if message not in said)


def _facts(verdict: PrintedVerdict) -> list[str]:
    rows = [*_reading_rows(verdict), ("trust", proof_word(verdict)), ("value", value_line(verdict))]
    rows += _gradient_rows(verdict)
    effects = listed(EFFECTS, tuple(effects_lines(verdict.effects)))
    return [headline(verdict), "", *(f"  {name:<9} {text}" for name, text in rows), *effects]


def _reading_rows(verdict: PrintedVerdict) -> list[tuple[str, str]]:
    """The loss in the grammar, where it was typed in another spelling, and how it was read."""
    notes = [("", sentence(note)) for note in verdict.reading]
    return [("read as", verdict.read_as), *notes] if verdict.read_as else []


def _gradient_rows(verdict: PrintedVerdict) -> list[tuple[str, str]]:
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
    unnamed = verdict.gradient.target in ("separable", "none", None) and not is_objective(verdict)
    if verdict.shown and unnamed and not verdict.coefficient_cases:
        rows.append(("equals", verdict.shown))
    if verdict.implied is not None and not verdict.shown:
        rows.append(("objective", verdict.implied_in(TEXT)))
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
        shown = f"{mean} with c = {rest}" if rest else known or str(inside.target)
        shown += f", beside {known}" if rest and known != "0" else ""
        rows.append(("clamps", f"where no bound binds: {shown}"))
    if verdict.bias_cases:
        under, over = "q" if setting.on_policy else "mu", "sum_t b s_now" if tokens else "b s"
        over = ("sum_t b" if tokens else "mean_i b") if named else over
        told = f"outside the clamps: E_{under}[{over}] with b "
        many = f"{told}what h is there less what it is inside, in {len(verdict.bias_cases)} regions"
        few = len(verdict.bias_cases) <= MAX_BIAS
        rows += _case_rows("bias", f"{told}=", verdict.bias_cases) if few else [("bias", many)]
    return rows


def _over_weights(verdict: PrintedVerdict) -> str:
    """c of tokens from h of the cases: h, over the weights that bring what is drawn from q to mu."""
    if verdict.setting.on_policy:
        return "h"
    beyond = "*rho_future" if "log_mu[future]" in names(verdict.c) else ""
    return f"h/(rho_past*rho_now{beyond})"


def _case_rows(name: str, lead: str, cases: Any) -> list[tuple[str, str]]:
    from klsym.notation.cases import lines

    return [(name, lead), *(("", f"  {line}") for line in lines(cases))]


def _scored(verdict: PrintedVerdict, tokens: bool, batches: bool) -> str:
    """The per-sample coefficient times its score, unless it names its scores itself."""
    if not verdict.pushes or verdict.scores_named[0]:
        return verdict.per_sample
    slot = "_now" if tokens else "_self" if batches else ""
    return _product(verdict.per_sample) + slot


def _derivation_lines(verdict: PrintedVerdict) -> list[str]:
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


def term_lines(verdict: PrintedVerdict) -> tuple[str, ...]:
    """What each term of a sum does."""
    return tuple(f"{term.loss}: {'; '.join(sentences(term.messages))}" for term in verdict.terms)


def _term_json(term: Any) -> dict[str, Any]:
    says = "; ".join(sentences(term.messages))
    return {"loss": term.loss, "target": term.target or "open", "says": says}


def printed(verdict: Verdict) -> PrintedVerdict:
    """The same verdict, which prints itself."""
    shown = as_printed(PrintedVerdict, verdict)
    if shown.instead is not None:
        vars(shown)["instead"] = as_printed(PrintedSuggestion, shown.instead)
    return shown


def derivation_latex(verdict: PrintedVerdict) -> str:
    """The derivation as one aligned block."""
    return aligned([(latex, rule) for rule, _, latex in verdict.steps])


def verdict_markdown(verdict: PrintedVerdict) -> str:
    """For a page or an issue."""
    lines = [f"**{_markdown(headline(verdict))}**", ""]
    lines += [f"{f'- {name}:' if name else '  -'} {_markdown(text)}"
              for name, text in _reading_rows(verdict)]  # fmt: skip
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


def verdict_html(verdict: PrintedVerdict) -> str:
    """For Jupyter: the headline, the facts, the derivation, the counterexample, the warnings."""
    from html import escape

    facts = [
        *_reading_rows(verdict),
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
