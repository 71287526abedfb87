"""The fixtures that these tests share with others, and checks of shared modules that say what they found."""

import pytest

from tests.jvm.conftest import by_hand, faulty, jvm
from tests.migration.conftest import breakage

pytest.register_assert_rewrite("tests.streaming.runs", "tests.reshape.harness")

__all__ = ["breakage", "by_hand", "faulty", "jvm"]
