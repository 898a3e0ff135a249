"""The rules of inference, as data: each is a pure function from an atom to what replaces it.  Trusted.

A rule never searches: its `data` says what to do, and it refuses with the reason when that is
not licensed.  `E` below is an expectation, `s` the score function grad log q, `a` a coefficient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from klsym.errors import Refused
from klsym.normal_form import ONE, ZERO, Exponent, ExpPoly, Number
from klsym.statements import (
    MEASURES,
    PROBABILITIES,
    THETA_FREE,
    Atom,
    Bregman,
    Context,
    Covariance,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Point,
    PointGradient,
    Side,
    attach_name,
    parse_name,
)

Hypothesis = tuple[Any, ...]
Outcome = tuple[Side, set[Hypothesis]]
Data = dict[str, Any]

K1, W, LOG_Q = (ExpPoly.variable(name) for name in ("k1", "w", "log_q"))
# log density of each measure: log p = log q - k1, log mu = log q - w
LOG_DENSITY = {"q": LOG_Q, "p": LOG_Q - K1, "mu": LOG_Q - W, "count": ZERO}


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


# ---------------------------------------------------------------------------- derivatives
@lru_cache(maxsize=4096)
def derivative_of_name(name: str) -> ExpPoly:
    """d/d log q of a sample variable: 1 for k1, w, log q; f' for f; 0 for what is detached or theta-free."""
    parsed = parse_name(name)
    if parsed.detached or parsed.base in THETA_FREE:
        return ZERO
    if parsed.base in ("k1", "w", "log_q"):
        return ONE
    return ExpPoly.variable(name.replace("[", "'[") if "[" in name else name + "'")


def d_log_q(element: ExpPoly, context: Context) -> ExpPoly:
    """The derivative along log q, with sg(.) held constant (chain and product rule)."""
    return element.derive(lambda n: ZERO if n in context.parameters else derivative_of_name(n))


def attach(element: ExpPoly, context: Context) -> ExpPoly:
    """The value of a coefficient: sg(x) is x."""
    return element.rename(lambda n: n if n in context.parameters else attach_name(n))


def density_ratio(over: str, under: str) -> ExpPoly:
    """exp(log over - log under), for example p/q = exp(-k1)."""
    return (LOG_DENSITY[over] - LOG_DENSITY[under]).exp()


# ---------------------------------------------------------------------------- helpers
def _refuse_unless(condition: bool, reason: str) -> None:
    if not condition:
        raise Refused(reason)


def _expect(data: Data, *keys: str) -> None:
    _refuse_unless(set(data) == set(keys), f"data: expected {sorted(keys)}, got {sorted(data)}")


def _split(atom: Atom, data: Data, context: Context) -> tuple[E, Side, set[Hypothesis]]:
    """E_m[a] = E_m[part] + E_m[a - part]: the part a rule works on, the rest, what it costs."""
    _refuse_unless(isinstance(atom, E), f"an expectation expected, got {type(atom).__name__}")
    assert isinstance(atom, E)
    if "part" not in data:
        return atom, Side(), set()
    part = ExpPoly.from_json(data["part"])
    context.check(part)
    chosen = E(atom.measure, part, atom.score)
    if part == atom.coefficient:
        return chosen, Side(), set()
    rest = Side.atom(E(atom.measure, atom.coefficient - part, atom.score))
    if context.is_constant(part):
        return chosen, rest, set()
    return chosen, rest, {("moment", chosen)}


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
    }
    return names[type(atom)]


def _measure(data: Data, key: str) -> str:
    _refuse_unless(data.get(key) in MEASURES, f"{key}: one of {MEASURES} expected, got {data.get(key)!r}")
    return str(data[key])


# ---------------------------------------------------------------------------- the rules
def definition(atom: Atom, data: Data, context: Context) -> Outcome:
    """Unfold a named quantity, also under a gradient."""
    _expect(data)
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
            _refuse_unless(phi.names() <= {"k1"} | set(context.parameters), "phi: a function of r alone")
            at_one, slope = (f.substitute({"k1": ZERO}) for f in (phi, d_log_q(phi, context)))
            return Side.atom(Point(phi - at_one + slope * (density_ratio("p", "q") - 1))), set()
        case Gradient(side):
            unfolded, hypotheses = Side(), set[Hypothesis]()
            for coefficient, atoms in side.terms:
                _refuse_unless(len(atoms) == 1, "gradient: a single quantity expected")
                inner, added = definition(atoms[0], data, context)
                unfolded, hypotheses = unfolded + inner * coefficient, hypotheses | added
            return Side.atom(Gradient(unfolded)), hypotheses
    raise Refused(f"nothing to unfold in {type(atom).__name__}")


def chain_rule(atom: Atom, data: Data, context: Context) -> Outcome:
    _expect(data)
    match atom:
        case ExpectedGradient(m, loss):
            return Side.atom(E(m, d_log_q(loss, context), ("x",))), set()
        case PointGradient(loss):
            return Side.atom(Point(d_log_q(loss, context), ("x",))), set()
    raise Refused(f"a gradient of a loss expected, got {type(atom).__name__}")


def stop_gradient(atom: Atom, data: Data, context: Context) -> Outcome:
    _expect(data)
    match atom:
        case E(m, a, score):
            return Side.atom(E(m, attach(a, context), score)), set()
        case Point(a, score):
            return Side.atom(Point(attach(a, context), score)), set()
    raise Refused(f"sg(.) is dropped in expectations and sample values, not in {_kind(atom)}")


