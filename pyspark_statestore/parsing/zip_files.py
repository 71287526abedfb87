"""Zips that somebody else may have made: not more is unpacked than is said beforehand."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What Java writes, and this package. Of others not even a piece can be unpacked in bounded memory."""


@contextmanager
def opened_zip(data: bytes, most: int) -> Iterator[zipfile.ZipFile]:
    """Opens a zip, and makes sure of its bounds.

    Args:
        data: The whole zip.
        most: Bytes that all that is in it may have together.

    Raises:
        ValueError: It is no zip, or one that is too large, or, from within the block, it is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check(archive, most)
            yield archive
    except ValueError:
        raise
    except Exception as error:  # what zipfile and its decompressors raise at something else is no short list
        raise ValueError(f"it is no whole zip ({type(error).__name__}: {error})") from error


def _check(archive: zipfile.ZipFile, most: int) -> None:
    infos = archive.infolist()
    if not all(info.compress_type in _METHODS for info in infos):
        raise ValueError("something in the zip is compressed in a way that Java does not write")
    # zipfile stops unpacking where the size that is said here is reached.
    size = sum(info.file_size for info in infos)
    if size > most:
        raise ValueError(f"the zip unpacks to {size} bytes, and at most {most} are unpacked")
