"""Proof scripts: one theme a file, each claim a short function that reads like the proof on paper.

Tags such as WZ1 or TM cite entries of `klsym.study.write_up.bibliography`; its `listing()` prints them.
"new" marks a claim that goes beyond the sources.
"""
