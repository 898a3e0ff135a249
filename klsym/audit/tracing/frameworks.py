"""What reads and runs code of one library: PyTorch, JAX, or NumPy (values alone, for rewards)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from klsym.audit.binding import Bindings
from klsym.audit.confirm import Point
from klsym.audit.terms import mask
from klsym.errors import UsageError
from klsym.language.expressions import A, R

At = Callable[[Point, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Framework:
    """What one library has.

    asks: do its functions ask an unread value what it is?  argument, parameter: traced values.
    trace: a call -> its formula and operations.  exactly: value and gradient in float64 at points.
    overflows: what is not finite in short floats.
    """

    name: str
    differentiates: bool
    asks: bool
    every_layout: tuple[Any, ...]
    make_argument: Callable[[str, Any, Any], Any]
    make_parameter: Callable[[Any], Any]
    trace: Callable[[Callable[[dict[str, Any]], Any], Mapping[str, Any]], tuple[Any, list[Any]]]
    make_runner: Callable[[At, Mapping[str, Any], Any], Callable[[Point], Any]]
    number: Callable[[Any], Any]
    find_overflows: Callable[[At, Mapping[str, Any], Any, Mapping[str, Point]], list[Any]]

    def is_different(self, layout: Any, bindings: Bindings) -> bool:
        """Does a layout differ from the first for these arguments?"""
        masked, rewarded = mask in bindings.roles.values(), bool(bindings.symbols & {R, A})
        first = self.every_layout[0].mask_type
        return (masked or layout.mask_type == first) and (rewarded or not layout.rows)


def choose_framework(function: Any, namespace: Mapping[str, Any], gradient: bool) -> Framework:
    """Return the library that the code uses; for none, PyTorch, or NumPy if PyTorch is not installed.

    gradient: is a gradient asked for, which NumPy does not have?
    """
    used = _find_libraries([*namespace.values(), function])
    name = next((n for n in ("jax", "torch", "numpy") if n in used), None)
    try:
        return FRAMEWORKS[name or "torch"]()
    except ImportError as error:
        if name is None and not gradient:
            return FRAMEWORKS["numpy"]()
        extra = name or "torch"
        needs = f"this code needs {error.name or extra}, which is not installed"
        raise UsageError(f'{needs}: pip install ".[{extra}]" in a clone of klsym') from None


def _find_libraries(values: Iterable[Any]) -> set[str]:
    """Return the packages that values come from, and those that the functions among them use."""
    packages: set[str] = set()
    seen: dict[int, Any] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        home = _find_package(value)
        packages |= {home, _find_package(type(value))}
        if home not in FRAMEWORKS and home not in sys.stdlib_module_names:
            waiting += _iterate_used(value)
    return packages


def _find_package(value: Any) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return str(name).partition(".")[0]


def _iterate_used(function: Any) -> Iterator[Any]:
    """Yield the values of the names in a function, its lambdas and inner functions included."""
    function = inspect.unwrap(function) if callable(function) else function
    code, namespace = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # a cell that is empty yet
            yield cell.cell_contents
    inner = [code] if isinstance(code, CodeType) else []
    while inner:
        code = inner.pop()
        inner += [c for c in code.co_consts if isinstance(c, CodeType)]
        yield from (namespace[name] for name in code.co_names if name in namespace)


def _build_framework(module: Any, name: str, differentiates: bool) -> Framework:
    """Return the functions of the module of a library as a Framework."""
    return Framework(
        name, differentiates, name != "jax", module.LAYOUTS, module.make_argument, module.make_parameter,
        module.trace, module.make_runner, getattr(module, "Number", float), module.find_overflows,
    )  # fmt: skip


def _load_torch() -> Framework:
    import array_api_compat  # noqa: F401
    import torch  # noqa: F401

    from klsym.audit.tracing import torch_run

    return _build_framework(torch_run, "torch", True)


def _load_jax() -> Framework:
    import jax  # noqa: F401

    from klsym.audit.tracing import jax_trace

    return _build_framework(jax_trace, "jax", True)


def _load_numpy() -> Framework:
    from klsym.audit.tracing import numpy_trace

    return _build_framework(numpy_trace, "numpy", False)


FRAMEWORKS: dict[str, Callable[[], Framework]] = {
    "torch": _load_torch,
    "jax": _load_jax,
    "numpy": _load_numpy,
}
