"""The other questions: compare, recommend, optimum, catalogue."""
