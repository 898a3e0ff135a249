"""Piecewise losses: what `explain` prints, against exact expectations and against PyTorch as it is written.

Neither route shares code with the engine: the oracle of `loss_oracle` takes a complex step, and `read` below
turns the text of a loss into PyTorch calls with a real `detach`.  Nearly half of the losses meet a tie at
every sample.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache, reduce
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.engine.options.settings import Setting
from klsym.engine.regions.bounds_in_order import collect_clip_facts
from klsym.engine.regions.case_split import Condition, order_conditions
from klsym.engine.regions.piecewise import MAX_REGIONS
from klsym.engine.targets.clamp_messages import find_ties
from klsym.language.expressions import clip, k1, log_q
from klsym.language.parser import parse
from klsym.notation.losses import Written
from support.judges import autograd_judge
from support.judges.loss_judge import complaints
from support.losses import loss_oracle as oracle
from support.losses import written_losses as losses
from support.losses.random_losses import Case
from support.oracle.grammar import evaluate, plain
from support.oracle.losses import Forest, samples
from support.oracle.losses import Setting as Literal
from support.scale import scaled

CASES = losses.cases(seed=5, count=scaled(60, 12))[:: scaled(1, 2)]
BATCH = 16
BATCHES = range(0, len(CASES), BATCH)
OFF = {"sampling": "off-policy"}
REWARD = {"use": "reward"}


@cache
def verdict_of(case: Case) -> Any:
    return klsym.explain(case.text, sampling=case.sampling, use=case.use)


def ties_of(case: Case) -> dict[str, str]:
    return find_ties(Written(case.text, parse(case.text)), Setting(case.sampling, case.use))


# ---------------------------------------------------------------------------- exact expectations
@pytest.mark.parametrize("first", BATCHES)
def test_verdicts_against_exact_expectations(first: int) -> None:
    """per_sample at each outcome, the coefficient, the target, its multiples, the value, the witness."""
    found = {case: complaints(case, verdict_of(case)) for case in CASES[first : first + BATCH]}
    assert not {case: lines for case, lines in found.items() if lines}


def test_the_cases_hold_ties_and_every_target() -> None:
    assert len(set(CASES)) >= scaled(130, 60)
    assert sum(bool(ties_of(case)) for case in CASES if case.use == "loss") >= scaled(50, 25)
    targets = Counter(str(verdict_of(case).target).replace("own-mean", "objective") for case in CASES)
    assert len(targets) == 6 and min(targets.values()) >= scaled(5, 2), targets


# ---------------------------------------------------------------------------- PyTorch as it is written
def literal_gradient(case: Case, torch: Any) -> np.ndarray:
    """dL/dlog q at the points, by PyTorch; a detached reward h is trained as sg(h) log q."""
    given = {
        name: torch.as_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in autograd_judge.given(autograd_judge.atoms(case.sampling), case.sampling).items()
    }
    log_q = torch.tensor(autograd_judge.atoms(case.sampling)["log_q"], requires_grad=True)
    given = {"log_mu": log_q.detach(), **given, "log_q": log_q}
    k1_, r_ = log_q - given["log_p"], torch.exp(given["log_p"] - log_q)
    rho = torch.exp(log_q - given["log_mu"])
    given |= {"k1": k1_, "k2": k1_ * k1_ / 2, "r": r_, "k3": r_ - 1 + k1_, "rho": rho}
    loss = torch.as_tensor(read(ast.parse(case.text, mode="eval").body, given, torch), dtype=torch.float64)
    loss = loss.detach() * log_q if case.use == "reward" else loss
    [gradient] = torch.autograd.grad((loss + 0 * log_q).sum(), log_q)
    return np.asarray(gradient.numpy())


def read(node: ast.expr, names: dict[str, Any], torch: Any) -> Any:
    """The value of a loss, by the calls that training code makes; numbers stay numbers."""
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return names[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -read(operand, names, torch)
        case ast.BinOp(left, operator, right):
            return oracle.BINARY[type(operator)](read(left, names, torch), read(right, names, torch))
        case ast.Call(ast.Name(name), arguments):
            return call(name, [read(item, names, torch) for item in arguments], torch)
    raise AssertionError(ast.dump(node))


def call(name: str, values: list[Any], torch: Any) -> Any:
    if name == "clip" and slope_of_clamp(torch) == 1 and not any(map(torch.is_tensor, values[1:])):
        return torch.clamp(torch.as_tensor(values[0]), *values[1:])
    tensors = [torch.as_tensor(value, dtype=torch.float64) for value in values]
    if name == "clip":
        return clamp(*tensors, torch)
    if name in ("min", "max"):
        return reduce(torch.minimum if name == "min" else torch.maximum, tensors)
    return tensors[0].detach() if name == "sg" else getattr(torch, name)(tensors[0])


def clamp(x: Any, lo: Any, hi: Any, torch: Any) -> Any:
    """torch.clamp up to 2.13; written out where its slope at the bounds is no longer 1."""
    if slope_of_clamp(torch) == 1 and not bool((lo == hi).any()):
        return torch.clamp(x, lo, hi)
    raised = torch.where(x < lo, lo, x)
    return torch.where(raised > hi, hi, raised)


def slope_of_clamp(torch: Any) -> float:
    x = torch.tensor(1.0, requires_grad=True)
    torch.clamp(x, 1.0, 2.0).backward()
    return float(x.grad)


@pytest.mark.parametrize("first", BATCHES)
def test_printed_gradients_against_torch(first: int) -> None:
    """The string that is printed as the gradient at a sample."""
    torch = pytest.importorskip("torch")
    wrong = {}
    for case in CASES[first : first + BATCH]:
        names = autograd_judge.atoms(case.sampling)
        printed = oracle.evaluate(verdict_of(case).gradient.score_text, names)
        size = autograd_judge.size(parse(case.text), case.use, names)
        gradient = autograd_judge.Gradient(np.broadcast_to(printed, autograd_judge.POINTS), size)
        if not (missed := gradient.misses(literal_gradient(case, torch))) < autograd_judge.AGREE:
            wrong[case] = missed
    assert not wrong


def test_torch_clamp_has_the_slopes_that_the_warning_names() -> None:
    """The warning on ties says that PyTorch has them up to 2.13."""
    torch = pytest.importorskip("torch")
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    assert slope_of_clamp(torch) == (1 if version <= (2, 13) else 0)


# ---------------------------------------------------------------------------- by cases
RELATION = re.compile(r" (>=|<=|!=|>|<|=) ")
COMPARE = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal, "=": np.equal,
           "!=": np.not_equal}  # fmt: skip


def holds(where: str, at: dict[str, Any]) -> Any:
    """Where all conditions hold, as arrays."""
    found = np.ones(np.shape(at["log_q"]), dtype=bool)
    for condition in where.split(" and ") if where != "otherwise" else ():
        left, sign, right = RELATION.split(condition)
        found = found & COMPARE[sign](oracle.evaluate(left, at), oracle.evaluate(right, at))
    return found


def by_cases(cases: list[dict[str, str]], name: str, at: dict[str, Any]) -> np.ndarray:
    """The value of the one case that holds; "otherwise" comes last."""
    value, left = np.full(np.shape(at["log_q"]), np.nan), np.ones(np.shape(at["log_q"]), dtype=bool)
    for case in cases:
        here = holds(case["where"], at)
        assert case["where"] == "otherwise" or not np.any(here & ~left), "two cases at once"
        value = np.where(here & left, oracle.evaluate(case[name], at), value)
        left = left & ~here
    assert not left.any(), "a sample without a case"
    return value


def places(on_policy: bool) -> list[dict[str, Any]]:
    """Random samples, and samples with k1 = 0, or rho = 1, or both: where losses have their kinks."""
    log_q, log_p, log_mu, R, A = np.random.default_rng(12).normal(size=(5, 60))
    log_mu = log_q if on_policy else log_mu
    rows = ((log_q, log_p, log_mu), (log_q, log_q, log_mu), (log_q, log_p, log_q), (log_q, log_q, log_q))
    return [oracle.names(*row, R, A) | oracle.PARAMETERS for row in rows]


def test_the_cases_are_the_coefficients() -> None:
    """Wherever a coefficient is printed by cases, also at kinks, they say what its formula says."""
    told = 0
    for case in CASES:
        gradient = verdict_of(case).to_json()["gradient"]
        for at in places(case.sampling == "on-policy") if gradient["cases"] else ():
            for name in ("per_sample", "coefficient"):
                exact = np.broadcast_to(oracle.evaluate(gradient[name], at), 60)
                np.testing.assert_allclose(by_cases(gradient["cases"], name, at), exact, rtol=1e-7, atol=1e-9)
        told += bool(gradient["cases"])
    assert told >= scaled(40, 20)


BY_CASES = [
    ("abs(k1)", {}, [("k1 > 0", "1"), ("k1 = 0", "0"), ("k1 < 0", "-1")]),
    ("-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)", OFF,
     [("rho > eps + 1 and A > 0", "0"), ("rho < 1 - eps and A < 0", "0"), ("otherwise", "-A")]),
    ("clip(rho, 0.8, 1.2)*k1", OFF,
     [("rho > 6/5", "6/(5*rho)"), ("rho < 4/5", "4/(5*rho)"), ("rho >= 4/5 and rho <= 6/5", "k1 + 1")]),
    ("abs(k1)", REWARD, [("k1 >= 0", "k1"), ("k1 < 0", "-k1")]),
    ("k1/abs(k1)", REWARD, [("k1 >= 0", "1"), ("k1 < 0", "-1")]),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "options", "rows"), BY_CASES, ids=[row[0] for row in BY_CASES])
def test_by_cases(loss: str, options: dict[str, str], rows: list[tuple[str, str]]) -> None:
    verdict = klsym.explain(loss, **options)
    cases = verdict.to_json()["gradient"]["cases"]
    assert [(case["where"], case["coefficient"]) for case in cases] == rows
    text, latex = verdict.text(full=True), verdict._repr_latex_()
    typed = [where.replace("6/5", "1.2").replace("4/5", "0.8") for where, _ in rows if where != "otherwise"]
    assert "1e-300" not in text and all(f"where {where}" in text for where in typed)
    assert latex.count(r"\begin{cases}") == latex.count(r"\end{cases}") >= 1
    assert ("0/0" in "".join(verdict.warnings)) == (loss == "k1/abs(k1)")


# ---------------------------------------------------------------------------- the verdicts in words
NAMED = [
    # loss, per_sample, target, combination
    ("clip(rho, 1, 2)*A", "A", "combination", {"reward": "A"}),
    ("clip(rho, 0.5, 1)*A", "A", "combination", {"reward": "A"}),
    ("clip(log_q - log_mu, 0, 3)*A", "A", "combination", {"reward": "A"}),
    ("clip(rho, 1, 1)*A", "A", "combination", {"reward": "A"}),
    ("min(rho*A, clip(rho, 1, 1.2)*A)", "A", "combination", {"reward": "A"}),
    ("min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)", "A", "combination", {"reward": "A"}),
    ("clip(rho, 1 - eps, 1 + alpha)*A", "A", "combination", {"reward": "A"}),
    ("min(rho, 1)*A", "A/2", "combination", {"reward": "A/2"}),
    ("max(rho, 1)*k2", "k1**2/4 + k1", "f-divergence", {}),
    ("max(k1, sg(k1))", "1/2", "zero", {}),
    ("abs(k1 - sg(k1))", "0", "zero", {}),
    ("min(rho, 1, sg(rho))", "1/4", "zero", {}),
    ("clip(k2 - sg(log_q) + 3*k3 + rho + log_q, -0.4, 0.9)", "0", "zero", {}),
    ("clip(k3, -1, 0)", "0", "zero", {}),
    ("max(r - 1, -k1)", "-r", "forward-kl", {"forward-kl": "1"}),
]


@pytest.mark.parametrize(
    ("loss", "per_sample", "target", "combination"), NAMED, ids=[row[0] for row in NAMED]
)
def test_ties_on_policy(loss: str, per_sample: str, target: str, combination: dict[str, str]) -> None:
    verdict = klsym.explain(loss, sampling="on-policy")
    assert (verdict.gradient.score_text, verdict.target, verdict.trust) == (per_sample, target, "kernel")
    assert verdict.gradient.multiples == combination


SMOOTH = "at a kink the slope is that of PyTorch"
CLIP, MIN, ABS = "slope of clip at its bounds", "slope of min and max", "slope of abs at 0"
TOUCHED, HELD = "no sample from q lies where", "touches one that is held constant"
NESTED, CROSS = "three arguments of one min or max", "bounds of clip may cross"
POSITIVE = "> 0 (so that the bounds"
WORDS = [
    # loss, options, words in the hypotheses, words in the warnings
    ("clip(k1, 0, 1)", {}, {SMOOTH}, set()),
    ("clip(rho, 1, 2)*A", {}, {CLIP}, {CLIP}),
    ("clip(rho, 1, 2)*A", OFF, {SMOOTH}, set()),
    ("clip(rho, 0.8, 1.2)*A", {}, set(), set()),  # rho = 1 lies inside
    ("min(rho*A, clip(rho, 0.8, 1.2)*A)", {}, set(), set()),  # both branches are rho*A there
    ("min(rho*A, clip(rho, 0.8, 1.2)*A)", OFF, {SMOOTH}, set()),
    ("min(rho*A, clip(rho, 1, 1.2)*A)", {}, {CLIP, MIN}, {CLIP, MIN}),
    ("max(k1, sg(k1))", {}, {MIN}, {MIN}),
    ("max(k1, sg(k1))", OFF, {MIN}, {MIN}),
    ("max(k1 - sg(k1), min(k1, 0))", {}, {MIN}, {MIN}),  # a tie where k1 > 0
    ("abs(k1 - sg(k1))", {}, {ABS}, {ABS}),
    ("abs(rho - 1)/2 + min(rho, 1)", {}, {ABS, MIN}, {ABS, MIN}),  # (rho + 1)/2, if ties are shared alike
    ("min(rho, 1, sg(rho))", {}, {MIN}, {MIN, NESTED}),
    ("min(k1, sg(k1), 2*k1 - sg(k1))", {}, {MIN}, {MIN, NESTED}),
    ("max(k1, k2, r)", {}, {SMOOTH}, set()),
    ("max(r, sg(1 - k1))", {}, {SMOOTH, TOUCHED}, set()),  # r >= 1 - k1, and at r = 1 PyTorch has -r/2
    ("max(rho*r, 1 - k1)", {}, {SMOOTH, TOUCHED}, set()),  # on-policy rho*r = p/sg(q) does not move
    ("max(r, sg(1 - k1))", REWARD, set(), set()),
    ("max(r, 1 - k1)", {}, {SMOOTH, TOUCHED}, set()),  # both move, and touch with one slope
    ("max(k2, sg(k1 - 1))", {}, set(), set()),  # they never meet
    ("clip(rho, 1 - eps, 1 + eps)*A", {}, {"eps " + POSITIVE}, set()),
    ("clip(rho, 1 - eps, 1 + eps)*A", OFF, {SMOOTH, "eps " + POSITIVE}, set()),
    ("clip(k1, -beta, alpha)", REWARD, {"beta " + POSITIVE, "alpha " + POSITIVE}, set()),
    ("clip(k1, -1, n)", {}, {SMOOTH}, set()),  # n is positive anyway
    ("clip(k1, eps, 2)", {}, {SMOOTH}, {CROSS}),
    ("clip(k1, r, 2)", {}, {SMOOTH}, {CROSS}),
    ("clip(k1, r, r + 1)", {}, {SMOOTH}, set()),
]


@pytest.mark.parametrize(
    ("loss", "options", "hypotheses", "warnings"), WORDS, ids=[str(row[:2]) for row in WORDS]
)
@pytest.mark.share(3)
def test_hypotheses_and_warnings(
    loss: str, options: dict[str, str], hypotheses: set[str], warnings: set[str]
) -> None:
    verdict = klsym.explain(loss, **{"sampling": "on-policy", **options})
    parameters = {f"{name} {POSITIVE}" for name in ("eps", "beta", "alpha", "n")}
    for words, lines, expected in (
        ({SMOOTH, CLIP, MIN, ABS, TOUCHED, HELD} | parameters, verdict.hypotheses, hypotheses),
        ({CLIP, MIN, ABS, NESTED, CROSS}, verdict.warnings, warnings),
    ):
        assert {word for word in words if any(word in line for line in lines)} == expected
        assert all(len(line) < 160 or "exchanged" in line for line in lines)


def test_a_reward_in_a_region_is_seen_there() -> None:
    """The places tried have rewards that are not 0, which would hide the region."""
    verdict = klsym.explain("min(rho*r - sg(r), 0, 0 + k1)*R", sampling="off-policy")
    assert (verdict.target, verdict.trust) == ("objective", "kernel")


def test_bounds_that_cross_in_an_expression() -> None:
    """In text they are refused at the character; an expression gets the value hi, and the warning."""
    verdict = klsym.explain(clip(k1, 2, 1) + k1**2 / 2)
    assert (verdict.target, verdict.gradient.multiples) == ("reverse-kl", {"reverse-kl": "1"})
    assert any(CROSS in line for line in verdict.warnings)


# ---------------------------------------------------------------------------- limits and names
def test_too_many_regions_are_open(at_most: Any) -> None:
    many = "+".join(f"abs(k1 - {i})" for i in range(MAX_REGIONS // 2 + 1))
    with at_most(20):
        verdict = klsym.explain(many)
    assert (verdict.target, verdict.trust, verdict.gradient.score_coefficient) == (None, "open", None)
    assert f"more than {MAX_REGIONS} regions" in " ".join(str(verdict).split())
    assert "gradient" not in str(verdict) and verdict.to_json()["gradient"]["per_sample"] is None


@pytest.mark.parametrize(
    ("loss", "names"),
    [
        ("clip(rho, 1 - eps, 1 + eps)", "eps"),
        ("clip(rho, 1 - eps, 1 + eps)*clip(k1, -beta, beta)", "beta eps"),
        ("clip(k1, 0, lam*beta)", "beta lam"),
        ("clip(k1, -eps**2, eps**2)", ""),
        ("clip(k1, beta, 2)", ""),
        ("clip(k1, r, eps)", ""),
        ("clip(k1, r - eps, r)", "eps"),
        ("min(max(rho, 1 - eps), 1 + eps)", ""),
        ("sg(clip(k1, -T, T))", ""),
    ],
)
def test_parameters_that_are_assumed_positive(loss: str, names: str) -> None:
    assert " ".join(map(str, collect_clip_facts(parse(loss)))) == names


@pytest.mark.parametrize("name", ["indicator0", "tie0", "opaque0"])
def test_names_of_the_engine_are_free_for_parameters(name: str) -> None:
    loss = "{0}*max(k1, 0)*clip(rho, 1, 2) + sqrt(2)*k2"
    verdict = klsym.explain(loss.format(name), parameters=[name])
    other = klsym.explain(loss.format(name + "x"), parameters=[name + "x"])
    assert verdict.gradient.score_text == other.gradient.score_text.replace(name + "x", name)
    assert (verdict.target, verdict.hypotheses) == (other.target, other.hypotheses)


# ---------------------------------------------------------------------------- values
VALUES = [
    ("clip(k1, 1 - eps, 1 + eps)", {}, "0"), ("min(k1, beta + eps)", {}, "0"),
    ("abs(k1) + 1 - eps", {}, "1 - eps"),
    ("max(1, k2) + lam", {}, "lam"), ("clip(k1, -2, 0) - 1", OFF, "-1"), ("abs(k1) + rho", OFF, "1"),
    ("sqrt(k2 + 1) - A", REWARD, "0"), ("abs(max(rho, 2))", OFF, "3/2"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "options", "constant"), VALUES)
def test_a_value_without_a_name_adds_up(loss: str, options: dict[str, str], constant: str) -> None:
    """E_mu[L] = E_q[the parts] + the constant: the bound of a clip is no constant beside it."""
    value = klsym.explain(loss, **options).to_json()["value"]
    assert value["constant"] == constant
    parts = " + ".join(f"({part})" for part in (*value["combination"].values(), constant))
    where = Forest(samples(3), (options.get("sampling", "on-policy"),))
    exact = where.value(loss, Literal(**options)).value
    rows = where.whole
    told = plain(evaluate(parts, where.names(rows)))
    stated = where.mean(rows, where.chance(rows, "q").value * told).value
    assert np.abs(exact - stated).max() < 1e-9


# ---------------------------------------------------------------------------- the order of conditions
x, y = k1, log_q
ORDERS = (
    ([(x - 1, (0, -1)), (x + 1, (1, 0))], [1, 0]),  # -1 <= k1 <= 1
    ([(x + 1, (1, 0)), (x - 1, (0, -1))], [0, 1]),
    ([(x - 1, (0, -1)), (y, (1,))], [0, 1]),  # of other variables
    ([(x - 1, (0, -1)), (x, (1, -1)), (x + 1, (1, 0))], [0, 1, 2]),  # k1 != 0 is no bound
    ([(x - 2, (-1,)), (x - 1, (-1,)), (x, (1,))], [0, 2, 1]),
)


@pytest.mark.parametrize(("given", "order"), ORDERS)
def test_a_lower_bound_stands_first_and_no_condition_is_lost(given: list[Any], order: list[int]) -> None:
    conditions = [Condition(*one) for one in given]
    assert order_conditions([*conditions]) == tuple(conditions[i] for i in order)
