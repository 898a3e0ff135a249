"""What reads and runs code of one library: PyTorch, JAX, or NumPy (values alone, for rewards)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from klsym.audit.binding import Bindings
from klsym.audit.confirm import Point
from klsym.audit.terms import mask
from klsym.errors import UsageError
from klsym.language import A, R

At = Callable[[Point, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Framework:
    """argument, parameter: traced values; trace: a call -> its formula and operations; exactly: value and
    gradient
    in float64 at points; overflows: what is not finite in short floats."""

    name: str
    differentiates: bool
    every_layout: tuple[Any, ...]
    argument: Callable[[Any, Any], Any]
    parameter: Callable[[Any], Any]
    trace: Callable[[Callable[[dict[str, Any]], Any], Mapping[str, Any]], tuple[Any, list[Any]]]
    exactly: Callable[[At, Mapping[str, Any], Any], Callable[[Point], Any]]
    overflows: Callable[[At, Mapping[str, Any], Any, Mapping[str, Point]], list[Any]]

    def layouts(self, bindings: Bindings) -> Iterable[Any]:
        """Those that differ for these arguments."""
        formulas = set(bindings.roles.values())
        masked, rewarded = mask in formulas, bool(bindings.symbols & {R, A})
        first = self.every_layout[0].mask_type
        for layout in self.every_layout:
            if (masked or layout.mask_type == first) and (rewarded or not layout.by_rows):
                yield layout


def framework_of(function: Any, namespace: Mapping[str, Any]) -> Framework:
    """The library that the code uses; PyTorch where it uses none."""
    used = _libraries(function, namespace)
    name = next((n for n in ("jax", "torch", "numpy") if n in used), "torch")
    try:
        return FRAMEWORKS[name]()
    except ImportError:
        raise UsageError(
            f"the code is read with {name}, which is not installed: pip install {name}"
        ) from None


def _libraries(function: Any, namespace: Mapping[str, Any]) -> set[str]:
    values = {**namespace, "": type(function)}
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    known = {**getattr(function, "__globals__", {}), **_closed_over(function)}
    values.update({name: known[name] for name in getattr(code, "co_names", ()) if name in known})
    values.update(_closed_over(function))
    homes = {
        v.__name__ if isinstance(v, ModuleType) else str(getattr(v, "__module__", ""))
        for v in values.values()
    }
    return {home.partition(".")[0] for home in homes}


def _closed_over(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    return {n: c.cell_contents for n, c in zip(names, cells, strict=False)}


def _from(module: Any, name: str, differentiates: bool) -> Framework:
    """Each library has a module with these functions."""
    return Framework(
        name, differentiates, module.LAYOUTS, module.argument, module.parameter_argument, module.trace,
        module.exactly, module.overflows,
    )  # fmt: skip


def _torch() -> Framework:
    import torch  # noqa: F401

    from klsym.audit import torch_run

    return _from(torch_run, "torch", True)


def _jax() -> Framework:
    import jax  # noqa: F401

    from klsym.audit import jax_trace

    return _from(jax_trace, "jax", True)


def _numpy() -> Framework:
    from klsym.audit import numpy_trace

    return _from(numpy_trace, "numpy", False)


FRAMEWORKS: dict[str, Callable[[], Framework]] = {"torch": _torch, "jax": _jax, "numpy": _numpy}
