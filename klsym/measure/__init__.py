"""Run any loss code on every sample of a small world, and name the objective of its expected gradient.

The package has the name of its function, so the module itself is callable: `klsym.measure(loss)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from klsym import load_function

        return load_function("measure")(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
