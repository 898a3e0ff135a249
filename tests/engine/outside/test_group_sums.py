"""Losses of sums over the group, against sums over all groups with gradients made by hand."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest

from klsym import explain
from klsym.errors import UsageError
from klsym.language.parser import parse
from support.judges.loss_judge import examine
from support.losses.random_losses import Case
from support.oracle.grammar import evaluate, plain, walked

CHANCES, OLD = (0.2, 0.5, 0.3), (0.4, 0.35, 0.25)
REFERENCE = 0.25, 0.25, 0.5
REWARDS = 1.0, 0.0, 1.0
SIZES = range(2, 6)
BAD, GOOD = "log(1 + groupsum((R <= 0)*rho**2))", "log(1 + groupsum((R > 0)/rho**2))"
REAL = f"{BAD} + {GOOD}"
MIXED = "(groupsum(R > 0) > 0)*(groupsum(R <= 0) > 0)"
Loss = Callable[[Sequence[float], Sequence[float]], float]


def real(ratios: Sequence[float], rewards: Sequence[float]) -> float:
    """REAL at tau = 1/2, of the ratios q/mu and the rewards of one group."""
    bad = sum(w**2 for w, R in zip(ratios, rewards, strict=True) if R <= 0)
    good = sum(w**-2 for w, R in zip(ratios, rewards, strict=True) if R > 0)
    return math.log(1 + bad) + math.log(1 + good)


def real_of_mixed(ratios: Sequence[float], rewards: Sequence[float]) -> float:
    return real(ratios, rewards) if 0 < sum(rewards) < len(rewards) else 0.0


def differentiate(loss: Loss, n: int, mu: Sequence[float], step: float = 1e-5) -> list[float]:
    """Return the slope of the mean over all groups that mu draws, along the logit of each outcome."""

    def mean(logits: Sequence[float]) -> float:
        total = sum(map(math.exp, logits))
        ratios = [math.exp(x) / total / old for x, old in zip(logits, mu, strict=True)]
        groups = product(range(len(mu)), repeat=n)
        return sum(
            math.prod(mu[y] for y in group) * loss([ratios[y] for y in group], [REWARDS[y] for y in group])
            for group in groups
        )

    at = [math.log(x) for x in CHANCES]
    moved = [[[x + (i == j) * sign * step for i, x in enumerate(at)] for sign in (1, -1)] for j in range(3)]
    return [(mean(up) - mean(down)) / (2 * step) for up, down in moved]


def write_gradient(slope: str, n: int) -> list[float]:
    """Return E[slope] grad P, P the chance of a reward above 0, as the printed slope at K gives it."""
    P = sum(x for x, R in zip(CHANCES, REWARDS, strict=True) if R > 0)
    expression = parse(slope.replace("K", "alpha"))
    K, size = parse("alpha"), parse("n")
    at = [float(expression.subs({K: k, size: n})) for k in range(n)]
    mean = sum(math.comb(n - 1, k) * P**k * (1 - P) ** (n - 1 - k) * at[k] for k in range(n))
    return [mean * x * ((R > 0) - P) for x, R in zip(CHANCES, REWARDS, strict=True)]


def find_slope(text: str, **options: str) -> dict[str, object]:
    """Return what the answer says of Phi."""
    remarks = explain(text, **options).gradient.remarks  # type: ignore[arg-type]
    return next(dict(x.values) for x in remarks if x.code == "slope-of-counts")


# ---------------------------------------------------------------------------- on-policy
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("text", "loss"), [(REAL, real), (f"({REAL})*{MIXED}", real_of_mixed)])
def test_the_slope_that_is_printed_is_that_of_all_groups(text: str, loss: Loss, n: int) -> None:
    slope = find_slope(text)
    assert slope["sign"] == "-" and slope["of"] == "where(R > 0, 1, 0)" and not slope["same_length"]
    slopes = differentiate(loss, n, CHANCES)
    assert slopes == pytest.approx(write_gradient(str(slope["slope"]), n), abs=1e-8)
    left_out = real if loss is real_of_mixed else real_of_mixed
    assert slopes != pytest.approx(differentiate(left_out, n, CHANCES), abs=1e-4)


def test_the_slope_of_real_is_that_of_the_two_logs() -> None:
    """-(n/tau) (E[1/(K + 2)] + E[1/(n + 1 - K)]), tau = 1/2."""
    for n in SIZES:
        assert write_gradient("-2*n*(1/(K + 2) + 1/(n + 1 - K))", n) == pytest.approx(
            differentiate(real, n, CHANCES), abs=1e-8
        )


@pytest.mark.parametrize(
    ("loss", "kind", "slope"),
    [
        (REAL, "A policy gradient: minimises", "-2*n/(n + 1 - K) - 2*n/(K + 2)"),
        (f"-({REAL})", "The wrong sign for a policy gradient: minimises", "2*n/(n + 1 - K) + 2*n/(K + 2)"),
        ("-sg((R > 0)/(1 + groupsum(R > 0)))*log_q", "A policy gradient: minimises", "-1/(K + 2)"),
        ("(R > 0)*others(R > 0)**2*log_q", "The wrong sign for a policy gradient: minimises", "K**2"),
        (REAL.replace("R", "A"), "A policy gradient: minimises", "-2*n/(n + 1 - K) - 2*n/(K + 2)"),
        ("-sg((R > A)/(1 + groupsum(R > A)))*log_q", "No objective with a name: minimises", "1/(n + 1 - K)"),
        ("-others(M)**2*M*log_q", "No objective with a name: minimises", "-K**2"),
        ("log(1 + groupsum((R < 0)*rho))", "A policy gradient: minimises", "-n/(n + 1 - K)"),
        (BAD.replace("**2", "**(1/beta)"), "No objective with a name: minimises", "-n/(beta*(n + 1 - K))"),
    ],
)
def test_what_counts_ones_has_an_objective(loss: str, kind: str, slope: str) -> None:
    verdict = explain(loss, sampling="on-policy")
    assert (verdict.target, verdict.trust) == ("objective", "sympy") and kind in verdict.text()
    assert find_slope(loss, sampling="on-policy")["slope"] == slope
    assert f"E[{slope}]" in " ".join(verdict.text().split())


def test_a_reward_of_counts_is_maximised() -> None:
    text = explain("(R > 0)/(1 + groupsum(R > 0))", use="reward").text()
    assert "A policy gradient: maximises Phi(E_q[where(R > 0, 1, 0)])" in text
    assert find_slope("(R > 0)/(1 + groupsum(R > 0))", use="reward")["slope"] == "1/(K + 2)"


@pytest.mark.parametrize(
    "loss",
    [
        "log(1 + groupsum((R > 0)*rho + 2*(R < -1)*rho))",  # three values
        "log(1 + groupsum(abs(R)*rho))",
        "-sg((R > 0)/groupsum(R > 0))*log_q",  # 0/0 where no reward is above 0
        "-sg((R > 0)*log(beta**2 + 1 + others(R > 0)))*log_q*R",
        "(R > 0)*others(R > 0)**2*(log_q - A)**2",
        "(R > 0)*others(R > 0)**2*log_q + k3",
        "-sg((log_q > log_p)/(1 + groupsum(log_q > log_p)))*log_q",  # the mask depends on theta
        "-sg((log_mu > log_p)/(1 + groupsum(log_mu > log_p)))*log_q",
        "log(1 + groupsum((rho*r > 1)*rho))",
    ],
)
def test_other_counts_have_no_such_objective(loss: str) -> None:
    verdict = explain(loss, sampling="on-policy")
    assert not [x for x in verdict.gradient.remarks if x.code == "slope-of-counts"]
    assert verdict.target in (None, "no-objective")


# ---------------------------------------------------------------------------- other settings
@pytest.mark.parametrize("text", [REAL, f"({REAL})*{MIXED}", BAD, "log(1 + groupsum(rho))"])
def test_off_policy_it_is_its_own_mean(text: str) -> None:
    verdict = explain(text, sampling="off-policy")
    assert (verdict.target, verdict.trust) == ("own-mean", "sympy")
    assert "minimises its own mean under mu" in verdict.text()


class Member:
    """What the names of a printed coefficient stand for at one sample of a group, its score left out."""

    def __init__(self, values: Sequence[dict[str, float]], i: int) -> None:
        self.values, self.i = values, i
        self.sums = {"others": self.add_others}

    def __call__(self, name: str, inner: str | None = None) -> float:
        names = {**self.values[self.i], "n": float(len(self.values)), "s_self": 1.0}
        return names[name] if name in names else names[name.removesuffix("_self")]

    def add_others(self, argument: ast.expr) -> Any:
        return sum(
            walked(argument, Member(self.values, j), None) for j in range(len(self.values)) if j != self.i
        )


def list_values(group: Sequence[int], policy: Sequence[float], mu: Sequence[float]) -> list[dict[str, float]]:
    """Return what the names of the grammar are at each sample of a group."""
    values = []
    for y in group:
        k1 = math.log(policy[y] / REFERENCE[y])
        row = {"rho": policy[y] / mu[y], "R": REWARDS[y], "k1": k1, "r": math.exp(-k1), "k2": k1**2 / 2}
        values.append({**row, "k3": math.exp(-k1) - 1 + k1})
    return values


def add_up(rows: Sequence[dict[str, float]], name: str) -> float:
    return sum(row[name] for row in rows)


def of_good(rows: Sequence[dict[str, float]]) -> float:
    return sum(row["rho"] for row in rows if row["R"] > 0)


def of_real(rows: Sequence[dict[str, float]]) -> float:
    return real([row["rho"] for row in rows], [row["R"] for row in rows])


Rows = Sequence[dict[str, float]]
WRITTEN: dict[str, Callable[[Rows, Rows], float]] = {  # of the group at theta, and of the same group held
    REAL: lambda rows, held: of_real(rows),
    "log(1 + groupsum(k2))": lambda rows, held: math.log(1 + add_up(rows, "k2")),
    "groupsum(rho)*groupsum(k3)": lambda rows, held: add_up(rows, "rho") * add_up(rows, "k3"),
    "sg(groupsum(k2))*log(1 + groupsum(k2))":
        lambda rows, held: add_up(held, "k2") * math.log(1 + add_up(rows, "k2")),
    "log(2 + groupsum(sg(rho)*rho))": lambda rows, held: math.log(
        2 + sum(x["rho"] * y["rho"] for x, y in zip(rows, held, strict=True))
    ),
    "log(1 + groupsum((R > 0)*rho))*(groupsum(R > 0) > 1)":
        lambda rows, held: math.log(1 + of_good(rows)) * (sum(row["R"] for row in rows) > 1),
    "others(k3)": lambda rows, held: add_up(rows[1:], "k3"),
    "k1 + 1/(2 + groupsum(k3))": lambda rows, held: rows[0]["k1"] + 1 / (2 + add_up(rows, "k3")),
}  # fmt: skip


def list_gradients(
    text: str, n: int, mu: Sequence[float], step: float = 1e-5
) -> Iterator[tuple[float, float]]:
    """Yield the slope of E_mu[loss] along each logit, and E_mu[h s] with the h that is printed."""
    sampling = "on-policy" if mu is CHANCES else "off-policy"
    h = explain(text, sampling=sampling).to_json()["gradient"]["per_sample"]  # type: ignore[arg-type]
    groups = list(product(range(3), repeat=n))
    for j in range(3):
        slope = printed = 0.0
        policies = []
        for sign in (1, -1):
            weights = [x * math.exp(sign * step * (y == j)) for y, x in enumerate(CHANCES)]
            policies.append([x / sum(weights) for x in weights])
        for group in groups:
            weight, held = math.prod(mu[y] for y in group), list_values(group, CHANCES, mu)
            up, down = (WRITTEN[text](list_values(group, policy, mu), held) for policy in policies)
            slope += weight * (up - down) / (2 * step)
            score = (group[0] == j) - CHANCES[j]
            printed += weight * score * float(plain(evaluate(h, Member(held, 0))))
        yield slope, printed


@pytest.mark.parametrize("mu", [CHANCES, OLD], ids=["on-policy", "off-policy"])
@pytest.mark.parametrize("text", WRITTEN)
def test_the_printed_coefficient_has_the_gradient_of_the_loss(text: str, mu: Sequence[float]) -> None:
    for n in (2, 3):
        for slope, printed in list_gradients(text, n, mu):
            assert printed == pytest.approx(slope, abs=1e-7)


JUDGED = [
    (REAL, "on-policy"), (REAL, "off-policy"), (f"({REAL})*{MIXED}", "off-policy"),
    (REAL.replace("**2", "**(2/T)"), "on-policy"), (REAL.replace("**2", "**(2/T)"), "off-policy"),
    ("log(1 + groupsum(k2))", "on-policy"), ("groupsum(k3)**2", "off-policy"), ("others(k3)", "on-policy"),
    ("sg(groupsum(k2))*log(1 + groupsum(k2))", "on-policy"),
    ("sg(groupsum(k2))*groupsum(k2)**2", "on-policy"),
    ("exp(-groupsum(k2))*beta", "off-policy"), ("beta*k3 + log(1 + groupsum(rho))", "off-policy"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sampling"), JUDGED)
@pytest.mark.share(2)
def test_enumeration_and_autograd_agree(text: str, sampling: str) -> None:
    case = Case(text, sampling, "loss", ring=False, level="sequence")
    outcome = examine(case)
    assert not outcome.complaints, outcome
    pytest.importorskip("torch")
    from support.judges.autograd_trees import AGREE, misfit
    from support.judges.loss_worlds import options

    assert misfit(case, explain(text, **options(case)).to_json()) < AGREE


def test_real_as_released_has_no_objective_but_for_one_length() -> None:
    verdict = explain("real")
    assert (verdict.target, verdict.trust) == ("no-objective", "numeric")
    slope = find_slope("real")
    assert slope["same_length"] and slope["slope"] == find_slope(REAL)["slope"]
    assert "for responses of one length T, the objective is Phi(P)/T" in " ".join(verdict.text().split())


@pytest.mark.parametrize("text", ["k3*others(k3)", "R*log(1 + groupsum(rho))", "abs(groupsum(k2) - 1)"])
def test_what_is_no_smooth_function_of_sums_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is differentiated here"):
        explain(text)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (BAD, {"level": "token"}), (BAD, {"level": "sequence", "aggregate": "mean"}),
        (BAD, {"batch": "mean"}), ("log(groupsum((R > 0)*rho))", {}),
        ("log(beta + groupsum(rho))", {}), ("log(1 + groupsum(R*rho))", {}),
        ("log(1 - groupsum(rho))", {}), ("log(1 + groupsum(log_q))", {}), ("groupsum(others(R))*log_q", {}),
        (BAD, {"sampling": "top-p"}),
    ],
)  # fmt: skip
def test_what_is_not_read_is_refused(text: str, options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        explain(text, **options)  # type: ignore[arg-type]


def test_a_log_of_what_may_be_negative_is_told_so() -> None:
    with pytest.raises(UsageError, match="need not be positive"):
        explain("log(1 + groupsum((R + M)*rho))")
