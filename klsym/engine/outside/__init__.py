"""What a loss outside the ring targets: SymPy, numbers, batch std, the vocabulary."""
