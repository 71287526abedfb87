"""The one place that holds the version; jvm-shim/build.py writes the same one into the jar's manifest."""

__version__ = "0.1.0"
