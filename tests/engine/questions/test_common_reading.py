"""Two texts that differ in what is not read are not compared: each refusal beside a pair that is compared."""

from __future__ import annotations

import pytest

import klsym

LOSS = "loss = (advantage*log_probs).mean()"
CLAMPED = "loss = -A*clamp(exp(logp - {}), 0.5, 2).detach()*logp"
REFUSED = [  # two texts, and a part of what is said
    (f"advantage = L - b.view(-1); {LOSS}", f"advantage = L - b.view(-1).detach(); {LOSS}", "unknown names"),
    (f"advantage = get_gae(r, 0.9); {LOSS}", f"advantage = get_gae(r, 1.0); {LOSS}", "are not read"),
    ("adv = R - values.detach(); loss = -adv*logp", "adv = R - values.squeeze(-1).detach(); loss = -adv*logp",
     "squeeze alone"),
    ("loss = -A.unsqueeze(-1)*logp", "loss = -A*logp", "unsqueeze alone"),
    (CLAMPED.format("old_logp"), CLAMPED.format("rollout_logp"), "would both be the sampler"),
    ("p = softmax(logits, -1); loss = (p*log(p)).sum(-1)",
     "p = softmax(logits/temperature, -1); loss = (p*log(p)).sum(-1)", "would be two policies"),
    (CLAMPED.format("prev_logprobs"), CLAMPED.format("generation_logprobs"), "would both be the sampler"),
]  # fmt: skip
COMPARED = [  # two texts, and whether the gradients are the same on average
    (f"advantage = get_gae(r, 0.9); {LOSS}", f"advantage = get_gae(r, 0.9); {LOSS}", True),
    ("loss = -A.unsqueeze(-1)*logp", "loss = -2*A*logp", False),
    ("loss = -A.float()*logp", "loss = -A*logp", True),
    ("rewards = R - 0.1*(logp - ref_logp)", "loss = -R*logp + 0.1*k2", True),
    ("rewards = R - 0.1*(logp - ref_logp)", "loss = -R*logp + 0.1*k3", False),
    ("rewards = R - 0.1*(logp - ref_logp)", "rewards = R - 0.1*k3", False),
    ("rewards = R - 0.1*k3", "R - 0.1*k3 in the reward", True),
    (CLAMPED.format("old_logp"), CLAMPED.format("old_log_probs"), True),
    ("old_logp = log_old; " + CLAMPED.format("old_logp"), CLAMPED.format("rollout_logp"), False),
]


@pytest.mark.parametrize(("first", "second", "says"), REFUSED)
def test_what_is_not_read_alike_is_not_compared(first: str, second: str, says: str) -> None:
    for pair in ((first, second), (second, first)):
        with pytest.raises(klsym.KlsymError, match=says):
            klsym.compare(*pair)


@pytest.mark.parametrize(("first", "second", "same"), COMPARED)
def test_what_is_read_alike_is(first: str, second: str, same: bool) -> None:
    assert klsym.compare(first, second).gradient.same is same
