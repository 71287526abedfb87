"""State that is written anew, in a session that is right for the checkpoint, whichever door its query uses.

Spark knows for every operator which key belongs into which partition. ``reshape`` of the shim asks it, and moves the
rows. Spark says so of its own RocksDB class only. State of the provider door is therefore given to it by the merged
path, and ``fs`` of the shim shows it the offset log with that class (``SparksProviders``). All of this is set in a
clone of the caller's session, which keeps its settings and its temporary views.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_statestore._version import __version__
from pyspark_statestore.conf import OPTIONS
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.paths import MERGED_PREFIX
from pyspark_statestore.session.doors import (
    FILE_MANAGER_KEY,
    MERGED_FILE_MANAGER,
    OWN_FILE_MANAGER_KEY,
    SHIM_VERSION_KEY,
    SUPPORTED_SPARK,
    file_system_settings,
    spark_minor,
)
from pyspark_statestore.session.jvm import (
    call_static,
    check_loaded,
    check_running,
    is_running,
    jar_missing,
    loaded_jar,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_statestore.storage import Directory

FIRST_SPARK = "4.3"
"""The first minor version of Spark whose repartitioning is used."""

_SHOW_KEY = "io.pyspark.statestore.showSparksProviders"
_FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_REWRITER = "io.pyspark.statestore.reshape.StateRewrite"

Refuse = Callable[[str, str], StateStoreFilesError]
"""Makes an error of the checkpoint's URL and a reason."""

StoreName = tuple[int, str]
"""A store of a query, as (operator id, store name)."""

_NOT_QUOTED = re.compile(r"[A-Za-z0-9_\-!.~'()*,;:$&+=@/]")

_ACTION = "Start one with configure(builder), or attach(spark) to one, and give it as spark="


def quoted_in(path: str) -> list[str]:
    """The characters of a path that Hadoop's URIs of it have as ``%20`` and the like, each once, in their order."""
    return [each for each in dict.fromkeys(path) if _is_quoted(each)]


def _is_quoted(character: str) -> bool:
    if character.isascii():
        return not _NOT_QUOTED.match(character)
    # java.net.URI leaves all other letters alone but spaces and control characters.
    return unicodedata.category(character) in ("Zs", "Zl", "Zp", "Cc")


def check_location(directory: Directory, refuse: Refuse | None = None) -> None:
    """Refuses a checkpoint that Spark's reader of state does not find.

    It makes a text of the URI of its path, and a path of that text, which it quotes once more.

    Raises:
        StateStoreFilesError: What ``refuse`` makes; PSS_CANNOT_REPARTITION if not given.
    """
    if quoted := quoted_in(directory.location.absolute):
        reason = (
            f"Spark's reader of state opens no checkpoint whose path has {' or '.join(map(repr, quoted))} in it. "
            "Rename the directory while the query is stopped, do it there, and rename it back"
        )
        raise (refuse or cannot)(directory.location.url, reason)


@dataclass(frozen=True)
class Rewrite:
    """What is to be written anew.

    Attributes:
        batch: The batch that left the state.
        provider: Spark's class that keeps it.
        next_provider: Spark's class that is to keep it.
        partitions: How many state partitions the query has.
        single: Operators that keep everything in partition 0.
    """

    batch: int
    provider: str
    next_provider: str
    partitions: int
    single: frozenset[int]


