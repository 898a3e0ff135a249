"""Files: whole or not at all, by whoever writes at the same time; and read up to a bound."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from klsym.cli import main
from klsym.errors import UsageError
from klsym.files import make_folder, read_text, refuse_unless_writable, write_whole
from klsym.kernel.replay import MAX_SIZE
from klsym.study.figures.style import apply_style, save

WRITER = """
import sys
from pathlib import Path
from klsym.files import write_whole
folder, mark, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for i in range(rounds):
    write_whole(folder / f"{i % 5}.txt", mark * 200_000)
"""


def writers(folder: Path, count: int, rounds: int) -> list[subprocess.Popen[bytes]]:
    return [
        subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(i), str(rounds)], stderr=-1)
        for i in range(count)
    ]


def test_writers_do_not_disturb_one_another(tmp_path: Path) -> None:
    """Each write of four processes to the same five names succeeds, and what is read is one of them."""
    running, seen = writers(tmp_path, 4, 150), 0
    while any(process.poll() is None for process in running):
        for path in tmp_path.glob("*.txt"):
            text = path.read_text()
            assert len(text) == 200_000 and len(set(text)) == 1
            seen += 1
    assert [(process.wait(), process.stderr.read()) for process in running if process.stderr] == [
        (0, b"")
    ] * 4
    assert seen > 0 and sorted(path.name for path in tmp_path.iterdir()) == [f"{i}.txt" for i in range(5)]


@pytest.mark.parametrize("content", ["text with a λ\nand lines\r\n", b"\x00\xff bytes"])
def test_what_is_written_is_read(content: Any, tmp_path: Path) -> None:
    path = write_whole(tmp_path / ("n" * 250), content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("where", ["write", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_whatever_ends_a_write_leaves_the_old_file_alone(
    where: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = write_whole(tmp_path / "a.txt", "old")

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    if where == "replace":
        monkeypatch.setattr(os, "replace", fail)
    else:
        real = Path.open

        class Full:
            def __init__(self, file: Any) -> None:
                self.file = file

            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_: object) -> None:
                self.file.close()

            write = fail

        monkeypatch.setattr(Path, "open", lambda self, mode: Full(real(self, mode)))
    expected = UsageError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        write_whole(target, "new")
    monkeypatch.undo()
    assert target.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("at", ["pdf", "png"])
def test_a_figure_that_is_interrupted_leaves_the_old_one(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with apply_style() as Figure:
        figure = Figure()
    paths = save(figure, tmp_path / "new", "a")
    assert [path.name for path in paths] == ["a.pdf", "a.png"]
    before = [path.read_bytes() for path in paths]
    assert before[0].startswith(b"%PDF") and before[1].startswith(b"\x89PNG")
    real = Figure.savefig

    def interrupted(self: Any, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        if options["format"] == at:
            raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    figure.subplots()
    with pytest.raises(KeyboardInterrupt):
        save(figure, tmp_path / "new", "a")
    assert [path.read_bytes() for path in paths] == before and len(list(paths[0].parent.iterdir())) == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    refuse_unless_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="cannot write"):
        refuse_unless_writable(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write into"):
        make_folder(tmp_path / "file" / "under")


# ---------------------------------------------------------------------------- what is read
def test_no_more_is_read_than_said(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "a.txt", "x" * 100)
    assert read_text(path, 100) == "x" * 100
    with pytest.raises(UsageError, match="more than 99 bytes"):
        read_text(path, 99)
    with pytest.raises(UsageError, match="no name of a file"):
        read_text(Path("a\0b"), 9)


def devices(folder: Path) -> dict[str, Path]:
    """What is no regular file, and links to it."""
    os.mkfifo(folder / "pipe.json")
    (folder / "device.json").symlink_to("/dev/zero")
    (folder / "link.json").symlink_to(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "loop.json").symlink_to(folder / "loop.json")
    return {path.stem: path for path in folder.iterdir()} | {"/dev/zero": Path("/dev/zero")}


@pytest.mark.parametrize("name", ["pipe", "device", "link", "loop", "/dev/zero"])
def test_check_reads_regular_files_alone(name: str, tmp_path: Path, capsys: Any) -> None:
    path = devices(tmp_path)[name]
    started = time.monotonic()
    assert main(["check", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("klsym: ")
    assert ("symbolic links" if name == "loop" else "not a regular file") in err
    assert time.monotonic() - started < 10


def test_check_of_a_folder_of_devices(tmp_path: Path, capsys: Any) -> None:
    """Each entry has its line, and the good one is replayed."""
    devices(tmp_path)
    assert main(["prove", "value.k1-unbiased", "--certificates", str(tmp_path)]) == 0
    write_whole(tmp_path / "long.json", b" " * (MAX_SIZE + 1))
    capsys.readouterr()
    assert main(["check", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out.startswith(f"ok {tmp_path / 'value.k1-unbiased.json'}") and out.count("ok ") == 1
    assert len(err.splitlines()) == 6 and "more than 1000000 bytes" in err


def test_check_does_not_wait_for_a_pipe_that_is_written(tmp_path: Path) -> None:
    """A pipe with a writer behind it is refused like one without."""
    os.mkfifo(tmp_path / "pipe.json")
    done = threading.Event()
    opened = os.open(tmp_path / "pipe.json", os.O_RDWR)  # so that neither end waits
    threading.Thread(target=lambda: (os.write(opened, b"{}"), done.set())).start()
    assert done.wait(10)
    finished = subprocess.run(
        [sys.executable, "-m", "klsym", "check", str(tmp_path / "pipe.json")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(opened)
    assert finished.returncode == 2 and "not a regular file" in finished.stderr


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    code = WRITER.replace("range(rounds)", "iter(int, 1)").replace("i % 5", "i")
    start = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{code}"
    process = subprocess.Popen([sys.executable, "-c", start, str(tmp_path), "a", "0"], stderr=-1)
    while not (tmp_path / "0.txt").exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) in (1, 130, -signal.SIGINT)
    if process.stderr:
        process.stderr.close()
    assert [path.name for path in tmp_path.iterdir()] == ["0.txt"]
    assert (tmp_path / "0.txt").read_text() == "a" * 200_000
