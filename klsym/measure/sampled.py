"""`klsym.measure` of a real model: groups are drawn from it, and the answer has intervals and an error rate.

    E_mu[grad L] = sum_i c_i grad(objective i)

is tested with both sides estimated from the same groups; see `moments`.  Gradients in millions of parameters
are compared in a count sketch: K sums of entries with random signs (Charikar, Chen & Farach-Colton 2002).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from klsym.errors import UsageError
from klsym.measure.batch import Batch
from klsym.measure.libraries import Loss, Unmeasured, as_scalar
from klsym.measure.moments import Moments
from klsym.measure.world import Array

SKETCH = 24  # K
PER_DRAW = 256  # sequences that are drawn at once
MOST_AT_ONCE = 20_000_000  # entries of gradients that are taken in one backward pass
Reward = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Models:
    """The policy, the reference and the sampler, called with input_ids [B, L]; they return logits or .logits.

    prompts: [P, L] the words before each sequence.  end: the word that ends one; None: none does.
    reward: tokens [B, T], mask [B, T] -> [B].
    """

    policy: Any
    reference: Any
    sampler: Any
    prompts: Any
    length: int
    end: int | None
    reward: Reward

    @property
    def is_on_policy(self) -> bool:
        return self.sampler is self.policy

    def draw(self, generator: Any, prompts: Any) -> tuple[Any, Any]:
        """Return tokens [B, T], drawn from the sampler after each prompt, and their mask."""
        words, alive = prompts, torch.ones(len(prompts), dtype=torch.bool, device=prompts.device)
        masks: list[Any] = []
        with torch.no_grad():
            for _ in range(self.length):
                chances = torch.softmax(compute_logits(self.sampler, words)[:, -1].float(), -1)
                drawn = torch.multinomial(chances, 1, generator=generator)[:, 0]
                drawn = torch.where(alive, drawn, 0 * drawn)
                words, masks = torch.cat([words, drawn[:, None]], 1), [*masks, alive]
                alive = alive & (drawn != self.end) if self.end is not None else alive
        return words[:, prompts.shape[1] :], torch.stack(masks, 1)

    def build_batch(self, prompts: Any, tokens: Any, mask: Any) -> Batch:
        """Return the batch of some sequences; log q has its gradient in the parameters of the policy."""
        input_ids = torch.cat([prompts, tokens], 1)
        first = prompts.shape[1] - 1
        logs = {}
        for name, model in (("q", self.policy), ("p", self.reference), ("mu", self.sampler)):
            with torch.set_grad_enabled(name == "q"):
                logs[name] = torch.log_softmax(compute_logits(model, input_ids)[:, first:-1], -1)
        drawn = {name: x.gather(-1, tokens[..., None])[..., 0] for name, x in logs.items()}
        rewards = self.reward(tokens, mask).to(logs["q"].dtype)
        return Batch(
            tokens=tokens, mask=mask.to(logs["q"].dtype), logp=drawn["q"], ref_logp=drawn["p"],
            old_logp=drawn["mu"], sampler_logp=drawn["mu"], rewards=rewards,
            token_rewards=rewards[:, None] * mask, logits=logs["q"], ref_logits=logs["p"],
            old_logits=logs["mu"], prompts=prompts[:, -1], input_ids=input_ids, model=self.policy,
            ref_model=self.reference,
        )  # fmt: skip


def make_models(
    policy: Any,
    reference: Any,
    sampler: Any,
    *,
    prompts: Any,
    length: int,
    end: int | None,
    reward: Reward | None,
) -> Models:
    """Return the models of a measurement, on the device of the policy.

    Raises UsageError: no module, no words as prompts, no length.
    """
    for name, model in (("model", policy), ("ref_model", reference), ("old_model", sampler)):
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"{name}: a torch.nn.Module expected, or a function that returns one, got"
                             f" {type(model).__name__}")  # fmt: skip
    leaf = next((leaf for leaf in policy.parameters() if leaf.requires_grad), None)
    if leaf is None:
        raise UsageError("model: it trains no parameters")
    words = torch.as_tensor(prompts, device=leaf.device)
    if words.ndim != 2 or not words.numel() or words.is_floating_point():
        raise UsageError("prompts: integers of the shape [P, L] expected, prompts of one length")
    if not isinstance(length, int) or length < 1:
        raise UsageError(f"length={length!r}: a positive whole number expected")
    with torch.no_grad():
        logits = compute_logits(policy, words[:1])
    if getattr(logits, "ndim", 0) != 3:
        raise UsageError("model: logits of the shape [B, L, V] expected")
    return Models(
        policy,
        reference,
        sampler,
        prompts=words,
        length=length,
        end=end,
        reward=reward or make_rewards(logits.shape[-1], leaf.device),
    )


def make_rewards(vocabulary: int, device: Any) -> Reward:
    """Return rewards that are random, but always the same for the same words."""
    generator = torch.Generator().manual_seed(11)
    table = torch.randn(vocabulary, generator=generator).to(device)

    def reward(tokens: Any, mask: Any) -> Any:
        return (table[tokens] * mask).sum(-1)

    return reward


def compute_logits(model: Any, input_ids: Any) -> Any:
    """Return the logits of a model, [B, L, V]."""
    output = model(input_ids)
    return getattr(output, "logits", output)


# ---------------------------------------------------------------------------- what is estimated
def list_estimates(batch: Batch, is_on_policy: bool) -> dict[str, Any]:
    """Return, for each named objective, a number whose gradient is an estimate of its gradient without bias.

    On-policy names that are the same there are left out: E_mu[R log q] has the gradient of E_q[R].
    """
    mask, counts = batch.mask, batch.mask.sum(-1)
    log_q, log_p, log_mu = ((x * mask).sum(-1) for x in (batch.logp, batch.ref_logp, batch.sampler_logp))
    weight = (log_q - log_mu).detach().exp()  # q/mu of whole sequences
    k1, R, q = (log_q - log_p).detach(), batch.rewards, batch.logits.exp()
    next_words = {
        "next-token-reverse-kl": q * (batch.logits - batch.ref_logits),
        "next-token-forward-kl": batch.ref_logits.exp() * (batch.ref_logits - batch.logits),
        "next-token-entropy": -q * batch.logits,
    }
    sums = {name: (x.sum(-1) * mask).sum(-1) for name, x in next_words.items()}
    estimates = {
        "policy-gradient": weight * R * log_q,
        "reverse-kl": weight * k1 * log_q,
        "forward-kl": -(log_p - log_mu).exp() * log_q,
        "entropy": -weight * log_q.detach() * log_q,
        **sums,
        "length": weight * counts * log_q,
        "inverse-length": weight / counts * log_q,
        "policy-gradient/T": weight * R / counts * log_q,
        **{f"{name}/T": x / counts for name, x in sums.items()},
    }
    if not is_on_policy:
        estimates["sampler-reverse-kl"] = weight * (log_q - log_mu).detach() * log_q
        estimates |= _list_sampled(batch, log_q)
    return {name: x.mean() for name, x in estimates.items()}


def _list_sampled(batch: Batch, log_q: Any) -> dict[str, Any]:
    """Return the objectives of fixed samples."""
    mask, k1 = batch.mask, batch.logp - batch.ref_logp
    rho = (batch.logp - batch.sampler_logp).exp()
    k3 = (-k1).exp() - 1 + k1
    terms = {"k3": k3, "k2": k1**2 / 2, "rho*k3": rho * k3, "rho*k1": rho * k1}
    return {
        "sampler-kl": -log_q,
        "log-likelihood": batch.rewards * log_q,
        "E_mu[whole(k1)**2/2]": (k1 * mask).sum(-1) ** 2 / 2,
        "token-policy-gradient": batch.rewards * (rho * mask).sum(-1),
        **{f"E_mu[{name}]": (x * mask).sum(-1) for name, x in terms.items()},
    }


class Sketch:
    """A linear map of gradients to K numbers: each entry is added to one of them with a random sign."""

    def __init__(self, module: Any) -> None:
        self.leaves = [leaf for leaf in module.parameters() if leaf.requires_grad]
        if not self.leaves:
            raise UsageError("model: it trains no parameters")
        device, size = self.leaves[0].device, sum(leaf.numel() for leaf in self.leaves)
        generator = torch.Generator(device=device).manual_seed(7)
        self.places = torch.randint(SKETCH, (size,), generator=generator, device=device)
        self.signs = torch.randint(2, (size,), generator=generator, device=device) * 2.0 - 1

    def differentiate(self, values: Sequence[Any]) -> Array:
        """Return the sketches of the gradients of some numbers, [K, numbers]."""
        columns = np.zeros((SKETCH, len(values)))
        moving = [i for i, value in enumerate(values) if getattr(value, "requires_grad", False)]
        if moving:
            columns[:, moving] = np.stack([*self._list_sketches([values[i] for i in moving])], -1)
        return columns

    def _list_sketches(self, values: Sequence[Any]) -> Iterator[Array]:
        """Yield the sketch of each gradient; those of a small model are taken in one backward pass."""
        together = torch.stack([*values])
        if len(self.places) * len(values) <= MOST_AT_ONCE:
            try:
                eye = torch.eye(len(values), dtype=together.dtype, device=together.device)
                yield from self._project(
                    self._differentiate(together, grad_outputs=eye, is_grads_batched=True)
                )
                return
            except RuntimeError:  # an operation that allows no batch of backward passes
                pass
        for value in together:
            yield from self._project([x[None] for x in self._differentiate(value)])

    def _differentiate(self, value: Any, **options: Any) -> list[Any]:
        options = {"allow_unused": True, "materialize_grads": True, "retain_graph": True, **options}
        return [*torch.autograd.grad(value, self.leaves, **options)]

    def _project(self, gradients: Sequence[Any]) -> Iterator[Array]:
        """Yield the sketch of each row of gradients in the leaves."""
        flat = torch.cat([gradient.flatten(1) for gradient in gradients], 1)
        sums = torch.zeros((len(flat), SKETCH), dtype=torch.float64, device=flat.device)
        yield from sums.index_add(1, self.places, (self.signs * flat).double()).cpu().numpy()


def sample_moments(loss: Loss, models: Models, groups: int, size: int, seed: int) -> Moments:
    """Return the sketched gradients of so many groups of `size` samples after one prompt each."""
    sketch = Sketch(models.policy)
    generator = torch.Generator(device=models.prompts.device).manual_seed(seed)
    sketches: list[Array] = []
    names: tuple[str, ...] = ()
    while len(sketches) < groups:
        count = min(max(1, PER_DRAW // size), groups - len(sketches))
        numbers = torch.randint(
            len(models.prompts), (count,), generator=generator, device=models.prompts.device
        )
        prompts = models.prompts[numbers.repeat_interleave(size)]
        tokens, mask = models.draw(generator, prompts)
        for start in range(0, count * size, size):
            chosen = slice(start, start + size)
            batch = models.build_batch(prompts[chosen], tokens[chosen], mask[chosen])
            estimates = list_estimates(batch, models.is_on_policy)
            columns = sketch.differentiate([as_scalar(loss(batch)), *estimates.values()])
            if not np.isfinite(columns).all():
                words = tokens[chosen].tolist()
                raise Unmeasured(
                    f"the gradient of the loss is not finite where the samples are the words {words}"
                )
            names = tuple(estimates)
            sketches.append(columns)
    whole = np.array(sketches)
    return Moments(whole[..., 0], whole[..., 1:], names)
