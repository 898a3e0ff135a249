"""Audits in a process of their own, for they run the user's code: it is ended when it takes too long or
too much memory, which is a limit on addresses.  Such code can forge its own answer: see SECURITY.md.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from klsym.diagnostics.codes import load_codes
from klsym.engine.options.option_table import CHOICES
from klsym.errors import KlsymError, UsageError
from klsym.files import read_text
from klsym.render.answer import WIDTH
from klsym.worker_process import Asked, Options, Reply, refuse_missing, serve, set_memory_limit

if TYPE_CHECKING:
    from klsym.audit.report import Audit
    from klsym.confirmed.answer import Confirmed

LARGEST = 5_000_000  # bytes of a file


class Runner(Asked):
    """Asked: "target", the other arguments of `klsym.audit` in "options", what is to "expect", the "form":
    "text", "full", or "json", with its proof, and the "width" of a text.

    The reply: {"text", "json", "target", "row", "meets"}; or an "error", with a "code" to exit with.  Of code
    that was to be measured also "both", the JSON of `Confirmed`; and where it could be run but not read,
    "measured", a sentence, "measured_text" and "measured_meets".
    """

    module, errors = "klsym.confirmed.child", subprocess.DEVNULL
    keys: ClassVar[dict[str, type]] = {"text": str, "json": dict, "target": str, "row": list, "meets": bool}
    beside_error: ClassVar[dict[str, type]] = {
        "both": dict, "measured": str, "measured_text": str, "measured_meets": bool,
    }  # fmt: skip
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


def prepare(question: dict[str, Any], options: Options) -> None:
    """Load the library of the code, and limit the memory."""
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
    return describe_failures(lambda: _audit(question))


def _audit(question: dict[str, Any]) -> Reply:
    if question.get("measure"):
        from klsym.confirmed.both import audit_and_measure

        both = audit_and_measure(question["target"], **question["options"])
        return describe_both(both, question["expect"], question.get("form", "json"), question.get("width"))
    from klsym.audit.audits import audit

    answer = audit(question["target"], **question["options"])
    expected = question["expect"]
    meets = expected is None or answer.meets(expected)
    return _describe(answer, expected, question.get("form", "json"), meets=meets, width=question.get("width"))


def describe_failures(answer: Callable[[], Reply]) -> Reply:
    """Return the reply, or an error in one line."""
    try:
        return answer()
    except ModuleNotFoundError as error:
        return refuse_missing("audit", error)
    except KlsymError as error:
        return _describe_error(error)
    except Exception as error:  # a defect of klsym, told in one line like any other
        return {
            "error": f"klsym fails on this code, please report it: {type(error).__name__}: {error}",
            "code": 2,
        }


def _describe(answer: Audit, expected: str | None, form: str, *, meets: bool, width: int | None) -> Reply:
    expectation = None if expected is None else {"wanted": expected, "ok": meets}
    return {
        "text": answer.text(form == "full", width or WIDTH),
        "json": {**answer.to_json(proof=form == "json"), "expect": expectation},
        "row": answer.to_row(),
        "target": answer.target or "open",
        "meets": meets,
    }


def _describe_error(error: KlsymError) -> Reply:
    """Return the reply where there is no verdict; 1: the trace is not what the code does."""
    from klsym.audit.terms import Disagreement

    if isinstance(error, Disagreement):
        return {"error": str(error), "code": 1}
    return {"error": str(error), "code": 2, "place": getattr(error, "place", None)}


def describe_both(
    both: Confirmed, expected: str | None, form: str = "json", width: int | None = None
) -> Reply:
    """Return what was read and what was measured; no verdict where they differ.  width: of the text."""
    as_json = both.to_json()
    if both.differs:
        return {"error": both.describe_difference(), "code": 1, "both": as_json}
    if both.answer is not None:
        meets = expected is None or both.meets(expected)
        answer = _describe(both.answer, expected, form, meets=meets, width=width)
        return {**answer, "json": {**answer["json"], **as_json}, "both": as_json}
    assert both.error is not None
    if both.measured is None:
        return {**_describe_error(both.error), "both": as_json}
    return {
        **_describe_error(both.error),
        "both": as_json,
        "measured": both.measured.summary,
        "measured_text": both.describe_measured(width or WIDTH),
        "measured_meets": expected is None or both.is_measured_as(expected),
    }


if __name__ == "__main__":
    serve(prepare, _answer)
