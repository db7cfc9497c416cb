"""What a policy is for: load it, measure it, record it."""
