"""Proof scripts: one theme a file, each claim a short function that reads like the proof on paper.

The tags of the sources, such as WZ1 or TM, stand for the entries of
`klsym.study.write_up.bibliography`, whose `listing()` shows them; "new" marks what goes beyond the sources.
"""
