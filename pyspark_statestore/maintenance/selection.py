"""Which files people mean by a condition on the table ``files``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.files import files_table
from pyspark_statestore.maintenance.site import Site, View

if TYPE_CHECKING:
    from pyarrow.compute import Expression
    from pyspark.sql import SparkSession


def chosen_by(where: Expression | str, view: View, site: Site, spark: SparkSession | None) -> frozenset[str]:
    """Names of the files for which a condition holds.

    Args:
        where: An Arrow expression, or SQL.
        view: The files as they were found.
        site: Of the checkpoint.
        spark: For SQL.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION where it is no such condition.
    """
    table = files_table(view.scan, site.directory.location.url, site.closed_after)
    if isinstance(where, str) and spark is None:
        raise _refused(where, "an Arrow expression, such as pyarrow.compute.field('live_bytes') == 0; SQL needs spark=")
    try:
        if isinstance(where, str):
            assert spark is not None
            rows = spark.createDataFrame(table).where(where).select("file_path").collect()
            paths = [row["file_path"] for row in rows]
        else:
            paths = table.filter(where)["file_path"].to_pylist()
    except Exception as error:  # Arrow's and Spark's own, of many kinds
        reason = str(error).strip().partition("\n")[0]
        raise _refused(where, f"a condition on the columns {', '.join(table.column_names)} ({reason})") from error
    return frozenset(path.rpartition("/")[2] for path in paths)


def _refused(where: object, allowed: str) -> StateStoreFilesError:
    return StateStoreFilesError("PSS_INVALID_OPTION", {"key": "where", "value": where, "allowed": allowed})
