"""False inequalities: what no sum of tangents, squares and variances shows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Side
from support.certificates.faulty_certificates import *

START = {"scale": ONE, "factor": ONE, "at": ["", "q"], "v": ZERO, "score": []}
OF = {"tangent": -k1, "square": k1, "variance": k1}  # E_q[k3], E_q[k1^2], Var_q(k1)
UP_TO_ROOT_E = 2 * k1 + 1  # at least 0 where r <= exp(1/2)
SAMPLE = ["", "sample"]
BETA = {"parameters": ("beta",)}


def row(kind: str, **change: Any) -> dict[str, Any]:
    return {"kind": kind, **START, "of": OF[kind], **change}


def rows(left: Side, right: Side, *found: dict[str, Any], relation: str = "<=", **context: Any) -> Draft:
    """left <= right by some rows."""
    return Draft(left, right, relation, **context).rows(*found)


def tangent(left: Side, right: Side, **change: Any) -> Draft:
    """left <= right by one tangent; what concerns the statement goes to it."""
    return _one("tangent", left, right, change)


def square(left: Side, right: Side, **change: Any) -> Draft:
    return _one("square", left, right, change)


def variance(left: Side, right: Side, **change: Any) -> Draft:
    return _one("variance", left, right, change)


def _one(kind: str, left: Side, right: Side, change: dict[str, Any]) -> Draft:
    outer = {
        key: change.pop(key) for key in ("parameters", "functions", "premises", "relation") if key in change
    }
    return rows(left, right, row(kind, **change), **outer)


def lacking(key: str, kind: str = "tangent") -> dict[str, Any]:
    return {name: value for name, value in row(kind).items() if name != key}


TANGENTS = {
    "tangent": [
        ("a negative factor", PART, "the factor -1 is not positive",
            lambda: tangent(Em("q", k3), NOTHING, scale=-ONE)),
        ("closes an equality", PART, "rows: an inequality expected, not an equation",
            lambda: tangent(NOTHING, Em("q", k3), relation="=")),
        ("the wrong way round", CLOSE, DIFFER, lambda: tangent(Em("q", k3), NOTHING)),
        ("sign of the exponent", CLOSE, DIFFER, lambda: tangent(Em("q", k1), Em("q", 1 - r))),
        ("kl bounds chi2 from above", CLOSE, DIFFER,
            lambda: tangent(Em("q", (r - 1) ** 2), Em("q", -r * k1), v=-k1)),
        ("weighted by another measure", CLOSE, DIFFER,
            lambda: tangent(NOTHING, Em("q", k3), at=["", "mu"])),
        ("k1 is nonnegative in the mean but not at a sample", CLOSE, DIFFER,
            lambda: tangent(NOTHING, point(k1), at=SAMPLE)),
        ("the mean of r is one but not r", CLOSE, DIFFER,
            lambda: tangent(NOTHING, point(k1))),
        ("a mean for the value at a sample", CLOSE, DIFFER, lambda: tangent(NOTHING, point(k3))),
        ("at no place", PART, "unknown atom", lambda: tangent(NOTHING, point(k3), at=["", ""])),
        ("at a place without an index", PART, "at: an index and a measure expected",
            lambda: tangent(NOTHING, Em("q", k3), at=["q"])),
        ("a factor of unknown sign", PART, "hypotheses: .*positive.*beta",  # beta = -1
            lambda: tangent(NOTHING, Em("q", beta * k3), scale=beta, **BETA).without("positive")),
        ("a factor that may vanish", PART, "hypotheses: .*nonzero.*beta",  # beta = 0: equal for every r
            lambda: tangent(NOTHING, Em("q", beta**2 * k3), scale=beta**2, **BETA).without("nonzero")),
        ("a factor that is positive taken for one that is not zero", PART, "hypotheses: .*positive.*recorded",
            lambda: tangent(NOTHING, Em("q", beta * k3), scale=beta, **BETA).without("positive")
            .assuming("nonzero", "beta")),
        ("a factor that is a sum", PART, "a single term expected as a positive factor",  # beta = 1/2
            lambda: tangent(NOTHING, Em("q", (beta - 1) * k3), scale=beta - 1, **BETA)),
        ("a factor that is zero", PART, "a single term expected as a positive factor, not a sum or zero",
            lambda: tangent(QP, QP, scale=ZERO)),
        ("a random factor", PART, "scale: a constant expected",
            lambda: tangent(NOTHING, Em("q", k1 * k3), scale=k1)),
        ("a factor that is not declared", PART, "unknown .* 'lam'",
            lambda: tangent(NOTHING, Em("q", k3), scale=lam)),
        ("support of the mean of the ratio left out", PART, "hypotheses: .*support",
            lambda: tangent(NOTHING, QP).step("ratio mean one", of="p", slot="x", part=r).without("support")),
        ("the existence of its mean left out", PART, "hypotheses: .*exists",
            lambda: tangent(NOTHING, Em("q", k3)).without("exists")),
        ("a term that is zero", PART, "a row that is 0",  # equality everywhere, not where u = 0
            lambda: tangent(QP, QP, of=ZERO)),
        ("a term times zero", PART, "a row that is 0, or no constant factor",
            lambda: tangent(QP, QP, factor=ZERO)),
        ("a region", PART, "nonnegative: squares at one sample have one",
            lambda: tangent(NOTHING, Em("q", (k1 + 1) * k3), nonnegative=k1 + 1)),
        ("exp of an exp", PART, "exp of an exponential", lambda: tangent(NOTHING, Em("q", k3), of=r - 1)),
        ("a weight that is an exp", PART, "exp of an exponential",
            lambda: tangent(NOTHING, Em("q", k3), v=r)),
        ("with a score", PART, "tangent: no score function expected",
            lambda: tangent(NOTHING, Em("q", k3, 1), score=["x"])),
        ("of another kind", PART, "kind: one of",
            lambda: rows(NOTHING, Em("q", k3), {**row("tangent"), "kind": "jensen"})),
        ("without its place", PART, "rows: the keys", lambda: rows(NOTHING, Em("q", k3), lacking("at"))),
        ("with a key too many", PART, "rows: the keys",
            lambda: tangent(NOTHING, Em("q", k3), u=-k1)),
        ("tangents of another function", CLOSE, DIFFER,
            lambda: tangent(NOTHING, point(K_LAM), at=SAMPLE, of=k1, parameters=("lam",))),
        ("of k lam at another value", CLOSE, DIFFER,  # negative near r = 1 unless lam = 1
            lambda: tangent(NOTHING, point(k1 + 2 * (r - 1)), at=SAMPLE)),
        ("of k lam whatever lam is", CLOSE, DIFFER,
            lambda: tangent(NOTHING, point(K_LAM), at=SAMPLE, parameters=("lam",))),
        ("of what has no contact", CLOSE, DIFFER,  # k1 + lam r <= 0 for small r
            lambda: tangent(NOTHING, point(k1 + lam * r), at=SAMPLE, parameters=("lam",))),
        ("of a constant below", CLOSE, DIFFER, lambda: tangent(constant(1), point(k3), at=SAMPLE)),
        ("an upper bound on the other side", CLOSE, DIFFER,
            lambda: tangent(point(K_LAM), point((r - 1) * (lam - r)), at=SAMPLE, of=k1, parameters=("lam",))),
        ("an upper bound by the tangent below", CLOSE, DIFFER,
            lambda: tangent(point(K_LAM), ABOVE_K_LAM, at=SAMPLE, parameters=("lam",))),
        ("a negative function", PART, "the factor -1 is not positive",
            lambda: tangent(NOTHING, point(-k3), at=SAMPLE, scale=-ONE)),
        ("of another ratio", CLOSE, DIFFER,
            lambda: tangent(NOTHING, point(w + (-w).exp() - 1), at=SAMPLE)),
        ("with a detached part", CLOSE, DIFFER,
            lambda: tangent(NOTHING, point(r - 1 + sg(k1)), at=SAMPLE)),
        ("with a reward of either sign", CLOSE, DIFFER,
            lambda: tangent(NOTHING, point(R * k3), at=SAMPLE)),
        ("with a function of either sign", CLOSE, DIFFER,
            lambda: tangent(NOTHING, point(g * k3), at=SAMPLE, functions=G)),
        ("by a premise that is not used", CLOSE, DIFFER,
            lambda: tangent(NOTHING, PQ, premises=((Em("q", k3), PQ),))),
        ("of a slot that is not there", PART, "unknown slot 'now'",
            lambda: tangent(NOTHING, Em("q", k3), of=ExpPoly.from_variable("k1[now]"))),
    ],
}  # fmt: skip
K_LAM = k1 + lam * (r - 1)
ABOVE_K_LAM = point((r - 1) * (lam - r.invert()))
IS_LAM = ((jeffreys("q", "p"), chi2("p", "q") * lam),)  # J(p, q) = lam chi2(p||q)

SQUARES = {
    "square": [
        ("a negative factor", PART, "the factor -1/2 is not positive",
            lambda: square(point(k2), NOTHING, at=SAMPLE, scale=number(Fraction(-1, 2)))),
        ("closes an equality", PART, "rows: an inequality expected, not an equation",
            lambda: square(NOTHING, Em("q", k1 * k1), relation="=")),
        ("the wrong way round", CLOSE, DIFFER, lambda: square(Em("q", k1 * k1), NOTHING)),
        ("half a square forgotten", CLOSE, DIFFER, lambda: square(NOTHING, point(k2), at=SAMPLE)),
        ("a square under another measure", CLOSE, DIFFER, lambda: square(NOTHING, Em("mu", k1 * k1))),
        ("a score that is not squared", CLOSE, DIFFER,  # s has either sign
            lambda: square(NOTHING, Em("q", k1 * k1, 1), score=["x"])),
        ("a factor that is not squared", CLOSE, DIFFER,
            lambda: square(NOTHING, Em("q", beta * k1 * k1), factor=beta, **BETA)),
        ("a random factor", PART, "no constant factor",
            lambda: square(NOTHING, Em("q", k1 * k1), factor=k1, of=ONE)),
        ("a slot that is not there", PART, "score: a list of slots",
            lambda: square(NOTHING, Em("q", k1 * k1, 2), score=["self"])),
        ("chi2 the wrong way round", CLOSE, DIFFER, lambda: square(NOTHING, chi2("q", "p"), of=r - 1)),
        ("a parameter in a denominator", PART, "hypotheses: .*nonzero.*beta",  # f = 1/beta, b = beta k1
            lambda: square(NOTHING, Em("q", k1 * k1), factor=beta.invert(), of=beta * k1, **BETA)
            .without("nonzero")),
        ("the square of zero", PART, "a row that is 0", lambda: square(QP, QP, of=ZERO)),
        ("the best lambda is the worst", CLOSE, DIFFER,
            lambda: square(cov("q", k1 + a * (r - 1), k1 + a * (r - 1)), cov("q", K_LAM, K_LAM), of=r - 1,
                           factor=a - lam, premises=IS_LAM, parameters=("a", "lam"))
            .equation(0, times=constant(2 * (lam - a)))),
        ("best for lambda without the premise", CLOSE, DIFFER,
            lambda: square(cov("q", K_LAM, K_LAM), cov("q", k3, k3), of=r - 1, factor=lam - 1,
                           premises=IS_LAM, parameters=("lam",))),
        ("a weight that is left out", CLOSE, DIFFER, lambda: square(NOTHING, Em("q", k1 * k1), v=w)),
        ("the existence of its mean left out", PART, "hypotheses: .*exists",
            lambda: square(NOTHING, Em("q", k1 * k1)).without("exists")),
        ("the existence of a mean with two scores left out", PART, "hypotheses: .*exists",  # E_q[s^2]
            lambda: square(NOTHING, Em("q", ONE, 2), of=ONE, score=["x"]).without("exists")),
        ("a product of two values", CLOSE, DIFFER, lambda: square(NOTHING, point(k1 * w), at=SAMPLE)),
        ("a product of two scores of a batch", CLOSE, DIFFER,
            lambda: square(NOTHING, mean("ij", "q", ONE, "self", "other"), at=["ij", "q"], of=ONE,
                           score=["self"])),
        ("the square of a mean for the mean of a square", CLOSE, DIFFER,
            lambda: square(NOTHING, QP.multiply(QP))),
        ("the slope of what is squared", CLOSE, DIFFER,  # -k1^2 at lam = 1
            lambda: square(NOTHING, point(k1 * (1 - lam) - k1 * k1), at=SAMPLE, parameters=("lam",))),
        ("squares and tangents that do not add up", CLOSE, DIFFER,
            lambda: rows(NOTHING, Em("q", k3), row("tangent"), row("square"))),
        ("without its score", PART, "rows: the keys", lambda: rows(QP, PQ, lacking("score", "square"))),
        ("under the counting measure of a batch", PART, "unknown atom",
            lambda: square(NOTHING, Em("q", k1 * k1), at=["i", "count"])),
    ],
    "region": [
        ("that is not recorded", PART, "hypotheses: .*nonnegative.*recorded",
            lambda: square(NOTHING, WIDE, nonnegative=UP_TO_ROOT_E).without("nonnegative")),
        ("that is recorded under another measure", PART, "hypotheses: .*nonnegative.*recorded",
            lambda: square(NOTHING, WIDE, nonnegative=UP_TO_ROOT_E).without("nonnegative")
            .assuming("nonnegative", "p", UP_TO_ROOT_E)),
        ("larger than is recorded", PART, "hypotheses: .*nonnegative.*recorded",
            lambda: square(NOTHING, WIDE, nonnegative=UP_TO_ROOT_E).without("nonnegative")
            .assuming("nonnegative", "q", k1 + 1)),
        ("that is left out", CLOSE, DIFFER, lambda: square(NOTHING, WIDE)),
        ("of another inequality", CLOSE, DIFFER, lambda: square(NOTHING, WIDE, nonnegative=k1 + 1)),
        ("squared with its square", CLOSE, DIFFER,
            lambda: square(NOTHING, WIDE, nonnegative=UP_TO_ROOT_E, of=k1 * UP_TO_ROOT_E)),
        ("without q and p that agree", PART, "not positive at q = p = mu",  # r < 1/e everywhere
            lambda: square(NOTHING, Em("q", (k1 - 1) * k1 * k1), nonnegative=k1 - 1)),
        ("of q and p that agree", PART, "not positive at q = p = mu",  # r <= 1 everywhere
            lambda: square(NOTHING, Em("q", k1 * k1 * k1), nonnegative=k1)),
        ("that is empty", PART, "not positive at q = p = mu",
            lambda: square(Em("q", k1 * k1 * (k1 * k1 + 1)), NOTHING, nonnegative=-k1 * k1 - 1)),
        ("that is empty and constant", PART, "a function of k1 and w expected",
            lambda: square(Em("q", k1 * k1), NOTHING, nonnegative=-ONE)),
        ("that a parameter empties", PART, "a function of k1 and w expected",  # beta = -1
            lambda: square(NOTHING, Em("q", (beta + r) * k1 * k1), nonnegative=beta + r, **BETA)),
        ("of rewards", PART, "a function of k1 and w expected",
            lambda: square(NOTHING, Em("q", (R + 1) * k1 * k1), nonnegative=R + 1)),
        ("of log q", PART, "a function of k1 and w expected",
            lambda: square(NOTHING, Em("q", (log_q + 1) * k1 * k1), nonnegative=log_q + 1)),
        ("that is detached", PART, "a function of k1 and w expected",
            lambda: square(NOTHING, Em("q", (sg(k1) + 1) * k1 * k1), nonnegative=sg(k1) + 1)),
        ("of a generic function", PART, "a function of k1 and w expected",
            lambda: square(NOTHING, Em("q", (g + 1) * k1 * k1), nonnegative=g + 1, functions=G)),
        ("with a division", PART, "division by the random variable k1",
            lambda: square(NOTHING, Em("q", k1 * k1), nonnegative=k1.invert() + 1)),
        ("at no place", PART, "unknown atom",
            lambda: square(NOTHING, point(k1 + 1), at=["", ""], of=ONE, nonnegative=k1 + 1)),
        ("of a batch", PART, "nonnegative: squares at one sample have one",
            lambda: square(NOTHING, mean("i", "q", OWN * OWN), at=["i", "q"], of=OWN, nonnegative=k1 + 1)),
        ("of a variance", PART, "nonnegative: squares at one sample have one",
            lambda: variance(NOTHING, cov("q", k1, k1), nonnegative=k1 + 1)),
    ],
}  # fmt: skip
WIDE = Em("q", UP_TO_ROOT_E * k1 * k1)
OWN = ExpPoly.from_variable("k1[self]")
TWICE = Em("q", k1).multiply(Em("q", k1))

VARIANCES = {
    "variance": [
        ("the wrong way round", CLOSE, DIFFER, lambda: variance(Em("q", k1 * k1), TWICE)),
        ("closes an equality", PART, "rows: an inequality expected, not an equation",
            lambda: variance(REVERSE.multiply(REVERSE), Em("q", k1 * k1, 2), relation="=", score=["x"])),
        ("under the counting measure", PART, "variance: a probability measure expected",
            lambda: variance(
                Em("count", k1).multiply(Em("count", k1)), Em("count", k1 * k1), at=["", "count"])),
        ("at a sample", PART, "variance: a probability measure expected",
            lambda: variance(point(k1).multiply(point(k1)), point(k1 * k1), at=SAMPLE)),
        ("score not squared", CLOSE, DIFFER,
            lambda: variance(REVERSE.multiply(REVERSE), Em("q", k1 * k1, 1), score=["x"])),
        ("means under two measures", CLOSE, DIFFER,
            lambda: variance(Em("q", k1).multiply(Em("p", k1)), Em("q", k1 * k1))),
        ("a negative factor", PART, "the factor -1 is not positive",
            lambda: variance(Em("q", k1 * k1), TWICE, scale=-ONE)),
        ("a number of samples of unknown sign", PART, "hypotheses: .*positive.*beta",  # beta = -1
            lambda: variance(TWICE * beta, Em("q", beta * k1 * k1), scale=beta, **BETA).without("positive")),
        ("the mean of the ratio under p", CLOSE, DIFFER,  # E_p[r] is not 1
            lambda: variance(constant(1), Em("p", r * r), of=r, at=["", "p"])),
        ("with a weight", PART, "variance: of one sample or batch, and unweighted",
            lambda: variance(Em("q", rho * k1).multiply(Em("q", rho * k1)), Em("q", rho * k1 * k1), v=w)),
        ("of a sum over steps", PART, "variance: of one sample or batch, and unweighted",  # T^2, not T
            lambda: variance(mean("t", "q", ONE).multiply(mean("t", "q", ONE)), mean("t", "q", ONE),
                             at=["t", "q"], of=ONE)),
        ("its mean without its square", CLOSE, DIFFER, lambda: variance(QP, Em("q", k1 * k1))),
        ("of another variable", CLOSE, DIFFER,
            lambda: variance(Em("q", R).multiply(Em("q", A)), Em("q", R * A), of=R)),
        ("the existence of its moments left out", PART, "hypotheses: .*exists",
            lambda: variance(TWICE, Em("q", k1 * k1)).without("exists")),
        ("the existence of the moment with two scores left out", PART, "hypotheses: .*exists.*recorded",
            lambda: variance(REVERSE.multiply(REVERSE), Em("q", k1 * k1, 2), score=["x"])
            .without("exists", _squared())),
        ("half of it", CLOSE, DIFFER,
            lambda: variance(TWICE, Em("q", k1 * k1), scale=number(Fraction(1, 2)))),
    ],
}  # fmt: skip


def _squared() -> Any:
    [(_, (atom,))] = Em("q", k1 * k1, 2).terms
    return atom


INEQUALITIES = TANGENTS | SQUARES | VARIANCES
