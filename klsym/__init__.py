"""klsym proves what a KL penalty in reinforcement learning really optimises.

>>> import klsym
>>> klsym.explain("k3").target
'forward-kl'

The functions are the commands of the command line; formulas are written with the names of `klsym.calculus`.
Names are loaded when they are used: `import klsym` is cheap, and `klsym.kernel` needs the standard library
alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"  # stated here; pyproject.toml reads it, and a test compares the files that repeat it

_HOMES = {
    "klsym.api": ("Verdict", "compare", "examples", "explain", "recommend", "rule", "rules"),
    "klsym.confirmed.both": ("audit",),
    "klsym.measure.batch": ("Batch",),
    "klsym.measure.estimating": ("measure_samples",),
    "klsym.measure.measuring": ("measure",),
    "klsym.kernel": ("check",),
    "klsym.errors": ("KlsymError", "ProofError", "Refused", "UsageError"),
    "klsym.study.api": ("divergence", "optimum"),
    "klsym.study.claims": ("claim", "claims"),
    "klsym.study.explorer": ("explore",),
}
_MODULES = {
    "calculus": "klsym.calculus",
    "notebook": "klsym.study.notebook.page",
    "testing": "klsym.testing",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [
    "Batch", "KlsymError", "ProofError", "Refused", "UsageError", "Verdict", "audit", "check", "claim",
    "claims", "compare", "divergence", "examples", "explain", "explore", "measure", "measure_samples",
    "optimum", "recommend", "rule", "rules",
]  # fmt: skip

if TYPE_CHECKING:  # the same names for mypy; those of the study for their types alone, nothing imports it
    from klsym.api import Verdict, compare, examples, explain, recommend, rule, rules
    from klsym.confirmed.both import audit
    from klsym.errors import KlsymError, ProofError, Refused, UsageError
    from klsym.kernel import check
    from klsym.measure.batch import Batch
    from klsym.measure.estimating import measure_samples
    from klsym.measure.measuring import measure
    from klsym.study.api import divergence, optimum
    from klsym.study.claims import claim, claims
    from klsym.study.explorer import explore

else:  # hidden from mypy, for which a module with __getattr__ has every name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(_MODULES[name])
        if name not in _HOME:
            raise AttributeError(_describe_missing(name))
        globals()[name] = value = load_function(name)
        return value


def load_function(name: str) -> Any:
    """Return a function whose name a package has, too."""
    return getattr(importlib.import_module(_HOME[name]), name)


def _describe_missing(name: str) -> str:
    from klsym.errors import suggest_nearest

    if not name.startswith("_") and hasattr(importlib.import_module("klsym.calculus"), name):
        return f"klsym has no {name!r}: it is klsym.calculus.{name}"
    return f"klsym has no {name!r}{suggest_nearest(name, __all__)}"


def __dir__() -> list[str]:
    return [*__all__]
