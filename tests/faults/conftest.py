"""The fixtures of tests/jvm, for tests that need them beside a session's."""

from tests.jvm.conftest import checkpoint, faulty, gate, jvm, new_checkpoint

__all__ = ["checkpoint", "faulty", "gate", "jvm", "new_checkpoint"]
