"""What was seen: rollouts, episodes and their window, advantages."""
