"""Attacks on the kernel by certificates made by hand: random statements, rules and data, judged literally."""
