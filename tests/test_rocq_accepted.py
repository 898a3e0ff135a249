"""What `make rocq` stored of a claim counts for the certificate, term and checker that it came from."""

from __future__ import annotations

import copy
import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from klsym.rocq import accepted as stored
from klsym.rocq.accepted import CHECKED, NONE, Mark, accepted, checker_changed, mark, record
from klsym.rocq.export import export, write_files

ROCQ = Path(__file__).parents[1] / "rocq"
SPEC = importlib.util.spec_from_file_location("rocq_check", ROCQ / "check.py")
assert SPEC and SPEC.loader
driver = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(driver)
AGAIN = "run `make rocq`: the verified checker has not been run since this changed"


def test_nothing_that_is_stored_is_stale(proofs_settled):
    marks = {id: one.verified for id, one in proofs_settled.items() if one.verified}
    assert accepted()["checker"] == driver.digest() and not checker_changed(), AGAIN
    assert [id for id, found in marks.items() if found.stale] == [], AGAIN
    accept = {id for id, found in marks.items() if found.accepted}
    assert accept == set(accepted()["claims"]), AGAIN
    parts = sum(len(found.accepted) for found in marks.values())
    assert parts == sum(len(row["terms"]) for row in accepted()["claims"].values())
    assert not any(reason != NONE for found in marks.values() for _, reason in found.outside)


def test_a_claim_says_how_far_it_is_verified(proofs_settled):
    assert proofs_settled["gradient.k3-loss"].verified.whole
    assert proofs_settled["sequence.reward-to-go"].verified.whole
    for one in proofs_settled.values():
        answer = one.to_json()["verified"]
        assert (answer is None) == (not one.proofs)
        if answer is None:
            continue
        found = Mark.from_json(json.loads(json.dumps(answer)))
        assert found == one.verified and found.parts == len(one.parts)
        calculated = [n for n, part in enumerate(one.parts, start=1) if part not in one.proofs]
        assert [n for n, reason in found.outside if reason == NONE] == calculated


@pytest.mark.parametrize("change", ["certificate", "term", "unknown"])
def test_a_mark_does_not_outlive_what_it_was_computed_from(change, proofs_settled):
    certificate = proofs_settled["gradient.k3-loss"].certificate()
    known = copy.deepcopy(accepted()["claims"])
    assert mark("gradient.k3-loss", certificate, known).word == "all"
    row = known["gradient.k3-loss"]
    if change == "certificate":
        row["certificate"] = "0" * 64
    elif change == "term":
        row["terms"]["1"] = "0" * 16
    else:
        del known["gradient.k3-loss"]
    found = mark("gradient.k3-loss", certificate, known)
    assert (found.word, found.accepted, found.whole) == ("stale", (), False)
    assert found.sentence == "has not been run since it or part 1 changed"


def test_a_mark_does_not_outlive_the_checker_that_gave_it(tmp_path, monkeypatch, proofs_settled):
    """And an installed klsym, which has no sources of the checker beside it, keeps its marks."""
    shutil.copytree(ROCQ, tmp_path / "rocq")
    monkeypatch.setattr(driver, "SOURCES", tmp_path / "rocq")
    known = accepted() | {"checker": driver.digest()}
    monkeypatch.setattr(stored, "accepted", lambda: known)
    assert not checker_changed(tmp_path / "rocq") and not checker_changed(tmp_path / "nothing")
    with (tmp_path / "rocq" / "Rules.v").open("a") as file:
        file.write("(* a word more *)\n")
    assert checker_changed.__wrapped__(tmp_path / "rocq")
    certificate = proofs_settled["gradient.k3-loss"].certificate()
    for changed, word in ((False, "all"), (True, "stale")):
        monkeypatch.setattr(stored, "checker_changed", lambda changed=changed: changed)
        assert mark("gradient.k3-loss", certificate).word == word


def test_only_what_rocq_accepted_is_stored(tmp_path, proofs_settled):
    claims = ("gradient.k1-loss", "gradient.k3-loss", "sequence.causality")
    write_files(export({id: proofs_settled[id].certificate() for id in claims}), tmp_path)
    found = {"checker": "c", "refused": 2, "headlines": 1, "accepted": ["gradient.k1-loss part 1"]}
    (tmp_path / CHECKED).write_text(json.dumps(found))
    assert record(tmp_path, tmp_path / "out.json") == 1
    kept = json.loads((tmp_path / "out.json").read_text())
    assert list(kept["claims"]) == ["gradient.k1-loss"] and kept["checker"] == "c"
    assert kept["claims"]["gradient.k1-loss"] == accepted()["claims"]["gradient.k1-loss"]
    assert "accepted" not in kept and stored.STORED.parent == Path(stored.__file__).parent


def test_the_driver_names_as_many_parts_as_rocq_counts(tmp_path, proofs_settled):
    exported = export({"gradient.k2-loss": proofs_settled["gradient.k2-loss"].certificate()})
    [path, *_] = write_files(exported, tmp_path)
    assert driver.names(path, len(exported.scripts)) == list(exported.scripts)
    with pytest.raises(driver.Failed, match="parts, and"):
        driver.names(path, len(exported.scripts) + 1)
