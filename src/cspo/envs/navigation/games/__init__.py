"""What is to be done: one module per game, with its objects, its reward and its cost."""
