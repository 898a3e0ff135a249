"""The explorer: what is set in the form is what is explained; without a form, a page that never changes."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from klsym.api import explain
from klsym.engine.options.option_table import CHOICES
from klsym.engine.options.settings import checked_setting
from klsym.errors import UsageError
from klsym.study.explorer import FOLLOWING, LEADING, explore, list_meaningful_values

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(name="form")
def _form() -> Any:
    """The form of an explorer of k3, found as a user finds it: by what stands beside the boxes."""
    pytest.importorskip("ipywidgets")
    explorer = explore("k3")
    found = SimpleNamespace(explorer=explorer, boxes={})

    def walk(widget: Any) -> None:
        if getattr(widget, "description", ""):
            found.boxes[widget.description] = widget
        for child in getattr(widget, "children", ()):
            walk(child)

    walk(explorer.widget())
    found.output = explorer.widget().children[-1]
    return found


def shown(form: Any, kind: str = "text/plain") -> str:
    (output,) = form.output.outputs
    assert output["output_type"] == "display_data"
    return str(output["data"][kind])


def enabled(form: Any) -> set[str]:
    return {name for name in CHOICES if not form.boxes[name].disabled}


# ---------------------------------------------------------------------------- the form
def test_the_form_has_a_box_for_everything_that_can_be_asked(form: Any) -> None:
    assert set(form.boxes) == {"loss", "parameters", *CHOICES}
    assert {name: form.boxes[name].options for name in CHOICES} == CHOICES
    assert shown(form) == str(explain("k3"))


SET: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"loss": "k2"}, {"loss": "k2"}),
    ({"loss": "  rho*k3 ", "sampling": "off-policy"}, {"loss": "rho*k3", "sampling": "off-policy"}),
    ({"use": "reward"}, {"loss": "k3", "use": "reward"}),
    ({"level": "token", "aggregate": "mean"}, {"loss": "k3", "level": "token", "aggregate": "mean"}),
    (
        {"use": "reward", "level": "token", "credit": "total"},
        {"loss": "k3", "use": "reward", "level": "token", "credit": "total"},
    ),
    ({"batch": "leave-one-out", "use": "reward"}, {"loss": "k3", "batch": "leave-one-out", "use": "reward"}),
    (
        {"parameters": "nu, gamma", "loss": "nu*gamma*k2"},
        {"loss": "nu*gamma*k2", "parameters": ["nu", "gamma"]},
    ),
]


@pytest.mark.parametrize(("changes", "question"), SET)
def test_what_is_set_is_explained(form: Any, changes: dict[str, str], question: dict[str, Any]) -> None:
    for name, value in changes.items():
        form.boxes[name].value = value
    expected = explain(**question)
    assert shown(form) == str(expected) == str(form.explorer.verdict)
    assert expected.target in ("reverse-kl", "forward-kl", "combination", "no-objective")
    assert (r"\begin{aligned}" in shown(form, "text/markdown")) == bool(expected.proof.steps)


def test_the_page_has_every_part_of_the_verdict(form: Any) -> None:
    verdict, page = form.explorer.verdict, shown(form, "text/markdown")
    assert verdict.counterexample.model and verdict.hypotheses and verdict.warnings
    parts = ("the forward KL", "(proved)", "value:", "KL002", "fix:", "q   = (1/2, 1/2)", "Hypotheses:")
    for part in parts:
        assert part in page
    for rule, _, latex in verdict.proof.steps:
        assert latex in page
        assert not rule or rf"\text{{{rule}}}" in page


COUPLED: list[tuple[dict[str, str], set[str]]] = [
    ({}, {"batch"}),
    ({"use": "reward"}, {"batch"}),
    ({"level": "sequence"}, {"batch", "aggregate"}),
    ({"level": "token"}, {"weights", "aggregate"}),
    ({"level": "token", "use": "reward"}, {"weights", "aggregate", "credit"}),
    ({"level": "token", "use": "reward", "sampling": "off-policy"}, {"weights", "aggregate", "credit"}),
]


@pytest.mark.parametrize(("changes", "following"), COUPLED)
def test_only_options_that_mean_something_are_enabled(
    form: Any, changes: dict[str, str], following: set[str]
) -> None:
    for name, value in changes.items():
        form.boxes[name].value = value
    assert enabled(form) == {*LEADING, *following}


def test_an_option_that_loses_its_meaning_is_taken_back(form: Any) -> None:
    form.boxes["use"].value = "reward"
    form.boxes["batch"].value = "mean"
    assert "batch mean" in shown(form)
    form.boxes["level"].value = "token"
    assert form.boxes["batch"].value == "none" and form.explorer.options["batch"] == "none"
    form.boxes["credit"].value = "same-token"
    assert "credit same-token" in shown(form)
    form.boxes["use"].value = "loss"
    assert form.boxes["credit"].value is None and form.explorer.options["credit"] is None
    assert shown(form) == str(explain("k3", level="token"))


@pytest.mark.parametrize("sampling", CHOICES["sampling"])
@pytest.mark.parametrize("use", CHOICES["use"])
@pytest.mark.parametrize("level", CHOICES["level"])
def test_meaningful_options_are_those_that_explain_accepts(sampling: str, use: str, level: str) -> None:
    sense = list_meaningful_values(sampling, use, level)
    assert set(sense) == set(FOLLOWING)
    for name in FOLLOWING:
        for value in CHOICES[name]:
            options: dict[str, Any] = {"sampling": sampling, "use": use, "level": level, name: value}
            if value in sense[name]:
                checked_setting(**options)
            else:
                with pytest.raises(UsageError):
                    explain("k1", **options)


# ---------------------------------------------------------------------------- what cannot be read
BAD: list[tuple[str, str]] = [
    ("k1 + kk", "unknown name 'kk' at character 6 of 'k1 + kk'"),
    ("k1 +", "at character 5 of 'k1 +'"),
    ("k1 // 2", "the operator // is not part of the loss grammar"),
    ("__import__('os').system('true')", 'unexpected "\'" at character 12'),
    ("().__class__", "an attribute (x.y) is not part of the loss grammar"),
    ("[x for x in k1 if x]", "is not part of the loss grammar"),
    ("k1/(k3 - k3)", "division by zero"),
    ("", "an empty loss"),
    ("k1 + ```</pre><script>", "unexpected '`' at character 6"),
]


@pytest.mark.parametrize(("loss", "reason"), BAD)
def test_a_bad_loss_is_answered_by_one_line(form: Any, loss: str, reason: str) -> None:
    form.boxes["loss"].value = "k2"
    form.boxes["loss"].value = loss
    line = shown(form)
    assert reason in line and "\n" not in line and "Traceback" not in line
    assert shown(form, "text/markdown") == f"```text\n{line}\n```"
    assert form.explorer.verdict is None and form.explorer.error == line
    form.boxes["loss"].value = "k2"
    assert form.explorer.error == "" and shown(form) == str(explain("k2"))


def test_a_bad_parameter_is_answered_by_one_line(form: Any) -> None:
    form.boxes["parameters"].value = "lambda"
    assert shown(form) == "parameter 'lambda': a new plain name expected"


def test_what_the_engine_declines_is_an_answer_too(form: Any) -> None:
    form.boxes["level"].value = "token"
    form.boxes["loss"].value = "past(rho)"
    assert "would be a sum of ratios" in shown(form)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sampling": "offline"}, "sampling='offline': one of on-policy, off-policy, truncated expected"),
    ({"credit": "to-go"}, "credit: needs level token"),
    ({"level": "token", "batch": "mean"}, "batch: samples are centred whole"),
    ({"loss": 3}, "the loss is text"),
    ({"parameters": "gamma"}, "parameters a list of names"),
]


@pytest.mark.parametrize(("options", "reason"), WRONG)
def test_wrong_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        explore(**options)
    assert reason in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{"credit": "total"}, {"lvl": "token"}, {"use": "lose"}])
def test_ask_refuses_wrong_options_and_keeps_the_answer(options: dict[str, str]) -> None:
    explorer = explore("k2")
    with pytest.raises(UsageError):
        explorer.ask("k3", **options)
    assert explorer.loss == "k2" and repr(explorer) == str(explain("k2"))


# ---------------------------------------------------------------------------- live, or a page
def in_front_of(monkeypatch: pytest.MonkeyPatch, allow_stdin: bool) -> None:
    """As if a front end had asked for the cell to be run."""
    request = {"content": {"code": "", "allow_stdin": allow_stdin}}
    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda: request))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def bundle(**options: Any) -> dict[str, Any]:
    return dict(explore("k3", **options)._repr_mimebundle_())


def test_a_page_without_a_notebook() -> None:
    assert set(bundle()) == {"text/plain", "text/markdown"}


@pytest.mark.parametrize(
    ("allow_stdin", "live", "form"),
    [(True, None, True), (False, None, False), (True, False, False), (False, True, True)],
)
def test_the_form_is_shown_where_a_person_can_use_it(
    monkeypatch: pytest.MonkeyPatch, allow_stdin: bool, live: bool | None, form: bool
) -> None:
    pytest.importorskip("ipywidgets")
    in_front_of(monkeypatch, allow_stdin)
    found = bundle(live=live)
    assert (VIEW in found) == form
    assert found["text/plain"] == str(explain("k3"))  # also where no form can be drawn


def test_without_ipywidgets_there_is_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = bundle()
    in_front_of(monkeypatch, True)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # importing it fails
    assert bundle() == expected
    for ask in (lambda: explore("k3", live=True), lambda: explore("k3").widget()):
        with pytest.raises(UsageError, match="pip install ipywidgets"):
            ask()


def test_pages_are_the_same_every_time() -> None:
    assert bundle() == bundle()
    code = "from klsym.study.explorer import explore; print(explore('k3')._repr_mimebundle_())"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_a_page_needs_neither_ipywidgets_nor_ipython() -> None:
    code = (
        "import sys; from klsym.study.explorer import explore; explore('k3')._repr_mimebundle_();"
        " print([name for name in ('ipywidgets', 'IPython') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_form_follows_what_is_asked_in_code(form: Any) -> None:
    form.explorer.ask("sg(rho)*k2", sampling="off-policy")
    assert form.boxes["loss"].value == "sg(rho)*k2" and form.boxes["sampling"].value == "off-policy"
    assert shown(form) == str(explain("sg(rho)*k2", sampling="off-policy"))
