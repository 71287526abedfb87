"""What is in a checkpoint, as tables: files, segments, versions, summary, plain files.

Everything is read from the files themselves, anew with each call, also while the query runs, and without Spark.
"""

from pyspark_statestore.inspect.costs import costs_of_files, costs_of_segments
from pyspark_statestore.inspect.inspection import Inspection
from pyspark_statestore.inspect.tables import Segments, files_table
from pyspark_statestore.log.columns import SINK_TABLES, TABLES, Column, comments_of, schema_of, spark_schema_of
from pyspark_statestore.log.state_files import StoreFilter

__all__ = [
    "SINK_TABLES",
    "TABLES",
    "Column",
    "Inspection",
    "Segments",
    "StoreFilter",
    "comments_of",
    "costs_of_files",
    "costs_of_segments",
    "files_table",
    "schema_of",
    "spark_schema_of",
]
