"""A local page that follows a training or a study live; it reads files, and touches nothing."""
