"""What is remembered of a run: folder, checkpoints, progress, sinks, summary, session."""
