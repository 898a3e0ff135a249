"""Whole loss functions of trainers: metrics, settings and helpers stand around the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import klsym
from klsym.audit import audits
from klsym.errors import UsageError

pytest.importorskip("torch")

HEAD = """import math
from dataclasses import dataclass
import torch
import torch.nn.functional as F
from heavy_package import Base, logger, wandb
REGISTRY = {}
def register(name):
    def enter(f):
        REGISTRY[name] = f
        return f
    return enter
def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum()
@register("k2")
def k2(logp, ref_logp):
    return 0.5 * (logp - ref_logp) ** 2
@dataclass
class Output:
    loss: torch.Tensor
    kl: float
"""
# What is around the loss -> the arguments, the body, what the audit is told, the loss of one token.
WHOLE: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "metrics": ("logp, ref_logp, mask", """
        kl = k2(logp, ref_logp)
        clipped = ((kl != kl.clamp(max=1)).float() * mask).sum().item()
        top = kl.flatten().sort().values[-1]
        logger.info(f"{top} {clipped}")
        wandb.log({"kl": kl.mean().tolist(), "top": float(top)})
        if clipped > 3:
            print("much")
        return masked_mean(kl, mask), {"clipped": clipped}""", {}, "k2"),
    "asserts": ("logp, ref_logp, config=None", """
        assert config is not None and config.ok
        assert not torch.isnan(logp).any(), "nan"
        if config.size != logp.shape[0]:
            raise ValueError("size")
        return config.beta * (logp - ref_logp)""", {}, "beta*k1"),
    "settings": ("logp, ref_logp, config", """
        if config.kind == "k1":
            return logp - ref_logp
        if config.kind in ("k2", "mse"):
            return k2(logp, ref_logp)
        raise ValueError(config.kind)""", {"set": {"config.kind": "mse"}}, "k2"),
    "a table of functions": ("logp, ref_logp, kind", """
        return REGISTRY[kind](logp, ref_logp)""", {"set": {"kind": "k2"}}, "k2"),
    "an object": ("logp, ref_logp", """
        kl = k2(logp, ref_logp)
        return Output(loss=kl, kl=kl.mean().item())""", {}, "k2"),
    "a dict": ("logp, ref_logp", """
        kl = k2(logp, ref_logp)
        return {"loss": kl, "kl": kl.mean().item()}""", {}, "k2"),
    "what a model gives": ("model, batch", """
        per_token_logps = selective(model(batch["input_ids"]).logits, batch["input_ids"])
        with torch.no_grad():
            ref_logps = selective(model.ref(batch["input_ids"]).logits, batch["input_ids"])
        return per_token_logps - ref_logps""",
        {"map": {"ref_logps": "log_p", "per_token_logps": "log_q"}}, "k1"),
    "keys of a batch": ("model, inputs", """
        logps, entropies = model.score(inputs["input_ids"])
        old = inputs.get("old_per_token_logps")
        old = logps.detach() if old is None else old
        ratio = torch.exp(logps - old)
        mask = inputs["completion_mask"] if "tool_mask" not in inputs else inputs["tool_mask"]
        adv = inputs["advantages"]
        if adv.dim() == 1:
            adv = adv.unsqueeze(1)
        return -(ratio * adv * mask).sum() / mask.sum()""", {"set": {"'tool_mask' in inputs": False}},
        "-rho*A"),
    "labels": ("logits, ref_logits, labels", """
        keep = labels != -100
        q, p = (z.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1) for z in (logits, ref_logits))
        kl = 0.5 * (q - p) ** 2
        return (kl * keep).sum() / keep.sum()""", {"map": {"labels != -100": "mask"}}, "k2"),
    "a selection": ("logp, ref_logp, mask", "return k2(logp, ref_logp)[mask.bool()].mean()", {}, "k2"),
    "a temperature": ("logits, ref_logits, labels, temperature", """
        q = F.log_softmax(logits / temperature, dim=-1).gather(-1, labels[..., None])[..., 0]
        p = F.log_softmax(ref_logits / temperature, dim=-1).gather(-1, labels[..., None])[..., 0]
        return q - p""", {}, "k1"),
    "cross entropy": ("logits, ref_logp, labels", """
        logp = -F.cross_entropy(logits.view(-1, 13), labels.view(-1), reduction="none").view(labels.shape)
        return k2(logp, ref_logp)""", {}, "k2"),
    "distributions": ("logits, ref_logits", """
        q = torch.distributions.Categorical(logits=logits)
        p = torch.distributions.Categorical(logits=ref_logits)
        return torch.distributions.kl_divergence(q, p)""", {}, "full(k1)"),
    "gspo": ("logp, old_logp, advantages, mask", """
        log_ratio = ((logp - old_logp) * mask).sum(-1) / mask.sum(-1).clamp(min=1)
        ratio = torch.exp(logp - logp.detach() + log_ratio.detach().unsqueeze(-1))
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        return ((loss * mask).sum(-1) / mask.sum(-1)).mean()""", {},
        "-min(A*exp(log_q - sg(log_q) + sg(whole(log_q - log_mu))/T), "
        "A*clip(exp(log_q - sg(log_q) + sg(whole(log_q - log_mu))/T), 4/5, 6/5))"),
    "sapo": ("logp, old_logp, advantages, tau_pos, tau_neg", """
        ratio = torch.exp(logp - old_logp)
        tau = torch.where(
            condition=advantages > 0, input=torch.as_tensor(tau_pos), other=torch.as_tensor(tau_neg)
        )
        return -advantages * torch.sigmoid(tau * (ratio - 1)) * 4 / tau""",
        {"set": {"tau_pos": 1.0, "tau_neg": 2.0}, "level": "sample"}, ""),
    "masked ratios": ("logp, old_logp, advantages", """
        ratio = torch.exp(logp - old_logp)
        keep = ((ratio < 2.0) & (ratio > 0.5)).detach()
        return -(ratio * advantages).masked_fill(~keep, 0.0)""", {},
        "-rho*A*(rho < 2)*(rho > 1/2)"),
    "a mixture": ("logits, teacher_logits, beta=0.5", """
        q, p = logits.log_softmax(-1), teacher_logits.log_softmax(-1)
        m = torch.logsumexp(torch.stack([q + math.log(1 - beta), p + math.log(beta)]), dim=0)
        return (beta * p.exp() * (p - m) + (1 - beta) * q.exp() * (q - m)).sum(-1)""", {}, ""),
    "a controller, row by row": ("logps, ref_logps, kl_ctrl", """
        rows = []
        for logp, ref_logp in zip(logps, ref_logps):
            rows.append(-kl_ctrl.value * (logp - ref_logp))
        return torch.stack(rows)""", {}, "-kl_ctrl*k1"),
    "bounds": ("logp, old_logp, advantages, eps_low, eps_high", """
        low, high = math.log(1 - eps_low), math.log(1 + eps_high)
        return -advantages * torch.exp((logp - old_logp).clamp(low, high))""",
        {"set": {"eps_low": 0.5, "eps_high": 1}}, "-A*exp(clip(log_q - log_mu, -log(2), log(2)))"),
    "an inner function": ("config", """
        def loss_func(logp, ref_logp):
            return config.beta * k2(logp, ref_logp)
        return loss_func""", {"function": "loss_func"}, "beta*k2"),
    "sums of sequences": ("logp, old_logps, advantages, mask", """
        ratio = torch.exp((logp * mask).sum(1) - old_logps)
        return -(ratio * advantages).mean()""", {"map": {"old_logps": "whole(log_mu)"}}, "-rho*A"),
    "parameters of either sign": ("logp, ref_logp, beta, clip_value", """
        kl = logp - ref_logp
        if clip_value > 0:
            kl = torch.clamp(kl, -clip_value, clip_value)
        return beta * kl if beta != 0.0 else kl""", {}, "beta*clip(k1, -clip_value, clip_value)"),
}  # fmt: skip


def audited(folder: Path, arguments: str, body: str, function: str = "f", **options: Any) -> Any:
    lines = [line[8:] if line.startswith(" " * 8) else line for line in body.strip("\n").splitlines()]
    text = HEAD + f"def f({arguments}):\n" + "".join(f"    {line}\n" for line in lines)
    (folder / "code.py").write_text(text, encoding="utf-8")
    return audits.audit(f"{folder}/code.py:{function}", **options)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.share(3)
def test_a_loss_is_read_out_of_what_stands_around_it(name: str, tmp_path: Path) -> None:
    arguments, body, options, expression = WHOLE[name]
    found = audited(tmp_path, arguments, body, sampling="off-policy", **options)
    assert expression in ("", found.expression)
    assert found.points > 0


# What is refused -> the arguments, the body, what the audit is told, words of the one line.
REFUSED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "a branch on data": ("logp, ref_logp", """
        kl = logp - ref_logp
        if kl.mean() > 0:
            kl = kl * 2
        return kl""", {}, "line 23: a branch on data"),
    "a metric in the loss": ("logp, ref_logp", """
        kl = logp - ref_logp
        return kl * kl.mean().item()""", {}, "a number that .item() takes out of a tensor"),
    "all settings at once": ("logp, ref_logp, config", """
        kl = logp - ref_logp
        if config.kind == "mse":
            kl = kl ** 2
        if config.fast:
            kl = kl * 2
        return kl""", {}, "branches on config.fast, config.kind, which are unknown: --set says so, as in"
                          " --set config.fast=False --set config.kind=mse"),
    "free names at once": ("logp, x, y", "return logp * x.value + y", {},
                           "x.value and y are unknown: say what each of them is"),
    "what is not imported": ("logp, ref_logp, mask", "return logger.mean(logp - ref_logp, mask)", {},
                             "heavy_package.logger is not imported"),
    "a hook on a view": ("logp, ref_logp", """
        d = logp - ref_logp
        view = d.view(-1)
        view[view > 0] = 0
        return d""", {}, "the trace disagrees with the code"),
    "computed names": ("logp, model", """
        mask = model.keep(logp)
        return logp * mask""", {}, "model.keep is unknown"),
    "computed logits": ("logp, ref_logp", """
        logits = torch.cumsum(logp - ref_logp, -1)
        return -F.logsigmoid(logits)""", {}, "the operation cumsum is not read"),
    "two names for one": ("a_logits, b_logits", "return (a_logits - b_logits).sum(-1)", {},
                          "b_logits and a_logits would all be log_q[v]"),
    "the other policy's model": ("ref_model, ids", """
        logits = ref_model(ids).logits
        return logits.log_softmax(-1).sum(-1)""", {}, "is unknown"),
    "nothing of the sample": ("logp, ref_logp", "return {'loss': torch.zeros(())}", {},
                              "depends on nothing of the sample"),
    "bound twice": ("logp, ref_logp", "return logp - ref_logp",
                    {"map": {"logp": "log_q"}, "set": {"logp": 1}}, "'logp' is bound twice"),
    "an unknown name": ("logp, ref_logp", "return logp - ref_logp", {"set": {"beta": 1}}, "reads no 'beta'"),
    "custom gradients": ("logp, ref_logp", """
        class Twice(torch.autograd.Function):
            pass
        return Twice.apply(logp - ref_logp)""", {}, "a custom autograd function"),
    "a stack of words": ("logp, ref_logp", "return torch.stack([logp, ref_logp]).sum(-1)", {},
                         "a sum of what is stacked along another axis"),
    "one token": ("logp, ref_logp", "return (logp - ref_logp)[:, 0]", {}, "takes out a part"),
    "a place that is not known": ("logp, ref_logp, mask", """
        kl = logp - ref_logp
        last = mask.nonzero()[-1]
        kl[last] += 1.0
        return kl""", {}, "nonzero() is not read"),
    "an object without a loss": ("logp, ref_logp", "return {'kl': logp, 'r': ref_logp}", {},
                                 "a dict is returned (kl, r): name the loss with --result"),
    "a loop over what is unknown": ("logp, batches", """
        total = 0
        for batch in batches:
            total = total + logp
        return total""", {}, "total changes from round to round of a loop"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_result_needs_and_is_not_read_is_named(name: str, tmp_path: Path) -> None:
    arguments, body, options, words = REFUSED[name]
    with pytest.raises((UsageError, klsym.KlsymError)) as refused:
        audited(tmp_path, arguments, body, sampling="off-policy", **options)
    message = str(refused.value)
    assert words in message and "\n" not in message
    assert not any(word in message for word in ("Traced", "Unread", "klsym_in_code"))


def test_a_kl_under_no_grad_is_detached(tmp_path: Path) -> None:
    body = "with torch.no_grad():\n    kl = k2(logp, ref_logp)\nreturn kl - logp"
    assert audited(tmp_path, "logp, ref_logp", body).expression == "sg(k2) - log_q"


def test_what_was_taken_for_granted_is_said(tmp_path: Path) -> None:
    body = """
        if self.training:
            beta = config.get("beta_start", 0.1)
        with config.autocast():
            kl = logp - ref_logp
        return config.get("mode", 2) * kl * beta if config.beta > 0 else kl"""
    found = audited(tmp_path, "self, logp, ref_logp, config", body)
    notes = " | ".join(found.notes)
    for said in (
        "self.training is taken for true",
        "config['mode'] is left at its default",
        "with config.autocast(..): is taken to change nothing",
        "config.beta is taken for positive",
    ):
        assert said in notes
