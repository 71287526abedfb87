"""What a fork has of another checkpoint's segments: references to them, or copies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import foreign_path
from pyspark_statestore.index import Entries
from pyspark_statestore.maintenance.copied_entries import paths_of, same_facts
from pyspark_statestore.maintenance.copying import read_segments
from pyspark_statestore.maintenance.maintenance import TARGET_FILE_SIZE
from pyspark_statestore.maintenance.site import Site, View


def places_of(entries: Entries, rows: np.ndarray, checkpoint: str) -> tuple[list[str], np.ndarray]:
    """Which files hold some segments.

    Args:
        entries: Of the checkpoint that is forked.
        rows: Of the segments.
        checkpoint: Its path in the file system.

    Returns:
        Paths as a reference file names them, also of checkpoints that this one is a fork of; of each segment the number
        of its file, from 1 on.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH, where the checkpoint's path is none that a reference file may hold.
    """
    own = len(entries.foreign)
    places = np.where(entries.origin[rows] > 0, entries.origin[rows] - 1, own + entries.file[rows])
    used, numbers = np.unique(places, return_inverse=True)
    paths = [
        entries.foreign[place] if place < own else foreign_path(checkpoint, entries.files[place - own])
        for place in used.tolist()
    ]
    return paths, numbers.reshape(-1) + 1


def write_references(
    target: Site, view: View, rows: np.ndarray, places: tuple[list[str], np.ndarray], highest_stamp: int
) -> str:
    """Writes a reference file: facts as they are in the source, their keys and generations included.

    Args:
        target: Of the fork.
        view: Of the source.
        rows: Of the segments.
        places: As :func:`places_of` has them.
        highest_stamp: That any file of the source knows of.

    Returns:
        Its name.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    paths, numbers = places
    records = same_facts(view.scan.entries, rows, view.scan.entries.offset[rows])
    records["file_ref"] = numbers
    with target.new_file(view) as (name, out):
        out.add_columns(records, paths_of(view.scan.entries, rows))
        out.seal_references_to(paths, group_stamp=highest_stamp)
    return name


def copy_segments(
    source: Site, target: Site, view: View, rows: np.ndarray, highest_stamp: int
) -> Iterator[tuple[str, int]]:
    """Copies segments into merged files of the fork; each is checked.

    Args:
        source: Of the checkpoint that is forked.
        target: Of the fork.
        view: Of the source.
        rows: Of the segments.
        highest_stamp: That any file of the source knows of.

    Yields:
        The name and the size in bytes of each file, when it is durable.

    Raises:
        FileNotFoundError: A file of the source is gone.
        StateStoreFilesError: A segment is corrupt, or something cannot be read or written.
    """
    entries = view.scan.entries
    rows = rows[np.lexsort((entries.offset[rows], entries.origin[rows], entries.file[rows]))]
    ends: np.ndarray = np.cumsum(entries.length[rows])
    for part in np.split(rows, np.flatnonzero(np.diff(ends // TARGET_FILE_SIZE)) + 1):
        if not len(part):
            continue
        with target.new_file(view) as (name, out):
            start = out.position
            for data in read_segments(source.directory, entries, part):
                out.append(data)
            offsets = start + np.cumsum(entries.length[part]) - entries.length[part]
            if out.position != start + int(entries.length[part].sum()):
                parameters = {"path": target.directory.location.url, "reason": "copies are not as long as the segments"}
                raise StateStoreFilesError("PSS_WRITE_FAILED", parameters)
            out.add_columns(same_facts(entries, part, offsets), paths_of(entries, part))
            out.seal(group_stamp=highest_stamp)
        yield name, out.position
