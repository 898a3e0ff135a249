"""Real training code: read, traced into the language of losses, confirmed by autograd, explained.

`klsym.audit(function)` calls it.  The package has the name of its function, so the module is callable, too:
`import klsym.audit.terms` would otherwise hide the function behind the package.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from klsym import load_function

        return load_function("audit")(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
