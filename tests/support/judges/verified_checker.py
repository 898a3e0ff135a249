"""The checker that Rocq has proved sound, compiled, on scripts by name: which of them does it not accept?"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator, Mapping
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from klsym.study.rocq.export import write_file
from support.campaigns.stored import HOME

BATCH = 300  # parts in a file of Rocq


def is_installed() -> bool:
    return shutil.which("coqc") is not None


def list_refused(scripts: Mapping[str, str], folder: Path, jobs: int = 1) -> list[str]:
    """The names of the scripts that the verified checker does not accept."""
    driver = load_driver()
    folder.mkdir(parents=True, exist_ok=True)
    library = compile_checker(driver)

    def refused(batch: tuple[int, dict[str, str]]) -> list[str]:
        return _list_refused(driver, batch[1], library, folder / f"Statements_{batch[0]}.v")

    with ThreadPool(jobs) as pool:  # each waits for a process of Rocq
        return [name for names in pool.imap(refused, enumerate(_batches(scripts))) for name in names]


def compile_checker(driver: Any) -> Path:
    """The checker, compiled: by `make rocq`, where that was the one that is here."""
    made, library = HOME / "build" / "rocq" / "checked.json", HOME / "build" / "rocq" / "checker"
    if made.exists() and json.loads(made.read_text())["checker"] == driver.digest():
        return library
    library = HOME / "build" / "soundness-checker"
    library.mkdir(parents=True, exist_ok=True)
    for name in driver.ORDER[: driver.ORDER.index("certificates/Parts") + 1]:
        driver.compiled(Path(shutil.copy(driver.SOURCES / f"{name}.v", library)), library)
    return library


def load_driver() -> Any:
    """rocq/check.py, which is no module of klsym."""
    spec = importlib.util.spec_from_file_location("rocq_check", HOME / "rocq" / "check.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _batches(scripts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    names = list(scripts)
    for first in range(0, len(names), BATCH):
        yield {name: scripts[name] for name in names[first : first + BATCH]}


def _list_refused(driver: Any, scripts: dict[str, str], library: Path, path: Path) -> list[str]:
    """A file that compiles proves all of its parts; one that does not is halved until the parts are found."""
    path.write_text(write_file("random statements", scripts), encoding="utf-8")
    try:
        driver.counts(path, driver.compiled(path, library))
    except driver.Failed as failure:
        names = list(scripts)
        if len(names) == 1:
            print(f"{names[0]}: {failure}", flush=True)
            return names
        halves = [{n: scripts[n] for n in names[i::2]} for i in (0, 1)]
        return [name for half in halves for name in _list_refused(driver, half, library, path)]
    return []
