"""Planted faults and the changes that mend them; losses of which nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klsym.fixing.proposing import Proposal, Question, propose_change
from support.audits.faults import JAX, REFUSALS, SAMPLES, SEQUENCES, TOKENS, Fault, Refusal

HEADS = {"torch": "import torch\n\n\n", "jax": "import jax\nimport jax.numpy as jnp\n\n\n"}


def propose(folder: Path, row: Fault | Refusal, library: str = "torch") -> Proposal:
    pytest.importorskip(library)
    file = folder / "trainer.py"
    file.write_text(HEADS[library] + row.code, encoding="utf-8")
    options: dict[str, Any] = dict(row.options)
    name = options.pop("target", "T.f" if "class T" in row.code else "f")
    map = options.pop("map", {})
    return propose_change(Question(f"{file}:{name}", map, setting=options, expect=row.expect))


def check_fault(folder: Path, row: Fault, library: str = "torch") -> None:
    proposal = propose(folder, row, library)
    edit, after = proposal.edit, proposal.after
    assert edit is not None and after is not None, proposal.reason
    before = (folder / "trainer.py").read_text()
    assert before.count(row.old) == 1 or row.old in edit.old
    start = before.encode().index(row.old.encode())
    changed = before[:start] + row.new + before[start + len(row.old) :]
    assert edit.apply(before) == changed
    assert after.agrees and after.read is not None and proposal.both.read is not None
    assert after.read.verdict.trust in ("kernel", proposal.both.read.verdict.trust)
    assert proposal.is_wrong == (edit.kind != "expm1")


@pytest.mark.share(5)
@pytest.mark.parametrize("row", SAMPLES, ids=lambda row: row.name)
def test_faults_of_samples(tmp_path: Path, row: Fault) -> None:
    check_fault(tmp_path, row)


@pytest.mark.share(3)
@pytest.mark.parametrize("row", [*TOKENS, *SEQUENCES], ids=lambda row: row.name)
def test_faults_of_tokens_and_sequences(tmp_path: Path, row: Fault) -> None:
    check_fault(tmp_path, row)


@pytest.mark.share(2)
@pytest.mark.parametrize("row", JAX, ids=lambda row: row.name)
def test_faults_in_jax(tmp_path: Path, row: Fault) -> None:
    check_fault(tmp_path, row, "jax")


@pytest.mark.share(2)
@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.name)
def test_nothing_is_changed(tmp_path: Path, row: Refusal) -> None:
    proposal = propose(tmp_path, row)
    assert proposal.edit is None and row.why in proposal.reason
    assert proposal.is_wrong == (row.why != "is right")
