"""A loss at one position, its expected gradient, and the named terms in it."""
