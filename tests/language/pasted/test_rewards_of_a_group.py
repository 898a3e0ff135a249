"""GRPO as TRL first wrote it: an advantage for each response beside the token mean, against autograd.

The loss of the code is differentiated in the logits of every token, and compared with the gradient of
-(log q of the response)*A/T, the loss that is printed.
"""

from __future__ import annotations

import pytest

import klsym
from klsym.errors import UsageError

GRPO = (
    "advantages = (rewards - {mean}) / (rewards.std() + 1e-4); {before}"
    " x = torch.exp(per_token_logps - per_token_logps.detach()) * advantages.unsqueeze(1); x = -{x};"
    " loss = ((x * completion_mask).sum(dim=1) / completion_mask.sum(dim=1)).mean()"
)
ALONE = GRPO.format(mean="rewards.mean()", before="", x="x")
WITH_KL = GRPO.format(mean="rewards.mean()", before="kl = k3;", x="(x - self.beta*kl)")


def test_the_gradient_is_that_of_the_loss_of_sequences() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    logits = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    ids = torch.randint(0, 5, (3, 4))
    mask = torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]], dtype=torch.float64)
    rewards = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    logps = logits.log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    names = {"torch": torch, "per_token_logps": logps, "completion_mask": mask, "rewards": rewards}
    exec("\n".join(line.strip() for line in ALONE.split(";")), names)
    [of_code] = torch.autograd.grad(names["loss"], logits, retain_graph=True)
    normalised = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    printed = (-(logps * mask).sum(1) * normalised / mask.sum(1)).mean()
    [of_sequences] = torch.autograd.grad(printed, logits)
    assert torch.allclose(of_code, of_sequences)


def test_it_is_read_as_the_loss_of_sequences() -> None:
    verdict = klsym.explain(ALONE)
    assert verdict.loss.written.text == "-log_q*normalised(R)"
    assert verdict.setting.level == "sequence" and verdict.setting.averaged
    same = klsym.explain("-log_q*normalised(R)", level="sequence", aggregate="mean")
    assert str(same.gradient.score_coefficient) == str(verdict.gradient.score_coefficient)


def test_beside_a_penalty_each_term_is_explained() -> None:
    answer = " ".join(str(klsym.explain(WITH_KL)).split())
    assert "a policy gradient" in answer and "another is of each token" in answer
    assert "choose level" not in answer


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("-log_q*loo(whole(R)) + beta*k2", "maximises E_q[R]"),
        ("-log_q*centred(whole(R)) + beta*k3", "maximises E_q[R"),
        ("-log_q*loo(whole(R))", "maximises E_q[R]"),
        ("-2*exp(log_q - sg(log_q))*loo(whole(R))", "maximises E_q[2*R]"),
    ],
)
def test_rewards_of_responses_at_each_token(loss: str, words: str) -> None:
    assert words in str(klsym.explain(loss, level="token"))


@pytest.mark.parametrize(
    "loss",
    [
        "-log_q**2*loo(whole(R))",
        "-k1*log_q*loo(whole(R)) + k2",
        "-clip(rho, 1 - eps, 1 + eps)*loo(whole(R))",
        "-exp(log_q)*loo(whole(R))",
        "-R*log_q*loo(whole(R))",
        "-log_q*loo(future(R))",
        "-log_q*loo(whole(M*R))",
        "-log_q*loo(whole(R) - beta*k1)",
        "-log_q*M*loo(whole(R))",
    ],
)
def test_terms_that_are_no_constant_times_the_score_are_refused(loss: str) -> None:
    with pytest.raises(UsageError, match="samples"):
        klsym.explain(loss, level="token")


@pytest.mark.parametrize("code", [ALONE.replace(".unsqueeze(1)", "")])
def test_an_advantage_of_unknown_shape_is_refused_with_what_to_type(code: str) -> None:
    with pytest.raises(UsageError, match=r"advantages\.unsqueeze\(1\)"):
        klsym.explain(code)


def test_all_tokens_of_a_batch_are_refused_with_what_to_choose() -> None:
    code = "A = rewards - rewards.mean(); loss = -(logp * A.unsqueeze(1) * mask).sum() / mask.sum()"
    with pytest.raises(UsageError, match="choose aggregate mean"):
        klsym.explain(code)


def test_the_hint_for_a_mean_of_rewards_is_their_mean() -> None:
    code = GRPO.format(mean="mean_grouped_rewards", before="", x="(x - self.beta*per_token_kl)")
    with pytest.raises(UsageError) as refusal:
        klsym.explain(code)
    assert "mean_grouped_rewards = R" not in str(refusal.value)
    assert klsym.explain(f"per_token_kl = k3; {code}").setting.level == "token"


def test_a_clipped_ratio_is_refused_with_what_to_type() -> None:
    clipped = (
        "x = torch.min(ratio * advantages.unsqueeze(1), ratio.clamp(0.8, 1.2) * advantages.unsqueeze(1));"
        " loss = -((x * mask).sum(1) / mask.sum(1)).mean()"
    )
    with pytest.raises(UsageError, match=r"`advantages = A; \.\.\.`"):
        klsym.explain(f"advantages = rewards - rewards.mean(); {clipped}")
    assert "policy gradient inside the clip range" in str(klsym.explain(f"advantages = A; {clipped}"))
