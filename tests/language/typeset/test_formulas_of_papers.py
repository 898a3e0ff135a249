"""Formulas of papers in LaTeX: each is explained as the text of the loss grammar that a reader writes."""

from __future__ import annotations

from typing import Any

import pytest
import sympy

import klsym
from klsym.language.expressions import unfold

RATIO = r"\frac{\pi_\theta(o_{i,t}|q,o_{i,<t})}{\pi_{\theta_{old}}(o_{i,t}|q,o_{i,<t})}"
K3 = (
    r"\frac{\pi_{ref}(o_{i,t}|q,o_{i,<t})}{\pi_\theta(o_{i,t}|q,o_{i,<t})}"
    r"-\log\frac{\pi_{ref}(o_{i,t}|q,o_{i,<t})}{\pi_\theta(o_{i,t}|q,o_{i,<t})}-1"
)
OF_GROUP = r"\frac{1}{G}\sum_{i=1}^G\frac{1}{|o_i|}\sum_{t=1}^{|o_i|}"
SAMPLED = r"\mathbb{E}_{q\sim P(Q), \{o_i\}_{i=1}^G\sim\pi_{\theta_{old}}(O|q)}"
CLIPPED = (
    rf"\min\left[{RATIO}\hat{{A}}_{{i,t}}, \text{{clip}}\left({RATIO}, 1-\epsilon, 1+\epsilon\right)"
    r"\hat{A}_{i,t}\right]"
)
OLD = {"sampling": "off-policy"}
ON = {"sampling": "on-policy"}
TOKENS = {"level": "token", "sampling": "off-policy"}
MEAN, BATCH, SUM = ({**TOKENS, "aggregate": x} for x in ("mean", "batch", "sum"))
PPO = "min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)"
Row = tuple[str, str, dict[str, str]]

