"""The rules and closings of the kernel explained: equation, assumptions, reason, citation.

>>> from klsym import kernel
>>> set(RULES) == set(kernel.RULES) | {kernel.EQUATION}, set(CLOSINGS) == set(kernel.CLOSINGS)
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One rule: its name, the equation in LaTeX and in text, what it assumes, why it holds, a citation."""

    name: str
    latex: str
    text: str
    hypotheses: str
    why: str
    cite: str


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("chain rule", r"\nabla L = \sum_z \frac{\partial L}{\partial \log q_z}\, s_z",
             "grad L = sum_z (dL/dlog q_z) s_z", "each mean exists, if there are several",
             "theta enters a loss through log q alone, and sg(.) is held constant.",
             "Schulman et al. 2015, Stochastic computation graphs"),
        Rule("stop-gradient", r"\mathrm{sg}(x) = x", "sg(x) = x", "none",
             "Outside a gradient a detached quantity has its ordinary value.",
             "Foerster et al. 2018, DiCE"),
        Rule("log-derivative", r"\nabla\mathbb{E}_q[a] = \mathbb{E}_q[a\,s] + \mathbb{E}_q[\nabla a]",
             "grad E_q[a] = E_q[a s] + E_q[grad a]; grad E_m[a] = E_m[grad a] for m = p, mu",
             "a dominated derivative near theta; with bounds Lipschitz terms, no sample on a bound",
             "grad q = q s, p and mu do not depend on theta, and gradients are linear.",
             "Williams 1992; Glasserman 2004, ch. 7"),
        Rule("product rule", r"\nabla(\mathbb{E}_m[a]\,\mathbb{E}_{m'}[b]) = \mathbb{E}_{m'}[b]\,"
             r"\nabla\mathbb{E}_m[a] + \mathbb{E}_m[a]\,\nabla\mathbb{E}_{m'}[b]",
             "grad (E_m[a] E_m'[b]) = E_m'[b] grad E_m[a] + E_m[a] grad E_m'[b]",
             hypotheses="the gradient of each factor exists",
             why="Expectations are functions of theta, and a product of functions has this gradient.",
             cite="Rudin 1976, ch. 5"),
        Rule("region", r"\mathbb{E}_m[a] = \mathbb{E}_m[a - b\,P\,x]",
             "E_m[a] = E_m[a - b P x] for a product P of [e > 0] and 1 - [e > 0] with P x = 0 everywhere",
             "each mean exists; no sample lies where e = 0, if e < 0 is asked for; the facts that are used",
             "Where P x is not 0, products of what is positive there, with positive weights, squares and"
             " tangents exp(x) - 1 - x, would add up to -x^2, or to 0 with one that is positive.",
             "Stengle 1974, A Nullstellensatz and a Positivstellensatz in semialgebraic geometry"),
        Rule("definition", r"\mathbb{E}_m[a] = \mathbb{E}_m[a - b\,(e\,\exp(-l) - 1)]",
             "E_m[a] = E_m[a - b (e exp(-l) - 1)] for l = log(e), or E_m[a - b (v - e)] for v = e",
             "e > 0 at every sample, for a log; each mean exists", "exp(-log(e)) = 1/e where e > 0.",
             "Rudin 1976, ch. 8"),
        Rule("linearity", r"\mathbb{E}_m[c\,a + b] = c\,\mathbb{E}_m[a] + \mathbb{E}_m[b]",
             "E_m[c a + b] = c E_m[a] + E_m[b] for a constant c", "each mean exists",
             "Means are linear, as factors of products too.", "Kolmogorov 1933"),
        Rule("change of measure", r"\mathbb{E}_m[a] = \mathbb{E}_{m'}\!\left[a\,\tfrac{m}{m'}\right]",
             "E_m[a] = E_m'[a m/m']",
             "support of m in m' unless m a vanishes with m', and of m' in m unless m a vanishes with m",
             "The same sum, with the weight moved into the integrand.",
             "Owen 2013, Monte Carlo theory, methods and examples, ch. 9"),
        Rule("score mean zero", r"\mathbb{E}_q[c\,s_z] = 0",
             "E_q[c s_z] = 0 for c that does not depend on the slot z; for one sample, a constant c",
             "a dominated derivative near theta",
             "The sum of q over x is 1 for every theta, so its gradient is 0.",
             "Williams 1992"),
        Rule("ratio mean one", r"\mathbb{E}_m[c\,(m'/m)_z] = \mathbb{E}_m[c]",
             "E_m[c (m'/m)_z] = E_m[c] for c that does not depend on the slot z",
             "support of m' in m",
             "A density ratio integrates to the mass of its numerator.",
             "Owen 2013, Monte Carlo theory, methods and examples, ch. 9"),
        Rule("normalisation", r"\mathbb{E}_m[c] = c", "E_m[c] = c for a constant c", "none",
             "A probability measure has total mass one.", "Kolmogorov 1933"),
        Rule("sum over t", r"V = \sum_t V_t,\quad s = \sum_t s_t", "V = sum_t V_t, s = sum_t s_t",
             "sequences that end",
             "The log probability of a sequence is the sum of those of its tokens given their prefixes.",
             "Sutton et al. 2000, Policy gradient methods"),
        Rule("parts of a sum", r"\sum_u V_u = \sum_{u<t} V_u + V_t + \sum_{u>t} V_u",
             "sum_u V_u = V_past + V_now + V_future, V a log ratio, a reward, the length or the score",
             "each mean exists, if there are several",
             "At each step a sequence is its past, its present and its future.",
             "Sutton et al. 2000, Policy gradient methods"),
        Rule("exchange of sums", r"\sum_t X_t \sum_{u>t} Y_u = \sum_u Y_u \sum_{t<u} X_t",
             "sum_t X_t sum_{u>t} Y_u = sum_u Y_u sum_{t<u} X_t", "none",
             "The same pairs of steps, summed in the other order.", "finite sums"),
        Rule("curl", r"\partial_v F\cdot u - \partial_u F\cdot v = 0 \text{ if } F = \nabla\Phi",
             "d_v F.u - d_u F.v, which is 0 if F is the gradient of a function of theta",
             "a dominated derivative near theta; with bounds Lipschitz terms, no sample on a bound",
             "Second derivatives are symmetric, those of log q as well, so that the scores alone remain.",
             "Schwarz; Spivak 1965, Calculus on manifolds, ch. 4"),
        Rule("independence", r"\mathbb{E}_m[a(x_i)\,b(x_j)] = \mathbb{E}_m[a]\,\mathbb{E}_m[b]",
             "E_m[a(self) b(others)] = E_m[a] E_m[b], a sum over n - 1 others n - 1 times its mean",
             "independent samples; the moments that are split exist",
             "The samples of a batch are independent and alike.", "Kolmogorov 1933"),
        Rule("equation", r"F = G \Rightarrow A = A + m\,(G - F)",
             "A = A + m (G - F) for a premise or a theorem F = G; with gradients, if a premise holds for"
             " every theta",
             "those of the theorem; for a premise, F = G",
             "What is proved or assumed may be used.",
             "hypothesis of the statement, or the theorem that is cited"),
    )
}  # fmt: skip
RULE_OF = {"theorem": "equation", "premise": "equation"}  # name in a printed derivation -> the rule
CLOSINGS = {
    "equality": "Equal normal forms are equal functions of the sample.  An inequality holds since the left"
    " side and some rows are worth the right side: a row is a positive multiple of exp(v) (exp(u) - 1 - u),"
    " which is 0 only where u is, of a square, which is 0 only where its root is and may be weighted by what"
    " the theorem assumes to be at least 0, or of a variance, which is 0 only where its variable is"
    " constant.",
    "finite model": "One model in which the two sides lie in disjoint intervals refutes the statement.",
    "completeness": "E_q[c s] = 0 for all q, p, mu on three outcomes with softmax logits forces c to be"
    " constant.",
    "independence": "E_q[c s] vanishes for all q, p, mu only if c is constant, and distinct terms of the ring"
    " are linearly independent.",
}
