"""What released trainers write around their losses: options, questions, loops, layouts, usual names."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from klsym.audit import audits
from klsym.errors import KlsymError

pytest.importorskip("torch")

OFF = {"sampling": "off-policy"}
OPTIONS = """
import logging.config
from dataclasses import dataclass, field
import torch
import torch.nn.functional as F
from heavy_package import is_nowhere_available, distances
from options import Shared

@dataclass
class Inner:
    kind: str = "k2"

@dataclass
class Config(Shared):
    mode: str = "k3"
    width: float = 20.0
    bound: float | None = None
    extra: dict = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    ready: str = "k1"
    def __post_init__(self):
        self.ready = "k2"

class Plain:
    mode: str = "k3"

class Result:
    def __init__(self, policy_loss):
        self.policy_loss, self.entropy = policy_loss, None

class Scaled(torch.nn.Module):
    def __init__(self, power, mode="a"):
        super().__init__()
        self.power, self.mode = power, mode
    def forward(self, x):
        return self.power * x if self.mode == "a" else x ** 2

class Trainer:
    def __init__(self, args: Config, ratio: float = 0.5, bounds=(0.5, 2.0), tuned=None):
        self.args = args
        self.tuned = tuned
        self.ratio = ratio
        self.bounds = bounds
        self.mode = args.mode
        self.scaled = Scaled(self.args.width, mode=self.args.mode)
        self.other = Scaled(self.tuned.width)
        self.tuned = 2

    @property
    def window(self):
        return (-self.clip_low).log1p(), self.clip_high.log1p()
"""
SHARED = """
from dataclasses import dataclass
@dataclass
class Shared:
    shared: str = "k1"
"""
FUNCTIONS = """
def by_field(logp, ref_logp, config: Config):
    r = ref_logp - logp
    return r.exp() - 1 - r if config.mode == "k3" else -r
def by_base(logp, ref_logp, config: "Config | None"):
    return logp - ref_logp if config.shared == "k1" else 0.5 * (logp - ref_logp) ** 2
def by_inner(logp, ref_logp, config: Config):
    return 0.5 * (logp - ref_logp) ** 2 if config.inner.kind == "k2" else logp - ref_logp
def with_bound(logp, ref_logp, config: Config):
    x = logp - ref_logp
    return x if config.bound is None else x.clamp(max=config.bound)
def number_of_field(logp, ref_logp, config: Config):
    return (logp - ref_logp).clamp(-config.width, config.width)
def unpacked(logp, ref_logp, config: Config):
    return scaled_by(logp - ref_logp, **config.extra)
def scaled_by(x, size=1.0):
    return x * size
def changed_field(logp, ref_logp, config: Config):
    return logp - ref_logp if config.ready == "k1" else 0.5 * (logp - ref_logp) ** 2
def no_dataclass(logp, ref_logp, config: Plain):
    return logp - ref_logp if config.mode == "k1" else 0.5 * (logp - ref_logp) ** 2
def no_matter(logp, ref_logp, batch):
    more = {"images": batch["images"]} if "images" in batch else {}
    if batch["versions"] is None:
        distances(more)
    else:
        distances(batch["versions"])
    return logp - ref_logp
def it_matters(logp, ref_logp, batch):
    return logp - ref_logp if "images" in batch else 0.5 * (logp - ref_logp) ** 2
def a_word(logp, ref_logp, kind):
    if kind:
        print(kind)
    return logp - ref_logp if kind == "k1" else 0.5 * (logp - ref_logp) ** 2
def one_of_two(logp, ref_logp, batch, flatten: bool):
    if flatten:
        kl = distances(batch)
    else:
        kl = distances(batch, 1)
    ref_logps = kl
    return logp - ref_logp
def either_name(ref_logp, model, batch, flat=False):
    if flat:
        policy_logps = model(batch, flat=True)
    else:
        policy_logps = model(batch)
    return policy_logps - ref_logp
def of_key(logprobs, batch):
    old_logp = batch["logprobs"]
    return -torch.exp(logprobs - old_logp) * batch["advantages"]
