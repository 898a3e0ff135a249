"""Build wheel and sdist of the last commit, check them, and try the wheel on each Python that is here.

    make release

Exit code 0: all that could be tried was as expected; a Python or a PyTorch that is not here is named.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from support.release.archives import (
    Project,
    check_sdist,
    check_wheel,
    count_by_folder,
    read_sdist,
    read_wheel,
)
from support.release.pythons import find_pythons
from support.release.trials import Environment, list_trials, list_trials_with_torch

HOME = Path(__file__).resolve().parents[3]
PLACEHOLDER = "example.org"
# what a tree holds beside sources, if it is no checkout
NO_SOURCES = (
    ".git",
    ".venv",
    "build",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    ".audit-cache",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where sources, archives and environments go")
    parser.add_argument(
        "--torch", default="torch==2.13.0", metavar="REQUIREMENT", help="for audit and measure"
    )
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    project = Project(export_sources(folder / "source"))
    wheel, sdist = build_archives(project.root, folder / "dist")
    complaints = check_archives(wheel, sdist, project)
    if not complaints:
        complaints = try_pythons(wheel, project, folder, options.torch)
    for complaint in complaints:
        print(f"make release: {complaint}", file=sys.stderr)
    if not complaints:
        print_what_is_left(project)
    return int(bool(complaints))


def ask_git(*arguments: str) -> bytes | None:
    """Return what git prints; None where this is no checkout, or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=HOME, check=False, capture_output=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def export_sources(folder: Path) -> Path:
    """Write the files of the last commit into a folder, which has nothing else then; of no checkout, all."""
    shutil.rmtree(folder, ignore_errors=True)
    archive = ask_git("archive", "HEAD")
    if archive is None:
        print("This is no checkout of a repository: the files are taken as they are")
        shutil.copytree(HOME, folder, ignore=shutil.ignore_patterns(*NO_SOURCES), symlinks=True)
        return folder
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    if ask_git("status", "--porcelain"):
        print("Changes that are not committed are not in the release")
    return folder


def build_archives(source: Path, folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return both."""
    shutil.rmtree(folder, ignore_errors=True)
    date = (ask_git("log", "-1", "--format=%ct") or b"").decode().strip()
    variables = {**os.environ, **({"SOURCE_DATE_EPOCH": date} if date else {})}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\nmake release: the build fails")
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def check_archives(wheel: Path, sdist: Path, project: Project) -> list[str]:
    """Print sizes, digests and contents; return what is wrong."""
    in_wheel, in_sdist = read_wheel(wheel), read_sdist(sdist)
    for path, files in ((sdist, in_sdist), (wheel, in_wheel)):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{path.name}: {path.stat().st_size:,} bytes, {len(files)} files, sha256 {digest}")
    for folder, (number, size) in count_by_folder(in_wheel).items():
        print(f"  {folder:<30} {number:>4} files {size:>10,} bytes")
    complaints = check_wheel(in_wheel, wheel.stat().st_size, project)
    complaints += check_sdist(in_sdist, sdist.stat().st_size)
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    return complaints + ([f"twine check: {checked.stdout[-300:]}"] if checked.returncode else [])


def try_pythons(wheel: Path, project: Project, folder: Path, torch: str) -> list[str]:
    """Try the wheel on each Python, and with PyTorch on the first; return what is wrong."""
    complaints = []
    is_first = True
    for version, python in find_pythons().items():
        name = "Python {}.{}".format(*version)
        if python is None:
            print(f"{name}: not installed here, skipped", flush=True)
            continue
        start = time.monotonic()
        environment = Environment(folder / name.replace(" ", "-").lower())
        environment.make(python, project.root)
        faults = try_alone(environment, wheel, project)
        if is_first and not faults:
            faults = try_with_torch(environment, wheel, project, torch)
        is_first = False
        shutil.rmtree(environment.folder)
        print(
            f"{name}: {'failed' if faults else 'as expected'}, {time.monotonic() - start:.0f} s", flush=True
        )
        complaints += [f"{name}: {fault}" for fault in faults]
    return complaints


def try_alone(environment: Environment, wheel: Path, project: Project) -> list[str]:
    """Install the wheel, and nothing but what it asks for; return what is wrong."""
    failure = environment.install(str(wheel)) or environment.write_certificates()
    if failure:
        return [failure]
    brings_numpy = environment.run(str(environment.python), "-c", "import numpy").returncode == 0
    faults = environment.try_all(list_trials(project.root, project.version))
    return [*faults, "pip install klsym brings NumPy"] if brings_numpy else faults


def try_with_torch(environment: Environment, wheel: Path, project: Project, torch: str) -> list[str]:
    """Add PyTorch, and audit and measure; return what is wrong: nothing where it cannot be installed."""
    if failure := environment.install(f"{wheel}[torch]", torch):
        print(f"  {torch} cannot be installed, audit and measure are not tried: {failure.splitlines()[-1]}")
        return []
    print(f"  with {torch}: audit and measure")
    return environment.try_all(list_trials_with_torch(project.root))


def print_what_is_left(project: Project) -> None:
    """Print what a machine cannot do, or must not do unasked."""
    urls = project.table["project"]["urls"].values()
    if any(PLACEHOLDER in url for url in urls):
        print(f"Before it is published: the address of the project in pyproject.toml is still {PLACEHOLDER}")
    print("To publish: twine upload the files of dist/, and tag the commit v" + project.version)


if __name__ == "__main__":
    sys.exit(main())
