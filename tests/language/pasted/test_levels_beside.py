"""Values of each token beside sums over a sequence, values that depend on theta, and losses of critics."""

from __future__ import annotations

import pytest

from klsym.api import compare, explain
from klsym.errors import UsageError
from klsym.language.spellings import read_loss

RATIO = "log_w = ((logp - old_logp)*mask).sum(-1)/mask.sum(-1); "
LOOP = """for t in reversed(range(9)):
    total = rewards[t] + gamma*total
    returns[t] = total
loss = -(returns*logp*mask).sum()"""

REFUSED = {
    RATIO + "loss = -(adv*(exp(log_w) + 0.1*(logp - ref_logp))).mean()": "values of each token beside",
    RATIO + "k = logp - ref_logp; loss = (exp(log_w)*k + exp(log_w)).mean()": "values of each token beside",
    RATIO + "loss = -(exp(log_w)*adv).mean() + 0.1*(logp - ref_logp).mean()": "values of each token beside",
    "rewards = -beta*(logp - ref_logp)\n" + LOOP: "for t in reversed",
    "x = mu + noise; loss = -(Normal(mu, std).log_prob(x)*adv).mean()": r"of x, which is .*detach",
    "x = dist.rsample() + mu; loss = -(Normal(mu, std).log_prob(x)*adv).mean()": "of x, which is computed",
}  # fmt: skip


@pytest.mark.parametrize(("code", "says"), REFUSED.items(), ids=str)
def test_what_would_be_misread_is_refused(code: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_loss(code)


READ = {
    RATIO + "loss = -(exp(log_w)*adv).mean()": "-A*exp(whole(-log_mu + log_q)/T)",
    LOOP: "-log_q*(future(R) + now(R))",
    "x = (mu + noise).detach(); loss = -(Normal(mu, std).log_prob(x)*adv).mean()": "-A*log_q",
    "x = 2*dist.sample(); loss = -(Normal(mu, std).log_prob(x)*adv).mean()": "-A*log_q",
    "critic_loss = adv.pow(2).mean(); actor_loss = -(adv.detach()*logp).mean(); return (critic_loss,"
    " actor_loss)":
        "-A*log_q",
    "policy_loss = -(adv*logp).mean(); value_loss = (returns - v)**2; return policy_loss, value_loss":
        "-A*log_q",
}  # fmt: skip


@pytest.mark.parametrize(("code", "loss"), READ.items(), ids=str)
def test_what_has_one_reading_is_read(code: str, loss: str) -> None:
    assert str(read_loss(code).expression) == loss


OF_EACH_TOKEN = {  # code -> the loss at each token, and how tokens are added up
    RATIO + "w = exp(log_w.detach().unsqueeze(-1) + logp - logp.detach());"
    " -(w*adv.unsqueeze(1)*mask).sum(-1)/mask.sum(-1)":
        ("-A*exp(log_q - sg(log_q) + sg(whole(log_q - log_mu)/T))", "mean"),
    "(tau*(logp - old_logp)[mask].sum().detach()*ratio).sum()": ("tau*rho*sg(whole(log_q - log_mu))", "sum"),
    RATIO + "d = ref_logp - logp; kl = (exp(d) - d - 1)*exp(log_w)":
        ("exp(whole(log_q - log_mu)/T)*k3", "sum"),
    RATIO + "d = ref_logp - logp; kl = ((exp(d) - d - 1)*exp(log_w)*mask).sum()/mask.sum()":
        ("exp(whole(log_q - log_mu)/T)*k3", "batch"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "meant"), OF_EACH_TOKEN.items(), ids=str)
def test_a_sum_over_tokens_that_multiplies_each_token_is_read_at_each_token(
    code: str, meant: tuple[str, str]
) -> None:
    loss, aggregate = meant
    answer = explain(code)
    expected = explain(loss, level="token", aggregate=aggregate, sampling="off-policy", parameters=["tau"])
    assert (answer.setting.level, answer.setting.aggregate) == ("token", aggregate)
    assert answer.summary == expected.summary and answer.gradient == expected.gradient
    assert "multiplies values of each token" in " ".join(answer.text().split())


def test_the_hint_has_the_weight_of_each_token() -> None:
    loss = "-A*exp(log_q - sg(log_q) + sg(whole(log_q - log_mu)/T))"
    answer = explain(loss, level="token", aggregate="mean", sampling="off-policy").text()
    assert "with the weight rho**(1/T)/T" in answer


def test_code_of_no_known_level_is_not_compared_as_whole_sequences() -> None:
    whole = "-exp(logp.sum(-1) - old_logp.sum(-1))*adv"
    with pytest.raises(UsageError, match="does not say its level"):
        compare(whole, "-(exp(logp - old_logp)*adv).mean(-1)")
    assert compare(whole, "-exp(whole(log_q - log_mu))*A").gradient.same
