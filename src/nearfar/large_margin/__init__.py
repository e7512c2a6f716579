"""Large-margin learning from triplets: target neighbors, impostors, the loss and its solvers."""
