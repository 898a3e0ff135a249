"""Functions, classes and loops as they stand in trainers."""

from __future__ import annotations

import pytest

from klsym.errors import UsageError
from klsym.language.spellings import read_loss
from support.judges.refusals import check_refusal

PPO = "-Min(A*rho, A*clip(rho, 1 - {0}, {0} + 1))"
TUPLE = """
def compute_policy_loss(old_log_prob, log_prob, advantages, eos_mask, cliprange):
    ratio = torch.exp(log_prob - old_log_prob)
    pg_losses = -advantages * ratio
    pg_losses2 = -advantages * torch.clamp(ratio, 1.0 - cliprange, 1.0 + cliprange)
    pg_loss = masked_mean(torch.max(pg_losses, pg_losses2), eos_mask)
    pg_clipfrac = masked_mean(torch.gt(pg_losses2, pg_losses).float(), eos_mask)
    return pg_loss, pg_clipfrac
"""
DATA = """
def compute_loss_pi(data):
    obs, act, adv, logp_old = data['obs'], data['act'], data['adv'], data['logp']
    pi, logp = ac.pi(obs, act)
    ratio = torch.exp(logp - logp_old)
    clip_adv = torch.clamp(ratio, 1-clip_ratio, 1+clip_ratio) * adv
    loss_pi = -(torch.min(ratio * adv, clip_adv)).mean()
    clipped = ratio.gt(1+clip_ratio) | ratio.lt(1-clip_ratio)
    pi_info = dict(cf=clipped)
    return loss_pi, pi_info
"""
MODULE = """
class PolicyLoss(nn.Module):
    def __init__(self, clip_eps=0.2):
        super().__init__()
        self.clip_eps = clip_eps

    def forward(self, log_probs, old_log_probs, advantages, action_mask=None):
        ratio = (log_probs - old_log_probs).exp()
        surr1 = ratio * advantages
        surr2 = ratio.clamp(1 - self.clip_eps, 1 + self.clip_eps) * advantages
        return masked_mean(-torch.min(surr1, surr2), action_mask, dim=-1).mean()
"""
CHOICES = """
old_logps = inputs["old_per_token_logps"] if self.num_iterations > 1 else logps.detach()
advantages = advantages.unsqueeze(1) if advantages is not None else None
ref = logps.detach() if inputs["ref_logps"] is None else inputs["ref_logps"]
loss = -(torch.exp(logps - old_logps) * advantages - self.beta * (logps - ref)).mean()
"""
EPOCHS = """
for _ in range(K_epochs):
    logprobs, state_values, dist_entropy = self.policy.evaluate(old_states, old_actions)
    ratios = torch.exp(logprobs - old_logprobs.detach())
    loss = -ratios * (rewards - state_values.detach()) - 0.01*dist_entropy
    self.optimizer.zero_grad()
    loss.mean().backward()
    self.optimizer.step()
"""
RETURNS = """
R = 0
policy_loss = []
returns = []
for r in policy.rewards[::-1]:
    R = r + args.gamma * R
    returns.insert(0, R)
returns = torch.tensor(returns)
for log_prob, R in zip(policy.saved_log_probs, returns):
    policy_loss.append(-log_prob * R)
policy_loss = torch.cat(policy_loss).sum()
"""
PENALISED = """
rewards = scores - beta * (logp - ref_logp).detach()
advantages = rewards - rewards.mean(dim=1, keepdim=True)
loss = -(logp * advantages).mean()
"""
HELPER = """
def compute_entropy(policy_logits):
    return tf.reduce_sum(-tf.nn.softmax(policy_logits) * tf.nn.log_softmax(policy_logits), axis=-1)

policy_loss = compute_a2c_loss(policy_logits, actions, advantages)
total_loss = tf.reduce_mean(policy_loss, axis=0)
policy_entropy = tf.reduce_mean(compute_entropy(policy_logits))
entropy_loss = tf.multiply(float(self._entropy_cost), policy_entropy, name="entropy_loss")
total_loss = tf.add(total_loss, entropy_loss, name="total_loss")
"""
OWN_NAMES = """
def reverse_kl_divergence(log_q: torch.Tensor, log_p: torch.Tensor) -> torch.Tensor:
    log_p = log_p.float()
    log_q = log_q.float()
    q = log_q.exp()
    kld = q * (log_q - log_p)
    return kld.sum(dim=-1)
"""
COST = """
for _ in range(episodes):
    log_probs = m.log_prob(actions)
    reward = compute_reward(seq, actions)
    cost -= log_probs.mean() * (reward - baselines[key])
"""
CPP = "auto r = torch::exp(logp - old_logp);\nauto loss = -(torch::clamp(r, 0.8, 1.2) * adv).mean();"
KEYS = (
    "-torch.min(batch[Keys.ADVANTAGES]*logp_ratio, batch[Keys.ADVANTAGES]*torch.clamp(logp_ratio, 0.8, 1.2))"
)
MASKED = """
log_ratio = log_probs - log_probs_ref
if action_mask is not None:
    log_ratio = log_ratio * action_mask
return torch.expm1(log_ratio) - log_ratio
"""
SELECTED = "loss_mat = -adv*ratio\nloss = torch.where(loss_mask.bool(), loss_mat, 0).sum() / loss_mask.sum()"
SIZES = "seq_losses = torch.sum(loss_mat*loss_mask, dim=-1)\nloss = torch.sum(seq_losses)/loss_mask.shape[-1]"
ONE_HOT = "-tf.reduce_sum(tf.multiply(log_pi, self.a), reduction_indices=1)*self.td"
MIXTURE = """
mixture = torch.logsumexp(torch.stack([student_log_probs + torch.log(beta), teacher_log_probs]), dim=0)
loss = F.kl_div(mixture, teacher_log_probs, reduction="batchmean", log_target=True)
"""
READ = {
    HELPER: "-A*log_q - entropy_cost*full(log_q)",
    OWN_NAMES: "full(k1)",
    COST: "-(R - baselines)*whole(log_q)/T",
    CPP: "-A*clip(rho, 4/5, 6/5)",
    KEYS: "-Min(A*rho, A*clip(rho, 4/5, 6/5))",
    MASKED: "-k1 - 1 + 1/r",
    SELECTED: "-A*rho",
    SIZES: "-A*log_q/size1",
    ONE_HOT: "-A*log_q",
    MIXTURE: "full((log_p - log(beta*exp(log_q) + exp(log_p)))*r)",
    "m = 0.5*(p + q)\nF.kl_div(m.log(), p, reduction='batchmean')":
        "full((log_p - log(exp(log_p)/2 + exp(log_q)/2))*r)",
    "TF.kl_div(input=TF.log_softmax(student_val/temp, -1), target=TF.softmax(teacher_val/temp, -1))":
        "full(-k1*r)",
    "-(log_π*A)": "-A*log_q",
    "F.kl_div(F.log_softmax(pred/T, 1), target, reduction='batchmean')*(T*T)": "temperature**2*full(-k1*r)",
    "loss = F.kl_div(logps, target, reduction='sum')": "full(-k1*r)",
    TUPLE: "Max(-A*rho, -A*clip(rho, 1 - cliprange, cliprange + 1))",
    DATA: PPO.format("clip_ratio"),
    MODULE: PPO.format("clip_eps"),
    CHOICES: "-A*rho + beta*k1",
    EPOCHS: "-(R - state_values)*rho + full(log_q)/100",
    RETURNS: "-R*log_q",
    PENALISED: "-log_q*centred(R - beta*sg(k1))",
}  # fmt: skip
TWO = "class A:\n    def f(self, logp):\n        return logp\n    def g(self, logp):\n        return -logp"
REFUSED = {
    TWO: "no loss|statement|class",
    "torch.logsumexp(logits, -1)": "logsumexp",
    "def helper(x):\n    return -x\nloss = helper(logp)*adv": "unknown function 'helper'",
    "entropy = compute_entropy(old_logits)\n-logp*A - entropy": "unknown function 'compute_entropy'",
    "F.kl_div(y_logits.log_softmax(-1)/temp, (t_logits/tau).softmax(-1))": "logits|temperature",
    "distill = F.kl_div(F.log_softmax(y/T, 1), F.softmax(teacher/T, 1)) + F.cross_entropy(y, labels)":
        "explain each term by itself",
    "(softmax(logits, -1)*(logp - ref_logp)).sum(-1)": "would both be read as",
    "x.shape[n]*k1": "grammar|index",
    "class A:\n    beta = 0.1": "no loss|not read|statement",
    "def f(logp):\n    return {'loss': logp}": "not part of the loss grammar|grammar",
    "for t in steps:\n    logp = f(logp)\n-logp*adv": "a statement that is not read|not read",
    "for r in rewards:\n    returns = r*logp + returns\n-logp*returns": "not read",
    "for r in x:\n    R = r + g*R\nloss = -logp*R": "a statement that is not read",
    "for r in x:\n    rewards = -r - rewards\nloss = -logp*rewards": "a statement that is not read",
    "x = k3 if self.mode == 'a' else k2\nx": "if and else",
    "x = k3 if logp > 0 else k2\nx": "if and else",
    "rewards = R - beta*k1\nadv = rewards - rewards.mean()\n-logp*adv": "a mean or a sum inside",
}  # fmt: skip


