"""klsym.study: what settles, samples, draws and writes up the claims, and questions of research.

`klsym` itself imports nothing of it: its commands and names are found when they are asked.
"""
