"""What is remembered of a run: its folder, checkpoints, progress, summary, and the session that keeps them."""
