"""`share(n)`: what `make test` leaves out of a slow table, and that `make test-all` leaves nothing out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest


def chosen(
    config: pytest.Config, names: list[str], share: int | None, of_all: int = 1
) -> tuple[list[str], list[str]]:
    """The names of the tests that run, and those reported as left out."""
    mark = None if share is None else SimpleNamespace(args=(share,))
    items = [SimpleNamespace(nodeid=name, get_closest_marker=lambda _: mark) for name in names]
    left: list[Any] = []
    options = {"--share": of_all, "--skipped-before": False}
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    plugins = config.pluginmanager.get_plugins()
    [settings] = [p for p in plugins if str(getattr(p, "__file__", "")).endswith("tests/conftest.py")]
    settings.pytest_collection_modifyitems(SimpleNamespace(hook=hook, getoption=options.get), items)
    return [item.nodeid for item in items], [item.nodeid for item in left]


TABLE = [f"test_a.py::test_b[{number}]" for number in range(300)]


def test_a_share_runs_with_the_first_case_and_the_rest_is_reported(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KLSYM_TEST_ALL", raising=False)
    kept, left = chosen(pytestconfig, TABLE, 3)
    assert kept[0] == TABLE[0] and sorted(kept + left) == sorted(TABLE)
    assert 70 < len(kept) < 130 and (kept, left) == chosen(pytestconfig, TABLE, 3)
    assert chosen(pytestconfig, left[:1], 3) == (left[:1], [])  # a case that is asked for by name
    assert chosen(pytestconfig, TABLE, None) == (TABLE, [])


def test_one_option_takes_a_share_of_every_table(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests without cases run; a table with a share of its own keeps the smaller one."""
    monkeypatch.delenv("KLSYM_TEST_ALL", raising=False)
    single = [f"test_a.py::test_{name}" for name in "vwxyz"]
    kept, left = chosen(pytestconfig, [*TABLE, *single], None, 4)
    assert kept[0] == TABLE[0] and kept[-5:] == single and 50 < len(kept) < 110
    assert chosen(pytestconfig, TABLE, 3, 4)[0] == chosen(pytestconfig, TABLE, 4)[0]
    assert chosen(pytestconfig, TABLE, 6, 4)[0] == chosen(pytestconfig, TABLE, 6)[0] and left


def test_all_run_where_all_are_asked_for(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLSYM_TEST_ALL", "1")
    assert chosen(pytestconfig, TABLE, 3) == (TABLE, [])
