"""explain for centred batches, judged by enumeration of all batches (batch_judge.py)."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from klsym.api import Verdict, explain
from klsym.errors import UsageError
from klsym.kernel import check, read
from klsym.language.parser import parse
from klsym.notation.spelling import LATEX
from klsym.notation.values import names, shown
from klsym.numeric.checks.cross_check import with_check
from support.labels import labelled
from support.losses import batch_judge as judge
from support.losses import loss_judge
from support.losses.random_losses import Case

OFF = {"sampling": "off-policy"}
REWARD = {"use": "reward"}
OFF_REWARD = {**OFF, **REWARD}
# loss, options, h: what multiplies the score of one sample, target with leave-one-out
ROWS: list[tuple[str, dict[str, str], str, str]] = [
    ("k1", {}, "1", "zero"),
    ("k2", {}, "k1", "reverse-kl"),
    ("k3", {}, "1 - r", "forward-kl"),
    ("beta*k2 - rho*A", {}, "beta*k1 - A", "combination"),
    ("k1**3", {}, "3*k1**2", "f-divergence"),
    ("R", {}, "0*k1", "zero"),
    ("k1", REWARD, "k1", "reverse-kl"),
    ("k3", REWARD, "k1 + r - 1", "combination"),
    ("R - beta*k1", REWARD, "R - beta*k1", "combination"),
    ("A - k1", REWARD, "A - k1", "combination"),
    ("k2", REWARD, "k1**2/2", "f-divergence"),
    ("R*k1", REWARD, "R*k1", "separable"),
    ("rho*k1", REWARD, "k1", "reverse-kl"),
    ("rho + R", REWARD, "1 + R", "combination"),
    ("rho", REWARD, "1", "zero"),
    ("log_q", REWARD, "log_q", "separable"),
    ("rho*k1", OFF_REWARD, "rho*k1", "none"),
    ("rho*k3", OFF, "rho*k1", "none"),
    ("rho*(R - beta*k1)", OFF_REWARD, "rho*(R - beta*k1)", "none"),
    ("rho*A", OFF, "rho*A", "none"),
    ("rho**2*k1", OFF_REWARD, "rho**2*k1", "none"),
    ("rho", OFF_REWARD, "rho", "separable"),
    ("2*rho*(3*rho + 0.25*(beta*rho) + beta*rho)", OFF_REWARD, "2*(3 + 5*beta/4)*rho**2", "none"),
    ("rho*(1 - r)", OFF_REWARD, "rho*(1 - r)", "forward-kl"),
    ("k1", OFF_REWARD, "k1", "separable"),
    ("R", OFF_REWARD, "R", "separable"),
    ("k1", OFF, "1", "zero"),
    ("lam*k1", OFF_REWARD, "lam*k1", "separable"),
    ("R - beta*k1", OFF_REWARD, "R - beta*k1", "separable"),
    ("k1 + log_q", OFF_REWARD, "k1 + log_q", "separable"),
    ("R*k1", OFF_REWARD, "R*k1", "none"),
    ("rho*k1 + 1", OFF_REWARD, "rho*k1 + 1", "none"),
    ("R", OFF, "0*k1", "zero"),
]
IDS = [" ".join([row[0], *row[1].values()]) for row in ROWS]
rows = pytest.mark.parametrize(("loss", "options", "h", "target"), ROWS, ids=IDS)
both = pytest.mark.parametrize("batch", ["mean", "leave-one-out"])
CLOSE = 1e-10


@cache
def _ask(loss: str, options: tuple[tuple[str, str], ...]) -> Verdict:
    return explain(loss, **dict(options))


def ask(loss: str, options: dict[str, str], **more: str) -> Verdict:
    return _ask(loss, tuple(sorted({**options, **more}.items())))


def is_on_policy(options: dict[str, str]) -> bool:
    return "sampling" not in options


def found_field(h: str, options: dict[str, str], batch: str, n: int, theta: Any = judge.THETA) -> Any:
    return judge.field(judge.formula(h), theta, is_on_policy(options), batch, n)


@rows
def test_the_table_itself_holds(loss: str, options: dict[str, str], h: str, target: str) -> None:
    """No klsym here: with leave-one-out the field has a potential or has none, and may be that of a KL."""

    def field(theta: Any) -> Any:
        return found_field(h, options, "leave-one-out", 2, theta)

    twist = judge.twist(field)
    assert twist > 1e-3 if target == "none" else twist < 1e-7
    found = field(judge.THETA)
    assert (np.abs(found).max() < CLOSE) == (target == "zero")
    for name, c in (("reverse-kl", "k1"), ("forward-kl", "-r")):
        gradient = judge.score_form(c, judge.THETA)
        multiple = np.dot(found, gradient) / np.dot(gradient, gradient)
        parallel = np.abs(found - multiple * gradient).max() < CLOSE
        assert parallel == (target in (name, "zero"))


@rows
@both
def test_what_is_said_of_a_loss(loss: str, options: dict[str, str], h: str, target: str, batch: str) -> None:
    """E_q[c s] of the printed c is what all batches give on average; each proof replays."""
    verdict = ask(loss, options, batch=batch)
    assert (verdict.target, verdict.trust) == (target, "kernel")
    assert verdict.coefficient is not None
    mean = judge.mean_under_mu(h, judge.THETA)
    for n in (2, 3):
        form = judge.score_form(verdict.coefficient, judge.THETA, n=n, mean_h=mean)
        assert np.abs(form - found_field(h, options, batch, n)).max() < CLOSE
    assert verdict.proofs and verdict.proofs[0].theorem.kind == "proved"
    assert all(check(read(json.dumps(p.certificate()))) == (p.theorem.proved,) for p in verdict.proofs)


@rows
def test_no_centring_and_leave_one_out_agree_on_policy(
    loss: str, options: dict[str, str], h: str, target: str
) -> None:
    single, out = ask(loss, options, batch="none"), ask(loss, options, batch="leave-one-out")
    if is_on_policy(options):
        assert (single.target, single.coefficient) == (out.target, out.coefficient)
        assert single.gradient == out.gradient
    assert (single.value, single.value_constant) == (out.value, out.value_constant)


@pytest.mark.parametrize(("loss", "options", "h", "target"), ROWS[::6], ids=IDS[::6])
@both
def test_the_cross_check_agrees(loss: str, options: dict[str, str], h: str, target: str, batch: str) -> None:
    checked = with_check(ask(loss, options, batch=batch), parse(loss))
    assert checked.check is not None and checked.check["passed"], checked.check


@pytest.mark.parametrize(
    ("loss", "options", "per_sample"),
    [
        ("k1", {**REWARD, "batch": "leave-one-out"}, "k1_self - k1_others/(n - 1)"),
        ("k1", {**REWARD, "batch": "mean"}, "k1_self - (k1_self + k1_others)/n"),
        ("R - beta*k1", {**REWARD, "batch": "leave-one-out"},
         "R_self - beta*k1_self - (R_others - beta*k1_others)/(n - 1)"),
        ("k3", {"batch": "leave-one-out"}, "H_self - H_others/(n - 1)"),
        ("k1", {"batch": "mean"}, "0"),
    ],
    ids=labelled,
)  # fmt: skip
def test_per_sample(loss: str, options: dict[str, str], per_sample: str) -> None:
    assert ask(loss, options).per_sample == per_sample


H_I = r"H_i - \tfrac{1}{n}\,\left(H_i + \sum_{j\ne i} H_j\right)"
OF_BATCH = "H[others] H[self] n"
MADE = [
    ("k3", {"batch": "leave-one-out"}, r"H_i - \tfrac{1}{n - 1} \sum_{j\ne i} H_j", OF_BATCH),
    ("abs(k1)", {"batch": "mean"}, H_I, OF_BATCH),
    ("R", {**REWARD, "batch": "std"}, rf"\frac{{{H_I}}}{{\mathit{{std}}}}", f"{OF_BATCH} std"),
    ("k3", {"level": "token", "aggregate": "batch"}, r"\frac{(1 - r_t)\,s_t\,n}{T_i + \sum_{j\ne i} T_j}",
     "k1[now] length[others] length[self] n s[now]"),
    ("normalised(R) - beta*k1", REWARD, None, f"{OF_BATCH} beta k1[self] s[self] std"),
    ("full(k1) + abs(k1)", {}, None, "log_p log_q s"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "options", "latex", "named"), MADE, ids=labelled)
def test_h_is_a_value(loss: str, options: dict[str, str], latex: str | None, named: str) -> None:
    """It can be printed in LaTeX, and says what it is made of."""
    verdict = ask(loss, options)
    assert not isinstance(verdict.h, str) and not isinstance(verdict.c, str)
    assert names(verdict.h) == {*named.split()}
    assert latex is None or shown(verdict.h, LATEX) == latex


def test_a_verdict_without_steps_has_no_latex() -> None:
    verdict = ask("normalised(R) - beta*k1", REWARD)
    assert not verdict.steps and verdict._repr_latex_() is None
    assert "$$" in (ask("k1", {**REWARD, "batch": "mean"})._repr_latex_() or "")


def test_h_is_given_where_it_is_not_linear() -> None:
    assert "at every sample H = 1 - r" in ask("k3", {"batch": "leave-one-out"}).hypotheses


def test_multiples_shrink_with_the_batch_mean() -> None:
    answer = ask("R - beta*k1", {**REWARD, "batch": "mean"}).to_json()["gradient"]["combination"]
    at = {"n": 4, "beta": 0.7, "R": 1.7}
    assert judge.value(answer["reverse-kl"], at) == pytest.approx(-0.7 * 3 / 4)
    assert judge.value(answer["reward"], at) == pytest.approx(1.7 * 3 / 4)


WARNINGS: list[tuple[str, dict[str, str], list[str]]] = [
    ("k1", {**REWARD, "batch": "mean"}, [r"shrinks by 1 - 1/n \(multiply by n/\(n - 1\)"]),
    ("R - beta*k1", {**REWARD, "batch": "mean"}, ["shrinks by", "reward and the penalty shrink together"]),
    ("k1", {**REWARD, "batch": "leave-one-out"}, []),
    ("k1", {"batch": "mean"}, ["zero gradient at every sample", "value is unbiased"]),
    ("rho*k1", {**OFF_REWARD, "batch": "leave-one-out"},
     ["value is unbiased", r"what is taken off adds E_mu\[h\] grad KL\(mu\|\|q\)"]),
    ("k1", {**REWARD, "batch": "std"}, ["loses the size of the coefficient"]),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "options", "words"), WARNINGS, ids=labelled)
def test_warnings(loss: str, options: dict[str, str], words: list[str]) -> None:
    lines = ask(loss, options).warnings
    for expected in words:
        assert any(re.search(expected, line) for line in lines), lines
    assert len(lines) == len(words), lines


COVARIANCES: list[tuple[str, dict[str, str], str, list[tuple[float, str, str]]]] = [
    # loss, options, as it is printed, and the objective: multiples of Cov_mu
    ("k1", OFF_REWARD, "grad 1/2 Var_mu(k1)", [(0.5, "k1", "k1")]),
    ("lam*k1", OFF_REWARD, "grad (lam/2) Var_mu(k1)", [(0.5, "lam*k1", "k1")]),
    ("R", OFF_REWARD, "grad Cov_mu(R, log_q)", [(1, "R", "log_q")]),
    ("R - beta*k1", OFF_REWARD, "grad(Cov_mu(R, log_q) - (beta/2) Var_mu(k1))",
     [(1, "R", "log_q"), (-0.5, "beta*k1", "k1")]),
    ("k2", OFF, "grad 1/2 Var_mu(k1)", [(0.5, "k1", "k1")]),
    ("rho*r + log_q", OFF_REWARD, "grad(1/2 Var_mu(log_q) + Cov_mu(rho*r, log_q))",
     [(0.5, "log_q", "log_q"), (1, "rho*r", "log_q")]),
]  # fmt: skip


def covariance(a: str, b: str, theta: Any) -> float:
    return judge.mean_under_mu(f"({a})*({b})", theta) - judge.mean_under_mu(a, theta) * judge.mean_under_mu(
        b, theta
    )


@pytest.mark.parametrize(("loss", "options", "words", "parts"), COVARIANCES, ids=labelled)
@pytest.mark.parametrize("batch", ["mean", "leave-one-out"])
def test_a_covariance_under_mu_is_the_objective(
    loss: str, options: dict[str, str], words: str, parts: Any, batch: str
) -> None:
    """The field of all batches of three draws, beside central differences of covariances under a fixed mu."""

    def objective(theta: Any) -> float:
        return sum(scale * covariance(a, b, theta) for scale, a, b in parts)

    def moved(e: Any) -> float:
        up, down = judge.THETA + judge.STEP * e, judge.THETA - judge.STEP * e
        return (objective(up) - objective(down)) / (2 * judge.STEP)

    gradient = np.array([moved(e) for e in np.eye(3)])
    verdict = ask(loss, options, batch=batch)
    assert (verdict.target, verdict.trust) == ("separable", "kernel") and verdict.objective
    scale, factor = (1, "") if batch == "leave-one-out" else (1 - 1 / 3, "(1 - 1/n) ")
    assert np.abs(verdict_field(loss, options, batch) - scale * gradient).max() < 1e-8
    assert str(verdict).splitlines()[0].endswith(f"targets {factor}{words}")


def verdict_field(loss: str, options: dict[str, str], batch: str) -> Any:
    h = {"k2": "k1"}[loss] if options == OFF else loss
    return found_field(h, options, batch, 3)


def test_no_covariance_where_a_reward_multiplies_k1() -> None:
    """Cov_mu(R k1, s) has a curl: it is no gradient of E_mu[R k1**2]/2 less anything."""
    verdict = ask("R*k1", OFF_REWARD, batch="leave-one-out")
    assert verdict.target == "none" and verdict.objective is None and "Cov" not in str(verdict)


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        ("rho", "none"),
        ("k2", "none"),
        ("rho*M", "none"),
        ("k1", "separable"),
        ("A*log_q", "separable"),
        ("R", "zero"),
    ],
)
def test_lengths_move_apart_from_what_is_centred(loss: str, target: str) -> None:
    """E_mu[h/T] E_mu[s]: where every sequence has one token there is no curl, and otherwise there may be."""
    case = Case(loss, "off-policy", "loss", "sequence", "leave-one-out", aggregate="mean")
    assert loss_judge.examine(case) == loss_judge.Outcome(case, target, ())


# ---------------------------------------------------------------------------- std
STD = [*ROWS, ("A", REWARD, "A", ""), ("k1 - k1", REWARD, "0*k1", ""), ("2*k1", OFF_REWARD, "2*k1", "")]


STD_IDS = [" ".join([row[0], *row[1].values()]) for row in STD]


def slope_of(h: str) -> float | None:
    """dh/dlog q, if it is the same number at all outcomes: by central differences along each logit."""
    scores, found = judge.scores(judge.THETA), []
    for x in range(3):
        for e, s in zip(np.eye(3), scores[x], strict=True):
            up, down = (judge.formula(h)(x, judge.THETA + sign * judge.STEP * e) for sign in (1, -1))
            found.append((up - down) / (2 * judge.STEP) / s)
    return found[0] if np.ptp(found) < 1e-6 else None


@pytest.mark.parametrize(("loss", "options", "h", "target"), STD, ids=STD_IDS)
def test_std(loss: str, options: dict[str, str], h: str, target: str) -> None:
    """zero for constants; on-policy refuted at n = 2; under mu a gradient just where h moves alike."""
    verdict = ask(loss, options, batch="std")
    answer = verdict.to_json()["gradient"]
    values = [judge.formula(h)(x, judge.THETA) for x in range(3)]
    fields = {n: lambda theta, n=n: found_field(h, options, "std", n, theta) for n in (2, 3)}
    if np.ptp(values) < 1e-12:
        expected = "zero"
        assert np.abs(fields[3](judge.THETA)).max() < CLOSE
    elif is_on_policy(options):
        expected = "none"
        assert judge.twist(fields[2]) > 1e-3
    elif slope_of(h) is not None:
        expected = "separable"
        assert max(judge.twist(field) for field in fields.values()) < 1e-8
    else:  # at n = 2 signs do not move
        expected = "none"
        assert judge.twist(fields[2]) < 1e-8 < 1e-4 < judge.twist(fields[3])
    assert answer["target"] == expected
    assert verdict.trust == ("kernel" if expected == "zero" else "numeric")
    assert (answer["objective"] is not None) == (expected in ("zero", "separable"))
    certificates = (read(json.dumps(proof.certificate())) for proof in verdict.proofs)
    assert all(check(certificate) for certificate in certificates)


@pytest.mark.parametrize("h", ["k1", "2*k1", "R - beta*k1", "log_q", "R", "A + 3"])
@pytest.mark.parametrize("n", [2, 3])
def test_what_std_descends_under_mu(h: str, n: int) -> None:
    """E_mu[std]/b for dh = b dlog q; E_mu[mean_i a_i log q_i] where b = 0: central differences, mu fixed."""
    b = slope_of(h)
    assert b is not None

    def objective(theta: Any) -> float:
        total = 0.0
        for drawn in product(range(3), repeat=n):
            values = np.array([judge.formula(h)(x, theta) for x in drawn])
            logs = np.log(judge.softmax(theta))[list(drawn)]
            inside = values.std() / b if abs(b) > 1e-6 else np.mean(judge.centred(values, "std") * logs)
            total += np.prod(judge.MU[list(drawn)]) * inside
        return total

    def moved(e: Any) -> float:
        up, down = judge.THETA + judge.STEP * e, judge.THETA - judge.STEP * e
        return (objective(up) - objective(down)) / (2 * judge.STEP)

    gradient = np.array([moved(e) for e in np.eye(3)])
    assert np.abs(found_field(h, OFF_REWARD, "std", n) - gradient).max() < 1e-8
    shown = str(ask(h, OFF_REWARD, batch="std")).splitlines()[0]
    words = {"k1": "grad E_mu[std]", "2*k1": "grad (1/2)*E_mu[std]", "log_q": "grad E_mu[std]",
             "R - beta*k1": "grad (-1/beta)*E_mu[std]"}  # fmt: skip
    assert words.get(h, "/std*log_q_self]") in shown


def test_std_of_binary_rewards_has_an_arcsine_for_its_limit() -> None:
    """grad E_q[R]/sd(R) = grad 2 arcsin(sqrt(E_q[R])) at rewards 0 and 1; the error falls with n."""
    assert any("2*arcsin(sqrt(E_q[R]))" in note for note in ask("R", REWARD, batch="std").notes)
    assert not any("arcsin" in note for note in ask("k1", REWARD, batch="std").notes)
    q, s = judge.softmax(judge.THETA), judge.scores(judge.THETA)

    def limit(theta: Any) -> float:
        return 2 * np.arcsin(np.sqrt(judge.softmax(theta)[0]))

    moved = [limit(judge.THETA + judge.STEP * e) - limit(judge.THETA - judge.STEP * e) for e in np.eye(3)]
    gradient = np.array(moved) / (2 * judge.STEP)
    assert np.abs(q[0] * s[0] / np.sqrt(q[0] * (1 - q[0])) - gradient).max() < 1e-8
    fields = [judge.field(lambda x, _: float(x == 0), judge.THETA, True, "std", n) for n in (2, 4, 8)]
    errors = [np.abs(field - gradient).max() for field in fields]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize(
    ("n", "slope"),
    [(2, lambda P: 1.0), (3, lambda P: 2**0.5), (4, lambda P: 3**0.5 + (3 - 2 * 3**0.5) * P * (1 - P))],
)
def test_std_of_binary_rewards_has_an_objective_for_each_n(n: int, slope: Any) -> None:
    """Phi'(P) grad P with Phi' = E[sqrt(K (n - K))]/(n P (1 - P)), by all batches; of three values, none."""
    notes = " ".join(ask("R", REWARD, batch="std").notes)
    assert "E[sqrt(K*(n - K))]/(n*P*(1 - P))" in notes and "E_q[R] and sqrt(2)*E_q[R]" in notes
    q, s = judge.softmax(judge.THETA), judge.scores(judge.THETA)
    P = q[0]
    chance = [math.comb(n, k) * P**k * (1 - P) ** (n - k) for k in range(n + 1)]
    mean = sum(w * (k * (n - k)) ** 0.5 for k, w in enumerate(chance)) / (n * P * (1 - P))
    assert abs(mean - slope(P)) < 1e-12
    field = judge.field(lambda x, _: float(x == 0), judge.THETA, True, "std", n)
    assert np.abs(field - mean * P * s[0]).max() < CLOSE
    other = judge.field(lambda x, _: float(x), judge.THETA, True, "std", n)
    assert np.abs(other - mean * sum(q[x] * x * s[x] for x in range(3))).max() > 1e-3


def test_a_penalty_inside_the_normalisation_loses_its_weight() -> None:
    """Where the rewards agree, R - beta k1 over its std is the same for every beta > 0."""
    for beta in (1e-6, 1.0, 50.0):
        pushes = judge.centred(np.array([1 - beta * x for x in (0.3, -2.0, 0.7)]), "std")
        assert np.allclose(pushes, judge.centred(-np.array([0.3, -2.0, 0.7]), "std"), atol=1e-8)
    inside, alone = ask("R - beta*k1", REWARD, batch="std"), ask("k1", REWARD, batch="std")
    assert any("its weight is lost" in line for line in inside.warnings)
    assert any("divided by the same sd(h)" in note for note in inside.notes)
    assert not any("its weight is lost" in line for line in alone.warnings)


@pytest.mark.parametrize("h", ["k1", "7*k1", "k1 + 3"])
def test_std_keeps_the_sign_alone_at_n_2(h: str) -> None:
    """What the note says: at n = 2 the coefficient is 1 or -1 whatever its size is."""
    pairs = [judge.centred(np.array([a, b]), "std") for a in (0.3, -2.0) for b in (1.0, 5.0, -7.0)]
    assert all(np.allclose(np.abs(pair), 1) for pair in pairs)
    sizes = [found_field(text, {}, "std", 2) for text in ("k1", h)]
    assert np.abs(sizes[0] - sizes[1]).max() < CLOSE


def test_std_has_a_limit_for_large_n() -> None:
    """E_q[h s]/sd(h): the error falls with n."""
    q, h = judge.softmax(judge.THETA), [judge.formula("k1")(x, judge.THETA) for x in range(3)]
    spread = np.sqrt(np.dot(q, np.square(h)) - np.dot(q, h) ** 2)
    limit = judge.score_form("k1", judge.THETA) / spread
    errors = [np.abs(found_field("k1", {}, "std", n) - limit).max() for n in (2, 4, 8)]
    assert errors[0] > errors[1] > errors[2]


# ---------------------------------------------------------------------------- whole sequences
@pytest.mark.parametrize(("loss", "options", "h", "target"), ROWS[:12], ids=IDS[:12])
@pytest.mark.parametrize("batch", ["none", "mean", "leave-one-out"])
def test_a_whole_sequence_is_one_sample(
    loss: str, options: dict[str, str], h: str, target: str, batch: str
) -> None:
    sample, whole = (ask(loss, options, batch=batch, level=level) for level in ("sample", "sequence"))
    for name in ("gradient", "per_sample", "coefficient", "value", "trust", "objective"):
        assert getattr(sample, name) == getattr(whole, name)
    assert whole.to_json()["aggregate"] == "sum" and "KL(q||p) is that of whole sequences" in str(whole)


def test_a_clamp_of_whole_sequences_over_T() -> None:
    """No gradient beyond the bound; within it that of k3/T."""
    clamped, plain = (ask(loss, {}, level="sequence", aggregate="mean") for loss in ("clip(k3, 0, 5)", "k3"))
    assert (clamped.target, clamped.trust) == ("separable", "kernel")
    assert clamped.inside_clamps is not None
    assert clamped.inside_clamps.complete == plain.gradient.complete == {"rest": "1/T - r/T"}
    beyond, within = (str(value) for _, value in clamped.per_sample_cases)
    assert (beyond, within) == ("0", "-r/length + 1/length")


@pytest.mark.parametrize("loss", ["clip(k3, 0, 5)", "abs(k1)"])
def test_whole_sequences_outside_the_ring(loss: str) -> None:
    sample, whole = (ask(loss, {}, level=level) for level in ("sample", "sequence"))
    assert (sample.target, sample.coefficient) == (whole.target, whole.coefficient)


OVER_T: list[tuple[str, dict[str, str], str, str, str | None]] = [
    ("k1", {}, "separable", "1/T", r"\mathbb{E}_{q}\!\left[\frac{1}{T}\right]"),
    ("k2", {}, "separable", "k1/T", r"\mathbb{E}_{q}\!\left[\frac{k_1}{T} - \frac{1}{T}\right]"),
    ("k3", {}, "separable", "1/T - r/T", r"\mathbb{E}_{q}\!\left[\frac{1}{T} - \frac{r\,k_1}{T}\right]"),
    ("k1**3", {}, "separable", "3*k1**2/T",
     r"\mathbb{E}_{q}\!\left[\frac{3\,k_1^{2}}{T} - \frac{6\,k_1}{T} + \frac{6}{T}\right]"),
    ("log_q", REWARD, "separable", "log_q/T", r"\mathbb{E}_{q}\!\left[\frac{\log q}{T} - \frac{1}{T}\right]"),
    ("R", REWARD, "separable", "R/T", r"\mathbb{E}_{q}\!\left[\frac{R}{T}\right]"),
    ("A - k1", REWARD, "separable", "A/T - k1/T",
     r"\mathbb{E}_{q}\!\left[\frac{A}{T} - \frac{k_1}{T} + \frac{1}{T}\right]"),
    ("rho*k1", OFF_REWARD, "separable", "k1/T", r"\mathbb{E}_{q}\!\left[\frac{k_1}{T} - \frac{1}{T}\right]"),
    ("R", {}, "zero", "0", "0"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "options", "target", "coefficient", "objective"), OVER_T, ids=labelled)
def test_over_the_length(
    loss: str, options: dict[str, str], target: str, coefficient: str, objective: str | None
) -> None:
    verdict = ask(loss, options, level="sequence", aggregate="mean")
    assert (verdict.target, verdict.coefficient) == (target, coefficient)
    assert verdict.objective == objective
    assert all(check(read(json.dumps(p.certificate()))) == (p.theorem.proved,) for p in verdict.proofs)
    assert any(line.startswith("1/T depends") for line in verdict.warnings) == (target != "zero")
    checked = with_check(verdict, parse(loss))
    assert checked.check is not None and checked.check["passed"]


def test_the_objectives_over_the_length_are_right() -> None:
    """grad E_q[F/T] by differences, for sequences of lengths 1, 2, 3 as the three outcomes."""
    lengths = (1, 2, 3)
    for c, objective in (
        ("k1/T", "(k1 - 1)/T"),
        ("1/T - r/T", "1/T - r*k1/T"),
        ("A/T - k1/T", "(A - k1 + 1)/T"),
    ):

        def mean(theta: Any, text: str = objective) -> float:
            q = judge.softmax(theta)
            return sum(q[x] * judge.value(text, judge.names(x, theta, T=lengths[x])) for x in range(3))

        q, s = judge.softmax(judge.THETA), judge.scores(judge.THETA)
        form = sum(q[x] * judge.value(c, judge.names(x, judge.THETA, T=lengths[x])) * s[x] for x in range(3))
        slopes = [(mean(judge.THETA + 1e-5 * e) - mean(judge.THETA - 1e-5 * e)) / 2e-5 for e in np.eye(3)]
        assert np.abs(form - slopes).max() < 1e-9


# ---------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("loss", "options", "words"),
    [
        ("sqrt(k2)", {"batch": "std"}, "batch std takes exponential polynomials alone"),
        ("R/T", {}, "T in 'R/T' is the length of a sequence, and a single sample has none: choose level"),
        ("1/k1", {"level": "sequence", "aggregate": "mean"}, "division by k1"),
        ("m*k1", {"batch": "leave-one-out", "parameters": ("m",)}, "m in 'm.k1' stands for n - 1"),
        ("k1", {"batch": "median"}, "batch='median': one of none, mean, leave-one-out, std"),
        ("k1/(k1 - k1)", {"batch": "mean"}, "division by zero"),
    ],
    ids=labelled,
)  # fmt: skip
def test_refused(loss: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(loss, **options)
    assert re.search(words, str(caught.value)) and str(caught.value).isprintable()


def test_n_is_the_size_of_the_batch() -> None:
    """A loss may name n: multiplying by n/(n - 1) needs division by a sum, n alone does not."""
    verdict = ask("n*k1", {**REWARD, "batch": "mean"})
    assert judge.value(verdict.gradient.multiples["reverse-kl"], {"n": 5}) == pytest.approx(4)


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("log_q**2", {"batch": "leave-one-out"}),
        ("log_q", {"batch": "leave-one-out", "use": "reward"}),
        ("log_q", {"batch": "leave-one-out", "use": "reward", "sampling": "off-policy"}),
    ],
    ids=str,
)
def test_a_counterexample_has_m_one_less_than_n(loss: str, options: dict[str, str]) -> None:
    witness = explain(loss, **options).witness
    assert witness is not None
    numbers = witness["parameters"]
    assert int(numbers["n"]) == int(numbers["m"]) + 1


@pytest.mark.parametrize(
    ("loss", "options", "refuted"),
    [
        ("k3", {"batch": "leave-one-out"}, "grad KL(p||q) = grad KL(q||p)"),
        ("k3", {"batch": "mean"}, "(1 - 1/n) grad KL(p||q) = grad KL(q||p)"),
        ("k2", {"batch": "leave-one-out", "use": "reward"}, "E_q[k1**2*s/2] = grad KL(q||p)"),
    ],
    ids=str,
)
def test_where_h_is_given_a_counterexample_is_one_to_what_the_gradient_is_worth(
    loss: str, options: dict[str, str], refuted: str
) -> None:
    """A model need not satisfy the premises that give H its value, so that it says nothing of H."""
    verdict = explain(loss, **options)
    assert verdict.witness is not None and verdict.witness["refutes"] == refuted
    assert any(line.startswith("at every sample H = ") for line in verdict.hypotheses)
    left, right = ([Fraction(x) for x in verdict.witness[side]] for side in ("left", "right"))
    assert left[1] < right[0] or right[1] < left[0]


def test_what_is_centred_away_is_no_noise() -> None:
    """The constant of 1 - r is subtracted at each sample."""
    warned = explain("k3").warnings
    assert any("only the variance" in line for line in warned)
    for batch in ("mean", "leave-one-out"):
        assert not any("only the variance" in line for line in explain("k3", batch=batch).warnings)


@pytest.mark.parametrize(
    ("loss", "target"),
    [("rho*R", "none"), ("lam*(rho*R*A)", "none"), ("R", "separable"), ("k1", "none")],
)
def test_the_mean_that_is_taken_off_over_random_lengths(loss: str, target: str) -> None:
    """E_mu[h] grad KL(mu||q) has a curl on sequences of one and two tokens, that of R/T has an objective."""
    options = {**OFF, "batch": "mean", "use": "reward", "level": "sequence", "aggregate": "mean"}
    verdict = explain(loss, **options)  # type: ignore[arg-type]
    assert (verdict.target, verdict.trust) == (target, "kernel")
