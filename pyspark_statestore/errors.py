"""The package's one exception, and the catalogue of everything it can say."""

from __future__ import annotations

import string
from collections.abc import Mapping
from types import MappingProxyType

# What was wrong, where, what to do. The ids are an interface: people match on them, so none is renamed or reused.
# The JVM shim uses the same ids; where it writes the message itself, the id comes first in square brackets as here.
ERROR_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "PSS_UNSUPPORTED_FORMAT_VERSION": (
            "{file} has format version {found}; this release reads version {supported}. "
            "Use the pyspark-statestore release that wrote it, or a newer one."
        ),
        "PSS_CORRUPT_FILE": (
            "{file} is no intact merged file, at offset {offset}: {reason}. "
            "Restore the file from a copy; nothing was changed or deleted."
        ),
        "PSS_CORRUPT_INDEX": (
            "{file} has a damaged index, at offset {offset}: {reason}. "
            "Restore the file from a copy; nothing was changed or deleted."
        ),
        "PSS_CORRUPT_SEGMENT": (
            "The bytes of {path} in {file}, {length} at offset {offset}, are not those that were written: {reason}. "
            "Restore the merged file from a copy, or restart the query from an older batch."
        ),
        "PSS_MISSING_SEGMENT": (
            "{path} should be in {file}, which does not exist (any more). "
            "Restore the merged file from a copy, or restart the query from an older batch."
        ),
        "PSS_FOREIGN_FILE_MISSING": (
            "{path} of the fork {fork} is in {file}, a file of the checkpoint that it was forked from, and that file "
            "does not exist (any more). Restore it from a copy, or make the fork anew; compact(localize=True) or "
            "mode='copy' makes a fork that needs no other checkpoint."
        ),
        "PSS_CLAIMED": (
            "The state of {path} belongs to the fork {fork} now, which was made with mode='claim': nothing more may be "
            "written here. Go on with the fork; or delete the fork and then {pin}."
        ),
        "PSS_NOT_EMPTY": "{path} is not empty: there is {found}. Fork to a directory that does not exist yet.",
        "PSS_OTHER_FILE_SYSTEM": (
            "{fork} is in another file system or bucket than {path}, so it cannot refer to files there. "
            "Fork within {path}'s, or with mode='copy'."
        ),
        "PSS_FORK_NEEDS": (
            "The fork {fork} still reads {segments} segments, {bytes} bytes, in {files} files of {path}. Without them "
            "it cannot be restored. Make it independent with compact(localize=True) there, or say so with force=True."
        ),
        "PSS_STALE_SNAPSHOT": (
            "The snapshot {path} comes too late and was not written: {reason}. "
            "Nothing is lost: older snapshots and changelogs restore the version."
        ),
        "PSS_BAD_PATH": "{path!r} cannot be used: {reason}.",
        "PSS_INVALID_OPTION": "{key} = {value!r} is not allowed. Allowed: {allowed}.",
        "PSS_UNKNOWN_OPTION": "{key} is not an option of pyspark-statestore. {hint}",
        "PSS_UNKNOWN_SCHEME": (
            "The scheme {scheme!r} of {path!r} is not one that merged state is set up for ({known}). "
            "For another Hadoop file system set spark.hadoop.fs.merged+{scheme}.impl to "
            "io.pyspark.statestore.fs.MergedFileSystem and write the path as merged+{scheme}:... yourself."
        ),
        "PSS_NOT_A_CHECKPOINT": (
            "{path} is not a streaming checkpoint: {reason}. "
            "Give the directory that the query has as its checkpointLocation."
        ),
        "PSS_UNKNOWN_LOCATION": (
            "Where {what} has its checkpoint cannot be told: {reason}. Give Checkpoint() the checkpointLocation itself."
        ),
        "PSS_NO_SUCH_STATE": "{path} has no {what}. There is: {known}.",
        "PSS_VERSION_NOT_RESTORABLE": (
            "Version {version} of {what} in {path} cannot be restored: {reason}. These can: {known}."
        ),
        "PSS_UNREADABLE_STATE": (
            "{path} cannot be understood: {reason}. If it was written by a newer Spark, use the pyspark-statestore "
            "release for that one; otherwise restore it from a copy. Nothing was changed."
        ),
        "PSS_MISSING_DEPENDENCY": "{what} needs what is not installed ({reason}). {install}.",
        "PSS_QUERY_RUNNING": (
            "{action} needs a query that is stopped, and the query of {path} seems to be running: {reason}. "
            "Stop it; if it is stopped, {override}."
        ),
        "PSS_EXPORTED": (
            "The state of {path} was written back as plain files, or is about to be ({file} says so), and its merged "
            "files do not count any more. Go on with stock Spark. To merge again, either go back to the merged files "
            "(pyspark-statestore convert --to merged) or drop them (pyspark-statestore drop-merged)."
        ),
        "PSS_NOT_EXPORTED": (
            "{path} has state in merged files that stock Spark would not find: {reason}. Nothing was changed. "
            "Export it first: pyspark-statestore export."
        ),
        "PSS_STALE_MERGED": (
            "{path} cannot go on with its merged files: {reason}. What they hold is older than the plain state files, "
            "and would be read instead of these. Nothing was changed. {action}."
        ),
        "PSS_DROP_REFUSED": "The merged files of {path} are still needed: {reason}. Nothing was dropped. {action}.",
        "PSS_DESTINATION_EXISTS": (
            "{path} cannot be written to: {reason}. Nothing was changed; give a directory that is empty or does not "
            "exist."
        ),
        "PSS_UNKNOWN_PROVIDER": (
            "{file} names {provider} as the state store's provider, which has no counterpart: {reason}. "
            "Nothing was changed."
        ),
        "PSS_WRONG_DOOR": (
            "{path} has its state in merged files, and {provider} would not find them under this name. Start the query "
            "with checkpointLocation = merged_path(...), or convert or export the checkpoint."
        ),
        "PSS_STAYS_STOCK": (
            "The query of {path} goes on with Spark's own {provider}, and its state is not merged. Convert the "
            "checkpoint (pyspark-statestore convert --to merged), or start it with merged_path(...)."
        ),
        "PSS_CANNOT_REPARTITION": (
            "Spark's offline repartitioning does not know the state of {path}, which has {provider}. Let the query go "
            "through the path door: pyspark-statestore convert --to merged --door path."
        ),
        "PSS_UNFINISHED_REPARTITION": (
            "Spark's offline repartitioning of {path} to {partitions} partitions has written state for batch {batch} "
            "and was not finished: {reason}. Nothing was changed. Let it finish: ask Spark for {partitions} partitions "
            "once more."
        ),
        "PSS_MISSING_STATE_FILE": (
            "{path} is not there, and no merged file of {checkpoint} has it: {reason}. Look with pyspark-statestore "
            "verify, restore the file from a copy, and do not clear the checkpoint."
        ),
        "PSS_READ_FAILED": (
            "Could not {action} {path}: {reason}. Reading changes nothing; remove the cause and ask again."
        ),
        "PSS_FILE_NOT_CLOSED": (
            "{file} cannot be read: its writer has not closed it, and HDFS does not know its length any more "
            "({reason}). Nothing is lost. See that its DataNodes run, then try again; a dead writer's file is closed "
            "within two minutes. If it still fails and no query writes there, close it yourself: "
            "hdfs debug recoverLease -path {file} -retries 10"
        ),
        "PSS_NO_PERMISSION": "No permission to {action} {path}. Grant it to {user}, or run as a user who has it.",
        "PSS_WRITE_FAILED": "Writing {path} failed: {reason}. Earlier data is intact; remove the cause and retry.",
        "PSS_VERSION_MISMATCH": (
            "The Python package is pyspark-statestore {python_version}, but {what} is {jvm_version}. "
            "Both have to be the same. {action}."
        ),
        "PSS_UNSUPPORTED_SPARK": (
            "This is Spark {found}; this release of pyspark-statestore works with Spark {supported} only, because it "
            'implements interfaces that Spark changes between minor versions. Install "pyspark=={supported}.*".'
        ),
        "PSS_JAR_MISSING": "The JVM part of pyspark-statestore cannot be used: {reason}. {action}.",
        "PSS_NEEDS_PATH_DOOR": (
            "{operator} does not work with mode='provider': Spark wants the class name of its own provider there. "
            "Use configure(builder, mode='path') and give the query merged_path(...) as its checkpointLocation."
        ),
        "PSS_JDK_MISSING": "No JDK of Java {required} or newer was found: {reason}. Install one, or set JAVA_HOME.",
        "PSS_CONFLICTING_SETTING": "{key} is {value!r}, which cannot be kept: {reason}. {action}.",
        "PSS_SPARK_NOT_RUNNING": "{reason}. {action}.",
    }
)


