"""Gradients by automatic differentiation: the second route, with real `detach` and `stop_gradient`.

klsym differentiates a loss symbolically.  Here PyTorch or JAX differentiates the same loss in float64,
as training code does: the loss is evaluated forwards, sg(.) is `tensor.detach()` or
`jax.lax.stop_gradient`, and the sampler is never differentiated (on-policy its log density is log q,
detached).  Nothing of klsym's own differentiation is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from klsym.engine.options.choices import is_on_policy, is_reward
from klsym.errors import UsageError
from klsym.language.expressions import as_expression, log_q, sg
from klsym.numeric.array_losses import evaluate
from klsym.study.sampling.backends import Backend

Array = Any
SAMPLINGS = ("on-policy", "off-policy")
USES = ("loss", "reward")
SUM_TOLERANCE = 1e-9


# ---------------------------------------------------------------------------- the gradients
def differentiate_samples(
    loss: Any,
    log_q: Any,
    values: Mapping[str, Any],
    *,
    sampling: str = "on-policy",
    use: str = "loss",
    backend: str = "torch",
    device: str = "cpu",
) -> np.ndarray:
    """dL/dlog q at each sample: the factor that multiplies the score function.

    For use="reward" the loss h is detached and multiplies the score: L = sg(h) log q.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> from klsym.language.expressions import k2, rho, sg
    >>> values = {"log_p": [0.0, -1.0], "log_mu": [-1.0, -2.0]}
    >>> differentiate_samples(sg(rho) * k2, [-1.0, -2.0], values, sampling="off-policy").round(9)
    array([-1., -1.])

    loss: SymPy expression in the atoms of `klsym.language.expressions`.
    log_q: log density of the trained distribution at the samples, in nats; any shape.
    values: log_p, log_mu (off-policy only), R, A -> arrays of the same shape, or numbers; parameters ->
      numbers.
    sampling: "on-policy" or "off-policy".  use: "loss" or "reward".
    backend: "torch" or "jax".  device: as the backend names it, such as "cpu" or "cuda:0".
    Returns float64 of the shape of log_q.
    Raises UsageError: a package or device that is missing, unknown options, shapes that differ, log_mu
      given on-policy, and what `evaluate` refuses.
    """
    library = _get_library(backend, device)
    live = library.read(log_q, "log_q")
    problem = _Problem(library, loss, values, sampling, use=use, shape=tuple(live.shape))
    [gradient] = library.gradient(lambda x: library.on.xp.sum(problem.evaluate_loss(x)), live)
    return gradient


def estimate_expected_gradient(
    loss: Any,
    logits: Any,
    weights: Any,
    values: Mapping[str, Any],
    *,
    sampling: str = "on-policy",
    use: str = "loss",
    backend: str = "torch",
    device: str = "cpu",
) -> np.ndarray:
    """The gradient of sum_x weights_x L(x) with respect to softmax logits, log q = log_softmax(logits).

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> from klsym.language.expressions import k1, rho
    >>> estimate_expected_gradient(rho * k1, [0.0, 0.0], [0.5, 0.5], {"log_p": [0.0, -1.0]}).round(9)
    array([-0.25,  0.25])

    logits: shape (n,).
    weights: shape (n,), summing to one: frequencies counts/N of outcomes drawn from the sampler, or
      its exact probabilities; never differentiated.
    values: as in `differentiate_samples`, arrays of shape (n,), one entry an outcome.
    Returns float64 of shape (n,).
    Raises UsageError: as `differentiate_samples`, logits that are not finite, weights that do not sum to
    one.
    """
    library = _get_library(backend, device)
    live, fixed = _read_weighted(library, logits, weights)
    problem = _Problem(library, loss, values, sampling, use=use, shape=tuple(live.shape))

    def mean(z: Array) -> Array:
        return library.on.xp.sum(fixed * problem.evaluate_loss(library.log_softmax(z)))

    [gradient] = library.gradient(mean, live)
    return gradient


def _read_weighted(library: Any, logits: Any, weights: Any) -> tuple[Array, Array]:
    """Finite logits, and weights of the same shape (n,) that sum to one."""
    live, fixed = library.read(logits, "logits"), library.read(weights, "weights")
    if live.ndim != 1 or fixed.shape != live.shape:
        shapes = f"{tuple(live.shape)} and {tuple(fixed.shape)}"
        raise UsageError(f"logits and weights of one shape (n,) expected, got {shapes}")
    if not np.isfinite(library.on.to_numpy(live)).all():
        raise UsageError("logits: finite numbers expected, got nan or infinity")
    total = float(fixed.sum())
    if not abs(total - 1) < SUM_TOLERANCE:
        raise UsageError(f"weights sum to {total}, not to 1: pass counts/N")
    return live, fixed


# ---------------------------------------------------------------------------- the loss
class _Problem:
    """A loss with everything fixed but log q."""

    def __init__(
        self, library: _Library, loss: Any, values: Mapping[str, Any], sampling: str, use: str, shape: Any
    ) -> None:
        for name, value, allowed in (("sampling", sampling, SAMPLINGS), ("use", use, USES)):
            if value not in allowed:
                raise UsageError(f"{name}={value!r}: one of {', '.join(allowed)} expected")
        self.library, self.on_policy = library, is_on_policy(sampling)
        if "log_q" in values:
            raise UsageError("values['log_q']: leave it out, log q has its own argument")
        if self.on_policy and "log_mu" in values:
            raise UsageError("values['log_mu']: leave it out, on-policy it is log q, detached")
        typed = as_expression(loss)
        self.loss = sg(typed) * log_q if is_reward(use) else typed
        self.values = {name: self.fix_variable(name, value, shape) for name, value in values.items()}

    def fix_variable(self, name: str, value: Any, shape: tuple[int, ...]) -> Any:
        if isinstance(value, Real):
            return value
        array = self.library.read(value, f"values[{name!r}]")
        if tuple(array.shape) not in ((), shape):
            raise UsageError(f"values[{name!r}] has shape {tuple(array.shape)}, log q has {shape}")
        return array

    def evaluate_loss(self, log_q: Array) -> Array:
        """The loss at each sample, connected to log q as training code would have it."""
        detach = self.library.stop_gradient
        values = {**self.values, "log_q": log_q}
        if self.on_policy:
            values["log_mu"] = detach(log_q)
        return evaluate(self.loss, values, self.library.on.xp, detach)


# ---------------------------------------------------------------------------- the libraries
@dataclass(frozen=True)
class _Library:
    """What a library brings: its stop-gradient, its log_softmax, and its automatic differentiation.

    gradient: scalar function, arrays -> the gradient for each array, in NumPy.
    """

    on: Backend
    stop_gradient: Callable[[Array], Array]
    log_softmax: Callable[[Array], Array]
    gradient: Callable[..., list[np.ndarray]]

    def read(self, value: Any, name: str) -> Array:
        """Numbers, or an array of NumPy or of the library, as float64 on the device, without a gradient."""
        host = value.detach().cpu() if hasattr(value, "detach") else value
        try:
            return self.on.asarray(host)
        except (TypeError, ValueError):
            raise UsageError(f"{name}: numbers expected, got {str(value)[:40]!r}") from None


def _get_library(name: str, device: str) -> _Library:
    if name not in LIBRARIES:
        raise UsageError(f"autograd with backend {name!r}: one of {', '.join(LIBRARIES)} expected")
    return LIBRARIES[name](Backend(name, device))


def _build_torch_library(on: Backend) -> _Library:
    on.asarray(0.0)  # is the package here, and the device?
    import torch

    def differentiate(function: Callable[..., Array], *inputs: Array) -> list[np.ndarray]:
        with torch.enable_grad():
            live = [x.clone().requires_grad_() for x in inputs]
            total = function(*live)
            if not total.requires_grad:  # nothing in it is differentiated
                return [np.zeros(tuple(x.shape)) for x in live]
            gradients = torch.autograd.grad(total, live, allow_unused=True, materialize_grads=True)
        return [on.to_numpy(x) for x in gradients]

    return _Library(on, lambda x: x.detach(), lambda z: torch.log_softmax(z, dim=-1), differentiate)


def _build_jax_library(on: Backend) -> _Library:
    on.asarray(0.0)
    import jax

    def differentiate(function: Callable[..., Array], *inputs: Array) -> list[np.ndarray]:
        gradients = jax.grad(function, argnums=tuple(range(len(inputs))))(*inputs)
        return [on.to_numpy(x) for x in gradients]

    return _Library(on, jax.lax.stop_gradient, jax.nn.log_softmax, differentiate)


LIBRARIES: dict[str, Callable[[Backend], _Library]] = {
    "torch": _build_torch_library,
    "jax": _build_jax_library,
}
