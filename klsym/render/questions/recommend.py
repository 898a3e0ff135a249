"""A recommendation as text and as Markdown: what to write, what is proved of it, what not to write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from klsym.engine.answers.is_correct import NEXT_TOKENS
from klsym.engine.questions.recommend import Choice, Clamped, Recommendation, TemptingLoss
from klsym.errors import UsageError, add_options, spell_switch
from klsym.language.messages import Message
from klsym.notation.printers import is_sum
from klsym.render.answer import WIDTH, add_label, add_trust, wrap_text
from klsym.render.details import describe_value
from klsym.render.headline import describe_update, name_trust
from klsym.render.option_words import LEVELS, SAMPLED_FROM, WEIGHTS, find_words
from klsym.render.printing import as_printed
from klsym.render.question import KL_OF
from klsym.render.questions.compare import PrintedSpread, printed_spread
from klsym.render.sentences import write_sentences
from klsym.render.snippets import FRAMEWORKS, write_snippet
from klsym.render.words import describe_reason, describe_setting

KLS = {"reverse-kl": "KL(q||p)", "forward-kl": "KL(p||q)"}
MAX_CHOICES, MAX_WRONG = 5, 4  # in a short answer
SAMPLERS = {True: "q", False: "mu"}
# c of E_q[c s], and what b_star averages
FAMILIES = {"reverse-kl": ("k1", "log r"), "forward-kl": ("-r", "r")}


class PrintedChoice(Choice):
    """A choice whose variance prints itself."""

    against: PrintedSpread | None


class PrintedRecommendation(Recommendation):
    """The answer of `recommend`; it prints as text and shows itself in Jupyter as Markdown."""

    choices: tuple[PrintedChoice, ...]
    elsewhere: PrintedChoice | None

    def snippet(self, framework: str = "torch", number: int = 0) -> str:
        """Code for a choice, counted from 0, for "torch", "jax" or "numpy".

        Raises UsageError: an unknown framework, no such choice.
        """
        if not 0 <= number < len(self.choices):
            raise UsageError(f"choice {number}: there are {len(self.choices)}")
        choice = self.choices[number]
        return write_snippet(choice.written, choice.verdict, framework, self.use)

    def to_json(self) -> dict[str, Any]:
        """The object that `klsym recommend --json` prints."""
        return recommendation_json(self)

    def text(
        self, framework: str = "torch", proof: bool = False, full: bool = False, width: int = WIDTH
    ) -> str:
        """The answer for a terminal, with what is proved of each choice if asked."""
        return recommendation_text(self, framework, proof=proof, full=full, width=width)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def markdown(self, framework: str = "torch") -> str:
        """For a page or an issue, with the code of the first choice."""
        return recommendation_markdown(self, framework)

    def _repr_html_(self) -> str:
        from klsym.render.markup.parts import format_for_notebook
        from klsym.render.markup.questions import format_recommendation_html

        return format_for_notebook(format_recommendation_html(self))


def printed(found: Recommendation) -> PrintedRecommendation:
    """The recommendation in the class that prints it; so are the variances of its choices."""
    elsewhere = found.elsewhere and _printed_choice(found.elsewhere)
    choices = tuple(map(_printed_choice, found.choices))
    return as_printed(PrintedRecommendation, found, choices=choices, elsewhere=elsewhere)


def _printed_choice(choice: Choice) -> PrintedChoice:
    return as_printed(PrintedChoice, choice, against=printed_spread(choice.against))


def write_question(found: PrintedRecommendation) -> str:
    """What was asked for, in words."""
    setting = found.setting
    sampler = find_words(SAMPLED_FROM, "sampling", setting.sampling)
    if found.target in NEXT_TOKENS:
        kl = KL_OF[NEXT_TOKENS[found.target]]
        return f"To minimise {kl} of each next token as a loss, {sampler}"
    level = find_words(LEVELS, "level", setting.level).asked
    wish = "To log" if found.use == "value" else "To minimise"
    place = {"loss": " as a loss", "reward": " in the reward", "value": ""}[found.use]
    return f"{wish} {KL_OF[found.target]}{place}{level}, {sampler}"


def recommendation_text(
    found: PrintedRecommendation,
    framework: str = "torch",
    proof: bool = False,
    full: bool = False,
    width: int = WIDTH,
) -> str:
    """For a terminal: the code of the first choice, the other choices, the wrong ones; with `proof` or `full`
    what is proved of each choice."""
    if not found.choices:
        return "\n".join([_explain_no_choice(found), *_list_common_mistakes(found)])
    code = [f"    {line}".rstrip() for line in found.snippet(framework).splitlines()]
    first = found.choices[0]
    loss = _add_options(first)
    place = " where nothing else multiplies the reward by rho" * (found.weighted is not None)
    title = ": ".join(filter(None, [f"write {loss}{place}", _describe_short(first, found)]))
    lines = [*wrap_text(write_question(found), "", "  ", width), *_describe_weighted(found, width)]
    lines += add_trust(title, name_trust(first.verdict), width)
    lines += ["", *code, ""]
    if not (proof or full):
        details = f"  {'details':<8} {spell_switch('full')}; {spell_switch('proof')}"
        return "\n".join([*lines, *_format_short_rows(found, width), details])
    for number, choice in enumerate(found.choices):
        lines += [*[""] * bool(number), f"{number + 1}  {_add_options(choice)}"]
        lines += [f"   {name:<10} {text}" for name, text in list_choice_rows(choice, found)]
    return "\n".join([*lines, *_describe_family(found), *_list_common_mistakes(found)])


def _describe_weighted(found: PrintedRecommendation, width: int) -> list[str]:
    """Say what to write in a reward that the policy loss multiplies by rho."""
    if (weighted := found.weighted) is None:
        return []
    text = f"in a policy loss that multiplies its reward by rho, as PPO's does: write {weighted.reward}"
    return add_trust(text, name_trust(weighted.as_loss.verdict), width)


def _describe_short(choice: PrintedChoice, found: PrintedRecommendation) -> str:
    """Say whether the value of a choice is biased, and what code needs for it."""
    named = found.use == "value" or found.target in NEXT_TOKENS
    value = (
        "" if named else describe_value(choice.verdict).replace("not an unbiased estimate of", "biased for")
    )
    needed = [f"needs {text.partition(':')[0].partition(',')[0]}" for text in list_needs(choice)[:1]]
    return "; ".join(filter(None, [f"value {value}" * bool(value), *needed]))


def _format_short_rows(found: PrintedRecommendation, width: int) -> list[str]:
    """Return a row with the other choices, and one with common mistakes and their objectives."""
    also = [_add_options(choice) for choice in found.choices[1:MAX_CHOICES]]
    rows = [("also", ", ".join(also))] if also else []
    wrong = [f"{_add_options(trap)} ({describe_mistake(trap, found)})" for trap in found.wrong[:MAX_WRONG]]
    while len(", ".join(wrong)) > 2 * (width - 20) and len(wrong) > 1:
        wrong.pop()
    rows += [("not", f"{', '.join(wrong)}")] if wrong else []
    return [line for name, text in rows for line in add_label(name, text, width)]


def _describe_family(found: PrintedRecommendation) -> list[str]:
    """Say from how many losses these were chosen, and how the variances compare."""
    family, on = found.family, found.setting.on_policy
    if family is None:
        return []
    rho, m = ("", "q") if on else ("rho*", "mu")
    square, c, of = ("s^2" if on else "rho^2 s^2"), *FAMILIES[found.target]
    low, high = family.where
    return [
        "",
        f"Chosen from all {family.losses:,} losses of up to {family.size} leaves and operations with this"
        f" expected gradient{_name_longer_choices(found)}",
        f"   push       {rho}({c} + b) s at each sample: {len(family.constants)} numbers b, from"
        f" {family.constants[0]} to {family.constants[-1]} (klsym catalogue)",
        f"   variance   the nearer b is to b_star = E_{m}[{of} {square}]/E_{m}[{square}] the lower (proved);"
        f" lowest with b = {family.best} where {low} <= {of} <= {high}",
    ]


def _name_longer_choices(found: PrintedRecommendation) -> str:
    """Name the choices that are longer than the losses of the catalogue."""
    others = [choice.loss for choice in found.choices if choice.source != "catalogue"]
    return f"; {' and '.join(others)} is longer" if others else ""


def _explain_no_choice(found: PrintedRecommendation) -> str:
    text = f"{write_question(found)}: none of the {found.tried} candidates does"
    if found.elsewhere is None:
        return text
    words = ", ".join(describe_setting(found.elsewhere.setting))
    return f"{text}; {words}, {found.elsewhere.loss} does"


def _list_common_mistakes(found: PrintedRecommendation, at_most: int | None = None) -> list[str]:
    if not found.wrong:
        return []
    rows = [(_add_options(trap), describe_mistake(trap, found)) for trap in found.wrong[:at_most]]
    width = max(len(loss) for loss, _ in rows)
    title = "what they estimate" if found.use == "value" else "what they optimise"
    return [
        "",
        f"Common mistakes, and {title} instead",
        *(f"   {loss:<{width}}  {reason}" for loss, reason in rows),
    ]


def describe_mistake(trap: TemptingLoss, found: PrintedRecommendation) -> str:
    """Say in a few words what a common trap optimises."""
    if found.use == "value":
        return (
            f"its mean is {describe_value(trap.verdict)}"
            if _is_formula(trap)
            else describe_value(trap.verdict)
        )
    return describe_update(trap.verdict) if found.target in NEXT_TOKENS else describe_reason(trap.verdict)


def _is_formula(trap: TemptingLoss) -> bool:
    named = any(trap.verdict.value.is_unbiased_for(name) for name in ("reverse-kl", "forward-kl"))
    return not named and trap.verdict.value.target not in ("f-divergence", "objective", None)


def _add_options(choice: Choice | TemptingLoss) -> str:
    """Return the loss with the options of tokens under which it is right."""
    setting = choice.verdict.setting
    named = {"credit": setting.credit, "weights": setting.weights if choice.has_weight else ""}
    return add_options(choice.loss, {name: value for name, value in named.items() if value})


def list_choice_rows(choice: PrintedChoice, found: PrintedRecommendation) -> list[tuple[str, str]]:
    """Return what is proved of a choice, one line each."""
    rows = [("proved", show_theorem(choice, found))]
    rows.append(("assumes", summarise_hypotheses(choice, found)))
    if found.use == "value":
        order = "second" if choice.is_second_order else "first"
        rows.append(("near q = p", f"of {order} order in log q/p, where the KL is of second order"))
    else:
        rows += [("value", _value(choice))] if found.target not in NEXT_TOKENS else []
        rows += [("push", show_gradient_at_sample(choice))]
    if choice.against is not None and _is_last_of_its_kind(choice, found):
        rows.append(("variance", compare_variances(choice.loss, choice.against, choice.kind, found)))
    rows += [("needs", text) for text in list_needs(choice)]
    rows += [("clamped", text) for text in map(describe_clamp, choice.clamps if found.use != "value" else ())]
    return rows


def show_theorem(choice: PrintedChoice, found: PrintedRecommendation) -> str:
    """Return the theorem that proves the choice correct."""
    proof = choice.value if found.use == "value" else choice.verdict.proof.theorems[0]
    if proof is None:
        return f"its mean is {KLS[found.target]}, by the rules of the kernel"
    return f"{proof}" + (", replayed by the kernel" if choice.verdict.trust == "kernel" else "")


def list_hypotheses(choice: PrintedChoice, found: PrintedRecommendation) -> tuple[str, ...]:
    """Return the hypotheses of that theorem."""
    return tuple(dict.fromkeys(write_sentences(_assumptions(choice, found))))


def _assumptions(choice: PrintedChoice, found: PrintedRecommendation) -> tuple[Message, ...]:
    if found.use != "value":
        return choice.verdict.assumptions
    return choice.value.assumptions if choice.value else choice.verdict.value.assumptions


def summarise_hypotheses(choice: PrintedChoice, found: PrintedRecommendation) -> str:
    """Return the conditions on supports, and the number of other hypotheses."""
    every = _assumptions(choice, found)
    supports = _supports(every)
    others = sum(not (x.code == "support" or x.values.get("supports")) for x in dict.fromkeys(every))
    return ", ".join((*supports, *([f"{others} more (JSON names all)"] if others else [])))


def _supports(assumptions: Iterable[Message]) -> tuple[str, ...]:
    """q << p and the like, those of divergences that are named first."""
    found: dict[str, None] = {}
    for message in assumptions:
        pairs = (
            [tuple(message.values.values())]
            if message.code == "support"
            else message.values.get("supports", ())
        )
        found |= {f"{a} << {b}": None for a, b in pairs}
    return tuple(found)


def _value(choice: Choice) -> str:
    """What the value is unbiased for, and which supports it asks for beside those of the gradient."""
    own = _supports(choice.verdict.assumptions)
    more = [x for x in _supports(choice.verdict.value.assumptions) if x not in own]
    return describe_value(choice.verdict) + (f", where {' and '.join(more)}" if more else "")


def show_gradient_at_sample(choice: Choice) -> str:
    """Return the gradient at a sample, such as "k1 s at each sample"."""
    verdict, token = choice.verdict, choice.setting.is_per_token
    if verdict.gradient.scores_named[0]:
        return f"{verdict.gradient.score_text} at each token"
    of = (
        f"({verdict.gradient.score_text})"
        if is_sum(verdict.gradient.score_text)
        else verdict.gradient.score_text
    )
    return f"{of} s_now at each token" if token else f"{of} s at each sample"


def _is_last_of_its_kind(choice: PrintedChoice, found: PrintedRecommendation) -> bool:
    return [candidate for candidate in found.choices if candidate.kind == choice.kind][-1] is choice


def compare_variances(loss: str, spread: PrintedSpread, kind: int, found: PrintedRecommendation) -> str:
    """Compare the variance of a loss with that of the next kind."""
    other = next(candidate for candidate in found.choices if candidate.kind == kind + 1)
    names = {"A": loss, "B": other.loss}
    if spread.lower in names:
        higher = names["B" if spread.lower == "A" else "A"]
        return f"Var {names[spread.lower]} <= Var {higher} for all policies (proved)"
    if spread.lower == "equal":
        return f"the same as that of {other.loss}"
    if spread.regional is None:
        if spread.lower == "depends":
            return f"whether this or {other.loss} varies less depends on the policies (an example each way)"
        return f"no order with {other.loss} is proved"
    lower = names[spread.regional_lower]
    higher = names["B" if spread.regional_lower == "A" else "A"]
    shown = f"Var {lower} <= Var {higher} where {spread.where_at_a_sample} (proved)"
    return shown + (", not everywhere (a model)" if spread.lower == "depends" else "")


def list_needs(choice: Choice) -> list[str]:
    """Return the inputs that code needs in addition to log q and log p."""
    on, found = choice.setting.on_policy, ["log q and log p of all words"] if choice.exact else []
    if choice.has_weight:
        weights = choice.setting.weights
        of = find_words(WEIGHTS, "weights", weights) if choice.setting.is_per_token else ""
        kept = "" if choice.setting.is_reward else ", detached"
        kept = ", with its gradient" if choice.attached else kept
        found.append(
            f"rho = exp(log_q - sg(log_q)){of}: its value is 1, its gradient is what counts"
            if on and choice.setting.is_differentiated else f"log mu, for rho = q/mu{of}{kept}"
        )  # fmt: skip
    if choice.needs_ratio:
        found.append("r = p/q, which overflows before log r does")
    return found


def describe_clamp(clamp: Clamped) -> str:
    """Describe the effect of a bound on a choice."""
    cases = "; ".join(f"{value} where {where}" for where, value in clamp.beyond)
    if clamp.inside is None and not clamp.beyond:
        return f"{clamp.loss}: the same target" if clamp.target else f"{clamp.loss}: open"
    return f"{clamp.loss} pushes with c = {cases}"


def recommendation_markdown(found: PrintedRecommendation, framework: str = "torch") -> str:
    """For a page or an issue."""
    if not found.choices:
        return f"**{_escaped(_explain_no_choice(found))}**"
    lines = [f"**{_escaped(write_question(found))}:** write `{found.choices[0].loss}`", ""]
    lines += ["| write | what is proved of it |", "| --- | --- |"]
    for choice in found.choices:
        rows = "<br>".join(f"{name}: `{_in_a_cell(text)}`" for name, text in list_choice_rows(choice, found))
        lines.append(f"| `{_add_options(choice)}` | {rows} |")
    lines += ["", "| not | because |", "| --- | --- |"]
    lines += [
        f"| `{_add_options(trap)}` | {_escaped(describe_mistake(trap, found))} |" for trap in found.wrong
    ]
    return "\n".join([*lines, "", "```python", found.snippet(framework), "```"])


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _escaped(text: str) -> str:
    for sign in ("*", "_", "|", "<"):
        text = text.replace(sign, "\\" + sign)
    return text


def recommendation_json(found: PrintedRecommendation) -> dict[str, Any]:
    """The object that `klsym recommend --json` prints."""
    setting = {"sampling": found.setting.sampling, "use": found.use, "level": found.setting.level}
    choices = [
        {**choice_json(choice, found), "snippet": {name: _code(found, name, i) for name in FRAMEWORKS}}
        for i, choice in enumerate(found.choices)
    ]
    return {
        "target": found.target, **setting, "tried": found.tried, "choices": choices,
        "not": [wrong_json(trap, found) for trap in found.wrong],
        "elsewhere": choice_json(found.elsewhere, found) if found.elsewhere else None,
        "family": asdict(found.family) if found.family else None,
        "weighted": found.weighted and {
            "reward": found.weighted.reward, "as_loss": found.weighted.as_loss.loss,
            "trust": found.weighted.as_loss.verdict.trust,
        },
    }  # fmt: skip


def _code(found: PrintedRecommendation, framework: str, number: int) -> str | None:
    """None where there is no code."""
    try:
        return found.snippet(framework, number)
    except UsageError:
        return None


def choice_json(choice: PrintedChoice, found: PrintedRecommendation) -> dict[str, Any]:
    """One choice, as data."""
    verdict, spread = choice.verdict, choice.against
    return {
        "loss": choice.loss, "credit": choice.setting.credit or None,
        "weights": choice.setting.weights or None, "trust": verdict.trust,
        "source": choice.source, "proved": show_theorem(choice, found), "value": describe_value(verdict),
        "per_sample": verdict.gradient.score_text,
        "kind": choice.kind, "needs": list_needs(choice), "hypotheses": list(list_hypotheses(choice, found)),
        "variance_against_next_kind": spread.to_json() if spread else None,
        "clamped": [
            {"loss": clamp.loss, "target": clamp.target, "inside": clamp.inside,
             "cases": [{"where": where, "coefficient": value} for where, value in clamp.beyond]}
            for clamp in choice.clamps
        ],
    }  # fmt: skip


def wrong_json(trap: TemptingLoss, found: PrintedRecommendation) -> dict[str, Any]:
    """A tempting choice that is wrong, as data."""
    setting = trap.verdict.setting
    return {
        "loss": trap.loss, "credit": setting.credit or None, "weights": setting.weights or None,
        "target": trap.verdict.target or "open", "reason": describe_mistake(trap, found),
        "trust": trap.verdict.trust, "value": describe_value(trap.verdict),
    }  # fmt: skip
