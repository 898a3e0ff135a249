"""klsym proves what a KL penalty in reinforcement learning really optimises.

>>> import klsym
>>> klsym.explain("k3").target
'forward-kl'

Names are loaded when they are used: `import klsym` is cheap, and `klsym.kernel` needs the standard
library alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "audit": "klsym.confirmed.both",
    "measure": "klsym.measure.measuring",
    "measure_samples": "klsym.measure.estimating",
    "Batch": "klsym.measure.batch",
    "explain": "klsym.api",
    "Verdict": "klsym.api",
    "compare": "klsym.api",
    "explore": "klsym.study.explorer",
    "Comparison": "klsym.engine.questions.compare",
    "recommend": "klsym.api",
    "parse": "klsym.language.parser",
    "check": "klsym.kernel",
    "Refused": "klsym.errors",
    "KlsymError": "klsym.errors",
    "ProofError": "klsym.errors",
    "UsageError": "klsym.errors",
    "claim": "klsym.study.ledger.registry",
    "load": "klsym.study.ledger.registry",
    "settle": "klsym.study.ledger.settle_claim",
}
__all__ = [  # those without a row above are of klsym.calculus
    "KL", "A", "Batch", "Comparison", "KlsymError", "ProofError", "R", "Refused", "UsageError", "Verdict",
    "alpha",
    "audit", "beta", "bregman", "check", "chi2", "claim", "clip", "compare", "count", "covariance",
    "derive", "eps",
    "expectation", "expected_gradient", "explain", "explore", "grad", "jeffreys", "k", "k1", "k2", "k3",
    "lam", "load", "log_mu", "log_p", "log_q", "measure",
    "measure_samples", "mu", "p", "parameter", "parse", "q", "r",
    "recommend", "rho",
    "s", "sample", "sample_gradient", "settle", "sg",
]  # fmt: skip

if TYPE_CHECKING:  # the same names for mypy; those of the study for their types alone, nothing imports it
    from klsym.api import Verdict, compare, explain, recommend
    from klsym.calculus import *
    from klsym.confirmed.both import audit
    from klsym.engine.questions.compare import Comparison
    from klsym.errors import KlsymError, ProofError, Refused, UsageError
    from klsym.kernel import check
    from klsym.language.parser import parse
    from klsym.measure.batch import Batch
    from klsym.measure.estimating import measure_samples
    from klsym.measure.measuring import measure
    from klsym.study.explorer import explore
    from klsym.study.ledger.registry import claim, load
    from klsym.study.ledger.settle_claim import settle

else:  # hidden from mypy, for which a module with __getattr__ has every name

    def __getattr__(name: str) -> Any:
        home = _HOME.get(name) or ("klsym.calculus" if name in __dir__() else None)
        if home is None:
            raise AttributeError(f"module 'klsym' has no attribute {name!r}")
        globals()[name] = value = getattr(importlib.import_module(home), name)
        return value


def load_function(name: str) -> Any:
    """Return a function whose name a package has, too."""
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """All names, those of the table of estimators among them."""
    return sorted({*__all__, *importlib.import_module("klsym.language.estimators").NAMES})
