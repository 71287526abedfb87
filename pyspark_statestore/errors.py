"""The one exception of this package, and every message that it can have."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from types import MappingProxyType

# Each message says what was wrong, where, and what to do. People match on the ids, so none is renamed or reused.
# The JVM shim uses the same ids and writes its own messages, also with the id in square brackets at the start.
ERROR_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "PSS_UNSUPPORTED_FORMAT_VERSION": (
            "{file} has format version {found}; this release reads version {supported}. Use the pyspark-statestore "
            "release that wrote it, or a newer one."
        ),
        "PSS_CORRUPT_FILE": (
            "{file} is not an intact merged file, at offset {offset}: {reason}. Restore the file from a copy; "
            "nothing was changed or deleted."
        ),
        "PSS_CORRUPT_INDEX": (
            "{file} has a damaged index, at offset {offset}: {reason}. Restore the file from a copy; nothing was "
            "changed or deleted."
        ),
        "PSS_CORRUPT_SEGMENT": (
            "The bytes of {path} in {file} ({length} bytes at offset {offset}) are not what was written: {reason}. "
            "Restore the merged file from a copy, or restart the query from an earlier batch."
        ),
        "PSS_MISSING_SEGMENT": (
            "{path} should be in {file}, but that file does not exist. Restore the merged file from a copy, or "
            "restart the query from an earlier batch."
        ),
        "PSS_FOREIGN_FILE_MISSING": (
            "The fork {fork} reads {path} from {file}, a file of the checkpoint that it was forked from, and that "
            "file does not exist. Restore the file from a copy, or make the fork again. A fork that is made with "
            "mode='copy', and one after compact(localize=True), need no other checkpoint."
        ),
        "PSS_CLAIMED": (
            "The fork {fork}, made with mode='claim', owns the state of {path}: nothing more may be written here. Go "
            "on with the fork. To take the state back, delete the fork and then {pin}."
        ),
        "PSS_NOT_EMPTY": "{path} is not empty: it holds {found}. Fork to a directory that does not exist yet.",
        "PSS_OTHER_FILE_SYSTEM": (
            "{fork} is in another file system or bucket than {path}, so a fork there cannot refer to files of "
            "{path}. Fork to a place in the same one, or use mode='copy'."
        ),
        "PSS_FORK_NEEDS": (
            "The fork {fork} still reads {segments} segments ({bytes} bytes) in {files} files of {path}, and cannot "
            "be restored without them. Make the fork independent with compact(localize=True) there. If nobody needs "
            "the fork, release it with force=True."
        ),
        "PSS_INDEX_SERVICE_FAILED": (
            "The index service in the driver did not answer for {path}: {reason}. Nothing was acknowledged; Spark "
            "tries the task again. If this goes on, see what the driver's log says, or restart the query with "
            "spark.sql.streaming.stateStore.fileMerging.indexService.enabled=false."
        ),
        "PSS_BATCH_NOT_DURABLE": (
            "Batch {batch} of {path} did not become durable: {reason}. Its entry was not made in the commit log, so "
            "nothing is lost: restart the query, which computes the batch again. With "
            "spark.sql.streaming.stateStore.fileMerging.groupCommit.scope=task a lost executor fails no batch."
        ),
        "PSS_STALE_SNAPSHOT": (
            "The snapshot {path} came too late and was not written: {reason}. Nothing is lost: older snapshots and "
            "changelogs restore the version."
        ),
        "PSS_BAD_PATH": "{path!r} cannot be used: {reason}.",
        "PSS_INVALID_OPTION": "{key} = {value!r} is not allowed. Allowed: {allowed}.",
        "PSS_UNKNOWN_OPTION": "{key} is not an option of pyspark-statestore. {hint}",
        "PSS_UNKNOWN_SCHEME": (
            "{path!r} has the scheme {scheme!r}; merged state is set up for these only: {known}. For another Hadoop "
            "file system, set spark.hadoop.fs.merged+{scheme}.impl to io.pyspark.statestore.fs.MergedFileSystem and "
            "write the path as merged+{scheme}:... yourself."
        ),
        "PSS_NOT_A_CHECKPOINT": (
            "{path} is not a streaming checkpoint: {reason}. Give the directory that is the query's "
            "checkpointLocation{hint}."
        ),
        "PSS_UNKNOWN_LOCATION": (
            "The checkpoint of {what} cannot be found: {reason}. Give Checkpoint() the query's checkpointLocation "
            "instead."
        ),
        "PSS_NO_SUCH_STATE": "{path} has no {what}. It has: {known}.",
        "PSS_VERSION_NOT_RESTORABLE": (
            "Version {version} of {what} in {path} cannot be restored: {reason}. Versions that can be restored: "
            "{known}."
        ),
        "PSS_UNREADABLE_STATE": (
            "{path} cannot be understood: {reason}. If a newer Spark wrote it, use the pyspark-statestore release "
            "for that Spark; otherwise restore it from a copy. Nothing was changed."
        ),
        "PSS_MISSING_DEPENDENCY": "{what} needs a package that is not installed ({reason}). {install}.",
        "PSS_QUERY_RUNNING": (
            "{action} needs a stopped query, and the query of {path} seems to be running: {reason}. Stop it. If it "
            "is stopped already, {override}."
        ),
        "PSS_EXPORTED": (
            "The state of {path} was exported to plain files, or an export was begun ({file} says so), so its merged "
            "files do not count any more. Go on with stock Spark. To merge again, either go back to the merged files "
            "(pyspark-statestore convert --to merged) or drop them (pyspark-statestore drop-merged)."
        ),
        "PSS_NOT_EXPORTED": (
            "{path} has state in merged files that stock Spark would not find: {reason}. Nothing was changed. Export "
            "it first: pyspark-statestore export."
        ),
        "PSS_STALE_MERGED": (
            "{path} cannot go on with its merged files: {reason}. They are older than the plain state files, and "
            "would be read instead of these. Nothing was changed. {action}."
        ),
        "PSS_DROP_REFUSED": "The merged files of {path} are still needed: {reason}. Nothing was dropped. {action}.",
        "PSS_DESTINATION_EXISTS": (
            "{path} cannot be written to: {reason}. Nothing was changed; give a directory that is empty or does not "
            "exist."
        ),
        "PSS_UNKNOWN_PROVIDER": (
            "{file} names {provider} as the state store provider, which cannot be converted: {reason}. Nothing was "
            "changed. Only the state of Spark's RocksDB and heap providers can be merged."
        ),
        "PSS_WRONG_DOOR": (
            "{path} has its state in merged files, and {provider} would not find it at this path. Start the query "
            "with checkpointLocation = merged_path(...), or convert or export the checkpoint."
        ),
        "PSS_STAYS_STOCK": (
            "The query of {path} goes on with Spark's own {provider}, so its state is not merged. To merge it, "
            "convert the checkpoint (pyspark-statestore convert --to merged), or start the query with "
            "merged_path(...)."
        ),
        "PSS_KEEPS_STORE": (
            "The query of {path} goes on with its {store} store, and ignores that this session asks for {asked}: Spark "
            "takes the class from the checkpoint's offset log. Pass store={store!r} to configure(); or, for the other "
            "store, convert the checkpoint (pyspark-statestore convert --store {asked})."
        ),
        "PSS_CANNOT_REPARTITION": "{path} cannot be repartitioned: {reason}. Nothing was changed.",
        "PSS_UNFINISHED_REPARTITION": (
            "A repartitioning of {path} to {partitions} partitions, batch {batch}, was begun and did not finish: "
            "{reason}. Nothing was changed. Let it finish (pyspark-statestore repartition --partitions {partitions}) "
            "or take it back (pyspark-statestore undo-repartition)."
        ),
        "PSS_REPARTITION_FAILED": (
            "{path} could not be repartitioned to {partitions} partitions: {reason}. The old partitions are as they "
            "were, and the query does not start before this is finished or taken back: repeat it with the same number, "
            "or pyspark-statestore undo-repartition."
        ),
        "PSS_CANNOT_CONVERT_STORE": "{path} cannot be converted to another store: {reason}. Nothing was changed.",
        "PSS_STORE_CONVERSION_FAILED": (
            "{path} could not be converted to another store: {reason}. The query goes on with the store that it has; "
            "to convert it, do the same once more."
        ),
        "PSS_CANNOT_UNDO_REPARTITION": (
            "The newest batch of {path} cannot be taken back as a repartitioning: {reason}. Nothing was changed."
        ),
        "PSS_MISSING_STATE_FILE": (
            "{path} does not exist, and no merged file of {checkpoint} has it: {reason}. Find out more with "
            "pyspark-statestore verify, and restore the file from a copy. Do not clear the checkpoint."
        ),
        "PSS_MISSING_DIRECTORIES": (
            "Spark's reader would not find all partitions in {path}: a copy of the checkpoint has lost the directories "
            "of {partitions}, and they cannot be made: {reason}. Read merged_path(...) instead, which needs none."
        ),
        "PSS_HEAP_SPILL_FAILED": (
            "Rows of {store} that were moved to {file} cannot be read: {reason}. The checkpoint has them. Look at that "
            "disk, and start the query again; heap.spill=off keeps all rows in memory."
        ),
        "PSS_SINK_COMPACTION_FAILED": (
            "The files of batch {batch} of {path} could not be compacted: {reason}. Nothing of the batch was "
            "published. Restart the query; to publish files as stock Spark does, unset "
            "spark.sql.streaming.commitProtocolClass."
        ),
        "PSS_NOT_A_SINK": (
            "{path} is not a file sink: {reason}. Give the directory to which a query writes files with writeStream."
        ),
        "PSS_DAMAGED_SINK_LIST": (
            "{file} cannot be understood at line {line}: {reason}. Nothing was changed or deleted. Restore the file "
            "from a copy; readers of the sink need it, too."
        ),
        "PSS_CANNOT_REPAIR_SINK": "The list of {path} cannot be repaired: {reason}. Nothing of it was changed.",
        "PSS_SINK_ELSEWHERE": (
            "The list of {path} names files in another directory, such as {file}: the sink was moved or copied, or is "
            "known to Spark by another path. Nothing was removed. Give the path with which the query writes."
        ),
        "PSS_SINK_LIST_CHANGED": (
            "{file} has changed while files were joined: the query has gone on, or somebody else compacts. Readers "
            "see what they would have seen. Try again; what was written in vain goes with the orphans."
        ),
        "PSS_SINK_IN_USE": (
            "{file} has changed at {changed}, less than {idle_for} ago, so a query may be writing to the sink. It "
            "publishes what waits by itself. Nothing was changed. Try again when the query has ended for that long, "
            "or, where you know that it has, give a shorter time with force."
        ),
        "PSS_SINK_REWRITE_FAILED": (
            "The files of {path} could not be joined: {reason}. Readers see what they would have seen. Give the "
            "format and the options with which the query writes, or see what verify says of the sink."
        ),
        "PSS_READ_FAILED": (
            "Could not {action} {path}: {reason}. Reading changes nothing; remove the cause and try again."
        ),
        "PSS_FILE_NOT_CLOSED": (
            "{file} cannot be read: its writer has not closed it, and HDFS does not know its length any more "
            "({reason}). Nothing is lost. Make sure that its DataNodes run, and try again: the file of a dead writer "
            "is closed within two minutes. If it still fails and no query writes there, close the file yourself: "
            "hdfs debug recoverLease -path {file} -retries 10"
        ),
        "PSS_NO_PERMISSION": "No permission to {action} {path}. Grant it to {user}, or run as a user who has it.",
        "PSS_WRITE_FAILED": "Writing {path} failed: {reason}. Earlier data is intact; remove the cause and try again.",
        "PSS_VERSION_MISMATCH": (
            "The Python package is pyspark-statestore {python_version}, but {what} is {jvm_version}. Both must have "
            "the same version. {action}."
        ),
        "PSS_UNSUPPORTED_SPARK": (
            "This is Spark {found}; this release of pyspark-statestore works with Spark {supported} only, because it "
            "implements interfaces that Spark changes between minor versions. Use one of these, or a release of "
            "pyspark-statestore for your Spark."
        ),
        "PSS_WRONG_SPARK": (
            "This is Spark {found}, and {what} is for Spark {jar_spark}. Each minor version of Spark has a jar of its "
            "own. {action}."
        ),
        "PSS_JAR_MISSING": "The jar of pyspark-statestore cannot be used: {reason}. {action}.",
        "PSS_NEEDS_PATH_DOOR": (
            "{operator} does not work with mode='provider', because Spark accepts only its own provider class for "
            "it. Use configure(builder, mode='path') and start the query with checkpointLocation = merged_path(...)."
        ),
        "PSS_JDK_MISSING": "No JDK of Java {required} or newer was found: {reason}. Install one, or set JAVA_HOME.",
        "PSS_CONFLICTING_SETTING": "{key} is {value!r}, which cannot be kept: {reason}. {action}.",
        "PSS_SPARK_NOT_RUNNING": "{reason}. {action}.",
    }
)


_LOGIN = re.compile(r"(?<=://)[^/\s]*?:[^/\s]*@")
_SECRET = r"[\w.-]*(?:passw|secret|token|signature|credential|access_?key|account_?key|connection_string)[\w.-]*"
_IN_A_QUERY = re.compile(rf"(?i)([?&](?:{_SECRET}|sig|sas|key|delegation)=)[^&\s'\"]+")
_IN_OPTIONS = re.compile(rf"""(?i)(['"]{_SECRET}['"]\s*[:=]\s*)(['"]).*?\2""")

REDACTED = "***"
"""Stands for what nobody is to read."""


def redacted(text: str) -> str:
    """Returns a text for people: without the user and password of a URL, and without keys and tokens after a ``?``.

    Whatever this package shows, logs or keeps goes through it: messages, tables, titles, reports.
    """
    text = _LOGIN.sub(f"{REDACTED}@", text)
    return _IN_OPTIONS.sub(rf"\1\2{REDACTED}\2", _IN_A_QUERY.sub(rf"\1{REDACTED}", text))


class StateStoreFilesError(Exception):
    """Every error that this package raises on purpose.

    The message reads ``[ID] what was wrong, where, what to do``. The ids stay the same from release to release. The
    methods are those of PySpark's own errors.

    Args:
        error_class: An id from :data:`ERROR_CLASSES`.
        message_parameters: The values of the placeholders in the id's message.

    Example:
        >>> try:
        ...     configure(SparkSession.builder, mode="both")
        ... except StateStoreFilesError as error:
        ...     error.getErrorClass()
        'PSS_INVALID_OPTION'
    """

    def __init__(self, error_class: str, message_parameters: Mapping[str, object]) -> None:
        self._error_class = error_class
        self._message_parameters = {key: redacted(str(value)) for key, value in message_parameters.items()}
        self._message = ERROR_CLASSES[error_class].format_map(_Lenient(self._message_parameters))
        super().__init__(f"[{error_class}] {self._message}")

    def getErrorClass(self) -> str:
        """Returns the stable id, such as ``PSS_CORRUPT_SEGMENT``."""
        return self._error_class

    def getCondition(self) -> str:
        """Returns the stable id under the name that PySpark 4 gives it."""
        return self._error_class

    def getMessageParameters(self) -> dict[str, str]:
        """Returns the values in the message, by name."""
        return dict(self._message_parameters)

    def getMessage(self) -> str:
        """Returns the whole message with the id."""
        return str(self)

    def __reduce__(self) -> tuple[type[StateStoreFilesError], tuple[str, dict[str, str]]]:
        # Python workers send errors to the driver with pickle.
        return type(self), (self._error_class, self._message_parameters)


def first_line(error: BaseException) -> str:
    """Returns what an error of somebody else's says first. Loaders of libraries and JVMs add all that they tried."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")


def not_allowed(key: str, value: object, allowed: str) -> StateStoreFilesError:
    """Returns PSS_INVALID_OPTION for an option or argument, with the allowed values in words."""
    return StateStoreFilesError("PSS_INVALID_OPTION", {"key": key, "value": value, "allowed": allowed})


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a question that names what somebody may have misspelled; empty where nothing is like it."""
    import difflib

    by_lower_case = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return f"Did you mean {by_lower_case[close[0]]}?" if close else ""


class _Lenient(dict[str, str]):
    """Shows a missing parameter by its name: an error about an error would hide the first one."""

    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def parameters_of(error_class: str) -> set[str]:
    """Returns the names of the placeholders in an id's message."""
    return {name for _, name, _, _ in string.Formatter().parse(ERROR_CLASSES[error_class]) if name}
