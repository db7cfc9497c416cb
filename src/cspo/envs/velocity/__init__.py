"""The velocity tasks."""
