"""Where a loss names the sampler, samples come from it; SAC's temperature is out of scope."""

from __future__ import annotations

import pytest

import klsym
from klsym.errors import UsageError
from klsym.language.pasted.asked_names import ask_for_value

NOTE = "assumed: samples from an older policy mu, as log_mu is read"


@pytest.mark.parametrize(
    "loss",
    [
        "(log_q - log_mu)**2/2",
        "-(log_q*A - beta/2*(log_q - log_mu)**2)",
        "full_kl(mu, q)",
        "target_logprobs = log_q; sampler = log_mu; 0.5*(target_logprobs - sampler)**2",
        "-exp(log_q - log_mu)*R",
    ],
)
def test_a_loss_with_log_mu_is_off_policy(loss: str) -> None:
    verdict = klsym.explain(loss)
    assert verdict.setting.sampling == "off-policy" and NOTE in " ".join(verdict.text(full=True).split())


@pytest.mark.parametrize(
    ("loss", "options", "sampling"),
    [
        ("-torch.exp(logp - old_logp)*A - 0.01*entropy", {}, "off-policy"),
        ("-rho*A - 0.01*entropy", {}, "off-policy"),
        ("-rho*A - 0.01*entropy", {"sampling": "on-policy"}, "on-policy"),
        ("-A*logp - 0.01*entropy", {}, "on-policy"),
        ("rho*k3 - 0.01*entropy", {}, "on-policy"),
        ("entropy", {}, "on-policy"),
        ("dr_grpo", {}, "on-policy"),
    ],
)
def test_a_name_in_a_formula_leaves_the_sampler_to_the_formula(
    loss: str, options: dict[str, str], sampling: str
) -> None:
    assert klsym.explain(loss, **options).setting.sampling == sampling


@pytest.mark.parametrize(
    ("loss", "options", "sampling"),
    [
        ("(log_q - log_mu)**2/2", {"sampling": "on-policy"}, "on-policy"),
        ("(log_q - log_mu)**2/2", {"sampling": "off-policy"}, "off-policy"),
        ("rho*k3", {}, "on-policy"),
        ("sg(rho)*k2", {}, "on-policy"),
        ("k3", {}, "on-policy"),
        ("-A*log_q", {}, "on-policy"),
    ],
)
def test_where_it_is_said_or_no_sampler_is_named_nothing_is_assumed(
    loss: str, options: dict[str, str], sampling: str
) -> None:
    verdict = klsym.explain(loss, **options)
    assert verdict.setting.sampling == sampling and "assumed" not in verdict.text(full=True)


ALPHA = "(-log_alpha.exp()*(log_pi + target_entropy)).mean()"


@pytest.mark.parametrize("parameters", [(), ("log_alpha", "target_entropy"), ("log_alpha",)])
def test_the_loss_of_a_temperature_is_refused(parameters: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="trains no policy") as refusal:
        klsym.explain(ALPHA, parameters=parameters)
    assert "did you mean" not in str(refusal.value)


@pytest.mark.parametrize("name", ["alpha", "entropy_coef", "log_pi", "target_kl", "target_logprobs"])
def test_other_names_are_no_temperature(name: str) -> None:
    assert "SAC" not in ask_for_value(name)
