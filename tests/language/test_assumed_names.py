"""Names that pasted code does not define, and values that a critic gives to actions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sympy import lambdify

from klsym.errors import UsageError
from klsym.language.expressions import R, log_q
from klsym.language.spellings import read_loss
from klsym.language.sums import OverVocabulary
from support.judges.refusals import check_refusal

SAC = "full(-R + alpha*log_q)"
SB3 = """
values, log_prob, entropy = self.policy.evaluate_actions(obs, actions)
ratio = torch.exp(log_prob - rollout_data.old_log_prob)
policy_loss_1 = advantages * ratio
policy_loss_2 = advantages * th.clamp(ratio, 1 - 0.2, 1 + 0.2)
policy_loss = -th.min(policy_loss_1, policy_loss_2).mean()
loss = policy_loss - 0.5 * entropy.mean()
"""
TWIN = """
actor_Q1, actor_Q2 = self.critic(obs, action)
actor_loss = (self.alpha.detach() * log_prob - torch.min(actor_Q1, actor_Q2)).mean()
"""
CALLED = """
alpha = self.log_alpha.exp()
q = torch.min(self.qf1(obs, a), self.qf2(obs, a))
loss = (alpha * log_pi - q).mean()
"""
STACKED = """
q_values = torch.cat(self.critic(obs, actions), dim=1)
min_qf, _ = torch.min(q_values, dim=1, keepdim=True)
loss = (alpha * log_pi - min_qf).mean()
"""
READ = {
    "(alpha*logp_pi - q_pi).mean()": SAC,
    "(self._alpha*out.log_prob - torch.min(current_q1a, current_q2a)).mean()": SAC,
    "-(min_qf_pi - alpha*log_pi).mean()": SAC,
    TWIN: SAC,
    CALLED: SAC,
    STACKED: SAC,
    "(probs*(alpha*log_probs - min_qf)).sum(-1).mean()": SAC,
    "loss = action_probabilities*(alpha*log_action_probabilities - min_qf); loss.mean()": SAC,
    "-(log_prob*Q).mean()": "-R*log_q",
    "(log_pi*(log_pi - q_new_actions + value).detach()).mean()": "log_q*sg(-R + log_q + value_of_state)",
    SB3: "full(log_q)/2 - Min(A*rho, A*clip(rho, 4/5, 6/5))",
    "pg_loss + beta*k3": "-A*log_q + beta*k3",
    "w_t = min(exp(new_logp - rollout_logp), C)": "-A*Min(C, rho)",
    "importance_ratio = exp(old_logp - rollout_logp)": "-A*log_q*exp(-log_mu + log_old)",
    "ratio = (logp - logp.detach()).exp()": "-A*exp(log_q - sg(log_q))",
    "x = (logp - ref_logp).mean().item()": "k1",
    "-(logp*advantages_2d).mean()": "-A*log_q",
    "-torch.max(torch.min(surr1, surr2), dual_clip*adv)":
        "-Max(A*dual_clip, Min(A*rho, A*clip(rho, 1 - eps, eps + 1)))",
    "pg_loss + beta*(old_logp - logp)": "-A*rho + beta*(log_mu - log_q)",
    "loss = pg_loss\n    + beta*k3\n    - alpha*entropy": "-A*log_q + alpha*full(log_q) + beta*k3",
    "x = logp - ref_logp\n-x*A": "-A*k1",
    "-_masked_mean(logp*adv, mask)": "-A*log_q",
    "actor_loss - ent_coef*dist_entropy": "-A*log_q + ent_coef*full(log_q)",
    "adv = (rewards - mean_grouped_rewards)/(std_grouped_rewards + 1e-4); -logp*adv": "-log_q*normalised(R)",
    "adv = (rewards - mean)/std; -logp*adv": "-log_q*normalised(R)",
    "(advantages - adv_mean)*logp": "log_q*centred(A)",
    "-(sample_rouge - greedy_rouge)*logp": "log_q*(-R + greedy_rouge)",
    "-logp*deltas": "-A*log_q",
    "adv = (R - R.mean())/(R.std() + np.finfo(np.float32).eps.item()); -logp*adv": "-log_q*normalised(R)",
    "adv = (R - R.mean())/(R.std() + torch.finfo(R.dtype).eps); -logp*adv": "-log_q*normalised(R)",
    "-advantages_col*logp + 0.1*advantages.unsqueeze(-1)*logp": "-9*A*log_q/10",
    "-(sampling_rewards - greedy_rewards)*logp": "log_q*(-R + greedy_rewards)",
    "-reward_t*log_prob_t": "-R*log_q",
    "-A_t*log_prob_t + beta*(log_prob_t - ref_log_prob_t)**2/2": "-A*log_q + beta*k2",
    "max(r_t*A, clip(r_t, 0.8, 1.2)*A)": "Max(A*rho, A*clip(rho, 4/5, 6/5))",
    "F.kl_div(F.log_softmax(y_s/T, 1), F.softmax(y_t/T, 1), reduction='batchmean')": "full(-k1*r)",
    "F.kl_div(outputs.log_softmax(-1), targets.softmax(-1), reduction='batchmean')": "full(-k1*r)",
    "-(logp*(reward + beta*dist.entropy().mean())).mean()": "-log_q*(R - beta*full(log_q))",
    "((torch.min(pg_losses, pg_losses2) * cur_mask).sum(-1) / resp_len).mean()":
        "Min(-A*rho, -A*clip(rho, 1 - eps, eps + 1))",
    "-torch.min(surr1, surr2).mean()": "-Min(A*rho, A*clip(rho, 1 - eps, eps + 1))",
    "-log_probs[i]*Variable(gae) - 0.01*entropies[i]": "-A*log_q + full(log_q)/100",
    "p = tf.reduce_sum(action*policy_prob, axis=1); -tf.log(p + 1e-10)*adv": "-A*log_q",
    "pi_loss -= log_prob*adv\npi_loss -= self.beta*entropy\nv_loss += (v - R)**2/2":
        "-A*log_q + beta*full(log_q)",
    "loss -= soft_label[pos]*(log(prob_data[pos]) - log(soft_label[pos]))": "-full(k1*r)",
    "loss_function(F.log_softmax(student_logits/T, -1), F.softmax(teacher_logits/T, -1))": "full(-k1*r)",
    "nn.KLDivLoss(reduction='batchmean')(student, teacher)*self.T**2": "temperature**2*full(-k1*r)",
    "mask = (labels != -100).float(); ((logp - ref_logp)*mask).sum()/mask.sum()": "k1",
    "masked_mean(k2 + k3, ~padding_mask)": "k2 + k3",
    "x = undefined(logp); y = x + 1; -logp*adv": "-A*log_q",
    "logp = get_logps(logits, ids); -logp*adv": "-A*log_q",
    "for act, p, r, b in zip(idx, probs, rewards, baselines):\n    losses.append(-p.log_prob(act)*(r - b))":
        "-log_q*(R - baselines)",
    "jnp.sum(jax.scipy.special.entr(probs), axis=-1).mean()": "-full(log_q)",
    "-tf.reduce_mean(tf.minimum(self.ratio, tf.clip_by_value(self.ratio, 0.8, 1.2))*adv)":
        "-A*Min(rho, clip(rho, 4/5, 6/5))",
    "policy_loss = [-lp*R for lp, R in zip(policy.saved_log_probs, returns)]\ntorch.cat(policy_loss).sum()":
        "-R*log_q",
    "sum(-logp[i]*adv[i] for i in range(n))": "-A*log_q",
    "-torch.min(surr1, surr2) + 0.5*self.MseLoss(state_values, rewards)":
        "(-R + state_values)**2/2 - Min(A*rho, A*clip(rho, 1 - eps, eps + 1))",
    "pi_loss -= log_prob*float(advantage.data)": "-A*log_q",
    "-(log_probs*rewards).sum()/batch_size": "-R*log_q/batch_size",
    "with torch.no_grad():\n    kl = (logp - ref_logp).mean()": "sg(k1)",
    "-adv_v*log_prob_v[range(BATCH_SIZE), actions_t]": "-A*log_q",
    "-Log(pi)*A": "-A*log_q",
    "-(ratio*advantages.mean()).mean()": "-(A - centred(A))*rho",
    "logp*mean_reward": "log_q*(R - centred(R))",
    "-log_probs.gather(2, seq.unsqueeze(2)).squeeze(2)*reward*(seq > 0)": "-R*log_q",
    "(probs*(alpha*log_probs - q)).sum(-1).mean()": SAC,
    "q = self.critic(state); (probs*(alpha*log_probs - q)).sum(-1)": SAC,
    "q_values = critic(state); (probs*(alpha*torch.log(probs) - q_values)).sum(-1)": SAC,
    "(pi*(alpha*log_pi - q)).sum(-1)": SAC,
    "probs = F.softmax(logits, -1); -(probs*q).sum(-1)": "-full(R)",
    "(q*(log_q - log_p)).sum(-1)": "full(k1)",
    "(q*(q.log() - ref_probs.log())).sum(-1)": "full(k1)",
    "v = critic(state); -logp*(R - v)": "-log_q*(R - critic)",
    "(beta_probs*(beta_probs/probs).log()).sum(-1)": "full(log(1/rho)/rho)",
    "kl_penalty(log_prob, ref_log_prob, 'low_var_kl')": "k3",
    "core_algos.kl_penalty(logprob=logp, ref_logprob=ref_logp, kl_penalty='mse')": "k2",
    "kl_penalty(logp, ref_logp, 'kl')": "k1",
    "kl_penalty(logp, ref_logp, 'abs')": "Abs(k1)",
    "core_algos.agg_loss(k3, mask, 'seq-mean-token-sum')": "k3",
    "F.kl_div(F.log_softmax(q_logits, -1), F.softmax(p_logits, -1), reduction='batchmean')": "full(-k1*r)",
    "ref_logits = ref_model(x).logits; F.kl_div(F.log_softmax(logits, -1), F.softmax(ref_logits, -1))":
        "full(-k1*r)",
    "-(target_probs*log_probs).sum(-1)": "-full(log_q*r)",
    "-target_probs/behavior_probs*A": "-A*rho",
    "(target_log_probs - behavior_log_probs).exp()*A": "A*rho",
    "loss = pg_loss + value_loss_coef*value_loss": "-A*log_q + value_loss*value_loss_coef",
}  # fmt: skip
REFUSED = {
    "logp*q_values**2": "a critic's loss is out of scope",
    "alpha*logp*A - q_pi + full(k1)": "a critic's loss is out of scope",
    "alpha*logp - (q1 - q2)": "'q1' and 'q2' would both be read as the value of an action",
    "(q1 - target_q)**2": "a critic's loss is out of scope",
    "-self.critic(obs, pi).mean()": "no policy in",
    "log_alpha*(logp + 1)": "the loss of SAC's temperature trains no policy",
    "log_alpha.exp()*(logp + 1) + log_alpha": "SAC's temperature",
    "q_pi": "out of scope",
    "-(q*torch.log(probs)).sum(-1)": "'q' and 'probs' would both be read as",
    "(probs*(probs.log() - q.log())).sum(-1)": "'probs' and 'q' would both be read as",
    "(p*(p.log() - probs.log()) + probs*q).sum(-1)": "would both be read as",
    "-target_probs*A": "'target_probs' is a probability",
    "kl_penalty(logp, ref_logp, self.kind)": "kl_penalty of no such kind .*it is read for kl, k1, abs",
    "kl_penalty(logp, ref_logp, 'full')": "kl_penalty of no such kind",
    "kl_penalty(logp, ref_logp)": "kl_penalty of no such kind",
    "ref_logits = f(logits); F.softmax(ref_logits, -1)": "unknown|f",
    "pg_loss": "write what it is",
    "beta*pg_loss": "write what it is",
    "torch.exp(pg_loss) + k1": "write what it is",
    "pg_loss*A + k1": "'pg_loss' .*write what it is|unknown name 'pg_loss'",
    "policy_kl_loss + k1": "write what it is",
    "logp*mean": "unknown name 'mean'",
    "exp(logp - old_logp, mean)*A": "unknown name 'mean'",
    "logp*reward_std": "a standard deviation elsewhere",
    "logp*mean_reward*logp.mean()": "a mean or a sum inside a product",
    "logp*r_t": "ambiguous name 'r_t'",
    "logits = net(x); F.kl_div(a_logits.log_softmax(-1), b_logits.softmax(-1))": "unknown policy",
    "log_probs[i]*rewards[j]": "entries at two places",
    "x = undefined(logp); y = x + 1; -y*adv": "unknown function 'undefined'",
    "adv = f(adv); -logp*adv": "unknown function 'f'",
    "logits = old_model(x).logits; F.cross_entropy(logits, acts)": "attribute|old_model",
    "masked_mean(k2, ~mask)": "mask",
    "criterion(logits, labels)": "unknown function 'criterion'",
    "self.T*k1.exp()": "temperature|unknown name|length",
    "[lp*r for lp, r in zip(logp, R) if r > 0]": "not part of the loss grammar|grammar",
    "[a*b for a in logp for b in R]": "not part of the loss grammar|grammar",
    "self.unknown_loss(logp, R)": "unknown_loss",
    "a, b = f(logp)\n-a*A": "unknown function 'f'",
    "loss, stats = compute_loss(logp, adv)\nloss": "unknown function 'compute_loss'",
}


@pytest.mark.parametrize(("code", "loss"), READ.items(), ids=[code.strip()[:40] for code in READ])
def test_read(code: str, loss: str) -> None:
    assert str(read_loss(code).expression) == loss


@pytest.mark.parametrize(("code", "words"), REFUSED.items(), ids=[code[:40] for code in REFUSED])
def test_refused(code: str, words: str) -> None:
    check_refusal(code, words)


def test_each_assumption_is_said() -> None:
    codes = ("pg_loss + k1", "(rewards - reward_mean)*logp", "alpha*logp - q_pi", "-logp*Q")
    said = [
        condition
        for code in codes
        for note in read_loss(code).notes
        if note.code == "settings-assumed"
        for condition in note.values["conditions"]
    ]
    expected = ("pg_loss is -A*log_q", "reward_mean is the mean of rewards", "rsample", "Q is held")
    assert len(said) == 4 and all(words in text for words, text in zip(expected, said, strict=True))


def test_the_exact_mean_of_a_critic_called_q_has_the_slope_of_the_code() -> None:
    """sum_a pi(a) (alpha log pi(a) - Q(a)) of three actions, in PyTorch and as full(alpha*log_q - R)."""
    torch = pytest.importorskip("torch")
    logits = torch.tensor([0.3, -0.8, 0.5], dtype=torch.float64, requires_grad=True)
    values = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    log_probs = torch.log_softmax(logits, -1)
    (log_probs.exp() * (0.2 * log_probs - values)).sum().backward()
    [mean] = read_loss("(probs*(0.2*log_probs - q)).sum(-1)").expression.atoms(OverVocabulary)
    of_word = lambdify([log_q, R], mean.args[0])

    def average(x: np.ndarray) -> float:
        logs = x - np.log(np.exp(x).sum())
        return float((np.exp(logs) * of_word(logs, values.numpy())).sum())

    start = logits.detach().numpy()
    slope = [(average(start + d) - average(start - d)) / 2e-6 for d in 1e-6 * np.eye(3)]
    assert slope == pytest.approx(logits.grad.tolist(), abs=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("attach", [True, False])
def test_a_reparametrised_action_has_the_gradient_of_the_exact_mean(alpha: float, attach: bool) -> None:
    """A normal policy, by quadrature; where the action is drawn as it is, the gradient is another one."""
    torch = pytest.importorskip("torch")
    nodes, weights = map(torch.tensor, np.polynomial.hermite_e.hermegauss(40))
    weights = weights / weights.sum()
    theta = torch.tensor([0.4, -0.2], dtype=torch.float64, requires_grad=True)

    def evaluate_mean(attached: bool) -> torch.Tensor:
        policy = torch.distributions.Normal(theta[0], theta[1].exp())
        actions = theta[0] + theta[1].exp() * nodes
        actions = actions if attached else actions.detach()
        return (weights * (alpha * policy.log_prob(actions) - torch.sin(actions) - actions**2)).sum()

    def differentiate_exact() -> list[float]:
        def integrate(t: np.ndarray) -> float:
            mean, log_scale = t
            x = mean + np.exp(log_scale) * np.asarray(nodes)
            entropy = log_scale + 0.5 * np.log(2 * np.pi * np.e)
            return float(np.sum(np.asarray(weights) * (-np.sin(x) - x**2)) - alpha * entropy)

        start, step = theta.detach().numpy(), 1e-5
        return [(integrate(start + d) - integrate(start - d)) / (2 * step) for d in step * np.eye(2)]

    [gradient] = torch.autograd.grad(evaluate_mean(attach), [theta])
    assert (gradient.tolist() == pytest.approx(differentiate_exact(), abs=1e-7)) is attach


# ---------------------------------------------------------------------------- log_ratio, kl
SETTLED = {
    "ratio = torch.exp(log_ratio); -(ratio*adv).mean()": "-A*rho",
    "w = logr.exp(); -torch.min(w*adv, w.clamp(0.8, 1.2)*adv)": "-Min(A*rho, A*clip(rho, 4/5, 6/5))",
    "-(torch.exp(logratio)*advantages).mean()": "-A*rho",
    "ratio = logratio.exp(); kl = (ratio - 1) - logratio; -ratio*adv + 0.1*kl":
        "-A*rho + log_mu/10 - log_q/10 + rho/10 - 1/10",
    "(torch.exp(kl) - 1) - kl": "k3",
    "torch.expm1(logr) - logr": "k3",
    "ratio = torch.exp(log_ratio); (ratio - 1) - log_ratio": "k3",
    "0.5*log_ratio**2 + ref_kl_coef*k1": "ref_kl_coef*k1 + k2",
    "kl = logp - ref_logp; torch.exp(kl) - 1 - kl": "-k1 - 1 + 1/r",
}  # fmt: skip
ASKED = {
    "-(log_ratio*adv).mean()": ["log_ratio = k1", "log_ratio = log_q - log_mu"],
    "beta*kl.mean() - A*logp": ["kl = k1", "kl = k3"],
    "loss = 0.5*logr**2": ["logr = k1", "logr = log_q - log_mu"],
    "loss = ratio - 1": ["ratio = rho", "ratio = r"],
    "(torch.exp(logr) - 1) - logr + 0*old_logp": ["logr = k1", "logr = log_q - old_logp"],
    "loss = pg_loss*2 + beta*kl": ["kl = k1; pg_loss = -A*log_q", "kl = k3; pg_loss = -A*log_q"],
    "-log_probs*adv + 0.5*logr**2": ["logr = k1", "logr = log_probs - log_mu"],
    "-new_lp*adv + old_lp + pg_loss*logr": [
        "logr = k1; pg_loss = -adv*new_lp",
        "logr = new_lp - old_lp; pg_loss = -adv*new_lp",
    ],
    "(rewards - beta*kl)*logp": ["kl = k1", "kl = k3"],
}


@pytest.mark.parametrize(("code", "loss"), SETTLED.items(), ids=[code[:40] for code in SETTLED])
def test_a_log_ratio_is_settled_by_its_place(code: str, loss: str) -> None:
    reading = read_loss(code)
    assert str(reading.expression) == loss
    assumed = [
        x for note in reading.notes if note.code == "settings-assumed" for x in note.values["conditions"]
    ]
    assert any("is logp - " in x or "is ref_logp - logp" in x for x in assumed) == ("kl = logp" not in code)


@pytest.mark.parametrize(("code", "definitions"), ASKED.items(), ids=[*ASKED])
def test_an_ambiguous_name_is_asked_for_with_commands_that_are_read(
    code: str, definitions: list[str]
) -> None:
    with pytest.raises(UsageError, match="ambiguous name") as caught:
        read_loss(code)
    commands = re.findall("klsym explain '([^']*)'", str(caught.value))
    assert [command.removesuffix(f"; {code}") for command in commands] == definitions
    assert all(read_loss(command).expression for command in commands)


@pytest.mark.parametrize(
    "code", ["kl = f(x)\nloss = kl*kl2", "def f(kl):\n    return kl", "kl*" + "k1*" * 80 + "k2"]
)
def test_no_command_is_printed_for_blocks_and_long_code(code: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_loss(code)
    assert "klsym explain '" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "quotients"),
    [
        ("x = old_logp/temperature; loss = -exp(logp - x)*adv", ["log_mu/temperature"]),
        (
            "x = logp/self.temperature; y = ref_logp/self.temperature; loss = (x - y)**2",
            ["log_q/temperature", "log_p/temperature"],
        ),
        ("logp = log_softmax(logits/temperature); loss = -logp.gather(-1, actions)*adv", []),
        ("loss = -adv*logp/2", []),
        ("loss = (logp - ref_logp)/temperature", []),
    ],
)
def test_a_log_probability_over_a_temperature_is_that_of_no_policy(code: str, quotients: list[str]) -> None:
    notes = [note for note in read_loss(code).notes if note.code == "log-divided"]
    assert [note.values["quotient"] for note in notes] == quotients
