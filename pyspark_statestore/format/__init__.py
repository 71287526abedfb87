"""The merged file format, version 1: an append-only file of groups, each with its own index.

The package needs neither Spark nor fsspec: a file is anything with ``size`` and ``read_at``, or with ``write``.
docs/format.md describes the format, and tests/vectors/ hold both this package and the Java shim to it.
"""

from pyspark_statestore.format.layout import (
    Entry,
    Kind,
    SegmentType,
    file_name,
    foreign_path,
    is_foreign_path,
    is_reference,
    name_ending,
    parse_file_name,
    split_foreign_path,
)
from pyspark_statestore.format.reader import (
    BytesSource,
    MergedFile,
    RangeSource,
    read_groups,
    read_merged_file,
    read_segment,
)
from pyspark_statestore.format.writer import MergedFileWriter

__all__ = [
    "BytesSource",
    "Entry",
    "Kind",
    "MergedFile",
    "MergedFileWriter",
    "RangeSource",
    "SegmentType",
    "file_name",
    "foreign_path",
    "is_foreign_path",
    "is_reference",
    "name_ending",
    "parse_file_name",
    "read_groups",
    "read_merged_file",
    "read_segment",
    "split_foreign_path",
]
