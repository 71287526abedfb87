"""Benchmarks: each is one command that runs stock Spark and merged state side by side and prints one table."""
