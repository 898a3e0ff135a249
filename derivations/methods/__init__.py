"""Losses of methods of 2026 as they are shipped: ratios, rewards of a group, divergences of the next word."""
