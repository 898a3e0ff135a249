"""Statements and their proofs: derivation, reduction, counterexamples."""
