"""The explorer: a loss typed into a form, and the verdict on it below, at every change.

>>> explorer = explore("k3")
>>> explorer.verdict.target
'forward-kl'
>>> explorer.ask("rho*k3", sampling="off-policy")
>>> explorer.verdict.target
'reverse-kl'

klsym parses typed text with a whitelist (`klsym.language.parser`) and never evaluates it.

An explorer always shows its verdict as a page: text and Markdown, the same for the same question.  Where a
person sits in front of the notebook and ipywidgets is installed, the form is shown in its place.  Who sits
there, Jupyter says itself: a front end asks for each cell to be run with `allow_stdin`, true if the code may
ask its user for a line of input.  JupyterLab, Notebook and VS Code allow it; nbval, nbclient and
`jupyter nbconvert --execute` do not, so that stored outputs are pages, which nbval compares, and a form never
gets into them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any

from klsym.api import Verdict, ask
from klsym.engine.options.option_table import (
    CHOICES,
    OPTIONS,
    Aggregate,
    Batch,
    Credit,
    Level,
    Sampling,
    Use,
    Weights,
)
from klsym.engine.options.settings import checked_setting
from klsym.errors import KlsymError, UsageError
from klsym.render.verdict import format_verdict_markdown

LEADING = tuple(o.name for o in OPTIONS if o.always)  # the others mean something beside them, or not
FOLLOWING = {o.name: o for o in OPTIONS if not o.always}
HINTS = {"loss": "such as sg(rho)*k2; Enter explains it", "parameters": "further names, such as gamma c"}
Options = dict[str, str | None]
Page = dict[str, Any]  # what Jupyter shows: MIME type -> content


def explore(
    loss: str = "k3",
    sampling: Sampling = "on-policy",
    use: Use = "loss",
    level: Level = "sample",
    batch: Batch = "none",
    parameters: Iterable[str] = (),
    credit: Credit | None = None,
    weights: Weights | None = None,
    aggregate: Aggregate | None = None,
    live: bool | None = None,
) -> Explorer:
    """Explain a loss in a notebook, with a form to change it.

    >>> print(explore("k1 + kk").error.partition(" (")[0])
    unknown name 'kk' at character 6 of 'k1 + kk'

    loss: text in the loss grammar; one that cannot be read is answered by one line that points at it.
    sampling, use, level, batch, parameters, credit, weights, aggregate: as in `explain`.
    live: with the form (True), as a page (False), or (None) with the form where a person can use it.
    Raises UsageError: options that are unknown or without effect; live without ipywidgets.
    """
    if not isinstance(loss, str) or isinstance(parameters, str):
        raise UsageError("explore: the loss is text, and parameters a list of names")
    options: Options = {
        "sampling": sampling, "use": use, "level": level, "batch": batch,
        "credit": credit, "weights": weights, "aggregate": aggregate,
    }  # fmt: skip
    checked_setting(**options)
    if live:
        _import_widgets()
    return Explorer(loss, tuple(parameters), options, live)


def list_meaningful_values(sampling: str, use: str, level: str) -> dict[str, tuple[str, ...]]:
    """The values of the other options that mean something there; no values where the option means nothing.

    >>> list_meaningful_values("on-policy", "loss", "sequence")["aggregate"]
    ('sum', 'mean', 'batch')
    >>> list_meaningful_values("on-policy", "loss", "token")["credit"]
    ()
    """
    leading = {"sampling": sampling, "use": use, "level": level}
    return {
        o.name: (o.silent,)
        if o.explain_no_effect(leading) and o.silent
        else ()
        if o.explain_no_effect(leading)
        else o.choices
        for o in FOLLOWING.values()
    }


class Explorer:
    """A loss, how it is used, and the verdict on it, or the reason why there is none.

    loss, parameters, options: the question, as in `explain`.  verdict: the answer, None if there is none;
    then `error` says why in one line.
    """

    loss: str
    options: Options
    verdict: Verdict | None
    error: str

    def __init__(self, loss: str, parameters: tuple[str, ...], options: Options, live: bool | None) -> None:
        self.parameters, self.options, self.live = parameters, options, live
        self._form: Any = None
        self._answer(loss)

    def ask(self, loss: str | None = None, parameters: Iterable[str] | None = None, **options: str) -> None:
        """Change the question; earlier options that mean nothing beside the new ones are dropped.

        >>> explorer = explore("k1", use="reward", level="token", credit="same-token")
        >>> explorer.ask(use="loss")
        >>> explorer.options["credit"], explorer.verdict.target
        (None, 'zero')

        Raises UsageError: options that are unknown or without effect.
        """
        leading = {name: options.get(name, self.options[name]) for name in LEADING}
        checked_setting(**leading)
        chosen = {**_keep_meaningful(self.options, leading), **leading, **options}
        checked_setting(**chosen)
        self.options = chosen
        self.parameters = self.parameters if parameters is None else tuple(parameters)
        self._answer(self.loss if loss is None else loss)

    def _answer(self, loss: str) -> None:
        self.loss, self.verdict, self.error = loss.strip(" "), None, ""
        try:
            self.verdict = ask(self.loss, self.parameters, **self.options)
        except KlsymError as error:
            self.error = " ".join(str(error).split())
        if self._form is not None:
            self._form.show()

    def page(self) -> Page:
        """The answer as text and as Markdown.

        >>> sorted(explore("k1").page())
        ['text/markdown', 'text/plain']
        """
        if self.verdict is None:
            return {"text/plain": self.error, "text/markdown": f"```text\n{self.error}\n```"}
        return {"text/plain": str(self.verdict), "text/markdown": format_verdict_markdown(self.verdict)}

    def widget(self) -> Any:
        """The form with the answer below, an ipywidgets box; the same one at every call.

        Raises UsageError: ipywidgets is not installed.
        """
        if self._form is None:
            self._form = _Form(self, _import_widgets())
        return self._form.box

    def __repr__(self) -> str:
        return str(self.page()["text/plain"])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Page:
        if not (_is_usable() if self.live is None else self.live):
            return self.page()
        return {**self.widget()._repr_mimebundle_(), **self.page()}


def _keep_meaningful(options: Options, leading: Options) -> Options:
    """The other options, those that mean nothing beside the leading ones set back to what says nothing."""
    sense = list_meaningful_values(*(str(leading[name]) for name in LEADING))
    return {
        o.name: options[o.name] if options[o.name] in sense[o.name] else o.silent for o in FOLLOWING.values()
    }


def _import_widgets() -> Any:
    try:
        return importlib.import_module("ipywidgets")
    except ImportError:
        raise UsageError("the form needs ipywidgets: pip install ipywidgets, or ask for a page") from None


def _is_usable() -> bool:
    """Can a form be shown to someone?"""
    try:
        return _has_user() and bool(_import_widgets())
    except UsageError:
        return False


def _has_user() -> bool:
    """May the cell that is being run ask its user for input?  See the Jupyter messaging protocol."""
    ipython = sys.modules.get("IPython")  # not imported: no notebook
    kernel = getattr(ipython and ipython.get_ipython(), "kernel", None)
    if kernel is None or not hasattr(kernel, "get_parent"):
        return False
    return bool(kernel.get_parent().get("content", {}).get("allow_stdin"))


class _Form:
    """The widgets of an explorer: what is set in them is asked, and what was answered is shown in them."""

    def __init__(self, explorer: Explorer, widgets: Any) -> None:
        self.explorer, self.settling = explorer, False
        style = {"description_width": "6.5em"}
        wide = widgets.Layout(width="100%", max_width="46em")
        self.loss, self.names = (
            widgets.Text(
                description=name, placeholder=hint, style=style, layout=wide, continuous_update=False
            )
            for name, hint in HINTS.items()
        )
        narrow = widgets.Layout(width="15em")
        self.choices = {
            name: widgets.Dropdown(options=values, description=name, style=style, layout=narrow)
            for name, values in CHOICES.items()
        }
        self.answer = widgets.Output()
        rows = widgets.Box(list(self.choices.values()), layout=widgets.Layout(flex_flow="row wrap"))
        self.box = widgets.VBox([self.loss, self.names, rows, self.answer])
        self.show()
        for box in (self.loss, self.names, *self.choices.values()):
            box.observe(self.ask_form, "value")

    def ask_form(self, _: Any) -> None:
        """Ask what the form says; what `show` sets is no question."""
        if self.settling:
            return
        self.answer.outputs = ()  # the old answer does not stand below the new question
        leading = {name: self.choices[name].value for name in LEADING}
        sense = list_meaningful_values(**leading)
        values = {name: self.choices[name].value for name in FOLLOWING}
        following = {name: value for name, value in values.items() if value in sense[name]}
        self.explorer.ask(self.loss.value, self.names.value.replace(",", " ").split(), **leading, **following)

    def show(self) -> None:
        """The question and its answer; options that mean nothing beside the leading ones are greyed out."""
        explorer = self.explorer
        leading = {name: str(explorer.options[name]) for name in LEADING}
        self.settling = True
        self.loss.value, self.names.value = explorer.loss, " ".join(explorer.parameters)
        for name, value in leading.items():
            self.choices[name].value = value
        for name, values in list_meaningful_values(**leading).items():
            first = values[0] if values else None  # what holds where nothing is said
            self.choices[name].value = explorer.options[name] or first
            self.choices[name].disabled = len(values) < 2
        self.settling = False
        self.answer.outputs = ({"output_type": "display_data", "data": explorer.page(), "metadata": {}},)
