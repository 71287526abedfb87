"""The jars that every benchmark needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

_ROOT = Path(__file__).resolve().parent.parent


def build_shim() -> None:
    """Compiles the shim and the test file systems where their sources have changed.

    Raises:
        click.ClickException: They do not compile. The compiler has printed why.
    """
    if subprocess.run([sys.executable, "jvm-shim/build.py", "--tests"], cwd=_ROOT).returncode:
        raise click.ClickException("the shim could not be built")
