"""Backends: the same code on NumPy, PyTorch and JAX, and clear refusals."""

from __future__ import annotations

import importlib.machinery
import math
import pickle
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest

from klsym.errors import UsageError
from klsym.study.sampling import backends
from klsym.study.sampling.backends import DTYPES, NAMES, Backend, choose_backend, choose_fastest
from klsym.study.sampling.streams import Stream

EVERY = pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in NAMES for dtype in DTYPES])
OTHERS = pytest.mark.parametrize("name", ["torch", "jax"])


def on_cpu(name: str, dtype: str = "float64") -> Backend:
    pytest.importorskip(name)
    return choose_backend(name, "cpu", dtype)


# ---------------------------------------------------------------------------- arrays


READ_ONLY = np.arange(4.0)
READ_ONLY.flags.writeable = False
GIVEN = [[1, 2], (0.25,), 7, np.arange(3, dtype=np.int32), np.eye(2, dtype=">f8"), READ_ONLY]


@EVERY
@pytest.mark.parametrize("given", GIVEN)
def test_arrays_have_the_dtype_and_come_back(name, dtype, given):
    on = on_cpu(name, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array = on.asarray(given)
    assert str(array.dtype).removeprefix("torch.") == dtype and tuple(array.shape) == np.shape(given)
    assert on.to_numpy(array).tolist() == np.asarray(given, dtype=float).tolist()


@EVERY
def test_a_backend_travels_as_three_words(name, dtype):
    on = on_cpu(name, dtype)
    sent = pickle.dumps(on)
    assert pickle.loads(sent) == on and len(sent) < 200
    on.wait()
    version = sys.modules[name].__version__
    assert on.describe() == f"{name} {version} on cpu, {dtype}"


# ---------------------------------------------------------------------------- random numbers
@OTHERS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("law", ["draw_normals", "draw_uniforms"])
def test_on_the_cpu_all_backends_draw_the_same(name, dtype, law):
    one, other = Backend("numpy", dtype=dtype), on_cpu(name, dtype)
    mine = getattr(one, law)(Stream(3, (1,)), (2, 50))
    assert mine.dtype == dtype
    assert (other.to_numpy(getattr(other, law)(Stream(3, (1,)), (2, 50))) == mine).all()


def drawn(name: str, dtype: str, law: str, on_device: bool, stream: Stream, shape):
    on = on_cpu(name, dtype)
    array = on._draw(law, stream, shape) if on_device else getattr(on, f"draw_{law}s")(stream, shape)
    assert str(array.dtype).removeprefix("torch.") == dtype
    return on.to_numpy(array)


SOURCES = pytest.mark.parametrize(
    ("name", "dtype", "law", "on_device"),
    [
        (name, dtype, law, on_device)
        for name in NAMES
        for dtype in DTYPES
        for law in ("normal", "uniform")
        for on_device in (False, True)
        if not (name == "numpy" and on_device)
    ],
)


@SOURCES
def test_a_stream_repeats_itself_and_no_other(name, dtype, law, on_device):
    source = name, dtype, law, on_device
    first = drawn(*source, Stream(5), (3, 4))
    assert first.shape == (3, 4) and drawn(*source, Stream(5), 4).shape == (4,)
    assert (drawn(*source, Stream(5), (3, 4)) == first).all()
    for other in (Stream(6), Stream(5, (0,)), Stream(5 + 2**32), Stream(5 + 2**64)):
        assert not np.isin(drawn(*source, other, (3, 4)), first).any()


N = 50_000
BAND = math.sqrt(math.log(2 / 1e-9) / (2 * N))  # Dvoretzky, Kiefer & Wolfowitz: left once in 1e9 samples


def distance(law: str, found: np.ndarray) -> float:
    """sup |F_n - F|, the empirical distribution function against the law's."""
    values = np.sort(found)
    true = [0.5 * math.erfc(-x / math.sqrt(2)) if law == "normal" else x for x in values.tolist()]
    return np.abs(np.array(true) - (np.arange(N) + 0.5) / N).max() + 0.5 / N


@SOURCES
def test_the_numbers_follow_their_law(name, dtype, law, on_device):
    found = drawn(name, dtype, law, on_device, Stream(7), N)
    assert distance(law, found) < BAND
    assert law == "normal" or (found.min() >= 0 and found.max() < 1)


@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_the_band_is_left_by_a_wrong_law(law):
    found = drawn("numpy", "float64", law, False, Stream(7), N)
    assert distance(law, 1.1 * found) > BAND and distance(law, found + 0.05) > BAND


# ---------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tensorflow",), "backend 'tensorflow': unknown; known: numpy, torch, jax"),
        (("NumPy",), "backend 'NumPy': unknown; known: numpy, torch, jax"),
        (("numpy", "cuda"), "backend numpy: no device 'cuda', it has cpu only; for a GPU take torch or jax"),
        (("numpy", ""), "backend numpy: no device '', it has cpu only; for a GPU take torch or jax"),
        (("numpy", None, "f8"), "backend numpy: dtype 'f8': unknown; known: float64, float32"),
        (("torch", "cpu", "float16"), "backend torch: dtype 'float16': unknown; known: float64, float32"),
    ],
)
def test_what_is_unknown_is_refused(arguments, message):
    with pytest.raises(UsageError) as refused:
        choose_backend(*arguments)
    assert str(refused.value) == message


@OTHERS
@pytest.mark.parametrize(
    "device", ["cuda:99", "gpu", "tpu", "cpu:0", "cpu:1", "mps", "", "CPU", "cuda:", "cuda:-1"]
)
def test_a_device_that_is_not_there_is_refused(name, device):
    pytest.importorskip(name)
    with pytest.raises(UsageError, match=rf"^backend {name}: no device '{device}'; this machine has cpu"):
        choose_backend(name, device)


