"""Losses with one fault, and the change that mends it; and losses of which none may be changed.

Each row: its name, code with the fault, the text that is changed, what is written instead, and the arguments
of the audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """A function f with one fault; old and new: the only text that changes."""

    name: str
    code: str
    old: str
    new: str
    options: Mapping[str, Any] = MappingProxyType({})
    expect: str | None = None


OFF: dict[str, Any] = {"sampling": "off-policy"}
IN_REWARD: dict[str, Any] = {"use": "reward"}
SAMPLES = [
    Fault(
        "k3 in the loss",
        "def f(logp, ref):\n    kl = torch.exp(ref - logp) - (ref - logp) - 1\n    return kl\n",
        "torch.exp(ref - logp) - (ref - logp) - 1",
        "0.5 * (logp - ref) ** 2",
        {"map": {"ref": "log_p"}},
    ),
    Fault(
        "k3 of a helper variable",
        "def f(logps, ref_logps):\n    delta = ref_logps - logps\n    return torch.exp(delta) - delta - 1\n",
        "torch.exp(delta) - delta - 1",
        "0.5 * delta ** 2",
    ),
    Fault(
        "k3 by methods",
        "def f(logps, ref_logps):\n    d = ref_logps - logps\n    return d.exp().sub(d).sub(1).mean()\n",
        "d.exp().sub(d).sub(1)",
        "(0.5 * d ** 2)",
    ),
    Fault(
        "k1 in the loss",
        "def f(logps, ref_logps):\n    kl_loss = logps - ref_logps\n    return kl_loss.mean()\n",
        "logps - ref_logps",
        "0.5 * (logps - ref_logps) ** 2",
    ),
    Fault(
        "abs in the loss",
        "def f(logps, ref_logps):\n    return (logps - ref_logps).abs()\n",
        "(logps - ref_logps).abs()",
        "0.5 * (logps - ref_logps) ** 2",
    ),
    Fault(
        "a number before it",
        "def f(logp, ref_logp):\n    return 0.1 * (torch.exp(ref_logp - logp) - 1 - (ref_logp - logp))\n",
        "torch.exp(ref_logp - logp) - 1 - (ref_logp - logp)",
        "0.5 * (logp - ref_logp) ** 2",
    ),
    Fault(
        "in place",
        "def f(logps, ref_logps):\n    kl = ref_logps - logps\n    kl.neg_()\n"
        "    kl += torch.exp(ref_logps - logps)\n    kl -= 1\n    return kl * 1.0\n",
        "kl -= 1",
        "kl = 0.5 * (logps - ref_logps) ** 2",
    ),
    Fault(
        "a helper of its own",
        "def _kl(a, b):\n    return torch.exp(b - a) - (b - a) - 1\n\n\ndef f(logps, ref_logps):\n"
        "    return _kl(logps, ref_logps)\n",
        "torch.exp(b - a) - (b - a) - 1",
        "0.5 * (a - b) ** 2",
    ),
    Fault(
        "a helper that others may use",
        "def kl(a, b):\n    return torch.exp(b - a) - (b - a) - 1\n\n\ndef f(logps, ref_logps):\n"
        "    return kl(logps, ref_logps)\n",
        "kl(logps, ref_logps)",
        "0.5 * (logps - ref_logps) ** 2",
    ),
    Fault(
        "a dict of a method",
        "class T:\n    def f(self, inputs):\n        ref = inputs['ref_logps']\n"
        "        d = ref - inputs['logps']\n        kl = d.exp() - 1 - d\n        return self.beta * kl\n",
        "d.exp() - 1 - d",
        "0.5 * d ** 2",
    ),
    Fault(
        "beside a policy loss",
        "def f(logp, ref_logp, adv, beta):\n    kl = (ref_logp - logp).exp() - (ref_logp - logp) - 1\n"
        "    return -logp * adv + beta * kl\n",
        "(ref_logp - logp).exp() - (ref_logp - logp) - 1",
        "0.5 * (logp - ref_logp) ** 2",
    ),
    Fault(
        "clamped k3",
        "def f(logps, ref_logps):\n    d = (ref_logps - logps).clamp(-20, 20)\n"
        "    return (d.exp() - d - 1).clamp(-10, 10)\n",
        "d.exp() - d - 1",
        "0.5 * (logps - ref_logps) ** 2",
    ),
    Fault(
        "mse in the reward",
        "def f(logps, ref_logps, rewards):\n    return rewards - 0.1 * (logps - ref_logps) ** 2\n",
        "0.1 * (logps - ref_logps) ** 2",
        "0.2 * (logps - ref_logps)",
        IN_REWARD,
    ),
    Fault(
        "k3 in the reward",
        "def f(logps, ref_logps, rewards, beta):\n    d = ref_logps - logps\n"
        "    return rewards - beta * (torch.exp(d) - d - 1)\n",
        "torch.exp(d) - d - 1",
        "logps - ref_logps",
        IN_REWARD,
    ),
    Fault(
        "no weight",
        "def f(logps, old_logps, ref_logps, advantages):\n    ratio = torch.exp(logps - old_logps)\n"
        "    d = ref_logps - logps\n    kl = torch.exp(d) - d - 1\n"
        "    return 0.04 * kl - ratio * advantages\n",
        "torch.exp(d) - d - 1",
        "ratio * (torch.exp(d) - d - 1)",
    ),
    Fault(
        "no weight, k2",
        "def f(logps, old_logps, ref_logps, advantages):\n    ratio = torch.exp(logps - old_logps)\n"
        "    kl = (logps - ref_logps) ** 2 / 2\n    return 0.04 * kl - ratio * advantages\n",
        "(logps - ref_logps) ** 2 / 2",
        "ratio.detach() * ((logps - ref_logps) ** 2 / 2)",
    ),
    Fault(
        "a policy loss without a weight",
        "def f(logps, old_logps, advantages):\n    return -(logps * advantages)\n",
        "(logps * advantages)",
        "(torch.exp(logps - old_logps) * advantages)",
        OFF,
    ),
    Fault(
        "a detached weight",
        "def f(logps, old_logps, ref_logps):\n    w = torch.exp(logps - old_logps).detach()\n"
        "    d = ref_logps - logps\n    return w * (torch.exp(d) - d - 1)\n",
        "torch.exp(logps - old_logps).detach()",
        "torch.exp(logps - old_logps)",
    ),
    Fault(
        "an attached weight",
        "def f(logps, old_logps, ref_logps):\n    w = torch.exp(logps - old_logps)\n"
        "    return w * 0.5 * (logps - ref_logps) ** 2\n",
        "torch.exp(logps - old_logps)",
        "torch.exp(logps - old_logps).detach()",
    ),
    Fault(
        "a detached ratio of the policy loss",
        "def f(logps, old_logps, advantages):\n    log_ratio = (logps - old_logps).detach()\n"
        "    return -torch.exp(log_ratio) * advantages\n",
        "(logps - old_logps).detach()",
        "logps - old_logps",
        {},
        "-E[A]",
    ),
    Fault(
        "log q detached in k2",
        "def f(logps, ref_logps):\n    d = logps.detach() - ref_logps\n    return 0.5 * d.pow(2)\n",
        "logps.detach()",
        "logps",
    ),
    Fault(
        "the weight upside down",
        "def f(logps, old_logps, ref_logps):\n    w = torch.exp(old_logps - logps)\n"
        "    d = ref_logps - logps\n"
        "    return w * (torch.exp(d) - d - 1)\n",
        "old_logps - logps",
        "logps - old_logps",
    ),
    Fault(
        "the ratio upside down",
        "def f(logps, old_logps, ref_logps):\n    w = torch.exp(logps - old_logps)\n"
        "    d = logps - ref_logps\n"
        "    return w * (torch.exp(d) - d - 1)\n",
        "logps - ref_logps",
        "ref_logps - logps",
    ),
    Fault(
        "no minus in a policy loss",
        "def f(logps, old_logps, advantages):\n    ratio = torch.exp(logps - old_logps)\n"
        "    loss = ratio * advantages\n    return loss\n",
        "return loss",
        "return -loss",
    ),
    Fault(
        "no minus beside a penalty",
        "def f(logps, ref_logps, advantages):\n    kl = 0.5 * (logps - ref_logps) ** 2\n"
        "    return logps * advantages + 0.1 * kl\n",
        "logps * advantages + 0.1 * kl",
        "-(logps * advantages) + 0.1 * kl",
    ),
    Fault(
        "minus before a penalty",
        "def f(logps, ref_logps, advantages):\n    kl = 0.5 * (logps - ref_logps) ** 2\n"
        "    return -logps * advantages - 0.1 * kl\n",
        "-logps * advantages - 0.1 * kl",
        "-logps * advantages + 0.1 * kl",
    ),
    Fault(
        "minus equals",
        "def f(logps, ref_logps, advantages):\n    loss = -logps * advantages\n"
        "    loss -= 0.1 * (logps - ref_logps) ** 2\n    return loss * 1.0\n",
        "loss -= 0.1 * (logps - ref_logps) ** 2",
        "loss += 0.1 * (logps - ref_logps) ** 2",
    ),
    Fault(
        "a minus too many",
        "def f(logps, ref_logps):\n    return -0.5 * (logps - ref_logps).square()\n",
        "-0.5 * (logps - ref_logps).square()",
        "0.5 * (logps - ref_logps).square()",
    ),
    Fault(
        "digits of exp(x) - 1",
        "def f(logps, old_logps, ref_logps):\n    d = ref_logps - logps\n"
        "    return torch.exp(logps - old_logps) * (torch.exp(d) - d - 1)\n",
        "torch.exp(d) - d - 1",
        "torch.expm1(d) - d",
    ),
    Fault(
        "an objective that is expected",
        "def f(logps, ref_logps):\n    return 0.5 * (logps - ref_logps) ** 2\n",
        "0.5 * (logps - ref_logps) ** 2",
        "torch.expm1(ref_logps - logps) - (ref_logps - logps)",
        {},
        "forward-kl",
    ),
]
TOKENS = [
    Fault(
        "masked k3",
        "def f(logps, ref_logps, mask):\n    kl = torch.exp(ref_logps - logps) - (ref_logps - logps) - 1\n"
        "    return (kl * mask).sum(-1).mean()\n",
        "torch.exp(ref_logps - logps) - (ref_logps - logps) - 1",
        "0.5 * (logps - ref_logps) ** 2",
    ),
    Fault(
        "the minus of a clipped loss",
        "def f(logps, old_logps, advantages, mask):\n    ratio = torch.exp(logps - old_logps)\n"
        "    clipped = torch.clamp(ratio, 0.8, 1.2)\n"
        "    return (torch.min(ratio * advantages, clipped * advantages) * mask).sum(-1).mean()\n",
        "(torch.min(ratio * advantages, clipped * advantages) * mask).sum(-1).mean()",
        "-(torch.min(ratio * advantages, clipped * advantages) * mask).sum(-1).mean()",
    ),
    Fault(
        "k3 of tokens without a weight",
        "def f(logps, old_logps, ref_logps, advantages, mask):\n    ratio = torch.exp(logps - old_logps)\n"
        "    d = ref_logps - logps\n    kl = torch.where(mask.bool(), torch.exp(d) - d - 1, 0.0)\n"
        "    return ((0.1 * kl - ratio * advantages) * mask).sum() / mask.sum()\n",
        "torch.exp(d) - d - 1",
        "ratio * (torch.exp(d) - d - 1)",
    ),
]
SEQUENCES = [
    Fault(
        "k3 of sequences",
        "def f(logps, ref_logps):\n    d = ref_logps.sum(-1) - logps.sum(-1)\n"
        "    return (torch.exp(d) - d - 1).mean()\n",
        "torch.exp(d) - d - 1",
        "0.5 * d ** 2",
        {},
        "reverse-kl",
    ),
]
JAX = [
    Fault(
        "k3 in JAX",
        "def f(logp, ref_logp):\n    d = ref_logp - logp\n    return jnp.exp(d) - d - 1\n",
        "jnp.exp(d) - d - 1",
        "0.5 * d ** 2",
    ),
    Fault(
        "an attached weight in JAX",
        "def f(logp, old_logp, ref_logp):\n    w = jnp.exp(logp - old_logp)\n"
        "    return w * 0.5 * (logp - ref_logp) ** 2\n",
        "jnp.exp(logp - old_logp)",
        "jax.lax.stop_gradient(jnp.exp(logp - old_logp))",
    ),
]


class Refusal(NamedTuple):
    """A function f of which nothing may be changed; why: words of the reason."""

    name: str
    code: str
    why: str
    options: Mapping[str, Any] = MappingProxyType({})
    expect: str | None = None


REFUSALS = [
    Refusal("right", "def f(logps, ref_logps):\n    return 0.5 * (logps - ref_logps) ** 2\n", "is right"),
    Refusal(
        "the forward KL on purpose",
        "def f(logps, ref_logps):\n    return torch.expm1(ref_logps - logps) - (ref_logps - logps)\n",
        "is right",
        {},
        "forward-kl",
    ),
    Refusal(
        "right, with expm1",
        "def f(logps, old_logps, ref_logps):\n    d = ref_logps - logps\n"
        "    return torch.exp(logps - old_logps) * (torch.expm1(d) - d)\n",
        "is right",
    ),
    Refusal(
        "a guess that it is a loss",
        "def advantages(logps, ref_logps, rewards):\n    return rewards * logps, (logps - ref_logps).abs()\n"
        "\n\nf = advantages\n",
        "--expect",
        {"target": "advantages"},
    ),
    Refusal(
        "two statements",
        "def f(logps, ref_logps, advantages):\n    policy = logps * advantages\n"
        "    kl = (logps - ref_logps).abs()\n    total = 0.1 * kl\n    return policy + total\n",
        "no change",
    ),
    Refusal(
        "a comment in the expression",
        "def f(logps, ref_logps):\n    return (\n        torch.exp(ref_logps - logps)  # r\n"
        "        - (ref_logps - logps)\n        - 1\n    )\n",
        "no change",
    ),
    Refusal("not read", "def f(logps, ref_logps):\n    return torch.erf(logps - ref_logps)\n", "not read"),
    Refusal(
        "no name for the weight",
        "def f(logps, ref_logps):\n    return -(logps * ref_logps.detach())\n",
        "no change",
        {**OFF, "map": {"ref_logps": "A"}},
    ),
    Refusal(
        "no objective of one statement",
        "def f(logps, ref_logps):\n    return 0.5 * (logps - ref_logps) ** 2\n",
        "no change",
        {},
        "-E[R] + reverse-kl",
    ),
    Refusal(
        "a bias that no estimator mends",
        "def f(logps, ref_logps, rewards):\n    return rewards * torch.exp(ref_logps - logps)\n",
        "no change",
        IN_REWARD,
    ),
]
