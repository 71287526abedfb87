"""The JVM of the other tests, and failures that show what was compared."""

from __future__ import annotations

import pytest

from tests.jvm.conftest import by_hand as by_hand
from tests.jvm.conftest import jvm as jvm

pytest.register_assert_rewrite("tests.forks.harness", "tests.migration.builders")
