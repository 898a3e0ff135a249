"""The crib sheets and rating tables of the sources, cell by cell from theorems.

Each cell quotes the kernel's theorem that the ledger has on it; what the theorem says is judged once more
from the definitions.  Sources: WZ1, WZ2 = Wang & Zhang 2025 (two versions).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from klsym.api import compare
from klsym.calculus import (
    KL,
    covariance,
    derive,
    expectation,
    expected_gradient,
    grad,
    k1,
    k2,
    k3,
    mu,
    p,
    q,
    r,
    rho,
    s,
    sg,
)
from klsym.errors import ProofError
from klsym.notation.losses import show
from klsym.notation.printers import LATEX, TEXT
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim, load
from klsym.study.ledger.settle_claim import recall

KLS = {"reverse": ((q, p), "KL(q||p)"), "forward": ((p, q), "KL(p||q)")}
ON, OFF = "on-policy", "off-policy"


@dataclass(frozen=True)
class Cell:
    """What a source writes for a KL, as a value, a loss or a reward, and the claim that speaks of it.

    advised: does the source call it right?
    """

    kl: str
    sampling: str
    use: str
    loss: Any
    claim: str
    advised: bool = True

    @property
    def under(self):
        return q if self.sampling == ON else mu

    @property
    def question(self):
        """What is asked about: a mean, or an expected gradient."""
        if self.use == "value":
            return expectation(self.loss, under=self.under)
        if self.use == "loss":
            return expected_gradient(self.loss, under=self.under)
        weight = rho if self.loss.has(rho) else 1
        return expectation(weight * s * sg(self.loss / weight), under=self.under)

    @property
    def theorem(self):
        """The theorem of the claim on it; an equation that is proved before one that is refuted."""
        found = [x for x in recall(self.claim).proofs if x.theorem.statement.left == self.question.side]
        if not found:
            raise ProofError(f"{self.claim} says nothing of {self.question}")
        return min(found, key=lambda proof: proof.kind == "refuted")

    @property
    def wanted(self):
        divergence = KL(*KLS[self.kl][0])
        return (divergence if self.use == "value" else grad(divergence)).side

    @property
    def right(self):
        """Is what was asked for what the theorem says?"""
        proof = self.theorem
        return proof.kind == "proved" and proof.theorem.statement.right == self.wanted


# the crib sheet of the first version, and its one-liners on losses
SHEET = (
    Cell("reverse", ON, "value", k1, "value.k1-unbiased"),
    Cell("reverse", ON, "value", k3, "value.k3-unbiased"),
    Cell("reverse", ON, "loss", k2, "gradient.k2-loss"),
    Cell("reverse", OFF, "value", rho * k1, "value.offpolicy-weighted"),
    Cell("reverse", OFF, "value", rho * k3, "value.offpolicy-weighted"),
    Cell("reverse", OFF, "loss", rho * k3, "offpolicy.rho-k3"),
    Cell("reverse", OFF, "loss", sg(rho) * k2, "offpolicy.sg-rho-k2"),
    Cell("reverse", OFF, "loss", rho * k1, "offpolicy.rho-k1"),
    Cell("forward", ON, "value", -r * k1, "value.forward-by-importance"),
    Cell("forward", ON, "loss", k3, "gradient.k3-loss"),
)
# its practice guide on rewards
ADVICE = (
    Cell("reverse", ON, "reward", k1, "reward.k1"),
    Cell("reverse", ON, "reward", k3, "practice.reward-k3-advised"),
    Cell("reverse", OFF, "reward", rho * k1, "reward.offpolicy"),
    Cell("forward", ON, "reward", -r * k1, "practice.reward-forward"),
)
# the rows of the three rating tables: those that are advised, and those that are not
RATED = (
    Cell("reverse", ON, "value", k1, "value.k1-unbiased"),
    Cell("reverse", ON, "value", k2, "value.k2-biased", advised=False),
    Cell("reverse", ON, "value", k3, "value.k3-unbiased"),
    Cell("reverse", ON, "loss", k1, "gradient.k1-loss", advised=False),
    Cell("reverse", ON, "loss", k2, "gradient.k2-loss"),
    Cell("reverse", ON, "loss", k3, "gradient.k3-loss", advised=False),
    Cell("reverse", OFF, "loss", rho * k1, "offpolicy.rho-k1"),
    Cell("reverse", OFF, "loss", rho * k2, "offpolicy.rho-k2", advised=False),
    Cell("reverse", OFF, "loss", sg(rho) * k2, "offpolicy.sg-rho-k2"),
    Cell("reverse", OFF, "loss", rho * k3, "offpolicy.rho-k3"),
    Cell("reverse", ON, "reward", k1, "reward.k1"),
    Cell("reverse", ON, "reward", k2, "reward.k2", advised=False),
    Cell("reverse", ON, "reward", k3, "reward.k3", advised=False),
    Cell("reverse", OFF, "reward", rho * k1, "reward.offpolicy"),
)
WRONG_ADVICE = {"practice.reward-k3-advised", "practice.reward-forward"}


@claim("practice.wz1-crib-sheet", verdict="computed", source="WZ1 crib sheet, practice guide")
def the_crib_sheet():
    """The crib sheet is right throughout. Two pieces of advice on rewards are refuted, k3 and r log r."""
    right, wrong = sum(cell.right for cell in SHEET), [cell.claim for cell in ADVICE if not cell.right]
    count = f"{right} of {len(SHEET)} cells of the crib sheet are right"
    return *map(_cell, (*SHEET, *ADVICE)), Evidence(
        "computed",
        f"{count}; of {len(ADVICE)} pieces of advice on rewards, those of {' and '.join(wrong)} are not",
        rf"\text{{{count}}}",
        "sympy",
        oracle=lambda: _counted((*SHEET, *ADVICE)),
        holds=right == len(SHEET) and set(wrong) == WRONG_ADVICE,
    )


@claim("practice.wz2-ratings", verdict="computed", source="WZ2 9.1-9.3")
def the_ratings():
    """Every rating of a target and of a bias is right; each rating of a variance holds in a region."""
    return (*(_cell(cell) for cell in RATED), *_gradient_variances(), _value_region(), _value_models())


def _cell(cell):
    """One cell beside its theorem; what the source says is whether it is to be used."""
    shown, proof = show(cell.loss, TEXT), cell.theorem
    where = (
        f"{cell.sampling}, {'as a' if cell.use == 'loss' else 'in the' if cell.use == 'reward' else 'as a'}"
    )
    name, later = KLS[cell.kl][1], load()[cell.claim].later
    verdict = "right" if cell.right else "wrong"
    return Evidence(
        "computed",
        f"{name}, {where} {cell.use}: {shown} is {verdict}: {proof!r} (kernel, {cell.claim})",
        rf"{show(cell.loss, LATEX)}\ \text{{for {name}, {where} {cell.use}: {verdict}}}",
        "sympy",
        oracle=lambda: _counted((cell,)),
        source_says=f"{'use it' if cell.advised else 'do not use it'}"
        f" ({'as' if cell.right == cell.advised else 'not what'} klsym finds{later and f'; {later}'})",
        advice=cell.right == cell.advised,
    )


# ---------------------------------------------------------------------------- ratings by variance
def _gradient_variances():
    """rho k1 against rho k3 and sg(rho) k2, off-policy, and against k2 on-policy: as `compare` proves it."""
    pairs = ((OFF, "rho*k3", "rho*k1"), (OFF, "sg(rho)*k2", "rho*k1"), (ON, "k2", "rho*k1"))
    return tuple(_order(*pair) for pair in pairs)


def _order(sampling, low, high):
    found = compare(low, high, sampling=sampling).variance
    region = found.where.partition(" wherever ")[0]
    outside = found.witness(found.b_less)
    model = ", ".join(
        f"{name} = ({', '.join(outside[name])})" for name in ("q", "p", "mu") if name in outside
    )
    return Evidence(
        "computed",
        f"{sampling}: the gradient of {low} varies no more than that of {high} where {region}"
        f" (kernel{', variance.sufficient-region' if sampling == OFF else ''}); at {model} it varies more"
        " (kernel)",
        rf"\text{{{sampling}: Var of {low} is at most that of {high} where {region}}}",
        "sympy",
        oracle=lambda: _ordered(sampling, low, high, outside),
        holds=found.exact and found.regional_lower == "A" and found.b_less is not None,
        source_says=f"{low} has the lower variance (in a region)",
    )


def _value_region():
    """k3^2 - k1^2 = (r - 1)(r - 1 - 2 log r); the second factor is convex, and below 0 between its zeros."""
    x = sympy.Symbol("x", positive=True)
    gap = x - 1 - 2 * sympy.log(x)
    edge = -2 * sympy.LambertW(-sympy.exp(sympy.Rational(-1, 2)) / 2, -1)
    same = sympy.expand((x - 1 - sympy.log(x)) ** 2 - sympy.log(x) ** 2 - (x - 1) * gap) == 0
    zero = sympy.simplify(gap.subs(x, edge).evalf(30)) < sympy.Rational(1, 10**25)
    convex = bool(sympy.diff(gap, x, 2).is_positive) and gap.subs(x, 1) == 0 and gap.subs(x, 2) < 0
    shown = f"{float(edge):.4f}"
    return Evidence(
        "computed",
        f"on-policy: the value k3 varies no more than k1 where r <= {shown}, the greater root of"
        " r - 1 = 2 log r",
        rf"\mathrm{{Var}}\,k_3 \le \mathrm{{Var}}\,k_1 \quad\text{{where}}\quad r \le {shown},"
        r"\quad r - 1 = 2\log r",
        "sympy",
        ("both have the mean KL(q||p), so the variances differ by E_q[k3^2 - k1^2]",),
        lambda: _values_in_the_region(float(edge)),
        (("in r = x", f"k_3^2 - k_1^2 = (x - 1)\\,({sympy.latex(gap)})"),),
        bool(same and zero and convex),
        source_says="k3 has the lower variance (in a region)",
    )  # fmt: skip


def _value_models():
    """Neither k2 nor k3 has the lower variance in every model: kernel refutations both ways."""
    found = []
    for estimator in (k2, k3):
        ours, theirs = (covariance(x, x, under=q) for x in (estimator, k1))
        found += [derive(a).differs_from(b, relation="<=") for a, b in ((ours, theirs), (theirs, ours))]
    return Evidence(
        "computed",
        "on-policy: k2 and k3 vary less than k1 in some models and more in others (kernel, a model each)",
        r"\text{neither } k_2 \text{ nor } k_3 \text{ varies less than } k_1 \text{ in every model}",
        "sympy",
        oracle=_values_both_ways,
        holds=all(proof.kind == "refuted" for proof in found),
        source_says="k2 and k3 have a low variance, k1 a high one (in a region)",
    )  # fmt: skip


# ---------------------------------------------------------------------------- from the definitions
class Literal:
    """The estimators at log q + i h d, where what is detached stays at log q."""

    def __init__(self, log_q, log_p, log_mu, fixed):
        self.k1, self.w = log_q - log_p, log_q - log_mu
        self.held, self.r = np.exp(fixed - log_mu), np.exp(log_p - log_q)
        self.rho, self.k2 = np.exp(self.w), self.k1**2 / 2
        self.k3 = self.r - 1 + self.k1


LITERAL = {
    "k1": lambda x: x.k1,
    "k2": lambda x: x.k2,
    "k3": lambda x: x.k3,
    "rho*k1": lambda x: x.rho * x.k1,
    "rho*k2": lambda x: x.rho * x.k2,
    "rho*k3": lambda x: x.rho * x.k3,
    "sg(rho)*k2": lambda x: x.held * x.k2,
    "-k1*r": lambda x: -x.r * x.k1,
}
STEP, MODELS = 1e-30, 12


def _models():
    for seed in range(MODELS):
        logits = np.random.default_rng(seed).normal(size=(4, 4))
        yield (*(row - np.log(np.exp(row).sum()) for row in logits[:3]), logits[3])


def _misses(cell, log_q, log_p, log_mu, u):
    """How far a mean or an expected gradient along u is from that of the divergence."""
    q_, p_ = np.exp(log_q), np.exp(log_p)
    score = u - q_ @ u
    sampler = log_q if cell.sampling == ON else log_mu
    loss, mass = LITERAL[show(cell.loss, TEXT)], np.exp(sampler)
    plain = loss(Literal(log_q, log_p, sampler, log_q))
    if cell.use == "value":
        exact = q_ @ (log_q - log_p) if cell.kl == "reverse" else p_ @ (log_p - log_q)
        return abs(mass @ plain - exact)
    moved = np.imag(loss(Literal(log_q + 1j * STEP * score, log_p, sampler, log_q))) / STEP
    field = mass @ (moved if cell.use == "loss" else plain * score)
    exact = q_ @ ((log_q - log_p) * score) if cell.kl == "reverse" else -(p_ @ score)
    return abs(field - exact)


def _counted(cells):
    """Is each right cell right, and each wrong one wrong, by the definitions?"""
    worst, least = 0.0, float("inf")
    for cell in cells:
        off = max(_misses(cell, *model) for model in _models())
        worst, least = (max(worst, off), least) if cell.right else (worst, min(least, off))
    text = f"{MODELS} models, by the definitions: right cells within {worst:.1e}"
    return worst < 1e-12 and least > 1e-3, text + (f", wrong ones off by {least:.1e}" if least < 1e9 else "")


PUSHES = {
    "rho*k1": lambda k, w: np.exp(w) * (k + 1),
    "rho*k3": lambda k, w: np.exp(w) * k,
    "sg(rho)*k2": lambda k, w: np.exp(w) * k,
    "k2": lambda k, w: k,
}


def _spread(name, log_q, log_p, log_mu, u):
    mass, score = np.exp(log_mu), u - np.exp(log_q) @ u
    push = PUSHES[name](log_q - log_p, log_q - log_mu) * score
    return mass @ push**2 - (mass @ push) ** 2


def _ordered(sampling, low, high, model):
    """The order in models inside the region, and against it in the model that refutes it everywhere."""
    gaps = []
    for log_q, log_p, log_mu, u in _models():
        inside = np.minimum(log_p - log_q, 0.5) + log_q  # r <= exp(1/2), not normalised: p is a coefficient
        place = (log_q, inside, log_q if sampling == ON else log_mu, u)
        gaps.append(_spread(high, *place) - _spread(low, *place))
    rows = {name: np.log([float(sympy.Rational(x)) for x in model[name]]) for name in ("q", "p")}
    third = rows["q"] if sampling == ON else np.log([float(sympy.Rational(x)) for x in model["mu"]])
    u = np.array([float(sympy.Rational(x)) for x in model["u"]])
    outside = _spread(low, rows["q"], rows["p"], third, u) - _spread(high, rows["q"], rows["p"], third, u)
    correction = min(gaps)
    return (
        outside > 0 and correction > 0,
        f"{MODELS} models inside, least gap {correction:.1e}; outside {outside:.1e}",
    )


def _values_in_the_region(edge):
    """Var k3 <= Var k1 in random models whose ratios stay below the edge; above it at a single outcome."""
    gaps = []
    for seed in range(200):
        stream = np.random.default_rng(seed)
        q_, p_ = stream.dirichlet(np.ones(3), size=2)
        if (p_ / q_).max() <= edge:
            gaps.append(_variance(_value("k1", q_, p_), q_) - _variance(_value("k3", q_, p_), q_))
    return len(gaps) > 50 and min(
        gaps
    ) > 0, f"{len(gaps)} models with r <= {edge:.4f}: least gap {min(gaps):.1e}"


def _value(name, q_, p_):
    log_q, log_p = np.log(q_), np.log(p_)
    return LITERAL[name](Literal(log_q, log_p, log_q, log_q))


def _variance(values, q_):
    return q_ @ values**2 - (q_ @ values) ** 2


def _values_both_ways():
    near, far = (np.array([0.5, 0.5]), np.array([0.45, 0.55])), (np.array([0.01, 0.99]), np.array([0.9, 0.1]))
    gaps = [
        [_variance(_value("k1", *model), model[0]) - _variance(_value(name, *model), model[0])
         for name in ("k2", "k3")]
        for model in (near, far)
    ]  # fmt: skip
    return min(gaps[0]) > 0 > max(
        gaps[1]
    ), f"gaps {min(gaps[0]):.1e} near q = p, {max(gaps[1]):.1e} far from it"
