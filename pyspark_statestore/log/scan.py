"""One look at the merged files of a checkpoint that others write and unlink at the same time."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import MergedFile, parse_file_name, read_merged_file
from pyspark_statestore.log import Entries, Resolution, is_closed, resolve
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

if TYPE_CHECKING:
    from fsspec.callbacks import Callback

Result = TypeVar("Result")

MERGED = "state/_merged"
"""Where merged files are, in a checkpoint."""

ATTEMPTS = 10
"""How often a scan begins again because a file that was listed is gone; as executors do."""

INDEX_SUFFIX = ".index.merged"

RELOCATING_SUFFIX = ".relocating"
"""Empty files of this ending announce relocations: docs/guarantees.md."""

_PAGE = 400
"""Names that every file system lists at once: HDFS and S3 a thousand, a local disk as many as are in 32 KiB."""

EXPORTING_SUFFIX, EXPORTED_SUFFIX, DROPPING_SUFFIX = ".exporting", ".exported", ".dropping"
"""Files of these endings say that the state is being, or was, written back as plain files: docs/migrate.md."""

_OF_A_CHECKPOINT = {"state", "offsets", "commits", "metadata", "sources"}
"""What Spark makes in a checkpoint's directory; any of it will do."""


@dataclass(frozen=True)
class Scan:
    """What was in the merged files.

    It is what a reader of that moment would see: whatever was moved or unlinked meanwhile makes it begin again, and
    facts that were added meanwhile may be in it or not.

    Attributes:
        infos: Of all merged files, by name, as listed.
        files: Their indexes, by name; empty ones of files that an index-only file speaks for.
        at: When the files were listed, in UTC.
        others: Of everything else in the directory, by name: announcements of relocations, what does not belong there.
        errors: Why other files could not be read, by name, where errors were collected; they are not in ``files``.
    """

    infos: Mapping[str, FileInfo]
    files: Mapping[str, MergedFile]
    at: datetime.datetime
    others: Mapping[str, FileInfo] = field(default_factory=dict, repr=False)
    errors: Mapping[str, StateStoreFilesError] = field(default_factory=dict, repr=False)
    _left_out: frozenset[str] = field(default=frozenset(), repr=False)

    @cached_property
    def entries(self) -> Entries:
        """All facts."""
        files = {
            name: replace(file, groups=()) if name in self._left_out else file for name, file in self.files.items()
        }
        return Entries.read(files)

    @cached_property
    def resolution(self) -> Resolution:
        """What the facts say together."""
        return resolve(self.entries)

    @property
    def covered(self) -> frozenset[str]:
        """Files that were not opened, because an index-only file speaks for them."""
        return frozenset(name for name in self._left_out if not name.endswith(INDEX_SUFFIX))

    @property
    def relocation_markers(self) -> frozenset[str]:
        """Announcements of relocations."""
        return frozenset(name for name in self.others if name.endswith(RELOCATING_SUFFIX))

    @property
    def exports(self) -> list[str]:
        """Files that say that the state is being written back as plain files, or was."""
        suffixes = (EXPORTING_SUFFIX, EXPORTED_SUFFIX, DROPPING_SUFFIX)
        return [name for name in self.others if name.endswith(suffixes)]

    @property
    def may_have_plain(self) -> bool:
        """Whether there may be state files that are not merged: the checkpoint was not begun with merging."""
        headers = (file.header for file in self.files.values())
        return not any(header is not None and header.meta.get("plain") is False for header in headers)

    @property
    def is_in_doubt(self) -> bool:
        """Whether a file has bytes that no readable group accounts for: it may have been one that refers elsewhere."""
        return any(not file.accounted or (file.header is None and file.size) for file in self._read_files)

    @property
    def _read_files(self) -> list[MergedFile]:
        return [file for name, file in self.files.items() if name not in self._left_out]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file."""
        return {name: file.size for name, file in self.files.items()}

    def is_closed(self, name: str, closed_after: datetime.timedelta) -> bool:
        """Tells whether nobody appends to a file any more, as far as one look at the file system's clock tells."""
        modified = self.infos[name].modified
        unchanged = None if modified is None else self.at - modified
        return is_closed(sealed=self.files[name].sealed, unchanged=[unchanged], closed_after=closed_after)


