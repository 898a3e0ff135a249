"""What code uses and klsym does not know: whatever is made of it is unread as well.

It may reach neither the result nor a branch on which the result depends.  An unread value has the name by
which the code calls it, such as inputs['ref_logps']; where it is computed with, `running` is asked whether
the name is bound, or says what it is.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

from klsym.audit.compiled import running
from klsym.audit.places import here
from klsym.audit.terms import Refused

FREE = "is free: bind it with --map or --set"
SAME = {
    "to", "cuda", "cpu", "float", "double", "half", "bfloat16", "contiguous", "clone", "detach", "type_as",
    "tolist", "numpy", "flatten", "keys",
}  # fmt: skip  # methods that change no name


DENSITIES = ("log_q", "log_p", "log_mu", "log_old")
DETACHED = ("detach", "numpy", "tolist")


class Record:
    """The base of a class whose bases are not imported: it keeps what it is made of, by name."""

    def __init__(self, *_: Any, **fields: Any) -> None:
        self.__dict__.update(fields)


class Unread:
    """A value that is not known: its name in the code, and why it is not known."""

    def __init__(self, path: str, causes: tuple[Refused, ...], parent: Unread | None = None) -> None:
        self.__dict__.update(
            _path=path,
            _causes=causes,
            _parent=parent,
            _alias="",
            _off=False,
            _asks=None,
            _last="",
            _dense=False,
        )

    @classmethod
    def named(cls, path: str, why: str = FREE) -> Unread:
        """A value by its name, which is not bound."""
        return cls(path, (Refused(f"{path} {why}"),))

    def also(self, alias: str) -> Unread:
        """The same value, which the code keeps under this name."""
        found = Unread(self._path, self._causes, self._parent)
        found.__dict__.update(
            _alias=self._alias or alias,
            _off=self._off or gradients_are_off(),
            _last=self._last,
            _dense=self._dense,
        )
        return found

    # -- parts of it --------------------------------------------------------------------------
    def _part(self, suffix: str) -> Any:
        """x.y or x['y']; what is computed, or was not imported, has no names."""
        path = f"{self._path}{suffix}" if self._path else ""
        bound = running.bound(path) if path else running.ABSENT
        if bound is not running.ABSENT:
            return bound
        free = self._path and all(FREE in cause.reason for cause in self._causes)
        found = Unread(path, (Refused(f"{path} {FREE}", here()),) if free else self._causes, self)
        found.__dict__["_last"] = suffix.lstrip(".")
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        path = f"{self._path}.{name}"
        if running.bound(path) is running.ABSENT and of_arrays(name):
            mine = running.value_of(self)
            if mine is not running.ABSENT:
                return getattr(mine, name)
        if name == "training" and running.bound(path) is running.ABSENT:
            return running.note_training(path)
        return self._part(f".{name}")

    def __getitem__(self, key: Any) -> Any:
        of_dict = isinstance(key, str | Unread) or running.is_number(self)  # a number has no parts
        if not of_dict and (mine := running.value_of(self)) is not running.ABSENT:
            return mine[key]
        return self._part(f"[{key._path if isinstance(key, Unread) else repr(key)}]")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """What a method of an unknown object gives is unknown, but for those of tensors and of dicts."""
        of, last = self._parent, self._last
        if of is not None and last in DETACHED:
            found = of.also("")
            found.__dict__["_off"] = True
            return found
        if of is not None and last in SAME:
            return of
        if not arguments and (answer := running.is_available(last or self._path)) is not None:
            return answer
        if of is not None and last == "get" and arguments and is_key(arguments[0]):
            default = options.get("default", arguments[1] if len(arguments) > 1 else None)
            return running.or_default(of[arguments[0]], default)
        found = Unread(f"{self._path}(..)" if self._path else "", self._causes)
        found.__dict__["_dense"] = any(map(is_density, (self, *arguments, *options.values())))
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        running.keep(f"{self._path}.{name}", value)

    def __setitem__(self, key: Any, value: Any) -> None:
        running.keep(f"{self._path}[{key!r}]", value)

    def __enter__(self) -> Unread:
        running.note(f"with {self._path}: is taken to change nothing")
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def __mro_entries__(self, bases: Any) -> tuple[Any, ...]:
        return () if any(isinstance(base, type) for base in bases) else (Record,)

    # -- what needs its value -----------------------------------------------------------------
    def _undecided(self, *_: Any, **__: Any) -> Any:
        mine = running.value_of(self)
        if mine is running.ABSENT:
            raise running.undecided(self, here())
        return mine

    def _looped(self) -> Any:
        mine = running.value_of(self)
        if mine is not running.ABSENT:
            return mine
        if not self._path:
            raise self._causes[0]
        if self._path in running.current().containers:
            raise running.undecided(self, here())
        raise Refused(f"a loop over {self._path}, which is not known", here())

    def __bool__(self) -> bool:
        mine = running.value_of(self)
        if mine is not running.ABSENT:
            return bool(mine)
        if self._path in running.current().something and self._asks is None:
            return True
        raise running.asking("" if self._asks else "truth", running.undecided(self, here()))

    def __iter__(self) -> Any:
        return iter(self._looped())

    def __len__(self) -> int:
        return len(self._looped())

    def __int__(self) -> int:
        return int(self._undecided())

    def __index__(self) -> int:
        return operator.index(self._undecided())

    def __float__(self) -> float:
        return float(self._undecided())

    def __hash__(self) -> int:
        return hash(self._undecided())

    def __contains__(self, key: Any) -> bool:
        return bool(running.contains(key, self))

    def __format__(self, form: str) -> str:
        return self._path or "nan"

    def __repr__(self) -> str:
        return f"<{self._path or 'a value'}: not known>"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return running.torch_called(func, args, dict(kwargs or {}))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return known(lambda *values: getattr(ufunc, method)(*values, **options), *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return known(lambda *values: function(*values, **options), *args)


def is_key(value: Any) -> bool:
    """May it be the key of a dict?  The argument of buffer.get(batch_size) is none."""
    return isinstance(value, str | tuple) or (isinstance(value, Unread) and not running.is_number(value))


def of_arrays(name: str) -> bool:
    """Has a tensor or an array an attribute of this name?  Else it is one of an object that holds them."""
    kinds = [("torch", "Tensor"), ("numpy", "ndarray"), ("jax", "Array")]
    return any(
        hasattr(getattr(sys.modules.get(m), kind, None), name) for m, kind in kinds if m in sys.modules
    )


def gradients_are_off() -> bool:
    """Is the code within no_grad() of PyTorch?"""
    torch = sys.modules.get("torch")
    return torch is not None and not torch.is_grad_enabled()


def causes_of(values: Any) -> tuple[Refused, ...]:
    """Why they are not known, those of all of them."""
    found = [cause for value in values if isinstance(value, Unread) for cause in value._causes]
    return tuple({str(cause): cause for cause in found}.values())


def unread(*values: Any, why: Refused | None = None) -> Unread:
    """What is made of these, or refused for this reason."""
    found = Unread("", (*causes_of(values), *([why] if why else [])))
    found.__dict__["_dense"] = any(map(is_density, values))
    return found


def is_density(value: Any) -> bool:
    """Is a value a log density, known or by its name, or made of one?"""
    if isinstance(value, Unread):
        guess = running.current().guess
        meant = guess(value._path, value._alias, value._off) if guess and value._path else None
        return value._dense or bool(meant and any(name in meant[1] for name in DENSITIES))
    symbols = getattr(getattr(value, "__dict__", {}).get("formula"), "free_symbols", ())
    return any(x.name in DENSITIES for x in symbols)


def settled(values: Any) -> list[Any]:
    """The values, those of unread ones where their names are bound or say what they are."""
    found = []
    for value in values:
        lost = None if isinstance(value, Unread) else getattr(value, "__dict__", {}).get("lost")
        value = unread(why=lost) if lost is not None else value
        mine = running.value_of(value) if isinstance(value, Unread) else value
        found.append(value if mine is running.ABSENT else mine)
    return found


def known(function: Callable[..., Any], *values: Any) -> Any:
    """A function of values, if all of them are known."""
    found = settled(values)
    return unread(*found) if any(isinstance(value, Unread) for value in found) else function(*found)


def _operator(name: str, swapped: bool) -> Callable[..., Any]:
    function = getattr(operator, name)

    def method(self: Unread, *others: Any) -> Any:
        values = (*others, self) if swapped else (self, *others)
        found = known(function, *values)
        plain = bool(others) and not isinstance(others[0], Unread)
        if isinstance(found, Unread) and name in COMPARED and self._path and plain:
            found.__dict__["_asks"] = (self, name, others[0])
        return found

    return method


COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    _function = f"{_name}_" if _name in ("and", "or") else _name
    setattr(Unread, f"__{_name}__", _operator(_function, swapped=False))
    setattr(Unread, f"__r{_name}__", _operator(_function, swapped=True))
for _name in ("neg", "abs", "invert", "pos", *COMPARED):
    setattr(Unread, f"__{_name}__", _operator(_name, swapped=False))
