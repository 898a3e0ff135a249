"""The f-divergence behind a coefficient, and what descending it does."""
