"""compare of tokens, sequences and exact means: a table of pairs, judged by enumeration."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from klsym import compare
from klsym.cli import main
from klsym.errors import UsageError
from klsym.kernel import check, read
from klsym.numeric.exact import check_theorem
from klsym.numeric.models import from_certificate
from support.judges.loss_fit import mean_of
from support.judges.loss_worlds import flat, forest, settings
from support.losses.cases import case, options

pytestmark = pytest.mark.usefixtures("without_copies")

YES, NO = True, False
# A, B, how they are used; same value, gradient at a sequence, expected gradient?  None: not decided
TABLE: list[tuple[str, str, str, bool, bool | None, bool]] = [
    ("rho*k3", "sg(rho)*k2", "off token", NO, YES, YES),
    ("rho*k3", "sg(rho)*k2", "off token prefix", NO, NO, NO),
    ("rho*k3", "rho*k1", "off token prefix", YES, NO, YES),
    ("k2", "k3", "token", NO, NO, NO),
    ("k1", "0", "token", NO, NO, YES),
    ("k1", "0", "token /T", NO, NO, NO),
    ("k2", "sg(k1)*log_q", "token", NO, YES, YES),
    ("rho + k1", "k1", "token whole /T", NO, NO, YES),
    ("rho + k1", "k1", "token whole", NO, NO, NO),
    ("rho**2 + k3", "k3", "off token whole /T", NO, NO, NO),
    ("k3", "k1 + r - 1", "token", YES, YES, YES),
    ("k1", "k3", "token", YES, NO, NO),
    ("R*log_q", "(R + 1)*log_q", "token", NO, NO, YES),
    ("k1", "k1 + 1", "token reward", NO, NO, NO),
    ("k1", "k1 + 1", "token reward same", NO, NO, YES),
    ("R - beta*k1", "R - beta*log_q + beta*log_p", "token reward", YES, YES, YES),
    ("togo(R - beta*k1)", "whole(R - beta*k1)", "token reward", NO, NO, YES),
    # a tree has no advantage: for A = R, the sum of the rewards, they differ or are the same
    ("A*log_q", "A*log_q/T", "token", NO, NO, NO), ("A*log_q", "R*log_q", "token", NO, NO, NO),
    ("A*log_q", "whole(R)*log_q", "token", NO, NO, NO), ("A*log_q", "A*log_q + k1", "token", NO, NO, YES),
    ("rho*A", "rho*(A + 1)", "off token prefix", NO, NO, NO),
    ("rho*A", "sg(rho)*A*log_q", "off token", NO, YES, YES),
    # exact means are compared by the sampled losses
    ("full(k1)", "rho*k3", "off", YES, None, YES), ("full(k1)", "k3", "", YES, None, NO),
    ("full_kl(p, q)", "full_kl(q, p)", "off", NO, None, NO), ("full(M*k1)", "full(k1)", "", NO, None, NO),
    ("full_kl(q, p)", "full(k3)", "token", YES, None, YES), ("full(k1)", "k1", "off token", NO, None, NO),
    ("js(q, p)", "full(k3)", "", NO, None, NO), ("full_kl(q, p)", "k2", "", NO, None, YES),
]  # fmt: skip
WRITTEN = {"full_kl(q, p)": "full(k1)", "full_kl(p, q)": "full(-r*k1)",
           "js(q, p)": "full(-log((1 + r)/2)*(1 + r)/2 - r*k1/2)"}  # fmt: skip


@pytest.mark.parametrize(("a", "b", "words", "value", "sample", "mean"), TABLE)
@pytest.mark.share(3)
def test_pairs(a: str, b: str, words: str, value: bool, sample: bool | None, mean: bool) -> None:
    found = compare(a, b, **options(words))
    assert (found.value.same, found.per_sample.same, found.gradient.same) == (value, sample, mean)
    assert found.variance is None and str(found).isascii()
    if sample is None:
        assert any("scores of all outcomes" in line for line in found.undecided)
        assert "the theorems are about" in found.hypotheses[0]
    else:
        assert found.trust == "kernel" and "at each token" in str(found)
        assert ("the same for all policies" in str(found)) == sample
    for proof in found.proofs:
        assert check(read(json.dumps(proof.certificate()))) == (proof.theorem.proved,)


@pytest.mark.parametrize(("a", "b", "words", "value", "sample", "mean"), TABLE)
def test_the_table_is_what_enumeration_says(
    a: str, b: str, words: str, value: bool, sample: bool | None, mean: bool
) -> None:
    one, other = (case(WRITTEN.get(loss, loss), words) for loss in (a, b))
    where, [setting] = forest(one), settings(one)
    fields = [flat(where.field(loss.text, setting).a, where) for loss in (one, other)]
    assert (np.abs(fields[0] - fields[1]).max() < 1e-11) == mean
    if "togo(" not in a:  # each of which counts a reward several times
        values = [mean_of(where, loss, setting)[0] for loss in (one, other)]
        assert (np.abs(values[0] - values[1]).max() < 1e-11) == value


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("A*log_q", "A*log_q/T", "token"),
        ("A*log_q", "whole(R)*log_q", "token"),
        ("A*log_q", "A*log_q/T", "sequence"),
    ],
)
def test_an_advantage_of_a_counterexample_is_said(a: str, b: str, words: str) -> None:
    """The statement is about every A, its model about one, that --proof prints."""
    found = compare(a, b, **options(words))
    refuted = [answer for _, answer in found.named_answers if answer.instance]
    assert refuted and all(" != " in answer.statement and "A" in answer.statement for answer in refuted)
    assert all("A" not in str(answer.witness and answer.witness["refutes"]) for answer in refuted)
    assert any(line.startswith("in a counterexample A = ") for line in found.hypotheses)
    same = compare("A*log_q", "(A + 1 - 1)*log_q", **options(words))
    assert same.gradient.same and not any("counterexample" in line for line in same.hypotheses)


def test_what_is_not_decided() -> None:
    found = compare("full(k1)", "0", use="reward")
    assert (found.value.same, found.gradient.same) == (None, True)


def test_a_tree_is_printed_with_its_parameters() -> None:
    found = compare("lam*k2", "k2", level="token")
    assert found.value.witness is not None and "lam" in found.value.witness["parameters"]
    assert f"  lam = {found.value.witness['parameters']['lam']}" in found.text(proof=True).splitlines()


def test_sequences_are_samples() -> None:
    one = compare("rho*k1", "rho*k3", **options("off sequence"))
    two = compare("rho*k1", "rho*k3", "off-policy")
    assert one.variance and two.variance and one.variance.region == two.variance.region
    assert "of whole sequences" in str(one) and "of whole sequences" not in str(two)
    over = compare("k1", "k2", level="sequence", aggregate="mean")
    assert over.gradient.same is False and over.value.same is False


@pytest.mark.parametrize(
    ("a", "setting", "reason"),
    [
        ("+".join(f"abs(k1 - {i})" for i in range(33)), {"level": "token"}, "more than 64 regions"),
        ("k3", {"level": "token", "use": "reward"}, "choose credit same-token"),
        ("k1", {"level": "sample", "credit": "to-go"}, "needs level token"),
        ("k1", {"level": "words"}, "one of sample, token, sequence"),
        ("k1/0", {"level": "token"}, "division by zero"),
        ("togo(R)", {"level": "token", "use": "reward"}, "let both say it"),
        ("full(k1)**2", {}, "explain says what each does"),
        ("R*full(k1)", {}, "explain says what each does"),
    ],
)
def test_refusals(a: str, setting: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        compare(a, "k1", **setting)
    assert "\n" not in str(caught.value)


def test_the_command(capsys: Any) -> None:
    options = ["--level=token", "--sampling=off-policy", "--weights=prefix"]
    assert main(["compare", "rho*k3", "rho*k1", *options, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["expected_gradient"]["same"] is True and answer["level"] == "token"
    assert main(["compare", "k2", "k3", "--level", "token", "--proof"]) == 0
    assert "next token a, b" in capsys.readouterr().out
    assert main(["compare", "k2", "k3", "--level", "token", "--credit", "total"]) == 2


def test_a_counterexample_at_a_sequence_says_which_one() -> None:
    found = compare("k1", "0", level="token")
    witness = found.to_json()["per_sample"]["witness"]
    assert witness["path"] == [0, 0] and "  at the sequence aa" in found.text(proof=True).splitlines()
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
