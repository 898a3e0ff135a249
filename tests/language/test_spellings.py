"""Losses as engineers paste them: what is read, checked by running the typed code; what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import sympy

from klsym.api import compare, explain
from klsym.engine.answers.dispatch import as_written
from klsym.errors import UsageError
from klsym.language.expressions import log_old, log_q, rho_old, unfold
from klsym.language.parser import parse
from klsym.language.spellings import read_loss
from klsym.language.sums import OverVocabulary
from support.typed_code import MASK, PARAMETERS, evaluated, run

# ---------------------------------------------------------------------------- 31 lines
TRL = """coef_1 = torch.exp(per_token_logps - old_per_token_logps)
coef_2 = torch.clamp(coef_1, 1 - self.epsilon_low, 1 + self.epsilon_high)  # two-sided
per_token_kl = torch.exp(ref_per_token_logps - per_token_logps) - (ref_per_token_logps - per_token_logps) - 1
per_token_loss1 = coef_1 * advantages.unsqueeze(1)
per_token_loss2 = coef_2 * advantages.unsqueeze(1)
per_token_loss = -torch.min(per_token_loss1, per_token_loss2)
per_token_loss = per_token_loss + self.beta * per_token_kl
loss = (per_token_loss * completion_mask).sum() / completion_mask.sum().clamp(min=1.0)"""
VERL = """ratio = torch.exp(log_prob - old_log_prob)
pg_losses = -advantages * ratio
pg_losses2 = -advantages * torch.clamp(ratio, 1.0 - cliprange, 1.0 + cliprange)
pg_loss = masked_mean(torch.max(pg_losses, pg_losses2), response_mask)"""
LOW_VAR = """kl = ref_logprob - logprob
ratio = torch.exp(kl)
kld = (ratio - kl - 1).contiguous()
return torch.clamp(kld, min=-10, max=10)"""
OPENRLHF = """log_ratio = log_probs - log_probs_base
log_ratio = -log_ratio
log_ratio = log_ratio.exp() - 1 - log_ratio
loss = log_ratio.mean()"""
EACH, MEAN, MASKED, SUM = "each sample", "mean", "masked mean", "sum"
READ: list[tuple[str, str, str]] = [  # what is typed, its reading, how the typed code averages
    ("((logp - ref_logp) ** 2).mean() / 2", "k2", MEAN),
    ("0.5 * (logprobs - ref_logprobs).square()", "k2", EACH),
    ("(logp - ref_logp).pow(2).mul(0.5).mean()", "k2", MEAN),
    ("d = ref_logp - logp; loss = (torch.exp(d) - 1 - d).mean()", "k3", MEAN),
    (TRL, "beta*k3 - min(rho*A, clip(rho, 1 - epsilon_low, 1 + epsilon_high)*A)", MASKED),
    (LOW_VAR, "clip(k3, -10, 10)", EACH),
    (OPENRLHF, "k3", MEAN),
    (VERL, "max(-rho*A, -clip(rho, 1 - cliprange, 1 + cliprange)*A)", MASKED),
    ("jnp.mean(-jnp.minimum(rho * adv, jnp.clip(rho, 1 - eps, 1 + eps) * adv))",
     "-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)", MEAN),
    ("jax.lax.stop_gradient(jnp.exp(logp - old_logp)) * (logp - ref_logp)**2 / 2", "sg(rho)*k2", EACH),
    ("-(logp * advantages.detach()).mean()", "-A*log_q", MEAN),
    ("ratio = (new_logp - old_logp).exp()\nkl = new_logp - ref_logp  # k1\n"
     "loss = -(ratio * adv).mean() + self.beta * kl.mean()", "-rho*A + beta*k1", MEAN),
    ('F.kl_div(logp, ref_logp, log_target=True, reduction="batchmean")', "full_kl(p, q)", "vocabulary"),
    ('F.kl_div(ref_logp, logp, log_target=True, reduction="none").sum(-1)', "full_kl(q, p)", "vocabulary"),
    ("KL(q||p)", "full_kl(q, p)", "vocabulary"),
    ("cfg.kl_coef * kl(p, q)", "kl_coef*full_kl(p, q)", "vocabulary"),
    ("-F.logsigmoid(beta * (logp - ref_logp)).mean()", "log(1 + exp(-beta*k1))", MEAN),
    ("beta * (logp - ref_logp).abs().mean()", "beta*abs(k1)", MEAN),
    ("kl = (logp - ref_logp)**2 / 2; loss = (kl * mask).sum() / (mask.sum() + 1e-12)", "k2", MASKED),
    ("masked_mean(torch.expm1(ref_logp - logp) + logp - ref_logp, response_mask)", "k3", MASKED),
    ("torch.where(adv > 0, torch.min(rho, 1 + clip_eps), rho) * adv",
     "where(A > 0, min(rho, 1 + clip_eps), rho)*A", EACH),
    ("k1^2/2", "k2", EACH),
    ("(logp - ref_logp).detach() * logp", "sg(k1)*log_q", EACH),
    ("rewards - self.args.beta * (logp - ref_logp)", "R - beta*k1", EACH),
    ('torch.exp(batch["log_probs"] - batch["old_log_probs"]).clamp_max(cfg.clip_max)',
     "min(rho, clip_max)", EACH),
    ("loss = -(adv * (logp - old_logp).exp()).mean()\nloss += 0.04 * (logp - ref_logp).square().mean() / 2",
     "k2/25 - rho*A", MEAN),
    ("np.log1p(np.exp(-(logp - ref_logp))).sum()", "log(1 + r)", SUM),
    ("loss = k1.abs() + self.beta * (rho - 1)", "abs(k1) + beta*(rho - 1)", EACH),
    ("-(ratio * adv).mean()", "-rho*A", MEAN),
]  # fmt: skip
ASKED: list[tuple[str, str]] = [  # what is typed, and the words that say what to type
    ("-(rewards - logp.mean()) * logp", r"type centred\(R\) for R - R.mean\(\)"),
]


def test_28_of_30_lines_are_read() -> None:
    assert len(READ) + len(ASKED) == 30 and len(READ) >= 28


@pytest.mark.parametrize(("typed", "reading", "averaged"), READ, ids=[row[0][:50] for row in READ])
def test_a_pasted_loss_is_read(typed: str, reading: str, averaged: str) -> None:
    found = read_loss(typed)
    declared = [name for name in PARAMETERS if name not in ("beta", "eps")]
    assert sympy.expand(unfold(found.expression - parse(reading, declared))) == 0
    assert not found.in_grammar
    shown = as_written(typed, ()).text
    assert parse(shown, declared) == found.expression


@pytest.mark.parametrize(("typed", "reading", "averaged"), READ, ids=[row[0][:50] for row in READ])
def test_the_reading_has_the_value_and_slope_of_the_code(typed: str, reading: str, averaged: str) -> None:
    python = re.sub(r"(?i)\bkl\((\w)[, |]+(\w)\)", r"full_kl(\1, \2)", typed).replace("^", "**")
    code, e = run(python), read_loss(typed).expression
    if averaged == "vocabulary":  # the 40 numbers are the logits of 40 tokens
        e = e.replace(lambda x: isinstance(x, OverVocabulary), lambda x: sympy.exp(log_q) * x.args[0])
        averaged = SUM
    each, count = evaluated(e), {MEAN: 40, MASKED: MASK.sum()}.get(averaged, 1)
    for a, b in ((code.value, each.value), (code.slope, each.slope)):
        kept = b * MASK if averaged == MASKED else b
        np.testing.assert_allclose(a, kept if averaged == EACH else kept.sum() / count, rtol=1e-9)


@pytest.mark.parametrize(
    ("typed", "reading"),
    [
        ("F.kl_div(s_log_probs, t_log_probs, log_target=True)", "full_kl(p, q)"),
        ("F.kl_div(teacher_log_probs, student_log_probs, log_target=True)", "full_kl(q, p)"),
        ("0.5*(logp_s - logp_t)**2", "k2"), ("s_logps - t_logps", "k1"),
    ],
)  # fmt: skip
def test_a_student_is_the_policy_and_a_teacher_the_reference(typed: str, reading: str) -> None:
    assert sympy.expand(unfold(read_loss(typed).expression - parse(reading))) == 0


@pytest.mark.parametrize(
    ("typed", "reading"),
    [
        ("-mx.mean(mx.minimum(ratio*advantages, mx.clip(ratio, 0.8, 1.28)*advantages))",
         "-min(rho*A, A*clip(rho, 0.8, 1.28))"),
        ("-tf.reduce_mean(tf.minimum(ratio*adv, tf.clip_by_value(ratio, 0.8, 1.2)*adv))",
         "-min(rho*A, A*clip(rho, 0.8, 1.2))"),
        ("-(R - R.mean())*logp", "-centred(R)*log_q"),
        ("a = (R - R.mean())/R.std(); a = (a - a.mean())/(a.std() + 1e-6); -a*logp", "-normalised(R)*log_q"),
        ("a = R - R.mean(dim=1); -(a - a.mean(dim=1))/a.std(dim=1)*logp", "-normalised(R)*log_q"),
        ("a = R - R.mean(); -(a - a.mean())*logp", "-centred(R)*log_q"),
        ("a = normalised(R); -a/a.std()*logp", "-centred(normalised(normalised(R)))*log_q"),
        ("x = -A*logp\nif self.beta != 0.0:\n    x = x + self.beta*k3\nloss = x", "beta*k3 - A*log_q"),
        ("x = -A*logp\nif args.use_kl_loss:\n  x += kl_coef*k2\nx", "kl_coef*k2 - A*log_q"),
        (
            "m = rewards.view(-1, self.n_gen).mean(dim=1); s = rewards.view(-1, self.n_gen).std(dim=1)\n"
            "m = m.repeat_interleave(self.n_gen, dim=0); s = s.repeat_interleave(self.n_gen, dim=0)\n"
            "-(rewards - m)/(s + 1e-4)*logp",
            "-normalised(R)*log_q",
        ),
        ("w = adv.clamp(min=0) if cfg.relu else adv\n-ratio*w", "-rho*max(A, 0)"),
        ("x = zeros_like(logp); -torch.exp(x)*A", "-A"), ("ones_like(logp)*k3", "k3"),
        ("reward_score.clamp(-self.clip_reward_value, self.clip_reward_value)*logp",
         "clip(R, -clip_reward_value, clip_reward_value)*log_q"),
        ("self.kl_coef.value*(logp - ref_logp)", "kl_coef*k1"),
        ("-(pi_learner/pi_sampler)*A", "-rho*A"), ("-log_pi*adjusted_reward", "-R*log_q"),
        ("-(logp*R).sum()/len(R)", "-R*log_q"),
        ("baseline = rewards.mean(); -logp*(rewards - baseline)", "-centred(R)*log_q"),
        ("w = (old_logp - rollout_logp).exp(); w*ratio*A", "exp(log_old - log_mu)*rho_old*A"),
        ("w = (prox_logp - old_logp).exp(); w*min(ratio, 2)*A", "exp(log_old - log_mu)*min(rho_old, 2)*A"),
        ("tis = exp(old_logp - vllm_logp).detach(); -tis*coef_1*A", "-sg(exp(log_old - log_mu))*rho_old*A"),
        ("ratio = tf.exp(OLDNEGLOGPAC - neglogpac); -ADV*ratio", "-A*rho"), ("neg_logp*adv", "-A*log_q"),
        ("(neglogp - ref_neglogp).square()/2", "k2"), ("rm_scores*logp", "R*log_q"),
        ("KL(old_policy || current_policy)", "full_kl(mu, q)"),
        ("x = k3\nif mask is not None:\n    x = x*mask\nx.mean()", "k3"),
        ("-(pi/pi_old)*advantages", "-rho*A"), ("torch.log(pi_theta/pi_ref)", "log(1/r)"),
        ("kl_scale*(logp - ref_logp)", "kl_scale*k1"), ("-min(ratio, C)*adv", "-min(rho, C)*A"),
        ("-(ratio*adv).sum()/normalize_constant", "-rho*A/normalize_constant"),
        ("-(rewards - rewards.mean())/(rewards.std() + 1e-4)*logp", "-normalised(R)*log_q"),
        ("adv = (R - torch.mean(R, dim=1))/R.std(dim=-1); -(adv*logp).mean()", "-normalised(R)*log_q"),
        ("-torch.sign(adv)*logp", "-((A > 0) - (A < 0))*log_q"),
        ("-m.log_prob(action)*reward", "-R*log_q"),
        ("self.actor(obs).log_prob(a) - self.ref_policy(obs).log_prob(a)", "k1"),
        ("-torch.exp(dist.log_prob(a) - old_dist.log_prob(a))*A", "-rho*A"),
        ("k3 - 0.01*dist.entropy()", "k3 - 0.01*H(q)"),
        ("-log_prob*advantage - entropy_weight*log_prob", "-A*log_q - entropy_weight*log_q"),
        ("-(4/tau)*torch.sigmoid(tau*(ratio - 1))*adv", "-(4/tau)*A/(1 + exp(-tau*(rho - 1)))"),
        ("ratio*A + ratio.log()", "rho*A + log_q - log_mu"),
    ],
)  # fmt: skip
def test_other_spellings_are_read_as_the_grammar(typed: str, reading: str) -> None:
    declared = [
        "entropy_weight",
        "tau",
        "kl_coef",
        "kl_scale",
        "C",
        "normalize_constant",
        "clip_reward_value",
    ]
    assert sympy.expand(unfold(read_loss(typed).expression - parse(reading, declared))) == 0


@pytest.mark.parametrize(
    ("guard", "says"), [("", ""), (" + 1e-4", "(without the + 0.0001)"), (" + eps", "(without the + eps)")]
)
def test_what_is_added_to_a_standard_deviation_is_said_to_be_left_out(guard: str, says: str) -> None:
    answer = str(explain(f"-(R - R.mean())/(R.std(){guard})*logp"))
    assert ("(without" in answer) == bool(guard) and says in answer


OLD_AND_SAMPLER = "exp(log_q - log_old)*exp(log_old - log_mu)*A"


@pytest.mark.parametrize(
    "typed",
    [
        "ratio = (logp - old_logp).exp(); tis = (old_logp - rollout_logp).exp(); tis*ratio*A",
        "ratio = (logp - prox_logp).exp(); w = (prox_logp - old_logp).exp(); w*ratio*A",
        "ratio = (logp - recompute_logp).exp(); w = (recompute_logp - vllm_logp).exp(); w*ratio*A",
        "iw = (old_logp - behavior_logp).exp(); is_ratio = (logp - old_logp).exp(); iw*is_ratio*A",
    ],
)
def test_ratios_of_two_samplers_are_two_ratios(typed: str) -> None:
    assert sympy.expand(unfold(read_loss(typed).expression - parse(OLD_AND_SAMPLER))) == 0
    assert read_loss(typed).expression.has(log_old, rho_old)


def refusal(typed: str, parameters: tuple[str, ...] = ()) -> str:
    with pytest.raises(UsageError) as caught:
        read_loss(typed, parameters)
    message = str(caught.value)
    assert message.isprintable() and 10 < len(message) < 400, message
    return message


@pytest.mark.parametrize(("typed", "words"), ASKED)
def test_what_is_not_read_says_what_to_type(typed: str, words: str) -> None:
    assert re.search(words, refusal(typed))


@pytest.mark.parametrize(
    "typed",
    [
        "ratio = (logp - old_logp).exp(); -(ratio * adv).mean()", "-(rho * adv).mean()",
        "r = (logp - old_logp).exp(); -(r*adv).mean()",
    ],
)  # fmt: skip
def test_a_name_that_is_assigned_wins_over_its_usual_meaning(typed: str) -> None:
    assert read_loss(typed).expression == parse("-rho*A")


# ---------------------------------------------------------------------------- refusals
ONLY = "a statement that is not read"
REFUSED: dict[str, str] = {
    "-(R - R.mean())/A.mean()*logp": "a division by the mean of a batch .*relative.R. and scaled.R.",
    "-R/(R.mean() + 1)*logp": "a division by the mean of a batch",
    "logps = F.log_softmax(logits, -1); drawn = logps.gather(-1, ids); (logps.exp()*(logps - drawn)).sum(-1)":
        "a value at the drawn word inside a sum over all words",
    "-(logp.sum(dim=1)/len(logp)*adv).sum()": "counts samples .* divide by mask.sum",
    "ratio = torch.exp((logp - old_logp).sum(-1)/len(mask)); -(ratio*adv).mean()": "counts samples",
    "logps = F.log_softmax(logits, -1); -(adv*logps.gather(-1, greedy_ids)).mean()":
        "gather at unknown words",
    "loss = k1\nif batch.score > 0:\n    loss = -loss": "without 'if batch.score > 0:'",
    "-(R - R.mean())/k1.mean()*logp": "a mean or a sum inside a product",
    "ratio - 1": "ambiguous name 'ratio' at character 1.*type rho for q/mu .*or r for p/q",
    "logp*A + ratio.log()": "ambiguous name 'ratio' at character 10 of",
    "-A*logp + beta*(ratio - 1 - ratio.log())": "ambiguous name 'ratio'",
    "loss = pg_loss + 0.1*kl_loss": "'kl_loss' .*type k1, k2 or k3",
    "kl - x_loss*entropy": r"'kl' .*x_loss = -A",
    "log_ratio.exp()": "ambiguous name 'log_ratio'.*type k1 for log q - log p",
    "beta*kl": "ambiguous name 'kl'.*type k1, k2 or k3",
    "k1 + approx_kl": "ambiguous name 'approx_kl' at character 6",
    "loss = ratio*A; ratio = rho": "'ratio' is used before it is assigned|ambiguous",
    "a = b; b = a; a": "'b' is used before it is assigned",
    "x = x + 1": "'x' is used before it is assigned",
    "-pi*A": r"'pi' is a probability.*type exp\(log_q\)",
    "x = k3\nif self.mode == 'k2':\n    x = k2\nx": "type the lines that run, without \"if self.mode",
    "x = k3 if logp > 0 else k2; x": "if and else is not part of the loss grammar",
    "x = k3 if mode == 'a' else k2; x": "if and else is not part of the loss grammar",
    "KL(policy || student)": "of two different policies",
    "F.kl_div(student.log(), teacher)": r"of a policy, type log_q for the log-probability or exp\(log_q\)",
    "-logp*gains": "unknown name 'gains'",
    "pi_loss*A": "unknown name 'pi_loss'", "neg_rewards*logp": "neg_rewards",
    "neglog*A": "unknown name 'neglog'",
    "current*A": "unknown name 'current'",
    "KL(a || b)": "of two different policies",
    "-clipped_ratio*A": r"such as `clipped_ratio = clip\(exp\(logp - old_logp\), 1 - eps, 1 \+ eps\)",
    "x = k3\nif logp > 0:\n    x = k2\nx": "without 'if logp > 0:', or audit",
    "-min(ratio, K)*adv": "param", "adv_scale*logp": "unknown name 'adv_scale'",
    "(probs * logp).mean()": r"'probs' is a probability.*full_kl\(q, p\) or H\(q\)",
    "probs.clamp(min=1e-8)*A": r"'probs' is a probability",
    "log_probs_x.exp()": r"'log_probs_x' is a log-probability",
    "probs.log() - new_probs.log()": "would both be read as",
    "probs_of_words.log()": r"'probs_of_words' is a probability",
    "(R - R.mean())/(R.std() + beta)*logp": "standard deviation .*normalised\\(R\\).*batch='std'",
    "adv = (R - mean(A))/std(R); -adv*logp": "normalised\\(R\\).*batch='std'",
    "adv = R - R.mean(); adv/A.std()*logp": "normalised\\(R\\).*batch='std'",
    "(k1 - k1.mean())*logp": "type centred\\(R\\)",
    "target_policy.log_prob(a)*A": "'target_policy', an unknown policy .*type log_q, log_p or log_mu",
    "min(unclipped, clipped) - c*k3": "`unclipped = exp.*A; clipped = clip.exp.*, 1 - eps, 1 . eps.*A; ...`",
    "kl = self._kl_penalty(logp, ref_logp); -kl": "as in kl_penalty.logp, ref_logp, 'low_var_kl'.",
    "x = logp - old_logp; -torch.exp(x - x.mean(dim=0))*A": "a mean over dim 0, the samples, inside exp",
    "-torch.exp((logp - old_logp).sum(0))*A": "a mean over dim 0, the samples, inside exp",
    "-clip(r, 1 - eps, 1 + eps).detach()*A*log_prob": "r is p/q, and the code names no reference",
    "sum(p_old*(log p_old - log p_new))": "`p_old = exp.log_mu.; ...`",
    "policy_loss = -policy_loss.mean()": "`policy_loss = A.logp; ...`",
    "x = -negative_approx_kl*A": "`negative_approx_kl = log_q - log_mu; ...`",
    "pi_a = pi.gather(1, a); -pi_a/prob_a*A": "'prob_a' and a value .* `prob_a = exp.log_mu.; ...`",
    "lp = log_softmax(logits).gather(-1, actions); -exp(lp - log_probs)*A": "'log_probs' .* log_q: assign",
    "dist.log_prob(a)*A + logp": "would both be read as log_q: type log_mu for one of them",
    "torch.log_prob(a)*A": "log_prob.* is not part of the loss grammar",
    "-(R - R.mean(dim=1, keepdim=True))/R.std()*logp": "dim 1, and a .* over all samples.*one group",
    "-(R - R.mean())/(R.std(1) + 1e-6)*logp": "mean over all samples, and a standard deviation over dim 1",
    "a = (R - R.mean(1))/R.std(1); a = (a - a.mean())/a.std(); -a*logp": "dim 1, and another mean over all",
    "a = R - R.mean(0); -(a - a.mean(1))*logp": "a mean over dim 0, and another mean over dim 1",
    "-normalised(loo(R))*logp": r"loo\(..\) inside normalised",
    "-loo(centred(R))*logp": r"centred\(..\) inside loo",
    "-normalised(centred(R) - k1)*logp": r"centred\(..\) inside normalised",
    "m = R.mean(0); s = R.std(1); -(R - m)/s*logp": "mean over dim 0, and a standard deviation over dim 1",
    "(k3*mask.sum(1, keepdim=True)).mean()": "multiplied by the number of tokens.*level token",
    "((k3*mask).sum(-1)*mask.sum(-1)).mean()": "multiplied by the number of tokens",
    "-torch.std(R)*logp": "normalised\\(R\\).*batch='std'",
    "-masked_whiten(A - k1, mask)*logp": "batch='std'",
    "-torch.cumprod(R, 0)*logp": "cumprod.* is not read at character 2 of '-torch.cumprod\\(R, 0\\)\\*logp'$",
    "-stdev(R)*logp": "unknown function 'stdev' [^']*character",
    "importance_weight*ratio*A": "read as rho: .*; importance_weight = exp\\(old_logp - rollout_logp",
    "ratio = (logp - old_logp).exp(); iw*ratio*A": "'ratio' and 'iw' would both be read as rho",
    "w = old_logp - rollout_logp; w*ratio*A": "rho_old for q/old .*old_logp.*rho for q/mu .*rollout_",
    "w = prox_logp - old_logp; w*ratio*A": "rho_old for q/old .*prox_logp.*rho for q/mu .*old_logp",
    "w = old_logp - vllm_logp; -w*iw*A": "ambiguous name 'iw'",
    "-min(coef_1*A, coef_2*A)": r"coef_2 = clip\(coef_1, 1 - eps, 1 \+ eps\)",
    "-coef_1*A*importance_sampling_ratio": r"importance_sampling_ratio = exp\(old_logp - rollout_logp\)",
    "w = (vllm_logp - rollout_logp).exp(); w*logp*A": "would both be read as log_mu",
    "logp - logq": "'logp' and 'logq' would both be read as log_q: .*`logp = log_p; ...`",
    "0.5*(policy.logq - logp)**2": "would both be read as log_q: .*`logp = log_p; ...`",
    "newlogprob - logprobs": "would both be read as log_q: assign one of them first",
    "log_p - ref_logp": "would both be read as log_p: .*`log_p = log_q; ...`",
    "self.beta*k1 + args.beta*k2": "would both be read as beta",
    "F.kl_div(s_log_probs, logp, log_target=True)": "'s_log_probs' is a log-probability.*type log_q, log_p",
    "t_logp*A": "unknown name 't_logp'",
    "s_x - t_x": "unknown names 's_x', 't_x'",
    "old_prob*A": r"'old_prob' is a probability.*type exp\(log_q\)",
    "self.har*k1": "unknown name 'self.har'.*parameters=\\['har'\\]",
    "self.T*k1.exp()": "unknown name 'self.T'",
    "cfg.n*k1": "no parameter can be called 'n'",
    "cfg.k1*A": "no parameter can be called 'k1'",
    "cfg.__class__*A": "an attribute",
    "k1.real": "an attribute",
    "k1.__class__()": "is not part of the loss grammar",
    "torch.load(k1)": "load.* is not part of the loss grammar",
    "torch.tanh(k1)": "tanh.* is not part of the loss grammar",
    "os.system(k1)": "is not part of the loss grammar|an attribute",
    "__import__('os').system('id')": "unexpected|unknown function",
    "for x in k1: k2": ONLY,
    "del k1; k2": ONLY,
    "global k1; k1": ONLY,
    "k1.x = k2": ONLY,
    "k1[0] = k2": ONLY,
    "x = lambda: k1": "a lambda is not part",
    "(x := k1) + x.exp()": "an assignment is not part",
    "k1\nk2": "a formula that is not used",
    "k1\n+ k2": "a formula that is not used",
    "loss = k1 if A > 0 else k2": "if and else is not part",
    "loss = [x for x in k1 if x > 0]": "this is not part",
    "loss = k1[0]": "an index",
    "loss = f'{k1}'": "not part|no number",
    "loss = 'k1'": "no number",
    "loss = (k1": "cannot be read",
    "loss = k1 k2": "cannot be read",
    "loss = k1 // 2": "the operator // is not part",
    "loss = ж*k1": "unexpected 'ж'",
    "loss = k1 \0": "unexpected",
    "torch.exp(k1, out=k2)": "the argument out= of exp is not read",
    "torch.clamp(k1, foo=2)": "the argument foo= of clamp",
    "torch.clamp(k1)": "clamp without a bound",
    "torch.clamp(k1, min=0, min=1)": "the argument min= of clamp is not read",
    "torch.clamp(k1, 0, min=1)": "the argument min= of clamp",
    "k1.clamp(0, 1, 2)": "clamp takes 3 arguments at most",
    "k1.pow()": "pow without its argument n",
    "torch.exp(*k1)": "exp takes 1 arguments at most",
    "torch.exp(**k1)": r"the argument \*\*= of exp",
    "torch.exp()": "exp without its argument x",
    "torch.max(k1, 0)": r"type max\(x, 0\)",
    "k1.max(-1)": r"max with a number is that over an axis",
    "k1.min()": "min over samples or tokens is not read",
    "k1.mean(axis=A)": "mean over an axis that is no number",
    "k1.mean('x')": "no number|axis",
    "k1.sum() + k2.mean()": "averaged in different ways",
    "((k1*mask) + k2).mean()": "averaged in different ways",
    "rho.mean()*A": "a mean or a sum inside a product",
    "-R*logp/T.mean()": "a mean or a sum of lengths .*aggregate batch",
    "-(R*logp).sum()/T.sum()": "a mean or a sum of lengths",
    "-(R - (T*R).mean()/T.mean())*logp": "a mean or a sum of lengths",
    "max(rho.mean(), 1)": "a mean inside min, max or clip",
    "torch.signbit(k1).mean()": "signbit.* is not part",
    "k1/mask": "a division by a mask",
    "masked_mean(k1, A)": "no mask of padding",
    "F.kl_div(logp, ref_logp)": "log_target=True",
    "F.kl_div(logp, k1, log_target=True)": "two log-probabilities",
    "F.kl_div(logp, ref_logp, log_target=True, reduction='x')": "a reduction that is not read",
    "(chosen_logps - rejected_logps - 1)**2": "a loss of pairs, chosen and rejected",
    "logp[f(x)]*adv": "an index",
    "self.loss.x = logp": "a statement that is not read",
    "F.kl_div(logp, ref_logp, log_target=True, reduction=f(x))": "a reduction that is not read",
    "KL(q||q)": "two different policies",
    "KL(q||z)": "two different policies",
    "torch.log(k1)": "need not be positive",
    "torch.sqrt(k1)": "may be negative",
    "k1.pow(100)": "a power beyond 64",
    "k1.div(0)": "division by zero",
    "torch.exp(2000)": "exp of a number beyond",
    "clip(k1, 1)": "clip takes 3 arguments, got 2",
    "min(k1)": "min takes 2 or more",
    "is_coef*k1.exp()": "no parameter can be called",
}  # fmt: skip


@pytest.mark.parametrize(("typed", "words"), REFUSED.items(), ids=[repr(key)[:40] for key in REFUSED])
def test_refused(typed: str, words: str, at_most: Any) -> None:
    with at_most(2):
        message = refusal(typed)
    assert re.search(words, message), message


HOSTILE = {
    "1 MB": "loss = k1.exp()\n" * 65_000,
    "1 MB of comments": "k1.exp() #" + "x" * 1_000_000,
    "19,000 dots": "k1" + ".a" * 9_500,
    "2,000 methods": "k1" + ".exp()" * 2_000,
    "90 methods": "k1" + ".abs().exp()" * 45,
    "800 functions": "torch.sg(" * 800 + "k1" + ")" * 800,
    "1,900 parentheses": "loss = " + "(" * 1900 + "k1" + ")" * 1900,
    "a doubling of names": "a = (k1 + 1).exp()\n" + "a = (a + 1)*(a + 2)\n" * 60,
    "100 nested names": "a = k1.exp()\n" + "a = abs(a - 1)\n" * 100,
    "assignments": "".join(f"a{i} = k1 + r\n" for i in range(900)) + "+".join(f"a{i}" for i in range(900)),
    "minus signs": "loss = " + "-" * 10_000 + "k1",
    "a long name": "x" * 10_000 + " = k1; y",
    "many names": "".join(f"a{i} = k1\n" for i in range(900)) + "zz",
    "hats": "k1" + "^k1" * 5_000,
    "semicolons": ";" * 19_000,
    "a power of names": "a = k1.exp()\n" + "a = a**64\n" * 5,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.share(3)
def test_hostile_input_is_refused_at_once(name: str, at_most: Any) -> None:
    with at_most(5):
        refusal(HOSTILE[name])


@pytest.mark.parametrize("typed", ["kk", "k1 + kk", "sg(x=k1)", "1/0", "k1 k2", "log(k1)", "tanh(k1)", "ж"])
def test_what_is_wrong_in_the_grammar_is_said_as_by_the_grammar(typed: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(typed)
    assert refusal(typed) == str(caught.value)


# ---------------------------------------------------------------------------- what the answer says
def test_the_answer_says_what_was_read() -> None:
    verdict = explain("d = ref_logp - logp\nloss = (d.exp() - 1 - d).mean()  # low variance")
    assert verdict.loss.read_as == verdict.to_json()["read_as"] == "k3"
    lines = verdict.text(full=True).splitlines()
    assert lines[0] == "d = ref_logp - logp; loss = (d.exp() - 1 - d).mean() in the loss, on-policy"
    assert [line.strip() for line in lines[2:5]] == [
        "read as  k3",
        "ref_logp is read as log_p, logp as log_q",
        "mean() is left out: klsym itself takes the mean over samples",
    ]
    plain = explain("k3")
    assert plain.loss.read_as == "" and plain.to_json()["read_as"] is None and "read as" not in str(plain)
    assert plain.proof.steps_in_latex == verdict.proof.steps_in_latex and plain.target == verdict.target


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("kl_coef*k1.abs()", "kl_coef is read as a parameter, independent of the sample and of theta"),
        ("k1.sum()", "the factor the number of samples is left out; with level token"),
        ("(k1*mask).sum()/mask.sum()", "mask is left out: a mask of padding does not change the loss"),
        ("-logp[:, 1:]*adv", "assumed: logp[:, 1:] is of the tokens drawn"),
        ("self.kl = logp - ref_logp; self.loss = self.kl**2/2", "read as k2"),
        ("adv.unsqueeze(1)*rho", r"unsqueeze() is left out: it changes no value"),
        ("loss = k2; h = -logp", "loss does not enter the loss, which is h, the last name assigned"),
        ("loss = -A*logp; ratio = (logp - old_logp).exp()", "ratio does not enter the loss, which is loss"),
        ("loss = -A*logp; approx_kl = (old_logp - logp).mean().item()", "approx_kl does not enter the loss,"),
        ("F.kl_div(logp, ref_logp, log_target=True)", "the factor 1/the size of the vocabulary is left out"),
        ("F.kl_div(logp, ref_logp, log_target=True, reduction=cfg.how)", "assumed: cfg.how is 'batchmean'"),
        ("rollout_logp*old_logp.exp()", "rollout_logp is read as log_mu, old_logp as log_old"),
    ],
)  # fmt: skip
def test_what_is_left_out_or_declared_is_said(typed: str, said: str) -> None:
    assert said in " ".join(str(explain(typed)).split())


def test_comparisons_say_what_was_read() -> None:
    answer = compare("(logp - ref_logp).square()/2", "k1.detach()*log_q")
    assert answer.losses == ("k2", "log_q*sg(k1)") and answer.per_sample.same
    assert "(logp - ref_logp).square()/2 is read as k2" in answer.text(full=True)


@pytest.mark.parametrize(
    ("typed", "loss"),
    [
        ("D_KL(pi_theta || pi_ref)", "full_kl(q, p)"),
        ("D_{KL}[p || q]", "full_kl(p, q)"),
        ("2*DKL(q∥p)", "2*full_kl(q, p)"),
        ("KL_div(mu || q)", "full_kl(mu, q)"),
    ],
)
def test_divergences_are_read_in_the_notation_of_papers(typed: str, loss: str) -> None:
    sampling = "off-policy" if "mu" in loss else "on-policy"
    assert explain(typed, sampling=sampling).gradient == explain(loss, sampling=sampling).gradient


@pytest.mark.parametrize("typed", ["D_KL(q || q)", "D_KL(q | p)", "KL(q || )", "MKL(q || p)"])
def test_other_bars_are_refused(typed: str) -> None:
    with pytest.raises(UsageError):
        explain(typed)