def of_key_of_reference(logprobs, batch):
    ref_logp = batch["logprobs"]
    return torch.exp(logprobs - ref_logp) * (logprobs - ref_logp)
def of_other_key(logprobs, batch):
    old_logp = batch["ref_logprobs"]
    return -torch.exp(logprobs - old_logp) * batch["advantages"]
def by_package(logp, ref_logp):
    return distances(logp) if is_nowhere_available() else logp - ref_logp
def by_unknown(logp, ref_logp):
    return distances(logp) if distances() else logp - ref_logp
def top(student_logits, teacher_logits, topk: int):
    chosen, where = torch.topk(student_logits, k=topk, dim=-1)
    q = chosen - torch.logsumexp(student_logits, dim=-1, keepdim=True)
    p = torch.gather(teacher_logits, -1, where) - torch.logsumexp(teacher_logits, dim=-1, keepdim=True)
    return (q.exp() * (q - p)).sum(-1)
def of_sums(per_token_logps, old_logps, advantages, mask):
    ratio = torch.exp((per_token_logps * mask).sum(1) - old_logps)
    return -(ratio * advantages).mean()
def of_means(per_token_logps, old_logps, advantages, mask):
    ratio = torch.exp((per_token_logps * mask).sum(1) / mask.sum(1) - old_logps)
    return -(ratio * advantages).mean()
def filled(logp, ref_logp, data):
    weight, x = data
    if weight is None:
        weight = torch.ones_like(logp)
    return (logp - ref_logp) * weight
def short(new, old, ref, advantages, beta):
    r = torch.exp(new - old)
    return -r * advantages + beta * (torch.exp(ref - new) - (ref - new) - 1)
def pair(s_logits, t_logits):
    q, p = s_logits.log_softmax(-1), t_logits.log_softmax(-1)
    return (q.exp() * (q - p)).sum(-1)
def no_pair(new, old, beta):
    return beta * (new - old)
def proximal(logp, proxy_logp, old_logp, adv):
    return -torch.exp(logp - proxy_logp) * torch.exp(proxy_logp - old_logp).detach() * adv
def weighted(log_weight, advantage):
    return -log_weight.exp() * advantage
def counted(logp, ref_logp, mask, window_action_tokens):
    return ((logp - ref_logp) * mask).sum() / window_action_tokens
def padded(logp, ref_logp, mask):
    logp = logp.masked_fill(~mask.bool(), 1.0)
    r = ref_logp - logp
    return ((r.exp() - r - 1) * mask).sum() / mask.sum()
def an_object(logp, ref_logp):
    return Result((logp - ref_logp).mean())
def unbounded(logp, old_logp, adv):
    ratio = torch.exp(logp - old_logp)
    return -torch.where((ratio < -float("inf")) | (ratio > 2.0), 0.0, ratio.detach()) * logp * adv
def infinite(logp, ref_logp, mask):
    return (logp - ref_logp).masked_fill(mask == 0, float("-inf")).mean()
def beside(logp, ref_logp, old_logp, adv, mask):
    n = mask.sum(-1).clamp(min=1.0)
    policy = ((-torch.exp(logp - old_logp) * adv * mask).sum(-1) / n).mean()
    d = ((ref_logp - logp) * mask).sum(-1) / n
    return policy + (torch.exp(d) - d - 1).mean()
def soft(logp, old_logp, adv, tau_pos: float, tau_neg: float):
    tau = torch.where(adv > 0, torch.as_tensor(tau_pos), torch.as_tensor(tau_neg))
    return -adv * torch.exp(logp - old_logp) / tau
def flat(policy_logits, labels, ref_logits):
    logq = -F.cross_entropy(policy_logits, labels, reduction="none")
    kl = (F.softmax(policy_logits, -1) * (policy_logits.log_softmax(-1) - ref_logits.log_softmax(-1))).sum(-1)
    return (kl - logq * logq.exp().detach()).mean()
def flat_sum(policy_logits, labels):
    return F.cross_entropy(policy_logits, labels, reduction="none").sum(-1).mean()
