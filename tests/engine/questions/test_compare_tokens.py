"""compare at the levels token and sequence: a table of pairs, judged by literal enumeration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from klsym import compare
from klsym.cli import main
from klsym.errors import UsageError
from klsym.kernel import check, read
from klsym.numeric.exact import check_theorem
from klsym.numeric.models import from_certificate
from support.losses.token_loss_oracle import expected_gradient, random_trees

OFF = {"sampling": "off-policy"}
PREFIX = {**OFF, "weights": "prefix"}
REWARD = {"use": "reward"}
SAME = {**REWARD, "credit": "same-token"}
MEAN = {"aggregate": "mean"}
WHOLE = {"weights": "sequence"}
YES, NO = True, False
# A, B, setting, same value?, same gradient at a sequence?, same expected gradient?
TABLE: list[tuple[str, str, dict[str, str], bool, bool, bool]] = [
    ("rho*k3", "sg(rho)*k2", OFF, NO, YES, YES),
    ("rho*k3", "sg(rho)*k2", PREFIX, NO, NO, NO),
    ("rho*k3", "rho*k1", PREFIX, YES, NO, YES),
    ("rho*k3", "rho*k3", OFF, YES, YES, YES),
    ("k2", "k3", {}, NO, NO, NO),
    ("k1", "0", {}, NO, NO, YES),
    ("k1", "0", MEAN, NO, NO, NO),
    ("k2", "sg(k1)*log_q", {}, NO, YES, YES),
    ("rho + k1", "k1", {**WHOLE, **MEAN}, NO, NO, YES),
    ("rho + k1", "k1", WHOLE, NO, NO, NO),
    ("rho**2 + k3", "k3", {**OFF, **WHOLE, **MEAN}, NO, NO, NO),
    ("k3", "k1 + r - 1", {}, YES, YES, YES),
    ("k1", "k3", {}, YES, NO, NO),
    ("R*log_q", "(R + 1)*log_q", {}, NO, NO, YES),
    ("k1", "k1 + 1", REWARD, NO, NO, NO),
    ("k1", "k1 + 1", SAME, NO, NO, YES),
    ("R - beta*k1", "R - beta*log_q + beta*log_p", REWARD, YES, YES, YES),
]


@pytest.mark.parametrize(("a", "b", "setting", "value", "sample", "mean"), TABLE)
def test_pairs(a: str, b: str, setting: dict[str, str], value: bool, sample: bool, mean: bool) -> None:
    found = compare(a, b, level="token", **setting)  # type: ignore[arg-type]
    assert (found.value.same, found.per_sample.same, found.gradient.same) == (value, sample, mean)
    assert found.trust == "kernel" and found.variance is None
    for proof in found.proofs:
        assert check(read(json.dumps(proof.certificate()))) == (proof.theorem.proved,)
    shown = str(found)
    assert "per token" in shown and all(line.isprintable() for line in shown.splitlines())
    assert ("the same in every model" in shown) == (sample is True)


def test_a_tree_is_printed_with_its_parameters() -> None:
    found = compare("lam*k2", "k2", level="token")
    assert found.value.witness is not None and "lam" in found.value.witness["parameters"]
    assert f"  lam = {found.value.witness['parameters']['lam']}" in str(found).splitlines()


LITERAL = [
    ("now(rho*k3)", "now(sg(rho)*k2)", "off-policy", True),
    ("past(rho)*now(rho*k3)", "past(rho)*now(rho*k1)", "off-policy", True),
    ("past(rho)*now(rho*k3)", "past(sg(rho))*now(sg(rho)*k2)", "off-policy", False),
    ("now(k2)", "now(k3)", "on-policy", False),
    ("now(k1)", "0", "on-policy", True),
    ("now(k1)*(1/length)", "0", "on-policy", False),
]


@pytest.mark.parametrize(("a", "b", "sampling", "equal"), LITERAL)
def test_the_table_is_what_enumeration_says(a: str, b: str, sampling: str, equal: bool) -> None:
    trees = random_trees(3, 4, sampling == "on-policy")
    under = "mu" if sampling == "off-policy" else "q"
    one, other = (expected_gradient("token", text, trees, under) for text in (a, b))
    assert (float(abs(one.value - other.value).max()) < 1e-12) is equal


def test_sequences_are_samples() -> None:
    one = compare("rho*k1", "rho*k3", level="sequence", **OFF)  # type: ignore[arg-type]
    two = compare("rho*k1", "rho*k3", **OFF)  # type: ignore[arg-type]
    assert one.variance and two.variance and one.variance.region == two.variance.region
    assert "per sequence" in str(one) and "per sequence" not in str(two)
    over = compare("k1", "k2", level="sequence", aggregate="mean")
    assert over.gradient.same is False and over.value.same is False


@pytest.mark.parametrize(
    ("a", "setting", "reason"),
    [
        ("+".join(f"abs(k1 - {i})" for i in range(13)), {"level": "token"}, "more than 24 regions"),
        ("k3", {"level": "token", "use": "reward"}, "choose credit same-token"),
        ("k1", {"level": "sample", "credit": "to-go"}, "choose level token"),
        ("k1", {"level": "words"}, "one of sample, token, sequence"),
        ("k1/0", {"level": "token"}, "division by zero"),
    ],
)
def test_refusals(a: str, setting: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        compare(a, "k1", **setting)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_the_command(capsys: Any) -> None:
    options = ["--level=token", "--sampling=off-policy", "--weights=prefix"]
    assert main(["compare", "rho*k3", "rho*k1", *options, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["expected_gradient"]["same"] is True and answer["level"] == "token"
    assert main(["compare", "k2", "k3", "--level", "token"]) == 0
    assert "next token a, b" in capsys.readouterr().out
    assert main(["compare", "k2", "k3", "--level", "token", "--credit", "total"]) == 2


def test_a_counterexample_at_a_sequence_says_which_one() -> None:
    found = compare("k1", "0", level="token")
    witness = found.to_json()["per_sample"]["witness"]
    assert witness["path"] == [0, 0] and "  at the sequence aa" in str(found).splitlines()
    for answer in (found.value, found.gradient):
        assert "path" not in (answer.witness or {})
    [refuted] = [p for p in found.proofs if p.theorem.kind == "refuted" and "sum_t grad k1_now" in str(p)]
    outcome = check_theorem(refuted.theorem)
    assert outcome.passed and outcome.measured["gap"] == pytest.approx(5 / 6), outcome.text


@pytest.mark.parametrize(("path", "number"), [([0, 0], 0), ([0, 1], 1), ([1], 2), ([], 0)])
def test_a_tree_is_read_with_the_sequence_of_its_path(path: list[int], number: int) -> None:
    half = ["1/2", "1/2"]
    leaf = {"q": half, "p": half, "mu": half, "u": [1, 0], "v": [0, 1], "R": [0, 0], "next": [None, None]}
    tree = {**leaf, "next": [leaf, None]}
    assert from_certificate({"tree": tree, "path": path, "parameters": {}}).outcome == number
    with pytest.raises(UsageError, match="no sequence"):
        from_certificate({"tree": tree, "path": [*path, 2], "parameters": {}})
