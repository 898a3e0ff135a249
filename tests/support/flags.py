"""Messages as the command line prints them, for tests that call functions; test_arguments.py has Python's."""

from collections.abc import Iterator

import pytest

from klsym.errors import speak_of_flags


@pytest.fixture(autouse=True)
def words_of_the_command_line() -> Iterator[None]:
    with speak_of_flags():
        yield
