"""The verdict as text, Markdown, LaTeX and HTML: the answer first, then the derivation."""

from __future__ import annotations

from html import escape
from typing import Any

from klsym.render.combination import combination_text
from klsym.render.latex import aligned
from klsym.render.spelling import is_sum
from klsym.render.text import show_interval

TARGETS = {
    "zero": "nothing: the expected gradient is zero",
    "reverse-kl": "the reverse KL, KL(q||p)",
    "forward-kl": "the forward KL, KL(p||q)",
    "combination": "a combination",
    "f-divergence": "neither KL nor a combination of the two: some E_q[f(r)]",
    "separable": "neither KL nor a combination of the two, and it depends on more than r = p/q",
}


class VerdictView:
    """What a verdict shows, and how it shows itself: as text, and in Jupyter."""

    loss: str
    setting: Any
    per_sample: str
    coefficient: str
    gradient: Any
    value: Any
    value_constant: str
    trust: str
    hypotheses: tuple[str, ...]
    steps: tuple[tuple[str, str, str], ...]
    witness: dict[str, Any] | None
    inside_clamps: Any
    warnings: tuple[str, ...]
    check: dict[str, Any] | None

    def unbiased_for(self, name: str) -> bool:
        """Is the value an unbiased estimate of this KL ("reverse-kl" or "forward-kl")?"""
        exact = self.value.multiples == {name: "1"} and self.value_constant == "0"
        return bool(exact and self.value.target == name)

    def __str__(self) -> str:
        return verdict_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return verdict_html(self)

    def _repr_latex_(self) -> str:
        return f"$$\n{derivation_latex(self)}\n$$"


def headline(verdict: VerdictView) -> str:
    """The verdict in one line."""
    setting = verdict.setting
    use = "as a detached reward" if setting.use == "reward" else "as a loss"
    place = f"{verdict.loss}  ({setting.sampling}, {use})"
    gradient = verdict.gradient
    if gradient.target in ("f-divergence", "separable"):
        return f"{place} targets {TARGETS[gradient.target]}"
    if gradient.target == "zero":
        return f"{place} targets {TARGETS['zero']}"
    single = gradient.multiples in ({"reverse-kl": "1"}, {"forward-kl": "1"})
    what = TARGETS[gradient.target] if single else combination_text(gradient.multiples)
    return f"{place} targets {what}"


def proof_word(verdict: VerdictView) -> str:
    return {
        "kernel": "proved, replayed by the kernel",
        "sympy": "rests on SymPy (outside the decidable core)",
        "numeric": "supported by numbers only, not proved",
    }[verdict.trust]


def value_line(verdict: VerdictView) -> str:
    """What the expected value of the loss is."""
    names = {"reverse-kl": "KL(q||p)", "forward-kl": "KL(p||q)", "reward": ""}
    for name in ("reverse-kl", "forward-kl"):
        if verdict.unbiased_for(name):
            return f"unbiased for {names[name]}"
    if verdict.value.target == "zero":
        return verdict.value_constant
    if verdict.value.target in ("f-divergence", "separable"):
        return "not an unbiased estimate of either KL"
    text = combination_text(verdict.value.multiples).replace("grad ", "")
    constant = verdict.value_constant
    if constant == "0":
        return text
    return (
        f"{text} - {constant[1:]}"
        if constant.startswith("-") and not is_sum(constant)
        else f"{text} + {constant}"
    )


def verdict_text(verdict: VerdictView) -> str:
    """For a terminal."""
    width = max(len(text) for _, text, _ in verdict.steps)
    lines = [
        headline(verdict),
        "",
        f"  trust     {proof_word(verdict)}",
        f"  value     {value_line(verdict)}",
    ]
    lines += [f"  gradient  {_product(verdict.per_sample)} at each sample"]
    lines += [f"  in q      E_q[c s] with c = {verdict.coefficient}"]
    if verdict.inside_clamps:
        inside = verdict.inside_clamps
        shown = combination_text(inside.multiples) if inside.multiples else inside.target
        lines += [f"  clamps    where no bound binds: {shown}"]
    lines += ["", "Derivation"]
    for position, (rule, text, _) in enumerate(verdict.steps):
        sign = "  " if position == 0 else "= "
        lines.append(f"  {sign}{text:<{width}}  {rule}".rstrip())
    lines += _witness_lines(verdict.witness)
    lines += _listed("Hypotheses", verdict.hypotheses) + _listed("Warnings", verdict.warnings)
    if verdict.check:
        lines += ["", f"Check  {verdict.check['text']}"]
    return "\n".join(lines)


def _product(coefficient: str) -> str:
    if coefficient == "1":
        return "s"
    return f"({coefficient}) s" if is_sum(coefficient) else f"{coefficient} s"


def _witness_lines(witness: dict[str, Any] | None) -> list[str]:
    if witness is None:
        return []
    lines = ["", f"Counterexample to {witness['refutes']}"]
    names = [n for n in ("q", "p", "mu") if n in witness]
    lines += [f"  {name:<3} = ({', '.join(witness[name])})" for name in names]
    lines += [f"  along the logit direction u = ({', '.join(witness['u'])})"]
    lines += [f"  {n:<3} = ({', '.join(v)})" for n, v in witness.get("rewards", {}).items()]
    lines += [f"  {n} = {v}" for n, v in witness.get("parameters", {}).items()]
    left, right = show_interval(witness["left"]), show_interval(witness["right"])
    return [*lines, f"  left side {left}, right side {right}"]


def _listed(title: str, items: tuple[str, ...]) -> list[str]:
    return ["", title, *(f"  - {item}" for item in items)] if items else []


def derivation_latex(verdict: VerdictView) -> str:
    """The derivation as one aligned block."""
    return aligned([(latex, rule) for rule, _, latex in verdict.steps])


def verdict_markdown(verdict: VerdictView) -> str:
    """For a page or an issue."""
    lines = [f"**{_markdown(headline(verdict))}**", ""]
    lines += [f"- trust: {proof_word(verdict)}", f"- value: {_markdown(value_line(verdict))}"]
    lines += [f"- gradient at each sample: `{_product(verdict.per_sample)}`"]
    lines += ["", "$$", derivation_latex(verdict), "$$"]
    if verdict.witness:
        lines += ["", "```", *_witness_lines(verdict.witness)[1:], "```"]
    for title, items in (("Hypotheses", verdict.hypotheses), ("Warnings", verdict.warnings)):
        if items:
            lines += ["", f"{title}:", "", *(f"- {_markdown(item)}" for item in items)]
    return "\n".join(lines)


def _markdown(text: str) -> str:
    for sign in ("*", "_", "|", "<"):
        text = text.replace(sign, "\\" + sign)
    return text


def verdict_html(verdict: VerdictView) -> str:
    """For Jupyter: the headline, the facts, the warnings."""
    facts = [
        ("trust", proof_word(verdict)),
        ("value", value_line(verdict)),
        ("gradient at each sample", _product(verdict.per_sample)),
        ("score coefficient c", verdict.coefficient),
    ]
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in facts
    )
    notes = "".join(f"<li>{escape(w)}</li>" for w in verdict.warnings)
    hypotheses = "".join(f"<li>{escape(h)}</li>" for h in verdict.hypotheses)
    return (
        f"<p><b>{escape(headline(verdict))}</b></p><table>{rows}</table>"
        f"<details><summary>hypotheses</summary><ul>{hypotheses}</ul></details>"
        + (f"<p>warnings</p><ul>{notes}</ul>" if notes else "")
    )
