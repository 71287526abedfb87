"""Checks everything in a checkpoint, and repairs what can be repaired: ``verify``."""
