"""The navigation tasks: robots that go to goals around what should not be touched."""
