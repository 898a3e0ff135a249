"""What a statement changes beside the variable that it names: no verdict is about another loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klsym.audit import audits
from klsym.errors import KlsymError

pytest.importorskip("torch")

HEAD = """import enum
import torch
import torch.nn.functional as F
STATE = {"mode": "k2"}
TABLE = {"k1": lambda r: -r, "k3": lambda r: r.exp() - r - 1}
FLAG = False
COEF = 1.0
if not COEF < 0:
    COEF = -1.0
if FLAG:
    def either(r):
        return -r
else:
    def either(r):
        return r ** 2
def k3(r):
    return r.exp() - r - 1
def by_state(r):
    return k3(r) if STATE["mode"] == "k3" else r ** 2
def clip_(r):
    r.clamp_(max=0.0)
    return r.mean()
def add_kl(losses, r):
    losses["kl"] = 0.5 * r ** 2
    return r.mean()
class T:
"""
# How a body begins: that of a method f(self, logp, ref_logp, adv).
R = "r = ref_logp - logp\n"
READ: dict[str, tuple[str, str, str]] = {  # body, other methods, the loss of one token
    "pop of a dict": (
        "t = {'pg': -adv*logp, 'kl': r}\nkl = t.pop('kl')\nprint(kl)\nreturn sum(t.values())",
        "",
        "-A*log_q",
    ),
    "in place, unused": (
        "t = -adv*logp\nunused = t.add_(0.5*r**2)\nreturn t",
        "",
        "k2 - A*log_q",
    ),
    "setdefault": (
        "t = {'pg': -adv*logp}\nold = t.setdefault('kl', 0.5*r**2)\nreturn sum(t.values())",
        "",
        "k2 - A*log_q",
    ),
    "a helper in place": (
        "n = clip_(r)\nreturn r ** 2",
        "",
        "min(0, -k1)**2",
    ),
    "an iterator": (
        "it = iter([r ** 2, k3(r)])\nskip = next(it)\nreturn next(it)",
        "",
        "k3",
    ),
    "a function within": (
        "t = [-adv*logp]\ndef add(x):\n    t.append(x)\n    return 0\nn = add(0.5*r**2)\nreturn sum(t)",
        "",
        "k2 - A*log_q",
    ),
    "a method for its effect": (
        "self.t = [-adv*logp]\nself.add(r)\nreturn sum(self.t)",
        "def add(self, r):\n    self.t.append(0.5 * r ** 2)",
        "k2 - A*log_q",
    ),
    "an attribute for a method": (
        "self.base = ref_logp\nreturn self.inner(logp)",
        "def inner(self, logp):\n    return logp - self.base",
        "k1",
    ),
    "a helper that fills and returns": (
        "t = {'pg': -adv*logp}\nm = add_kl(t, r)\nreturn sum(t.values())",
        "",
        "k2 - A*log_q",
    ),
    "break": (
        "out = r ** 2\nwhile True:\n    out = k3(r)\n    if True:\n        break\n    out = -r\nreturn out",
        "",
        "k3",
    ),
    "continue": (
        "out = r ** 2\nfor i in range(2):\n    out = k3(r)\n    if i == 1:\n        continue\n"
        "    out = -r\nreturn out",
        "",
        "k3",
    ),
    "an error that is handled": (
        "out = r ** 2\ntry:\n    out = -r\n    x = {}['a']\n    out = k3(r)\nexcept KeyError:\n"
        "    pass\nreturn out",
        "",
        "k1",
    ),
    "an alias": (
        "t = {'loss': -adv*logp}\nalias = t\nalias['loss'] = alias['loss'] + 0.5*r**2\nreturn t['loss']",
        "",
        "k2 - A*log_q",
    ),
    "del": (
        "t = {'pg': -adv*logp, 'kl': r}\ndel t['kl']\nreturn sum(t.values())",
        "",
        "-A*log_q",
    ),
    "module state": (
        "STATE['mode'] = 'k3'\nreturn by_state(r)",
        "",
        "k3",
    ),
    "a late closure": (
        "coef = 0.1\nterm = lambda: coef * k3(r)\ncoef = -1.0\nreturn term()",
        "",
        "-k3",
    ),
    "gradients off and on": (
        "torch.set_grad_enabled(False)\nkl = k3(r)\ntorch.set_grad_enabled(True)\nreturn kl",
        "",
        "sg(k3)",
    ),
    "in place by an option": (
        "t = {'a': r}\nF.relu(t['a'], inplace=True)\nreturn t['a'] ** 2",
        "",
        "max(0, -k1)**2",
    ),
    "else of a loop": (
        "out = -adv*logp\nfor i in range(2):\n    print(i)\nelse:\n    out = out + 0.5*r**2\nreturn out",
        "",
        "k2 - A*log_q",
    ),
    "the variable of a loop": (
        "coef = 0.1\nfor coef in (0.5, -2.0):\n    print(coef)\nreturn coef * k3(r)",
        "",
        "-2*k3",
    ),
    "a walrus": (
        "out = -adv*logp\nseen = {}\nseen['x'] = (out := out + 0.5*r**2)\nreturn out",
        "",
        "k2 - A*log_q",
    ),
    "detach of an unknown call": (
        "logps = self.score(adv).detach()\nreturn 0.5 * (logps - ref_logp) ** 2",
        "",
        "sg(2*k2)/2",
    ),
    "a branch that does not matter": (
        "if self.mode == 'train':\n    seen = r.mean().item()\n    print(seen)\nreturn -r",
        "",
        "k1",
    ),
    "metrics in a branch": (
        "m = {}\nif self.is_main:\n    m['kl'] = r.mean().item()\nreturn -r, m",
        "",
        "k1",
    ),
}
# a branch on the shape of what a model gives
AVERAGED = """def averaged(x):
    if x.shape[1] == 1:
        return x.mean()
    return (x * adv).sum() / adv.sum()
