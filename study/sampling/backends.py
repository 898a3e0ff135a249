"""Array backends behind one code path: NumPy, PyTorch and JAX, on the CPU or on a CUDA GPU.

A Backend is three words.  Its modules are found by name when they are needed, so that it can be pickled
and sent to another machine, and `import klsym` loads none of them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.study.sampling.streams import Stream

NAMES = ("numpy", "torch", "jax")
DTYPES = ("float64", "float32")
_NAMESPACES = {"numpy": "array_api_compat.numpy", "torch": "array_api_compat.torch", "jax": "jax.numpy"}


def _refuse(reason: str) -> None:
    raise UsageError(f"backend {reason}")


@dataclass(frozen=True)
class Backend:
    """Where arrays live and how they are computed with; `choose_backend()` makes one and checks it here.

    >>> numpy = Backend("numpy")
    >>> numpy.to_numpy(numpy.xp.exp(numpy.asarray([0, 1]))).round(3).tolist()
    [1.0, 2.718]

    name: numpy, torch or jax.  device: "cpu", "cuda" or "cuda:1".  dtype: "float64" or "float32".
    Whether the package and the device exist is asked on first use, in the process that uses it.

    JAX computes in float64 only with its option jax_enable_x64.  The first use of a float64 JAX backend
    switches it on for the whole process; float32 arrays stay float32.
    Raises UsageError: unknown name or dtype, a device that the name cannot have; on first use also a
    package that is not installed, a device that is not there.
    """

    name: str = "numpy"
    device: str = "cpu"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            _refuse(f"{self.name!r}: unknown; known: {', '.join(NAMES)}")
        if self.dtype not in DTYPES:
            _refuse(f"{self.name}: dtype {self.dtype!r}: unknown; known: {', '.join(DTYPES)}")
        if self.name == "numpy" and self.device != "cpu":
            _refuse(f"numpy: no device {self.device!r}, it has cpu only; for a GPU take torch or jax")

    @property
    def xp(self) -> Any:
        """The array API namespace: numpy and torch through array-api-compat, and jax.numpy."""
        self.load_module()
        return importlib.import_module(_NAMESPACES[self.name])

    def load_module(self) -> Any:
        """The package itself, ready for the dtype."""
        module = _import(self.name)
        if self.name == "jax" and self.dtype == "float64" and not module.config.jax_enable_x64:
            module.config.update("jax_enable_x64", True)
        return module

    def _place(self) -> Any:
        """The device as the package names it."""
        self.load_module()
        return _find_device(self.name, self.device)

    def asarray(self, values: Any) -> Any:
        """Numbers, nested lists or a NumPy array as an array of the dtype on the device."""
        host = np.asarray(values, dtype=self.dtype)
        if self.name == "numpy":
            return host
        if self.name == "torch":
            return self.load_module().tensor(host, device=self._place())
        return self.xp.asarray(host, device=self._place())

    def to_host(self, array: Any) -> Any:
        """An array of the backend as a NumPy array of its own dtype, without a copy on the CPU."""
        return array.detach().cpu().numpy() if self.name == "torch" else np.asarray(array)

    def to_numpy(self, array: Any) -> Any:
        """An array of the backend as a NumPy array of float64."""
        return np.asarray(self.to_host(array), dtype=np.float64)

    def draw_normals(self, stream: Stream, shape: int | tuple[int, ...]) -> Any:
        """Standard normal numbers from the start of a stream, shape `shape`.

        On the CPU every backend draws the same numbers, with NumPy: PyTorch keeps 32 bits of a seed there,
        so that streams would collide, and both others are slower in float64.  On a GPU the numbers
        are drawn there, by PyTorch's Philox or JAX's Threefry generator, and are other numbers.
        A second draw from one stream repeats the first: take stream.child(0), stream.child(1), ...
        """
        if self.device == "cpu":
            return self._adopt(
                stream.build_generator().standard_normal(shape, dtype=_choose_dtype(self.dtype))
            )
        return self._draw("normal", stream, shape)

    def draw_uniforms(self, stream: Stream, shape: int | tuple[int, ...]) -> Any:
        """Numbers uniform on [0, 1) from the start of a stream, zero included; as for `draw_normals`."""
        if self.device == "cpu":
            return self._adopt(stream.build_generator().random(shape, dtype=_choose_dtype(self.dtype)))
        return self._draw("uniform", stream, shape)

    def _adopt(self, host: Any) -> Any:
        """A fresh NumPy array of the dtype as an array of the backend on the CPU, without a copy."""
        if self.name == "numpy":
            return host
        if self.name == "torch":
            self._place()
            return self.load_module().from_numpy(host)
        return self.xp.asarray(host, device=self._place())

    def _draw(self, law: str, stream: Stream, shape: int | tuple[int, ...]) -> Any:
        """Numbers drawn on the device by the package's own generator."""
        draw = {"torch": _draw_torch, "jax": _draw_jax}[self.name]
        size = (shape,) if isinstance(shape, int) else tuple(shape)
        return draw(self.load_module(), self._place(), law, stream, size=size, dtype=self.dtype)

    def wait(self) -> None:
        """Wait until the device has done all it was given; for timing."""
        if self.name == "torch" and self.device != "cpu":
            self.load_module().cuda.synchronize(self._place())
        elif self.name == "jax":
            module = self.load_module()
            module.block_until_ready(module.live_arrays())

    def describe(self) -> str:
        """One line for a report: package, version, device, dtype.

        >>> Backend("numpy").describe() == f"numpy {np.__version__} on cpu, float64"
        True
        """
        module, place = self.load_module(), self._place()
        model = ""
        if self.device != "cpu":
            model = module.cuda.get_device_name(place) if self.name == "torch" else place.device_kind
        return f"{self.name} {module.__version__} on {self.device}{model and f' ({model})'}, {self.dtype}"