class SparkSide:
    """A session in which a checkpoint's state can be written anew.

    Args:
        spark: The caller's session; the active one if not given.
        location: The checkpoint as Spark is told: its merged path where state is merged.
        format_version: Spark's checkpoint format, in which the new state has to be written: 1 or 2.
        refuse: Makes the error, of a URL and a reason, where it cannot be done; PSS_CANNOT_REPARTITION if not given.

    Raises:
        StateStoreFilesError: PSS_SPARK_NOT_RUNNING, PSS_JAR_MISSING, PSS_VERSION_MISMATCH, PSS_WRONG_SPARK, or what
            ``refuse`` makes where this Spark is too old.
    """

    def __init__(
        self, spark: SparkSession | None, location: str, format_version: int, refuse: Refuse | None = None
    ) -> None:
        self._cannot = refuse or cannot
        self._location = location
        # People know the checkpoint by the path that they gave.
        self._url = location.removeprefix(MERGED_PREFIX)
        self._spark = _checked(spark, self._url, self._cannot)
        self._jvm: Any = self._spark.sparkContext._jvm
        self._session: Any = self._spark._jsparkSession.cloneSession()
        self._rewriters: dict[Rewrite, Any] = {}
        for key, value in self._settings(format_version).items():
            self._session.conf().set(key, value)

    def _settings(self, format_version: int) -> Mapping[str, str]:
        settings = {
            **file_system_settings(),
            FILE_MANAGER_KEY: MERGED_FILE_MANAGER,
            SHIM_VERSION_KEY: __version__,
            _SHOW_KEY: "true",
            _FORMAT_KEY: str(format_version),
            # No query's thread makes the commit, before which what tasks have kept would be called in.
            OPTIONS["groupCommit.scope"].key: "task",
        }
        manager = self._spark.conf.get(FILE_MANAGER_KEY, None)
        if manager and manager != MERGED_FILE_MANAGER:
            settings[OWN_FILE_MANAGER_KEY] = manager
        return settings

    def check(self, rewrite: Rewrite) -> None:
        """Lets Spark say whether it can rewrite all stores; it reads metadata and schemas, and writes nothing.

        Raises:
            StateStoreFilesError: What ``refuse`` makes of what Spark says.
        """
        try:
            with self._active():
                obstacle = self._rewriter(rewrite).obstacle(rewrite.batch)
        except _spark_errors() as error:
            raise self._cannot(self._url, first_line(error)) from error
        if obstacle:
            raise self._cannot(self._url, obstacle)

    def splittable(self, rewrite: Rewrite, partitions: int) -> frozenset[StoreName]:
        """The stores whose new partitions may begin with the files of the old ones, if there are to be so many.

        Raises:
            StateStoreFilesError: What ``refuse`` makes of what Spark says.
        """
        try:
            with self._active():
                lines = str(self._rewriter(rewrite).splittable(rewrite.batch, partitions)).splitlines()
        except _spark_errors() as error:
            raise self._cannot(self._url, first_line(error)) from error
        return frozenset((int(operator), name) for operator, _, name in (line.partition("/") for line in lines))

    def enter(self, rewrite: Rewrite, partitions: int) -> int:
        """Enters a repartitioning in the query's offset log, unless an earlier call has, and returns its batch.

        Until that batch is committed, Spark lets no query start.

        Raises:
            StateStoreFilesError: PSS_REPARTITION_FAILED.
        """
        with self._repartitioning(partitions):
            return int(self._rewriter(rewrite).enter(partitions))

    def write(self, rewrite: Rewrite, partitions: int, split: Collection[StoreName] = ()) -> dict[int, list[list[str]]]:
        """Writes the state in so many partitions, as the state of the batch that was entered.

        Args:
            rewrite: What is to be written anew.
            partitions: How many partitions there will be.
            split: The stores of :meth:`splittable` whose new partitions have the files of the old ones already.

        Returns:
            Of each operator, for each partition the ids of what was written; empty in checkpoint format 1.

        Raises:
            StateStoreFilesError: PSS_REPARTITION_FAILED.
        """
        with self._repartitioning(partitions):
            lines = "\n".join(f"{operator}/{name}" for operator, name in sorted(split))
            said = str(self._rewriter(rewrite).write(partitions, lines)).splitlines()
        found: dict[int, list[list[str]]] = {}
        for line in said:
            operator, partition, checkpoint_id = line.split(" ")
            by_partition = found.setdefault(int(operator), [[] for _ in range(partitions)])
            by_partition[int(partition)].append(checkpoint_id)
        return found

    def commit(self, rewrite: Rewrite, partitions: int) -> None:
        """Commits what was written: the query goes on from it.

        Raises:
            StateStoreFilesError: PSS_REPARTITION_FAILED.
        """
        with self._repartitioning(partitions):
            self._rewriter(rewrite).commit(partitions)

    @contextmanager
    def _repartitioning(self, partitions: int) -> Iterator[None]:
        try:
            with self._active():
                yield
        except _spark_errors() as error:
            parameters = {"path": self._url, "partitions": partitions, "reason": first_line(error)}
            raise StateStoreFilesError("PSS_REPARTITION_FAILED", parameters) from error

    def convert(self, rewrite: Rewrite) -> None:
        """Writes the state for the next class; the query's logs stay as they are.

        Raises:
            StateStoreFilesError: PSS_STORE_CONVERSION_FAILED.
        """
        try:
            with self._active():
                self._rewriter(rewrite).convert(rewrite.batch)
        except _spark_errors() as error:
            parameters = {"path": self._url, "reason": first_line(error)}
            raise StateStoreFilesError("PSS_STORE_CONVERSION_FAILED", parameters) from error

    def _rewriter(self, rewrite: Rewrite) -> Any:
        """The rewriting in the JVM, which keeps what it was told of the stores."""
        if rewrite not in self._rewriters:
            java_class = self._session.sharedState().jarClassLoader().loadClass(_REWRITER)
            texts = (
                self._location,
                rewrite.provider,
                rewrite.next_provider,
                str(rewrite.partitions),
                " ".join(map(str, sorted(rewrite.single))),
            )
            session = (self._session.getClass().getName(), self._session)
            arguments = [session, *(("java.lang.String", text) for text in texts)]
            self._rewriters[rewrite] = call_static(self._jvm, java_class, "of", *arguments)
        return self._rewriters[rewrite]

    @contextmanager
    def _active(self) -> Iterator[None]:
        """Makes the clone the active session of this thread, which Spark's reader of state asks for."""
        sessions = getattr(self._jvm, self._session.getClass().getName())
        before = sessions.getActiveSession()
        sessions.setActiveSession(self._session)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


