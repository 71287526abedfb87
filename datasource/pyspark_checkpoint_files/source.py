"""``DefaultSource``, the class that Spark instantiates for ``checkpoint_files``."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter

from pyspark_checkpoint_files.options import STREAMED, TABLES, ReadOptions
from pyspark_checkpoint_files.plain_errors import plain_errors
from pyspark_statestore.errors import not_allowed

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """``checkpoint_files``: the merged files of a streaming checkpoint, what is in them, and what can be restored.

    An INSERT of rows of the table ``files`` rewrites these files.

    Args:
        options: ``path``, ``table`` and the others in docs/sql.md. Their names are case-insensitive.

    Raises:
        StateStoreFilesError: PSS_UNKNOWN_OPTION or PSS_INVALID_OPTION, which list what is allowed.

    Example:
        >>> spark.read.format("checkpoint_files").option("table", "versions").load("s3a://bucket/checkpoints/q1")
    """

    @plain_errors()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Parsed here, because the errors of a reader appear only when the query runs.
        self._parsed = ReadOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """Returns the name for ``format(...)`` and ``USING``."""
        return "checkpoint_files"

    @plain_errors()
    def schema(self) -> StructType:
        """Returns the columns of the table, each with its comment for DESCRIBE.

        Spark asks for them when a frame or a view is made, so a wrong path is said then.

        Raises:
            StateStoreFilesError: The path is missing; there is no checkpoint, or no sink, at it; or it cannot be
                listed.
        """
        from pyspark.sql import types
        from pyspark.sql.pandas.types import from_arrow_type

        from pyspark_statestore.inspect import comments_of, schema_of

        if "provider" not in self.options:  # a table of a catalog gets its path when it is read
            self._parsed.check_path()
        self._parsed.require_path()
        made = types.StructType()
        comments = comments_of(self._parsed.table)
        for field in schema_of(self._parsed.table):
            made.add(field.name, from_arrow_type(field.type), True, {"comment": comments[field.name]})
        return made

    @plain_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns what reads the table once."""
        from pyspark_checkpoint_files.batch import reader_of

        return reader_of(self._options_for(schema))

    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns what rewrites the files whose rows are inserted.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION for OVERWRITE, for another table, or without ``file_path``.
        """
        from pyspark_checkpoint_files.writer import PATH, CompactionWriter

        table = self._parsed.table
        if overwrite:
            allowed = "INTO or append: the files whose rows you insert are rewritten, all others stay"
            raise not_allowed("mode", "overwrite", allowed)
        if table != TABLES[0]:
            allowed = f"INSERT works with the table {TABLES[0]} only"
            raise not_allowed("table", table, allowed)
        if PATH not in schema.names:
            allowed = f"rows of the table {TABLES[0]} with the column {PATH}"
            raise not_allowed("schema", ", ".join(schema.names), allowed)
        return CompactionWriter(self._parsed)

    @plain_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns what follows the segments as they are committed.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION for another table.
        """
        from pyspark_checkpoint_files.stream import stream_reader_of

        options = self._options_for(schema)
        if options.table != STREAMED:
            allowed = f"only the table segments can be streamed: option('table', '{STREAMED}')"
            raise not_allowed("table", options.table, allowed)
        return stream_reader_of(options)

    def _options_for(self, schema: StructType) -> ReadOptions:
        """Finds the table by a schema: users may give one, and a catalog remembers the one of the table it created."""
        from pyspark_statestore.inspect import SINK_TABLES, TABLES, spark_schema_of

        tables = {**TABLES, **SINK_TABLES}
        found = [name for name, columns in tables.items() if [column.name for column in columns] == list(schema.names)]
        if "table" not in self.options and found:
            return replace(self._parsed, table=found[0])
        if found != [self._parsed.table]:
            columns = spark_schema_of(self._parsed.table)
            allowed = f"no schema at all, or that of the table {self._parsed.table}: {columns}"
            raise not_allowed("schema", ", ".join(schema.names), allowed)
        return self._parsed
