"""`pip install klsym` installs SymPy and mpmath, and the questions need no other package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mpmath
import pytest
import sympy

import klsym
from klsym.study.ledger import stored

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`klsym` where SymPy, mpmath and klsym are all that was ever installed."""
    folder = tmp_path_factory.mktemp("light")
    for package in (sympy, mpmath):
        home = Path(str(package.__file__)).parent
        (folder / home.name).symlink_to(home)
    home = Path(klsym.__file__).parent
    (folder / "klsym").mkdir()
    for part in (*home.iterdir(), *(home.parent / name for name in ("study", "derivations", "experiments"))):
        (folder / "klsym" / part.name).symlink_to(part)

    def klsym_alone(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-m", "klsym", *words]  # -S: no site-packages
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)

    return klsym_alone


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "k3"], "minimises KL(p||q), the forward KL"),
        (
            ["explain", "min(rho*A, clip(rho, 0.8, 1.2)*A)", "--sampling", "off-policy"],
            "minimises E_q[A] inside the clip range",
        ),
        (["explain", "k2", "--level", "token"], "no objective"),
        (["compare", "k1", "k3"], "expected gradient"),
        (["recommend", "--target", "reverse-kl"], "write"),
        (["divergence", "jeffreys"], "jeffreys"),
        (["optimum", "k3", "--reference", "1/2,1/2", "--rewards", "0,1", "--beta", "1"], "stable"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
@pytest.mark.share(3)
def test_questions_need_no_numpy(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout


def test_certificates_are_replayed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(stored.entries()["gradient.k3-loss"]["certificate"]))
    done = run("check", str(tmp_path))
    assert done.returncode == 0 and done.stdout.startswith("ok ")


def test_the_ledger_is_shown_as_stored(run: Run) -> None:
    done = run("claims", "gradient", "--json")
    rows = json.loads(done.stdout)
    assert done.returncode == 0 and {row["id"] for row in rows} >= {"gradient.k3-loss"}
    assert done.stderr == (
        f"klsym: without NumPy, as settled on {stored.read_date()}; the proofs were replayed just now\n"
    )
    assert run("claims", "nothing").returncode == 2


@pytest.mark.parametrize(
    ("words", "package"),
    [(["verify", "gradient.k3-loss"], "numpy"), (["prove"], "numpy"), (["tables"], "markupsafe"),
     (["figures"], "numpy"), (["report"], "numpy"), (["explain", "k3", "--check"], "numpy")],
    ids=lambda value: value if isinstance(value, str) else value[0],
)  # fmt: skip
@pytest.mark.share(3)
def test_what_needs_more_says_which_extra(run: Run, words: list[str], package: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f'klsym: this needs {package}: pip install "klsym[report]"\n'
