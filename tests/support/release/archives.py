"""What a wheel and an sdist of klsym hold: complaints about what is missing, and what does not belong."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

WHEEL_LIMIT = 3_000_000  # bytes
SDIST_LIMIT = 8_000_000
NEEDED_IN_SDIST = (
    "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "action.yml",
    ".pre-commit-hooks.yaml", "Makefile",
    "requirements.lock", "tests/conftest.py", "docs/figure.png", "klsym/py.typed", "rocq/check.py",
)  # fmt: skip
TESTS = ("tests/", "web/tests/", "notebooks/conftest.py")  # those of the project belong to its sdist
STORED = (".json", ".xz", ".pkl", ".npz")  # stored results: each is read by name by some module of the wheel
UNWANTED = re.compile(
    r"(^|/)(tests?|\.git|\.venv|build|dist|node_modules|__pycache__|\.hypothesis)/|\.py[cod]$"
    r"|(^|/)(test_[^/]*|conftest)\.py$"
)


@dataclass(frozen=True)
class Project:
    """What pyproject.toml says of the files that are installed.  root: the folder of the sources."""

    root: Path

    @cached_property
    def table(self) -> dict[str, Any]:
        return tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))

    @cached_property
    def version(self) -> str:
        text = (self.root / "klsym" / "__init__.py").read_text(encoding="utf-8")
        stated = re.search(r'^__version__ = "(.+?)"', text, re.MULTILINE)
        assert stated is not None
        return stated[1]

    def list_installed_files(self) -> set[str]:
        """The modules and data of the declared packages, as a wheel names them."""
        tool = self.table["tool"]["setuptools"]
        files = set()
        for package in tool["packages"]:
            folder = self._find_folder(package)
            patterns = ["*.py", *tool["package-data"].get(package, [])]
            names = [path.name for path in folder.iterdir() if path.is_file()]
            chosen = [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]
            files |= {f"{package.replace('.', '/')}/{name}" for name in chosen}
        return files

    def _find_folder(self, package: str) -> Path:
        """The folder of a package; parts of the name space are other folders of the repository."""
        moved: dict[str, str] = self.table["tool"]["setuptools"]["package-dir"]
        for parent, folder in moved.items():
            if package == parent or package.startswith(f"{parent}."):
                return self.root / folder / package.removeprefix(parent).lstrip(".").replace(".", "/")
        return self.root / package.replace(".", "/")


def read_wheel(path: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def read_sdist(path: Path) -> dict[str, bytes]:
    """Return the files of an sdist by name, without the folder that holds them."""
    with tarfile.open(path) as archive:
        members = [(member, archive.extractfile(member)) for member in archive.getmembers()]
        return {member.name.partition("/")[2]: file.read() for member, file in members if file is not None}


def check_wheel(files: Mapping[str, bytes], size: int, project: Project) -> list[str]:
    """Return what is wrong with a wheel; nothing if it may be published."""
    information = f"klsym-{project.version}.dist-info/"
    inside = {name for name in files if not name.startswith(information)}
    wanted = project.list_installed_files()
    complaints = [f"the wheel lacks {name}" for name in sorted(wanted - inside)]
    complaints += [f"the wheel has {name}, which is in no package" for name in sorted(inside - wanted)]
    complaints += list_unwanted(files, "wheel")
    code = b"\n".join(text for name, text in files.items() if name.endswith(".py")).decode()
    complaints += [
        f"no module reads {name}"
        for name in sorted(inside)
        if name.endswith(STORED) and PurePosixPath(name).name not in code
    ]
    if size > WHEEL_LIMIT:
        complaints.append(f"the wheel has {size:,} bytes, more than {WHEEL_LIMIT:,}")
    return complaints + check_metadata(files, information, project)


def check_metadata(files: Mapping[str, bytes], information: str, project: Project) -> list[str]:
    """Compare the metadata of a wheel with the project, the README and the licence."""
    metadata = BytesParser().parsebytes(files.get(f"{information}METADATA", b""))
    table = project.table["project"]
    described = str(metadata.get_payload()).strip()
    entry_points = files.get(f"{information}entry_points.txt", b"").decode()
    required = {
        line.replace(" ", "") for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line
    }
    facts = {
        "version": metadata["Version"] == project.version,
        "name": metadata["Name"] == table["name"],
        "Python": metadata["Requires-Python"] == table["requires-python"],
        "licence": metadata["License-Expression"] == table["license"]
        and any(name.startswith(information) and name.endswith("/LICENSE") for name in files),
        "README": described == (project.root / "README.md").read_text(encoding="utf-8").strip(),
        "command": table["scripts"]["klsym"] in entry_points,
        "dependencies": {split_name(line) for line in required}
        == {split_name(line) for line in table["dependencies"]},
        "extras": {*metadata.get_all("Provides-Extra", [])} == {*table["optional-dependencies"]},
    }
    return [
        f"the wheel's metadata differ from the project: {name}" for name, holds in facts.items() if not holds
    ]


def split_name(requirement: str) -> str:
    """Return the name of a requirement.

    >>> split_name("sympy>=1.13,<1.15")
    'sympy'
    """
    return re.split(r"[<>=! ]", requirement)[0]


def check_sdist(files: Mapping[str, bytes], size: int) -> list[str]:
    """Return what is wrong with an sdist."""
    complaints = [f"the sdist lacks {name}" for name in NEEDED_IN_SDIST if name not in files]
    others = [name for name in files if not name.startswith(TESTS)]
    complaints += list_unwanted(others, "sdist")
    if size > SDIST_LIMIT:
        complaints.append(f"the sdist has {size:,} bytes, more than {SDIST_LIMIT:,}")
    return complaints


def list_unwanted(names: Iterable[str], archive: str) -> list[str]:
    """Return a complaint for each test, cache or build output."""
    return [f"the {archive} has {name}" for name in sorted(names) if UNWANTED.search(name)]


def count_by_folder(files: Mapping[str, bytes]) -> dict[str, tuple[int, int]]:
    """Folder of two levels -> its number of files, and of bytes.

    >>> count_by_folder({"klsym/a.py": b"12", "klsym/kernel/b.py": b"3", "klsym/kernel/x/c.py": b""})
    {'klsym': (1, 2), 'klsym/kernel': (2, 1)}
    """
    number, size = Counter[str](), Counter[str]()
    for name, content in files.items():
        folder = "/".join(name.split("/")[:-1][:2])
        number[folder] += 1
        size[folder] += len(content)
    return {folder: (number[folder], size[folder]) for folder in sorted(number)}
