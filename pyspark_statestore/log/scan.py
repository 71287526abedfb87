"""Lists the merged files of a checkpoint and reads their indexes once, while others write and unlink files.

A scan is safe beside them because it never mixes two moments in a way that loses something. What is moved is durable
in its new file before its old one is unlinked. So a listed file that is gone when it is opened means that the scan
begins again (:func:`retry_if_gone`), and a large directory is listed twice (docs/guarantees.md, "What if a listing is
no snapshot?"). An unreadable file ends the scan: nobody concludes anything from the rest (rule 8), unless errors are
collected to tell people about them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import MergedFile, name_ending, parse_file_name, read_merged_file, split_foreign_path
from pyspark_statestore.format.layout import MERGED_DIRECTORY
from pyspark_statestore.format.reader import Group
from pyspark_statestore.log import Entries, Resolution, is_closed, resolve
from pyspark_statestore.log.nearby import hint, is_sink
from pyspark_statestore.storage.changes import is_temporary
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

if TYPE_CHECKING:
    from fsspec.callbacks import Callback

Result = TypeVar("Result")

MERGED = "state/_merged"
"""Where merged files are, in a checkpoint."""

ATTEMPTS = 10
"""How often a scan begins again because a listed file is gone; executors do it as often."""

INDEX_SUFFIX = ".index.merged"

RELOCATING_SUFFIX = ".relocating"
"""The ending of relocation markers, which are empty files: docs/guarantees.md."""

_PAGE = 400
"""So many names every file system lists at once: HDFS and S3 a thousand, a local disk as many as are in 32 KiB."""

EXPORTING_SUFFIX, EXPORTED_SUFFIX, DROPPING_SUFFIX = ".exporting", ".exported", ".dropping"
"""Files with these endings say that the state is being written back as plain files, or was: docs/migrate.md."""

_OF_A_CHECKPOINT = {"state", "offsets", "commits", "metadata", "sources"}
"""What Spark makes in a checkpoint's directory; one of them is enough."""


