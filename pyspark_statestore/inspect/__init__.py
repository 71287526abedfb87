"""What is in a checkpoint, as tables: files, segments, versions, summary.

Everything is read from the files themselves, each time anew, beside running queries and without Spark.
"""

from pyspark_statestore.inspect.columns import TABLES, Column, schema_of, spark_schema_of
from pyspark_statestore.inspect.inspection import Inspection
from pyspark_statestore.inspect.segments import StoreFilter

__all__ = ["TABLES", "Column", "Inspection", "StoreFilter", "schema_of", "spark_schema_of"]
