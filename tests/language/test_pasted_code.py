"""Code as it stands in repositories: functions, loops, distributions; PyTorch runs it beside klsym."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy

from klsym.language.expressions import ATOMS, unfold
from klsym.language.spellings import read_loss
from support.judges.refusals import check_refusal

LOOP = """
losses = []
for lp, ret in zip(logp, returns):
    losses.append(-lp * ret)
loss = torch.stack(losses).sum()
"""
COUNTING = """
loss = 0
for i in range(len(logp)):
    ratio = torch.exp(logp[i] - old_logp[i])
    loss += -torch.min(ratio * adv[i], torch.clamp(ratio, 0.8, 1.2) * adv[i])
loss = loss / len(logp)
"""
FUNCTION = '''
def compute_loss(logp, ref_logp, adv, use_kl=True):
    """The loss of a batch."""
    loss = -logp * adv
    if use_kl:
        d = ref_logp - logp
        loss = loss + 0.1 * (torch.exp(d) - d - 1)
    return loss.mean()
'''
HELD = """
with torch.no_grad():
    weight = torch.exp(logp - old_logp)
loss: Any = -(weight * logp * adv).mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()
"""
PAIR = "new, old = logp, old_logp\nloss = -(torch.exp(new - old) * adv).mean()"
MASKED = """
log_ratio = (logp - old_logp) * mask
ratio = torch.exp(log_ratio)
loss = -((ratio * adv) * mask).sum() / mask.sum()
"""
KEPT = "loss = ((logp - ref_logp)[mask.bool()] ** 2).mean()"
AT_DRAWN = "loss = -torch.log(pi[actions]) * R"
CRITIC = "loss = -(logp * (R - values.detach())).mean() + 0.5 * v_loss"
RUN = {"loop": LOOP, "counting": COUNTING, "function": FUNCTION, "held": HELD, "pair": PAIR, "masked": MASKED,
       "kept": KEPT}  # fmt: skip


def run_code(code: str, values: dict[str, Any]) -> Any:
    """Return the gradient of the loss of the code in the log-probabilities."""
    torch = pytest.importorskip("torch")
    logp = torch.tensor(values["logp"], requires_grad=True)
    space = {name: torch.tensor(x) for name, x in values.items()} | {"logp": logp, "torch": torch, "Any": Any}
    lines = [line for line in code.splitlines() if not line.startswith(("optimizer", "loss.backward"))]
    exec("\n".join(lines), space)
    loss = space.get("loss")
    if loss is None:
        loss = space["compute_loss"](logp, space["ref_logp"], space["adv"])
    loss.backward()
    return logp.grad.numpy()


@pytest.mark.parametrize("code", RUN.values(), ids=RUN)
def test_the_reading_has_the_slope_of_the_code(code: str) -> None:
    """Up to a factor that is the same for all samples."""
    numbers = np.random.default_rng(0)
    values = {name: numbers.normal(size=6) for name in ("logp", "ref_logp", "old_logp", "adv", "returns")}
    values["mask"] = np.array([1.0, 1, 0, 1, 1, 0]) if "mask" in code else np.ones(6)
    wanted = run_code(code, values)
    symbols = {"logp": "log_q", "ref_logp": "log_p", "old_logp": "log_mu", "adv": "A", "returns": "R"}
    names = [ATOMS[symbol] for symbol in symbols.values()]
    loss = unfold(read_loss(code).expression)
    held = {x: sympy.Dummy() for x in loss.atoms(sympy.Function) if x.func.__name__ == "sg"}
    slope = sympy.diff(loss.xreplace(held), ATOMS["log_q"]).xreplace(
        {new: x.args[0] for x, new in held.items()}
    )
    slopes = sympy.lambdify(names, slope, "numpy")(*(values[name] for name in symbols)) * values["mask"]
    [factor] = {round(float(a / b), 9) for a, b in zip(wanted, slopes, strict=True) if abs(b) > 1e-9}
    assert factor > 0 and wanted == pytest.approx(factor * slopes)


READ = {
    "losses = []\nfor lp in logp:\n losses.append(lp)\ntorch.tensor(losses).sum()": "sg(log_q)",
    "a = -logp*adv\nb = k2\na.backward()\nb.backward()": "-A*log_q + k2",
    "def f(logp, scale=-2.0):\n return logp*scale": "-2*log_q",
    "@torch.no_grad()\ndef f(logp):\n return logp": "sg(log_q)",
    "-logp*(rewards - rewards.sum()/rewards.numel())": "-log_q*centred(R)",
    "if use_kl:\n    x = k1\nelse:\n    x = k2\nx": "k1",
    AT_DRAWN: "-R*log_q",
    CRITIC: "-log_q*(R - values) + v_loss/2",
    "-logp*(R - V(s))": "-log_q*(R - V_of_state)",
    "-logp*td_error": "-A*log_q",
    "-logp*G": "-R*log_q",
    "dist = Categorical(logits=logits); -dist.log_prob(a)*adv": "-A*log_q",
    "d = Categorical(probs=old_probs); -d.log_prob(a)*adv": "-A*log_mu",
    "Categorical(logits=ref_logits).log_prob(a)": "log_p",
    "m = Normal(mu, std); -m.log_prob(a)*R": "-R*log_q",
    "(F.cross_entropy(logits, actions, reduction='none')*R).mean()": "-R*log_q",
    "f = nn.CrossEntropyLoss(reduction='none'); f(logits, actions)*R": "-R*log_q",
    "tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=acts)*R": "-R*log_q",
    "tf.reduce_sum(tf.log(probs)*tf.one_hot(actions, 4), axis=1)*R": "R*log_q",
    "-(entropy*0.01 + logp*A)": "-A*log_q + full(log_q)/100",
    "loss = 0\nloss += -logp*A\nprint(loss)\nwandb.log({'loss': loss})": "-A*log_q",
    "ratio = (logp - old_logp).exp()\nmin(ratio, clip)*A": "A*Min(clip_value, rho)",
    "loss -= logp*A\nloss = loss - k1 + k2": "-A*log_q - k1 + k2",
    "policy_loss = policy_loss - logp*A - beta*H(q)": "-A*log_q + beta*full(log_q)",
    "teacher_logps = teacher(x)\nlogp - teacher_logps": "k1",
    "y = r + gamma*critic(next_state)\nadvantage = y - critic(state)\n-logp*advantage": "-A*log_q",
    "-torch.exp(logp - batch['log_probs'])*A": "-A*rho",
    "-(k2*A)[kl_mask].sum()": "-A*k2",
    "-whiten(rewards)*logp": "-log_q*normalised(R)",
    "agg_loss(loss_mat=-A*logp, loss_mask=mask, loss_agg_mode='token-mean')": "-A*log_q",
    "kl = 0.5*(lp - ref_lp).square(); kl.sum()/n_tokens": "k2/n_tokens",
    "import torch\nx: float = k1\nassert x\nx": "k1",
}  # fmt: skip
ONLY = "a statement that is not read"
REFUSED = {
    "for r in rewards[::-1]:\n    R = r + gamma*R\n-logp*R": "a statement that is not read",
    "if mode == 'k1':\n    x = k1\nelse:\n    x = k2\nx": "the lines that run, without \"if mode == 'k1':",
    "loss = torch.foo(logp)\napprox_kl = logp - old_logp": "foo",
    "loss = ratio*A; ratio = rho": "'ratio'|two names",
    "scores = R - k1\nadvantages = f(scores)\n-advantages*logp": "unknown function 'f'",
    "F.nll_loss(log_probs, labels)": "-log_q of labels: for labels of a data set type -log_q off-policy",
    "-logp*(R - V(next_state))": "unknown function 'V'",
    "agg_loss(k1, mask, 'seq-mean-token-max')": "type the sums",
    "pg_loss = pg_loss*k1": "'pg_loss' is used before it is assigned.*: write what it is",
    "d = chosen_logps - rejected_logps\nlogits = d - 1\nlogits**2": "a loss of pairs",
    # what would be read as something else
    "adv = torch.nan_to_num(-adv)\n-logp*adv": "nan_to_num",
    "rewards = scores - kl_fn(logp, ref_logp)\n-logp*rewards": "unknown function 'kl_fn'",
    "logp = get_logps(model, ids).detach()\n-logp*adv": "unknown function 'get_logps'",
    "logits = self.ref_model(ids).logits\nF.cross_entropy(logits, acts)": "ref_model|attribute",
    "mask = adv > 0\n-(logp*adv)[mask].mean()": "a mean over the entries that mask keeps",
    "-(logp*adv)[mask == 0].sum()": "an index",
    "-(logp*adv)[high_entropy_mask].sum()": "an index",
    "mask = (w < 1.2).float()\nw = (logp - old_logp).exp()\n-w*adv*mask": "'w' is used before",
    "b = 0\nx = []\nfor lp, r in zip(logp, R):\n x.append(lp*(r - b))\n b += lp\nsum(x)": ONLY,
    "d = 1\nloss = 0\nfor lp in logp:\n d *= gamma\n loss += lp*d\nloss": ONLY,
    "dist = Categorical(logits=logits.detach())\n-dist.log_prob(a)*adv": "an unknown policy",
    "with torch.no_grad():\n dist = Categorical(logits=logits)\n-dist.log_prob(a)*adv": "unknown",
    "a = logp\nb = ref_logp\na, b = b, a\na - b": ONLY,
    "def g(x):\n return -x\ndef f(logp):\n return logp": ONLY,
    "-dist.log_prob(expert_actions)*A": "words that were not drawn",
    "-logp*(R - self.critic(obs, actions))": "critic",
    "-logp*(R - values[actions])": "an index",
    "-(logp[:, :-1]*adv[:, 1:]).mean()": "an index that moves tokens",
    "-(logp[actions == 1]*R).sum()": "an index",
    "-logp*adv/torch.sqrt(mask.sum(-1))": "sqrt.* of the number of tokens",
    "probs = F.softmax(logits, -1)\n-(probs*advantages).sum(-1)": "inside a sum over all words",
    "-logp*adv.bool()": "bool",
    "F.log_softmax(logits.mean(1), -1)": "logits that are averaged",
    "kl_divergence(Categorical(logits=a), d)": "two different policies",
    "for x in k1: k2": "a statement that is not read",
    "while True:\n    x = k1\nx": "a statement that is not read",
    "losses = []\nfor x in logp:\n    losses.append(x)\n    losses.append(x*2)\nlosses": "a formula that",
    "def f(x):\n    return x": "unknown name 'x'",
    "import os": "no loss in these statements",
    "@torch.no_grad\ndef f(): pass": "no loss in these statements",
    "(returns - values)**2": "no policy in .*out of scope",
    "v_loss.mean()": "no policy in .*out of scope",
    "logp*q_values**2": "a critic's loss is out of scope",
    "alpha*logp*A - q_pi + full(k1)": "a critic's loss is out of scope",
    "alpha*logp - (q1 - q2)": "'q1' and 'q2' would both be read as the value of an action",
    "qf_loss + alpha*logp": "out of scope",
    "-(q_pi**2) + alpha*logp": "a critic's loss is out of scope",
    "log_alpha*(logp + 1)": "the loss of SAC's temperature trains no policy",
    "dist = Categorical(probs=mix(ref, old)); dist.log_prob(a)": "an unknown policy",
    "F.one_hot(topk_ids)*logp": "one_hot at unknown words",
    "logp[topk_ids]*A": "an index",
    "(logp - (logp*mask).sum())*A": "a mean or a sum inside",
    "entropy_loss*k1": "write what it is, such as `entropy_loss = H\\(q\\)",
    "reward_value*logp": "unknown name 'reward_value'",
    "prob1*(prob2.log() - prob1.log())": r"prob1 = exp\(log_q\); prob2 = exp\(log_p\)",
}  # fmt: skip


@pytest.mark.parametrize(("code", "loss"), READ.items(), ids=[code[:40] for code in READ])
def test_read(code: str, loss: str) -> None:
    assert str(read_loss(code).expression) == loss


@pytest.mark.parametrize(("code", "words"), REFUSED.items(), ids=[code[:40] for code in REFUSED])
def test_refused(code: str, words: str) -> None:
    check_refusal(code, words)


def test_what_is_assumed_of_a_setting_and_of_an_index_is_said() -> None:
    notes = read_loss("def f():\n    if args.use_kl:\n        x = log_probs[actions]\n    return x*R").notes
    [assumed] = [note.values["conditions"] for note in notes if note.code == "settings-assumed"]
    assert assumed == ("args.use_kl", "actions is the word that was drawn")


def test_a_critic_is_said_to_be_independent_of_the_sample() -> None:
    notes = read_loss("-logp*(R - values)").notes
    assert ("values",) in [note.values["names"] for note in notes if note.code == "parameters-declared"]
