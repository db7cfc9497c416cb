"""Who acts: networks, the distribution of actions, normalisers."""
