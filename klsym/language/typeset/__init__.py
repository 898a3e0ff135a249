"""Formulas in LaTeX, translated into the grammar of losses."""
