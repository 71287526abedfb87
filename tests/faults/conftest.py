"""The fixtures of tests/jvm, for tests that need them beside a session's."""

from tests.jvm.conftest import checkpoint, jvm, new_checkpoint

__all__ = ["checkpoint", "jvm", "new_checkpoint"]
