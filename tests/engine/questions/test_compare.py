"""compare: a table of pairs, judged by literal enumeration of finite models in plain floats."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis.strategies import sampled_from

import klsym
from klsym.api import compare
from klsym.cli import main
from klsym.errors import UsageError
from klsym.kernel import check, read
from klsym.language.expressions import k1, k3, rho
from klsym.render.questions.compare import PrintedComparison
from support.compare_models import MODELS, coefficients, factor, inside, moments, near, points
from support.float_sheet import PARAMETERS, evaluate
from support.losses.cases import options
from support.scale import scaled

pytestmark = pytest.mark.usefixtures("without_copies")

YES, NO = True, False


class Row(NamedTuple):
    """A and B, how they are used; same value, gradient at a sample, expected gradient? who varies less?"""

    a: str
    b: str
    words: str
    value: bool
    sample: bool
    mean: bool
    lower: str

    @property
    def setting(self) -> dict[str, Any]:
        return options(self.words)

    @property
    def sampling(self) -> str:
        return str(self.setting.get("sampling", "on-policy"))

    @property
    def asked(self) -> PrintedComparison:
        return ask(self.a, self.b, self.words)


@cache
def ask(a: str, b: str, words: str) -> PrintedComparison:
    return compare(a, b, **options(words))


TABLE = [
    Row("k1", "k3", "", YES, NO, NO, "depends"),
    Row("k1", "k2", "", NO, NO, NO, "depends"),
    Row("k1", "0", "", NO, NO, YES, "B"),
    Row("sg(k1)", "3", "", NO, YES, YES, "equal"),
    Row("k2", "sg(k1)*log_q", "", NO, YES, YES, "equal"),
    Row("k2", "-k2", "", NO, NO, NO, "equal"),
    Row("k2", "2*k2", "", NO, NO, NO, "A"),
    Row("k3", "k(1)", "", YES, YES, YES, "equal"),
    Row("k2 + lam*k1", "k2", "", NO, NO, YES, "depends"),
    Row("rho*k2", "sg(rho)*k2", "", YES, NO, NO, "depends"),
    Row("rho*k3", "sg(rho)*k2", "", NO, YES, YES, "equal"),
    Row("k1**3 + k1**2/2 + k1", "k1**3 + k1**2/2", "", NO, NO, YES, "B"),
    Row("A*log_q", "(A - 1)*log_q", "", NO, NO, YES, "depends"),
    Row("rho*k1", "rho*k3", "off", YES, NO, YES, "depends"),
    Row("sg(rho)*k2", "rho*k3", "off", NO, YES, YES, "equal"),
    Row("rho*k2", "sg(rho)*k2", "off", YES, NO, NO, "depends"),
    Row("rho*k1**3", "rho*(k1**3 + 1)", "off", NO, NO, YES, "depends"),
    Row("rho*k3", "0", "off", NO, NO, NO, "B"),
    Row("rho*R", "rho*R + rho", "off", NO, NO, YES, "depends"),
    Row("R**2 + 1", "R**2 + 2", "reward", NO, NO, YES, "A"),
    Row("k2", "k2 + log_mu", "off", NO, YES, YES, "equal"),
    Row("k3", "k3 + 1", "reward", NO, NO, YES, "A"),
    Row("k1", "k1 + r - 1", "reward", YES, NO, NO, "depends"),
    Row("k1**2 + 2", "k1**2 + 1", "reward", NO, NO, YES, "B"),
    Row("rho*k1", "rho*(k1 - 1)", "off reward", NO, NO, YES, "depends"),
    Row("rho*k1", "k1", "reward", YES, YES, YES, "equal"),
]
pairs = pytest.mark.parametrize("row", TABLE, ids=lambda row: " ".join(row[:3]))


@pairs
def test_the_table_itself_holds(row: Row) -> None:
    """No klsym here: sums over the outcomes, slopes by central differences."""
    both = [[moments(loss, model, row.setting) for loss in (row.a, row.b)] for model in MODELS]
    assert all(near(x[0], y[0]) for x, y in both) == row.value
    assert all(near(x[1], y[1]) for x, y in both) == row.mean
    assert all(near(v, w) for x, y in both for v, w in zip(x[3], y[3], strict=True)) == row.sample
    assert all(near(x[2], y[2]) for x, y in both) == (row.lower == "equal")
    if row.lower in ("A", "B"):
        sign = 1 if row.lower == "A" else -1
        assert all(sign * (y[2] - x[2]) >= -1e-6 * (x[2] + y[2]) for x, y in both)


@pairs
def test_answers(row: Row) -> None:
    found = row.asked
    assert found.variance is not None
    got = (found.value.same, found.per_sample.same, found.gradient.same, found.variance.lower)
    assert got == (row.value, row.sample, row.mean, row.lower)
    assert found.trust == "kernel" and found.undecided == ()
    assert found.variance.exact == row.mean
    for proof in found.proofs:
        assert proof.trust == "kernel"
        assert check(read(json.dumps(proof.certificate()))) == (proof.theorem.proved,)


@pairs
def test_difference_of_the_variances(row: Row) -> None:
    """Var A - Var B = E_m[(a^2 - b^2) s^2] - (E_m[a s]^2 - E_m[b s]^2), and each part of it as printed."""
    spread = row.asked.variance
    assert spread is not None
    gap = spread_gap(spread.difference)
    assert spread.measure == ("q" if row.sampling == "on-policy" else "mu")
    for model in MODELS[::2]:
        rows = points(model, row.sampling)
        both = [moments(x, model, row.setting) for x in (row.a, row.b)]
        (_, mean_a, var_a, _), (_, mean_b, var_b, _) = both
        for m, _, at in rows:
            pair = [factor(x, at, row.setting.get("use", "loss")) for x in (row.a, row.b)]
            told = [evaluate(c, at) for c in spread.coefficients]
            assert m > 0 and all(map(near, pair, told))
        seconds = sum(m * s**2 * evaluate(gap, at) for m, s, at in rows)
        means = 0 if spread.exact else mean_a**2 - mean_b**2
        assert abs(var_a - var_b - (seconds - means)) <= 1e-6 * (1 + var_a + var_b + abs(seconds) + mean_a**2)


def spread_gap(shown: str) -> str:
    """a^2 - b^2 out of E_m[(a^2 - b^2)*s**2]."""
    if shown == "0":
        return "0"
    if shown.startswith("-"):
        return f"-({spread_gap(shown[1:])})"
    inner = re.fullmatch(r"E_\w+\[(.*)\]", shown)
    assert inner
    return re.sub(r"(\*?)s\*\*2$", r"\g<1>1", re.sub(r"\*s\*\*2/", "/", inner[1]))


@pairs
def test_region(row: Row) -> None:
    """b^2 <= a^2 exactly where the region says."""
    spread, signs = row.asked.variance, set()
    assert spread is not None
    for model in MODELS:
        for _, _, at in points(model, row.sampling):
            x, y = (factor(loss, at, row.setting.get("use", "loss")) for loss in (row.a, row.b))
            gap = x * x - y * y
            if abs(gap) > 1e-5 * (x * x + y * y):
                signs.add(gap > 0)
                assert inside(spread.region, at) == (gap > 0), (spread.region, at)
    decided = spread.region == "everywhere" or spread.region.startswith(("nowhere", "only where"))
    if not re.search("beta|lam", spread.region):  # these have one value here
        assert decided == (len(signs) < 2)


@pairs
def test_witnesses(row: Row) -> None:
    """A model stands beside each "different" and each "varies less", and says what it is said to say."""
    answer = row.asked.to_json()
    for name, position in (("value", 0), ("expected_gradient", 1), ("per_sample", 3)):
        witness = answer[name]["witness"]
        assert (witness is None) == answer[name]["same"]
        if witness:
            found = [one[position] for one in at(witness, row)]
            x, y = (one[witness["outcome"]] for one in found) if position == 3 else found
            assert enclosed(x, witness["left"]) and enclosed(y, witness["right"]) and abs(x - y) > 1e-7
    for name, high in (("a_varies_less", 1), ("b_varies_less", 0)):
        witness = answer["variance"][name]
        assert (witness is not None) == (row.lower == "depends")
        if witness:
            spread = [one[2] for one in at(witness, row)]
            assert enclosed(spread[high], witness["left"]) and enclosed(spread[1 - high], witness["right"])
            assert spread[high] > spread[1 - high]


def at(witness: dict[str, Any], row: Row) -> list[Any]:
    """The moments of both losses in the model of a witness."""
    model = {n: [float(Fraction(x)) for x in witness.get(n, witness["q"])] for n in ("q", "p", "mu", "u")}
    rewards, none = witness.get("rewards", {}), ["0"] * len(model["q"])
    model |= {name: [float(Fraction(x)) for x in rewards.get(name, none)] for name in ("R", "A")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in witness.get("parameters", {}).items():
            patch.setitem(PARAMETERS, name, float(Fraction(value)))
        return [moments(loss, model, row.setting) for loss in (row.a, row.b)]


def enclosed(x: float, ends: list[str]) -> bool:
    low, high = (float(Fraction(end)) for end in ends)
    return low - 1e-6 * (1 + abs(low)) <= x <= high + 1e-6 * (1 + abs(high))


@pairs
def test_text(row: Row) -> None:
    lines, short = row.asked.text(proof=True).splitlines(), str(row.asked).splitlines()
    used = "rewards" if "reward" in row.words else "losses"
    sampler = "on-policy" if row.sampling == "on-policy" else "samples from an older policy mu"
    assert lines[0].endswith(f" as {used}, {sampler}") and lines[: len(short)] == short
    assert any(line.endswith(" proved") for line in lines[1:3]) and ("same policy" in lines[1]) == row.mean
    differs = ("  Different ", "  The same up to", "  Opposite")
    assert lines[1].startswith(differs) == (not row.mean)
    assert len(short) <= 12 < len(lines) and len(row.asked.text(width=60).splitlines()) <= 16
    words = {True: "the same", False: "different"}
    at_a_sample = words[row.mean] if row.mean == row.sample else "different at a sample"
    for name, said in (("value", f"{words[row.value]} on average"), ("gradient", at_a_sample)):
        assert sum(line.startswith(f"  {name:<8} ") and said in line for line in lines) == 1
    assert all(line.isprintable() and line == line.rstrip() for line in lines)
    assert lines.count("A varies less here") == lines.count("B varies less here") == (row.lower == "depends")
    html = row.asked._repr_html_()
    assert "A = <math" in html and "<summary>Proof</summary>" in html


def test_a_comparison_says_what_each_loss_minimises() -> None:
    lines = compare("k1", "k3").text().splitlines()
    assert "k1       No effect: its expected gradient is zero" in lines[2]
    assert "k3       A penalty on KL(reference || policy): minimises KL(p||q)" in lines[3]
    first, second = compare("rho*k3", "sg(rho)*k3 + 0.04*rho*k2 - A*log_q", sampling="off-policy").verdicts
    assert first.target == "reverse-kl" != second.target and len(second.gradient.terms) == 3


@pytest.mark.parametrize(
    ("a", "b", "options", "words"),
    [
        ("k2", "k3", {}, "Different objectives"),
        ("-A*log_q", "-A*log_q/T", {"level": "token"}, "Different objectives"),
        ("k1", "k3", {}, "Different expected gradients"),  # k1 has no effect
        ("k2", "k2/T", {"level": "token"}, "Different expected gradients"),  # k2/T has no objective
        ("rho*k1", "rho*k3", {"sampling": "off-policy"}, "Training goes to the same policy"),
    ],
)
def test_objectives_differ_where_there_are_two(a: str, b: str, options: dict[str, str], words: str) -> None:
    found = compare(a, b, **options)
    assert found.text().splitlines()[1].startswith(f"  {words}")
    assert f"<b>{words}</b>" in found._repr_html_()


def test_long_losses_are_named_by_letters() -> None:
    long = "-min(rho*A, clip(rho, 0.8, 1.28)*A)"
    lines = compare("ppo", long).text().splitlines()
    assert lines[0].startswith("A and B as losses at each token")
    assert f"  B        {long}" in lines and len(lines) <= 12
    assert sum(line.startswith("  A        A policy gradient inside the clip range") for line in lines) == 1


# ---------------------------------------------------------------------------- the worked example
def test_rho_k1_beside_rho_k3_says_what_the_ledger_says() -> None:
    spread = ask("rho*k1", "rho*k3", "off").variance
    assert spread is not None and spread.regional is not None
    assert spread.difference == "E_mu[rho**2*(2*k1 + 1)*s**2]"
    assert spread.region == "2*k1 + 1 >= 0, that is r <= exp(1/2)"
    assert spread.regional_lower == "B" and spread.where.endswith("that is r <= exp(1/2)")
    difference, region = (
        klsym.claim(name).proofs[-1].theorem for name in ("variance.difference", "variance.sufficient-region")
    )
    assert (spread.base[-1].theorem.statement, spread.regional.theorem.statement) == (
        difference.statement, region.statement,
    )  # fmt: skip


def test_what_is_one_region_has_the_other_order_outside() -> None:
    """Swapping the losses swaps every answer."""
    for row in TABLE[::4]:
        one, two = row.asked.variance, ask(row.b, row.a, row.words).variance
        assert one is not None and two is not None
        swapped = {"A": "B", "B": "A"}
        assert two.lower == swapped.get(one.lower, one.lower) and two.coefficients == one.coefficients[::-1]
        assert two.regional_lower == swapped.get(one.regional_lower, "")


def test_open_is_said() -> None:
    """n is a whole number, so k2/n never varies more than k2, which the kernel cannot know."""
    found = compare("k2", "k2/n")
    assert found.variance is not None and found.variance.lower == "open"
    assert found.variance.a_less is None and found.variance.b_less is not None
    assert found.to_json()["variance"]["trust"] == "open" and "open: no order is proved" in str(found)
    assert found.trust == "open" and any("the order of the variances" in line for line in found.undecided)


@pytest.mark.parametrize(
    ("a", "b", "setting", "where"),
    [
        ("k2", "rho*k1", {"use": "reward"}, "second_moments_in_region"),
        ("rho*k1", "rho*k3", {"sampling": "off-policy"}, "in_region"),
    ],
)
def test_an_order_of_second_moments_is_no_order_of_variances(
    a: str, b: str, setting: dict[str, str], where: str
) -> None:
    """Where the means differ, a model lies in the region in which the second moments, not the variances,
    have this order: q = (1/2, 1/2), p = (1/4, 3/4) has |k1| < 2 and the variance of k2 is the larger one.
    """
    answer = compare(a, b, **setting).to_json()["variance"]
    other = {"in_region", "second_moments_in_region"} - {where}
    assert answer[where]["lower"] and all(answer[name] is None for name in other)
    if "use" in setting:
        model = {"q": [0.5, 0.5], "p": [0.25, 0.75], "u": [1, 0], "R": [0, 0], "A": [0, 0]}
        first, second = (moments(loss, model, setting) for loss in (a, b))
        assert answer[where]["lower"] == "A" and answer[where]["where"] == "4 - k1**2 >= 0 wherever q > 0"
        assert first[2] > second[2] and first[2] + first[1] ** 2 < second[2] + second[1] ** 2


@settings(max_examples=scaled(40, 6))
@given(coefficients(), coefficients(), sampled_from(["", "off", "reward", "off reward"]))
def test_random_pairs(a: str, b: str, words: str) -> None:
    """No answer about random losses contradicts a random model."""
    setting, found = options(words), compare(a, b, **options(words))
    assert found.variance is not None
    both = [(moments(a, model, setting), moments(b, model, setting)) for model in MODELS[:8]]
    for position, answer in ((0, found.value), (1, found.gradient)):
        if answer.same:
            assert all(near(x[position], y[position]) for x, y in both)
    lower = found.variance.lower
    for x, y in both:
        slack = 1e-6 * (1 + x[2] + y[2])
        assert lower not in ("A", "equal") or x[2] <= y[2] + slack
        assert lower not in ("B", "equal") or y[2] <= x[2] + slack


# ---------------------------------------------------------------------------- bounds, logs, parameters
BOUNDED: list[tuple[str, str, str, tuple[bool, bool, bool]]] = [
    ("clip(k3, 0, 5)", "k3", "", (False, False, False)),
    ("clip(k1, 0.3, 0.4)", "0", "", (False, False, False)),
    ("log(2)*k2", "log(2)*k3", "", (False, False, False)),
    ("sqrt(2)*k1", "0", "", (False, False, True)),
    ("k1 + k2*abs(k1) - sg(k2*abs(k1))", "k1", "", (True, False, False)),
    ("abs(k1)", "abs(k1)**3", "", (False, False, False)),
    ("abs(lam)*k3", "lam*k3", "", (False, False, False)),
    ("k3/(1 + beta)", "k3/(beta + 1)", "", (True, True, True)),
    ("har*sqrt(2)*k2", "har*k2", "", (False, False, False)),
    ("-min(rho*A, clip(rho, 4/5, 6/5)*A)", "-rho*A", "off", (False, False, False)),
    ("max(k1, 0) + min(k1, 0)", "k1", "off", (True, True, True)),
    ("abs(k1)", "max(k1, -k1)", "off", (True, True, True)),
    ("sqrt(k1**2 + 1)", "exp(log(1 + k1**2)/2)", "off", (True, True, True)),
    ("rho*clip(A, -1, 1)", "rho*max(min(A, 1), -1)", "off", (True, True, True)),
    ("min(rho, 2)*A", "rho*A", "off", (False, False, False)),
    ("clip(A, -1, 1)*log_q", "A*log_q", "", (False, False, False)),  # rewards on both sides of a bound
    ("rho*clip(R, -10, 5/2)", "rho*R", "off", (False, False, False)),
    ("sg(min(rho, 2))*A*log_q", "min(rho, 2)*A", "off", (False, False, False)),
]
HALF = 0.5 * math.exp(-0.35)
NARROW = {"q": [0.5, 0.5], "p": [HALF, 1 - HALF], "mu": [0.5, 0.5], "u": [1, 0], "R": [1, 3], "A": [-1, 2]}


@pytest.mark.parametrize(("a", "b", "words", "same"), BOUNDED)
@pytest.mark.share(3)
def test_bounds_and_logs(a: str, b: str, words: str, same: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = options(words)
    found = compare(a, b, parameters=["har"], **setting)
    assert (found.value.same, found.per_sample.same, found.gradient.same) == same
    assert found.trust == "kernel" and (found.variance is None or found.variance.lower == "equal")
    assert ("the variances" in str(found)) == (not found.per_sample.same)
    both = []
    for lam in (0.37, -0.4):
        monkeypatch.setitem(PARAMETERS, "lam", lam)
        both += [(moments(a, model, setting), moments(b, model, setting)) for model in (*MODELS, NARROW)]
    for position, answer in ((0, same[0]), (1, same[2])):
        assert all(near(x[position], y[position]) for x, y in both) == answer
    assert all(near(g, h) for x, y in both for g, h in zip(x[3], y[3], strict=True)) == same[1]


# ---------------------------------------------------------------------------- input and output
REFUSED = [
    (("k9", "k1"), {}, "unknown name 'k9'"),
    (("k1", "k9"), {}, "unknown name 'k9'"),
    (("k1", ""), {}, "empty"),
    (("k1", "1/k1"), {}, "divi"),
    (("k1", "k1/(k1 - k1)"), {}, "division by zero"),
    (("k1", "abs(k1)/(k1 - k1)"), {}, "division by zero"),
    (("har*k1", "k1"), {}, "parameters=\\['har'\\]"),
    (("k1", "k1"), {"sampling": "sometimes"}, "sampling='sometimes'"),
    (("k1", "k1"), {"use": "penalty"}, "use='penalty'"),
    (("k1", "k1"), {"parameters": "har"}, "parameters"),
    (("k1", "k1"), {"parameters": ["w"]}, "parameter"),
    (("k1", float("nan")), {}, "nan is not part of the loss grammar"),
    ((None, k1), {}, "expression expected"),
    (("k1", "exp(500*k1)"), {}, "power beyond"),
]


@pytest.mark.parametrize(("losses", "options", "words"), REFUSED, ids=str)
def test_wrong_input(losses: tuple[Any, Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        compare(*losses, **options)


KEYS = {"losses", "sampling", "use", "level", "batch", "credit", "weights", "aggregate",
        "value", "per_sample", "expected_gradient", "multiple", "variance", "at_optimum",
        "trust", "hypotheses", "undecided"}  # fmt: skip
ANSWER = {"same", "statement", "trust", "witness"}
VARIANCE = {"coefficients", "under", "exact", "difference", "correction", "b_at_most_a_where", "lower",
            "statement", "in_region", "second_moments_in_region", "a_varies_less", "b_varies_less",
            "trust"}  # fmt: skip


@pytest.mark.parametrize("row", [*TABLE[::6], Row("abs(k1)", "k1", "off", NO, NO, NO, "")], ids=str)
def test_json(row: Row, capsys: Any) -> None:
    given = [f"--{name}={value}" for name, value in row.setting.items()]
    assert main(["compare", row.a, row.b, *given, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == row.asked.to_json() and set(answer) == KEYS and answer["losses"] == [row.a, row.b]
    assert all(set(answer[name]) == ANSWER for name in ("value", "per_sample", "expected_gradient"))
    assert answer["variance"] is None or set(answer["variance"]) == VARIANCE


def test_expressions_and_the_namespace() -> None:
    found = klsym.compare(rho * k1, rho * k3, sampling="off-policy")
    assert isinstance(found, PrintedComparison) and found.losses == ("rho*k1", "rho*k3")
    assert found.to_json() == ask("rho*k1", "rho*k3", "off").to_json()


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["k1", "k1", "--use", "reward"], 0, "the same for all policies"),
        (["-k1", "-k2"], 0, "-k1 and -k2 as losses"),
        (["har*k1", "k1", "--param", "har"], 0, "har"),
        (["exp(1000)*k2", "k2"], 0, "Different objectives"),
        (["k1", "k2"], 0, "Different expected gradients"),  # k1 has none
        (["k1"], 2, "LOSS_B"),
        (["k1", "k2", "k3"], 2, "k3"),
        (["k1", "k9"], 2, "unknown name 'k9'"),
        (["k1", "k2", "--format", "latex"], 2, "latex"),
        (["k1", "k2", "--sampling", "sometimes"], 2, "sometimes"),
    ],
    ids=str,
)
@pytest.mark.share(3)
def test_command(argv: list[str], code: int, words: str, capsys: Any) -> None:
    assert main(["compare", *argv]) == code
    out, err = capsys.readouterr()
    assert words in (err if code else out)
    assert (out, err.count("\n")) == ("", 1) if code else err == ""


def test_bounds_beside_exact_means_keep_their_hypotheses() -> None:
    loss = "rho*clip(A, -eps, eps) + full(k1)"
    assert any(line.startswith("eps > 0") for line in compare(loss, loss, **options("off")).hypotheses)


@pytest.mark.parametrize(
    ("first", "second", "options", "sampling"),
    [
        ("-(logp - old_logp).exp()*A", "-A*logp", {}, "off-policy"),
        ("-A*log_q", "-(logp - old_logp).exp()*A", {}, "off-policy"),
        ("-(logp - old_logp).exp()*A", "-A*logp", {"sampling": "on-policy"}, "on-policy"),
        ("(logp - ref_logp)**2/2", "k3", {}, "on-policy"),
        ("rho*k1", "rho*k3", {}, "on-policy"),
    ],
)
def test_samples_are_assumed_as_explain_assumes_them(
    first: str, second: str, options: dict[str, Any], sampling: str
) -> None:
    found = compare(first, second, **options)
    assert found.setting.sampling == sampling
    assumed = sampling == "off-policy"
    for width in (60, 100):
        assert " ".join(found.text(width=width).split()).count("assumed: samples") == assumed
    if assumed:
        alone = max((klsym.explain(loss) for loss in (first, second)), key=lambda one: "old" in one.loss.text)
        assert alone.setting.sampling == sampling
