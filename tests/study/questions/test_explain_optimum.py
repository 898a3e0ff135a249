"""`klsym optimum`: what is asked and answered; where the policies are is tested in test_optimum."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from klsym.cli import main
from klsym.errors import UsageError
from klsym.study.api import optimum

pytestmark = pytest.mark.usefixtures("without_copies")

REWARDS = ["0", "0.4", "1"]
REFERENCE = ["0.5", "0.3", "0.2"]
KEYS = {
    "loss", "beta", "rewards", "reference", "closed_form", "unique", "complete", "stationary", "boundary",
    "warnings",
}  # fmt: skip

# loss, sampling, use -> what it ends at: the tilt of the reference, or nothing inside
TILTED = [
    ("k2", "on-policy", "loss"), ("k1", "on-policy", "reward"), ("rho*k3", "off-policy", "loss"),
    ("rho*k1", "off-policy", "reward"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "sampling", "use"), TILTED)
def test_the_reverse_kl_ends_at_the_tilted_reference(loss, sampling, use):
    found = optimum(loss, "1/2", REWARDS, REFERENCE, sampling=sampling, use=use)
    tilt = np.array([0.5, 0.3, 0.2]) * np.exp(2 * np.array([0, 0.4, 1]))
    [one] = found.optimum.stationary
    assert found.optimum.unique and one.stable and not found.optimum.boundary and not found.warnings
    assert np.abs(np.array(one.policy) - tilt / tilt.sum()).max() < 1e-12


def test_k1_in_the_loss_is_no_penalty():
    found = optimum("k1", 5, REWARDS, REFERENCE)
    assert not found.optimum.stationary and found.optimum.boundary[0].policy == (0.0, 0.0, 1.0)
    assert "rewards alone decide" in found.warnings[0]


def test_k3_in_the_reward_collapses():
    found = optimum("k3", 0.5, REWARDS, REFERENCE, use="reward")
    assert not any(s.stable for s in found.optimum.stationary) and len(found.optimum.boundary) == 3
    assert [w.split(":")[0] for w in found.warnings] == [
        "no restoring force at q = p", "pushes q away from p except where r <= 1",
        "the objective is unbounded below", "where training ends depends on where it starts",
    ]  # fmt: skip


# penalty and options -> what is found: policies inside with what is known of them, complete, the boundary
ANSWERS = {
    "a maximiser beside a vertex": ("k2 --beta 0.04 --rewards 1,0", ["1,1.4e-11 yes"], True, 0),
    "one nearer still": ("k2 --beta 0.001 --rewards 1,0", ["1,0 yes"], True, 0),
    "both nearly alike": ("k2 --beta 0.01 --rewards 1,1,0", ["0.5,0.5,1.9e-44 yes"], True, 0),
    "a negative fraction": (
        "k1 --use reward --beta 1/2 --rewards -1/2,0", ["0.268941,0.731059 yes"], True, 0),
    "no rewards and no penalty": ("k2 --beta 0 --rewards 1,1", [], False, 0),
    "no gradient, equal rewards": ("k1 --beta 1 --rewards 1/3,1/3,1/3", [], False, 0),
    "no penalty, two best outcomes": ("k2 --beta 0 --rewards 1,1,0", [], True, 0),
    "no penalty, one best outcome": ("k2 --beta 0 --rewards 1,0,0", [], True, 1),
    "nearly equal rewards": ("k2 --beta 0 --rewards 1,1.00000000000000000001", [], True, 1),
    "a flat point": ("k2 --use reward --beta 1 --rewards 0,0", ["0.5,0.5 not decided"], None, 2),
    "a flat point among three": (
        "k2 --use reward --beta 1 --rewards 0,0,0", ["1/3,1/3,1/3 not decided", *["1/6,1/6,2/3 no"] * 3],
        None, 6),
    "beyond floats": ("k2 --beta 1e-30 --rewards 1,0,1", [], None, 0),
    "levels that saturated": (
        "k(0.5) --sampling off-policy --beta 0.1 --rewards=-0.94,0.89,-0.86 --reference=1/6,2/3,1/6"
        " --behaviour=0.375,0.25,0.375", ["0.032445,0.934552,0.033003 yes"], True, 0),
    "k3 in the reward": (
        "k3 --use reward --beta 0.5 --rewards 0,0.4,1 --reference 0.5,0.3,0.2",
        ["0.858161,0.098942,0.042897 no"], True, 3),
    "a penalty that is rewarded": ("k2 --beta -1/3 --rewards -1/2,.5", ["0.952574,0.047426 no"], True, 2),
    "one outcome without a penalty": (
        "rho - 1/r --sampling off-policy --use reward --beta 1 --rewards 1,0,0 --reference 1/2,1/4,1/4"
        " --behaviour 1/2,1/8,3/8", None, True, None),
}  # fmt: skip
OF_STABLE = {"yes": True, "no": False, "not decided": None}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.share(3)
def test_what_is_known_is_said(name, capsys):
    asked, wanted, complete, boundary = ANSWERS[name]
    loss, _, rest = asked.partition(" --")
    assert main(["optimum", loss, *f"--{rest}".split(), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["complete"] is complete
    unique = None if complete is None else complete and len(answer["stationary"]) == 1
    assert answer["unique"] is unique
    if wanted is None:
        return
    assert boundary == len(answer["boundary"]) and len(wanted) == len(answer["stationary"])
    for one in wanted:
        row, _, stable = one.partition(" ")
        policy = [float(Fraction(x)) for x in row.split(",")]
        assert any(
            s["stable"] is OF_STABLE[stable] and np.allclose(sorted(s["policy"]), sorted(policy), 1e-2, 1e-6)
            for s in answer["stationary"]
        ), (one, answer["stationary"])


def test_text_says_what_is_not_decided(capsys):
    said = {}
    for beta, rewards in (("1", "0,0"), ("0", "1,1"), ("0", "1,1,0"), ("0", "1,0")):
        assert main(["optimum", "k2", "--use", "reward", "--beta", beta, "--rewards", rewards]) == 0
        said[beta, rewards] = capsys.readouterr().out
    assert "others are not excluded (not decided)" in said["1", "0,0"]
    assert "stable or not: not decided" in said["1", "0,0"]
    assert "Infinitely many policies with mass on every outcome" in said["0", "1,1"]
    assert "mass on outcomes 1, 2 alone are not isolated" in said["0", "1,1,0"]
    assert said["0", "1,0"].splitlines()[1].startswith("  No policy with mass on every outcome ")


def test_faces_on_which_the_logits_drift():
    """c ~ r: what is left pushes all other logits, and faces with another policy attract."""
    found = optimum(
        "2*k2 - k3", 2, ["-0.78", "-0.67", "0.68", "-0.26"], ["0.5", "1/12", "1/3", "1/12"]
    ).optimum
    assert len(found.stationary) == 15 and found.complete and sum(s.stable for s in found.stationary) == 1
    faces = [[round(x, 3) for x in s.policy] for s in found.boundary if max(s.policy) < 1]
    assert faces == [[0.435, 0, 0.565, 0], [0, 0.449, 0, 0.551]]
    assert all((s.multiplier is None) == (max(s.policy) < 1) for s in found.boundary)


def test_json_of_the_command(capsys):
    asked = ["optimum", "k3", "--beta", "0.5", "--rewards", "0,0.4,1", "--reference", "0.5,0.3,0.2", "--json"]
    assert main(asked) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == KEYS and answer["unique"] and answer["complete"]
    assert answer["closed_form"] == r"q_j = \frac{\beta\, p_j}{\nu - R_j}" and answer["beta"] == 0.5
    [one] = answer["stationary"]
    assert set(one) == {"policy", "multiplier", "stable"} and abs(sum(one["policy"]) - 1) < 1e-12
    forward = 0.5 * np.array([0.5, 0.3, 0.2]) / (one["multiplier"] - np.array([0, 0.4, 1]))
    assert np.abs(forward - one["policy"]).max() < 1e-12


def test_text_and_picture(capsys, tmp_path):
    target = tmp_path / "flow.png"
    asked = ["optimum", "k2", "--use", "reward", "--beta", "1/2", "--rewards", "0,0.4,1", "-o", str(target)]
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert "the penalty 0.5*k2 ends" in shown and "  note     no restoring force at q = p" in shown
    assert target.read_bytes().startswith(b"\x89PNG") and [p.name for p in tmp_path.iterdir()] == ["flow.png"]


REFUSED = {
    "rewards in the penalty": (["R - k1"], "write the penalty alone"),
    "a parameter": (["lam*k1"], "a number in place of lam"),
    "outside the ring": (["log(1 + r)"], "is no exponential polynomial"),
    "no number": (["k1", "--beta", "one"], "beta: a number expected, got 'one'"),
    "no real number": (["k1", "--beta", "nan"], "beta: a number expected, got 'nan'"),
    "a division by zero": (["k1", "--rewards", "1/0,1"], "rewards: a number expected"),
    "a number too large": (["k1", "--rewards", "1e9,1"], "up to a million"),
    "one outcome": (["k1", "--rewards", "1"], "2 to 8 numbers expected, got 1"),
    "nine outcomes": (["k1", "--rewards", "1,1,1,1,1,1,1,1,1"], "2 to 8 numbers expected, got 9"),
    "another count": (["k1", "--reference", "0.5,0.25,0.25"], "2 numbers expected, one for each reward"),
    "no probabilities": (["k1", "--reference", "0.5,0.6"], "that sum to 1 expected"),
    "a zero": (["k1", "--reference", "1,0"], "that sum to 1 expected"),
    "a picture of two outcomes": (["k1", "-o", "x.png"], "a picture needs three outcomes"),
    "a picture of another kind": (["k1", "-o", "x.gif"], "a name that ends in .pdf or .png"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_line(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked, reason = REFUSED[name]
    plain = {"--beta": "1", "--rewards": "0,1"}
    more = [item for key, value in plain.items() if key not in asked for item in (key, value)]
    assert main(["optimum", *asked, *more]) == 2
    said = capsys.readouterr()
    assert reason in said.err and said.err.count("\n") == 1 and not said.out and not list(tmp_path.iterdir())


def test_numbers_from_python():
    found = optimum("k2", Fraction(1, 3), [1, 0.5], [Fraction(1, 4), Fraction(3, 4)])
    assert found.beta == Fraction(1, 3) and str(found).startswith(
        "where training with rewards and the penalty 1/3*"
    )
    with pytest.raises(UsageError, match="a number expected, got 'True'"):
        optimum("k2", True, [1, 0])