def log_derivative(atom: Atom, data: Data, context: Context) -> Outcome:
    _expect(data)
    match atom:
        case Gradient(Side(((coefficient, (E(m, a, ()),)),))) if m in PROBABILITIES:
            pathwise = Side.of((coefficient, (ExpectedGradient(m, a),)))
            if m == "q":  # only q depends on theta
                return Side.of((coefficient, (E(m, a, ("x",)),))) + pathwise, {("exchange", m)}
            return pathwise, {("exchange", m)}
    raise Refused("the gradient of one expectation under q, p or mu, without score function, expected")


def linearity(atom: Atom, data: Data, context: Context) -> Outcome:
    _expect(data)
    match atom:
        case Gradient(side):
            total = Side()
            for coefficient, atoms in side.terms:
                _refuse_unless(len(atoms) <= 1, "the gradient of a product is not linear")
                if atoms:
                    total = total + Side.of((coefficient, (Gradient(Side.atom(atoms[0])),)))
            return total, set()
    raise Refused(f"a gradient expected, got {type(atom).__name__}")


def change_of_measure(atom: Atom, data: Data, context: Context) -> Outcome:
    _expect(data, *({"to", "part"} & set(data) | {"to"}))
    target = _measure(data, "to")
    part, rest, hypotheses = _split(atom, data, context)
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
    _expect(data, *({"part"} & set(data)))
    part, rest, hypotheses = _split(atom, data, context)
    _refuse_unless(part.measure == "q", f"E_m[s] = 0 needs m = q, got m = {part.measure}")
    _refuse_unless(part.score == ("x",), f"one score function expected, got {list(part.score)}")
    _refuse_unless(context.is_constant(part.coefficient), "the coefficient depends on the sample")
    return rest, hypotheses | {("exchange", "q")}


def normalisation(atom: Atom, data: Data, context: Context) -> Outcome:
    _expect(data, *({"part"} & set(data)))
    part, rest, hypotheses = _split(atom, data, context)
    _refuse_unless(part.measure in PROBABILITIES, "the counting measure has no total mass one")
    _refuse_unless(part.score == (), "no score function expected")
    _refuse_unless(context.is_constant(part.coefficient), "the coefficient depends on the sample")
    return Side.constant(part.coefficient) + rest, hypotheses


def ratio_mean_one(atom: Atom, data: Data, context: Context) -> Outcome:
    """Redundant (change of measure, then normalisation); kept because papers use it as one step."""
    _expect(data, *({"of", "part"} & set(data) | {"of"}))
    other = _measure(data, "of")
    part, rest, hypotheses = _split(atom, data, context)
    _refuse_unless({part.measure, other} <= set(PROBABILITIES), "two probability measures expected")
    _refuse_unless(part.score == (), "no score function expected")
    scale = part.coefficient * density_ratio(part.measure, other)
    _refuse_unless(context.is_constant(scale), f"not a constant multiple of {other}/{part.measure}")
    return Side.constant(scale) + rest, hypotheses | {("support", other, part.measure)}


def on_policy(atom: Atom, data: Data, context: Context) -> Outcome:
    _expect(data)
    _refuse_unless(context.on_policy, "the statement does not say that the sampler is q")
    match atom:
        case E(m, a, score) if m in PROBABILITIES:
            return Side.atom(E("q" if m == "mu" else m, _at(a, context), score)), {("on-policy",)}
        case Point(a, score):
            return Side.atom(Point(_at(a, context), score)), {("on-policy",)}
    raise Refused(f"an expectation under q, p or mu expected, got {_kind(atom)}")


def _at(a: ExpPoly, context: Context) -> ExpPoly:
    return attach(a, context).substitute({"w": ZERO})


def given(atom: Atom, data: Data, context: Context) -> Outcome:
    _expect(data)
    _refuse_unless(bool(context.given), "the statement is given no values")
    values, used = dict(context.given), {("given",)}
    match atom:
        case E(m, a, score):
            return Side.atom(E(m, attach(a, context).substitute(values), score)), used
        case Point(a, score):
            return Side.atom(Point(attach(a, context).substitute(values), score)), used
    raise Refused(f"values are put into expectations and sample values, not into {_kind(atom)}")


def premise(atom: Atom, data: Data, context: Context) -> Outcome:
    _expect(data, "number")
    number = data["number"]
    _refuse_unless(type(number) is int and 0 <= number < len(context.premises), "no such premise")
    left, right = context.premises[number]
    if atom == Gradient(left):
        return Side.atom(Gradient(right)), {("premise", number)}
    if Side.atom(atom) == left:
        return right, {("premise", number)}
    raise Refused(f"premise {number} speaks of something else")


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
        Rule("score mean zero", r"\mathbb{E}_q[c\,s] = 0", "E_q[c s] = 0 for a constant c",
             "a dominated derivative near theta",
             "The sum of q over x is 1 for every theta, so its gradient is 0.",
             "Williams 1992", score_mean_zero),
        Rule("normalisation", r"\mathbb{E}_m[c] = c", "E_m[c] = c for a constant c", "none",
             "A probability measure has total mass one.", "Kolmogorov 1933", normalisation),
        Rule("ratio mean one", r"\mathbb{E}_m[c\,m'/m] = c", "E_m[c m'/m] = c for a constant c",
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
    )
}  # fmt: skip