class ForeignFileGoneError(FileNotFoundError):
    """A file of another checkpoint, which a fork refers to, does not exist.

    Args:
        path: Of the file, in its file system.
        logical_path: What of the state is in it.
    """

    def __init__(self, path: str, logical_path: str) -> None:
        super().__init__(path)
        self.path = path
        self.logical_path = logical_path

    def as_error(self, directory: Directory) -> StateStoreFilesError:
        """As people are told.

        Args:
            directory: Of the fork.
        """
        parameters = {"path": self.logical_path, "fork": directory.location.url}
        parameters["file"] = directory.location.display(self.path)
        return StateStoreFilesError("PSS_FOREIGN_FILE_MISSING", parameters)


@contextmanager
def naming_foreign(path: str, logical_path: Callable[[], str]) -> Iterator[None]:
    """Around reading segments: tells a foreign file that is gone from one of the checkpoint's own.

    Args:
        path: Of the file; see :func:`holder`.
        logical_path: Tells what is read from it.
    """
    try:
        yield
    except FileNotFoundError as error:
        if not path.startswith("/"):
            raise
        raise ForeignFileGoneError(path, logical_path()) from error


def holder(entries: Entries, file: int, origin: int) -> str:
    """The path of what holds a segment's bytes, as :class:`~pyspark_statestore.storage.Directory` takes it.

    Args:
        entries: Of all files.
        file: Number of the file that a row is about.
        origin: Of the row.
    """
    return entries.foreign[origin - 1] if origin else f"{MERGED}/{entries.files[file]}"


def retry_if_gone(directory: Directory, look: Callable[[], Result]) -> Result:
    """Looks, and begins again as often as a file that was listed is gone when it is opened.

    Args:
        directory: Of the checkpoint.
        look: Lists and reads.

    Raises:
        StateStoreFilesError: PSS_READ_FAILED where that does not end; PSS_FOREIGN_FILE_MISSING where a look that began
            after a file of another checkpoint was found to be gone still refers to it.
    """
    gone = ""
    for _ in range(ATTEMPTS):
        try:
            return look()
        except ForeignFileGoneError as error:
            if error.path == gone:
                raise error.as_error(directory) from error
            gone = error.path
        except FileNotFoundError:
            continue
    raise always_gone(directory)


def always_gone(directory: Directory, which: str = "listed") -> StateStoreFilesError:
    """The error that :data:`ATTEMPTS` of looking have all met files that were gone.

    Args:
        directory: Of the checkpoint.
        which: What had been done to these files, or was to be.
    """
    where = directory.location.display(MERGED)
    reason = f"files that were {which} were gone when they were opened, {ATTEMPTS} times running"
    return StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason})


def merged_files(directory: Directory, *, retired: bool = False) -> tuple[dict[str, FileInfo], dict[str, FileInfo]]:
    """Lists merged files, and what else is in their directory; by name, in the order of their names.

    Args:
        directory: Of the checkpoint.
        retired: Whether merged files count though their state was exported.

    Raises:
        StateStoreFilesError: They cannot be listed.
    """
    found = _list_all(directory)
    listed = sorted(found.values(), key=lambda info: info.name)  # their facts are in order then
    infos = {info.name: info for info in listed if parse_file_name(info.name)}
    others = {info.name: info for info in listed if info.name not in infos}
    if not retired and any(is_retirement(name) for name in others):
        infos = {}
    return infos, others


