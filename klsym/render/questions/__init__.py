"""Answers of compare, recommend, optimum, divergence and catalogue, as they are printed."""
