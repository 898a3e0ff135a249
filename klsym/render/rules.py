"""The rules and closings of the kernel explained: equation, assumptions, reason, citation.

>>> from klsym import kernel
>>> set(RULES) == set(kernel.RULES) | {kernel.EQUATION}, set(CLOSINGS) == set(kernel.CLOSINGS)
(True, True)
"""

from __future__ import annotations

from klsym.records import record


@record
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
        Rule("chain rule", latex=r"\nabla L = \sum_z \frac{\partial L}{\partial \log q_z}\, s_z",
             text="grad L = sum_z (dL/dlog q_z) s_z", hypotheses="each mean exists, if there are several",
             why="theta enters a loss through log q alone, and sg(.) is held constant.",
             cite="Schulman et al. 2015, Stochastic computation graphs"),
        Rule("stop-gradient", latex=r"\mathrm{sg}(x) = x", text="sg(x) = x", hypotheses="none",
             why="Outside a gradient a detached quantity has its ordinary value.",
             cite="Foerster et al. 2018, DiCE"),
        Rule("log-derivative", latex=r"\nabla\mathbb{E}_q[a] = \mathbb{E}_q[a\,s] + \mathbb{E}_q[\nabla a]",
             text="grad E_q[a] = E_q[a s] + E_q[grad a]; grad E_m[a] = E_m[grad a] for m = p, mu",
             hypotheses="a dominated derivative near theta; with bounds Lipschitz terms,"
             " no sample on a bound",
             why="grad q = q s, p and mu do not depend on theta, and gradients are linear.",
             cite="Williams 1992; Glasserman 2004, ch. 7"),
        Rule("product rule", r"\nabla(\mathbb{E}_m[a]\,\mathbb{E}_{m'}[b]) = \mathbb{E}_{m'}[b]\,"
             r"\nabla\mathbb{E}_m[a] + \mathbb{E}_m[a]\,\nabla\mathbb{E}_{m'}[b]",
             "grad (E_m[a] E_m'[b]) = E_m'[b] grad E_m[a] + E_m[a] grad E_m'[b]",
             hypotheses="the gradient of each factor exists",
             why="Expectations are functions of theta, and a product of functions has this gradient.",
             cite="Rudin 1976, ch. 5"),
        Rule("region", latex=r"\mathbb{E}_m[a] = \mathbb{E}_m[a - b\,P\,x]",
             text="E_m[a] = E_m[a - b P x] for a product P of [e > 0] and 1 - [e > 0]"
             " with P x = 0 everywhere",
             hypotheses="each mean exists; no sample lies where e = 0, if e < 0 is asked for;"
             " the facts that are used",
             why="Where P x is not 0, products of what is positive there, with positive weights, squares and"
             " tangents exp(x) - 1 - x, would add up to -x^2, or to 0 with one that is positive.",
             cite="Stengle 1974, A Nullstellensatz and a Positivstellensatz in semialgebraic geometry"),
        Rule("definition", latex=r"\mathbb{E}_m[a] = \mathbb{E}_m[a - b\,(e\,\exp(-l) - 1)]",
             text="E_m[a] = E_m[a - b (e exp(-l) - 1)] for l = log(e), or E_m[a - b (v - e)] for v = e",
             hypotheses="e > 0 at every sample, for a log; each mean exists",
             why="exp(-log(e)) = 1/e where e > 0.",
             cite="Rudin 1976, ch. 8"),
        Rule("linearity", latex=r"\mathbb{E}_m[c\,a + b] = c\,\mathbb{E}_m[a] + \mathbb{E}_m[b]",
             text="E_m[c a + b] = c E_m[a] + E_m[b] for a constant c", hypotheses="each mean exists",
             why="Means are linear, as factors of products too.", cite="Kolmogorov 1933"),
        Rule("change of measure", latex=r"\mathbb{E}_m[a] = \mathbb{E}_{m'}\!\left[a\,\tfrac{m}{m'}\right]",
             text="E_m[a] = E_m'[a m/m']",
             hypotheses="support of m in m' unless m a vanishes with m',"
             " and of m' in m unless m a vanishes with m",
             why="The same sum, with the weight moved into the integrand.",
             cite="Owen 2013, Monte Carlo theory, methods and examples, ch. 9"),
        Rule("score mean zero", latex=r"\mathbb{E}_q[c\,s_z] = 0",
             text="E_q[c s_z] = 0 for c that does not depend on the slot z; for one sample, a constant c",
             hypotheses="a dominated derivative near theta",
             why="The sum of q over x is 1 for every theta, so its gradient is 0.",
             cite="Williams 1992"),
        Rule("ratio mean one", latex=r"\mathbb{E}_m[c\,(m'/m)_z] = \mathbb{E}_m[c]",
             text="E_m[c (m'/m)_z] = E_m[c] for c that does not depend on the slot z",
             hypotheses="support of m' in m",
             why="A density ratio integrates to the mass of its numerator.",
             cite="Owen 2013, Monte Carlo theory, methods and examples, ch. 9"),
        Rule("normalisation", latex=r"\mathbb{E}_m[c] = c", text="E_m[c] = c for a constant c",
             hypotheses="none",
             why="A probability measure has total mass one.", cite="Kolmogorov 1933"),
        Rule("sum over t", latex=r"V = \sum_t V_t,\quad s = \sum_t s_t", text="V = sum_t V_t, s = sum_t s_t",
             hypotheses="sequences that end",
             why="The log probability of a sequence is the sum of those of its tokens given their prefixes.",
             cite="Sutton et al. 2000, Policy gradient methods"),
        Rule("parts of a sum", latex=r"\sum_u V_u = \sum_{u<t} V_u + V_t + \sum_{u>t} V_u",
             text="sum_u V_u = V_past + V_now + V_future, V a log ratio, a reward, the length or the score",
             hypotheses="each mean exists, if there are several",
             why="At each step a sequence is its past, its present and its future.",
             cite="Sutton et al. 2000, Policy gradient methods"),
        Rule("exchange of sums", latex=r"\sum_t X_t \sum_{u>t} Y_u = \sum_u Y_u \sum_{t<u} X_t",
             text="sum_t X_t sum_{u>t} Y_u = sum_u Y_u sum_{t<u} X_t", hypotheses="none",
             why="The same pairs of steps, summed in the other order.", cite="finite sums"),
        Rule("curl", latex=r"\partial_v F\cdot u - \partial_u F\cdot v = 0 \text{ if } F = \nabla\Phi",
             text="d_v F.u - d_u F.v, which is 0 if F is the gradient of a function of theta",
             hypotheses="a dominated derivative near theta; with bounds Lipschitz terms,"
             " no sample on a bound",
             why="Second derivatives are symmetric, those of log q as well, so that the scores alone remain.",
             cite="Schwarz; Spivak 1965, Calculus on manifolds, ch. 4"),
        Rule("independence", latex=r"\mathbb{E}_m[a(x_i)\,b(x_j)] = \mathbb{E}_m[a]\,\mathbb{E}_m[b]",
             text="E_m[a(self) b(others)] = E_m[a] E_m[b], a sum over n - 1 others n - 1 times its mean",
             hypotheses="independent samples; the moments that are split exist",
             why="The samples of a batch are independent and alike.", cite="Kolmogorov 1933"),
        Rule("equation", latex=r"F = G \Rightarrow A = A + m\,(G - F)",
             text="A = A + m (G - F) for a premise or a theorem F = G; with gradients, if a premise holds for"
             " every theta",
             hypotheses="those of the theorem; for a premise, F = G",
             why="What is proved or assumed may be used.",
             cite="hypothesis of the statement, or the theorem that is cited"),
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
