"""What the sources leave open: theorems that they ask for, or use without a proof."""
