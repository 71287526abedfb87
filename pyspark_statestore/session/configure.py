"""Sets up a Spark session for merged state: ``configure`` before it starts, ``attach`` while it runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_statestore._version import __version__
from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.session.doors import (
    EXTENSIONS_KEY,
    MERGED_EXTENSIONS,
    METRICS_PLUGIN,
    PLUGINS_KEY,
    DoorSettings,
    door_settings,
    file_system_settings,
    spark_minor,
    without_effect,
)
from pyspark_statestore.session.jvm import (
    call_static,
    check_loaded,
    check_running,
    inherited_settings,
    is_connect,
    jar_in_name,
    jar_missing,
    jar_path,
    loaded_jar,
    running_jvm,
    submit_arguments,
    version_mismatch,
    wrong_spark,
)
from pyspark_statestore.session.worker_python import start_with_own_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = logging.getLogger(__name__)

JARS_KEY = "spark.jars"
_TAKES_JARS = ("org.apache.spark.util.MutableURLClassLoader", "org.apache.spark.util.ChildFirstURLClassLoader")
_START_WITH_JAR = "Start it with the jar: configure(), or spark-submit --jars $(pyspark-statestore jar-path)"
_ATTACH_CLASS = "io.pyspark.statestore.spark.SessionAttach"
_SESSION_CLASS = "org.apache.spark.sql.SparkSession"


def configure(
    builder: SparkSession.Builder,
    *,
    mode: str = "provider",
    store: str = "rocksdb",
    sink: bool = False,
    **options: object,
) -> SparkSession.Builder:
    """Makes a session that is about to start keep its streaming state in merged files.

    The builder's own jars, packages, plugins, extensions and checkpoint file manager stay. A second call changes what
    differs and adds nothing twice. In local mode Spark's Python workers are the Python that calls this, unless
    PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON or a setting names one: Spark's own choice is ``python3`` from the PATH, which
    may be one without this package.

    Args:
        builder: The session's builder, before ``getOrCreate()``.
        mode: The door. With ``"provider"`` every new query of the session keeps its state in merged files; convert the
            checkpoint of a query that stock Spark began. With ``"path"`` only queries whose ``checkpointLocation`` is
            a :func:`merged_path` do. ``transformWithState`` needs ``"path"``.
        store: What holds the state on executors, ``"rocksdb"`` or ``"heap"`` (Spark's default without this package).
        sink: Whether ``writeStream`` to files (parquet, orc, json, csv, text and others) compacts what a batch writes,
            inside of the batch.
        **options: Any of :data:`OPTIONS` in snake_case: ``max_file_size="64m"``, ``group_commit_max_wait="5ms"``. Those
            of :data:`SINK_OPTIONS` begin with ``sink_``: ``sink_target_file_size="64m"``.

    Returns:
        The builder.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION, PSS_UNKNOWN_OPTION, PSS_CONFLICTING_SETTING, PSS_UNSUPPORTED_SPARK,
            PSS_JAR_MISSING, PSS_WRONG_SPARK or PSS_VERSION_MISMATCH. The builder is unchanged then.

    Example:
        >>> spark = configure(SparkSession.builder, mode="path").getOrCreate()
        >>> query.option("checkpointLocation", merged_path("hdfs://nn/checkpoints/q1")).start()
    """
    import pyspark

    _check_builder(builder)
    spark_minor(pyspark.__version__)
    own: dict[str, Any] = builder._options
    _check_classic(builder, own)
    existing = {**inherited_settings(), **{key: str(value) for key, value in own.items()}}
    door = door_settings(existing, mode=mode, store=store, sink=sink, options=options)
    changed = {**door.set, **start_settings(existing, _with_jar(existing.get(JARS_KEY, "")))}
    _check_jvm()
    _warn(without_effect(existing, pyspark.__version__, mode=mode, sink=sink, options=options))
    for key in door.remove:
        own.pop(key, None)
    start_with_own_python(builder)
    return builder.config(map=changed)


def start_settings(existing: Mapping[str, str], jars: str) -> dict[str, str]:
    """Returns the settings that Spark takes only when an application starts, whichever the door is.

    Args:
        existing: The settings so far, whose plugins and extensions stay.
        jars: The value of ``spark.jars``.
    """
    return {
        **{f"spark.hadoop.{key}": value for key, value in file_system_settings().items()},
        JARS_KEY: jars,
        PLUGINS_KEY: _with(existing.get(PLUGINS_KEY, ""), METRICS_PLUGIN),
        EXTENSIONS_KEY: _with(existing.get(EXTENSIONS_KEY, ""), MERGED_EXTENSIONS),
    }


def attach(
    spark: SparkSession,
    *,
    mode: str = "provider",
    store: str = "rocksdb",
    sink: bool = False,
    **options: object,
) -> SparkSession:
    """Makes a running session keep the state of the queries that it starts from now on in merged files.

    Use it for a session that was started without the jar, as in a notebook. Where you start the session yourself, use
    ``configure``: it holds for every session of the application, ``attach`` for this one only. Spark takes plugins only
    when it starts, so an attached session shows no ``fileMerging`` metrics.

    Args:
        spark: A classic session. A Spark Connect client cannot give its server a jar.
        mode: As in :func:`configure`.
        store: As in :func:`configure`.
        sink: As in :func:`configure`.
        **options: As in :func:`configure`.

    Returns:
        The session.

    Raises:
        StateStoreFilesError: As :func:`configure`; PSS_SPARK_NOT_RUNNING if the session is stopped or not classic. The
            session's settings are unchanged then.
    """
    check_running(
        spark,
        why_not_connect="whose server has to be started with the jar and the settings",
        action="Give attach() a classic session that is running, or use configure()",
    )
    spark_minor(spark.version)
    existing = _settings(spark)
    door = door_settings(existing, mode=mode, store=store, sink=sink, options=options)
    jvm = spark.sparkContext._jvm
    class_loader = _class_loader_with_jar(spark, jvm)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in file_system_settings().items():
        hadoop.set(key, value)
    before = _change(spark, door)
    try:
        # py4j's own lookup does not see added jars from every thread.
        call_static(jvm, class_loader.loadClass(_ATTACH_CLASS), "attach", (_SESSION_CLASS, spark._jsparkSession))
    except BaseException:
        _change(spark, before)
        raise
    _warn(without_effect(existing, spark.version, mode=mode, sink=sink, options=options))
    return spark


def _warn(found: Iterable[tuple[str, str]]) -> None:
    for what, to_do in found:
        _log.warning("%s. What to do: %s", what, to_do)


def _check_builder(builder: Any) -> None:
    if _is_session(builder):
        raise not_allowed("builder", builder, "a SparkSession.builder; for a session that runs, call attach(spark)")
    if not isinstance(getattr(builder, "_options", None), dict) or isinstance(builder, type):
        raise not_allowed("builder", builder, "a SparkSession.builder, such as configure(SparkSession.builder)")


def _is_session(given: Any) -> bool:
    from pyspark.sql import SparkSession

    return isinstance(given, SparkSession) or (is_connect(given) and hasattr(given, "client"))


def _check_classic(builder: Any, own: Mapping[str, Any]) -> None:
    remote = str(own.get("spark.remote") or os.environ.get("SPARK_REMOTE") or "")
    if remote.startswith("sc://") or type(builder).__module__.startswith("pyspark.sql.connect"):
        parameters = {
            "key": "spark.remote",
            "value": remote,
            "reason": "a Spark Connect client cannot give its server jars and file systems before it starts",
            "action": "Start the server with the jar (pyspark-statestore jar-path) and with the settings that "
            "pyspark-statestore settings prints, and connect to it without configure()",
        }
        raise StateStoreFilesError("PSS_CONFLICTING_SETTING", parameters)


def _check_jvm() -> None:
    """Makes sure that the driver will find the jar: ``spark.jars`` adds it only when the JVM starts."""
    import pyspark

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
    loaded = loaded_jar(jvm, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    if loaded is None:
        raise jar_missing(
            "the JVM of this process was started without the jar",
            "Call attach(spark) on the session instead, or configure() before anything starts a session, "
            "or give the jar to spark-submit: --jars $(pyspark-statestore jar-path)",
        )
    check_loaded(loaded, pyspark.__version__)


def _with_jar(jars: str) -> str:
    # The jar may be on the cluster already, under any directory or URI.
    return jars if _holds_jar(jars) else _with(jars, jar_path())


def _holds_jar(jars: str) -> bool:
    import pyspark

    named = [found for jar in jars.split(",") if (found := jar_in_name(jar.strip()))]
    action = "Remove that jar: configure() adds the right one"
    for jar in named:
        if jar.version != __version__:
            raise version_mismatch(f"a jar in {JARS_KEY}", jar.version, action)
        if jar.spark and jar.spark != spark_minor(pyspark.__version__):
            raise wrong_spark(pyspark.__version__, f"a jar in {JARS_KEY}", jar.spark, action)
    return bool(named)


def _with(listed: str, word: str) -> str:
    words = [part.strip() for part in listed.split(",") if part.strip()]
    return ",".join(words if word in words else [*words, word])


def _settings(spark: Any) -> dict[str, str]:
    """Returns all settings of a session; before Spark 4.0 its ``conf`` does not list them."""
    if hasattr(spark.conf, "getAll"):
        return dict(spark.conf.getAll)
    return {row["key"]: row["value"] for row in spark.sql("SET").collect()}


def _change(spark: Any, settings: DoorSettings) -> DoorSettings:
    """Changes a session's settings and returns the change that undoes it."""
    existing = _settings(spark)
    for key in settings.remove:
        spark.conf.unset(key)
    for key, value in settings.set.items():
        spark.conf.set(key, value)
    touched = settings.remove | settings.set.keys()
    back = {key: existing[key] for key in touched if key in existing}
    return DoorSettings(back, frozenset(touched - back.keys()))


def _class_loader_with_jar(spark: Any, jvm: Any) -> Any:
    """Adds the jar to the session, and returns the class loader through which the shim's classes are found.

    The jar goes to two places. ADD JAR takes it to executors. For the driver it goes to the parent of the loader that
    ADD JAR uses, which holds the jars of the session's start, for two reasons. The executor inside a local[n] driver
    has a loader of its own below that parent: if both loaded the classes, instances from Hadoop's cache of file systems
    could not be cast from one to the other. And Hadoop's Configuration looks classes up in the parent.
    """
    class_loader = spark._jsparkSession.sharedState().jarClassLoader()
    loaded = loaded_jar(jvm, class_loader)
    if loaded is None:
        jar = jar_path()
        _parent_that_takes_jars(class_loader).addURL(jvm.java.io.File(jar).toURI().toURL())
        quoted = jar.replace("\\", "\\\\").replace("'", "\\'")
        spark.sql(f"ADD JAR '{quoted}'")
        loaded = loaded_jar(jvm, class_loader)
    if loaded is None:
        raise jar_missing(f"the session did not take {jar}", _START_WITH_JAR)
    check_loaded(loaded, spark.version)
    return class_loader


def _parent_that_takes_jars(class_loader: Any) -> Any:
    parent = class_loader.getParent()
    while parent is not None:
        if parent.getClass().getName() in _TAKES_JARS:
            return parent
        parent = parent.getParent()
    raise jar_missing("the driver of this session has no class loader that takes jars", _START_WITH_JAR)
