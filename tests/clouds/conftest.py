"""Real clients and servers for the tests in this directory. Without them they are skipped, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clouds.downloads import CONNECTOR, GCS_SERVER, CloudUnavailable, azurite, from_wheel
from tests.clouds.harness import CONF, CloudQuery
from tests.clouds.servers import LocalAzure, LocalGcs
from tests.conftest import MakeSpark
from tests.s3.local_s3 import add_to_class_path


@pytest.fixture(scope="package")
def gcs() -> Iterator[LocalGcs]:
    """A server of Google's API."""
    pytest.importorskip("gcsfs", reason="gcsfs is not installed", exc_type=ImportError)
    try:
        program = from_wheel(GCS_SERVER)
    except CloudUnavailable as error:
        pytest.skip(f"no server of Google's API to test with: {error}")
    with LocalGcs(program) as server:
        yield server


@pytest.fixture(scope="package")
def connector() -> Path:
    """The jar of Google's connector."""
    try:
        return from_wheel(CONNECTOR)
    except CloudUnavailable as error:
        pytest.skip(f"no connector of Google's to test with: {error}")


@pytest.fixture(scope="package")
def azure() -> Iterator[LocalAzure]:
    """A server of Azure's Blob endpoint."""
    pytest.importorskip("adlfs", reason="adlfs is not installed", exc_type=ImportError)
    try:
        program = azurite()
    except CloudUnavailable as error:
        pytest.skip(f"no server of Azure's API to test with: {error}")
    with LocalAzure(program) as server:
        yield server


@pytest.fixture(scope="session")
def jvm(_sessions: Any) -> Any:
    """py4j's view of the JVM that all sessions of this process share."""
    from pyspark import SparkContext

    return SparkContext._jvm


MakeQuery = Callable[..., CloudQuery]


@pytest.fixture
def make_query(make_spark: MakeSpark, gcs: LocalGcs, connector: Path, jvm: Any, tmp_path: Path) -> Iterator[MakeQuery]:
    """Makes a query of this test: ``make_query("path", "heap")``."""
    made: list[CloudQuery] = []
    add_to_class_path(jvm, [connector])

    def make(mode: str = "provider", store: str = "rocksdb", **conf: str) -> CloudQuery:
        hadoop = {f"spark.hadoop.{key}": value for key, value in gcs.hadoop_settings().items()}
        spark = make_spark({**hadoop, **CONF, **conf}, mode=mode, store=store)
        number = len(made)
        made.append(CloudQuery(spark, gcs, mode, tmp_path / f"input{number}", f"{tmp_path.name}/q{number}"))
        return made[-1]

    yield make
    for query in made:
        query.forget()
