"""A checkpoint, and the command line to look at it with."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner, Result

from pyspark_statestore.cli.main import cli
from tests.cli.builders import write_checkpoint


class Invoke(Protocol):
    """The type of the ``invoke`` fixture."""

    def __call__(self, *arguments: object, status: int = 0) -> Result:
        """Runs a command line."""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Three partitions with four versions; see ``write_checkpoint``."""
    return write_checkpoint(tmp_path / "q1")


@pytest.fixture
def invoke() -> Invoke:
    """Runs a command line in this process, and checks its exit status."""

    def run(*arguments: object, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result

    return run


def rows(result: Result) -> Any:
    """What a command wrote as JSON, to stdout alone."""
    return json.loads(result.stdout)


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """Shells have their background jobs ignore Ctrl-C, and what these start inherits it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
