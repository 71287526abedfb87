"""Lets the checks in the modules that the tests share say what they found, as those in test modules do."""

import pytest

pytest.register_assert_rewrite("tests.streaming.runs")
