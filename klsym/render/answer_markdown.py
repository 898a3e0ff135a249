"""The short answer as Markdown, which notebooks and consoles of editors show."""

from __future__ import annotations

from klsym.render.answer import Answer


def format_answer_markdown(answer: Answer) -> str:
    """Format an answer as Markdown."""
    lines = [
        f"**{escape_markdown(answer.title)}**",
        "",
        f"{escape_markdown(answer.update)} ({answer.trust})",
        "",
    ]
    reading = escape_markdown("; ".join(answer.whole_reading))
    lines += [f"- read as {reading}"] if reading else []
    lines += [f"- `{term.loss}`: {escape_markdown(term.text)} ({term.trust})" for term in answer.terms]
    lines += [f"- {code} {name}: {escape_markdown(text)}" for code, name, text in answer.findings]
    lines += [f"- fix: {escape_markdown(text)} ({trust})" for text, trust in answer.fixes]
    lines += [f"- {name}: `{text}`" for name, text in answer.facts]
    notes = [answer.remark, *answer.notes] if answer.remark else answer.notes
    return "\n".join([*lines, *(f"- note: {escape_markdown(note)}" for note in notes)])


def escape_markdown(text: str) -> str:
    """Escape the signs that Markdown would interpret."""
    return text.translate({ord(sign): f"\\{sign}" for sign in "*_|<"})
