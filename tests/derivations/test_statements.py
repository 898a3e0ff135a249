"""What each claim states, word for word, and that each part of it is borne out by its check."""

from __future__ import annotations

import pytest

from klsym.kernel import check
from klsym.numeric.exact import check_theorem
from klsym.study.ledger.settle_all import judge
from klsym.study.ledger.settle_claim import recall
from support.ledger_table import BATCHES_AND_SEQUENCES

SURROGATE = "(-rho*M - (1 - M)*sg(b))"
INTEGRAND = "(log_q - log_p)*exp(log_q) - exp(log_q) + exp(log_p)"
VAR_STAR = "Var_mu(rho*k1*s)"
VAR_1 = "Var_mu(rho*(k1 + 1)*s)"
TEXTS: dict[str, tuple[str, ...]] = {
    "clip.clamped-k3-loss": (
        "E_q[grad(M*k3 + (1 - M)*sg(b))] = grad KL(p||q) + E_q[(M - r*M + r - 1)*s]",
        "E_q[grad(M*k3)] != grad KL(p||q) in general",
        "E_q[grad(M*k3)] != grad KL(q||p) in general",
    ),
    "clip.ppo-reward": (
        f"E_mu[grad({SURROGATE}*(A - beta*sg(k1)))] = E_mu[rho*(beta*M*k1 - A*M)*s]",
        f"E_mu[grad({SURROGATE}*(A - beta*sg(k1)))] = beta grad KL(q||p)"
        " + E_q[(beta*M*k1 - A*M - beta*k1)*s]",
        f"E_mu[grad(beta*rho*k3 + A*{SURROGATE})] = beta grad KL(q||p) + E_q[-A*M*s]",
        "E_mu[rho*M*k1*s] != grad KL(q||p) in general",
    ),
    "neighbour.loss-as-reward": (
        "grad g(k1) = sg(g'(k1))*s",
        "grad k1 = s",
        "grad k2 = sg(k1)*s",
        "grad k3 = sg(1 - r)*s",
        "E_q[grad g(k1)] = E_q[sg(g'(k1))*s]",
    ),
    "neighbour.chi2": ("Var_q(1 - r) = chi2(p||q)",),
    "neighbour.in-reward-and-in-loss": (
        "E_q[sg(f)*s] + E_q[grad f] = grad KL(q||p)",
        "E_q[sg(f)*s/2] + 1/2 E_q[grad f] = 1/2 grad KL(q||p)",
        "E_q[sg(k1)*s] + E_q[grad k1] = grad KL(q||p)",
        "E_q[sg(k3)*s] + E_q[grad k3] = grad KL(q||p)",
        "E_q[(sg(k1)/2 + sg(r)/2 - 1/2)*s] + 1/2 E_q[grad k3] != grad KL(q||p) in general",
    ),
    "neighbour.rpg-forward": (
        "E_mu[grad(-beta*log_q)] = beta grad KL(mu||q)",
        "E_mu[grad(beta*(rho - log(rho) - 1))] = beta grad KL(mu||q)",
        "E_mu[rho - log(rho) - 1] = KL(mu||q)",
    ),
    "neighbour.rpg-reverse": (
        "E_mu[grad(beta*rho*log(rho))] = beta grad KL(q||mu)",
        "E_mu[grad(beta*(rho*log(rho) - rho))] = beta grad KL(q||mu)",
        "grad(beta*rho*log(rho)) - grad(beta*(rho*log(rho) - rho)) = beta*rho*s",
        "E_mu[beta*rho*s] = 0",
    ),
    "neighbour.k3-is-unnormalised-kl": (
        f"exp(log_q)*k3 = {INTEGRAND}",
        f"sum_x[{INTEGRAND}] = E_q[k3]",
        f"sum_x[{INTEGRAND}] = KL(q||p)",
    ),
    "neighbour.grpo-missing-weight": ("E_mu[grad k3] != grad KL(q||p) in general",),
    "neighbour.grpo-success-recurrence": (
        "E_q[(f - P)/sigma] - beta KL(q||p) <="
        " beta*(a - 1) + E_p[beta*exp(f/(beta*sigma) - a - P/(beta*sigma))];"
        " equality iff f/(beta*sigma) = k1 + a + P/(beta*sigma) wherever q > 0",
        "E_p[f*(exp(f/(beta*sigma)) - P_p*exp(f/(beta*sigma)))] ="
        " E_p[P_p*(exp(f/(beta*sigma) + 1/(beta*sigma)) - f*exp(f/(beta*sigma) + 1/(beta*sigma)))]",
    ),
    "neighbour.k3-loss-first-order": (
        "k1 + r - 1 = k3",
        "k1 - (1 - r) = k3 = 1/2 (r - 1)^2 - 1/3 (r - 1)^3 + 1/4 (r - 1)^4 - 1/5 (r - 1)^5 + O((r - 1)^6),"
        " the remainder at most 0.295 (r - 1)^6",
        "1 - r -> 1 and k1 -> oo as r -> 0; 1 - r -> -oo, k1 -> -oo and (1 - r)/k1 -> oo as r -> oo",
    ),
    "neighbour.gaussian-k3-reward-vanishes": (
        "E_q[sg(k3)*s] = grad KL(q||p) - grad KL(p||q)",
        "q = N(m,v), p = N(n,v): along the mean of q, E_q[s sg(k3)] = 0, where grad KL(q||p) = (m - n)/v",
        "q = N(m,v), p = N(n,v): along the log scale of q, E_q[s sg(k3)] = (m - n)^2/v,"
        " where grad KL(q||p) = 0",
    ),
    "variance.difference": (
        "E_mu[rho*(k1 + 1)*s] = E_mu[rho*k1*s]",
        "Var_mu(rho*(k1 + 1)*s) - Var_mu(rho*k1*s) = E_mu[(2*k1 + 1)*rho**2*s**2]",
    ),
    "variance.noise-term": ("grad(rho*k1) - grad(rho*k3) = rho*s", "E_mu[rho*s] = 0"),
    "variance.sufficient-region": (
        f"{VAR_STAR} <= {VAR_1}; equality iff (2*k1 + 1)*s = 0 wherever mu*rho**2 > 0",
    ),
    "variance.no-universal-order": (f"{VAR_STAR} <= {VAR_1} fails in a model",),
    "variance.optimal-baseline": (
        "Var_q((k1 - b)*s) - Var_q((k1 - b_star)*s) = E_q[(b - b_star)**2*s**2]",
        "Var_q((k1 - b_star)*s) <= Var_q((k1 - b)*s); equality iff b = b_star or s = 0 wherever q > 0",
        "E_q[k1*s**2] - E_q[k1] E_q[s**2] = E_q[(b_star - d)*s**2]",
    ),
    "variance.orders": (
        "Var_mu g1 = E_mu[rho^2 s^2] - 2 E_mu[rho^2 s^2 eps] + O(eps^2),"
        " the remainder at most 5.389 e^2 E_mu[rho^2 s^2]",
        "Var_mu g* = E_mu[rho^2 s^2 eps^2] - E_q[s eps]^2 + O(eps^3),"
        " the remainder at most 3.688 e^3 E_mu[rho^2 s^2]",
    ),
    "value.k2-bias-order": (
        "E_q[k2] - KL(q||p) = -E[eps^3]/6 + O(eps^4), the remainder at most 0.420 e^4",
        "f''(1) = 1 for f = (log x)^2/2 and f''(1) = 1 for f = -log x",
        "for every f with a continuous third derivative and f(1) = 0: E_q[f(r)] = f''(1)/2 E_q[eps^2] +"
        " O(eps^3), the remainder at most sup |f'''| e E_q[eps^2]/6, so that f with one f''(1) agree to"
        " second order",
    ),
    "value.variance-small-kl": (
        "Var k1 = E[eps^2] + O(eps^3), the remainder at most 3.688 e^3",
        "Var k2 = Var(eps^2)/4 + O(eps^5), the remainder at most 2.694 e^5",
        "Var k3 = Var(eps^2)/4 + O(eps^5), the remainder at most 1.388 e^5",
    ),
    "value.k2-not-csiszar": (
        "f(x) = (log x)^2/2 has f'' = (1 - log(x))/x^2: it is convex for x <= e only",
        "where p <= e q, E_q[k2] = E_q[g(r)] with g convex: g = (log x)^2/2 for x <= e, g = x/e - 1/2 beyond",
        "E_q[k2] is a Csiszar f-divergence, with f(x) = (log x)^2/2",
    ),
    "value.gaussian-table-near": (
        "q = N(0,1), p = N(1/10,1), KL = 1/200: bias/true 0, 1/400, 0; sd/true 20, "
        "sqrt(201)/10 = 1.41774..., 200*sqrt(-101/100 + exp(1/100)) = 1.41657... (k1, k2, k3); "
        "the printed 0, 0.002, 0; 20, 1.42, 1.42 agree to the digits given",
    ),
    "value.gaussian-table-far": (
        "q = N(0,1), p = N(1,1), KL = 1/2: bias/true 0, 1/4, 0; sd/true 2, sqrt(3) = 1.73205..., "
        "2*sqrt(-2 + E) = 1.69503... (k1, k2, k3); the printed 0, 0.25, 0; 2, 1.73, 1.7 agree to the digits "
        "given",
    ),
    "value.gaussian-crossover": (
        "q = N(0,1), p = N(d,1): Var k3 < Var k1 iff 0 < d^2 < u*, u* = 1.256431... the positive root of "
        "-2*u + exp(u) - 1, that is 0 < KL < 0.628215...",
    ),
    "value.heavy-tail": (
        "Var k1 = (v - 1)^2/(2*v^2), finite for every v > 0",
        "Var k3 is finite iff v < 2, and is then -v + 3/2 - 2/v + 1/(2*v^2) + 1/(sqrt(v)*sqrt(2 - v))",
        "for all q and p with E_q[k1^2] finite: Var k3 is finite iff E_q[r^2], the integral of P_p(r > t)"
        " over t > 0, is; where P_p(r > t) falls like t^-a, iff a > 1; these Gaussians have a = 1/(v - 1) for"
        " v > 1",
    ),
}
CALCULATED = (
    "neighbour.k3-loss-first-order", "neighbour.gaussian-k3-reward-vanishes", "variance.orders",
    *(name for name in TEXTS if name.startswith("value.")),
)  # fmt: skip


