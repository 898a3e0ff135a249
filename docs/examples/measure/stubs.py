"""Empty modules in place of packages that a trainer imports and its loss does not use: ray, vllm,
deepspeed.

    import stubs

    stubs.add("ray", "vllm")   # before the trainer is imported; a package that is installed is not replaced

Any attribute of such a module is one class, which can be called, subclassed, subscripted and used as a
decorator.
"""

import importlib.machinery
import sys
import types


class _Type(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything

    def __iter__(cls):
        return iter(())

    def __or__(cls, other):
        return object

    __ror__ = __or__


class Anything(metaclass=_Type):
    def __new__(cls, *arguments, **options):
        if cls is Anything and len(arguments) == 1 and callable(arguments[0]) and not options:
            return arguments[0]  # a decorator
        return object.__new__(cls)

    def __init__(self, *arguments, **options):
        pass

    def __call__(self, *arguments, **options):
        return Anything(*arguments, **options)

    def __bool__(self):
        return False  # ray.is_initialized(), torch_npu.is_available()

    def __class_getitem__(cls, item):
        return cls

    def __getattr__(self, name):
        return getattr(Anything, name)

    def __iter__(self):
        return iter(())

    def __fspath__(self):
        return "missing"


class _Module(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        return getattr(Anything, name)


class _Finder:
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def add(*names):
    """Make the packages of these names importable where they are not installed."""
    sys.meta_path.append(_Finder(frozenset(names)))
