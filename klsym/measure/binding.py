"""Fill the arguments of a loss: with one batch, or with its fields by the names of the arguments."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from klsym.engine.answers.loss_hints import suggest_explain
from klsym.engine.options.choices import is_on_policy
from klsym.errors import UsageError, spell_option
from klsym.measure.batch import ROLES, WRITTEN_AS, Batch
from klsym.measure.libraries import Loss


class Shape(NamedTuple):
    """What pasted code shows of the worlds that it needs.

    one_token: it has no mask and no sums over tokens, so that its values have no axis of tokens; padded: it
    has a mask; compares: it averages rewards over samples; has_older: it has an older policy's;
    two_valued: it asks whether a reward is equal to a number.
    """

    one_token: bool = False
    padded: bool = True
    compares: bool = False
    has_older: bool = False
    two_valued: bool = False


class BoundLoss(NamedTuple):
    """A loss as a function of one batch, the field of each argument, and what was guessed of them.

    guessed: fields by the names; numbers: values of coefficients in pasted code, which has a shape.
    """

    function: Loss
    fields: dict[str, str]
    guessed: dict[str, str]
    numbers: Mapping[str, float] = {}
    shape: Shape = Shape()
    assumed: tuple[str, ...] = ()

    def describe(self, sampling: str) -> list[str]:
        """List the guesses, and what the log densities of an older policy are where q draws the samples."""
        others = [f"{name} is {field}" for name, field in self.guessed.items() if name != field]
        notes = [f"guessed from the name{'s' * (len(others) > 1)}: {', '.join(others)}"] if others else []
        notes += [f"assumed: {'; '.join(self.assumed)}"] if self.assumed else []
        if self.numbers:
            numbers = ", ".join(f"{name} = {value:g}" for name, value in self.numbers.items())
            notes.append(f"assumed: {numbers}; {spell_option('set', 'NAME=VALUE')} for another value")
        old = [name for name, field in self.fields.items() if field in ("old_logp", "old_logits")]
        if old and is_on_policy(sampling):
            option = spell_option("sampling", "off-policy")
            whose = "is that" if len(old) == 1 else "are those"
            notes.append(f"{' and '.join(old)} {whose} of q, which draws the samples; {option}: an older one")
        return notes


def bind_loss(loss: Any, map: Mapping[str, str], set: Mapping[str, Any]) -> BoundLoss:
    """Return the loss as a function of one batch.

    >>> def penalty(logp, ref_log_probs, beta=0.1):
    ...     return beta * (logp - ref_log_probs)
    >>> bind_loss(penalty, {}, {"beta": 0.04}).describe("on-policy")
    ['guessed from the name: ref_log_probs is ref_logp']

    Raises UsageError: an argument whose field is unknown.
    """
    function = load_function(loss) if isinstance(loss, str) else loss
    if not callable(function):
        raise UsageError(f"a loss is a function of one klsym.Batch, got {type(function).__name__}")
    parameters = _list_parameters(function)
    unknown = [name for name in (*map, *set) if name not in parameters]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise UsageError(f"the loss has no argument {unknown[0]!r} (it has {', '.join(parameters)})")
    if both := [name for name in map if name in set]:
        raise UsageError(f"{both[0]!r} is in map and in set: one of them expected")
    needed = [
        p for p in parameters.values()
        if p.default is p.empty and p.name not in set and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]  # fmt: skip
    if len(needed) == 1 and needed[0].name not in map and guess_field(needed[0].name) is None:
        return BoundLoss(lambda batch: function(batch, **set), {}, {})
    roles = {name: _read_role(name, text) for name, text in map.items()}
    guessed = {}
    for parameter in parameters.values():
        if parameter.name in roles or parameter.name in set:
            continue
        role = guess_field(parameter.name)
        if role is not None:
            guessed[parameter.name] = role
        elif parameter in needed:
            raise _ask_for_field(parameter.name)
    fields = {**guessed, **roles}
    return BoundLoss(_call_with(function, fields, set), fields, guessed)


def _ask_for_field(name: str) -> UsageError:
    """Return the error for an argument whose field is not known; with the nearest one, if there is one."""
    field, value = spell_option("map", f"{name}=FIELD"), spell_option("set", f"{name}=VALUE")
    nearest = get_close_matches(name.lower(), ROLES, n=1, cutoff=0.7)
    likely = f" perhaps {spell_option('map', f'{name}={nearest[0]}')};" if nearest else ""
    fields = f"{field}, one of {', '.join(ROLES)}; {value}; or a function of one klsym.Batch"
    return UsageError(f"what is {name!r}?{likely} {fields}")


def _call_with(function: Callable[..., Any], roles: Mapping[str, str], set: Mapping[str, Any]) -> Loss:
    def run(batch: Batch) -> Any:
        return function(**{name: batch.read_role(role) for name, role in roles.items()}, **set)

    return run


def _list_parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        raise UsageError("the arguments of the loss are not known: a Python function expected") from None


def _read_role(name: str, text: str) -> str:
    role = WRITTEN_AS.get(text.replace(" ", ""), text.strip()) if isinstance(text, str) else None
    if role is None or role not in ROLES:
        raise UsageError(f"map {name}={text!r}: one of {', '.join(ROLES)} expected")
    return role


def guess_field(name: str) -> str | None:
    """Return the field that the name of an argument suggests.

    >>> [guess_field(x) for x in ("old_log_probs", "response_mask", "advantages", "kl_coef", "token_rewards")]
    ['old_logp', 'mask', 'rewards[t]', None, 'token_rewards']
    """
    if name in ROLES or name in WRITTEN_AS:
        return WRITTEN_AS.get(name, name)
    from klsym.audit.binding import guess_role

    role = guess_role(name)
    return WRITTEN_AS.get(role, "mask" if role == "mask" else None) if role else None


def load_function(target: str) -> Callable[..., Any]:
    """Return the function of "FILE.py:FUNC", or of "MODULE:FUNC"; its module is run.

    Raises UsageError: no such file, module or function.
    """
    place, sign, name = target.rpartition(":")
    if not sign or not name.isidentifier():
        raise UsageError(f"{target!r}: FILE.py:FUNC or MODULE:FUNC expected{suggest_explain(target)}")
    if place.endswith(".py"):
        module = _load_file(Path(place))
    else:
        try:
            module = importlib.import_module(place)
        except ImportError as error:
            raise UsageError(f"{place}: {type(error).__name__}: {error}") from None
    try:
        return getattr(module, name)  # type: ignore[no-any-return]
    except AttributeError:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UsageError(
            f"{place} has no {name!r} (it has {', '.join(known[:20]) or 'no function'})"
        ) from None


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(f"measured_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path}: running it raises {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


def load_network(model: Any) -> Any:
    """Return the network of a policy: a module of PyTorch, what a function returns, or "FILE.py:FUNC".

    Raises UsageError: no network of PyTorch, or PyTorch is not installed.
    """
    try:
        from klsym.measure.networks import Network
    except ImportError:
        raise UsageError("model: a network of PyTorch, which is not installed") from None
    return Network(load_made(model))


def load_made(model: Any) -> Any:
    """Return a module of PyTorch, what a function without arguments returns, or that of "FILE.py:FUNC"."""
    import torch

    made = load_function(model) if isinstance(model, str) else model
    return made if isinstance(made, torch.nn.Module) or not callable(made) else made()


def choose_library(function: Any) -> str:
    """Return the library that a loss uses: "jax" if its module names JAX and not PyTorch, else "torch"."""
    code = inspect.unwrap(function)
    cells = [cell.cell_contents for cell in getattr(code, "__closure__", None) or () if cell is not None]
    names: set[str] = set()
    for value in [code, *cells]:
        for member in getattr(value, "__globals__", {}).values():
            names.add(getattr(member, "__name__", "").partition(".")[0] if inspect.ismodule(member) else "")
    return "jax" if "jax" in names and "torch" not in names else "torch"
