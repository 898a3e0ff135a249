"""Reference pages that are made from data: glossary, JSON schema, Python API, survey."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import klsym
from generate.commands import escaped
from generate.sources import HOME, write
from klsym.write_up.page_glossary import GLOSSARY

QUESTIONS = ("explain", "compare", "recommend", "audit", "explore", "settle", "load", "check", "parse")
CLASSES = ("Verdict", "Comparison")
PROOFS = ("derive", "expected_gradient", "sample_gradient", "expectation", "grad", "claim", "parameter")


def write_reference(into: Path) -> None:
    write(into / "reference" / "glossary.md", glossary())
    write(into / "reference" / "json-schema.md", schema())
    write(into / "reference" / "api.md", api())


def glossary() -> str:
    rows = (f"{escaped(term)}\n: {escaped(words)}\n" for term, words in GLOSSARY)
    return "# Glossary\n\n" + "\n".join(rows)


def schema() -> str:
    """The fields of a verdict in JSON, from docs/explain.schema.json."""
    found = json.loads((HOME / "docs" / "explain.schema.json").read_text(encoding="utf-8"))
    lines = [
        "# JSON schema", "",
        "`klsym explain LOSS --json` prints one object. Its fields, from"
        " [the schema](../explain.schema.json):", "",
    ]  # fmt: skip
    lines += _fields(found, "##")
    for name, part in found.get("$defs", {}).items():
        if "properties" in part:
            lines += ["", f"## {name}", "", escaped(part.get("description", "")), "", *_fields(part, "###")]
    return "\n".join(lines)


def _fields(part: dict[str, Any], level: str) -> list[str]:
    rows = []
    for name, field in part.get("properties", {}).items():
        kind = (
            field.get("type")
            or field.get("$ref", "").rpartition("/")[2]
            or ("enum" if "enum" in field else "")
        )
        kind = " or ".join(kind) if isinstance(kind, list) else kind
        values = ", ".join(f"`{json.dumps(one)}`" for one in field.get("enum", ()))
        said = " ".join(
            x for x in (escaped(field.get("description", "")), values and f"One of {values}.") if x
        )
        rows += [f"`{name}`" + (f" ({kind})" if kind else ""), f": {said or 'see above'}", ""]
    return rows


def api() -> str:
    """The names of the package, each with its docstring."""
    lines = [
        "# Python API",
        "",
        "```{eval-rst}",
        ".. automodule:: klsym",
        "   :no-members:",
        "",
        ".. currentmodule:: klsym",
        "",
    ]
    lines += [line for name in QUESTIONS for line in (f".. autofunction:: {name}", "")]
    lines += [line for name in CLASSES for line in (f".. autoclass:: {name}", "   :members:", "")]
    lines += [line for name in PROOFS if hasattr(klsym, name) for line in (f".. autofunction:: {name}", "")]
    return "\n".join([*lines, "```"])