def _list_all(directory: Directory) -> dict[str, FileInfo]:
    """Lists once, and a large directory twice.

    That is listed page by page. What is copied to a new file on a page that has been read, and unlinked on one that is
    still to come, is on neither. In two listings, one after the other, it would have to be moved so twice. Files and
    announcements that have gone between them count as there: whoever opens one finds that out, and looks again.
    """
    first = {info.name: info for info in directory.files(MERGED)}
    if len(first) < _PAGE:
        return first
    second = {info.name: info for info in directory.files(MERGED)}
    gone = {name for name in first if parse_file_name(name) or name.endswith(RELOCATING_SUFFIX)}.difference(second)
    return second | {name: first[name] for name in gone}


def is_retirement(name: str) -> bool:
    """Whether a file of this name says that the merged ones do not count any more."""
    return name.endswith((EXPORTED_SUFFIX, DROPPING_SUFFIX))


def scan(
    directory: Directory,
    *,
    headers: bool = True,
    retired: bool = False,
    known: Mapping[str, MergedFile] = MappingProxyType({}),
    collect_errors: bool = False,
    required: bool = True,
    callback: Callback | None = None,
) -> Scan:
    """Reads the index of every merged file, several at a time.

    Args:
        directory: Of the checkpoint.
        known: Files as an earlier scan has read them. Of these, sealed ones that are still listed are not read again:
            they never change.
        headers: Whether the files' own headers and trailers are wanted. Where not, files that an index-only file speaks
            for are not opened.
        retired: Whether merged files are wanted though their state was exported: others read the plain files then.
        collect_errors: Whether a file that cannot be read goes to :attr:`Scan.errors` instead of ending the scan. Each
            file is read as it is then: no other one makes up for a damaged index-only file, and nobody compares what
            an index-only file says with the files that it repeats.
        required: Whether the directory has to be a checkpoint's. A fork that is looked for may be gone.
        callback: Told how many files there are, and of each that was read.

    Raises:
        FileNotFoundError: One was moved or deleted meanwhile: see :func:`retry_if_gone`.
        StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or the files cannot be listed; or, where
            errors are not collected, one is damaged, of a newer format, or cannot be read. Nothing is guessed then.
    """
    at = datetime.datetime.now(datetime.UTC)
    infos, beside = merged_files(directory, retired=retired)
    if required and not infos and not beside:
        check_checkpoint(directory)
    errors: dict[str, StateStoreFilesError] = {}

    def read(name: str) -> MergedFile | None:
        earlier = known.get(name)
        if earlier is not None and earlier.sealed and earlier.size == infos[name].size:
            file: MergedFile | None = earlier
        elif collect_errors:
            try:
                file = _read_checked(directory, infos[name])
            except StateStoreFilesError as error:
                errors[name], file = error, None
        else:
            file = _read_or_do_without(directory, infos[name])
        if callback is not None:
            callback.relative_update(1)
        return file

    def read_all(names: Sequence[str]) -> dict[str, MergedFile]:
        found = zip(names, in_parallel(read, names), strict=True)
        return {name: file for name, file in found if file is not None}

    indexes = [name for name in infos if name.endswith(INDEX_SUFFIX)]
    if callback is not None:
        callback.set_size(len(infos))
        callback.absolute_update(0)  # a look may begin again
    files = read_all(indexes)
    covered: frozenset[str] = frozenset() if headers else _covered(files.values(), infos)
    if callback is not None and covered:
        callback.relative_update(len(covered))
    files.update(read_all([name for name in infos if name not in covered and not name.endswith(INDEX_SUFFIX)]))
    files.update({name: MergedFile(name, None, (), infos[name].size) for name in covered})
    if not collect_errors:
        _check_covered(directory, files, indexes, covered)
    # What is read of a file itself need not be heard again from an index-only file.
    left_out = covered if covered else frozenset(indexes)
    return Scan(infos, files, at, beside, dict(sorted(errors.items())), left_out)


def check_checkpoint(directory: Directory) -> None:
    """A checkpoint without merged files is one, too; anything else is a mistake that no empty answer may hide.

    Raises:
        StateStoreFilesError: PSS_NOT_A_CHECKPOINT.
    """
    names = directory.names()
    if _OF_A_CHECKPOINT.isdisjoint(names):
        there = f"it has none of {', '.join(sorted(_OF_A_CHECKPOINT))}"
        reason = there if names else "it does not exist or is empty"
        raise StateStoreFilesError("PSS_NOT_A_CHECKPOINT", {"path": directory.location.url, "reason": reason})


