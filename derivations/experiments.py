"""Published experiments, run again: what was found, beside what the papers say.

Sources: TM = Tang & Munos 2025, figures 1 to 8 and appendix C; SH = Shah et al. 2025; WZ2 = Wang & Zhang
2025.  The statements are findings of these runs at the documented set-up, not of the papers.
"""

from klsym.experiments.catalogue import result
from klsym.study.ledger.evidence import Evidence, build_evidence
from klsym.study.ledger.registry import claim


def _found(name: str) -> tuple[Evidence, ...]:
    data = result(name)
    return build_evidence(data.findings, data.setup)


@claim("experiment.tm-fig1", verdict="computed", source="TM figure 1; app. C")
def errors_of_the_values():
    """The mean squared error of k1, k2 and k3 as estimates of the reverse KL, against n."""
    return _found("tm-fig1")


@claim("experiment.tm-fig2", verdict="computed", source="TM figure 2; app. C")
def errors_of_the_gradients():
    """The root mean squared error of gradient estimates against n; a bias shows as a plateau."""
    return _found("tm-fig2")


@claim("experiment.tm-fig3", verdict="computed", source="TM figure 3; app. C")
def descending_the_divergence():
    """The reverse KL over iterations when each gradient estimate is descended."""
    return _found("tm-fig3")


@claim("experiment.tm-fig4", verdict="computed", source="TM figure 4; app. C")
def regularised_reward():
    """KL-regularised reward maximisation: how far the policy stays from the optimum."""
    return _found("tm-fig4")


@claim("experiment.tm-fig5", verdict="computed", source="TM figure 5; app. C")
def where_they_converge():
    """The distance to the optimum that each estimate reaches, against n."""
    return _found("tm-fig5")


@claim("experiment.tm-fig6", verdict="computed", source="TM figure 6; app. C")
def the_target_of_the_k3_loss():
    """The k3 loss converges to the optimum for the forward KL, not to that for the reverse KL."""
    return _found("tm-fig6")


@claim("experiment.tm-fig8", verdict="computed", source="TM figures 7 and 8, sec. 5; app. D")
def distillation_of_sequences():
    """Token-level and sequence-level estimates on a small autoregressive model with a known gradient."""
    return _found("tm-fig8")


@claim("experiment.reward-collapse", verdict="computed", source="SH abstract; WZ2 on KL as reward")
def penalties_in_the_reward():
    """k1, k2 and k3 as detached penalties in the reward: which are stable, and where the policy ends."""
    return _found("reward-collapse")


@claim("experiment.sh-off-policy", verdict="computed", source="SH abstract")
def learning_from_old_samples():
    """Does a KL penalty stabilise learning from samples of an older policy, with weights and without?"""
    return _found("sh-off-policy")