class StateStoreFilesError(Exception):
    """Everything that this package raises on purpose.

    The message reads ``[ID] what was wrong, where, what to do``. The id is stable, and both parts are to be had with
    the methods that PySpark's own errors have.

    Args:
        error_class: An id from :data:`ERROR_CLASSES`.
        message_parameters: What the id's message is filled with.

    Example:
        >>> try:
        ...     configure(SparkSession.builder, mode="both")
        ... except StateStoreFilesError as error:
        ...     error.getErrorClass()
        'PSS_INVALID_OPTION'
    """

    def __init__(self, error_class: str, message_parameters: Mapping[str, object]) -> None:
        self._error_class = error_class
        self._message_parameters = {key: str(value) for key, value in message_parameters.items()}
        self._message = ERROR_CLASSES[error_class].format_map(_Lenient(self._message_parameters))
        super().__init__(f"[{error_class}] {self._message}")

    def getErrorClass(self) -> str:
        """Returns the stable id, such as ``PSS_CORRUPT_SEGMENT``."""
        return self._error_class

    def getCondition(self) -> str:
        """Returns the stable id under the name that PySpark 4 gives it."""
        return self._error_class

    def getMessageParameters(self) -> dict[str, str]:
        """Returns what the message was filled with, by name."""
        return dict(self._message_parameters)

    def getMessage(self) -> str:
        """Returns the whole message, id included."""
        return str(self)

    def __reduce__(self) -> tuple[type[StateStoreFilesError], tuple[str, dict[str, str]]]:
        # Errors travel from Python workers to the driver by pickle.
        return type(self), (self._error_class, self._message_parameters)


class _Lenient(dict[str, str]):
    """An error about an error helps nobody: a parameter that is missing shows as its name."""

    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def parameters_of(error_class: str) -> set[str]:
    """Returns the names of the parameters that an id's message has."""
    return {name for _, name, _, _ in string.Formatter().parse(ERROR_CLASSES[error_class]) if name}
