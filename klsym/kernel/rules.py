"""The rules of inference, as data: each is a pure function from an atom to what replaces it.  Trusted.

A rule never searches: its `data` says what to do, and it refuses with the reason when that is
not licensed.  `E` below is an expectation, `s` the score function grad log q, `a` a coefficient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from klsym.errors import Refused
from klsym.kernel import batches, indexed
from klsym.kernel.derivatives import (
    LOG_DENSITY,
    Data,
    Hypothesis,
    Outcome,
    attach,
    d_log_q,
    density_ratio,
    expect,
    measure_in,
    refuse_unless,
)
from klsym.names import PROBABILITIES, SAMPLE, WHOLE, parse_name
from klsym.normal_form import ZERO, Exponent, ExpPoly, Number
from klsym.slots import SLOTS
from klsym.statements import (
    Atom,
    Bregman,
    Context,
    Covariance,
    Curl,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Indexed,
    IndexedGradient,
    Linear,
    MeanVariance,
    Point,
    PointGradient,
    Side,
    TokenDivergence,
)


@dataclass(frozen=True)
class Rule:
    """One rule: its name, the equation in LaTeX and in text, what it assumes, why it holds, a citation."""

    name: str
    latex: str
    text: str
    hypotheses: str
    why: str
    cite: str
    apply: Callable[[Atom, Data, Context], Outcome]


# ---------------------------------------------------------------------------- helpers
Mean = E | Indexed


def _split(atom: Atom, data: Data, context: Context) -> tuple[Mean, Side, set[Hypothesis]]:
    """E_m[a] = E_m[part] + E_m[a - part]: the part a rule works on, the rest, what it costs."""
    refuse_unless(isinstance(atom, Mean), f"an expectation expected, got {type(atom).__name__}")
    assert isinstance(atom, Mean)
    if "part" not in data:
        return atom, Side(), set()
    part = ExpPoly.from_json(data["part"])
    context.check(part, SLOTS[atom.index] if isinstance(atom, Indexed) else WHOLE)
    chosen = replace(atom, coefficient=part)
    if part == atom.coefficient:
        return chosen, Side(), set()
    rest = Side.atom(replace(atom, coefficient=atom.coefficient - part))
    if (context.is_constant(part) and not _is_sum(atom)) or atom.measure == SAMPLE:
        return chosen, rest, set()
    return chosen, rest, {("moment", chosen)}


def _is_sum(atom: Mean) -> bool:
    """Is it a sum over t?  Then the mean of a constant is one of the length, and need not exist."""
    return isinstance(atom, Indexed) and "t" in atom.index


def _of_samples(part: Mean) -> E:
    refuse_unless(isinstance(part, E), "an expectation over single samples expected")
    assert isinstance(part, E)
    return part


def _kind(atom: Atom) -> str:
    names = {
        E: "one under the counting measure",
        Point: "a sample value",
        Gradient: "a gradient",
        ExpectedGradient: "the gradient of a loss",
        PointGradient: "the gradient of a loss",
        Covariance: "a covariance",
        Divergence: "a divergence",
        Bregman: "a Bregman divergence",
        Indexed: "a value at an index",
        IndexedGradient: "the gradient of a loss at an index",
        TokenDivergence: "a sum of next-token divergences",
        Curl: "the curl of a field",
        MeanVariance: "the variance of a mean",
    }
    return names[type(atom)]


# ---------------------------------------------------------------------------- the rules
def definition(atom: Atom, data: Data, context: Context) -> Outcome:
    """Unfold a named quantity, also under a gradient."""
    expect(data)
    match atom:
        case Divergence("KL", a, b):  # E_a[log a/b]
            return Side.atom(E(a, LOG_DENSITY[a] - LOG_DENSITY[b])), {("support", a, b)}
        case Divergence("chi2", a, b):  # E_b[(a/b - 1)^2]
            return Side.atom(E(b, (density_ratio(a, b) - 1) ** 2)), {("support", a, b)}
        case Divergence("J", a, b):  # KL(a||b) + KL(b||a)
            first, second = Divergence("KL", a, b), Divergence("KL", b, a)
            return Side.of((1, (first,)), (1, (second,))), set()
        case Covariance(m, a, b):  # E[ab] - E[a]E[b]
            product = (E(m, a), E(m, b))
            moments = {("moment", E(m, a)), ("moment", E(m, b))}
            return Side.of((1, (E(m, a * b),)), (-1, product)), moments
        case Bregman(phi):  # with r = exp(-k1): phi'(1) = -dphi/dk1 at k1 = 0
            refuse_unless(phi.names() <= {"k1"} | set(context.parameters), "phi: a function of r alone")
            at_one, slope = (f.substitute({"k1": ZERO}) for f in (phi, d_log_q(phi, context)))
            return Side.atom(Point(phi - at_one + slope * (density_ratio("p", "q") - 1))), set()
        case Gradient(side):
            unfolded, hypotheses = Side(), set[Hypothesis]()
            for coefficient, atoms in side.terms:
                refuse_unless(len(atoms) == 1, "gradient: a single quantity expected")
                inner, added = definition(atoms[0], data, context)
                unfolded, hypotheses = unfolded + inner * coefficient, hypotheses | added
            return Side.atom(Gradient(unfolded)), hypotheses
    raise Refused(f"nothing to unfold in {type(atom).__name__}")


def chain_rule(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data)
    match atom:
        case ExpectedGradient(m, loss):
            return Side.atom(E(m, d_log_q(loss, context), ("x",))), set()
        case PointGradient(loss):
            return Side.atom(Point(d_log_q(loss, context), ("x",))), set()
        case IndexedGradient():
            return indexed.chain_rule(atom, context)
    raise Refused(f"a gradient of a loss expected, got {type(atom).__name__}")


def stop_gradient(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data)
    if isinstance(atom, Linear):
        return Side.atom(replace(atom, coefficient=attach(atom.coefficient, context))), set()
    raise Refused(f"sg(.) is dropped in expectations and sample values, not in {_kind(atom)}")


def log_derivative(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data)
    match atom:
        case Gradient(Side(((coefficient, (E(m, a, ()),)),))) if m in PROBABILITIES:
            pathwise = Side.of((coefficient, (ExpectedGradient(m, a),)))
            if m == "q":  # only q depends on theta
                return Side.of((coefficient, (E(m, a, ("x",)),))) + pathwise, {("exchange", m)}
            return pathwise, {("exchange", m)}
        case Gradient(Side(((coefficient, (Indexed(_, m, _, ()) as mean,)),))) if m in PROBABILITIES:
            value, assumed = indexed.log_derivative(mean)
            return value * coefficient, assumed
    raise Refused("the gradient of one expectation under q, p or mu, without score function, expected")


def linearity(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data)
    match atom:
        case Gradient(side):
            total = Side()
            for coefficient, atoms in side.terms:
                refuse_unless(len(atoms) <= 1, "the gradient of a product is not linear")
                if atoms:
                    total = total + Side.of((coefficient, (Gradient(Side.atom(atoms[0])),)))
            return total, set()
    raise Refused(f"a gradient expected, got {type(atom).__name__}")


def change_of_measure(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data, *({"to", "part"} & set(data) | {"to"}))
    target = measure_in(data, "to")
    part, rest, hypotheses = _split(atom, data, context)
    if isinstance(part, Indexed):
        value, assumed = indexed.change_of_measure(part, target, context)
        return value + rest, hypotheses | assumed
    moved = E(target, part.coefficient * density_ratio(part.measure, target), part.score)
    if target != "count":
        hypotheses = hypotheses | {("support", part.measure, target)}
    if target != part.measure and not _fades(part, context):
        hypotheses = hypotheses | {("support", target, part.measure)}
    return Side.atom(moved) + rest, hypotheses


def _fades(part: E, context: Context) -> bool:
    """Does m a vanish where m does, and nothing else?  Then E_m[a] has no share there after the move.

    Each term of a is a polynomial in logs times q^i p^j mu^k with powers from its exponent; m^(n + 1) times
    powers of log m tends to 0 for n > -1.  E_mu[rho a] = E_q[a], n = -1, needs q << mu.
    """
    if part.measure == "count":
        return True
    for monomial, exponent in part.coefficient.terms:
        bases = {n if n in context.parameters else parse_name(n).base for n, _ in monomial}
        power = _power(part.measure, exponent, context)
        if bases & set(context.function_arguments) or power is None or power <= -1:
            return False
    return True


def _power(measure: str, exponent: Exponent, context: Context) -> Number | None:
    """The power of a density in exp(exponent); None where it depends on parameters or is no power."""
    total: Number = 0
    for monomial, value in exponent:
        if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0] in context.parameters:
            if any(n not in context.parameters for n, _ in monomial):
                return None
            continue  # a constant factor
        name = parse_name(monomial[0][0]).base
        shares = {"k1": ("q", "p"), "w": ("q", "mu"), "log_q": ("q",)}.get(name)
        if shares is None:
            return None
        total += value * (1 if measure == shares[0] else -1 if measure in shares else 0)
    return total


def score_mean_zero(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data, *({"part", "slot"} & set(data)))
    split, rest, hypotheses = _split(atom, data, context)
    if "slot" in data:
        refuse_unless(isinstance(split, Indexed), "slot: a mean over a batch or sequence expected")
        assert isinstance(split, Indexed)
        return rest, hypotheses | indexed.score_mean_zero(split, data["slot"], context)
    part = _of_samples(split)
    refuse_unless(part.measure == "q", f"E_m[s] = 0 needs m = q, got m = {part.measure}")
    refuse_unless(part.score == ("x",), f"one score function expected, got {list(part.score)}")
    refuse_unless(context.is_constant(part.coefficient), "the coefficient depends on the sample")
    return rest, hypotheses | {("exchange", "q")}


def normalisation(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data, *({"part"} & set(data)))
    split, rest, hypotheses = _split(atom, data, context)
    part = _of_samples(split)
    refuse_unless(part.measure in PROBABILITIES, "the counting measure has no total mass one")
    refuse_unless(part.score == (), "no score function expected")
    refuse_unless(context.is_constant(part.coefficient), "the coefficient depends on the sample")
    return Side.constant(part.coefficient) + rest, hypotheses


def ratio_mean_one(atom: Atom, data: Data, context: Context) -> Outcome:
    """Redundant (change of measure, then normalisation); kept because papers use it as one step."""
    expect(data, *({"of", "part", "slot"} & set(data) | {"of"}))
    other = measure_in(data, "of")
    split, rest, hypotheses = _split(atom, data, context)
    if "slot" in data:
        refuse_unless(isinstance(split, Indexed), "slot: a mean over a batch or sequence expected")
        assert isinstance(split, Indexed)
        value, assumed = indexed.ratio_mean_one(split, other, data["slot"], context)
        return value + rest, hypotheses | assumed
    part = _of_samples(split)
    refuse_unless({part.measure, other} <= set(PROBABILITIES), "two probability measures expected")
    refuse_unless(part.score == (), "no score function expected")
    scale = part.coefficient * density_ratio(part.measure, other)
    refuse_unless(context.is_constant(scale), f"not a constant multiple of {other}/{part.measure}")
    return Side.constant(scale) + rest, hypotheses | {("support", other, part.measure)}


def on_policy(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data)
    refuse_unless(context.on_policy, "the statement does not say that the sampler is q")
    match atom:
        case E(m, a, score) if m in PROBABILITIES:
            return Side.atom(E("q" if m == "mu" else m, _at(a, context), score)), {("on-policy",)}
        case Point(a, score):
            return Side.atom(Point(_at(a, context), score)), {("on-policy",)}
        case Indexed():
            return Side.atom(indexed.on_policy(atom, context)), {("on-policy",)}
    raise Refused(f"an expectation under q, p or mu expected, got {_kind(atom)}")


def _at(a: ExpPoly, context: Context) -> ExpPoly:
    return attach(a, context).substitute({"w": ZERO})


def given(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data)
    refuse_unless(bool(context.given), "the statement is given no values")
    at_step = isinstance(atom, Indexed) and "t" in atom.index
    values = {name: value for name, value in context.given if ("[" in name) == at_step}
    used: set[Hypothesis] = {("given",)}
    match atom:
        case E(m, a, score):
            return Side.atom(E(m, attach(a, context).substitute(values), score)), used
        case Point(a, score):
            return Side.atom(Point(attach(a, context).substitute(values), score)), used
        case Indexed(index, m, a, score) if at_step:
            return Side.atom(Indexed(index, m, attach(a, context).substitute(values), score)), used
    raise Refused(f"values are put into expectations and sample values, not into {_kind(atom)}")


def premise(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data, "number")
    number = data["number"]
    refuse_unless(type(number) is int and 0 <= number < len(context.premises), "no such premise")
    left, right = context.premises[number]
    if atom == Gradient(left):
        return Side.atom(Gradient(right)), {("premise", number)}
    if Side.atom(atom) == left:
        return right, {("premise", number)}
    raise Refused(f"premise {number} speaks of something else")


def sum_over_t(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data, *({"part"} & set(data) | {"of"}))
    if isinstance(atom, Point):
        refuse_unless("part" not in data, "part: a sample value is taken whole")
        return indexed.sum_over_t(atom, data["of"]), set()
    part, rest, hypotheses = _split(atom, data, context)
    return indexed.sum_over_t(_of_samples(part), data["of"]) + rest, hypotheses


def parts_of_a_sum(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data, *({"part"} & set(data) | {"of"}))
    part, rest, hypotheses = _split(atom, data, context)
    if not isinstance(part, Indexed):
        raise Refused(f"a sum over t expected, got {type(atom).__name__}")
    value, assumed = indexed.parts(part, data["of"])
    return value + rest, hypotheses | assumed


def exchange_of_sums(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data, *({"part"} & set(data) | {"now", "other", "slot"}))
    part, rest, hypotheses = _split(atom, data, context)
    if not isinstance(part, Indexed):
        raise Refused(f"a sum over t expected, got {type(atom).__name__}")
    return indexed.exchange_sums(part, data, context) + rest, hypotheses


def independence(atom: Atom, data: Data, context: Context) -> Outcome:
    expect(data, *({"part"} & set(data)))
    part, rest, hypotheses = _split(atom, data, context)
    if not isinstance(part, Indexed):
        raise Refused(f"a mean over a batch expected, got {type(atom).__name__}")
    value, assumed = batches.independence(part, context)
    return value + rest, hypotheses | assumed


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("definition", r"\mathrm{KL}(a\Vert b) := \mathbb{E}_a[\log a/b]",
             "KL(a||b) := E_a[log a/b], and likewise chi2, J, Cov, D_phi",
             "support of a in b; the moments of a covariance",
             "A named quantity is what it abbreviates.",
             "Cover & Thomas 2006, Elements of Information Theory, ch. 2", definition),
        Rule("chain rule", r"\nabla L = \frac{\partial L}{\partial \log q}\, s",
             "grad L = (dL/dlog q) s", "none",
             "theta enters a loss through log q alone, and sg(.) is held constant.",
             "Schulman et al. 2015, Stochastic computation graphs", chain_rule),
        Rule("stop-gradient", r"\mathrm{sg}(x) = x", "sg(x) = x", "none",
             "Outside a gradient a detached quantity has its ordinary value.",
             "Foerster et al. 2018, DiCE", stop_gradient),
        Rule("log-derivative", r"\nabla\mathbb{E}_q[a] = \mathbb{E}_q[a\,s] + \mathbb{E}_q[\nabla a]",
             "grad E_q[a] = E_q[a s] + E_q[grad a]; grad E_m[a] = E_m[grad a] for m = p, mu",
             "a dominated derivative near theta",
             "grad q = q s, and p and mu do not depend on theta.",
             "Williams 1992; Glasserman 2004, ch. 7", log_derivative),
        Rule("linearity", r"\nabla(c\,F + G) = c\,\nabla F + \nabla G",
             "grad(c F + G) = c grad F + grad G", "none",
             "Gradients are linear, and constants have none.", "calculus", linearity),
        Rule("change of measure", r"\mathbb{E}_m[a] = \mathbb{E}_{m'}\!\left[a\,\tfrac{m}{m'}\right]",
             "E_m[a] = E_m'[a m/m']",
             "support of m in m', and of m' in m unless m a vanishes with m",
             "The same sum, with the weight moved into the integrand.",
             "Owen 2013, Monte Carlo theory, methods and examples, ch. 9", change_of_measure),
        Rule("score mean zero", r"\mathbb{E}_q[c\,s] = 0",
             "E_q[c s] = 0 for a constant c; at an index, for c that does not depend on the slot of s",
             "a dominated derivative near theta",
             "The sum of q over x is 1 for every theta, so its gradient is 0.",
             "Williams 1992", score_mean_zero),
        Rule("normalisation", r"\mathbb{E}_m[c] = c", "E_m[c] = c for a constant c", "none",
             "A probability measure has total mass one.", "Kolmogorov 1933", normalisation),
        Rule("ratio mean one", r"\mathbb{E}_m[c\,m'/m] = c",
             "E_m[c m'/m] = c for a constant c; at an index, E_m[c] for c that does not depend on its slot",
             "support of m' in m",
             "A density ratio integrates to the mass of its numerator.",
             "Owen 2013, Monte Carlo theory, methods and examples, ch. 9", ratio_mean_one),
        Rule("on-policy", r"\mu = \mathrm{sg}(q) \Rightarrow w = 0,\ \rho = 1",
             "mu = sg(q): E_mu = E_q and rho = 1", "the sampler is q itself, not differentiated",
             "Once differentiated, the sampler is q itself and the weight is 1.",
             "Wang & Zhang 2025, sec. 2.1", on_policy),
        Rule("given", r"x = x_0", "x = x_0", "what the statement gives",
             "The statement gives the value at every sample.", "hypothesis of the statement", given),
        Rule("premise", r"F = G \Rightarrow \nabla F = \nabla G", "F = G implies grad F = grad G",
             "F = G for every theta",
             "Two functionals that agree for every theta have the same gradient.",
             "hypothesis of the statement", premise),
        Rule("sum over t", r"V = \sum_t V_t,\quad s = \sum_t s_t", "V = sum_t V_t, s = sum_t s_t", "none",
             "The log probability of a sequence is the sum of those of its tokens given their prefixes.",
             "Sutton et al. 2000, Policy gradient methods", sum_over_t),
        Rule("parts of a sum", r"\sum_u V_u = \sum_{u<t} V_u + V_t + \sum_{u>t} V_u",
             "sum_u V_u = V_past + V_now + V_future, V a log ratio, a reward, the length or the score",
             "none",
             "At each step a sequence is its past, its present and its future.",
             "Sutton et al. 2000, Policy gradient methods", parts_of_a_sum),
        Rule("exchange of sums", r"\sum_t X_t \sum_{u>t} Y_u = \sum_u Y_u \sum_{t<u} X_t",
             "sum_t X_t sum_{u>t} Y_u = sum_u Y_u sum_{t<u} X_t", "none",
             "The same pairs of steps, summed in the other order.", "finite sums", exchange_of_sums),
        Rule("tower", r"\mathbb{E}_m\!\left[\sum_t \mathbb{E}_a[f_t \mid y_{<t}]\right]"
             r" = \mathbb{E}_m\!\left[\sum_t \tfrac{a_t}{m_t} f_t\right]",
             "E_m[sum_t E_a[f_t | y_<t]] = E_m[sum_t (a_t/m_t) f_t]",
             "support of a in m and of m in a at each prefix; sequences that end",
             "Averaging over a token given its prefix, then over prefixes, is averaging over both.",
             "Williams 1991, Probability with martingales, ch. 9", indexed.tower),
        Rule("independence", r"\mathbb{E}_m[a(x_i)\,b(x_j)] = \mathbb{E}_m[a]\,\mathbb{E}_m[b]",
             "E_m[a(self) b(others)] = E_m[a] E_m[b], a sum over n - 1 others n - 1 times its mean",
             "independent samples; the moments that are split exist",
             "The samples of a batch are independent and alike.", "Kolmogorov 1933", independence),
        Rule("variance of a mean", r"\mathrm{Var}\!\left(\tfrac1n\sum_i X_i\right)"
             r" = \tfrac1n\mathbb{E}[X_i^2] + \left(1-\tfrac1n\right)\mathbb{E}[X_i X_j] - \mathbb{E}[X_i]^2",
             "Var(mean_i X_i) = E[X_i^2]/n + (1 - 1/n) E[X_i X_j] - E[X_i]^2",
             "independent samples; second moments",
             "Of the n^2 pairs of terms, n are squares and all others alike.",
             "Hoeffding 1948, A class of statistics with asymptotically normal distribution",
             batches.variance_of_a_mean),
        Rule("curl", r"\partial_v F\cdot u - \partial_u F\cdot v = 0 \text{ if } F = \nabla\Phi",
             "d_v F.u - d_u F.v, which is 0 if F is the gradient of a function of theta",
             "a dominated derivative near theta",
             "Second derivatives are symmetric, those of log q as well, so that the scores alone remain.",
             "Schwarz; Spivak 1965, Calculus on manifolds, ch. 4", indexed.curl),
    )
}  # fmt: skip
