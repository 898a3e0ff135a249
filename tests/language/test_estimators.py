"""A new estimator is one row of language/estimators.py: with a row k4, klsym answers as for its formula."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import klsym
from klsym import calculus
from klsym.errors import UsageError
from klsym.kernel.names import is_declarable
from klsym.language.estimators import NAMES, TABLE, Row
from klsym.language.expressions import OF_TABLE, _build_estimator_class, k1, k2, k3, unfold

HOME = Path(klsym.__file__).parent
LAST = '    Row("k3", "k_3", lambda k1, r: r - 1 + k1),\n'
K4 = '    Row("k4", "k_4", lambda k1, r: (r - 1) ** 2 / 2),\n'
FORMULA = "((r - 1)**2/2)"
SETTINGS = (
    {},
    {"use": "reward"},
    {"sampling": "off-policy"},
    {"sampling": "off-policy", "use": "reward", "batch": "leave-one-out"},
    {"level": "token"},
    {"level": "token", "use": "reward", "credit": "to-go"},
    {"level": "sequence", "sampling": "off-policy"},
)
LOSSES = ("{}", "rho*{}", "sg({})*log_q", "full({})", "{} + k2 - 2*k3")


def copy_of_klsym(folder: Path, row: str) -> Path:
    """A copy of the package with a row more in its table; all its other files are the same."""
    shutil.copytree(HOME, folder / "klsym", ignore=shutil.ignore_patterns("__pycache__"))
    table = folder / "klsym" / "language" / "estimators.py"
    before = table.read_text(encoding="utf-8")
    assert before.count(LAST) == 1
    table.write_text(before.replace(LAST, LAST + row), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    return copy_of_klsym(tmp_path_factory.mktemp("with_k4"), K4)


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, env=environment, cwd=folder, timeout=300
    )


def printed(folder: Path, *argv: str) -> str:
    done = run(folder, *argv)
    assert not done.returncode, done.stderr
    return done.stdout


# ---------------------------------------------------------------------------- the verdict
def test_a_row_gives_a_verdict_in_text_and_latex(extended):
    text = printed(extended, "-m", "klsym", "explain", "k4")
    assert text.startswith("k4 in the loss, on-policy\n  Neither KL: minimises E_q[f(r)] with f = ")
    assert "proved" in text.splitlines()[2] and "gradient E_q[(r - r**2)*s]" in text
    latex = printed(extended, "-m", "klsym", "explain", "now(k4)", "--level", "token", "--format", "latex")
    assert r"\nabla k_{4,t}" in latex


ANSWERS = """
import json, klsym
answers = []
for options in json.loads({settings!r}):
    for text in json.loads({losses!r}):
        pair = []
        if options.get("level") == "sequence" and "full" in text:
            continue
        for estimator in ("k4", {formula!r}):
            found = klsym.explain(text.format(estimator), **options).to_json()
            gradient, value = found["gradient"], found["value"]
            pair.append([found["trust"], value["target"], value["combination"], found["hypotheses"][-1],
                         *(gradient[key] for key in ("target", "combination", "objective", "f"))])
        answers.append([options, text, *pair])
print(json.dumps(answers))
"""


def test_it_has_the_verdicts_of_its_formula(extended):
    script = ANSWERS.format(settings=json.dumps(SETTINGS), losses=json.dumps(LOSSES), formula=FORMULA)
    answers = json.loads(printed(extended, "-c", script))
    assert len(answers) == len(SETTINGS) * len(LOSSES) - 1
    assert [row for row in answers if row[2][:3] + row[2][4:] != row[3][:3] + row[3][4:]] == []
    assert {row[2][4] for row in answers} >= {"f-divergence", "no-objective"}
    assert {row[2][0] for row in answers} == {"kernel"}


CHECKED = """
import numpy as np, sympy
from klsym.calculus import k4, r, log_q
from klsym.calculus import derive, expected_gradient, expectation, grad
from klsym.numeric.array_losses import evaluate

