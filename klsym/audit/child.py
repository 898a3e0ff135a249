"""Audits in a process of their own, for they run the user's code: it is ended when it takes too long or
too much memory, which is a limit on addresses.  Such code can forge its own answer: see SECURITY.md.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from klsym.diagnostics.codes import load_codes
from klsym.engine.options.option_table import CHOICES
from klsym.errors import KlsymError, UsageError
from klsym.files import read_text
from klsym.worker_process import Asked, Options, Reply, refuse_missing, serve, set_memory_limit

LARGEST = 5_000_000  # bytes of a file


class Runner(Asked):
    """Asked: "target", the other arguments of `klsym.audit` in "options", and what is to "expect".

    The reply: {"text", "json", "target", "row", "meets"}.
    """

    module, errors = "klsym.audit.child", subprocess.DEVNULL
    keys: ClassVar[dict[str, type]] = {"text": str, "json": dict, "target": str, "row": list, "meets": bool}
    late = "no answer within {}: does the code loop?  --time-limit gives it longer"
    ended = "the process that runs the code {}: does it exit, or need more than --memory-limit?"

    def __init__(self, seconds: float, gigabytes: float) -> None:
        super().__init__({"gigabytes": gigabytes}, seconds)

    def fits(self, reply: Reply) -> bool:
        """Has the reply all that its readers need?  The code can forge a reply."""
        return _is_answer(reply["json"]) and all(isinstance(cell, str) for cell in reply["row"])


def _is_answer(answer: dict[str, Any]) -> bool:
    """Does the object of an audit have what reports read?"""
    known_codes = {entry.code for entry in load_codes()}
    match answer:
        case {"file": str(), "lines": [int(), int()], "summary": str(), "trust": str(), "expression": str(),
              "diagnostics": list(listed), "expect": expect}:  # fmt: skip
            pass
        case _:
            return False
    is_expectation = expect is None or (isinstance(expect, dict) and isinstance(expect.get("wanted"), str))
    used = all(name in answer and isinstance(answer[name], str | None) for name in CHOICES)
    texts = ("code", "name", "message")
    fit = (isinstance(d, dict) and all(isinstance(d.get(key), str) for key in texts) for d in listed)
    return is_expectation and used and all(fit) and all(d["code"] in known_codes for d in listed)


def _prepare(question: dict[str, Any], options: Options) -> None:
    _load(question["target"])
    set_memory_limit(options["gigabytes"])


def _load(target: str) -> None:
    """Import the library that the file is sure to need, before the clock runs."""
    path = Path(target.rpartition(":")[0])
    try:
        text = read_text(path, LARGEST) if path.suffix == ".py" else "torch"
    except UsageError:  # said when it is asked
        return
    named = [name for name in ("torch", "jax") if name in text] or ([] if "numpy" in text else ["torch"])
    for name in ["klsym.audit.audits", *named]:
        with suppress(Exception):  # said when it is used
            __import__(name)


def _answer(question: dict[str, Any], options: Options) -> Reply:
    try:
        from klsym.audit.audits import Disagreement, audit
    except ModuleNotFoundError as error:
        return refuse_missing("audit", error)
    try:
        answer = audit(question["target"], **question["options"])
        target, expected = answer.target or "open", question["expect"]
        meets = expected is None or answer.meets(expected)
        expectation = None if expected is None else {"wanted": expected, "ok": meets}
        return {
            "text": str(answer),
            "json": {**answer.to_json(), "expect": expectation},
            "row": answer.to_row(),
            "target": target,
            "meets": meets,
        }
    except Disagreement as error:
        return {"error": str(error), "code": 1}
    except KlsymError as error:
        return {"error": str(error), "code": 2, "place": getattr(error, "place", None)}
    except Exception as error:  # a defect of klsym, told in one line like any other
        return {
            "error": f"klsym fails on this code, please report it: {type(error).__name__}: {error}",
            "code": 2,
        }


if __name__ == "__main__":
    serve(_prepare, _answer)
