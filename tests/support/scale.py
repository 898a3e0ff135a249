"""How much a random test does: little in `make test`, all of it in `make test-all`."""

from __future__ import annotations

import os


def scaled(full: int, small: int) -> int:
    """The full count where KLSYM_TEST_ALL is set, else the small one."""
    return full if os.environ.get("KLSYM_TEST_ALL") else small