assert str(k4) == "k4" and k4.is_nonnegative
proof = derive(expected_gradient(k4, "q")).equals(expected_gradient((r - 1)**2/2, "q"))
assert proof.trust == "kernel"
q, p = np.array([0.5, 0.2, 0.3]), np.array([0.25, 0.25, 0.5])
direction = np.array([1.0, -2.0, 0.5])
score = direction - q @ direction
values = {"log_q": np.log(q), "log_p": np.log(p), "log_mu": np.log(q)}
exact = q @ ((1 - p / q) * (p / q) * score)
enumerated = q @ (evaluate(sympy.diff(k4, log_q), values, np) * score)
drawn = np.random.default_rng(1).choice(3, 200_000, p=q)
sampled = evaluate(sympy.diff(k4, log_q), {n: v[drawn] for n, v in values.items()}, np) * score[drawn]
assert abs(enumerated - exact) < 1e-14, (enumerated, exact)
assert abs(sampled.mean() - exact) < 5 * sampled.std() / len(sampled)**0.5, (sampled.mean(), exact)
near = {"log_q": np.array([-1.0]), "log_p": np.array([-1.0 - 2.0**-30]), "log_mu": np.array([-1.0])}
assert abs(evaluate(k4, near, np)[0] / (np.expm1(-2.0**-30)**2 / 2) - 1) < 1e-15
print("ok")
"""


def test_it_agrees_with_enumeration_and_with_samples(extended):
    assert printed(extended, "-c", CHECKED) == "ok\n"
    told = printed(
        extended, "-m", "klsym", "explain", "rho*k4", "--sampling", "off-policy", "--check", "--json"
    )
    assert json.loads(told)["check"]["passed"]


def test_audit_snippets_and_mathml_read_the_row(extended):
    script = (
        "import json\nfrom klsym import calculus\n"
        "from klsym.audit.terms import name_estimators\n"
        "from klsym.language.expressions import exp, log_p, log_q, rho\n"
        "from klsym.render.snippets import code\n"
        "ratio = exp(log_p - log_q)\n"
        "losses = (rho * (ratio - 1)**2, (ratio - 1)**2 / 2, ratio - 2)\n"
        "texts = [name_estimators(loss) for loss in losses]\n"
        "codes = [code(calculus.rho * calculus.k4, name) for name in ('torch', 'jax', 'numpy')]\n"
        "print(json.dumps([[str(text) for text in texts], codes]))\n"
    )
    texts, codes = json.loads(printed(extended, "-c", script))
    assert texts == ["2*k4*rho", "k4", "r - 2"]
    assert codes == [f"rho*{module}.expm1(-k1)**2/2" for module in ("torch", "jnp", "np")]
    divergence = printed(extended, "-m", "klsym", "divergence", "pearson-chi2")
    assert "k3 + k4" in divergence and "proved" in divergence
    refusal = run(extended, "-m", "klsym", "explain", "k4 + K").stderr
    assert " k1 k2 k3 k4 lam " in refusal
    refusal = run(extended, "-m", "klsym", "explain", "k1", "--param", "k4").stderr
    assert refusal == "klsym: parameter 'k4': a new plain name expected\n"


# ---------------------------------------------------------------------------- refusals
REFUSED = {
    "a name that is taken": (Row("k3", "k_3", lambda k1, r: r), "this name is taken"),
    "no identifier": (Row("4k", "k_4", lambda k1, r: r), "a name of k and a number expected"),
    "a name with a space": (Row("k 4", "k_4", lambda k1, r: r), "a name of k and a number expected"),
    "a name of something else": (Row("rho", "k_4", lambda k1, r: r), "a name of k and a number expected"),
    "an empty name": (Row("", "k_4", lambda k1, r: r), "a name of k and a number expected"),
    "a constant": (Row("k4", "k_4", lambda k1, r: Fraction(1, 2)), "no smooth function of k1 and r"),
    "a reward": (Row("k4", "k_4", lambda k1, r: k1 * calculus.R), "no smooth function of k1 and r"),
    "a density": (Row("k4", "k_4", lambda k1, r: k1 + calculus.log_q), "no smooth function of k1 and r"),
    "a parameter": (Row("k4", "k_4", lambda k1, r: calculus.lam * k1), "no smooth function of k1 and r"),
    "a sum over tokens": (
        Row("k4", "k_4", lambda k1, r: calculus.parse("whole(k1)") + k1),
        "no smooth function of k1 and r",
    ),
    "a kink": (Row("k4", "k_4", lambda k1, r: abs(k1)), "no smooth function of k1 and r"),
    "no real number": (Row("k4", "k_4", lambda k1, r: 1 / (r - 1)), "no smooth function of k1 and r"),
    "a float": (Row("k4", "k_4", lambda k1, r: 0.5 * k1), "holds a float"),
    "a text": (Row("k4", "k_4", lambda k1, r: "k1"), "a SymPy expression expected"),
    "one argument": (Row("k4", "k_4", lambda k1: k1), "no formula of k1 and r"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_are_refused(name):
    row, reason = REFUSED[name]
    with pytest.raises(UsageError, match=reason) as error:
        _build_estimator_class(row)
    assert str(error.value).startswith("klsym/language/estimators.py: ") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "formula", "nonnegative"),
    [
        ("k4", lambda k1, r: (r - 1) ** 2 / 2, True),
        ("k5", lambda k1, r: 1 / r - 1 - k1, True),
        ("k6", lambda k1, r: r - 1 + k1 + k1**2 / 2, True),
        ("k7", lambda k1, r: k1 * (1 - r), None),  # it is, but convexity in k1 does not show it
        ("k8", lambda k1, r: 1 - r, None),
        ("k9", lambda k1, r: r - 1 + 2 * k1, None),
        ("k10", lambda k1, r: k1**3, None),
    ],
)
def test_rows_that_are_read(name, formula, nonnegative):
    made = _build_estimator_class(Row(name, "k", formula))
    assert made(calculus.log_q, calculus.log_p).is_nonnegative is nonnegative
    assert made.__name__ == name.upper() and not is_declarable(name)


def test_a_wrong_row_is_one_line_at_the_command_line(tmp_path):
    folder = copy_of_klsym(tmp_path, LAST)
    done = run(folder, "-m", "klsym", "explain", "k1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "klsym: klsym/language/estimators.py: 'k3': this name is taken, such as k4\n"


def test_the_table_has_the_three_estimators():
    assert NAMES == ("k1", "k2", "k3") == tuple(row.name for row in TABLE)
    assert [OF_TABLE[name] for name in NAMES] == [k1, k2, k3]
    assert str(unfold(k3)) == "-log_p + log_q + exp(log_p - log_q) - 1"
    assert [k.is_nonnegative for k in (k1, k2, k3)] == [None, True, True]
    assert {*NAMES} <= {*dir(calculus)} and "k4" not in dir(calculus)
