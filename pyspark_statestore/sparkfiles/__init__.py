"""Reads the files that Spark's state stores write, as far as restoring a version needs it."""

from pyspark_statestore.sparkfiles.compression import is_whole_stream
from pyspark_statestore.sparkfiles.records import files_and_rows, files_named, lineage_of

__all__ = ["files_and_rows", "files_named", "is_whole_stream", "lineage_of"]