@dataclass(frozen=True)
class Scan:
    """What was in the merged files.

    It is what a reader of that moment would see. Entries that were added meanwhile may be in it or not.

    Attributes:
        infos: What the listing says of each merged file, by name.
        files: The indexes of the files, by name; an empty one for a file that an index-only file speaks for.
        at: When the files were listed, in UTC.
        others: What the listing says of what else this package has put there, by name: relocation markers, pins.
        errors: Why files could not be read, by name, where errors were collected; these are not in ``files``.
        checkpoint: The checkpoint's path in its file system.
    """

    infos: Mapping[str, FileInfo]
    files: Mapping[str, MergedFile]
    at: datetime.datetime
    others: Mapping[str, FileInfo] = field(default_factory=dict, repr=False)
    errors: Mapping[str, StateStoreFilesError] = field(default_factory=dict, repr=False)
    checkpoint: str = ""
    _left_out: frozenset[str] = field(default=frozenset(), repr=False)

    @cached_property
    def entries(self) -> Entries:
        """The entries of all files."""
        files = {
            name: replace(file, groups=()) if name in self._left_out else file for name, file in self.files.items()
        }
        return Entries.read(files)

    @cached_property
    def resolution(self) -> Resolution:
        """What the entries say together."""
        return resolve(self.entries)

    @property
    def covered(self) -> frozenset[str]:
        """The files that were not opened because an index-only file speaks for them."""
        return frozenset(name for name in self._left_out if not name.endswith(INDEX_SUFFIX))

    @property
    def relocation_markers(self) -> frozenset[str]:
        """The names of relocation markers."""
        return frozenset(name for name in self.others if name.endswith(RELOCATING_SUFFIX))

    @property
    def exports(self) -> list[str]:
        """The names of the files that say that the state is being written back as plain files, or was."""
        suffixes = (EXPORTING_SUFFIX, EXPORTED_SUFFIX, DROPPING_SUFFIX)
        return [name for name in self.others if name.endswith(suffixes)]

    @property
    def may_have_plain(self) -> bool:
        """Whether there may be plain state files: no header says that the checkpoint began with merging."""
        headers = (file.header for file in self.files.values())
        return not any(header is not None and header.meta.get("plain") is False for header in headers)

    @property
    def is_in_doubt(self) -> bool:
        """Whether a file has bytes that no readable group accounts for: they may refer to another checkpoint."""
        return any(not file.accounted or (file.header is None and file.size) for file in self._read_files)

    @property
    def _read_files(self) -> list[MergedFile]:
        return [file for name, file in self.files.items() if name not in self._left_out]

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each file in bytes, by name."""
        return {name: file.size for name, file in self.files.items()}

    def is_closed(self, name: str, closed_after: datetime.timedelta) -> bool:
        """Rule 7 by one clock: tells whether a file is sealed, or had not changed for so long when it was listed."""
        modified = self.infos[name].modified
        unchanged = None if modified is None else self.at - modified
        return is_closed(sealed=self.files[name].sealed, unchanged=[unchanged], closed_after=closed_after)


class ForeignFileGoneError(FileNotFoundError):
    """A file to which a reference file refers does not exist: mostly one of the checkpoint that was forked.

    Args:
        path: The file's path in its file system.
        logical_path: A logical file that has its bytes there.
    """

    def __init__(self, path: str, logical_path: str) -> None:
        super().__init__(path)
        self.path = path
        self.logical_path = logical_path

    def as_error(self, directory: Directory) -> StateStoreFilesError:
        """Returns the error for people: PSS_FOREIGN_FILE_MISSING, or PSS_MISSING_SEGMENT if it is one of its own files.

        Args:
            directory: The directory of the checkpoint that has the reference file.
        """
        if split_foreign_path(self.path)[0] == directory.location.absolute:
            where = {"path": directory.location.display(f"state/{self.logical_path}")}
            return StateStoreFilesError("PSS_MISSING_SEGMENT", {**where, "file": directory.location.display(self.path)})
        parameters = {"path": self.logical_path, "fork": directory.location.url}
        parameters["file"] = directory.location.display(self.path)
        return StateStoreFilesError("PSS_FOREIGN_FILE_MISSING", parameters)


@contextmanager
def naming_foreign(path: str, logical_path: Callable[[], str]) -> Iterator[None]:
    """Wraps the reading of a file: turns "gone" into :class:`ForeignFileGoneError` for another checkpoint's file.

    Args:
        path: The file's path, as :func:`holder` returns it.
        logical_path: Tells what is read from the file.
    """
    try:
        yield
    except FileNotFoundError as error:
        if not path.startswith("/"):
            raise
        raise ForeignFileGoneError(path, logical_path()) from error


def holder(entries: Entries, file: int, origin: int) -> str:
    """Returns the path of the file that holds a segment's bytes, for :class:`~pyspark_statestore.storage.Directory`.

    Args:
        entries: The entries of all files.
        file: What :attr:`Entries.file` says in the segment's row.
        origin: What :attr:`Entries.origin` says there.
    """
    return entries.foreign[origin - 1] if origin else f"{MERGED}/{entries.files[file]}"


def retry_if_gone(directory: Directory, read: Callable[[], Result], folder: str = MERGED) -> Result:
    """Lists and reads, and begins again where a listed file is gone when it is opened.

    Args:
        directory: The checkpoint's directory, or a sink's.
        read: Lists and reads.
        folder: Where the files are, below the directory.

    Raises:
        StateStoreFilesError: PSS_READ_FAILED after :data:`ATTEMPTS` times; PSS_FOREIGN_FILE_MISSING where a file of
            another checkpoint is gone, and the checkpoint still refers to it when it is read again; or
            PSS_MISSING_SEGMENT, of one of its own.
    """
    gone = ""
    for _ in range(ATTEMPTS):
        try:
            return read()
        except ForeignFileGoneError as error:
            if error.path == gone:
                raise error.as_error(directory) from error
            gone = error.path
        except FileNotFoundError:
            continue
    raise always_gone(directory, folder=folder)


def always_gone(directory: Directory, which: str = "listed", folder: str = MERGED) -> StateStoreFilesError:
    """Makes the error that files were gone each of :data:`ATTEMPTS` times.

    Args:
        directory: The checkpoint's directory, or a sink's.
        which: What had been done to these files, or was to be.
        folder: Where they are, below the directory.
    """
    where = directory.location.display(folder)
    reason = f"files that were {which} were gone when they were opened, {ATTEMPTS} times running"
    return StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason})


def merged_files(
    directory: Directory, *, retired: bool = False, all_pins: bool = False
) -> tuple[dict[str, FileInfo], dict[str, FileInfo]]:
    """Lists the merged files, and what else of ours is beside them; both by name, in the order of the names.

    Args:
        directory: The checkpoint's directory.
        retired: Whether merged files count even if their state was exported.
        all_pins: Whether no pin may be missed that is replaced meanwhile. Stores list by name, and the new one's comes
            later. A local disk has no order, so it is listed twice; a pin that has gone since counts as there.

    Raises:
        StateStoreFilesError: They cannot be listed.
    """
    found = _list_all(directory)
    if all_pins and directory.is_local:
        found = {name: info for name, info in found.items() if name.endswith(_PINS)} | _list_all(directory)
    listed = sorted(found.values(), key=lambda info: info.name)  # their entries are in order then
    infos = {info.name: info for info in listed if parse_file_name(info.name)}
    others = {info.name: info for info in listed if info.name not in infos}
    if not retired and any(is_retirement(name) for name in others):
        infos = {}
    return infos, others


def our_files(directory: Directory) -> list[FileInfo]:
    """Lists once what this package has put into the directory of merged files; whatever else is there is left out.

    Raises:
        StateStoreFilesError: They cannot be listed.
    """
    return _ours(directory.files(MERGED))


def _ours(listed: Iterable[FileInfo]) -> list[FileInfo]:
    return [info for info in listed if name_ending(info.name) or is_temporary(info.name)]


def is_retirement(name: str) -> bool:
    """Whether a file with this name says that the merged files do not count any more."""
    return name_ending(name) in (EXPORTED_SUFFIX, DROPPING_SUFFIX)


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
        directory: The checkpoint's directory.
        headers: Whether the files' own headers and trailers are wanted. If not, the files that an index-only file
            speaks for are not opened.
        retired: Whether merged files are wanted even if their state was exported, and plain files count instead.
        known: The files as an earlier scan has read them. A sealed one that is still listed is not read again: it
            never changes.
        collect_errors: Whether a file that cannot be read goes to :attr:`Scan.errors` instead of ending the scan. Each
            file is read as it is then: no other one makes up for a damaged index-only file, and nobody compares what
            an index-only file says with the files that it repeats.
        required: Whether the directory has to be a checkpoint's. A fork that is looked for may be gone.
        callback: Gets the number of files, and one more for each file that was read.

    Raises:
        FileNotFoundError: One was moved or deleted meanwhile: see :func:`retry_if_gone`.
        StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or the files cannot be listed; or, where
            errors are not collected, one is damaged, of a newer format, or cannot be read. Nothing is guessed then.
    """
    at = datetime.datetime.now(datetime.timezone.utc)
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
        callback.absolute_update(0)  # a scan may begin again
    files = read_all(indexes)
    covered: frozenset[str] = frozenset() if headers else _covered(files.values(), infos)
    if callback is not None and covered:
        callback.relative_update(len(covered))
    files.update(read_all([name for name in infos if name not in covered and not name.endswith(INDEX_SUFFIX)]))
    files.update({name: MergedFile(name, None, (), infos[name].size) for name in covered})
    if not collect_errors:
        _check_covered(directory, files, indexes, covered)
    # An index-only file need not repeat what was read in the files themselves.
    left_out = covered if covered else frozenset(indexes)
    return Scan(infos, files, at, beside, dict(sorted(errors.items())), directory.location.absolute, left_out)


