"""File sinks: what queries write with ``writeStream`` to files, and Spark's list of these files."""
