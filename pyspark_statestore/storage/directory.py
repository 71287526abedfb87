"""Lists and reads below one checkpoint, on any file system of fsspec's.

A request reads 8 MiB at most, several files are read at the same time, and every failure is an error of this package
that names the path. Only a file that is gone stays ``FileNotFoundError``: beside a running query that is normal, and
whoever reads lists again.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError, first_line
from pyspark_statestore.storage.growing import SeekableFile, WebHdfsFile
from pyspark_statestore.storage.location import Location

READ_PARALLELISM = 8
"""Files that are read at the same time; the same as ``Parallel.READS`` of the executors."""

_HDFS = ("hdfs", "webhdfs")

LARGEST_WHOLE = 256 << 20
"""Bytes that a file may have at most to be read whole, such as a log, metadata or a schema."""

Item = TypeVar("Item")

Result = TypeVar("Result")

GAP = 64 * 1024
"""Bytes between two ranges up to which they are read together."""

MAX_READ = 8 << 20
"""Bytes that a request reads at most."""


@dataclass(frozen=True)
class FileInfo:
    """What a listing says of a file.

    Attributes:
        name: The path from the directory that was listed.
        size: The size in bytes.
        modified: The modification time in UTC; None where the file system does not say.
    """

    name: str
    size: int
    modified: datetime.datetime | None


class OpenFile(Protocol):
    """A file to read ranges of."""

    @property
    def size(self) -> int:
        """The size in bytes, as listed."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Returns a range of the file; fewer bytes where the file ends."""


