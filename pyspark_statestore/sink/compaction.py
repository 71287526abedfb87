"""Compaction of what a sink has listed already: joins small files, and names the new ones in the list in their place.

    1. Spark's tasks join small files of one partition value; rows or bytes are counted on the way.
    2. A note in ``_replaced`` says which files will not be listed any more.
    3. The file of Spark's list that named them is replaced at once by one that names the new files.

Readers are not harmed: one that has the old list finds the old files, since these stay until
:mod:`~pyspark_statestore.sink.orphans` removes them, and one that begins later finds the new files. Whatever dies
leaves files that no list names.

A running query may repeat the old list in a new ``.compact`` at the same moment. Then the old files stay listed and
the new ones are left over: nothing is lost, and the next compaction does the work.

**A stream that reads the sink** takes a new file for new rows, unless the file is older than the newest one that it has
seen by more than ``maxFileAge`` (7 days; Spark: ``FileStreamSource.SeenFilesMap``). So only files are joined that are
older than the sink's newest file by more than ``older_than``, and a new file is listed with the time of the newest that
it was made of.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.session.jvm import call_static, check_loaded, check_running, jar_missing, loaded_jar
from pyspark_statestore.sink.file_list import LIST, Entry, ListPart, display, new_line, parse, read_list, text_of
from pyspark_statestore.storage.changes import write
from pyspark_statestore.storage.directory import Directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLACED = "_replaced"
"""The directory of the notes that say which files are not listed any more. No reader looks there."""

LEAST_TARGET = 1024
"""Bytes; the same as of ``targetFileSize``."""

_FORMATS = {
    "parquet": "parquet",
    "orc": "orc",
    "json": "json",
    "csv": "csv",
    "txt": "text",
    "avro": "avro",
    "xml": "xml",
}
"""By the endings of names, before which the compression may stand."""

_REWRITE = "io.pyspark.statestore.sink.SinkRewrite"


@dataclass(frozen=True)
class SinkCompaction:
    """What a compaction of a sink did, or would do.

    Attributes:
        rewritten_data_files_count: Files that were joined. They stay until orphans are removed.
        added_data_files_count: Files that were made of them; in a dry run, about so many.
        rewritten_bytes_count: Size of the joined files, in bytes.
        added_bytes_count: Size of the new files, in bytes; None in a dry run.
        files: The joined files: ``file_path``, ``file_size_in_bytes``, and ``listed_in``, the file of Spark's list.
        dry_run: Whether nothing was changed.
    """

    rewritten_data_files_count: int
    added_data_files_count: int
    rewritten_bytes_count: int
    added_bytes_count: int | None
    files: pa.Table = field(repr=False)
    dry_run: bool


def compact(
    directory: Directory,
    *,
    target_file_size: int,
    older_than: datetime.timedelta,
    format: str | None,
    options: Mapping[str, str],
    dry_run: bool,
    spark: SparkSession | None,
) -> SinkCompaction:
    """Implements :meth:`pyspark_statestore.sink.sink.Sink.compact`."""
    if not isinstance(target_file_size, int) or target_file_size < LEAST_TARGET:
        raise not_allowed("target_file_size", target_file_size, f"a number of bytes of at least {LEAST_TARGET}")
    if older_than < datetime.timedelta(0):
        raise not_allowed("older_than", older_than, "a datetime.timedelta of 0 or more")
    parts = read_list(directory)
    jvm = _Rewriter(directory, spark)
    newest = max((entry.modified_ms for part in parts for entry in part.entries), default=0)
    before = newest - older_than / datetime.timedelta(milliseconds=1)
    works = []
    for part in parts:
        old = [entry for entry in part.entries if entry.relative and entry.modified_ms <= before]
        bins = jvm.plan(old, target_file_size)
        if bins:
            works.append(_Work(part, bins))
    added, added_bytes = sum(len(work.bins) for work in works), None
    if works and not dry_run:
        named = _format(directory, format, [entry for work in works for entry in work.joined])
        _check_options(named, options)
        made = [made for work in works for made in work.do(directory, jvm, named, options, target_file_size)]
        added, added_bytes = len(made), sum(each.size for each in made)
    joined = [(work.part.info.name, entry) for work in works for entry in work.joined]
    sizes = [entry.size for _, entry in joined]
    table = pa.table(
        {
            "file_path": pa.array([display(directory, entry) for _, entry in joined], pa.string()),
            "file_size_in_bytes": pa.array(sizes, pa.int64()),
            "listed_in": pa.array([name for name, _ in joined], pa.string()),
        }
    )
    return SinkCompaction(len(joined), added, sum(sizes), 0 if not works else added_bytes, table, dry_run)


@dataclass(frozen=True)
class _New:
    """A file that was made of others, before it is listed."""

    url: str
    size: int
    replication: int
    block_size: int
    bin: int


@dataclass(frozen=True)
class _Work:
    """What is to be joined of one file of the list."""

    part: ListPart
    bins: Sequence[Sequence[Entry]]

    @property
    def joined(self) -> list[Entry]:
        return [entry for entries in self.bins for entry in entries]

    def do(
        self, directory: Directory, jvm: _Rewriter, format: str, options: Mapping[str, str], target: int
    ) -> list[_New]:
        made = jvm.join(format, options, self.joined, target)
        gone = {entry.url for entry in self.joined}
        lines = [entry.line for entry in self.part.entries if entry.url not in gone]
        for each in made:
            newest = max(entry.modified_ms for entry in self.bins[each.bin])
            lines.append(new_line(each.url, each.size, newest, each.replication, each.block_size))
        self._check_unchanged(directory)
        note = {"list": self.part.info.name, "replaced": [entry.relative for entry in self.joined]}
        write(directory, f"{REPLACED}/{uuid.uuid4()}.json", json.dumps(note).encode())
        jvm.replace_list(self.part.info.name, text_of(lines))
        return made

    def _check_unchanged(self, directory: Directory) -> None:
        """The query may have repeated the list meanwhile, or another compaction may have replaced it."""
        now = next((info for info in directory.files(LIST) if info.name == self.part.info.name), None)
        is_current = self.part.info.name in {part.info.name for part in read_list(directory)}
        if now is not None and is_current:
            data = directory.read(f"{LIST}/{now.name}", now.size)
            if parse(directory, now.name, data) == self.part.entries:
                return
        where = directory.location.display(f"{LIST}/{self.part.info.name}")
        raise StateStoreFilesError("PSS_SINK_LIST_CHANGED", {"file": where})


class _Rewriter:
    """What Spark does for a compaction.

    Args:
        directory: The sink's.
        spark: The session; the active one if not given.
    """

    def __init__(self, directory: Directory, spark: SparkSession | None) -> None:
        from pyspark.sql import SparkSession

        session = spark or SparkSession.getActiveSession()
        action = "Start one with configure(builder), or attach(spark) to one, and give it as spark="
        if session is None:
            reason = "Joining files of a sink needs a Spark session, and none is active"
            raise StateStoreFilesError("PSS_SPARK_NOT_RUNNING", {"reason": reason, "action": action})
        check_running(session, why_not_connect="and files of sinks are joined in the driver", action=action)
        self._jvm: Any = session.sparkContext._jvm
        self._session: Any = session._jsparkSession
        self._directory = directory
        loader = self._session.sharedState().jarClassLoader()
        loaded = loaded_jar(self._jvm, loader)
        if loaded is None:
            raise jar_missing("the session was started without the jar", action)
        check_loaded(loaded, session.version)
        self._class = loader.loadClass(_REWRITE)

    def plan(self, entries: Sequence[Entry], target: int) -> list[list[Entry]]:
        """Which of the files become one file each."""
        numbers = self._call("plan", ("java.lang.String", _text(entries)), ("java.lang.String", str(target)))
        return [[entries[int(number)] for number in line.split()] for line in str(numbers).splitlines()]

    def join(self, format: str, options: Mapping[str, str], entries: Sequence[Entry], target: int) -> list[_New]:
        """Joins what :meth:`plan` has said; nothing lists the new files yet."""
        given = self._jvm.java.util.HashMap()
        for key, value in options.items():
            given.put(str(key), str(value))
        found = self._call(
            "join",
            ("java.lang.String", format),
            ("java.util.Map", given),
            ("java.lang.String", _text(entries)),
            ("java.lang.String", str(target)),
            with_session=True,
        )
        made = [line.split(" ") for line in str(found).splitlines()]
        return [_New(url, *map(int, figures)) for url, *figures in made]

    def replace_list(self, name: str, text: str) -> None:
        """Puts a new file of the list in the place of an old one."""
        self._call("replaceList", ("java.lang.String", name), ("java.lang.String", text), with_session=True)

    def _call(self, method: str, *arguments: tuple[str, Any], with_session: bool = False) -> Any:
        from py4j.protocol import Py4JJavaError

        sink = ("java.lang.String", self._directory.location.url)
        session = [("org.apache.spark.sql.SparkSession", self._session)] if with_session else []
        try:
            return call_static(self._jvm, self._class, method, *session, sink, *arguments)
        except Py4JJavaError as error:
            where = self._directory.location.display()
            parameters = {"path": where, "reason": _reason(error.java_exception)}
            raise StateStoreFilesError("PSS_SINK_REWRITE_FAILED", parameters) from error


def _text(entries: Sequence[Entry]) -> str:
    return "\n".join(f"{entry.url} {entry.size}" for entry in entries)


def _reason(thrown: Any) -> str:
    """What the innermost cause says, which is what went wrong."""
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    return str(thrown.getMessage() or thrown.getClass().getName()).strip().partition("\n")[0].rstrip(".")


def _format(directory: Directory, given: str | None, entries: Sequence[Entry]) -> str:
    if given is not None:
        return given
    found = {_FORMATS[word] for entry in entries for word in _endings(entry) if word in _FORMATS}
    if len(found) != 1:
        allowed = (
            f"the format of the files of {directory.location.display()}, of which their names tell {sorted(found)}"
        )
        raise not_allowed("format", given, allowed)
    return found.pop()


def _endings(entry: Entry) -> list[str]:
    return entry.relative.rpartition("/")[2].split(".")[1:]


def _check_options(format: str, options: Mapping[str, str]) -> None:
    """Only the query knows whether its CSV has a header: joined wrongly, headers would be rows."""
    if format == "csv" and not any(key.lower() == "header" for key in options):
        raise not_allowed("options", dict(options), "for CSV, the query's header: {'header': 'true'} or 'false'")
