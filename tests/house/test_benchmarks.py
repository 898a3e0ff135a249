"""Every script in benchmarks/ still starts: what it imports is where it looks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.scale import scaled

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
NEED_TORCH = ("trainers",)
FEW = [script for script in SCRIPTS if script.stem in ("calibration", "trainers")]  # import tests


@pytest.mark.parametrize("script", SCRIPTS if scaled(1, 0) else FEW, ids=lambda script: script.stem)
def test_it_says_how_it_is_called(script: Path) -> None:
    if script.stem in NEED_TORCH:
        pytest.importorskip("torch")
    run = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stdout.startswith("usage: "), run.stderr[-400:]
