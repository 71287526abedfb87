"""Writes and deletes below one checkpoint.

What is published appears whole or not at all, whoever dies meanwhile: it is written under a temporary name, made
durable, and renamed; on an object store a file appears when it is closed. On a local disk, or one that is mounted like
one, the file and the names that lead to it are on the disk (``fsync``) before anything is deleted on the strength of
it. A symbolic link cannot lead a write or a deletion out of the checkpoint.
"""

from __future__ import annotations

import datetime
import errno
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from fsspec.asyn import sync

from pyspark_statestore.storage.directory import Directory, errors_of, require_inside

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.TID\d+)?\.tmp")
"""Names from ``CheckpointFileManager.generateTempPath``, in the target's directory, for all managers that rename."""

_NOT_FOR_DIRECTORIES = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
"""Errors of mounted file systems, such as those over object stores, that keep directories without being asked."""


@contextmanager
def create(directory: Directory, relative: str, *, is_new: bool = True) -> Iterator[Any]:
    """Creates a file, which is durable when the block ends. A failure leaves no file, or one that was cut off.

    Args:
        directory: The checkpoint's directory.
        relative: The file's path in it; missing directories are made.
        is_new: Whether there was no file of that name. If there was, a failure leaves what there is.

    Yields:
        A binary file to write to.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION, PSS_WRITE_FAILED, or PSS_BAD_PATH where a symbolic link leads out of
            the checkpoint. What the block itself raises is passed on.
    """
    require_inside(directory, relative)
    fs, path = directory.location.fs, directory.location.below(relative)
    with _errors("write", directory, relative):
        _make_directory(directory, path.rpartition("/")[0])
        file = fs.open(path, "wb")
    try:
        yield _Sink(file, directory, relative)
    except BaseException:
        _discard(file)
        _remove_if(is_new, fs, path)
        raise
    try:
        with _errors("write", directory, relative):
            file.close()
            if directory.is_local:
                keep(path)
    except BaseException:
        _discard(file)  # or it would be sent once more when it is garbage-collected
        _remove_if(is_new, fs, path)
        raise


def _remove_if(is_new: bool, fs: Any, path: str) -> None:
    """Removes what could not be finished. On an object store, what was to be replaced is still there then."""
    if is_new:
        with suppress(Exception):
            fs.rm_file(path)


def write(directory: Directory, relative: str, data: bytes) -> None:
    """Creates a small file.

    Raises:
        StateStoreFilesError: As :func:`create`.
    """
    with create(directory, relative) as out:
        if data:
            out.write(data)


def make_directory(directory: Directory, relative: str) -> None:
    """Creates a directory and its parents, where the file system has any.

    On an object store it makes the empty object by which Hadoop's client sees an empty directory.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION, PSS_WRITE_FAILED or PSS_BAD_PATH.
    """
    require_inside(directory, relative)
    with _errors("write", directory, relative):
        path = directory.location.below(relative)
        mark = _MARKS.get(directory.protocol, _make_directory)
        mark(directory, path)


def delete(directory: Directory, relative: str) -> bool:
    """Deletes a file.

    Returns:
        Whether the file was there; True where a file system does not tell.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION, PSS_WRITE_FAILED or PSS_BAD_PATH.
    """
    # A link itself may be deleted, but nothing in a directory to which it leads.
    require_inside(directory, relative.rpartition("/")[0])
    try:
        with _errors("delete", directory, relative):
            directory.location.fs.rm_file(directory.location.below(relative))
    except FileNotFoundError:
        return False
    return True


def file_system_time(directory: Directory, folder: str) -> datetime.datetime | None:
    """Asks the file system for the time: makes an empty file, lists it, and deletes it.

    The file is named as Spark names its temporary files. One that stays after a crash goes with theirs.

    Args:
        directory: The checkpoint's or the sink's.
        folder: The folder in it where the file is made.

    Returns:
        The file's modification time; None where the file system does not know it.

    Raises:
        StateStoreFilesError: The file system fails.
    """
    name = f".clock.{uuid.uuid4()}.tmp"
    write(directory, f"{folder}/{name}", b"")
    try:
        return next((info.modified for info in directory.files(folder) if info.name == name), None)
    finally:
        delete(directory, f"{folder}/{name}")


