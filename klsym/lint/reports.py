"""Findings as text, as annotations of GitHub, and as SARIF 2.1.0."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote

from klsym.diagnostics.codes import load_codes
from klsym.escaping import printable
from klsym.lint.findings import NAMES, SAYS, Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ANNOTATIONS = 10  # of each level in a step: GitHub shows no more


def as_text(findings: Iterable[Finding]) -> list[str]:
    """file:line: code name  message (function)."""
    lines = []
    for one in findings:
        where = f" ({one.function})" if one.function else ""
        lines.append(printable(f"{one.path}:{one.line}: {one.code} {one.name}  {one.message}{where}"))
    return lines


def as_annotations(findings: Iterable[Finding]) -> list[str]:
    """The commands that GitHub reads from the output of a step, the errors first.

    >>> one = Finding("KL002", "forward-not-reverse", "a: 5%", "a,b.py", 3, "f")
    >>> as_annotations([one])
    ['::warning file=a%2Cb.py,line=3,title=KL002 forward-not-reverse::a: 5%25']
    """
    ordered = sorted(findings, key=lambda one: one.level != "error")
    shown: list[Finding] = []
    for one in ordered:
        if sum(other.level == one.level for other in shown) < ANNOTATIONS:
            shown.append(one)
    return [_annotation(one) for one in shown]


def _annotation(one: Finding) -> str:
    title = _property(f"{one.code} {one.name}")
    return f"::{one.level} file={_property(one.path)},line={one.line},title={title}::{_data(one.message)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """One run of SARIF 2.1.0, with a rule for each code that is found."""
    listed = list(findings)
    rules = sorted({one.code for one in listed})
    driver = {
        "name": "klsym", "version": _version(),
        "rules": [_rule(code, listed) for code in rules],
    }  # fmt: skip
    results = [_result(one, rules.index(one.code)) for one in listed]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _version() -> str:
    try:
        return version("klsym")
    except PackageNotFoundError:
        return "0"


def _rule(code: str, findings: list[Finding]) -> dict[str, Any]:
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


def _result(one: Finding, rule: int) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": quote(os.fsencode(one.path))},
        "region": {"startLine": one.line},
    }
    return {
        "ruleId": one.code, "ruleIndex": rule, "level": one.level,
        "message": {"text": printable(one.message)},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"klsym/v1": "/".join(one.key[1:])},
    }  # fmt: skip
