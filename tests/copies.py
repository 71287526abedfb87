"""Copies of the checkpoints of queries that this process has run."""

from __future__ import annotations

import shutil
from pathlib import Path

OF_RUNS = ("*.running", "*.ended", ".*.running.crc", ".*.ended.crc")


def copy_stopped(source: Path | str, target: Path) -> Path:
    """Copies the checkpoint of a stopped query without what its runs say of themselves.

    A query has ended a moment before its driver says so. Until then the driver may delete the file ``.running`` that a
    copy of the whole folder has just listed.
    """
    return Path(shutil.copytree(source, target, ignore=shutil.ignore_patterns(*OF_RUNS)))
