"""Examples in docstrings of what stands beside klsym, each run in the module that is installed."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
EXAMPLES = [
    ".".join(("klsym", *path.relative_to(HOME).with_suffix("").parts)).removesuffix(".__init__")
    for top in ("study", "experiments", "derivations/tools", "paper")
    for path in sorted((HOME / top).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


NEED_TORCH = ("klsym.study.sampling.autograd", "klsym.experiments.network.")


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str) -> None:
    if name.startswith(NEED_TORCH):
        pytest.importorskip("torch")
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted and not results.failed


def test_a_wrong_example_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    module = type(doctest)("wrong", ">>> 1 + 1\n3\n")
    assert doctest.testmod(module).failed == 1
