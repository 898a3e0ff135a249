"""Which functions the scan takes for losses: by what they compute, not by their names."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from klsym.api import recommend
from klsym.errors import UsageError
from klsym.lint.computing import find_lines
from klsym.lint.scan import find_candidates
from klsym.render.snippets import FRAMEWORKS

CANDIDATES = {
    "k3": ("def f(logp, ref_logp):\n    d = ref_logp - logp\n    return d.exp() - d - 1"),
    "k1": ("def f(log_probs, log_probs_base):\n    return log_probs.float() - log_probs_base.float()"),
    "a method": ("def f(self, b):\n    kl = (b['logps'] - b['ref_logps']) ** 2\n    return kl.mean()"),
    "names that say nothing of it": (
        "def f(a, b):\n"
        "    x = F.log_softmax(a, -1)\n"
        "    y = F.log_softmax(b, -1)\n"
        "    return (x.exp() * (x - y)).sum(-1)"
    ),
    "gathered": (
        "def f(x, y, i):\n"
        "    a = x.log_softmax(-1).gather(-1, i)\n"
        "    b = y.log_softmax(-1).gather(-1, i)\n"
        "    return 0.5 * (a - b).square()"
    ),
    "log_prob of distributions": (
        "def f(d, e, x):\n    return torch.exp(d.log_prob(x) - e.log_prob(x)).mean()"
    ),
    "F.kl_div": (
        "def f(x, y):\n    return F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction='batchmean')"
    ),
    "kl_divergence": ("def f(p, q):\n    return torch.distributions.kl_divergence(p, q).mean()"),
    "KLDivLoss": ("def f(logits, labels):\n    return nn.KLDivLoss()(logits, labels)"),
    "optax": ("def f(log_q, p):\n    return optax.losses.kl_divergence(log_q, p).sum()"),
    "softmax times log_softmax": (
        "def f(student, teacher):\n"
        "    p = teacher.softmax(-1)\n"
        "    return -(p * student.log_softmax(-1)).sum(-1)"
    ),
    "a ratio of probabilities": (
        "def f(new, old, adv):\n    return -(new.softmax(-1) / old.softmax(-1)) * adv"
    ),
    "policy gradient": ("def f(logps, advantages):\n    return -(logps * advantages).mean()"),
    "a ratio by its name": (
        "def f(ratio, advantages):\n    return torch.min(ratio * advantages, advantages)"
    ),
    "a log ratio by its name": ("def f(log_ratio):\n    return (log_ratio.exp() - 1) - log_ratio"),
    "negative logs": (
        "def f(old_neglogp, neglogp, adv):\n"
        "    ratio = torch.exp(old_neglogp - neglogp)\n"
        "    return -ratio * adv"
    ),
    "a weight of the sampler alone": ("def f(logp, adv):\n    return -torch.exp(logp - logp.detach()) * adv"),
    "a KL in the reward": ("def f(rewards, kl, coef):\n    return rewards - coef * kl"),
    "into a batch": (
        "def f(data, beta):\n"
        "    kl = data['old_log_probs'] - data['ref_log_prob']\n"
        "    data['token_level_rewards'] = data['scores'] - beta * kl\n"
        "    return data, {}"
    ),
    "a loss beside metrics": (
        "def f(logp, ref_logp):\n"
        "    kl = logp - ref_logp\n"
        "    loss = kl.square().mean()\n"
        "    return loss, {'kl': kl.mean().item()}"
    ),
    "a dict with the loss": (
        "def f(logp, ref_logp):\n    kl = (logp - ref_logp).abs()\n    return {'loss': kl.mean()}"
    ),
    "descended": (
        "def f(self, b):\n"
        "    lp = self.logprobs(b)\n"
        "    loss = ((lp - b.ref_logprobs) ** 2).mean()\n"
        "    loss.backward()"
    ),
    "in a branch": (
        "def f(logp, ref_logp, kind):\n"
        "    if kind == 'k1':\n"
        "        kl = logp - ref_logp\n"
        "    else:\n"
        "        kl = torch.zeros(3)\n"
        "    return kl"
    ),
    "in a loop": (
        "def f(batches):\n"
        "    total = 0\n"
        "    for b in batches:\n"
        "        total += (b.logps - b.ref_logps).abs().sum()\n"
        "    return total"
    ),
    "JAX": ("def f(logp, ref_logp):\n    return jnp.square(logp - ref_logp).mean()"),
    "log q - logsumexp": (
        "def f(logits, ref_logits, i):\n"
        "    a = logits.gather(-1, i) - logits.logsumexp(-1)\n"
        "    b = ref_logits.gather(-1, i) - ref_logits.logsumexp(-1)\n"
        "    return (a - b).exp()"
    ),
    "by a helper, in a list": (
        "def f(self, b):\n"
        "    kls = []\n"
        "    for x, y, m in zip(b.logps, b.ref_logps, b.masks):\n"
        "        kls.append(k3_kl(x * m, y * m))\n"
        "    return torch.stack(kls).min(-1).values"
    ),
    "by a helper": ("def f(self, b):\n    return self.kl_penalty(b.logps, b.ref_logps).mean()"),
}
OTHERS = {
    "a collator": (
        "def f(items):\n"
        "    return {'old_logps': pad([x['old_logps'] for x in items]),\n"
        "            'ref_logps': pad([x['ref_logps'] for x in items])}"
    ),
    "a training loop": (
        "def f(self, loader):\n"
        "    for batch in loader:\n"
        "        loss = self.compute_loss(batch)\n"
        "        loss.backward()\n"
        "        self.kl_ctl.update(batch.kl, len(batch))"
    ),
    "metrics in a dict": (
        "def f(logp, ref_logp):\n    kl = logp - ref_logp\n    return {'approx_kl': kl.mean()}"
    ),
    "metrics under a name": (
        "def f(logp, ref_logp):\n"
        "    metrics = {}\n"
        "    metrics['kl'] = (logp - ref_logp).mean()\n"
        "    return metrics"
    ),
    "a number": ("def f(logp, ref_logp):\n    return (logp - ref_logp).mean().item()"),
    "a float": ("def f(logp, ref_logp):\n    return float((logp - ref_logp).mean())"),
    "text": ("def f(logp, ref_logp):\n    return f'kl {(logp - ref_logp).mean():.3f}'"),
    "printed": ("def f(logp, ref_logp):\n    print((logp - ref_logp).mean())"),
    "logged": ("def f(self, logp, ref_logp):\n    self.logger.log({'kl': (logp - ref_logp).mean()})"),
    "written": (
        "def f(writer, logp, ref_logp, n):\n    writer.add_scalar('kl', (logp - ref_logp).mean(), n)"
    ),
    "log-probabilities": ("def f(logits, ids):\n    return logits.log_softmax(-1).gather(-1, ids)"),
    "two log-probabilities": ("def f(self, b):\n    return self.score(b.logps), self.score(b.ref_logps)"),
    "entropy": ("def f(logits):\n    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)"),
    "added up": ("def f(logps, ref_logps):\n    return logps + ref_logps"),
    "advantages": ("def f(rewards, mask):\n    return (rewards - rewards.mean()) / rewards.std() * mask"),
    "returns of a critic": (
        "def f(rewards, values, gamma):\n    return rewards + gamma * values[1:] - values[:-1]"
    ),
    "a value loss": ("def f(values, old_values, returns):\n    return 0.5 * (values - returns) ** 2"),
    "a controller": (
        "def f(self, kl, target_kl):\n    self.coef *= 1 + (kl / target_kl - 1).clip(-0.2, 0.2)"
    ),
    "a mask of ratios": ("def f(logp, old_logp, eps):\n    return torch.exp(logp - old_logp) > 1 + eps"),
    "logarithms": ("def f(x):\n    return 0.5 * (x.log1p() - (-x).log1p())"),
    "a logger": ("def f(log, p):\n    log.info(p - 1)\n    return p"),
    "cross-entropy": ("def f(logits, labels):\n    return F.cross_entropy(logits, labels)"),
    "pairs": (
        "def f(chosen_logps, rejected_logps, beta):\n"
        "    return -F.logsigmoid(beta * (chosen_logps - rejected_logps))"
    ),
    "settings": (
        "def f(self, config):\n"
        "    self.kl_coef = config.kl_coef - config.min_kl_coef\n"
        "    return self.kl_coef"
    ),
    "a shift": ("def f(logps, mask):\n    return logps[:, 1:] * mask[:, :-1] - logps[:, 1:].detach() * 0"),
    "a weight overwritten": (
        "def f(logp, ref_logp):\n    kl = logp - ref_logp\n    kl = torch.zeros(3)\n    return kl"
    ),
    "a list of metrics": (
        "def f(self, b):\n"
        "    for x, y in zip(b.logps, b.ref_logps):\n"
        "        self.metrics.append((x - y).mean())\n"
        "    return self.metrics"
    ),
    "a ratio of clips": ("def f(clip_ratio_low, lr):\n    return clip_ratio_low * lr"),
}


def compute(source: str) -> tuple[int, ...]:
    [function] = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    return find_lines(function)


@pytest.mark.parametrize("name", CANDIDATES)
def test_what_computes_a_penalty_is_a_candidate(name: str) -> None:
    assert compute(CANDIDATES[name])


@pytest.mark.parametrize("name", OTHERS)
def test_what_computes_none_is_no_candidate(name: str) -> None:
    assert compute(OTHERS[name]) == ()


def test_there_are_as_many_refusals() -> None:
    assert len(CANDIDATES) == len(OTHERS) >= 25


TARGETS = ("reverse-kl", "forward-kl", "next-token-reverse-kl", "next-token-forward-kl")
QUESTIONS = [*product(TARGETS, ("on-policy", "off-policy"), ("loss", "reward", "value"), ("sample", "token"))]


def list_snippets(question: tuple[Any, ...]) -> list[str]:
    target, sampling, use, level = question
    snippets = []
    try:
        answer = recommend(target, sampling=sampling, use=use, level=level)
    except UsageError:
        return []
    for framework, number in product(FRAMEWORKS, range(len(answer.choices))):
        try:
            snippets.append(answer.snippet(framework, number))
        except UsageError:  # no code in this library
            continue
    return snippets


@pytest.mark.share(6)
@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_no_snippet_of_recommend_is_missed(question: tuple[Any, ...]) -> None:
    assert all(map(compute, list_snippets(question)))


def test_snippets_are_found() -> None:
    assert len(list_snippets(("reverse-kl", "off-policy", "loss", "sample"))) > 6


def test_functions_within_others_are_found(tmp_path: Path) -> None:
    """Once, under the name by which an audit finds them; two of one name it would not find."""
    inner = "    def {}(p, b):\n        return (b.logps - b.ref_logps).abs()\n    return jax.grad({})\n"
    text = "class T:\n    def step(self):\n        return 1\n"
    text += "".join(f"def make{n}():\n{inner.format(*[name] * 2)}" for n, name in enumerate("aabc"))
    (tmp_path / "x.py").write_text(text)
    assert [one.function for one in find_candidates(tmp_path)] == ["b", "c"]
