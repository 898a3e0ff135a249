"""Diagnostics: codes such as KL004, each a condition on a verdict, with a page that explains it."""
