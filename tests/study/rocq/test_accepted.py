"""What `make rocq` stored of a claim counts for the certificate, term and checker that it came from."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from klsym.study.rocq import accepted as stored
from klsym.study.rocq.accepted import CHECKED, NONE, Mark, has_checker_changed, mark, record
from klsym.study.rocq.export import digest_terms, export, write_files

ROCQ = Path(__file__).parents[3] / "rocq"
SPEC = importlib.util.spec_from_file_location("rocq_check", ROCQ / "check.py")
assert SPEC and SPEC.loader
driver = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(driver)


def known_of(claim: str, certificate: dict[str, Any]) -> dict[str, Any]:
    """What would be stored of a claim if the checker had just accepted all parts of its certificate."""
    return digest_terms(export({claim: certificate}))


def test_a_claim_says_how_far_it_is_verified(proofs_settled):
    for claim in ("gradient.k3-loss", "sequence.reward-to-go"):
        certificate = proofs_settled[claim].certificate()
        assert mark(claim, certificate, known_of(claim, certificate)).whole
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
    known = known_of("gradient.k3-loss", certificate)
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
    certificate = proofs_settled["gradient.k3-loss"].certificate()
    known = {"checker": driver.digest(), "claims": known_of("gradient.k3-loss", certificate)}
    monkeypatch.setattr(stored, "read_accepted", lambda: known)
    assert not has_checker_changed(tmp_path / "rocq") and not has_checker_changed(tmp_path / "nothing")
    with (tmp_path / "rocq" / "rules" / "Rules.v").open("a") as file:
        file.write("(* a word more *)\n")
    assert has_checker_changed.__wrapped__(tmp_path / "rocq")
    for changed, word in ((False, "all"), (True, "stale")):
        monkeypatch.setattr(stored, "has_checker_changed", lambda changed=changed: changed)
        assert mark("gradient.k3-loss", certificate).word == word


def test_only_what_rocq_accepted_is_stored(tmp_path, proofs_settled):
    claims = ("gradient.k1-loss", "gradient.k3-loss", "sequence.causality")
    certificate = proofs_settled[claims[0]].certificate()
    write_files(export({id: proofs_settled[id].certificate() for id in claims}), tmp_path)
    found = {"checker": "c", "refused": 2, "headlines": 1, "accepted": ["gradient.k1-loss part 1"]}
    (tmp_path / CHECKED).write_text(json.dumps(found))
    assert record(tmp_path, tmp_path / "out.json") == 1
    kept = json.loads((tmp_path / "out.json").read_text())
    assert kept["checker"] == "c"
    assert kept["claims"] == known_of(claims[0], certificate)
    assert "accepted" not in kept and stored.STORED.parent == Path(stored.__file__).parent


def test_the_driver_names_as_many_parts_as_rocq_counts(tmp_path, proofs_settled):
    exported = export({"gradient.k2-loss": proofs_settled["gradient.k2-loss"].certificate()})
    [path, *_] = write_files(exported, tmp_path)
    assert driver.names(path, len(exported.scripts)) == list(exported.scripts)
    with pytest.raises(driver.Failed, match="parts, and"):
        driver.names(path, len(exported.scripts) + 1)
