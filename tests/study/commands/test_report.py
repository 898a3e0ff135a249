"""`klsym report`: exit codes, one line for what cannot be written, nothing half made, the same twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from klsym.cli import main
from klsym.study.ledger.registry import Claim, load
from klsym.study.write_up import run

IDS = ("gradient.k1-loss", "gradient.k3-loss-not-reverse", "value.ratio-direction")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Claim]], None]:
    """Three claims, one figure, no tables: what takes a minute is tested elsewhere."""

    def choose(claims: list[Claim]) -> None:
        monkeypatch.setattr(run, "select", lambda _: claims)

    monkeypatch.setattr(run, "EXPERIMENTS", {"gaussian-estimators": run.EXPERIMENTS["gaussian-estimators"]})
    monkeypatch.setattr(run, "every_table", list)
    choose([load()[id] for id in IDS])
    return choose


def _broken() -> None:
    raise ValueError("no such step")


def test_a_report_is_made_and_is_the_same_twice(small: object, tmp_path: Path) -> None:
    """No date, no path, nothing random: all that a run writes is the same in another folder."""
    made = []
    for name in ("a", "b"):
        assert main(["report", "-o", str(tmp_path / name)]) == 0
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        made.append({str(path.relative_to(tmp_path / name)): path.read_bytes() for path in files})
    assert made[0] == made[1]
    assert {"report.html", "verify.txt", "findings.txt", "figures/gaussian-estimators.png"} <= made[0].keys()
    assert {f"certificates/{id}.json" for id in IDS} <= made[0].keys()


def test_a_claim_that_fails_is_shown_and_the_command_exits_1(
    small: Callable[[list[Claim]], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Claim("gradient.broken", "proved", "", "It cannot be settled.", _broken)
    small([load()["gradient.k1-loss"], broken])
    assert main(["report", "-o", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "FAILED gradient.broken: ValueError: no such step" in printed.out
    steps = printed.err.splitlines()  # a line for each step, where standard error is no terminal
    assert steps and all(re.match(r"klsym: \d\d:\d\d:\d\d \w", line) for line in steps)
    assert "1 of 2 claims failed" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not (tmp_path / "certificates" / "gradient.broken.json").exists()


def _file_as_figures(folder: Path) -> Path:
    folder.mkdir()
    (folder / "figures").write_text("mine", encoding="utf-8")
    return folder


def _folder_as_page(folder: Path) -> Path:
    (folder / "report.html").mkdir(parents=True)
    return folder


def _no_folder(folder: Path) -> Path:
    return Path("/dev/null/report")


@pytest.mark.parametrize("spoil", [_file_as_figures, _folder_as_page, _no_folder])
def test_what_cannot_be_written_is_one_line_before_any_work(
    spoil: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def worked(*_: object) -> None:
        raise AssertionError("it worked before it looked where to write")

    monkeypatch.setattr(run, "settle_all", worked)
    folder = spoil(tmp_path / "out")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    assert main(["report", "-o", str(folder)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1
    assert "cannot write" in printed.err
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before
