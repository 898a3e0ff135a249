"""Is the audit of a random function what `explain` says of the loss that it is the code of?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import klsym
from klsym.audit import audits
from klsym.errors import KlsymError
from support.audits.random_audits import random_audit
from support.losses import loss_oracle


def judge(seed: int, folder: Path) -> tuple[str, str]:
    """("agrees" | "refused" | "differs", what was said)."""
    source, loss, sampling = random_audit(seed)
    path = folder / f"f{seed}.py"
    path.write_text(source, encoding="utf-8")
    try:
        found = audits.audit(f"{path}:f", sampling=sampling)
    except KlsymError as error:
        return "refused", f"{error} | {loss}"
    meant = klsym.explain(loss, sampling=sampling)
    return ("agrees" if _same(found.verdict, meant) else "differs"), f"{found.expression} | {loss}"


def _same(found: Any, meant: Any) -> bool:
    """The same target with the same multiples; where nothing is named, the same derivative at samples."""
    if found.target != meant.target or found.value.target != meant.value.target:
        return False
    if found.target in ("reverse-kl", "forward-kl", "zero"):
        return found.gradient.multiples == meant.gradient.multiples
    return _equal_at_samples(found.gradient.score_text, meant.gradient.score_text)


def _equal_at_samples(first: str, second: str) -> bool:
    """Two grammar strings, read by the literal oracle at random samples."""
    rng = np.random.default_rng(1)
    log_q, log_p, log_mu = rng.uniform(-7, 0, size=(3, 60))
    rewards = rng.uniform(-1, 1, size=(2, 60))
    values = loss_oracle.names(log_q, log_p, log_mu, *rewards, parameters={"beta": 0.3})
    a, b = (np.asarray(loss_oracle.evaluate(text, values), dtype=float) for text in (first, second))
    return bool(np.all(np.abs(a - b) <= 1e-9 * (1 + np.abs(a) + np.abs(b))))