@pytest.mark.parametrize(("code", "loss"), READ.items(), ids=[code.strip()[:30] for code in READ])
def test_read(code: str, loss: str) -> None:
    assert str(read_loss(code).expression) == loss


@pytest.mark.parametrize(("code", "words"), REFUSED.items(), ids=[code[:30] for code in REFUSED])
def test_refused(code: str, words: str) -> None:
    check_refusal(code, words)


def test_what_is_taken_for_granted_is_said() -> None:
    said = {
        code: [
            c for n in read_loss(code).notes if n.code == "settings-assumed" for c in n.values["conditions"]
        ]
        for code in (TUPLE, CHOICES, RETURNS)
    }
    assert "the first of the values that are returned is the loss" in said[TUPLE]
    assert {"self.num_iterations > 1", "advantages is not None", "inputs['ref_logps'] is given"} == {
        *said[CHOICES]
    }
    assert "returns is what its name says" in said[RETURNS]


LAST = {
    "entropy = K.sum(policy*K.log(policy + 1e-10), axis=1)\nK.sum(entropy)": "full(log_q)",
    "loss = torch.sum(negative_log_probs * return_batch)": "-R*log_q",
    "loss = rl_weight*(-logp*adv),": "-A*log_q*rl_weight",
    "if entropy is None:\n    e = -logp\nelse:\n    e = entropy\nloss = -e.mean()": "full(log_q)",
    "loss = -logp*adv\ntorch.cuda.empty_cache()\nloss": "-A*log_q",
    "(pg_losses*mask).sum()/max_response_length + (pg_losses2*mask).sum()/max_response_length":
        "-A*rho/max_response_length - A*clip(rho, 1 - eps, eps + 1)/max_response_length",
}  # fmt: skip
NOT_READ = {
    "policy_loss_d = unread(x)\npolicy_loss = policy_loss_d + f(logp)\npolicy_loss": "unknown function",
    "advantages = (rewards - rewards.mean())/(rewards.std() + eps)": "no policy in .*-.logp.advantages",
    "rewards = rewards - beta": "no policy in",
    "if x is None:\n    y = k1\nz = k2": "not read",
}


