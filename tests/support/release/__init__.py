"""`make release`: wheel and sdist are built, checked, and the wheel is tried on each Python that is here."""
