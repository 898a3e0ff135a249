"""Words that the kernel's tests share beside drafts.py: steps, rows, signed certificates."""

from __future__ import annotations

from typing import Any

from klsym.kernel import FORMAT, digest
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import Context, Side
from support.certificates.faulty_certificates import PARAMETERS, constant, mean_grad, plain
from support.certificates.region_words import KNOWN

C = constant
PLAIN = Context(PARAMETERS, (("f", ("k1", "log_q", "w")), ("g", ("k1",))), **KNOWN)


def Mg(measure: str, loss: ExpPoly, index: str = "") -> Side:
    """E_m[grad L]."""
    return mean_grad(index, measure, loss)


def step(rule: str, side: str = "left", term: int = 0, factor: int = 0, **data: Any) -> dict[str, Any]:
    """A step without its result."""
    place = {"term": None, "factor": None} if rule == "equation" else {"term": term, "factor": factor}
    return {"rule": rule, "side": side, **place, "data": plain(data), "result": None}


def row(kind: str, of: ExpPoly, at: tuple[str, str] = ("", "q"), *score: str, **more: Any) -> dict[str, Any]:
    """What is never negative, in an inequality."""
    rest = {"scale": ONE, "factor": ONE, "v": ZERO, **more}
    return plain({"kind": kind, "of": of, "at": at, "score": score, **rest})


def signed(parts: Any, cites: Any = ()) -> dict[str, Any]:
    return {"format": FORMAT, "cites": list(cites), "parts": parts, "digest": digest(parts)}
