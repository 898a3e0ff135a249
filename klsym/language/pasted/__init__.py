"""Pasted code before it is read: its text, its statements, and the names in its tree."""
