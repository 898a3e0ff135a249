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

from klsym.errors import UsageError
from klsym.files import read_text
from klsym.worker_process import Asked, Options, Reply, serve

GIGABYTE = 2**30


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


def _prepare(question: dict[str, Any], options: Options) -> None:
    _load(question["target"])
    _limit(options["gigabytes"])


def _load(target: str) -> None:
    """The library that the file is sure to need is imported before the clock runs."""
    from klsym.audit.source import LARGEST

    path = Path(target.rpartition(":")[0])
    try:
        text = read_text(path, LARGEST) if path.suffix == ".py" else "torch"
    except UsageError:  # said when it is asked
        return
    named = [name for name in ("torch", "jax") if name in text] or ([] if "numpy" in text else ["torch"])
    for name in named:
        with suppress(ImportError):
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
    from klsym.audit.audits import Disagrees, audit
    from klsym.errors import KlsymError

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
        return {"error": str(error), "code": 2}
    except Exception as error:  # a defect of klsym, told in one line like any other
        return {
            "error": f"klsym fails on this code, please report it: {type(error).__name__}: {error}",
            "code": 2,
        }


if __name__ == "__main__":
    serve(_prepare, _answered)
