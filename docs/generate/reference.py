"""Reference pages that are made from data: glossary, JSON schema, Python API, survey."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import klsym
from generate.commands import escaped
from generate.sources import HOME, write
from klsym.study.write_up.page_glossary import GLOSSARY

CLASSES = ("Verdict", "Batch")
FORMULAS = (
    "derive",
    "expected_gradient",
    "sample_gradient",
    "expectation",
    "grad",
    "curl",
    "sg",
    "parameter",
    "parse",
)


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
    lines += _fields(found)
    return "\n".join(lines)


def _fields(part: dict[str, Any]) -> list[str]:
    """A definition for each field."""
    return [
        line for name, field in part["properties"].items() for line in (f"`{name}`", f": {_field(field)}", "")
    ]


def _field(field: dict[str, Any]) -> str:
    """The type of a field, its description, its values or the names of its own fields."""
    kind = field.get("type", "")
    kinds = " or ".join(kind) if isinstance(kind, list) else kind
    inner = field.get("items", field).get("properties", {})
    values = [json.dumps(one) for one in field.get("enum", [field["const"]] if "const" in field else [])]
    said = [escaped(field.get("description", "")), _listed("one of", values), _listed("with", list(inner))]
    return ". ".join(one for one in (kinds, *said) if one) + "."


def _listed(lead: str, names: list[str]) -> str:
    return f"{lead} {', '.join(f'`{name}`' for name in names)}" if names else ""


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
    functions = [name for name in klsym.__all__ if not isinstance(getattr(klsym, name), type)]
    lines += [line for name in functions for line in (f".. autofunction:: {name}", "")]
    lines += [line for name in CLASSES for line in (f".. autoclass:: {name}", "   :members:", "")]
    lines += [".. currentmodule:: klsym.calculus", "", "Formulas", "--------", ""]
    lines += [line for name in FORMULAS for line in (f".. autofunction:: {name}", "")]
    return "\n".join([*lines, "```"])
