"""Commands run in this process or in one of their own, and what a complaint looks like."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

from klsym.cli import main

Out = Any  # capsys


def run(capsys: Out, *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def start(*argv: Any, **options: Any) -> subprocess.Popen[bytes]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-m", "klsym", *argv], **pipes, **options)


def shell(*argv: Any, text: bytes = b"", **environment: str) -> tuple[int, str, str]:
    done = start(*argv, env={**os.environ, **environment})
    out, err = done.communicate(text, timeout=60)
    return done.returncode, out.decode(), err.decode()


def one_line_of_complaint(err: str) -> None:
    assert re.fullmatch(r"klsym: [^\n]{5,400}\n", err), err
    assert err.strip().isprintable() and "Traceback" not in err