def read_file(directory: Directory, info: FileInfo) -> MergedFile:
    """Reads the index of one merged file.

    Raises:
        FileNotFoundError: It is gone.
        StateStoreFilesError: It is damaged, of a newer format, or cannot be read.
    """
    relative = f"{MERGED}/{info.name}"
    found = _read_index(directory, relative, info.size)
    if not found.sealed and directory.lists_old_lengths:
        found = _read_index(directory, relative, info.size, grown=True)
    return replace(found, name=info.name)


def _read_checked(directory: Directory, info: FileInfo) -> MergedFile:
    file = read_file(directory, info)
    _check_kind(directory, file)
    return file


def _read_or_do_without(directory: Directory, info: FileInfo) -> MergedFile:
    """An index-only file that is damaged says nothing: what it repeats is read of the files themselves."""
    nothing = MergedFile(info.name, None, (), info.size)
    try:
        file = _read_checked(directory, info)
    except StateStoreFilesError as error:
        damaged = error.getErrorClass() in ("PSS_CORRUPT_INDEX", "PSS_CORRUPT_FILE")
        if info.name.endswith(INDEX_SUFFIX) and damaged and not has_facts(directory, info):
            return nothing
        raise
    return nothing if info.name.endswith(INDEX_SUFFIX) and not file.sealed else file


def _check_kind(directory: Directory, file: MergedFile) -> None:
    """Index-only files are known from their names; one that has another's name has changed places with it.

    Raises:
        StateStoreFilesError: PSS_CORRUPT_FILE.
    """
    for group in file.groups:
        if group.trailer.index_only is not file.name.endswith(INDEX_SUFFIX):
            what = "repeats other files" if group.trailer.index_only else "holds facts of its own"
            reason = f"it {what}, and its name says otherwise: somebody has renamed it"
            where = {"file": directory.location.display(f"{MERGED}/{file.name}"), "offset": 0}
            raise StateStoreFilesError("PSS_CORRUPT_FILE", {**where, "reason": reason})


def has_facts(directory: Directory, info: FileInfo) -> bool:
    """Whether a file can be read that is named like an index-only one and is none."""
    try:
        return any(not group.trailer.index_only for group in read_file(directory, info).groups)
    except StateStoreFilesError:
        return False


def _read_index(directory: Directory, relative: str, size: int, *, grown: bool = False) -> MergedFile:
    with directory.open(relative, size, grown=grown) as file:
        return read_merged_file(file, directory.location.display(relative))


def _check_covered(
    directory: Directory, files: Mapping[str, MergedFile], indexes: Collection[str], unopened: Collection[str]
) -> None:
    """Files that an index-only file speaks for were sealed, and are as long as their segments need.

    Raises:
        StateStoreFilesError: PSS_CORRUPT_INDEX. A killed writer may leave what such a file looks like that was cut off.
    """
    for index in indexes:
        for group in files[index].groups:
            ends = group.index.ends_by_file
            for name, end in zip(group.index.names, ends, strict=True):
                if name not in files or (files[name].sealed if name not in unopened else files[name].size >= end):
                    continue
                reason = f"it was sealed, as {index} says, and was cut off since"
                where = {"file": directory.location.display(f"{MERGED}/{name}"), "offset": files[name].size}
                raise StateStoreFilesError("PSS_CORRUPT_INDEX", {**where, "reason": reason})


def _covered(indexes: Collection[MergedFile], infos: Mapping[str, FileInfo]) -> frozenset[str]:
    """Files that exist and that an index-only file speaks for, the whole of them: only closed ones are taken in."""
    named = {name for file in indexes for group in file.groups for name in group.index.names}
    return frozenset(name for name in named if name in infos and not name.endswith(INDEX_SUFFIX))
