"""Sets up a session that already runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_statestore.classic import check_running
from pyspark_statestore.doors import DoorSettings, check_spark_version, door_settings, file_system_settings
from pyspark_statestore.jars import jar_missing, jar_path
from pyspark_statestore.session import call_static, check_same_version, loaded_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TAKES_JARS = ("org.apache.spark.util.MutableURLClassLoader", "org.apache.spark.util.ChildFirstURLClassLoader")
_START_WITH_JAR = "Start it with the jar: configure(), or spark-submit --jars $(pyspark-statestore jar-path)"
_ATTACH_CLASS = "io.pyspark.statestore.spark.SessionAttach"
_SESSION_CLASS = "org.apache.spark.sql.classic.SparkSession"


def attach(spark: SparkSession, *, mode: str = "provider", store: str = "rocksdb", **options: object) -> SparkSession:
    """Makes a running session keep the state of queries that are started from now on in merged files.

    For sessions that were started without the jar, as in a notebook. ``configure`` is the better way where the session
    is yours to start: it holds for every session of the application, ``attach`` for this one only. And Spark takes
    plugins only when it starts, so an attached session shows no ``fileMerging`` metrics.

    Args:
        spark: A classic session; a Spark Connect client cannot change its server that far.
        mode: As in :func:`configure`.
        store: As in :func:`configure`.
        **options: As in :func:`configure`.

    Returns:
        The session.

    Raises:
        StateStoreFilesError: As :func:`configure`; PSS_SPARK_NOT_RUNNING if the session is stopped or not classic. The
            session's settings are as they were, then.
    """
    check_running(
        spark,
        why_not_connect="whose server has to be started with the jar and the settings",
        action="Give attach() a classic session that is running, or use configure()",
    )
    check_spark_version(spark.version)
    door = door_settings(dict(spark.conf.getAll), mode=mode, store=store, options=options)
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
    return spark


def _change(spark: Any, settings: DoorSettings) -> DoorSettings:
    """Changes a session's settings and returns what changes them back."""
    existing = dict(spark.conf.getAll)
    for key in settings.remove:
        spark.conf.unset(key)
    for key, value in settings.set.items():
        spark.conf.set(key, value)
    touched = settings.remove | settings.set.keys()
    back = {key: existing[key] for key in touched if key in existing}
    return DoorSettings(back, frozenset(touched - back.keys()))


def _class_loader_with_jar(spark: Any, jvm: Any) -> Any:
    """Returns the class loader of the session's added jars, through which the shim's classes are found.

    The jar goes to two places. ADD JAR takes it to executors. For the driver it goes to the parent of the loader that
    ADD JAR uses: the one that holds the jars of a session's start. The executor inside a local[n] driver has a loader
    of its own below that parent; classes that each of the two had loaded for itself would meet in Hadoop's cache of
    file systems and not be cast to each other. And Hadoop's Configuration looks classes up in the parent.
    """
    class_loader = spark._jsparkSession.sharedState().jarClassLoader()
    version = loaded_version(jvm, class_loader)
    if version is None:
        jar = jar_path()
        _parent_that_takes_jars(class_loader).addURL(jvm.java.io.File(jar).toURI().toURL())
        quoted = jar.replace("\\", "\\\\").replace("'", "\\'")
        spark.sql(f"ADD JAR '{quoted}'")
        version = loaded_version(jvm, class_loader)
    if version is None:
        raise jar_missing(f"the session did not take {jar}", _START_WITH_JAR)
    check_same_version(version)
    return class_loader


def _parent_that_takes_jars(class_loader: Any) -> Any:
    parent = class_loader.getParent()
    while parent is not None:
        if parent.getClass().getName() in _TAKES_JARS:
            return parent
        parent = parent.getParent()
    raise jar_missing("the driver of this session has no class loader that takes jars", _START_WITH_JAR)
