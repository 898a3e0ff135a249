"""Lines of public code that are read, each against its formula, and those that are asked about."""

from __future__ import annotations

import numpy as np
import pytest

import klsym
from klsym.language.spellings import read_loss

PRIME = """importance_ratio = torch.exp(trainer_logprobs - inference_logprobs)
is_masked = (importance_ratio < cfg.mask_ratio_low) | (importance_ratio > cfg.mask_ratio_high)
keep_mask = loss_mask & ~is_masked
loss = (-importance_ratio * advantages){}"""
KEPT = "-rho*A*(1 - where(mask_ratio_low > rho, 1, 0))*(1 - where(rho > mask_ratio_high, 1, 0))"
PARAMETERS = ["mask_ratio_low", "mask_ratio_high", "num_target_tokens", "ratio_min", "ratio_max", "coef",
              "greedy_rewards"]  # fmt: skip
READ = {  # code -> the formula, typed
    "A = G/(G-1)*(r - r.mean())\nloss = -stopgrad(A)*log_pi": "-n/(n - 1)*centred(R)*log_q",
    "loss = -(r - r.mean()).detach()*logp": "-centred(R)*log_q",
    "loss = r*logp": "r*log_q",
    "loss = torch.mean(r - 1 - (ref_logp - logp))": "k3",
    PRIME.format("[keep_mask].sum()"): KEPT,
    PRIME.format("*keep_mask"): KEPT,
    "obj = logp*adv\nloss = -(obj*target_masks).sum()/num_target_tokens": "-A*log_q/num_target_tokens",
    "ratio = (logp - old_logp).exp()\nobjective = ratio*adv": "-rho*A",
    "const w = tf.div(prob, oldProbs);\nconst loss = tf.neg(tf.mul(tf.clipByValue(w, 0.8, 1.2), adv));":
        "-clip(rho, 4/5, 6/5)*A",
    "ratio = pi_theta/pi_old\nL = -sg(clip(ratio, 0, 2))*A*log pi_theta": "-sg(clip(rho, 0, 2))*A*log_q",
    "w = π_θ/π_θ_old\nloss = -sigma(tau(w - 1))*4/tau*A": "-4/tau*sigmoid(tau*(rho - 1))*A",
    "advantages = rewards.value()\nloss = -ll*advantages": "-log_q*R",
    "actor_loss = -q_pi.mean()": "full(-R)",
    "n = softmax_cross_entropy_with_logits(logits=Outputs, labels=actions); loss = n*discounted_rewards":
        "-log_q*R",
    "with torch.no_grad():\n    old = policy_net.get_log_prob(s, a)\n'''doc'''\ndef get_loss(off=False):\n"
    "    with torch.set_grad_enabled(not off):\n        new = policy_net.get_log_prob(s, a)\n"
    "        return -(adv*(new - old).exp())": "-A*exp(log_q - sg(log_q))",
    "with torch.set_grad_enabled(False):\n    x = logp\nloss = -x*adv": "-sg(log_q)*A",
    "with torch.set_grad_enabled(train):\n    x = logp\nloss = -x*adv": "-log_q*A",
    "with torch.set_grad_enabled(mode=True):\n    x = logp\nloss = -x*adv": "-log_q*A",
    "with torch.set_grad_enabled(mode=False):\n    x = logp\nloss = -x*adv": "-sg(log_q)*A",
    "with torch.inference_mode(mode=False):\n    x = logp\nloss = -x*adv": "-log_q*A",
    "with torch.no_grad():\n    x = logp\nloss = -x*adv": "-sg(log_q)*A",
    "loss = (logp - ref_logp)*loss_masks_all": "k1",
    "loss = -(R - greedy_rewards)*logp": "(greedy_rewards - R)*log_q",
    "avg_kl = (logp - ref_logp).detach().mean(); kl = (logp - ref_logp).detach(); loss = (kl - avg_kl)*logp":
        "centred(sg(k1))*log_q",
    "probs = softmax(logits)[arange(n), actions]; loss = (probs*log(probs)).sum()": "exp(log_q)*log_q",
    "w = clip(exp(prev_logprobs - generation_logprobs), ratio_min, ratio_max); loss = -w.detach()*adv*logp":
        "-clip(exp(log_old - log_mu), ratio_min, ratio_max)*A*log_q",
    "w = exp(prev_logprobs - logp); loss = -w*adv": "-A/rho",
    "x = ch.exp(logp - old_logp); loss = -x*adv": "-rho*A",
    "ratio = exp(logp - old_logp); ratio = ratio.masked_fill(ratio > 2, 0.0); loss = -ratio*adv":
        "-where(rho > 2, 0, rho)*A",
    "kl = logp - ref_logp; adv = A + coef*(kl.mean() - kl); loss = -adv.detach()*logp":
        "-sg(A - coef*centred(sg(k1)))*log_q",
    "(M*probs*(logp - ref_logp)).sum(-1)": "full(M*k1)",
}  # fmt: skip


@pytest.mark.parametrize(("code", "formula"), READ.items(), ids=str)
def test_code_is_read_as_its_formula(code: str, formula: str) -> None:
    typed = read_loss(
        formula, ["mask_ratio_low", "mask_ratio_high", "num_target_tokens", "ratio_min", "ratio_max"]
    )
    assert (read_loss(code).expression - typed.expression).expand() == 0


