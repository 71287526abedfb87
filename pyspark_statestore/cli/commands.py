"""What all commands share: examples in their help, errors as messages, exit statuses."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import IO, Any

import click

from pyspark_statestore.cli.dialect import spoken
from pyspark_statestore.cli.echo import say
from pyspark_statestore.errors import StateStoreFilesError

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""

DAMAGED = 3
"""Exit status of ``verify`` where it found damage that it did not repair."""

_EXIT_STATUS = (
    ("0", "Success; also where the reader of the output stops early, as with: | head"),
    ("1", "An error. The message on stderr begins with its id, such as [PSS_NOT_A_CHECKPOINT]."),
    ("2", "A wrong command or option."),
    (str(DAMAGED), "verify found damage that is not repaired."),
    (str(INTERRUPTED), "Interrupted with Ctrl-C."),
)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""There is no room, on the disk or for this user."""


_ANY_LENGTH = 1000
"""Of a sentence."""


class Command(click.Command):
    """A command that ends its help with examples.

    Args:
        examples: Whole command lines.
        interrupted: What the command says after Ctrl-C; nothing if not given.
        args: Arguments of click's command.
        kwargs: Arguments of click's command.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), interrupted: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.interrupted = interrupted

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command, and after Ctrl-C says what it has left. The group sets the exit status."""
        try:
            return super().invoke(ctx)
        except StateStoreFilesError as error:
            options = {param.name: max(param.opts, key=len) for param in self.params if param.name}
            raise Failure(spoken(str(error), options)) from error
        except KeyboardInterrupt:
            if self.interrupted:
                say(f"Interrupted. {self.interrupted}", err=True)
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples without wrapping, so that they can be copied."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class Group(click.Group):
    """The group of all commands."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the first sentence of each command's help, in as many lines as it takes: click would cut it."""
        found = [(name, command) for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_ANY_LENGTH)) for name, command in found])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes what each exit status means."""
        with formatter.section("Exit status"):
            formatter.write_dl(_EXIT_STATUS)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command, and turns errors and interrupts into messages and exit statuses."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except StateStoreFilesError as error:
            raise Failure(spoken(str(error))) from error
        except BrokenPipeError:
            forget_stdout()
            ctx.exit(0)
        except OSError as error:
            if failure := output_failure(error):
                raise failure from error
            raise
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        return result


class Failure(click.ClickException):
    """An error whose message begins with its id."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Writes the message to stderr."""
        say(self.message, file=file, err=file is None)


def output_failure(error: OSError) -> Failure | None:
    """The failure to write stdout, which may be a file, and is written no more; None if the error is another one.

    What the package reads and writes raises errors of its own.
    """
    if error.errno not in _FULL:
        return None
    forget_stdout()
    return Failure(str(StateStoreFilesError("PSS_WRITE_FAILED", {"path": "the output", "reason": error.strerror})))


_UNENCODABLE = "backslashreplace"
"""What becomes of a letter that the output's encoding does not have, in cron, in CI or in an old locale."""


def prepare_stdout() -> None:
    """Lets stdout take every letter, and gives it a buffer if it has none, as with ``PYTHONUNBUFFERED=1``.

    A nearly full disk takes a part of what is written. Without a buffer, Python drops the rest and says nothing.
    """
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        buffered = io.BufferedWriter(io.FileIO(raw.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(buffered, sys.stdout.encoding, _UNENCODABLE, line_buffering=True)
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_UNENCODABLE)


def forget_stdout() -> None:
    """Points stdout nowhere once its reader has gone, so that Python's flush at its exit succeeds."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # not a file, as in a test
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
