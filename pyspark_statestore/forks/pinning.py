"""Protects the files of a checkpoint, and of those that it refers to, while a fork of it is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.pins import NO_CLAIM, PIN_SUFFIX, Pin, drop_pin, write_pin
from pyspark_statestore.storage import Directory


@dataclass
class Pinning:
    """The pins of one fork: first empty ones, which pin everything; then others that name files.

    A look that began after :meth:`begin` sees only what stays. The order matters to cleaners, see
    :func:`~pyspark_statestore.log.pins.unpinned`: at no time between is there no pin.

    Attributes:
        log: Of the checkpoint that is forked.
        fork: Path of the fork's checkpoint in its file system.
        clock: Seconds that do not jump.
    """

    log: MergedLog
    fork: str
    clock: Callable[[], float] = time.monotonic
    _begun: dict[str, str] = field(default_factory=dict)
    _named: dict[str, str] = field(default_factory=dict)
    _started: float | None = None

    def begin(self, checkpoint: str) -> None:
        """Pins every file of a checkpoint.

        Args:
            checkpoint: Its path in the file system.

        Raises:
            StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
        """
        if self._started is None:
            self._started = self.clock()
        name = self.log.next_name(PIN_SUFFIX)
        self._begun[checkpoint] = name
        write_pin(self._at(checkpoint), Pin(name))

    def name_files(self, files: Mapping[str, frozenset[str]], modes: Mapping[str, str]) -> None:
        """Pins certain files instead; the first pins may go after that.

        Args:
            files: Names of the files by the path of their checkpoint, which :meth:`begin` was called for.
            modes: Of the pins, by the same; ``no_claim`` where not given.

        Raises:
            StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED, also where it comes too late.
        """
        for checkpoint, names in files.items():
            if not names:
                continue
            name = self.log.next_name(PIN_SUFFIX)
            self._named[checkpoint] = name
            created_ms = self.log.now_ms
            pin = Pin(name, self.fork, modes.get(checkpoint, NO_CLAIM), names, created_ms)
            write_pin(self._at(checkpoint), pin)
        if self._started is not None and self.clock() - self._started >= self.log.closed_after.total_seconds() / 2:
            # Others stop waiting for an empty pin after closedAfter.
            raise self.log.too_slow("looking at what is to be forked")

    def end(self) -> None:
        """Takes the empty pins back.

        Raises:
            StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED; everybody takes them for given up some day.
        """
        for checkpoint, name in self._begun.items():
            drop_pin(self._at(checkpoint), name)
        self._begun = {}

    def release(self) -> None:
        """Takes all pins back, as far as that is possible: the fork was not made, or needs nothing."""
        for checkpoint, name in [*self._named.items(), *self._begun.items()]:
            with suppress(StateStoreFilesError):
                drop_pin(self._at(checkpoint), name)
        self._begun, self._named = {}, {}

    def _at(self, checkpoint: str) -> Directory:
        return Directory(self.log.directory.location.beside(checkpoint))
