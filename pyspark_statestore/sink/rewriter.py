"""What a sink needs of Spark: to plan and join files, and to put a new file of the list in the place of an old one.

It calls the jar (``SinkRewrite``) in the driver of a running session; the files are joined by Spark's tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.session.jvm import call_static, check_loaded, check_running, jar_missing, loaded_jar
from pyspark_statestore.sink.file_list import Entry, ListPart, path_below
from pyspark_statestore.storage.directory import Directory, in_parallel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


_TEXTS = frozenset({"json", "csv", "text", "xml"})
"""Formats whose files are copied byte by byte, whatever is in them."""


@dataclass(frozen=True)
class New:
    """A file that was made of others, before it is listed."""

    url: str
    size: int
    replication: int
    block_size: int


@dataclass(frozen=True)
class Joined:
    """What became of the files of a bin.

    Attributes:
        made: What was made of those that were joined.
        left: Those that were not, by their places in the bin, and why.
    """

    made: Sequence[New]
    left: Mapping[int, str]


class Rewriter:
    """What Spark does for a sink: it plans, joins and lists.

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
        numbers = self._call("plan", ("java.lang.String", _text(_named(entries))), ("java.lang.String", str(target)))
        return [[entries[int(number)] for number in line.split()] for line in str(numbers).splitlines()]

    def join(
        self, format: str, options: Mapping[str, str], bins: Sequence[Sequence[Entry]], attempt: str
    ) -> list[Joined]:
        """Joins what :meth:`plan` has said; nothing lists the new files yet.

        Args:
            format: Of the files.
            options: Of the query's writer.
            bins: The plan, which is never made twice.
            attempt: Sixteen digits, which the names of all new files have in common.
        """
        lines = [f"{number} {entry.url} {entry.size}" for number, entries in enumerate(bins) for entry in entries]
        found = self._make("join", format, options, "\n".join(lines), attempt)
        return [
            Joined(
                [New(new["path"], new["size"], new["replication"], new["block_size"]) for new in joined["made"]],
                {left["file"]: left["why"] for left in joined["left"]},
            )
            for joined in json.loads(found)
        ]

    def publish(
        self,
        format: str,
        options: Mapping[str, str],
        files: Sequence[tuple[str, int]],
        target: int,
        schema: str,
        attempt: str,
    ) -> list[New]:
        """Joins files that wait, given by URL and size, in their final places; nothing lists the new files yet.

        The names of those that are made have the attempt in common, as of :meth:`join`.
        """
        made = self._make("publish", format, options, _text(files), str(target), schema, attempt)
        lines = [line.split(" ") for line in made.splitlines()]
        return [New(url, *map(int, figures)) for url, *figures in lines]

    def _make(self, method: str, format: str, options: Mapping[str, str], *texts: str) -> str:
        given = self._jvm.java.util.HashMap()
        for key, value in options.items():
            given.put(str(key), str(value))
        found = self._call(
            method,
            ("java.lang.String", format),
            ("java.util.Map", given),
            *(("java.lang.String", text) for text in texts),
            with_session=True,
        )
        return str(found)

    def replace_list(self, name: str, text: str) -> None:
        """Puts a new file of the list in the place of an old one."""
        self._call("replaceList", ("java.lang.String", name), ("java.lang.String", text), with_session=True)

    def _call(self, method: str, *arguments: tuple[str, Any], with_session: bool = False) -> Any:
        from py4j.protocol import Py4JJavaError

        sink = ("java.lang.String", self._directory.location.exact_url)
        session = [("org.apache.spark.sql.SparkSession", self._session)] if with_session else []
        try:
            return call_static(self._jvm, self._class, method, *session, sink, *arguments)
        except Py4JJavaError as error:
            where = self._directory.location.display()
            parameters = {"path": where, "reason": _reason(error.java_exception)}
            raise StateStoreFilesError("PSS_SINK_REWRITE_FAILED", parameters) from error


def _named(entries: Sequence[Entry]) -> list[tuple[str, int]]:
    return [(entry.url, entry.size) for entry in entries]


def _text(files: Sequence[tuple[str, int]]) -> str:
    return "\n".join(f"{url} {size}" for url, size in files)


def _reason(thrown: Any) -> str:
    """What the innermost cause says, which is what went wrong."""
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    return str(thrown.getMessage() or thrown.getClass().getName()).strip().partition("\n")[0].rstrip(".")


def format_of(directory: Directory, given: str | None, names: Iterable[str]) -> str:
    """The format of files: the given one, or what all their names tell."""
    found = {_FORMATS[word] for name in names for word in name.rpartition("/")[2].split(".")[1:] if word in _FORMATS}
    # Byte by byte, files of other formats would be joined to what nobody can read.
    # Text may hold anything; what is named as CSV has headers, and what is named as XML a root.
    if given is not None and (given not in _TEXTS or found <= {given, "text"}):
        return given
    if len(found) != 1 or given is not None:
        allowed = (
            f"the format of the files of {directory.location.display()}, of which their names tell {sorted(found)}"
        )
        raise not_allowed("format", given, allowed)
    return found.pop()


def check_options(format: str, options: Mapping[str, str]) -> None:
    """Only the query knows whether its CSV has a header: joined wrongly, headers would be rows."""
    if format == "csv" and not any(key.lower() == "header" for key in options):
        raise not_allowed("options", dict(options), "for CSV, the query's header: {'header': 'true'} or 'false'")


def look_at(directory: Directory, part: ListPart, made: Sequence[New]) -> None:
    """Makes sure that new files are still there before a list names them: joining may have taken hours."""
    below = path_below(directory)
    names = [below(new.url) for new in made]
    folders = sorted({name.rpartition("/")[0] for name in names})
    found = zip(folders, in_parallel(directory.files, folders), strict=True)
    there = {f"{folder}/{info.name}".lstrip("/"): info.size for folder, infos in found for info in infos}
    for name, new in zip(names, made, strict=True):
        if there.get(name) != new.size:
            size = there.get(name)
            what = "is not there any more" if size is None else f"has {size} bytes instead of {new.size}"
            reason = f"{name}, which was made for {part.info.name}, {what}"
            parameters = {"path": directory.location.display(), "reason": reason}
            raise StateStoreFilesError("PSS_SINK_REWRITE_FAILED", parameters)
