"""What is wrong is said in the words of the caller: arguments of a function, or flags of a command."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import klsym
from klsym.cli import main

AMBIGUOUS = """
def loss(logp, ref_logp):
    return (logp.exp() * (logp - ref_logp)).sum(-1)
"""
SEVERAL = """
def loss(logp, ref_logp, kind):
    return {"kl": logp - ref_logp, "other": logp}
"""
OF_LOSSES: dict[str, tuple[Callable[[], Any], list[str], str, str]] = {
    "parameter": (
        lambda: klsym.explain("har*k1"), ["explain", "har*k1"], r"parameters=\['har'\]", "--param har",
    ),
    "choice": (
        lambda: klsym.explain("k1", sampling="of-policy"), ["explain", "k1", "--sampling", "of-policy"],
        "sampling='of-policy'", "--sampling",
    ),
}  # fmt: skip
OF_CODE = {
    "role": (AMBIGUOUS, r"map=\{'logp': 'log_q\[v\]'\}", r"--map logp=log_q\[v\]"),
    "result": (SEVERAL, "name the loss with result=", "name the loss with --result"),
}


@pytest.mark.parametrize("case", OF_LOSSES)
def test_a_loss(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    call, words, argument, flag = OF_LOSSES[case]
    with pytest.raises(ValueError, match=argument) as refusal:
        call()
    assert "--" not in str(refusal.value)
    assert main(words) == 2 and flag in capsys.readouterr().err


@pytest.mark.parametrize("case", OF_CODE)
def test_code(
    case: str, tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from klsym.audit.audits import audit

    code, argument, flag = OF_CODE[case]
    (tmp_path / "loss_of_test.py").write_text("import torch\n" + code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(klsym.UsageError, match=argument) as refusal:
        audit("loss_of_test.py:loss")
    assert not re.search(r"--\w", str(refusal.value))
    main(["audit", "loss_of_test.py:loss"])
    shown = capsys.readouterr()
    assert re.search(flag, shown.err + shown.out)


def test_where_a_name_went() -> None:
    with pytest.raises(AttributeError, match=r"klsym has no 'k3': it is klsym.calculus.k3"):
        klsym.k3  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean explain"):
        klsym.explian  # noqa: B018
