"""The ways in and out: from stock Spark's checkpoints to merged ones, and back."""
