"""Copies and removals of the checkpoints of queries that this process has run."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.jvm.harness import until


def copy_stopped(source: Path | str, target: Path) -> Path:
    """Copies the checkpoint of a stopped query, with the word that it has ended.

    The driver says so a moment later, and then deletes the file ``.running``, which a copy may just have listed.
    """
    merged = Path(source) / "state" / "_merged"
    until(lambda: not list(merged.glob("*.running")), f"the end of the query to be said in {merged}")
    return Path(shutil.copytree(source, target))


def remove(checkpoint: Path) -> None:
    """Removes the checkpoint of a query that has just ended, at once, although its driver may write there still."""
    gone = checkpoint.rename(checkpoint.with_name(f"{checkpoint.name}-gone"))
    shutil.rmtree(gone, ignore_errors=True)
