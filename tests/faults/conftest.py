"""The fixtures of tests/jvm, for tests that need them beside a session's."""

from tests.jvm.conftest import by_hand, checkpoint, faulty, gate, jvm, new_checkpoint

__all__ = ["by_hand", "checkpoint", "faulty", "gate", "jvm", "new_checkpoint"]
