"""Proof scripts: one theme a file, each claim a short function that reads like the proof on paper."""
