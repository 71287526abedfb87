"""Errors in SQL without a Python traceback, where Spark lets a Python worker leave it out.

Spark puts the worker's traceback into the error that people read. The package's own errors say what was wrong, where
and what to do, so the lines of Python before them only hide that. A defect keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_statestore.errors import StateStoreFilesError

HIDE = "SPARK_HIDE_TRACEBACK"
"""Spark's workers look for this variable when they tell the JVM of an error, from Spark 4.0 on."""

_WORKERS = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Has the worker tell an error of the package by its message alone; a decorator, too.

    The worker's process ends with the error that it tells, so the variable is for nobody else. Elsewhere, as in the
    driver's own Python, nothing changes.
    """
    try:
        yield
    except StateStoreFilesError:
        if _is_worker():
            os.environ[HIDE] = "1"
        raise


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_WORKERS)