def check_spark(spark: SparkSession | None, url: str, refuse: Refuse | None = None) -> None:
    """Refuses a Spark that is too old to write state anew; it starts none, so a dry run can ask as well.

    Args:
        spark: The caller's session. Without one that runs, a session would be one of the installed PySpark.
        url: The checkpoint's URL, for the message.
        refuse: Makes the error; PSS_CANNOT_REPARTITION if not given.

    Raises:
        StateStoreFilesError: What ``refuse`` makes, or PSS_UNSUPPORTED_SPARK.
    """
    import pyspark

    session = spark
    if session is None and "pyspark.sql" in sys.modules:  # otherwise none can be active
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
    version = str(session.version if session is not None and is_running(session) else pyspark.__version__)
    if SUPPORTED_SPARK.index(spark_minor(version)) < SUPPORTED_SPARK.index(FIRST_SPARK):
        raise (refuse or cannot)(url, f"this is Spark {version}, and it takes Spark {FIRST_SPARK} or newer")


def _checked(spark: SparkSession | None, url: str, refuse: Refuse) -> SparkSession:
    from pyspark.sql import SparkSession

    session = spark or SparkSession.getActiveSession()
    if session is None:
        reason = "State is written anew by a Spark session, and none is active"
        raise StateStoreFilesError("PSS_SPARK_NOT_RUNNING", {"reason": reason, "action": _ACTION})
    check_running(session, why_not_connect="and state is written anew from the driver", action=_ACTION)
    check_spark(session, url, refuse)
    loaded = loaded_jar(session.sparkContext._jvm, session._jsparkSession.sharedState().jarClassLoader())
    if loaded is None:
        raise jar_missing("the session was started without the jar", _ACTION)
    check_loaded(loaded, session.version)
    return session


def cannot(path: str, reason: str) -> StateStoreFilesError:
    """The error that a checkpoint cannot be repartitioned, and nothing was changed."""
    return StateStoreFilesError("PSS_CANNOT_REPARTITION", {"path": path, "reason": reason})


def first_line(error: Exception) -> str:
    """What the innermost cause of an error of Spark says, in a line."""
    thrown = getattr(error, "java_exception", None)
    if thrown is None:
        return str(error).strip().partition("\n")[0].rstrip(".")
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    return str(thrown.getMessage() or thrown.getClass().getName()).strip().partition("\n")[0].rstrip(".")


def _spark_errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return (Py4JJavaError, PySparkException)
