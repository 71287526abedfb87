"""Keeps a checkpoint's files small and sound from outside of its query: the verbs of ``Checkpoint.maintenance``."""
