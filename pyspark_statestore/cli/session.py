"""The Spark session of the commands that need one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session(master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Starts a session with the jar for the block, and stops it.

    Args:
        master: Where it runs.
        conf: Settings.
    """
    from pyspark.sql import SparkSession

    from pyspark_statestore.session.configure import configure

    builder = SparkSession.builder.master(master).appName("pyspark-statestore")
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR").config(map=dict(conf))
    spark = configure(builder).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
