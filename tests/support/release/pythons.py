"""The Pythons of this machine that klsym supports.

python -m support.release.pythons    print the newest one, if it is newer than the one that runs
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SUPPORTED = ((3, 11), (3, 12), (3, 13), (3, 14))
Version = tuple[int, int]


def find_pythons() -> dict[Version, Path | None]:
    """Version -> its interpreter: the one that runs, else one of pyenv, else one on PATH, else None."""
    return {version: _find_python(version) for version in SUPPORTED}


def _find_python(version: Version) -> Path | None:
    return next((path for path in _list_candidates(version) if _runs_as(path, version)), None)


def _list_candidates(version: Version) -> list[Path]:
    name = "python{}.{}".format(*version)
    own = [Path(sys.executable)] if sys.version_info[:2] == version else []
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [path for path in root.glob("{}.{}.*".format(*version)) if re.fullmatch(r"[\d.]+", path.name)]
    newest_first = sorted(
        folders, key=lambda path: [int(part) for part in path.name.split(".")], reverse=True
    )
    on_path = shutil.which(name)
    return [*own, *(path / "bin" / name for path in newest_first), *([Path(on_path)] if on_path else [])]


def _runs_as(path: Path, version: Version) -> bool:
    """Does it start, and is it of this version?  A shim of pyenv may name one that is not installed."""
    ask = [str(path), "-c", "import sys, venv; print(*sys.version_info[:2])"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.split() == [str(part) for part in version]


if __name__ == "__main__":
    installed = {version: path for version, path in find_pythons().items() if path is not None}
    newest = max(installed, default=(0, 0))
    if newest > sys.version_info[:2]:
        print(installed[newest])
