"""What is remembered of a run: progress.csv, TensorBoard events, the console, the learning-curve picture."""