entropies = self.model(adv).entropies
"""
READ |= {
    "either mean of what is reported": (
        AVERAGED + "seen = averaged(entropies)\nself.metrics['entropy'].append(seen.item())\nreturn -r",
        "",
        "k1",
    ),
}
REFUSED: dict[str, tuple[str, str, str]] = {  # body, other methods, words
    "either mean of what is minimised": (
        AVERAGED + "return -r + averaged(entropies)",
        "",
        "entropies.shape",
    ),
    "either way with an effect": (
        "def add(x, t=[adv]):\n    if x.shape[1] == 1:\n        return t.append(r)\n    return t.pop()\n"
        "add(self.model(adv).entropies)\nreturn -r",
        "",
        "shape",
    ),
    "a hook": (
        "kl = k3(r)\nh = kl.register_hook(lambda g: -g)\nreturn kl",
        "",
        "disagrees with the code",
    ),
    "one place": (
        "s = r\ns[0] = r[0] ** 2\nreturn r[0]",
        "",
        "takes out a part",
    ),
    "a view": (
        "out = k3(r)\nview = out\nview[...] = 0.0\nreturn out",
        "",
        "assignment to a part",
    ),
    "in a set": (
        "return k3(r) if self.kind in {'k3', 'low_var_kl'} else -r",
        "",
        "branches on self.kind",
    ),
    "in a table": (
        "return TABLE[self.kind](r)",
        "",
        "branches on self.kind",
    ),
    "get of a table": (
        "return TABLE.get(self.kind, TABLE['k1'])(r)",
        "",
        "branches on self.kind",
    ),
    "is True": (
        "return -adv*logp + (r ** 2 if self.use_kl is True else 0)",
        "",
        "branches on self.use_kl",
    ),
    "str": (
        "return k3(r) if str(self.kind) == 'k3' else -r",
        "",
        "branches on self.kind",
    ),
    "a formatted string": (
        "return k3(r) if f'{self.kind}_x' == 'k3_x' else -r",
        "",
        "self.kind is unknown",
    ),
    "hasattr": (
        "return -adv*logp + (0 if hasattr(self.args, 'off') else r ** 2)",
        "",
        "branches on hasattr",
    ),
    "type": (
        "return k3(r) if type(self.args.kind) is float else -r",
        "",
        "branches on type(self.args.kind)",
    ),
    "a helper for two policies": (
        "new = self.get(self.model)\nref = self.get(self.ref_model)\nreturn new - ref",
        "def get(self, model):\n    logps = model(1)\n    return logps",
        "self.model and self.ref_model are unknown",
    ),
    "a loop over two policies": (
        "both = []\nfor m in (self.model, self.ref_model):\n    logps = m(1)\n"
        "    both.append(logps)\nreturn both[0] - both[1]",
        "",
        "self.model and self.ref_model are unknown",
    ),
    "a name given twice": (
        "ref_logps = self.ref(adv)\nkl = 0.5*(logp - ref_logps)**2\nref_logps = logp.detach()\n"
        "return -(logp - ref_logps).exp()*adv + kl",
        "",
        "self.ref is unknown",
    ),
    "computed, and not read": (
        "ref_logps = torch.roll(logp, 1, dims=1)\nreturn logp - ref_logps",
        "",
        "roll is not read",
    ),
    "another model": (
        "logits = self.critic(adv).logits\nreturn logits.log_softmax(-1).sum(-1)",
        "",
        "is unknown",
    ),
    "shifted densities": (
        "return logp[:, 1:] - ref_logp[:, :-1]",
        "",
        "cut differently",
    ),
    "a value by a condition": (
        "return COEF * k3(r)",
        "",
        "COEF is given a value in lines 7, 9, by a condition",
    ),
    "a function by a condition": (
        "return either(r)",
        "",
        "either is given a value in lines",
    ),
    "a branch that adds": (
        "t = [-adv*logp]\nif self.mode == 'train':\n    t.append(0.5*r**2)\nreturn sum(t)",
        "",
        "branches on self.mode",
    ),
    "a branch that is read": (
        "out = -r\nif self.mode == 'train':\n    out = r ** 2\nreturn out",
        "",
        "branches on self.mode",
    ),
    "a container of another method": (
        "if self.mode:\n    self.t['kl'] = r\nreturn self.whole(logp)",
        "def whole(self, logp):\n    return logp + self.t['kl']",
        "branches on self.mode",
    ),
}


def audited(folder: Path, body: str, more: str) -> Any:
    lines = ["def f(self, logp, ref_logp, adv):", *("    " + line for line in (R + body).splitlines())]
    text = "\n".join("    " + line for line in [*lines, *more.splitlines()])
    (folder / "code.py").write_text(HEAD + text + "\n", encoding="utf-8")
    return audits.audit(f"{folder}/code.py:T.f", level="sample")


@pytest.mark.parametrize("name", READ)
def test_an_effect_is_read(name: str, tmp_path: Path) -> None:
    body, more, expression = READ[name]
    assert audited(tmp_path, body, more).expression == expression


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_settled_is_not_passed_over(name: str, tmp_path: Path) -> None:
    body, more, words = REFUSED[name]
    with pytest.raises(KlsymError) as refused:
        audited(tmp_path, body, more)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_an_empty_mapping_of_options_is_said(tmp_path: Path) -> None:
    text = "def f(logp, ref_logp, **kw):\n    return kw.get('beta', 0.5) * (logp - ref_logp) ** 2\n"
    (tmp_path / "code.py").write_text(text, encoding="utf-8")
    found = audits.audit(f"{tmp_path}/code.py:f")
    assert found.expression == "k2" and "**kw is read as empty" in found.notes
