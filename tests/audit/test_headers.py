"""What stands at the head of real files: settings of libraries, dataclasses; and getattr with a default."""

from __future__ import annotations

import ast
import gc
import sys
from pathlib import Path
from typing import Any

import pytest

from klsym.audit import audits
from klsym.audit.expressions import name_expression, normalise_text

pytest.importorskip("torch")

F = "def f(logp, ref_logp):\n    return torch.square(logp - ref_logp) * SCALE\n"
# Statements that define none of the names they hold, and are not run.
HEADS = [
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True",
    "torch.backends.no.such.thing = open('RAN', 'w')",
    "torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = True, False",
    "os.environ['TOKENIZERS_PARALLELISM'] = str(open('RAN', 'w'))",
    "if torch.cuda.is_available():\n    torch.backends.cuda.matmul.allow_tf32 = True",
    "try:\n    torch.backends.cuda.matmul.allow_tf32 = True\nexcept AttributeError:\n    pass",
    "torch.manual_seed(0)",
    "torch.x: int = 3",
    "torch.__dict__['x'] = open('RAN', 'w')",
    "del os.environ['NO_SUCH']",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "RAN").exists()


def audited(folder: Path, text: str, name: str = "f", **options: Any) -> Any:
    (folder / "code.py").write_text(text, encoding="utf-8")
    return audits.audit(f"code.py:{name}", **options)


@pytest.mark.parametrize("head", HEADS)
def test_an_assignment_to_an_attribute_defines_no_name(head, folder):
    for text in (
        f"import os\nimport torch\n{head}\nSCALE = 0.5\n{F}",
        f"import os, torch\nSCALE = 0.5\n{head}\n{F}",
    ):
        found = audited(folder, text)
        assert (found.expression, found.notes) == ("k2", ())


CHANGES = {
    "SCALE = [0.5]\nSCALE[0] = 2.0": "SCALE[0]",
    "SCALE = {'a': 0.5}\nSCALE['a'] = 2.0": "SCALE['a']",
    "class SCALE:\n    a = 0.5\nSCALE.a = 2.0": "SCALE.a",
    "SCALE = 0.5\nSCALE *= 2.0": "SCALE",
}


@pytest.mark.parametrize("head", CHANGES)
def test_a_change_that_is_left_out_is_named(head, folder):
    text = f"import torch\n{head}\n{F.replace('SCALE', CHANGES[head])}"
    found = audited(folder, text)
    line = 1 + len(head.split("\n"))
    assert (found.expression, found.notes) == ("k2", (f"line {line} changes SCALE, and is left out",))


CLASSES = """{future}
import dataclasses
import enum
import typing
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import ClassVar, NamedTuple, TypedDict
import torch
from heavy_package import Base

@dataclass
class Plain:
    scale: float = 0.5
    kinds: ClassVar[list] = []
    more: typing.ClassVar[dict] = {{}}
    rest: list[str] = field(default_factory=list)
    other: "Base | None" = None

@dataclass(frozen=True, slots=True)
class Frozen:
    first: InitVar[float] = 1.0
    _: KW_ONLY
    scale: float = 0.5

@dataclasses.dataclass
class Derived(Plain):
    further: int = 3

class Pair(NamedTuple):
    scale: float = 0.5
    second: float = 1.0

class Kind(enum.Enum):
    scale = 0.5

class Keys(TypedDict, total=False):
    scale: float

def annotated(logp: torch.Tensor, ref_logp: "Base", config: Plain = Plain()) -> Plain:
    return config.scale * (logp - ref_logp) ** 2

def frozen(logp, ref_logp):
    config: Frozen = Frozen(scale=0.5)
    return config.scale * (logp - ref_logp) ** 2

def derived(logp, ref_logp):
    return Derived().scale * (logp - ref_logp) ** 2

def pair(logp, ref_logp):
    return Pair().scale * (logp - ref_logp) ** 2

def kind(logp, ref_logp):
    return Kind.scale.value * (logp - ref_logp) ** 2

def keys(logp, ref_logp):
    return Keys(scale=0.5)["scale"] * (logp - ref_logp) ** 2

def hints(logp, ref_logp):
    assert typing.get_type_hints(Pair)["scale"] is float
    return Pair().scale * (logp - ref_logp) ** 2
"""


@pytest.mark.parametrize("name", ["annotated", "frozen", "derived", "pair", "kind", "keys", "hints"])
@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
def test_classes_that_look_at_their_module(name, future, folder):
    options = {"set": {"config.scale": 0.5}} if name == "annotated" else {}
    assert audited(folder, CLASSES.format(future=future), name, **options).expression == "k2"


def test_the_modules_of_files_go_with_them(folder):
    before = {name for name in sys.modules if name.startswith("klsym_audited_")}
    for _ in range(3):
        audited(folder, CLASSES.format(future=""), "frozen")
    gc.collect()
    assert {name for name in sys.modules if name.startswith("klsym_audited_")} <= before
    assert "heavy_package" not in sys.modules


# What is written, and the name it has.
WRITTEN = {
    "getattr(self.args, 'flag', False)": "self.args.flag",
    'getattr(self.args, "flag")': "self.args.flag",
    "getattr(getattr(self, 'args'), 'flag', None).deep": "self.args.flag.deep",
    "getattr(config['kl'], 'beta', 0.1)": "config['kl'].beta",
    "f(getattr(x, 'y', 1))": "f(x.y)",
    "getattr(self.args, name, False)": "getattr(self.args, name, False)",
    "getattr(self.args, 'no name', False)": "getattr(self.args, 'no name', False)",
    "getattr(self.args, 'flag', 1, 2)": "getattr(self.args, 'flag', 1, 2)",
    "getattr(*self.args)": "getattr(*self.args)",
    "my.getattr(self.args, 'flag')": "my.getattr(self.args, 'flag')",
    "hasattr(self.args, 'flag')": "hasattr(self.args, 'flag')",
}


@pytest.mark.parametrize("text", WRITTEN)
def test_getattr_reads_an_attribute(text):
    assert normalise_text(text) == WRITTEN[text]
    assert name_expression(ast.parse(text, mode="eval").body) == WRITTEN[text]


TRAINER = """import torch
class Trainer:
    def loss(self, logp, ref_logp):
        if getattr(self.args, "flag", False):
            return logp - ref_logp
        return getattr(self.args, "beta", 0.1) * (logp - ref_logp) ** 2
"""
SPELLINGS = ("self.args.flag", 'getattr(self.args, "flag", False)', "getattr(self.args, 'flag')")


@pytest.mark.parametrize("flag", SPELLINGS)
def test_options_that_are_read_with_getattr(flag, folder):
    (folder / "code.py").write_text(TRAINER, encoding="utf-8")
    left = audits.audit("code.py:Trainer.loss")
    assert left.expression == "2*beta*k2" and "self.args.flag is left at its default" in left.notes
    assert audits.audit("code.py:Trainer.loss", set={flag: True}).expression == "k1"
    found = audits.audit("code.py:Trainer.loss", set={flag: False})
    assert found.expression == "2*beta*k2" and list(found.bindings.free) == ["self.args.beta"]
    lines = audits.audit("code.py:4-6", set={flag: False, "getattr(self.args, 'beta', 0.1)": 0.5})
    assert lines.expression == "k2"
