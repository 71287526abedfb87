"""The fixtures of tests/jvm and tests/cluster, for tests that need them beside a session's."""

import pytest

from tests.cluster.conftest import jars
from tests.jvm.conftest import faulty, jvm

__all__ = ["faulty", "jars", "jvm"]

pytest.register_assert_rewrite("tests.sink.manifest", "tests.sink.sinks")
