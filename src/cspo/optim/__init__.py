"""How parameters move: the minibatch loop, its objectives and the optimiser."""
