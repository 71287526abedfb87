"""Input files of running queries."""

from __future__ import annotations

import os
from pathlib import Path


def appear(file: Path, text: str, number: int) -> None:
    """Puts a file where a running query sees it whole and with its time, or not at all.

    Spark takes files by their modification time, which therefore follows the number. If a query saw a file with the
    time of today, those that come later would be older than ``maxFileAge``, and never be read.
    """
    hidden = file.with_name(f"_{file.name}")
    hidden.write_text(text)
    os.utime(hidden, (1_400_000_000 + number,) * 2)
    hidden.rename(file)
