"""A process that says what it was asked."""

from __future__ import annotations

from klsym.worker_process import serve


def echo() -> None:
    serve(lambda *_: None, lambda question, options: {"said": question * options["times"]})


if __name__ == "__main__":
    echo()
