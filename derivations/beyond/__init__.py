"""Theorems that the sources ask for, or use without a proof."""