@pytest.mark.parametrize(("code", "loss"), LAST.items(), ids=[code[:30] for code in LAST])
def test_single_lines_are_read(code: str, loss: str) -> None:
    assert str(read_loss(code).expression) == loss


@pytest.mark.parametrize(("code", "words"), NOT_READ.items(), ids=[code[:30] for code in NOT_READ])
def test_single_lines_are_refused(code: str, words: str) -> None:
    check_refusal(code, words)


# ---------------------------------------------------------------------------- discounted returns
NORMALISED = "\nx = (x - x.mean())/(x.std() + eps)\nloss = -(logp*x).sum()"
STEPS = {
    "x = []\nR = 0\nfor r in rewards[::-1]:\n    R = r + gamma*R\n    x.insert(0, R)": "R",
    "x = np.zeros_like(rewards)\ns = 0\nfor t in reversed(range(len(rewards))):\n    s = s*gamma + rewards[t]"
    "\n    x[t] = s": "R",
    "x = np.zeros_like(r)\ns = 0\nfor t in reversed(range(0, r.size)):\n    if r[t] != 0: s = 0\n"
    "    s = s*gamma + r[t]\n    x[t] = s": "R",
    "x = torch.zeros(9)\nG = 0\nfor t in range(len(rewards) - 1, -1, -1):\n    G = gamma*G + rewards[t]\n"
    "    x[t] = G": "R",
}  # fmt: skip
NO_RETURNS = (
    "x = []\nR = 0\nfor r in rewards:\n    R = r + gamma*R\n    x.insert(0, R)",
    "x = []\nR = 0\nfor r in rewards[::-1]:\n    R = r*gamma*R\n    x.insert(0, R)",
    "x = []\nR = 0\nfor r in rewards[::-1]:\n    R = r + gamma*R\n    x.append(R)",
    "x = []\nR = 0\nfor r in costs[::-1]:\n    R = r + gamma*R\n    x.insert(0, R + 1)",
    "x = []\nR = 0\nfor r, lp in zip(rewards[::-1], logp):\n    R = r + gamma*R*lp\n    x.insert(0, R)",
)


