"""Losses of whole sequences: what the code returns is the printed loss, summed as the answer says.

Each row states the loss of one sequence as a function of its log ratio, its advantage and its length.  The
judge sums that by hand, over all sequences or over all tokens of the batch, and compares the gradient with
that of the code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klsym.audit import audits
from klsym.errors import UsageError

torch = pytest.importorskip("torch")

HEAD = """import torch
def f(logp, old_logp, advantages, mask):
    x = ((logp - old_logp) * mask).sum(-1)
    n = mask.sum(-1)
    w = x.exp()
    clipped = torch.min(w * advantages, w.clamp(0.8, 1.2) * advantages)
    spread = (w * advantages)[:, None]
    return """
Loss = Callable[[Any, Any, Any], Any]  # of the log ratio, the advantage and the length of one sequence


def ratio(x: Any, a: Any, n: Any) -> Any:
    return -x.exp() * a


def clipped(x: Any, a: Any, n: Any) -> Any:
    return -torch.minimum(x.exp() * a, x.exp().clamp(0.8, 1.2) * a)


# What is returned, the loss of one sequence as text and as a function, and what it is divided by.
READ: dict[str, tuple[str, Loss, str]] = {
    "-(spread*mask).sum()/mask.sum()": ("-T*rho*A", lambda x, a, n: n * ratio(x, a, n), "batch"),
    "-((spread*mask)/mask.sum()).sum()": ("-T*rho*A", lambda x, a, n: n * ratio(x, a, n), "batch"),
    "-(spread*mask).sum(-1).sum()/n.sum()": ("-T*rho*A", lambda x, a, n: n * ratio(x, a, n), "batch"),
    "-(spread*mask).sum()/mask.sum().clamp(min=1)": (
        "-T*rho*A", lambda x, a, n: n * ratio(x, a, n), "batch",
    ),
    "((x**2)[:, None]*mask).sum()/mask.sum()": ("2*T*k2", lambda x, a, n: n * x**2, "batch"),
    "-(clipped[:, None]*mask).sum()/mask.sum()": (
        "-T*min(rho*A, A*clip(rho, 4/5, 6/5))", lambda x, a, n: n * clipped(x, a, n), "batch",
    ),
    "-(w*advantages).sum()/mask.sum()": ("-rho*A", ratio, "batch"),
    "-clipped.sum()/mask.sum()": ("-min(rho*A, A*clip(rho, 4/5, 6/5))", clipped, "batch"),
    "-((w*advantages/n)[:, None]*mask).sum()/mask.sum()": ("-rho*A", ratio, "batch"),
    "-(w*advantages).mean()": ("-rho*A", ratio, "sum"),
    "-(w*advantages).sum()": ("-rho*A", ratio, "sum"),
    "-((spread*mask).sum(-1)/n).mean()": ("-rho*A", ratio, "sum"),
    "-((spread*mask).sum(-1)/n).sum()": ("-rho*A", ratio, "sum"),
    "-(spread*mask).sum()": ("-T*rho*A", lambda x, a, n: n * ratio(x, a, n), "sum"),
    "-(spread*mask).mean()": ("-T*rho*A", lambda x, a, n: n * ratio(x, a, n), "sum"),
    "-(spread*mask).sum(-1).mean()": ("-T*rho*A", lambda x, a, n: n * ratio(x, a, n), "sum"),
    "-(w*advantages/n).mean()": ("-rho*A/T", lambda x, a, n: ratio(x, a, n) / n, "sum"),
    "-(w*advantages*n).mean()": ("-T*rho*A", lambda x, a, n: n * ratio(x, a, n), "sum"),
    "((x/n)**2).mean()": ("2*k2/T**2", lambda x, a, n: (x / n) ** 2, "sum"),
    "-((x/n).exp()*advantages).mean()": (
        "-A*exp(whole(log_q - log_mu)/T)", lambda x, a, n: -(x / n).exp() * a, "sum",
    ),
    "-(((x/n).exp()*advantages)[:, None]*mask).sum()/mask.sum()": (
        "-T*A*exp(whole(log_q - log_mu)/T)", lambda x, a, n: -n * (x / n).exp() * a, "batch",
    ),
    "-(w*advantages*n/n.sum()*n).sum()": (
        "-rho*A*T**2", lambda x, a, n: n**2 * ratio(x, a, n), "batch",
    ),
    "-(w*advantages)": ("-rho*A", ratio, "sum"),
}  # fmt: skip
REFUSED = {  # weights that are none of these, or differ from term to term
    "-(w*advantages*n**3).mean()": "weighted by neither",
    "-(w*advantages).mean() - (w*advantages).sum()/mask.sum()": "put together in different ways",
    "-(w*advantages*n**3/n.sum()).sum()": "weighted by neither",
    "-(w*advantages).sum()/mask.sum()**2": "weighted by neither",
    "((w*advantages).sum()/mask.sum())**2": "not linear",
    "-(w*advantages/n.sqrt()).mean()": "weighted by neither",
}


def written(folder: Path, returned: str) -> str:
    (folder / "code.py").write_text(f"{HEAD}{returned}\n", encoding="utf-8")
    return f"{folder}/code.py:f"


def gradient_of(value: Any, logp: Any) -> Any:
    return torch.autograd.grad(value.sum(), [logp])[0]


def arguments(seed: int) -> tuple[Any, ...]:
    """Log densities, advantages of sequences and a mask; no number of sequences that klsym traces with."""
    torch.manual_seed(seed)
    logp, old = (-torch.rand(5, 4, dtype=torch.float64) for _ in range(2))
    mask = (torch.arange(4)[None, :] < torch.tensor([1, 4, 2, 3, 2])[torch.randperm(5)][:, None]).double()
    return logp.requires_grad_(), old, torch.randn(5, dtype=torch.float64), mask


def judged(returned: str, loss: Loss, over: str) -> None:
    """The gradient of the code is c times that of the sum, with one c > 0 for all batches of one size."""
    code: dict[str, Any] = {}
    exec(f"{HEAD}{returned}", code)
    ratios: list[float] = []
    for seed in range(3):
        logp, old, advantages, mask = arguments(seed)
        mine = gradient_of(code["f"](logp, old, advantages, mask), logp)
        x, n = ((logp - old) * mask).sum(-1), mask.sum(-1)
        total = loss(x, advantages, n).sum() / (n.sum() if over == "batch" else 1)
        meant = gradient_of(total, logp)
        assert ((mine != 0) == (meant != 0)).all()
        ratios += (mine / meant)[meant != 0].tolist()
    assert min(ratios) > 0 and max(ratios) - min(ratios) < 1e-9 * max(ratios)


@pytest.mark.parametrize("returned", READ)
def test_what_is_printed_is_what_the_code_sums(returned: str, tmp_path: Path) -> None:
    expression, loss, over = READ[returned]
    judged(returned, loss, over)
    sampling = None if "rho" in expression or "log_mu" in expression else "on-policy"
    kind = {"map": {"old_logp": "log_p"}} if sampling else {}
    found = audits.audit(written(tmp_path, returned), sampling=sampling, **kind)
    assert (found.expression, found.tokens.level) == (expression, "sequence")
    setting = found.verdict.setting
    assert setting.aggregate == over
    lengths = any(one.code.code == "KL012" for one in found.verdict.diagnostics)
    assert lengths == (over == "batch")


@pytest.mark.parametrize("returned", REFUSED)
def test_other_sums_of_sequences_are_refused(returned: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=REFUSED[returned]):
        audits.audit(written(tmp_path, returned))


AT_TOKENS = {  # what is returned, the loss at one token, how tokens are put together; or a refusal
    "-(spread*mask).sum()/mask.sum()": ("-rho*A", "batch"),
    "-((spread*mask).sum(-1)/n).mean()": ("-rho*A", "mean"),
    "-(spread*mask).sum()": ("-rho*A", "sum"),
    "-(w*advantages).mean()": ("-rho*A", "mean"),
    "-(w*advantages*n).mean()": ("-rho*A", "sum"),
    "-(w*advantages).sum()/mask.sum()": ("", "--level sequence"),
    "-(w*advantages/n).mean()": ("", "--level sequence"),
}


@pytest.mark.parametrize("returned", AT_TOKENS)
def test_at_level_token_the_loss_has_no_further_length(returned: str, tmp_path: Path) -> None:
    expression, aggregate = AT_TOKENS[returned]
    code = written(tmp_path, returned)
    if not expression:
        with pytest.raises(UsageError, match=aggregate):
            audits.audit(code, level="token")
        return
    found = audits.audit(code, level="token")
    setting = found.verdict.setting
    assert (found.expression, setting.aggregate, setting.weights) == (expression, aggregate, "sequence")


def test_rewards_of_tokens_in_a_loss_of_sequences_are_said_to_be_constant(tmp_path: Path) -> None:
    code = written(tmp_path, "-(w[:, None]*advantages*mask).sum()/mask.sum()")
    text = (tmp_path / "code.py").read_text().replace("clipped = torch.min", "clipped = lambda: torch.min")
    (tmp_path / "code.py").write_text(text.replace("    spread = (w * advantages)[:, None]\n", ""))
    assert "rewards are taken for the same at all tokens of a sequence" in audits.audit(code).notes


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("(k*mask).sum()/mask.sum()",
         "averaged over all tokens of the batch: each weighs one over their number"),
        ("(k*mask).sum()/mask.sum()/mask.shape[0]",
         "averaged over all tokens of the batch, then averaged over sequences"),
        ("3*(k*mask).sum()/mask.sum()", "averaged over all tokens of the batch"),
        ("(k*mask).mean()", "averaged over the padded grid: each token weighs one over the number of places"),
        ("((k*mask).sum(-1)/n).sum()/mask.numel()",
         "averaged over the tokens of each sequence, then multiplied by 0.012987"),
        ("((k*mask).sum(-1)/n).mean()",
         "averaged over the tokens of each sequence, then averaged over sequences"),
    ],
)  # fmt: skip
def test_a_weight_is_told_whole(tmp_path: Path, returned: str, said: str) -> None:
    """Each weight, as one divides by more than the words for the rest say."""
    place = written(tmp_path, returned.replace("k*", "(logp - old_logp)**2/2*"))
    assert said in " ".join(audits.audit(place).text(full=True).split())
