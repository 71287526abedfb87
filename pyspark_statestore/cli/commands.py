"""What all commands have: examples in their help, errors that are messages, an end that is quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import IO, Any

import click

from pyspark_statestore.errors import StateStoreFilesError

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

DAMAGED = 3
"""Exit status of ``verify`` where it found damage that is still there."""

_EXIT_STATUS = (
    ("0", "All is well; also when who reads the output has gone, as with: | head"),
    ("1", "An error; its message on stderr begins with its id, such as [PSS_NOT_A_CHECKPOINT]."),
    ("2", "The command line itself is wrong."),
    (str(DAMAGED), "verify has found damage that is not repaired."),
    (str(INTERRUPTED), "Interrupted with Ctrl-C."),
)


class Command(click.Command):
    """A command that ends its help with examples.

    Args:
        examples: Whole command lines.
        interrupted: What is to be known after Ctrl-C; nothing is said if not given.
        args: Of click's command.
        kwargs: Of click's command.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), interrupted: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.interrupted = interrupted

    def invoke(self, ctx: click.Context) -> Any:
        """Runs it; what Ctrl-C has left is said here, the exit status comes from the group."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if self.interrupted:
                click.echo(f"Interrupted. {self.interrupted}", err=True)
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples as they are: wrapped, they could not be copied."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class Group(click.Group):
    """The group of all commands."""

    command_class = Command

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes what the exit status says."""
        with formatter.section("Exit status"):
            formatter.write_dl(_EXIT_STATUS)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; how that can end badly is decided here, for all of them."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except StateStoreFilesError as error:
            raise Failure(str(error)) from error
        except BrokenPipeError:
            forget_stdout()
            ctx.exit(0)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        return result


class Failure(click.ClickException):
    """An error whose message has its id in it already."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Writes the message to stderr."""
        click.echo(self.message, file=file, err=file is None)


def forget_stdout() -> None:
    """Lets Python's own flush at its exit succeed, though nobody reads any more."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # no file: a test's
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
