"""Applications for tests that kill them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.cluster.application", "tests.cluster.checks")


@pytest.fixture(scope="session")
def jars(main_jar: Path, test_jar: Path) -> tuple[Path, Path]:
    """The shim's jar and that of the test file systems."""
    return main_jar, test_jar