@pytest.mark.parametrize("loop", STEPS)
def test_a_loop_of_discounted_sums_fills_the_returns(loop: str) -> None:
    reading = read_loss(f"{loop}\nloss = -(logp*x).sum()")
    assert str(reading.expression) == "-R*log_q"
    [note] = [note for note in reading.notes if note.code == "settings-assumed"]
    assert "x is R, the discounted sum of rewards from each step on" in note.values["conditions"]
    assert str(read_loss(loop + NORMALISED).expression) == "-log_q*normalised(R)"


@pytest.mark.parametrize("loop", NO_RETURNS)
def test_other_loops_fill_no_returns(loop: str) -> None:
    with pytest.raises(UsageError):
        read_loss(f"{loop}\nloss = -(logp*x).sum()")


def test_a_list_that_is_reversed_after_the_loop_is_in_the_order_of_the_steps() -> None:
    loop = "G = 0\nreturns = []\nfor r in reversed(rewards):\n    G = r + gamma*G\n    returns.append(G)"
    code = f"{loop}\nreturns.reverse()\nloss = -(logp*torch.tensor(returns)).sum()"
    assert str(read_loss(code).expression) == "-R*log_q"
    with pytest.raises(UsageError, match="a formula that is not used"):
        read_loss("logp.reverse()\n-logp*A")


def test_such_loops_compute_discounted_sums() -> None:
    rewards, gamma = [1.0, -2.0, 0.5, 3.0], 0.9
    expected = [sum(gamma**k * rewards[t + k] for k in range(4 - t)) for t in range(4)]
    inserted: list[float] = []
    total = 0.0
    for reward in rewards[::-1]:
        total = reward + gamma * total
        inserted.insert(0, total)
    stored, running = [0.0] * 4, 0.0
    for t in reversed(range(len(rewards))):
        running = running * gamma + rewards[t]
        stored[t] = running
    assert inserted == pytest.approx(expected) and stored == pytest.approx(expected)
