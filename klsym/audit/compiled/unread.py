"""What code uses and klsym does not know: whatever is made of it is unread as well.

It may reach neither the result nor a branch on which the result depends.  An unread value has the name by
which the code calls it, such as inputs['ref_logps']; where it is computed with, `running` is asked whether
the name is bound, or says what it is.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Collection
from itertools import chain
from typing import Any

from klsym.audit.compiled import running
from klsym.audit.places import find_current_line
from klsym.audit.terms import Refused
from klsym.errors import spell_option
from klsym.language.pasted.asked_names import suggest_for_top_words

SAME = {
    "to", "cuda", "cpu", "float", "double", "half", "bfloat16", "contiguous", "clone", "detach", "type_as",
    "tolist", "numpy", "flatten", "keys",
}  # fmt: skip  # methods that change no name


DENSITIES = ("log_q", "log_p", "log_mu", "log_old")
DETACHED = ("detach", "numpy", "tolist")


class UnknownNames(Refused):
    """Names that say nothing of their values; for values of the top k words, with a hint."""

    def __init__(self, names: Collection[str], line: int | None = None) -> None:
        self.names = tuple(names)
        *before, last = self.names
        subject = f"{', '.join(before)} and {last} are" if before else f"{last} is"
        options = f"{spell_option('map')} or {spell_option('set')}"
        hint = next(filter(None, map(suggest_for_top_words, self.names)), "")
        what = "each of them is" if before else "it is"
        super().__init__(f"{subject} unknown: say what {what} with {options}{'; ' * bool(hint)}{hint}", line)


class Record:
    """The base of a class whose bases are not imported: it keeps what it is made of, by name."""

    def __init__(self, *_: Any, **fields: Any) -> None:
        self.__dict__.update(fields)


class UnreadValue:
    """A value that is not known: its name in the code, and why it is not known."""

    def __init__(self, path: str, causes: tuple[Refused, ...], parent: UnreadValue | None = None) -> None:
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
    def _from_name(cls, path: str, why: str = "") -> UnreadValue:
        """Return a value by its name, which is not bound."""
        return cls(path, (Refused(f"{path} {why}") if why else UnknownNames([path]),))

    def _make_refusal(self) -> Refused:
        """Return why it is not known; of unknown names, all at once."""
        first = self._causes[0]
        if not isinstance(first, UnknownNames):
            return first
        unknown = [cause for cause in self._causes if isinstance(cause, UnknownNames)]
        return UnknownNames([*dict.fromkeys(chain(*(cause.names for cause in unknown)))], first.line)

    def _add_alias(self, alias: str) -> UnreadValue:
        """Return the value with the name of the variable that keeps it."""
        value = UnreadValue(self._path, self._causes, self._parent)
        value.__dict__.update(
            _alias=self._alias or alias,
            _off=self._off or is_without_gradient(),
            _last=self._last,
            _dense=self._dense,
        )
        return value

    # -- parts of it --------------------------------------------------------------------------
    def _get_part(self, suffix: str) -> Any:
        """Return x.y or x['y']; what is computed, or was not imported, has no names."""
        path = f"{self._path}{suffix}" if self._path else ""
        bound = running.find_bound(path) if path else running.ABSENT
        if bound is not running.ABSENT:
            return bound
        is_free = self._path and all(isinstance(cause, UnknownNames) for cause in self._causes)
        causes = (UnknownNames([path], find_current_line()),) if is_free else self._causes
        part = UnreadValue(path, causes, self)
        part.__dict__["_last"] = suffix.lstrip(".")
        return part

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        path = f"{self._path}.{name}"
        if running.find_bound(path) is running.ABSENT and is_array_attribute(name):
            mine = running.find_value(self)
            if mine is not running.ABSENT:
                return getattr(mine, name)
        if name == "training" and running.find_bound(path) is running.ABSENT:
            return running.add_training_note(path)
        return self._get_part(f".{name}")

    def __getitem__(self, key: Any) -> Any:
        of_dict = isinstance(key, str | UnreadValue) or running.is_number(self)  # a number has no parts
        if not of_dict and (mine := running.find_value(self)) is not running.ABSENT:
            return mine[key]
        return self._get_part(f"[{key._path if isinstance(key, UnreadValue) else repr(key)}]")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return what a method of an unknown object returns: unread, but for tensors and dicts."""
        if (method := running.get_session().methods.get(self._path)) is not None:
            return method(*arguments, **options)
        parent, last = self._parent, self._last
        if parent is not None and last in DETACHED:
            result = parent._add_alias("")
            result.__dict__["_off"] = True
            return result
        if parent is not None and last in SAME:
            return parent
        if not arguments and (answer := running.is_available(last or self._path)) is not None:
            return answer
        if parent is not None and last == "get" and arguments and is_key(arguments[0]):
            default = options.get("default", arguments[1] if len(arguments) > 1 else None)
            return running.choose_default(parent[arguments[0]], default)
        result = UnreadValue(f"{self._path}(..)" if self._path else "", self._causes)
        result.__dict__["_dense"] = any(map(is_density, (self, *arguments, *options.values())))
        return result

    def __setattr__(self, name: str, value: Any) -> None:
        running.store_value(f"{self._path}.{name}", value)

    def __setitem__(self, key: Any, value: Any) -> None:
        running.store_value(f"{self._path}[{key!r}]", value)

    def __enter__(self) -> UnreadValue:
        running.add_note(f"with {self._path}: is taken to change nothing")
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def __mro_entries__(self, bases: Any) -> tuple[Any, ...]:
        return () if any(isinstance(base, type) for base in bases) else (Record,)

    # -- what needs its value -----------------------------------------------------------------
    def _get_value(self, *_: Any, **__: Any) -> Any:
        mine = running.find_value(self)
        if mine is running.ABSENT:
            raise running.make_undecided(self, find_current_line())
        return mine

    def _get_iterable(self) -> Any:
        mine = running.find_value(self)
        if mine is not running.ABSENT:
            return mine
        if not self._path:
            raise self._make_refusal()
        if self._path in running.get_session().containers:
            raise running.make_undecided(self, find_current_line())
        raise Refused(f"a loop over {self._path}, which is not known", find_current_line())

    def __bool__(self) -> bool:
        mine = running.find_value(self)
        if mine is not running.ABSENT:
            return bool(mine)
        if self._path in running.get_session().something and self._asks is None:
            return True
        raise running.mark_question(
            "" if self._asks else "truth", running.make_undecided(self, find_current_line())
        )

    def __iter__(self) -> Any:
        return iter(self._get_iterable())

    def __len__(self) -> int:
        return len(self._get_iterable())

    def __int__(self) -> int:
        return int(self._get_value())

    def __index__(self) -> int:
        return operator.index(self._get_value())

    def __float__(self) -> float:
        return float(self._get_value())

    def __hash__(self) -> int:
        return hash(self._get_value())

    def __contains__(self, key: Any) -> bool:
        return bool(running.has_key(key, self))

    def __format__(self, form: str) -> str:
        return self._path or "nan"

    def __repr__(self) -> str:
        return f"<{self._path or 'a value'}: not known>"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return running.call_torch(func, args, dict(kwargs or {}))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return apply_if_known(lambda *values: getattr(ufunc, method)(*values, **options), *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return apply_if_known(lambda *values: function(*values, **options), *args)


def is_key(value: Any) -> bool:
    """May it be the key of a dict?  The argument of buffer.get(batch_size) is none."""
    return isinstance(value, str | tuple) or (isinstance(value, UnreadValue) and not running.is_number(value))


def is_array_attribute(name: str) -> bool:
    """Has a tensor or an array an attribute of this name?  Else an object has it that contains arrays."""
    kinds = [("torch", "Tensor"), ("numpy", "ndarray"), ("jax", "Array")]
    return any(
        hasattr(getattr(sys.modules.get(m), kind, None), name) for m, kind in kinds if m in sys.modules
    )


def is_without_gradient() -> bool:
    """Is the code within no_grad() of PyTorch?"""
    torch = sys.modules.get("torch")
    return torch is not None and not torch.is_grad_enabled()


def collect_causes(values: Any) -> tuple[Refused, ...]:
    """Return why the values are not known, each reason once."""
    causes = [cause for value in values if isinstance(value, UnreadValue) for cause in value._causes]
    return tuple({str(cause): cause for cause in causes}.values())


def make_unread(*values: Any, why: Refused | None = None) -> UnreadValue:
    """Return the unread value that is made of these, or refused for this reason."""
    result = UnreadValue("", (*collect_causes(values), *([why] if why else [])))
    result.__dict__["_dense"] = any(map(is_density, values))
    return result


def is_density(value: Any) -> bool:
    """Is a value a log density, known or by its name, or made of one?"""
    if isinstance(value, UnreadValue):
        guess = running.get_session().guess
        meant = guess(value._path, value._alias, value._off) if guess and value._path else None
        return value._dense or bool(meant and any(name in meant[1] for name in DENSITIES))
    symbols = getattr(getattr(value, "__dict__", {}).get("formula"), "free_symbols", ())
    return any(x.name in DENSITIES for x in symbols)


def resolve_values(values: Any) -> list[Any]:
    """Return the values; for unread ones, what their names are bound to or say."""
    results = []
    for value in values:
        lost = None if isinstance(value, UnreadValue) else getattr(value, "__dict__", {}).get("lost")
        value = make_unread(why=lost) if lost is not None else value
        mine = running.find_value(value) if isinstance(value, UnreadValue) else value
        results.append(value if mine is running.ABSENT else mine)
    return results


def apply_if_known(function: Callable[..., Any], *values: Any) -> Any:
    """Return a function of values, unread unless all of them are known."""
    arguments = resolve_values(values)
    return (
        make_unread(*arguments)
        if any(isinstance(value, UnreadValue) for value in arguments)
        else function(*arguments)
    )


def _make_operator(name: str, swapped: bool) -> Callable[..., Any]:
    function = getattr(operator, name)

    def apply_operator(self: UnreadValue, *others: Any) -> Any:
        values = (*others, self) if swapped else (self, *others)
        result = apply_if_known(function, *values)
        plain = bool(others) and not isinstance(others[0], UnreadValue)
        if isinstance(result, UnreadValue) and name in COMPARED and self._path and plain:
            result.__dict__["_asks"] = (self, name, others[0])
        return result

    return apply_operator


COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    _function = f"{_name}_" if _name in ("and", "or") else _name
    setattr(UnreadValue, f"__{_name}__", _make_operator(_function, swapped=False))
    setattr(UnreadValue, f"__r{_name}__", _make_operator(_function, swapped=True))
for _name in ("neg", "abs", "invert", "pos", *COMPARED):
    setattr(UnreadValue, f"__{_name}__", _make_operator(_name, swapped=False))