def trained(logp, ref_logp, batches, optimizer, repeat: int):
    for step in range(repeat):
        for batch in batches:
            with torch.amp.autocast(device_type=batch.device.type):
                old_logp = batch["old_logp"]
                loss = -(torch.exp(logp - old_logp) * batch["adv"]).mean()
                loss = loss + (logp - ref_logp).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
def trained_later(logp, ref_logp, batches):
    for batch in batches:
        loss = (logp - ref_logp).mean()
        loss.backward()
        loss.add_(logp.mean())
def trained_anywhere(logp, ref_logp):
    loss = (logp - ref_logp).mean()
    def more():
        nonlocal loss
        loss = loss + logp.mean()
    more()
    return None
def of_pairs(logps_w, logps_l, ref_logps_w, ref_logps_l, batch):
    return -F.logsigmoid(batch["beta"](logps_w - ref_logps_w) - (logps_l - ref_logps_l)).mean()
def an_unknown(logp, ref_logp, batch, seed):
    rng = torch.Generator()
    rng.manual_seed(int(seed) + 1)
    extra = distances(batch)
    extra["x"] = torch.zeros(3)[extra]
    return logp - ref_logp
def marked(logp, ref_logp, score):
    last = torch.zeros_like(logp)
    last[torch.arange(7), -1] = 1
    return score * last - 0.1 * (logp - ref_logp)
def turned(logp, old_logp, adv):
    ratio = torch.exp(logp - old_logp).transpose(0, 1)
    return -(ratio * adv.T).mean()
def reported(logp, ref_logp, batch):
    kl = logp - ref_logp
    with torch.no_grad():
        n = batch.size_of_group
        metrics = {"kl": (0.5 * kl.pow(2)).mean().item(), "share": 1 / max(1, n)}
    return kl, metrics
def stacked(logp, old_logp, adv):
    ratio = torch.exp(logp - old_logp)
    return -torch.stack([ratio * adv, ratio.clamp(0.8, 1.2) * adv], -1).min(dim=-1).values
"""
METHODS = """
    def ratio_of(self, logp, ref_logp):
        return self.ratio * (logp - ref_logp)
    def pair_of(self, logp, ref_logp):
        low, high = self.bounds
        return (logp - ref_logp).clamp(low, high)
    def mode_of(self, logp, ref_logp):
        r = ref_logp - logp
        return r.exp() - 1 - r if self.mode == "k3" else -r
    def part(self, logp, ref_logp):
        return self.scaled(logp - ref_logp)
    def changed_part(self, logp, ref_logp):
        return self.other(logp - ref_logp)
    def in_window(self, logp, ref_logp):
        return (logp - ref_logp).clamp(*self.window)
