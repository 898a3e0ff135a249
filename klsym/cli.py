"""The command line: results on stdout, the rest on stderr; exit 0 done, 1 a claim failed, 2 bad input."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from klsym.commands.console import FEW_COLLECTIONS, escape_output, note_terminal, print_complaint
from klsym.commands.help_texts import format_overview
from klsym.commands.option_groups import guard_minus
from klsym.commands.parser import build_parser
from klsym.errors import KlsymError, lacking, speak_of_flags


def command() -> int:
    """`klsym` in a process of its own; the exit code."""
    gc.set_threshold(FEW_COLLECTIONS)
    code = main()
    gc.freeze()
    return code


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code.

    >>> main(["claims", "gradient.k1-loss"])
    gradient.k1-loss proved    settled kernel  all      E_q[grad k1] = 0
    0

    argv: the words after `klsym`; those of the process if None.
    """
    try:
        words = sys.argv[1:] if argv is None else argv
        if not words:
            print(format_overview())
            return 0
        options = build_parser(*words[:1]).parse_args(guard_minus(words))
        module, _, name = options.run.partition(":")
        run: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(module), name)
        note_terminal()
        with escape_output(), speak_of_flags():
            code = run(options)
            print(end="", flush=True)
        return code
    except KlsymError as error:
        return _refuse(str(error))
    except ModuleNotFoundError as error:
        if (missing := lacking(error)) is None:
            raise
        return _refuse(missing)
    except UnicodeEncodeError as error:
        sign = error.object[error.start : error.start + 1]
        return _refuse(f"{error.encoding} has no {sign!a}: set PYTHONIOENCODING=utf-8")
    except BrokenPipeError:  # the reader, such as `head`, went away
        _discard_output()
        return 0
    except OSError as error:  # such as a full disk behind stdout
        _discard_output()
        return _refuse(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except KeyboardInterrupt:
        print("klsym: interrupted", file=sys.stderr)
        return 130


def _refuse(message: str) -> int:
    print_complaint(message)
    return 2


def _discard_output() -> None:
    """What is still to be written would fail once more when Python exits."""
    with suppress(OSError, AttributeError):  # no file behind stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