def is_temporary(name: str) -> bool:
    """Whether a file with this name gets its own name when it is whole: one of Spark's, or of :func:`publish`."""
    return _TEMPORARY.fullmatch(name) is not None


@contextmanager
def publish(directory: Directory, relative: str, *, is_new: bool = False) -> Iterator[Any]:
    """Writes a file that appears under its name when the block ends, durably; a file that was there is replaced.

    Where renaming does not replace, as on HDFS, there is no file with that name for a moment.

    Args:
        directory: The checkpoint's directory.
        relative: The file's path in it.
        is_new: Whether no file ever had that name, so that nothing has to be deleted before.

    Yields:
        A binary file to write to.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED. What the block itself raises is passed on.
    """
    require_inside(directory, relative)
    if not is_new:
        forget_checksum(directory, relative)
    if directory.is_flat:
        with create(directory, relative, is_new=is_new) as out:
            yield out
        return
    folder, slash, name = relative.rpartition("/")
    # Named as Spark names its own: the removal of orphans finds what a crash leaves.
    temporary = f"{folder}{slash}.{name}.{uuid.uuid4()}.tmp"
    with create(directory, temporary) as out:
        yield out
    if not is_new and not directory.is_local:
        delete(directory, relative)
    _rename(directory, temporary, relative)


def create_new(directory: Directory, relative: str, data: bytes) -> bool:
    """Writes a file that appears whole under its name, and does not take the place of another one.

    On HDFS, and with old clients of object stores, a file that appears at that very moment is replaced: whoever may
    write it, too, has to be kept away.

    Args:
        directory: The checkpoint's directory, or the sink's.
        relative: The file's path in it; missing directories are made.
        data: Its contents.

    Returns:
        Whether it was written: False where there was a file of that name.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION, PSS_WRITE_FAILED or PSS_BAD_PATH.
    """
    require_inside(directory, relative)
    fs, path = directory.location.fs, directory.location.below(relative)
    folder, slash, name = relative.rpartition("/")
    if name in directory.names(folder):
        return False
    if directory.is_flat:
        with _errors("write", directory, relative):
            try:
                # Releases of fsspec's clients that do not know the mode write all the same: hence the look before.
                fs.pipe_file(path, data, mode="create")
            except FileExistsError:
                return False
        return True
    forget_checksum(directory, relative)
    temporary = f"{folder}{slash}.{name}.{uuid.uuid4()}.tmp"
    write(directory, temporary, data)
    try:
        with _errors("write", directory, relative):
            return _named(directory, directory.location.below(temporary), path)
    finally:
        delete(directory, temporary)


def _named(directory: Directory, temporary: str, path: str) -> bool:
    """Gives a file its name, if no other one has it."""
    fs = directory.location.fs
    if not directory.is_local:
        # HDFS renames nothing to a name that there is, and WebHDFS does not say so. Arrow deletes the other file then.
        if fs.exists(path):
            return False
        fs.mv(temporary, path)
        return not fs.exists(temporary)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # a mounted file system without such links
        if os.path.exists(path):
            return False
        fs.mv(temporary, path)
    keep_names(os.path.dirname(path))
    return True


def overwrite(directory: Directory, relative: str, data: bytes) -> None:
    """Gives a file new contents, without a moment in which there is no such file.

    On HDFS there may be a moment in which it is empty or cut off.

    Args:
        directory: The checkpoint's directory.
        relative: The file's path in it.
        data: The new contents.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    if directory.is_local:
        with publish(directory, relative) as out:
            out.write(data)
        return
    fs, path = directory.location.fs, directory.location.below(relative)
    # Not create(), which deletes what it could not finish.
    with errors_of("write", directory.location.display(relative), "PSS_WRITE_FAILED"), fs.open(path, "wb") as file:
        file.write(data)


def forget_checksum(directory: Directory, relative: str) -> None:
    """Deletes the checksum file that Hadoop keeps beside a file on a local disk: the file is about to change.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    if directory.is_local:
        delete(directory, hadoop_checksum_of(relative))


