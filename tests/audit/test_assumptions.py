"""What an audit takes for granted is printed, with the option that changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klsym.audit import audits
from klsym.errors import UsageError

pytest.importorskip("torch")

HEAD = """import torch
class Trainer:
    def __init__(self, model):
        self.model = model
    def f(self, {}):
"""


def audited(folder: Path, body: str, arguments: str = "logp, ref_logp", **told: Any) -> Any:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    (folder / "code.py").write_text(HEAD.format(arguments) + lines, encoding="utf-8")
    return audits.audit(f"{folder}/code.py:Trainer.f", **told)


def notes(found: Any, words: str) -> list[str]:
    return [note for note in found.notes if words in note]


# ---------------------------------------------------------------------------- of tokens or sequences
SQUARED = "return ((beta*(logps - ref_logps) - rewards)**2).mean()"
UNREAD = f"logps = self.sequence_logps(batch)\n{SQUARED}"
EITHER = {  # the body and its arguments: the code runs with one number a token, and with one a sequence
    UNREAD: "batch, ref_logps, rewards, beta",
    SQUARED: "logps, ref_logps, rewards, beta",
    "return (0.5*(logp - ref_logp)**2).mean()": "logp, ref_logp",
    "return (0.5*(logp - ref_logp)**2).sum()": "logp, ref_logp",
    "return (0.5*(logp - ref_logp)**2).sum()/logp.shape[0]": "logp, ref_logp",
    "return -(logp*advantages).mean()": "logp, advantages",
    "return -(torch.exp(logp - old_logp)*advantages).mean()": "logp, old_logp, advantages",
}
OF_TOKENS = {  # here the code itself, or a name, tells that there is one number for each token
    "return (0.5*(logp - ref_logp)**2*mask).sum()/mask.sum()": "logp, ref_logp, mask",
    "return (0.5*(logp - ref_logp)**2).sum(-1).mean()": "logp, ref_logp",
    "return (0.5*(logp - ref_logp)**2).mean(dim=1).mean()": "logp, ref_logp",
    "b, t = logp.shape\nreturn (0.5*(logp - ref_logp)**2).sum()/(b*t)": "logp, ref_logp",
    "return (0.5*(logp[:, 1:] - ref_logp)**2).mean()": "logp, ref_logp",
    "return (0.5*(token_logps - ref_token_logps)**2).mean()": "token_logps, ref_token_logps",
    "return (0.5*((logp - ref_logp).sum(-1))**2).mean()": "logp, ref_logp",
    "return 0.5*(logp - ref_logp)**2": "logp, ref_logp",
}
ASSUMED = "for one number a token; --level sequence: one a sequence"


@pytest.mark.parametrize("body", EITHER)
def test_one_number_a_token_is_an_assumption(body: str, tmp_path: Path) -> None:
    """The note names the option, and with it the loss is that of whole sequences, without the note."""
    found = audited(tmp_path, body, EITHER[body])
    assert found.verdict.setting.level == "token" and len(notes(found, ASSUMED)) == 1
    whole = audited(tmp_path, body, EITHER[body], level="sequence")
    assert (whole.tokens.level, whole.verdict.setting.level) == ("sequence", "sequence")
    assert not notes(whole, ASSUMED) and not notes(whole, "is left out")
    assert notes(whole, "has one number for each sequence")
    assert whole.tokens.words in ("averaged over sequences", "summed over sequences")
    assert not notes(audited(tmp_path, body, EITHER[body], level="token"), ASSUMED)


@pytest.mark.parametrize("body", OF_TOKENS)
def test_where_the_code_tells_nothing_is_assumed(body: str, tmp_path: Path) -> None:
    assert not notes(audited(tmp_path, body, OF_TOKENS[body]), ASSUMED)


def test_a_squared_loss_of_sequences_has_an_objective(tmp_path: Path) -> None:
    """Token by token it has none; klsym proves both, each of what it says it reads."""
    arguments = EITHER[UNREAD]
    assert "No objective: " in str(audited(tmp_path, UNREAD, arguments))
    found = audited(tmp_path, UNREAD, arguments, level="sequence")
    assert found.expression == "(beta*k1 - R)**2"
    assert "maximises E_q[2*beta*R] - 2*beta**2*KL(q||p)" in found.verdict.summary


# ---------------------------------------------------------------------------- where samples come from
RATIO = "return -(torch.exp(logp - old_logp)*advantages).mean()"
OFF = "sampling off-policy: old_logp is read as log_mu; --sampling on-policy"
OLD = {  # bodies whose loss depends on an old log density
    RATIO: "logp, old_logp, advantages",
    "return -torch.exp(logp - old_logp)*advantages + 0.5*(logp - ref_logp)**2": (
        "logp, old_logp, ref_logp, advantages"
    ),
    "return (logp - old_logp)**2": "logp, old_logp",
    "w = torch.exp(logp - old_logp).detach()\nreturn w*(logp - ref_logp)": "logp, old_logp, ref_logp",
    "return -torch.min(torch.exp(logp - old_logp)*advantages, advantages)": "logp, old_logp, advantages",
}
NO_OLD = {  # and bodies whose loss does not, though some read one
    "return 0.5*(logp - ref_logp)**2": "logp, ref_logp",
    "return -torch.exp(logp - logp.detach())*advantages": "logp, advantages",
    "self.log(kl=(old_logp - logp).mean())\nreturn 0.5*(logp - ref_logp)**2": "logp, old_logp, ref_logp",
    "return -logp*advantages": "logp, advantages",
    "return 0.5*(logp - ref_logp)**2 + old_logp - old_logp": "logp, old_logp, ref_logp",
}


@pytest.mark.parametrize("body", OLD)
def test_an_old_log_density_means_off_policy(body: str, tmp_path: Path) -> None:
    found = audited(tmp_path, body, OLD[body])
    assert found.verdict.setting.sampling == "off-policy" and notes(found, OFF)
    for sampling in ("on-policy", "off-policy"):
        asked = audited(tmp_path, body, OLD[body], sampling=sampling)
        assert asked.verdict.setting.sampling == sampling and not notes(asked, "sampling ")


@pytest.mark.parametrize("body", NO_OLD)
def test_without_one_the_samples_are_those_of_q(body: str, tmp_path: Path) -> None:
    found = audited(tmp_path, body, NO_OLD[body])
    assert found.verdict.setting.sampling == "on-policy" and not notes(found, "sampling ")


# ---------------------------------------------------------------------------- branches
POSITIVE = "self.beta is taken for positive, which decides a branch; --set gives it a number"
K = "k = logp - ref_logp\n"
BRANCHES = {  # the body, more arguments, the note
    f"{K}if self.beta == 0:\n    return k\nreturn self.beta*k**2": ("", POSITIVE),
    f"{K}if self.beta != 0:\n    return self.beta*k**2\nreturn k": ("", POSITIVE),
    f"{K}if self.beta == 0.0 or self.beta == -1:\n    return k\nreturn self.beta*k**2": ("", POSITIVE),
    f"{K}if self.beta > 0:\n    return self.beta*k**2\nreturn k": ("", POSITIVE),
    f"{K}return k if self.beta == 0 else self.beta*k**2": ("", POSITIVE),
    f"{K}if kind == 'k1':\n    return k\nreturn k**2": (", kind='k2'", "kind='k2' by default"),
    f"{K}if double:\n    k = 2*k\nreturn scale*k**2": (
        ", double=False, scale=1.0", "double=False, scale=1.0 by default; --set changes it",
    ),
    f"{K}return self.g(k, kind)": (", kind=None", "kind=None by default"),
    f"{K}if k.dim() == 1:\n    k = k[:, None]\nreturn k**2": (
        "", "line 7: k.dim() == 1 is False with the shapes that klsym runs the code with",
    ),
    f"{K}return k**2 if k.shape[0] > 1 else k": ("", "line 7: k.shape[0] > 1 is True"),
    f"{K}if len(k.shape) == 2 and True:\n    return k**2\nreturn k": ("", "is True with the shapes"),
    f"{K}if logp.size() == ref_logp.size():\n    return k**2\nreturn k": ("", "is True with the shapes"),
}  # fmt: skip
PLAIN = {  # nothing that klsym has chosen decides a branch
    f"{K}return k**2": "",
    f"{K}if kind == 'k1':\n    return k\nreturn k**2": ", kind",
    f"{K}if k.dim() != 2:\n    raise ValueError('two axes')\nreturn k**2": "",
    f"{K}assert k.shape == ref_logp.shape\nreturn k**2": "",
    f"{K}return self.beta*k**2": "",
    f"{K}return k**2  # the argument is not read": ", kind='k2'",
}


@pytest.mark.parametrize("body", BRANCHES)
def test_what_decides_a_branch_is_noted(body: str, tmp_path: Path) -> None:
    more, note = BRANCHES[body]
    told = {"set": {"self.g": lambda k, kind: k**2}} if "self.g" in body else {}
    found = audited(tmp_path, body, f"logp, ref_logp{more}", **told)
    assert found.expression.endswith("k2") and notes(found, note), found.notes


@pytest.mark.parametrize("body", PLAIN)
def test_no_note_where_nothing_is_decided(body: str, tmp_path: Path) -> None:
    told = {"set": {"kind": "k2"}} if PLAIN[body] == ", kind" else {}
    found = audited(tmp_path, body, f"logp, ref_logp{PLAIN[body]}", **told)
    assert not [n for n in found.notes if "by default" in n or "taken for" in n or "shapes" in n], found.notes


# ---------------------------------------------------------------------------- padding
PADDED = {  # bodies with a mask; does the loss leave padding in?
    "return (0.5*(logp - ref_logp)**2).sum()/mask.sum()": True,
    "return (0.5*(logp - ref_logp)**2 + logp*mask).mean()": True,
    "return (0.5*(logp - ref_logp)**2).sum()/(mask.sum() + 1)*0 + (logp - ref_logp).sum()/mask.sum()": True,
    "return (0.5*(logp - ref_logp)**2*mask).sum()/mask.sum()": False,
    "self.log(k=((logp - ref_logp)*mask).sum()/mask.sum())\nreturn 0.5*(logp - ref_logp)**2": False,
    "self.log(n=mask.sum())\nreturn (0.5*(logp - ref_logp)**2).mean()": False,
    "ref_logp = ref_logp*mask\nreturn 0.5*(logp - ref_logp)**2": False,
}


@pytest.mark.parametrize("body", PADDED)
def test_padding_counts_only_of_the_mask_of_the_loss(body: str, tmp_path: Path) -> None:
    found = audited(tmp_path, body, "logp, ref_logp, mask")
    assert any("padding counts" in str(one) for one in found.findings) == PADDED[body]


# ---------------------------------------------------------------------------- clips
DUAL = """r = torch.exp(logp - old_logp)
a = torch.max(-advantages*r, -advantages*torch.clamp(r, {}, {}))
return torch.where(advantages < 0, torch.min(-advantages*self.clip_c, a), a)"""


@pytest.mark.parametrize(
    ("low", "high", "order"),
    [("0.8", "1.2", "clip_c - 6/5 > 0"), ("1 - self.low", "1 + self.high", "clip_c - high - 1 > 0"),
     ("1 - self.eps", "1 + self.eps", "clip_c - eps - 1 > 0")],
)  # fmt: skip
def test_a_dual_clip_with_a_free_constant_is_a_policy_gradient(
    low: str, high: str, order: str, tmp_path: Path
) -> None:
    """The constant lies beyond the clip range, and klsym says that it takes it so."""
    body = DUAL.format(low, high)
    found = audited(tmp_path, body, "logp, old_logp, advantages", sampling="on-policy")
    assert "maximises E_q[A] (a policy gradient)" in found.verdict.summary
    assert "KL010" not in str(found)
    assert notes(found, f"bounds of clips are taken to be in order: {order}")
    below = audited(
        tmp_path, body, "logp, old_logp, advantages", sampling="on-policy", set={"self.clip_c": 0.5}
    )
    assert "KL010" in str(below)  # here every sample with A < 0 is clipped


# ---------------------------------------------------------------------------- arguments that are no values
NO_VALUE = ["-full(log_q)", "full(log_q)", "full_kl(q, p)", "loo(k1)", "now(k1)", "togo(R)"]


@pytest.mark.parametrize("text", NO_VALUE)
def test_a_sum_is_no_argument(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        audited(tmp_path, "return logp - ref_logp", map={"logp": text})
    message = str(refused.value)
    assert "is a sum over other words, tokens or samples: map the argument to log_q[v]" in message
    assert "cannot be evaluated" not in message and "\n" not in message


@pytest.mark.parametrize("text", ["log_q", "-log_q", "log_q - log_mu", "k1", "whole(log_q)", "0.5*log_q"])
def test_other_expressions_are_arguments(text: str, tmp_path: Path) -> None:
    assert audited(tmp_path, "return logp**2", "logp", map={"logp": text}, sampling="off-policy").points


# ---------------------------------------------------------------------------- of losses or rewards
NAMED = "import torch\ndef {}(logp, old_logp, ref_logp, advantages, mask):\n    {}\n"
RATIO = "torch.exp(logp - old_logp)*advantages"
LOSSES = [  # a name of rewards: one number, or advantages times a ratio of the policy
    ("kl_in_advantages", f"return -({RATIO}*mask).sum()/mask.sum()", "it returns one number"),
    (
        "compute_advantages",
        "return (0.5*(logp - ref_logp)**2*mask).sum()/mask.sum()",
        "it returns one number",
    ),
    ("weigh_advantages", f"return -{RATIO}", "it multiplies advantages with a ratio of the policy"),
]
GIVEN = [
    ("kl_in_advantages", "return (advantages - 0.1*(logp - ref_logp))*mask"),
    ("compute_rewards", "return -0.1*(logp - ref_logp)*mask"),
    ("get_advantages", "return advantages*mask - 0.1*(logp - ref_logp).detach()"),
]


def audited_by_name(folder: Path, name: str, body: str, **told: Any) -> Any:
    (folder / "code.py").write_text(NAMED.format(name, body), encoding="utf-8")
    return audits.audit(f"{folder}/code.py:{name}", **told)


@pytest.mark.parametrize(("name", "body", "why"), LOSSES)
def test_a_loss_is_one_whatever_its_name(name: str, body: str, why: str, tmp_path: Path) -> None:
    found = audited_by_name(tmp_path, name, body)
    assert found.verdict.setting.use == "loss" and notes(found, f"use loss: {why}, although {name}")
    told = {"use": "reward", "credit": "same-token"} if "mask" in body else {"use": "reward"}
    assert audited_by_name(tmp_path, name, body, **told).verdict.setting.use == "reward"


@pytest.mark.parametrize(("name", "body"), GIVEN)
def test_rewards_of_tokens_are_rewards_by_their_name(name: str, body: str, tmp_path: Path) -> None:
    found = audited_by_name(tmp_path, name, body)
    assert found.verdict.setting.use == "reward" and notes(found, f"use reward: {name} gives rewards")
    assert audited_by_name(tmp_path, name, body, use="loss").verdict.setting.use == "loss"


@pytest.mark.parametrize(
    ("condition", "target"),
    [
        ("(ratio < 0.125) | (ratio > 8)", "own-mean"),
        ("ratio > 8", "own-mean"),
        ("ratio.detach() > 8", "own-mean"),
    ],
)
def test_a_mask_of_ratios_is_a_region(condition: str, target: str, tmp_path: Path) -> None:
    body = f"ratio = torch.exp(logp - old_logp)\n    keep = mask*(~({condition}))\n"
    body += "    return -(ratio*advantages*keep).sum()/mask.sum()"
    found = audited_by_name(tmp_path, "masked_loss", body)
    assert found.verdict.target == target
    text = " ".join(str(found).split())
    assert "A policy gradient inside the clip range: A times the score, with the weight rho_now" in text


@pytest.mark.parametrize("kept", ["torch.exp(ref_logp - logp).detach()", "(logp - old_logp).detach()"])
def test_a_detached_factor_of_the_policy_is_no_region(kept: str, tmp_path: Path) -> None:
    body = f"return -(torch.exp(logp - old_logp)*{kept}*advantages*mask).sum()/mask.sum()"
    verdict = audited_by_name(tmp_path, "masked_loss", body).verdict
    assert verdict.target == "objective" and verdict.gradient.inside_clamps is None  # and not its own mean


# ---------------------------------------------------------------------------- advantages of tokens
@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("return -torch.sum(logp.mean() * advantages)", "logp, advantages"),
        ("return -(logp.mean(-1, keepdim=True) * advantages).sum()", "logp, advantages"),
        ("return -((logp*mask).sum(-1, keepdim=True) * rewards).mean()", "logp, rewards, mask"),
    ],
)
def test_that_an_advantage_is_the_same_at_all_tokens_is_said(
    tmp_path: Path, body: str, arguments: str
) -> None:
    assert notes(audited(tmp_path, body, arguments), "map NAME=token_rewards")


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("return -torch.sum(logp * advantages)", "logp, advantages"),
        ("return -(logp * advantages * mask).sum() / mask.sum()", "logp, advantages, mask"),
        ("return -((logp*mask).sum(-1) * rewards).mean()", "logp, rewards, mask"),
    ],
)
def test_where_it_makes_no_difference_nothing_is_said(tmp_path: Path, body: str, arguments: str) -> None:
    assert not notes(audited(tmp_path, body, arguments), "token_rewards")


@pytest.mark.parametrize(
    ("other", "sampling", "assumed"),
    [("old_probs", "off-policy", 1), ("ref_probs", "on-policy", 0), ("teacher_probs", "on-policy", 0)],
)
def test_probabilities_of_an_old_policy_are_those_of_the_sampler(
    other: str, sampling: str, assumed: int, tmp_path: Path
) -> None:
    body = f"return (probs*(probs.log() - {other}.log())).sum(-1).mean()"
    found = audited(tmp_path, body, f"probs, {other}")
    assert (sampling == "off-policy") == ("samples from an older" in " ".join(found.text().split()))
    assert len(notes(found, "sampling off-policy")) == assumed
