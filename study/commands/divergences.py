"""`klsym divergence`: from a divergence to its losses."""

from __future__ import annotations

import argparse
import json

from klsym.commands.console import get_terminal_width
from klsym.commands.timed import limit_time


@limit_time()
def show_losses(options: argparse.Namespace) -> int:
    """What estimates it, what descends it, and what does not."""
    from klsym.study.api import divergence

    descents = divergence(options.divergence.strip(), options.param, options.sampling)
    if options.format == "json":
        print(json.dumps(descents.to_json()))
    else:
        print(descents.text(options.proof, options.full, get_terminal_width()))
    return 0
