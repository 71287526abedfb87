"""What the command line writes to a terminal: nothing in it moves the cursor, and nobody reads a password in it."""

from __future__ import annotations

from typing import IO, Any

import click

from pyspark_statestore.errors import redacted


def say(text: str, *, file: IO[Any] | None = None, err: bool = False, nl: bool = True) -> None:
    """Writes lines that may have something of a checkpoint in them, such as a name that somebody else has chosen."""
    click.echo(shown(text), file=file, err=err, nl=nl)


def shown(text: str) -> str:
    """The lines as they are written."""
    from pyspark_statestore import rendering  # which imports pyarrow: help is to come at once

    return rendering.lines(redacted(text))