class Directory:
    """A checkpoint's directory.

    Args:
        location: Where the checkpoint is.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self._fs = location.fs

    def beside(self, absolute: str) -> Directory:
        """Returns another checkpoint's directory in the same file system or bucket, given its path from the root."""
        return Directory(self.location.beside(absolute))

    def names(self, relative: str = "") -> list[str]:
        """Lists the names of files and directories in a directory; none where it does not exist."""
        return [_name(info) for info in self._ls(relative)]

    def files(self, relative: str) -> list[FileInfo]:
        """Lists the files directly in a directory; none where it does not exist."""
        return [_file_info(_name(info), info) for info in self._ls(relative) if _is_file(info)]

    def directories(self, relative: str = "") -> list[str]:
        """Lists the names of the directories directly in a directory; none where it does not exist."""
        return [_name(info) for info in self._ls(relative) if not _is_file(info)]

    def why_empty(self) -> str:
        """Says why listing the location finds nothing."""
        return "it is a file" if self.is_file() else "it does not exist or is empty"

    def exists(self) -> bool:
        """Whether the location exists. On an object store, a directory without files does not."""
        with self._errors("look at", ""):
            return bool(self._fs.exists(self.location.below("").rstrip("/")))

    def is_file(self) -> bool:
        """Whether the location is a file, not a directory. Listing it finds nothing, as for one that does not exist."""
        with self._errors("look at", ""):
            return bool(self._fs.isfile(self.location.below("").rstrip("/")))

    def find(
        self,
        relative: str,
        leave_out: Collection[str] = (),
        is_foreign: Callable[[Collection[str]], bool] | None = None,
    ) -> list[FileInfo]:
        """Lists the files at any depth below a directory, by their paths from there; none where it does not exist.

        Args:
            relative: The directory's path in the checkpoint.
            leave_out: Names of directories directly in it that need not be listed.
            is_foreign: Tells by the names in a directory below this one whether all that is in it is left out.
        """
        if _is_flat(self._fs):
            everything = self._find_flat(relative)
            return everything if is_foreign is None else _without(is_foreign, everything)
        found: list[FileInfo] = []
        folders = [""]
        while folders:
            levels = in_parallel(lambda folder: self._ls("/".join(filter(None, (relative, folder)))), folders)
            below: list[str] = []
            for folder, infos in zip(folders, levels, strict=True):
                if folder and is_foreign is not None and is_foreign({_name(info) for info in infos}):
                    continue
                for info in infos:
                    path = f"{folder}/{_name(info)}" if folder else _name(info)
                    if _is_file(info):
                        found.append(_file_info(path, info))
                    elif info["type"] == "directory" and path not in leave_out:
                        below.append(path)
            folders = below
        return found

    @property
    def protocol(self) -> str:
        """The name of the file system, of its names the one that fsspec has first."""
        return _protocol(self._fs)

    @property
    def is_local(self) -> bool:
        """Whether the checkpoint is on a local disk, where Hadoop keeps a checksum file beside each file."""
        return _protocol(self._fs) in ("file", "local")

    @property
    def is_flat(self) -> bool:
        """Whether the checkpoint is on an object store, where a file appears once it is whole."""
        return _is_flat(self._fs)

    @property
    def lists_old_lengths(self) -> bool:
        """Whether an open file may be longer than listings say: HDFS lists the length after its first flush."""
        return _protocol(self._fs) in _HDFS

    @contextmanager
    def open(self, relative: str, size: int, *, grown: bool = False) -> Iterator[OpenFile]:
        """Opens a file to read ranges of it.

        Args:
            relative: The file's path in the checkpoint.
            size: Its size as listed, which is not asked for again.
            grown: Whether to find out how long the file is by now, where listings do not say.

        Raises:
            FileNotFoundError: The file is gone.
            StateStoreFilesError: PSS_NO_PERMISSION or PSS_READ_FAILED.
        """
        path, display = self.location.below(relative), self.location.display(relative)
        if _is_flat(self._fs):

            def read(offset: int, length: int) -> bytes:
                return bytes(self._fs.cat_file(path, start=offset, end=offset + length))

            opened = _Open(read, size, display)
            if _protocol(self._fs) == "abfs":
                # Azure's client fetches long ranges in parts, and fails where the file grows between two of its own.
                yield _Open(lambda offset, length: b"".join(in_parts(opened, offset, length)), size, display)
            else:
                yield opened
            return
        with self._errors("read", relative):
            file = self._fs.open(path, "rb", **_open_options(self._fs))
        try:
            with self._errors("read", relative):
                reader = WebHdfsFile(file) if _protocol(self._fs) == "webhdfs" else SeekableFile(file)
                size = reader.length_now(size) if grown and self.lists_old_lengths else size
            yield _Open(reader.read, size, display)
        finally:
            # A failure to close changes nothing about what was read.
            with suppress(Exception):
                file.close()

    def read(self, relative: str, size: int, most: int = LARGEST_WHOLE) -> bytes:
        """Reads bytes from the start of a file; fewer where it ends.

        Args:
            relative: The file's path in the checkpoint.
            size: How many bytes; usually the listed size of the file.
            most: How many are allowed. A file may say that it is larger than the memory.

        Raises:
            FileNotFoundError: The file is gone.
            StateStoreFilesError: PSS_NO_PERMISSION, or PSS_READ_FAILED, also where ``size`` is more than ``most``.
        """
        if size > most:
            reason = f"it has {size} bytes, and of such a file at most {most} are read at once"
            parameters = {"action": "read", "path": self.location.display(relative), "reason": reason}
            raise StateStoreFilesError("PSS_READ_FAILED", parameters)
        with self.open(relative, size) as file:
            return file.read_at(0, size)

    def _find_flat(self, relative: str) -> list[FileInfo]:
        """One listing of a whole prefix: an object store has no directories."""
        top = self.location.below(relative)
        with self._errors("list", relative):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(top, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        start = len(self._fs._strip_protocol(top)) + 1
        # S3A marks an empty directory by an empty object with a slash at the end of its name.
        files = {path[start:]: info for path, info in found.items() if len(path) > start and not path.endswith("/")}
        return [_file_info(path, info) for path, info in files.items()]

    def _ls(self, relative: str) -> Sequence[dict[str, Any]]:
        path = self.location.below(relative).rstrip("/")
        with self._errors("list", relative):
            self._fs.invalidate_cache()
            try:
                found: Sequence[dict[str, Any]] = self._fs.ls(path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        # Object stores may have an empty object of the directory's own name. Azure's shows a directory in it twice: as
        # what others are below, and as such an object.
        own = self._fs._strip_protocol(path).rstrip("/")
        by_name = {name: info for info in found if (name := info["name"].rstrip("/")) != own}
        return list(by_name.values())

    def _errors(self, action: str, relative: str) -> AbstractContextManager[None]:
        return errors_of(action, self.location.display(relative))


def in_parallel(
    action: Callable[[Item], Result], items: Sequence[Item], threads: int = READ_PARALLELISM
) -> list[Result]:
    """Calls a function for each item, in several threads; returns the results in order, or raises the first error."""
    if len(items) < 2:
        return [action(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="pyspark-statestore") as pool:
        try:
            return list(pool.map(action, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class Readable(Protocol):
    """A file of which ranges are read."""

    def read_at(self, offset: int, length: int, /) -> bytes:
        """Reads a range; fewer bytes where the file ends."""
        ...


def in_parts(file: Readable, offset: int, length: int) -> Iterator[bytes]:
    """Reads a range that may be too large for the memory.

    Yields:
        The bytes in parts of :data:`MAX_READ`; fewer than the range has where the file ends before it does.
    """
    for start in range(offset, offset + length, MAX_READ):
        wanted = min(MAX_READ, offset + length - start)
        data = file.read_at(start, wanted)
        yield data
        if len(data) < wanted:
            return


def requests(offset: np.ndarray, length: np.ndarray, most: int = MAX_READ) -> list[int]:
    """Puts ranges that are near each other into one request.

    Args:
        offset: Where each range begins, in ascending order.
        length: Bytes of each range.
        most: Bytes that a request has at most, unless a single range is longer.

    Returns:
        The number of the range with which each request begins; and the number of ranges as the last one.
    """
    end = np.maximum.accumulate(offset + length)
    far: np.ndarray = np.append(True, offset[1:] - end[:-1] > GAP)
    begins = [0]
    at = 0
    breaks: np.ndarray = np.append(np.flatnonzero(far), len(offset))
    while at < len(offset):
        # As far as neighbours go, and not further than one request may.
        near = int(breaks[np.searchsorted(breaks, at, "right")])
        fits = at + int(np.searchsorted(end[at:near], int(offset[at]) + most, "right"))
        at = max(at + 1, min(near, fits))
        begins.append(at)
    return begins


@contextmanager
def errors_of(action: str, path: str, error_class: str = "PSS_READ_FAILED") -> Iterator[None]:
    """Turns what a file system raises into this package's errors; a file that is gone stays FileNotFoundError.

    Args:
        action: What is done, as a verb.
        path: The path to which it is done.
        error_class: The id of the error, where a missing permission is not the reason.
    """
    try:
        yield
    except (StateStoreFilesError, FileNotFoundError):
        raise
    except PermissionError as error:
        parameters = {"action": action, "path": path, "user": f"this process's user ({error})"}
        raise StateStoreFilesError("PSS_NO_PERMISSION", parameters) from error
    except Exception as error:  # file systems raise their libraries' own, such as botocore's NoCredentialsError
        parameters = {"action": action, "path": path, "reason": f"{type(error).__name__}: {first_line(error)}"}
        raise StateStoreFilesError(error_class, parameters) from error


def require_inside(directory: Directory, relative: str) -> None:
    """Refuses a path that a symbolic link leads out of the checkpoint; the checkpoint itself may be below a link.

    Args:
        directory: The checkpoint's directory. Only local disks have such links.
        relative: The path in it.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH.
    """
    if not directory.is_local or relative.startswith("/"):
        return
    root = os.path.realpath(directory.location.path)
    real = os.path.realpath(directory.location.below(relative))
    if os.path.commonpath([root, real]) != root:
        reason = f"a symbolic link in the checkpoint leads out of it, to {real}; replace the link by what it stands for"
        raise StateStoreFilesError("PSS_BAD_PATH", {"path": directory.location.display(relative), "reason": reason})


def _is_flat(fs: Any) -> bool:
    """Whether it is an object store, where each range is a request, and opening a file would ask for its size first."""
    return bool(getattr(fs, "async_impl", False))


def _protocol(fs: Any) -> str:
    return fs.protocol if isinstance(fs.protocol, str) else str(fs.protocol[0])


def _open_options(fs: Any) -> dict[str, Any]:
    """WebHDFS of fsspec reads 5 MB ahead by default."""
    return {"block_size": 1} if _protocol(fs) == "webhdfs" else {}


class _Open:
    """A file to read ranges of.

    Args:
        read: Returns a range, given its offset and its length.
        size: The size in bytes, as listed or as found out.
        display: What messages call the file.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int, display: str) -> None:
        self._read = read
        self._display = display
        self.size = size

    def read_at(self, offset: int, length: int) -> bytes:
        if not length:
            return b""
        with errors_of("read", self._display):
            return bytes(self._read(offset, length))


def _name(info: dict[str, Any]) -> str:
    return str(info["name"]).rstrip("/").rsplit("/", 1)[-1]


def _is_file(info: dict[str, Any]) -> bool:
    """Whether it is a file. One whose name is no Unicode text is not this package's, and could not be shown."""
    return info["type"] == "file" and _is_text(str(info["name"]))


def _without(is_foreign: Callable[[Collection[str]], bool], found: Sequence[FileInfo]) -> list[FileInfo]:
    """Leaves out what is in directories that are foreign, of which only the files in them tell that they are there."""
    names: dict[str, set[str]] = {}
    for info in found:
        parts = info.name.split("/")
        for depth in range(1, len(parts)):
            names.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    foreign = {folder for folder, inside in names.items() if is_foreign(inside)}
    return [info for info in found if foreign.isdisjoint(_folders_above(info.name))]


def _folders_above(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _file_info(name: str, info: dict[str, Any]) -> FileInfo:
    return FileInfo(name, int(info.get("size") or 0), _modified(info))


def _modified(info: dict[str, Any]) -> datetime.datetime | None:
    """The modification time, which every fsspec file system calls something else."""
    for key in ("mtime", "LastModified", "last_modified", "modificationTime", "updated", "created"):
        value = info.get(key)
        if isinstance(value, datetime.datetime):
            return value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
        if isinstance(value, str):
            with suppress(ValueError):
                return datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
        if isinstance(value, (int, float)):
            seconds = value / 1000 if key == "modificationTime" else value
            with suppress(ValueError, OverflowError, OSError):  # a disk may have times that no calendar has
                return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return None
