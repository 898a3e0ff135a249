"""A role is guessed from a name only if the code uses the argument so; else klsym asks, or reads a number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from klsym.audit import audits
from klsym.errors import UsageError

pytest.importorskip("torch")

HEAD = """import numpy as np
import torch
import torch.nn.functional as F
def agg_loss(loss_mat, loss_mask, count):
    return (loss_mat * loss_mask).sum() / count
def k2(logp, ref_logp):
    return 0.5 * (logp - ref_logp) ** 2
"""
# Bodies of f(logp, ref_logp) that sum a probability over the last axis, as a sum over the vocabulary does.
SUMS = [
    "return (logp.exp() * (logp - ref_logp)).sum(-1)",
    "return (torch.exp(logp) * (logp - ref_logp)).sum(dim=1)",
    "return (ref_logp.exp() * (ref_logp - logp)).mean(-1)",
    "return (logp.exp() * logp).sum()",
    "return ((logp.exp() * (logp - ref_logp)).sum(-1) ** 2).mean()",
    "return (logp.detach().exp() * (logp - ref_logp)).sum(-1)",
    "return torch.sum(torch.exp(2 * logp - ref_logp), dim=-1)",
    "p = logp.exp()\n    return -(p * torch.log1p(-p)).sum(-1)",
    "return (2 ** logp * logp).sum(-1)",
    "return F.kl_div(logp, ref_logp, log_target=True, reduction='none').sum(-1)",
    "return F.kl_div(logp, ref_logp, log_target=True, reduction='none')",
    "return F.kl_div(logp, ref_logp, log_target=True, reduction='batchmean')",
    "return F.kl_div(logp, ref_logp.exp(), reduction='sum')",
    "return F.kl_div(ref_logp, logp, log_target=True)",
    "m = 0.5 * (logp.exp() + ref_logp.exp())\n    return (m * m.log()).sum(-1)",
]
# Bodies that hold ratios only, or sum no probability over the last axis.
RATIOS = [
    "return (torch.exp(ref_logp - logp) - (ref_logp - logp) - 1).sum(-1)",
    "return (torch.exp(logp - logp.detach()) * (logp - ref_logp)).sum(-1)",
    "return k2(logp, ref_logp).mean()",
    "return -F.logsigmoid(0.1 * (logp - ref_logp)).sum(-1)",
    "return torch.exp(2 * logp - 2 * ref_logp) * (logp - ref_logp)",
    "return torch.where(logp.exp() > 0.5, 1.0, 0.0) * (logp - ref_logp)",
    "return torch.exp((logp - ref_logp).sum(-1)) * (logp - ref_logp).sum(-1)",
    "return torch.exp(logp.sum(-1) - ref_logp.sum(-1)).mean()",
    "return -logp.sum(-1)",
    "return torch.exp((logp - ref_logp).clamp(-5, 5)).sum(-1)",
]


def audited(folder: Path, body: str, arguments: str = "logp, ref_logp", **options: Any) -> Any:
    (folder / "code.py").write_text(f"{HEAD}def f({arguments}):\n    {body}\n", encoding="utf-8")
    return audits.audit(f"{folder}/code.py:f", **options)


@pytest.mark.parametrize("body", SUMS)
@pytest.mark.share(3)
def test_a_sum_as_over_a_vocabulary_is_no_guess_of_a_token(body, tmp_path):
    with pytest.raises(UsageError) as refused:
        audited(tmp_path, body)
    message = str(refused.value)
    assert "\n" not in message and ", line " in message
    assert "--map logp=log_q[v] or --map logp=log_q" in message and "as of a whole vocabulary" in message
    if "** 2" in body:  # not linear in the sum: refused for that
        return
    read = audited(tmp_path, body, map={"logp": "log_q", "ref_logp": "log_p"})  # the user has the say
    assert not read.bindings.guessed and not read.tokens.over_vocabulary


OVER_VOCABULARY = [body for body in SUMS if "sum(-1)" in body and not re.search(r"2|log1p", body)]


@pytest.mark.parametrize("body", OVER_VOCABULARY)
def test_the_same_sums_over_the_vocabulary(body, tmp_path):
    read = audited(tmp_path, body, map={"logp": "log_q[v]", "ref_logp": "log_p[v]"}, level="sample")
    assert read.tokens.over_vocabulary


@pytest.mark.parametrize("body", RATIOS)
def test_sums_of_ratios_are_guessed_as_ever(body, tmp_path):
    assert "logp" in audited(tmp_path, body).bindings.guessed


def test_rewards_in_numpy_are_asked_about_too(tmp_path):
    body = "return np.sum(np.exp(logp) * (logp - ref_logp), axis=-1)"
    with pytest.raises(UsageError, match="as of a whole vocabulary"):
        audited(tmp_path, body, use="reward")
    assert audited(tmp_path, body.replace("(logp)", "(logp - ref_logp)"), use="reward").bindings.guessed


def test_losses_in_jax_are_asked_about_too(tmp_path):
    pytest.importorskip("jax")
    body = "return jnp.sum(jnp.exp(logp) * (logp - ref_logp), axis=-1)"
    head = "import jax.numpy as jnp\ndef f(logp, ref_logp):\n    "
    path = tmp_path / "code.py"
    path.write_text(head + body + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match="as of a whole vocabulary"):
        audits.audit(f"{path}:f")
    path.write_text(head + body.replace("exp(logp)", "exp(logp - ref_logp)") + "\n", encoding="utf-8")
    found = audits.audit(f"{path}:f")
    assert found.framework == "jax" and found.verdict.setting.level == "token"


# Arguments that are called masks or tokens, and are numbers: the arguments, the body, which one.
COUNTS = [
    ("loss_mask, counts", "return agg_loss(k2(logp, ref_logp), loss_mask, counts['response_mask'])",
     "counts['response_mask']"),
    ("data, batch_num_tokens", "return agg_loss(k2(logp, ref_logp), data['final_response_mask'],"
     " batch_num_tokens['final_response_mask'])", "batch_num_tokens['final_response_mask']"),
    ("loss_mask, num_tokens", "return agg_loss(k2(logp, ref_logp), loss_mask, num_tokens)", "num_tokens"),
    ("valid_mask, loss_mask", "return agg_loss(k2(logp, ref_logp), loss_mask, valid_mask)", "valid_mask"),
    ("loss_mask, n_mask", "return (k2(logp, ref_logp) * loss_mask / n_mask).sum()", "n_mask"),
    ("loss_mask, n_mask", "k = k2(logp, ref_logp) * loss_mask\n    return k.sum() / loss_mask.sum() * n_mask",
     "n_mask"),
    ("loss_mask, n_mask", "return (k2(logp, ref_logp) * loss_mask).sum() * n_mask ** -1", "n_mask"),
    ("loss_mask, n_mask", "return (k2(logp, ref_logp) * loss_mask).sum() / (2 * n_mask)", "n_mask"),
    ("loss_mask, n_mask: int", "return (k2(logp, ref_logp) * loss_mask).sum() / max(n_mask, 1)", None),
    ("loss_mask, n_mask: float", "return (k2(logp, ref_logp) * loss_mask).sum() / n_mask", "n_mask"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "body", "name"), COUNTS)
def test_a_count_is_no_mask(more, body, name, tmp_path):
    """It is a parameter, and no padding gets a gradient that the real code does not give it."""
    if name is None:
        with pytest.raises(UsageError, match="branches on n_mask, which is unknown"):
            audited(tmp_path, body, f"logp, ref_logp, {more}")
        return
    read = audited(tmp_path, body, f"logp, ref_logp, {more}")
    assert list(read.bindings.free) == [name] and name not in read.bindings.texts
    assert not any("padding" in str(finding) for finding in read.findings)
    assert ("float" in more or name == "num_tokens") != any(
        f"{name}: used as a number" in note for note in read.notes
    )
    assert str(read.bindings.free[name]) in read.expression


MASKS = [
    "return (k2(logp, ref_logp) * mask).sum() / mask.sum()",
    "return ((k2(logp, ref_logp) * mask).sum(-1) / mask.sum(-1)).mean()",
    "return ((k2(logp, ref_logp) * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()",
    "return torch.where(mask.bool(), k2(logp, ref_logp), 0.0)",
    "return (k2(logp, ref_logp).mean() * mask).sum() / mask.sum()",
    "return (k2(logp, ref_logp) * mask / mask.sum()).sum()",
    "return (k2(logp, ref_logp) * (mask > 0)).sum(-1).mean()",
]


@pytest.mark.parametrize("body", MASKS)
def test_masks_are_guessed_as_ever(body, tmp_path):
    assert "mask" in audited(tmp_path, body, "logp, ref_logp, mask").bindings.guessed


def test_two_masks_are_taken_for_one_and_it_is_said(tmp_path):
    body = "return (k2(logp, ref_logp) * response_mask).sum() / attention_mask.sum()"
    notes = audited(tmp_path, body, "logp, ref_logp, response_mask, attention_mask").notes
    assert "response_mask and attention_mask are taken for one and the same mask" in notes
    assert not any("same mask" in n for n in audited(tmp_path, MASKS[0], "logp, ref_logp, mask").notes)


def test_padding_that_counts_is_still_found(tmp_path):
    read = audited(tmp_path, "return k2(logp, ref_logp).sum() / mask.sum()", "logp, ref_logp, mask")
    assert any("padding counts" in str(finding) for finding in read.findings)


def test_what_is_mapped_to_a_mask_and_divided_by_is_refused(tmp_path):
    body = "return (k2(logp, ref_logp) * loss_mask).sum() / n"
    with pytest.raises(
        UsageError,
        match=r"line 9: a division by an expression of the mask of each token.* is n or loss_mask a number",
    ):
        audited(tmp_path, body, "logp, ref_logp, loss_mask, n", map={"n": "mask"})
    assert audited(tmp_path, body, "logp, ref_logp, loss_mask, n", set={"n": 4}).expression == "k2/4"


@pytest.mark.parametrize("name", ["sum_mask", "max", "n", "T", "lambda_", "ref_logp_coef", "beta", "k1_coef"])
def test_a_number_gets_a_name_that_answers_leave_free(name, tmp_path):
    read = audited(tmp_path, f"return {name} * k2(logp, ref_logp)", f"logp, ref_logp, {name}: float")
    assert read.target == "reverse-kl" and name in read.bindings.free


@pytest.mark.parametrize(
    ("returned", "asked"),
    [
        ("(logp.exp()*(logp - ref_logp)).mean()", True),  # a sampled word, or all words and no sum over them
        ("(logp.exp()*(logp - ref_logp)).sum(-1).mean()", True),
        ("(ref_logp.exp()*(ref_logp - logp)).mean()", True),
        ("((logp - ref_logp).exp()*(logp - ref_logp)).mean()", False),  # a ratio is of one word
        ("((ref_logp - logp).exp() - 1 - (ref_logp - logp)).mean()", False),
    ],
)
def test_where_a_probability_multiplies_klsym_asks_of_what(
    tmp_path: Path, returned: str, asked: bool
) -> None:
    file = tmp_path / "code.py"
    file.write_text(f"import torch\ndef f(logp, ref_logp):\n    return {returned}\n", encoding="utf-8")
    if not asked:
        assert audits.audit(f"{file}:f", sampling="on-policy").verdict.target
        return
    with pytest.raises(UsageError, match=r"exp of a log-probability.*--map logp=log_q\[v\] or"):
        audits.audit(f"{file}:f", sampling="on-policy")