@OTHERS
def test_the_devices_that_are_there_are_named(name, monkeypatch):
    pytest.importorskip(name)
    monkeypatch.setattr(backends, "_list_devices", lambda name: ["cpu", "cuda:0", "cuda:1"])
    with pytest.raises(UsageError, match=r"no device 'cuda:7'; this machine has cpu, cuda:0, cuda:1$"):
        choose_backend(name, "cuda:7")


@OTHERS
def test_a_device_is_asked_for_where_it_is_used(name):
    pytest.importorskip(name)
    elsewhere = Backend(name, "cuda:99")
    assert pickle.loads(pickle.dumps(elsewhere)) == elsewhere
    for use in (
        elsewhere.describe,
        lambda: elsewhere.asarray([1]),
        lambda: elsewhere.draw_normals(Stream(0), 2),
    ):
        with pytest.raises(UsageError, match="no device 'cuda:99'"):
            use()


@OTHERS
def test_without_a_gpu_the_cpu_is_taken(name, monkeypatch):
    pytest.importorskip(name)
    monkeypatch.setattr(backends, "_list_devices", lambda name: ["cpu"])
    assert choose_backend(name) == Backend(name, "cpu", "float64")


@OTHERS
def test_a_package_that_is_not_installed_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError) as refused:
        choose_backend(name, "cpu")
    assert str(refused.value) == f'backend {name}: not installed; try: pip install "klsym[{name}]"'


def test_a_package_that_is_broken_says_why(monkeypatch):
    def broken(name):
        raise ImportError("libcuda.so: cannot\nopen")

    monkeypatch.setattr(backends.importlib, "import_module", broken)
    with pytest.raises(UsageError, match=r"^backend torch: libcuda\.so: cannot open; try: pip install"):
        choose_backend("torch", "cpu")


# ---------------------------------------------------------------------------- the fastest one
class FakeCuda:
    """As much of torch.cuda as is asked: how many GPUs there are, with or without trouble."""

    def __init__(self, count: int, trouble: Exception | Warning | None = None) -> None:
        self.count, self.trouble = count, trouble

    def device_count(self) -> int:
        if isinstance(self.trouble, Warning):
            warnings.warn(self.trouble, stacklevel=2)
        elif self.trouble is not None:
            raise self.trouble
        return self.count


def with_torch(monkeypatch, cuda: FakeCuda | None) -> None:
    """A machine with a PyTorch that has this torch.cuda, or with none."""
    module = types.ModuleType("torch")
    module.cuda = cuda  # type: ignore[attr-defined]
    module.__spec__ = importlib.machinery.ModuleSpec("torch", None)
    monkeypatch.setitem(sys.modules, "torch", None if cuda is None else module)
    monkeypatch.setitem(sys.modules, "array_api_compat.torch", types.ModuleType("array_api_compat.torch"))
    spec = None if cuda is None else module.__spec__
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: spec)


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        (FakeCuda(1), Backend("torch", "cuda")),
        (FakeCuda(8), Backend("torch", "cuda")),
        (FakeCuda(0), Backend("numpy")),
        (FakeCuda(0, UserWarning("the NVIDIA driver is too old")), Backend("numpy")),
        (FakeCuda(1, UserWarning("one of the GPUs is old")), Backend("torch", "cuda")),
        (FakeCuda(1, RuntimeError("no kernel image is available")), Backend("numpy")),
        (None, Backend("numpy")),
    ],
    ids=["one GPU", "eight", "none", "old driver", "old GPU", "broken", "no torch"],
)
def test_the_fastest_backend_is_a_gpu_or_numpy(cuda, expected, monkeypatch, capsys):
    with_torch(monkeypatch, cuda)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_fastest() == expected
    assert capsys.readouterr() == ("", "")


def test_a_torch_that_cannot_be_loaded_is_passed_over(monkeypatch):
    def broken(name):
        raise ImportError("libcuda.so: cannot open")

    with_torch(monkeypatch, FakeCuda(1))
    monkeypatch.setattr(backends.importlib, "import_module", broken)
    assert choose_fastest() == Backend("numpy")


# ---------------------------------------------------------------------------- what is loaded and switched
def printed(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        (
            "from klsym.study.sampling import runner, sample_means, backends as b; b.choose_backend().xp",
            {"torch", "jax", "dask", "distributed", "sympy"},
        ),
        ("import klsym.study.sampling.autograd", {"torch", "jax", "array_api_compat"}),
    ],
)
def test_imports_load_no_framework(statement, absent):
    names = set(printed(f"{statement}; import sys; print(*{{m.partition('.')[0] for m in sys.modules}})"))
    assert "numpy" in names and not names & absent


def test_only_a_float64_jax_backend_switches_x64_on():
    pytest.importorskip("jax")
    code = (
        "import jax\n"
        "from klsym.study.sampling.backends import choose_backend, Stream\n"
        "from klsym.study.sampling.sample_means import _sum_on_device\n"
        "single = choose_backend('jax', 'cpu', 'float32')\n"
        "z = single.draw_normals(Stream(0), (2, 5))\n"
        "sums = _sum_on_device(list(z), single)\n"
        "print(z.dtype, sums.dtype, jax.config.jax_enable_x64)\n"
        "double = choose_backend('jax', 'cpu')\n"
        "print(double.asarray([1]).dtype, single.asarray([1]).dtype, jax.config.jax_enable_x64)\n"
    )
    assert printed(code) == ["float32", "float64", "False", "float64", "float32", "True"]
