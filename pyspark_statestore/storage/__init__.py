"""A checkpoint's files on whatever file system: listing and ranged reads, through fsspec.

Nothing here knows what is in a file, and nothing here needs Spark or a JVM.
"""

from pyspark_statestore.storage.directory import Directory, FileInfo
from pyspark_statestore.storage.location import Location

__all__ = ["Directory", "FileInfo", "Location"]
