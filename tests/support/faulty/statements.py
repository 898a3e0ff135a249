"""False derivations of statements that may not be made, and with hypotheses that are recorded wrongly."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Mean, Side
from support.certificates.faulty_certificates import *
from support.faulty.closings import apart

BETA = {"parameters": ("beta",)}
KX, WX = V("k1[x]"), V("w[x]")  # k1 and w once more, under other names


def changed(draft: Draft, **change: Any) -> Draft:
    """The draft with other entries of its part."""
    draft.part |= change
    return draft


def QUIET() -> Draft:
    return Draft(NOTHING, NOTHING)


def context(draft: Draft, **change: Any) -> Draft:
    draft.part["context"] = draft.part["context"] | change
    return draft


def named(name: str) -> Draft:
    """E_q[c s] = 0 for a constant whose name means something else."""
    return Draft(Em("q", V(name), 1), NOTHING, parameters=(name,)).step("score mean zero", slot="x")


def function(name: str) -> Draft:
    """An equation about a generic function whose name means something else."""
    return Draft(Em("q", V(name)), Em("q", V(name)), functions=((name, ("k1",)),))


# each once read as something else in print: "E_q[r s] = 0" for a constant r
TAKEN_BY_CONSTANTS = (
    "r", "rho", "s", "q", "p", "mu", "u", "v", "KL", "E", "E_q", "E_mu_now", "k1_now", "beta_past", "sum_t",
    "mean_i", "exp", "log", "sg", "grad", "k2", "k3", "log_p", "value", "total", "constant", "iff", "x", "t",
    "x_self", "rho_old", "old", "o", "M", "length", "H", "var", "COV", "Clip",
)  # fmt: skip
TAKEN_BY_FUNCTIONS = (
    "log_mu", "k1", "w", "chi2", "sum_i", "E_p", "r", "s", "curl", "f_future", "kl", "n",
)  # fmt: skip
NO_NAMES = ("2", "a b", "a'", "a[now]", "sg(a)", "", "β", "a-b", "_a", "a" * 61)

NAMES: dict[str, list[Any]] = {
    "name": [
        *((f"{name} as a parameter", PART, f"'{name}' cannot be declared", lambda name=name: named(name))
          for name in TAKEN_BY_CONSTANTS),
        *((f"{name} as a function", PART, f"'{name}' cannot be declared", lambda name=name: function(name))
          for name in TAKEN_BY_FUNCTIONS),
        *((f"{label} for a name", PART, "cannot be declared: it is reserved, or no plain name",
           lambda name=name: context(Draft(QP, QP), parameters=[name]))
          for name, label in zip(NO_NAMES, ("a number", "two words", "a prime", "a slot", "a detached copy",
                                            "nothing", "a greek letter", "a difference", "an underscore",
                                            "61 letters"), strict=True)),
    ],
}  # fmt: skip

STATEMENTS: dict[str, list[Any]] = NAMES | {
    "statement": [
        ("division by a random variable", PART, "division by the random variable k1",
            lambda: Draft(Em("q", k1.invert()), NOTHING)),
        ("division by a random variable in an exponent", PART, "division by the random variable R",
            lambda: Draft(Em("q", R.invert().exp()), NOTHING)),
        ("division by a random variable under a gradient", PART, "division by the random variable w",
            lambda: Draft(grad(Em("q", w.invert())), NOTHING)),
        ("division by a random variable in a loss", PART, "division by the random variable k1",
            lambda: Draft(Eg("q", k1.invert()), NOTHING)),
        ("division by a random variable in a premise", PART, "division by the random variable k1",
            lambda: Draft(QP, QP, premises=((Em("q", k1.invert()), NOTHING),))),
        ("a random coefficient outside its expectation", PART, "outside its mean",
            lambda: Draft(QP.multiply(PQ) * k1, NOTHING)),
        ("a random constant", PART, "outside its mean", lambda: Draft(constant(k1), NOTHING)),
        ("a random coefficient of a loss", PART, "outside its mean",
            lambda: Draft(Side.combine((k1, (mean_grad("", "q", k2).terms[0][1][0],))), REVERSE)),
        ("a random coefficient inside a gradient", PART, "outside its mean",  # grad k1 = 0
            lambda: Draft(grad(constant(k1)), NOTHING)),
        ("a random coefficient in a premise", PART, "outside its mean",
            lambda: Draft(QP, PQ, premises=((constant(k1), constant(w)),))),
        ("a parameter that is not declared", PART, "unknown name 'beta'",
            lambda: Draft(Em("q", beta), constant(beta)).step("normalisation", constant(beta))),
        ("a function that is not declared", PART, "unknown name 'f'", lambda: Draft(Em("q", f), Em("q", f))),
        ("the derivative of a log ratio", PART, "unknown name \"k1'\"",
            lambda: Draft(Em("q", V("k1'")), Em("q", ONE))),
        ("a detached parameter", PART, "unknown name 'sg\\(beta\\)'",
            lambda: Draft(Em("q", V("sg(beta)")), constant(beta), **BETA)),
        ("a copy that is detached twice", PART, "no variable name",
            lambda: Draft(Em("q", V("sg(sg(k1))")), Em("q", k1))),
        ("a name that is none", PART, "no variable name", lambda: Draft(Em("q", V("k 1")), NOTHING)),
        ("log q as a parameter", PART, "'log_q' cannot be declared", lambda: named("log_q")),
        ("a function that is also a parameter", PART, "a name is declared twice",
            lambda: Draft(Em("q", f, 1), NOTHING, parameters=("f",), functions=ANY_F)
            .step("score mean zero", slot="x")),
        ("a parameter declared twice", PART, "a name is declared twice",
            lambda: Draft(QP, QP, parameters=("beta", "beta"))),
        ("a function of a reward", PART, "may depend on k1, w, log_q, o only",
            lambda: Draft(Em("q", f), Em("q", f), functions=(("f", ("R",)),))),
        ("a second name of k1", PART, "the slot x is not written out",  # the coefficient is 0
            lambda: apart(k2 - KX * KX * Fraction(1, 2), k2)),
        ("a second name of w", PART, "the slot x is not written out",
            lambda: apart(WX * k1, WX * k1)),
        ("a second name of a function", PART, "the slot x is not written out",
            lambda: Draft(Em("q", V("f[x]")), Em("q", f), functions=ANY_F)),
        ("an argument of a function that is no live variable", PART, "may depend on k1, w, log_q, o only",
            lambda: Draft(grad(Em("q", f)), grad(QP), premises=((Em("q", f), QP),),
                          functions=(("f", ("k1", "w[x]")),)).equation(0, gradient=1)),
        ("the variable of another slot", PART, "unknown slot 'self'",  # E_q[grad k1_self] = E_q[s]
            lambda: Draft(Eg("q", V("k1[self]") * k1), Em("q", V("k1[self]") + k1, 1)).step("chain rule")),
        ("the score of another slot", PART, "score: a list of slots",
            lambda: Draft(mean("", "q", k1, "now"), NOTHING)),
        ("an unknown measure", PART, "unknown atom", lambda: Draft(Em("pi", k1), NOTHING)),
        ("an unknown index", PART, "unknown atom",
            lambda: changed(QUIET(), left=[[[["1", {}]], [["Mean", "j", "q", [["1", {}]], []]]]])),
        ("the counting measure of a batch", PART, "unknown atom",
            lambda: Draft(mean("i", "count", ONE), NOTHING)),
        ("a divergence by its name", PART, "unknown atom",
            lambda: changed(QUIET(), left=[[[["1", {}]], [["KL", "q", "p"]]]])),
        ("another relation", PART, "relation: '=' or '<=' expected", lambda: Draft(QP, PQ, ">=")),
        ("terms in another order", PART, "left side is not in normal form",
            lambda: _backwards(Draft(Em("q", k1) + Em("p", w), NOTHING))),
        ("means that are not merged", PART, "left side is not in normal form",
            lambda: changed(Draft(QP * 2, NOTHING), left=QP.to_json() * 2)),
        ("a coefficient outside a lone mean", PART, "right side is not in normal form",
            lambda: changed(Draft(NOTHING, QP * 2),
                            right=[[[["2", {}]], [["Mean", "", "q", k1.to_json(), []]]]])),
        ("a premise in a text", PART, "a side: a list of terms expected",
            lambda: context(Draft(QP, PQ), premises=[["KL(q||p)", "KL(p||q)"]])),
        ("on-policy by a flag", PART, "context: the keys .* expected",
            lambda: context(Draft(Em("mu", k1), QP), on_policy=1)),
        ("a given value", PART, "context: the keys .* expected",
            lambda: context(Draft(Em("q", R), QP), given={"R": k1.to_json()})),
        ("nonzero hypothesis left out", PART, "hypotheses: .*nonzero.*recorded \\[\\]",
            lambda: Draft(QUOTIENT, QUOTIENT, **BETA).without("nonzero")),
    ],
}  # fmt: skip


def _backwards(draft: Draft) -> Draft:
    draft.part["left"] = draft.part["left"][::-1]
    return draft


# ---------------------------------------------------------------------------- what is assumed
def moved(of: ExpPoly, start: str = "mu", to: str = "q", scores: int = 0) -> Draft:
    """E_m[a] = E_m'[a m/m']: which supports it takes depends on a."""
    left = Em(start, of, scores)
    return Draft(left, _ratio(left, start, to)).step("change of measure", to=to)


def _ratio(side: Side, start: str, to: str) -> Side:
    log = {"q": log_q, "p": log_q - k1, "mu": log_q - w}
    [(_, (found,))] = side.terms
    assert isinstance(found, Mean)
    return Side.from_atom(Mean("", to, found.coefficient * (log[start] - log[to]).exp(), found.score))


def silent(build: Callable[[], Draft], *start: str) -> Callable[[], Draft]:
    return lambda: build().without(*start)


F = {"functions": ANY_F}
NO_SUPPORT = "hypotheses: .*'support', 'mu', 'q'.*recorded"


def under_f(of: ExpPoly) -> Draft:
    left = Em("mu", of)
    return Draft(left, _ratio(left, "mu", "q"), **F).step("change of measure", to="q")


def beside(of: ExpPoly, scores: int) -> Draft:
    """A part of a mean is moved to p; that the part exists is an assumption."""
    right = _ratio(Em("q", of, scores), "q", "p") + Em("q", ONE, scores)
    return Draft(Em("q", of + 1, scores), right).step("change of measure", to="p", part=of)


K1_MEAN, K2_MEAN = Mean("", "q", k1), Mean("", "q", k2)
HYPOTHESES: dict[str, list[Any]] = {
    "change of measure": [
        ("support hypothesis left out", PART, "hypotheses: .*support.*recorded \\[\\]",
            silent(lambda: moved(k1, "mu", "p"), "support")),
        ("the weight says nothing of the support", PART, "hypotheses: .*.support., .q., .mu.",
            silent(lambda: moved(rho * k1, scores=1), "support", "q", "mu")),
        ("the other support for the one that is needed", PART, "hypotheses: .*.support., .q., .mu.",
            lambda: moved(rho * k1).without("support", "q", "mu").assuming("support", "mu", "q")),
        ("without a weight one support is left out", PART, NO_SUPPORT,
            silent(lambda: moved(k1), "support", "mu", "q")),
        ("a function that need not fade", PART, NO_SUPPORT,  # f = 1/rho where q is 0
            silent(lambda: under_f(rho * f), "support", "mu", "q")),
        ("the derivative of a function that need not fade", PART, NO_SUPPORT,
            silent(lambda: under_f(rho * V("f'")), "support", "mu", "q")),
        ("a function in an exponent that need not fade", PART, NO_SUPPORT,
            silent(lambda: under_f(rho * f.exp()), "support", "mu", "q")),
        ("the exponential of a square that does not fade", PART, NO_SUPPORT,  # exp(k1^2) r
            silent(lambda: moved(rho * (k1 * k1).exp()), "support", "mu", "q")),
        ("the exponential of a product that need not fade", PART, NO_SUPPORT,
            silent(lambda: moved(rho * (k1 * log_q).exp()), "support", "mu", "q")),
        ("a power of the ratio that need not fade", PART, NO_SUPPORT,  # beta = 0
            silent(lambda: _with_beta((beta * w).exp()), "support", "mu", "q")),
        ("a reward in an exponent that need not fade", PART, NO_SUPPORT,
            silent(lambda: moved(rho * (R * k1).exp()), "support", "mu", "q")),
        ("a ratio that outweighs the weight", PART, NO_SUPPORT,  # rho exp(-2 w) = mu/q
            silent(lambda: moved((-w).exp()), "support", "mu", "q")),
        ("one term of two that does not fade", PART, NO_SUPPORT,
            silent(lambda: moved(rho * k1 + 1), "support", "mu", "q")),
        ("the scores outweigh the weight", PART, NO_SUPPORT,  # q s^2 need not vanish with q
            silent(lambda: moved(rho, scores=2), "support", "mu", "q")),
        ("the ratio of the reference where the policy vanishes", PART, NO_SUPPORT,
            silent(lambda: moved(r), "support", "mu", "q")),
        ("a detached weight that says nothing of the support", PART, "hypotheses: .*.support., .q., .mu.",
            silent(lambda: moved(V("sg(w)").exp()), "support", "q", "mu")),
        ("moment hypothesis left out", PART, "hypotheses: .*exists",
            silent(lambda: beside(k1, 0), "exists")),
        ("the moment of two scores left out", PART, "hypotheses: .*exists",  # E_q[k1 s^2]
            silent(lambda: beside(k1, 2), "exists")),
        ("the moment of the rest for that of the part", PART, "hypotheses: .*exists.*recorded",
            lambda: beside(k1, 2).without("exists").assuming("exists", Mean("", "q", ONE, ("x", "x")))),
        ("the moment of one score for that of two", PART, "hypotheses: .*exists.*recorded",
            lambda: beside(k1, 2).without("exists").assuming("exists", Mean("", "q", k1, ("x",)))),
        ("a value given to a reward that does not fade", PART, "hypotheses: .*'support', 'p', 'q'.*recorded",
            silent(lambda: moved((-V("sg(k1)")).exp(), "q", "p"), "support", "p", "q")),  # E_q[sg(r)] < 1
        ("to the counting measure where a policy vanishes", PART, "hypotheses: .*support.*count",
            lambda: _to_count((-log_q).exp()).without("support", "count")),
    ],
    "ratio mean one": [
        ("support hypothesis left out", PART, "hypotheses: .*support",
            lambda: Draft(Em("mu", rho), constant(1)).step("ratio mean one", of="q", slot="x")
            .step("normalisation").without("support")),
        ("the other support", PART, "hypotheses: .*'support', 'q', 'mu'.*recorded",
            lambda: Draft(Em("mu", rho), constant(1)).step("ratio mean one", of="q", slot="x")
            .step("normalisation").without("support").assuming("support", "mu", "q")),
    ],
    "score mean zero": [
        ("exchange hypothesis left out", PART, "hypotheses: .*exchange",
            lambda: Draft(Em("q", ONE, 1), NOTHING).step("score mean zero", slot="x").without("exchange")),
        ("the exchange of another mean", PART, "hypotheses: .*exchange.*recorded",
            lambda: Draft(Em("q", ONE, 1), NOTHING).step("score mean zero", slot="x").without("exchange")
            .assuming("exchange", K1_MEAN)),
        ("the exchange under another measure", PART, "hypotheses: .*exchange.*recorded",
            lambda: Draft(Em("q", ONE, 1), NOTHING).step("score mean zero", slot="x").without("exchange")
            .assuming("exchange", Mean("", "mu", ONE))),
        ("the independence of a batch left out", PART, "hypotheses: .*batch.*recorded",
            lambda: Draft(mean("i", "q", V("k1[others]"), "self"), NOTHING)
            .step("score mean zero", slot="self").without("batch")),
    ],
    "log-derivative": [
        ("exchange hypothesis left out", PART, "hypotheses: .*exchange",
            lambda: Draft(grad(Em("p", k1)), Em("p", ONE, 1)).step("log-derivative").step("chain rule")
            .without("exchange")),
        ("one of two exchanges left out", PART, "hypotheses: .*exchange.*recorded \\[\\]",
            lambda: Draft(grad(Em("p", k1) + Em("mu", k2)), Em("p", ONE, 1) + Em("mu", k1, 1))
            .step("log-derivative").step("chain rule").step("chain rule", term=1)
            .without("exchange", Mean("", "mu", k2))),
        ("the exchange of what it becomes", PART, "hypotheses: .*exchange.*recorded",
            lambda: Draft(grad(Em("p", k1)), Em("p", ONE, 1)).step("log-derivative").step("chain rule")
            .without("exchange").assuming("exchange", Mean("", "p", ONE, ("x",)))),
        ("the existence of the score term left out", PART, "hypotheses: .*exists",
            lambda: Draft(grad(QP), REVERSE).step("log-derivative").step("chain rule", term=1)
            .step("score mean zero", part=ONE, slot="x").without("exists")),
        ("the independence of a batch left out", PART, "hypotheses: .*batch.*recorded",
            lambda: Draft(grad(mean("i", "p", V("k1[self]"))), mean("i", "p", ONE, "self"))
            .step("log-derivative").step("chain rule").without("batch")),
    ],
    "linearity": [
        ("a factor that may vanish", PART, "hypotheses: .*nonzero",
            lambda: Draft(QP.multiply(PQ), Em("q", k1 * beta.invert()).multiply(PQ) * beta, **BETA)
            .step("linearity", factor=1, constant=beta).without("nonzero")),
        ("the existence of what is left out", PART, "hypotheses: .*exists",
            lambda: Draft(Em("q", beta * k1).multiply(PQ), QP.multiply(PQ) * beta, **BETA)
            .step("linearity", factor=1, constant=beta).without("exists")),
        ("the moment of a part of a product left out", PART, "hypotheses: .*exists",
            lambda: Draft(Em("q", k1 + w).multiply(PQ), QP.multiply(PQ) + Em("q", w).multiply(PQ))
            .step("linearity", factor=1, part=k1, constant=ONE).without("exists")),
        ("a factor that may vanish on the way", PART, "hypotheses: .*nonzero",
            lambda: Draft(QP.multiply(PQ), QP.multiply(PQ), **BETA)
            .step("linearity", factor=1, constant=beta).step("linearity", factor=1, constant=beta.invert())
            .without("nonzero")),
    ],
    "equation": [
        ("a multiple that may vanish", PART, "hypotheses: .*nonzero",
            lambda: Draft(QP, PQ, premises=((QP * beta, PQ * beta),), **BETA)
            .equation(0, times=constant(beta.invert())).without("nonzero")),
        ("the existence of the multiple left out", PART, "hypotheses: .*exists",
            lambda: Draft(QP.multiply(Em("q", k2)), PQ.multiply(Em("q", k2)), premises=((QP, PQ),))
            .equation(0, times=Em("q", k2)).without("exists")),
        ("another premise recorded", PART, "hypotheses: .*equal.*recorded",
            lambda: Draft(QP, PQ, premises=((QP, PQ), (PQ, QP))).equation(0)
            .without("equal").assuming("equal", PQ, QP)),
    ],
    "hypotheses": [
        ("one that is not used", PART, "hypotheses: the proof uses \\[\\], recorded",
            lambda: Draft(QP, QP).assuming("support", "q", "p")),
        ("of an unknown kind", PART, "hypotheses: the proof uses",
            lambda: moved(rho).without("support").assuming("absolutely continuous")),
        ("in another order", PART, "hypotheses: the proof uses",
            lambda: _hypotheses(under_f(rho * f), lambda found: found[::-1])),
        ("one twice", PART, "hypotheses: the proof uses",
            lambda: _hypotheses(moved(rho), lambda found: found * 2)),
        ("as one text", PART, "hypotheses: a list expected",
            lambda: _hypotheses(moved(rho), lambda found: "q << mu")),
        ("none at all", PART, "hypotheses: a list expected",
            lambda: _hypotheses(moved(rho), lambda found: None)),
    ],
}  # fmt: skip


def _with_beta(of: ExpPoly) -> Draft:
    left = Em("mu", of)
    return Draft(left, _ratio(left, "mu", "q"), **BETA).step("change of measure", to="q")


def _to_count(of: ExpPoly) -> Draft:
    return Draft(Em("q", of), Em("count", of * log_q.exp())).step("change of measure", to="count")


class _Tampered(Draft):
    """A draft whose list of hypotheses is no list of those that were found."""

    change: Callable[[Any], Any]

    def parts(self) -> list[Any]:
        [part] = super().parts()
        return [part | {"hypotheses": self.change(part["hypotheses"])}]


def _hypotheses(draft: Draft, change: Callable[[Any], Any]) -> Draft:
    draft.__class__ = _Tampered
    draft.change = change  # type: ignore[attr-defined]
    return draft
