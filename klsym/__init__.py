"""klsym proves what a KL penalty in reinforcement learning really optimises.

>>> import klsym
>>> klsym.explain("k3").target
'forward-kl'

Names are loaded when they are used: `import klsym` is cheap, and `klsym.kernel` needs the standard
library alone.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "explain": "klsym.engine.explain",
    "Verdict": "klsym.engine.verdict",
    "compare": "klsym.engine.compare",
    "explore": "klsym.explorer",
    "Comparison": "klsym.engine.compare",
    "parse": "klsym.parser",
    "check": "klsym.kernel",
    "Refused": "klsym.errors",
    "KlsymError": "klsym.errors",
    "ProofError": "klsym.errors",
    "UsageError": "klsym.errors",
    "load": "klsym.ledger",
    "settle": "klsym.ledger",
}
_CALCULUS = (
    "KL", "A", "R", "alpha", "beta", "bregman", "chi2", "claim", "clip", "count", "covariance", "derive",
    "eps", "expectation", "expected_gradient", "grad", "jeffreys", "k", "k1", "k2", "k3", "lam", "log_mu",
    "log_p", "log_q", "mu", "p", "parameter", "q", "r", "rho", "s", "sample", "sample_gradient", "sg",
)  # fmt: skip
__all__ = [*_HOME, *_CALCULUS]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name) or ("klsym.calculus" if name in _CALCULUS else None)
    if home is None:
        raise AttributeError(f"module 'klsym' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
