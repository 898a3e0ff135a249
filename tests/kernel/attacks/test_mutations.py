"""The mutations themselves: what is changed in a small source, and what is left alone."""

from __future__ import annotations

import ast

import pytest

from support.campaigns.mutations import Source


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = b == c", ["a = b != c"]),
        ("a = b in c", ["a = b not in c"]),
        ("a = b < c", ["a = b <= c", "a = b >= c"]),
        ("a = b + c", ["a = b - c", "a = b", "a = c"]),
        ("a = b // c", ["a = b * c"]),
        ("a += b | c", ["pass", "a += b & c", "a += b", "a += c"]),
        ("a = b and c", ["a = b or c", "a = c", "a = b"]),
        ("a = not b", ["a = b"]),
        ("a = -b", ["a = b"]),
        ("a = 7", ["a = 6", "a = 8"]),
        ("a = 4096", ["a = 0", "a = 4096000000000"]),
        ("a = True", ["a = False"]),
        ("a = {b, c}", ["a = {c}", "a = {b}"]),
        ("a = {b}", ["a = {*[]}"]),
        ("a = {**b, 'x': c}", ["a = {'x': c}", "a = {**b}", "a = {**b, 'x?': c}"]),
        ("a = ('x', 'y')", ["a = ('y',)", "a = ('x',)", "a = ('y', 'y')", "a = ('x', 'x')"]),
        ("a = b if c else d", ["a = b", "a = d"]),
        ("a = b[:c]", ["a = b[:]"]),
        ("a = any(b)", ["a = all(b)"]),
        ("a = max(b, c)", ["a = min(b, c)", "a = max([c])", "a = max([b])"]),
        ("a = [b for b in c if b]", ["a = [b for b in c]", "a = [b for b in c if False]"]),
        ("refuse_unless(a, 'text')", ["pass"]),
        ("charge(4 * a)", ["pass"]),
        ("raise Refused(f'{a + 1}')", ["pass"]),
        ("if a: b = c", ["if True:", "if False:"]),
        ("while a: b = c", ["while False:"]),
        ("def f(): return a, b", ["return (b, a)"]),
        ("match a:\n case 1 if b: c = d", ["case 1 if False:", "case 1:", "case '1?' if b:"]),
    ],
)
def test_what_is_changed(text, expected):
    assert sorted(mutant.after for mutant in Source("x.py", text).mutants) == sorted(expected)


@pytest.mark.parametrize(
    "text",
    [
        '"""A text."""', "import a", "from a import b as c", "__all__ = ['a', 'b']",
        "Number = int | Fraction", "assert a == b", "a: dict[str, int]",
        "@lru_cache(maxsize=7)\ndef f(a: int = b) -> int | None: ...",
        "zip(a, strict=True)", "Row = tuple[int, ...]",
    ],
)  # fmt: skip
def test_what_is_left_alone(text):
    assert [mutant.after for mutant in Source("x.py", text).mutants if mutant.after != "pass"] == []


def test_a_mutant_is_in_force_once_it_is_applied():
    source = Source("x.py", "def f(a):\n    if a < 1:\n        return 'low'\n    return 'high'\n")
    [mutant] = [m for m in source.mutants if m.after == "if a <= 1:"]
    assert (mutant.line, mutant.where, mutant.statement) == (2, "f", (2, 2))
    before: dict[str, object] = {}
    exec(compile(source.tree, "x.py", "exec"), before)
    mutant.apply()
    after: dict[str, object] = {}
    exec(compile(ast.fix_missing_locations(source.tree), "x.py", "exec"), after)
    assert before["f"](1) == "high" and after["f"](1) == "low"  # type: ignore[operator]


def test_long_statements_are_cut_to_where_they_differ():
    long = f"a = [{', '.join(f'b{i}' for i in range(99))}]"
    mutants = Source("x.py", long).mutants
    assert len({mutant.key for mutant in mutants}) == 99
    assert all(len(mutant.before) < 200 and mutant.before != mutant.after for mutant in mutants)
