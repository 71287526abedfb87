"""Sets up a session that is about to start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_statestore._version import __version__
from pyspark_statestore.doors import (
    EXTENSIONS_KEY,
    MERGED_EXTENSIONS,
    METRICS_PLUGIN,
    PLUGINS_KEY,
    check_spark_version,
    door_settings,
    file_system_settings,
)
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inherited import inherited_settings, running_jvm, submit_arguments
from pyspark_statestore.jars import jar_missing, jar_path, jar_version_in_name, version_mismatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS_KEY = "spark.jars"


def configure(
    builder: SparkSession.Builder, *, mode: str = "provider", store: str = "rocksdb", **options: object
) -> SparkSession.Builder:
    """Makes a session keep its streaming state in merged files.

    Whatever the builder already has stays: jars, packages, plugins, extensions, an own checkpoint file manager.
    Calling it again changes what is different and adds nothing twice.

    Args:
        builder: Of the session, before ``getOrCreate()``.
        mode: The door. With ``"provider"`` every new query of the session keeps its state in merged files; one that
            stock Spark began has to be converted. With ``"path"`` those do whose ``checkpointLocation`` is a
            :func:`merged_path`; ``transformWithState`` needs this one.
        store: What holds the state on executors, ``"rocksdb"`` or ``"heap"`` (Spark's default without this package).
        **options: Any of :data:`OPTIONS` in snake_case: ``max_file_size="64m"``, ``group_commit_max_wait="5ms"``.

    Returns:
        The builder.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION, PSS_UNKNOWN_OPTION, PSS_CONFLICTING_SETTING, PSS_UNSUPPORTED_SPARK,
            PSS_JAR_MISSING or PSS_VERSION_MISMATCH. The builder is as it was, then.

    Example:
        >>> spark = configure(SparkSession.builder, mode="path").getOrCreate()
        >>> query.option("checkpointLocation", merged_path("hdfs://nn/checkpoints/q1")).start()
    """
    import pyspark

    check_spark_version(pyspark.__version__)
    own: dict[str, Any] = builder._options
    _check_classic(builder, own)
    existing = {**inherited_settings(), **{key: str(value) for key, value in own.items()}}
    door = door_settings(existing, mode=mode, store=store, options=options)
    changed = dict(door.set)
    changed.update({f"spark.hadoop.{key}": value for key, value in file_system_settings().items()})
    changed[JARS_KEY] = _with_jar(existing.get(JARS_KEY, ""))
    changed[PLUGINS_KEY] = _with(existing.get(PLUGINS_KEY, ""), METRICS_PLUGIN)
    changed[EXTENSIONS_KEY] = _with(existing.get(EXTENSIONS_KEY, ""), MERGED_EXTENSIONS)
    _check_jvm()
    for key in door.remove:
        own.pop(key, None)
    return builder.config(map=changed)


def _check_classic(builder: Any, own: Mapping[str, Any]) -> None:
    remote = str(own.get("spark.remote") or os.environ.get("SPARK_REMOTE") or "")
    if remote.startswith("sc://") or type(builder).__module__.startswith("pyspark.sql.connect"):
        parameters = {
            "key": "spark.remote",
            "value": remote,
            "reason": "a Spark Connect client cannot give its server jars and file systems before it starts",
            "action": "Start the server with the jar (pyspark-statestore jar-path) and these settings, "
            "and connect to it without configure()",
        }
        raise StateStoreFilesError("PSS_CONFLICTING_SETTING", parameters)


def _check_jvm() -> None:
    """Makes sure that the driver will have the jar on its class path; spark.jars adds it only when the JVM starts."""
    jvm = running_jvm()
    if jvm is None:
        jars = submit_arguments().get(JARS_KEY)
        if jars is not None and not _holds_jar(jars):
            parameters = {
                "key": f"{JARS_KEY} in PYSPARK_SUBMIT_ARGS",
                "value": jars,
                "reason": "it hides the spark.jars of the builder, and with it the jar of pyspark-statestore",
                "action": f"Add {jar_path()} to it",
            }
            raise StateStoreFilesError("PSS_CONFLICTING_SETTING", parameters)
        return
    version = loaded_version(jvm, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    if version is None:
        raise jar_missing(
            "the JVM of this process was started without the jar",
            "Call attach(spark) on the session instead, or configure() before anything starts a session, "
            "or give the jar to spark-submit: --jars $(pyspark-statestore jar-path)",
        )
    check_same_version(version)


def loaded_version(jvm: Any, class_loader: Any) -> str | None:
    """Returns the version of the shim that a JVM class loader finds, or None if it finds none."""
    from py4j.protocol import Py4JJavaError

    try:
        info = class_loader.loadClass("io.pyspark.statestore.ShimInfo")
    except Py4JJavaError:
        return None
    return str(call_static(jvm, info, "version"))


def call_static(jvm: Any, java_class: Any, method: str, *arguments: tuple[str, Any]) -> Any:
    """Calls a static method of a class that py4j's own lookup may not see, because another class loader has it.

    Args:
        jvm: py4j's view of the JVM.
        java_class: The ``java.lang.Class``.
        method: Its name.
        *arguments: The parameter's class name and the value, for each.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    types = gateway.new_array(jvm.java.lang.Class, len(arguments))
    values = gateway.new_array(jvm.java.lang.Object, len(arguments))
    for index, (name, value) in enumerate(arguments):
        types[index] = java_class.getClassLoader().loadClass(name)
        values[index] = value
    return java_class.getMethod(method, types).invoke(None, values)


def check_same_version(jvm_version: str) -> None:
    """Refuses a jar in the JVM that is not of this package's version."""
    if jvm_version != __version__:
        raise version_mismatch(
            "the jar that the JVM has loaded", jvm_version, "Give Spark the jar that jar_path() names"
        )


def _with_jar(jars: str) -> str:
    # The jar may be on the cluster already, under any directory or URI.
    return jars if _holds_jar(jars) else _with(jars, jar_path())


def _holds_jar(jars: str) -> bool:
    versions = [version for jar in jars.split(",") if (version := jar_version_in_name(jar.strip()))]
    for version in versions:
        if version != __version__:
            raise version_mismatch(f"a jar in {JARS_KEY}", version, "Remove that jar: configure() adds the right one")
    return bool(versions)


def _with(listed: str, word: str) -> str:
    words = [part.strip() for part in listed.split(",") if part.strip()]
    return ",".join(words if word in words else [*words, word])
