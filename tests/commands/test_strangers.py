"""What people typed who had never seen klsym: an answer, or one line that says what to type instead."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from klsym.cli import main

pytestmark = pytest.mark.usefixtures("without_copies")

TYPED = (
    (Path(__file__).parents[1] / "support" / "typed_by_strangers.txt")
    .read_text(encoding="utf-8")
    .splitlines()
)
ANSWERED = 86  # how many are answered at the first try; the number may only rise


def test_each_is_answered_or_refused_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    answered = 0
    for typed in TYPED:
        code = main(shlex.split(typed)[1:])
        shown = capsys.readouterr()
        assert code in (0, 2), typed
        assert "please report" not in shown.err, typed
        assert (code == 0) == bool(shown.out) and len(shown.err.splitlines()) == (code == 2), typed
        answered += code == 0
    assert answered >= ANSWERED, f"{answered} of {len(TYPED)} answered"
