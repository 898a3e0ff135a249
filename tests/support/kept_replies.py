"""One process for each question, where a test asks the same of the same files again, in another format."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from klsym.worker_process import Asked

SUFFIXES = (".py", ".ipynb")


def keep_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each reply of a process, by the whole question and the code in the working folder."""
    kept: dict[Any, Any] = {}
    ask = Asked.ask

    def ask_once(self: Asked, question: Any) -> Any:
        code = sorted((path, path.read_bytes()) for path in Path.cwd().rglob("*") if path.suffix in SUFFIXES)
        key = repr((self.module, self.options, question, code))
        if key not in kept:
            kept[key] = ask(self, question)
        return deepcopy(kept[key])

    monkeypatch.setattr(Asked, "ask", ask_once)