def hadoop_checksum_of(path: str) -> str:
    """Returns the path of the checksum file that Hadoop keeps beside a file on a local disk."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def keep(path: str) -> None:
    """Returns when a closed file and its name are on the disk.

    Raises:
        OSError: The disk does not confirm it.
    """
    _sync(path)
    keep_names(os.path.dirname(path))


def keep_names(directory: str) -> None:
    """Returns when the names of the files in a directory are on the disk.

    Raises:
        OSError: The disk does not confirm it.
    """
    try:
        _sync(directory)
    except OSError as error:
        if error.errno not in _NOT_FOR_DIRECTORIES:
            raise


def above(directory: str) -> Iterator[str]:
    """Yields the directories that get a new name when this one and its missing parents are made."""
    path = Path(directory)
    while not path.exists() and path != path.parent:
        path = path.parent
        yield str(path)


def _make_directory(directory: Directory, path: str) -> None:
    changed = list(above(path)) if directory.is_local else []
    directory.location.fs.makedirs(path, exist_ok=True)
    for parent in changed:
        keep_names(parent)


# No method of fsspec writes a name that ends with a slash, or the metadata that Azure's clients look at.


def _mark_on_s3(directory: Directory, path: str) -> None:
    s3 = directory.location.fs
    bucket, key, _ = s3.split_path(path)
    s3.call_s3("put_object", Bucket=bucket, Key=f"{key.rstrip('/')}/", Body=b"")


def _mark_on_google(directory: Directory, path: str) -> None:
    from gcsfs.core import simple_upload

    google = directory.location.fs
    bucket, key, _ = google.split_path(path)
    sync(google.loop, simple_upload, google, bucket, f"{key.rstrip('/')}/", b"")


def _mark_on_azure(directory: Directory, path: str) -> None:
    azure = directory.location.fs
    container, blob, _ = azure.split_path(path.rstrip("/"))

    async def upload() -> None:
        async with azure.service_client.get_blob_client(container=container, blob=blob) as client:
            await client.upload_blob(b"", overwrite=True, metadata={"hdi_isfolder": "true"})

    sync(azure.loop, upload)


_MARKS: Mapping[str, Callable[[Directory, str], None]] = {
    "s3": _mark_on_s3,
    "gs": _mark_on_google,
    "gcs": _mark_on_google,
    "abfs": _mark_on_azure,
}


class _Sink:
    """Turns the errors of a file system that is written to into this package's, and leaves the writer's own alone."""

    def __init__(self, file: Any, directory: Directory, relative: str) -> None:
        self._file = file
        self._directory = directory
        self._relative = relative

    def write(self, data: bytes, /) -> None:
        with _errors("write", self._directory, self._relative):
            self._file.write(data)


def _discard(file: Any) -> None:
    """Gives a file up: closed, an object store would keep what was sent so far."""
    with suppress(Exception):
        getattr(file, "discard", file.close)()
    with suppress(Exception):
        # fsspec's buffered files would send the rest when they are garbage-collected.
        file.closed = True
    with suppress(Exception):
        file.close()


def _errors(action: str, directory: Directory, relative: str) -> AbstractContextManager[None]:
    return errors_of(action, directory.location.display(relative), "PSS_WRITE_FAILED")


def _rename(directory: Directory, source: str, target: str) -> None:
    location = directory.location
    try:
        with errors_of("write", location.display(target), "PSS_WRITE_FAILED"):
            if directory.is_local and location.fs.isdir(location.below(target)):
                raise IsADirectoryError("there is a directory of this name")  # moving would put the file into it
            location.fs.mv(location.below(source), location.below(target))
            if directory.is_local:
                keep_names(location.below(target).rpartition("/")[0])
    except Exception:
        delete(directory, source)
        raise


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
