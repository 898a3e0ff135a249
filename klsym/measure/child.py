"""Measurements in a process of their own, for they run the user's code: see `klsym.confirmed.child`."""

from __future__ import annotations

import subprocess
from typing import Any, ClassVar

from klsym.errors import KlsymError
from klsym.language.pasted.function import name_code
from klsym.worker_process import Asked, Options, Reply, refuse_missing, serve, set_memory_limit

KINDS = ("zero", "named", "own-mean", "objective", "no-objective", "undecided")


class Runner(Asked):
    """Asked: "target", the "width" of the text, and the other arguments of `klsym.measure` in "options".

    The reply: {"text", "json", "ok"}; ok: is the expected objective met, or none asked for?
    """

    module, errors = "klsym.measure.child", subprocess.DEVNULL
    keys: ClassVar[dict[str, type]] = {"text": str, "json": dict, "ok": bool}
    late = "no answer within {}: does the code loop?  --time-limit gives it longer"
    ended = "the process that runs the code {}: does it exit, or need more than --memory-limit?"

    def __init__(self, seconds: float, gigabytes: float) -> None:
        super().__init__({"gigabytes": gigabytes}, seconds)

    def fits(self, reply: Reply) -> bool:
        """Has the reply the kind and the multiples that reports read?"""
        multiples = reply["json"].get("multiples")
        numbers = isinstance(multiples, dict) and all(isinstance(x, float) for x in multiples.values())
        return reply["json"].get("kind") in KINDS and numbers


def _prepare(question: dict[str, Any], options: Options) -> None:
    for name in ("klsym.measure.measuring", "torch"):
        try:
            __import__(name)
        except ImportError:  # said when it is used
            continue
    set_memory_limit(options["gigabytes"])


def _answer(question: dict[str, Any], options: Options) -> Reply:
    try:
        from klsym.measure.estimating import measure_samples
        from klsym.measure.measurement import WIDTH
        from klsym.measure.measuring import measure
    except ModuleNotFoundError as error:
        return refuse_missing("measure", error)
    try:
        is_sampled = "samples" in question["options"]
        answer = (measure_samples if is_sampled else measure)(question["target"], **question["options"])
    except KlsymError as error:
        return {"error": str(error), "code": 2}
    except MemoryError:
        return {
            "error": f"{name_code(question['target'])}: running it needs more than --memory-limit",
            "code": 2,
        }
    except Exception as error:  # of the code that is run, or of klsym
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return {"error": f"{name_code(question['target'])}: running it raises {text}", "code": 2}
    name = name_code(question["target"]).rpartition("/")[2]
    text = answer.text(name, question.get("width", WIDTH))
    return {"text": text, "json": answer.to_json(), "ok": answer.ok}


if __name__ == "__main__":
    serve(_prepare, _answer)
