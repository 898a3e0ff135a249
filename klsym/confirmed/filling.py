"""Arguments of some code, filled from a batch of a small world with the layout that an audit found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

from klsym.audit.terms import VOCABULARY, Refused, mask, offsets, sequence_mask, token
from klsym.language.expressions import unfold
from klsym.language.sums import Whole
from klsym.measure.batch import Batch
from klsym.numeric.array_losses import evaluate


def load_tracing(framework: str) -> Any:
    """Return the module that reads and runs code of a library."""
    return import_module(f"klsym.audit.tracing.{'jax_trace' if framework == 'jax' else 'torch_run'}")


@contextmanager
def use_double(framework: str, axis: int = 0) -> Iterator[None]:
    """Compute in float64; axis: the size of the axis of all tokens, which nothing may pair with itself."""
    tracing = load_tracing(framework)
    is_watched = bool(axis) and framework == "torch"
    with tracing.use_double(), tracing.make_watching_mode(axis) if is_watched else nullcontext():
        yield


class Filling:
    """Arguments of some code, filled from a batch with the layout that the audit found.

    at_tokens: has each token a reward of its own?  parameters: numbers of those in the roles.
    """

    def __init__(
        self, batch: Batch, layout: Any, framework: str, at_tokens: bool, parameters: Mapping[str, float]
    ) -> None:
        self.batch, self.layout, self.framework = batch, layout, framework
        self.library, self.detach = _load_arrays(framework)
        per_token = batch.rewards[:, None] + 0 * batch.mask
        of_each = batch.token_rewards if at_tokens and not layout.constant else per_token
        rewards = {"R": of_each, "A": per_token}
        if layout.by_rows:
            rewards = {"R": batch.rewards, "A": batch.rewards}
        tables = (batch.logits, batch.ref_logits, batch.old_logits)
        self.numbers = {
            "log_q": batch.logp, "log_p": batch.ref_logp, "log_mu": batch.sampler_logp,
            "log_old": batch.old_logp, **rewards, **parameters,
            **{x.name: table for x, table in zip(VOCABULARY, tables, strict=True)},
        }  # fmt: skip

    def fill(self, roles: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name."""
        arguments = {name: self._evaluate(role) for name, role in roles.items()}
        return load_tracing(self.framework).fit_layout(arguments, self.layout)  # type: ignore[no-any-return]

    def _evaluate(self, role: Any) -> Any:
        if role == mask:
            return self._convert_mask(self.batch.mask)
        if role == sequence_mask:
            return self._convert_mask(self.batch.mask[:, 0] * 0 + 1)
        if role == offsets:
            return self._list_offsets()
        if role == token:
            return self.batch.tokens
        if role.is_Symbol and role.name in self.numbers and not self.layout.summed:
            return self.numbers[role.name]
        counted = self.batch.mask
        if role.has(Whole):
            inside = role.replace(lambda e: isinstance(e, Whole), lambda e: e.args[0])
            return (evaluate(inside, self.numbers, self.library, self.detach) * counted).sum(1)
        if unknown := {x.name for x in unfold(role).free_symbols} - {*self.numbers}:
            raise Refused(f"{', '.join(sorted(unknown))} is not measured")
        numbers = self.layout.make_numbers(role, self.numbers, counted)
        return evaluate(role, numbers, self.library, self.detach)

    def _convert_mask(self, counted: Any) -> Any:
        if self.framework == "jax":
            from klsym.audit.tracing.jax_trace import MASKS

            return counted.astype(MASKS[self.layout.mask_type])
        import torch

        return counted.to(getattr(torch, self.layout.mask_type))

    def _list_offsets(self) -> Any:
        """Return where the sequences begin on the axis of all tokens, and where the last one ends."""
        if not self.layout.flat:
            raise Refused("packed sequences lie on one axis")
        size, length = self.batch.mask.shape
        return self.library.arange(0, size * length + 1, length)

    # -- the result -------------------------------------------------------------------------
    def sum_tokens(self, value: Any) -> Any:
        """Return the sum of what the code returns over the tokens that count, or over the sequences."""
        value = self._as_array(value)
        if value.ndim == 0:
            return value
        if math.prod(value.shape) == math.prod(self.batch.mask.shape) and value.ndim != 1:
            return (value.reshape(self.batch.mask.shape) * self.batch.mask).sum()
        if self.layout.flat and math.prod(value.shape) == math.prod(self.batch.mask.shape):
            return (value.reshape(self.batch.mask.shape) * self.batch.mask).sum()
        return value.sum()

    def weigh_scores(self, value: Any, credit: str) -> Any:
        """Return the sum of detached rewards times log q; credit: which tokens a reward meets."""
        value = self.detach(self._as_array(value))
        log_q = self.batch.logp * self.batch.mask
        if value.ndim < 2:
            return (value * log_q.sum(-1)).sum()
        value = value * self.batch.mask
        if credit != "same-token":
            total = value.sum(-1)[:, None] + 0 * value
            value = total if credit == "total" else total - value.cumsum(-1) + value
        return (value * log_q).sum()

    def _as_array(self, value: Any) -> Any:
        if hasattr(value, "ndim"):
            return value
        return 0 * self.batch.mask.sum() + float(value)


def _load_arrays(framework: str) -> tuple[Any, Callable[[Any], Any]]:
    """Return the array functions of a library, and what it calls sg."""
    if framework == "jax":
        import jax

        return jax.numpy, jax.lax.stop_gradient
    from array_api_compat import torch as functions

    return functions, lambda x: x.detach()
