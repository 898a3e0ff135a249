"""Findings as text, as annotations of GitHub, and as SARIF 2.1.0."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from klsym import __version__
from klsym.diagnostics.codes import load_codes
from klsym.escaping import printable
from klsym.lint.findings import NAMES, SAYS, UNREADABLE, Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ANNOTATIONS = 10  # of each level in a step: GitHub shows no more


def as_text(findings: Iterable[Finding], targets: int | None = None) -> list[str]:
    """Return one line for each finding: file:line: code name  message (function).

    targets: their number, where one line stands for all that cannot be read, but for errors; None for each.
    """
    lines, listed = [], list(findings)
    unread = [f for f in listed if f.code == UNREADABLE and f.level != "error"]
    is_folded = targets is not None and len(unread) > 1
    for finding in listed:
        if is_folded and finding in unread:
            continue
        where = f" ({finding.function})" if finding.function else ""
        lines.append(
            printable(
                f"{finding.path}:{finding.line}: {finding.code} {finding.name}  {finding.message}{where}"
            )
        )
    if is_folded:
        count = f"{len(unread)} of {targets} targets cannot be read"
        lines.append(f"{UNREADABLE} {NAMES[UNREADABLE]}  {count}: klsym audit --explain-unread lists them")
    return lines


def as_annotations(findings: Iterable[Finding]) -> list[str]:
    """Return the commands that GitHub reads from the output of a step, the errors first.

    >>> one = Finding("KL002", "forward-not-reverse", "a: 5%", "a,b.py", 3, "f")
    >>> as_annotations([one])
    ['::warning file=a%2Cb.py,line=3,title=KL002 forward-not-reverse::a: 5%25']
    """
    ordered = sorted(findings, key=lambda finding: finding.level != "error")
    shown: list[Finding] = []
    for finding in ordered:
        if sum(shown_finding.level == finding.level for shown_finding in shown) < ANNOTATIONS:
            shown.append(finding)
    return [_format_annotation(finding) for finding in shown]


def _format_annotation(finding: Finding) -> str:
    title = _escape_property(f"{finding.code} {finding.name}")
    place = f"file={_escape_property(finding.path)},line={finding.line}"
    command = "notice" if finding.level == "note" else finding.level
    return f"::{command} {place},title={title}::{_escape_data(finding.message)}"


def _escape_data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def as_sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """Return one run of SARIF 2.1.0, with a rule for each code that is found."""
    listed = list(findings)
    rules = sorted({finding.code for finding in listed})
    driver = {
        "name": "klsym", "version": __version__,
        "rules": [_build_rule(code, listed) for code in rules],
    }  # fmt: skip
    results = [_build_result(finding, rules.index(finding.code)) for finding in listed]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _build_rule(code: str, findings: list[Finding]) -> dict[str, Any]:
    page = next((one for one in load_codes() if one.code == code), None)
    precision = next(one.precision for one in findings if one.code == code)
    says = page.says if page else SAYS[code]
    whole = f"{page.means} {page.matters}" if page else f"{says}."
    write = f"\n\nWrite instead: `{page.write.words}`" if page else ""
    return {
        "id": code, "name": page.name if page else NAMES[code],
        "shortDescription": {"text": says}, "fullDescription": {"text": whole},
        "help": {"text": whole + write.replace("`", ""), "markdown": f"**{code}** {says}\n\n{whole}{write}"},
        "properties": {"precision": precision},
    }  # fmt: skip


def _build_result(finding: Finding, rule: int) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": quote(_encode_path(finding.path))},
        "region": {"startLine": finding.line},
    }
    return {
        "ruleId": finding.code, "ruleIndex": rule, "level": finding.level,
        "message": {"text": _escape_message(finding.message)},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"klsym/v1": printable("/".join(finding.key[1:]))},
    }  # fmt: skip


def _encode_path(path: str) -> bytes:
    """Return the bytes of a file's name; a reply can also name a path that no file can have."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        return printable(path).encode()


def _escape_message(text: str) -> str:
    r"""Return text as a message of SARIF, in which [a](b) is a link and {0} a placeholder (3.11.5, 3.11.6).

    >>> _escape_message("E_mu[k3]; table[kind](logp) is {0}")
    'E_mu[k3]; table[kind\\](logp) is {{0}}'
    """
    without_links = re.sub(r"\](?=\()", r"\\]", printable(text))
    return without_links.replace("{", "{{").replace("}", "}}")
