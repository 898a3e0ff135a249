"""The tabular experiments of Tang & Munos 2025, "On a few pitfalls in KL divergence gradient estimation for
RL": figures 1 to 6, each as a function that returns its data.

>>> data = figure1(repeats=2, arms=5, ns=(1, 4))
>>> data.setup
'2 bandits of 5 arms (seed 0), one simulation each at every n'
>>> len(data.findings), data.findings[0].mark
(4, 'as the paper says')

Every function takes `seed`, `repeats`, `arms`, `ns`, and `progress`, a callback (done, total); those that
optimise any other field of `Problem` too.  What they return is frozen and has `setup` (a line), `table()`
(header, rows) and `findings`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klsym.experiments.tang_munos.descents import figure3, figure4
from klsym.experiments.tang_munos.errors import figure1, figure2
from klsym.experiments.tang_munos.limits import figure5, figure6

FIGURES: dict[int, Callable[..., Any]] = dict(
    enumerate((figure1, figure2, figure3, figure4, figure5, figure6), start=1)
)

__all__ = ["FIGURES", "figure1", "figure2", "figure3", "figure4", "figure5", "figure6"]