"""
# The function, what is told, the loss, and a word of the notes.
READ: list[tuple[str, dict[str, Any], str, str]] = [
    ("by_field", {}, "k3", "config.mode is 'k3', its default in Config"),
    ("by_field", {"set": {"config.mode": "k1"}}, "k1", ""),
    ("by_base", {}, "k1", "config.shared is 'k1', its default in Config"),
    ("by_inner", {}, "k2", "config.inner.kind is 'k2', its default in Inner"),
    ("with_bound", {}, "k1", "config.bound is None, its default in Config"),
    ("number_of_field", {}, "clip(k1, -width, width)", ""),
    ("unpacked", {}, "k1", "config.extra is {}, its default in Config"),
    ("no_matter", {}, "k1", "klsym tried both answers to batch['versions']"),
    ("either_name", {}, "k1", "it takes policy_logps for log_q by its name"),
    ("of_key", OFF, "-rho*A", ""),
    ("of_key_of_reference", {}, "k1/r", ""),
    ("by_package", {}, "k1", "is_nowhere_available() is False: nowhere is not installed here"),
    ("top", {}, "full(M*k1)", "topk is any number of words below the vocabulary"),
    ("of_sums", OFF, "-rho*A", "old_logps has one number for each sequence: klsym takes it for the sum"),
    ("filled", {"set": {"weight": None}}, "k1", ""),
    ("short", OFF, "beta*k3 - rho*A", ""),
    ("pair", {}, "full(k1)", ""),
    ("proximal", OFF, "-rho*A", ""),
    ("weighted", OFF, "-rho*A", ""),
    ("counted", {}, "k1/window_action_tokens", ""),
    ("padded", {}, "k3", ""),
    ("an_object", {}, "k1", "of the object that is returned, .policy_loss is read"),
    ("unbounded", OFF, "-sg(rho)*A*(1 - (rho > 2))*log_q", ""),
    ("soft", OFF, "-rho*A*(1 - where(A > 0, 1, 0))/tau_neg - rho*A*where(A > 0, 1, 0)/tau_pos", ""),
    ("flat", {}, "full(k1) - log_q*sg(exp(log_q))", "the tokens of all sequences along one axis"),
    ("trained", {"result": "loss", **OFF}, "k1 - rho*A", "loss is read in the first round of the loop"),
    ("trained_anywhere", {"result": "loss"}, "2*log_q - log_p", ""),
    ("an_unknown", {"map": {"rng": "object", "extra": "object"}}, "k1", ""),
    ("marked", {"map": {"score * last": "R"}, "use": "reward"}, "R - k1/10", ""),
    ("turned", OFF, "-rho*A", ""),
    ("reported", {}, "k1", ""),
    ("stacked", OFF, "-min(rho*A, A*clip(rho, 4/5, 6/5))", ""),
    ("Trainer.ratio_of", {}, "c_ratio*k1", ""),
    ("Trainer.pair_of", {}, "clip(k1, 1/2, 2)", "self.bounds is (0.5, 2.0), its default in __init__"),
    ("Trainer.mode_of", {}, "k3", "self.mode is 'k3', its default in Config"),
    ("Trainer.part", {"set": {"self.args.mode": "a"}}, "width*k1", "self.scaled is Scaled(self.args.width"),
    ("Trainer.in_window", {}, "clip(k1, log(1 - clip_low), log(clip_high + 1))", ""),
]  # fmt: skip
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("changed_field", {}, "branches on config.ready"),
    ("no_dataclass", {}, "branches on config.mode"),
    ("it_matters", {}, "branches on 'images' in batch"),
    ("a_word", {}, "branches on kind"),
    ("of_other_key", OFF, "batch['ref_logprobs'] is unknown"),
    ("by_unknown", {}, "which is not known"),
    ("of_means", OFF, "which may be a sum or a mean over its tokens"),
    ("no_pair", {}, "new and old are unknown"),
    ("infinite", {}, "the number inf"),
    ("flat_sum", {}, "Expected target size"),
    ("of_pairs", {}, "a loss of pairs, chosen and rejected, is out of scope"),
    ("trained_later", {"result": "loss"}, "backward() is not read"),
    ("an_unknown", {}, "a plain number or object is needed here"),
    ("marked", {"map": {"score": "R"}, "use": "reward"}, "assignment to a part of a tensor"),
    ("Trainer.changed_part", {}, "self.other"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trainers")
    (folder / "code.py").write_text(OPTIONS + METHODS + dedent(FUNCTIONS), encoding="utf-8")
    (folder / "options.py").write_text(SHARED, encoding="utf-8")
    return folder / "code.py"


def audited(place: Path, name: str, told: dict[str, Any]) -> Any:
    return audits.audit(f"{place}:{name}", **told)


@pytest.mark.parametrize(("name", "told", "loss", "words"), READ)
@pytest.mark.share(3)
def test_a_loss_of_a_trainer_is_read(
    name: str, told: dict[str, Any], loss: str, words: str, place: Path
) -> None:
    found = audited(place, name, told)
    assert found.expression == loss
    assert words in " | ".join(found.notes)


@pytest.mark.parametrize(("name", "told", "words"), REFUSED)
def test_what_is_not_settled_is_refused(name: str, told: dict[str, Any], words: str, place: Path) -> None:
    with pytest.raises(KlsymError) as refused:
        audited(place, name, told)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_term_of_the_sequence_stands_beside_those_of_tokens(place: Path) -> None:
    found = audited(place, "beside", OFF)
    assert "whole(-k1)/T" in found.expression and found.tokens.aggregate == "mean"