ASKED = {  # code -> what is said
    PRIME.format("[keep_mask].mean()"): "a mean over the entries that keep_mask keeps",
    "A = G/(H-1)*(R - R.mean())\nloss = -A.detach()*logp": "ambiguous name 'G'",
    "num_tokens = sum(len(x.token_ids) for x in episodes)\nloss = -(A*logp*mask).sum()/num_tokens":
        "len of the tokens of a response",
    "foo*logp + bar": "unknown names 'foo', 'bar'",
    "r = r_theta - lambda_kl*(log_pi_ppo - log_pi_bas)": "`r_theta = R; log_pi_ppo = log_q",
    "c = exp(log_importance_weights); loss = -c*adv*new_logps":
        "`log_importance_weights = new_logps - log_mu; ...`",
    "advantage = L - b.view(-1); loss = -advantage*logp": "unknown names 'L', 'b'",
    "chosen_logps - rejected_logps": "a loss of pairs",
    "for t in reversed(range(9)):\n    run = rewards[t] + run*mask[t]": "write what the loop computes",
    "returns = rewards.cumsum(0); loss = -(returns*logp).mean()": "choose level",
}  # fmt: skip


@pytest.mark.parametrize(("code", "says"), ASKED.items(), ids=str)
def test_code_is_asked_about(code: str, says: str) -> None:
    with pytest.raises(klsym.KlsymError) as error:
        klsym.explain(code)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("returns", "-togo(R)*log_q"),
        ("G", "-togo(R)*log_q"),
        ("rewards", "-R*log_q"),
        ("token_rewards", "-R*log_q"),
    ],
)
def test_returns_are_rewards_to_go(name: str, formula: str) -> None:
    read = klsym.explain(f"loss = -({name}*logp*mask).sum(-1).mean()")
    typed = klsym.explain(formula, level="token")
    found = [(x["target"], x["objective"]) for x in (read.to_json(), typed.to_json())]
    assert found[0] == found[1]


MORE_ASKED = {
    "loss = -torch.mean(r*adv)": "r is p/q, and the code names no reference",
    "frac = r.mean(); loss = -min(r*adv, clip(r, 0.8, 1.2)*adv).mean()": "r is p/q, and the code",
    "gate = sigmoid(4*(r - 1)); loss = -gate*advantages": "r is p/q, and the code names no reference",
    "loss = -tau(A)*logp": "for a product type tau*(..)",
    "loss = -cfg.sigma(A)*logp": "not part of the loss grammar",
    "loss = categorical_crossentropy(A, y)": "type -logp, and -A*logp where an advantage multiplies it",
    "log_prob = dist.log_prob(a)\nlog_prob = log_prob.sum(-1)": "it computes a log-probability",
    "x = kl - self.target\nself.kl_coef *= 1 + x": "it sets kl_coef between updates",
    "loss = -log(p_sampling)*rewards": "`p_sampling = exp(log_q); ...`",
    r"\frac{\pi}{\pi_old} of all these samples": "'of' is not read in a formula in LaTeX",
    "ratio = torch.prod(A, dim=-1); loss = -ratio*logp": "no ratio",
    "x = foo.bar(a, b)\npolicy_entropy = x\nloss = -A*logp - policy_entropy": "bar(..) is not part",
}


@pytest.mark.parametrize(("code", "says"), MORE_ASKED.items(), ids=str)
def test_code_that_would_be_misread_is_asked_about(code: str, says: str) -> None:
    with pytest.raises(klsym.KlsymError) as error:
        klsym.explain(code)
    assert says in str(error.value)


def test_a_product_of_ratios_is_that_of_the_sequence() -> None:
    by_product = "ratio = torch.prod(torch.exp(logp - old_logp), dim=-1); loss = -ratio*A"
    by_sum = "ratio = torch.exp((logp - old_logp).sum(-1)); loss = -ratio*A"
    assert read_loss(by_product).expression == read_loss(by_sum).expression


def test_a_held_mean_of_a_batch_is_what_numpy_makes_of_it() -> None:
    """For two samples the weight of log q_1 is A_1 + c*(mean(k1) - k1_1)."""
    q, p = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    k1, c = np.log(q / p), 0.7
    total = np.zeros(3)
    for i, j in np.ndindex(3, 3):
        total += q[i] * q[j] * c * ((k1[i] + k1[j]) / 2 - k1[i]) * (np.eye(3)[i] - q)
    slope = q * (k1 - q @ k1)  # of KL(q||p) in the logits
    assert np.allclose(total, -c * (1 - 1 / 2) * slope)
    text = "kl = logp - ref_logp; adv = A + coef*(kl.mean() - kl); loss = -adv.detach()*logp"
    assert "coef*(1 - 1/n)*KL(q||p)" in " ".join(str(klsym.explain(text)).split())


@pytest.mark.parametrize("bound", ["max=1.0", "min=1.0", "max=2.0"])
@pytest.mark.parametrize("form", ["torch.clamp({x}, {bound})", "({x}).clamp({bound})"])
def test_a_clamp_has_the_slope_of_torch_where_the_ratio_is_its_bound(form: str, bound: str) -> None:
    torch = pytest.importorskip("torch")
    logp = torch.tensor(-0.7, requires_grad=True)
    kind, number = bound.split("=")
    ratio = torch.exp(logp - logp.detach())
    (torch.clamp(ratio, **{kind: float(number)}) * 0.3).backward()
    slope = round(float(logp.grad) / 0.3, 6)
    code = f"loss = {form.format(x='torch.exp(logp - logp.detach())', bound=bound)}*A"
    assert klsym.explain(code).to_json()["gradient"]["coefficient"] == {1.0: "A", 0.0: "0"}[slope]
    half = klsym.explain("loss = torch.minimum(torch.exp(logp - logp.detach()), 1)*A")
    assert half.to_json()["gradient"]["coefficient"] in ("A/2", "0.5*A")
