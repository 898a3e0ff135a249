"""Answers of the page: a question as JSON gives HTML, the text of the command line, and the command.

    answer('{"kind": "explain", "loss": "k3", "options": {}}')
    -> '{"html": "<header>...", "text": "k3 in the loss, on-policy ...", "command": "klsym explain k3"}'

klsym parses the typed text with a whitelist and never evaluates it.  A question without an answer gives
{"error": one line}.  `klsym` on the command line prints the same text.
"""

from __future__ import annotations

import gc
import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from page_parts import FINDING, ask_button, roles_html

from klsym.api import ask, compare, recommend
from klsym.commands.console import format_line
from klsym.diagnostics.codes import find_code
from klsym.engine.options.option_table import CHOICES
from klsym.errors import KlsymError, UsageError, speak_of_flags
from klsym.escaping import printable
from klsym.language.roles import collect_roles, list_names_without_role, with_roles
from klsym.render.diagnoses import format_page
from klsym.render.markup.questions import format_code_html, format_comparison_html, format_recommendation_html
from klsym.render.markup.verdict import format_verdict_html
from klsym.study.api import divergence, optimum
from klsym.study.render.html import format_divergence_html, format_optimum_html

gc.set_threshold(200_000)  # as the command sets it: SymPy and klsym make many objects, and most of them stay
WIDTH = 100  # columns of the text, as on a terminal
Question = Mapping[str, Any]
Reply = dict[str, Any]


def answer(question: str) -> str:
    """Return the answer to a question, or {"error": one line}; a defect of klsym is one line, too."""
    try:
        asked = json.loads(question)
        with speak_of_flags():  # the page shows the command beside the answer
            reply = _answered(asked)
    except KlsymError as error:
        reply = {"error": format_line(str(error))}
    except ModuleNotFoundError as error:
        reply = {
            "error": format_line(f"this page does not contain {error.name}: ask klsym on the command line")
        }
    except Exception as error:
        fails = f"klsym fails here, please report it: {type(error).__name__}: {error}"
        reply = {"error": format_line(fails)}
    return json.dumps(reply)


def _answered(asked: Question) -> Reply:
    """The answer of this kind of question; a link may name kinds and options that do not exist."""
    if asked["kind"] not in KINDS:
        raise UsageError(f"unknown question {asked['kind'][:40]!r} (known: {', '.join(KINDS)})")
    function, allowed = KINDS[asked["kind"]]
    for name in asked.get("options", {}):
        if name not in allowed:
            known = ", ".join(allowed) or "none"
            raise UsageError(f"{asked['kind']}: unknown option {name[:40]!r} (known: {known})")
    return function(asked)


def explain(asked: Question) -> Reply:
    """The verdict on a loss, with the roles of the names in it."""
    typed, parameters = asked.get("loss", "").strip(" "), asked.get("parameters", ())
    roles = asked.get("roles", {})
    try:
        loss = with_roles(typed, roles)
        verdict = ask(loss, parameters, **asked.get("options", {}))
    except KlsymError as error:
        left = dict.fromkeys(list_names_without_role(typed, parameters), "")
        return {"error": format_line(str(error)), "roles": roles_html(left | dict(roles), asking=True)}
    guessed = collect_roles(verdict.loss.written.notes if verdict.loss.written else ())
    options = asked.get("options", {})
    return _reply(
        format_verdict_html(verdict, ask_button, FINDING),
        verdict.text(width=WIDTH),
        ["explain", loss, *_flags(options), *_parameters(parameters)],
        roles=roles_html({**dict(roles), **guessed}),
        proof=verdict.text(proof=True, width=WIDTH),
    )


def compare_losses(asked: Question) -> Reply:
    """Two losses side by side."""
    options, parameters = asked.get("options", {}), asked.get("parameters", ())
    losses = (asked.get("loss", "").strip(" "), asked.get("other", "").strip(" "))
    found = compare(*losses, parameters=parameters, **options)
    words = ["compare", *losses, *_flags(options), *_parameters(parameters)]
    return _reply(format_comparison_html(found), found.text(), words, proof=found.text(proof=True))


def recommend_losses(asked: Question) -> Reply:
    """Return the recommended losses for a KL penalty."""
    options = {**asked.get("options", {})}
    framework = options.pop("framework", "torch")
    found = recommend(options.pop("target", ""), **options)
    words = ["recommend", *_flags(asked.get("options", {}))]
    text, proof = (found.text(framework, proof) for proof in (False, True))
    return _reply(format_recommendation_html(found, framework, ask_button), text, words, proof=proof)


def losses_of_divergence(asked: Question) -> Reply:
    """The losses that estimate and descend a divergence."""
    options, parameters = asked.get("options", {}), asked.get("parameters", ())
    name = asked.get("divergence", "").strip()
    found = divergence(name, parameters, options.get("sampling"))
    words = ["divergence", name, *_flags(options), *_parameters(parameters)]
    html = format_divergence_html(found, ask_button)
    return _reply(html, found.text(), words, proof=found.text(proof=True))


def find_optimum(asked: Question) -> Reply:
    """Where training with a reward and a penalty ends."""
    loss, options = asked.get("loss", "").strip(" "), asked.get("options", {})
    given = {name: asked.get(name, "").strip() for name in ("beta", "rewards", "reference", "behaviour")}
    rewards, reference, behaviour = (
        given[name].split(",") if given[name] else None for name in ("rewards", "reference", "behaviour")
    )
    found = optimum(loss, given["beta"], rewards or (), reference, behaviour, **options)
    said = {name: text for name, text in given.items() if text}
    return _reply(format_optimum_html(found), str(found), ["optimum", loss, *_flags(said), *_flags(options)])


def rule(asked: Question) -> Reply:
    """The page of a diagnostic code."""
    found = find_code(asked.get("code", ""))
    return _reply(format_code_html(found, ask_button), format_page(found, WIDTH), ["rule", found.code])


SETTING = tuple(CHOICES)
# What answers each kind of question, and the options that it has.
KINDS: dict[str, tuple[Callable[[Question], Reply], tuple[str, ...]]] = {
    "explain": (explain, SETTING),
    "compare": (compare_losses, tuple(name for name in SETTING if name != "batch")),
    "recommend": (recommend_losses, ("target", "sampling", "use", "level", "framework")),
    "divergence": (losses_of_divergence, ("sampling",)),
    "optimum": (find_optimum, ("sampling", "use")),
    "rule": (rule, ()),
}


def _flags(options: Mapping[str, str | None]) -> list[str]:
    return [word for name, value in options.items() if value for word in (f"--{name}", value)]


def _parameters(names: Iterable[str]) -> list[str]:
    return [word for name in names for word in ("--param", name)]


def _reply(html: str, text: str, words: list[str], **more: str) -> Reply:
    """The answer; the text without control characters, as on a terminal."""
    command = shlex.join(["klsym", *words])
    texts = {name: printable(value, keep="\n") for name, value in more.items()}
    return {"html": html, "text": printable(text, keep="\n"), "command": command, **texts}
