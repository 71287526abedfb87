"""Runs the commands that an example prints at its end."""

from __future__ import annotations

import shlex

from click.testing import CliRunner

from examples import harness
from pyspark_statestore.cli.main import cli


def run_commands(printed: str, program: str = "") -> list[str]:
    """Runs each command that is printed to look at next, and returns what it prints.

    Args:
        printed: What the example printed.
        program: What the commands begin with, if it is not what the examples say.
    """
    said, _, after = printed.partition("Look at next:\n")
    assert said, printed
    shown = []
    for line in after.splitlines():
        if not line.startswith("  "):
            break
        beginning = f"{shlex.quote(program)} -m pyspark_statestore.cli" if program else harness.command_line()
        assert line.startswith(f"  {beginning} "), line
        words = shlex.split(line.removeprefix(f"  {beginning} "), comments=True)
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        assert done.stdout or "-o" in words, line
        shown.append(done.stdout)
    assert shown, printed
    return shown
