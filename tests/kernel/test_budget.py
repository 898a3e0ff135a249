"""No small file costs much: it is refused in one line, within 10 s and 500 MB."""

from __future__ import annotations

import re
import resource
import subprocess
import sys

import pytest

from support.faulty.costs import COSTS
from support.scale import scaled

SECONDS, MEGABYTES, SMALL = 10, 500, 100_000


def limited() -> None:
    """In the child: a limit on what it may allocate, beyond which it fails, and on its processor time."""
    resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES << 20, MEGABYTES << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))


PROGRAM = """
import sys, time
from klsym.errors import Refused
from klsym.kernel import check, read
start = time.process_time()
try:
    check(read(sys.stdin.read()))
    said = "accepted"
except Refused as refusal:
    said = str(refusal)
print(time.process_time() - start, said)
"""


def refusal_of(text: str) -> tuple[float, str]:
    """Seconds and what the kernel says, in a process of its own, whose memory is limited."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=text, capture_output=True, text=True, preexec_fn=limited
    )
    assert done.returncode == 0, done.stderr[-500:]
    seconds, said = done.stdout.split(" ", 1)
    return float(seconds), said.removesuffix("\n")


@pytest.mark.parametrize("name", list(COSTS)[:: scaled(1, 3)])  # each starts a process
def test_an_expensive_file_is_refused_within_the_limits(name):
    message, build = COSTS[name]
    text = build()
    seconds, said = refusal_of(text)
    assert said != "accepted" and "\n" not in said and len(said) < 700 and len(text) < 1_100_000
    assert re.search(message, said), said
    assert seconds < SECONDS
