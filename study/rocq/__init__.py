"""Certificates as terms for the checker in rocq/, which Rocq has proved sound.  Standard library only."""
