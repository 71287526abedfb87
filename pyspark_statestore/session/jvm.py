"""Spark as this process meets it: whether a session runs, which settings hold already, which jar the JVM has loaded."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_statestore._version import __version__
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.session.doors import spark_minor

JAR_STEM = "pyspark-statestore-shim-"
_JAR = re.compile(rf"{JAR_STEM}(?:spark-(\d+\.\d+)-)?(.+)\.jar")
_DIRECTORY = Path(__file__).parent.parent / "jars"
_CHECKOUT = _DIRECTORY.parent.parent
"""Where the package is in a checkout, if it is used from there."""


def is_connect(spark: Any) -> bool:
    """Whether this is the session of a Spark Connect client, whose driver is elsewhere."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_running(spark: Any) -> bool:
    """Whether this is a classic session that has not been stopped."""
    context = getattr(getattr(spark, "_sc", None), "_jsc", None)
    try:
        return context is not None and not context.sc().isStopped()
    except Exception:  # py4j's, where the JVM is gone
        return False


def check_running(spark: Any, *, why_not_connect: str, action: str) -> None:
    """Refuses a session that is not classic, or that does not run.

    Args:
        spark: The session.
        why_not_connect: Why a Spark Connect session will not do; the message has it after a comma.
        action: What the caller can do instead.

    Raises:
        StateStoreFilesError: PSS_SPARK_NOT_RUNNING.
    """
    if is_connect(spark):
        reason = f"This is a Spark Connect session, {why_not_connect}"
    elif not hasattr(spark, "_jsparkSession"):
        reason = f"This is no Spark session, but a {type(spark).__module__}.{type(spark).__qualname__}"
    elif not is_running(spark):
        reason = "The session is stopped"
    else:
        return
    raise StateStoreFilesError("PSS_SPARK_NOT_RUNNING", {"reason": reason, "action": action})


def inherited_settings() -> dict[str, str]:
    """Returns the settings that a session gets from elsewhere than its builder, as far as this process can tell."""
    conf = running_jvm_conf()
    if conf is not None:
        return conf
    return {**_defaults_file(), **submit_arguments()}


def running_jvm_conf() -> dict[str, str] | None:
    """Returns the settings of the JVM that this process talks to, or None before there is one."""
    if running_jvm() is None:
        return None
    from pyspark import SparkConf

    return dict(SparkConf().getAll())


def running_jvm() -> Any:
    """Returns py4j's view of the JVM that this process talks to, or None before there is one."""
    from pyspark import SparkContext

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # spark-submit has started the JVM, so this only connects to it
    return SparkContext._jvm if SparkContext._gateway is not None else None


