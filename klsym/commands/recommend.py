"""`klsym recommend`: what to write for a KL penalty."""

from __future__ import annotations

import argparse
import json

from klsym.commands.timed import limit_time


@limit_time()
def recommend_loss(options: argparse.Namespace) -> int:
    """The correct choices, the best first, the tempting wrong ones, and code."""
    from klsym.api import recommend

    recommendation = recommend(options.target, options.sampling, options.use, options.level)
    if options.format == "json":
        print(json.dumps(recommendation.to_json()))
        return 0
    if options.format == "markdown":
        print(recommendation.markdown(options.framework))
    else:
        print(recommendation.text(options.framework, options.proof, options.full))
    return 0
