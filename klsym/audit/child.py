"""Audits in a process of their own, for they run the user's code: it is ended when it takes too long or
too much memory, which is a limit on addresses.  Such code can forge its own answer: see SECURITY.md.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from klsym.diagnostics.codes import load_codes
from klsym.engine.options.settings import CHOICES
from klsym.errors import KlsymError, UsageError
from klsym.files import read_text
from klsym.worker_process import Asked, Options, Reply, serve

GIGABYTE = 2**30
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
        """Code can forge a reply, but none that its readers trip over."""
        return _is_answer(reply["json"]) and all(isinstance(cell, str) for cell in reply["row"])


def _is_answer(answer: dict[str, Any]) -> bool:
    """Does the object of an audit have what reports read?"""
    known = {one.code for one in load_codes()}
    match answer:
        case {"file": str(), "lines": [int(), int()], "summary": str(), "trust": str(), "expression": str(),
              "diagnostics": list(listed), "expect": expect}:  # fmt: skip
            pass
        case _:
            return False
    told = expect is None or (isinstance(expect, dict) and isinstance(expect.get("wanted"), str))
    used = all(name in answer and isinstance(answer[name], str | None) for name in CHOICES)
    texts = ("code", "name", "message")
    fit = (isinstance(d, dict) and all(isinstance(d.get(key), str) for key in texts) for d in listed)
    return told and used and all(fit) and all(d["code"] in known for d in listed)


def _prepare(question: dict[str, Any], options: Options) -> None:
    _load(question["target"])
    _limit(options["gigabytes"])


def _load(target: str) -> None:
    """The library that the file is sure to need is imported before the clock runs."""
    path = Path(target.rpartition(":")[0])
    try:
        text = read_text(path, LARGEST) if path.suffix == ".py" else "torch"
    except UsageError:  # said when it is asked
        return
    named = [name for name in ("torch", "jax") if name in text] or ([] if "numpy" in text else ["torch"])
    for name in ["klsym.audit.audits", *named]:
        with suppress(Exception):  # said when it is used
            __import__(name)


@cache  # once in the process
def _limit(gigabytes: float) -> None:
    """On the addresses that the process may have beyond those of the libraries."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + int(gigabytes * GIGABYTE)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (ImportError, OSError, ValueError):  # not every system has it
        return


def _answered(question: dict[str, Any], options: Options) -> Reply:
    try:
        from klsym.audit.audits import Disagrees, audit
    except ModuleNotFoundError as error:
        missing = f"klsym audit needs {error.name}, which is not installed"
        return {"error": f'{missing}: pip install ".[torch]" in a clone of klsym', "code": 2}
    try:
        found = audit(question["target"], **question["options"])
        target, expected = found.target or "open", question["expect"]
        meets = expected is None or found.meets(expected)
        told = None if expected is None else {"wanted": expected, "ok": meets}
        return {
            "text": str(found),
            "json": {**found.to_json(), "expect": told},
            "row": found.row(),
            "target": target,
            "meets": meets,
        }
    except Disagrees as error:
        return {"error": str(error), "code": 1}
    except KlsymError as error:
        return {"error": str(error), "code": 2, "place": getattr(error, "place", None)}
    except Exception as error:  # a defect of klsym, told in one line like any other
        return {
            "error": f"klsym fails on this code, please report it: {type(error).__name__}: {error}",
            "code": 2,
        }


if __name__ == "__main__":
    serve(_prepare, _answered)
