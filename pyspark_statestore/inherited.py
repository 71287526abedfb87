"""What a Spark session would have been told by others than its builder, had the builder not said otherwise.

A builder's ``spark.jars`` replaces the one of spark-defaults.conf or spark-submit. Whoever adds to it has to know it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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
