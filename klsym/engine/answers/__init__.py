"""From a loss as written to its verdict, and what to write instead."""
