"""Do the results of some code pair samples with samples?  Arguments of a wrong shape may, by broadcasting.

[B, T] numbers, indexed as [:, None] and multiplied by others, make [B, B, T]: PyTorch raises no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from klsym.audit.terms import Refused


class PairedSamples(Refused):
    """Code that pairs each sample with each other one, with these shapes of its arguments."""


@contextmanager
def refuse_pairs(framework: str, count: int) -> Iterator[None]:
    """Raise PairedSamples where a result of PyTorch has two axes of so many samples; JAX is not looked at."""
    if framework != "torch":
        yield
        return
    from torch.overrides import TorchFunctionMode

    class Watching(TorchFunctionMode):  # type: ignore[misc,no-any-unimported,unused-ignore]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if tuple(getattr(result, "shape", ())).count(count) > 1:
                raise PairedSamples("a result has a number for each pair of samples")
            return result

    with Watching():
        yield