@pytest.mark.parametrize("name", [*TEXTS, *BATCHES_AND_SEQUENCES])
def test_a_claim_states_what_is_written_here(name: str) -> None:
    settled = recall(name)
    trust = "sympy" if name in CALCULATED else "kernel"
    assert (settled.status, settled.trust, settled.error) == ("settled", trust, "")
    assert (settled.printed is None) == (settled.claim.verdict != "corrected")
    if name in TEXTS:
        assert tuple(map(str, settled.parts)) == TEXTS[name]
        changed = settled.claim.verdict in ("refuted", "corrected")  # what is false is left out or turned
        assert changed or settled.statement == "; ".join(TEXTS[name])
    if settled.proofs:
        assert [t.kind for t in check(settled.certificate())] == [t.kind for t in settled.theorems]
    for part in settled.parts:
        assert part._repr_latex_().count("{") == part._repr_latex_().count("}")


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.share(3)
def test_each_part_of_a_claim_is_borne_out(name: str) -> None:
    settled = recall(name)
    for part in settled.parts:
        passed, line = judge(part, settled.claim)
        assert passed and "\n" not in line, line
    if name.startswith("variance."):  # on more models than `judge` takes
        assert all(check_theorem(theorem, range(12)).passed for theorem in settled.theorems)


SUPPORT = "p << q: wherever p > 0, also q > 0"
HYPOTHESES = {
    "value.k2-bias-order": [
        SUPPORT,
        "e = sup |p/q - 1| is at most 1/2",
        "e = sup |p/q - 1| is finite; f has three continuous derivatives on [1 - e, 1 + e]",
    ],
    "value.heavy-tail": [
        "q = N(0,1), p = N(0,v), v > 0",
        "E_q[k1^2] is finite, p << q; the last is for q = N(0,1), p = N(0,v), up to powers of log t",
    ],
}


@pytest.mark.parametrize("name", HYPOTHESES)
def test_the_hypotheses_of_a_claim(name: str) -> None:
    assert recall(name).hypotheses == HYPOTHESES[name]


def test_a_region_is_a_hypothesis() -> None:
    lines = recall("variance.sufficient-region").hypotheses
    assert "2*k1 + 1 >= 0 wherever mu > 0, that is r <= exp(1/2)" in lines
