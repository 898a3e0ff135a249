"""Losses that klsym reads by names and defaults: values of a model, label masks, loops over batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klsym.audit import audits
from klsym.errors import UsageError

pytest.importorskip("torch")

HEAD = """import torch
import torch.nn.functional as F
from heavy_package import logger
class Squared(torch.nn.Module):
    def __init__(self, scale=2.0):
        super().__init__()
        self.scale = scale
    def forward(self, x):
        return self.scale * x ** 2 / 4
class Learned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
    def forward(self, x):
        return self.scale * x
class Trainer:
    def __init__(self, model, mode="k2", beta=0.1, kind="k2", ignore_index=-100):
        self.model = model
        self.mode = mode
        self.beta = beta
        self.kind = kind
        self.ignore_index = ignore_index
        self.part = Squared(2.0)
        self.other = Squared(model.scale)
        self.changed = Squared(2.0)
        self.changed.scale = 3.0
        self.tuned = Squared(2.0)
        self.trained = Learned()
        if model.fast:
            kind = "k1"
        self.renamed = kind
    def scored(self, batch):
        ids = torch.cat([batch["prompts"], batch["answers"]], dim=1)
        if self.model.fast:
            return self.model(ids).logits
        self.seen = ids
        return ids.nonzero()
    def both(self, batch):
        self.seen = batch
        return self.scored(batch), None
    def reset(self):
        self.kind = "k1"
        self.tuned.double()
    def summed_up(self):
        return torch.cumsum(self.seen, 1)
    def pushed(self, found, x):
        found.append(x)
