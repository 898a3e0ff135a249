"""What a loss inside the ring targets."""
