"""What a test does again and again while it does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def meanwhile(do: Callable[[], object], pause_seconds: float) -> Iterator[None]:
    """Does something in a thread until the block ends, which fails where that has failed."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(pause_seconds):
            do()

    with ThreadPoolExecutor(1) as threads:
        doing = threads.submit(loop)
        try:
            yield
        finally:
            stop.set()
            doing.result()