"""
R = "r = ref_logp - logp\n"
MAP = {"logp": "log_q", "ref_logp": "log_p"}
NONE = dict.fromkeys(MAP, "number")
OTHER = {"logp": "number", "ref_logp": "log_p"}
# The body of a method f(self, logp, ref_logp, batch), what is told, the loss, and a word of the notes.
READ: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "what a model gives": (
        "new_logps = self.scored(batch)\nreturn new_logps - ref_logp", {"map": OTHER}, "k1",
        "klsym cannot read the value of new_logps",
    ),
    "what a model gives, and more": (
        "policy_logps, entropies = self.both(batch)\nreturn 0.5*(policy_logps - ref_logp)**2",
        {"map": OTHER}, "k2",
        "it takes policy_logps for log_q by its name",
    ),
    "without gradient": (
        "with torch.no_grad():\n    old_logps = self.scored(batch)\n"
        "return -torch.exp(logp - old_logps)*batch['advantages']", {"sampling": "off-policy"}, "-rho*A",
        "for log_mu by its name",
    ),
    "a label mask": (
        "x = 0.5*(logp - ref_logp)**2\nm = batch['labels'] != -100\nreturn (x*m).sum()/m.sum()", {}, "k2", "",
    ),
    "its complement": (
        "x = 0.5*(logp - ref_logp)**2\nx = x.masked_fill(batch['labels'] == self.ignore_index, 0.0)\n"
        "return x.sum()", {}, "k2", "",
    ),
    "the default of __init__": (
        R + "if self.mode == 'k2':\n    return self.beta*0.5*r**2\nreturn -r", {}, "beta*k2",
        "self.mode is 'k2', its default in __init__",
    ),
    "not the default": (
        R + "if self.mode == 'k2':\n    return 0.5*r**2\nreturn -r", {"set": {"self.mode": "k1"}}, "k1", "",
    ),
    "a part that __init__ makes": (
        "return self.part(logp - ref_logp)", {}, "k2", "self.part is Squared(2.0), as __init__ makes it",
    ),
    "a condition in a metric": (
        R + "size = batch['x'].mean() if batch['x'].shape[1] == 1 else batch['x'].sum()\n"
        "logger.info(size)\nreturn -r", {}, "k1", "",
    ),
    "one round of a loop": (
        "for batch in self.buffer.get():\n    loss = 0.5*(logp - batch.ref_logp)**2\n    print(loss)\n"
        "return loss", {"map": {"logp": "log_q", "ref_logp": "number"}}, "k2",
        "klsym reads one round of the loop over self.buffer.get()",
    ),
    "one round, unpacked": (
        "for new_logp, old_logp, adv in self.buffer:\n    loss = -torch.exp(new_logp - old_logp)*adv\n"
        "return loss", {"map": NONE, "sampling": "off-policy"}, "-rho*A",
        "one round",
    ),
    "a round that a second one repeats": (
        "for batch in self.buffer:\n    batch['x'] = logp - batch['ref_logps']\n"
        "    loss = 0.5*batch['x']**2\n"
        "return loss", {"map": {"logp": "log_q", "ref_logp": "number"}}, "k2", "one round",
    ),
    "what is unpacked": (
        "new_logp, old_logp, adv = batch\nreturn -torch.exp(new_logp - old_logp)*adv",
        {"map": NONE, "sampling": "off-policy"}, "-rho*A", "",
    ),
    "a package that is tried": (
        "try:\n    import other_package\n    c = 2\nexcept ImportError:\n    c = 1\n"
        "return 0.5*c*(logp - ref_logp)", {}, "k1", "",
    ),
    "an error that the code handles": (
        "try:\n    c = [2][1]\nexcept IndexError:\n    c = 1\nreturn c*(logp - ref_logp)", {}, "k1", "",
    ),
    "two labels": (
        "labels = batch['labels']\nm = labels != -100\nlabels = self.other_ids\nm2 = labels != -100\n"
        "return ((logp - ref_logp)*m*m2).sum()/m.sum()", {}, "k1", "are taken for the same tokens",
    ),
    "an import within": (
        "from other_package import log_it as said\nsaid(logp)\nreturn logp - ref_logp", {}, "k1", "",
    ),
    "one quantity under two names": (
        "ref = batch.get('ref_logps')\nref_logps = ref\nreturn logp - batch['ref_logps'] + 0*ref_logp",
        {"map": {"logp": "log_q", "ref_logp": "log_p", "batch['ref_logps']": "log_p"}}, "k1", "",
    ),
}  # fmt: skip
# The body, what is told, and words of the refusal.
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "made of what is known": (
        "new_logps = torch.cumsum(logp, 1)\nreturn new_logps - ref_logp", {}, "cumsum is not read",
    ),
    "made of what a list holds": (
        "d = {'x': [logp]}\nold_logps = torch.cumsum(d['x'][0], 1)\nreturn torch.exp(ref_logp - old_logps)",
        {}, "cumsum is not read",
    ),
    "made of what self holds": (
        "self.seen = logp\nold_logps = self.summed_up()\nreturn torch.exp(ref_logp - old_logps)", {},
        "cumsum is not read",
    ),
    "made of what is known, by what is not": (
        "x = self.model(logp)\nold_logps = self.model(x)\nreturn torch.exp(logp - old_logps)", {},
        "self.model is unknown",
    ),
    "made of what is guessed": (
        "old_logps = torch.cumsum(logp, 1)\nreturn torch.exp(logp - old_logps)", {"map": {}},
        "cumsum is not read",
    ),
    "one word of two batches": (
        "return 0.5*(self.a['logps'] - self.b['logps'])**2 - logp", {}, "self.a['logps']",
    ),
    "one word of two policies": (
        "return torch.exp(logp - batch['logp']) - ref_logp", {}, "batch['logp']",
    ),
    "no usual name": ("scores = self.scored(batch)\nreturn scores*(logp - ref_logp)", {}, "self.model.fast"),
    "twice": (
        "new_logps = self.scored(batch)\nnew_logps = new_logps*2\nreturn new_logps - ref_logp", {},
        "self.model.fast",
    ),
    "summed in a loop": (
        "total = 0\nfor x in self.buffer:\n    total = total + logp - x.ref_logp\nreturn total", {},
        "total changes from round to round",
    ),
    "collected in a loop": (
        "found = []\nfor x in self.buffer:\n    found.append(logp - x.ref_logp)\n"
        "return torch.stack(found).mean()", {}, "found changes from round to round",
    ),
    "a factor that grows in a loop": (
        "c = 1\nfor x in self.buffer:\n    loss = c*(logp - ref_logp)\n    c = 2*c\nreturn loss", {},
        "c changes from round to round",
    ),
    "summed in an attribute": (
        "self.total = 0.0\nfor x in self.buffer:\n    self.total += logp - x.ref_logp\nreturn self.total", {},
        "the loss changes from round to round of the loop over self.buffer",
    ),
    "summed by a function within": (
        "c = 0.0\ndef add(x):\n    nonlocal c\n    c = c + x\nfor x in self.buffer:\n"
        "    add(logp - x.ref_logp)\nreturn c", {}, "the loss changes from round to round",
    ),
    "summed under another name": (
        "d = {'sum': 0.0}\ne = d\nfor x in self.buffer:\n    e['sum'] += logp - x.ref_logp\nreturn d['sum']",
        {}, "the loss changes from round to round",
    ),
    "collected by a method": (
        "d = []\nfor x in self.buffer:\n    self.pushed(d, logp - x.ref_logp)\nreturn sum(d)", {},
        "the loss changes from round to round",
    ),
    "taken from a list in a loop": (
        "d = [2.0]\nfor x in self.buffer:\n    loss = d.pop()*(logp - x.ref_logp)\nreturn loss", {},
        "a second round of the loop over self.buffer cannot be read",
    ),
    "the first round": (
        "last = None\nfor x in self.buffer:\n    loss = logp - x.ref_logp if last is None else 0.5*logp**2\n"
        "    last = loss\nreturn loss", {}, "last changes from round to round",
    ),
    "an error of klsym that the code handles": (
        "try:\n    r = self.scored(batch)\nexcept Exception:\n    r = ref_logp - logp\nreturn -r", {},
        "self.model.fast",
    ),
    "an error of klsym that the code suppresses": (
        R + "from contextlib import suppress\nwith suppress(Exception):\n    r = self.scored(batch)\n"
        "return -r", {}, "self.model.fast",
    ),
    "an effect of a value that depends on data": (
        "d = [1.0]\nx = d.append(2.0) if batch['x'].shape[1] == 1 else None\nlogger.info(x)\n"
        "return d[-1]*(logp - ref_logp)", {}, "batch['x'].shape[1] is unknown",
    ),
    "an option that __init__ changes": (
        R + "if self.renamed == 'k2':\n    return 0.5*r**2\nreturn -r", {}, "branches on self.renamed",
    ),
    "a part that __init__ changes": ("return self.changed(logp - ref_logp)", {}, "self.changed is unknown"),
    "a part that a method changes": ("return self.tuned(logp - ref_logp)", {}, "self.tuned is unknown"),
    "a part that is trained": ("return self.trained(logp - ref_logp)", {}, "self.trained is unknown"),
    "an option that another method changes": (
        R + "if self.kind == 'k2':\n    return 0.5*r**2\nreturn -r", {}, "branches on self.kind",
    ),
    "a part that needs an argument": ("return self.other(logp - ref_logp)", {}, "self.other"),
    "labels of two kinds": (
        "return torch.where(batch['labels'] == 1, logp - ref_logp, ref_logp - logp)", {},
        "a comparison with == of what depends on the sample",
    ),
    "a condition that the loss needs": (
        R + "return -r if self.unknown else 0.5*r**2", {}, "branches on self.unknown",
    ),
    "a word where a coefficient is expected": (
        R + "return -r if self.cfg.kl_penalty == 'k1' else 0.5*r**2", {},
        "--set self.cfg.kl_penalty=k1",
    ),
}  # fmt: skip


def audited(folder: Path, body: str, told: dict[str, Any]) -> Any:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    code = f"{HEAD}    def f(self, logp, ref_logp, batch):\n{lines}"
    (folder / "code.py").write_text(code, encoding="utf-8")
    return audits.audit(f"{folder}/code.py:Trainer.f", **{"map": MAP, **told})


@pytest.mark.parametrize("name", READ)
@pytest.mark.share(3)
def test_a_loss_is_read_at_the_first_try(name: str, tmp_path: Path) -> None:
    body, told, loss, note = READ[name]
    found = audited(tmp_path, body, told)
    assert found.expression == loss
    assert any(note in said for said in found.notes) or not note, found.notes


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_a_bolder_guess_is_refused(name: str, tmp_path: Path) -> None:
    body, told, words = REFUSED[name]
    with pytest.raises(UsageError) as refused:
        audited(tmp_path, body, told)
    assert words in str(refused.value)


def test_two_files_share_a_third(tmp_path: Path) -> None:
    """An enumeration that two modules import is one class in both of them."""
    files = {
        "kinds.py": "import enum\nclass Kind(enum.Enum):\n    K1 = 'k1'\n",
        "helper.py": "from kinds import Kind\ndef loss(x, kind):\n"
        "    if not isinstance(kind, Kind):\n        raise ValueError('kind')\n    return x\n",
        "code.py": "from helper import loss\nfrom kinds import Kind\ndef f(logp, ref_logp):\n"
        "    return loss(logp - ref_logp, Kind.K1)\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert audits.audit(f"{tmp_path}/code.py:f").expression == "k1"


FOUND = {
    "a file that imports the audited one": {
        "helper.py": "def loss(x, kind):\n    from audited import Kind\n"
        "    return x if kind == Kind.K1 else 0.5*x**2\n",
        "audited.py": "import enum\nfrom helper import loss\nclass Kind(enum.Enum):\n    K1 = 'k1'\n"
        "def f(logp, ref_logp):\n    return loss(logp - ref_logp, Kind.K1)\n",
    },
    "a module that a function changes": {
        "settings.py": "factor = 3.0\n",
        "helper.py": "import settings\ndef change():\n    settings.factor = 1.0\n",
        "audited.py": "import settings\nfrom helper import change\ndef f(logp, ref_logp):\n    change()\n"
        "    return settings.factor*(logp - ref_logp)\n",
    },
}


@pytest.mark.parametrize("name", FOUND)
def test_files_share_what_they_import(name: str, tmp_path: Path) -> None:
    for file, text in FOUND[name].items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    assert audits.audit(f"{tmp_path}/audited.py:f").expression == "k1"


def test_a_line_that_changes_a_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("factor = 1.0\n", encoding="utf-8")
    code = "import settings\nsettings.factor = 3.0\ndef f(logp, ref_logp):\n"
    code += "    return settings.factor*(logp - ref_logp)\n"
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    assert "line 2 changes settings, and is left out" in audits.audit(f"{tmp_path}/code.py:f").notes


def test_a_call_of_another_package_is_not_made(tmp_path: Path) -> None:
    """__init__ may start a process; only objects of PyTorch and of the user's own classes are made."""
    mark = tmp_path / "mark"
    code = "import subprocess\nclass Trainer:\n    def __init__(self):\n"
    code += f"        self.part = subprocess.call('touch {mark}', shell=True)\n"
    code += "    def f(self, logp, ref_logp):\n        return self.part*(logp - ref_logp)\n"
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    with pytest.raises(UsageError):
        audits.audit(f"{tmp_path}/code.py:Trainer.f")
    assert not mark.exists()


def test_many_regions_are_read_and_open(tmp_path: Path) -> None:
    """The loss is read and confirmed; its target is open until its bounds have numbers."""
    body = (
        "x = torch.exp((logp - ref_logp).clamp(-20, 20))\nadv = batch['advantages']\n"
        "a = torch.max(-x*adv, -x.clamp(1 - self.low, 1 + self.high)*adv)\n"
        "return torch.where(adv < 0, torch.min(-adv*self.clip_c, a), a)"
    )
    told = {"map": {"logp": "log_q", "ref_logp": "log_mu"}, "sampling": "off-policy"}
    options = ("self.low", "self.high", "self.clip_c")
    found = audited(tmp_path, body, {**told, "map": {**told["map"], **dict.fromkeys(options, "number")}})
    assert found.verdict.trust == "open" and found.target is None and found.points
    text = " ".join(str(found).split())
    assert "more than 64 regions; numbers for clip_c, high, low make fewer of them" in text
    assert "0 at every sample" not in text
    known = audited(tmp_path, body, {**told, "set": dict(zip(options, (0.2, 0.2, 3.0), strict=True))})
    assert known.target is not None
