"""What is kept between runs: for the same sources alone, replayed, and as good as none where damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klsym.cli import main
from klsym.kernel import digest
from klsym.study.ledger import cache as kept
from klsym.study.ledger.cache import Kept
from klsym.study.ledger.registry import Claim, load
from klsym.study.ledger.settle_claim import settle

ID = "gradient.k3-loss"
CLAIM = load()[ID]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "klsym"


def fill() -> None:
    Kept().add([settle(CLAIM)])


def spoil(cache: Path, change: Callable[[Any], Any]) -> None:
    """Another content of the file, with the digest that fits it."""
    [path] = cache.iterdir()
    entries = change(json.loads(path.read_text())["entries"])
    path.write_text(json.dumps({"digest": digest(entries), "entries": entries}))


def test_what_was_kept_is_what_was_settled(cache: Path) -> None:
    assert Kept().replay_answers([CLAIM]) == {}
    fill()
    assert Kept().replay_answers([CLAIM, load()["gradient.k2-loss"]]) == {ID: settle(CLAIM).to_json()}


def test_the_command_says_the_same_again_without_settling(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for _ in range(2):
        for form in ([], ["--json"]):
            assert main(["claims", "reward", "value.k2-biased", *form]) == 0
            said.append(capsys.readouterr().out)
        again = "klsym.study.ledger.settle_claim.settle"
        monkeypatch.setattr(again, lambda claim: pytest.fail(f"{claim.id} is settled again"))
    assert said[:2] == said[2:] and len(said[0].splitlines()) == 9


def test_proving_keeps_what_listing_shows(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["prove", "reward.k1"]) == 0
    assert set(Kept().replay_answers(list(load().values()))) == {"reward.k1"}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '{"digest": 1}', '{"entries": {}, "digest": ""}', "[" * 100_000, "\0"]
)
def test_a_damaged_file_is_as_good_as_none(cache: Path, text: str) -> None:
    fill()
    [path] = cache.iterdir()
    path.write_text(text)
    assert Kept().replay_answers([CLAIM]) == {}
    fill()
    assert ID in Kept().replay_answers([CLAIM])


def test_a_changed_answer_is_noticed(cache: Path) -> None:
    fill()
    [path] = cache.iterdir()
    path.write_text(path.read_text().replace("grad KL(p||q)", "grad KL(q||p)"))
    assert Kept().replay_answers([CLAIM]) == {}


def test_a_proof_that_the_kernel_refuses_is_not_shown(cache: Path) -> None:
    fill()

    def lie(entries: Any) -> Any:
        entries[ID]["certificate"]["parts"][0]["right"] = []
        return entries

    spoil(cache, lie)
    assert Kept().replay_answers([CLAIM]) == {}


def test_what_failed_and_what_is_no_derivation_is_not_kept(cache: Path) -> None:
    mine = Claim(ID, "proved", "here", "", lambda: CLAIM.build())
    wrong = Claim(ID, "refuted", "here", "", CLAIM.build)
    Kept().add([settle(mine), settle(wrong)])
    assert Kept().replay_answers([CLAIM]) == {}
    fill()
    assert Kept().replay_answers([mine]) == {}


@pytest.mark.parametrize("changed", ["COMPUTES", "SOURCES"])
def test_other_versions_and_other_sources_have_their_own(
    cache: Path, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill()
    monkeypatch.setattr(kept, changed, {"COMPUTES": ("sympy",), "SOURCES": ("klsym.kernel",)}[changed])
    assert Kept().entries == {}


def test_few_versions_stay(cache: Path) -> None:
    cache.mkdir()
    (cache / "mine.txt").write_text("")
    for number in range(6):
        path = cache / f"ledger-{number}.json"
        path.write_text("")
        os.utime(path, (number, number))
    fill()
    assert len(list(cache.iterdir())) == kept.VERSIONS + 1
    assert (cache / "mine.txt").exists() and ID in Kept().replay_answers([CLAIM])


def test_without_a_folder_nothing_is_kept_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main(["claims", ID]) == 0 and capsys.readouterr().err == ""


def test_what_is_kept_is_not_settled_again(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill()

    def settled_again(claim: Claim) -> None:
        raise AssertionError(claim.id)

    monkeypatch.setattr("klsym.study.ledger.settle_claim.settle", settled_again)
    assert main(["claims", ID]) == 0 and ID in capsys.readouterr().out
    with pytest.raises(AssertionError, match=r"gradient\.k1-loss"):
        main(["claims", "gradient.k1-loss"])


WRITER = """
import sys
from klsym.study.ledger.cache import Kept
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import settle
settled = [settle(load()[id]) for id in sys.argv[2:]]
for _ in range(int(sys.argv[1])):
    Kept().add(settled)
"""


def test_processes_that_write_at_once_leave_a_whole_file(cache: Path) -> None:
    """A reader sees a whole file at each moment, with what at least one of them has settled."""
    ids = ["gradient.k2-loss", ID, "gradient.k1-loss"]
    name = Kept().name
    command = [sys.executable, "-c", WRITER, "20"]
    writers = [subprocess.Popen([*command, *chosen]) for chosen in (ids[:2], ids[1:])]
    reads = 0
    while any(writer.poll() is None for writer in writers):
        if (cache / name).exists():
            entries = json.loads((cache / name).read_text())["entries"]
            assert ID in entries and {*entries} <= {*ids}
            reads += 1
        time.sleep(0.002)
    assert [writer.returncode for writer in writers] == [0, 0] and reads > 10
    assert [path.name for path in cache.iterdir()] == [name]  # no draft is left
    assert ID in Kept().replay_answers([CLAIM])
