"""Piecewise coefficients: their regions, signs, roots and subgradients."""
