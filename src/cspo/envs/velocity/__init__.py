"""The velocity tasks: robots that should move, but not too fast."""
