"""The answer of `explain`, and its warnings."""