READ: list[Row] = [
    # PPO (Schulman et al. 2017)
    (r"\frac{\pi_\theta(a_t|s_t)}{\pi_{\theta_{old}}(a_t|s_t)} \hat{A}_t", "rho*A", OLD),
    (r"-\mathbb{E}_t\left[\min\left(r_t(\theta)\hat{A}_t, \text{clip}(r_t(\theta), 1-\epsilon, 1+\epsilon)"
     r"\hat{A}_t\right)\right]", f"-{PPO}", OLD),
    (r"L^{CLIP}(\theta) = \hat{\mathbb{E}}_t\left[\min(r_t(\theta)\hat{A}_t, \mathrm{clip}(r_t(\theta),"
     r"1-\varepsilon,1+\varepsilon)\hat A_t)\right]", f"-{PPO}", OLD),
    (r"\hat{\mathbb{E}}_t\left[\frac{\pi_\theta(a_t \mid s_t)}{\pi_{\theta_{\text{old}}}(a_t \mid s_t)}"
     r"\hat{A}_t - \beta\,\mathrm{KL}[\pi_{\theta_{\text{old}}}(\cdot\mid s_t), \pi_\theta(\cdot\mid s_t)]"
     r"\right]", "rho*A - beta*full_kl(mu, q)", OLD),
    (r"-r_t(\theta)\hat A_t - c_2 S[\pi_\theta](s_t)", "-rho*A - c2*H(q)", OLD),
    (r"-\pi_\theta/\pi_{old} A", "-rho*A", OLD),
    (r"\mathbb{E}_{\mu}[-A\log\pi_\theta]", "-A*log_q", OLD),
    (r"\mathbb{E}_{\beta}[-R\log\pi_\theta]", "-R*log_q", OLD),
    (r"\mathbb{E}_{\mu}[\log\frac{\pi_\theta}{\pi_{ref}}]", "k1", OLD),
    (r"\mathbb{E}_{q}[-A\log q]", "-A*log_q", ON),
    # GRPO (Shao et al. 2024), as its source has it
    (rf"\mathcal{{J}}_{{GRPO}}(\theta) &= \mathbb{{E}}{{[q \sim P(Q), \{{o_i\}}_{{i=1}}^G \sim"
     rf" \pi_{{\theta_{{old}}}}(O|q)]}} \\ & {OF_GROUP} \left\{{ {CLIPPED} - \beta \mathbb{{D}}_{{KL}}\left["
     r"\pi_{\theta} || \pi_{ref}\right]\right\}", f"-({PPO} - beta*full_kl(q, p))", MEAN),
    (rf"-{SAMPLED}\left[{OF_GROUP}\left\{{ {CLIPPED} - \beta\left({K3}\right)\right\}}\right]",
     f"-({PPO} - beta*k3)", MEAN),
    (rf"\mathbb{{D}}_{{KL}}\left[\pi_\theta || \pi_{{ref}}\right] = {K3}", "k3", {}),
    (rf"{OF_GROUP} \beta\left({K3}\right)", "beta*k3", {"level": "token", "aggregate": "mean"}),
    # Dr. GRPO (Liu et al. 2025): no division by the length
    (rf"-\frac{{1}}{{G}}\sum_{{i=1}}^G\sum_{{t=1}}^{{|o_i|}} {CLIPPED}", f"-{PPO}", SUM),
    # DAPO (Yu et al. 2025): all tokens of the batch, two bounds
    (r"-\frac{1}{\sum_{i=1}^{G}|o_i|}\sum_{i=1}^{G}\sum_{t=1}^{|o_i|}\min\Big(r_{i,t}(\theta)\hat{A}_{i,t},"
     r"\ \mathrm{clip}\Big(r_{i,t}(\theta), 1-\varepsilon_{\mathrm{low}}, 1+\varepsilon_{\mathrm{high}}\Big)"
     r"\hat{A}_{i,t}\Big)", "-min(rho*A, clip(rho, 1 - eps_low, 1 + eps_high)*A)", BATCH),
    # GSPO (Zheng et al. 2025)
    (r"-\frac{1}{G}\sum_{i=1}^{G}\left(\frac{\pi_\theta(y_i|x)}{\pi_{\theta_{old}}(y_i|x)}\right)"
     r"^{\frac{1}{|y_i|}}\hat{A}_i", "-exp(whole(log_q - log_mu)/T)*A", {**OLD, "level": "sequence"}),
    # SAPO (Gao et al. 2025)
    (rf"-{OF_GROUP}\frac{{4}}{{\tau}}\sigma\left(\tau\left({RATIO} - 1\right)\right)\hat A_{{i,t}}",
     "-4/tau*sigmoid(tau*(rho - 1))*A", MEAN),
    # CISPO
    (rf"-{OF_GROUP}\mathrm{{sg}}\left(\text{{clip}}({RATIO}, 0, 1+\epsilon)\right)\hat A_{{i,t}}"
     r"\log\pi_\theta(o_{i,t}|q,o_{i,<t})", "-sg(clip(rho, 0, 1 + eps))*A*log_q", MEAN),
    # REINFORCE
    (r"-\mathbb{E}_{\tau\sim\pi_\theta}\left[\sum_{t=0}^{T}\log\pi_\theta(a_t|s_t) R(\tau)\right]",
     "-log_q*whole(R)", {**ON, "level": "token", "aggregate": "sum"}),
    (r"-\mathbb{E}_{\tau\sim\pi_\theta}\left[R(\tau) \sum_{t}\log\pi_\theta(a_t|s_t)\right]",
     "-whole(R)*log_q", {**ON, "level": "token", "aggregate": "sum"}),
    (r"-\mathbb{E}\left[\sum_{t=0}^{T}\log\pi_\theta(a_t|s_t) G_t\right]", "-log_q*togo(R)",
     {"level": "token", "aggregate": "sum"}),
    (r"-\log \pi_\theta(a_t|s_t) (R_t - b)", "-log_q*(R - baseline)", {}),
    (r"-\mathbb{E}_{y\sim\pi_\theta(\cdot|x)}\left[R(y,x)\log\pi_\theta(y|x)\right]", "-R*log_q", ON),
    (r"-\frac{1}{N}\sum_{i=1}^{N} \hat{A}_i \log\pi_\theta(y_i|x)", "-A*log_q", {}),
    # RLOO (Ahmadian et al. 2024): the advantage under stop-gradient
    (r"-\frac{1}{k}\sum_{i=1}^{k}\operatorname{sg}\left[A(y_i,x)\right]\log\pi_\theta(y_i|x)",
     "-sg(A)*log_q", {}),
    (r"-\mathrm{stop\_gradient}(A)\log\pi_\theta", "-sg(A)*log_q", {}),
    # RLHF rewards with a KL
    (r"\hat r_\phi(x,y) - \beta \log\frac{\pi_\theta(y|x)}{\pi_{ref}(y|x)}", "R - beta*k1", {}),
    (r"R(x,y) = r_\phi(x,y) - \beta\left[\log\pi_\theta(y|x) - \log\pi^{SFT}(y|x)\right]",
     "R - beta*k1", {"use": "reward"}),
    (r"\beta D_{KL}(\pi_\theta \| \pi_{ref})", "beta*full_kl(q, p)", {}),
    (r"\mathrm{KL}(\pi_{ref} \,\|\, \pi_\theta)", "full_kl(p, q)", {}),
    (r"D_\mathrm{KL}\left[\pi_\theta(\cdot|s) \parallel \pi_0(\cdot|s)\right]", "full_kl(q, p)", {}),
    (r"KL_t = \log \pi_{old}(a_t|s_t) - \log \pi_{ref}(a_t|s_t)", "log_mu - log_p", {}),
    # k1, k2, k3 of Schulman's note
    (r"-\log r", "k1", {}),
    (r"\frac{1}{2}\left(\log r\right)^2", "k2", {}),
    (r"\frac12 \log^2 r", "k2", {}),
    (r"(r - 1) - \log r", "k3", {}),
    (r"\log\frac{q(x)}{p(x)}", "k1", {}),
    (r"\mathbb{E}_{x \sim q}\left[\frac{1}{2}\left(\log\frac{p(x)}{q(x)}\right)^2\right]", "k2", ON),
    (r"\frac{p(x)}{q(x)} - 1 - \log\frac{p(x)}{q(x)}", "k3", {}),
    (r"\rho_t \left(r - 1 - \log r\right)", "rho*k3", {}),
    # SAC's actor (Haarnoja et al. 2018)
    (r"\mathbb{E}_{s\sim\mathcal{D}, a\sim\pi_\phi}\left[\alpha\log\pi_\phi(a|s) - Q_\theta(s,a)\right]",
     "full(alpha*log_q - R)", ON),
    (r"J_\pi(\phi) = \mathbb{E}_{s\sim\mathcal{D}}\left[\alpha\log\pi_\phi(a|s) - \min_{i=1,2} Q_{\phi_i}"
     r"(s,a)\right]", "full(alpha*log_q - R)", {}),
    # MPO, AWR
    (r"-\mathbb{E}_{(s,a)\sim\mathcal{D}}\left[\exp\left(\frac{1}{\beta}A(s,a)\right)\log\pi_\theta(a|s)\right]",
     "-exp(A/beta)*log_q", OLD),
    (r"-\mathbb{E}_{a\sim\mu}\left[e^{A^\mu(s,a)/\tau}\log\pi_\theta(a|s)\right]", "-exp(A/tau)*log_q", OLD),
    # entropy, indicators, rewards of data
    (r"-A\log\pi_\theta - \beta \mathcal{H}[\pi_\theta(\cdot|s)]", "-A*log_q - beta*H(q)", {}),
    (r"$-\mathbb{1}[A > 0]\, A \log\pi_\theta(a|s)$", "-where(A > 0, 1, 0)*A*log_q", {}),
    (r"\left| \log \pi_\theta - \log \pi_{ref} \right|", "abs(k1)", {}),
    (r"\lvert \log\frac{\pi_\theta}{\pi_{ref}} \rvert", "abs(k1)", {}),
    (r"\tfrac{\beta}{2}\left(\log\frac{\pi_\theta(y|x)}{\pi_{old}(y|x)}\right)^2 - A\log\pi_\theta(y|x)",
     "beta/2*(log_q - log_mu)**2 - A*log_q", OLD),
    (r"\sqrt{2} \cdot k_2 \times \lambda", "sqrt(2)*k2*lam", {}),
    (r"-\log\sigma(\beta \log\frac{\pi_\theta(y|x)}{\pi_{ref}(y|x)})", "-log(sigmoid(beta*k1))", {}),
    (r"\begin{equation} -A \log \pi_\theta \label{eq:loss} \end{equation}", "-A*log_q", {}),
    (r"-A \log π_θ", "-A*log_q", {}),
]  # fmt: skip


OPTIONS = ("target", "trust", "sampling", "use", "level", "batch", "aggregate", "weights")


def summarise(verdict: Any) -> dict[str, Any]:
    """Return the answer and its setting, without how the loss was typed."""
    answer = verdict.to_json()
    summary = {name: answer[name] for name in OPTIONS}
    summary |= {name: answer["gradient"][name] for name in ("target", "coefficient", "combination")}
    return summary | {"value": answer["value"]["target"]}


@pytest.mark.parametrize(("latex", "text", "options"), READ, ids=range(len(READ)))
def test_a_formula_is_explained_as_the_text_that_a_reader_writes(
    latex: str, text: str, options: dict[str, str]
) -> None:
    read, typed = klsym.explain(latex, use=options.get("use")), klsym.explain(text, **options)
    assert summarise(read) == summarise(typed)
    difference = unfold(read.loss.written.expression) - unfold(typed.loss.written.expression)
    assert sympy.simplify(difference) == 0
    assert "is read as" in " ".join(str(read).split())