def choose_backend(name: str = "numpy", device: str | None = None, dtype: str = "float64") -> Backend:
    """A backend that is there: the package is installed and the device exists on this machine.

    >>> choose_backend()
    Backend(name='numpy', device='cpu', dtype='float64')

    device: None takes a GPU that PyTorch or JAX sees, and the CPU otherwise.
    Raises UsageError: unknown name, dtype or device, a package that is not installed.
    """
    candidate = Backend(name, "cpu" if device is None else device, dtype)
    if device is None and len(_list_devices(name)) > 1:
        candidate = Backend(name, "cuda", dtype)
    candidate.describe()
    return candidate


def choose_fastest() -> Backend:
    """PyTorch on a CUDA GPU where PyTorch is installed and sees one, and NumPy otherwise.

    >>> choose_fastest().name in ("torch", "numpy")
    True
    >>> choose_fastest().name == "numpy" or choose_fastest().device == "cuda"
    True

    On a CPU PyTorch draws the same numbers as NumPy, and no faster.  A PyTorch that cannot be loaded or
    that finds its driver wanting is no error here: it is passed over, without a word on stderr.
    """
    if importlib.util.find_spec("torch") is None:
        return Backend()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of a driver that is too old for it
            return Backend("torch", "cuda") if len(_list_devices("torch")) > 1 else Backend()
    except (UsageError, RuntimeError):
        return Backend()


def _import(name: str) -> Any:
    """The package of a backend with the namespace that stands for it."""
    try:
        importlib.import_module(_NAMESPACES[name])
        return importlib.import_module(name)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        reason = "not installed" if missing else " ".join(str(error).split())
        extra = "klsym" if name == "numpy" else f"klsym[{name}]"
        raise UsageError(f'backend {name}: {reason}; try: pip install "{extra}"') from None


def _list_devices(name: str) -> list[str]:
    """The devices of this machine that a package can use, the CPU first."""
    module, count = _import(name), 0
    if name == "torch":
        count = module.cuda.device_count()
    elif name == "jax":
        try:
            count = len(module.devices("gpu"))
        except RuntimeError:  # JAX's word for: no such platform
            count = 0
    return ["cpu", *(f"cuda:{number}" for number in range(count))]


@functools.cache
def _find_device(name: str, device: str) -> Any:
    devices = _list_devices(name)
    exact = devices[1] if device == "cuda" and len(devices) > 1 else device
    if exact not in devices:
        _refuse(f"{name}: no device {device!r}; this machine has {', '.join(devices)}")
    if name == "numpy":
        return "cpu"
    module = _import(name)
    if name == "torch":
        return module.device(exact)
    return module.devices("cpu")[0] if exact == "cpu" else module.devices("gpu")[devices.index(exact) - 1]


def _choose_dtype(dtype: str) -> Any:
    return np.float32 if dtype == "float32" else np.float64


def _draw_torch(torch: Any, device: Any, law: str, stream: Stream, size: tuple[int, ...], dtype: str) -> Any:
    generator = torch.Generator(device).manual_seed(stream.draw_seed())
    draw = torch.randn if law == "normal" else torch.rand
    return draw(size, generator=generator, device=device, dtype=getattr(torch, dtype))


def _draw_jax(jax: Any, device: Any, law: str, stream: Stream, size: tuple[int, ...], dtype: str) -> Any:
    # jax.random.key keeps 32 bits of a seed unless jax_enable_x64 is on; key data is always 64 bits.
    words = stream.build_sequence().generate_state(2, np.uint32)
    draw = jax.random.normal if law == "normal" else jax.random.uniform
    with jax.default_device(device):
        return draw(jax.random.wrap_key_data(words, impl="threefry2x32"), size, dtype=dtype)
