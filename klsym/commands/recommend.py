"""`klsym recommend`: what to write for a KL penalty."""

from __future__ import annotations

import argparse
import json

from klsym.commands.timed import timed


@timed()
def recommend_loss(options: argparse.Namespace) -> int:
    """The correct choices, the best first, the tempting wrong ones, and code."""
    from klsym.api import recommend
    from klsym.render.recommend import recommendation_markdown, recommendation_text

    found = recommend(options.target, options.sampling, options.use, options.level)
    if options.format == "json":
        print(json.dumps(found.to_json()))
        return 0
    show = recommendation_markdown if options.format == "markdown" else recommendation_text
    print(show(found, options.framework))
    return 0
