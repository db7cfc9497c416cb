"""Who drives around: one module per robot."""
