"""The part of the schema of SARIF 2.1.0 that klsym writes."""

from __future__ import annotations

from typing import Any

TEXT = {"type": "object", "properties": {"text": {"type": "string"}, "markdown": {"type": "string"}},
        "required": ["text"], "additionalProperties": False}  # fmt: skip
RULE = {
    "type": "object", "required": ["id"], "additionalProperties": False,
    "properties": {
        "id": {"type": "string"}, "name": {"type": "string"}, "shortDescription": TEXT,
        "fullDescription": TEXT, "help": TEXT, "properties": {"type": "object"},
    },
}  # fmt: skip
PLACE = {
    "type": "object", "additionalProperties": False,
    "properties": {"physicalLocation": {
        "type": "object", "additionalProperties": False,
        "properties": {
            "artifactLocation": {
                "type": "object", "properties": {"uri": {"type": "string", "pattern": r"^[^\s\\]+$"}}
            },
            "region": {"type": "object", "properties": {"startLine": {"type": "integer", "minimum": 1}}},
        },
    }},
}  # fmt: skip
RESULT = {
    "type": "object", "required": ["message"], "additionalProperties": False,
    "properties": {
        "ruleId": {"type": "string"}, "ruleIndex": {"type": "integer", "minimum": -1},
        "level": {"enum": ["none", "note", "warning", "error"]}, "message": TEXT,
        "locations": {"type": "array", "items": PLACE},
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}  # fmt: skip
# The part of SARIF 2.1.0 (OASIS, 2020; sections 3.13 to 3.49) that klsym writes, no key beyond it.
SARIF: dict[str, Any] = {
    "type": "object", "required": ["version", "runs"], "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"}, "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": {
            "type": "object", "required": ["tool"], "additionalProperties": False,
            "properties": {
                "tool": {"type": "object", "required": ["driver"], "properties": {"driver": {
                    "type": "object", "required": ["name"],
                    "properties": {"name": {"type": "string"}, "rules": {"type": "array", "items": RULE}},
                }}},
                "results": {"type": "array", "items": RESULT},
            },
        }},
    },
}  # fmt: skip
