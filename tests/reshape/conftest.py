"""The fixtures that these tests share with others, and checks of shared modules that say what they found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from tests.jvm.conftest import by_hand, faulty, jvm
from tests.migration.conftest import breakage
from tests.streaming.runs import unload_stores

pytest.register_assert_rewrite("tests.streaming.runs", "tests.reshape.harness")

__all__ = ["breakage", "by_hand", "faulty", "jvm"]


@pytest.fixture(autouse=True)
def _stores_are_closed() -> Iterator[None]:
    """Spark keeps stores of queries that have ended open for a while: too many files, where all cases are run."""
    yield
    context = SparkContext._active_spark_context
    if context is not None:
        unload_stores(context)
