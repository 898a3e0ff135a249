"""What is wrong is said in the words of the caller: arguments of a function, or flags of a command."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import klsym
from klsym.cli import main

pytestmark = pytest.mark.usefixtures("without_copies", "forked_audits")

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


ANSWERS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "fix": (lambda: klsym.explain("k2", level="token"), ["explain", "k2", "--level", "token"]),
    "regions": (
        lambda: klsym.explain("rho*clip(k3, -10, 10) + clip(k1, -5, 5)", sampling="off-policy"),
        ["explain", "rho*clip(k3, -10, 10) + clip(k1, -5, 5)", "--sampling", "off-policy"],
    ),
    "name": (lambda: klsym.explain("gspo"), ["explain", "gspo"]),
    "compare": (lambda: klsym.compare("k1", "k3"), ["compare", "k1", "k3"]),
    "recommend": (lambda: klsym.recommend("reverse-kl"), ["recommend", "--target", "reverse-kl"]),
    "optimum": (
        lambda: klsym.optimum("k2", beta=1, rewards=[1, 0]),
        ["optimum", "k2", "--beta", "1", "--rewards", "1,0"],
    ),
    "divergence": (lambda: klsym.divergence("-log(r)"), ["divergence", "-log(r)"]),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed in Python an answer names no flag and no command; on the command line no argument."""
    call, words = ANSWERS[case]
    found = call()
    for text in (str(found), repr(found)):
        assert not re.search(r"--\w|klsym (rule|examples)", text), text
        assert "full=True" in text or "to_json()" in text
    html = re.sub(r"<[^>]*>", " ", found._repr_html_())
    assert not re.search(r"\s--\w", html), html
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert re.search(r"--(full|json)", shown) and not re.search(r"=True|to_json|klsym\.", shown), shown


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
