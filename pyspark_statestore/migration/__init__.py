"""Migration: from stock Spark's checkpoints to merged ones (``convert``), and back (``export``, ``drop_merged``)."""
