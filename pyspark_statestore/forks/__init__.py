"""Makes forks: checkpoints that begin at a version of another one and share its state."""