def check_checkpoint(directory: Directory) -> None:
    """Refuses a directory that is no checkpoint's: an empty answer would hide a wrong path.

    A checkpoint without merged files is one, too.

    Raises:
        StateStoreFilesError: PSS_NOT_A_CHECKPOINT. It names the checkpoint above, or how many are below.
    """
    names = directory.names()
    if _OF_A_CHECKPOINT.isdisjoint(names):
        reason = f"it has none of {', '.join(sorted(_OF_A_CHECKPOINT))}" if names else directory.why_empty()
        if is_sink(names):
            reason = "it is a file sink"
        near = hint(directory)
        parameters = {"path": directory.location.url, "reason": reason, "hint": f"; {near}" if near else ""}
        raise StateStoreFilesError("PSS_NOT_A_CHECKPOINT", parameters)


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
    return replace(found, name=info.name, groups=tuple(_with_paths(directory, group) for group in found.groups))


def _with_paths(directory: Directory, group: Group) -> Group:
    """A reference file's group with paths for the checkpoint's own files, too: these have names in it."""
    names = group.index.names
    if not group.index.foreign or all(name.startswith("/") for name in names):
        return group
    here = directory.location.absolute.rstrip("/") + MERGED_DIRECTORY
    paths = tuple(name if name.startswith("/") else f"{here}{name}" for name in names)
    return replace(group, index=replace(group.index, names=paths))


