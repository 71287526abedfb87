"""Checks everything in a checkpoint, and mends what can be mended: ``verify``."""
