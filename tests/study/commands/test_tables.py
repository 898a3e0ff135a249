"""`klsym tables`, `report` and `paper` at the command line: choices, bad input, folders, pipes, encodings."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from klsym.cli import main
from klsym.experiments.catalogue import EXPERIMENTS
from klsym.study.ledger.experiment_result import Finding
from klsym.study.tables.catalogue import NAMES, build, listing, tables
from klsym.study.tables.writing.layouts import write_latex
from support.commands import run

KLSYM = [sys.executable, "-m", "klsym"]


# ---------------------------------------------------------------------------- choices
def test_names_may_be_separated_by_commas_and_are_taken_once(capsys):
    spaces = ("tables", "schulman", "values", "--only", "k3", "k2", "--columns", "claim")
    commas = ("tables", "schulman,values,schulman", "--only", "k3, k2,k3", "--columns", "claim,,claim")
    code, out, _ = run(capsys, *spaces)
    assert code == 0 and run(capsys, *commas) == (0, out, "")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "experiments"])
@pytest.mark.share(3)
def test_no_name_of_a_row_or_a_column_has_a_comma(name):
    table = build(name)
    names = {name for row in table.rows for name in (*row.tags, *row.claims)}
    assert names and not [one for one in names | {column.key for column in table.columns} if "," in one]


def test_the_list_is_that_of_the_tables_themselves(capsys):
    code, out, _ = run(capsys, "tables", "--list")
    assert code == 0 and out.strip() == listing()
    for name in NAMES:
        if name != "experiments":
            keys = [column.key for column in build(name).columns]
            assert f"columns: {' '.join(keys)}\n" in out + "\n"


def test_the_help_names_every_table(capsys):
    with pytest.raises(SystemExit):
        main(["tables", "--help"])
    shown = "".join(capsys.readouterr().out.split())
    listed = run(capsys, "tables", "--list")[1]
    assert all(name in shown and shows in listed for name, shows in NAMES.items())


def test_the_command_in_a_file_makes_it_again(capsys):
    code, out, _ = run(capsys, "tables", "gradients", "--only", "k(lam)", "--notation", "tang-munos")
    name, *arguments = shlex.split(out.partition("`")[2].partition("`")[0])
    assert code == 0 and name == "klsym" and run(capsys, *arguments) == (0, out, "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("k3", []),
        ("tm-fig1", ["tm-fig1"]),
        ("experiment.tm-fig1", ["tm-fig1"]),
        ("experiment", list(EXPERIMENTS)),
    ],
)
def test_only_the_experiments_asked_for_are_run(name, expected, monkeypatch):
    ran = []

    def result(experiment):
        ran.append(experiment)
        return SimpleNamespace(findings=[Finding("found", True)])

    monkeypatch.setattr("klsym.study.tables.experiments.result", result)
    made = list(tables(("gradients", "experiments"), (name,)))
    assert ran == expected and ("experiments" in [table.name for table in made]) == bool(expected)


# ---------------------------------------------------------------------------- folders that are none
@pytest.mark.parametrize("command", ["tables", "report", "paper", "figures"])
def test_a_file_is_no_folder(command, capsys, tmp_path):
    (tmp_path / "file").write_text("before")
    for place in ("file", "file/inside"):
        code, _, err = run(capsys, command, "-o", str(tmp_path / place))
        assert code == 2 and "cannot write into" in err and err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "before"


def test_a_folder_in_the_place_of_a_table_is_left_alone(capsys, tmp_path):
    (tmp_path / "schulman.tex").mkdir()
    code, _, err = run(capsys, "tables", "schulman", "-o", str(tmp_path))
    assert code == 2 and "cannot write" in err
    assert [path.name for path in tmp_path.iterdir()] == ["schulman.tex"]


# ---------------------------------------------------------------------------- what is written
def run_with(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    coding = {"PYTHONIOENCODING": str(options.get("coding", "utf-8"))}
    return subprocess.run(
        [*KLSYM, *arguments], env=os.environ | coding, text=True, check=False, stderr=subprocess.PIPE,
        stdout=options.get("out", subprocess.PIPE),
    )  # type: ignore[call-overload]  # fmt: skip


@pytest.mark.parametrize("name", [name for name in NAMES if name != "experiments"])
def test_latex_is_plain_ascii(name):
    shown = [text for row in build(name).rows for cell in row.cells for _, text in cell.pieces]
    assert write_latex(build(name)).isascii() and (name != "rewards" or "\N{EN DASH}" in shown)


def test_a_terminal_without_the_letters_of_html_is_told_what_to_do(tmp_path):
    done = run_with("tables", "schulman", "--format", "html", coding="ascii")
    assert (done.returncode, done.stdout) == (2, "")
    assert "PYTHONIOENCODING=utf-8" in done.stderr and done.stderr.count("\n") == 1
    done = run_with("tables", "schulman", "--format", "html", "-o", str(tmp_path), coding="ascii")
    assert done.returncode == 0 and not (tmp_path / "schulman.html").read_text(encoding="utf-8").isascii()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_behind_stdout_is_one_line():
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = run_with("tables", "schulman", out=full)
    assert done.returncode == 2
    assert done.stderr == "klsym: standard output: No space left on device\n"