def has_own_entries(directory: Directory, info: FileInfo) -> bool:
    """Whether a file that is named like an index-only one has entries of its own, and can be read."""
    try:
        return any(not group.trailer.index_only for group in read_file(directory, info).groups)
    except StateStoreFilesError:
        return False


_PINS = (".fork", ".own")


def _list_all(directory: Directory) -> dict[str, FileInfo]:
    """Lists once, and a large directory twice.

    A large directory is listed page by page. A segment may be copied to a new file on a page that was read already,
    and its old file unlinked before its page comes: then neither file is listed. In two listings, one after the other,
    that would have to happen twice to the same segment. A file or a relocation marker that has gone between the
    listings counts as there: whoever opens it finds that out, and begins again.
    """
    listed = directory.files(MERGED)
    first = {info.name: info for info in _ours(listed)}
    if len(listed) < _PAGE:  # pages count files that are not ours, too
        return first
    second = {info.name: info for info in our_files(directory)}
    gone = {name for name in first if parse_file_name(name) or name.endswith(RELOCATING_SUFFIX)}.difference(second)
    return second | {name: first[name] for name in gone}


def _read_checked(directory: Directory, info: FileInfo) -> MergedFile:
    file = read_file(directory, info)
    _check_kind(directory, file)
    return file


def _read_or_do_without(directory: Directory, info: FileInfo) -> MergedFile:
    """A damaged index-only file says nothing: what it repeats is read in the files themselves."""
    nothing = MergedFile(info.name, None, (), info.size)
    try:
        file = _read_checked(directory, info)
    except StateStoreFilesError as error:
        damaged = error.getErrorClass() in ("PSS_CORRUPT_INDEX", "PSS_CORRUPT_FILE")
        if info.name.endswith(INDEX_SUFFIX) and damaged and not has_own_entries(directory, info):
            return nothing
        raise
    return nothing if info.name.endswith(INDEX_SUFFIX) and not file.sealed else file


def _check_kind(directory: Directory, file: MergedFile) -> None:
    """Refuses a file whose name says that it is index-only and whose trailers do not, or the other way round.

    Raises:
        StateStoreFilesError: PSS_CORRUPT_FILE.
    """
    for group in file.groups:
        if group.trailer.index_only is not file.name.endswith(INDEX_SUFFIX):
            what = "repeats other files" if group.trailer.index_only else "holds entries of its own"
            reason = f"it {what}, and its name says otherwise: somebody has renamed it"
            where = {"file": directory.location.display(f"{MERGED}/{file.name}"), "offset": 0}
            raise StateStoreFilesError("PSS_CORRUPT_FILE", {**where, "reason": reason})


def _read_index(directory: Directory, relative: str, size: int, *, grown: bool = False) -> MergedFile:
    with directory.open(relative, size, grown=grown) as file:
        return read_merged_file(file, directory.location.display(relative))


def _check_covered(
    directory: Directory, files: Mapping[str, MergedFile], indexes: Collection[str], unopened: Collection[str]
) -> None:
    """Refuses a file that an index-only file speaks for, and that was cut off since.

    Such a file was sealed, and is as long as its segments need. Cut off, it looks like one that a killed writer left.

    Raises:
        StateStoreFilesError: PSS_CORRUPT_INDEX.
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
    """The files that exist and that an index-only file speaks for. They are sealed, so it says all that is in them."""
    named = {name for file in indexes for group in file.groups for name in group.index.names}
    return frozenset(name for name in named if name in infos and not name.endswith(INDEX_SUFFIX))
