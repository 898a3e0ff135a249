r"""The sources of the claims, in one place: the list for a reader, and \bibitem's for the paper.

>>> print(listing().splitlines()[-2])
MR   Y. Mroueh, "Reinforcement Learning with Verifiable Rewards: GRPO's Loss, Dynamics, and Success
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from klsym.study.write_up.prose import render_prose
from klsym.study.write_up.tex import escape


@dataclass(frozen=True)
class Source:
    """One source by the tag that claims use; `note` says how its places are cited, or where it stands."""

    tag: str
    authors: str
    title: str
    year: int | None = None
    note: str = ""
    arxiv: str = ""


SOURCES = {
    source.tag: source
    for source in (
        Source("WZ1", authors="X. Wang, S. Zhang",
               title="Understanding KL Divergence Estimators in RL:"
               " From Value Approximation to Gradient Estimation",
               year=2025, note="first version; cited by the headings of its sections"),
        Source("WZ2", authors="X. Wang, S. Zhang",
               title="Choosing KL Estimators in RL: From Value Unbiasedness to Gradient Correctness",
               year=2025, note="later version"),
        Source("TM", "Y. Tang, R. Munos",
               "On a few pitfalls in KL divergence gradient estimation for RL", 2025, arxiv="2506.09477"),
        Source("SH", "V. Shah et al.",
               "A Comedy of Estimators: On KL Regularization in RL Training of LLMs", 2025,
               arxiv="2512.21852"),
        Source("RE", authors="NormalUhr",
               title="Re-understanding KL Approximation from an RL-for-LLM Lens: Notes on"
               " 'Approximating KL Divergence'",
               year=2025, note="article on Hugging Face, 11 August 2025"),
        Source("LI", "K. Liu, J. K. Liu, M. Chen, Y. Liu",
               "Rethinking KL Regularization in RLHF: From Value Estimation to Gradient Optimization",
               2025, arxiv="2510.01555"),
        Source("ZH", "Y. Zhang et al.",
               "On the Design of KL-Regularized Policy Gradient Algorithms for LLM Reasoning", 2025,
               arxiv="2505.17508"),
        Source("AM", "A. Amini, T. Vieira, R. Cotterell",
               "Better Estimation of the KL Divergence Between Language Models", 2025, arxiv="2504.10637"),
        Source("MR", "Y. Mroueh", "Reinforcement Learning with Verifiable Rewards: GRPO's Loss, Dynamics,"
               " and Success Amplification", 2025, arxiv="2503.06639"),
    )
}  # fmt: skip
TAG = re.compile(rf"\b({'|'.join(SOURCES)})\b(?!\s*=)")


def describe_source(source: Source) -> str:
    """One line: authors, title, year, where."""
    parts = [source.authors, f'"{source.title}"', str(source.year or "")]
    parts += [f"arXiv {source.arxiv}" if source.arxiv else ""]
    return ", ".join(part for part in parts if part) + (f" ({source.note})" if source.note else "") + "."


def listing() -> str:
    """Every source with its tag, for a terminal."""
    return "\n".join(
        textwrap.fill(f"{tag:<4} {describe_source(source)}", 99, subsequent_indent=" " * 5)
        for tag, source in SOURCES.items()
    )


def write_bibliography() -> str:
    r"""The \bibitem of each source."""
    lines = []
    for source in SOURCES.values():
        title = _open_quotes(source.title) + (f" ({escape(source.note)})" if source.note else "")
        where = [f"arXiv:{source.arxiv}" if source.arxiv else "", str(source.year or "")]
        source_text = ". ".join(
            filter(None, (escape(source.authors).removesuffix("."), title, ", ".join(filter(None, where))))
        )
        lines.append(rf"\bibitem[{source.tag}]{{{source.tag}}} {source_text}.")
    return "\n".join(lines)


def _open_quotes(title: str) -> str:
    """An opening quotation mark wherever one follows a space."""
    return re.sub(r"(^|\s)'", r"\1`", escape(title))


def cite_tags(source: str) -> str:
    r"""The source of a claim with its tags as citations.

    >>> cite_tags("WZ1 trap 1; TM eq. 2; SH")
    '\\cite[trap~1]{WZ1}; \\cite[eq.~2]{TM}; \\cite{SH}'
    """
    entries = []
    for entry in source.split(";"):
        cited_text, place = "", 0
        tag_matches = list(TAG.finditer(entry))
        for number, tag in enumerate(tag_matches):
            end = tag_matches[number + 1].start() if number + 1 < len(tag_matches) else len(entry)
            where = entry[tag.end() : end]
            words = where.strip(" ,")
            comma = ", " if where.rstrip().endswith(",") else ""
            cited_text += render_prose(entry[place : tag.start()]) + _cite(tag.group(), words) + comma
            place = end
        entries.append((cited_text + render_prose(entry[place:])).strip())
    return "; ".join(entries)


def _cite(tag: str, words: str) -> str:
    """A remark in brackets stays outside: it is ours, not a place in the source."""
    place, _, remark = words.partition("(")
    if remark and len(remark) < 4:  # an equation or a step, such as (7)
        place, remark = words, ""
    note = re.sub(r"(?<=[a-z.]) (?=[\dA-Z(])", "~", render_prose(place.strip(" ,")))
    citation = rf"\cite[{note}]{{{tag}}}" if note else rf"\cite{{{tag}}}"
    return citation + (f" {render_prose('(' + remark)}" if remark else "")
