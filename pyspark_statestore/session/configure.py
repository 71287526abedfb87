"""Sets up a session that is about to start."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_statestore._version import __version__
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.session.doors import (
    EXTENSIONS_KEY,
    MERGED_EXTENSIONS,
    METRICS_PLUGIN,
    PLUGINS_KEY,
    DoorSettings,
    check_spark_version,
    door_settings,
    file_system_settings,
    jar_missing,
    jar_path,
    jar_version_in_name,
    version_mismatch,
)

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


# Sets up a session that already runs.

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


# What a Spark session would have been told by others than its builder, had the builder not said otherwise.


def inherited_settings() -> dict[str, str]:
    """Returns the settings that are in force before a builder's own, as far as they can be known."""
    conf = running_jvm_conf()
    if conf is not None:
        return conf
    return {**_defaults_file(), **submit_arguments()}


def running_jvm_conf() -> dict[str, str] | None:
    """Returns the settings of the JVM that this process already talks to, or None if there is none yet."""
    if running_jvm() is None:
        return None
    from pyspark import SparkConf

    return dict(SparkConf().getAll())


def running_jvm() -> Any:
    """Returns py4j's view of the JVM that this process already talks to, or None if there is none yet."""
    from pyspark import SparkContext

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # spark-submit has started the JVM, so this only connects to it
    return SparkContext._jvm if SparkContext._gateway is not None else None


def submit_arguments(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the settings in PYSPARK_SUBMIT_ARGS, which win over those of a builder while the JVM starts."""
    words = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    settings: dict[str, str] = {}
    options: dict[str, str] = {}
    for word, value in zip(words, [*words[1:], ""], strict=False):
        name, _, joined = word.partition("=")
        if word in ("--conf", "-c") and "=" in value:
            key, _, setting = value.partition("=")
            settings[key] = setting
        elif name == "--jars":
            options["spark.jars"] = joined or value
    return {**settings, **options}  # spark-submit, too, prefers the option


def _defaults_file() -> dict[str, str]:
    directory = os.environ.get("SPARK_CONF_DIR")
    if not directory:
        home = os.environ.get("SPARK_HOME")
        if not home:
            spec = importlib.util.find_spec("pyspark")
            home = os.path.dirname(spec.origin) if spec and spec.origin else "."
        directory = os.path.join(home, "conf")
    try:
        text = (Path(directory) / "spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return {}
    settings = {}
    for line in text.splitlines():
        # A Java properties file; that much of its syntax is in use.
        found = re.match(r"\s*([^\s=:#!][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$", line)
        if found:
            settings[found[1]] = found[2]
    return settings


# Whether a session runs, and whether it is one that has a driver in this process.


def is_connect(spark: Any) -> bool:
    """Whether it is the session of a Spark Connect client, which has no driver here."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_running(spark: Any) -> bool:
    """Whether a classic session has not been stopped; no session at all has."""
    context = getattr(getattr(spark, "_sc", None), "_jsc", None)
    try:
        return context is not None and not context.sc().isStopped()
    except Exception:  # py4j's, where the JVM is gone
        return False


def check_running(spark: Any, *, why_not_connect: str, action: str) -> None:
    """Refuses a session that is not classic, or not running.

    Args:
        spark: The session.
        why_not_connect: What is said of a Spark Connect session.
        action: What to do instead.

    Raises:
        StateStoreFilesError: PSS_SPARK_NOT_RUNNING.
    """
    if is_connect(spark):
        reason = f"This is a Spark Connect session, {why_not_connect}"
    elif not is_running(spark):
        reason = "The session is stopped"
    else:
        return
    raise StateStoreFilesError("PSS_SPARK_NOT_RUNNING", {"reason": reason, "action": action})