def submit_arguments(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the settings in PYSPARK_SUBMIT_ARGS, which win over a builder's when the JVM starts."""
    words = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    settings: dict[str, str] = {}
    options: dict[str, str] = {}
    for word, value in zip(words, [*words[1:], ""], strict=False):
        name, _, joined = word.partition("=")
        if word in ("--conf", "-c") and "=" in value:
            key, _, setting = value.partition("=")
            settings[key] = setting
        elif name in ("--jars", "--master"):
            options[f"spark.{name.removeprefix('--')}"] = joined or value
    return {**settings, **options}  # spark-submit, too, prefers the option


def jar_path(spark: str | None = None) -> str:
    """Returns the path of the jar that Spark needs, for ``spark-submit --jars`` and the like.

    Args:
        spark: The version of Spark, such as ``"4.2"`` or ``"4.2.1"``; that of this environment's PySpark if not given.

    Returns:
        The path.

    Raises:
        StateStoreFilesError: There is no jar for this Spark (PSS_UNSUPPORTED_SPARK), or it was not built
            (PSS_JAR_MISSING), or it is not of this package's version (PSS_VERSION_MISMATCH). PSS_JAR_MISSING, too, if
            nobody says which Spark it is: PySpark is not installed, and there are jars for several.
    """
    if spark is None:
        try:
            import pyspark

            spark = str(pyspark.__version__)
        except ImportError:
            jars = [found for jar in _DIRECTORY.glob("*.jar") if (found := jar_in_name(jar.name))]
            if len(jars) != 1:
                raise jar_missing(
                    "PySpark is not installed here, so which of them is wanted is not known",
                    "Say which Spark it is for: jar_path('4.2') or pyspark-statestore jar-path --spark 4.2",
                ) from None
            spark = jars[0].spark
    return str(checked_jar(_DIRECTORY, __version__, spark_minor(spark)))


def checked_jar(directory: Path, version: str, spark: str) -> Path:
    """Finds the jar of a version for a minor version of Spark, and makes sure that its manifest names the same."""
    jar = directory / f"{JAR_STEM}spark-{spark}-{version}.jar"
    if not jar.is_file():
        others = sorted(other.name for other in directory.glob(f"{JAR_STEM}*.jar"))
        found = [jar_in_name(other) for other in others]
        if others and not any(each and each.version == version for each in found):
            last = found[-1].version if found[-1] else "?"
            found_jar = f"the jar {directory / others[-1]}"
            raise version_mismatch(found_jar, last, python_version=version, action=how_to_build(spark))
        built = ", ".join(each.spark for each in found if each and each.spark)
        missing = f"{jar} does not exist" + (f", only jars for Spark {built} do" if built else "")
        raise jar_missing(missing, how_to_build(spark))
    try:
        with zipfile.ZipFile(jar) as archive:
            manifest = archive.read("META-INF/MANIFEST.MF").decode()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise jar_missing(f"{jar} cannot be read: {error}", how_to_build(spark)) from error
    values = dict(line.split(": ", 1) for line in manifest.splitlines() if ": " in line)
    own_version = values.get("Implementation-Version", "without a version")
    if own_version != version:
        raise version_mismatch(f"the jar {jar}", own_version, python_version=version, action=how_to_build(spark))
    own_spark = values.get("Spark-Version", "no known version")
    if own_spark != spark:
        raise wrong_spark(spark, f"the jar {jar}", own_spark, how_to_build(spark))
    return jar


class NamedJar(NamedTuple):
    """What the name of the shim's jar says.

    Attributes:
        version: The version of the package.
        spark: The minor version of Spark; empty in the jars of early releases, whose names do not have it.
    """

    version: str
    spark: str


def jar_in_name(path: str) -> NamedJar | None:
    """Returns what the name of the shim's jar says, or None for the path of any other file."""
    found = _JAR.fullmatch(path.rstrip("/").rsplit("/", 1)[-1])
    return NamedJar(found[2], found[1] or "") if found else None


def how_to_build(spark: str) -> str:
    """The one command that makes the jar for a minor version of Spark, of this Python and where the package is from."""
    python = shlex.quote(sys.executable or "python")
    if (script := _CHECKOUT / "jvm-shim" / "build.py").is_file():
        return f"Build it: {python} {shlex.quote(str(script))} --spark {spark}"
    source = _installed_from()
    if _installed_minor() != spark:
        return f"Install the wheel with the jars for all versions of Spark, which `make full-wheel` makes in {source}"
    # Without isolation, pip compiles against the PySpark that is there, and not against the newest one.
    return (
        f"Build it for this PySpark: {python} -m pip install setuptools wheel && {python} -m pip install "
        f"--no-build-isolation --no-deps --force-reinstall {source}"
    )


def _installed_from() -> str:
    """The checkout from which pip has installed the package, for a shell; words for it where pip does not say."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        said = json.loads(distribution("pyspark-statestore").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        said = {}
    if isinstance(said, dict) and "dir_info" in said and str(said.get("url")).startswith("file:"):
        return shlex.quote(unquote(urlsplit(said["url"]).path))
    return "a checkout of pyspark-statestore"


def _installed_minor() -> str | None:
    """The minor version of this environment's PySpark, or None without one."""
    try:
        import pyspark
    except ImportError:
        return None
    return ".".join(str(pyspark.__version__).split(".")[:2])


def jar_missing(reason: str, action: str) -> StateStoreFilesError:
    """Returns PSS_JAR_MISSING."""
    return StateStoreFilesError("PSS_JAR_MISSING", {"reason": reason, "action": action})


def version_mismatch(
    what: str, jvm_version: str, action: str, python_version: str = __version__
) -> StateStoreFilesError:
    """Returns PSS_VERSION_MISMATCH."""
    parameters = {"python_version": python_version, "what": what, "jvm_version": jvm_version, "action": action}
    return StateStoreFilesError("PSS_VERSION_MISMATCH", parameters)


def wrong_spark(found: str, what: str, jar_spark: str, action: str) -> StateStoreFilesError:
    """Returns PSS_WRONG_SPARK."""
    return StateStoreFilesError(
        "PSS_WRONG_SPARK", {"found": found, "what": what, "jar_spark": jar_spark, "action": action}
    )


def loaded_jar(jvm: Any, class_loader: Any) -> NamedJar | None:
    """Returns what the shim says of itself that a class loader of the JVM finds, or None if it finds none."""
    from py4j.protocol import Py4JJavaError

    try:
        info = class_loader.loadClass("io.pyspark.statestore.ShimInfo")
    except Py4JJavaError:
        return None
    version = str(call_static(jvm, info, "version"))
    try:
        return NamedJar(version, str(call_static(jvm, info, "sparkMinor")))
    except Py4JJavaError:
        return NamedJar(version, "")  # an early release's


def call_static(jvm: Any, java_class: Any, method: str, *arguments: tuple[str, Any]) -> Any:
    """Calls a static method of a class that py4j's own lookup does not find, because another class loader has it.

    Args:
        jvm: py4j's view of the JVM.
        java_class: The ``java.lang.Class``.
        method: The method's name.
        *arguments: For each argument, the class name of the parameter and the value.
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


def check_loaded(loaded: NamedJar, spark_version: str) -> None:
    """Refuses a jar in the JVM that has another version than this package, or is for another Spark."""
    what, action = "the jar that the JVM has loaded", "Give Spark the jar that jar_path() names, and no other"
    if loaded.version != __version__:
        raise version_mismatch(what, loaded.version, action)
    if loaded.spark != spark_minor(spark_version):
        raise wrong_spark(spark_version, what, loaded.spark, action)


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
        # A Java properties file, of which only this syntax is common.
        found = re.match(r"\s*([^\s=:#!][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$", line)
        if found:
            settings[found[1]] = found[2]
    return settings
