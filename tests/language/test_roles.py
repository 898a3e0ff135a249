"""Roles of names in pasted code: the guesses, other roles, and refusals; nothing that is pasted is run."""

from __future__ import annotations

import builtins
import re

import pytest

from klsym.api import explain
from klsym.errors import UsageError
from klsym.language.roles import collect_roles, list_names_without_role, with_roles
from klsym.language.spellings import read_loss

PPO = """ratio = torch.exp(logp - old_logp)
loss = -torch.min(ratio*adv, torch.clamp(ratio, 0.8, 1.2)*adv)"""
GRPO = """d = batch["ref_logps"] - per_token_logps
kl = torch.exp(d) - d - 1
loss = -batch["advantages"]*per_token_logps + self.beta*kl"""
READ = [  # text, guesses, the loss in the grammar
    ("(logp - ref_logp)", {"logp": "log_q", "ref_logp": "log_p"}, "k1"),
    ("(logp - ref_logp).pow(2)/2", {"logp": "log_q", "ref_logp": "log_p"}, "k2"),
    ("torch.square(logprobs - ref_logprobs)/2", {"logprobs": "log_q", "ref_logprobs": "log_p"}, "k2"),
    ("d = ref_logp - logp; torch.expm1(d) - d", {"ref_logp": "log_p", "logp": "log_q"}, "k3"),
    ("d = ref_logp - logp\nloss = d.exp() - 1 - d", {"ref_logp": "log_p", "logp": "log_q"}, "k3"),
    ("torch.exp(logp - old_logp).detach()*k2", {"logp": "log_q", "old_logp": "log_mu"}, "k2*sg(rho)"),
    ("torch.clamp(rho, min=0.8, max=1.2)*adv", {"adv": "A"}, "A*clip(rho, 4/5, 6/5)"),
    ("torch.exp(logp - rollout_logp)*k3", {"logp": "log_q", "rollout_logp": "log_mu"}, "k3*rho"),
    ("jnp.exp(new_logp - old_logp)*k3", {"new_logp": "log_q", "old_logp": "log_mu"}, "k3*rho"),
    ("-advantages*logp", {"advantages": "A", "logp": "log_q"}, "-A*log_q"),
    ("(k1*mask).sum()/mask.sum()", {"mask": "M"}, "k1"),
    ("return self.kl_coef*k2", {"self.kl_coef": "kl_coef"}, "kl_coef*k2"),
    ("sg(rho)*k3", {}, "k3*sg(rho)"),
]
REFUSED = [  # what is pasted, a part of the one line that says why not
    ('__import__("os").system("true")', "unexpected"),
    ("import os; del k1", "a statement that is not read"),
    ("exec(k1)", "unknown function"),
    ("open(k1)", "unknown function"),
    ("logp.__class__", "not part of the loss grammar"),
    ("(lambda x: x)(logp)", "not part of the loss grammar"),
    ("[logp for x in k1 if x]", "not part of the loss grammar"),
    ("torch.load(logp)", "is not part of the loss grammar, and is not read"),
    ("torch.nn.Module()", "is not part of the loss grammar, and is not read"),
    ("logp if k1 else k2", "not part of the loss grammar"),
    ("def f(x): return g(k1)", "unknown function"),
    ("for x in k1: k2", "not read"),
    ("loss = (ratio - 1)*logp + adv", "ambiguous name 'ratio'"),
    ("d = logp - x; loss = d**2", "unknown name 'x'"),
    ("logp[0]", "not part of the loss grammar"),
]


@pytest.mark.parametrize(("text", "roles", "loss"), READ)
def test_a_pasted_loss_is_read_and_its_guesses_are_named(text, roles, loss) -> None:
    assert collect_roles(read_loss(text).notes) == roles
    assert str(read_loss(text).expression) == loss


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_other_code_is_refused_in_one_line_and_never_run(text, reason, monkeypatch) -> None:
    for name in ("eval", "exec", "open"):
        monkeypatch.setattr(builtins, name, None)
    with pytest.raises(UsageError, match=re.escape(reason)) as refused:
        read_loss(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ratio*A", ()),
        ("ratio - 1", ("ratio",)),
        ("loss = kl + ratio*adv", ("kl",)),
        ("loss = kl + (ratio - 1)*logp + adv", ("kl", "ratio")),
        ("x = k1; y = x**2; y + z", ("z",)),
        ("kl = logp - ref_logp; kl**2", ()),
        ("torch.exp(foo).clamp(max=hi) * F.relu(bar)", ("foo", "hi", "bar")),
        (PPO, ()),
        ("k1 +", ()),
        ("é*k1", ()),
    ],
)
def test_names_that_need_a_role(text, names) -> None:
    assert list_names_without_role(text) == names


@pytest.mark.parametrize(
    ("text", "roles", "loss"),
    [
        ("logp - ref_logp", {"ref_logp": "log_mu"}, "-log_mu + log_q"),
        ("ratio*A", {"ratio": "rho"}, "A*rho"),
        ("ratio*A", {"ratio": "r"}, "A*r"),
        ("d = logp - x; d**2/2", {"x": "log_p"}, "k2"),
        ("d = batch['x'] - logp\nd.exp() - 1 - d", {"batch.x": "log_p"}, "k3"),
        ("out.ratio*(adv + out.ratio)", {"out.ratio": "rho"}, "(A + rho)*rho"),
    ],
)
def test_a_name_takes_another_role(text, roles, loss) -> None:
    assert str(read_loss(with_roles(text, roles)).expression) == loss


def test_without_a_change_the_text_stays_as_it_is() -> None:
    assert with_roles("k1   # a comment", {}) == "k1   # a comment"


@pytest.mark.parametrize(
    ("text", "roles", "reason"),
    [
        ("ratio*A", {"ratio": "__import__"}, "one of log_q"),
        ("ratio*A", {"ratio": "rho; k1"}, "one of log_q"),
        ("ratio*A", {"other": "rho"}, "uses no name 'other'"),
        ("ratio*A", {"ratio\nk1": "rho"}, "uses no name"),
        ("ratio*", {"ratio": "rho"}, "cannot be read as Python"),
    ],
)
def test_a_wrong_role_is_refused_in_one_line(text, roles, reason) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        with_roles(text, roles)
    assert "\n" not in str(refused.value)


def test_the_roles_of_a_whole_loss_of_a_trainer() -> None:
    assert collect_roles(read_loss(GRPO).notes)["batch.ref_logps"] == "log_p"
    changed = explain(with_roles(GRPO, {"batch.ref_logps": "log_mu"}))
    assert "KL(p||q)" in explain(GRPO).summary and "KL(p||q)" not in changed.summary
