"""The fixtures of tests/cli, and the rewriting of assertions in what reads pages."""

import pytest

pytest.register_assert_rewrite("tests.report.pages")

from tests.cli.conftest import checkpoint, invoke  # noqa: E402

__all__ = ["checkpoint", "invoke"]
