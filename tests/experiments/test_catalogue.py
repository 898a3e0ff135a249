"""The catalogue of experiments, the command that draws them, and the ledger's experiment claims."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import pytest

from klsym.cli import main
from klsym.errors import UsageError
from klsym.experiments import catalogue
from klsym.experiments.catalogue import EXPERIMENTS, result, select
from klsym.study.ledger.evidence import Evidence, build_evidence
from klsym.study.ledger.experiment_result import Finding
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import settle


def test_every_experiment_claim_is_in_the_catalogue():
    ids = {name for name in load() if name.startswith("experiment.")}
    assert ids == {f"experiment.{name}" for name in EXPERIMENTS} - {"experiment.gaussian-estimators"}


# The others take up to half a minute each: `klsym report` settles them, notebook 8 asserts each finding at
# full size, and their own tests find it in smaller runs.
@pytest.mark.parametrize("name", ["tm-fig1", "tm-fig2"])
def test_experiment_claim_settles(name):
    settled = settle(load()[f"experiment.{name}"])
    assert (settled.status, settled.error, settled.trust) == ("settled", "", "numeric")
    data = result(name)
    assert [part.text for part in settled.parts] == [finding.text for finding in data.findings]
    assert settled.hypotheses == [data.setup] and settled.proofs == ()
    assert all(text.isprintable() and text for text in (settled.statement, data.setup))


def test_what_a_source_says_is_set_beside_what_was_found(capsys):
    assert main(["axioms", "experiment.tm-fig2"]) == 0
    out = capsys.readouterr().out
    assert "the source says: both incorrect losses level off at a higher error (as the paper says)" in out
    assert "(as the paper says, except for n <= 4)" in out


def test_a_finding_that_does_not_hold_fails_the_claim():
    (part,) = build_evidence([Finding("it rises", holds=False, paper="it falls", agrees=False)], "2 arms")
    assert isinstance(part, Evidence) and not part.holds and part.hypotheses == ("2 arms",)
    assert part.source_says == "it falls (not what the paper says)"


def test_the_latex_of_a_finding_comments_nothing_out():
    (part,) = build_evidence([Finding("5% of p_x & more", holds=True)], "2 arms")
    assert part.latex == r"\text{5\% of p\_x \& more}"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [([], list(EXPERIMENTS)), (["tm-fig2"], ["tm-fig2"]), (["experiment.tm-fig2", "tm-fig2"], ["tm-fig2"])],
)
def test_select(names, chosen):
    assert select(names) == chosen


@pytest.mark.parametrize("name", ["", "fig2", "experiment.", "tm-fig7", "x" * 5000])
def test_select_refuses(name):
    with pytest.raises(UsageError, match="unknown figure"):
        select([name])


# ---------------------------------------------------------------------------- the command
@dataclass(frozen=True)
class Small:
    """A stand-in for an experiment: the command is tested here, the experiments are elsewhere."""

    findings = (Finding("it falls", True, "yes", True),)

    def table(self):
        return ["n", "words"], [["1", 'a "quoted", cell'], ["2", ""]]


def draw_small(data):
    from klsym.study.figures.style import apply_style

    with apply_style() as Figure:
        figure = Figure(figsize=(2, 1.5))
        figure.subplots().plot([0, 1], [1, 0])
    return figure


@pytest.fixture
def small(monkeypatch):
    place = __name__
    entry = catalogue.Experiment(
        "a line", f"{place}:Small", f"{place}:draw_small", "it falls", settings=f"{place}:draw_small"
    )
    monkeypatch.setattr(catalogue, "EXPERIMENTS", {"small": entry})
    catalogue.result.cache_clear()
    yield
    catalogue.result.cache_clear()


def test_figures_writes_pdf_png_and_csv(small, tmp_path: Path, capsys):
    folder = tmp_path / "a" / "b"
    assert main(["figures", "-o", str(folder)]) == 0
    shown = capsys.readouterr().out
    names = ["small.pdf", "small.png", "small-settings.pdf", "small-settings.png", "small.csv"]
    assert f"small: a line  ({', '.join(names)})" in shown.splitlines()
    assert "  - it falls [as the paper says: yes]" in shown.splitlines()
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(files) == sorted(names)
    assert files["small.pdf"].startswith(b"%PDF") and files["small.png"].startswith(b"\x89PNG")
    with (folder / "small.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["n", "words"], ["1", 'a "quoted", cell'], ["2", ""]]
    assert main(["figures", "-o", str(folder)]) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


@pytest.mark.parametrize("arguments", [["tm-fig7"], ["small", "nope"]])
def test_figures_refuses(arguments, tmp_path: Path, capsys):
    assert main(["figures", *arguments, "-o", str(tmp_path / "x")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and "unknown figure" in err and not (tmp_path / "x").exists()
